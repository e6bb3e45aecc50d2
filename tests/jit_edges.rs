//! Recording at the edges: what users of a JIT trip over.

use doorbell::engine::{Error, Jit, JitError};
use doorbell::tensor::prelude::*;

fn vec(v: &[f32]) -> Tensor {
    Tensor::from_slice(v, [v.len()])
}

fn realized(v: &[f32]) -> Tensor {
    let t = vec(v).contiguous();
    t.realize().unwrap();
    t
}

#[test]
fn results_share_their_memory_between_calls() {
    let mut f = Jit::new(|x: &[Tensor]| vec![&x[0] * 2.0]);
    for k in 0..2 {
        f.call(&[vec(&[k as f32])]).unwrap();
    }
    let third = f.call(&[vec(&[10.0])]).unwrap();
    assert_eq!(third[0].to_vec::<f32>().unwrap(), [20.0]);
    let fourth = f.call(&[vec(&[11.0])]).unwrap();
    assert_eq!(fourth[0].to_vec::<f32>().unwrap(), [22.0]);
    // As documented: the memory of the earlier result holds the new one.
    assert_eq!(third[0].to_vec::<f32>().unwrap(), [22.0]);
}

#[test]
fn what_is_assigned_to_a_result_is_no_result_of_later_calls() {
    let mut f = Jit::new(|x: &[Tensor]| vec![&x[0] * 2.0]);
    // Another input, and the same one again.
    let inputs: Vec<Tensor> = (0..7).map(|k| vec(&[(k - k % 2) as f32]).realize().unwrap().clone()).collect();
    for k in 0..7usize {
        let input = std::slice::from_ref(&inputs[k - k % 2]);
        let out = f.call(input).unwrap();
        assert_eq!(out[0].to_vec::<f32>().unwrap(), [(k - k % 2) as f32 * 2.0], "call {k}");
        out[0].assign(&vec(&[-1.0])).realize().unwrap();
        assert_eq!(out[0].to_vec::<f32>().unwrap(), [-1.0]);
    }
}

#[test]
fn a_copy_of_a_result_keeps_its_value() {
    let mut f = Jit::new(|x: &[Tensor]| vec![&x[0] * 2.0]);
    let mut kept = Vec::new();
    for k in 0..5 {
        let out = f.call(&[vec(&[k as f32])]).unwrap();
        let copy = (&out[0] + 0.0).contiguous();
        copy.realize().unwrap();
        kept.push(copy);
    }
    for (k, t) in kept.iter().enumerate() {
        assert_eq!(t.to_vec::<f32>().unwrap(), [2.0 * k as f32], "call {k}");
    }
}

#[test]
fn views_with_offsets_are_inputs() {
    let base = realized(&(0..24).map(|k| k as f32).collect::<Vec<_>>());
    let mut f = Jit::new(|x: &[Tensor]| vec![&x[0] + 100.0]);
    for k in 0..5i64 {
        let out = f.call(&[base.shrink(&[(4 * k, 4 * k + 4)])]).unwrap();
        let want: Vec<f32> = (0..4).map(|j| (4 * k + j) as f32 + 100.0).collect();
        assert_eq!(out[0].to_vec::<f32>().unwrap(), want, "call {k}");
    }
}

#[test]
fn a_captured_buffer_stays_itself_when_an_input_is_its_first_part() {
    let base = realized(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let (whole, other) = (base.clone(), realized(&[10.0, 20.0]));
    let mut f = Jit::new(move |x: &[Tensor]| vec![&x[0] * &whole.shrink(&[(4, 6)]), &whole + 0.5]);
    for (call, input) in
        [base.shrink(&[(0, 2)]), base.shrink(&[(0, 2)]), other, base.shrink(&[(2, 4)])].iter().enumerate()
    {
        let first = input.to_vec::<f32>().unwrap();
        let out = f.call(std::slice::from_ref(input)).unwrap();
        assert_eq!(out[0].to_vec::<f32>().unwrap(), [first[0] * 5.0, first[1] * 6.0], "call {call}");
        assert_eq!(out[1].to_vec::<f32>().unwrap(), [1.5, 2.5, 3.5, 4.5, 5.5, 6.5], "call {call}");
    }
}

#[test]
fn two_parts_of_one_buffer_are_two_inputs() {
    let base = realized(&[1.0, 2.0, 3.0, 4.0]);
    let mut f = Jit::new(|x: &[Tensor]| vec![&x[0] - &x[1]]);
    for _ in 0..2 {
        let out = f.call(&[base.shrink(&[(0, 2)]), base.shrink(&[(2, 4)])]).unwrap();
        assert_eq!(out[0].to_vec::<f32>().unwrap(), [-2.0, -2.0]);
    }
    let out = f.call(&[realized(&[10.0, 20.0]), realized(&[1.0, 2.0])]).unwrap();
    assert_eq!(out[0].to_vec::<f32>().unwrap(), [9.0, 18.0]);
    let out = f.call(&[base.shrink(&[(2, 4)]), base.shrink(&[(0, 2)])]).unwrap();
    assert_eq!(out[0].to_vec::<f32>().unwrap(), [2.0, 2.0]);
}

#[test]
fn an_input_that_the_function_assigns_to_changes_at_each_call() {
    let state = realized(&[0.0, 0.0]);
    let other = realized(&[100.0, 100.0]);
    let mut f = Jit::new(|x: &[Tensor]| {
        x[0].assign(&(&x[0] + &x[1]));
        vec![x[0].clone()]
    });
    for k in 1..=4 {
        f.call(&[state.clone(), vec(&[1.0, 2.0])]).unwrap();
        assert_eq!(state.to_vec::<f32>().unwrap(), [k as f32, 2.0 * k as f32], "call {k}");
        assert_eq!((&state * 1.0).to_vec::<f32>().unwrap(), [k as f32, 2.0 * k as f32], "derived, call {k}");
    }
    // Another buffer in its place: that one is changed, the recorded one is not.
    f.call(&[other.clone(), vec(&[1.0, 2.0])]).unwrap();
    assert_eq!((&other * 1.0).to_vec::<f32>().unwrap(), [101.0, 102.0]);
    assert_eq!((&state * 1.0).to_vec::<f32>().unwrap(), [4.0, 8.0]);
}

#[test]
fn a_result_is_an_input_of_the_next_call() {
    let mut f = Jit::new(|x: &[Tensor]| vec![&x[0] + 1.0]);
    let mut x = vec(&[0.0, 10.0]);
    for k in 1..=6 {
        x = f.call(&[x]).unwrap().remove(0);
        assert_eq!(x.to_vec::<f32>().unwrap(), [k as f32, 10.0 + k as f32], "call {k}");
    }
}

#[test]
fn a_result_that_swaps_its_inputs_places_is_right() {
    // With shared memory the second result would be computed from the first one's new content.
    let mut f = Jit::new(|x: &[Tensor]| vec![&x[1] + 0.0, &x[0] + 0.5]);
    let (mut a, mut b) = (vec(&[1.0, 1.0]), vec(&[2.0, 2.0]));
    let (mut wa, mut wb) = (1.0f32, 2.0f32);
    for k in 0..6 {
        let mut out = f.call(&[a, b]).unwrap();
        (b, a) = (out.remove(1), out.remove(0));
        (wa, wb) = (wb, wa + 0.5);
        assert_eq!((a.to_vec::<f32>().unwrap()[1], b.to_vec::<f32>().unwrap()[1]), (wa, wb), "call {k}");
    }
}

#[test]
fn nested_recording_is_refused_and_the_outer_one_can_go_on() {
    let mut inner = Jit::new(|x: &[Tensor]| vec![&x[0] + 1.0]);
    let mut outer = Jit::new(move |x: &[Tensor]| inner.call(&[&x[0] * 2.0]));
    outer.call(&[vec(&[1.0])]).unwrap();
    assert!(matches!(outer.call(&[vec(&[1.0])]), Err(Error::Jit(JitError::Nested))));
    let out = (vec(&[3.0]) + 1.0).to_vec::<f32>().unwrap();
    assert_eq!(out, [4.0], "no recording is left open");
}

#[test]
fn a_function_that_fails_while_recorded_leaves_nothing_open() {
    let mut calls = 0;
    let mut f = Jit::new(move |x: &[Tensor]| -> Result<Vec<Tensor>, Error> {
        calls += 1;
        if calls == 2 { Err(Error::Function("no".into())) } else { Ok(vec![&x[0] + 1.0]) }
    });
    f.call(&[vec(&[1.0])]).unwrap();
    assert!(matches!(f.call(&[vec(&[1.0])]), Err(Error::Function(_))));
    assert_eq!(f.call(&[vec(&[1.0])]).unwrap()[0].to_vec::<f32>().unwrap(), [2.0]);
    assert_eq!(f.call(&[vec(&[5.0])]).unwrap()[0].to_vec::<f32>().unwrap(), [6.0]);
}

#[test]
fn a_panic_while_recorded_leaves_nothing_open() {
    let mut f = Jit::new(|x: &[Tensor]| {
        assert!(x.len() < 2, "on purpose");
        vec![&x[0] + 1.0]
    });
    f.call(&[vec(&[1.0])]).unwrap();
    let r = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| f.call(&[vec(&[1.0]), vec(&[2.0])]).map(drop)));
    assert!(r.is_err());
    assert_eq!((vec(&[3.0]) + 1.0).item().unwrap(), 4.0);
}

#[test]
fn random_numbers_differ_between_replays() {
    let g = Generator::new(3);
    let inside = g.clone();
    let mut f = Jit::new(move |x: &[Tensor]| vec![&x[0] + &inside.rand([4])]);
    let mut seen: Vec<Vec<f32>> = Vec::new();
    for k in 0..5 {
        let v = f.call(&[vec(&[0.0; 4])]).unwrap()[0].to_vec::<f32>().unwrap();
        assert!(!seen.contains(&v), "call {k} repeats an earlier draw");
        seen.push(v);
    }
}

#[test]
fn host_numbers_are_frozen_when_recorded() {
    let mut factor = 0.0f32;
    let mut f = Jit::new(move |x: &[Tensor]| {
        factor += 1.0;
        vec![&x[0] * factor]
    });
    let out: Vec<f64> = (0..4).map(|_| f.call(&[vec(&[1.0])]).unwrap()[0].item().unwrap()).collect();
    assert_eq!(out, [1.0, 2.0, 2.0, 2.0]);
}

#[test]
fn host_data_made_inside_is_frozen_and_not_overwritten_by_replays() {
    let mut f = Jit::new(|x: &[Tensor]| {
        let table = vec(&[1.0, 2.0, 3.0, 4.0]);
        let y = (&x[0] + &table).contiguous();
        vec![(&y * &y).sum(()), y.cumsum(0).contiguous() * 2.0]
    });
    for k in 0..5 {
        let b = k as f64;
        let out = f.call(&[vec(&[b as f32; 4])]).unwrap();
        let y = [1.0 + b, 2.0 + b, 3.0 + b, 4.0 + b];
        assert_eq!(out[0].item().unwrap(), y.iter().map(|v| v * v).sum::<f64>(), "call {k}");
        assert_eq!(out[1].to_f64().unwrap()[3], 2.0 * y.iter().sum::<f64>(), "call {k}");
    }
}

#[test]
fn a_result_that_is_an_input_is_the_input_of_each_call() {
    let mut f = Jit::new(|x: &[Tensor]| vec![&x[0] + 1.0, x[0].clone(), x[0].reshape([2, 2]).t()]);
    for k in 0..6 {
        let b = 10.0 * k as f32;
        let x = vec(&[b, b + 1.0, b + 2.0, b + 3.0]);
        let out = f.call(std::slice::from_ref(&x)).unwrap();
        assert_eq!(out[0].to_vec::<f32>().unwrap()[0], b + 1.0, "call {k}");
        assert_eq!(out[1].to_vec::<f32>().unwrap(), [b, b + 1.0, b + 2.0, b + 3.0], "call {k}");
        assert_eq!(out[2].to_vec::<f32>().unwrap(), [b, b + 2.0, b + 1.0, b + 3.0], "call {k}");
        // The same inputs again: nothing is patched.
        let again = f.call(std::slice::from_ref(&x)).unwrap();
        assert_eq!(again[1].to_vec::<f32>().unwrap()[3], b + 3.0, "call {k}");
    }
}

#[test]
fn a_part_of_a_buffer_and_a_result_of_the_call_before_come_back_as_results() {
    let base = realized(&(0..24).map(|k| k as f32).collect::<Vec<_>>());
    let mut f = Jit::new(|x: &[Tensor]| vec![&x[0] * 2.0, x[0].clone(), x[0].flip(0)]);
    for k in 0..6i64 {
        let out = f.call(&[base.shrink(&[(4 * k, 4 * k + 4)])]).unwrap();
        let want: Vec<f32> = (0..4).map(|j| (4 * k + j) as f32).collect();
        assert_eq!(out[1].to_vec::<f32>().unwrap(), want, "call {k}");
        assert_eq!(out[2].to_vec::<f32>().unwrap()[0], want[3], "call {k}");
    }
    let mut x = vec(&[1.0, 2.0, 3.0, 4.0]);
    let mut g = Jit::new(|x: &[Tensor]| vec![&x[0] * 2.0, x[0].clone(), x[0].flip(0)]);
    for k in 0..6 {
        let mut out = g.call(&[x]).unwrap();
        let was = 2f32.powi(k);
        assert_eq!(out[1].to_vec::<f32>().unwrap(), [was, 2.0 * was, 3.0 * was, 4.0 * was], "call {k}");
        assert_eq!(out[2].to_vec::<f32>().unwrap()[0], 4.0 * was, "call {k}");
        x = out.remove(0);
    }
}

#[test]
fn another_buffer_in_the_place_of_an_assigned_input_is_known_to_have_changed() {
    let (state, other) = (realized(&[0.0, 0.0]), realized(&[100.0, 100.0]));
    let mut f = Jit::new(|x: &[Tensor]| {
        x[0].assign(&(&x[0] + 1.0));
        vec![x[0].clone(), x[0].flip(0)]
    });
    for _ in 0..3 {
        f.call(std::slice::from_ref(&state)).unwrap();
    }
    let doubled = &other * 2.0;
    let more = &doubled + 1.0;
    assert_eq!(doubled.to_vec::<f32>().unwrap(), [200.0, 200.0]);
    for k in 1..=3 {
        let out = f.call(std::slice::from_ref(&other)).unwrap();
        let want = [100.0 + k as f32; 2];
        assert_eq!(out[0].to_vec::<f32>().unwrap(), want, "call {k}");
        assert_eq!((&out[1] * 2.0).to_vec::<f32>().unwrap(), want.map(|v| 2.0 * v), "call {k}");
        assert_eq!((&other * 2.0).to_vec::<f32>().unwrap(), want.map(|v| 2.0 * v), "derived, call {k}");
    }
    drop(more);
    assert_eq!(state.to_vec::<f32>().unwrap(), [3.0, 3.0]);
}

#[test]
fn results_have_the_sizes_of_each_call_s_variables() {
    let base = realized(&(0..8).map(|k| k as f32).collect::<Vec<_>>());
    let n = Variable::new("n", 1, 8);
    let mut f = Jit::new(|x: &[Tensor]| vec![&x[0] + 100.0, x[0].sum(()), x[0].clone()]);
    for (call, len) in [3i64, 5, 2, 8, 8, 1, 5].into_iter().enumerate() {
        let input = base.shrink(&[(Dim::Int(0), Dim::from(n.bind(len)))]);
        let out = f.call(&[input]).unwrap();
        let want: Vec<f32> = (0..len).map(|k| k as f32).collect();
        assert_eq!(out[0].to_vec::<f32>().unwrap(), want.iter().map(|v| v + 100.0).collect::<Vec<_>>(), "call {call}");
        assert_eq!(out[1].item().unwrap(), f64::from(want.iter().sum::<f32>()), "call {call}");
        assert_eq!(out[2].to_vec::<f32>().unwrap(), want, "call {call}");
    }
    assert!(f.is_recorded());
}

#[test]
fn an_input_of_variable_size_may_lie_anywhere_in_its_buffer() {
    let base = realized(&(0..16).map(|k| k as f32).collect::<Vec<_>>());
    let n = Variable::new("m", 1, 8);
    let mut f = Jit::new(|x: &[Tensor]| vec![&x[0] + 1.0, x[0].flip(0)]);
    for (call, (at, len)) in [(4i64, 3i64), (4, 3), (0, 5), (7, 2), (8, 8), (1, 1)].into_iter().enumerate() {
        let input = base.shrink(&[(at, at + 8)]).shrink(&[(Dim::Int(0), Dim::from(n.bind(len)))]);
        let out = f.call(&[input]).unwrap();
        let want: Vec<f32> = (at..at + len).map(|k| k as f32).collect();
        assert_eq!(out[0].to_vec::<f32>().unwrap(), want.iter().map(|v| v + 1.0).collect::<Vec<_>>(), "call {call}");
        assert_eq!(out[1].to_vec::<f32>().unwrap(), want.into_iter().rev().collect::<Vec<_>>(), "call {call}");
    }
}

#[test]
fn one_variable_with_two_values_is_refused() {
    let (a, b) = (realized(&[1.0, 2.0, 3.0, 4.0]), realized(&[5.0, 6.0, 7.0, 8.0]));
    let n = Variable::new("k", 1, 4);
    let part = |t: &Tensor, len: i64| t.shrink(&[(Dim::Int(0), Dim::from(n.bind(len)))]);
    let mut f = Jit::new(|x: &[Tensor]| vec![&x[0] + &x[1]]);
    for len in [2, 3, 4] {
        f.call(&[part(&a, len), part(&b, len)]).unwrap();
    }
    let error = f.call(&[part(&a, 2), part(&b, 3)]).unwrap_err();
    assert_eq!(error.to_string(), "jit: variable 'k' is bound to 2 and to 3 in one call");
    assert_eq!(f.call(&[part(&a, 2), part(&b, 2)]).unwrap()[0].to_vec::<f32>().unwrap(), [6.0, 8.0]);
}

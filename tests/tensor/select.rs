//! Indices of all spellings, shapes that depend on data, and operators in place, on the device.

use super::{close, has_f64};
use doorbell::engine::Jit;
use doorbell::tensor::prelude::*;

fn x() -> Tensor {
    Tensor::arange(24).reshape([2, 3, 4])
}

fn shape(t: &Tensor) -> Vec<i64> {
    t.shape().unwrap_or_else(|e| panic!("{e}")).iter().filter_map(Dim::as_int).collect()
}

#[track_caller]
fn is(t: &Tensor, want: &[i64], values: &[f64]) {
    assert_eq!(shape(t), want);
    close(&t.to_f64().unwrap_or_else(|e| panic!("{e}")), values, 0.0);
}

fn message(t: &Tensor) -> String {
    t.shape().map(|s| format!("{s:?}")).unwrap_err().to_string()
}

#[test]
// A negative end counts from the end of the axis: the range is not empty.
#[allow(clippy::reversed_empty_ranges)]
fn lists_ranges_and_new_axes_are_written_as_in_python() {
    is(&x().get([1, 0, -1]).get((.., 0, 0)), &[3], &[12., 0., 12.]);
    is(&x().get((0, vec![2i64, 0], 1..=2)), &[2, 2], &[9., 10., 1., 2.]);
    is(&x().get((0, &[1usize][..], ..=-1)), &[1, 4], &[4., 5., 6., 7.]);
    is(&x().get((0, 0, 1..=-2)), &[2], &[1., 2.]);
    assert_eq!(shape(&x().get((None, .., None))), [1, 2, 1, 3, 4]);
    assert_eq!(shape(&x().get((NEW_AXIS, ELLIPSIS, 0, None))), [1, 2, 3, 1]);
    is(&x().get((1, [true, false, true], 0)), &[2], &[12., 20.]);
    is(&x().get([Index::from(1), Index::ALL, Index::from(vec![3i64, 0])]).get(0), &[2], &[15., 12.]);
    let seven = Tensor::arange(128).reshape([2; 7]);
    is(&seven.get((1, 1, 1, 1, 1, 1, 1)), &[], &[127.]);
    let many: Vec<Index> = (0..7).map(|k| Index::from(k % 2)).collect();
    is(&seven.get(&many), &[], &[42.]);
}

#[test]
fn a_mask_picks_its_true_places_and_a_wrong_one_is_told() {
    let m = x().get((.., .., 0)).gt(4);
    is(&x().get(&m).get((.., 0)), &[4], &[8., 12., 16., 20.]);
    is(&x().get((&m, 1)), &[4], &[9., 13., 17., 21.]);
    is(&x().masked_select(&x().gt(20)), &[3], &[21., 22., 23.]);
    let places = x().gt(21).nonzero();
    is(&places, &[2, 3], &[1., 2., 2., 1., 2., 3.]);
    let error = message(&x().get(&Tensor::new([true, false, true])));
    assert!(error.starts_with("get: a mask of shape (3,) over axes of shape (2,)"), "{error}");
    assert!(error.contains("select.rs"), "{error}");
    let error = message(&x().get(&Tensor::new(true)));
    assert!(error.starts_with("get: a mask without axes"), "{error}");
    let error = message(&Indexing::get(&x(), &m));
    assert!(error.starts_with("get: what a mask picks has a shape that depends on data"), "{error}");
    let error = message(&x().masked_select(&Tensor::new([1, 2, 3, 4])));
    assert!(error.starts_with("masked_select: a mask is bool, not i32"), "{error}");
    let error = message(&x().masked_select(&Tensor::new([true; 3])));
    assert!(error.starts_with("masked_select: shape"), "{error}");
}

#[test]
fn a_mask_inside_a_recorded_function_is_refused_with_the_reason() {
    let mut step = Jit::new(|x: &[Tensor]| vec![x[0].masked_select(&x[0].gt(0))]);
    let a = Tensor::new([1.0f32, -1.0, 2.0]);
    a.realize().unwrap();
    let mut answers = Vec::new();
    for _ in 0..3 {
        answers.push(step.call(std::slice::from_ref(&a)).map_err(|e| e.to_string()));
    }
    let refused = answers.into_iter().find_map(Result::err).expect("a refusal");
    assert!(refused.contains("read") || refused.contains("depends on data"), "{refused}");
}

#[test]
fn unique_has_values_inverse_and_counts() {
    let found = Tensor::new([[3, 1, 3], [2, 1, 3]]).unique();
    is(&found.values, &[3], &[1., 2., 3.]);
    is(&found.inverse, &[2, 3], &[2., 0., 2., 1., 0., 2.]);
    is(&found.counts, &[3], &[2., 1., 3.]);
    assert!(Tensor::new([1.0f32, 2.0]).allclose(&Tensor::new([1.0f32, 2.00001]), 1e-4, 0.0).unwrap());
    assert!(!Tensor::new([1.0f32, 2.0]).allclose(&Tensor::new([1.0f32, 2.1]), 1e-4, 0.0).unwrap());
}

#[test]
fn masks_store_numbers_rows_and_less_than_there_are_places() {
    let t = x();
    t.set(&t.gt(20), -1);
    close(&t.to_f64().unwrap()[20..], &[20., -1., -1., -1.], 0.0);
    let line = Tensor::arange(6);
    line.set([true, false, true, true, false, true], &Tensor::new([10, 20]));
    is(&line, &[6], &[10., 1., 20., 3., 4., 5.]);
    let line = Tensor::arange(4);
    line.set((&Tensor::new([true, false, true, false]),), &Tensor::new([7, 8, 9]));
    is(&line, &[4], &[7., 1., 8., 3.]);
    let both = x();
    both.set((&Tensor::new([true, false]), &Tensor::new([2])), 0);
    close(&both.to_f64().unwrap()[8..13], &[0., 0., 0., 0., 12.], 0.0);
    let error = message(x().set(&Tensor::new([true; 3]), 0));
    assert!(error.starts_with("set: a mask of shape (3,) over axes of shape (2,)"), "{error}");
    let memory = Tensor::empty([3], Scalar::F32);
    memory.assign(&Tensor::new([1.0f32, 2.0, 3.0]));
    memory.realize().unwrap();
    let other = memory.clone();
    memory.set(&memory.gt(1.5), 0.5);
    is(&other, &[3], &[1., 0.5, 0.5]);
}

#[test]
fn a_part_is_updated_in_place() {
    let t = Tensor::arange(6).reshape([2, 3]);
    t.update((0, 1..), |part| part + 10);
    is(&t, &[2, 3], &[0., 11., 12., 3., 4., 5.]);
    t.update(&t.gt(4), |part| part * 2);
    is(&t, &[2, 3], &[0., 22., 24., 3., 4., 10.]);
}

#[test]
fn operators_in_place_keep_memory_shape_and_type() {
    let mut t = Tensor::empty([3], Scalar::F32);
    t.assign(&Tensor::new([1.0f32, 2.0, 3.0]));
    t.realize().unwrap();
    let other = t.clone();
    t += 1.0;
    t *= &Tensor::new([2.0f32, 1.0, 0.5]);
    t -= Tensor::new([1.0f32]);
    t /= 2;
    is(&other, &[3], &[1.5, 1.0, 0.5]);
    // A remainder of floats is computed in f64.
    if has_f64() {
        t %= 1.0;
        is(&other, &[3], &[0.5, 0.0, 0.5]);
    }
    let mut bits = Tensor::new([5, 6, 7]);
    bits <<= 2;
    bits |= 1;
    bits ^= 2;
    bits &= 0xfd | 2;
    bits >>= 1;
    is(&bits, &[3], &[11., 13., 15.]);
    let mut small = Tensor::new([1, 2]);
    small /= 2;
    let error = message(&small);
    assert!(error.starts_with("/=: f32 does not go into i32 without a cast"), "{error}");
    let mut row = Tensor::new([1, 2]);
    row += &Tensor::new([[1, 2], [3, 4]]);
    let error = message(&row);
    assert!(error.starts_with("+=: (2, 2) does not fit (2,)"), "{error}");
}

#[test]
fn classes_are_drawn_by_their_weights() {
    let g = Generator::new(3);
    let weights = Tensor::new([[1.0f32, 0.0, 3.0, 0.0], [0.0, 2.0, 0.0, 0.0]]);
    let drawn = g.multinomial(&weights, 4000, true).to_f64().unwrap();
    let twos = drawn[..4000].iter().filter(|c| **c == 2.0).count();
    assert!(drawn[..4000].iter().all(|c| *c == 0.0 || *c == 2.0) && (2900..3100).contains(&twos), "{twos}");
    assert!(drawn[4000..].iter().all(|c| *c == 1.0));
    let line = Tensor::new([0.0f32, 1.0, 5.0, 2.0, 0.0, 3.0]);
    let mut firsts = [0usize; 6];
    for _ in 0..200 {
        let four = g.multinomial(&line, 4, false).to_f64().unwrap();
        firsts[four[0] as usize] += 1;
        let mut sorted: Vec<usize> = four.iter().map(|c| *c as usize).collect();
        sorted.sort_unstable();
        assert_eq!(sorted, [1, 2, 3, 5]);
    }
    assert!((65..115).contains(&firsts[2]), "{firsts:?}");
    is(&g.multinomial(&Tensor::new([0.0f32, 4.0]), 1, false), &[1], &[1.0]);
    for (weights, count, replacement, text) in [
        (Tensor::new([1.0f32, 2.0]), 3, false, "multinomial: 3 different ones of 2 classes"),
        (Tensor::new(1.0f32), 1, true, "multinomial: weights of rank 0"),
        (Tensor::zeros([0]), 1, true, "multinomial: weights of no class"),
    ] {
        let error = message(&weights.multinomial(count, replacement));
        assert!(error.starts_with(text) && error.contains("select.rs"), "{error}");
    }
}

#[test]
fn wrong_matrices_and_messages_are_told() {
    let line = Tensor::new([1.0f32, 2.0]);
    for (made, text) in [
        (line.qr().0, "qr: (2,) is not the shape of matrices"),
        (line.svd(true).1, "svd: (2,) is not the shape of matrices"),
        (Tensor::zeros([3, 0]).svd(true).1, "svd: (3, 0) has no singular values"),
        (line.newton_schulz(1, &[1.0], 1e-7), "newton_schulz: (2,) is not the shape of matrices"),
        (Tensor::zeros([2, 2]).newton_schulz(1, &[], 1e-7), "newton_schulz: a polynomial without coefficients"),
        (line.normalize(2.0, 1, 1e-12), "normalize: axis 1 is out of range for rank 1"),
        (Tensor::new(1u8).keccak(Keccak::default()), "keccak: a message has an axis"),
    ] {
        let error = message(&made);
        assert!(error.starts_with(text) && error.contains("select.rs"), "{error}");
    }
    is(&line.sequential(&[&|x| x + 1, &|x| x * 2]), &[2], &[4., 6.]);
}

#[test]
fn wrong_orders_and_scatters_are_told() {
    let t = Tensor::new([[1.0f32, 2.0], [3.0, 4.0]]);
    let i = Tensor::new([[0, 1], [1, 0]]);
    for (made, text) in [
        (t.sort(2, false).0, "sort: axis 2 is out of range for rank 2"),
        (t.topk(3, 1, true).0, "topk: the first 3 of 2 elements"),
        (t.argmax([0, 1]), "argmax: 2 axes"),
        (t.argmax(-3), "argmax: axis -3 is out of range"),
        (t.scatter(0, &i.float(), 1.0), "scatter: an index of shape (2, 2) and type f32"),
        (t.scatter(0, &Tensor::new([0, 1]), 1.0), "scatter: an index of shape (2,)"),
        (t.scatter(0, &i, &Tensor::new([[1.0f32]])), "scatter: 0..2 is not within axis 0 of size 1"),
        (i.scatter(0, &i, &t), "scatter: f32 does not go into i32 without a cast"),
        (t.scatter_add(0, &Tensor::new([[0, 0, 0]]), 1.0), "scatter_reduce: an index of shape (1, 3) for (2, 2)"),
        (t.searchsorted(&Tensor::new([1.0f32]), false), "searchsorted: values of shape (1,) in (2, 2)"),
        (t.cummax(5).1, "cummax: axis 5 is out of range"),
        (t.logcumsumexp(2), "logcumsumexp: axis 2 is out of range"),
    ] {
        let error = message(&made);
        assert!(error.starts_with(text), "{error}");
        assert!(error.contains("select.rs"), "{error}");
    }
}

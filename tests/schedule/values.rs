//! Values of scheduled graphs, kernel by kernel on the interpreter.

use crate::graphs::*;
use doorbell::uop::{DType, Op, UOp};

#[test]
fn movement_of_every_kind_reads_the_right_elements() {
    let x = input(&[4, 6]);
    let cases = [
        add(&transpose(&x), &num(1.0)),
        add(&reshape(&transpose(&x), &[3, 8]), &num(1.0)),
        add(&pad(&x, &[(1, 2), (0, 3)]), &num(1.0)),
        pad(&shrink(&x, &[(1, 3), (2, 6)]), &[(1, 1), (0, 0)]),
        x.flip(&[0, 1]),
        reshape(&x.flip(&[1]), &[2, 12]),
        contiguous(&expand(&shrink(&x, &[(1, 2), (0, 6)]), &[5, 6])),
        contiguous(&windows(&x, 1, 3)),
        reshape(&pad(&reshape(&pad(&x, &[(0, 0), (1, 1)]), &[32]), &[(3, 1)]), &[6, 6]),
    ];
    for c in cases {
        check(&[c]);
    }
}

#[test]
fn padding_after_a_function_that_is_not_zero_at_zero_gives_zeros() {
    let x = input(&[5]);
    check(&[pad(&un(Op::Exp2, &x), &[(2, 2)])]);
    check(&[sum(&pad(&un(Op::Exp2, &x), &[(2, 2)]), &[0])]);
    check(&[pad(&sum(&un(Op::Exp2, &expand(&reshape(&x, &[1, 5]), &[3, 5])), &[1]), &[(1, 0), (0, 0)])]);
}

#[test]
fn reduces_feed_one_another() {
    let x = input(&[6, 8]);
    check(&[softmax(&x, 1)]);
    check(&[softmax(&x, 0)]);
    check(&[sum(&softmax(&x, 1), &[0, 1])]);
    check(&[var(&x, &[0], 5.0), var(&x, &[0, 1], 47.0)]);
    let y = input(&[8, 5]);
    check(&[softmax(&matmul(&x, &y), 1), matmul(&softmax(&x, 1), &y)]);
    check(&[matmul(&relu(&matmul(&x, &y)), &input(&[5, 3]))]);
}

#[test]
fn convolution_by_windows() {
    let (x, w) = (input(&[2, 3, 6, 6]), input(&[4, 3, 3, 3]));
    check(&[relu(&conv2d(&x, &w))]);
}

#[test]
fn assignment_in_place_sees_old_values_and_later_readers_see_new_ones() {
    let p = buffer(DType::F32, 6);
    let new = assign(&p, &mul(&p, &num(2.0)));
    let m = Memory::default();
    let roots = [sum(&p, &[0]), sum(&new, &[0]), new.clone()];
    m.fill(&roots, 3);
    let want: Vec<_> = roots.iter().map(|r| m.value(r).to_f64()).collect();
    let s = plan(&roots);
    m.run(&s);
    for (o, w) in s.outputs.iter().zip(&want) {
        assert_eq!(m.value(&o.view).to_f64(), *w);
    }
}

#[test]
fn an_assigned_value_that_reads_its_target_elsewhere_is_computed_first() {
    let p = buffer(DType::F32, 6);
    let m = Memory::default();
    let root = assign(&p, &p.flip(&[0]));
    m.fill(std::slice::from_ref(&root), 5);
    let want = m.value(&root).to_f64();
    let s = plan(&[root]);
    m.run(&s);
    assert_eq!(m.value(&s.outputs[0].view).to_f64(), want);
}

#[test]
fn a_value_of_old_and_new_content_reads_a_copy_of_the_old() {
    let p = buffer(DType::F32, 6);
    let new = assign(&p, &mul(&p, &num(2.0)));
    let both = mul(&p, &sum(&new, &[0]));
    let m = Memory::default();
    let roots = [both, new];
    m.fill(&roots, 11);
    let want: Vec<_> = roots.iter().map(|r| m.value(r).to_f64()).collect();
    let s = plan(&roots);
    m.run(&s);
    for (o, w) in s.outputs.iter().zip(&want) {
        assert_eq!(m.value(&o.view).to_f64(), *w);
    }
    assert_eq!(s.outputs.len(), 3, "the assignment itself is an output");
}

#[test]
fn an_optimiser_step_updates_state_and_parameters_in_one_kernel() {
    let (p, v, g) = (buffer(DType::F32, 20), buffer(DType::F32, 20), input(&[20]));
    let v2 = assign(&v, &add(&mul(&v, &num(0.5)), &g));
    let p2 = assign(&p, &sub(&p, &mul(&v2, &num(0.25))));
    let m = Memory::default();
    let roots = [v2.clone(), p2.clone()];
    m.fill(&roots, 9);
    let want: Vec<_> = roots.iter().map(|r| m.value(r).to_f64()).collect();
    let s = plan(&roots);
    assert_eq!(s.kernel_count(), 1);
    m.run(&s);
    for (o, w) in s.outputs.iter().zip(&want) {
        assert_eq!(m.value(&o.view).to_f64(), *w);
    }
}

#[test]
fn empty_axes_give_identities_and_empty_outputs_give_no_kernel() {
    let e = input(&[0, 4]);
    let s = check(&[add(&e, &num(1.0))]);
    assert_eq!(s.kernel_count(), 0);
    check(&[sum(&e, &[0]), add(&pad(&e, &[(1, 1), (0, 0)]), &num(2.0))]);
}

#[test]
fn sizes_that_are_variables_run_with_their_bound_values() {
    let n = UOp::var("n", 1, 8).bind(5);
    let x = buffer(DType::F32, 8);
    let m = Memory::default();
    let graph = |n: &UOp| {
        let part = x.movement(Op::Shrink, [UOp::int(0), n.clone()]);
        sum(&mul(&part, &part), &[0])
    };
    let root = graph(&n);
    m.fill(std::slice::from_ref(&root), 2);
    let want = m.value(&graph(&UOp::int(5))).to_f64();
    let s = plan(&[root]);
    assert_eq!(s.var_vals, [("n".into(), 5)]);
    m.run(&s);
    assert_eq!(m.value(&s.outputs[0].view).to_f64(), want);
}

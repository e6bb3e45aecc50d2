//! Reading and storing by index, against numpy's rules worked out by hand.

use super::{close, eval, values};
use doorbell::tensor::prelude::*;
use doorbell::tensor::slice;

fn x() -> Tensor {
    Tensor::arange(24).reshape([2, 3, 4])
}
fn is(t: Tensor, shape: &[usize], want: &[f64]) {
    let (s, v) = eval(&t);
    assert_eq!(s, shape);
    close(&v, want, 0.0);
}

#[test]
fn integers_ranges_steps_and_new_axes() {
    is(x().get((1, 2, 3)), &[], &[23.]);
    is(x().get(-1), &[3, 4], &[12., 13., 14., 15., 16., 17., 18., 19., 20., 21., 22., 23.]);
    is(x().get((.., 1..3, 0)), &[2, 2], &[4., 8., 16., 20.]);
    is(x().get((0, .., slice(None, None, 2))), &[3, 2], &[0., 2., 4., 6., 8., 10.]);
    is(x().get((0, 0, slice(None, None, -1))), &[4], &[3., 2., 1., 0.]);
    is(x().get((0, 0, slice(3, 0, -2))), &[2], &[3., 1.]);
    is(x().get((0, 0, slice(-1, None, -3))), &[2], &[3., 0.]);
    is(x().get((0, 0, slice(1, 100, 3))), &[1], &[1.]);
    is(x().get((0, 0, slice(-2, None, 1))), &[2], &[2., 3.]);
    is(x().get((0, 0, slice(3, 1, 1))), &[0], &[]);
    is(x().get((Index::Ellipsis, 0)), &[2, 3], &[0., 4., 8., 12., 16., 20.]);
    is(x().get((0, Index::NewAxis, 1)), &[1, 4], &[4., 5., 6., 7.]);
    is(x().get((Index::NewAxis, Index::Ellipsis, 1, Index::NewAxis)).get((0, 0)), &[3, 1], &[1., 5., 9.]);
}

#[test]
fn integers_outside_say_axis_and_size() {
    let error = x().get((0, 3)).shape().unwrap_err().to_string();
    assert!(error.starts_with("get: index 3 is out of range for axis 0 of size 3"), "{error}");
    let error = x().get((0, 0, 0, 0)).shape().unwrap_err().to_string();
    assert!(error.starts_with("get: 4 indices for rank 3"), "{error}");
    let error = x().get(&Tensor::new([1.0f32])).shape().unwrap_err().to_string();
    assert!(error.starts_with("get: an index Tensor holds integers"), "{error}");
}

#[test]
fn tensors_pick_wrap_and_read_zero_outside() {
    let i = Tensor::new([2, -1, 5, 0]);
    is(x().get((1, &i, 0)), &[4], &[20., 20., 0., 12.]);
    is(x().get((.., &Tensor::new([[0, 2]]), 1)), &[2, 1, 2], &[1., 9., 13., 21.]);
    let (a, b) = (Tensor::new([0, 1]), Tensor::new([1, 2]));
    is(x().get((&a, &b)), &[2, 4], &[4., 5., 6., 7., 20., 21., 22., 23.]);
    is(x().get((&a, .., &b)), &[2, 3], &[1., 5., 9., 14., 18., 22.]);
    is(x().get((.., &a, &b)), &[2, 2], &[1., 6., 13., 18.]);
    is(x().get((&a.reshape([2, 1]), &b, 0)), &[2, 2], &[4., 8., 16., 20.]);
    is(x().get((.., &Tensor::new([0, 9]), &Tensor::new([9, 1]))), &[2, 2], &[0., 0., 0., 0.]);
    is(x().gt(11).get((&Tensor::new([1u8]), 0, 0)), &[1], &[1.]);
    let table = Tensor::new([f32::NAN, 1.0, f32::INFINITY]);
    is(table.get(&Tensor::new([1])), &[1], &[1.0]);
}

#[test]
fn gather_takes_along_an_axis() {
    let t = Tensor::new([[1, 2], [3, 4]]);
    is(t.gather(1, &Tensor::new([[0, 0], [1, 0]])), &[2, 2], &[1., 1., 4., 3.]);
    is(t.gather(0, &Tensor::new([[1, 0]])), &[1, 2], &[3., 2.]);
}

#[test]
fn storing_into_a_value_replaces_what_the_view_shows() {
    let t = x();
    t.set((0, .., slice(None, None, -2)), &Tensor::new([-1, -2]));
    close(&values(&t)[..12], &[0., -2., 2., -1., 4., -2., 6., -1., 8., -2., 10., -1.], 0.0);
    close(&values(&t)[12..], &values(&x())[12..], 0.0);
    let t = Tensor::arange(5);
    t.set(&Tensor::new([3, 1, 3, 9]), &Tensor::new([10, 20, 30, 40]));
    close(&values(&t), &[0., 20., 2., 30., 4.], 0.0);
    let t = Tensor::arange(6).reshape([2, 3]);
    t.set((.., &Tensor::new([2, 0])), &Tensor::new([[7], [8]]));
    close(&values(&t), &[7., 1., 7., 8., 4., 8.], 0.0);
    let t = Tensor::arange(6).reshape([2, 3]);
    t.set((&Tensor::new([0, 1]), &Tensor::new([1, 1])), &Tensor::new([50, 60]));
    close(&values(&t), &[0., 50., 2., 3., 60., 5.], 0.0);
    let t = x();
    t.set(0, &Tensor::full((), 9));
    close(&values(&t)[..13], &[9., 9., 9., 9., 9., 9., 9., 9., 9., 9., 9., 9., 12.], 0.0);
}

#[test]
fn storing_into_memory_writes_the_view_only() {
    use doorbell::uop::Op;
    let t = Tensor::empty([4, 4], Scalar::F32);
    t.set((1..3, ..), &Tensor::full((), 1.0));
    let u = t.uop().unwrap();
    assert_eq!((u.op(), u.src()[1].op()), (Op::After, Op::Assign));
    assert_eq!(u.src()[1].shape(), [Dim::Int(2), Dim::Int(4)]);
    t.set((&Tensor::new([0]), 0), &Tensor::full((), 2.0));
    assert_eq!(t.uop().unwrap().op(), Op::Assign);
    let error = t.set(0, &Tensor::zeros([5])).shape().unwrap_err().to_string();
    assert!(error.starts_with("set: shapes (5,) and (4,) do not broadcast"), "{error}");
}

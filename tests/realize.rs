//! Realizing at the edges: constants, flipped views, offsets, nothing at all, two devices, many threads.

use doorbell::tensor::prelude::*;

fn ramp(n: usize) -> Tensor {
    Tensor::from_slice(&(0..n).map(|k| k as f32).collect::<Vec<_>>(), [n])
}

#[test]
fn a_constant_that_is_read_twice_makes_no_kernel_without_stores() {
    let low = Tensor::full_of([5], 2.0, Scalar::F32).min_keep(0);
    assert_eq!(low.min_keep(0).mul(&low).to_vec::<f32>().unwrap(), [4.0]);
    let mean = Tensor::full_of([1, 3], 2, Scalar::I32).mean(1);
    assert_eq!(mean.abs().to_vec::<f32>().unwrap(), [2.0]);
}

#[test]
fn flips_that_cancel_and_single_elements_of_flips_are_read_in_place() {
    let x = ramp(5);
    x.realize().unwrap();
    assert_eq!(x.flip(0).flip(0).to_vec::<f32>().unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0]);
    assert_eq!(x.flip(0).to_vec::<f32>().unwrap(), [4.0, 3.0, 2.0, 1.0, 0.0]);
    assert_eq!(x.flip(0).shrink(&[(1, 2)]).to_vec::<f32>().unwrap(), [3.0]);
}

#[test]
fn a_64_bit_integer_and_one_spread_over_lanes_are_combined_bit_by_bit() {
    let one = Tensor::from_slice(&[-6i64], [1]);
    let many = Tensor::from_slice(&(0..8).map(|k| -1 - (k << 33)).collect::<Vec<i64>>(), [8]);
    let all: Vec<i64> = (0..8).map(|k| -1 - (k << 33)).collect();
    assert_eq!(one.bitand(&many).to_vec::<i64>().unwrap(), all.iter().map(|x| x & -6).collect::<Vec<_>>());
    assert_eq!(one.bitor(&many).to_vec::<i64>().unwrap(), all.iter().map(|x| x | -6).collect::<Vec<_>>());
    assert_eq!(one.bitxor(&many).to_vec::<i64>().unwrap(), all.iter().map(|x| x ^ -6).collect::<Vec<_>>());
}

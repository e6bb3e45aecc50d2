//! Realizing at the edges: constants, flipped views, offsets, nothing at all, two devices, many threads.

use doorbell::tensor::default_device;
use doorbell::tensor::prelude::*;
use std::sync::Arc;

/// The device of the tensors, from `DEV`, and another one.
fn devices() -> (Arc<str>, &'static str) {
    let here = default_device();
    let there = if here.starts_with("CPU") { "CPU:1" } else { "CPU" };
    (here, there)
}

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

#[test]
fn tensors_without_elements_have_values_of_no_elements() {
    let none = Tensor::from_slice::<f32>(&[], [0, 3]);
    assert_eq!(none.to_vec::<f32>().unwrap(), [0f32; 0]);
    assert_eq!((&none + 1.0).to_vec::<f32>().unwrap(), [0f32; 0]);
    assert_eq!(none.sum(0).to_vec::<f32>().unwrap(), [0.0, 0.0, 0.0]);
    assert_eq!(none.sum(()).item().unwrap(), 0.0);
    assert_eq!(Tensor::cat(&[&none, &Tensor::ones([1, 3])], 0).to_vec::<f32>().unwrap(), [1.0; 3]);
    assert_eq!(ramp(4).shrink(&[(2, 2)]).to_vec::<f32>().unwrap(), [0f32; 0]);
    assert_eq!(none.reshape([3, 0]).pad(&[(0, 0), (1, 0)]).to_vec::<f32>().unwrap(), [0.0; 3]);
    assert_eq!(none.matmul(&Tensor::ones([3, 2])).to_vec::<f32>().unwrap(), [0f32; 0]);
    assert_eq!(Tensor::ones([2, 0]).matmul(&Tensor::ones([0, 2])).to_vec::<f32>().unwrap(), [0.0; 4]);
    assert!(none.max(0).realize().is_err());
    let t = none.contiguous();
    t.realize().unwrap();
    t.assign(&(&t + 1.0));
    assert_eq!(t.to_vec::<f32>().unwrap(), [0f32; 0]);
}

#[test]
fn values_go_to_another_device_and_back() {
    let (x, (here, there)) = (ramp(1000), devices());
    let y = (&x.to(there) * 2.0).to(&here) + &x;
    assert_eq!(y.to_vec::<f32>().unwrap(), (0..1000).map(|k| 3.0 * k as f32).collect::<Vec<_>>());
    let z = &x.to(there) + 1.0;
    assert_eq!(&*z.device(), there);
    assert_eq!(z.to_vec::<f32>().unwrap()[999], 1000.0);
    // Part of a realized buffer, in another order.
    let part = z.shrink(&[(10, 20)]).flip(0).to(&here);
    assert_eq!(part.to_vec::<f32>().unwrap(), (11..21).rev().map(|k| k as f32).collect::<Vec<_>>());
}

#[test]
fn operands_on_two_devices_are_an_error_that_names_both() {
    let (x, y) = (ramp(8), ramp(8).to(devices().1));
    x.realize().unwrap();
    y.realize().unwrap();
    let e = (&x + &y).realize().map(drop).unwrap_err().to_string();
    assert!(e.contains("device"), "{e}");
}

#[test]
fn a_chain_of_two_devices_is_repeated_with_the_right_order() {
    let (here, there) = devices();
    for k in 0..20 {
        let x = &ramp(333) + k as f32;
        let y = (&x.to(there) * 2.0).contiguous();
        let z = (&y.to(&here) - &x).to(there) + &y;
        let want: Vec<f32> = (0..333).map(|i| 3.0 * (i + k) as f32).collect();
        assert_eq!(z.to_vec::<f32>().unwrap(), want, "round {k}");
    }
}

#[test]
fn many_threads_realize_at_once() {
    let shared = ramp(64);
    shared.realize().unwrap();
    let lazy = (&shared * 3.0).contiguous();
    std::thread::scope(|s| {
        for t in 0..8 {
            let (shared, lazy) = (&shared, &lazy);
            s.spawn(move || {
                for k in 0..20 {
                    let y = (shared + (t * 100 + k) as f32).sum(());
                    assert_eq!(y.item().unwrap(), f64::from(2016 + 64 * (t * 100 + k)));
                    assert_eq!(lazy.to_vec::<f32>().unwrap()[63], 189.0);
                }
            });
        }
    });
}

#[test]
fn one_tensor_assigned_in_place_many_times_and_read_between() {
    let t = Tensor::zeros([17]).contiguous();
    t.realize().unwrap();
    let before = &t + 5.0;
    for k in 1..=10 {
        t.assign(&(&t + 1.0));
        if k % 3 == 0 {
            t.realize().unwrap();
        }
        assert_eq!((&t * 2.0).to_vec::<f32>().unwrap(), [2.0 * k as f32; 17]);
    }
    assert_eq!(before.to_vec::<f32>().unwrap(), [5.0; 17], "what was built before keeps the old value");
}

#[test]
fn an_assignment_from_its_own_transpose_or_flip_reads_the_old_content() {
    let t = Tensor::from_slice(&(0..289).map(|k| k as f32).collect::<Vec<_>>(), [17, 17]).contiguous();
    t.realize().unwrap();
    t.assign(&t.t());
    let want: Vec<f32> = (0..289).map(|k| (k % 17 * 17 + k / 17) as f32).collect();
    assert_eq!(t.to_vec::<f32>().unwrap(), want);
    let f = ramp(33).contiguous();
    f.realize().unwrap();
    f.assign(&(&f + &f.flip(0)));
    assert_eq!(f.to_vec::<f32>().unwrap(), [32.0; 33]);
}

#[test]
fn a_file_is_a_tensor() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("numbers");
    let bytes: Vec<u8> = (0..16).flat_map(|k| (k as f32).to_le_bytes()).collect();
    std::fs::write(&path, &bytes).unwrap();
    let file = doorbell::uop::BufferRef::new(16, format!("DISK:{}", path.display()).into());
    let t = Tensor::from(doorbell::uop::UOp::buffer(doorbell::uop::DType::F32, file));
    let part = t.shrink(&[(4, 8)]).to(&devices().0);
    assert_eq!((&part * 2.0).to_vec::<f32>().unwrap(), [8.0, 10.0, 12.0, 14.0]);
}

#[test]
fn integers_divided_by_one_that_is_zero_give_zero_and_no_trap() {
    let y = Tensor::from_slice(&[0i64], ());
    let x = Tensor::from_slice(&(0..147).collect::<Vec<i64>>(), [7, 7, 3]);
    assert_eq!(x.div_trunc(&y).to_vec::<i64>().unwrap(), [0; 147]);
    assert_eq!(x.div_floor(&y).to_vec::<i64>().unwrap(), [0; 147]);
    let y = Tensor::from_slice(&[0i32], ());
    assert_eq!(Tensor::arange(33).modulo(&y).to_vec::<i32>().unwrap(), [0; 33]);
}

#[test]
fn a_divisor_that_is_a_reduction_of_the_same_kernel_is_accepted() {
    // Its bounds say that it is not zero, its register says nothing.
    let x = Tensor::arange(8);
    assert_eq!(x.div_trunc(&x.max([0])).to_vec::<i32>().unwrap(), [0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(x.modulo(&x.max([0])).to_vec::<i32>().unwrap(), [0, 1, 2, 3, 4, 5, 6, 0]);
}

#[test]
fn a_number_that_somebody_has_realized_stays_a_number_for_others() {
    Tensor::full_of((), 3, Scalar::I32).realize().unwrap();
    assert_eq!(Tensor::arange(5).div_trunc(3).to_vec::<i32>().unwrap(), [0, 0, 0, 1, 1]);
}

//! The tensor room seen by its users: graphs, errors, values, gradients.

// Operands are borrowed throughout, so that formulas read alike.
#![allow(clippy::needless_borrows_for_generic_args)]

mod display;
mod engine;
mod gradients;
mod graph;
mod indexing;
mod layers;
mod limits;
mod mistakes;
mod names;
mod order;
mod random;
mod select;
mod values;
mod windows;

use doorbell::engine::interp;
use doorbell::tensor::prelude::*;
use doorbell::tensor::{FileRange, HostBytes, default_device};

/// Shape and elements by the reference interpreter.
pub fn eval(t: &Tensor) -> (Vec<usize>, Vec<f64>) {
    let read = |b: &doorbell::uop::BufferRef| {
        let memory = b.memory.get();
        let host = memory.and_then(|m| m.downcast_ref::<HostBytes>()).map(|h| h.0.clone());
        let host = host.or_else(|| memory?.downcast_ref::<FileRange>()?.read_all().ok());
        // Memory that is only assigned to: its old content is not read.
        Some(host.unwrap_or_else(|| vec![0; b.len * 8]))
    };
    let u = t.uop().unwrap_or_else(|e| panic!("{e}"));
    let v = interp::eval_with(&u, &read).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(v.shape, u.shape().iter().map(|d| d.max() as usize).collect::<Vec<_>>());
    (v.shape.clone(), v.to_f64())
}
pub fn values(t: &Tensor) -> Vec<f64> {
    eval(t).1
}
/// Equal within rounding of f32; NaN equals NaN.
#[track_caller]
pub fn close(found: &[f64], wanted: &[f64], tolerance: f64) {
    assert_eq!(found.len(), wanted.len(), "{found:?} {wanted:?}");
    for (k, (a, b)) in found.iter().zip(wanted).enumerate() {
        let fine = a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= tolerance * (1.0 + b.abs());
        assert!(fine, "element {k}: {a} instead of {b}\n{found:?}\n{wanted:?}");
    }
}
/// Whether the device has f64. One without refuses it, with an error that names op, type and line.
pub fn has_f64() -> bool {
    let device = doorbell::engine::session().and_then(|s| s.device(&default_device()));
    device.unwrap_or_else(|e| panic!("{e}")).target().f64
}
/// As `numbers`, in f32.
pub fn singles(shape: &[usize], salt: u64) -> Tensor {
    let list: Vec<f32> = plain(shape.iter().product(), salt).iter().map(|x| *x as f32).collect();
    Tensor::from_slice(&list, shape)
}
/// Repeatable numbers in -2..2 under a shape.
pub fn numbers(shape: &[usize], salt: u64) -> Tensor {
    Tensor::from_slice(&plain(shape.iter().product(), salt), shape)
}
pub fn plain(n: usize, salt: u64) -> Vec<f64> {
    let word = |i: u64| (doorbell::uop::threefry2x32(i, salt) >> 11) as f64 / (1u64 << 53) as f64;
    (0..n as u64).map(|i| word(i) * 4.0 - 2.0).collect()
}

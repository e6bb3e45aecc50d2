//! Tensor programs on the device, against the interpreter of the same graphs.

use crate::seen::Seen;
use crate::work::Bench;
use doorbell::engine::attached;
use doorbell::engine::interp::eval_with;
use doorbell::tensor::HostBytes;
use doorbell::tensor::prelude::*;
use doorbell::uop::BufferRef;
use doorbell::{Options, Session};
use hw_contact::{Failure, fail, run_until};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A session whose Tensors are on the run's device.
///
/// # Errors
/// The device cannot be opened.
pub fn session(bench: &Bench) -> Result<Arc<Session>, Failure> {
    Session::open(Options { device: bench.args.device.clone(), ..Options::default() }).map_err(fail)
}

fn ramp(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    let data: Vec<f32> = (0..n).map(|i| ((i * 37 + 11) % 101) as f32 / 25.0 - 2.0).collect();
    Tensor::from_slice(&data, shape)
}

/// One program each of what the suite has many of.
fn programs() -> Vec<(&'static str, Tensor)> {
    let (x, image) = (ramp(&[24, 33]), ramp(&[1, 3, 16, 16]));
    vec![
        ("exp", x.exp()),
        ("sin", x.sin()),
        ("gelu", x.gelu()),
        ("f16", x.cast(Scalar::F16).mul(3.0)),
        ("bf16", x.cast(Scalar::BF16).mul(3.0)),
        ("i32", x.mul(100.0).cast(Scalar::I32)),
        ("i64", x.mul(100.0).cast(Scalar::I64).mul(1_000_003)),
        ("where", x.lt(0.5).where_(&x, &x.mul(2.0))),
        ("sum", x.sum(())),
        ("max", x.max(1)),
        ("argmax", x.argmax(1)),
        ("cumsum", x.cumsum(1)),
        ("softmax", x.softmax(-1)),
        ("sort", x.sort(1, false).0),
        ("matmul", ramp(&[65, 33]).matmul(&ramp(&[33, 70]))),
        ("matmul 64", ramp(&[64, 64]).matmul(&ramp(&[64, 64]))),
        ("conv2d", image.conv2d(&ramp(&[4, 3, 3, 3]), None, Conv::default())),
        ("transpose", x.transpose(0, 1).contiguous()),
    ]
}

/// The largest difference of two lists, as a share of the largest number.
fn distance(found: &[f64], right: &[f64]) -> f64 {
    let largest = right.iter().filter(|w| w.is_finite()).fold(1e-6_f64, |m, w| m.max(w.abs()));
    let one = |(g, w): (&f64, &f64)| if g == w || (g.is_nan() && w.is_nan()) { 0.0 } else { (g - w).abs() / largest };
    let worse = |a: f64, b: f64| if b.is_nan() || b > a { b } else { a };
    found.iter().zip(right).map(one).fold(if found.len() == right.len() { 0.0 } else { f64::NAN }, worse)
}

pub fn tensors(bench: &Bench, seen: &mut Seen) -> Result<(), Failure> {
    let session = session(bench)?;
    {
        let _in_it = session.enter();
        let host = |b: &BufferRef| {
            if let Some(bytes) = b.memory.get()?.downcast_ref::<HostBytes>() {
                return Some(bytes.0.clone());
            }
            let place = attached(b)?;
            let mut bytes = vec![0; usize::try_from(place.memory.len_bytes() - place.offset).ok()?];
            session.device(&b.device).ok()?.device.copy_out(&place.memory, place.offset, &mut bytes).ok()?;
            Some(bytes)
        };
        let mut worst = 0.0_f64;
        let all = programs();
        let count = all.len();
        for (name, tensor) in all {
            let right = eval_with(&tensor.contiguous().uop().map_err(fail)?, &host).map_err(fail)?.to_f64();
            match tensor.to_f64() {
                Ok(found) => {
                    let off = distance(&found, &right);
                    if off.is_nan() || off > 2e-5 {
                        seen.holds(false, &format!("{name} is off by {off:e}"), "expected 2e-5 or less");
                    }
                    worst = worst.max(off);
                }
                Err(e) => seen.holds(false, &format!("{name}: {e}"), "expected a value"),
            }
        }
        let text = format!("{count} programs: off by {worst:.1e} of the largest number at most");
        seen.holds(true, &text, "");
    }
    match &bench.args.suite {
        None => seen.note("the whole suite: --suite DIR, with DIR the clone"),
        Some(clone) => suite(bench, seen, clone)?,
    }
    Ok(())
}

/// The tests of the clone whose Tensors are where `DEV` says.
fn suite(bench: &Bench, seen: &mut Seen, clone: &std::path::Path) -> Result<(), Failure> {
    let tests = ["ops_device", "device_ops", "jit", "jit_edges", "realize", "tensor", "random_graphs"];
    for test in tests {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(clone).args(["test", "--release", "--package", "doorbell", "--test", test]);
        cargo.env("DEV", &bench.args.device);
        // TIMEOUT: cargo builds first.
        let ended = run_until(cargo, Instant::now() + Duration::from_secs(3600))?;
        let line = ended.out.lines().rev().find(|line| line.starts_with("test result")).unwrap_or("no result");
        seen.holds(ended.status.success(), &format!("{test}: {line}"), "expected every test to pass");
        let failed = ended.out.lines().filter(|line| line.starts_with("test ") && line.ends_with("FAILED"));
        for name in failed.take(20) {
            seen.note(name);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn numbers_are_as_far_apart_as_the_worst_of_them() {
        assert_eq!(distance(&[1.0, -4.0], &[1.0, -5.0]), 0.2);
        assert_eq!(distance(&[f64::NAN], &[f64::NAN]), 0.0);
        assert!(distance(&[f64::NAN, 1.0], &[2.0, 1.0]).is_nan());
        assert!(distance(&[1.0], &[1.0, 2.0]).is_nan());
    }
}

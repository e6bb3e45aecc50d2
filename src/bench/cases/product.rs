//! Products of matrices by generated kernels: squares by type and size, tall, batched; attention and convolution.
//!
//! Sampled elements are compared with the host's sums in f64.

use super::inputs::{captured, close, random_floats, scalar};
use crate::case::{Case, Point, Subject, Unit, sizes, words};
use crate::error::BenchError;
use crate::machine::{Kind, Machine};
use crate::stats::Draw;
use doorbell::tensor::prelude::*;

/// The entries.
#[rustfmt::skip]
pub(crate) const CASES: &[Case] = &[
    entry("product/square", "n x n times n x n; sums in f32",
        &[words("type", &["f32", "tf32", "f16", "bf16"]), sizes("n", &[1024, 4096, 8192], &[256, 1024], &[32])], square),
    entry("product/tall", "m x 4096 times 4096 x 4096, f16: a few rows, as in generating text",
        &[sizes("m", &[1, 8, 64], &[1, 16], &[2])], tall),
    entry("product/batched", "64 products of n x n, f16", &[sizes("n", &[128, 512], &[128], &[16])], batched),
    entry("product/attention", "16 heads of 128, n queries and keys, causal, f16",
        &[sizes("n", &[1024, 4096], &[256], &[16])], attention),
    entry("product/convolution", "3 x 3, 64 to 64 channels, n x n, batch 8, f16",
        &[sizes("n", &[56], &[28], &[6])], convolution),
];

const fn entry(
    name: &'static str,
    about: &'static str,
    axes: &'static [crate::case::Axis],
    make: fn(&Machine, &Point) -> Result<Subject, BenchError>,
) -> Case {
    Case { name, about, unit: Unit::GigaOperations, axes, make }
}

/// The type of halves that a device is best at: CPUs have no arithmetic of f16.
fn half(machine: &Machine) -> Scalar {
    if machine.kind == Kind::Cpu { Scalar::F32 } else { Scalar::F16 }
}

/// The share of the largest possible sum that an element may be off.
fn tolerance(of: Scalar, is_cut: bool) -> f64 {
    match of {
        Scalar::F32 if !is_cut => 1e-4,
        Scalar::BF16 => 0.04,
        _ => 0.01,
    }
}

fn square(machine: &Machine, point: &Point) -> Result<Subject, BenchError> {
    let (n, word) = (point.size("n"), point.word("type"));
    let is_cut = word == "tf32";
    let of = scalar(word)?;
    if is_cut && machine.kind != Kind::Nv {
        return Err(BenchError::LeftOut("only NVIDIA's matrix units cut f32".into()));
    }
    if machine.kind == Kind::Cpu && of == Scalar::F16 {
        return Err(BenchError::LeftOut("CPUs have no arithmetic of f16 here: they compute it in f32".into()));
    }
    if is_cut {
        let options = doorbell::engine::Options { allow_tf32: true, ..machine.session.options.clone() };
        let session = doorbell::engine::Session::open(options)?;
        let _entered = session.enter();
        return matmul(&[n, n], &[n, n], of, is_cut);
    }
    matmul(&[n, n], &[n, n], of, is_cut)
}

fn tall(machine: &Machine, point: &Point) -> Result<Subject, BenchError> {
    let k = match (machine.is_small, machine.kind) {
        (true, _) => 32,
        (false, Kind::Cpu) => 1024,
        (false, _) => 4096,
    };
    matmul(&[point.size("m"), k], &[k, k], half(machine), false)
}

fn batched(machine: &Machine, point: &Point) -> Result<Subject, BenchError> {
    let (n, batch) = (point.size("n"), if machine.is_small { 2 } else { 64 });
    matmul(&[batch, n, n], &[batch, n, n], half(machine), false)
}

/// A product, its work and its check.
fn matmul(a: &[usize], b: &[usize], of: Scalar, is_cut: bool) -> Result<Subject, BenchError> {
    let (x, y) = (random_floats(a, of)?, random_floats(b, of)?);
    let (out, captured) = captured(|| x.matmul(&y))?;
    let rank = a.len();
    let (m, k, n) = (a[rank - 2], a[rank - 1], b[rank - 1]);
    let batch: usize = a[..rank - 2].iter().product();
    let work = 2.0 * (batch * m * n) as f64 * k as f64;
    let (x, y) = (x.reshape([batch * m, k]), y.reshape([batch * k, n]));
    let out = out.reshape([batch * m, n]);
    let tolerance = tolerance(of, is_cut) * (k as f64).sqrt();
    Ok(Subject::commands(work, captured.commands).checked(move |_| {
        let mut draw = Draw(k as u64);
        for _ in 0..8 {
            let (row, column) = (draw.below(batch * m), draw.below(n));
            let first = row / m * k;
            let a = x.shrink(&[(row, row + 1), (0, k)]).to_f64()?;
            let b = y.shrink(&[(first, first + k), (column, column + 1)]).to_f64()?;
            let have = out.shrink(&[(row, row + 1), (column, column + 1)]).to_f64()?[0];
            let want: f64 = a.iter().zip(b).map(|(a, b)| a * b).sum();
            close(row * n + column, have, want, tolerance)?;
        }
        Ok(())
    }))
}

fn attention(machine: &Machine, point: &Point) -> Result<Subject, BenchError> {
    let (heads, width) = if machine.is_small { (1, 16) } else { (16, 128) };
    let n = point.size("n");
    let of = half(machine);
    let [q, k, v] = [(); 3].map(|()| random_floats(&[1, heads, n, width], of));
    let (q, k, v) = (q?, k?, v?);
    let (out, captured) = captured(|| q.attention(&k, &v, None, true))?;
    // Half of the products: those below the diagonal.
    let work = 2.0 * (heads * n * width) as f64 * n as f64;
    Ok(Subject::commands(work, captured.commands).checked(move |_| {
        // The first query sees the first key alone.
        let first = |x: &Tensor| x.shrink(&[(0, 1), (0, 1), (0, 1), (0, width)]).to_f64();
        let (have, want) = (first(&out)?, first(&v)?);
        have.iter().zip(want).enumerate().try_for_each(|(at, (have, want))| close(at, *have, want, 0.01))
    }))
}

fn convolution(machine: &Machine, point: &Point) -> Result<Subject, BenchError> {
    let (channels, batch) = if machine.is_small { (4, 1) } else { (64, 8) };
    let n = point.size("n");
    let of = half(machine);
    let (x, w) = (random_floats(&[batch, channels, n, n], of)?, random_floats(&[channels, channels, 3, 3], of)?);
    let (out, captured) = captured(|| x.conv2d(&w, None, Conv::padded(1)))?;
    let work = 2.0 * (batch * channels * n * n) as f64 * (channels * 9) as f64;
    let tolerance = tolerance(of, false) * ((channels * 9) as f64).sqrt();
    Ok(Subject::commands(work, captured.commands).checked(move |_| {
        // An element away from the edges.
        let at = n / 2;
        let window = x.shrink(&[(0, 1), (0, channels), (at - 1, at + 2), (at - 1, at + 2)]).to_f64()?;
        let weights = w.shrink(&[(1, 2), (0, channels), (0, 3), (0, 3)]).to_f64()?;
        let have = out.shrink(&[(0, 1), (1, 2), (at, at + 1), (at, at + 1)]).to_f64()?[0];
        close(at, have, window.iter().zip(weights).map(|(a, b)| a * b).sum(), tolerance)
    }))
}

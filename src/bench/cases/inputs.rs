//! Inputs of cases, and comparison of what they computed. Inputs are random, so that registers and wires change with
//! each value and memory cannot be compressed.

use crate::case::Check;
use crate::error::BenchError;
use doorbell::engine::Captured;
use doorbell::tensor::prelude::*;

/// Words of random bits on the session's device.
pub(crate) fn random_words(n: usize) -> Result<Tensor, BenchError> {
    let x = Tensor::random_bits([n]);
    x.realize()?;
    Ok(x)
}

/// Random numbers in -1..1 of a type.
pub(crate) fn random_floats(shape: &[usize], of: Scalar) -> Result<Tensor, BenchError> {
    let x = Tensor::uniform(shape, -1.0, 1.0).cast(of);
    x.realize()?;
    Ok(x)
}

/// The only Tensor of a capture, with its commands.
pub(crate) fn captured(made: impl FnOnce() -> Tensor) -> Result<(Tensor, Captured), BenchError> {
    let (mut tensors, captured) = doorbell::engine::captured(|| Ok(vec![made()]))?;
    let tensor = tensors.pop().ok_or_else(|| BenchError::Empty("nothing was computed".into()))?;
    Ok((tensor, captured))
}

/// The Tensors of a capture, with its commands.
pub(crate) fn captured_all(made: impl FnOnce() -> Vec<Tensor>) -> Result<(Vec<Tensor>, Captured), BenchError> {
    Ok(doorbell::engine::captured(|| Ok(made()))?)
}

/// Elements that a check looks at: at the start, in the middle and at the end.
const PART: usize = 1 << 14;

/// Parts of a list of `n` elements that are compared: all of it if it is short.
pub(crate) fn parts(n: usize) -> Vec<(usize, usize)> {
    if n <= 4 * PART {
        return vec![(0, n)];
    }
    [0, n / 2 / PART * PART, n - PART].map(|begin| (begin, PART)).to_vec()
}

/// A part of a Tensor of one axis, as f64.
pub(crate) fn part(x: &Tensor, (begin, len): (usize, usize)) -> Result<Vec<f64>, BenchError> {
    Ok(x.shrink(&[(begin, begin + len)]).to_f64()?)
}

/// A check that each element of `out` is that function of the same elements of `inputs`, within a share of it.
pub(crate) fn elementwise(out: Tensor, inputs: Vec<Tensor>, tolerance: f64, want: fn(&[f64]) -> f64) -> Check {
    Box::new(move |_| {
        let n = out.max_numel().map_err(doorbell::Error::from)?;
        for range in parts(n) {
            let have = part(&out, range)?;
            let of = inputs.iter().map(|x| part(x, range)).collect::<Result<Vec<_>, _>>()?;
            for (k, have) in have.iter().enumerate() {
                let of: Vec<f64> = of.iter().map(|x| x[k]).collect();
                close(range.0 + k, *have, want(&of), tolerance)?;
            }
        }
        Ok(())
    })
}

/// One element.
pub(crate) fn close(at: usize, have: f64, want: f64, tolerance: f64) -> Result<(), BenchError> {
    let is_close = have == want || (have - want).abs() <= tolerance * want.abs().max(1.0);
    if is_close { Ok(()) } else { Err(BenchError::Wrong(format!("element {at} is {have}, not {want}"))) }
}

/// The type of a word in a parameter.
pub(crate) fn scalar(word: &str) -> Result<Scalar, BenchError> {
    Ok(match word {
        "f64" => Scalar::F64,
        "f32" | "tf32" => Scalar::F32,
        "f16" => Scalar::F16,
        "bf16" => Scalar::BF16,
        "i32" => Scalar::I32,
        "i8" => Scalar::I8,
        "f8" => Scalar::F8E4M3,
        other => return Err(BenchError::LeftOut(format!("type {other} is unknown"))),
    })
}

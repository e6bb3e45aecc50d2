//! Bounds on gradients, between `backward` and the step.

use super::OptimError;
use super::group::norm;
use crate::tensor::{Elementwise, Reduction, Tensor, Value};
use crate::uop::Scalar;

/// The norm of all gradients as one vector, (): `p` 2.0 for the Euclidean one, 1.0 for the sum of sizes,
/// `f64::INFINITY` for the largest size. Parameters without gradient are passed by.
///
/// # Errors
/// `p` is not above 0; a gradient is faulty.
pub fn grad_norm(params: &[Tensor], p: f64) -> Result<Tensor, OptimError> {
    if p.is_nan() || p <= 0.0 {
        return Err(OptimError::Setting { what: "the norm", value: p, wanted: "it is above 0" });
    }
    let grads = gradients(params)?;
    let Some((_, first)) = grads.first() else { return Ok(Tensor::zeros(())) };
    let device = first.device();
    let wide = |g: &Tensor| g.cast(g.dtype().unwrap_or(Scalar::F32).accumulator());
    let one = |g: &Tensor| match p {
        2.0 => norm(g).square(),
        p if p.is_infinite() => wide(g).abs().max(()),
        1.0 => wide(g).abs().sum(()),
        p => wide(g).abs().pow(p).sum(()),
    };
    let each = grads.iter().map(|(_, g)| one(g).to(&device));
    if p.is_infinite() {
        return Ok(each.reduce(|a, b| a.maximum(&b)).unwrap_or_else(|| Tensor::zeros(())));
    }
    let total = each.reduce(|a, b| a + b).unwrap_or_else(|| Tensor::zeros(()));
    Ok(match p {
        2.0 => total.sqrt(),
        1.0 => total,
        p => total.pow(1.0 / p),
    })
}

/// Scales all gradients so that their Euclidean norm is at most `max_norm`, and returns the norm before, ()
/// (`torch.nn.utils.clip_grad_norm_`). Call it between `backward` and the step; nothing is computed before that.
///
/// ```
/// use doorbell::nn::optim::clip_grad_norm;
/// use doorbell::tensor::prelude::*;
///
/// let w = Tensor::new([3.0f32, 4.0]).requires_grad();
/// w.square().sum(()).div(2.0).backward()?;
/// let before = clip_grad_norm(&[w.clone()], 1.0)?;
/// assert_eq!(before.item()?, 5.0);
/// let after = w.grad().ok_or("no gradient")?.to_vec::<f32>()?;
/// assert!((after[0] - 0.6).abs() < 1e-5 && (after[1] - 0.8).abs() < 1e-5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// `max_norm` is negative or no number; a gradient is faulty. No gradient was changed then.
pub fn clip_grad_norm(params: &[Tensor], max_norm: f64) -> Result<Tensor, OptimError> {
    if max_norm.is_nan() || max_norm < 0.0 {
        return Err(OptimError::Setting { what: "the largest norm", value: max_norm, wanted: "it is from 0 on" });
    }
    let total = grad_norm(params, 2.0)?;
    let factor = total.add(1e-6).recip().mul(max_norm).minimum(1.0);
    for (p, g) in gradients(params)? {
        let t = g.dtype().unwrap_or(Scalar::F32);
        p.set_grad(Some(g.mul(&factor.to(&g.device())).cast(t)));
    }
    Ok(total)
}

/// Clamps every element of every gradient to `-limit..=limit` (`torch.nn.utils.clip_grad_value_`).
///
/// # Errors
/// `limit` is negative or no number; a gradient is faulty. No gradient was changed then.
pub fn clip_grad_value(params: &[Tensor], limit: f64) -> Result<(), OptimError> {
    if limit.is_nan() || limit < 0.0 {
        return Err(OptimError::Setting { what: "the limit of gradients", value: limit, wanted: "it is from 0 on" });
    }
    for (p, g) in gradients(params)? {
        p.set_grad(Some(g.maximum(-limit).minimum(limit)));
    }
    Ok(())
}

/// Parameters with their gradients.
fn gradients(params: &[Tensor]) -> Result<Vec<(&Tensor, Tensor)>, OptimError> {
    let with = params.iter().enumerate().filter_map(|(k, p)| p.grad().map(|g| (k, p, g)));
    with.map(|(k, p, g)| match g.node() {
        Ok(_) => Ok((p, g)),
        Err(error) => Err(OptimError::Faulty { parameter: k.to_string(), error }),
    })
    .collect()
}

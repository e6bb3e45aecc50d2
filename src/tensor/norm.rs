//! Normalisation, one-hot and triangles: ops composed of reductions.

use super::args::IntoAxes;
use super::elementwise::{Elementwise, to_float};
use super::error::Problem;
use super::movement::{LARGEST, Movement, positions};
use super::reduction::Reduction;
use super::value::{Expr, Value, lift};
use crate::uop::{Dim, Scalar};

/// Layers without parameters of their own.
pub trait Composite: Value {
    /// `(x - mean) / sqrt(var + eps)` over `axes` (layer norm without weights).
    #[track_caller]
    fn layernorm(&self, axes: impl IntoAxes, eps: f64) -> Self {
        let list = axes.into_axes();
        lift("layernorm", [self.node()], |[x]| {
            let x = Expr::from(to_float(x.uop()));
            super::args::axes(list.as_deref(), x.rank())?;
            let list = || list.clone().unwrap_or_else(|| (0..x.rank() as i64).collect());
            let off = x.sub(&x.mean_keep(list()));
            Ok(off.mul(&off.square().mean_keep(list()).add(eps).rsqrt()))
        })
    }
    /// `x / sqrt(mean(x²) + eps)` over `axes`.
    #[track_caller]
    fn rmsnorm(&self, axes: impl IntoAxes, eps: f64) -> Self {
        let list = axes.into_axes();
        lift("rmsnorm", [self.node()], |[x]| {
            let x = Expr::from(to_float(x.uop()));
            super::args::axes(list.as_deref(), x.rank())?;
            let list = list.clone().unwrap_or_else(|| (0..x.rank() as i64).collect());
            Ok(x.mul(&x.square().mean_keep(list).add(eps).rsqrt()))
        })
    }
    /// `(x - mean) * invstd * weight + bias`, each (channels,), channels on axis 1.
    #[track_caller]
    fn batchnorm(&self, weight: Option<&Self>, bias: Option<&Self>, mean: &Self, invstd: &Self) -> Self {
        let channels = |x: &Expr, v: &Expr| -> Result<Expr, Problem> {
            if x.rank() < 2 || v.shape() != [x.dim(1)] {
                return Err(Problem::shape("per-channel values have the size of axis 1"));
            }
            let mut shape = vec![Dim::Int(1); x.rank()];
            shape[1] = x.dim(1);
            Ok(v.reshape(shape))
        };
        let scale: Self = match weight {
            Some(w) => Elementwise::mul(invstd, w),
            None => invstd.clone(),
        };
        let y: Self = lift("batchnorm", [self.node(), mean.node(), scale.node()], |[x, mean, scale]| {
            Ok(x.sub(&channels(&x, &mean)?).mul(&channels(&x, &scale)?))
        });
        match bias {
            Some(b) => lift("batchnorm", [y.node(), b.node()], |[y, b]| Ok(y.add(&channels(&y, &b)?))),
            None => y,
        }
    }
    /// i32 ones where the class on a new last axis of size `n` is the element's value.
    #[track_caller]
    fn one_hot(&self, n: usize) -> Self {
        lift("one_hot", [self.node()], |[x]| {
            if !x.scalar().is_int() {
                return Err(Problem::dtype(format!("classes are integers, not {}", x.scalar())));
            }
            let mut shape = x.shape().to_vec();
            shape.push(Dim::from(n));
            Ok(x.unsqueeze(-1).eq(&positions(&shape, x.rank())).cast(Scalar::I32))
        })
    }
    /// Zeros above the diagonal `offset` of the last two axes.
    #[track_caller]
    fn tril(&self, offset: i64) -> Self {
        lift("tril", [self.node()], |[x]| {
            triangle(&x, |row, column| row.add(offset.clamp(-LARGEST, LARGEST)).ge(column))
        })
    }
    /// Zeros below the diagonal `offset` of the last two axes.
    #[track_caller]
    fn triu(&self, offset: i64) -> Self {
        lift("triu", [self.node()], |[x]| {
            triangle(&x, |row, column| row.add(offset.clamp(-LARGEST, LARGEST)).le(column))
        })
    }
    /// `softmax(self @ keyᵀ / sqrt(d) + mask) @ value` over (.., tokens, d); with `causal`, a token sees itself and those before.
    #[track_caller]
    fn attention(&self, key: &Self, value: &Self, mask: Option<&Self>, causal: bool) -> Self {
        use super::product::Product;
        let scores: Self = lift("attention", [self.node(), key.node()], |[q, k]| {
            let d = q.shape().last().cloned().unwrap_or(Dim::Int(1));
            let s = q.matmul(&k.t()).div(&Expr::from(d.uop()).cast(Scalar::F32).sqrt()).cast(q.scalar());
            if !causal || s.node().is_err() {
                return Ok(s);
            }
            triangle_mask(&s, |row, column| row.ge(column)).map(|keep| keep.where_(&s, f64::NEG_INFINITY))
        });
        let scores = match mask {
            Some(m) => lift("attention", [scores.node(), m.node()], |[s, m]| {
                Ok(if m.scalar() == Scalar::Bool { m.where_(&s, f64::NEG_INFINITY) } else { s.add(&m) })
            }),
            None => scores,
        };
        scores.softmax(-1).matmul(value)
    }
}

impl<V: Value> Composite for V {}

fn triangle_mask(x: &Expr, keep: impl FnOnce(&Expr, &Expr) -> Expr) -> Result<Expr, Problem> {
    if x.rank() < 2 {
        return Err(Problem::shape(format!("a triangle needs two axes, the rank is {}", x.rank())));
    }
    Ok(keep(&positions(x.shape(), x.rank() - 2), &positions(x.shape(), x.rank() - 1)))
}

fn triangle(x: &Expr, keep: impl FnOnce(&Expr, &Expr) -> Expr) -> Result<Expr, Problem> {
    Ok(triangle_mask(x, keep)?.where_(x, 0).cast(x.scalar()))
}

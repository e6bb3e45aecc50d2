//! Normalisation, one-hot and triangles: ops composed of reductions.

use super::args::IntoAxes;
use super::elementwise::Elementwise;
use super::error::Problem;
use super::graph;
use super::index::widened;
use super::movement::{LARGEST, Movement, positions};
use super::reduction::{Reduction, accumulated};
use super::value::{Expr, Value, lift, lift_many};
use crate::uop::{Dim, Scalar};

/// Layers without parameters of their own.
pub trait Composite: Value {
    /// `(x - mean) / sqrt(var + eps)` over `axes` (layer norm without weights). Half types are computed in f32.
    #[track_caller]
    fn layernorm(&self, axes: impl IntoAxes, eps: f64) -> Self {
        let list = axes.into_axes();
        lift("layernorm", [self.node()], |[x]| {
            let (x, t) = accumulated(&x);
            super::args::axes(list.as_deref(), x.rank())?;
            let list = || list.clone().unwrap_or_else(|| (0..x.rank() as i64).collect());
            let off = x.sub(&x.mean_keep(list()));
            Ok(off.mul(&off.square().mean_keep(list()).add(eps).rsqrt()).cast(t))
        })
    }
    /// `x / sqrt(mean(x²) + eps)` over `axes`. Half types are computed in f32.
    #[track_caller]
    fn rmsnorm(&self, axes: impl IntoAxes, eps: f64) -> Self {
        let list = axes.into_axes();
        lift("rmsnorm", [self.node()], |[x]| {
            let (x, t) = accumulated(&x);
            super::args::axes(list.as_deref(), x.rank())?;
            let list = list.clone().unwrap_or_else(|| (0..x.rank() as i64).collect());
            Ok(x.mul(&x.square().mean_keep(list).add(eps).rsqrt()).cast(t))
        })
    }
    /// `(x - mean) * invstd * weight + bias`, each (channels,), channels on axis 1. Half types are computed in f32.
    #[track_caller]
    fn batchnorm(&self, weight: Option<&Self>, bias: Option<&Self>, mean: &Self, invstd: &Self) -> Self {
        let nodes: Vec<_> =
            [Some(self), Some(mean), Some(invstd), weight, bias].into_iter().flatten().map(Value::node).collect();
        lift_many("batchnorm", &nodes, |list| {
            let t = graph::promoted(&list.iter().map(Expr::uop).collect::<Vec<_>>());
            let wide = if t.is_float() { t.accumulator() } else { t };
            let mut list = list.iter().map(|v| v.cast(wide));
            let mut next = || list.next().ok_or_else(|| Problem::argument("no values"));
            let (x, mean, invstd) = (next()?, next()?, next()?);
            let scale = if weight.is_some() { invstd.mul(&next()?) } else { invstd };
            let y = x.sub(&per_channel(&x, &mean)?).mul(&per_channel(&x, &scale)?);
            Ok(if bias.is_some() { y.add(&per_channel(&x, &next()?)?) } else { y }.cast(t))
        })
    }
    /// i32 ones where the class on a new last axis of size `n` is the element's value.
    #[track_caller]
    fn one_hot(&self, n: usize) -> Self {
        lift("one_hot", [self.node()], |[x]| {
            if !x.scalar().is_int() {
                return Err(Problem::dtype(format!("classes are integers, not {}", x.scalar())));
            }
            let n = Dim::from(n);
            let classes = widened(&x, n.max()).unsqueeze(-1);
            let shape = [x.shape(), &[n]].concat();
            Ok(classes.eq(&positions(&shape, x.rank())).cast(Scalar::I32))
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
    /// `softmax(self @ keyᵀ / sqrt(d) + mask) @ value` over (.., tokens, d); with `causal`, a token sees itself and
    /// those before. A mask of Bool says which pairs count. (`scaled_dot_product_attention`.)
    ///
    /// On the CPU long sequences of f32, f16 or bf16 are one kernel, unless a gradient that is computed with the result
    /// needs the weights.
    #[track_caller]
    fn attention(&self, key: &Self, value: &Self, mask: Option<&Self>, causal: bool) -> Self {
        super::attention::attention(self, key, value, mask, causal)
    }
}

impl<V: Value> Composite for V {}

/// One value a channel, shaped to broadcast along the channels of `x`.
fn per_channel(x: &Expr, v: &Expr) -> Result<Expr, Problem> {
    if x.rank() < 2 || v.shape() != [x.dim(1)] {
        return Err(Problem::shape("per-channel values have the size of axis 1"));
    }
    let mut shape = vec![Dim::Int(1); x.rank()];
    shape[1] = x.dim(1);
    Ok(v.reshape(shape))
}

pub(super) fn triangle_mask(x: &Expr, keep: impl FnOnce(&Expr, &Expr) -> Expr) -> Result<Expr, Problem> {
    if x.rank() < 2 {
        return Err(Problem::shape(format!("a triangle needs two axes, the rank is {}", x.rank())));
    }
    Ok(keep(&positions(x.shape(), x.rank() - 2), &positions(x.shape(), x.rank() - 1)))
}

fn triangle(x: &Expr, keep: impl FnOnce(&Expr, &Expr) -> Expr) -> Result<Expr, Problem> {
    Ok(triangle_mask(x, keep)?.where_(x, 0).cast(x.scalar()))
}

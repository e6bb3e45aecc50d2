//! The same ops under PyTorch's, tinygrad's and numpy's names, where ours are others, and small ops made of several.

use super::elementwise::Elementwise;
use super::error::Problem;
use super::handle::Tensor;
use super::math::Math;
use super::movement::Movement;
use super::value::{Operand, Value, build, lift, lift_many};
use crate::uop::{Op, Scalar};

/// How near [`Names::isclose`] wants two numbers: `|a - b| <= atol + rtol * |b|`.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Close {
    /// 1e-5 by default
    pub rtol: f64,
    /// 1e-8 by default
    pub atol: f64,
    /// Whether two NaN are close; not by default.
    pub equal_nan: bool,
}
impl Default for Close {
    fn default() -> Close {
        Close { rtol: 1e-5, atol: 1e-8, equal_nan: false }
    }
}
impl Close {
    /// PyTorch's and numpy's defaults.
    pub fn new() -> Close {
        Close::default()
    }
    /// This factor of the second number's size.
    #[must_use]
    pub fn rtol(self, rtol: f64) -> Close {
        Close { rtol, ..self }
    }
    /// This distance.
    #[must_use]
    pub fn atol(self, atol: f64) -> Close {
        Close { atol, ..self }
    }
    /// Two NaN are close.
    #[must_use]
    pub fn equal_nan(self) -> Close {
        Close { equal_nan: true, ..self }
    }
}

/// Ops by other names: each says which one it is.
pub trait Names: Value {
    /// [`Elementwise::is_nan`]
    #[track_caller]
    fn isnan(&self) -> Self {
        self.is_nan()
    }
    /// [`Elementwise::is_inf`]
    #[track_caller]
    fn isinf(&self) -> Self {
        self.is_inf()
    }
    /// [`Elementwise::is_pos_inf`]
    #[track_caller]
    fn isposinf(&self) -> Self {
        self.is_pos_inf()
    }
    /// [`Elementwise::is_neg_inf`]
    #[track_caller]
    fn isneginf(&self) -> Self {
        self.is_neg_inf()
    }
    /// [`Elementwise::is_finite`]
    #[track_caller]
    fn isfinite(&self) -> Self {
        self.is_finite()
    }
    /// Whether the sides are as near as `how` says; equal infinities are. `Close::default()` has PyTorch's bounds.
    #[track_caller]
    fn isclose(&self, o: impl Operand<Self>, how: Close) -> Self {
        lift("isclose", [self.node(), o.operand()], |[a, b]| {
            let close = a.is_close(&b, how.rtol, how.atol);
            Ok(if how.equal_nan { close.bitor(&a.is_nan().bitand(&b.is_nan())) } else { close })
        })
    }
    /// [`Elementwise::recip`]
    #[track_caller]
    fn reciprocal(&self) -> Self {
        self.recip()
    }
    /// [`Elementwise::bitand`]
    #[track_caller]
    fn bitwise_and(&self, o: impl Operand<Self>) -> Self {
        self.bitand(o)
    }
    /// [`Elementwise::bitor`]
    #[track_caller]
    fn bitwise_or(&self, o: impl Operand<Self>) -> Self {
        self.bitor(o)
    }
    /// [`Elementwise::bitxor`]
    #[track_caller]
    fn bitwise_xor(&self, o: impl Operand<Self>) -> Self {
        self.bitxor(o)
    }
    /// [`Elementwise::bitnot`]
    #[track_caller]
    fn bitwise_not(&self) -> Self {
        self.bitnot()
    }
    /// [`Elementwise::shl`]
    #[track_caller]
    fn lshift(&self, o: impl Operand<Self>) -> Self {
        self.shl(o)
    }
    /// [`Elementwise::shr`]
    #[track_caller]
    fn rshift(&self, o: impl Operand<Self>) -> Self {
        self.shr(o)
    }
    /// [`Elementwise::modulo`]: `a % b`, with the sign of the divisor.
    #[track_caller]
    fn remainder(&self, o: impl Operand<Self>) -> Self {
        self.modulo(o)
    }
    /// [`Elementwise::clamp`]
    #[track_caller]
    fn clip(&self, low: impl Operand<Self>, high: impl Operand<Self>) -> Self {
        self.clamp(low, high)
    }
    /// [`Math::silu`]
    #[track_caller]
    fn swish(&self) -> Self {
        self.silu()
    }
    /// [`Math::hard_sigmoid`]
    #[track_caller]
    fn hardsigmoid(&self) -> Self {
        self.hard_sigmoid()
    }
    /// [`Math::hard_swish`]
    #[track_caller]
    fn hardswish(&self) -> Self {
        self.hard_swish()
    }
    /// [`Math::log_sigmoid`]
    #[track_caller]
    fn logsigmoid(&self) -> Self {
        self.log_sigmoid()
    }
    /// [`Movement::transpose`]
    #[track_caller]
    fn swapaxes(&self, a: i64, b: i64) -> Self {
        self.transpose(a, b)
    }
    /// [`Movement::expand`]
    #[track_caller]
    fn broadcast_to(&self, shape: impl super::IntoShape) -> Self {
        self.expand(shape)
    }
    /// The sum of all of them, elementwise: tinygrad's `usum`.
    #[track_caller]
    fn usum(list: &[&Self]) -> Self {
        together("usum", list, |a, b| a.add(b))
    }
    /// The product of all of them, elementwise: tinygrad's `uprod`.
    #[track_caller]
    fn uprod(list: &[&Self]) -> Self {
        together("uprod", list, |a, b| a.mul(b))
    }
}

impl<V: Value> Names for V {}

#[track_caller]
fn together<V: Value>(
    name: &'static str,
    list: &[&V],
    f: fn(&super::value::Expr, &super::value::Expr) -> super::value::Expr,
) -> V {
    let nodes: Vec<_> = list.iter().map(|x| x.node()).collect();
    lift_many(name, &nodes, |xs| {
        let mut xs = xs.into_iter();
        let first = xs.next().ok_or_else(|| Problem::argument("no values"))?;
        Ok(xs.fold(first, |whole, x| f(&whole, &x)))
    })
}

impl Tensor {
    /// One elementwise op of the graph on broadcast, promoted sources: tinygrad's `alu`. For ops without a method here.
    #[track_caller]
    pub fn alu(op: Op, sources: &[&Tensor]) -> Tensor {
        let nodes: Vec<_> = sources.iter().map(|x| x.node()).collect();
        lift_many("alu", &nodes, |xs| {
            if op.arity() != Some(xs.len()) || !op.is_alu() {
                return Err(Problem::argument(format!("{op:?} is no elementwise op of {} sources", xs.len())));
            }
            let list: Vec<_> = xs.iter().map(|x| x.uop().clone()).collect();
            Ok(super::value::Expr::from(super::graph::alu(op, &list)?))
        })
    }
    /// The first two axes swapped, as the property `T` of tinygrad and (for matrices) PyTorch. [`Movement::t`] swaps
    /// the last two.
    #[allow(non_snake_case)]
    #[track_caller]
    pub fn T(&self) -> Tensor {
        build("T", [self.node()], |[x]| {
            let rank = x.shape().len();
            if rank < 2 {
                return Err(Problem::Axis { axis: 1, rank });
            }
            let mut order: Vec<usize> = (0..rank).collect();
            order.swap(0, 1);
            Ok(super::graph::permute(x, &order))
        })
    }
    /// Whether the elements are of type bool.
    pub fn is_bool(&self) -> Result<bool, super::TensorError> {
        Ok(self.dtype()? == Scalar::Bool)
    }
}

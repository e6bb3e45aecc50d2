//! Reductions made of others: variance and mean together, sums in a type of choice, lengths, the softmax of the small.

use super::args::{self, IntoAxes};
use super::elementwise::Elementwise;
use super::error::Problem;
use super::reduction::Reduction;
use super::value::{Value, lift};
use crate::uop::Scalar;

/// More reductions over axes.
pub trait Statistics: Value {
    /// Sum in `dtype`, of the elements converted to it (`sum(dtype=...)`).
    #[track_caller]
    fn sum_as(&self, axes: impl IntoAxes, dtype: Scalar) -> Self {
        let list = axes.into_axes();
        lift("sum_as", [self.node()], |[x]| {
            let at = args::axes(list.as_deref(), x.rank())?;
            if dtype.size_bytes() == 0 {
                return Err(Problem::dtype(format!("no sums of type {dtype}")));
            }
            Ok(super::reduction::total(&x.cast(dtype), crate::uop::Op::Add, &at))
        })
    }
    /// Product in `dtype`, of the elements converted to it (`prod(dtype=...)`).
    #[track_caller]
    fn prod_as(&self, axes: impl IntoAxes, dtype: Scalar) -> Self {
        let list = axes.into_axes();
        lift("prod_as", [self.node()], |[x]| {
            let at = args::axes(list.as_deref(), x.rank())?;
            if dtype.size_bytes() == 0 {
                return Err(Problem::dtype(format!("no products of type {dtype}")));
            }
            Ok(super::reduction::total(&x.cast(dtype), crate::uop::Op::Mul, &at))
        })
    }
    /// [`Reduction::var`] and [`Reduction::mean`].
    #[track_caller]
    fn var_mean(&self, axes: impl IntoAxes, correction: i64) -> (Self, Self) {
        let list = axes.into_axes();
        let all = list.is_none();
        let at = list.unwrap_or_default();
        match all {
            true => (self.var((), correction), self.mean(())),
            false => (self.var(at.as_slice(), correction), self.mean(at.as_slice())),
        }
    }
    /// [`Reduction::std`] and [`Reduction::mean`].
    #[track_caller]
    fn std_mean(&self, axes: impl IntoAxes, correction: i64) -> (Self, Self) {
        let list = axes.into_axes();
        let all = list.is_none();
        let at = list.unwrap_or_default();
        match all {
            true => (self.std((), correction), self.mean(())),
            false => (self.std(at.as_slice(), correction), self.mean(at.as_slice())),
        }
    }
    /// Number of elements that are not zero (i32).
    #[track_caller]
    fn count_nonzero(&self, axes: impl IntoAxes) -> Self {
        let list = axes.into_axes();
        lift("count_nonzero", [self.node()], |[x]| {
            let at = args::axes(list.as_deref(), x.rank())?;
            Ok(super::reduction::total(&x.cast(Scalar::Bool).cast(Scalar::I32), crate::uop::Op::Add, &at))
        })
    }
    /// [`Reduction::softmax`] of the negative: the smallest element has the largest share.
    #[track_caller]
    fn softmin(&self, axis: i64) -> Self {
        lift("softmin", [self.node()], |[x]| Ok(super::elementwise::Elementwise::neg(&x).softmax(axis)))
    }
}

impl<V: Value> Statistics for V {}

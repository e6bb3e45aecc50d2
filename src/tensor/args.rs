//! How shapes, axes and sizes may be written by a caller.

use super::error::Problem;
use super::variable::Variable;
use crate::uop::{Dim, UOp};

/// One size. In [`Movement::reshape`](super::Movement::reshape) and `expand`, -1 has their special meaning.
pub trait IntoDim {
    fn into_dim(self) -> Dim;
}
impl IntoDim for i64 {
    fn into_dim(self) -> Dim {
        Dim::Int(self)
    }
}
impl IntoDim for i32 {
    fn into_dim(self) -> Dim {
        Dim::Int(self.into())
    }
}
impl IntoDim for usize {
    fn into_dim(self) -> Dim {
        Dim::from(self)
    }
}
impl IntoDim for Dim {
    fn into_dim(self) -> Dim {
        self
    }
}
impl IntoDim for &Dim {
    fn into_dim(self) -> Dim {
        self.clone()
    }
}
impl IntoDim for UOp {
    fn into_dim(self) -> Dim {
        Dim::from(self)
    }
}
impl IntoDim for &UOp {
    fn into_dim(self) -> Dim {
        Dim::from(self)
    }
}
impl IntoDim for &Variable {
    fn into_dim(self) -> Dim {
        Dim::from(self.uop())
    }
}

/// A list of sizes: `[2, 3]`, `&shape`, a `Vec`, `()` for a scalar.
pub trait IntoShape {
    fn into_shape(self) -> Vec<Dim>;
}
impl IntoShape for () {
    fn into_shape(self) -> Vec<Dim> {
        Vec::new()
    }
}
impl<D: IntoDim, const N: usize> IntoShape for [D; N] {
    fn into_shape(self) -> Vec<Dim> {
        self.into_iter().map(D::into_dim).collect()
    }
}
impl<D: IntoDim> IntoShape for Vec<D> {
    fn into_shape(self) -> Vec<Dim> {
        self.into_iter().map(D::into_dim).collect()
    }
}
impl<D: IntoDim + Clone> IntoShape for &[D] {
    fn into_shape(self) -> Vec<Dim> {
        self.iter().cloned().map(D::into_dim).collect()
    }
}
impl<D: IntoDim + Clone> IntoShape for &Vec<D> {
    fn into_shape(self) -> Vec<Dim> {
        self.as_slice().into_shape()
    }
}
impl<D: IntoDim + Clone, const N: usize> IntoShape for &[D; N] {
    fn into_shape(self) -> Vec<Dim> {
        self.as_slice().into_shape()
    }
}
impl IntoShape for usize {
    fn into_shape(self) -> Vec<Dim> {
        vec![Dim::from(self)]
    }
}
impl IntoShape for i32 {
    fn into_shape(self) -> Vec<Dim> {
        vec![Dim::Int(self.into())]
    }
}

/// Axes to work on: `()` for all, `-1`, `[0, 2]`, a slice. Negative ones count from the end.
pub trait IntoAxes {
    /// `None`: all of them.
    fn into_axes(self) -> Option<Vec<i64>>;
}
impl IntoAxes for () {
    fn into_axes(self) -> Option<Vec<i64>> {
        None
    }
}
impl IntoAxes for i32 {
    fn into_axes(self) -> Option<Vec<i64>> {
        Some(vec![self.into()])
    }
}
impl IntoAxes for i64 {
    fn into_axes(self) -> Option<Vec<i64>> {
        Some(vec![self])
    }
}
impl IntoAxes for Option<i64> {
    fn into_axes(self) -> Option<Vec<i64>> {
        self.map(|axis| vec![axis])
    }
}
impl<const N: usize> IntoAxes for [i32; N] {
    fn into_axes(self) -> Option<Vec<i64>> {
        Some(self.iter().map(|a| i64::from(*a)).collect())
    }
}
impl<const N: usize> IntoAxes for [i64; N] {
    fn into_axes(self) -> Option<Vec<i64>> {
        Some(self.to_vec())
    }
}
impl IntoAxes for &[i64] {
    fn into_axes(self) -> Option<Vec<i64>> {
        Some(self.to_vec())
    }
}
impl IntoAxes for Vec<i64> {
    fn into_axes(self) -> Option<Vec<i64>> {
        Some(self)
    }
}

/// `axis` as a position in `0..rank`.
pub(crate) fn axis(axis: i64, rank: usize) -> Result<usize, Problem> {
    let n = i64::try_from(rank).unwrap_or(i64::MAX);
    let at = if axis < 0 { axis + n } else { axis };
    match usize::try_from(at) {
        Ok(k) if k < rank => Ok(k),
        _ => Err(Problem::Axis { axis, rank }),
    }
}

/// Distinct positions of `list`, ascending; all for `None`.
pub(crate) fn axes(list: Option<&[i64]>, rank: usize) -> Result<Vec<usize>, Problem> {
    let Some(list) = list else { return Ok((0..rank).collect()) };
    let mut out = list.iter().map(|a| axis(*a, rank)).collect::<Result<Vec<usize>, Problem>>()?;
    out.sort_unstable();
    match out.windows(2).find(|w| w[0] == w[1]) {
        Some(twice) => Err(Problem::AxisTwice { axis: twice[0] }),
        None => Ok(out),
    }
}

//! How shapes, axes and sizes may be written by a caller.

use super::error::Problem;
use super::variable::Variable;
use crate::uop::{Dim, UOp};

/// One size. In [`Movement::reshape`](super::Movement::reshape) and `expand`, -1 has their special meaning.
pub trait IntoDim {
    /// The size.
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
    /// The sizes, the outermost first.
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
impl IntoShape for UOp {
    fn into_shape(self) -> Vec<Dim> {
        vec![Dim::from(self)]
    }
}
impl IntoShape for Dim {
    fn into_shape(self) -> Vec<Dim> {
        vec![self]
    }
}
impl IntoShape for i32 {
    fn into_shape(self) -> Vec<Dim> {
        vec![Dim::Int(self.into())]
    }
}

/// Axes to work on: `()` or `..` for all, `-1`, `[0, 2]`, `1..3`, a slice or a `Vec`, of `i32`, `i64` or `usize`.
/// Negative ones count from the end.
pub trait IntoAxes {
    /// `None`: all of them.
    fn into_axes(self) -> Option<Vec<i64>>;
}
impl IntoAxes for () {
    fn into_axes(self) -> Option<Vec<i64>> {
        None
    }
}
/// An axis of any integer type. One beyond i64 is beyond every rank too.
macro_rules! axes_of {
    ($($t:ty)*) => {$(
        impl IntoAxes for $t {
            fn into_axes(self) -> Option<Vec<i64>> {
                Some(vec![i64::try_from(self).unwrap_or(i64::MAX)])
            }
        }
        impl IntoAxes for Option<$t> {
            fn into_axes(self) -> Option<Vec<i64>> {
                self.and_then(IntoAxes::into_axes)
            }
        }
        impl IntoAxes for &[$t] {
            fn into_axes(self) -> Option<Vec<i64>> {
                Some(self.iter().map(|a| i64::try_from(*a).unwrap_or(i64::MAX)).collect())
            }
        }
        impl<const N: usize> IntoAxes for [$t; N] {
            fn into_axes(self) -> Option<Vec<i64>> {
                self.as_slice().into_axes()
            }
        }
        impl<const N: usize> IntoAxes for &[$t; N] {
            fn into_axes(self) -> Option<Vec<i64>> {
                self.as_slice().into_axes()
            }
        }
        impl IntoAxes for Vec<$t> {
            fn into_axes(self) -> Option<Vec<i64>> {
                self.as_slice().into_axes()
            }
        }
        impl IntoAxes for &Vec<$t> {
            fn into_axes(self) -> Option<Vec<i64>> {
                self.as_slice().into_axes()
            }
        }
        /// At most 64 axes: more than any Tensor has.
        impl IntoAxes for std::ops::Range<$t> {
            fn into_axes(self) -> Option<Vec<i64>> {
                Some(self.take(64).map(|a| i64::try_from(a).unwrap_or(i64::MAX)).collect())
            }
        }
        impl IntoAxes for std::ops::RangeInclusive<$t> {
            fn into_axes(self) -> Option<Vec<i64>> {
                Some(self.take(64).map(|a| i64::try_from(a).unwrap_or(i64::MAX)).collect())
            }
        }
    )*};
}
axes_of! { i32 i64 usize }
/// All of them, as `()`.
impl IntoAxes for std::ops::RangeFull {
    fn into_axes(self) -> Option<Vec<i64>> {
        None
    }
}

/// Pieces that an axis is cut into at most.
pub(crate) const PIECES: usize = 1 << 20;

/// How an axis is cut: `2` for pieces of 2, `[1, 3]` for one of 1 and one of 3.
pub trait IntoSplit {
    /// The sizes of the pieces of an axis of size `whole`.
    fn into_sizes(self, whole: Option<usize>) -> Vec<usize>;
}
impl IntoSplit for usize {
    fn into_sizes(self, whole: Option<usize>) -> Vec<usize> {
        match whole {
            Some(whole) if self > 0 && whole > 0 && whole / self <= PIECES => {
                let mut sizes = vec![self; whole / self];
                sizes.extend((whole % self != 0).then_some(whole % self));
                sizes
            }
            _ => vec![self],
        }
    }
}
impl IntoSplit for &[usize] {
    fn into_sizes(self, _: Option<usize>) -> Vec<usize> {
        self.to_vec()
    }
}
impl<const N: usize> IntoSplit for &[usize; N] {
    fn into_sizes(self, _: Option<usize>) -> Vec<usize> {
        self.to_vec()
    }
}
impl<const N: usize> IntoSplit for [usize; N] {
    fn into_sizes(self, _: Option<usize>) -> Vec<usize> {
        self.to_vec()
    }
}
impl IntoSplit for Vec<usize> {
    fn into_sizes(self, _: Option<usize>) -> Vec<usize> {
        self
    }
}
impl IntoSplit for &Vec<usize> {
    fn into_sizes(self, _: Option<usize>) -> Vec<usize> {
        self.clone()
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

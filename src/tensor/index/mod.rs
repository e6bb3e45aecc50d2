//! Indexing: integers, ranges with steps, new axes, an ellipsis, lists, integer Tensors and masks; reading, storing,
//! scattering.
//!
//! | Python | here |
//! |---|---|
//! | `x[1, -1]` | `x.get((1, -1))` |
//! | `x[:, 2:5]`, `x[:, 2:]`, `x[:, :-1]` | `x.get((.., 2..5))`, `x.get((.., 2..))`, `x.get((.., ..-1))` |
//! | `x[::2]`, `x[::-1]`, `x[5:1:-2]` | `x.get(slice(None, None, 2))`, `slice(None, None, -1)`, `slice(5, 1, -2)` |
//! | `x[None]`, `x[..., None]` | `x.get(NEW_AXIS)` or `x.get(None)`, `x.get((ELLIPSIS, None))` |
//! | `x[[0, 2]]`, `x[i, j]` | `x.get([0, 2])`, `x.get((&i, &j))` |
//! | `x[mask]` | `x.get(&mask)` (computes the mask: see [`Tensor::get`](crate::tensor::Tensor::get)) |
//! | `x[1:3] = v`, `x[mask] = 0` | `x.set(1..3, &v)`, `x.set(&mask, 0)` |
//! | `x[1:3] += v` | `x.update(1..3, \|part\| part + &v)` |
//!
//! A negative integer counts from the end. Ranges are cut to the axis as in Python. An index Tensor (or list) picks
//! elements of its axis: a negative element counts from the end, one outside reads 0, whatever integer type it has.
//! Several index Tensors broadcast together; their axes are at the position of the first if they are neighbours, else
//! in front. A plain integer removes its axis before that, as in PyTorch (numpy would count it among the index
//! Tensors). A mask covers as many axes as it has and stands for the index Tensors of its true elements, in row-major
//! order.

mod read;
mod scatter;
mod write;

pub(crate) use read::probe;
pub(super) use read::{at_positions, on_diagonal, position_type, widened};
pub use scatter::ScatterReduce;

use super::error::{Fault, Problem, Shown};
use super::handle::Tensor;
use super::value::{Operand, Value, lift, lift_many};
use super::{IntoDim, Variable};
use crate::uop::{Arg, Dim, Op, UOp};
use std::convert::Infallible;
use std::sync::Arc;

/// What to take of an axis (or where to put a new one).
#[derive(Clone, Debug)]
pub enum Index {
    /// One element; the axis is removed.
    At(Dim),
    /// `start..stop` by `step`; `None` is the end that the step's direction starts from or runs to.
    Slice {
        /// The first element, counted from the end where it is negative.
        start: Option<Dim>,
        /// The element before which it ends, counted from the end where it is negative.
        stop: Option<Dim>,
        /// Distance of the elements, not 0; negative: backwards.
        step: i64,
    },
    /// A new axis of size 1.
    NewAxis,
    /// As many whole axes as are left over.
    Ellipsis,
    /// The elements at the positions in an integer Tensor; the true elements of a Bool Tensor.
    Pick(Result<UOp, Fault>),
}

/// A new axis of size 1 (numpy's `newaxis`); `None` in an index tuple means the same.
pub const NEW_AXIS: Index = Index::NewAxis;
/// As many whole axes as are left over: Python's `...`.
pub const ELLIPSIS: Index = Index::Ellipsis;

/// `..` for one axis in an index tuple is [`Index::ALL`], also written as Rust's `..`.
impl Index {
    /// The whole axis.
    pub const ALL: Index = Index::Slice { start: None, stop: None, step: 1 };

    /// Whether this is a mask, and of how many axes.
    pub(crate) fn mask(&self) -> Option<&UOp> {
        match self {
            Index::Pick(Ok(u)) if u.dtype().is_bool() => Some(u),
            _ => None,
        }
    }
    /// Axes of the indexed Tensor that it stands for; an ellipsis is none here.
    fn axes(&self) -> usize {
        match self {
            Index::NewAxis | Index::Ellipsis => 0,
            _ => self.mask().map_or(1, |m| m.shape().len()),
        }
    }
}

/// `start..stop` by `step`, Python's `start:stop:step`.
pub fn slice(start: impl Into<Option<i64>>, stop: impl Into<Option<i64>>, step: i64) -> Index {
    Index::Slice { start: start.into().map(Dim::Int), stop: stop.into().map(Dim::Int), step }
}

macro_rules! index_numbers {
    ($($t:ty)*) => {$(
        impl From<$t> for Index {
            fn from(i: $t) -> Index { Index::At(IntoDim::into_dim(i)) }
        }
        impl From<std::ops::Range<$t>> for Index {
            fn from(r: std::ops::Range<$t>) -> Index {
                let [start, stop] = [r.start, r.end].map(|i| Some(IntoDim::into_dim(i)));
                Index::Slice { start, stop, step: 1 }
            }
        }
        impl From<std::ops::RangeFrom<$t>> for Index {
            fn from(r: std::ops::RangeFrom<$t>) -> Index {
                Index::Slice { start: Some(IntoDim::into_dim(r.start)), stop: None, step: 1 }
            }
        }
        impl From<std::ops::RangeTo<$t>> for Index {
            fn from(r: std::ops::RangeTo<$t>) -> Index {
                Index::Slice { start: None, stop: Some(IntoDim::into_dim(r.end)), step: 1 }
            }
        }
    )*};
}
index_numbers! { i32 i64 usize Dim UOp }

/// The element after `last`; after -1 is the end.
fn after(last: Dim) -> Option<Dim> {
    match last {
        Dim::Int(-1) => None,
        last => Some(super::graph::dim_op(crate::uop::Op::Add, &last, &Dim::Int(1))),
    }
}

macro_rules! index_lists {
    (owned $t:ty) => {
        impl From<Vec<$t>> for Index {
            fn from(list: Vec<$t>) -> Index { list.as_slice().into() }
        }
        impl From<&Vec<$t>> for Index {
            fn from(list: &Vec<$t>) -> Index { list.as_slice().into() }
        }
        impl<const N: usize> From<[$t; N]> for Index {
            fn from(list: [$t; N]) -> Index { list.as_slice().into() }
        }
        impl<const N: usize> From<&[$t; N]> for Index {
            fn from(list: &[$t; N]) -> Index { list.as_slice().into() }
        }
    };
    ($($t:ty)*) => {$(
        impl From<std::ops::RangeInclusive<$t>> for Index {
            fn from(r: std::ops::RangeInclusive<$t>) -> Index {
                let (start, last) = r.into_inner();
                Index::Slice { start: Some(IntoDim::into_dim(start)), stop: after(IntoDim::into_dim(last)), step: 1 }
            }
        }
        impl From<std::ops::RangeToInclusive<$t>> for Index {
            fn from(r: std::ops::RangeToInclusive<$t>) -> Index {
                Index::Slice { start: None, stop: after(IntoDim::into_dim(r.end)), step: 1 }
            }
        }
        impl From<&[$t]> for Index {
            fn from(list: &[$t]) -> Index {
                listed(list.iter().map(|i| i64::try_from(*i).unwrap_or(i64::MAX)).collect())
            }
        }
        index_lists!(owned $t);
    )*};
}
index_lists! { i32 i64 usize }
impl From<&[bool]> for Index {
    fn from(mask: &[bool]) -> Index {
        Index::Pick(Tensor::new(mask).node())
    }
}
index_lists! { owned bool }

/// Positions as an index Tensor.
fn listed(list: Vec<i64>) -> Index {
    let narrow: Result<Vec<i32>, _> = list.iter().map(|i| i32::try_from(*i)).collect();
    Index::Pick(narrow.map_or_else(|_| Tensor::new(list.as_slice()), |list| Tensor::new(list.as_slice())).node())
}

impl From<std::ops::RangeFull> for Index {
    fn from(_: std::ops::RangeFull) -> Index {
        Index::ALL
    }
}
impl From<&Tensor> for Index {
    fn from(t: &Tensor) -> Index {
        Index::Pick(t.node())
    }
}
impl From<Tensor> for Index {
    fn from(t: Tensor) -> Index {
        Index::Pick(t.node())
    }
}
impl From<&Variable> for Index {
    fn from(v: &Variable) -> Index {
        Index::At(v.into_dim())
    }
}
/// `None`: a new axis, as in Python.
impl From<Option<Infallible>> for Index {
    fn from(_: Option<Infallible>) -> Index {
        Index::NewAxis
    }
}

/// A list of indices: one, a tuple of up to eight, or any number of [`Index`] in a slice, an array or a `Vec`.
pub trait IntoIndices {
    /// The indices, one an axis.
    fn into_indices(self) -> Vec<Index>;
}
impl<I: Into<Index>> IntoIndices for I {
    fn into_indices(self) -> Vec<Index> {
        vec![self.into()]
    }
}
impl IntoIndices for &[Index] {
    fn into_indices(self) -> Vec<Index> {
        self.to_vec()
    }
}
impl IntoIndices for Vec<Index> {
    fn into_indices(self) -> Vec<Index> {
        self
    }
}
impl IntoIndices for &Vec<Index> {
    fn into_indices(self) -> Vec<Index> {
        self.clone()
    }
}
impl<const N: usize> IntoIndices for [Index; N] {
    fn into_indices(self) -> Vec<Index> {
        self.into()
    }
}
impl<const N: usize> IntoIndices for &[Index; N] {
    fn into_indices(self) -> Vec<Index> {
        self.to_vec()
    }
}
macro_rules! index_tuples {
    ($(($($name:ident)*))*) => {$(
        impl<$($name: Into<Index>),*> IntoIndices for ($($name,)*) {
            #[allow(non_snake_case)]
            fn into_indices(self) -> Vec<Index> {
                let ($($name,)*) = self;
                vec![$($name.into()),*]
            }
        }
    )*};
}
index_tuples! {
    (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H)
}

/// Reading by index, and placing by an index of every element.
pub trait Indexing: Value {
    /// The part at these indices (see the module's head for what they may be). A mask is refused here, since the shape
    /// of what it picks depends on data; [`Tensor::get`](crate::tensor::Tensor::get) reads it.
    ///
    /// # Errors
    /// More indices than axes, an integer outside its axis, an index Tensor of floats, a step of 0.
    #[track_caller]
    fn get(&self, index: impl IntoIndices) -> Self {
        let index = index.into_indices();
        let sources = sources(self.node(), &index);
        lift_many("get", &sources, |nodes| read::read(&nodes[0], &index, &nodes[1..]))
    }
    /// Elements of one axis at the positions in an integer tensor of the same rank: `out[i][j] = self[index[i][j]][j]`
    /// for axis 0. The other axes of `index` may be shorter than those of `self`. A negative position counts from the
    /// end, one outside reads 0.
    ///
    /// # Errors
    /// Another rank, a float index, an axis of `index` longer than that of `self`.
    #[track_caller]
    fn gather(&self, axis: i64, index: &Self) -> Self {
        lift_many("gather", &[self.node(), index.node()], |nodes| read::gather(&nodes[0], axis, &nodes[1]))
    }
    /// `self` with the elements of `src` put at the positions in `index` along one axis:
    /// `out[index[i][j]][j] = src[i][j]` for axis 0. `src` is a value at least as large as `index`, or a number. Of
    /// several writes to one index the last stays; a position outside writes nothing.
    ///
    /// # Errors
    /// Ranks that differ, a float index, an axis of `index` longer than that of `src` or (but for the written one) of
    /// `self`, a `src` whose type does not go into that of `self`.
    #[track_caller]
    fn scatter(&self, axis: i64, index: &Self, src: impl Operand<Self>) -> Self {
        lift("scatter", [self.node(), index.node(), src.operand()], |[x, i, src]| scatter::put(&x, axis, &i, &src))
    }
    /// As [`Indexing::scatter`], but all elements written to one index are reduced to one, together with what was there
    /// before unless `include_self` is false. An element that nothing is written to stays as it is. The mean of
    /// integers is rounded down.
    ///
    /// # Errors
    /// As [`Indexing::scatter`].
    #[track_caller]
    fn scatter_reduce(
        &self,
        axis: i64,
        index: &Self,
        src: impl Operand<Self>,
        reduce: ScatterReduce,
        include_self: bool,
    ) -> Self {
        lift("scatter_reduce", [self.node(), index.node(), src.operand()], |[x, i, src]| {
            scatter::reduce(&x, axis, &i, &src, (reduce, include_self))
        })
    }
    /// [`Indexing::scatter_reduce`] by sum, `self` included.
    ///
    /// # Errors
    /// As [`Indexing::scatter`].
    #[track_caller]
    fn scatter_add(&self, axis: i64, index: &Self, src: impl Operand<Self>) -> Self {
        self.scatter_reduce(axis, index, src, ScatterReduce::Sum, true)
    }
}

impl<V: Value> Indexing for V {}

fn sources(x: Result<UOp, Fault>, index: &[Index]) -> Vec<Result<UOp, Fault>> {
    let device = x.as_ref().ok().and_then(|x| x.device().cloned());
    let one = |i: &Index| match (i, &device) {
        (Index::Pick(Ok(node)), Some(device)) => Some(Ok(from_host(node, device))),
        (Index::Pick(node), _) => Some(node.clone()),
        _ => None,
    };
    let picks: Vec<Result<UOp, Fault>> = index.iter().filter_map(one).collect();
    std::iter::once(x).chain(picks).collect()
}

/// An index that still is the host's data, a list say, goes to the device of the indexed Tensor, not to the default
/// one.
fn from_host(index: &UOp, device: &Arc<str>) -> UOp {
    match index.op() {
        Op::Reshape => index.with_src(
            std::iter::once(from_host(&index.src()[0], device))
                .chain(index.src()[1..].iter().cloned())
                .collect::<crate::uop::Srcs>(),
        ),
        Op::Copy if index.src()[0].device().is_some_and(|d| **d == *super::HOST) && index.realized().is_none() => {
            index.with_arg(Arg::Device(device.clone()))
        }
        _ => index.clone(),
    }
}

/// The shape of an index that does not fit.
fn misfit(mask: &[Dim], own: &[Dim]) -> Problem {
    Problem::shape(format!("a mask of shape {} over axes of shape {}", Shown(mask), Shown(own)))
}

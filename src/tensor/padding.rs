//! Padding: with a value, or with elements from the inside.

use super::elementwise::Elementwise;
use super::error::Problem;
use super::graph;
use super::movement::{LARGEST, Movement};
use super::value::{Expr, Value};
use crate::uop::{ConstVal, Dim, Scalar, UOp};

/// Where padding takes its elements from.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PadMode {
    /// Mirrored at the edge element, which is not repeated.
    Reflect,
    /// The edge element.
    Replicate,
    /// The other end.
    Circular,
}

/// Counts of padding: pairs (before, after) of each axis, first axis first, or a flat list, last axis first, two
/// numbers an axis, for as many of the last axes as it has pairs.
pub trait IntoPadding {
    /// A pair for each of `rank` axes.
    ///
    /// # Errors
    /// A flat list is longer than the axes, or has half a pair.
    fn into_padding(self, rank: usize) -> Result<Vec<(i64, i64)>, Problem>;
}
impl IntoPadding for &[(i64, i64)] {
    fn into_padding(self, _: usize) -> Result<Vec<(i64, i64)>, Problem> {
        Ok(self.to_vec())
    }
}
impl IntoPadding for &[i64] {
    fn into_padding(self, rank: usize) -> Result<Vec<(i64, i64)>, Problem> {
        if !self.len().is_multiple_of(2) || self.len() / 2 > rank {
            let n = self.len();
            return Err(Problem::argument(format!(
                "{n} counts in a flat list for rank {rank}: two an axis, last first"
            )));
        }
        let mut pairs = vec![(0, 0); rank - self.len() / 2];
        pairs.extend(self.chunks_exact(2).rev().map(|pair| (pair[0], pair[1])));
        Ok(pairs)
    }
}
macro_rules! padding_lists {
    ($($t:ty),*) => {$(
        impl<const N: usize> IntoPadding for &[$t; N] {
            fn into_padding(self, rank: usize) -> Result<Vec<(i64, i64)>, Problem> {
                self.as_slice().into_padding(rank)
            }
        }
        impl IntoPadding for &Vec<$t> {
            fn into_padding(self, rank: usize) -> Result<Vec<(i64, i64)>, Problem> {
                self.as_slice().into_padding(rank)
            }
        }
    )*};
}
padding_lists! { i64, (i64, i64) }

fn check_rank(x: &Expr, counts: &[(i64, i64)]) -> Result<(), Problem> {
    if let Some(far) = counts.iter().flat_map(|(a, b)| [*a, *b]).find(|c| !(-LARGEST..=LARGEST).contains(c)) {
        return Err(Problem::argument(format!("a count of {far}; at most {LARGEST}")));
    }
    if counts.len() == x.rank() {
        return Ok(());
    }
    Err(Problem::argument(format!("{} pairs of counts for rank {}", counts.len(), x.rank())))
}

/// Cuts what negative counts remove, and returns the remaining counts.
fn cut(x: &Expr, counts: &[(i64, i64)]) -> Result<(Expr, Vec<(i64, i64)>), Problem> {
    check_rank(x, counts)?;
    let keep: Vec<(Dim, Dim)> = counts
        .iter()
        .zip(x.shape())
        .map(|((a, b), size)| {
            let end = graph::dim_op(crate::uop::Op::Sub, size, &Dim::Int((-b).max(0)));
            (Dim::Int((-a).max(0)), end)
        })
        .collect();
    let left = counts.iter().map(|(a, b)| ((*a).max(0), (*b).max(0))).collect();
    let x = x.shrink(&keep);
    x.node().map_err(|fault| fault.problem.clone())?;
    Ok((x, left))
}

pub(crate) fn constant(x: &Expr, counts: &[(i64, i64)], value: ConstVal) -> Result<Expr, Problem> {
    let (x, counts) = cut(x, counts)?;
    let dims: Vec<(Dim, Dim)> = counts.iter().map(|(a, b)| (Dim::Int(*a), Dim::Int(*b))).collect();
    let padded = Expr::from(graph::pad(x.uop(), &dims));
    if value.is_zero() && !matches!(value, ConstVal::Float(f) if f.is_sign_negative()) || padded.shape() == x.shape() {
        return Ok(padded);
    }
    let inside = graph::pad(&graph::full(x.shape(), &UOp::bool(true)), &dims);
    let value = graph::constant(value, x.scalar())?;
    Ok(Expr::from(inside).where_(&padded, &Expr::from(value)))
}

pub(crate) fn pad(x: &Expr, counts: &[(i64, i64)], mode: PadMode) -> Result<Expr, Problem> {
    let (mut x, counts) = cut(x, counts)?;
    for (axis, (before, after)) in counts.iter().enumerate() {
        x = pad_axis(&x, axis, *before, *after, mode)?;
    }
    Ok(x)
}

fn pad_axis(x: &Expr, axis: usize, before: i64, after: i64, mode: PadMode) -> Result<Expr, Problem> {
    if before == 0 && after == 0 {
        return Ok(x.clone());
    }
    let Some(size) = x.dim(axis).as_int() else {
        return Err(Problem::shape(format!("axis {axis} of symbolic size {} cannot be padded so", x.dim(axis))));
    };
    let most = match mode {
        PadMode::Reflect => size - 1,
        PadMode::Replicate => i64::MAX,
        PadMode::Circular => size,
    };
    if before > most || after > most || size == 0 {
        return Err(Problem::argument(format!("{before} and {after} are too many for axis {axis} of size {size}")));
    }
    let part = |from: i64, to: i64| x.narrow(axis as i64, from, to - from);
    let repeated = |at: i64, n: i64| {
        let mut shape = x.shape().to_vec();
        shape[axis] = Dim::Int(n);
        part(at, at + 1).expand(shape)
    };
    let (head, tail) = match mode {
        PadMode::Reflect => {
            let mirror = |from: i64, to: i64| part(from, to).flip(axis as i64);
            (mirror(1, 1 + before), mirror(size - 1 - after, size - 1))
        }
        PadMode::Replicate => (repeated(0, before), repeated(size - 1, after)),
        PadMode::Circular => (part(size - before, size), part(0, after)),
    };
    super::join::cat(&[head, x.clone(), tail], axis as i64)
}

/// The smallest value of a type: what a maximum starts from.
pub(crate) fn lowest(t: Scalar) -> ConstVal {
    t.lowest()
}

//! Reductions: sums, products, extremes and functions of them, over some axes or all.
//!
//! Sums accumulate in `Scalar::accumulator`: half types in f32 and back, small integers and bool in (u)int32, which is
//! the result's type. Functions of sums and exponentials of half types (softmax, logsumexp) are in f32 from end to end,
//! and rounded once. Names ending in `_keep` leave the reduced axes with size 1.

use super::args::{self, IntoAxes};
use super::elementwise::{Elementwise, to_float};
use super::error::Problem;
use super::graph;
use super::index::position_type;
use super::math::Math;
use super::movement::{Movement, positions};
use super::value::{Expr, Value, lift};
use crate::uop::{ConstVal, DType, Dim, Op, Scalar, UOp, const_as, numel};

type Made = Result<Expr, Problem>;

/// Reduces `axes` of the one source of method `name`; `keep`: they stay with size 1.
#[track_caller]
fn reduced<V: Value>(
    name: &'static str,
    x: &V,
    axes: impl IntoAxes,
    keep: bool,
    f: impl FnOnce(&Expr, &[usize]) -> Made,
) -> V {
    let list = axes.into_axes();
    lift(name, [x.node()], |[x]| {
        let at = args::axes(list.as_deref(), x.rank())?;
        let whole = f(&x, &at)?;
        Ok(if keep { whole } else { dropped(&whole, &at) })
    })
}

fn dropped(x: &Expr, axes: &[usize]) -> Expr {
    let left: Vec<Dim> =
        x.shape().iter().enumerate().filter(|(k, _)| !axes.contains(k)).map(|(_, d)| d.clone()).collect();
    Expr::from(graph::reshape(x.uop(), &left))
}

pub(crate) fn sum(x: &Expr, axes: &[usize]) -> Made {
    let t = x.scalar();
    let wide = x.cast(t.accumulator());
    let s = expr(graph::reduce(wide.uop(), Op::Add, axes));
    Ok(if t.is_float() { s.cast(t) } else { s })
}

/// The reduction by `op` in the type of `x`.
pub(crate) fn total(x: &Expr, op: Op, axes: &[usize]) -> Expr {
    dropped(&expr(graph::reduce(x.uop(), op, axes)), axes)
}

fn expr(u: UOp) -> Expr {
    Expr::from(u)
}

fn prod(x: &Expr, axes: &[usize]) -> Made {
    let t = x.scalar();
    let p = expr(graph::reduce(x.cast(t.accumulator()).uop(), Op::Mul, axes));
    Ok(if t.is_float() { p.cast(t) } else { p })
}

/// `x` as a float of the type of its sums, and the type of a result: intermediate values are rounded once,
/// at the end.
pub(crate) fn accumulated(x: &Expr) -> (Expr, Scalar) {
    let x = expr(to_float(x.uop()));
    let t = x.scalar();
    (x.cast(t.accumulator()), t)
}

pub(crate) fn max(x: &Expr, axes: &[usize]) -> Made {
    if let Some(k) = axes.iter().find(|k| x.dim(**k).is(0)) {
        return Err(Problem::shape(format!("axis {k} has no elements, so no extreme")));
    }
    Ok(expr(graph::reduce(x.uop(), Op::Max, axes)))
}

fn min(x: &Expr, axes: &[usize]) -> Made {
    Ok(max(&x.inverse(), axes)?.inverse())
}

/// Number of elements that are reduced, as a float of type `t`.
fn count(x: &Expr, axes: &[usize], t: Scalar) -> Expr {
    let dims: Vec<Dim> = axes.iter().map(|k| x.dim(*k)).collect();
    expr(graph::cast(&numel(&dims).uop(), t))
}

pub(crate) fn mean(x: &Expr, axes: &[usize]) -> Made {
    let x = expr(to_float(x.uop()));
    let t = x.scalar();
    let wide = x.cast(t.accumulator());
    let total = sum(&wide, axes)?;
    Ok(total.div(&count(&x, axes, wide.scalar())).cast(t))
}

fn var(x: &Expr, axes: &[usize], correction: i64) -> Made {
    let x = expr(to_float(x.uop()));
    let t = x.scalar();
    let wide = x.cast(t.accumulator());
    let off = wide.sub(&mean(&wide, axes)?);
    let n = count(&x, axes, wide.scalar()).sub(correction).maximum(0);
    Ok(sum(&off.square(), axes)?.div(&n).cast(t))
}

/// The square root; of 0 without a slope, which would be infinite.
fn root(x: &Expr) -> Expr {
    let none = x.eq(0);
    none.where_(0, &none.where_(1, x).sqrt()).cast(x.scalar())
}

/// First position of the largest value: among its positions, the largest distance to the end.
fn argmax(x: &Expr, axis: usize) -> Made {
    let m = max(x, &[axis])?;
    // A NaN is the maximum and is not equal to itself.
    let hit = if x.scalar().is_float() { x.eq(&m).bitor(&x.ne(x)) } else { x.eq(&m) };
    let n = x.dim(axis);
    let end = expr(graph::cast(&n.uop(), position_type(n.max())));
    let far = hit.where_(&end.sub(&positions(x.shape(), axis)), 0);
    Ok(end.sub(&max(&far, &[axis])?))
}

/// A position along one axis, or among all elements.
#[track_caller]
fn positioned<V: Value>(
    name: &'static str,
    x: &V,
    axis: impl IntoAxes,
    keep: bool,
    f: impl FnOnce(&Expr, usize) -> Made,
) -> V {
    let list = axis.into_axes();
    lift(name, [x.node()], |[x]| {
        let Some(list) = list else {
            let at = f(&x.reshape([-1]), 0)?;
            return Ok(at.reshape(vec![Dim::Int(1); if keep { x.rank() } else { 0 }]));
        };
        match args::axes(Some(&list), x.rank())?[..] {
            [at] => Ok(if keep { f(&x, at)? } else { dropped(&f(&x, at)?, &[at]) }),
            _ => Err(Problem::argument(format!("{} axes: a position is along one, or with () among all", list.len()))),
        }
    })
}

/// Reductions over axes.
pub trait Reduction: Value {
    /// Sum over axes, which go; small integers and half floats are summed in a wider type.
    #[track_caller]
    fn sum(&self, axes: impl IntoAxes) -> Self {
        reduced("sum", self, axes, false, sum)
    }
    /// [`Reduction::sum`], the axes kept with size 1.
    #[track_caller]
    fn sum_keep(&self, axes: impl IntoAxes) -> Self {
        reduced("sum", self, axes, true, sum)
    }
    /// Product over axes, which go.
    #[track_caller]
    fn prod(&self, axes: impl IntoAxes) -> Self {
        reduced("prod", self, axes, false, prod)
    }
    /// [`Reduction::prod`], the axes kept with size 1.
    #[track_caller]
    fn prod_keep(&self, axes: impl IntoAxes) -> Self {
        reduced("prod", self, axes, true, prod)
    }
    /// Largest element over axes, which go; NaN where there is one.
    #[track_caller]
    fn max(&self, axes: impl IntoAxes) -> Self {
        reduced("max", self, axes, false, max)
    }
    /// [`Reduction::max`], the axes kept with size 1.
    #[track_caller]
    fn max_keep(&self, axes: impl IntoAxes) -> Self {
        reduced("max", self, axes, true, max)
    }
    /// Smallest element over axes, which go; NaN where there is one.
    #[track_caller]
    fn min(&self, axes: impl IntoAxes) -> Self {
        reduced("min", self, axes, false, min)
    }
    /// [`Reduction::min`], the axes kept with size 1.
    #[track_caller]
    fn min_keep(&self, axes: impl IntoAxes) -> Self {
        reduced("min", self, axes, true, min)
    }
    /// Whether any element is not zero.
    #[track_caller]
    fn any(&self, axes: impl IntoAxes) -> Self {
        reduced("any", self, axes, false, |x, at| Ok(expr(graph::reduce(x.cast(Scalar::Bool).uop(), Op::Max, at))))
    }
    /// Whether no element is zero.
    #[track_caller]
    fn all(&self, axes: impl IntoAxes) -> Self {
        reduced("all", self, axes, false, |x, at| {
            Ok(expr(graph::reduce(x.logical_not().uop(), Op::Max, at)).logical_not())
        })
    }
    /// Mean as a float.
    #[track_caller]
    fn mean(&self, axes: impl IntoAxes) -> Self {
        reduced("mean", self, axes, false, mean)
    }
    /// [`Reduction::mean`], the axes kept with size 1.
    #[track_caller]
    fn mean_keep(&self, axes: impl IntoAxes) -> Self {
        reduced("mean", self, axes, true, mean)
    }
    /// Variance: squared distances to the mean, divided by the count less `correction` (1: the unbiased estimate).
    #[track_caller]
    fn var(&self, axes: impl IntoAxes, correction: i64) -> Self {
        reduced("var", self, axes, false, |x, at| var(x, at, correction))
    }
    /// [`Reduction::var`], the axes kept with size 1.
    #[track_caller]
    fn var_keep(&self, axes: impl IntoAxes, correction: i64) -> Self {
        reduced("var", self, axes, true, |x, at| var(x, at, correction))
    }
    /// Root of [`Reduction::var`].
    #[track_caller]
    fn std(&self, axes: impl IntoAxes, correction: i64) -> Self {
        reduced("std", self, axes, false, |x, at| Ok(root(&var(x, at, correction)?)))
    }
    /// [`Reduction::std`], the axes kept with size 1.
    #[track_caller]
    fn std_keep(&self, axes: impl IntoAxes, correction: i64) -> Self {
        reduced("std", self, axes, true, |x, at| Ok(root(&var(x, at, correction)?)))
    }
    /// Position of the first largest element along an axis, or with `()` among all elements in row-major order: i32, or
    /// i64 where there are more of them than that counts. A NaN is the largest.
    ///
    /// # Errors
    /// More than one axis; an axis without elements.
    #[track_caller]
    fn argmax(&self, axis: impl IntoAxes) -> Self {
        positioned("argmax", self, axis, false, argmax)
    }
    /// As [`Reduction::argmax`]; the axis stays with size 1.
    #[track_caller]
    fn argmax_keep(&self, axis: impl IntoAxes) -> Self {
        positioned("argmax", self, axis, true, argmax)
    }
    /// Position of the first smallest element, as [`Reduction::argmax`].
    #[track_caller]
    fn argmin(&self, axis: impl IntoAxes) -> Self {
        positioned("argmin", self, axis, false, |x, at| argmax(&x.inverse(), at))
    }
    /// As [`Reduction::argmin`]; the axis stays with size 1.
    #[track_caller]
    fn argmin_keep(&self, axis: impl IntoAxes) -> Self {
        positioned("argmin", self, axis, true, |x, at| argmax(&x.inverse(), at))
    }
    /// `exp(x) / sum(exp(x))` along an axis, shifted by the maximum, which no gradient passes.
    #[track_caller]
    fn softmax(&self, axis: i64) -> Self {
        reduced("softmax", self, axis, true, |x, at| {
            let (x, t) = accumulated(x);
            let e = shifted(&x, at)?.exp();
            Ok(e.div(&sum(&e, at)?).cast(t))
        })
    }
    /// `log(softmax(x))` along an axis, without overflow.
    #[track_caller]
    fn log_softmax(&self, axis: i64) -> Self {
        reduced("log_softmax", self, axis, true, |x, at| {
            let (x, t) = accumulated(x);
            let m = shifted(&x, at)?;
            Ok(m.sub(&sum(&m.exp(), at)?.log()).cast(t))
        })
    }
    /// `log(sum(exp(x)))` without overflow.
    #[track_caller]
    fn logsumexp(&self, axes: impl IntoAxes) -> Self {
        reduced("logsumexp", self, axes, false, |x, at| {
            let (x, t) = accumulated(x);
            let m = max(&x, at)?.detach();
            // All -inf: subtracting the maximum would give NaN.
            let m = m.is_finite().where_(&m, 0).cast(x.scalar());
            Ok(sum(&x.sub(&m).exp(), at)?.log().add(&m).cast(t))
        })
    }
    /// Sum of the elements up to and including this one along an axis.
    #[track_caller]
    fn cumsum(&self, axis: i64) -> Self {
        lift("cumsum", [self.node()], |[x]| {
            let wide = x.cast(x.scalar().accumulator());
            let s = running(&wide, args::axis(axis, x.rank())?, Op::Add)?;
            Ok(if x.scalar().is_float() { s.cast(x.scalar()) } else { s })
        })
    }
    /// Product of all elements up to each one along an axis.
    #[track_caller]
    fn cumprod(&self, axis: i64) -> Self {
        lift("cumprod", [self.node()], |[x]| {
            let wide = x.cast(x.scalar().accumulator());
            let s = running(&wide, args::axis(axis, x.rank())?, Op::Mul)?;
            Ok(if x.scalar().is_float() { s.cast(x.scalar()) } else { s })
        })
    }
}

impl<V: Value> Reduction for V {}

/// A float less its maximum.
fn shifted(x: &Expr, at: &[usize]) -> Made {
    Ok(x.sub(&max(x, at)?.detach()))
}

/// Elements a running reduction takes in one square; longer axes are cut into blocks of this length.
const BLOCK: i64 = 256;
/// The blocks of a really long axis: a square costs its length for each element, another level of blocks a pass over
/// few totals.
const SHORT: i64 = 16;

/// The reduction of all elements up to and including each one.
pub(crate) fn running(x: &Expr, axis: usize, op: Op) -> Made {
    let n = x.dim(axis);
    match n.as_int() {
        Some(0) => Ok(x.clone()),
        Some(n) if n > 2 * BLOCK => blocks(x, axis, op, n),
        _ => Ok(square(x, axis, op)),
    }
}

/// The neutral value of `op`.
fn neutral(op: Op, t: Scalar) -> ConstVal {
    match op {
        Op::Add => const_as(ConstVal::Int(0), DType::of(t)),
        Op::Mul => const_as(ConstVal::Int(1), DType::of(t)),
        _ => super::padding::lowest(t),
    }
}

/// Within blocks, then over the blocks' totals, then both together: the length of a block times n work instead of n².
fn blocks(x: &Expr, axis: usize, op: Op, n: i64) -> Made {
    let block = if n > 16 * BLOCK { SHORT } else { BLOCK };
    let (count, at) = ((n + block - 1) / block, axis as i64);
    let pad = |x: &Expr, axis: usize, before: i64, after: i64| {
        let mut counts = vec![(0, 0); x.rank()];
        counts[axis] = (before, after);
        x.pad_value(&counts, neutral(op, x.scalar()))
    };
    let rows = pad(x, axis, 0, count * block - n).unflatten(at, [count, block]);
    let inner = square(&rows, axis + 1, op);
    let totals = running(&inner.narrow(at + 1, block - 1, 1).squeeze(at + 1), axis, op)?;
    let before = pad(&totals, axis, 1, -1).unsqueeze(at + 1);
    let whole = match op {
        Op::Add => inner.add(&before),
        Op::Mul => inner.mul(&before),
        _ => inner.maximum(&before),
    };
    Ok(whole.flatten(at, at + 1).narrow(at, 0, n))
}

/// Row i of a square over the axis keeps elements 0..=i and replaces the rest by the op's neutral value; then it is
/// reduced.
fn square(x: &Expr, axis: usize, op: Op) -> Expr {
    let neutral = UOp::constant(x.uop().dtype(), neutral(op, x.scalar()));
    // (.., i, j, ..): i is the output position, j the element.
    let mut shape = x.shape().to_vec();
    shape.insert(axis, x.dim(axis));
    let square = x.unsqueeze(axis as i64).expand(&shape);
    let past = positions(&shape, axis + 1).gt(&positions(&shape, axis));
    let kept = past.where_(&expr(neutral), &square);
    let r = expr(graph::reduce(kept.uop(), op, &[axis + 1]));
    dropped(&r, &[axis + 1])
}

//! Order along an axis: sorting and what follows from it, running extremes, searching, and the true elements of a mask.
//!
//! Positions are i32, or i64 along an axis that is longer than that counts. Floats are ordered as PyTorch orders them:
//! a NaN is above everything, both zeros are equal, and equal elements keep their order.

mod sort;

use super::args;
use super::elementwise::Elementwise;
use super::error::{Fault, Problem, Shown};
use super::graph;
use super::index::{at_positions, position_type};
use super::math::Math;
use super::movement::{LARGEST, Movement, positions};
use super::reduction::{Reduction, accumulated, running};
use super::value::{Expr, Operand, Value, lift};
use crate::uop::{DType, Dim, Op, Scalar, UOp, numel};

type Made = Result<Expr, Problem>;

/// Sorting, searching and running extremes.
pub trait Order: Value {
    /// The elements of an axis in ascending (or descending) order, and where each of them was: torch's `sort` with
    /// `stable=True`. The positions are those of [`Order::argsort`].
    ///
    /// # Errors
    /// No such axis.
    #[track_caller]
    fn sort(&self, axis: i64, descending: bool) -> (Self, Self) {
        let places: Self = lift("sort", [self.node()], |[x]| ordered(&x, axis, descending));
        let values = lift("sort", [self.node(), places.node()], |[x, i]| picked(&x, axis, &i));
        (values, places)
    }
    /// The positions that sort an axis. Equal elements keep their order, also in a descending sort.
    ///
    /// # Errors
    /// No such axis.
    #[track_caller]
    fn argsort(&self, axis: i64, descending: bool) -> Self {
        lift("argsort", [self.node()], |[x]| ordered(&x, axis, descending))
    }
    /// The `k` largest (or smallest) elements of an axis, sorted, and where each of them was. Of equal elements the
    /// first are taken.
    ///
    /// # Errors
    /// No such axis, or fewer than `k` elements.
    #[track_caller]
    fn topk(&self, k: usize, axis: i64, largest: bool) -> (Self, Self) {
        let places: Self = lift("topk", [self.node()], |[x]| {
            let n = if x.rank() == 0 { Dim::Int(1) } else { x.dim(args::axis(axis, x.rank())?) };
            let k = Dim::from(k);
            if graph::dim_op(Op::Sub, &n, &k).uop().vmin() < 0 {
                return Err(Problem::argument(format!("the first {k} of {n} elements")));
            }
            permutation(&x, axis, largest, &k)
        });
        let values = lift("topk", [self.node(), places.node()], |[x, i]| picked(&x, axis, &i));
        (values, places)
    }
    /// The largest element up to and including each one along an axis, and its position: of equal ones the last, as in
    /// PyTorch. A NaN is above everything.
    ///
    /// # Errors
    /// No such axis.
    #[track_caller]
    fn cummax(&self, axis: i64) -> (Self, Self) {
        let values: Self = lift("cummax", [self.node()], |[x]| running(&x, args::axis(axis, x.rank())?, Op::Max));
        let places = lift("cummax", [self.node(), values.node()], |[x, v]| records(&x, &v, axis));
        (values, places)
    }
    /// The smallest element up to and including each one, as [`Order::cummax`].
    ///
    /// # Errors
    /// No such axis.
    #[track_caller]
    fn cummin(&self, axis: i64) -> (Self, Self) {
        let values: Self = lift("cummin", [self.node()], |[x]| {
            Ok(running(&x.inverse(), args::axis(axis, x.rank())?, Op::Max)?.inverse())
        });
        let places = lift("cummin", [self.node(), values.node()], |[x, v]| records(&x, &v, axis));
        (values, places)
    }
    /// `log` of the running sum of `exp` along an axis, without overflow.
    ///
    /// # Errors
    /// No such axis.
    #[track_caller]
    fn logcumsumexp(&self, axis: i64) -> Self {
        lift("logcumsumexp", [self.node()], |[x]| {
            let at = args::axis(axis, x.rank())?;
            let (x, t) = accumulated(&x);
            Ok(log_running(&x, at)?.cast(t))
        })
    }
    /// For each of `values` the index in this ascending sequence before which it would keep the order: before the equal
    /// elements, or after them if `right`. The sequence is a vector, or its rows (last axis) belong to those of
    /// `values`; log2(n) reads a value.
    ///
    /// # Errors
    /// Shapes that differ but for the last axis, a sequence of symbolic length.
    #[track_caller]
    fn searchsorted(&self, values: &Self, right: bool) -> Self {
        lift("searchsorted", [self.node(), values.node()], |[list, v]| search(&list, &v, right))
    }
    /// The values at the true elements of `mask` (broadcast to `self`), in row-major order, as a vector of `size`:
    /// `fill` follows the last one, and what does not fit is left out. [`Tensor::masked_select`] has the size that the
    /// mask needs.
    ///
    /// # Errors
    /// A mask that is not Bool or does not broadcast, a `self` of symbolic shape.
    ///
    /// [`Tensor::masked_select`]: crate::tensor::Tensor::masked_select
    #[track_caller]
    fn masked_select_static(&self, mask: &Self, size: usize, fill: impl Operand<Self>) -> Self {
        lift("masked_select", [self.node(), mask.node(), fill.operand()], |[x, mask, fill]| {
            let mask = Expr::from(graph::expand(mask.uop(), x.shape())?);
            let at = true_places(&mask, size)?;
            let (all, inside) = (x.reshape([numel(x.shape())]), at.lt(&Expr::from(numel(x.shape()).uop())));
            let fill = Expr::from(graph::taken(fill.uop(), x.scalar())?);
            Ok(inside.where_(&at_positions(&all, 0, &at), &fill))
        })
    }
    /// Where the elements are not zero: (size, rank) positions in row-major order; rows of `fill` follow the last
    /// one, and what does not fit is left out. [`Tensor::nonzero`](crate::tensor::Tensor::nonzero) has the size that
    /// the data needs.
    ///
    /// # Errors
    /// A symbolic shape.
    #[track_caller]
    fn nonzero_static(&self, size: usize, fill: i64) -> Self {
        lift("nonzero", [self.node()], |[x]| {
            let at = true_places(&x.cast(Scalar::Bool), size)?;
            let n = numel(x.shape());
            let inside = at.lt(&Expr::from(n.uop()));
            let mut stride = n;
            let mut columns = Vec::with_capacity(x.rank());
            for d in x.shape().iter().filter(|_| !stride_is_zero(x.shape())) {
                stride = graph::dim_op(Op::FloorDiv, &stride, d);
                let number = |d: &Dim| Expr::from(d.uop()).cast(at.scalar());
                columns.push(inside.where_(&at.div_floor(&number(&stride)).modulo(&number(d)), fill).unsqueeze(1));
            }
            if columns.is_empty() {
                let none = UOp::constant(DType::of(at.scalar()), fill);
                return Ok(Expr::from(graph::full(&[Dim::from(size), Dim::from(x.rank())], &none)));
            }
            super::join::cat(&columns, 1)
        })
    }
    /// The different elements in ascending order, as a vector of `size` with `fill` after the last one; for each
    /// element its number among them (in the shape of `self`); how often each occurs. What does not fit is left out.
    /// [`Tensor::unique`](crate::tensor::Tensor::unique) has the size that the data needs. Every NaN is different.
    ///
    /// # Errors
    /// A symbolic shape.
    #[track_caller]
    fn unique_static(&self, size: usize, fill: impl Operand<Self>) -> (Self, Self, Self) {
        let fill = fill.operand();
        let values = lift("unique", [self.node(), fill], |[x, fill]| {
            let (groups, list) = grouped(&x)?;
            let start = starts(&groups, size, 0);
            let at = at_positions(&list.places().squeeze(0), 0, &start);
            let fill = Expr::from(graph::taken(fill.uop(), x.scalar())?);
            let inside = start.lt(&Expr::from(groups.dim(0).uop()));
            Ok(inside.where_(&at_positions(&x.reshape([numel(x.shape())]), 0, &at), &fill))
        });
        let inverse = lift("unique", [self.node()], |[x]| {
            let (groups, list) = grouped(&x)?;
            let keys = sort::keys(&x, false).reshape([Dim::Int(1), numel(x.shape())]).contiguous();
            Ok(at_positions(&groups, 0, &sort::ranks(&keys, &list).squeeze(0)).reshape(x.shape()))
        });
        let counts = lift("unique", [self.node()], |[x]| {
            let (groups, _) = grouped(&x)?;
            Ok(starts(&groups, size, 1).sub(&starts(&groups, size, 0)))
        });
        (values, inverse, counts)
    }
}

impl<V: Value> Order for V {}

fn stride_is_zero(shape: &[Dim]) -> bool {
    shape.iter().any(|d| d.is(0))
}

/// An axis as the last one of (rows, n).
fn rows(x: &Expr, at: usize) -> Expr {
    let moved = x.transpose(at as i64, -1);
    let lead = numel(&moved.shape()[..x.rank() - 1]);
    moved.reshape([lead, x.dim(at)])
}

/// All positions of the sorted axis.
fn ordered(x: &Expr, axis: i64, descending: bool) -> Made {
    let n = if x.rank() == 0 { Dim::Int(1) } else { x.dim(args::axis(axis, x.rank())?) };
    permutation(x, axis, descending, &n)
}

/// The first `keep` positions of the sorted axis, in the shape of `x`.
fn permutation(x: &Expr, axis: i64, descending: bool, keep: &Dim) -> Made {
    let none = |shape: &[Dim]| Expr::from(graph::full(shape, &UOp::constant(DType::of(Scalar::I32), 0i64)));
    if x.rank() == 0 {
        if !(-1..=0).contains(&axis) {
            return Err(Problem::Axis { axis, rank: 0 });
        }
        return Ok(if keep.is(1) { none(&[]) } else { none(std::slice::from_ref(keep)) });
    }
    let at = args::axis(axis, x.rank())?;
    let mut shape = x.shape().to_vec();
    shape[at] = keep.clone();
    if x.dim(at).max() <= 1 || shape.iter().any(|d| d.is(0)) {
        return Ok(none(&shape));
    }
    shape.swap(at, x.rank() - 1);
    let keys = rows(&sort::keys(x, descending), at);
    keys.node().map_err(|fault: Fault| fault.problem.clone())?;
    let places = sort::sorted(&keys, keep)?.places();
    Ok(places.reshape(shape).transpose(at as i64, -1))
}

/// Elements of an axis at the positions of [`permutation`].
fn picked(x: &Expr, axis: i64, i: &Expr) -> Made {
    if x.rank() == 0 {
        return Ok(if i.rank() == 0 { x.clone() } else { x.reshape([1]).narrow(0, 0, i.dim(0)) });
    }
    Ok(at_positions(x, args::axis(axis, x.rank())?, i))
}

/// The last position at which the running extreme `v` of `x` was reached.
fn records(x: &Expr, v: &Expr, axis: i64) -> Made {
    let at = args::axis(axis, x.rank())?;
    // A NaN is the extreme and is not equal to itself.
    let reached = if x.scalar().is_float() { x.eq(v).bitor(&x.ne(x)) } else { x.eq(v) };
    let place = positions(x.shape(), at).cast(position_type(x.dim(at).max()));
    running(&reached.where_(&place, 0), at, Op::Max)
}

/// Elements whose exponentials are summed in one square.
const BLOCK: i64 = 128;

fn log_running(x: &Expr, axis: usize) -> Made {
    let n = match x.dim(axis).as_int() {
        Some(0) => return Ok(x.clone()),
        Some(n) if n > 2 * BLOCK => n,
        _ => return log_square(x, axis),
    };
    let (count, at) = ((n + BLOCK - 1) / BLOCK, axis as i64);
    let pad = |x: &Expr, before: i64, after: i64| {
        let mut counts = vec![(0, 0); x.rank()];
        counts[axis] = (before, after);
        x.pad_value(&counts, f64::NEG_INFINITY)
    };
    let inner = log_square(&pad(x, 0, count * BLOCK - n).unflatten(at, [count, BLOCK]), axis + 1)?.contiguous();
    let totals = log_running(&inner.narrow(at + 1, BLOCK - 1, 1).squeeze(at + 1), axis)?;
    let before = pad(&totals, 1, -1).unsqueeze(at + 1);
    // log(exp(a) + exp(b)), also where both are -inf.
    let top = finite(&inner.maximum(&before).detach());
    let whole = inner.sub(&top).exp().add(&before.sub(&top).exp()).log().add(&top);
    Ok(whole.flatten(at, at + 1).narrow(at, 0, n))
}

/// `x`, 0 where it is not finite: what may be subtracted before `exp` and added after `log`.
fn finite(x: &Expr) -> Expr {
    x.is_finite().where_(x, 0).cast(x.scalar())
}

fn log_square(x: &Expr, axis: usize) -> Made {
    let top = finite(&running(x, axis, Op::Max)?.detach());
    // (.., i, j, ..): i is the output position, j the element.
    let mut shape = x.shape().to_vec();
    shape.insert(axis, x.dim(axis));
    let (element, top_i) = (x.unsqueeze(axis as i64), top.unsqueeze(axis as i64 + 1));
    let past = positions(&shape, axis + 1).gt(&positions(&shape, axis));
    let kept = past.where_(f64::NEG_INFINITY, &element.sub(&top_i)).cast(x.scalar());
    let sum = Expr::from(graph::reduce(kept.exp().uop(), Op::Add, &[axis + 1])).squeeze(axis as i64 + 1);
    Ok(sum.log().add(&top))
}

fn search(list: &Expr, v: &Expr, right: bool) -> Made {
    let (Some(last), rank) = (list.shape().last().cloned(), list.rank()) else {
        return Err(Problem::shape("a sequence has an axis"));
    };
    let Some(n) = last.as_int() else { return Err(Problem::shape("a sequence of symbolic length")) };
    let fits = rank == 1 || rank == v.rank() && list.shape()[..rank - 1] == v.shape()[..rank - 1];
    if !fits {
        return Err(Problem::shape(format!("values of shape {} in {}", Shown(v.shape()), Shown(list.shape()))));
    }
    let t = graph::promoted(&[list.uop(), v.uop()]);
    let (list, v) = (sort::keys(&list.cast(t), false), sort::keys(&v.cast(t), false));
    let lead = if rank == 1 { Dim::Int(1) } else { numel(&list.shape()[..rank - 1]) };
    let width = if rank == 1 { numel(v.shape()) } else { v.dim(rank - 1) };
    let (list, wide) = (list.reshape([lead.clone(), last]), v.reshape([lead, width]));
    let zero = UOp::constant(DType::of(position_type(n)), 0i64);
    let found = sort::front(n, &Expr::from(graph::full(wide.shape(), &zero)), |at| {
        let here = at_positions(&list, 1, at);
        if right { wide.lt(&here).bitnot() } else { here.lt(&wide) }
    });
    Ok(found.reshape(v.shape()))
}

/// The first `size` true elements of a mask in row-major order; its number of elements after the last one.
fn true_places(mask: &Expr, size: usize) -> Made {
    if mask.scalar() != Scalar::Bool {
        return Err(Problem::dtype(format!("a mask is bool, not {}", mask.scalar())));
    }
    let total = numel(mask.shape());
    let (Some(n), Ok(k)) = (total.as_int(), i64::try_from(size)) else {
        return Err(Problem::shape(format!("a mask of shape {} and {size} places", Shown(mask.shape()))));
    };
    if k > LARGEST {
        return Err(Problem::argument(format!("{size} places")));
    }
    let t = position_type(n.max(k));
    // The true places up to each one; place k is the first that counts k + 1.
    let counts = mask.reshape([n]).cast(t).cumsum(0).cast(t).contiguous();
    let number = Expr::from(UOp::iota(k)).cast(t);
    let zero = Expr::from(graph::full(&[Dim::Int(k)], &UOp::constant(DType::of(t), 0i64)));
    Ok(sort::front(n, &zero, |at| at_positions(&counts, 0, at).le(&number)))
}

/// For each index of the sorted elements the number of its group of equals; and the sorted list, of one row.
fn grouped(x: &Expr) -> Result<(Expr, sort::List), Problem> {
    let flat = x.reshape([numel(x.shape())]);
    let Some(n) = flat.dim(0).as_int() else {
        return Err(Problem::shape(format!("unique elements of shape {}", Shown(x.shape()))));
    };
    let keys = sort::keys(&flat, false).unsqueeze(0);
    let list = sort::sorted(&keys, &Dim::Int(n))?;
    let sorted = at_positions(&flat, 0, &list.places().squeeze(0)).contiguous();
    let t = position_type(n);
    if n <= 1 {
        return Ok((Expr::from(graph::full(&[Dim::Int(n)], &UOp::constant(DType::of(t), 0i64))), list));
    }
    let new = sorted.narrow(0, 1, n - 1).ne(&sorted.narrow(0, 0, n - 1)).cast(t);
    Ok((new.pad(&[(1, 0)]).cumsum(0).cast(t).contiguous(), list))
}

/// Where groups `shift..size + shift` begin; the number of elements for a group that is not there.
fn starts(groups: &Expr, size: usize, shift: i64) -> Expr {
    let t = groups.scalar();
    let number = Expr::from(UOp::iota(Dim::from(size).uop())).cast(t).add(shift);
    let zero = Expr::from(graph::full(&[Dim::from(size)], &UOp::constant(DType::of(t), 0i64)));
    sort::front(groups.dim(0).as_int().unwrap_or(0), &zero, |at| at_positions(groups, 0, at).lt(&number))
}

/// How many groups of equal elements there are.
pub(crate) fn group_count(x: &UOp) -> Result<UOp, Problem> {
    let (groups, _) = grouped(&Expr::from(x.clone()))?;
    let n = groups.dim(0).as_int().unwrap_or(0);
    let count = if n == 0 { groups.sum(()) } else { groups.narrow(0, n - 1, 1).add(1) };
    count.node().map_err(|fault| fault.problem.clone())
}

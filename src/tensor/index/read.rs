//! Reading: integers, ranges and new axes as movement, index Tensors as sums that pick one element.
//!
//! Reading by a Tensor is a sum over `where(iota == index, x, 0)`, which the scheduler turns into an indexed load.

use super::super::elementwise::Elementwise;
use super::super::error::{Problem, Shown};
use super::super::graph;
use super::super::movement::Movement;
use super::super::value::{Expr, Value};
use super::{Index, misfit};
use crate::uop::{Dim, Op, Scalar, UOp};

/// The part of `x` at these indices; `picks` are the expressions of its index Tensors.
pub(super) fn read(x: &Expr, index: &[Index], picks: &[Expr]) -> Result<Expr, Problem> {
    let (x, picks) = basic(x, index, picks)?;
    if picks.iter().any(|(_, p)| p.scalar() == Scalar::Bool) {
        return Err(Problem::argument("what a mask picks has a shape that depends on data (see Tensor::get)"));
    }
    if picks.is_empty() { Ok(x) } else { pick(&x, picks) }
}

/// Whether these indices fit `x`, masks included.
pub(crate) fn probe(x: &UOp, index: &[Index]) -> Result<(), Problem> {
    let picks = index.iter().filter_map(|i| if let Index::Pick(node) = i { node.clone().ok() } else { None });
    basic(&Expr::from(x.clone()), index, &picks.map(Expr::from).collect::<Vec<_>>()).map(|_| ())
}

pub(super) fn gather(x: &Expr, axis: i64, i: &Expr) -> Result<Expr, Problem> {
    let at = super::super::args::axis(axis, x.rank())?;
    if i.rank() != x.rank() || !i.scalar().is_int() {
        return Err(Problem::shape(format!("an index of shape {} and type {}", Shown(i.shape()), i.scalar())));
    }
    let keep: Vec<(Dim, Dim)> =
        (0..x.rank()).map(|k| (Dim::Int(0), if k == at { x.dim(k) } else { i.dim(k) })).collect();
    let x = x.shrink(&keep);
    Ok(at_positions(&x, at, &wrapped(i, &x.dim(at), x.dim(at).max())))
}

/// Elements of one axis at the positions in an integer tensor of the same rank, whose other sizes are those of `x`.
/// Nothing wraps; a position outside reads 0.
pub(in super::super) fn at_positions(x: &Expr, at: usize, i: &Expr) -> Expr {
    // (.., picked, element, ..)
    let (wide, i) = (x.unsqueeze(at as i64), i.unsqueeze(at as i64 + 1));
    chosen(&positions_at(wide.shape(), at + 1).eq(&i), &wide, at + 1)
}

pub(super) fn positions_at(shape: &[Dim], axis: usize) -> Expr {
    super::super::movement::positions(shape, axis)
}

/// `i` in an integer type that holds its values and the numbers up to `count` too: neither comparing with positions nor
/// counting on wraps. (Beyond i64, a u64 turns negative, which is no position either.)
pub(in super::super) fn widened(i: &Expr, count: i64) -> Expr {
    let is_narrow = matches!(i.scalar(), Scalar::I8 | Scalar::U8 | Scalar::I16 | Scalar::U16 | Scalar::I32);
    match i.scalar() {
        Scalar::WeakInt => i.clone(),
        _ => i.cast(position_type(if is_narrow { count } else { i64::MAX })),
    }
}

/// The type of positions among `count` elements: i32 where that is enough.
pub(in super::super) fn position_type(count: i64) -> Scalar {
    if count <= i64::from(i32::MAX) { Scalar::I32 } else { Scalar::I64 }
}

/// `i` with negative elements counted from the end of an axis of `size`, in a type that counts to `count`.
pub(super) fn wrapped(i: &Expr, size: &Dim, count: i64) -> Expr {
    let wide = widened(i, count);
    if i.scalar().is_unsigned() {
        return wide;
    }
    wide.lt(0).where_(&wide.add(&Expr::from(size.uop())), &wide)
}

/// Sum over an axis of the one element where `hit` is true.
fn chosen(hit: &Expr, x: &Expr, axis: usize) -> Expr {
    let t = x.scalar();
    let flat = if t == Scalar::Bool { x.cast(Scalar::U8) } else { x.clone() };
    let only = hit.where_(&flat, 0).cast(flat.scalar());
    let sum = Expr::from(graph::reduce(only.uop(), Op::Add, &[axis]));
    sum.squeeze(axis as i64).cast(t)
}

/// Applies everything but index Tensors and masks; returns those with their (first) axes.
pub(super) fn basic(x: &Expr, index: &[Index], picks: &[Expr]) -> Result<(Expr, Vec<(usize, Expr)>), Problem> {
    let consumed: usize = index.iter().map(Index::axes).sum();
    let dots = index.iter().filter(|i| matches!(i, Index::Ellipsis)).count();
    if dots > 1 || consumed > x.rank() {
        return Err(Problem::argument(format!("{} indices for rank {}", index.len(), x.rank())));
    }
    let mut list: Vec<Index> = index.to_vec();
    if dots == 0 {
        list.push(Index::Ellipsis);
    }
    let (mut out, mut axis, mut picked) = (x.clone(), 0i64, Vec::new());
    let mut picks = picks.iter();
    for i in list {
        match i {
            Index::Ellipsis => axis += (x.rank() - consumed) as i64,
            Index::NewAxis => {
                out = out.unsqueeze(axis);
                axis += 1;
            }
            Index::At(at) => out = at_index(&out, axis as usize, &at)?,
            Index::Slice { start, stop, step } => {
                out = sliced(&out, axis as usize, (start, stop), step)?;
                axis += 1;
            }
            Index::Pick(_) => {
                let Some(p) = picks.next().filter(|p| p.scalar().is_int() || p.scalar() == Scalar::Bool) else {
                    return Err(Problem::dtype("an index Tensor holds integers, a mask bools"));
                };
                picked.push((axis as usize, p.clone()));
                axis += covered(&out, axis as usize, p)?;
            }
        }
        out.node().map_err(|fault| fault.problem.clone())?;
    }
    Ok((out, picked))
}

/// Axes of `x` from `axis` on that an index Tensor or a mask stands for.
fn covered(x: &Expr, axis: usize, p: &Expr) -> Result<i64, Problem> {
    if p.scalar() != Scalar::Bool {
        return Ok(1);
    }
    let own: Vec<Dim> = x.shape().iter().skip(axis).take(p.rank()).cloned().collect();
    match p.rank() {
        0 => Err(Problem::argument("a mask without axes (see where_)")),
        n if own == p.shape() => Ok(n as i64),
        _ => Err(misfit(p.shape(), &own)),
    }
}

fn at_index(x: &Expr, axis: usize, at: &Dim) -> Result<Expr, Problem> {
    let size = x.dim(axis);
    let at = match (at, &size) {
        (Dim::Int(i), Dim::Int(n)) if *i >= -n && i < n => Dim::Int(i.rem_euclid(*n)),
        (Dim::Int(i), Dim::Int(_)) => return Err(Problem::Index { index: *i, axis, size }),
        (Dim::Int(i), _) if *i < 0 => graph::dim_op(Op::Add, &size, &Dim::Int(*i)),
        _ => at.clone(),
    };
    Ok(x.narrow(axis as i64, &at, 1i64).squeeze(axis as i64))
}

fn sliced(x: &Expr, axis: usize, (start, stop): (Option<Dim>, Option<Dim>), step: i64) -> Result<Expr, Problem> {
    if step == 0 {
        return Err(Problem::argument("a step of 0"));
    }
    let size = x.dim(axis);
    let known = |d: &Option<Dim>| d.as_ref().is_none_or(|d| d.as_int().is_some());
    let n = match size.as_int() {
        Some(n) if known(&start) && known(&stop) => n,
        _ => return Ok(sliced_by_variables(x, axis, (start, stop), step)),
    };
    let place = |d: Option<Dim>, low: i64, high: i64, default: i64| match d.and_then(|d| d.as_int()) {
        Some(i) => (if i < 0 { i + n } else { i }).clamp(low, high),
        None => default,
    };
    let (a, b) = if step > 0 {
        (place(start, 0, n, 0), place(stop, 0, n, n))
    } else {
        // Backward from `a` down to before `b` is forward from b + 1 to a + 1, reversed.
        let (a, b) = (place(start, -1, n - 1, n - 1), place(stop, -1, n - 1, -1));
        (b + 1, a + 1)
    };
    let len = (b - a).max(0);
    let part = x.narrow(axis as i64, a.min(n), len);
    let part = if step < 0 { part.flip(axis as i64) } else { part };
    Ok(every(&part, axis, len, step.unsigned_abs()))
}

/// [`sliced`] where the size or a bound is a variable: what lies outside the axis for some value of it is an error.
fn sliced_by_variables(x: &Expr, axis: usize, (start, stop): (Option<Dim>, Option<Dim>), step: i64) -> Expr {
    let size = x.dim(axis);
    let plus = |d: &Dim, i: i64| graph::dim_op(Op::Add, d, &Dim::Int(i));
    let place = |d: Option<Dim>, default: Dim| match d {
        Some(Dim::Int(i)) if i < 0 => plus(&size, i),
        other => other.unwrap_or(default),
    };
    let (a, b) = if step > 0 {
        (place(start, Dim::Int(0)), place(stop, size.clone()))
    } else {
        let last = place(start, plus(&size, -1));
        (stop.map_or(Dim::Int(0), |b| plus(&place(Some(b), Dim::Int(0)), 1)), plus(&last, 1))
    };
    let len = graph::dim_op(Op::Sub, &b, &a);
    let part = x.narrow(axis as i64, &a, &len);
    let part = if step < 0 { part.flip(axis as i64) } else { part };
    let step = i64::try_from(step.unsigned_abs()).unwrap_or(i64::MAX);
    if step == 1 {
        return part;
    }
    let count = graph::dim_op(Op::FloorDiv, &plus(&len, step - 1), &Dim::Int(step));
    let wide = part.unsqueeze(axis as i64);
    let mut shape = wide.shape().to_vec();
    shape[axis] = count;
    let at = positions_at(&shape, axis).mul(&Expr::from(UOp::int(step)));
    chosen(&positions_at(wide.shape(), axis + 1).eq(&at), &wide, axis + 1)
}

/// The elements of a block of rows (axis `rank - 2`) and columns (the last axis) of one size whose two places are the
/// same.
pub(in super::super) fn on_diagonal(x: &Expr) -> Expr {
    let at = x.rank() - 1;
    chosen(&positions_at(x.shape(), at - 1).eq(&positions_at(x.shape(), at)), x, at)
}

/// Every `step`-th element of an axis of `len`.
fn every(x: &Expr, axis: usize, len: i64, step: u64) -> Expr {
    let step = i64::try_from(step).unwrap_or(i64::MAX);
    if step == 1 || len <= 1 {
        return x.clone();
    }
    if step >= len {
        return x.narrow(axis as i64, 0, 1);
    }
    let count = (len - 1) / step + 1;
    let mut counts = vec![(0, 0); x.rank()];
    counts[axis] = (0, count * step - len);
    let rows = x.pad(&counts).unflatten(axis as i64, [count, step]);
    rows.narrow(axis as i64 + 1, 0, 1).squeeze(axis as i64 + 1)
}

/// The picked axes as one neighbouring block: axes in order, position and number of the block.
pub(super) fn block(picks: &[(usize, Expr)], rank: usize) -> (Vec<i64>, usize) {
    let axes: Vec<usize> = picks.iter().map(|p| p.0).collect();
    let neighbours = axes.windows(2).all(|w| w[1] == w[0] + 1);
    let at = if neighbours { axes[0] } else { 0 };
    let mut order: Vec<i64> = (0..rank).filter(|k| !axes.contains(k)).map(|k| k as i64).collect();
    order.splice(at..at, axes.iter().map(|a| *a as i64));
    (order, at)
}

/// One index per picked element into the flattened block; -1 where any part is outside.
pub(super) fn linear(picks: &[(usize, Expr)], x: &Expr) -> Result<Expr, Problem> {
    let mut whole: Option<Expr> = None;
    let mut inside: Option<Expr> = None;
    let count = picks.iter().fold(1i64, |n, (axis, _)| n.saturating_mul(x.dim(*axis).max()));
    for (axis, i) in picks {
        let size = x.dim(*axis);
        let (i, n) = (wrapped(i, &size, count), Expr::from(size.uop()));
        let ok = i.ge(0).bitand(&i.lt(&n));
        whole = Some(whole.map_or_else(|| i.clone(), |w| w.mul(&n).add(&i)));
        inside = Some(inside.map_or_else(|| ok.clone(), |x| x.bitand(&ok)));
    }
    let (Some(whole), Some(inside)) = (whole, inside) else { return Err(Problem::argument("no index")) };
    let out = if picks.len() == 1 { whole } else { inside.where_(&whole, -1) };
    out.node().map_err(|fault| fault.problem.clone())?;
    Ok(out)
}

pub(super) fn pick(x: &Expr, picks: Vec<(usize, Expr)>) -> Result<Expr, Problem> {
    let i = linear(&picks, x)?;
    let (order, at) = block(&picks, x.rank());
    let x = x.permute(order);
    let flat = if picks.len() > 1 { x.flatten(at as i64, (at + picks.len() - 1) as i64) } else { x };
    // flat: (pre.., S, post..); hits: (B.., S, 1..); their product: (pre.., B.., S, post..).
    let (pre, post) = (flat.shape()[..at].to_vec(), flat.shape()[at + 1..].to_vec());
    let s = flat.dim(at);
    let ones = |n: usize| vec![Dim::Int(1); n];
    let wide = flat.reshape([pre.clone(), ones(i.rank()), vec![s.clone()], post.clone()].concat());
    let axis = pre.len() + i.rank();
    let i = i.reshape([ones(pre.len()), i.shape().to_vec(), ones(1 + post.len())].concat());
    let hit = positions_at(wide.shape(), axis).eq(&i);
    Ok(chosen(&hit, &wide, axis))
}

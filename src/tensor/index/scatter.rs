//! Scattering: every element of a source goes to the position that an index names.
//!
//! The places of an axis and the writes to it are a square of comparisons; what reaches a place is a reduction over the
//! writes. One kernel, and its gradient is one too.

use super::super::args;
use super::super::elementwise::Elementwise;
use super::super::error::{Problem, Shown};
use super::super::graph;
use super::super::movement::{Movement, positions};
use super::super::padding::lowest;
use super::super::value::{Expr, Value};
use super::read::{at_positions, position_type, wrapped};
use crate::uop::{ConstVal, DType, Dim, Op, Scalar, UOp};

/// What becomes of several elements that are written to one index: torch's `reduce`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScatterReduce {
    /// Their sum.
    Sum,
    /// Their product.
    Prod,
    /// Their mean.
    Mean,
    /// The largest; NaN if there is one.
    Amax,
    /// The smallest; NaN if there is one.
    Amin,
}

/// The writes of a scatter: which write (axis `at + 1`) reaches which place (axis `at`).
struct Writes {
    at: usize,
    hit: Expr,
    /// As `hit`, with the elements.
    src: Expr,
    /// Shape of the index.
    index: Vec<Dim>,
    /// What the target has more than the index, on each axis.
    rest: Vec<(Dim, Dim)>,
}

fn writes(x: &Expr, axis: i64, i: &Expr, src: &Expr) -> Result<Writes, Problem> {
    let at = args::axis(axis, x.rank())?;
    if i.rank() != x.rank() || !i.scalar().is_int() {
        return Err(Problem::shape(format!("an index of shape {} and type {}", Shown(i.shape()), i.scalar())));
    }
    let (to, from) = (x.scalar(), src.scalar());
    if from != to && !from.is_weak() && Scalar::promote(from, to) != to {
        return Err(Problem::dtype(format!("{from} does not go into {to} without a cast")));
    }
    let number = graph::is_number(src.uop());
    let src = Expr::from(graph::taken(src.uop(), to)?);
    let src = if number { src } else { part(&src, i.shape())? };
    let mut rest = Vec::with_capacity(x.rank());
    for (k, (own, d)) in x.shape().iter().zip(i.shape()).enumerate() {
        let more = if k == at { Dim::Int(0) } else { graph::dim_op(Op::Sub, own, d) };
        if more.uop().vmin() < 0 {
            return Err(Problem::shape(format!("an index of shape {} for {}", Shown(i.shape()), Shown(x.shape()))));
        }
        rest.push((Dim::Int(0), more));
    }
    let place = wrapped(i, &x.dim(at), x.dim(at).max()).unsqueeze(at as i64);
    let mut shape = i.shape().to_vec();
    shape.insert(at, x.dim(at));
    let hit = positions(&shape, at).eq(&place);
    let src = if number { src } else { src.unsqueeze(at as i64) };
    Ok(Writes { at, hit, src, index: i.shape().to_vec(), rest })
}

/// The first elements of `src`, as many as the index has.
fn part(src: &Expr, index: &[Dim]) -> Result<Expr, Problem> {
    if src.rank() != index.len() {
        return Err(Problem::shape(format!(
            "elements of shape {} for an index of {}",
            Shown(src.shape()),
            Shown(index)
        )));
    }
    let keep: Vec<(Dim, Dim)> = index.iter().map(|d| (Dim::Int(0), d.clone())).collect();
    let kept = src.shrink(&keep);
    kept.node().map_err(|fault| fault.problem.clone())?;
    Ok(kept)
}

impl Writes {
    /// `values` at the writes and `neutral` elsewhere, reduced over the writes; in the target's shape.
    fn reduced(&self, values: &Expr, neutral: ConstVal, op: Op) -> Result<Expr, Problem> {
        let t = values.scalar();
        let wide = if op == Op::Max { t } else { t.accumulator() };
        let neutral = UOp::constant(DType::of(t), neutral);
        let kept = self.hit.where_(values, &Expr::from(neutral.clone())).cast(wide);
        let whole = Expr::from(graph::reduce(kept.uop(), op, &[self.at + 1])).cast(t).squeeze(self.at as i64 + 1);
        self.grown(&whole, neutral)
    }
    /// With `value` at the indices that no write can reach.
    fn grown(&self, x: &Expr, value: UOp) -> Result<Expr, Problem> {
        x.node().map_err(|fault| fault.problem.clone())?;
        if self.rest.iter().all(|(_, more)| more.is(0)) {
            return Ok(x.clone());
        }
        let inside = graph::full(x.shape(), &UOp::bool(true));
        let padded = Expr::from(graph::pad(x.uop(), &self.rest));
        Ok(Expr::from(graph::pad(&inside, &self.rest)).where_(&padded, &Expr::from(value)))
    }
    /// Number of writes to each index.
    fn count(&self) -> Result<Expr, Problem> {
        let t = position_type(self.index[self.at].max());
        self.reduced(&Expr::from(UOp::constant(DType::of(t), 1i64)), ConstVal::Int(0), Op::Add)
    }
}

/// The last write to each index stays.
pub(super) fn put(x: &Expr, axis: i64, i: &Expr, src: &Expr) -> Result<Expr, Problem> {
    let w = writes(x, axis, i, src)?;
    if graph::is_number(w.src.uop()) {
        return Ok(w.count()?.gt(0).where_(&w.src, x));
    }
    let number = positions(w.hit.shape(), w.at + 1).add(1).cast(position_type(w.index[w.at].max()));
    let numbers = w.hit.where_(&number, 0);
    let last = Expr::from(graph::reduce(numbers.uop(), Op::Max, &[w.at + 1])).squeeze(w.at as i64 + 1);
    let zero = || UOp::constant(DType::of(last.scalar()), 0i64);
    let written = at_positions(&w.src.squeeze(w.at as i64), w.at, &last.sub(1));
    let written = w.grown(&written, UOp::constant(x.uop().dtype(), 0i64))?;
    Ok(w.grown(&last, zero())?.gt(0).where_(&written, x))
}

pub(super) fn reduce(
    x: &Expr,
    axis: i64,
    i: &Expr,
    src: &Expr,
    (how, include_self): (ScatterReduce, bool),
) -> Result<Expr, Problem> {
    let w = writes(x, axis, i, src)?;
    let t = x.scalar();
    let low = lowest(t);
    let (zero, one) = (ConstVal::Int(0), ConstVal::Int(1));
    let (made, whole) = match how {
        ScatterReduce::Sum | ScatterReduce::Mean => {
            let sum = w.reduced(&w.src, crate::uop::const_as(zero, DType::of(t)), Op::Add)?;
            (sum.clone(), x.add(&sum))
        }
        ScatterReduce::Prod => {
            let product = w.reduced(&w.src, crate::uop::const_as(one, DType::of(t)), Op::Mul)?;
            (product.clone(), x.mul(&product))
        }
        ScatterReduce::Amax => {
            let most = w.reduced(&w.src, low, Op::Max)?;
            (most.clone(), x.maximum(&most))
        }
        ScatterReduce::Amin => {
            let least = w.reduced(&w.src.inverse(), low, Op::Max)?.inverse();
            (least.clone(), x.minimum(&least))
        }
    };
    let made = if include_self { whole } else { made };
    if include_self && how != ScatterReduce::Mean {
        return Ok(made);
    }
    let count = w.count()?;
    let made = match how {
        ScatterReduce::Mean => mean(&made, &count, include_self),
        _ => made,
    };
    Ok(count.gt(0).where_(&made, x))
}

/// A sum over its number of summands.
fn mean(sum: &Expr, count: &Expr, include_self: bool) -> Expr {
    let count = if include_self { count.add(1) } else { count.maximum(1) };
    let t = sum.scalar();
    if t.is_float() { sum.div(&count.cast(t)) } else { sum.div_floor(&count.cast(t)) }
}

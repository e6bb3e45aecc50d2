//! Storing at indices: views of memory are written in place, everything else becomes a new value.

use super::super::assign::{fitted, is_memory};
use super::super::creation::known;
use super::super::elementwise::Elementwise;
use super::super::error::{Fault, Problem};
use super::super::gradient::back_through_movement;
use super::super::graph;
use super::super::handle::{Tensor, default_device};
use super::super::movement::Movement;
use super::super::reduction::Reduction;
use super::super::value::{Expr, Value, lift_many};
use super::read::{at_positions, basic, block, linear, pick, position_type, positions_at};
use super::{Index, sources};
use crate::uop::{Arg, Dim, Op, Scalar, UOp, numel};

/// `x` with `v` at the picked indices; the last of several writes to one index stays.
fn put(x: &Expr, picks: Vec<(usize, Expr)>, v: &Expr) -> Result<Expr, Problem> {
    let i = linear(&picks, x)?;
    let (order, at) = block(&picks, x.rank());
    let moved = x.permute(order.clone());
    let flat = if picks.len() > 1 { moved.flatten(at as i64, (at + picks.len() - 1) as i64) } else { moved.clone() };
    let (pre, post) = (flat.shape()[..at].to_vec(), flat.shape()[at + 1..].to_vec());
    let want = [pre.clone(), i.shape().to_vec(), post.clone()].concat();
    let target = Expr::from(graph::full(&want, &UOp::constant(x.uop().dtype(), 0i64)));
    let count = numel(i.shape());
    let v = Expr::from(fitted(target.uop(), v.uop())?).reshape([pre.clone(), vec![count.clone()], post].concat());
    // Which write reaches each index: the largest number of those that name it, 0 for none.
    let (s, i) = (flat.dim(at), i.reshape([&count]));
    let square = [s, count.clone()];
    let hit = positions_at(&square, 0).eq(&i.unsqueeze(0));
    let number = positions_at(&square, 1).add(1);
    let numbers = hit.where_(&number, 0).cast(position_type(count.max()));
    let last = Expr::from(graph::reduce(numbers.uop(), Op::Max, &[1])).squeeze(1);
    let written = pick(&v, vec![(at, last.sub(1))])?;
    let mut shape = vec![Dim::Int(1); flat.rank()];
    shape[at] = flat.dim(at);
    // Index -1 wraps to the last write and is masked here.
    let out = last.gt(0).reshape(shape).where_(&written, &flat).reshape(moved.shape());
    let mut back = vec![0i64; order.len()];
    for (k, a) in order.iter().enumerate() {
        back[*a as usize] = k as i64;
    }
    Ok(out.permute(back))
}

/// `x` with `v` at the true elements of a mask over its axes from `at` on. `v` broadcasts, or has a row for each true
/// element: the true elements after its last row stay as they are.
fn masked(x: &Expr, at: usize, mask: &Expr, v: &Expr) -> Result<Expr, Problem> {
    let (r, after) = (mask.rank(), x.rank() - at - mask.rank());
    let mut wide = vec![Dim::Int(1); x.rank()];
    wide[at..at + r].clone_from_slice(mask.shape());
    // The axis of `v` that runs over the true elements.
    let rows = v.rank().checked_sub(after + 1).filter(|k| !v.dim(*k).is(1));
    let (hit, v) = match rows {
        None if v.rank() > after => {
            let k = v.rank() - after - 1;
            let shape = [&v.shape()[..k], &vec![Dim::Int(1); r], &v.shape()[k + 1..]].concat();
            (mask.clone(), v.reshape(shape))
        }
        None => (mask.clone(), v.clone()),
        Some(k) => {
            let flat = mask.flatten(0, -1);
            let number = flat.cumsum(0).sub(1);
            let hit = flat.bitand(&number.lt(&Expr::from(v.dim(k).uop())));
            // The places as many as there are, one row each; those of no row are masked.
            let mut ones = vec![Dim::Int(1); v.rank()];
            ones[k] = number.dim(0);
            let mut spread = v.shape().to_vec();
            spread[k] = number.dim(0);
            let picked = at_positions(v, k, &number.reshape(ones).expand(&spread));
            let shape = [&spread[..k], mask.shape(), &spread[k + 1..]].concat();
            (hit.reshape(mask.shape()), picked.reshape(shape))
        }
    };
    v.node().map_err(|fault| fault.problem.clone())?;
    let v = Expr::from(fitted(x.uop(), v.uop())?);
    Ok(hit.reshape(wide).where_(&v, x))
}

impl Tensor {
    /// Stores `value` (broadcast) at these indices, none of which is a mask unless it is the only index Tensor. Where
    /// this Tensor is memory and the indices make a view of it, only the view is written; otherwise the Tensor stands
    /// for a new value.
    #[track_caller]
    pub(crate) fn store(&self, index: &[Index], value: Result<UOp, Fault>) -> &Tensor {
        let mut all = sources(self.node(), index);
        all.push(value);
        let made: Tensor = lift_many("set", &all, |nodes| {
            let (x, v) = (&nodes[0], &nodes[nodes.len() - 1]);
            let (view, picks) = basic(x, index, &nodes[1..nodes.len() - 1])?;
            if picks.is_empty() {
                let v = fitted(view.uop(), v.uop())?;
                if is_memory(view.uop()) {
                    let store = UOp::new(Op::Assign, v.dtype(), [view.uop().clone(), v], Arg::None);
                    return Ok(Expr::from(x.uop().after(&[store])));
                }
                let sized = x.shape().iter().all(|d| d.as_int().is_some());
                if has_variables(view.uop()) && sized && may_move(x.uop(), &v) {
                    return moved_and_written(x, index, v);
                }
                return overlaid(x, &view, v);
            }
            let part = match &picks[..] {
                [(at, mask)] if mask.scalar() == Scalar::Bool => masked(&view, *at, mask, v)?,
                _ => put(&view, picks, v)?,
            };
            if part.shape() == x.shape() && view.uop() == x.uop() {
                return Ok(part);
            }
            overlaid(x, &view, part.uop().clone())
        });
        // New content of memory stays in that memory.
        let in_place = self.node().is_ok_and(|u| is_memory(&u)) && made.node().is_ok_and(|u| u.op() != Op::After);
        if in_place {
            return self.assign(&made);
        }
        self.set_node(made.node());
        self
    }
}

/// Whether a view begins or ends at a variable.
fn has_variables(view: &UOp) -> bool {
    view.any(|u| u.op() == Op::Var)
}

/// Whether memory of its own may take the place of `x`. Through that no gradient passes: so only where `x` is or shall
/// be memory (`contiguous`), or where nobody asks for the gradient.
fn may_move(x: &UOp, v: &UOp) -> bool {
    let mut u = x;
    while u.op().is_movement() && u.op() != Op::Pad {
        u = &u.src()[0];
    }
    let wanted = |u: &UOp| u.any(|u| !Tensor::watching(u).is_empty());
    match u.op() {
        Op::Buffer => true,
        Op::Contiguous | Op::Copy => !wanted(x),
        _ => !wanted(x) && !wanted(v),
    }
}

/// `x` in memory of its own, and there `v` written to a view of it: what is written at a variable place once is written
/// at another one the next time, so that it cannot stay an expression.
fn moved_and_written(x: &Expr, index: &[Index], v: UOp) -> Result<Expr, Problem> {
    let (dtype, device) = (x.uop().dtype(), x.uop().device().cloned().unwrap_or_else(default_device));
    let place = graph::reshape(&Tensor::buffer(dtype.scalar.strong(), known(x.shape())?, device), x.shape());
    let own = Expr::from(UOp::new(Op::Assign, place.dtype(), [place, x.uop().clone()], Arg::None));
    let (view, _) = basic(&own, index, &[])?;
    let store = UOp::new(Op::Assign, v.dtype(), [view.uop().clone(), v], Arg::None);
    Ok(Expr::from(own.uop().after(&[store])))
}

/// `x` with the elements that `view` (movement of x) shows replaced by `v`.
fn overlaid(x: &Expr, view: &Expr, v: UOp) -> Result<Expr, Problem> {
    let shown = graph::full(v.shape(), &UOp::bool(true));
    let v = back_through_movement(view.uop(), x.uop(), Expr::from(v))?;
    let shown = back_through_movement(view.uop(), x.uop(), Expr::from(shown))?;
    Ok(shown.where_(&v, x))
}

//! Products whose columns are better packed than read where they lie: which axis goes into lanes then.
//!
//! A row of `a @ b.t()` times a row of the other is a sum over lanes: every result ends in a fold of a whole register, and what
//! follows the sum is computed one element at a time. With the columns in lanes neither is so, but a vector of columns must be
//! put together from as many rows; STAGE does that once for all rows of the result.

use super::analysis::{KernelAnalysis, Move, is_free, size};
use super::kind_of;
use crate::Target;
use doorbell_uop::{AxisKind, Op, UOp};

/// Cycles of packing one vector, from rows that are turned in registers or element by element.
const TURNED: f64 = 7.0;
const GATHERED: f64 = 30.0;
/// Cycles of folding a register into one number.
const FOLD: f64 = 12.0;
/// Steps of a sum from which on its results may be stored lane by lane.
const DEEP: i64 = 512;

/// A product of two loads: their nodes and indices, the loops of the results and of the sum.
struct Product {
    loads: [(UOp, UOp); 2],
    outer: Vec<UOp>,
    inner: Vec<UOp>,
    depth: i64,
    lanes: i64,
    /// Bytes of one vector of columns in a panel, and of the largest panel.
    bytes: i64,
    room: i64,
}

/// The output axis of a product to put in lanes although the product reads along the reduction; with how many lanes.
pub(super) fn packed_lanes(
    analysis: &mut KernelAnalysis,
    k: usize,
    target: &Target,
    taken: &[UOp],
) -> Option<(UOp, usize)> {
    let p = product(analysis, k, target)?;
    let mut best: Option<(f64, UOp)> = None;
    for v in p.outer.iter().rev().filter(|v| !taken.contains(v)) {
        if let Some(cost) = cost(analysis, &p, v, target)
            && best.as_ref().is_none_or(|(least, _)| cost < *least)
        {
            best = Some((cost, v.clone()));
        }
    }
    best.map(|(_, v)| (v, p.lanes as usize))
}

fn fixed(r: &UOp) -> bool {
    r.src()[0].as_int().is_some()
}

fn product(analysis: &KernelAnalysis, k: usize, target: &Target) -> Option<Product> {
    let site = &analysis.sites[k];
    let loads: Vec<(UOp, UOp)> =
        site.accesses.iter().filter(|a| !a.store).map(|a| (a.node.clone(), a.index.clone())).collect();
    let loads: [(UOp, UOp); 2] = loads.try_into().ok()?;
    let lanes = i64::from(target.vector_bytes) / site.widest as i64;
    let depth: i64 = site.inner.iter().map(size).product();
    let bytes = depth * lanes * site.widest as i64;
    let room = target.local_bytes.min(target.cache_bytes / 2) as i64;
    // A gate would be asked again for every use, but the conditions of a whole product are mostly decided in loops or in copies.
    let plain = loads.iter().all(|(l, _)| l.src().len() == 1) || under_conditions(&site.node);
    let loops = !site.inner.is_empty() && site.inner.iter().all(|r| fixed(r) && is_free(r));
    let (outer, inner) = (site.outer.clone(), site.inner.clone());
    (plain && loops && lanes >= 4 && bytes <= room).then_some(Product {
        loads,
        outer,
        inner,
        depth,
        lanes,
        bytes,
        room,
    })
}

/// Whether a sum's terms count only where conditions hold.
pub(super) fn under_conditions(sum: &UOp) -> bool {
    sum.op() == Op::Reduce && sum.src()[0].op() == Op::Where
}

/// Cycles of a vector of results with `v` in lanes; `None`: that cannot be, or a sum over lanes is faster.
fn cost(analysis: &mut KernelAnalysis, p: &Product, v: &UOp, target: &Target) -> Option<f64> {
    if kind_of(v) != AxisKind::Loop || !fixed(v) || size(v) < p.lanes {
        return None;
    }
    let [left, right] = &p.loads;
    let ((panel, there), (beside, here)) = match (analysis.depends(&left.0, v), analysis.depends(&right.0, v)) {
        (true, false) => (left, right),
        (false, true) => (right, left),
        _ => return None,
    };
    if panel.src().len() > 1 {
        return None;
    }
    // Rows of the result that one packed panel serves: those inside its loop, or one axis that changes places with it.
    let place = p.outer.iter().position(|r| r == v)?;
    let is_row = |r: &&UOp| !analysis.depends(panel, r) && analysis.depends(beside, r);
    let longest = p.outer.iter().filter(is_row).map(size).max().unwrap_or(1);
    let rows = p.outer[place..].iter().filter(is_row).map(size).product::<i64>().max(longest);
    let wide: i64 = p.outer[place + 1..].iter().filter(|r| analysis.depends(panel, r)).map(size).product();
    if rows < 8 || size(v) < 2 * p.lanes && longest < 32 || p.bytes.saturating_mul(wide) > p.room {
        return None;
    }
    let stores: Vec<UOp> =
        analysis.sites.iter().flat_map(|s| &s.accesses).filter(|a| a.store).map(|a| a.index.clone()).collect();
    let apart = matches!(analysis.motion(there, v), Move::Step(s) if s.abs() > 1);
    let whole = stores.iter().all(|i| analysis.motion(i, v) == Move::Step(1));
    if !apart || !whole && (p.depth < DEEP || stores.iter().any(|i| !matches!(analysis.motion(i, v), Move::Step(_)))) {
        return None;
    }
    let along = p.inner.iter().find(|r| analysis.motion(there, r) == Move::Step(1))?;
    // A sum over lanes needs one direction on both sides (or the opposite one); a short axis leaves lanes empty.
    let folds = matches!(analysis.motion(here, along), Move::Step(1 | -1));
    let full = (size(along) as f64 / p.lanes as f64).ceil() * p.lanes as f64 / size(along) as f64;
    let summed = p.depth as f64 * 0.6 * full + FOLD * p.lanes as f64;
    let turned = target.vector_bytes == 64 && panel.dtype().size_bytes() == 4 && size(along) % 4 == 0;
    let packed = p.depth as f64 * (0.52 + if turned { TURNED } else { GATHERED } / rows as f64);
    (if folds { packed < summed } else { whole }).then_some(packed)
}

//! Products whose columns are better packed into a panel than read in place, and which axis to vectorise then.
//!
//! A row of `a` times a row of `b` (as in `a @ b.t()`) would be a reduction over lanes: every result ends with a
//! horizontal fold of a register, and the code after the reduction works on one element at a time. With the columns in
//! lanes neither happens, but each vector of columns must be gathered from as many rows. STAGE does that once for all
//! rows of the result.

use super::analysis::{KernelAnalysis, Move, is_free, size};
use super::kind_of;
use crate::Target;
use doorbell_uop::{AxisKind, Op, UOp};

/// Cycles of packing one vector, from rows that are transposed in registers or element by element.
const TURNED: f64 = 7.0;
const GATHERED: f64 = 30.0;
/// Cycles of the horizontal fold of a register into one number.
const FOLD: f64 = 12.0;
/// With at least this many reduction steps, the results may be stored lane by lane.
const DEEP: i64 = 512;

/// A product of two loads: their nodes and indices, the output loops and the reduction loops.
struct Product {
    loads: [(UOp, UOp); 2],
    outer: Vec<UOp>,
    inner: Vec<UOp>,
    depth: i64,
    lanes: i64,
    /// Bytes of one vector of columns in a panel, and of the largest allowed panel.
    bytes: i64,
    room: i64,
}

/// The output axis of a product to vectorise although the product reads memory along the reduction, with the number of
/// lanes.
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
    // A gate would be evaluated again for every use, but the conditions of a whole product are mostly decided in loops
    // or by unrolling.
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

/// Whether the terms of a reduction are under conditions.
pub(super) fn under_conditions(sum: &UOp) -> bool {
    sum.op() == Op::Reduce && sum.src()[0].op() == Op::Where
}

/// Cycles of a vector of results with `v` in lanes; `None`: not possible, or a reduction over lanes is faster.
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
    // Rows of the result that share one packed panel: those inside the panel's loop, or one axis whose loop is
    // exchanged with it.
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
    // A reduction over lanes needs both operands to move in one direction (or in opposite ones); a short axis leaves
    // lanes empty.
    let folds = matches!(analysis.motion(here, along), Move::Step(1 | -1));
    let full = (size(along) as f64 / p.lanes as f64).ceil() * p.lanes as f64 / size(along) as f64;
    let summed = p.depth as f64 * 0.6 * full + FOLD * p.lanes as f64;
    let turned = target.vector_bytes == 64 && panel.dtype().size_bytes() == 4 && size(along) % 4 == 0;
    let packed = p.depth as f64 * (0.52 + if turned { TURNED } else { GATHERED } / rows as f64);
    (if folds { packed < summed } else { whole }).then_some(packed)
}

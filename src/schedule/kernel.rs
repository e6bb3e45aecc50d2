//! Stores → the normal form of a kernel: equal kernels are the identical node, whatever buffers they run on.
//!
//! Independent reduces of equal extents in the same loops and at the same stage get the same ranges, so that
//! codegen runs them in one loop. Ranges are numbered output loops first, parameters by first appearance, outputs
//! first.

use crate::sort;
use crate::uop::{Arg, AxisKind, Op, RangeArg, UMap, UOp, open_ranges, simplify_given};
use hashbrown::HashMap;

/// A kernel graph and the buffers of its parameters.
pub(crate) struct KernelGraph {
    pub ast: UOp,
    /// Plan-wide slot of each parameter of the kernel.
    pub slots: Vec<u32>,
    pub vars: Vec<UOp>,
}

/// Puts the stores of one kernel into normal form.
pub(crate) fn normalise(stores: &[UOp]) -> KernelGraph {
    let shared = share_ranges(&UOp::sink(stores.iter().cloned()));
    let (ast, slots) = renumber(&shared);
    let ast = simplify_indices(&ast);
    let vars = ast.toposort().into_iter().filter(|u| u.op() == Op::Var).collect();
    KernelGraph { ast, slots, vars }
}

/// How many reduces deep each node is: nodes of one stage do not depend on each other's reduces.
fn stages(order: &[UOp]) -> UMap<u32> {
    let mut stage: UMap<u32> = UMap::default();
    for u in order {
        let below = u.src().iter().filter_map(|s| stage.get(s)).max().copied().unwrap_or(0);
        stage.insert(u.clone(), below + (u.op() == Op::Reduce) as u32);
    }
    stage
}

fn share_ranges(sink: &UOp) -> UOp {
    let order = sink.toposort();
    if order.iter().filter(|u| u.op() == Op::Reduce).count() < 2 {
        return sink.clone();
    }
    let stage = stages(&order);
    let mut open: UMap<Vec<UOp>> = UMap::default();
    open_ranges(sink, &mut open);
    let mut canon: UMap<UOp> = UMap::default();
    let mut groups: HashMap<(Vec<u64>, Vec<UOp>, u32), Vec<UOp>> = HashMap::new();
    // Users first: the loops around a reduce are numbered before its own.
    for u in order.iter().rev().filter(|u| u.op() == Op::Reduce) {
        let mut outer: Vec<u64> = open[u].iter().map(|r| canon.get(r).unwrap_or(r).id()).collect();
        sort::by_key(&mut outer, |id| *id);
        let ranges = &u.src()[1..];
        let ends = ranges.iter().map(|r| r.src()[0].clone()).collect();
        match groups.get(&(outer.clone(), ends, stage[u])) {
            Some(same) => canon.extend(ranges.iter().cloned().zip(same.iter().cloned())),
            None => {
                let ends = ranges.iter().map(|r| r.src()[0].clone()).collect();
                groups.insert((outer, ends, stage[u]), ranges.to_vec());
            }
        }
    }
    canon.retain(|a, b| a != b);
    sink.substitute(&canon)
}

/// Ranges and parameters in the order of their first use.
fn renumber(sink: &UOp) -> (UOp, Vec<u32>) {
    let mut map: UMap<UOp> = UMap::default();
    let mut next = 0;
    let mut range = |map: &mut UMap<UOp>, r: &UOp| {
        if let Some(arg) = r.range_arg()
            && !map.contains_key(r)
        {
            map.insert(r.clone(), r.with_arg(Arg::Range(RangeArg { id: next, ..arg })));
            next += 1;
        }
    };
    // The deepest store numbers the loops: the others are in a part of its nest.
    let deepest = sink.src().iter().rev().max_by_key(|s| s.src().len());
    for s in deepest.into_iter().chain(sink.src()) {
        s.src()[2..].iter().for_each(|r| range(&mut map, r));
    }
    let order = sink.toposort();
    order.iter().filter(|u| u.op() == Op::Range).for_each(|r| range(&mut map, r));
    let outputs = sink.src().iter().map(|s| s.src()[0].src()[0].clone());
    let inputs = order.iter().filter(|u| u.op() == Op::Param).cloned();
    let mut slots = Vec::new();
    for p in outputs.chain(inputs) {
        if let Arg::Param(slot, len) = p.arg()
            && !map.contains_key(&p)
        {
            map.insert(p.clone(), p.with_arg(Arg::Param(slots.len() as u32, *len)));
            slots.push(*slot);
        }
    }
    (sink.substitute(&map), slots)
}

/// Indices with divisions or gates in their simplest form.
fn simplify_indices(ast: &UOp) -> UOp {
    let mut map: UMap<UOp> = UMap::default();
    for u in ast.toposort() {
        let [at, i, gate @ ..] = u.src() else { continue };
        if u.op() != Op::Index || i.any(|x| x.op() == Op::Load) {
            continue;
        }
        let new = match gate.first() {
            Some(g) => at.index_gated(&simplify_given(g, i), &g.simplify()),
            None if i.any(|x| matches!(x.op(), Op::FloorDiv | Op::FloorMod)) => at.index(&i.simplify()),
            None => continue,
        };
        if new != u {
            map.insert(u, new);
        }
    }
    ast.substitute(&map)
}

/// A store of `value` at position `flat` of `address`, in the loops `ranges` (those of one trip are not there).
pub(crate) fn store(address: &UOp, flat: &UOp, value: &UOp, ranges: &[UOp]) -> UOp {
    address.index(flat).store(value, ranges)
}

/// A fresh output loop.
pub(crate) fn output_loop(end: &UOp, id: u32) -> UOp {
    UOp::range(end.clone(), id, AxisKind::Loop)
}

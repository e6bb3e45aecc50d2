//! Upcast and Unroll axes are copied out: every value of the range gets its own instructions, shared where they are equal.

use crate::uop::{AxisKind, Op, Srcs, UMap, UOp, USet};

use super::opt::kind_of;
use super::scope::first_range;

/// Independent chains that keep the adders of a core busy (latency times throughput).
const CHAINS: usize = 8;

/// Replaces every Upcast and Unroll range by its values.
pub(super) fn expand(sink: &UOp) -> UOp {
    let mut sink = sink.clone();
    let wanted = |u: &UOp| u.op() == Op::Range && matches!(kind_of(u), AxisKind::Upcast | AxisKind::Unroll);
    let mut ranges: Vec<UOp> = sink.toposort().into_iter().filter(wanted).collect();
    // Output axes first: then the number of registers a reduction has is known when its copies are combined.
    ranges.sort_by_key(kind_of);
    for r in ranges {
        sink = copy_out(&sink, &r);
    }
    sink
}

fn copy_out(root: &UOp, r: &UOp) -> UOp {
    let n = r.src()[0].as_int().unwrap_or(1).max(1) as usize;
    let order = root.toposort();
    let closes = |u: &UOp| first_range(u.op()).is_some_and(|f| u.src().get(f..).is_some_and(|rs| rs.contains(r)));
    let registers = order.iter().filter(|u| u.op() == Op::Reduce && closes(u)).count();
    let mut one: UMap<UOp> = UMap::with_capacity_and_hasher(order.len(), Default::default());
    let mut many: UMap<Vec<UOp>> = UMap::default();
    let mut open: USet = USet::default();
    for u in order {
        if &u == r {
            open.insert(u.clone());
            many.insert(u, (0..n).map(|k| r.const_like(k as i64)).collect());
            continue;
        }
        // PANIC: toposort lists sources first; a node with `r` open has n versions.
        let version = |s: &UOp, k: usize| many.get(s).map_or_else(|| one[s].clone(), |v| v[k].clone());
        let sources = |k: usize| u.src().iter().map(|s| version(s, k)).collect::<Srcs>();
        let new = if closes(&u) {
            let first = first_range(u.op()).unwrap_or(0);
            let keep: Vec<UOp> = u.src()[first..].iter().filter(|x| *x != r).cloned().collect();
            let close = |k: usize| -> UOp {
                let src = u.src()[..first].iter().map(|s| version(s, k)).chain(keep.iter().cloned());
                u.with_src(src.collect::<Srcs>())
            };
            if u.op() == Op::Reduce {
                let op = u.reduce_op().unwrap_or(Op::Add);
                if keep.is_empty() || registers * n > CHAINS {
                    let x = combine(op, (0..n).map(|k| version(&u.src()[0], k)).collect());
                    let src: Srcs = std::iter::once(x.clone()).chain(keep.iter().cloned()).collect();
                    if keep.is_empty() { x } else { u.with_src(src) }
                } else {
                    combine(op, (0..n).map(close).collect())
                }
            } else {
                UOp::sink((0..n).map(close))
            }
        } else if u.src().iter().any(|s| open.contains(s)) {
            open.insert(u.clone());
            let copies = (0..n).map(|k| flat_sink(&u, sources(k).into_iter())).collect();
            many.insert(u, copies);
            continue;
        } else if matches!(u.op(), Op::Sink | Op::After) {
            flat_sink(&u, u.src().iter().map(|s| version(s, 0)))
        } else {
            u.with_src(sources(0))
        };
        one.insert(u, new);
    }
    one.remove(root).unwrap_or_else(|| root.clone())
}

/// A node like `u` of these, with the parts of Sinks among them in their place.
pub(super) fn flat_sink(u: &UOp, stores: impl Iterator<Item = UOp>) -> UOp {
    let flat = stores.flat_map(|n| if n.op() == Op::Sink { n.src().to_vec() } else { vec![n] });
    u.with_src(flat.collect::<Srcs>())
}

/// All of `xs` by `op`: products one after another (they become a chain of MulAccs), everything else as a tree.
fn combine(op: Op, mut xs: Vec<UOp>) -> UOp {
    let products = op == Op::Add && xs.iter().all(|x| x.op() == Op::Mul && x.dtype().is_float());
    if products {
        // PANIC: a range has at least one value.
        return xs.into_iter().reduce(|a, b| a.binary(op, &b)).expect("a copy");
    }
    while xs.len() > 1 {
        xs = xs.chunks(2).map(|c| if c.len() == 2 { c[0].binary(op, &c[1]) } else { c[0].clone() }).collect();
    }
    // PANIC: as above.
    xs.pop().expect("a copy")
}

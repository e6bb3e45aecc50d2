//! Elementwise values that are better kept in memory than recomputed.
//!
//! Recomputing is the rule: it costs no memory traffic. The exceptions: values that an Expand repeats many times and
//! that are costly (transcendental ops, divisions, more than a few loads), as a softmax before a product; and values
//! that several kernels would compute from more than a few buffers each.

use super::fuse::FusedKernel;
use super::graph::{Graph, max_len, values};
use super::jobs::Job;
use super::split::is_contraction;
use super::stored::Stored;
use crate::uop::{Op, UMap, UOp, USet};

/// Buffers that may be read to compute a value again.
const FEW_READS: usize = 3;
/// Repetitions by an Expand, and elements after it, from which on computing once pays for a kernel.
const REPEATS: usize = 8;
const MANY: usize = 1 << 16;

/// Stores costly values in front of large expansions.
pub(crate) fn store_repeated(g: &Graph, stored: &mut Stored) {
    for u in g.order.iter().filter(|u| u.op() == Op::Expand) {
        let (from, to) = (max_len(u.src()[0].shape()), max_len(u.shape()));
        if to < MANY || to / from.max(1) < REPEATS {
            continue;
        }
        let mut x = &u.src()[0];
        // Memory holds the narrow form; readers widen it.
        let passes =
            |x: &UOp| x.op().is_movement() && x.op() != Op::Pad || x.op() == Op::Cast && widens(&x.src()[0], x);
        while passes(x) && !stored.at.contains_key(x) {
            x = &x.src()[0];
        }
        // What the movement in between already repeats is not this Expand's matter.
        let whole = max_len(x.shape()) <= from;
        if whole && x.op().is_elementwise() && !stored.at.contains_key(x) && !g.is_pure(x) {
            let (reads, costly) = region(x, stored);
            if costly || reads > FEW_READS || g.traits(u).has_tiles() && is_factor(g, u) {
                let x = x.clone();
                stored.insert(g, &x);
            }
        }
    }
}

/// Whether a cast gives the same floats more room.
pub(crate) fn widens(from: &UOp, to: &UOp) -> bool {
    let [from, to] = [from, to].map(UOp::dtype);
    from.is_float() && to.is_float() && from.scalar.size_bytes() < to.scalar.size_bytes()
}

/// Whether a value is an operand of a sum of products.
fn is_factor(g: &Graph, u: &UOp) -> bool {
    let is_summed = |x: &UOp| g.users(x).iter().any(|y| y.op() == Op::Reduce && y.reduce_op() == Some(Op::Add));
    g.users(u).iter().any(|x| match x.op() {
        Op::Mul => is_contraction(x) && (is_summed(x) || g.users(x).iter().any(|y| y.op() == Op::Cast && is_summed(y))),
        Op::Cast => is_factor(g, x),
        op if op.is_movement() => is_factor(g, x),
        _ => false,
    })
}

/// Stores what several kernels compute from many buffers; whether there was any.
pub(crate) fn store_shared(g: &Graph, jobs: &[Job], kernels: &[FusedKernel], stored: &mut Stored) -> bool {
    let mut homes: UMap<(usize, usize)> = UMap::default();
    for (k, kernel) in kernels.iter().enumerate() {
        for u in kernel.jobs.iter().flat_map(|j| &jobs[j.0].computes) {
            let e = homes.entry(u.clone()).or_insert((k, 1));
            if e.0 != k {
                *e = (k, e.1 + 1);
            }
        }
    }
    let mut found = false;
    // Users first: what is stored higher up spares what is below it.
    let mut spared: USet = USet::default();
    for u in g.order.iter().rev() {
        let many = homes.get(u).is_some_and(|h| h.1 > 1);
        let forks = g.users(u).len() > 1 || g.users(u).iter().any(|x| x.op().is_movement());
        if many && forks && !spared.contains(u) && !stored.at.contains_key(u) && !g.is_pure(u) {
            let (reads, _) = region(u, stored);
            if reads > FEW_READS {
                stored.insert(g, u);
                found = true;
                spared.extend(below(u, stored));
            }
        }
    }
    found
}

/// Nodes that are computed inside a kernel for `u`: down to what is stored.
fn below(u: &UOp, stored: &Stored) -> Vec<UOp> {
    let (mut seen, mut todo, mut out) = (USet::default(), values(u).to_vec(), Vec::new());
    while let Some(x) = todo.pop() {
        if seen.insert(x.clone()) && !stored.at.contains_key(&x) {
            todo.extend(values(&x).iter().cloned());
            out.push(x);
        }
    }
    out
}

/// Memory read for `u` (counted up to a few), and whether costly ops are computed for it.
fn region(u: &UOp, stored: &Stored) -> (usize, bool) {
    let (mut seen, mut todo) = (USet::default(), vec![u.clone()]);
    let (mut reads, mut costly) = (0, false);
    while let Some(x) = todo.pop() {
        if !seen.insert(x.clone()) {
            continue;
        }
        if &x != u && stored.at.contains_key(&x) || x.op() == Op::Param {
            reads += 1;
            continue;
        }
        costly |=
            matches!(x.op(), Op::Exp2 | Op::Log2 | Op::Sin | Op::Pow | Op::Threefry | Op::Sqrt | Op::Recip | Op::FDiv)
                || x.dtype().is_int() && matches!(x.op(), Op::CDiv | Op::CMod | Op::FloorDiv | Op::FloorMod);
        todo.extend(values(&x).iter().cloned());
    }
    (reads, costly)
}

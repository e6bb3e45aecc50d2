//! Unrolls Upcast and Unroll axes: each value of the range gets its own copy of the instructions; equal copies are
//! shared.

use doorbell_sort as sort;
use doorbell_uop::{Arg, AxisKind, Op, Order, Srcs, UOp};
use smallvec::SmallVec;

use super::opt::kind_of;
use super::scope::first_range;

/// Independent dependency chains that keep the adders of a core busy (latency times throughput).
const CHAINS: usize = 8;

/// Maximum number of ranges handled in one walk of the graph.
const AT_ONCE: usize = 128;

/// Replaces every Upcast and Unroll range by its values.
pub(super) fn expand(sink: &UOp) -> UOp {
    let mut sink = sink.clone();
    let wanted = |u: &UOp| u.op() == Op::Range && matches!(kind_of(u), AxisKind::Upcast | AxisKind::Unroll);
    let mut ranges: Vec<UOp> = Order::of(&sink).nodes().iter().filter(|u| wanted(u)).map(|u| (*u).clone()).collect();
    // Output axes first: when the copies of a reduction are combined, its number of registers is known then.
    sort::by_key(&mut ranges, kind_of);
    while !ranges.is_empty() {
        let order = Order::of(&sink);
        let group = independent(&order, &ranges);
        let new = copy_out(&order, &group);
        ranges.retain(|r| !group.contains(r));
        drop(order);
        sink = new.unwrap_or(sink);
    }
    sink
}

/// The first of `ranges`, and all others that can be unrolled in the same walk: no value depends on two of them, nor on
/// one of them and on an earlier range that has to wait for a later walk.
fn independent(order: &Order, ranges: &[UOp]) -> Vec<UOp> {
    let ranges = &ranges[..ranges.len().min(AT_ONCE)];
    // As bit sets: the ranges that each node depends on, and the ranges that each range occurs together with in some
    // node.
    let mut own = vec![0u128; order.len()];
    let mut meets = vec![0u128; ranges.len()];
    for (k, r) in ranges.iter().enumerate() {
        if let Some(n) = order.number(r) {
            own[n] = 1 << k;
        }
    }
    let mut open = own.clone();
    for (k, u) in order.nodes().iter().enumerate() {
        let srcs = order.srcs(k);
        let all = srcs.iter().fold(open[k], |all, s| all | open[*s as usize]);
        let mut left = if all.count_ones() > 1 { all } else { 0 };
        while left != 0 {
            meets[left.trailing_zeros() as usize] |= all;
            left &= left - 1;
        }
        let shut = first_range(u.op()).and_then(|f| srcs.get(f..)).unwrap_or(&[]);
        open[k] = shut.iter().fold(all, |all, s| all & !own[*s as usize]);
    }
    let (mut group, mut before) = (Vec::new(), 0u128);
    for (k, r) in ranges.iter().enumerate() {
        if meets[k] & before == 0 {
            group.push(r.clone());
        }
        before |= 1 << k;
    }
    group
}

/// The rewritten nodes of a walk, in which a node can have several versions: one for each value of a range.
pub(super) struct Versions<'a> {
    pub order: &'a Order<'a>,
    pool: Vec<UOp>,
    /// Index of each node's first version.
    start: Vec<u32>,
    many: Vec<bool>,
}

impl<'a> Versions<'a> {
    pub(crate) fn new(order: &'a Order<'a>) -> Versions<'a> {
        let n = order.len();
        Versions { order, pool: Vec::with_capacity(n), start: Vec::with_capacity(n), many: Vec::with_capacity(n) }
    }
    /// Adds the versions of the next node.
    pub(crate) fn push(&mut self, versions: impl IntoIterator<Item = UOp>, many: bool) {
        self.start.push(self.pool.len() as u32);
        self.many.push(many);
        self.pool.extend(versions);
    }
    /// Version `v` of node `k`.
    pub(crate) fn get(&self, k: usize, v: usize) -> &UOp {
        &self.pool[self.start[k] as usize + if self.many[k] { v } else { 0 }]
    }
    /// Sources of node `k` in version `v`.
    pub(crate) fn srcs(&self, k: usize, v: usize) -> Srcs {
        let srcs = self.order.srcs(k);
        let mut new = Srcs::with_capacity(srcs.len());
        for s in srcs {
            new.push(self.get(*s as usize, v).clone());
        }
        new
    }
    /// Node `k` with its sources in version `v`.
    pub(crate) fn same(&self, k: usize, v: usize) -> UOp {
        let (u, srcs) = (self.order.nodes()[k], self.order.srcs(k));
        let unchanged = srcs.iter().zip(u.src()).all(|(j, s)| self.get(*j as usize, v) == s);
        if unchanged {
            return u.clone();
        }
        UOp::tagged(u.op(), u.dtype(), self.srcs(k, v), u.arg().clone(), u.tag())
    }
    /// The new version of the last node.
    pub(crate) fn root(mut self) -> Option<UOp> {
        self.pool.pop()
    }
}

/// The graph with each range of a group replaced by its values.
fn copy_out(order: &Order, group: &[UOp]) -> Option<UOp> {
    let count = |r: &UOp| r.src()[0].as_int().unwrap_or(1).max(1) as usize;
    // Which range of the group a node is, or depends on.
    const NONE: u8 = u8::MAX;
    let mut by = vec![NONE; order.len()];
    for (g, r) in group.iter().enumerate() {
        if let Some(n) = order.number(r) {
            by[n] = g as u8;
        }
    }
    let closed = |at: usize, by: &[u8]| {
        let shut = first_range(order.nodes()[at].op()).and_then(|f| order.srcs(at).get(f..)).unwrap_or(&[]);
        let ranges =
            shut.iter().map(|s| *s as usize).filter(|s| group.get(usize::from(by[*s])) == Some(order.nodes()[*s]));
        ranges.map(|s| by[s]).next()
    };
    let mut registers = vec![0; group.len()];
    for at in (0..order.len()).filter(|at| order.nodes()[*at].op() == Op::Reduce) {
        if let Some(g) = closed(at, &by) {
            registers[g as usize] += 1;
        }
    }
    let mut all = Versions::new(order);
    for (at, u) in order.nodes().iter().enumerate() {
        if by[at] != NONE {
            all.push((0..count(u)).map(|k| u.const_like(k as i64)), true);
            continue;
        }
        if let Some(g) = closed(at, &by) {
            let r = &group[g as usize];
            let new = close(&all, at, r, count(r), registers[g as usize]);
            all.push([new], false);
            continue;
        }
        by[at] = order.srcs(at).iter().map(|s| by[*s as usize]).find(|g| *g != NONE).unwrap_or(NONE);
        let n = group.get(usize::from(by[at])).map_or(1, count);
        if matches!(u.op(), Op::Sink | Op::After | Op::Commit) {
            let copies: Vec<UOp> = (0..n).map(|k| flat_sink(u, all.srcs(at, k).into_iter())).collect();
            all.push(copies, by[at] != NONE);
        } else if by[at] != NONE {
            let copies: SmallVec<[UOp; 16]> = (0..n).map(|k| all.same(at, k)).collect();
            all.push(copies, true);
        } else {
            let new = all.same(at, 0);
            all.push([new], false);
        }
    }
    all.root()
}

/// What closes `r` (at node `at`): one Reduce over all copies, or all copies of a Store.
fn close(all: &Versions, at: usize, r: &UOp, n: usize, registers: usize) -> UOp {
    let u = all.order.nodes()[at];
    let first = first_range(u.op()).unwrap_or(0);
    let keep: Vec<UOp> = u.src()[first..].iter().filter(|x| *x != r).cloned().collect();
    let srcs = all.order.srcs(at);
    let copy = |k: usize| -> UOp {
        let src = srcs[..first].iter().map(|s| all.get(*s as usize, k).clone()).chain(keep.iter().cloned());
        u.with_src(src.collect::<Srcs>())
    };
    if u.op() != Op::Reduce {
        return UOp::sink((0..n).map(copy));
    }
    let op = u.reduce_op().unwrap_or(Op::Add);
    // A matrix unit that runs asynchronously to the threads adds all steps to the same registers.
    let mut first = u.src()[0].clone();
    while first.op() == Op::Add {
        first = first.src()[0].clone();
    }
    let beside = matches!(first.arg(), Arg::Wmma(w) if w.from_memory);
    if !keep.is_empty() && !beside && registers * n <= CHAINS {
        return combine(op, (0..n).map(copy).collect());
    }
    let x = combine(op, (0..n).map(|k| all.get(srcs[0] as usize, k).clone()).collect());
    if keep.is_empty() {
        return x;
    }
    u.with_src(std::iter::once(x).chain(keep.iter().cloned()).collect::<Srcs>())
}

/// A node like `u` with these sources; Sinks among them are replaced by their parts.
pub(super) fn flat_sink(u: &UOp, stores: impl Iterator<Item = UOp>) -> UOp {
    let flat = stores.flat_map(|n| if n.op() == Op::Sink { n.src().to_vec() } else { vec![n] });
    u.with_src(flat.collect::<Srcs>())
}

/// Combines `xs` by `op`: products one after another (they become a chain of MulAccs), everything else as a tree.
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

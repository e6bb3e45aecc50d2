//! Upcast and Unroll axes are copied out: every value of the range gets its own instructions, shared where they are equal.

use crate::uop::{AxisKind, Op, Order, Srcs, UOp};
use smallvec::SmallVec;

use super::opt::kind_of;
use super::scope::first_range;

/// Independent chains that keep the adders of a core busy (latency times throughput).
const CHAINS: usize = 8;

/// Replaces every Upcast and Unroll range by its values.
pub(super) fn expand(sink: &UOp) -> UOp {
    let mut sink = sink.clone();
    let wanted = |u: &UOp| u.op() == Op::Range && matches!(kind_of(u), AxisKind::Upcast | AxisKind::Unroll);
    let mut ranges: Vec<UOp> = Order::of(&sink).nodes().iter().filter(|u| wanted(u)).map(|u| (*u).clone()).collect();
    // Output axes first: then the number of registers a reduction has is known when its copies are combined.
    ranges.sort_by_key(kind_of);
    for r in ranges {
        sink = copy_out(&sink, &r);
    }
    sink
}

/// What the nodes of a walk have become where some become several: one for each value of a range.
pub(super) struct Versions<'a> {
    pub order: &'a Order<'a>,
    pool: Vec<UOp>,
    /// Where each node's versions begin.
    start: Vec<u32>,
    many: Vec<bool>,
}

impl<'a> Versions<'a> {
    pub fn new(order: &'a Order<'a>) -> Versions<'a> {
        let n = order.len();
        Versions { order, pool: Vec::with_capacity(n), start: Vec::with_capacity(n), many: Vec::with_capacity(n) }
    }
    /// The next node has these versions.
    pub fn push(&mut self, versions: impl IntoIterator<Item = UOp>, many: bool) {
        self.start.push(self.pool.len() as u32);
        self.many.push(many);
        self.pool.extend(versions);
    }
    /// Version `v` of node `k`.
    pub fn get(&self, k: usize, v: usize) -> &UOp {
        &self.pool[self.start[k] as usize + if self.many[k] { v } else { 0 }]
    }
    /// Sources of node `k` in version `v`.
    pub fn srcs(&self, k: usize, v: usize) -> Srcs {
        self.order.srcs(k).iter().map(|s| self.get(*s as usize, v).clone()).collect()
    }
    /// Whether a source of node `k` has several versions.
    pub fn varies(&self, k: usize) -> bool {
        self.order.srcs(k).iter().any(|s| self.many[*s as usize])
    }
    /// Node `k` with its sources in version `v`.
    pub fn same(&self, k: usize, v: usize) -> UOp {
        let (u, srcs) = (self.order.nodes()[k], self.order.srcs(k));
        let unchanged = srcs.iter().zip(u.src()).all(|(j, s)| self.get(*j as usize, v) == s);
        if unchanged { u.clone() } else { u.with_src(self.srcs(k, v)) }
    }
    /// What the last node has become.
    pub fn root(mut self) -> Option<UOp> {
        self.pool.pop()
    }
}

fn copy_out(root: &UOp, r: &UOp) -> UOp {
    let n = r.src()[0].as_int().unwrap_or(1).max(1) as usize;
    let order = Order::of(root);
    let closes = |u: &UOp| first_range(u.op()).is_some_and(|f| u.src().get(f..).is_some_and(|rs| rs.contains(r)));
    let registers = order.nodes().iter().filter(|u| u.op() == Op::Reduce && closes(u)).count();
    let mut all = Versions::new(&order);
    for (at, u) in order.nodes().iter().enumerate() {
        if *u == r {
            all.push((0..n).map(|k| r.const_like(k as i64)), true);
        } else if closes(u) {
            let new = close(&all, at, r, n, registers);
            all.push([new], false);
        } else if matches!(u.op(), Op::Sink | Op::After) {
            let many = all.varies(at);
            let copy = |k| flat_sink(u, all.srcs(at, k).into_iter());
            let copies: Vec<UOp> = (0..if many { n } else { 1 }).map(copy).collect();
            all.push(copies, many);
        } else if all.varies(at) {
            let copies: SmallVec<[UOp; 16]> = (0..n).map(|k| all.same(at, k)).collect();
            all.push(copies, true);
        } else {
            let new = all.same(at, 0);
            all.push([new], false);
        }
    }
    all.root().unwrap_or_else(|| root.clone())
}

/// What closes `r` (node `at`): a Reduce of all copies, or all copies of a Store.
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
    if !keep.is_empty() && registers * n <= CHAINS {
        return combine(op, (0..n).map(copy).collect());
    }
    let x = combine(op, (0..n).map(|k| all.get(srcs[0] as usize, k).clone()).collect());
    if keep.is_empty() {
        return x;
    }
    u.with_src(std::iter::once(x).chain(keep.iter().cloned()).collect::<Srcs>())
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

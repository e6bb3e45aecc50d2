//! Gives every loop its own Range node. Where one node would have to be two loops (reductions that wait for one
//! another, stores that nest differently), each further loop gets a fresh Range, and the nodes in its body are rebuilt
//! for it.
//!
//! One walk down from the Stores decides which loops there are and in which of them each node is needed. A second walk,
//! up from the leaves, builds the nodes.

use super::CodegenError;
use super::scope::{GraphRanges, NotPlaced, ROOT, STORES, Scopes, first_range};
use doorbell_uop::{Arg, Op, Order, RangeArg, Srcs, UOp};
use smallvec::SmallVec;

/// The kernel `sink` with one Range for each loop; returned unchanged if that is already so.
///
/// # Errors
/// A range that nothing closes, or loops that cross.
pub(super) fn separate(sink: &UOp) -> Result<UOp, CodegenError> {
    match Scopes::build(Order::of(sink)) {
        Ok(_) => Ok(sink.clone()),
        Err(NotPlaced::Error(e)) => Err(e),
        Err(NotPlaced::Clash(_, graph)) => Ok(LoopVersions::of(&graph)?.nodes()),
    }
}

/// The loops for a node's open ranges, in the order of these ranges. (Loop 0 means outside of all loops.)
type LoopPath = SmallVec<[u16; 8]>;

/// One of the loops that a Range stands for.
struct Loop {
    range: u16,
    parent: u16,
    depth: u16,
    level: u32,
    /// Number of the Range made for it; `None`: the original range.
    fresh: Option<u32>,
}

/// The loops of a graph, and the versions of each node that they need.
struct LoopVersions<'f, 'a> {
    graph: &'f GraphRanges<'a>,
    loops: Vec<Loop>,
    fresh: Fresh,
    wanted: Vec<SmallVec<[LoopPath; 1]>>,
    /// For each node, for each version of it: which version of each source it uses.
    sees: Vec<SmallVec<[u16; 6]>>,
}

impl<'f, 'a> LoopVersions<'f, 'a> {
    fn of(graph: &'f GraphRanges<'a>) -> Result<LoopVersions<'f, 'a>, CodegenError> {
        let n = graph.order.len();
        let outside = Loop { range: u16::MAX, parent: 0, depth: 0, level: 0, fresh: None };
        let mut p = LoopVersions {
            graph,
            loops: vec![outside],
            fresh: Fresh::of(&graph.order),
            wanted: std::iter::repeat_with(SmallVec::new).take(n).collect(),
            sees: std::iter::repeat_with(SmallVec::new).take(n).collect(),
        };
        // The loops of the stores keep their ranges.
        for k in (0..n).filter(|k| graph.root_store[*k]) {
            p.closed(k, ROOT as u16);
        }
        if let Some(&r) = graph.open.open[n - 1].first() {
            return Err(p.open_range(r));
        }
        p.wanted[n - 1].push(LoopPath::new());
        for k in (0..n).rev() {
            for place in 0..p.wanted[k].len() {
                p.sources(k, place)?;
            }
        }
        Ok(p)
    }

    fn open_range(&self, r: u16) -> CodegenError {
        CodegenError::OpenRange(self.graph.order.nodes()[self.graph.open.ranges[usize::from(r)] as usize].render())
    }

    /// The loop of `range` directly inside `parent`.
    fn place(&mut self, range: u16, parent: u16, level: u32) -> u16 {
        let here = |l: &Loop| l.range == range && l.parent == parent && l.level == level;
        if let Some(at) = self.loops.iter().position(here) {
            return at as u16;
        }
        let taken = self.loops.iter().any(|l| l.range == range);
        let node = self.graph.order.nodes()[self.graph.open.ranges[usize::from(range)] as usize];
        let fresh = if taken { self.fresh.like(node) } else { None };
        let depth = self.loops[usize::from(parent)].depth + 1;
        self.loops.push(Loop { range, parent, depth, level, fresh });
        self.loops.len() as u16 - 1
    }

    /// The loops that node `k` closes, outermost first; the first one is inside `at`.
    fn closed(&mut self, k: usize, mut at: u16) -> LoopPath {
        let graph = self.graph;
        let srcs = graph.order.srcs(k);
        let first = first_range(graph.order.nodes()[k].op()).unwrap_or(usize::MAX);
        let level = if graph.root_store[k] { STORES } else { graph.open.level[k] };
        let mut loops = LoopPath::new();
        let numbers = srcs.get(first..).unwrap_or(&[]).iter().map(|s| graph.open.number[*s as usize]);
        // A loop of one iteration may have become a constant.
        for r in numbers.filter(|r| *r != u16::MAX) {
            at = self.place(r, at, level);
            loops.push(at);
        }
        loops
    }

    /// Requests from all sources of `k` the versions that this version of it needs.
    fn sources(&mut self, k: usize, place: usize) -> Result<(), CodegenError> {
        let graph = self.graph;
        let inside = self.wanted[k][place].clone();
        let at = self.deepest(k, &inside)?;
        let closed = self.closed(k, at);
        for &s in graph.order.srcs(k) {
            let s = s as usize;
            let mut wants = LoopPath::new();
            for &r in &graph.open.open[s] {
                let own = closed.iter().find(|l| self.loops[usize::from(**l)].range == r);
                let outer = || graph.open.open[k].iter().position(|o| *o == r).and_then(|j| inside.get(j));
                wants.push(*own.or_else(outer).ok_or_else(|| self.open_range(r))?);
            }
            let version = self.wanted[s].iter().position(|w| *w == wants).unwrap_or_else(|| {
                self.wanted[s].push(wants);
                self.wanted[s].len() - 1
            });
            self.sees[k].push(version as u16);
        }
        Ok(())
    }

    /// The innermost of the loops around node `k`. All the others must contain it.
    fn deepest(&self, k: usize, inside: &LoopPath) -> Result<u16, CodegenError> {
        let depth = |l: u16| self.loops[usize::from(l)].depth;
        let at = inside.iter().copied().max_by_key(|l| depth(*l)).unwrap_or(ROOT as u16);
        for &l in inside {
            let mut up = at;
            while depth(up) > depth(l) {
                up = self.loops[usize::from(up)].parent;
            }
            if up != l {
                return Err(CodegenError::CrossedLoops(format!("{:?}", self.graph.order.nodes()[k])));
            }
        }
        Ok(at)
    }

    /// Builds all versions of every node and returns the root.
    fn nodes(&self) -> UOp {
        let order = &self.graph.order;
        let mut made: Vec<SmallVec<[UOp; 1]>> = Vec::with_capacity(order.len());
        for (k, u) in order.nodes().iter().enumerate() {
            let srcs = order.srcs(k);
            let version = |(place, inside): (usize, &LoopPath)| {
                let sees = &self.sees[k][place * srcs.len()..][..srcs.len()];
                let src = srcs.iter().zip(sees).map(|(s, v)| made[*s as usize][usize::from(*v)].clone());
                self.renumbered(k, inside, u.with_src(src.collect::<Srcs>()))
            };
            let all = self.wanted[k].iter().enumerate().map(version).collect();
            made.push(all);
        }
        // PANIC: an order has a root, of which there is one version.
        made.pop().and_then(|mut root| root.pop()).expect("the root")
    }

    /// A Range with the number of its loop; other nodes are returned unchanged.
    fn renumbered(&self, k: usize, inside: &LoopPath, u: UOp) -> UOp {
        let number = self.graph.open.number[k];
        let own = self.graph.open.open[k].iter().position(|r| *r == number);
        let fresh = own.and_then(|j| self.loops[usize::from(inside[j])].fresh);
        match (fresh, u.range_arg()) {
            (Some(sub), Some(a)) if u.op() == Op::Range => u.with_arg(Arg::Range(RangeArg { sub, ..a })),
            _ => u,
        }
    }
}

/// The highest sub-number in use for each axis.
struct Fresh(Vec<(u32, u32)>);

impl Fresh {
    fn of(order: &Order) -> Fresh {
        let mut last: Vec<(u32, u32)> = vec![];
        for a in order.nodes().iter().filter_map(|u| u.range_arg()) {
            match last.iter_mut().find(|l| l.0 == a.id) {
                Some(l) => l.1 = l.1.max(a.sub),
                None => last.push((a.id, a.sub)),
            }
        }
        Fresh(last)
    }

    /// An unused number for a range like `r`.
    fn like(&mut self, r: &UOp) -> Option<u32> {
        let a = r.range_arg()?;
        let last = self.0.iter_mut().find(|l| l.0 == a.id)?;
        last.1 += 1;
        Some(last.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorbell_uop::{AxisKind, DType};

    fn ranges(sink: &UOp) -> usize {
        Order::of(sink).nodes().iter().filter(|u| u.op() == Op::Range).count()
    }

    /// Sums of rows of `x` [4, 5, 6] over the last axis, stored once for each order of the other two.
    fn stores(orders: &[[usize; 2]]) -> UOp {
        let outer = [UOp::range(4, 0, AxisKind::Loop), UOp::range(5, 1, AxisKind::Loop)];
        let r = UOp::range(6, 2, AxisKind::Reduce);
        let at = &(&outer[0] * 5) + &outer[1];
        let sum = UOp::param(9, DType::F32, 120).index(&(&(&at * 6) + &r)).load().reduce(Op::Add, &[r]);
        let store = |(k, order): (usize, &[usize; 2])| {
            UOp::param(k as u32, DType::F32, 20).index(&at).store(&sum, &order.map(|o| outer[o].clone()))
        };
        UOp::sink(orders.iter().enumerate().map(store))
    }

    #[test]
    fn stores_that_nest_alike_are_left_as_they_are() {
        let sink = stores(&[[0, 1], [0, 1]]);
        assert_eq!(separate(&sink).unwrap(), sink);
    }

    #[test]
    fn stores_that_nest_the_other_way_round_share_one_second_place_of_every_loop() {
        let sink = separate(&stores(&[[0, 1], [1, 0], [1, 0]])).unwrap();
        assert_eq!(ranges(&sink), 6);
        Scopes::of(&sink).unwrap();
        let loads = Order::of(&sink).nodes().iter().filter(|u| u.op() == Op::Load).count();
        assert_eq!(loads, 2, "one for each order");
    }

    #[test]
    fn a_reduction_that_waits_for_another_gets_loops_of_its_own() {
        let (i, r) = (UOp::range(4, 0, AxisKind::Loop), UOp::range(6, 1, AxisKind::Reduce));
        let x = UOp::param(1, DType::F32, 24).index(&(&(&i * 6) + &r)).load();
        let most = x.reduce(Op::Max, std::slice::from_ref(&r));
        let sum = (&x - &most).reduce(Op::Add, &[r]);
        let sink = UOp::sink([UOp::param(0, DType::F32, 4).index(&i).store(&sum, &[i])]);
        let apart = separate(&sink).unwrap();
        assert_eq!((ranges(&sink), ranges(&apart)), (2, 3));
        Scopes::of(&apart).unwrap();
    }

    #[test]
    fn a_range_that_nothing_closes_is_named() {
        let (i, j) = (UOp::range(4, 0, AxisKind::Loop), UOp::range(5, 1, AxisKind::Loop));
        let x = UOp::param(1, DType::F32, 20).index(&(&(&i * 5) + &j)).load();
        let sink = UOp::sink([UOp::param(0, DType::F32, 4).index(&i).store(&x, &[i])]);
        assert!(matches!(separate(&sink), Err(CodegenError::OpenRange(_))));
    }
}

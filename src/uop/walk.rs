//! Walks over a graph: order, rebuilding, replacement, open ranges. All are iterative.
//!
//! A walk numbers the nodes that it visits; passes keep their results in vectors indexed by that number ([`Order`],
//! [`Rebuild`]).

use super::numbers::Numbers;
use super::{Op, Srcs, UMap, UOp};
use smallvec::SmallVec;

/// The nodes reachable from some roots, sources before users, numbered in that order.
pub struct Order<'a> {
    nodes: Vec<&'a UOp>,
    /// Numbers of the sources of all nodes, concatenated, and where each node's list ends.
    edges: Vec<u32>,
    ends: Vec<u32>,
    numbers: Numbers,
}

/// A node whose sources are being listed.
struct Visit<'a> {
    node: &'a UOp,
    rest: &'a [UOp],
    /// Where the numbers of its sources begin.
    seen: u32,
}

impl Drop for Order<'_> {
    fn drop(&mut self) {
        self.numbers.give_back();
    }
}

impl<'a> Order<'a> {
    /// All nodes of the graph below `root`; `root` is the last one.
    pub fn of(root: &'a UOp) -> Order<'a> {
        Order::many(std::slice::from_ref(root), |_| true)
    }
    /// Nodes for which `enter` is false are listed without the nodes below them; they have no edges.
    pub fn many(roots: &'a [UOp], enter: impl Fn(&UOp) -> bool) -> Order<'a> {
        let (nodes, edges, ends) = (Vec::with_capacity(64), Vec::with_capacity(128), Vec::with_capacity(64));
        let mut o = Order { nodes, edges, ends, numbers: Numbers::borrow_table() };
        let mut stack: Vec<Visit<'a>> = Vec::with_capacity(64);
        // Numbers of the sources of the nodes on the stack, as far as they have been seen.
        let mut seen: Vec<u32> = Vec::with_capacity(128);
        for root in roots {
            if o.numbers.get(root).is_none() {
                stack.push(Visit { node: root, rest: if enter(root) { root.src() } else { &[] }, seen: 0 });
            }
            while let Some(top) = stack.last_mut() {
                let Some((s, more)) = top.rest.split_first() else {
                    let Visit { node, seen: from, .. } = *top;
                    stack.pop();
                    let number = o.list(node, &seen[from as usize..]);
                    seen.truncate(from as usize);
                    seen.push(number);
                    continue;
                };
                top.rest = more;
                match o.numbers.get(s) {
                    Some(n) => seen.push(n),
                    None if s.src().is_empty() => seen.push(o.list(s, &[])),
                    None => {
                        let rest = if enter(s) { s.src() } else { &[] };
                        stack.push(Visit { node: s, rest, seen: seen.len() as u32 });
                    }
                }
            }
            seen.clear();
        }
        o
    }
    /// Lists a node whose sources are listed; returns its number.
    fn list(&mut self, u: &'a UOp, srcs: &[u32]) -> u32 {
        let number = self.nodes.len() as u32;
        self.numbers.set(u, number);
        self.nodes.push(u);
        self.edges.extend_from_slice(srcs);
        self.ends.push(self.edges.len() as u32);
        number
    }
    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }
    /// Whether there are no nodes, which takes a walk without roots.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
    /// The nodes; node k has the number k.
    pub fn nodes(&self) -> &[&'a UOp] {
        &self.nodes
    }
    /// Numbers of the sources of node `k`.
    pub fn srcs(&self, k: usize) -> &[u32] {
        let from = if k == 0 { 0 } else { self.ends[k - 1] };
        &self.edges[from as usize..self.ends[k] as usize]
    }
    /// The number of `u`; `None` if it was not visited.
    pub fn number(&self, u: &UOp) -> Option<usize> {
        self.numbers.get(u).map(|n| n as usize)
    }
    /// Rebuilds all nodes: `f` makes each, sources first ([`Rebuild::same`] is the node with its new sources). Returns
    /// the new root.
    ///
    /// # Panics
    /// There are no nodes.
    pub fn rebuild(&'a self, mut f: impl FnMut(&Rebuild<'a>, &'a UOp) -> UOp) -> UOp {
        let mut r = Rebuild { order: self, at: 0, new: Vec::with_capacity(self.len()) };
        while r.at < self.len() {
            let new = f(&r, self.nodes[r.at]);
            r.new.push(new);
            r.at += 1;
        }
        // PANIC: see above; a walk from a root has at least the root.
        r.new.pop().expect("a walk from a root")
    }
}

/// State of a walk that rebuilds every node, sources first. See [`Order::rebuild`].
pub struct Rebuild<'a> {
    order: &'a Order<'a>,
    /// Number of the current node.
    pub at: usize,
    new: Vec<UOp>,
}

impl<'a> Rebuild<'a> {
    /// The new sources of the current node.
    pub fn srcs(&self) -> Srcs {
        let srcs = self.order.srcs(self.at);
        let mut new = Srcs::with_capacity(srcs.len());
        for s in srcs {
            new.push(self.new[*s as usize].clone());
        }
        new
    }
    /// The new source `j` of the current node.
    pub fn src(&self, j: usize) -> &UOp {
        &self.new[self.order.srcs(self.at)[j] as usize]
    }
    /// The new form of an earlier node.
    pub fn of(&self, u: &UOp) -> Option<&UOp> {
        self.new.get(self.order.number(u)?)
    }
    /// The current node with its new sources.
    pub fn same(&self) -> UOp {
        let (u, srcs) = (self.order.nodes[self.at], self.order.srcs(self.at));
        if srcs.iter().zip(u.src()).all(|(k, s)| self.new[*k as usize] == *s) {
            return u.clone();
        }
        UOp::tagged(u.op(), u.dtype(), self.srcs(), u.arg().clone(), u.tag())
    }
}

impl UOp {
    /// Every node reachable from this one, sources before users, each once; the order depends on structure only.
    pub fn toposort(&self) -> Vec<UOp> {
        toposort_many(std::slice::from_ref(self), |_| true)
    }

    /// As `toposort`, but does not descend below nodes for which `enter` is false (these are listed themselves).
    pub fn toposort_if(&self, enter: impl Fn(&UOp) -> bool) -> Vec<UOp> {
        toposort_many(std::slice::from_ref(self), enter)
    }

    /// This graph with nodes replaced. Replacements are final and not searched again.
    pub fn substitute(&self, map: &UMap<UOp>) -> UOp {
        if map.is_empty() {
            return self.clone();
        }
        self.rebuild_if(|u| !map.contains_key(u), |r, u| map.get(u).cloned().unwrap_or_else(|| r.same()))
    }

    /// This graph rebuilt: see [`Order::rebuild`].
    pub fn rebuild(&self, f: impl FnMut(&Rebuild, &UOp) -> UOp) -> UOp {
        Order::of(self).rebuild(f)
    }
    /// As [`UOp::rebuild`], but does not descend below nodes for which `enter` is false; `f` has to make these without
    /// sources.
    pub(crate) fn rebuild_if(&self, enter: impl Fn(&UOp) -> bool, f: impl FnMut(&Rebuild, &UOp) -> UOp) -> UOp {
        Order::many(std::slice::from_ref(self), enter).rebuild(f)
    }

    /// Ranges this value depends on and nothing below it has closed (kernel graph), in order of first appearance.
    /// Reduce closes its ranges, Store closes its own, End closes its range.
    pub fn open_ranges(&self) -> Vec<UOp> {
        let order = Order::of(self);
        let open = open_numbers(&order).pop().unwrap_or_default();
        open.iter().map(|r| order.nodes[*r as usize].clone()).collect()
    }

    /// Whether `needle` is this node or below it.
    pub fn contains(&self, needle: &UOp) -> bool {
        self.any(|u| u == needle)
    }
    /// Whether any node of the graph satisfies `f`.
    pub fn any(&self, f: impl Fn(&UOp) -> bool) -> bool {
        let (mut seen, mut todo) = (Numbers::borrow_table(), vec![self]);
        let mut found = false;
        while let Some(u) = todo.pop() {
            if f(u) {
                found = true;
                break;
            }
            for s in u.src() {
                if seen.get(s).is_none() {
                    seen.set(s, 0);
                    todo.push(s);
                }
            }
        }
        seen.give_back();
        found
    }
}

/// Nodes reachable from `roots`, sources first, each once; `enter` false: listed, but not what is below.
pub fn toposort_many(roots: &[UOp], enter: impl Fn(&UOp) -> bool) -> Vec<UOp> {
    Order::many(roots, enter).nodes.iter().map(|u| (*u).clone()).collect()
}

/// The open ranges of every node of `order`, by number (see [`UOp::open_ranges`]); ranges by number too.
pub fn open_numbers(order: &Order) -> Vec<SmallVec<[u32; 6]>> {
    let mut all: Vec<SmallVec<[u32; 6]>> = Vec::with_capacity(order.len());
    for (k, u) in order.nodes.iter().enumerate() {
        let srcs = order.srcs(k);
        let closed = match u.op() {
            Op::Reduce | Op::WaveReduce => 1,
            Op::Store => 2,
            Op::Wmma => 3,
            Op::End => 0,
            _ => usize::MAX,
        };
        let mut open: SmallVec<[u32; 6]> = SmallVec::new();
        let mut merge = |from: &[u32]| {
            for r in from {
                if !open.contains(r) {
                    open.push(*r);
                }
            }
        };
        for (j, s) in srcs.iter().enumerate() {
            if j >= closed && order.nodes[*s as usize].op() == Op::Range {
                // The bound of a closed range is still evaluated outside of the loop.
                order.srcs(*s as usize).iter().for_each(|e| merge(&all[*e as usize]));
            } else {
                merge(&all[*s as usize]);
            }
        }
        if let Some(shut) = srcs.get(closed.min(srcs.len())..) {
            open.retain(|r| !shut.contains(r));
        }
        if u.op() == Op::Range {
            open.push(k as u32);
        }
        all.push(open);
    }
    all
}

/// Fills `memo` with the open ranges of every node below `root` (see [`UOp::open_ranges`]).
pub fn open_ranges(root: &UOp, memo: &mut UMap<Vec<UOp>>) {
    let order = Order::of(root);
    memo.reserve(order.len());
    for (u, open) in order.nodes.iter().zip(open_numbers(&order)) {
        memo.insert((*u).clone(), open.iter().map(|r| order.nodes[*r as usize].clone()).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AxisKind, DType};

    #[test]
    fn a_reduce_closes_its_ranges_and_keeps_the_outer_ones() {
        let (r0, r1) = (UOp::range(4, 0, AxisKind::Loop), UOp::range(5, 1, AxisKind::Reduce));
        let x = UOp::param(1, DType::F32, 20).index(&(&(&r0 * 5) + &r1)).load();
        let s = x.reduce(Op::Add, std::slice::from_ref(&r1));
        assert_eq!(x.open_ranges(), vec![r0.clone(), r1]);
        assert_eq!(s.open_ranges(), vec![r0.clone()]);
        let st = UOp::param(0, DType::F32, 4).index(&r0).store(&s, &[r0]);
        assert!(st.open_ranges().is_empty());
    }

    #[test]
    fn substitution_replaces_every_occurrence_and_nothing_else() {
        let (a, b) = (UOp::var("a", 0, 9), UOp::var("b", 0, 9));
        let e = &(&a * 2) + &(&a + 1);
        let map: UMap<UOp> = [(a.clone(), b.clone())].into_iter().collect();
        assert_eq!(e.substitute(&map), &(&b * 2) + &(&b + 1));
    }
}

//! Walks over a graph: order, replacement, open ranges. All iterative.

use super::{Op, Srcs, UMap, UOp, USet};

impl UOp {
    /// Every node reachable from this one, sources before users, each once; the order depends on structure only.
    pub fn toposort(&self) -> Vec<UOp> {
        toposort_many(std::slice::from_ref(self), |_| true)
    }

    /// As `toposort`; does not go below nodes for which `enter` is false (they are listed themselves).
    pub fn toposort_if(&self, enter: impl Fn(&UOp) -> bool) -> Vec<UOp> {
        toposort_many(std::slice::from_ref(self), enter)
    }

    /// This graph with nodes replaced. Replacements are final: they are not searched again.
    pub fn substitute(&self, map: &UMap<UOp>) -> UOp {
        if map.is_empty() {
            return self.clone();
        }
        let mut done: UMap<UOp> = UMap::default();
        for u in self.toposort_if(|u| !map.contains_key(u)) {
            let new = match map.get(&u) {
                Some(n) => n.clone(),
                // PANIC: toposort lists sources first.
                None => u.with_src(u.src().iter().map(|s| done[s].clone()).collect::<Srcs>()),
            };
            done.insert(u, new);
        }
        done.remove(self).unwrap_or_else(|| self.clone())
    }

    /// Ranges this value depends on and nothing below it has closed (kernel graph), in order of first appearance.
    /// Reduce closes its ranges, Store closes its own, End closes its range.
    pub fn open_ranges(&self) -> Vec<UOp> {
        let mut memo: UMap<Vec<UOp>> = UMap::default();
        open_ranges(self, &mut memo);
        memo.remove(self).unwrap_or_default()
    }

    /// Whether `needle` is this node or below it.
    pub fn contains(&self, needle: &UOp) -> bool {
        self.any(|u| u == needle)
    }
    /// Whether any node of the graph satisfies `f`.
    pub fn any(&self, f: impl Fn(&UOp) -> bool) -> bool {
        let (mut seen, mut todo) = (USet::default(), vec![self.clone()]);
        while let Some(u) = todo.pop() {
            if f(&u) {
                return true;
            }
            if seen.insert(u.clone()) {
                todo.extend(u.src().iter().cloned());
            }
        }
        false
    }
}

/// Nodes reachable from `roots`, sources first, each once; `enter` false: listed, but not what is below.
pub fn toposort_many(roots: &[UOp], enter: impl Fn(&UOp) -> bool) -> Vec<UOp> {
    let (mut out, mut seen) = (Vec::new(), USet::default());
    let mut stack: Vec<(UOp, bool)> = roots.iter().rev().map(|r| (r.clone(), false)).collect();
    while let Some((u, expanded)) = stack.pop() {
        if expanded {
            out.push(u);
        } else if seen.insert(u.clone()) {
            let below = enter(&u);
            stack.push((u.clone(), true));
            if below {
                stack.extend(u.src().iter().rev().filter(|s| !seen.contains(*s)).map(|s| (s.clone(), false)));
            }
        }
    }
    out
}

/// Fills `memo` with the open ranges of every node below `root` (see [`UOp::open_ranges`]).
pub fn open_ranges(root: &UOp, memo: &mut UMap<Vec<UOp>>) {
    for u in toposort_many(std::slice::from_ref(root), |_| true) {
        if memo.contains_key(&u) {
            continue;
        }
        let mut open: Vec<UOp> = Vec::new();
        let closed = match u.op() {
            Op::Reduce => 1,
            Op::Store => 2,
            Op::Wmma => 3,
            Op::End => 0,
            _ => usize::MAX,
        };
        for (k, s) in u.src().iter().enumerate() {
            if k >= closed && s.op() == Op::Range {
                // The bound of a closed range still belongs to the outside.
                for e in s.src() {
                    merge(&mut open, &memo[e]);
                }
            } else {
                merge(&mut open, &memo[s]);
            }
        }
        if closed != usize::MAX {
            let shut: USet = u.src()[closed.min(u.src().len())..].iter().cloned().collect();
            open.retain(|r| !shut.contains(r));
        }
        if u.op() == Op::Range {
            open.push(u.clone());
        }
        memo.insert(u, open);
    }
}

fn merge(into: &mut Vec<UOp>, from: &[UOp]) {
    for r in from {
        if !into.contains(r) {
            into.push(r.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uop::{AxisKind, DType};

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

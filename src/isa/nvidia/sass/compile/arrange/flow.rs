//! Convergence: the threads of a warp that diverge at a branch reconverge where the branch's paths join.
//!
//! For a branch that may diverge, the active threads are recorded (BSSY) in a block that dominates all paths, and
//! waited for (BSYNC) at the first block on all paths (the post-dominator). If a loop is between the two, the BSSY
//! moves in front of the loop, so that it executes once. Source: dominators by Cooper, Harvey and Kennedy.

use crate::sass::compile::AsmError;
use crate::sass::compile::mir::{Block, Code, Mach, Nature, ONE, Term};
use crate::sass::{mods, op};
use smallvec::SmallVec;

const NONE: usize = usize::MAX;

/// Convergence barriers that a warp has.
const BARRIERS: u8 = 16;

/// The control-flow graph; the exit is a node after the blocks, with room for new blocks.
struct Graph {
    succ: Vec<SmallVec<[usize; 2]>>,
    pred: Vec<SmallVec<[usize; 2]>>,
    exit: usize,
    /// Immediate dominators, and post-dominators.
    idom: Vec<usize>,
    ipdom: Vec<usize>,
    /// The number of the last walk that visited each node, and the number of walks.
    seen: Vec<u32>,
    walks: u32,
}

impl Graph {
    /// The graph of the code, with room for so many additional blocks.
    fn new(code: &Code, more: usize) -> Graph {
        let exit = code.blocks.len() + more;
        let (mut succ, mut pred) = (vec![SmallVec::new(); exit + 1], vec![SmallVec::new(); exit + 1]);
        for b in &code.order {
            let mut next = code.successors(*b);
            if next.is_empty() {
                next.push(exit);
            }
            next.iter().for_each(|s| pred[*s].push(*b));
            succ[*b] = next;
        }
        let idom = dominators(&succ, &pred, code.order[0]);
        let ipdom = dominators(&pred, &succ, exit);
        Graph { succ, pred, exit, idom, ipdom, seen: vec![0; exit + 1], walks: 0 }
    }

    fn post_dominates(&self, j: usize, b: usize) -> bool {
        leads_up(&self.ipdom, b, j)
    }

    fn dominates(&self, d: usize, b: usize) -> bool {
        leads_up(&self.idom, b, d)
    }

    /// Blocks on paths from d that have not reached j; valid for `is_inside` until the next walk.
    fn region(&mut self, d: usize, j: usize) -> Vec<usize> {
        self.walks += 1;
        let mut inside = vec![];
        let mut work: SmallVec<[usize; 16]> = self.succ[d].iter().copied().collect();
        while let Some(b) = work.pop() {
            if b != j && self.seen[b] != self.walks {
                self.seen[b] = self.walks;
                inside.push(b);
                self.succ[b].iter().for_each(|s| work.push(*s));
            }
        }
        inside
    }

    fn is_inside(&self, b: usize) -> bool {
        self.seen[b] == self.walks
    }

    /// Where to put BSSY and BSYNC for the branch that ends a block.
    fn join(&mut self, branch: usize) -> Option<(usize, usize)> {
        let (mut d, mut j) = (branch, self.ipdom[branch]);
        loop {
            if d == NONE || j == NONE || j == self.exit {
                return None;
            }
            if d == j || !self.post_dominates(j, d) {
                j = self.ipdom[j];
                continue;
            }
            let inside = self.region(d, j);
            let entered = |b: usize| self.pred[b].iter().any(|p| !self.is_inside(*p) && *p != d);
            let single = inside.iter().filter(|b| **b != self.exit).all(|b| !entered(*b));
            if self.is_inside(d) || self.is_inside(self.exit) || !single {
                let up = self.idom[d];
                if up == d {
                    return None;
                }
                d = up;
                continue;
            }
            return Some((d, j));
        }
    }

    /// Inserts a new block between j and its predecessors inside the region.
    fn divide(&mut self, j: usize, join: usize) {
        let (from, others): (Vec<usize>, Vec<usize>) = self.pred[j].iter().partition(|p| self.is_inside(**p));
        for b in &from {
            self.succ[*b].iter_mut().filter(|s| **s == j).for_each(|s| *s = join);
        }
        self.pred[join] = from.into_iter().collect();
        self.pred[j] = others.into_iter().chain([join]).collect();
        self.succ[join] = [j].into_iter().collect();
    }
}

/// Immediate dominators of what is reachable from the root; the root's is itself.
fn dominators(succ: &[SmallVec<[usize; 2]>], pred: &[SmallVec<[usize; 2]>], root: usize) -> Vec<usize> {
    let n = succ.len();
    let (mut order, mut seen) = (Vec::with_capacity(n), vec![false; n]);
    let mut stack = vec![(root, 0)];
    seen[root] = true;
    while let Some((b, k)) = stack.pop() {
        match succ[b].get(k) {
            Some(s) => {
                stack.push((b, k + 1));
                if !seen[*s] {
                    seen[*s] = true;
                    stack.push((*s, 0));
                }
            }
            None => order.push(b),
        }
    }
    let mut number = vec![NONE; n];
    order.iter().enumerate().for_each(|(k, b)| number[*b] = k);
    let mut idom = vec![NONE; n];
    idom[root] = root;
    let mut changed = true;
    while changed {
        changed = false;
        for b in order.iter().rev().filter(|b| **b != root) {
            let mut new = NONE;
            for p in pred[*b].iter().filter(|p| idom[**p] != NONE) {
                new = if new == NONE { *p } else { meet(&idom, &number, new, *p) };
            }
            if new != idom[*b] {
                idom[*b] = new;
                changed = true;
            }
        }
    }
    idom
}

/// Whether a node is an ancestor of another in a tree of parents, or the same.
fn leads_up(parents: &[usize], from: usize, to: usize) -> bool {
    let mut at = from;
    while at != to {
        let up = parents[at];
        if up == NONE || up == at {
            return false;
        }
        at = up;
    }
    true
}

fn meet(idom: &[usize], number: &[usize], mut a: usize, mut b: usize) -> usize {
    while a != b {
        while number[a] < number[b] {
            a = idom[a];
        }
        while number[b] < number[a] {
            b = idom[b];
        }
    }
    a
}

/// A loop: its blocks, and its only predecessor outside.
pub(crate) struct Loop {
    pub blocks: Vec<usize>,
    pub before: usize,
}

/// The loops with a single entry edge, inner ones first.
pub(crate) fn loops(code: &Code) -> Vec<Loop> {
    if !crate::sass::compile::allocate::live::goes_back(code, &code.order) {
        return vec![];
    }
    let graph = Graph::new(code, 0);
    let mut out = vec![];
    for head in &code.order {
        let back: Vec<usize> = graph.pred[*head].iter().copied().filter(|b| graph.dominates(*head, *b)).collect();
        if back.is_empty() {
            continue;
        }
        let (mut blocks, mut work) = (vec![*head], back);
        while let Some(b) = work.pop() {
            if !blocks.contains(&b) {
                blocks.push(b);
                work.extend(&graph.pred[b]);
            }
        }
        let mut before = graph.pred[*head].iter().filter(|b| !blocks.contains(b));
        if let (Some(b), None) = (before.next(), before.next()) {
            out.push(Loop { before: *b, blocks });
        }
    }
    out.sort_unstable_by_key(|l| (l.blocks.len(), l.before));
    out
}

/// Removes unreachable blocks.
pub(super) fn reachable(code: &mut Code) {
    let mut seen = vec![false; code.blocks.len()];
    let mut work = vec![code.order[0]];
    while let Some(b) = work.pop() {
        if !std::mem::replace(&mut seen[b], true) {
            work.extend(code.successors(b));
        }
    }
    code.order.retain(|b| seen[*b]);
}

/// Inserts convergence barriers.
pub(crate) fn converge(code: &mut Code) -> Result<(), AsmError> {
    let divides = |b: &usize| matches!(code.blocks[*b].term, Term::Branch(_, x, y, false) if x != y);
    let branches: Vec<usize> = code.order.iter().copied().filter(divides).collect();
    if branches.is_empty() && code.meets.is_empty() {
        return Ok(());
    }
    let mut graph = Graph::new(code, branches.len() + code.meets.len());
    let mut pairs: Vec<(usize, usize, usize)> = vec![];
    for b in branches {
        let Some((d, j)) = graph.join(b) else { continue };
        let ends = code.blocks[j].ops.is_empty() && code.blocks[j].term == Term::Exit;
        if !ends && !pairs.iter().any(|p| (p.1, p.2) == (d, j)) {
            let size = graph.region(d, j).len();
            if !strays(code, &graph) {
                pairs.push((size, d, j));
            }
        }
    }
    for (d, j) in code.meets.clone() {
        // Only in reachable blocks.
        if code.order.contains(&d) && code.order.contains(&j) {
            pairs.push((1, d, j));
        }
    }
    // A branch on the path of an outer divergence to the same reconvergence point needs no barrier of its own.
    let all = pairs.clone();
    let mut within = |e: usize, d: usize, j: usize| {
        graph.region(e, j);
        graph.is_inside(d)
    };
    pairs.retain(|(_, d, j)| !all.iter().any(|(_, e, k)| k == j && e != d && within(*e, *d, *j)));
    pairs.sort_unstable();
    // The barriers in use in each block.
    let mut taken: Vec<u32> = vec![0; graph.exit + 1];
    for (_, d, j) in pairs {
        let mut inside = graph.region(d, j);
        inside.push(d);
        let n = inside.iter().fold(0, |all, b| all | taken[*b]).trailing_ones();
        if n >= u32::from(BARRIERS) {
            let pos = code.blocks[d].ops.last().map_or_else(Default::default, |m| m.pos);
            return Err(AsmError::new(
                pos,
                "branches are nested deeper than the 16 convergence barriers of a warp".into(),
            ));
        }
        inside.iter().filter(|b| **b != graph.exit).for_each(|b| taken[*b] |= 1 << n);
        graph.seen[d] = graph.walks;
        insert(code, &mut graph, d, j, n as u8);
    }
    let all = taken.iter().fold(0, |all, n| all | n);
    let used = (0..BARRIERS).filter(|n| all >> n & 1 == 1).collect::<Vec<u8>>();
    save(code, &used);
    Ok(())
}

/// Whether threads may leave some of these blocks at unrelated times.
fn strays(code: &Code, graph: &Graph) -> bool {
    code.strays.iter().any(|b| graph.is_inside(*b))
}

/// A function must preserve the convergence barriers that it uses.
fn save(code: &mut Code, used: &[u8]) {
    let Some(last) = code.returns else { return };
    let first = code.order[0];
    for (k, n) in used.iter().enumerate() {
        let kept = code.vreg(ONE);
        let get = Mach::new(op::BMOV_RB).w("d", kept).n("b", u64::from(*n)).m(mods::cl::CLEAR).effect();
        code.blocks[first].ops.insert(k, get);
        let put = Mach::new(op::BMOV_BR).n("b", u64::from(*n)).r("a", kept).effect();
        let ops = &mut code.blocks[last].ops;
        let at = ops.iter().take_while(|m| m.inst.form().mnemonic == "BSYNC").count();
        ops.insert(at, put);
    }
}

/// Has threads that part at the end of block `d` wait for each other before block `j`, at barrier `n`.
fn insert(code: &mut Code, graph: &mut Graph, d: usize, j: usize, n: u8) {
    let wait = Mach::new(op::BSYNC_B).n("b", u64::from(n)).n("pp", 7).effect();
    let all_inside = graph.pred[j].iter().all(|p| graph.is_inside(*p));
    let at = if all_inside {
        let ops = &mut code.blocks[j].ops;
        let k = ops.iter().take_while(|m| m.inst.form().mnemonic == "BSYNC").count();
        ops.insert(k, wait);
        j
    } else {
        let join = code.blocks.len();
        code.blocks.push(Block { ops: vec![wait], term: Term::Jump(j) });
        for b in graph.pred[j].iter().filter(|p| graph.is_inside(**p)) {
            let to = |x: &mut usize| {
                if *x == j {
                    *x = join;
                }
            };
            match &mut code.blocks[*b].term {
                Term::Jump(x) => to(x),
                Term::Branch(_, x, y, _) | Term::Uniform(_, _, x, y) => {
                    to(x);
                    to(y);
                }
                Term::Exit => {}
            }
        }
        graph.divide(j, join);
        let place = code.order.iter().position(|b| *b == j).unwrap_or(code.order.len());
        code.order.insert(place, join);
        join
    };
    let record = Mach::new(op::BSSY_I).n("b", u64::from(n)).n("pp", 7).nature(Nature::Converge(n, at as u32)).effect();
    code.blocks[d].ops.push(record);
}

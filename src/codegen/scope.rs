//! Where every node of a kernel graph lives: the tree of loops, and for each node the outermost loop body that has all it needs.
//!
//! A Range node is one loop. The loops of a Store nest in the order of its ranges; the loops of a Reduce (or Stage) stand in
//! the innermost loop its value depends on. That a Range has one place only is what [`separate`] provides.

use super::CodegenError;
use crate::uop::{Arg, Op, Order, RangeArg, UOp, USet};
use smallvec::SmallVec;

/// Scope 0: outside of all loops.
pub(super) const ROOT: u32 = 0;
/// Level of loops that store (see [`Scope::level`]).
pub(super) const STORES: u32 = u32::MAX;

#[derive(Clone, Copy)]
pub(super) struct Scope {
    pub parent: u32,
    pub depth: u32,
    /// Number of the Range node (the root has none).
    pub range: u32,
    /// How many reductions stand below one another in what this loop computes: reductions may share a loop only on the same
    /// level, so that none waits for another's result.
    pub level: u32,
}

type RangeSet = SmallVec<[u16; 8]>;

/// A kernel graph with its loops placed. Nodes are numbered in topological order.
pub(super) struct Scopes<'a> {
    pub order: Order<'a>,
    pub scopes: Vec<Scope>,
    /// Scope of each node's value; of a Range: its own body; of a Store of the sink: the body that holds it.
    pub scope: Vec<u32>,
    /// Stores that the sink lists (others fill scratch areas and are placed as reductions are).
    pub root_store: Vec<bool>,
}

/// A Range that two places want; the nodes (Reduce, Stage, Store) of the second place.
struct Clash {
    range: UOp,
    users: Vec<UOp>,
    /// Nodes in which the range is open.
    open: USet,
}

enum Failed {
    Clash(Clash),
    Error(CodegenError),
}

/// First of the sources that are closed ranges. (`SetAcc` with ranges is what a Reduce becomes before the list is made.)
pub(super) fn first_range(op: Op) -> Option<usize> {
    match op {
        Op::Reduce | Op::Stage | Op::WaveReduce => Some(1),
        Op::Store | Op::SetAcc => Some(2),
        // In a kernel graph: the lanes of its operands.
        Op::Wmma => Some(3),
        _ => None,
    }
}

impl<'a> Scopes<'a> {
    /// # Errors
    /// A range that no Store or Reduce closes, or loops that cross.
    pub fn of(sink: &'a UOp) -> Result<Scopes<'a>, CodegenError> {
        Scopes::build(sink).map_err(|f| match f {
            Failed::Error(e) => e,
            Failed::Clash(c) => CodegenError::CrossedLoops(c.range.render()),
        })
    }

    fn build(sink: &'a UOp) -> Result<Scopes<'a>, Failed> {
        let order = Order::of(sink);
        let n = order.len();
        let root = Scope { parent: ROOT, depth: 0, range: u32::MAX, level: 0 };
        let mut root_store = vec![false; n];
        for &k in order.srcs(n - 1) {
            root_store[k as usize] = order.nodes()[k as usize].op() == Op::Store;
        }
        let mut s = Scopes { order, scopes: vec![root], scope: vec![ROOT; n], root_store };
        let mut b = Builder::new(&s);
        b.open_sets(&s);
        b.place_stores(&mut s)?;
        b.place_reductions(&mut s)?;
        for k in 0..n {
            if s.node(k).op() != Op::Range && !s.root_store[k] {
                s.scope[k] = b.deepest(&s, k)?;
            }
        }
        Ok(s)
    }

    pub fn node(&self, k: usize) -> &'a UOp {
        self.order.nodes()[k]
    }
    pub fn srcs(&self, k: usize) -> &[u32] {
        self.order.srcs(k)
    }
    /// The loop directly inside `outer` on the way to `inner`.
    pub fn child_towards(&self, outer: u32, mut inner: u32) -> u32 {
        while self.scopes[inner as usize].parent != outer {
            inner = self.scopes[inner as usize].parent;
        }
        inner
    }
    pub fn depth(&self, scope: u32) -> u32 {
        self.scopes[scope as usize].depth
    }
    /// Whether loops end here whose result has users: a reduction, or a scratch area that is filled.
    pub fn is_unit(&self, k: usize) -> bool {
        first_range(self.node(k).op()).is_some_and(|f| self.srcs(k).len() > f) && !self.root_store[k]
    }
    /// Scope of the outermost loop of a unit.
    pub fn outermost(&self, k: usize) -> u32 {
        let first = first_range(self.node(k).op()).unwrap_or(0);
        self.scope[self.srcs(k)[first] as usize]
    }
    /// Innermost scope of what stands below a unit or Store: the body of its last loop.
    pub fn body(&self, k: usize) -> u32 {
        match first_range(self.node(k).op()) {
            Some(f) if self.srcs(k).len() > f => self.scope[*self.srcs(k).last().unwrap_or(&0) as usize],
            _ => self.scope[k],
        }
    }
}

impl Clash {
    /// `user` with its own range in place of the shared one; inner reductions that have closed it keep theirs.
    fn rename(&self, user: &UOp, new: &UOp) -> UOp {
        let enter = |u: &UOp| u == user || self.open.contains(u);
        user.rebuild_if(enter, |r, u| {
            if *u == self.range {
                new.clone()
            } else if enter(u) {
                r.same()
            } else {
                u.clone()
            }
        })
    }
}

struct Builder {
    /// Range node of each range number, and back (u16::MAX: no range).
    ranges: Vec<u32>,
    number: Vec<u16>,
    open: Vec<RangeSet>,
    level: Vec<u32>,
    placed: Vec<bool>,
}

impl Builder {
    fn new(s: &Scopes) -> Builder {
        let n = s.order.len();
        let mut b = Builder {
            ranges: vec![],
            number: vec![u16::MAX; n],
            open: std::iter::repeat_with(RangeSet::new).take(n).collect(),
            level: vec![0; n],
            placed: vec![false; n],
        };
        for (k, u) in s.order.nodes().iter().enumerate() {
            if u.op() == Op::Range {
                b.number[k] = b.ranges.len() as u16;
                b.ranges.push(k as u32);
            }
        }
        b
    }

    fn open_sets(&mut self, s: &Scopes) {
        // What is computed from a register changes with each step of the loops that update it.
        for k in (0..s.order.len()).filter(|k| s.node(*k).op() == Op::SetAcc) {
            let acc = s.srcs(k)[0] as usize;
            self.open[acc] = s.srcs(k)[2..].iter().map(|r| self.number[*r as usize]).collect();
        }
        for k in 0..s.order.len() {
            let op = s.node(k).op();
            let closed = first_range(op).unwrap_or(usize::MAX);
            let mut open = std::mem::take(&mut self.open[k]);
            let mut level = 0;
            for (j, &src) in s.srcs(k).iter().enumerate() {
                level = level.max(self.level[src as usize]);
                for &r in &self.open[src as usize] {
                    let shut = j >= closed && self.number[src as usize] == r;
                    if !shut && !open.contains(&r) {
                        open.push(r);
                    }
                }
            }
            if let Some(shut) = s.srcs(k).get(closed..) {
                open.retain(|r| !shut.iter().any(|x| self.number[*x as usize] == *r));
            }
            if op == Op::Range {
                open.push(self.number[k]);
            }
            self.level[k] = level + s.is_unit(k) as u32;
            self.open[k] = open;
        }
    }

    /// Puts loop `range` directly inside `parent`; clash: it stands elsewhere already.
    fn place(&mut self, s: &mut Scopes, range: u32, parent: u32, level: u32) -> Option<u32> {
        let r = range as usize;
        if self.placed[r] {
            let sc = &s.scopes[s.scope[r] as usize];
            return (sc.parent == parent && sc.level == level).then_some(s.scope[r]);
        }
        self.placed[r] = true;
        let depth = s.scopes[parent as usize].depth + 1;
        s.scope[r] = s.scopes.len() as u32;
        s.scopes.push(Scope { parent, depth, range, level });
        Some(s.scope[r])
    }

    fn place_all(&mut self, s: &mut Scopes, k: usize, mut at: u32, level: u32) -> Result<u32, Failed> {
        let first = first_range(s.node(k).op()).unwrap_or(0);
        for j in first..s.srcs(k).len() {
            let r = s.srcs(k)[j];
            match self.place(s, r, at, level) {
                Some(inner) => at = inner,
                None => return Err(Failed::Clash(self.clash(s, k, r, at, level))),
            }
        }
        Ok(at)
    }

    /// All that would go into the same second place of `range`.
    fn clash(&self, s: &Scopes, k: usize, range: u32, at: u32, level: u32) -> Clash {
        let mut users = vec![s.node(k).clone()];
        for (j, u) in s.order.nodes().iter().enumerate() {
            let Some(first) = first_range(u.op()) else { continue };
            let same_kind = s.root_store[j] == (level == STORES);
            if j == k || !same_kind || s.srcs(j).get(first) != Some(&range) || s.srcs(k).get(first) != Some(&range) {
                continue;
            }
            let here = level == STORES || self.level[j] == level && self.deepest(s, j).is_ok_and(|d| d == at);
            if here {
                users.push((*u).clone());
            }
        }
        let r = self.number[range as usize];
        let open =
            s.order.nodes().iter().zip(&self.open).filter(|(_, o)| o.contains(&r)).map(|(u, _)| (*u).clone()).collect();
        Clash { range: s.node(range as usize).clone(), users, open }
    }

    fn place_stores(&mut self, s: &mut Scopes) -> Result<(), Failed> {
        for k in 0..s.order.len() {
            if s.root_store[k] {
                s.scope[k] = self.place_all(s, k, ROOT, STORES)?;
            }
        }
        Ok(())
    }

    /// Outer reductions first: their loops are what inner ones stand in.
    fn place_reductions(&mut self, s: &mut Scopes) -> Result<(), Failed> {
        for k in (0..s.order.len()).rev() {
            if s.is_unit(k) {
                let at = self.deepest(s, k)?;
                self.place_all(s, k, at, self.level[k])?;
            }
        }
        Ok(())
    }

    fn deepest(&self, s: &Scopes, k: usize) -> Result<u32, Failed> {
        let mut at = ROOT;
        for &r in &self.open[k] {
            let range = self.ranges[r as usize] as usize;
            if !self.placed[range] {
                return Err(Failed::Error(CodegenError::OpenRange(s.node(range).render())));
            }
            let sc = s.scope[range];
            if s.depth(sc) > s.depth(at) {
                at = sc;
            }
        }
        // All open loops must lie on the way to the deepest one.
        for &r in &self.open[k] {
            let sc = s.scope[self.ranges[r as usize] as usize];
            let mut up = at;
            while s.depth(up) > s.depth(sc) {
                up = s.scopes[up as usize].parent;
            }
            if up != sc {
                return Err(Failed::Error(CodegenError::CrossedLoops(format!("{:?}", s.node(k)))));
            }
        }
        Ok(at)
    }
}

/// Gives every loop its own Range node: where one node would have to be two loops (reductions that wait for one another,
/// stores that nest differently), the second place gets a fresh one.
pub(super) fn separate(sink: &UOp) -> Result<UOp, CodegenError> {
    let mut sink = sink.clone();
    loop {
        let clash = match Scopes::build(&sink).map(|_| ()) {
            Ok(()) => return Ok(sink),
            Err(Failed::Error(e)) => return Err(e),
            Err(Failed::Clash(c)) => c,
        };
        let new = fresh(&sink, &clash.range);
        let renamed = |u: &UOp| clash.users.contains(u).then(|| clash.rename(u, &new));
        sink = sink.rebuild(|r, u| renamed(u).unwrap_or_else(|| r.same()));
    }
}

/// A range like `r` that does not occur in `sink`.
fn fresh(sink: &UOp, r: &UOp) -> UOp {
    let arg = r.range_arg();
    let id = arg.map_or(0, |a| a.id);
    let order = Order::of(sink);
    let ranges = order.nodes().iter().filter_map(|u| u.range_arg());
    let sub = ranges.filter(|a| a.id == id).map(|a| a.sub).max().unwrap_or(0) + 1;
    match arg {
        Some(a) => r.with_arg(Arg::Range(RangeArg { sub, ..a })),
        None => r.clone(),
    }
}

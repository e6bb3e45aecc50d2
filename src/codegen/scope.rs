//! The loop tree of a kernel graph, and for each node the outermost loop body where everything it needs is available.
//!
//! A Range node is one loop. The loops of a Store nest in the order of its ranges; the loops of a Reduce (or Stage) go
//! into the innermost loop that its value depends on. [`separate`](super::separate::separate) ensures that each Range
//! has only one position in the tree.

use super::CodegenError;
use doorbell_uop::{Op, Order, UOp};
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
    /// How many reductions are nested by data dependence in what this loop computes. Reductions may share a loop only
    /// at the same level, so that none waits for the result of another.
    pub level: u32,
}

/// Numbers of ranges.
pub(super) type RangeSet = SmallVec<[u16; 8]>;

/// A kernel graph with its loops placed in a tree. Nodes are numbered in topological order.
pub(super) struct Scopes<'a> {
    pub order: Order<'a>,
    pub scopes: Vec<Scope>,
    /// For each node the scope of its value. For a Range: its own body. For a Store of the sink: the body that contains
    /// it.
    pub scope: Vec<u32>,
    /// Whether the node is a Store listed by the sink. (Other Stores fill scratch areas and are placed like
    /// reductions.)
    pub root_store: Vec<bool>,
}

/// Why the loops of a graph cannot be placed.
pub(super) enum NotPlaced<'a> {
    /// A Range (its number) would need two positions in the tree.
    Clash(u32, Box<GraphRanges<'a>>),
    Error(CodegenError),
}

/// A graph whose loops could not be placed, with the ranges that its nodes depend on.
pub(super) struct GraphRanges<'a> {
    pub order: Order<'a>,
    pub root_store: Vec<bool>,
    pub open: Open,
}

/// Index of the first source that is a closed range. (A Reduce becomes a `SetAcc` with ranges before the list is made.)
pub(super) fn first_range(op: Op) -> Option<usize> {
    match op {
        Op::Reduce | Op::Stage | Op::WaveReduce => Some(1),
        Op::Store | Op::SetAcc => Some(2),
        // In a kernel graph: the lane ranges of its operands.
        Op::Wmma => Some(3),
        _ => None,
    }
}

impl<'a> Scopes<'a> {
    /// # Errors
    /// A range that no Store or Reduce closes, or loops that cross.
    pub(crate) fn of(sink: &'a UOp) -> Result<Scopes<'a>, CodegenError> {
        Scopes::build(Order::of(sink)).map_err(|failed| match failed {
            NotPlaced::Error(e) => e,
            NotPlaced::Clash(range, facts) => CodegenError::CrossedLoops(facts.order.nodes()[range as usize].render()),
        })
    }

    pub(crate) fn build(order: Order<'a>) -> Result<Scopes<'a>, NotPlaced<'a>> {
        let n = order.len();
        let root = Scope { parent: ROOT, depth: 0, range: u32::MAX, level: 0 };
        let mut root_store = vec![false; n];
        for &k in order.srcs(n - 1) {
            root_store[k as usize] = order.nodes()[k as usize].op() == Op::Store;
        }
        let mut s = Scopes { order, scopes: vec![root], scope: vec![ROOT; n], root_store };
        let open = Open::of(&s);
        let mut b = Builder { placed: vec![false; n], open: &open };
        match b.place_everything(&mut s) {
            Ok(()) => Ok(s),
            Err(Failed::Error(e)) => Err(NotPlaced::Error(e)),
            Err(Failed::Clash(range)) => {
                Err(NotPlaced::Clash(range, Box::new(GraphRanges { order: s.order, root_store: s.root_store, open })))
            }
        }
    }

    pub(crate) fn node(&self, k: usize) -> &'a UOp {
        self.order.nodes()[k]
    }
    pub(crate) fn srcs(&self, k: usize) -> &[u32] {
        self.order.srcs(k)
    }
    /// The loop directly inside `outer` on the path to `inner`.
    pub(crate) fn child_towards(&self, outer: u32, mut inner: u32) -> u32 {
        while self.scopes[inner as usize].parent != outer {
            inner = self.scopes[inner as usize].parent;
        }
        inner
    }
    pub(crate) fn depth(&self, scope: u32) -> u32 {
        self.scopes[scope as usize].depth
    }
    /// Whether node `k` closes loops and its result has users: a reduction, or a scratch area that is filled.
    pub(crate) fn is_unit(&self, k: usize) -> bool {
        first_range(self.node(k).op()).is_some_and(|f| self.srcs(k).len() > f) && !self.root_store[k]
    }
    /// Scope of the outermost loop of such a node.
    pub(crate) fn outermost(&self, k: usize) -> u32 {
        let first = first_range(self.node(k).op()).unwrap_or(0);
        self.scope[self.srcs(k)[first] as usize]
    }
    /// The innermost scope of the sources of such a node, or of a Store: the body of its last loop.
    pub(crate) fn body(&self, k: usize) -> u32 {
        match first_range(self.node(k).op()) {
            Some(f) if self.srcs(k).len() > f => self.scope[*self.srcs(k).last().unwrap_or(&0) as usize],
            _ => self.scope[k],
        }
    }
}

enum Failed {
    /// This Range would need two positions in the tree.
    Clash(u32),
    Error(CodegenError),
}

/// The ranges that every node depends on.
pub(super) struct Open {
    /// Range node of each range number, and back (u16::MAX: no range).
    pub ranges: Vec<u32>,
    pub number: Vec<u16>,
    pub open: Vec<RangeSet>,
    /// The nesting depth of reductions (by data dependence) in each node, including the node itself.
    pub level: Vec<u32>,
}

impl Open {
    fn of(s: &Scopes) -> Open {
        let n = s.order.len();
        let open = std::iter::repeat_with(RangeSet::new).take(n).collect();
        let mut o = Open { ranges: vec![], number: vec![u16::MAX; n], open, level: vec![0; n] };
        for (k, u) in s.order.nodes().iter().enumerate() {
            if u.op() == Op::Range {
                o.number[k] = o.ranges.len() as u16;
                o.ranges.push(k as u32);
            }
        }
        o.open_sets(s);
        o
    }

    fn open_sets(&mut self, s: &Scopes) {
        // A value computed from a register changes with each iteration of the loops that update the register.
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
}

struct Builder<'b> {
    placed: Vec<bool>,
    open: &'b Open,
}

impl Builder<'_> {
    /// Puts loop `range` directly inside `parent`; `None`: it already has another position.
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
                None => return Err(Failed::Clash(r)),
            }
        }
        Ok(at)
    }

    fn place_everything(&mut self, s: &mut Scopes) -> Result<(), Failed> {
        let stores = (0..s.order.len()).filter(|k| s.root_store[*k]);
        // Outer reductions first, because inner reductions go into their loops.
        let units = (0..s.order.len()).rev().filter(|k| s.is_unit(*k));
        let mut error = None;
        for k in stores.chain(units).collect::<Vec<_>>() {
            match self.place_unit(s, k) {
                // This error may disappear once the clashing loops are separated.
                Err(Failed::Error(e)) => error = error.or(Some(e)),
                placed => placed?,
            }
        }
        if let Some(e) = error {
            return Err(Failed::Error(e));
        }
        for k in 0..s.order.len() {
            if s.node(k).op() != Op::Range && !s.root_store[k] {
                s.scope[k] = self.deepest(s, k).map_err(Failed::Error)?;
            }
        }
        Ok(())
    }

    fn place_unit(&mut self, s: &mut Scopes, k: usize) -> Result<(), Failed> {
        if s.root_store[k] {
            s.scope[k] = self.place_all(s, k, ROOT, STORES)?;
        } else {
            let at = self.deepest(s, k).map_err(Failed::Error)?;
            self.place_all(s, k, at, self.open.level[k])?;
        }
        Ok(())
    }

    fn deepest(&self, s: &Scopes, k: usize) -> Result<u32, CodegenError> {
        let mut at = ROOT;
        for &r in &self.open.open[k] {
            let range = self.open.ranges[r as usize] as usize;
            if !self.placed[range] {
                return Err(CodegenError::OpenRange(s.node(range).render()));
            }
            let sc = s.scope[range];
            if s.depth(sc) > s.depth(at) {
                at = sc;
            }
        }
        // All open loops must be on the path to the deepest one.
        for &r in &self.open.open[k] {
            let sc = s.scope[self.open.ranges[r as usize] as usize];
            let mut up = at;
            while s.depth(up) > s.depth(sc) {
                up = s.scopes[up as usize].parent;
            }
            if up != sc {
                return Err(CodegenError::CrossedLoops(format!("{:?}", s.node(k))));
            }
        }
        Ok(at)
    }
}

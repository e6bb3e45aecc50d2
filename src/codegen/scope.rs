//! Where every node of a kernel graph lives: the tree of loops, and for each node the outermost loop body that has all it needs.
//!
//! A Range node is one loop. The loops of a Store nest in the order of its ranges; the loops of a Reduce (or Stage) stand in
//! the innermost loop its value depends on. That a Range has one place only is what [`separate`] provides.

use super::CodegenError;
use crate::uop::{Arg, Op, Order, RangeArg, Srcs, UOp};
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

/// A Range that two places want: its node, and the nodes (Reduce, Stage, Store) of the second place; by number.
struct Clash {
    range: u32,
    users: Vec<u32>,
}

enum Failed {
    Clash(Clash),
    Error(CodegenError),
}

/// Why the loops cannot be placed.
enum NotPlaced {
    /// Clashes that can be mended at once, with what each renamed range is open in (by number of the node).
    Clashes {
        clashes: Vec<Clash>,
        open: Vec<Vec<bool>>,
    },
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
        let order = Order::of(sink);
        Scopes::build(order).map_err(|failed| match *failed {
            (NotPlaced::Error(e), _) => e,
            (NotPlaced::Clashes { clashes, .. }, order) => {
                let range = clashes.first().map(|c| order.nodes()[c.range as usize].render());
                CodegenError::CrossedLoops(range.unwrap_or_default())
            }
        })
    }

    fn build(order: Order<'a>) -> Result<Scopes<'a>, Box<(NotPlaced, Order<'a>)>> {
        let n = order.len();
        let root = Scope { parent: ROOT, depth: 0, range: u32::MAX, level: 0 };
        let mut root_store = vec![false; n];
        for &k in order.srcs(n - 1) {
            root_store[k as usize] = order.nodes()[k as usize].op() == Op::Store;
        }
        let mut s = Scopes { order, scopes: vec![root], scope: vec![ROOT; n], root_store };
        let mut b = Builder::new(&s);
        b.open_sets(&s);
        match b.place_everything(&mut s) {
            Ok(()) => Ok(s),
            Err(f) => Err(Box::new((f, s.order))),
        }
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

struct Builder {
    /// Range node of each range number, and back (u16::MAX: no range).
    ranges: Vec<u32>,
    number: Vec<u16>,
    open: Vec<RangeSet>,
    level: Vec<u32>,
    placed: Vec<bool>,
    /// What has clashed so far.
    clashes: Vec<Clash>,
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
            clashes: vec![],
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
        let mut users = vec![k as u32];
        for (j, u) in s.order.nodes().iter().enumerate() {
            let Some(first) = first_range(u.op()) else { continue };
            let same_kind = s.root_store[j] == (level == STORES);
            if j == k || !same_kind || s.srcs(j).get(first) != Some(&range) || s.srcs(k).get(first) != Some(&range) {
                continue;
            }
            let here = level == STORES || self.level[j] == level && self.deepest(s, j).is_ok_and(|d| d == at);
            if here {
                users.push(j as u32);
            }
        }
        Clash { range, users }
    }

    fn place_everything(&mut self, s: &mut Scopes) -> Result<(), NotPlaced> {
        let mut first_error = None;
        let stores = (0..s.order.len()).filter(|k| s.root_store[*k]);
        // Outer reductions first: their loops are what inner ones stand in.
        let units = (0..s.order.len()).rev().filter(|k| s.is_unit(*k));
        for k in stores.chain(units).collect::<Vec<_>>() {
            // What stands inside a loop that will be two loops waits until it is.
            if self.clashes.iter().any(|c| self.open[k].contains(&self.number[c.range as usize])) {
                continue;
            }
            match self.place_unit(s, k) {
                Ok(()) => {}
                Err(Failed::Clash(c)) if self.is_apart(&c) => self.clashes.push(c),
                Err(Failed::Clash(_)) => {}
                Err(Failed::Error(e)) => first_error = first_error.or(Some(e)),
            }
        }
        if !self.clashes.is_empty() {
            let clashes = std::mem::take(&mut self.clashes);
            let of = |c: &Clash| self.open.iter().map(|o| o.contains(&self.number[c.range as usize])).collect();
            return Err(NotPlaced::Clashes { open: clashes.iter().map(of).collect(), clashes });
        }
        if let Some(e) = first_error {
            return Err(NotPlaced::Error(e));
        }
        for k in 0..s.order.len() {
            if s.node(k).op() != Op::Range && !s.root_store[k] {
                s.scope[k] = self.deepest(s, k).map_err(NotPlaced::Error)?;
            }
        }
        Ok(())
    }

    fn place_unit(&mut self, s: &mut Scopes, k: usize) -> Result<(), Failed> {
        if s.root_store[k] {
            s.scope[k] = self.place_all(s, k, ROOT, STORES)?;
        } else {
            let at = self.deepest(s, k).map_err(Failed::Error)?;
            self.place_all(s, k, at, self.level[k])?;
        }
        Ok(())
    }

    /// Whether no value depends on the clash's range and on that of an earlier clash.
    fn is_apart(&self, c: &Clash) -> bool {
        let of = |c: &Clash| self.number[c.range as usize];
        let new = of(c);
        let meets = |o: &RangeSet| o.contains(&new) && self.clashes.iter().any(|c| o.contains(&of(c)));
        self.clashes.iter().all(|c| of(c) != new) && !self.open.iter().any(meets)
    }

    fn deepest(&self, s: &Scopes, k: usize) -> Result<u32, CodegenError> {
        let mut at = ROOT;
        for &r in &self.open[k] {
            let range = self.ranges[r as usize] as usize;
            if !self.placed[range] {
                return Err(CodegenError::OpenRange(s.node(range).render()));
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
                return Err(CodegenError::CrossedLoops(format!("{:?}", s.node(k))));
            }
        }
        Ok(at)
    }
}

/// Gives every loop its own Range node: where one node would have to be two loops (reductions that wait for one another,
/// stores that nest differently), the second place gets a fresh one.
pub(super) fn separate(sink: &UOp) -> Result<UOp, CodegenError> {
    let mut sink = sink.clone();
    while let Some(next) = separated(&sink)? {
        sink = next;
    }
    Ok(sink)
}

/// The graph with the clashes that can be mended at once mended; `None`: there are none.
fn separated(sink: &UOp) -> Result<Option<UOp>, CodegenError> {
    let Err(failed) = Scopes::build(Order::of(sink)) else { return Ok(None) };
    match *failed {
        (NotPlaced::Error(e), _) => Err(e),
        (NotPlaced::Clashes { clashes, open }, order) => Ok(Some(renamed(&order, &clashes, &open))),
    }
}

/// The graph in which the users of each clash have a range of their own; inner reductions that have closed the shared one keep it.
fn renamed(order: &Order, clashes: &[Clash], open: &[Vec<bool>]) -> UOp {
    let mut fresh = Fresh::of(order);
    let ranges: Vec<UOp> = clashes.iter().map(|c| fresh.like(order.nodes()[c.range as usize])).collect();
    // Of each node in which a clash's range is open, what its users see; no node sees two clashes.
    let mut inside: Vec<Option<UOp>> = vec![None; order.len()];
    let mut clash_of = vec![None; order.len()];
    for (c, clash) in clashes.iter().enumerate() {
        clash.users.iter().for_each(|u| clash_of[*u as usize] = Some(c));
    }
    order.rebuild(|r, u| {
        let k = r.at;
        let own: Option<usize> = clash_of[k];
        let seen_by = |c: Option<usize>| {
            let srcs = order.srcs(k).iter().map(|s| *s as usize).enumerate();
            let sees = |s: usize| c.is_some_and(|c| open[c][s]) || own.is_some_and(|c| open[c][s]);
            let new = srcs.map(|(j, s)| match &inside[s] {
                Some(v) if sees(s) => v.clone(),
                _ => r.src(j).clone(),
            });
            u.with_src(new.collect::<Srcs>())
        };
        let view = open
            .iter()
            .position(|o| o[k])
            .map(|c| if clashes[c].range as usize == k { ranges[c].clone() } else { seen_by(Some(c)) });
        let new = if own.is_some() { seen_by(None) } else { r.same() };
        inside[k] = view;
        new
    })
}

/// Numbers that no piece of an axis has.
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

    /// A range like `r` that does not occur yet.
    fn like(&mut self, r: &UOp) -> UOp {
        let Some(a) = r.range_arg() else { return r.clone() };
        let Some(last) = self.0.iter_mut().find(|l| l.0 == a.id) else { return r.clone() };
        last.1 += 1;
        r.with_arg(Arg::Range(RangeArg { sub: last.1, ..a }))
    }
}

//! Turns a kernel graph whose loops are placed into a list of nodes in execution order.
//!
//! Every node goes into the outermost loop body where all its sources are available, just before its first user there.
//! Thus invariant code moves out of loops, and loads are near their use, which keeps few values live at a time. Stores
//! to a buffer that the kernel also reads come after the loads of their loop body.

use super::CodegenError;
use super::scope::{ROOT, STORES, Scope, Scopes, first_range};
use doorbell_uop::{AddrSpace, Arg, AxisKind, DType, Memo, Op, Srcs, UOp, USet};
use smallvec::SmallVec;

/// # Errors
/// Loops that cannot be placed (see [`Scopes`]).
pub(super) fn linearize(sink: &UOp) -> Result<Vec<UOp>, CodegenError> {
    let s = Scopes::of(sink)?;
    let mut l = Lineariser::new(&s);
    l.body(ROOT);
    Ok(l.out)
}

struct Lineariser<'a> {
    s: &'a Scopes<'a>,
    /// By scope: what must be listed before the loop opens.
    needs: Vec<Vec<u32>>,
    /// By scope: what the loop body exists for: stores, updates of registers, inner loops that contain such.
    goals: Vec<Vec<u32>>,
    /// By scope: loads of buffers that are also stored to.
    early: Vec<Vec<u32>>,
    /// By scope: reductions and filled scratch areas whose outermost loop this is.
    units: Vec<Vec<u32>>,
    /// The listed form of each node.
    new: Vec<Option<UOp>>,
    listed: Memo<()>,
    opened: Vec<bool>,
    out: Vec<UOp>,
    /// `tid == last`, if the kernel is split over threads.
    last_thread: Option<[UOp; 3]>,
}

impl<'a> Lineariser<'a> {
    fn new(s: &'a Scopes<'a>) -> Lineariser<'a> {
        let (n, m) = (s.order.len(), s.scopes.len());
        let mut l = Lineariser {
            s,
            needs: vec![vec![]; m],
            goals: vec![vec![]; m],
            early: vec![vec![]; m],
            units: vec![vec![]; m],
            new: vec![None; n],
            listed: Memo::new(),
            opened: vec![false; m],
            out: Vec::with_capacity(n + 2 * m),
            last_thread: None,
        };
        l.collect_needs();
        l.collect_goals();
        l.last_thread = s.order.nodes().iter().find(|u| kind(u) == Some(AxisKind::Thread)).map(|r| {
            let tid = special("tid", r);
            let last = UOp::constant(tid.dtype(), (r.vmax()) as i64);
            [tid.clone(), last.clone(), tid.equal(&last)]
        });
        l
    }

    /// For each edge that leaves a loop body, records its source with the loop that must wait for it.
    fn collect_needs(&mut self) {
        let s = self.s;
        // The last node is the sink.
        for k in 0..s.order.len() - 1 {
            let first = first_range(s.node(k).op()).unwrap_or(usize::MAX);
            let used_in = s.body(k);
            for &src in s.srcs(k).iter().take(first) {
                let at = s.scope[src as usize];
                if used_in != at && s.node(src as usize).op() != Op::Acc {
                    let inner = s.child_towards(at, used_in);
                    self.needs[inner as usize].push(src);
                }
            }
        }
    }

    fn collect_goals(&mut self) {
        let s = self.s;
        let stores = s.order.nodes().iter().filter(|u| u.op() == Op::Store);
        let written: USet = stores.filter_map(|u| memory(&u.src()[0])).collect();
        for k in 0..s.order.len() {
            let u = s.node(k);
            if s.root_store[k] {
                self.add_goal(k, ROOT);
            } else if s.is_unit(k) {
                self.units[s.outermost(k) as usize].push(k as u32);
                self.add_goal(k, s.outermost(k));
            } else if u.op() == Op::Load && memory(&u.src()[0]).is_some_and(|m| written.contains(&m)) {
                self.early[s.scope[k] as usize].push(k as u32);
            }
        }
    }

    /// Records `k` as a goal of its innermost loop, and each of these loops up to `outermost` as a goal of the loop
    /// around it.
    fn add_goal(&mut self, k: usize, outermost: u32) {
        let mut inner = self.s.body(k);
        self.goals[inner as usize].push(k as u32);
        while inner != outermost {
            let Scope { range, parent, .. } = self.s.scopes[inner as usize];
            if self.goals[parent as usize].contains(&range) {
                break;
            }
            self.goals[parent as usize].push(range);
            inner = parent;
        }
    }

    fn body(&mut self, scope: u32) {
        for k in std::mem::take(&mut self.early[scope as usize]) {
            self.value(k, scope);
        }
        let goals = std::mem::take(&mut self.goals[scope as usize]);
        self.chains(&goals, scope);
        for k in goals {
            self.goal(k, scope);
        }
    }

    /// Registers that accumulate several steps of an unrolled reduction: all of them take the first step, then all take
    /// the second, so that the values that a step loads are used immediately.
    fn chains(&mut self, goals: &[u32], scope: u32) {
        let s = self.s;
        let mut chains: Vec<Vec<u32>> = vec![];
        for &k in goals.iter().filter(|k| s.node(**k as usize).op() == Op::SetAcc) {
            let (mut at, mut links) = (s.srcs(k as usize)[1], vec![]);
            while is_link(s.node(at as usize)) && s.scope[at as usize] == scope {
                links.push(at);
                at = s.srcs(at as usize)[2];
            }
            links.reverse();
            chains.push(links);
        }
        let steps = chains.iter().map(Vec::len).max().unwrap_or(0);
        if chains.len() < 2 || steps < 2 {
            return;
        }
        for step in 0..steps {
            for link in chains.iter().filter_map(|c| c.get(step)) {
                self.value(*link, scope);
            }
        }
    }

    fn goal(&mut self, k: u32, scope: u32) {
        let i = k as usize;
        if self.s.node(i).op() == Op::Range {
            return self.open_loop(self.s.scope[i], scope);
        }
        // The value first: the address is not needed before it.
        for &src in self.s.srcs(i).iter().take(2).rev() {
            if self.s.node(src as usize).op() != Op::Acc {
                self.value(src, scope);
            }
        }
        // Store(index, value) and SetAcc(acc, value): drop the ranges here.
        let src: Srcs = self.mapped(k).into_iter().take(2).collect();
        let node = UOp::new(self.s.node(i).op(), DType::VOID, src, self.s.node(i).arg().clone());
        let guarded = scope == ROOT && self.s.root_store[i];
        self.guarded(guarded, |l| l.push(node));
    }

    fn mapped(&self, k: u32) -> Srcs {
        let s = self.s;
        let new = |&x: &u32| self.new[x as usize].clone().unwrap_or_else(|| s.node(x as usize).clone());
        s.srcs(k as usize).iter().map(new).collect()
    }

    fn push(&mut self, u: UOp) {
        if !self.listed.has(&u) {
            self.listed.insert(&u, ());
            self.out.push(u);
        }
    }

    /// Lists `root` and everything it needs in this scope.
    fn value(&mut self, root: u32, scope: u32) {
        let mut todo: SmallVec<[(u32, bool); 32]> = SmallVec::new();
        todo.push((root, false));
        while let Some((k, ready)) = todo.pop() {
            let i = k as usize;
            if self.new[i].is_some() {
                continue;
            }
            let unit = self.s.is_unit(i);
            if !ready {
                todo.push((k, true));
                let below: &[u32] = if unit { &self.needs[self.s.outermost(i) as usize] } else { self.s.srcs(i) };
                todo.extend(below.iter().rev().filter(|x| self.new[**x as usize].is_none()).map(|x| (*x, false)));
            } else if unit {
                self.open_loop(self.s.outermost(i), scope);
            } else {
                let src = self.mapped(k);
                let u = self.s.node(i);
                // A filled scratch area: in the list, the order expresses the dependency.
                let filled = u.op() == Op::After && u.dtype().space.is_some();
                let node = if filled { src[0].clone() } else { self.apart(u.with_src(src), k) };
                self.push(node.clone());
                self.new[i] = Some(node);
            }
        }
    }

    /// Loads of a scratch area at the same index, after different loops have filled it, are different loads. The nodes
    /// of the list no longer show which fill they depend on, so the tag `k` keeps them distinct.
    fn apart(&self, node: UOp, k: u32) -> UOp {
        let scratch =
            matches!(node.op(), Op::Load | Op::LoadMatrix) && node.src()[0].dtype().space == Some(AddrSpace::Local);
        if !scratch || !self.listed.has(&node) {
            return node;
        }
        UOp::tagged(node.op(), node.dtype(), node.src().iter().cloned().collect::<Srcs>(), node.arg().clone(), Some(k))
    }

    /// Lists a whole loop, with the registers it accumulates into before it and their results after it.
    fn open_loop(&mut self, inner: u32, outer: u32) {
        if std::mem::replace(&mut self.opened[inner as usize], true) {
            return;
        }
        for k in std::mem::take(&mut self.needs[inner as usize]) {
            self.value(k, outer);
        }
        let Scope { range, level, .. } = self.s.scopes[inner as usize];
        for &end in self.s.srcs(range as usize) {
            self.value(end, outer);
        }
        let units = std::mem::take(&mut self.units[inner as usize]);
        for &k in &units {
            let acc = self.s.srcs(k as usize)[0];
            if self.s.node(acc as usize).op() == Op::Acc {
                self.value(acc, outer);
            }
        }
        let r = self.s.node(range as usize).with_src(self.mapped(range));
        match kind(&r) {
            Some(AxisKind::Thread) => self.open_threads(range, inner),
            _ => {
                self.guarded(level == STORES && outer == ROOT, |l| {
                    l.new[range as usize] = Some(r.clone());
                    l.push(r.clone());
                    l.body(inner);
                    l.push(UOp::new(Op::End, DType::VOID, [r.clone()], Arg::None));
                });
            }
        }
        let end = UOp::new(Op::End, DType::VOID, [r], Arg::None);
        for k in units {
            let i = k as usize;
            self.new[i] = Some(if self.s.node(i).op() == Op::SetAcc {
                let acc = self.mapped(k).swap_remove(0);
                let after = UOp::new(Op::After, acc.dtype(), [acc, end.clone()], Arg::None);
                self.push(after.clone());
                after
            } else {
                end.clone()
            });
        }
    }

    /// The loop that CPU threads share: `tid` says which chunk this call runs.
    fn open_threads(&mut self, range: u32, inner: u32) {
        let node = special("tid", &self.s.node(range as usize).with_src(self.mapped(range)));
        self.new[range as usize] = Some(node.clone());
        self.push(node);
        self.body(inner);
    }

    /// In a kernel split over threads, the last thread does everything that is not split.
    fn guarded(&mut self, alone: bool, f: impl FnOnce(&mut Self)) {
        let (true, Some(cond)) = (alone, self.last_thread.clone()) else { return f(self) };
        // The tag keeps this If distinct from the others (nodes are interned).
        let tag = Some(self.out.len() as u32);
        let node = UOp::tagged(Op::If, DType::VOID, [cond[2].clone()], Arg::None, tag);
        let [tid, last, is_last] = cond;
        self.push(tid.src()[0].clone());
        for u in [tid, last, is_last, node.clone()] {
            self.push(u);
        }
        f(self);
        self.out.push(UOp::new(Op::EndIf, DType::VOID, [node], Arg::None));
    }
}

/// One step of an accumulation in a register: a MulAcc, or a product of a matrix unit of a wave.
fn is_link(u: &UOp) -> bool {
    u.op() == Op::MulAcc || u.op() == Op::Wmma && matches!(u.arg(), Arg::Wmma(w) if w.lanes > 1)
}

fn kind(u: &UOp) -> Option<AxisKind> {
    u.range_arg().map(|a| a.kind)
}

fn special(name: &str, range: &UOp) -> UOp {
    UOp::new(Op::Special, range.dtype(), [range.src()[0].clone()], Arg::Str(name.into()))
}

/// The memory that the Index of a Load or Store addresses.
fn memory(index: &UOp) -> Option<UOp> {
    index.src().first().cloned()
}

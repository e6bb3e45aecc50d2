//! Software pipelining of loads: a loop's loads are issued one iteration before the iteration that needs them.
//!
//! Done on virtual registers, for loops of one block. The loads of the first iteration go before the loop. In the loop,
//! the loads for the next iteration follow the last use of what this iteration has loaded, into the same registers,
//! after the loop counters were incremented. They run only if another iteration follows, so nothing is read that the
//! text would not read. Only weak loads are moved whose addresses depend on the loop counters and not on loaded values,
//! if nothing in the loop may write what they read and there is no barrier in it.

use super::hoist::{Group, Links, is_plain};
use crate::sass::compile::mir::{Block, Code, Mach, Nature, ONE, Pred, Term, Word, width};
use crate::sass::order::{Order, order};
use crate::sass::{RegFile, effects, guessed_latency};
use doorbell_codegen::regalloc::{Class, VReg};
use smallvec::SmallVec;

/// Words that may be in flight from one iteration to the next.
const WORDS: u32 = 24;
/// Instructions that may be moved with a load because it depends on them.
const COMPANY: usize = 24;
/// An iteration must hide at least one LEAST-th of a load's latency, and at least this many cycles.
const LEAST: u32 = 10;
const FEWEST: u32 = 6;

const NONE: u32 = u32::MAX;

/// How a loop's block uses a register, by numbers of groups.
#[derive(Clone, Copy)]
struct Use {
    writers: u32,
    first_write: u32,
    last_write: u32,
    guarded: bool,
    first_read: u32,
    /// It is also used outside the loop.
    outside: bool,
}

const UNUSED: Use =
    Use { writers: 0, first_write: NONE, last_write: 0, guarded: false, first_read: NONE, outside: false };

/// Pipelines the loads of all loops where that hides latency; returns the most registers that a loop needs in addition.
/// `stack` is live everywhere and never written.
pub(crate) fn pipeline(code: &mut Code, stack: VReg) -> u32 {
    let mut most = 0;
    let is_self_loop = |b: &&usize| code.successors(**b).contains(b) && may_hide(&code.blocks[**b].ops);
    // The first block has a predecessor outside of the code.
    let heads: SmallVec<[usize; 4]> = code.order.iter().skip(1).filter(is_self_loop).copied().collect();
    for b in heads {
        let mut from = code.order.iter().filter(|p| **p != b && code.successors(**p).contains(&b));
        let (Some(before), None) = (from.next().copied(), from.next()) else { continue };
        let uses = uses(code, b);
        let Some(pipelined) = PipelinedLoop::of(code, b, &uses, stack) else { continue };
        let words = pipelined.words();
        let Some(Rebuilt { ahead, ops, new }) = pipelined.rebuilt() else { continue };
        most = most.max(words + new.iter().map(|c| u32::from(width(*c))).sum::<u32>());
        code.classes.extend(new);
        code.blocks[b].ops = ops;
        if code.blocks[before].term == Term::Jump(b) {
            code.blocks[before].ops.extend(ahead);
        } else {
            let own = code.blocks.len();
            code.blocks.push(Block { ops: ahead, term: Term::Jump(b) });
            if let Term::Branch(_, x, y, _) = &mut code.blocks[before].term {
                [x, y].into_iter().filter(|to| **to == b).for_each(|to| *to = own);
            }
            let place = code.order.iter().position(|o| *o == b).unwrap_or(code.order.len());
            code.order.insert(place, own);
        }
    }
    most
}

/// Latency of a load in cycles.
fn latency(m: &Mach) -> u32 {
    let form = m.inst.form();
    let load = matches!(form.mnemonic, "LDG" | "LD" | "LDS" | "LDSM" | "LDL");
    if load { guessed_latency(form.pipe).into() } else { 0 }
}

/// Whether an iteration is long enough to hide some of its longest loads, if they can be moved.
fn may_hide(ops: &[Mach]) -> bool {
    let longest = ops.iter().map(latency).max().unwrap_or(0);
    let free = |m: &Mach| order(&m.inst) != Order::Fence && (latency(m) < longest || is_ahead_load(m));
    longest > 0 && ops.len() as u32 * LEAST >= longest && ops.iter().all(free)
}

/// Whether it is a load that may be issued earlier.
fn is_ahead_load(m: &Mach) -> bool {
    let weak = !m.effect && !m.is_guarded() && !m.glued && matches!(order(&m.inst), Order::Free | Order::Load(_));
    // Uniform registers are not virtual: their definitions are not tracked here.
    let uniform = || effects(&m.inst).reads.iter().any(|r| r.file == RegFile::Uniform);
    weak && matches!(m.inst.form().mnemonic, "LDG" | "LD" | "LDS" | "LDSM") && !uniform()
}

/// Start and end of each group of glued instructions.
fn groups(ops: &[Mach]) -> Vec<(usize, usize)> {
    let starts = || ops.iter().enumerate().filter(|(_, m)| !m.glued).map(|(k, _)| k);
    starts().zip(starts().skip(1).chain([ops.len()])).collect()
}

/// How a loop's block uses all registers.
fn uses(code: &Code, b: usize) -> Vec<Use> {
    let mut uses = vec![UNUSED; code.classes.len()];
    for (n, (from, to)) in (0..).zip(groups(&code.blocks[b].ops)) {
        for (m, r) in code.blocks[b].ops[from..to].iter().flat_map(|m| m.regs.iter().map(move |r| (m, r))) {
            let u = &mut uses[r.word.reg().0 as usize];
            if !r.write {
                u.first_read = u.first_read.min(n);
                continue;
            }
            u.writers += u32::from(u.writers == 0 || u.last_write != n);
            (u.first_write, u.last_write) = (u.first_write.min(n), n);
            u.guarded |= m.is_guarded();
        }
    }
    for other in code.order.iter().filter(|o| **o != b).map(|o| &code.blocks[*o]) {
        let regs = other.ops.iter().flat_map(|m| &m.regs);
        regs.for_each(|r| uses[r.word.reg().0 as usize].outside = true);
        if let Term::Branch(Pred { word: Some(w), .. }, ..) = other.term {
            uses[w.reg().0 as usize].outside = true;
        }
    }
    uses
}

/// A loop's block, and which of its groups are moved one iteration ahead.
struct PipelinedLoop<'a> {
    ops: &'a [Mach],
    uses: &'a [Use],
    classes: &'a [Class],
    /// The stack pointer.
    stack: VReg,
    groups: Vec<(usize, usize)>,
    /// The condition that another iteration follows.
    again: Pred,
    /// Per group: loads that are moved; address computations that they need; and updates of loop counters.
    loads: Vec<bool>,
    address: Vec<bool>,
    counts: Vec<bool>,
}

impl<'a> PipelinedLoop<'a> {
    fn of(code: &'a Code, b: usize, uses: &'a [Use], stack: VReg) -> Option<PipelinedLoop<'a>> {
        let Block { ops, term: Term::Branch(p, x, y, _) } = &code.blocks[b] else { return None };
        let again = if *x == b { *p } else { p.not() };
        if x == y {
            return None;
        }
        let stored = |m: &Mach| if let Order::Store(spaces) = order(&m.inst) { spaces } else { 0 };
        let stored = ops.iter().fold(0, |all, m| all | stored(m));
        let groups = groups(ops);
        let none = vec![false; groups.len()];
        let mut pipelined = PipelinedLoop {
            ops,
            uses,
            classes: &code.classes,
            stack,
            again,
            loads: none.clone(),
            address: none.clone(),
            counts: none.clone(),
            groups,
        };
        let condition = again.word?.reg();
        let at = pipelined.groups.len() as u32;
        if pipelined.use_of(condition).writers == 0 || !pipelined.gather(condition, at, false) {
            return None;
        }
        let may_go = |k: &usize| {
            let m = &ops[pipelined.groups[*k].0];
            let free = !matches!(order(&m.inst), Order::Load(spaces) if spaces & stored != 0);
            pipelined.groups[*k].1 == pipelined.groups[*k].0 + 1 && is_ahead_load(m) && free
        };
        let loads = (0..pipelined.groups.len()).filter(may_go).collect();
        pipelined.choose(loads);
        ((1..=WORDS).contains(&pipelined.words()) && !pipelined.waits()).then_some(pipelined)
    }

    /// Number of words loaded ahead.
    fn words(&self) -> u32 {
        let loads = (0..self.groups.len()).filter(|k| self.loads[*k]).map(|k| self.group(k));
        loads.flatten().flat_map(|m| &m.regs).filter(|r| r.write).map(|r| u32::from(r.count)).sum()
    }

    /// Chooses the loads whose addresses and results allow it.
    fn choose(&mut self, mut loads: Vec<usize>) {
        let none = vec![false; self.groups.len()];
        loop {
            let all = loads.clone();
            // A loaded register may be written only by moved loads, before all its readers.
            loads.retain(|k| {
                let fits = self.results(*k).all(|d| {
                    let u = self.use_of(d);
                    let own = all.iter().filter(|l| self.results(**l).any(|r| r == d)).count();
                    u.first_read != NONE && u.first_read > u.last_write && u.writers as usize == own
                });
                // Discard what was collected for a load that stays.
                (self.address, self.counts) = (none.clone(), none.clone());
                fits && self.try_load(*k)
            });
            if loads.len() == all.len() {
                break;
            }
        }
        (self.loads, self.address, self.counts) = (none.clone(), none.clone(), none);
        if let Some(w) = self.again.word {
            self.gather(w.reg(), self.groups.len() as u32, false);
        }
        for k in loads {
            self.loads[k] = true;
            self.try_load(k);
        }
    }

    fn use_of(&self, r: VReg) -> Use {
        self.uses[r.0 as usize]
    }

    fn group(&self, k: usize) -> &'a [Mach] {
        let (from, to) = self.groups[k];
        &self.ops[from..to]
    }

    fn results(&self, k: usize) -> impl Iterator<Item = VReg> + use<'a> {
        self.group(k).iter().flat_map(|m| &m.regs).filter(|r| r.write).map(|r| r.word.reg())
    }

    fn reads(&self, k: usize) -> impl Iterator<Item = VReg> + use<'a> {
        self.group(k).iter().flat_map(|m| &m.regs).filter(|r| !r.write).map(|r| r.word.reg())
    }

    /// Collects what a load's address needs; returns whether all of it is computed from loop counters.
    fn try_load(&mut self, k: usize) -> bool {
        self.reads(k).all(|r| self.gather(r, k as u32, true))
    }

    /// Collects the computation of a register that is read at a group of this iteration, as a part of an `address` or
    /// of a counter update.
    fn gather(&mut self, r: VReg, at: u32, address: bool) -> bool {
        let u = self.use_of(r);
        if r == self.stack || u.writers == 0 {
            return true;
        }
        let k = u.first_write as usize;
        if u.writers != 1 || u.guarded || !is_plain(self.group(k)) {
            return false;
        }
        // A value written only later comes from the previous iteration: it is a counter.
        let own = u.first_write < at;
        if !own && !address {
            return true;
        }
        let address = own && address;
        let list = if address { &mut self.address } else { &mut self.counts };
        if std::mem::replace(&mut list[k], true) {
            return true;
        }
        // A group may read its own result of the previous iteration.
        let from = |r: &VReg| !self.results(k).any(|w| w == *r) || self.carried(*r, k);
        let reads: SmallVec<[VReg; 8]> = self.reads(k).filter(from).collect();
        reads.into_iter().all(|r| self.gather(r, k as u32, address))
    }

    /// Whether a group reads, from the previous iteration, a register that it writes itself.
    fn carried(&self, r: VReg, k: usize) -> bool {
        let mut written: SmallVec<[Word; 4]> = SmallVec::new();
        for field in self.group(k).iter().flat_map(|m| &m.regs).filter(|f| f.word.reg() == r) {
            let mut words = (0..field.count).map(|n| field.word.plus(n));
            if field.write {
                written.extend(words);
            } else if !words.all(|w| written.contains(&w)) {
                return true;
            }
        }
        false
    }

    /// Groups of addresses that have no other use: they are moved together with the loads.
    fn moved(&self) -> Vec<bool> {
        let mut moved = vec![false; self.groups.len()];
        for k in (0..self.groups.len()).rev().filter(|k| self.address[*k] && !self.counts[*k]) {
            let own = |d: VReg| {
                let u = self.use_of(d);
                let other = |h: usize| !self.loads[h] && !moved[h] && h != k && self.reads(h).any(|r| r == d);
                let before = u.first_read <= u.first_write && (u.first_read != k as u32 || self.carried(d, k));
                !u.outside
                    && !before
                    && Some(d) != self.again.word.map(|w| w.reg())
                    && !(k..self.groups.len()).any(other)
            };
            moved[k] = self.results(k).all(own);
        }
        moved
    }

    /// Whether the iteration would wait just as long for its remaining loads, whose addresses do not depend on the
    /// moved ones.
    fn waits(&self) -> bool {
        let latency = |k: usize| latency(&self.group(k)[0]);
        let all = 0..self.groups.len();
        let longest = all.clone().filter(|k| self.loads[*k]).map(latency).max().unwrap_or(0);
        // Groups that depend on moved loads.
        let mut follows = self.loads.clone();
        for k in all.clone() {
            let from = |r: VReg| self.use_of(r).writers > 0 && follows[self.use_of(r).first_write as usize];
            follows[k] |= self.reads(k).any(from);
        }
        all.into_iter().any(|k| !follows[k] && latency(k) >= longest)
    }

    /// A group for the next iteration; address registers that this iteration still needs get other names.
    fn copy(&self, k: usize, names: &[(VReg, VReg)]) -> Vec<Mach> {
        let mut group = self.group(k).to_vec();
        let mut written: SmallVec<[Word; 4]> = SmallVec::new();
        for r in group.iter_mut().flat_map(|m| &mut m.regs) {
            let old = r.word.reg();
            let at = self.use_of(old).first_write as usize;
            // Words of its own results that the group has not written yet are those of the previous iteration.
            let own = r.write || at < k || at == k && (0..r.count).all(|n| written.contains(&r.word.plus(n)));
            if r.write {
                (0..r.count).for_each(|n| written.push(r.word.plus(n)));
            }
            if let Some((_, new)) = names.iter().find(|n| n.0 == old && own) {
                r.word = Word::of(*new).plus(r.word.sub());
            }
        }
        group
    }

    /// Registers of computations that are duplicated, with their names for the next iteration; new registers are
    /// numbered from `next`.
    fn names(&self, moved: &[bool], mut next: u32) -> Vec<(VReg, VReg)> {
        let mut names: Vec<(VReg, VReg)> = vec![];
        for k in (0..self.groups.len()).filter(|k| self.address[*k]) {
            match self.copied(k) {
                Some((from, to)) => {
                    let name = names.iter().find(|n| n.0 == from && self.use_of(from).first_write < k as u32);
                    names.push((to, name.map_or(from, |n| n.1)));
                }
                _ if moved[k] => {}
                _ => {
                    for d in self.results(k) {
                        if !names.iter().any(|n| n.0 == d) {
                            names.push((d, VReg(next)));
                            next += 1;
                        }
                    }
                }
            }
        }
        names
    }

    /// The registers of a copy of a whole register: from, to.
    fn copied(&self, k: usize) -> Option<(VReg, VReg)> {
        let group = self.group(k);
        let pair = |m: &Mach| match m.regs.as_slice() {
            [a, b] if m.nature == Nature::Copy && a.write != b.write && a.word.sub() == b.word.sub() => {
                Some(if a.write { (b.word.reg(), a.word.reg()) } else { (a.word.reg(), b.word.reg()) })
            }
            _ => None,
        };
        let first = pair(&group[0])?;
        let whole = group.len() == usize::from(width(*self.classes.get(first.1.0 as usize)?));
        (whole && group.iter().all(|m| pair(m) == Some(first))).then_some(first)
    }

    /// The rebuilt loop; `None`: too little latency would be hidden.
    fn rebuilt(&self) -> Option<Rebuilt> {
        let (moved, classes) = (self.moved(), self.classes);
        let names = self.names(&moved, classes.len() as u32);
        let new: Vec<Class> =
            names.iter().filter(|n| n.1.0 as usize >= classes.len()).map(|n| classes[n.0.0 as usize]).collect();
        let all = 0..self.groups.len();
        let stays: Vec<usize> = all.clone().filter(|k| !self.loads[*k] && !moved[*k]).collect();
        // A copy is replaced by its source.
        let goes = |k: &usize| self.loads[*k] || self.address[*k] && self.copied(*k).is_none();
        let goes: Vec<usize> = all.filter(goes).collect();
        let ahead: Vec<Mach> = goes.iter().flat_map(|k| self.copy(*k, &names)).collect();
        let mut ops: Vec<Mach> = stays.iter().flat_map(|k| self.group(*k).to_vec()).collect();
        for k in &goes {
            for mut m in self.copy(*k, &names) {
                if self.loads[*k] {
                    m.private = !self.results(*k).any(|d| self.use_of(d).outside);
                    m.guard(Some(self.again));
                }
                ops.push(m);
            }
        }
        let classes = |r: VReg| u32::from(width(classes.get(r.0 as usize).copied().unwrap_or(ONE)));
        let groups = Links::new(self.uses.len() + new.len(), self.stack).groups(&ops, &classes);
        let order = self.order(&groups, &ops, &stays, &goes);
        let mut place = vec![0; groups.len()];
        order.iter().enumerate().for_each(|(at, g)| place[*g] = at);
        let hides = |(n, k): (usize, &usize)| {
            let wanted = (0..stays.len()).filter(|s| self.reads(stays[*s]).any(|r| self.results(*k).any(|d| d == r)));
            let first = wanted.map(|s| place[s]).min().unwrap_or(0);
            let hidden = (groups.len() - place[stays.len() + n] + first) as u32;
            hidden >= FEWEST && hidden * LEAST >= latency(&self.group(*k)[0])
        };
        if !goes.iter().enumerate().filter(|(_, k)| self.loads[**k]).all(hides) {
            return None;
        }
        let ops = order.iter().flat_map(|g| ops[groups[*g].from..groups[*g].to].to_vec()).collect();
        Some(Rebuilt { ahead, ops, new })
    }

    /// The order of the groups of a block with the next iteration's loads, and what they need, at its end: each moves
    /// up to where its registers become free.
    fn order(&self, groups: &[Group], ops: &[Mach], stays: &[usize], goes: &[usize]) -> Vec<usize> {
        let (mut out, mut done) = (Vec::with_capacity(groups.len()), vec![false; groups.len()]);
        let loaded: Vec<VReg> = goes.iter().filter(|k| self.loads[**k]).flat_map(|k| self.results(*k)).collect();
        let light = |g: usize| match stays.get(g) {
            Some(k) => self.counts[*k] || is_plain(self.group(*k)) && !self.reads(*k).any(|r| loaded.contains(&r)),
            None => is_plain(&ops[groups[g].from..groups[g].to]),
        };
        // Each load, with the group before which it will be considered next.
        let loads = (0..goes.len()).filter(|n| self.loads[goes[*n]]).map(|n| (stays.len() + n, 0));
        let mut loads: Vec<(usize, usize)> = loads.collect();
        for g in 0..groups.len() {
            if !std::mem::replace(&mut done[g], true) {
                out.push(g);
            }
            for (load, after) in loads.iter_mut().filter(|l| l.1 <= g) {
                if done[*load] {
                    continue;
                }
                match company(groups, *load, &done, &light) {
                    Err(later) => *after = later,
                    Ok(company) => company.into_iter().chain([*load]).for_each(|g| {
                        done[g] = true;
                        out.push(g);
                    }),
                }
            }
        }
        out
    }
}

/// What must be done before a group, if that is little and without side effects; otherwise the group after which to try
/// again.
fn company(
    groups: &[Group],
    of: usize,
    done: &[bool],
    light: &dyn Fn(usize) -> bool,
) -> Result<SmallVec<[usize; 8]>, usize> {
    let (mut found, mut work): (SmallVec<[usize; 8]>, SmallVec<[usize; 8]>) = (SmallVec::new(), SmallVec::new());
    let mut later = 0;
    work.push(of);
    while let Some(g) = work.pop() {
        for a in groups[g].after.iter().map(|a| *a as usize).filter(|a| !done[*a]) {
            if !light(a) || found.len() == COMPANY {
                later = later.max(a);
            } else if !found.contains(&a) {
                found.push(a);
                work.push(a);
            }
        }
    }
    found.sort_unstable();
    if later > 0 { Err(later) } else { Ok(found) }
}

/// A rebuilt loop.
struct Rebuilt {
    /// Code before the loop.
    ahead: Vec<Mach>,
    ops: Vec<Mach>,
    /// Classes of new registers.
    new: Vec<Class>,
}

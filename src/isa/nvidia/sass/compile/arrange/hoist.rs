//! Hoists loads within a block: before an instruction has to wait for a load, later loads that can already start are
//! issued.
//!
//! Done on virtual registers, since loads that share a register cannot be in flight together. The number of registers
//! being loaded at once is bounded, and only what a load's address needs moves with it.

use crate::sass::compile::allocate::live::bundle_start;
use crate::sass::compile::mir::{Code, Mach, width};
use crate::sass::order::{Order, order};
use crate::sass::{Completion, RegFile, completion, effects};
use doorbell_codegen::regalloc::VReg;
use smallvec::SmallVec;

/// How many groups of instructions ahead to look for loads.
const AHEAD: usize = 128;
/// Maximum number of registers that loads may be filling at once.
const WORDS: u32 = 16;
/// Loads issued up to so many after the one that is waited for are assumed to arrive with it.
const WITH: u32 = 8;
/// Maximum number of instructions that move up together with a load.
const COMPANY: usize = 12;

/// A group of glued instructions.
#[derive(Default)]
pub(crate) struct Group {
    pub from: usize,
    pub to: usize,
    /// Groups that must come before this one.
    pub after: SmallVec<[u32; 6]>,
    /// Words that it loads; 0: not a load.
    loads: u32,
}

/// Whether the instructions have no side effects and may be moved.
pub(crate) fn is_plain(group: &[Mach]) -> bool {
    group.iter().all(|m| completion(&m.inst) == Completion::Fixed && computes(m))
}

/// Whether an instruction has no side effects and reads only virtual registers and constants.
pub(crate) fn computes(m: &Mach) -> bool {
    let free = !m.effect && order(&m.inst) == Order::Free;
    // Uniform registers are not virtual: their definitions are not tracked here.
    let uniform = |m: &Mach| effects(&m.inst).reads.iter().any(|a| a.file == RegFile::Uniform);
    free && !(m.inst.form().uniform && uniform(m))
}

/// Hoists loads in all blocks. `stack` is live everywhere and never written.
pub(crate) fn hoist(code: &mut Code, stack: VReg) {
    let Code { classes, blocks, order: blocks_order, .. } = code;
    let words = |r: VReg| u32::from(width(classes[r.0 as usize]));
    let mut links: Option<Links> = None;
    let mut filling = Filling { of: vec![], words: 0, first: 1, started: 0, arrived: 0 };
    for b in blocks_order.iter() {
        let ops = &mut blocks[*b].ops;
        // Instructions before the first load and after the last one stay in place.
        let (Some(first), Some(last)) = (ops.iter().position(is_load), ops.iter().rposition(is_load)) else { continue };
        if first == last {
            continue;
        }
        filling.of.resize(classes.len(), (0, 0));
        let (first, end) = (bundle_start(ops, first + 1), group_end(ops, last));
        let mut wait = first;
        while wait <= last {
            let next = group_end(ops, wait);
            let group = &ops[wait..next];
            if filling.waits(group) {
                break;
            }
            filling.pass(group, loaded(group, &words));
            wait = next;
        }
        if wait <= last {
            let links = links.get_or_insert_with(|| Links::new(classes.len(), stack));
            raise(&mut ops[wait..end], links, &words, &mut filling);
        }
        filling.end();
    }
}

/// Hoists loads in a part of a block, given the loads already in flight.
fn raise(ops: &mut [Mach], links: &mut Links, words: &dyn Fn(VReg) -> u32, filling: &mut Filling) {
    let groups = links.groups(ops, words);
    let mut w = Walk {
        ops,
        groups: &groups,
        loads: (0u32..).zip(&groups).filter(|(_, g)| g.loads > 0).map(|(k, _)| k).collect(),
        done: vec![false; groups.len()],
        filling,
        out: Vec::with_capacity(groups.len()),
    };
    w.all();
    let out = w.out;
    if !out.is_sorted() {
        let places = out.iter().flat_map(|g| groups[*g as usize].from..groups[*g as usize].to).collect();
        permute(ops, places);
    }
}

/// After the group of glued instructions that one belongs to.
fn group_end(ops: &[Mach], at: usize) -> usize {
    at + 1 + ops[at + 1..].iter().take_while(|m| m.glued).count()
}

/// Words that a group loads; 0: not a load that may be moved up.
fn loaded(group: &[Mach], words: &dyn Fn(VReg) -> u32) -> u32 {
    match group {
        [m] if is_load(m) => m.regs.iter().filter(|r| r.write).map(|r| words(r.word.reg())).sum(),
        _ => 0,
    }
}

/// Registers that loads are filling.
struct Filling {
    /// By register: the words that a load is filling, and that load's number. Loads from before the block count as
    /// complete.
    of: Vec<(u32, u32)>,
    words: u32,
    first: u32,
    /// Number of loads issued; and the last one that was waited for.
    started: u32,
    arrived: u32,
}

impl Filling {
    /// Whether a group reads or overwrites a register that a load is filling.
    fn waits(&self, group: &[Mach]) -> bool {
        self.last(group) > self.arrived
    }

    /// The latest load, in issue order, whose registers a group touches.
    fn last(&self, group: &[Mach]) -> u32 {
        group.iter().flat_map(|m| &m.regs).map(|r| self.of[r.word.reg().0 as usize].1).max().unwrap_or(0)
    }

    /// Updates the state for a group that loads so many words.
    fn pass(&mut self, group: &[Mach], loads: u32) {
        for m in group {
            for r in &m.regs {
                let (words, load) = std::mem::take(&mut self.of[r.word.reg().0 as usize]);
                if load >= self.first {
                    self.words -= words;
                    self.arrived = self.arrived.max(load);
                }
            }
        }
        if loads > 0
            && let [m, ..] = group
            && let Some(r) = m.regs.iter().find(|r| r.write)
        {
            self.started += 1;
            self.of[r.word.reg().0 as usize] = (loads, self.started);
            self.words += loads;
        }
    }

    /// The block ends.
    fn end(&mut self) {
        (self.words, self.first, self.arrived) = (0, self.started + 1, self.started);
    }
}

/// Reorders: each position gets the instruction at the position that `from` gives for it.
fn permute(ops: &mut [Mach], mut from: Vec<usize>) {
    for start in 0..from.len() {
        let mut at = start;
        loop {
            let next = std::mem::replace(&mut from[at], at);
            if next == start || next == at {
                break;
            }
            ops.swap(at, next);
            at = next;
        }
    }
}

/// Whether it loads into general registers and may be moved up.
fn is_load(m: &Mach) -> bool {
    m.inst.form().order.loads && !m.effect && matches!(order(&m.inst), Order::Free | Order::Load(_))
}

/// The last uses of registers and memory.
pub(super) struct Links {
    stack: VReg,
    /// By group number, counted from 1 over all parts of blocks together.
    writer: Vec<u32>,
    /// The readers of each register since its last write, as linked lists.
    readers: Vec<u32>,
    list: Vec<(u32, u32)>,
    /// Where the current part begins among the groups and in the list; earlier entries are ignored.
    first: u32,
    start: u32,
}

impl Links {
    pub(crate) fn new(registers: usize, stack: VReg) -> Links {
        let (writer, readers) = (vec![0; registers], vec![0; registers]);
        Links { stack, writer, readers, list: vec![(0, 0)], first: 1, start: 1 }
    }

    /// The groups of a block, each with its dependencies.
    pub(crate) fn groups(&mut self, ops: &[Mach], words: &dyn Fn(VReg) -> u32) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::with_capacity(ops.len());
        self.list.reserve(3 * ops.len());
        self.start = self.list.len() as u32;
        let (mut memory, mut from) = (Memory::default(), 0);
        while from < ops.len() {
            let to = group_end(ops, from);
            let n = groups.len() as u32;
            let mut g = Group { from, to, ..Group::default() };
            for m in &ops[from..to] {
                self.registers(m, n, &mut g.after);
                let kind = order(&m.inst);
                if kind != Order::Free {
                    memory.order(kind, n, &mut g.after);
                }
            }
            if to - from > 1 {
                g.after.retain(|a| *a != n);
            }
            g.loads = loaded(&ops[from..to], words);
            groups.push(g);
            from = to;
        }
        self.first += groups.len() as u32;
        groups
    }

    fn registers(&mut self, m: &Mach, n: u32, after: &mut SmallVec<[u32; 6]>) {
        for r in m.regs.iter().filter(|r| r.word.reg() != self.stack) {
            let k = r.word.reg().0 as usize;
            if let Some(writer) = self.writer[k].checked_sub(self.first).filter(|w| *w != n) {
                after.push(writer);
            }
            if r.write {
                let mut at = std::mem::take(&mut self.readers[k]);
                while at >= self.start {
                    let (reader, before) = self.list[at as usize];
                    if reader != n {
                        after.push(reader);
                    }
                    at = before;
                }
            }
        }
        for r in m.regs.iter().filter(|r| r.word.reg() != self.stack) {
            let k = r.word.reg().0 as usize;
            if r.write {
                self.writer[k] = self.first + n;
            } else {
                let before = std::mem::replace(&mut self.readers[k], self.list.len() as u32);
                self.list.push((n, before));
            }
        }
    }
}

/// The memory accesses so far.
#[derive(Default)]
struct Memory {
    stores: [Option<u32>; 4],
    loads: [SmallVec<[u32; 8]>; 4],
    fence: Option<u32>,
    since: Vec<u32>,
}

impl Memory {
    fn order(&mut self, kind: Order, n: u32, after: &mut SmallVec<[u32; 6]>) {
        let (spaces, store) = match kind {
            Order::Free => return,
            Order::Fence => {
                after.extend(self.fence);
                after.extend(self.since.drain(..));
                *self = Memory { fence: Some(n), ..Memory::default() };
                return;
            }
            Order::Load(spaces) => (spaces, false),
            Order::Store(spaces) => (spaces, true),
        };
        after.extend(self.fence);
        self.since.push(n);
        for s in (0..4).filter(|s| spaces >> s & 1 == 1) {
            after.extend(self.stores[s]);
            if store {
                after.extend(self.loads[s].drain(..));
                self.stores[s] = Some(n);
            } else {
                self.loads[s].push(n);
            }
        }
    }
}

/// Builds the new order of a block.
struct Walk<'a> {
    ops: &'a [Mach],
    groups: &'a [Group],
    /// The groups that load.
    loads: Vec<u32>,
    done: Vec<bool>,
    filling: &'a mut Filling,
    out: Vec<u32>,
}

impl Walk<'_> {
    fn all(&mut self) {
        for g in 0..self.groups.len() {
            if self.done[g] {
                continue;
            }
            let awaited = self.awaited(g);
            if awaited > self.filling.arrived {
                self.start_loads(g + 1, awaited + WITH);
            }
            // It may have been moved already, because a load's address needed it.
            if !self.done[g] {
                self.emit(g);
            }
        }
    }

    /// The last load that a group waits for.
    fn awaited(&self, g: usize) -> u32 {
        let Group { from, to, .. } = self.groups[g];
        self.filling.last(&self.ops[from..to])
    }

    fn emit(&mut self, g: usize) {
        let Group { from, to, loads, .. } = self.groups[g];
        self.filling.pass(&self.ops[from..to], loads);
        self.done[g] = true;
        self.out.push(g as u32);
    }

    /// Issues loads among the next groups, as far as registers allow, that do not wait for a load later than `near`.
    fn start_loads(&mut self, from: usize, near: u32) {
        let next = self.loads.partition_point(|g| (*g as usize) < from);
        for k in next..self.loads.len() {
            let g = self.loads[k] as usize;
            if g >= from + AHEAD {
                break;
            }
            let loads = self.groups[g].loads;
            if self.done[g] || self.filling.words + loads > WORDS {
                continue;
            }
            let mut company: SmallVec<[usize; 8]> = SmallVec::new();
            if self.gather(g, near, &mut company) {
                company.sort_unstable();
                company.into_iter().for_each(|k| self.emit(k));
                self.emit(g);
            }
        }
    }

    /// Collects the dependencies of a load; false: they are too many, or one must wait.
    fn gather(&self, g: usize, near: u32, company: &mut SmallVec<[usize; 8]>) -> bool {
        if self.awaited(g) > near {
            return false;
        }
        for a in &self.groups[g].after {
            let a = *a as usize;
            if self.done[a] || company.contains(&a) {
                continue;
            }
            let Group { from, to, .. } = self.groups[a];
            if company.len() == COMPANY || !is_plain(&self.ops[from..to]) {
                return false;
            }
            company.push(a);
            if !self.gather(a, near, company) {
                return false;
            }
        }
        true
    }
}

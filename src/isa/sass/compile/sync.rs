//! Control words: stalls for results of fixed latency, scoreboards for the others.
//!
//! The state goes on from a piece of code into the next where control falls through; at a label that jumps lead to as well, all
//! scoreboards are waited for, and before every jump whatever is on its way is waited for too. So a label finds nothing pending but what
//! fell into it.

use super::PADDING;
use super::schedule::{Listing, Node, REGISTERS, jumps, number};
use crate::isa::sass::{
    Access, Completion, Instruction, Pipe, RegFile, SCOREBOARD_SET, SCOREBOARDS, Slot, completion, distance,
    least_stall, op, reads_late,
};
use smallvec::SmallVec;

/// An instruction in its place.
#[derive(Debug)]
pub(super) struct Placed {
    pub inst: Instruction,
    /// The label it goes to.
    pub target: Option<usize>,
    /// Its node, but for one that only stalls.
    pub node: Option<u32>,
}

/// The last writer of a register: its node, or [`NOBODY`].
#[derive(Clone, Copy)]
struct Writer {
    node: u32,
    write: u8,
    issued: u32,
    /// The cycle by which its result is there for all.
    settled: u32,
}

const NOBODY: u32 = u32::MAX;

/// What is on its way to or from a register.
#[derive(Clone, Copy)]
struct Register {
    writer: Writer,
    /// Scoreboards to wait for before it is written, and before it is read.
    before_write: u8,
    before_read: u8,
}

const IDLE: Register =
    Register { writer: Writer { node: NOBODY, write: 0, issued: 0, settled: 0 }, before_write: 0, before_read: 0 };

/// What a scoreboard guards.
#[derive(Clone, Default)]
struct Board {
    registers: SmallVec<[u16; 24]>,
    mnemonic: &'static str,
    /// When it was set last.
    set: u32,
    used: bool,
}

struct Sync<'a> {
    nodes: &'a [Node],
    clock: u32,
    registers: Vec<Register>,
    /// Registers with a writer.
    recent: Vec<u16>,
    boards: [Board; SCOREBOARDS as usize],
    /// The first scoreboard that results may use: before it stand those of groups of copies.
    first: u8,
    /// Nodes whose sources are overwritten before anything waits for their results.
    overtaken: Vec<bool>,
    /// Scoreboards that the next instruction waits for: of fences.
    fences: u8,
    out: Vec<Placed>,
}

/// Gives every instruction its control word; may add NOPs that stall. The result has a label's place for each label.
pub(super) fn synchronise(code: &Listing, labels: usize) -> (Vec<Placed>, Vec<usize>) {
    let mut places = vec![0; labels];
    let mut s = Sync {
        nodes: &code.nodes,
        clock: 0,
        registers: vec![IDLE; REGISTERS],
        recent: Vec::with_capacity(72),
        boards: Default::default(),
        first: code.nodes.iter().filter_map(|n| groups(&n.inst)).map(|k| k + 1).max().unwrap_or(0),
        overtaken: overtaken(code),
        fences: 0,
        out: Vec::with_capacity(code.nodes.len() + PADDING),
    };
    let mut jumped_to = vec![false; labels];
    for t in code.nodes.iter().filter_map(|n| n.target) {
        jumped_to[t] = true;
    }
    for p in &code.pieces {
        let mut wait_all = p.labels.iter().any(|l| jumped_to[*l]);
        for l in &p.labels {
            places[*l] = s.out.len();
        }
        for k in p.range.clone() {
            let ends = k + 1 == p.range.end && code.nodes[code.order[k] as usize].jumps;
            s.issue(Some(code.order[k]), std::mem::take(&mut wait_all), ends);
        }
        if wait_all {
            // An empty piece: its successor is reached by falling, and by jumps.
            s.issue(None, true, false);
        }
    }
    (s.out, places)
}

/// Which nodes' sources are overwritten before their results are read or overwritten: they are told of apart from the results.
fn overtaken(code: &Listing) -> Vec<bool> {
    let mut overtaken = vec![false; code.nodes.len()];
    // Where each register is written and touched next.
    let mut next = vec![(u32::MAX, u32::MAX); REGISTERS];
    for (k, n) in code.order.iter().enumerate().rev() {
        let (effects, k) = (&code.nodes[*n as usize].effects, k as u32);
        if !code.nodes[*n as usize].fixed {
            let touched = |w| next[span(w)].iter().map(|n| n.1).min().unwrap_or(u32::MAX);
            let done = effects.writes.iter().map(touched).min().unwrap_or(0);
            let mut sources = effects.reads.iter().filter(|r| r.slot != Slot::GUARD);
            overtaken[*n as usize] = sources.any(|r| next[span(r)].iter().any(|n| n.0 < done));
        }
        effects.writes.iter().for_each(|w| next[span(w)].fill((k, k)));
        effects.reads.iter().for_each(|r| next[span(r)].iter_mut().for_each(|n| n.1 = k));
    }
    overtaken
}

/// The longest that anything may have to wait for a result.
fn longest(inst: &Instruction, w: &Access) -> u32 {
    match (w.file, inst.form().pipe) {
        (_, Pipe::Mma) => 28,
        (_, Pipe::Elect) => 13,
        (RegFile::Predicate, Pipe::Double) => 14,
        (RegFile::Predicate, _) => 13,
        (RegFile::UniformPredicate, _) => 15,
        (RegFile::Uniform, Pipe::RegToUniform) => 15,
        (RegFile::Uniform, _) => 12,
        (_, Pipe::Double | Pipe::HalfMma) => 11,
        _ if inst.form().mnemonic == "CS2R" => 10,
        _ => 8,
    }
}

/// No result of fixed latency is waited for longer.
const FARTHEST: u32 = 28;

/// Cycles that a write by another instruction must come after a write.
fn rewrite(before: &Instruction) -> u32 {
    match before.form().pipe {
        Pipe::Mma => 22,
        Pipe::Double | Pipe::HalfMma => 8,
        _ => 2,
    }
}

impl Sync<'_> {
    /// Adds a node, or an instruction that does nothing.
    fn issue(&mut self, number: Option<u32>, wait_all: bool, ends: bool) {
        let nodes = self.nodes;
        let node = number.map(|n| &nodes[n as usize]);
        let (mut at, mut wait) = node.map_or((0, 0), |n| self.ready(n));
        wait |= std::mem::take(&mut self.fences);
        let drains = ends && node.is_some_and(|n| n.inst.form().mnemonic != "EXIT");
        if wait_all || drains {
            wait |= self.pending();
        }
        at = at.max(self.clock).max(self.told(wait));
        self.reach(at);
        self.clear(wait);
        let mut inst = node.map_or_else(|| Instruction::new(op::NOP_N), |n| n.inst);
        inst.control.wait = wait;
        let least = u32::from(if groups(&inst).is_some() { SCOREBOARD_SET } else { least_stall(&inst) });
        if let Some(n) = node {
            self.assign(&mut inst, n, number);
        }
        let issued = self.clock;
        let after = if drains { self.settled().max(issued + least) } else { issued + least };
        if let (Some(n), Some(number)) = (node, number) {
            self.note(n, number, issued);
        }
        inst.control.stall = 0;
        self.out.push(Placed { inst, target: node.and_then(|n| n.target), node: number });
        self.add_stall(after - issued);
        self.clock = after;
    }

    /// The cycle from which a node may issue, and the scoreboards that it waits for.
    fn ready(&self, node: &Node) -> (u32, u8) {
        let (mut at, mut wait) = (0, 0u8);
        for r in &node.effects.reads {
            // Words of one result are waited for once.
            let mut waited = (NOBODY, 0);
            for Register { writer: w, before_read, .. } in &self.registers[span(r)] {
                wait |= before_read;
                if w.node != NOBODY && w.issued + FARTHEST > self.clock && waited != (w.node, w.write) {
                    waited = (w.node, w.write);
                    let from = &self.nodes[w.node as usize];
                    let written = &from.effects.writes[usize::from(w.write)];
                    at = at.max(w.issued + u32::from(distance(&from.inst, written, &node.inst, r).safe));
                }
            }
        }
        for w in &node.effects.writes {
            for Register { writer: before, before_read, before_write } in &self.registers[span(w)] {
                wait |= before_read | before_write;
                // Nothing must come that much later than another write.
                if before.node != NOBODY && before.issued + FARTHEST > self.clock {
                    at = at.max(before.issued + rewrite(&self.nodes[before.node as usize].inst));
                }
            }
        }
        (at, wait)
    }

    /// The cycle from which a wait for scoreboards finds them set.
    fn told(&self, wait: u8) -> u32 {
        boards(wait).map(|k| self.boards[k].set + u32::from(SCOREBOARD_SET)).max().unwrap_or(0)
    }

    /// The cycle by which all results of fixed latency are there.
    fn settled(&self) -> u32 {
        let writers = self.recent.iter().map(|r| &self.registers[usize::from(*r)].writer);
        writers.filter(|w| w.node != NOBODY).map(|w| w.settled).max().unwrap_or(0)
    }

    fn pending(&self) -> u8 {
        (0..).zip(&self.boards).fold(0, |m, (k, b)| m | u8::from(b.used) << k)
    }

    /// The last instruction stalls until then.
    fn reach(&mut self, at: u32) {
        if at > self.clock {
            let more = at - self.clock;
            self.add_stall(more);
            self.clock = at;
        }
    }

    fn add_stall(&mut self, mut more: u32) {
        // Nearly always.
        if let Some(Placed { inst, .. }) = self.out.last_mut()
            && let c = &mut inst.control
            && u32::from(c.stall) + more <= 15
        {
            if more > 0 {
                c.stall += more as u8;
                c.yields = c.stall > 11;
            }
            return;
        }
        while more > 0 {
            let Some(last) = self.out.last_mut() else { return };
            let c = &mut last.inst.control;
            let take = more.min(15 - u32::from(c.stall));
            c.stall += take as u8;
            c.yields = c.stall > 11;
            more -= take;
            if more > 0 {
                let mut nop = Placed { inst: Instruction::new(op::NOP_N), target: None, node: None };
                nop.inst.control.stall = 0;
                // A jump's own stall cannot be continued behind it: the wait goes before it.
                let at = if jumps(&last.inst) { self.out.len() - 1 } else { self.out.len() };
                if at < self.out.len() {
                    nop.inst.control.stall = more.min(15) as u8;
                    nop.inst.control.yields = nop.inst.control.stall > 11;
                    more -= more.min(15);
                }
                self.out.insert(at, nop);
            }
        }
    }

    fn clear(&mut self, wait: u8) {
        for k in boards(wait) {
            let board = &mut self.boards[k];
            for r in board.registers.drain(..) {
                let r = &mut self.registers[usize::from(r)];
                r.before_read &= !(1 << k);
                r.before_write &= !(1 << k);
            }
            board.used = false;
        }
    }

    /// Scoreboards for what ends, or has read, at a time nobody knows.
    fn assign(&mut self, inst: &mut Instruction, node: &Node, number: Option<u32>) {
        if let Some(k) = groups(inst) {
            // Bulk copies tell when they are done where others tell that they have read.
            *(if inst.form().pipe == Pipe::Bulk { &mut inst.control.read } else { &mut inst.control.write }) = Some(k);
            return;
        }
        if is_fence(inst) {
            return self.fence(inst);
        }
        if node.fixed {
            return;
        }
        let (late, effects) = (reads_late(inst), &node.effects);
        if completion(inst) != Completion::Scoreboard && !late {
            return;
        }
        let reads = || effects.reads.iter().filter(|r| r.slot != Slot::GUARD && late);
        let (writes, any_read) = (&effects.writes, reads().next().is_some());
        if writes.is_empty() && !any_read {
            return;
        }
        let sources_apart = writes.is_empty() || number.is_some_and(|n| self.overtaken[n as usize]);
        let (reader, mnemonic) = (SCOREBOARDS - 1, inst.form().mnemonic);
        if !writes.is_empty() {
            let k = self.board(mnemonic);
            inst.control.write = Some(k);
            self.guard(k, mnemonic);
            writes.iter().flat_map(span).for_each(|r| self.hold(k, r, true));
            if !sources_apart {
                reads().flat_map(span).for_each(|r| self.hold(k, r, false));
            }
        }
        if sources_apart && any_read {
            inst.control.read = Some(reader);
            self.guard(reader, mnemonic);
            reads().flat_map(span).for_each(|r| self.hold(reader, r, false));
        }
    }

    /// What comes behind a fence waits until it has taken place.
    fn fence(&mut self, inst: &mut Instruction) {
        let mnemonic = inst.form().mnemonic;
        let k = self.board(mnemonic);
        *(if mnemonic == "MEMBAR" { &mut inst.control.read } else { &mut inst.control.write }) = Some(k);
        let board = &mut self.boards[usize::from(k)];
        (board.used, board.mnemonic, board.set) = (true, mnemonic, self.clock);
        self.fences |= 1 << k;
    }

    /// A scoreboard is set.
    fn guard(&mut self, k: u8, mnemonic: &'static str) {
        let board = &mut self.boards[usize::from(k)];
        (board.used, board.mnemonic, board.set) = (true, mnemonic, self.clock);
    }

    /// Who overwrites the register waits for the scoreboard; of a result also who reads it.
    fn hold(&mut self, k: u8, register: usize, result: bool) {
        let r = &mut self.registers[register];
        *(if result { &mut r.before_read } else { &mut r.before_write }) |= 1 << k;
        self.boards[usize::from(k)].registers.push(register as u16);
    }

    /// A free scoreboard, or else the one set last by the same mnemonic, or else the oldest. The last one is for sources.
    fn board(&self, mnemonic: &'static str) -> u8 {
        let last = SCOREBOARDS - 1;
        let all = self.first..last;
        if let Some(k) = all.clone().find(|k| !self.boards[usize::from(*k)].used) {
            return k;
        }
        let set = |k: &u8| self.boards[usize::from(*k)].set;
        let same = all.clone().filter(|k| self.boards[usize::from(*k)].mnemonic == mnemonic).max_by_key(set);
        same.or_else(|| all.min_by_key(set)).unwrap_or(0)
    }

    /// Remembers what the instruction writes.
    fn note(&mut self, node: &Node, number: u32, issued: u32) {
        if node.effects.writes.is_empty() {
            return;
        }
        let fixed = node.fixed;
        // What a guard skips leaves the result before.
        let skips = node.inst.guard.index < 7;
        for (k, w) in node.effects.writes.iter().enumerate() {
            let next = Writer { node: number, write: k as u8, issued, settled: issued + longest(&node.inst, w) };
            for reg in span(w) {
                let writer = &mut self.registers[reg].writer;
                let before = writer.node != NOBODY;
                if before && skips && (!fixed || writer.settled > next.settled) {
                    continue;
                }
                *writer = if fixed { next } else { IDLE.writer };
                if fixed && !before {
                    self.recent.push(reg as u16);
                }
            }
        }
        if self.recent.len() > 64 {
            let registers = &mut self.registers;
            self.recent.retain(|r| {
                let writer = &mut registers[usize::from(*r)].writer;
                let keep = writer.node != NOBODY && writer.issued + 40 > issued;
                if !keep {
                    *writer = IDLE.writer;
                }
                keep
            });
        }
    }
}

/// The scoreboards of a set.
fn boards(set: u8) -> impl Iterator<Item = usize> {
    let mut left = set;
    std::iter::from_fn(move || {
        let k = (left != 0).then(|| left.trailing_zeros() as usize)?;
        left &= left - 1;
        Some(k)
    })
}

/// Whether it orders memory, or gives registers back, and takes a while; before sm_90 a stall is enough.
fn is_fence(inst: &Instruction) -> bool {
    if inst.form().pipe != Pipe::Misc {
        return false;
    }
    let gives = inst.form().mnemonic == "USETMAXREG" && inst.form().name == "D";
    gives || matches!(inst.form().mnemonic, "FENCE" | "MEMBAR") && !inst.chip().is_before_hopper()
}

/// The scoreboard of the groups of copies that the instruction ends one of, if it does.
fn groups(inst: &Instruction) -> Option<u8> {
    if !matches!(inst.form().pipe, Pipe::Global | Pipe::Bulk) {
        return None;
    }
    match inst.form().mnemonic {
        "LDGDEPBAR" => Some(super::select::COPY_GROUPS as u8),
        "UTMACMDFLUSH" => Some(super::select::BULK_GROUPS as u8),
        _ => None,
    }
}

fn span(a: &Access) -> std::ops::Range<usize> {
    let first = number(a.file, a.first);
    first..first + usize::from(a.count)
}

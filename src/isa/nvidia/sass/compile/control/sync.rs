//! Control words: stall counts for results of fixed latency, scoreboards for the others.
//!
//! State flows from a piece of code into the next one on fallthrough, and with a branch to its label, where everything
//! that may be in flight is joined ([`carry`](super::carry)): loads and matrix instructions stay in flight over the end
//! of a loop's iteration. At first a loop's head has only the state that falls into it. If the back edge adds
//! something, the loop is processed again with the joined state, until a fixed point. Results of fixed latency are
//! complete before a branch, except those of matrix instructions; so are those in uniform registers, which other
//! threads of the warp on another path may use. Calls and returns wait for everything.

use super::carry::{Entry, Given, Waits};
use crate::sass::compile::emit::PADDING;
use crate::sass::compile::schedule::list::{Listing, Node, Piece, REGISTERS, each, jumps, span};
use crate::sass::order::{Order, order};
use crate::sass::{
    Access, Completion, Control, Guard, Instruction, Pipe, RegFile, SCOREBOARD_SET, SCOREBOARDS, Slot, completion,
    distance, least_stall, op, reads_late,
};

/// An instruction in its final order.
#[derive(Debug)]
pub(crate) struct ScheduledInst {
    pub inst: Instruction,
    /// The label it branches to.
    pub target: Option<usize>,
    /// Its node; none for an inserted NOP.
    pub node: Option<u32>,
}

/// The last writer of a register: its node, or [`NOBODY`].
#[derive(Clone, Copy)]
struct Writer {
    node: u32,
    write: u8,
    /// The cycle by which all its available results are there, if any are.
    far: u32,
    /// The cycle by which its result is there for all.
    settled: u32,
}

const NOBODY: u32 = u32::MAX;

const NOWHERE: Writer = Writer { node: NOBODY, write: 0, far: 0, settled: 0 };

impl Writer {
    /// The cycle in which it was issued.
    fn issued(&self) -> u32 {
        self.far - FARTHEST
    }
}

/// The last instruction that set a scoreboard, and when.
#[derive(Clone, Copy, Default)]
struct Board {
    mnemonic: &'static str,
    set: u32,
}

/// A label that branches lead to.
#[derive(Default)]
struct Label {
    /// Its piece, from 1.
    piece: usize,
    /// Later code branches to it: a loop's head.
    head: bool,
    entry: Option<Box<Entry>>,
}

/// State at the start of a loop.
struct Start {
    out: usize,
    /// The control word of the last instruction before it.
    control: Option<Control>,
    clock: u32,
    fences: u8,
    boards: [Board; SCOREBOARDS as usize],
    /// The last writers before it.
    writers: Vec<(u16, Writer)>,
}

struct Sync<'a> {
    nodes: &'a [Node],
    clock: u32,
    waits: Waits,
    /// The general registers in use are below this.
    highest: usize,
    writers: Vec<Writer>,
    /// Registers with a recorded writer.
    recent: Vec<u16>,
    /// When the results of matrix instructions from before branches are available, by general register; and the latest.
    late: Vec<u32>,
    late_until: u32,
    boards: [Board; SCOREBOARDS as usize],
    /// The first scoreboard for results; those below it are for groups of copies.
    first: u8,
    given: Given,
    /// Nodes whose sources are overwritten before anything waits for their results.
    overtaken: Vec<bool>,
    /// Scoreboards of fences, which the next instruction waits for.
    fences: u8,
    /// Scoreboards of accesses that may acquire: what invalidates the cache after one waits for it.
    acquires: u8,
    labels: Vec<Label>,
    /// Branches wait for everything.
    drains: bool,
    out: Vec<ScheduledInst>,
}

/// Limit on processing pieces again, on average.
const AGAIN: usize = 4;

/// Gives every instruction its control word; may insert NOPs that stall. General registers in use are below `highest`.
/// The result has the position of each label.
pub(crate) fn synchronise(code: &Listing, labels: usize, highest: usize) -> (Vec<ScheduledInst>, Vec<usize>) {
    let mut s = Sync {
        nodes: &code.nodes,
        clock: 0,
        waits: Waits::NONE,
        highest,
        writers: vec![NOWHERE; REGISTERS],
        recent: Vec::with_capacity(72),
        late: vec![],
        late_until: 0,
        boards: Default::default(),
        first: code.nodes.iter().filter_map(|n| groups(&n.inst)).map(|k| k + 1).max().unwrap_or(0),
        given: Given::new(code.nodes.len()),
        overtaken: overtaken(code),
        fences: 0,
        acquires: 0,
        labels: find_labels(code, labels),
        drains: false,
        out: Vec::with_capacity(code.nodes.len() + PADDING),
    };
    let places = s.all(code).unwrap_or_else(|| {
        s.labels.iter_mut().for_each(|l| l.entry = None);
        s.forget();
        s.out.clear();
        s.drains = true;
        s.all(code).unwrap_or_default()
    });
    (s.out, places)
}

/// Finds the labels, and which of them are targets of back edges.
fn find_labels(code: &Listing, count: usize) -> Vec<Label> {
    let mut labels: Vec<Label> = (0..count).map(|_| Label::default()).collect();
    for (p, piece) in code.pieces.iter().enumerate() {
        piece.labels.iter().for_each(|l| labels[*l].piece = p + 1);
        if let Some(to) = code.order[piece.range.clone()].last().and_then(|n| branch(&code.nodes[*n as usize])) {
            labels[to].head |= labels[to].piece > 0;
        }
    }
    labels
}

/// The label that a branch leads to.
fn branch(node: &Node) -> Option<usize> {
    node.target.filter(|_| node.jumps && node.inst.form().mnemonic == "BRA")
}

/// Sources that may be read after issue: not the guard and, except for bulk copies, not uniform registers.
fn late_sources(node: &Node) -> impl Iterator<Item = &Access> {
    let bulk = node.inst.form().pipe == Pipe::Bulk;
    node.effects.reads.iter().filter(move |r| r.slot != Slot::GUARD && (r.file != RegFile::Uniform || bulk))
}

/// Nodes whose sources are overwritten before their results are read or overwritten: these need a scoreboard for
/// sources, separate from that of the results.
fn overtaken(code: &Listing) -> Vec<bool> {
    let mut overtaken = vec![false; code.nodes.len()];
    // Where each register is next written, and next touched.
    let mut next = vec![(u32::MAX, u32::MAX); REGISTERS];
    for piece in code.pieces.iter().rev() {
        let back_edge = code.order[piece.range.clone()].last().and_then(|n| branch(&code.nodes[*n as usize]));
        if back_edge.is_some_and(|to| piece.labels.contains(&to)) {
            // The last instruction of an iteration is followed by the first of the next one.
            piece.range.clone().rev().for_each(|k| touch(&mut next, code, k, k + piece.range.len()));
        }
        for k in piece.range.clone().rev() {
            let n = code.order[k] as usize;
            if !code.nodes[n].fixed {
                let effects = &code.nodes[n].effects;
                let touched = |w| next[span(w)].iter().map(|n| n.1).min().unwrap_or(u32::MAX);
                let done = effects.writes.iter().map(touched).min().unwrap_or(0);
                overtaken[n] = late_sources(&code.nodes[n]).any(|r| next[span(r)].iter().any(|n| n.0 < done));
            }
            touch(&mut next, code, k, k);
        }
    }
    overtaken
}

/// Records where an instruction writes and reads registers.
fn touch(next: &mut [(u32, u32)], code: &Listing, k: usize, at: usize) {
    let (effects, at) = (&code.nodes[code.order[k] as usize].effects, at as u32);
    effects.writes.iter().for_each(|w| each(w, |r| next[r] = (at, at)));
    effects.reads.iter().for_each(|r| each(r, |r| next[r].1 = at));
}

/// The longest wait for a result.
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

/// Maximum latency of a result of fixed latency.
const FARTHEST: u32 = 28;

/// Cycles that a write by another instruction must come after this write.
fn rewrite(before: &Instruction) -> u32 {
    match before.form().pipe {
        Pipe::Mma => 22,
        Pipe::Double | Pipe::HalfMma => 8,
        _ => 2,
    }
}

impl Sync<'_> {
    /// Processes all pieces; returns the labels' positions. `None`: loops were processed too often.
    fn all(&mut self, code: &Listing) -> Option<Vec<usize>> {
        let mut places = vec![0; self.labels.len()];
        let mut starts: Vec<Option<Start>> = vec![];
        let (mut p, mut again) = (0, 0);
        while let Some(piece) = code.pieces.get(p) {
            if piece.labels.iter().any(|l| self.labels[*l].head) {
                starts.resize_with(starts.len().max(p + 1), || None);
                starts[p] = Some(self.begin(piece));
            }
            piece.labels.iter().for_each(|l| places[*l] = self.out.len());
            let mut entered = self.enter(piece);
            for n in &code.order[piece.range.clone()] {
                self.issue(*n, std::mem::take(&mut entered));
            }
            let last = code.order[piece.range.clone()].last().map(|n| &self.nodes[*n as usize]).filter(|n| n.jumps);
            p += 1;
            let Some(last) = last else { continue };
            let more = branch(last).filter(|to| self.leave(*to)).map(|to| self.labels[to].piece);
            if let Some(head) = more.filter(|head| *head <= p)
                && let Some(Some(start)) = starts.get(head - 1)
            {
                if again == AGAIN * starts.len() {
                    return None;
                }
                (p, again) = (head - 1, again + 1);
                self.back_to(start);
            } else if last.effects.reads.is_empty() && last.inst.guard == Guard::ALWAYS {
                // No fallthrough out of it.
                self.forget();
            }
        }
        Some(places)
    }

    /// A loop begins: the state that falls into it is joined with what its iterations leave.
    fn begin(&mut self, piece: &Piece) -> Start {
        for l in &piece.labels {
            let carried_results = carried_results(&self.late, self.late_until, self.clock);
            Entry::join(&mut self.labels[*l].entry, &self.waits, carried_results);
        }
        let writers = self.recent.iter().map(|r| (*r, self.writers[usize::from(*r)])).collect();
        let control = self.out.last().map(|p| p.inst.control);
        Start { out: self.out.len(), control, clock: self.clock, fences: self.fences, boards: self.boards, writers }
    }

    /// Restores the state of a loop's start.
    fn back_to(&mut self, start: &Start) {
        self.forget();
        self.out.truncate(start.out);
        if let Some((last, control)) = self.out.last_mut().zip(start.control) {
            last.inst.control = control;
        }
        (self.clock, self.fences, self.boards) = (start.clock, start.fences, start.boards);
        for (r, w) in &start.writers {
            self.writers[usize::from(*r)] = *w;
            self.recent.push(*r);
        }
    }

    /// Nothing is in flight.
    fn forget(&mut self) {
        if self.waits.boards != 0 {
            self.waits = Waits::NONE;
        }
        self.recent.drain(..).for_each(|r| self.writers[usize::from(r)] = NOWHERE);
        self.late_until = 0;
    }

    /// Joins the state from branches to a piece's labels; returns whether it contains results of matrix instructions.
    fn enter(&mut self, piece: &Piece) -> bool {
        let mut late = false;
        for l in &piece.labels {
            let Some(entry) = &self.labels[*l].entry else { continue };
            self.waits.join(&entry.waits);
            late |= !entry.late.is_empty();
            if self.late_until <= self.clock {
                self.late.clear();
            }
            self.late.resize(self.late.len().max(entry.late.len()), 0);
            for (at, cycles) in self.late.iter_mut().zip(&entry.late) {
                *at = (*at).max(self.clock + u32::from(*cycles));
                self.late_until = self.late_until.max(*at);
            }
        }
        late
    }

    /// Merges the state into a label; returns whether that added something.
    fn leave(&mut self, to: usize) -> bool {
        let (clock, nodes, writers) = (self.clock, self.nodes, &self.writers);
        let recent = self.recent.iter().map(|r| (usize::from(*r), &writers[usize::from(*r)]));
        let own = recent.filter(|(_, w)| is_long(nodes, w)).map(|(r, w)| (r, later(w.settled, clock)));
        let carried_results = carried_results(&self.late, self.late_until, clock);
        Entry::join(
            &mut self.labels[to].entry,
            &self.waits,
            own.chain(carried_results).filter(|(_, cycles)| *cycles > 0),
        )
    }

    /// Adds a node; `entered`: it is the first after a label to which results of matrix instructions are in flight.
    fn issue(&mut self, number: u32, entered: bool) {
        let nodes = self.nodes;
        let node = &nodes[number as usize];
        let (mut at, mut wait) = self.ready(node);
        wait |= std::mem::take(&mut self.fences);
        if self.acquires != 0 && std::ptr::eq(node.inst.form(), op::CCTL_ALL) {
            wait |= std::mem::take(&mut self.acquires) & self.waits.boards;
        }
        let leaves = node.jumps && node.inst.form().mnemonic != "EXIT";
        let drains = leaves && (self.drains || branch(node).is_none());
        if drains {
            wait |= self.waits.boards;
        } else if self.waits.boards != 0 && node.inst.form().pipe == Pipe::Branch {
            // Other threads of the warp may continue from here.
            wait |= self.waits.uniform();
        }
        if wait != 0 {
            at = at.max(self.visible_from(wait));
        }
        match entered && at > self.clock {
            // The instruction before may not be on the path that was taken.
            true => self.pause(at - self.clock),
            false => self.reach(at),
        }
        if wait & self.waits.boards != 0 {
            self.waits.clear(wait, self.highest);
        }
        let mut inst = node.inst;
        inst.control.wait = wait;
        let mut least = 1;
        if !node.computes {
            least = u32::from(if groups(&inst).is_some() { SCOREBOARD_SET } else { least_stall(&inst) });
            self.assign(&mut inst, node, number);
        }
        let issued = self.clock;
        let after = if leaves { self.settled(drains).max(issued + least) } else { issued + least };
        self.note(node, number, issued);
        inst.control.stall = 0;
        self.out.push(ScheduledInst { inst, target: node.target, node: Some(number) });
        self.add_stall(after - issued);
        self.clock = after;
    }

    /// The cycle from which a node may issue, and the scoreboards that it waits for.
    #[inline]
    fn ready(&self, node: &Node) -> (u32, u8) {
        let mut at = self.clock;
        for r in &node.effects.reads {
            // Words of one result are waited for once.
            let mut waited = (NOBODY, 0);
            each(r, |reg| {
                let w = &self.writers[reg];
                if w.far > self.clock && waited != (w.node, w.write) {
                    waited = (w.node, w.write);
                    let from = &self.nodes[w.node as usize];
                    let written = &from.effects.writes[usize::from(w.write)];
                    at = at.max(w.issued() + u32::from(distance(&from.inst, written, &node.inst, r).safe));
                }
            });
        }
        for w in &node.effects.writes {
            each(w, |reg| {
                let before = &self.writers[reg];
                // A faster write must not complete before an earlier, slower one.
                if before.far > self.clock {
                    at = at.max(before.issued() + rewrite(&self.nodes[before.node as usize].inst));
                }
            });
        }
        if self.late_until > self.clock {
            let all = node.effects.reads.iter().chain(&node.effects.writes).filter(|a| a.file == RegFile::General);
            at = all.flat_map(span).filter_map(|r| self.late.get(r)).fold(at, |at, late| at.max(*late));
        }
        (at, if self.waits.boards == 0 { 0 } else { self.waits.of(node) })
    }

    /// The cycle from which a wait for these scoreboards sees them set.
    fn visible_from(&self, wait: u8) -> u32 {
        boards(wait).map(|k| self.boards[k].set + u32::from(SCOREBOARD_SET)).max().unwrap_or(0)
    }

    /// The cycle by which results of fixed latency are available; with `all` including those of matrix instructions.
    fn settled(&self, all: bool) -> u32 {
        let writers = self.recent.iter().map(|r| &self.writers[usize::from(*r)]).filter(|w| w.node != NOBODY);
        let own = writers.filter(|w| all || !is_long(self.nodes, w)).map(|w| w.settled).max().unwrap_or(0);
        if all { own.max(self.late_until) } else { own }
    }

    /// Stalls the last instruction until then.
    fn reach(&mut self, at: u32) {
        if at <= self.clock {
            return;
        }
        let more = at - self.clock;
        match self.out.last() {
            // A jump cannot be followed by NOPs that extend its stall.
            Some(p) if jumps(&p.inst) && u32::from(p.inst.control.stall) + more > 15 => self.pause(more),
            _ => {
                self.add_stall(more);
                self.clock = at;
            }
        }
    }

    /// Inserts a delay of so many cycles.
    fn pause(&mut self, cycles: u32) {
        let mut inst = Instruction::new(op::NOP_N);
        inst.control.stall = 0;
        self.out.push(ScheduledInst { inst, target: None, node: None });
        self.add_stall(cycles);
        self.clock += cycles;
    }

    /// Extends the last instruction's stall; with NOPs after it if needed, or before it if it is a jump.
    fn add_stall(&mut self, mut more: u32) {
        // The common case.
        if let Some(ScheduledInst { inst, .. }) = self.out.last_mut()
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
                let mut nop = ScheduledInst { inst: Instruction::new(op::NOP_N), target: None, node: None };
                nop.inst.control.stall = 0;
                // A jump cannot be followed by NOPs that extend its stall, so the wait goes before it.
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

    /// Assigns scoreboards for results and reads of variable latency.
    fn assign(&mut self, inst: &mut Instruction, node: &Node, number: u32) {
        if let Some(k) = groups(inst) {
            // Bulk copies signal completion with the scoreboard that others use for having read their sources.
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
        let reads = || late_sources(node).filter(|_| late);
        let (writes, any_read) = (&effects.writes, reads().next().is_some());
        if writes.is_empty() && !any_read {
            return;
        }
        let sources_apart = writes.is_empty() || self.overtaken[number as usize];
        let (reader, mnemonic) = (SCOREBOARDS - 1, inst.form().mnemonic);
        if !writes.is_empty() {
            let k = self.given.get(number).unwrap_or_else(|| self.board(mnemonic));
            self.given.set(number, k);
            inst.control.write = Some(k);
            self.guard(k, mnemonic);
            if may_acquire(inst) {
                self.acquires |= 1 << k;
            }
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

    /// Instructions after a fence wait until it has completed.
    fn fence(&mut self, inst: &mut Instruction) {
        let mnemonic = inst.form().mnemonic;
        let k = self.board(mnemonic);
        *(if mnemonic == "MEMBAR" { &mut inst.control.read } else { &mut inst.control.write }) = Some(k);
        self.guard(k, mnemonic);
        self.fences |= 1 << k;
    }

    /// A scoreboard is set.
    fn guard(&mut self, k: u8, mnemonic: &'static str) {
        self.boards[usize::from(k)] = Board { mnemonic, set: self.clock };
        self.waits.boards |= 1 << k;
    }

    /// An instruction that overwrites the register must wait for the scoreboard; for a result also one that reads it.
    fn hold(&mut self, k: u8, register: usize, result: bool) {
        let of = if result { &mut self.waits.results } else { &mut self.waits.sources };
        of[register] |= 1 << k;
    }

    /// A free scoreboard, or else the one last set by the same mnemonic, or else the oldest. The last one is reserved
    /// for sources.
    fn board(&self, mnemonic: &'static str) -> u8 {
        let last = SCOREBOARDS - 1;
        let all = self.first..last;
        if let Some(k) = all.clone().find(|k| self.waits.boards >> k & 1 == 0) {
            return k;
        }
        let set = |k: &u8| self.boards[usize::from(*k)].set;
        let same = all.clone().filter(|k| self.boards[usize::from(*k)].mnemonic == mnemonic).max_by_key(set);
        same.or_else(|| all.min_by_key(set)).unwrap_or(0)
    }

    /// Records what the instruction writes.
    fn note(&mut self, node: &Node, number: u32, issued: u32) {
        if node.effects.writes.is_empty() {
            return;
        }
        let fixed = node.fixed;
        // If its guard skips the instruction, the earlier result remains.
        let skips = node.inst.guard.index < 7;
        for (k, w) in node.effects.writes.iter().enumerate() {
            let next = Writer {
                node: number,
                write: k as u8,
                far: issued + FARTHEST,
                settled: issued + longest(&node.inst, w),
            };
            for reg in span(w) {
                let writer = &mut self.writers[reg];
                let before = writer.node != NOBODY;
                if before && skips && (!fixed || writer.settled > next.settled) {
                    continue;
                }
                *writer = if fixed { next } else { NOWHERE };
                if fixed && !before {
                    self.recent.push(reg as u16);
                }
            }
        }
        if self.recent.len() > 64 {
            let writers = &mut self.writers;
            self.recent.retain(|r| {
                let writer = &mut writers[usize::from(*r)];
                let keep = writer.node != NOBODY && writer.issued() + 40 > issued;
                if !keep {
                    *writer = NOWHERE;
                }
                keep
            });
        }
    }
}

/// Cycles from now until then.
fn later(at: u32, clock: u32) -> u8 {
    u8::try_from(at.saturating_sub(clock)).unwrap_or(u8::MAX)
}

/// Results of matrix instructions from before branches, and when they are available.
fn carried_results(late: &[u32], until: u32, clock: u32) -> impl Iterator<Item = (usize, u8)> {
    let all = late.iter().enumerate().filter(move |_| until > clock).map(move |(r, at)| (r, later(*at, clock)));
    all.filter(|(_, cycles)| *cycles > 0)
}

/// Whether it is a result of a matrix instruction, whose latency is so long that branches do not wait for it.
fn is_long(nodes: &[Node], w: &Writer) -> bool {
    nodes.get(w.node as usize).is_some_and(|n| n.inst.form().pipe == Pipe::Mma)
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

/// Whether an access to memory may be one that acquires.
fn may_acquire(inst: &Instruction) -> bool {
    match inst.form().mnemonic {
        "LDGMC" | "LDS" | "ATOM" | "ATOMG" | "ATOMS" => true,
        "LDG" | "LD" => matches!(order(inst), Order::Store(_)),
        _ => false,
    }
}

/// Whether it orders memory, or releases registers, and takes time; before sm_90 a stall is enough.
fn is_fence(inst: &Instruction) -> bool {
    if inst.form().pipe != Pipe::Misc {
        return false;
    }
    let gives = inst.form().mnemonic == "USETMAXREG" && inst.form().name == "D";
    gives || matches!(inst.form().mnemonic, "FENCE" | "MEMBAR") && !inst.chip().is_before_hopper()
}

/// The scoreboard of the groups of copies of which the instruction ends one, if any.
fn groups(inst: &Instruction) -> Option<u8> {
    if !matches!(inst.form().pipe, Pipe::Global | Pipe::Bulk) {
        return None;
    }
    match inst.form().mnemonic {
        "LDGDEPBAR" => Some(crate::sass::compile::select::COPY_GROUPS as u8),
        "UTMACMDFLUSH" => Some(crate::sass::compile::select::BULK_GROUPS as u8),
        _ => None,
    }
}

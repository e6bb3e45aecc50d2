//! The order of instructions: a list scheduler for each straight piece of code, after registers are given out.
//!
//! What is on the longest way to the end of its piece goes first, as soon as what it needs will be there. Fixed latencies are
//! those of [`timing`](super::super::timing); the others are guesses, that only the order depends on.

use super::place::Line;
use crate::isa::sass::effects::add_effects;
use crate::isa::sass::{Completion, Effects, Instruction, Pipe, RegFile, completion, distance, guessed_latency};
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Register numbers over all files.
pub(super) const REGISTERS: usize = 256 + 8 + 64 + 8;

pub(super) fn number(file: RegFile, index: u8) -> usize {
    let base = match file {
        RegFile::General => 0,
        RegFile::Predicate => 256,
        RegFile::Uniform => 264,
        RegFile::UniformPredicate => 328,
    };
    base + usize::from(index)
}

/// How an instruction is ordered beside its registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Free,
    /// Reads memory of a space.
    Load(u8),
    /// Changes it.
    Store(u8),
    /// Nothing that touches memory or other threads crosses it.
    Fence,
}

const GLOBAL: u8 = 1;
const SHARED: u8 = 2;
const LOCAL: u8 = 4;
/// What depends on which threads run.
const WARP: u8 = 8;

pub(super) fn order(inst: &Instruction) -> Order {
    let generic = GLOBAL | SHARED | LOCAL;
    let arithmetic =
        matches!(inst.form().pipe, Pipe::Alu | Pipe::Fma | Pipe::Imad | Pipe::ImadWide | Pipe::Half | Pipe::Double);
    if arithmetic && !matches!(inst.form().mnemonic, "VOTE" | "CS2R") {
        return Order::Free;
    }
    match inst.form().mnemonic {
        "LDG" if inst.modifier("sem") == ".CONSTANT" => Order::Free,
        "LDG" if inst.modifier("sem").is_empty() => Order::Load(GLOBAL),
        "LDG" => Order::Store(GLOBAL),
        "LD" if inst.modifier("sem").is_empty() => Order::Load(generic),
        "LDS" | "LDSM" => Order::Load(SHARED),
        "LDL" => Order::Load(LOCAL),
        "STG" | "ATOMG" | "REDG" | "RED" => Order::Store(GLOBAL),
        "STS" | "ATOMS" | "STSM" | "LDGDEPBAR" => Order::Store(SHARED),
        "LDGSTS" => Order::Store(GLOBAL | SHARED),
        "STL" => Order::Store(LOCAL),
        "ST" | "ATOM" | "LD" => Order::Store(generic),
        "SHFL" | "VOTE" | "MATCH" | "REDUX" | "HMMA" | "IMMA" | "BMMA" | "DMMA" | "MOVM" | "ELECT" | "R2UR"
        | "VOTEU" => Order::Load(WARP),
        _ if matches!(inst.form().pipe, Pipe::Branch) => Order::Fence,
        "SYNCS" | "ARRIVES" | "DEPBAR" | "REDAS" | "STAS" | "UCGABAR_ARV" | "UCGABAR_WAIT" | "CGAERRBAR" => {
            Order::Fence
        }
        "ACQBULK" | "PREEXIT" | "USETMAXREG" | "PMTRIG" => Order::Fence,
        _ if matches!(inst.form().pipe, Pipe::Bulk | Pipe::Gmma) => Order::Fence,
        "BAR" | "B2R" | "MEMBAR" | "ERRBAR" | "CCTL" | "CS2R" | "FENCE" | "NOP" => Order::Fence,
        _ => Order::Free,
    }
}

/// An instruction with what it does.
#[derive(Debug)]
pub(super) struct Node {
    pub inst: Instruction,
    pub target: Option<usize>,
    pub effects: Effects,
    /// Its results come after a time that is known.
    pub fixed: bool,
}

/// Code in pieces. Nodes stay where they are; what is ordered are their numbers.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub nodes: Vec<Node>,
    /// The nodes' numbers in the order of the code.
    pub order: Vec<u32>,
    pub pieces: Vec<Piece>,
}

/// Straight code: labels may stand before it, a jump may end it.
#[derive(Debug, Default)]
pub(super) struct Piece {
    pub labels: SmallVec<[usize; 2]>,
    /// Its part of the order.
    pub range: std::ops::Range<usize>,
}

/// Cuts code at labels and after jumps.
pub(super) fn listing(lines: &[Line]) -> Listing {
    let mut out = Listing { nodes: Vec::with_capacity(lines.len()), ..Listing::default() };
    out.pieces.push(Piece::default());
    let mut ended = false;
    for line in lines {
        let at = out.nodes.len();
        match line {
            Line::Label(l) => {
                if !out.pieces.last().is_some_and(|p| p.range.is_empty()) {
                    out.pieces.push(Piece { range: at..at, ..Piece::default() });
                }
                ended = false;
                if let Some(p) = out.pieces.last_mut() {
                    p.labels.push(*l);
                }
            }
            Line::Inst(inst, target) => {
                let alone = inst.form().mnemonic == "WARPGROUP";
                if ended || alone && !out.pieces.last().is_some_and(|p| p.range.is_empty()) {
                    out.pieces.push(Piece { range: at..at, ..Piece::default() });
                }
                ended = jumps(inst) || alone;
                let fixed = completion(inst) == Completion::Fixed;
                out.nodes.push(Node { inst: *inst, target: *target, effects: Effects::default(), fixed });
                if let Some(n) = out.nodes.last_mut() {
                    add_effects(inst, &mut n.effects);
                }
                if let Some(p) = out.pieces.last_mut() {
                    p.range.end = at + 1;
                }
            }
        }
    }
    super::flight::gather(&mut out);
    out.order = (0..out.nodes.len() as u32).collect();
    out
}

/// Whether control may leave the straight way after it.
pub(super) fn jumps(inst: &Instruction) -> bool {
    if inst.form().pipe != Pipe::Branch {
        return false;
    }
    match inst.form().mnemonic {
        "BRA" | "BRX" | "CALL" | "RET" => true,
        "EXIT" => inst.guard.index == 7 && !inst.guard.not,
        _ => false,
    }
}

/// Cycles until an instruction of no fixed latency has read its sources: a guess that only the order depends on.
const SOURCES_READ: u16 = 12;

/// No edge.
const NONE: u32 = u32::MAX;

/// What must wait: a list of its own for each node.
#[derive(Clone, Copy)]
struct Edge {
    to: u32,
    latency: u16,
    /// The next edge of the same node.
    next: u32,
}

/// Which nodes of a piece wait for which.
#[derive(Default)]
struct Graph {
    edges: Vec<Edge>,
    /// Each node's first edge.
    first: Vec<u32>,
    waits: Vec<u32>,
}

impl Graph {
    fn clear(&mut self, nodes: usize) {
        self.edges.clear();
        self.first.clear();
        self.first.resize(nodes, NONE);
        self.waits.clear();
        self.waits.resize(nodes, 0);
    }

    fn edges(&self, node: u32) -> impl Iterator<Item = Edge> {
        let mut at = self.first[node as usize];
        std::iter::from_fn(move || {
            let edge = *self.edges.get(at as usize)?;
            at = edge.next;
            Some(edge)
        })
    }
}

/// Cycles until a result is there.
fn latency(from: &Node, to: &Node, written: usize, read: usize) -> u16 {
    let (w, r) = (&from.effects.writes[written], &to.effects.reads[read]);
    match from.fixed {
        true => u16::from(distance(&from.inst, w, &to.inst, r).safe),
        false => guessed_latency(from.inst.form().pipe),
    }
}

/// Builds a piece's graph. Its tables serve one piece after the other.
struct Builder<'a> {
    nodes: &'a [Node],
    graph: Graph,
    /// The number of the piece's first node among those of all pieces, from 1.
    base: u32,
    /// Last writer of a register by that number and which of its writes it is: of this piece, or of one before it.
    writer: Vec<(u32, u8)>,
    /// The last reader of each register since, in a list of readers with the one before each: of this piece from `first_reader` on.
    readers: Vec<u32>,
    list: Vec<(u32, u32)>,
    first_reader: u32,
}

impl Builder<'_> {
    fn edge(&mut self, from: u32, to: u32, latency: u16) {
        if from != to {
            let next = std::mem::replace(&mut self.graph.first[from as usize], self.graph.edges.len() as u32);
            self.graph.edges.push(Edge { to, latency, next });
            self.graph.waits[to as usize] += 1;
        }
    }

    fn registers(&mut self, i: u32) {
        let nodes = self.nodes;
        let node = &nodes[i as usize];
        for (k, r) in node.effects.reads.iter().enumerate() {
            // Words of one result are waited for once.
            let mut waited = None;
            for n in 0..r.count {
                let reg = number(r.file, r.first) + usize::from(n);
                let writer = self.written(reg);
                if let Some((w, at)) = writer.filter(|_| writer != waited) {
                    waited = writer;
                    let cycles = latency(&nodes[w as usize], node, usize::from(at), k);
                    self.edge(w, i, cycles);
                }
                let before = std::mem::replace(&mut self.readers[reg], self.list.len() as u32);
                self.list.push((i, before));
            }
        }
        for (k, w) in node.effects.writes.iter().enumerate() {
            for n in 0..w.count {
                let reg = number(w.file, w.first) + usize::from(n);
                if let Some((before, _)) = self.written(reg) {
                    self.edge(before, i, if nodes[before as usize].fixed { 3 } else { 30 });
                }
                let mut at = std::mem::replace(&mut self.readers[reg], NONE);
                while at >= self.first_reader
                    && let Some((r, before)) = self.list.get(at as usize).copied()
                {
                    self.edge(r, i, if nodes[r as usize].fixed { 1 } else { SOURCES_READ });
                    at = before;
                }
                self.writer[reg] = (self.base + i, k as u8);
            }
        }
    }

    /// The graph of a piece.
    fn build(&mut self) {
        let nodes = self.nodes;
        self.graph.clear(nodes.len());
        // Per space: the last store, and what has loaded since; the last fence, and what came since.
        let mut stores: [Option<u32>; 4] = [None; 4];
        let mut loads: [SmallVec<[u32; 16]>; 4] = Default::default();
        let (mut fence, mut since): (Option<u32>, SmallVec<[u32; 16]>) = (None, SmallVec::new());
        for i in 0..nodes.len() as u32 {
            self.registers(i);
            let kind = order(&nodes[i as usize].inst);
            if kind == Order::Free {
                continue;
            }
            if let Some(f) = fence {
                self.edge(f, i, 1);
            }
            match kind {
                Order::Fence => {
                    since.drain(..).for_each(|s| self.edge(s, i, 1));
                    fence = Some(i);
                    stores = [None; 4];
                    loads.iter_mut().for_each(SmallVec::clear);
                    continue;
                }
                Order::Load(spaces) | Order::Store(spaces) => {
                    let store = matches!(kind, Order::Store(_));
                    for s in (0..4).filter(|s| spaces >> s & 1 == 1) {
                        if let Some(before) = stores[s] {
                            self.edge(before, i, 1);
                        }
                        if store {
                            loads[s].drain(..).for_each(|l| self.edge(l, i, 1));
                            stores[s] = Some(i);
                        } else {
                            loads[s].push(i);
                        }
                    }
                }
                Order::Free => {}
            }
            since.push(i);
        }
        self.base += nodes.len() as u32;
        self.first_reader = self.list.len() as u32;
    }

    /// The last writer of a register in this piece, and which of its writes it is.
    fn written(&self, reg: usize) -> Option<(u32, u8)> {
        let (number, write) = self.writer[reg];
        Some((number.checked_sub(self.base)?, write))
    }
}

/// Orders the instructions of each piece.
pub(super) fn schedule(code: &mut Listing) {
    let (mut graph, list) = (Graph::default(), Vec::with_capacity(2 * code.nodes.len()));
    graph.edges.reserve(2 * code.nodes.len());
    let (writer, readers) = (vec![(0, 0); REGISTERS], vec![NONE; REGISTERS]);
    let mut b = Builder { nodes: &[], graph, base: 1, writer, readers, list, first_reader: 0 };
    let mut queue = Queue::default();
    for p in &code.pieces {
        let all = &code.nodes[p.range.clone()];
        let tail = usize::from(all.last().is_some_and(|n| jumps(&n.inst)));
        let body = all.len() - tail;
        if body < 2 {
            continue;
        }
        b.nodes = &all[..body];
        b.build();
        queue.list(&mut b.graph, p.range.start as u32, &mut code.order[p.range.start..p.range.start + body]);
    }
}

/// A list scheduler's tables.
#[derive(Default)]
struct Queue {
    height: Vec<u32>,
    earliest: Vec<u32>,
    /// Those that may go now, and those that may later, by time.
    now: BinaryHeap<(u32, Reverse<u32>)>,
    later: BinaryHeap<Reverse<(u32, u32)>>,
}

impl Queue {
    /// Longest way first: the nodes' numbers from `first` on.
    fn list(&mut self, g: &mut Graph, first: u32, out: &mut [u32]) {
        let n = out.len();
        self.height.clear();
        self.height.resize(n, 0);
        for i in (0..n).rev() {
            let way = |e: Edge| self.height[e.to as usize] + u32::from(e.latency);
            self.height[i] = g.edges(i as u32).map(way).max().unwrap_or(0);
        }
        self.earliest.clear();
        self.earliest.resize(n, 0);
        self.now.clear();
        self.later.clear();
        for i in (0..n).filter(|i| g.waits[*i] == 0) {
            self.now.push((self.height[i], Reverse(i as u32)));
        }
        let (mut done, mut clock) = (0, 0u32);
        while done < n {
            while let Some(Reverse((_, i))) = self.later.peek().copied().filter(|e| e.0.0 <= clock) {
                self.later.pop();
                self.now.push((self.height[i as usize], Reverse(i)));
            }
            let Some((_, Reverse(i))) = self.now.pop() else {
                match self.later.peek() {
                    Some(Reverse((t, _))) => clock = *t,
                    None => break,
                }
                continue;
            };
            out[done] = first + i;
            done += 1;
            let mut at = g.first[i as usize];
            while let Some(e) = g.edges.get(at as usize).copied() {
                at = e.next;
                let to = e.to as usize;
                self.earliest[to] = self.earliest[to].max(clock + u32::from(e.latency));
                g.waits[to] -= 1;
                if g.waits[to] == 0 {
                    self.later.push(Reverse((self.earliest[to], e.to)));
                }
            }
            clock += 1;
        }
    }
}

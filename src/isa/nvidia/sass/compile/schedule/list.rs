//! Instruction scheduling: a list scheduler for each basic block, after register allocation.
//!
//! Of the instructions whose operands will be ready, the one on the longest path to the end of the block goes first.
//! Fixed latencies are those of [`timing`](crate::sass::timing); the others are estimates that affect only the order.

use crate::sass::compile::lines::Line;
use crate::sass::effects::add_effects;
use crate::sass::order::{Order, order};
use crate::sass::{Access, Completion, Effects, Instruction, Pipe, RegFile, completion, distance, guessed_latency};
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Register numbers over all files.
pub(crate) const REGISTERS: usize = 256 + 8 + 64 + 8;

#[inline]
pub(crate) fn number(file: RegFile, index: u8) -> usize {
    let base = match file {
        RegFile::General => 0,
        RegFile::Predicate => 256,
        RegFile::Uniform => 264,
        RegFile::UniformPredicate => 328,
    };
    base + usize::from(index)
}

/// The numbers of an operand's registers.
#[inline]
pub(crate) fn span(a: &Access) -> std::ops::Range<usize> {
    let first = number(a.file, a.first);
    first..first + usize::from(a.count)
}

/// Calls `f` with the number of each register of an operand; nearly always there is one.
#[inline(always)]
pub(crate) fn each(a: &Access, mut f: impl FnMut(usize)) {
    let first = number(a.file, a.first);
    let mut k = first;
    loop {
        f(k);
        k += 1;
        if k >= first + usize::from(a.count) {
            return;
        }
    }
}

/// An instruction with its effects.
#[derive(Debug)]
pub(crate) struct Node {
    pub inst: Instruction,
    pub target: Option<usize>,
    pub effects: Effects,
    /// Its results have a known latency.
    pub fixed: bool,
    /// It has a fixed latency and no other effects: it sets no scoreboard, orders nothing, and does not branch.
    pub computes: bool,
    /// It may branch.
    pub jumps: bool,
}

/// Code in basic blocks. Nodes stay in place; only their numbers are reordered.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub nodes: Vec<Node>,
    /// The nodes' numbers in the order of the code.
    pub order: Vec<u32>,
    pub pieces: Vec<Piece>,
}

/// A basic block: labels may precede it, a jump may end it.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    pub labels: SmallVec<[usize; 2]>,
    /// Its part of the order.
    pub range: std::ops::Range<usize>,
}

/// Cuts code into blocks at labels and after jumps.
pub(crate) fn listing(lines: &[Line]) -> Listing {
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
                let alone = inst.form().pipe == Pipe::Gmma && inst.form().mnemonic == "WARPGROUP";
                let jumps = jumps(inst);
                if ended || alone && !out.pieces.last().is_some_and(|p| p.range.is_empty()) {
                    out.pieces.push(Piece { range: at..at, ..Piece::default() });
                }
                ended = jumps || alone;
                let fixed = completion(inst) == Completion::Fixed;
                let computes = fixed && is_arithmetic(inst.form().pipe);
                out.nodes.push(Node {
                    inst: *inst,
                    target: *target,
                    effects: Effects::default(),
                    fixed,
                    computes,
                    jumps,
                });
                if let Some(n) = out.nodes.last_mut() {
                    add_effects(inst, &mut n.effects);
                }
                if let Some(p) = out.pieces.last_mut() {
                    p.range.end = at + 1;
                }
            }
        }
    }
    out.order = (0..out.nodes.len() as u32).collect();
    out
}

/// The highest general register in use, plus one.
pub(crate) fn highest(nodes: &[Node]) -> u32 {
    let all = nodes.iter().flat_map(|n| n.effects.reads.iter().chain(&n.effects.writes));
    let general = all.filter(|a| a.file == RegFile::General);
    general.map(|a| u32::from(a.first) + u32::from(a.count)).max().unwrap_or(0)
}

/// Whether instructions of the pipe are pure arithmetic.
fn is_arithmetic(pipe: Pipe) -> bool {
    let uniform = matches!(pipe, Pipe::Uniform | Pipe::UniformMove);
    uniform || matches!(pipe, Pipe::Alu | Pipe::Fma | Pipe::Imad | Pipe::ImadWide | Pipe::Half)
}

/// Whether an instruction may branch.
pub(crate) fn jumps(inst: &Instruction) -> bool {
    if inst.form().pipe != Pipe::Branch {
        return false;
    }
    match inst.form().mnemonic {
        "BRA" | "BRX" | "CALL" | "RET" => true,
        "EXIT" => inst.guard.index == 7 && !inst.guard.not,
        _ => false,
    }
}

/// Estimated cycles until an instruction of variable latency has read its sources; affects only the order.
const SOURCES_READ: u16 = 12;

/// None.
const NONE: u32 = u32::MAX;

/// A dependent node, and the latency.
#[derive(Clone, Copy)]
struct Edge {
    to: u32,
    latency: u32,
}

/// The dependency graph of a block. It is built from the last node to the first, so that the edges of a node are
/// contiguous and the longest path to the end is known as soon as they are.
struct Graph {
    edges: Vec<Edge>,
    /// Where each node's edges begin and end.
    of: Vec<(u32, u32)>,
    /// Cycles of the longest path from each node to the end.
    height: Vec<u32>,
    /// For each node, how many others it waits for.
    waits: Vec<u32>,
    /// For each node, the source of the last edge to it, and that edge.
    met: Vec<(u32, u32)>,
}

impl Graph {
    /// A graph for up to so many nodes.
    fn of(nodes: usize) -> Graph {
        let (edges, of) = (Vec::with_capacity(3 * nodes), Vec::with_capacity(nodes));
        let (height, waits, met) = (Vec::with_capacity(nodes), Vec::with_capacity(nodes), Vec::with_capacity(nodes));
        Graph { edges, of, height, waits, met }
    }

    fn clear(&mut self, nodes: usize) {
        self.edges.clear();
        self.of.clear();
        self.of.resize(nodes, (0, 0));
        self.height.clear();
        self.height.resize(nodes, 0);
        self.waits.clear();
        self.waits.resize(nodes, 0);
        self.met.clear();
        self.met.resize(nodes, (NONE, NONE));
    }

    /// Adds an edge between two nodes, with the longest of their latencies.
    #[inline]
    fn edge(&mut self, from: u32, to: u32, latency: u16) {
        if from == to {
            return;
        }
        let (met, latency) = (&mut self.met[to as usize], u32::from(latency));
        if met.0 == from {
            let edge = &mut self.edges[met.1 as usize];
            edge.latency = edge.latency.max(latency);
        } else {
            *met = (from, self.edges.len() as u32);
            self.edges.push(Edge { to, latency });
            self.waits[to as usize] += 1;
        }
    }

    fn edges(&self, node: u32) -> &[Edge] {
        let (from, to) = self.of[node as usize];
        &self.edges[from as usize..to as usize]
    }
}

/// Latency of a result for a reader.
fn latency(from: &Node, to: &Node, written: usize, read: usize) -> u16 {
    let (w, r) = (&from.effects.writes[written], &to.effects.reads[read]);
    match from.fixed {
        true => u16::from(distance(&from.inst, w, &to.inst, r).safe),
        false => guessed_latency(from.inst.form().pipe),
    }
}

/// The path length of an instruction whose result another block may need, such as a load for the next iteration: among
/// such the first goes first.
fn alone(nodes: &[Node], i: u32) -> u32 {
    let node = &nodes[i as usize];
    match node.fixed || node.effects.writes.is_empty() {
        true => 0,
        false => u32::from(guessed_latency(node.inst.form().pipe)) + nodes.len() as u32 - i,
    }
}

/// The next accesses to a register.
#[derive(Clone, Copy)]
struct Next {
    /// Its next writer, by the node's number over all blocks; a number of an earlier block means none.
    writer: u32,
    /// The first reader before that writer, as the head of a linked list; readers from `first_reader` on are of this
    /// block.
    reader: u32,
}

/// A node that reads a register, which of its reads it is, and the next reader.
struct Reader {
    node: u32,
    read: u32,
    next: u32,
}

/// Memory accesses after a node.
#[derive(Default)]
struct Memory {
    /// Per space: the next store, and the loads before it.
    stores: [Option<u32>; 4],
    loads: [SmallVec<[u32; 16]>; 4],
    /// The next fence, and the accesses before it.
    fence: Option<u32>,
    since: SmallVec<[u32; 16]>,
}

impl Memory {
    fn order(&mut self, g: &mut Graph, i: u32, kind: Order) {
        if kind == Order::Free {
            return;
        }
        if let Some(f) = self.fence {
            g.edge(i, f, 1);
        }
        let (spaces, store) = match kind {
            Order::Load(spaces) => (spaces, false),
            Order::Store(spaces) => (spaces, true),
            _ => {
                self.since.drain(..).for_each(|s| g.edge(i, s, 1));
                self.fence = Some(i);
                self.stores = [None; 4];
                self.loads.iter_mut().for_each(SmallVec::clear);
                return;
            }
        };
        for s in (0..4).filter(|s| spaces >> s & 1 == 1) {
            if let Some(next) = self.stores[s] {
                g.edge(i, next, 1);
            }
            if store {
                self.loads[s].drain(..).for_each(|l| g.edge(i, l, 1));
                self.stores[s] = Some(i);
            } else {
                self.loads[s].push(i);
            }
        }
        self.since.push(i);
    }
}

/// Builds the graph of one block after the other, reusing its tables.
struct Builder<'a> {
    nodes: &'a [Node],
    graph: Graph,
    /// The number of the piece's first node among those of all pieces, from 1.
    base: u32,
    /// By register.
    next: Vec<Next>,
    readers: Vec<Reader>,
    first_reader: u32,
}

impl Builder<'_> {
    fn registers(&mut self, i: u32) {
        let nodes = self.nodes;
        let node = &nodes[i as usize];
        let (rewritten, overwritten) = if node.fixed { (3, 1) } else { (30, SOURCES_READ) };
        for (k, w) in node.effects.writes.iter().enumerate() {
            for next in &mut self.next[span(w)] {
                let mut at = next.reader;
                while at >= self.first_reader
                    && let Some(r) = self.readers.get(at as usize)
                {
                    let cycles = latency(node, &nodes[r.node as usize], k, r.read as usize);
                    self.graph.edge(i, r.node, cycles);
                    at = r.next;
                }
                if let Some(writer) = next.writer.checked_sub(self.base) {
                    self.graph.edge(i, writer, rewritten);
                }
                *next = Next { writer: self.base + i, reader: NONE };
            }
        }
        for (k, r) in node.effects.reads.iter().enumerate() {
            for next in &mut self.next[span(r)] {
                if let Some(writer) = next.writer.checked_sub(self.base) {
                    self.graph.edge(i, writer, overwritten);
                }
                let following = std::mem::replace(&mut next.reader, self.readers.len() as u32);
                self.readers.push(Reader { node: i, read: k as u32, next: following });
            }
        }
    }

    /// Builds the graph of a block.
    fn build(&mut self) {
        let nodes = self.nodes;
        self.graph.clear(nodes.len());
        let mut memory = Memory::default();
        for i in (0..nodes.len() as u32).rev() {
            let from = self.graph.edges.len() as u32;
            self.registers(i);
            memory.order(&mut self.graph, i, order(&nodes[i as usize].inst));
            let g = &mut self.graph;
            g.of[i as usize] = (from, g.edges.len() as u32);
            let way = |e: &Edge| g.height[e.to as usize] + e.latency;
            g.height[i as usize] = g.edges(i).iter().map(way).max().unwrap_or(0).max(alone(nodes, i));
        }
        self.base += nodes.len() as u32;
        self.first_reader = self.readers.len() as u32;
    }
}

/// Orders the instructions of each block.
pub(crate) fn schedule(code: &mut Listing) {
    let longest = code.pieces.iter().map(|p| p.range.len()).max().unwrap_or(0);
    let graph = Graph::of(longest);
    let (next, readers) = (vec![Next { writer: 0, reader: NONE }; REGISTERS], Vec::with_capacity(4 * code.nodes.len()));
    let mut b = Builder { nodes: &[], graph, base: 1, next, readers, first_reader: 0 };
    let mut queue = Queue::default();
    for p in &code.pieces {
        let all = &code.nodes[p.range.clone()];
        let tail = usize::from(all.last().is_some_and(|n| n.jumps));
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
    earliest: Vec<u32>,
    /// Nodes that are ready: the path length in the upper half, the complement of the node's number in the lower.
    now: BinaryHeap<u64>,
    /// Nodes that will be ready later: the time in the upper half.
    later: BinaryHeap<Reverse<u64>>,
}

impl Queue {
    fn may_go(&mut self, g: &Graph, i: u32) {
        self.now.push(u64::from(g.height[i as usize]) << 32 | u64::from(!i));
    }

    /// Longest path first; writes the nodes' numbers, counted from `first`.
    fn list(&mut self, g: &mut Graph, first: u32, out: &mut [u32]) {
        let n = out.len();
        self.earliest.clear();
        self.earliest.resize(n, 0);
        self.now.clear();
        self.later.clear();
        for i in (0..n as u32).filter(|i| g.waits[*i as usize] == 0) {
            self.may_go(g, i);
        }
        let (mut done, mut clock) = (0, 0u32);
        while done < n {
            while let Some(Reverse(e)) = self.later.peek().copied().filter(|e| e.0 >> 32 <= u64::from(clock)) {
                self.later.pop();
                self.may_go(g, e as u32);
            }
            let Some(i) = self.now.pop().map(|e| !(e as u32)) else {
                match self.later.peek() {
                    Some(Reverse(e)) => clock = (e >> 32) as u32,
                    None => break,
                }
                continue;
            };
            out[done] = first + i;
            done += 1;
            let (from, to) = g.of[i as usize];
            for k in from..to {
                let Edge { to, latency } = g.edges[k as usize];
                let earliest = &mut self.earliest[to as usize];
                *earliest = (*earliest).max(clock + latency);
                g.waits[to as usize] -= 1;
                if g.waits[to as usize] > 0 {
                    continue;
                }
                // Nodes that become ready in the next cycle need not be sorted by time.
                match *earliest {
                    at if at > clock + 1 => self.later.push(Reverse(u64::from(at) << 32 | u64::from(to))),
                    _ => self.may_go(g, to),
                }
            }
            clock += 1;
        }
    }
}

//! The order of instructions: a list scheduler for each straight piece of code, after registers are given out.
//!
//! What is on the longest way to the end of its piece goes first, as soon as what it needs will be there. Fixed latencies are
//! those of [`timing`](super::super::timing); the others are guesses, that only the order depends on.

use super::place::Line;
use crate::isa::sass::{Completion, Effects, Instruction, Pipe, RegFile, completion, distance, effects};
use smallvec::SmallVec;
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
enum Order {
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

fn order(inst: &Instruction) -> Order {
    let generic = GLOBAL | SHARED | LOCAL;
    match inst.form().mnemonic {
        "LDG" if inst.modifier("sem") == ".CONSTANT" => Order::Free,
        "LDG" if inst.modifier("sem").is_empty() => Order::Load(GLOBAL),
        "LDG" => Order::Store(GLOBAL),
        "LD" if inst.modifier("sem").is_empty() => Order::Load(generic),
        "LDS" | "LDSM" => Order::Load(SHARED),
        "LDL" => Order::Load(LOCAL),
        "STG" | "ATOMG" | "REDG" => Order::Store(GLOBAL),
        "STS" | "ATOMS" => Order::Store(SHARED),
        "STL" => Order::Store(LOCAL),
        "ST" | "ATOM" | "LD" => Order::Store(generic),
        "SHFL" | "VOTE" | "MATCH" | "REDUX" | "HMMA" | "IMMA" => Order::Load(WARP),
        _ if matches!(inst.form().pipe, Pipe::Branch) => Order::Fence,
        "BAR" | "B2R" | "MEMBAR" | "ERRBAR" | "CCTL" | "CS2R" | "FENCE" | "NOP" => Order::Fence,
        _ => Order::Free,
    }
}

/// An instruction with what it does.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub inst: Instruction,
    pub target: Option<usize>,
    pub effects: Effects,
}

impl Node {
    pub fn new(inst: Instruction, target: Option<usize>) -> Node {
        let effects = effects(&inst);
        Node { inst, target, effects }
    }
}

/// Code in pieces: a label may stand before each, a jump may end it.
#[derive(Debug, Default)]
pub(super) struct Piece {
    pub labels: Vec<usize>,
    pub nodes: Vec<Node>,
}

/// Cuts code at labels and after jumps.
pub(super) fn pieces(lines: Vec<Line>) -> Vec<Piece> {
    let mut out = vec![Piece::default()];
    let mut ended = false;
    for line in lines {
        match line {
            Line::Label(l) => {
                if !out.last().is_some_and(|p| p.nodes.is_empty()) {
                    out.push(Piece::default());
                }
                ended = false;
                if let Some(p) = out.last_mut() {
                    p.labels.push(l);
                }
            }
            Line::Inst(inst, target) => {
                if ended {
                    out.push(Piece::default());
                }
                ended = jumps(&inst);
                if let Some(p) = out.last_mut() {
                    p.nodes.push(Node::new(inst, target));
                }
            }
        }
    }
    out
}

/// Whether control may leave the straight way after it.
pub(super) fn jumps(inst: &Instruction) -> bool {
    match inst.form().mnemonic {
        "BRA" | "BRX" => true,
        "EXIT" => inst.guard.index == 7 && !inst.guard.not,
        _ => false,
    }
}

struct Edge {
    to: u32,
    latency: u16,
}

struct Graph {
    next: Vec<SmallVec<[Edge; 4]>>,
    waits: Vec<u32>,
}

/// Cycles until a result is there.
fn latency(from: &Node, to: &Node, written: usize, read: usize) -> u16 {
    let (w, r) = (&from.effects.writes[written], &to.effects.reads[read]);
    match completion(&from.inst) {
        Completion::Fixed => u16::from(distance(&from.inst, w, &to.inst, r).safe),
        _ => match from.inst.form().pipe {
            Pipe::Global => 300,
            Pipe::Shared => 30,
            Pipe::Constant => 40,
            _ => 24,
        },
    }
}

struct Builder<'a> {
    nodes: &'a [Node],
    graph: Graph,
    /// Last writer of a register and which of its writes it is; readers since.
    writer: Vec<Option<(u32, u8)>>,
    readers: Vec<SmallVec<[u32; 4]>>,
    touched: Vec<usize>,
}

impl Builder<'_> {
    fn edge(&mut self, from: u32, to: u32, latency: u16) {
        if from != to {
            self.graph.next[from as usize].push(Edge { to, latency });
            self.graph.waits[to as usize] += 1;
        }
    }

    fn registers(&mut self, i: u32) {
        let nodes = self.nodes;
        let node = &nodes[i as usize];
        for (k, r) in node.effects.reads.iter().enumerate() {
            for n in 0..r.count {
                let reg = number(r.file, r.first) + usize::from(n);
                if let Some((w, at)) = self.writer[reg] {
                    let cycles = latency(&nodes[w as usize], node, usize::from(at), k);
                    self.edge(w, i, cycles);
                }
                self.readers[reg].push(i);
                self.touched.push(reg);
            }
        }
        for (k, w) in node.effects.writes.iter().enumerate() {
            for n in 0..w.count {
                let reg = number(w.file, w.first) + usize::from(n);
                if let Some((before, _)) = self.writer[reg] {
                    let slow = completion(&nodes[before as usize].inst) != Completion::Fixed;
                    self.edge(before, i, if slow { 30 } else { 3 });
                }
                for r in std::mem::take(&mut self.readers[reg]) {
                    self.edge(r, i, 1);
                }
                self.writer[reg] = Some((i, k as u8));
                self.touched.push(reg);
            }
        }
    }
}

fn graph(nodes: &[Node], writer: &mut Vec<Option<(u32, u8)>>, readers: &mut Vec<SmallVec<[u32; 4]>>) -> Graph {
    let n = nodes.len();
    let graph = Graph { next: (0..n).map(|_| SmallVec::new()).collect(), waits: vec![0; n] };
    let (w, r) = (std::mem::take(writer), std::mem::take(readers));
    let mut b = Builder { nodes, graph, writer: w, readers: r, touched: vec![] };
    // Per space: the last store, and what has loaded since; the last fence, and what came since.
    let mut stores: [Option<u32>; 4] = [None; 4];
    let mut loads: [Vec<u32>; 4] = Default::default();
    let (mut fence, mut since): (Option<u32>, Vec<u32>) = (None, vec![]);
    for i in 0..n as u32 {
        b.registers(i);
        let kind = order(&nodes[i as usize].inst);
        if kind == Order::Free {
            continue;
        }
        if let Some(f) = fence {
            b.edge(f, i, 1);
        }
        match kind {
            Order::Fence => {
                for s in since.drain(..) {
                    b.edge(s, i, 1);
                }
                fence = Some(i);
                stores = [None; 4];
                loads = Default::default();
                continue;
            }
            Order::Load(spaces) | Order::Store(spaces) => {
                let store = matches!(kind, Order::Store(_));
                for s in (0..4).filter(|s| spaces >> s & 1 == 1) {
                    if let Some(before) = stores[s] {
                        b.edge(before, i, 1);
                    }
                    if store {
                        for l in std::mem::take(&mut loads[s]) {
                            b.edge(l, i, 1);
                        }
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
    for reg in &b.touched {
        b.writer[*reg] = None;
        b.readers[*reg].clear();
    }
    (*writer, *readers) = (b.writer, b.readers);
    b.graph
}

/// Orders the instructions of each piece.
pub(super) fn schedule(pieces: &mut [Piece]) {
    let mut writer = vec![None; REGISTERS];
    let mut readers = vec![SmallVec::new(); REGISTERS];
    for p in pieces {
        let tail = usize::from(p.nodes.last().is_some_and(|n| jumps(&n.inst)));
        let body = p.nodes.len() - tail;
        if body < 2 {
            continue;
        }
        let g = graph(&p.nodes[..body], &mut writer, &mut readers);
        let order = list(&g);
        let mut taken: Vec<Option<Node>> = p.nodes.drain(..).map(Some).collect();
        p.nodes.extend(order.iter().filter_map(|i| taken[*i as usize].take()));
        p.nodes.extend(taken.into_iter().flatten());
    }
}

/// Longest way first.
fn list(g: &Graph) -> Vec<u32> {
    let n = g.next.len();
    let mut height = vec![0u32; n];
    for i in (0..n).rev() {
        height[i] = g.next[i].iter().map(|e| height[e.to as usize] + u32::from(e.latency)).max().unwrap_or(0);
    }
    let mut waits = g.waits.clone();
    let mut earliest = vec![0u32; n];
    // Those that may go now, and those that may later, by time.
    let mut now: BinaryHeap<(u32, std::cmp::Reverse<u32>)> = BinaryHeap::new();
    let mut later: BinaryHeap<std::cmp::Reverse<(u32, u32)>> = BinaryHeap::new();
    (0..n).filter(|i| waits[*i] == 0).for_each(|i| now.push((height[i], std::cmp::Reverse(i as u32))));
    let mut out = Vec::with_capacity(n);
    let mut clock = 0u32;
    while out.len() < n {
        while let Some(std::cmp::Reverse((t, i))) = later.peek().copied().filter(|e| e.0.0 <= clock) {
            debug_assert!(t <= clock);
            later.pop();
            now.push((height[i as usize], std::cmp::Reverse(i)));
        }
        let Some((_, std::cmp::Reverse(i))) = now.pop() else {
            match later.peek() {
                Some(std::cmp::Reverse((t, _))) => clock = *t,
                None => break,
            }
            continue;
        };
        out.push(i);
        for e in &g.next[i as usize] {
            let to = e.to as usize;
            earliest[to] = earliest[to].max(clock + u32::from(e.latency));
            waits[to] -= 1;
            if waits[to] == 0 {
                later.push(std::cmp::Reverse((earliest[to], e.to)));
            }
        }
        clock += 1;
    }
    out
}

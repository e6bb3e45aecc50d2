//! Blocks, loops, liveness; the live segments and the operand positions of each value.

use super::live_ranges::{LiveRangeRecorder, LiveRanges, Seg};
use super::{Flow, Func, RegAllocError, VReg};
use smallvec::SmallVec;
use std::cell::OnceCell;
use std::ops::Range;

/// A basic block: instructions `start..end`.
#[derive(Debug)]
pub(super) struct Block {
    pub start: u32,
    pub end: u32,
    pub succs: SmallVec<[u32; 2]>,
    pub preds: SmallVec<[u32; 2]>,
    /// Innermost loop, or `NONE`.
    pub in_loop: u32,
    pub depth: u32,
}

/// A loop: instructions from its label to the last branch back to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loop {
    pub start: u32,
    pub end: u32,
    pub parent: u32,
}

pub(super) const NONE: u32 = u32::MAX;

/// The analysis of one function.
pub(super) struct Live<'a> {
    func: &'a Func,
    pub blocks: Vec<Block>,
    pub loops: Vec<Loop>,
    /// Block of each instruction.
    pub block_of: Vec<u32>,
    /// `live_in[block * words ..]`: bit set of the values that are live at the block's start.
    live_in: Vec<u64>,
    words: usize,
    pub ranges: LiveRanges,
    /// Computed on first use: an allocation without spills does not need them.
    uses: OnceCell<Uses>,
}

/// The operands of values.
struct Uses {
    /// `(instruction, operand index)`, grouped by value, in order.
    all: Vec<(u32, u32)>,
    start: Vec<u32>,
}

impl<'a> Live<'a> {
    pub(crate) fn new(func: &'a Func) -> Result<Self, RegAllocError> {
        let (mut blocks, block_of) = blocks(func)?;
        let loops = loops(&mut blocks);
        let words = func.vregs.len().div_ceil(64).max(1);
        let mut live = Live {
            func,
            blocks,
            loops,
            block_of,
            live_in: Vec::new(),
            words,
            ranges: LiveRanges::default(),
            uses: OnceCell::new(),
        };
        live.ranges = live.walk(func);
        if let Some(v) = live.live_in(0).next() {
            return Err(RegAllocError::Undefined { vreg: v });
        }
        Ok(live)
    }

    /// Live segments of a value, in order.
    pub(crate) fn segs(&self, v: u32) -> &[Seg] {
        self.ranges.segs(v)
    }

    /// Operands of a value as `(instruction, operand index)`, in order.
    pub(crate) fn uses(&self, v: u32) -> &[(u32, u32)] {
        let uses = self.uses.get_or_init(|| Uses::of(self.func));
        &uses.all[uses.start[v as usize] as usize..uses.start[v as usize + 1] as usize]
    }

    /// Values live at a block's start.
    pub(crate) fn live_in(&self, block: u32) -> impl Iterator<Item = u32> + '_ {
        bits(&self.live_in[block as usize * self.words..][..self.words])
    }

    /// Whether a value is live at a block's start.
    pub(crate) fn is_live_in(&self, block: u32, v: u32) -> bool {
        self.live_in[block as usize * self.words + v as usize / 64] >> (v % 64) & 1 == 1
    }

    /// Estimated execution frequency of an instruction: a factor of eight for each loop level.
    pub(crate) fn freq(&self, inst: u32) -> f32 {
        let block = self.block_of.get(inst as usize).map_or(0, |b| self.blocks[*b as usize].depth);
        (1u32 << (3 * block.min(6))) as f32
    }

    /// Innermost loop around an instruction, or `NONE`.
    pub(crate) fn loop_of(&self, inst: u32) -> u32 {
        self.block_of.get(inst as usize).map_or(NONE, |b| self.blocks[*b as usize].in_loop)
    }

    /// The first block of the loop that a back edge from this block forms, extended by overlapping loops; `None`: there
    /// is no back edge from it.
    fn loop_start(&self, block: usize) -> Option<usize> {
        let leads = |b: usize| self.blocks[b].succs.iter().min().map_or(b + 1, |s| *s as usize);
        let (mut first, mut b) = (leads(block), block);
        if first > block {
            return None;
        }
        while b > first {
            b -= 1;
            first = first.min(leads(b));
        }
        Some(first)
    }

    /// Solves liveness backwards over a set of blocks that can reach each other; the liveness of the blocks after them
    /// is known.
    fn flow(&mut self, func: &Func, all: Range<usize>) {
        let w = self.words;
        let mut kill = vec![0u64; all.len() * w];
        for b in all.clone() {
            // The initial value is what a block reads before writing it.
            let (reads, writes) = (&mut self.live_in[b * w..][..w], &mut kill[(b - all.start) * w..][..w]);
            let block = &self.blocks[b];
            for i in block.start..block.end {
                for op in func.operands(i).iter().filter(|op| op.role.reads()) {
                    let (word, bit) = (op.vreg.0 as usize / 64, 1 << (op.vreg.0 % 64));
                    reads[word] |= bit & !writes[word];
                }
                for op in func.operands(i).iter().filter(|op| op.role.writes()) {
                    writes[op.vreg.0 as usize / 64] |= 1 << (op.vreg.0 % 64);
                }
            }
        }
        let mut changed = true;
        while changed {
            changed = false;
            for b in all.clone().rev() {
                for s in 0..self.blocks[b].succs.len() {
                    let succ = self.blocks[b].succs[s] as usize;
                    for k in 0..w {
                        let new =
                            self.live_in[succ * w + k] & !kill[(b - all.start) * w + k] & !self.live_in[b * w + k];
                        if new != 0 {
                            self.live_in[b * w + k] |= new;
                            changed = true;
                        }
                    }
                }
            }
        }
    }

    /// Walks each block backwards and records live ranges. Outside loops, all successors of a block have been walked
    /// before it, so this also computes what is live at the block's start.
    fn walk(&mut self, func: &Func) -> LiveRanges {
        let w = self.words;
        self.live_in = vec![0; self.blocks.len() * w];
        // Liveness is solved for the blocks from here on.
        let mut solved = self.blocks.len();
        let mut now = vec![0u64; w];
        let mut recorder = LiveRangeRecorder::new(func.vregs.len(), self.blocks.len(), func.insts.len());
        for b in (0..self.blocks.len()).rev() {
            if b < solved
                && let Some(first) = self.loop_start(b)
            {
                self.flow(func, first..b + 1);
                solved = first;
            }
            let block = &self.blocks[b];
            now.fill(0);
            for s in &block.succs {
                now.iter_mut().zip(&self.live_in[*s as usize * w..]).for_each(|(n, l)| *n |= l);
            }
            recorder.block(b);
            bits(&now).for_each(|v| recorder.until(VReg(v), 2 * block.end));
            for i in (block.start..block.end).rev() {
                let ops = func.operands(i);
                for op in ops.iter().filter(|op| op.role.writes() && !op.role.reads()) {
                    now[op.vreg.0 as usize / 64] &= !(1 << (op.vreg.0 % 64));
                }
                for op in ops.iter().filter(|op| op.role.reads()) {
                    now[op.vreg.0 as usize / 64] |= 1 << (op.vreg.0 % 64);
                }
                recorder.inst(i, ops);
            }
            let first = &mut self.live_in[b * w..][..w];
            if b < solved {
                first.copy_from_slice(&now);
            }
            bits(first).for_each(|v| recorder.enter(VReg(v), 2 * block.start));
            recorder.end_block();
        }
        recorder.ranges()
    }
}

impl Uses {
    fn of(func: &Func) -> Uses {
        let nv = func.vregs.len();
        let mut start = vec![0u32; nv + 1];
        for op in &func.operands {
            start[op.vreg.0 as usize + 1] += 1;
        }
        for v in 0..nv {
            start[v + 1] += start[v];
        }
        let mut next = start.clone();
        let mut all = vec![(0, 0); func.operands.len()];
        for i in 0..func.insts.len() as u32 {
            for o in func.operand_range(i) {
                let slot = &mut next[func.operands[o].vreg.0 as usize];
                all[*slot as usize] = (i, o as u32);
                *slot += 1;
            }
        }
        Uses { all, start }
    }
}

/// Indexes of set bits.
fn bits(words: &[u64]) -> impl Iterator<Item = u32> + '_ {
    words.iter().enumerate().flat_map(|(k, w)| {
        let mut w = *w;
        std::iter::from_fn(move || {
            let bit = (w != 0).then(|| w.trailing_zeros())?;
            w &= w - 1;
            Some(k as u32 * 64 + bit)
        })
    })
}

/// Cuts the code into blocks at labels and after jumps, and links them.
fn blocks(func: &Func) -> Result<(Vec<Block>, Vec<u32>), RegAllocError> {
    let n = func.insts.len() as u32;
    let mut blocks: Vec<Block> = Vec::new();
    let mut block_of = Vec::with_capacity(n as usize);
    let mut label_at = vec![NONE; func.label_count()];
    let mut open = false;
    for (i, inst) in func.insts.iter().enumerate() {
        if !open || matches!(inst.flow, Flow::Label(_)) {
            let start = i as u32;
            let (succs, preds) = Default::default();
            blocks.push(Block { start, end: start, succs, preds, in_loop: NONE, depth: 0 });
        }
        let b = blocks.len() - 1;
        if let Flow::Label(l) = inst.flow {
            label_at[l.0 as usize] = b as u32;
        }
        blocks[b].end = i as u32 + 1;
        block_of.push(b as u32);
        open = matches!(inst.flow, Flow::Next | Flow::Label(_));
    }
    for b in 0..blocks.len() {
        let last = blocks[b].end - 1;
        let flow = func.insts[last as usize].flow;
        let mut succs: SmallVec<[u32; 2]> = SmallVec::new();
        if let Flow::Jump(l) | Flow::Branch(l) = flow {
            match label_at[l.0 as usize] {
                NONE => return Err(RegAllocError::NoLabel { label: l.0, inst: last }),
                to => succs.push(to),
            }
        }
        if !matches!(flow, Flow::Jump(_) | Flow::Return) && b + 1 < blocks.len() && !succs.contains(&(b as u32 + 1)) {
            succs.push(b as u32 + 1);
        }
        for s in &succs {
            blocks[*s as usize].preds.push(b as u32);
        }
        blocks[b].succs = succs;
    }
    Ok((blocks, block_of))
}

/// Finds loops by their backward jumps and records each block's innermost loop.
fn loops(blocks: &mut [Block]) -> Vec<Loop> {
    let mut loops: Vec<Loop> = Vec::new();
    for (b, block) in blocks.iter().enumerate() {
        if let Some(last) = block.preds.iter().filter(|p| **p as usize >= b).max() {
            loops.push(Loop { start: block.start, end: blocks[*last as usize].end, parent: NONE });
        }
    }
    // Headers are in order, so an outer loop comes before its inner ones.
    for l in 0..loops.len() {
        let me = loops[l];
        loops[l].parent = (0..l).rev().find(|p| loops[*p].end >= me.end).map_or(NONE, |p| p as u32);
        let depth = 1 + (0..l).filter(|p| loops[*p].end >= me.end).count() as u32;
        for block in blocks.iter_mut().filter(|b| b.start >= me.start && b.end <= me.end) {
            (block.in_loop, block.depth) = (l as u32, depth);
        }
    }
    loops
}

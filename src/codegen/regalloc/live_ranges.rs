//! The live ranges of values, as segments of points. They are recorded block by block, each block from its end to its
//! start.

use super::live::NONE;
use super::{Class, Operand, RegInfo, VReg};

/// A half-open range of points; instruction `i` reads at `2i` and writes at `2i + 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seg {
    pub from: u32,
    pub to: u32,
}

/// Records live ranges during a backward walk over blocks. Points increase with the position of the block, and from a
/// block's start to its end.
#[derive(Debug)]
pub struct LiveRangeRecorder {
    /// Where the open segment of each value ends, or `NONE`.
    open: Vec<u32>,
    seen: Vec<(u32, Seg)>,
    /// By block position: the segments recorded when the block was walked last.
    blocks: Vec<(u32, u32)>,
    /// Position of the block that is being walked.
    place: usize,
}

impl LiveRangeRecorder {
    /// An empty recorder for this many values and blocks, with room for this many instructions.
    #[must_use]
    pub fn new(values: usize, blocks: usize, insts: usize) -> LiveRangeRecorder {
        LiveRangeRecorder {
            open: vec![NONE; values],
            seen: Vec::with_capacity(values + insts / 2),
            blocks: vec![(0, 0); blocks],
            place: 0,
        }
    }

    /// Starts the walk of the block at that position, for the first time or again.
    pub fn block(&mut self, place: usize) {
        self.place = place;
        let start = self.seen.len() as u32;
        self.blocks[place] = (start, start);
    }

    /// The value is live up to that point.
    #[inline]
    pub fn until(&mut self, v: VReg, end: u32) {
        let open = &mut self.open[v.0 as usize];
        if *open == NONE || *open < end {
            *open = end;
        }
    }

    /// The value becomes live here, and stays so at least up to `end`.
    #[inline]
    pub fn begin(&mut self, v: VReg, from: u32, end: u32) {
        let open = &mut self.open[v.0 as usize];
        let to = if *open == NONE { end } else { *open };
        *open = NONE;
        self.seen.push((v.0, Seg { from, to }));
    }

    /// If the value is live, it has been so since the block's start.
    #[inline]
    pub fn enter(&mut self, v: VReg, start: u32) {
        let open = &mut self.open[v.0 as usize];
        if *open != NONE {
            self.seen.push((v.0, Seg { from: start, to: *open }));
            *open = NONE;
        }
    }

    /// Records an instruction with these operands.
    #[inline]
    pub fn inst(&mut self, i: u32, operands: &[Operand]) {
        for op in operands.iter().filter(|op| op.role.writes()) {
            let span = op.role.points(i);
            match op.role.reads() {
                true if self.open[op.vreg.0 as usize] == NONE => self.open[op.vreg.0 as usize] = span.end,
                true => {}
                false => self.begin(op.vreg, span.start, span.end),
            }
        }
        for op in operands.iter().filter(|op| op.role.reads()) {
            self.until(op.vreg, op.role.points(i).end);
        }
    }

    /// Ends the walk of the block at its start.
    pub fn end_block(&mut self) {
        self.blocks[self.place].1 = self.seen.len() as u32;
    }

    /// The recorded segments of each value, in order.
    #[must_use]
    pub fn ranges(&self) -> LiveRanges {
        let mut head = vec![NONE; self.open.len()];
        let mut list: Vec<(Seg, u32)> = Vec::with_capacity(self.seen.len());
        for (from, to) in self.blocks.iter().rev() {
            for (v, seg) in &self.seen[*from as usize..*to as usize] {
                let h = &mut head[*v as usize];
                match list.get_mut(*h as usize) {
                    Some((next, _)) if next.from <= seg.to => next.from = seg.from,
                    _ => {
                        list.push((*seg, *h));
                        *h = list.len() as u32 - 1;
                    }
                }
            }
        }
        let mut ranges = LiveRanges { segs: Vec::with_capacity(list.len()), start: Vec::with_capacity(head.len() + 1) };
        for mut h in head {
            ranges.start.push(ranges.segs.len() as u32);
            while let Some((seg, next)) = list.get(h as usize) {
                ranges.segs.push(*seg);
                h = *next;
            }
        }
        ranges.start.push(ranges.segs.len() as u32);
        ranges
    }
}

/// The live segments of each value.
#[derive(Debug, Default)]
pub struct LiveRanges {
    segs: Vec<Seg>,
    start: Vec<u32>,
}

impl LiveRanges {
    /// Live segments of a value, in order.
    #[inline]
    pub(super) fn segs(&self, v: u32) -> &[Seg] {
        &self.segs[self.start[v as usize] as usize..self.start[v as usize + 1] as usize]
    }

    /// The register pressure: the most registers of each file that values of these classes need at one point, in code
    /// with so many points.
    #[must_use]
    pub fn pressure(&self, classes: &[Class], regs: &RegInfo, points: usize) -> Vec<u16> {
        most(self.needs(classes, regs, points), points)
    }

    /// For each file and point, the change in the number of registers that are needed.
    pub(super) fn needs(&self, classes: &[Class], regs: &RegInfo, points: usize) -> Vec<i32> {
        let mut need = vec![0i32; points * regs.files.len()];
        for (v, class) in (0u32..).zip(classes) {
            let class = &regs.classes[usize::from(class.0)];
            let (first, width) = (usize::from(class.file) * points, i32::from(class.width));
            for s in self.segs(v) {
                need[first + s.from as usize] += width;
                need[first + s.to as usize] -= width;
            }
        }
        need
    }
}

/// The maximum for each file.
pub(super) fn most(need: Vec<i32>, points: usize) -> Vec<u16> {
    let most = |file: &[i32]| {
        let (mut sum, mut most) = (0, 0);
        for n in file {
            sum += *n;
            most = sum.max(most);
        }
        u16::try_from(most).unwrap_or(u16::MAX)
    };
    need.chunks_exact(points).map(most).collect()
}

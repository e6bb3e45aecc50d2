//! The lives of values as segments of points, noted block by block from each block's end to its start.

use super::live::NONE;
use super::{Class, Operand, RegInfo, VReg};

/// A half-open range of points; instruction `i` reads at `2i` and writes at `2i + 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seg {
    pub from: u32,
    pub to: u32,
}

/// Where values are alive, as somebody who walks blocks backwards sees it. Points grow with the places of blocks, and from a block's start to
/// its end.
#[derive(Debug)]
pub struct Sight {
    /// Where the open segment of each value ends, or `NONE`.
    open: Vec<u32>,
    seen: Vec<(u32, Seg)>,
    /// By place: what was seen of the block when it was walked last.
    blocks: Vec<(u32, u32)>,
    /// The place of the block that is being walked.
    place: usize,
}

impl Sight {
    /// Nothing of so many values in so many blocks, with room for so many instructions.
    #[must_use]
    pub fn new(values: usize, blocks: usize, insts: usize) -> Sight {
        Sight {
            open: vec![NONE; values],
            seen: Vec::with_capacity(values + insts / 2),
            blocks: vec![(0, 0); blocks],
            place: 0,
        }
    }

    /// The block in that place is walked, for the first time or again.
    pub fn block(&mut self, place: usize) {
        self.place = place;
        let start = self.seen.len() as u32;
        self.blocks[place] = (start, start);
    }

    /// The value is alive up to that point.
    #[inline]
    pub fn until(&mut self, v: VReg, end: u32) {
        let open = &mut self.open[v.0 as usize];
        if *open == NONE || *open < end {
            *open = end;
        }
    }

    /// The value begins to be alive, at least up to `end`.
    #[inline]
    pub fn begin(&mut self, v: VReg, from: u32, end: u32) {
        let open = &mut self.open[v.0 as usize];
        let to = if *open == NONE { end } else { *open };
        *open = NONE;
        self.seen.push((v.0, Seg { from, to }));
    }

    /// The value, if it is alive, has been so since the block's start.
    #[inline]
    pub fn enter(&mut self, v: VReg, start: u32) {
        let open = &mut self.open[v.0 as usize];
        if *open != NONE {
            self.seen.push((v.0, Seg { from: start, to: *open }));
            *open = NONE;
        }
    }

    /// An instruction with such operands.
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

    /// The block has been walked to its start.
    pub fn end_block(&mut self) {
        self.blocks[self.place].1 = self.seen.len() as u32;
    }

    /// What was seen of each value, in order.
    #[must_use]
    pub fn lives(&self) -> Lives {
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
        let mut lives = Lives { segs: Vec::with_capacity(list.len()), start: Vec::with_capacity(head.len() + 1) };
        for mut h in head {
            lives.start.push(lives.segs.len() as u32);
            while let Some((seg, next)) = list.get(h as usize) {
                lives.segs.push(*seg);
                h = *next;
            }
        }
        lives.start.push(lives.segs.len() as u32);
        lives
    }
}

/// The live segments of each value.
#[derive(Debug, Default)]
pub struct Lives {
    segs: Vec<Seg>,
    start: Vec<u32>,
}

impl Lives {
    /// Live segments of a value, in order.
    #[inline]
    pub(super) fn segs(&self, v: u32) -> &[Seg] {
        &self.segs[self.start[v as usize] as usize..self.start[v as usize + 1] as usize]
    }

    /// The most registers of each file that values of these classes want at once, of code with so many points.
    #[must_use]
    pub fn pressure(&self, classes: &[Class], regs: &RegInfo, points: usize) -> Vec<u16> {
        most(self.needs(classes, regs, points), points)
    }

    /// For each file and point by how many registers what is wanted there grows.
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

/// The most that is wanted of each file.
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

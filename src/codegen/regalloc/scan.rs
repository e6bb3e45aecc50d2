//! Linear scan without splitting: each live range, in order of its start, gets one register for its whole length. This
//! is enough for nearly all functions, and needs no pieces.
//!
//! It chooses the registers that `color` would choose. If no register is free over the whole of a live range but one is
//! free at its start, the allocator with splitting takes over. If none is free even at its start, there are too few
//! registers.

use super::color::{Bits, Choice, Hints, Sweep, window};
use super::live::NONE;
use super::live_ranges::{LiveRanges, Seg};
use super::{Allocation, Class, Func, Loc, PReg, RegInfo, VReg};
use std::ops::Range;

/// The registers of values that have one each for their whole live range.
#[derive(Debug)]
pub struct Unsplit {
    given: Vec<u16>,
    /// Registers that are written, by file.
    pub(super) used: Vec<Bits>,
}

impl Unsplit {
    /// The first register of a value; `None`: it is never live.
    #[inline]
    #[must_use]
    pub fn register(&self, v: VReg) -> Option<u16> {
        self.given.get(v.0 as usize).copied().filter(|r| *r != u16::MAX)
    }

    /// One more than the highest allocated register of a file.
    #[must_use]
    pub fn end(&self, file: u8) -> u32 {
        let words = (0u32..).zip(self.used.get(usize::from(file)).into_iter().flatten());
        words.filter(|(_, bits)| **bits != 0).map(|(k, bits)| 64 * k + 64 - bits.leading_zeros()).max().unwrap_or(0)
    }

    /// The same as the allocation of a function's operands.
    #[must_use]
    pub fn allocation(&self, func: &Func, regs: &RegInfo) -> Allocation {
        let file = |v: VReg| regs.classes[usize::from(func.class(v).0)].file;
        let place = |v: VReg| match self.register(v) {
            Some(index) => Loc::Reg(PReg { file: file(v), index }),
            None => super::resolve::NOWHERE,
        };
        let operands = func.operands.iter().map(|op| place(op.vreg)).collect();
        Allocation { operands, written: super::resolve::listed(&self.used), ..Allocation::default() }
    }
}

/// The values of a piece of code with so many points.
#[derive(Clone, Copy)]
pub struct Values<'a> {
    /// By value.
    pub classes: &'a [Class],
    /// Their live ranges.
    pub ranges: &'a LiveRanges,
    /// One more than the last point of a live range.
    pub points: usize,
}

/// Gives each value one register for its whole live range, if that is possible. `copies` (to, from) are pairs that
/// should preferably get the same register. If none of a file's registers is free, one of `spare` is used (by file; an
/// empty range means none).
#[must_use]
pub fn allocate_unsplit(
    values: Values,
    copies: &[(VReg, VReg)],
    regs: &RegInfo,
    spare: &[Range<u16>],
) -> Option<Unsplit> {
    let hints = Hints::of_copies(values.classes.len(), copies.iter().copied());
    let order = order(values, regs);
    let mut choice = Choice::new(values.classes, regs, &hints);
    choice.add(spare);
    match scan(values, regs, choice, &order) {
        Scanned::Unsplit(whole) => Some(whole),
        Scanned::Full | Scanned::NeedsSplit => None,
    }
}

/// Result of the scan without splitting.
pub(super) enum Scanned {
    /// Every value has one register.
    Unsplit(Unsplit),
    /// No register is free where a live range starts.
    Full,
    /// A live range must be split.
    NeedsSplit,
}

/// An assigned live range with holes that has not ended.
struct WithHoles {
    vreg: u32,
    mask: Bits,
}

/// The values in order of their start; of values that start together the wide ones come first. (The width of a value's
/// class does not depend on which registers there are.)
pub(super) fn order(values: Values, regs: &RegInfo) -> Vec<u32> {
    let start = |v: u32| values.ranges.segs(v).first().map(|s| s.from as usize);
    // By point: the first value that starts there. By value: the next one that starts at the same point.
    let mut first = vec![NONE; values.points];
    let mut next = vec![NONE; values.classes.len()];
    for v in (0..values.classes.len() as u32).rev() {
        if let Some(at) = start(v) {
            next[v as usize] = std::mem::replace(&mut first[at], v);
        }
    }
    let width = |v: &u32| regs.classes[usize::from(values.classes[*v as usize].0)].width;
    let mut all = Vec::with_capacity(values.classes.len());
    for mut v in first {
        let from = all.len();
        while v != NONE {
            all.push(v);
            v = next[v as usize];
        }
        let together = &mut all[from..];
        if together.len() > 1 {
            doorbell_sort::by_key(together, |v| !width(v));
        }
    }
    all
}

/// Assigns registers to the values in that order.
pub(super) fn scan(values: Values, regs: &RegInfo, mut choice: Choice, order: &[u32]) -> Scanned {
    let Values { classes, ranges, points } = values;
    let mut sweep = Sweep::new(regs.files.len(), points, order.len());
    let mut with_holes: Vec<Vec<WithHoles>> = regs.files.iter().map(|_| vec![]).collect();
    let mut used = vec![[0; 4]; regs.files.len()];
    for v in order.iter().copied() {
        let (segs, class) = (ranges.segs(v), &regs.classes[usize::from(classes[v as usize].0)]);
        let (file, start) = (usize::from(class.file), segs[0].from);
        sweep.reach(start);
        let mut busy = sweep.held(class.file);
        if !with_holes[file].is_empty() {
            with_holes[file].retain(|h| ranges.segs(h.vreg).last().is_some_and(|s| s.to > start));
            with_holes[file]
                .iter()
                .filter(|h| overlap(ranges.segs(h.vreg), segs))
                .for_each(|h| join(&mut busy, &h.mask));
        }
        let Some(r) = choice.choose(v, class, &busy) else {
            let mut here = sweep.held(class.file);
            let first = [Seg { from: start, to: start + 1 }];
            with_holes[file]
                .iter()
                .filter(|h| overlap(ranges.segs(h.vreg), &first))
                .for_each(|h| join(&mut here, &h.mask));
            return if choice.choose(v, class, &here).is_none() { Scanned::Full } else { Scanned::NeedsSplit };
        };
        choice.give(v, r);
        let mask = window(r, class.width);
        join(&mut used[file], &mask);
        match segs {
            [s] => sweep.hold(class.file, (r, class.width), s.to),
            _ => with_holes[file].push(WithHoles { vreg: v, mask }),
        }
    }
    Scanned::Unsplit(Unsplit { given: choice.all(), used })
}

fn join(to: &mut Bits, bits: &Bits) {
    to.iter_mut().zip(bits).for_each(|(t, b)| *t |= b);
}

/// Whether two live ranges, each sorted, have a point in common.
fn overlap(a: &[Seg], b: &[Seg]) -> bool {
    let (mut i, mut j) = (0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        if x.to <= y.from {
            i += 1;
        } else if y.to <= x.from {
            j += 1;
        } else {
            return true;
        }
    }
    false
}

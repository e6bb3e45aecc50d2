//! Whole lives in order of their start, each in one register all along: what nearly all functions get, and without pieces.
//!
//! Registers are those that `color` would give. As soon as a life finds none that is free all along, but one at its start, the steps that
//! can part it take over; where there is none even at its start, there are too few registers.

use super::color::{Bits, Choice, Hints, Sweep, window};
use super::live::NONE;
use super::lives::{Lives, Seg};
use super::{Allocation, Class, Func, Loc, PReg, RegInfo, VReg};
use std::ops::Range;

/// Registers of values that have one each all their life.
#[derive(Debug)]
pub struct Whole {
    given: Vec<u16>,
    /// Registers that are written, by file.
    pub(super) used: Vec<Bits>,
}

impl Whole {
    /// The first register of a value; `None`: it is never alive.
    #[inline]
    #[must_use]
    pub fn register(&self, v: VReg) -> Option<u16> {
        self.given.get(v.0 as usize).copied().filter(|r| *r != u16::MAX)
    }

    /// One more than the highest register of a file that is given out.
    #[must_use]
    pub fn end(&self, file: u8) -> u32 {
        let words = (0u32..).zip(self.used.get(usize::from(file)).into_iter().flatten());
        words.filter(|(_, bits)| **bits != 0).map(|(k, bits)| 64 * k + 64 - bits.leading_zeros()).max().unwrap_or(0)
    }

    /// The same by operands of a function.
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

/// Values of code with so many points.
#[derive(Clone, Copy)]
pub struct Values<'a> {
    /// By value.
    pub classes: &'a [Class],
    /// What was seen of them.
    pub lives: &'a Lives,
    /// One more than the last point of a life.
    pub points: usize,
}

/// Gives each value one register for all its life, where that is possible; `copies` tell which values had best the same register (to, from). Where
/// none of a file's registers does, one of `spare` does: by file, none if there is no range.
#[must_use]
pub fn whole(values: Values, copies: &[(VReg, VReg)], regs: &RegInfo, spare: &[Range<u16>]) -> Option<Whole> {
    let hints = Hints::of_copies(values.classes.len(), copies.iter().copied());
    let order = order(values, regs);
    let mut choice = Choice::new(values.classes, regs, &hints);
    choice.add(spare);
    match scan(values, regs, choice, &order) {
        Scanned::Whole(whole) => Some(whole),
        Scanned::Full | Scanned::Parted => None,
    }
}

/// How far whole lives come.
pub(super) enum Scanned {
    /// Every value has one register all its life.
    Whole(Whole),
    /// No register is free where a life starts.
    Full,
    /// A life must be parted.
    Parted,
}

/// A placed life with holes that has not ended.
struct Holed {
    vreg: u32,
    mask: Bits,
}

/// The values in order of their start; of those that start together the wide ones first. A value's class is of the same width whatever
/// registers there are.
pub(super) fn order(values: Values, regs: &RegInfo) -> Vec<u32> {
    let start = |v: u32| values.lives.segs(v).first().map(|s| s.from as usize);
    // By point: the first value that starts there; by value: the next one.
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
            together.sort_by_key(|v| !width(v));
        }
    }
    all
}

/// Gives the values registers in that order.
pub(super) fn scan(values: Values, regs: &RegInfo, mut choice: Choice, order: &[u32]) -> Scanned {
    let Values { classes, lives, points } = values;
    let mut sweep = Sweep::new(regs.files.len(), points, order.len());
    let mut holed: Vec<Vec<Holed>> = regs.files.iter().map(|_| vec![]).collect();
    let mut used = vec![[0; 4]; regs.files.len()];
    for v in order.iter().copied() {
        let (segs, class) = (lives.segs(v), &regs.classes[usize::from(classes[v as usize].0)]);
        let (file, start) = (usize::from(class.file), segs[0].from);
        sweep.reach(start);
        let mut busy = sweep.held(class.file);
        if !holed[file].is_empty() {
            holed[file].retain(|h| lives.segs(h.vreg).last().is_some_and(|s| s.to > start));
            holed[file].iter().filter(|h| meet(lives.segs(h.vreg), segs)).for_each(|h| join(&mut busy, &h.mask));
        }
        let Some(r) = choice.choose(v, class, &busy) else {
            let mut here = sweep.held(class.file);
            let first = [Seg { from: start, to: start + 1 }];
            holed[file].iter().filter(|h| meet(lives.segs(h.vreg), &first)).for_each(|h| join(&mut here, &h.mask));
            return if choice.choose(v, class, &here).is_none() { Scanned::Full } else { Scanned::Parted };
        };
        choice.give(v, r);
        let mask = window(r, class.width);
        join(&mut used[file], &mask);
        match segs {
            [s] => sweep.hold(class.file, (r, class.width), s.to),
            _ => holed[file].push(Holed { vreg: v, mask }),
        }
    }
    Scanned::Whole(Whole { given: choice.all(), used })
}

fn join(to: &mut Bits, bits: &Bits) {
    to.iter_mut().zip(bits).for_each(|(t, b)| *t |= b);
}

/// Whether some point is in both lives, each in order.
fn meet(a: &[Seg], b: &[Seg]) -> bool {
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

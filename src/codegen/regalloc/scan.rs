//! Whole lives in order of their start, each in one register all along: what nearly all functions get, and without pieces.
//!
//! Registers are those that `color` would give. As soon as a life finds none that is free all along, but one at its start, the steps that
//! can part it take over; where there is none even at its start, there are too few registers.

use super::color::{Bits, Choice, Hints, Sweep, window};
use super::live::{Live, Seg};
use super::{Allocation, Class, Func, Loc, PReg, RegInfo};

/// How far whole lives come.
pub(super) enum Scanned {
    /// Every value has one register all its life.
    Whole(Allocation),
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
pub(super) fn order(func: &Func, regs: &RegInfo, live: &Live) -> Vec<u32> {
    let width = |class: Class| regs.classes[usize::from(class.0)].width;
    let key = |(v, class): (u32, &Class)| {
        let from = live.segs(v).first()?.from;
        Some((u64::from(from) << 16 | u64::from(!width(*class)), v))
    };
    let mut all = Vec::with_capacity(func.vregs.len());
    all.extend((0..).zip(&func.vregs).filter_map(key));
    // Values mostly have their numbers in that order.
    all.sort_by_key(|(key, _)| *key);
    all.into_iter().map(|(_, v)| v).collect()
}

/// Gives the values registers in that order.
pub(super) fn scan(func: &Func, regs: &RegInfo, live: &Live, hints: &Hints, order: &[u32]) -> Scanned {
    let mut choice = Choice::new(func, regs, hints);
    let mut sweep = Sweep::new(regs.files.len(), 2 * func.insts.len() + 2, order.len());
    let mut holed: Vec<Vec<Holed>> = regs.files.iter().map(|_| vec![]).collect();
    let mut used = vec![[0; 4]; regs.files.len()];
    for v in order.iter().copied() {
        let (segs, class) = (live.segs(v), &regs.classes[usize::from(func.vregs[v as usize].0)]);
        let (file, start) = (usize::from(class.file), segs[0].from);
        sweep.reach(start);
        let mut busy = sweep.held(class.file);
        if !holed[file].is_empty() {
            holed[file].retain(|h| live.segs(h.vreg).last().is_some_and(|s| s.to > start));
            holed[file].iter().filter(|h| meet(live.segs(h.vreg), segs)).for_each(|h| join(&mut busy, &h.mask));
        }
        let Some(r) = choice.choose(v, class, &busy) else {
            let mut here = sweep.held(class.file);
            let first = [Seg { from: start, to: start + 1 }];
            holed[file].iter().filter(|h| meet(live.segs(h.vreg), &first)).for_each(|h| join(&mut here, &h.mask));
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
    let file = |v: u32| regs.classes[usize::from(func.vregs[v as usize].0)].file;
    let place = |v: u32| match choice.given(v) {
        Some(index) => Loc::Reg(PReg { file: file(v), index }),
        None => super::resolve::NOWHERE,
    };
    let operands = func.operands.iter().map(|op| place(op.vreg.0)).collect();
    Scanned::Whole(Allocation { operands, written: super::resolve::listed(&used), ..Allocation::default() })
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

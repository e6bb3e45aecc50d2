//! Liveness of single words: dead instructions go, and a write of a part of a register is told whether the rest is wanted.

use super::mir::{Code, Mach, Nature, RegField, width};
use crate::codegen::regalloc::VReg;

/// A set of words.
#[derive(Clone, PartialEq)]
struct Bits(Vec<u64>);

impl Bits {
    fn get(&self, i: usize) -> bool {
        self.0[i / 64] >> (i % 64) & 1 == 1
    }

    fn set(&mut self, i: usize, on: bool) {
        let bit = 1 << (i % 64);
        if on { self.0[i / 64] |= bit } else { self.0[i / 64] &= !bit }
    }

    fn add(&mut self, other: &Bits) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a |= b);
    }
}

struct Live {
    /// The first word of each register.
    base: Vec<usize>,
    widths: Vec<u8>,
    /// A register that is everywhere and never given out.
    skip: VReg,
}

/// The glued group that ends before `end`.
pub(super) fn bundle_start(ops: &[Mach], end: usize) -> usize {
    let mut from = end - 1;
    while from > 0 && ops[from].glued {
        from -= 1;
    }
    from
}

/// Removes what nobody wants, decides which writes keep the rest of their register, and gives the registers that are read before
/// anything wrote them.
pub(super) fn settle(code: &mut Code, skip: VReg) -> Vec<VReg> {
    let mut base = Vec::with_capacity(code.classes.len());
    let mut total = 0;
    for c in &code.classes {
        base.push(total);
        total += usize::from(width(*c));
    }
    let live = Live { base, widths: code.classes.iter().map(|c| width(*c)).collect(), skip };
    let empty = Bits(vec![0; total.div_ceil(64)]);
    let mut ins = vec![empty.clone(); code.blocks.len()];
    let loops =
        code.order.iter().enumerate().any(|(k, b)| code.successors(*b).iter().any(|s| code.order[..=k].contains(s)));
    loop {
        let mut changed = false;
        for b in code.order.clone().into_iter().rev() {
            let mut now = live.out(code, b, &ins, &empty);
            live.block(&mut code.blocks[b].ops, &mut now, false);
            if now != ins[b] {
                ins[b] = now;
                changed = true;
            }
        }
        if !changed || !loops {
            break;
        }
    }
    for b in code.order.clone() {
        let mut now = live.out(code, b, &ins, &empty);
        live.block(&mut code.blocks[b].ops, &mut now, true);
    }
    let first = &ins[code.order[0]];
    let wanted = |v: &usize| (0..usize::from(live.widths[*v])).any(|k| first.get(live.base[*v] + k));
    (0..code.classes.len()).filter(wanted).map(|v| VReg(v as u32)).collect()
}

impl Live {
    fn out(&self, code: &Code, b: usize, ins: &[Bits], empty: &Bits) -> Bits {
        let mut now = empty.clone();
        for s in code.successors(b) {
            now.add(&ins[s]);
        }
        if let super::mir::Term::Branch(p, ..) = code.blocks[b].term
            && let Some(w) = p.word
        {
            now.set(self.base[w.reg.0 as usize], true);
        }
        now
    }

    fn block(&self, ops: &mut Vec<Mach>, now: &mut Bits, last: bool) {
        let mut end = ops.len();
        let mut dead = false;
        while end > 0 {
            let from = bundle_start(ops, end);
            if !self.bundle(&mut ops[from..end], now, last) && last {
                ops[from..end].iter_mut().for_each(|m| m.nature = Nature::Undefined);
                dead = true;
            }
            end = from;
        }
        if dead {
            ops.retain(|m| m.nature != Nature::Undefined);
        }
    }

    /// The words of a register field.
    fn span(&self, r: &RegField) -> std::ops::Range<usize> {
        let first = self.base[r.word.reg.0 as usize] + usize::from(r.word.sub);
        first..first + usize::from(r.count)
    }

    /// The words that an instruction reads or writes.
    fn words(&self, m: &Mach, write: bool) -> impl Iterator<Item = usize> {
        let wanted = move |r: &&RegField| r.write == write && r.word.reg != self.skip;
        m.regs.iter().filter(wanted).flat_map(|r| self.span(r))
    }

    /// Whether the instruction writes whole registers, and for sure.
    fn whole(&self, m: &Mach) -> bool {
        let all = |r: &RegField| !r.write || r.count == self.widths[r.word.reg.0 as usize];
        !m.may_keep() && m.regs.iter().all(all)
    }

    /// Goes backwards over a group; false: nobody wants it.
    fn bundle(&self, group: &mut [Mach], now: &mut Bits, last: bool) -> bool {
        let needed = group.iter().any(|m| m.effect) || group.iter().any(|m| self.words(m, true).any(|w| now.get(w)));
        if !needed {
            return false;
        }
        if let [m] = group
            && self.whole(m)
        {
            self.words(m, true).for_each(|w| now.set(w, false));
            self.words(m, false).for_each(|w| now.set(w, true));
            if last {
                m.regs.iter_mut().for_each(|r| r.keep = false);
            }
            return true;
        }
        // What is written for sure.
        let sure: smallvec::SmallVec<[usize; 8]> =
            group.iter().filter(|m| !m.may_keep()).flat_map(|m| self.words(m, true)).collect();
        if last {
            for m in group.iter_mut() {
                for r in m.regs.iter_mut().filter(|r| r.write) {
                    let (first, n) =
                        (self.base[r.word.reg.0 as usize], usize::from(self.widths[r.word.reg.0 as usize]));
                    r.keep = (first..first + n).any(|w| now.get(w) && !sure.contains(&w));
                }
            }
        }
        sure.iter().for_each(|w| now.set(*w, false));
        let mut written: smallvec::SmallVec<[usize; 8]> = smallvec::SmallVec::new();
        for m in group.iter() {
            for w in self.words(m, false) {
                if !written.contains(&w) {
                    now.set(w, true);
                }
            }
            if !m.may_keep() {
                written.extend(self.words(m, true));
            }
        }
        true
    }
}

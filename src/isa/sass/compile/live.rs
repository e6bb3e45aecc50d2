//! Liveness of single words: dead instructions go, and a write of a part of a register is told whether the rest is wanted.

use super::mir::{Code, Mach, Nature, RegField, width};
use crate::codegen::regalloc::VReg;
use smallvec::SmallVec;

/// A set of words.
#[derive(Clone, PartialEq)]
struct Bits(Vec<u64>);

/// Words of a register field: the first, and how many.
type Span = (usize, usize);

impl Bits {
    fn get(&self, i: usize) -> bool {
        self.0[i / 64] >> (i % 64) & 1 == 1
    }

    /// Calls `f` with each part of a span that stands in one of the set's numbers, until it says true.
    fn parts(&mut self, (first, count): Span, mut f: impl FnMut(&mut u64, u64) -> bool) -> bool {
        let (mut k, mut at, mut left) = (first / 64, first % 64, count);
        while left > 0 {
            let here = left.min(64 - at);
            if f(&mut self.0[k], (u64::MAX >> (64 - here)) << at) {
                return true;
            }
            (k, at, left) = (k + 1, 0, left - here);
        }
        false
    }

    #[inline]
    fn any(&mut self, span: Span) -> bool {
        match within(span) {
            Some((k, mask)) => self.0[k] & mask != 0,
            None => self.parts(span, |word, mask| *word & mask != 0),
        }
    }

    #[inline]
    fn set(&mut self, span: Span, on: bool) {
        let put = |word: &mut u64, mask: u64| *word = if on { *word | mask } else { *word & !mask };
        match within(span) {
            Some((k, mask)) => put(&mut self.0[k], mask),
            None => {
                self.parts(span, |word, mask| {
                    put(word, mask);
                    false
                });
            }
        }
    }

    fn add(&mut self, other: &Bits) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a |= b);
    }
}

/// The number that a span stands in, if it is one, and its part of that.
#[inline]
fn within((first, count): Span) -> Option<(usize, u64)> {
    let at = first % 64;
    (count > 0 && at + count <= 64).then(|| (first / 64, (u64::MAX >> (64 - count)) << at))
}

struct Live {
    /// The first word of each register, and how many.
    base: Vec<(u32, u8)>,
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
        base.push((total, width(*c)));
        total += u32::from(width(*c));
    }
    let live = Live { base, skip };
    let empty = Bits(vec![0; (total as usize).div_ceil(64)]);
    let mut ins = vec![empty.clone(); code.blocks.len()];
    let order = std::mem::take(&mut code.order);
    // Without a way back the blocks behind a block are done before it: what is live there is known at once.
    if goes_back(code, &order) {
        live.solve(code, &order, &mut ins, &empty);
    }
    for b in order.iter().rev() {
        let mut now = live.out(code, *b, &ins, &empty);
        live.block(&mut code.blocks[*b].ops, &mut now, true);
        ins[*b] = now;
    }
    let first = &ins[order[0]];
    code.order = order;
    let wanted = |v: &usize| {
        let (at, n) = live.base[*v];
        (at..at + u32::from(n)).any(|w| first.get(w as usize))
    };
    (0..code.classes.len()).filter(wanted).map(|v| VReg(v as u32)).collect()
}

/// Whether a block leads to one that is laid out before it, or to itself.
pub(super) fn goes_back(code: &Code, order: &[usize]) -> bool {
    let mut place = vec![usize::MAX; code.blocks.len()];
    order.iter().enumerate().for_each(|(k, b)| place[*b] = k);
    order.iter().enumerate().any(|(k, b)| code.successors(*b).iter().any(|s| place[*s] <= k))
}

impl Live {
    /// Finds what is live at the start of each block: a block is looked at again when that of one behind it has changed.
    fn solve(&self, code: &mut Code, order: &[usize], ins: &mut [Bits], empty: &Bits) {
        let mut before: Vec<SmallVec<[usize; 4]>> = vec![SmallVec::new(); code.blocks.len()];
        for b in order {
            code.successors(*b).iter().for_each(|s| before[*s].push(*b));
        }
        let mut open = vec![true; code.blocks.len()];
        let mut changed = true;
        while changed {
            changed = false;
            for b in order.iter().rev() {
                if !std::mem::take(&mut open[*b]) {
                    continue;
                }
                let mut now = self.out(code, *b, ins, empty);
                self.block(&mut code.blocks[*b].ops, &mut now, false);
                if now != ins[*b] {
                    ins[*b] = now;
                    before[*b].iter().for_each(|p| open[*p] = true);
                    changed = true;
                }
            }
        }
    }

    fn out(&self, code: &Code, b: usize, ins: &[Bits], empty: &Bits) -> Bits {
        let mut now = empty.clone();
        for s in code.successors(b) {
            now.add(&ins[s]);
        }
        if let super::mir::Term::Branch(p, ..) = code.blocks[b].term
            && let Some(w) = p.word
        {
            now.set((self.base[w.reg().0 as usize].0 as usize, 1), true);
        }
        now
    }

    fn block(&self, ops: &mut Vec<Mach>, now: &mut Bits, last: bool) {
        let mut end = ops.len();
        let mut dead = false;
        while end > 0 {
            let from = bundle_start(ops, end);
            let wanted = match &mut ops[from..end] {
                [m] => self.single(m, now, last),
                group => self.bundle(group, now, last),
            };
            if !wanted && last {
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
    #[inline]
    fn span(&self, r: &RegField) -> Span {
        (self.base[r.word.reg().0 as usize].0 as usize + usize::from(r.word.sub()), usize::from(r.count))
    }

    /// Goes backwards over an instruction; false: nobody wants it.
    fn single(&self, m: &mut Mach, now: &mut Bits, last: bool) -> bool {
        let (mut needed, mut whole, mut guarded) = (m.effect, true, false);
        let regs = m.regs.as_mut_slice();
        for r in regs.iter() {
            guarded |= r.is_guard();
            if r.write {
                let (first, words) = self.base[r.word.reg().0 as usize];
                let span = (first as usize + usize::from(r.word.sub()), usize::from(r.count));
                needed = needed || r.word.reg() != self.skip && now.any(span);
                whole &= r.count == words;
            }
        }
        if !needed {
            return false;
        }
        if !whole || guarded && !m.private {
            return self.bundle(std::slice::from_mut(m), now, last);
        }
        for r in regs.iter_mut().filter(|r| r.write) {
            r.keep &= !last;
            if r.word.reg() != self.skip {
                now.set(self.span(r), false);
            }
        }
        for r in regs.iter().filter(|r| !r.write && r.word.reg() != self.skip) {
            now.set(self.span(r), true);
        }
        true
    }

    /// The fields of an instruction that read, or write, registers.
    fn fields<'m>(&self, m: &'m Mach, write: bool) -> impl Iterator<Item = &'m RegField> + use<'m> {
        let skip = self.skip;
        m.regs.iter().filter(move |r| r.write == write && r.word.reg() != skip)
    }

    /// Goes backwards over a group; false: nobody wants it.
    fn bundle(&self, group: &mut [Mach], now: &mut Bits, last: bool) -> bool {
        let wanted = |m: &Mach, now: &mut Bits| self.fields(m, true).any(|r| now.any(self.span(r)));
        if !(group.iter().any(|m| m.effect) || group.iter().any(|m| wanted(m, now))) {
            return false;
        }
        // What is written for sure.
        let mut sure: SmallVec<[Span; 8]> = SmallVec::new();
        for m in group.iter().filter(|m| !m.may_keep()) {
            self.fields(m, true).for_each(|r| sure.push(self.span(r)));
        }
        let within = |spans: &[Span], w: usize| spans.iter().any(|(first, n)| (*first..first + n).contains(&w));
        if last {
            for r in group.iter_mut().flat_map(|m| &mut m.regs).filter(|r| r.write) {
                let (first, n) = self.base[r.word.reg().0 as usize];
                r.keep = (first as usize..first as usize + usize::from(n)).any(|w| now.get(w) && !within(&sure, w));
            }
        }
        sure.iter().for_each(|span| now.set(*span, false));
        let mut written: SmallVec<[Span; 8]> = SmallVec::new();
        for m in group.iter() {
            for r in self.fields(m, false) {
                let (first, n) = self.span(r);
                (first..first + n).filter(|w| !within(&written, *w)).for_each(|w| now.set((w, 1), true));
            }
            if !m.may_keep() {
                self.fields(m, true).for_each(|r| written.push(self.span(r)));
            }
        }
        true
    }
}

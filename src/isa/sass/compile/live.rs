//! Liveness of single words: dead instructions go, and a write of a part of a register is told whether the rest is wanted.
//!
//! Blocks are walked from the last to the first. Those that a way back makes a loop are walked again until nothing changes; each walk overwrites
//! what the one before it said of an instruction, so that the last one counts and nothing is walked once more.

use super::mir::{Code, Mach, RegField, Term, width};
use crate::codegen::regalloc::VReg;
use smallvec::SmallVec;
use std::ops::Range;

/// Which words are live.
struct Bits<'a>(&'a mut [u64]);

/// Words of a register field: the first, and how many.
type Span = (usize, usize);

impl Bits<'_> {
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
    fn add(&mut self, span: Span) {
        match within(span) {
            Some((k, mask)) => self.0[k] |= mask,
            None => {
                self.parts(span, |word, mask| {
                    *word |= mask;
                    false
                });
            }
        }
    }

    /// Takes a span out; whether something of it was there.
    #[inline]
    fn take(&mut self, span: Span) -> bool {
        let there = self.any(span);
        self.remove(span);
        there
    }

    #[inline]
    fn remove(&mut self, span: Span) {
        match within(span) {
            Some((k, mask)) => self.0[k] &= !mask,
            None => {
                self.parts(span, |word, mask| {
                    *word &= !mask;
                    false
                });
            }
        }
    }
}

/// The number that a span stands in, if it is one, and its part of that.
#[inline]
fn within((first, count): Span) -> Option<(usize, u64)> {
    let at = first % 64;
    (count < 64 && at + count <= 64).then(|| (first / 64, ((1 << count) - 1) << at))
}

struct Live {
    /// The first word of each register, and how many.
    base: Vec<(u32, u8)>,
}

/// What is known of the blocks while they are walked.
struct Walks {
    /// What is live at the start of each block: so many numbers of bits each.
    ins: Vec<u64>,
    words: usize,
    /// The instructions that nobody wants, block by block, and where each block's begin.
    dead: Vec<bool>,
    first: Vec<usize>,
    /// What is live at the place that a walk has come to.
    now: Vec<u64>,
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
/// anything wrote them, but for `skip`, which is everywhere and never written.
pub(super) fn settle(code: &mut Code, skip: VReg) -> Vec<VReg> {
    let mut base = Vec::with_capacity(code.classes.len());
    let mut total = 0;
    for c in &code.classes {
        base.push((total, width(*c)));
        total += u32::from(width(*c));
    }
    let live = Live { base };
    let words = (total as usize).div_ceil(64);
    let (mut count, mut first) = (0, Vec::with_capacity(code.blocks.len()));
    for b in &code.blocks {
        first.push(count);
        count += b.ops.len();
    }
    let ins = vec![0; words * code.blocks.len()];
    let mut walks = Walks { ins, words, dead: vec![false; count], first, now: vec![0; words] };
    let order = std::mem::take(&mut code.order);
    live.all(code, &order, &mut walks);
    for b in &order {
        let ops = &mut code.blocks[*b].ops;
        let mut dead = walks.dead[walks.first[*b]..][..ops.len()].iter();
        if dead.as_slice().contains(&true) {
            ops.retain(|_| dead.next() != Some(&true));
        }
    }
    let entry = Bits(&mut walks.ins[order[0] * words..][..words]);
    code.order = order;
    let wanted = |(v, (at, n)): (usize, &(u32, u8))| {
        let read = (*at..*at + u32::from(*n)).any(|w| entry.get(w as usize));
        Some(VReg(v as u32)).filter(|v| read && *v != skip)
    };
    if entry.0.iter().all(|w| *w == 0) { vec![] } else { live.base.iter().enumerate().filter_map(wanted).collect() }
}

/// Whether a block leads to one that is laid out before it, or to itself.
pub(super) fn goes_back(code: &Code, order: &[usize]) -> bool {
    let mut place = vec![usize::MAX; code.blocks.len()];
    order.iter().enumerate().for_each(|(k, b)| place[*b] = k);
    order.iter().enumerate().any(|(k, b)| code.successors(*b).iter().any(|s| place[*s] <= k))
}

impl Live {
    /// Walks all blocks, those of a loop until nothing changes.
    fn all(&self, code: &mut Code, order: &[usize], walks: &mut Walks) {
        let mut place = vec![usize::MAX; code.blocks.len()];
        order.iter().enumerate().for_each(|(k, b)| place[*b] = k);
        // The earliest place that each place leads to.
        let leads = |b: &usize| code.successors(*b).iter().map(|s| place[*s]).min().unwrap_or(usize::MAX);
        let leads: Vec<usize> = order.iter().map(leads).collect();
        let mut end = order.len();
        while end > 0 {
            let last = end - 1;
            let (mut from, mut k) = (leads[last].min(last), last);
            let turns = leads[last] <= last;
            while k > from {
                k -= 1;
                from = from.min(leads[k]);
            }
            match turns {
                true => self.turns(code, &order[from..end], walks),
                false => _ = self.walk(code, order[last], walks),
            }
            end = from;
        }
    }

    /// Walks blocks that lead to each other: a block again when what is live at the start of one behind it has changed.
    fn turns(&self, code: &mut Code, order: &[usize], walks: &mut Walks) {
        let mut before: Vec<SmallVec<[usize; 4]>> = vec![SmallVec::new(); code.blocks.len()];
        for b in order {
            code.successors(*b).iter().for_each(|s| before[*s].push(*b));
        }
        let mut open = vec![true; code.blocks.len()];
        let mut changed = true;
        while changed {
            changed = false;
            for b in order.iter().rev() {
                if std::mem::take(&mut open[*b]) && self.walk(code, *b, walks) {
                    before[*b].iter().for_each(|p| open[*p] = true);
                    changed = true;
                }
            }
        }
    }

    /// Walks a block from its end to its start; whether what is live at its start has changed.
    fn walk(&self, code: &mut Code, b: usize, walks: &mut Walks) -> bool {
        let Walks { ins, words, dead, first, now } = walks;
        now.fill(0);
        for s in code.successors(b) {
            now.iter_mut().zip(&ins[s * *words..]).for_each(|(n, i)| *n |= i);
        }
        let mut now = Bits(now);
        if let Term::Branch(p, ..) = code.blocks[b].term
            && let Some(w) = p.word
        {
            now.add((self.base[w.reg().0 as usize].0 as usize, 1));
        }
        let ops = &mut code.blocks[b].ops;
        let dead = &mut dead[first[b]..][..ops.len()];
        let mut end = ops.len();
        while end > 0 {
            let group: Range<usize> = bundle_start(ops, end)..end;
            end = group.start;
            let wanted = match &mut ops[group.clone()] {
                [m] => self.single(m, &mut now),
                all => self.bundle(all, &mut now),
            };
            dead[group].fill(!wanted);
        }
        let start = &mut ins[b * *words..][..*words];
        let changed = *start != *now.0;
        start.copy_from_slice(now.0);
        changed
    }

    /// The words of a register field.
    #[inline]
    fn span(&self, r: &RegField) -> Span {
        (self.base[r.word.reg().0 as usize].0 as usize + usize::from(r.word.sub()), usize::from(r.count))
    }

    /// Goes backwards over an instruction; false: nobody wants it.
    fn single(&self, m: &mut Mach, now: &mut Bits) -> bool {
        let part = |r: &RegField| r.write && r.count != self.base[r.word.reg().0 as usize].1;
        if m.may_keep() || m.regs.iter().any(part) {
            return self.bundle(std::slice::from_mut(m), now);
        }
        let mut needed = m.effect;
        let regs = m.regs.as_mut_slice();
        for r in regs.iter_mut().filter(|r| r.write) {
            // What nobody wants has no bits that go.
            needed |= now.take(self.span(r));
            r.keep = false;
        }
        if !needed {
            return false;
        }
        for r in regs.iter().filter(|r| !r.write) {
            now.add(self.span(r));
        }
        true
    }

    /// The fields of an instruction that read, or write, registers.
    fn fields(m: &Mach, write: bool) -> impl Iterator<Item = &RegField> {
        m.regs.iter().filter(move |r| r.write == write)
    }

    /// Goes backwards over a group; false: nobody wants it.
    fn bundle(&self, group: &mut [Mach], now: &mut Bits) -> bool {
        let wanted = |m: &Mach, now: &mut Bits| Self::fields(m, true).any(|r| now.any(self.span(r)));
        if !(group.iter().any(|m| m.effect) || group.iter().any(|m| wanted(m, now))) {
            return false;
        }
        // What is written for sure.
        let mut sure: SmallVec<[Span; 8]> = SmallVec::new();
        for m in group.iter().filter(|m| !m.may_keep()) {
            Self::fields(m, true).for_each(|r| sure.push(self.span(r)));
        }
        let within = |spans: &[Span], w: usize| spans.iter().any(|(first, n)| (*first..first + n).contains(&w));
        for r in group.iter_mut().flat_map(|m| &mut m.regs).filter(|r| r.write) {
            let (first, n) = self.base[r.word.reg().0 as usize];
            r.keep = (first as usize..first as usize + usize::from(n)).any(|w| now.get(w) && !within(&sure, w));
        }
        sure.iter().for_each(|span| now.remove(*span));
        let mut written: SmallVec<[Span; 8]> = SmallVec::new();
        for m in group.iter() {
            for r in Self::fields(m, false) {
                let (first, n) = self.span(r);
                (first..first + n).filter(|w| !within(&written, *w)).for_each(|w| now.add((w, 1)));
            }
            if !m.may_keep() {
                Self::fields(m, true).for_each(|r| written.push(self.span(r)));
            }
        }
        true
    }
}

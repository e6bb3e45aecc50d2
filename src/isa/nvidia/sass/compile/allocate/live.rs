//! Liveness of single words: removes dead instructions, decides whether a partial write must preserve the rest of its
//! register, and records live ranges for the allocator.
//!
//! Blocks are walked from the last to the first. Blocks in a loop are walked again until a fixed point; each walk
//! overwrites the results of the previous one, so no final pass is needed.

use super::touch::Work;
use crate::sass::compile::mir::{Code, Mach, Nature, RegField, Term, width};
use doorbell_codegen::regalloc::{Class, LiveRangeRecorder, LiveRanges, VReg};
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

    /// Calls `f` with each live word.
    fn each(&self, mut f: impl FnMut(usize)) {
        for (k, word) in self.0.iter().enumerate() {
            let mut left = *word;
            while left != 0 {
                f(64 * k + left.trailing_zeros() as usize);
                left &= left - 1;
            }
        }
    }

    /// Calls `f` with each part of a span that is in one of the set's 64-bit words, until it returns true.
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

/// The 64-bit word of the set that contains the whole span, if any, and the span's bits in it.
#[inline]
fn within((first, count): Span) -> Option<(usize, u64)> {
    let at = first % 64;
    (count < 64 && at + count <= 64).then(|| (first / 64, ((1 << count) - 1) << at))
}

struct Live {
    /// The first word of each register, and how many.
    base: Vec<(u32, u8)>,
    /// The register of each word.
    owner: Vec<VReg>,
    classes: Vec<Class>,
    stack: VReg,
}

/// Results of the analysis, for code without dead instructions.
pub(crate) struct Settled {
    /// Registers that are read before they are written.
    pub undefined: Vec<VReg>,
    /// Live ranges of registers, without the stack pointer.
    pub ranges: LiveRanges,
    /// One more than the last point of a live range.
    pub points: usize,
    /// Copies of whole registers (to, from), in order.
    pub copies: Vec<(VReg, VReg)>,
}

/// State of the walks over blocks.
struct Walks {
    /// Live words at the start of each block, as bit sets.
    ins: Vec<u64>,
    words: usize,
    /// Dead instructions, block by block, and where each block's flags begin.
    dead: Vec<bool>,
    first: Vec<usize>,
    /// Live words at the current point of a walk.
    now: Vec<u64>,
    /// For each block: its position in the layout, and the number of positions (for instructions, labels and jumps)
    /// before it.
    place: Vec<(usize, u32)>,
    recorder: LiveRangeRecorder,
    work: Work,
    fields: Vec<u16>,
}

/// Up to this many results are handled individually.
const RESULTS: usize = 4;

/// Positions in a block besides its instructions: its label, a branch, a jump.
const AROUND: u32 = 3;

/// Start of the glued group that ends before `end`.
pub(crate) fn bundle_start(ops: &[Mach], end: usize) -> usize {
    let mut from = end - 1;
    while from > 0 && ops[from].glued {
        from -= 1;
    }
    from
}

/// Removes dead instructions, decides which writes preserve the rest of their register, and computes live ranges. The
/// stack pointer is live everywhere and never written.
pub(crate) fn settle(code: &mut Code, stack: VReg) -> Settled {
    let mut base = Vec::with_capacity(code.classes.len());
    let mut owner = Vec::with_capacity(code.classes.len() + 16);
    for (v, c) in code.classes.iter().enumerate() {
        base.push((owner.len() as u32, width(*c)));
        owner.extend(std::iter::repeat_n(VReg(v as u32), usize::from(width(*c))));
    }
    let words = owner.len().div_ceil(64);
    let live = Live { base, owner, classes: std::mem::take(&mut code.classes), stack };
    let order = std::mem::take(&mut code.order);
    let mut walks = Walks::new(code, &order, live.base.len(), words);
    live.all(code, &order, &mut walks);
    let mut copies = vec![];
    for b in &order {
        let ops = &mut code.blocks[*b].ops;
        let mut dead = walks.dead[walks.first[*b]..][..ops.len()].iter();
        if dead.as_slice().contains(&true) {
            ops.retain(|_| dead.next() != Some(&true));
        }
        copies_of(ops, stack, &mut copies);
    }
    let entry = Bits(&mut walks.ins[order[0] * words..][..words]);
    let wanted = |(v, (at, n)): (usize, &(u32, u8))| {
        let read = (*at..*at + u32::from(*n)).any(|w| entry.get(w as usize));
        Some(VReg(v as u32)).filter(|v| read && *v != stack)
    };
    let undefined = if entry.0.iter().all(|w| *w == 0) {
        vec![]
    } else {
        live.base.iter().enumerate().filter_map(wanted).collect()
    };
    let points = order.iter().map(|b| 2 * (walks.place[*b].1 as usize + walks.count(*b) + AROUND as usize)).max();
    (code.order, code.classes) = (order, live.classes);
    Settled { undefined, ranges: walks.recorder.ranges(), points: points.unwrap_or(0) + 1, copies }
}

/// Copies of whole registers.
fn copies_of(ops: &[Mach], stack: VReg, copies: &mut Vec<(VReg, VReg)>) {
    let mut from = 0;
    while let Some(at) = ops[from..].iter().position(|m| m.nature == Nature::Copy) {
        let first = bundle_start(ops, from + at + 1);
        from += at + 1;
        while ops.get(from).is_some_and(|m| m.glued) {
            from += 1;
        }
        let group = &ops[first..from];
        let reg = |write| group[0].regs.iter().find(|r| r.write == write).map(|r| r.word.reg());
        let (Some(to), Some(source)) = (reg(true), reg(false)) else { continue };
        let same = |r: &RegField| r.word.reg() == if r.write { to } else { source } && !r.keep;
        if source != stack && group.iter().all(|m| m.nature == Nature::Copy && m.regs.iter().all(same)) {
            copies.push((to, source));
        }
    }
}

impl Walks {
    /// State before the first walk over blocks in that order; registers have bit sets of `words` 64-bit words.
    fn new(code: &Code, order: &[usize], registers: usize, words: usize) -> Walks {
        let (mut count, mut first) = (0, Vec::with_capacity(code.blocks.len()));
        for b in &code.blocks {
            first.push(count);
            count += b.ops.len();
        }
        first.push(count);
        let (mut place, mut at) = (vec![(usize::MAX, 0); code.blocks.len()], 0);
        for (k, b) in order.iter().enumerate() {
            place[*b] = (k, at);
            at += code.blocks[*b].ops.len() as u32 + AROUND;
        }
        Walks {
            ins: vec![0; words * code.blocks.len()],
            words,
            dead: vec![false; count],
            first,
            now: vec![0; words],
            place,
            recorder: LiveRangeRecorder::new(registers, order.len(), count),
            work: Work::default(),
            fields: vec![],
        }
    }

    /// Number of instructions that a block had at first.
    fn count(&self, b: usize) -> usize {
        self.first[b + 1] - self.first[b]
    }
}

/// Whether a block has an edge to an earlier block in the layout, or to itself.
pub(crate) fn goes_back(code: &Code, order: &[usize]) -> bool {
    let mut place = vec![usize::MAX; code.blocks.len()];
    order.iter().enumerate().for_each(|(k, b)| place[*b] = k);
    order.iter().enumerate().any(|(k, b)| code.successors(*b).iter().any(|s| place[*s] <= k))
}

impl Live {
    /// Walks all blocks, those of a loop until a fixed point.
    fn all(&self, code: &mut Code, order: &[usize], walks: &mut Walks) {
        let mut place = vec![usize::MAX; code.blocks.len()];
        order.iter().enumerate().for_each(|(k, b)| place[*b] = k);
        // The earliest position among each block's successors.
        let leads = |b: &usize| code.successors(*b).iter().map(|s| place[*s]).min().unwrap_or(usize::MAX);
        let leads: Vec<usize> = order.iter().map(leads).collect();
        let mut end = order.len();
        while end > 0 {
            let last = end - 1;
            let (mut from, mut k) = (leads[last].min(last), last);
            let is_loop = leads[last] <= last;
            while k > from {
                k -= 1;
                from = from.min(leads[k]);
            }
            match is_loop {
                true => self.walk_loop(code, &order[from..end], walks),
                false => _ = self.walk(code, order[last], walks),
            }
            end = from;
        }
    }

    /// Walks blocks that can reach each other; a block again if what is live at the start of a successor has changed.
    fn walk_loop(&self, code: &mut Code, order: &[usize], walks: &mut Walks) {
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

    /// Walks a block from its end to its start; returns whether what is live at its start has changed.
    fn walk(&self, code: &mut Code, b: usize, walks: &mut Walks) -> bool {
        let Walks { ins, words, dead, first, now, place, recorder, work, fields } = walks;
        now.fill(0);
        for s in code.successors(b) {
            now.iter_mut().zip(&ins[s * *words..]).for_each(|(n, i)| *n |= i);
        }
        let mut now = Bits(now);
        let ops = &mut code.blocks[b].ops;
        let (at, start) = place[b];
        let end = start + ops.len() as u32 + AROUND;
        recorder.block(at);
        now.each(|w| self.sees(w, |v| recorder.until(v, 2 * end)));
        if let Term::Branch(p, ..) = code.blocks[b].term
            && let Some(w) = p.word
        {
            now.add((self.base[w.reg().0 as usize].0 as usize, 1));
            recorder.until(w.reg(), 2 * (end - 2) + 1);
        }
        let ops = &mut code.blocks[b].ops;
        let dead = &mut dead[first[b]..][..ops.len()];
        let mut end = ops.len();
        while end > 0 {
            let last = end - 1;
            if !ops[last].glued
                && let Some(wanted) = self.single(&mut ops[last], &mut now, start + end as u32, recorder)
            {
                (dead[last], end) = (!wanted, last);
                continue;
            }
            let group: Range<usize> = bundle_start(ops, end)..end;
            end = group.start;
            let all = &mut ops[group.clone()];
            let wanted = self.bundle(all, &mut now);
            if wanted {
                fields.clear();
                recorder.inst(start + 1 + end as u32, work.group(all, &self.classes, self.stack, fields));
            }
            dead[group].fill(!wanted);
        }
        now.each(|w| self.sees(w, |v| recorder.enter(v, 2 * start)));
        recorder.end_block();
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

    /// Calls `f` with the register of a word, unless it is the stack pointer.
    #[inline]
    fn sees(&self, word: usize, f: impl FnOnce(VReg)) {
        let v = self.owner[word];
        if v != self.stack {
            f(v);
        }
    }

    /// Walks backwards over the instruction at a point; false: it is dead. `None`: handle it as a group, because it may
    /// write a register partially or has many results.
    fn single(&self, m: &mut Mach, now: &mut Bits, point: u32, recorder: &mut LiveRangeRecorder) -> Option<bool> {
        if m.may_keep() {
            return None;
        }
        let regs = m.regs.as_mut_slice();
        let (mut needed, mut count, mut written) = (m.effect, 0, [(0, 0); RESULTS]);
        for r in regs.iter() {
            if r.write {
                let (first, width) = self.base[r.word.reg().0 as usize];
                let (k, mask) = within((first as usize + usize::from(r.word.sub()), width.into()))?;
                if r.count != width {
                    return None;
                }
                needed |= now.0[k] & mask != 0;
                *written.get_mut(count)? = (k, mask);
                count += 1;
            }
        }
        if !needed {
            return Some(false);
        }
        written[..count].iter().for_each(|(k, mask)| now.0[*k] &= !mask);
        for r in regs.iter_mut() {
            if r.write {
                r.keep = false;
                recorder.begin(r.word.reg(), 2 * point + 1, 2 * point + 2);
            }
        }
        for r in regs.iter() {
            if !r.write && r.word.reg() != self.stack {
                now.add(self.span(r));
                recorder.until(r.word.reg(), 2 * point + 1);
            }
        }
        Some(true)
    }

    /// The fields of an instruction that read, or write, registers.
    fn fields(m: &Mach, write: bool) -> impl Iterator<Item = &RegField> {
        m.regs.iter().filter(move |r| r.write == write)
    }

    /// Walks backwards over a group; false: it is dead.
    fn bundle(&self, group: &mut [Mach], now: &mut Bits) -> bool {
        let wanted = |m: &Mach, now: &mut Bits| Self::fields(m, true).any(|r| now.any(self.span(r)));
        if !(group.iter().any(|m| m.effect) || group.iter().any(|m| wanted(m, now))) {
            return false;
        }
        // Words that are definitely written.
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

//! Loop-invariant code motion.
//!
//! Done on virtual registers: an instruction without side effects, whose results are written nowhere else and whose
//! sources are not written in the loop, moves to the end of the loop's preheader. Such instructions cannot fault, so it
//! does not matter that an iteration might have skipped them. Inner loops come first, so that invariant code can move
//! out of several loops. The number of registers kept live over a loop for this is bounded; code that spills is
//! selected again without it.

use super::flow::loops;
use super::hoist::computes;
use crate::sass::Pipe;
use crate::sass::compile::mir::{Code, Mach, Nature, PRED, Pred, Term, Word, width};
use doorbell_codegen::regalloc::{Class, VReg};

/// Words and predicates that may be kept over a loop.
const WORDS: u32 = 12;
const PREDICATES: u32 = 2;

/// Number of writes of each register.
struct Writers(Vec<u32>);

impl Writers {
    fn new(registers: usize) -> Writers {
        Writers(vec![0; registers])
    }

    fn add(&mut self, ops: &[Mach]) {
        for m in ops {
            m.regs.iter().filter(|r| r.write).for_each(|r| self.0[r.word.reg().0 as usize] += 1);
        }
    }

    fn remove(&mut self, group: &[Mach]) {
        for r in writes(group) {
            self.0[r.0 as usize] -= 1;
        }
    }

    fn of(&self, r: VReg) -> u32 {
        self.0[r.0 as usize]
    }
}

fn writes(ops: &[Mach]) -> impl Iterator<Item = VReg> {
    ops.iter().flat_map(|m| &m.regs).filter(|r| r.write).map(|r| r.word.reg())
}

/// The registers that a group writes, each once.
fn results(group: &[Mach]) -> impl Iterator<Item = VReg> {
    let all = group.iter().flat_map(|m| &m.regs).enumerate().filter(|(_, r)| r.write);
    all.filter(|(k, r)| {
        let mut before = group.iter().flat_map(|m| &m.regs).take(*k);
        !before.any(|b| b.write && b.word.reg() == r.word.reg())
    })
    .map(|(_, r)| r.word.reg())
}

fn reads(ops: &[Mach]) -> impl Iterator<Item = VReg> {
    ops.iter().flat_map(|m| &m.regs).filter(|r| !r.write).map(|r| r.word.reg())
}

/// Where the group that begins here ends; `None`: none begins here.
fn group_end(ops: &[Mach], from: usize) -> Option<usize> {
    (from < ops.len()).then(|| from + 1 + ops[from + 1..].iter().take_while(|m| m.glued).count())
}

/// Moves invariant code out of all loops. Equal constants in a loop are merged into one. `stack` is live everywhere and
/// never written.
pub(crate) fn invariants(code: &mut Code, stack: VReg) {
    let loops = loops(code);
    if loops.is_empty() {
        return;
    }
    let mut all = Writers::new(code.classes.len());
    code.order.iter().for_each(|b| all.add(&code.blocks[*b].ops));
    for l in &loops {
        let (mut inside, mut wanted) = (Writers::new(code.classes.len()), vec![0; code.classes.len()]);
        for b in &l.blocks {
            for m in &code.blocks[*b].ops {
                for r in &m.regs {
                    let count = if r.write { &mut inside.0 } else { &mut wanted };
                    count[r.word.reg().0 as usize] += 1;
                }
            }
            if let Term::Branch(Pred { word: Some(w), .. }, ..) = code.blocks[*b].term {
                wanted[w.reg().0 as usize] += 1;
            }
        }
        let kept = vec![false; code.classes.len()];
        let mut w =
            Walk { all: &all, inside, wanted, kept, stack, words: 0, predicates: 0, moved: vec![], names: vec![] };
        // A block may use what a later block computes.
        while l.blocks.iter().any(|b| w.block(&mut code.blocks[*b].ops, &code.classes)) {}
        let (mut moved, names) = (w.moved, w.names);
        code.blocks[l.before].ops.append(&mut moved);
        // Surrounding loops must see the new names.
        rename(code, &names);
    }
}

/// Reads of the first register of each pair become reads of the second.
fn rename(code: &mut Code, names: &[(VReg, VReg)]) {
    if names.is_empty() {
        return;
    }
    let mut now: Vec<u32> = (0..code.classes.len() as u32).collect();
    // The replacing register is defined before the loop, so it is never itself replaced.
    names.iter().for_each(|(old, new)| now[old.0 as usize] = new.0);
    for b in &code.order {
        for r in code.blocks[*b].ops.iter_mut().flat_map(|m| &mut m.regs) {
            let to = VReg(now[r.word.reg().0 as usize]);
            r.word = Word::of(to).plus(r.word.sub());
        }
    }
}

struct Walk<'a> {
    /// Number of writes of each register in the whole code, and in the loop.
    all: &'a Writers,
    inside: Writers,
    /// Number of reads of each register in the loop, and whether its definition was moved.
    wanted: Vec<u32>,
    kept: Vec<bool>,
    stack: VReg,
    words: u32,
    predicates: u32,
    moved: Vec<Mach>,
    /// Replaced registers with their replacements.
    names: Vec<(VReg, VReg)>,
}

impl Walk<'_> {
    /// Moves invariant code out of a block; returns whether there was any.
    fn block(&mut self, ops: &mut Vec<Mach>, classes: &[Class]) -> bool {
        let mut at = 0;
        while let Some(end) = group_end(ops, at)
            && !self.is_same(&ops[at..end])
        {
            at = end;
        }
        if at == ops.len() {
            return false;
        }
        // The remaining groups move down over those that were removed.
        let mut kept = at;
        while let Some(end) = group_end(ops, at) {
            let group = &ops[at..end];
            if self.is_same(group) && self.take(group, classes) {
                at = end;
                continue;
            }
            while at < end {
                ops.swap(kept, at);
                (kept, at) = (kept + 1, at + 1);
            }
        }
        let gone = kept < ops.len();
        ops.truncate(kept);
        gone
    }

    /// Removes a group that is invariant, if its results may be kept over the loop or an equal constant exists.
    fn take(&mut self, group: &[Mach], classes: &[Class]) -> bool {
        if let Some(pair) = self.standing_for(group, classes) {
            self.names.push(pair);
            self.wanted[pair.1.0 as usize] += self.wanted[pair.0.0 as usize];
        } else if self.fits(group, classes) {
            self.moved.extend_from_slice(group);
        } else {
            return false;
        }
        self.inside.remove(group);
        true
    }

    fn is_same(&self, group: &[Mach]) -> bool {
        let pure = |m: &Mach| {
            let computing = matches!(
                m.inst.form().pipe,
                Pipe::Alu
                    | Pipe::Fma
                    | Pipe::Imad
                    | Pipe::ImadWide
                    | Pipe::Half
                    | Pipe::Double
                    | Pipe::Xu
                    | Pipe::Constant
            );
            computing && !matches!(m.nature, Nature::Address(_)) && !m.is_guarded() && computes(m)
        };
        let own = |r: VReg| group.iter().any(|m| m.regs.iter().any(|w| w.write && w.word.reg() == r));
        let stands =
            |m: &Mach| m.regs.iter().all(|r| r.write || self.inside.of(r.word.reg()) == 0 || own(r.word.reg()));
        group.iter().all(stands)
            && results(group)
                .all(|r| r != self.stack && self.all.of(r) as usize == writes(group).filter(|w| *w == r).count())
            && group.iter().all(pure)
    }

    /// The register of a constant, and that of an equal one before the loop.
    fn standing_for(&self, group: &[Mach], classes: &[Class]) -> Option<(VReg, VReg)> {
        let of = |m: &Mach| match m.regs.as_slice() {
            [r] if r.write && m.nature == Nature::Constant && !m.glued => Some(r.word.reg()),
            _ => None,
        };
        let [m] = group else { return None };
        let own = of(m)?;
        let equal = |k: &Mach| of(k).filter(|r| k.inst == m.inst && classes[r.0 as usize] == classes[own.0 as usize]);
        Some((own, self.moved.iter().find_map(equal)?))
    }

    /// Whether the budget has room for its results. If so, takes it, and gives back the room of sources that have no
    /// other reader.
    fn fits(&mut self, group: &[Mach], classes: &[Class]) -> bool {
        let (mut words, mut predicates) = (self.words, self.predicates);
        for r in results(group) {
            let (w, p) = room(classes[r.0 as usize]);
            (words, predicates) = (words + w, predicates + p);
        }
        if words > WORDS || predicates > PREDICATES {
            return false;
        }
        for r in results(group) {
            self.kept[r.0 as usize] = true;
        }
        for r in reads(group) {
            let left = &mut self.wanted[r.0 as usize];
            *left -= 1;
            if *left == 0 && self.kept[r.0 as usize] {
                let (w, p) = room(classes[r.0 as usize]);
                (words, predicates) = (words - w, predicates - p);
            }
        }
        (self.words, self.predicates) = (words, predicates);
        true
    }
}

/// Words and predicates of a register of this class.
fn room(class: Class) -> (u32, u32) {
    if class == PRED { (0, 1) } else { (width(class).into(), 0) }
}

//! The code for the ends of the range of divisions, reciprocals and roots (`near` has the fast paths), which is long. A
//! body that needs it once has it in place, for the threads that need it. Places that need the same code share one copy
//! after the body: they call it for all threads of the warp, as it is right for all operands. The copy keeps all
//! registers but those that are free at all of its places, see `allocate::beside`.

use super::Selected;
use super::build::{Build, Src};
use crate::sass::compile::context::Unit;
use crate::sass::compile::mir::{Mach, Nature, Pred, Val, Wide, Word};
use crate::sass::{Modifier, mods, op};

const ONE: u32 = 1f32.to_bits();

/// What is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Quotient,
    Reciprocal,
    Root,
}

/// Code for the ends of the range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Far {
    pub function: Function,
    /// Of doubles.
    pub double: bool,
    pub rounding: Modifier,
}

/// The operands of a function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operands {
    /// The dividend, only of quotients.
    x: Option<Src>,
    /// The divisor, or the only operand.
    y: Src,
}

impl Operands {
    pub(super) fn quotient(x: Src, y: Src) -> Operands {
        Operands { x: Some(x), y }
    }

    pub(crate) fn one(y: Src) -> Operands {
        Operands { x: None, y }
    }

    fn iter(&self) -> impl Iterator<Item = &Src> {
        self.x.iter().chain([&self.y])
    }

    /// Operands without signs.
    fn are_plain(&self) -> bool {
        self.iter().all(|s| !s.neg && !s.abs)
    }
}

/// A place that needs such code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    far: Far,
    operands: Operands,
    /// What the fast path left, and where that is not the result.
    out: Word,
    is_far: Pred,
    /// The block for the code, which is empty.
    block: usize,
}

impl Place {
    fn shares_with(&self, other: &Place) -> bool {
        self.far == other.far && self.operands.are_plain() && other.operands.are_plain()
    }
}

impl Far {
    /// Words of an operand and of the result.
    fn words(self) -> u8 {
        1 + u8::from(self.double)
    }
}

impl Build<'_> {
    /// The current block is for code for the ends of the range, which is selected when all such places are known.
    pub(super) fn needs_far(&mut self, far: Far, operands: Operands, out: Word, is_far: Pred) {
        let block = self.block;
        self.far.push(Place { far, operands, out, is_far, block });
    }

    /// The result at the ends of the range, and elsewhere where `all` asks for it.
    fn far_result(&mut self, far: Far, Operands { x, y }: Operands, all: bool) -> Word {
        let Far { function, double, rounding } = far;
        if double {
            let x = x.map(|x| self.in_word(x.val));
            let y = self.in_word(y.val);
            return match function {
                Function::Root => self.far_root_double(y, rounding, all),
                _ => self.far_quotient_double(x, y, rounding),
            };
        }
        match function {
            Function::Root => self.scaled_root(y, all),
            _ => self.far_quotient(x.unwrap_or(ONE.into()), y, rounding),
        }
    }

    /// Selects the code of all places. With `shares`, places that need the same code call one copy; returns the copies.
    pub(super) fn far_code(&mut self, unit: &Unit, shares: bool) -> Vec<Selected> {
        let places = std::mem::take(&mut self.far);
        let (mut copies, mut known): (Vec<Selected>, Vec<Far>) = (vec![], vec![]);
        for p in &places {
            self.block = p.block;
            let words = p.far.words();
            if !shares || places.iter().filter(|q| p.shares_with(q)).count() < 2 {
                let right = self.far_result(p.far, p.operands, false);
                match words {
                    2 => self.select64(p.out, p.is_far, Wide::Pair(right), Wide::Pair(p.out)),
                    _ => self.select(p.out, p.is_far, right.into(), p.out.into()),
                }
                continue;
            }
            let copy = known.iter().position(|f| *f == p.far).unwrap_or_else(|| {
                known.push(p.far);
                copies.push(copy(unit, p.far));
                known.len() - 1
            });
            let place = self.code.places;
            self.code.places += 1;
            let mut call = beside(copy, place);
            call.uses(p.out, words, true);
            for s in p.operands.iter() {
                let w = self.in_word(s.val);
                call.uses(w, words, false);
            }
            self.push(call);
        }
        copies
    }
}

/// The place with that number, where the copy with that number is called; or the start or end of a copy.
fn beside(copy: usize, place: usize) -> Mach {
    let call = Mach::new(op::CALL_RELI).n("pp", 7).m(mods::ni::NOINC);
    call.nature(Nature::Beside(copy as u32, place as u32)).effect()
}

/// Code that is called: at its start its operands and the address to return to are in registers, at its end the result.
/// The caller knows these from two places, the start and the end.
fn copy(unit: &Unit, far: Far) -> Selected {
    let mut b = Build::new(unit);
    let words = far.words();
    let register = |b: &mut Build| if far.double { b.two() } else { b.one() };
    let (back, y) = (b.two(), register(&mut b));
    let x = (far.function == Function::Quotient).then(|| register(&mut b));
    let mut start = beside(0, 0);
    start.uses(back, 2, true);
    x.iter().chain([&y]).for_each(|w| start.uses(*w, words, true));
    b.push(start);
    let out = b.far_result(far, Operands { x: x.map(Src::from), y: y.into() }, true);
    let mut end = beside(0, 1);
    end.uses(out, words, false);
    b.push(end);
    b.mov(back.plus(1), Val::Imm(0));
    b.push(Mach::new(op::RET_RELR).n("pp", 7).rn("a", back, 2).m(mods::nd::NODEC).effect());
    b.code.places = 2;
    b.finish(vec![])
}

//! Packed integers: pairs of 16 bits, and the video instructions on bytes.

use super::build::{Build, Src, iadd3, vimnmx};
use crate::ptx::{Opcode, Type};
use crate::sass::compile::AsmError;
use crate::sass::compile::mir::{Mach, Pred, Val, Word};
use crate::sass::compile::read::flat::Flat;
use crate::sass::{SmArch, mods, op};

impl Build<'_> {
    /// `add`, `min`, `max` of two halves of a word each.
    pub(super) fn packed_int(&mut self, i: &Flat) -> Result<(), AsmError> {
        let relu = i.has("relu");
        let may = i.ty() == Type::S16x2 && matches!(i.op, Opcode::Min | Opcode::Max) && i.only_says(&["relu"]);
        let known = if relu { may } else { i.is_plain() };
        if !known {
            return self.no(i, "packed 16-bit integers with a modifier are not assembled");
        }
        let d = self.dest(i, &i.opds[0])?;
        let (a, b) = (self.src(i, &i.opds[1], Type::B32)?, self.src(i, &i.opds[2], Type::B32)?);
        let (a, b) = (self.in_word(a), self.in_word(b));
        match i.op {
            Opcode::Add => self.push(Mach::new(op::VIADD_R).w("d", d).r("a", a).r("b", b).m(mods::h::_16X2)),
            Opcode::Min | Opcode::Max => {
                let ty = if i.ty() == Type::S16x2 { mods::ty::S16X2 } else { mods::ty::U16X2 };
                let p = if i.op == Opcode::Max { Pred::TRUE.not() } else { Pred::TRUE };
                self.alu(vimnmx(), d, [a.into(), b.into(), Src::ZERO], |m| {
                    m.p("pp", p).m(ty).mark(if relu { mods::relu::RELU } else { mods::relu::NONE })
                });
            }
            _ => return self.no(i, "no instruction on packed 16-bit integers of that kind is assembled"),
        }
        Ok(())
    }

    /// sm_120 has no VABSDIFF4: byte-wise maximum minus minimum, and their sum by a dot product with ones.
    fn differences_of_extremes(&mut self, d: Word, a: Word, b: Word, addend: Option<Word>) {
        let [larger, smaller, difference] = [self.one(), self.one(), self.one()];
        self.unguarded(|s| {
            for (to, pick) in [(larger, Pred::TRUE.not()), (smaller, Pred::TRUE)] {
                s.push(Mach::new(op::VIMNMX_R_SM120).w("d", to).r("a", a).r("b", b).p("pp", pick).m(mods::ty::U8X4));
            }
        });
        let less = |to: Word| {
            Mach::new(op::VIADD_R_SM120).w("d", to).r("a", larger).r("b", smaller).neg("b", true).m(mods::h::U8X4)
        };
        let Some(addend) = addend else { return self.push(less(d)) };
        self.unguarded(|s| s.push(less(difference)));
        let ones = self.in_word(Val::Imm(0x0101_0101));
        let sum = Mach::new(op::IDP_R).w("d", d).r("a", difference).r("b", ones).r("c", addend);
        self.push(sum.m(mods::at::U8).m(mods::bt::U8));
    }

    /// Differences of 16-bit halves, or their sum.
    pub(super) fn half_differences(&mut self, i: &Flat) -> Result<(), AsmError> {
        let types: smallvec::SmallVec<[Type; 3]> = i.types().collect();
        let [_, a_ty, b_ty] = types[..] else { return self.no(i, "three types are expected") };
        let d = self.dest(i, &i.opds[0])?;
        let [a, b, c] = [1, 2, 3].map(|k| self.src(i, &i.opds[k], Type::B32));
        let (a, b, c) = (a?, b?, c?);
        let [low, high] = [false, true].map(|upper| {
            let (difference, magnitude) = (self.one(), self.one());
            let (x, y) = (self.half_of(a, a_ty, upper), self.half_of(b, b_ty, upper));
            self.unguarded(|s| {
                s.alu(iadd3(), difference, [x.into(), Src::from(y).negated(), Src::ZERO], |m| m);
                s.unary(op::IABS_R, magnitude, difference.into(), |m| m);
            });
            magnitude
        });
        match i.has("add") {
            true => self.alu(iadd3(), d, [low.into(), high.into(), c.into()], |m| m),
            false => self.join_halves(d, Val::Word(low), Val::Word(high)),
        }
        Ok(())
    }

    /// A half of a word as an integer.
    fn half_of(&mut self, v: Val, ty: Type, upper: bool) -> Word {
        let (t, signed) = (self.one(), ty.is_signed());
        self.unguarded(|s| match upper {
            true => s.shift(
                t,
                [Src::ZERO, 16.into(), v.into()],
                mods::dir::R,
                if signed { mods::ty::S32 } else { mods::ty::U32 },
                true,
            ),
            false => s.extend_to(t, v, if signed { Type::S16 } else { Type::U16 }),
        });
        t
    }

    /// Differences of bytes, or their sum.
    pub(super) fn byte_differences(&mut self, i: &Flat) -> Result<(), AsmError> {
        let types: smallvec::SmallVec<[Type; 3]> = i.types().collect();
        let [_, a_ty, b_ty] = types[..] else { return self.no(i, "three types are expected") };
        if a_ty.is_signed() || b_ty.is_signed() {
            return self.no(i, "signed bytes are not assembled");
        }
        let d = self.dest(i, &i.opds[0])?;
        let [a, b, c] = [1, 2, 3].map(|k| self.src(i, &i.opds[k], Type::B32));
        let (a, b, c) = (self.in_word(a?), self.in_word(b?), c?);
        let sums = i.has("add");
        if self.chip == SmArch::Sm120 {
            let c = if sums { self.in_word(c) } else { a };
            self.differences_of_extremes(d, a, b, sums.then_some(c));
            return Ok(());
        }
        let m = Mach::new(op::VABSDIFF4_R).w("d", d).r("a", a).r("b", b).m(mods::sg::U8);
        let m = m.m(if sums { mods::acc::ACC } else { mods::acc::NONE });
        let more = if sums { self.held(c) } else { None };
        self.push(match more {
            Some(w) => m.r("c", w),
            None => m,
        });
        Ok(())
    }
}

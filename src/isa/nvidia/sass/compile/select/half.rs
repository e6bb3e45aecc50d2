//! Arithmetic of f16 and bf16, single (both halves of the word compute the same) and packed.

use super::build::{Build, Src};
use crate::ptx::{Opcode, Type};
use crate::sass::compile::AsmError;
use crate::sass::compile::mir::{Mach, Pred, Val, Word};
use crate::sass::compile::optimise::facts::Known;
use crate::sass::compile::read::flat::{Flat, Opd};
use crate::sass::{Modifier, mods, op};

/// Both halves, the low one, the high one.
const BOTH: u64 = 0;
const LOW: u64 = 2;
const HIGH: u64 = 3;

/// A source of half type.
#[derive(Clone, Copy)]
pub(super) struct Half {
    /// `None`: zero.
    word: Option<Word>,
    /// Which halves of the word.
    part: u64,
}

impl Half {
    const ZERO: Half = Half { word: None, part: BOTH };

    /// An instruction with this source in a slot; without a word the slot is left as it is, which is zero.
    fn read(self, m: Mach, slot: &'static str) -> Mach {
        match self.word {
            Some(w) => m.r(slot, w).half(slot, self.part),
            None => m,
        }
    }
}

impl Build<'_> {
    /// The word that an operand is a half of, and whether it is the upper one.
    pub(super) fn part_of_word(&mut self, o: &Opd) -> Option<(Word, bool)> {
        let Opd::Reg(r) = o else { return None };
        let Known::Half(word, high) = self.facts.known[self.facts.root(*r) as usize] else { return None };
        matches!(self.facts.known[word as usize], Known::Nothing | Known::Copy(_)).then(|| (self.home(word), high))
    }

    /// A source of half type.
    pub(super) fn half_src(&mut self, i: &Flat, o: &Opd, ty: Type) -> Result<Half, AsmError> {
        let packed = ty.bits() == 32;
        if !packed && let Some((word, high)) = self.part_of_word(o) {
            return Ok(Half { word: Some(word), part: if high { HIGH } else { LOW } });
        }
        let v = self.src(i, o, if packed { Type::B32 } else { Type::B16 })?;
        Ok(Half { word: self.held(v), part: if packed { BOTH } else { LOW } })
    }

    pub(super) fn half(&mut self, i: &Flat) -> Result<(), AsmError> {
        let ty = i.ty();
        let brain = matches!(ty, Type::Bf16 | Type::Bf16x2);
        let d = self.dest(i, &i.opds[0])?;
        let mut s = [Half::ZERO; 3];
        for (k, o) in i.opds[1..].iter().take(3).enumerate() {
            s[k] = self.half_src(i, o, ty)?;
        }
        let bf = if brain { mods::bf::BF16_V2 } else { mods::bf::NONE };
        let pair = |form| s[1].read(s[0].read(Mach::new(form), "a"), "b");
        let marks = |m: Mach, ftz: Modifier| {
            let m = if i.has("sat") { m.m(mods::sat::SAT) } else { m };
            if i.has("ftz") { m.m(ftz) } else { m }
        };
        let m = match i.op {
            Opcode::Add | Opcode::Sub if brain => {
                // a * 1 + b: bf16 sums go through the multiplier.
                let one = self.in_word(Val::Imm(0x3f80_3f80));
                let m = s[0].read(Mach::new(op::HFMA2_R), "a").r("b", one);
                s[1].read(m, "c").neg("c", i.op == Opcode::Sub)
            }
            Opcode::Add | Opcode::Sub => {
                let m = s[1].read(s[0].read(Mach::new(op::HADD2_R), "a"), "c");
                marks(m.neg("c", i.op == Opcode::Sub), mods::ftz::FTZ)
            }
            Opcode::Mul if brain => pair(op::HFMA2_R).neg("c", true),
            Opcode::Mul => marks(pair(op::HMUL2_R), mods::fz::FTZ),
            Opcode::Fma => {
                let m = s[2].read(pair(op::HFMA2_R), "c");
                let m = if i.has("relu") { m.m(mods::relu::RELU).p("pr", Pred::TRUE) } else { m };
                marks(m, mods::hz::FTZ)
            }
            Opcode::Min | Opcode::Max => {
                let p = if i.op == Opcode::Max { Pred::TRUE.not() } else { Pred::TRUE };
                let m = pair(op::HMNMX2_R).p("pp", p);
                let m = if i.has("NaN") { m.m(mods::nan::NAN) } else { m };
                let m = if i.has("xorsign") { m.m(mods::xor::XORSIGN).abs("a", true).abs("b", true) } else { m };
                if i.has("ftz") { m.m(mods::ftz::FTZ) } else { m }
            }
            Opcode::Neg | Opcode::Abs if brain => {
                // -0 * 0 + a
                let m = s[0].read(Mach::new(op::HFMA2_R).neg("a", true), "c");
                m.neg("c", i.op == Opcode::Neg).abs("c", i.op == Opcode::Abs)
            }
            Opcode::Neg | Opcode::Abs => {
                let m = s[0].read(Mach::new(op::HADD2_R), "a");
                marks(m.neg("a", i.op == Opcode::Neg).abs("a", i.op == Opcode::Abs).neg("c", true), mods::ftz::FTZ)
            }
            Opcode::Ex2 | Opcode::Tanh if ty.bits() == 16 && (i.op == Opcode::Tanh || brain) => {
                let fmt = if brain { mods::fmt::BF16 } else { mods::fmt::F16 };
                let m = Mach::new(op::MUFU_R16)
                    .m(if i.op == Opcode::Ex2 { mods::fn_::EX2 } else { mods::fn_::TANH })
                    .m(fmt);
                let w = self.whole_half(s[0]);
                let w = self.in_word(w.val);
                self.push(m.w("d", d).r("b", w));
                return Ok(());
            }
            Opcode::Ex2 if ty.bits() == 16 => {
                let f = self.unguarded(|b| b.half_to_float(s[0], brain));
                let r = self.one();
                self.unguarded(|b| b.mufu(r, f.into(), mods::fn_::EX2));
                self.float_to_half(d, [Src::ZERO, r.into()], brain, mods::rnd::NONE);
                return Ok(());
            }
            Opcode::Ex2 | Opcode::Tanh => {
                // The halves are computed one after the other.
                let fmt = if brain { mods::fmt::BF16 } else { mods::fmt::F16 };
                let function = if i.op == Opcode::Ex2 { mods::fn_::EX2 } else { mods::fn_::TANH };
                let v = self.whole_half(s[0]);
                let w = self.in_word(v.val);
                let high = self.one();
                self.unguarded(|b| b.shift(high, [Src::ZERO, 16.into(), w.into()], mods::dir::R, mods::ty::U32, true));
                let parts = [w, high].map(|w| {
                    let r = self.one();
                    let m = Mach::new(op::MUFU_R16).m(function).m(fmt).w("d", r).r("b", w);
                    self.unguarded(|b| b.push(m));
                    r
                });
                self.permute(d, parts[0].into(), 0x5410, parts[1].into());
                return Ok(());
            }
            _ => return self.no(i, "no 16-bit float instruction of that kind is assembled"),
        };
        let m = if brain { m.m(bf) } else { m };
        self.push(m.w("d", d));
        Ok(())
    }

    /// The half in the low half of a word.
    pub(super) fn whole_half(&mut self, half: Half) -> Src {
        match half.word {
            Some(w) if half.part == HIGH => {
                let t = self.one();
                self.unguarded(|b| b.shift(t, [Src::ZERO, 16.into(), w.into()], mods::dir::R, mods::ty::U32, true));
                t.into()
            }
            Some(w) => w.into(),
            None => Src::ZERO,
        }
    }

    /// A half as f32, exactly.
    pub(super) fn half_to_float(&mut self, s: Half, brain: bool) -> Word {
        let d = self.one();
        self.half_to_float_in(d, s, brain);
        d
    }

    pub(super) fn half_to_float_in(&mut self, d: Word, s: Half, brain: bool) {
        let Some(w) = s.word else { return self.mov(d, Val::Imm(0)) };
        match (brain, s.part) {
            (true, HIGH) => self.lop(d, [w.into(), 0xffff_0000.into(), Src::ZERO], 0xc0),
            (true, _) => self.shift(d, [w.into(), 16.into(), Src::ZERO], mods::dir::L, mods::ty::U32, false),
            (false, h) => {
                let h = if h == BOTH { LOW } else { h };
                let m = Mach::new(op::HADD2_R).w("d", d).neg("a", true).r("c", w).half("c", h).m(mods::f32::F32);
                self.push(m);
            }
        }
    }

    /// `set` of packed halves: ones, or all bits, where the comparison holds.
    pub(super) fn set_halves(&mut self, i: &Flat, to: Type, from: Type) -> Result<(), AsmError> {
        let Some(cmp) = i.words().find_map(|w| super::logic::compare_code(w, true)) else {
            return self.no(i, "no such comparison");
        };
        if i.opds.len() > 3 || !(to == from || to.bits() == 32 && !to.is_float()) {
            return self.no(i, "results of this type are not assembled");
        }
        let d = self.dest(i, &i.opds[0])?;
        let (a, b) = (self.half_src(i, &i.opds[1], from)?, self.half_src(i, &i.opds[2], from)?);
        let mut m = Mach::new(op::HSET2_R).w("d", d).m(cmp).p("pp", Pred::TRUE);
        if from == Type::Bf16x2 {
            m = m.m(mods::bf::BF16_V2);
        }
        if to == from {
            m = m.m(mods::fb::BF);
        }
        if i.has("ftz") {
            m = m.m(mods::ftz::FTZ);
        }
        self.push(b.read(a.read(m, "a"), "b"));
        Ok(())
    }

    /// Two floats as halves: the first above.
    pub(super) fn float_to_half(&mut self, d: Word, s: [Src; 2], brain: bool, rounding: Modifier) {
        self.float_to_half_as(d, s, brain, rounding, false);
    }

    /// The same, optionally with negative values replaced by zero (`.relu`).
    pub(super) fn float_to_half_as(&mut self, d: Word, s: [Src; 2], brain: bool, rounding: Modifier, relu: bool) {
        let mut m = Mach::new(op::F2FP_PACK_AB_R)
            .w("d", d)
            .m(if brain { mods::dt::BF16 } else { mods::dt::F16 })
            .m(mods::st::F32);
        for (slot, v) in [("a", s[0]), ("b", s[1])] {
            if let Some(w) = self.held(v.val) {
                m = m.r(slot, w);
            }
        }
        let m = if relu { m.m(mods::relu::RELU) } else { m };
        self.push(m.m(rounding));
    }

    /// `p = a cmp b` of halves, under a predicate.
    pub(super) fn test_half(&mut self, i: &Flat, ty: Type, cmp: Modifier) -> Result<Mach, AsmError> {
        let (a, b) = (self.half_src(i, &i.opds[1], ty)?, self.half_src(i, &i.opds[2], ty)?);
        let brain = matches!(ty, Type::Bf16 | Type::Bf16x2);
        let mut m = Mach::new(op::HSETP2_R).m(cmp).m(if brain { mods::bf::BF16_V2 } else { mods::bf::NONE });
        if i.has("ftz") {
            m = m.m(mods::ftz::FTZ);
        }
        Ok(b.read(a.read(m, "a"), "b"))
    }
}

//! Integer arithmetic of 64 bits.

use super::build::{Build, Src, iadd3};
use crate::ptx::{Imm, Opcode, Type};
use crate::sass::compile::AsmError;
use crate::sass::compile::mir::{Mach, Pred, Val, Wide, Word};
use crate::sass::compile::optimise::facts::Part;
use crate::sass::compile::read::flat::{Flat, Opd};
use crate::sass::{mods, op};

impl Build<'_> {
    pub(super) fn wide_int(&mut self, i: &Flat) -> Result<(), AsmError> {
        let ty = i.ty();
        if i.has("cc") || matches!(i.op, Opcode::Addc | Opcode::Subc | Opcode::Madc) {
            return self.chained64(i);
        }
        if i.has("sat") {
            return self.no(i, ".sat is not assembled of this type");
        }
        let d = self.dest(i, &i.opds[0])?;
        let mut s = [Wide::Imm(0); 3];
        for (k, o) in i.opds[1..].iter().take(3).enumerate() {
            s[k] = self.wide(i, o, ty)?;
        }
        let signed = ty.is_signed();
        match i.op {
            Opcode::Add => self.add_wide(i, d, s)?,
            Opcode::Sub => self.sum64(d, [s[0], s[1]], [false, true]),
            Opcode::Neg => self.sum64(d, [Wide::Imm(0), s[0]], [false, true]),
            Opcode::Abs => {
                let x = self.in_pair(s[0]);
                self.magnitude(d, x);
            }
            Opcode::Mul | Opcode::Mad if i.has("hi") => {
                let high = if i.op == Opcode::Mad { self.two() } else { d };
                let (a, b) = (self.in_pair(s[0]), self.in_pair(s[1]));
                self.high64(high, a, b, signed);
                if i.op == Opcode::Mad {
                    self.add64(d, Wide::Pair(high), s[2]);
                }
            }
            Opcode::Mul | Opcode::Mad if self.narrow_product(i, d, s[2]) => {}
            Opcode::Mul => self.low64(d, s[0], s[1], Wide::Imm(0)),
            Opcode::Mad => self.low64(d, s[0], s[1], s[2]),
            Opcode::Min | Opcode::Max => {
                let p = self.pred();
                let cmp = if i.op == Opcode::Max { mods::cmp::GT } else { mods::cmp::LT };
                self.unguarded(|b| b.compare64(p, cmp, signed, s[0], s[1]));
                self.select64(d, Pred::of(p), s[0], s[1]);
            }
            Opcode::Sad => {
                let (p, low, high, t) = (self.pred(), self.two(), self.two(), self.two());
                self.unguarded(|b| {
                    b.compare64(p, mods::cmp::LT, signed, s[0], s[1]);
                    b.select64(low, Pred::of(p), s[0], s[1]);
                    b.select64(high, Pred::of(p), s[1], s[0]);
                    b.sum64(t, [Wide::Pair(high), Wide::Pair(low)], [false, true]);
                });
                self.add64(d, Wide::Pair(t), s[2]);
            }
            Opcode::Div | Opcode::Rem => self.divide64(d, s[0], s[1], signed, i.op == Opcode::Rem),
            _ => return self.no(i, "no 64-bit integer instruction of that kind is assembled"),
        }
        Ok(())
    }

    /// Sums and differences with the carry of the text's .cc.
    fn chained64(&mut self, i: &Flat) -> Result<(), AsmError> {
        let minus = matches!(i.op, Opcode::Sub | Opcode::Subc);
        let takes = matches!(i.op, Opcode::Addc | Opcode::Subc);
        if !(minus || takes || i.op == Opcode::Add) {
            return self.no(i, "64-bit carries of products are not assembled");
        }
        let carry = self.carry(i, takes)?;
        let d = self.dest(i, &i.opds[0])?;
        let (a, b) = (self.wide(i, &i.opds[1], i.ty())?, self.wide(i, &i.opds[2], i.ty())?);
        let (a, b) = (self.in_pair(a), self.in_pair(b));
        let (middle, t) = (self.pred(), self.two());
        let guard = self.guard.take();
        for k in 0..2u8 {
            let b = Src { val: Val::Word(b.plus(k)), neg: minus, abs: false };
            let m = self.arith(iadd3(), [a.plus(k).into(), b, Src::ZERO]).w("d", t.plus(k));
            let from = match k {
                0 if takes => Some(carry),
                0 => None,
                _ => Some(middle),
            };
            let m = match from {
                Some(c) => m.m(mods::x::X).p("pp", Pred::of(c)).p("pq", Pred::TRUE.not()),
                None => m,
            };
            let gives = k == 0 || i.has("cc");
            let m = if gives { m.w("pu", if k == 0 { middle } else { carry }) } else { m };
            let m = if k == 1 { m.guarded(guard) } else { m };
            self.push(m);
        }
        self.guard = guard;
        self.mov64(d, Wide::Pair(t));
        Ok(())
    }

    /// A sum; a product of 32-bit words that has no other reader is fused into one instruction with it.
    fn add_wide(&mut self, i: &Flat, d: Word, s: [Wide; 3]) -> Result<(), AsmError> {
        for (x, y) in [(0, 1), (1, 0)] {
            // An offset that several pointers share is recomputed as a product for each: one instruction, where an
            // addition takes two.
            let from = match s[y] {
                Wide::Const(..) => self.origin_here(&i.opds[1 + x]),
                _ => None,
            };
            let from = from.or_else(|| self.only_use(&i.opds[1 + x]));
            let Some(from) = from else { continue };
            if from.op == Opcode::Mul && from.has("wide") && from.opds.len() == 3 {
                let ty = from.ty();
                if ty.bits() == 32 && !matches!(s[y], Wide::Imm(_)) {
                    let (a, b) = (self.src(i, &from.opds[1], ty)?, self.src(i, &from.opds[2], ty)?);
                    self.wide_multiply(d, a, b, s[y], ty.is_signed());
                    return Ok(());
                }
            }
            if self.scaled(i, d, from, s[y])? {
                return Ok(());
            }
        }
        self.add64(d, s[0], s[1]);
        Ok(())
    }

    /// A product of words that were extended to 64 bits, or of one and a constant.
    fn narrow_product(&mut self, i: &Flat, d: Word, other: Wide) -> bool {
        let [a, b] = [1, 2].map(|k| self.facts.parts(&i.opds[k]));
        let constant = match self.constant_of(&i.opds[2]) {
            Some(v) if i.opds[2] != i.opds[1] => v,
            _ => u64::MAX >> 1,
        };
        let (from, by, signed) = match (a, b) {
            (Some((Part::Reg(r), Part::Sign(_))), Some((Part::Reg(s), Part::Sign(_)))) => (r, Opd::Reg(s), true),
            (Some((Part::Reg(r), Part::Zero)), Some((Part::Reg(s), Part::Zero))) => (r, Opd::Reg(s), false),
            (Some((Part::Reg(r), Part::Sign(_))), _) if i32::try_from(constant.cast_signed()).is_ok() => {
                (r, Opd::Imm(Imm::Int(constant.cast_signed())), true)
            }
            (Some((Part::Reg(r), Part::Zero)), _) if u32::try_from(constant).is_ok() => {
                (r, Opd::Imm(Imm::Int(constant.cast_signed())), false)
            }
            _ => return false,
        };
        let (Ok(from), Ok(by)) = (self.src(i, &Opd::Reg(from), Type::U32), self.src(i, &by, Type::U32)) else {
            return false;
        };
        self.wide_multiply(d, from, by, other, signed);
        true
    }

    /// `d = (x extended to 64 bits) << n + other`.
    fn scaled(&mut self, i: &Flat, d: Word, from: &Flat, other: Wide) -> Result<bool, AsmError> {
        let (Opcode::Shl, Some(Opd::Imm(n))) = (from.op, from.opds.get(2)) else { return Ok(false) };
        let n = crate::sass::compile::optimise::facts::bits_of(*n, Type::U32);
        let Some(inner) = self.origin(&from.opds[1]).filter(|c| c.op == Opcode::Cvt && n < 31) else {
            return Ok(false);
        };
        let types: smallvec::SmallVec<[Type; 2]> = inner.types().collect();
        let plain = matches!(types.as_slice(), [Type::S64 | Type::U64, Type::S32] | [Type::U64 | Type::S64, Type::U32]);
        if !plain || from.ty().bits() != 64 || matches!(other, Wide::Imm(_)) {
            return Ok(false);
        }
        let a = self.src(i, &inner.opds[1], types[1])?;
        self.wide_multiply(d, a, Val::Imm(1 << n), other, types[1].is_signed());
        Ok(true)
    }

    /// `d = |x|`.
    pub(super) fn magnitude(&mut self, d: Word, x: Word) {
        let (sign, flipped) = (self.one(), self.two());
        self.unguarded(|b| {
            b.shift(sign, [Src::ZERO, 31.into(), x.plus(1).into()], mods::dir::R, mods::ty::S32, true);
            for k in 0..2 {
                b.lop(flipped.plus(k), [x.plus(k).into(), sign.into(), Src::ZERO], 0x3c);
            }
        });
        let carry = self.pred();
        let low = self.arith(iadd3(), [flipped.into(), Src::from(sign).negated(), Src::ZERO]);
        self.push(low.w("d", d).w("pu", carry));
        let high = self.arith(iadd3(), [flipped.plus(1).into(), Src::from(sign).negated(), Src::ZERO]);
        let high = high.w("d", d.plus(1)).m(mods::x::X).p("pp", Pred::of(carry)).p("pq", Pred::TRUE.not());
        self.push(high.glued());
    }

    /// `d = p ? a : b`.
    pub(super) fn select64(&mut self, d: Word, p: Pred, a: Wide, b: Wide) {
        let at = self.code.blocks[self.block].ops.len();
        self.select(d, p, a.low().into(), b.low().into());
        if self.code.blocks[self.block].ops.len() == at + 1 {
            self.select(d.plus(1), p, a.high().into(), b.high().into());
            if self.code.blocks[self.block].ops.len() == at + 2 {
                self.glue(2);
            }
        } else {
            self.select(d.plus(1), p, a.high().into(), b.high().into());
        }
    }

    /// The low 64 bits of `a * b + c`.
    pub(super) fn low64(&mut self, d: Word, a: Wide, b: Wide, c: Wide) {
        let (a, b) = if matches!(a, Wide::Pair(_)) { (a, b) } else { (b, a) };
        let a = Wide::Pair(self.in_pair(a));
        let cross = self.one();
        self.unguarded(|m| {
            let t = m.one();
            m.multiply(t, a.low().into(), b.high().into(), Src::ZERO);
            m.multiply(cross, a.high().into(), b.low().into(), t.into());
        });
        let wide = self.two();
        self.unguarded(|m| m.wide_multiply(wide, a.low(), b.low(), c, false));
        let (low, high) = (wide, wide.plus(1));
        self.mov(d, Val::Word(low));
        self.alu(iadd3(), d.plus(1), [high.into(), cross.into(), Src::ZERO], |m| m);
        self.glue(2);
    }

    /// The high 64 bits of a product.
    pub(super) fn high64(&mut self, d: Word, a: Word, b: Word, signed: bool) {
        let top = self.unguarded(|m| m.high64_unsigned(a, b));
        if !signed {
            return self.mov64(d, Wide::Pair(top));
        }
        // A negative factor was multiplied as itself plus 2^64.
        let mut sum = top;
        for (x, other) in [(a, b), (b, a)] {
            let (sign, part, next) = (self.one(), self.two(), self.two());
            self.unguarded(|m| {
                m.shift(sign, [Src::ZERO, 31.into(), x.plus(1).into()], mods::dir::R, mods::ty::S32, true);
                for k in 0..2 {
                    m.lop(part.plus(k), [sign.into(), other.plus(k).into(), Src::ZERO], 0xc0);
                }
                m.sum64(next, [Wide::Pair(sum), Wide::Pair(part)], [false, true]);
            });
            sum = next;
        }
        self.mov64(d, Wide::Pair(sum));
    }

    fn high64_unsigned(&mut self, a: Word, b: Word) -> Word {
        let low = self.two();
        self.wide_multiply(low, Val::Word(a), Val::Word(b), Wide::Imm(0), false);
        let c = self.zero_extended(low.plus(1));
        let mid = self.two();
        self.wide_multiply(mid, Val::Word(a), Val::Word(b.plus(1)), Wide::Pair(c), false);
        let c = self.zero_extended(mid);
        let other = self.two();
        self.wide_multiply(other, Val::Word(a.plus(1)), Val::Word(b), Wide::Pair(c), false);
        let c = self.zero_extended(mid.plus(1));
        let top = self.two();
        self.wide_multiply(top, Val::Word(a.plus(1)), Val::Word(b.plus(1)), Wide::Pair(c), false);
        let c = self.zero_extended(other.plus(1));
        let sum = self.two();
        self.add64(sum, Wide::Pair(top), Wide::Pair(c));
        sum
    }

    /// A word with zeros above.
    pub(super) fn zero_extended(&mut self, w: Word) -> Word {
        let d = self.two();
        self.mov(d, Val::Word(w));
        self.mov(d.plus(1), Val::Imm(0));
        d
    }

    /// A conversion between 64-bit registers and a word or a float, in either direction.
    pub(super) fn unary_n(&mut self, form: &'static crate::sass::Form, d: (Word, u8), s: (Word, u8)) -> Mach {
        Mach::new(form).wn("d", d.0, d.1).rn("b", s.0, s.1)
    }

    /// Quotient or remainder of 64 bits.
    fn divide64(&mut self, d: Word, a: Wide, b: Wide, signed: bool, rest: bool) {
        let (a, b) = (self.in_pair(a), self.in_pair(b));
        let zero = self.pred();
        self.unguarded(|m| m.compare64(zero, mods::cmp::NE, false, Wide::Pair(b), Wide::Imm(0)));
        if !signed {
            let r = self.unguarded(|m| m.divide64_unsigned(a, b, rest));
            return self.select64(d, Pred::of(zero), Wide::Pair(r), Wide::Imm(u64::MAX));
        }
        let (r, sign, p) = (self.two(), self.one(), self.pred());
        self.unguarded(|m| {
            let (x, y) = (m.two(), m.two());
            m.magnitude(x, a);
            m.magnitude(y, b);
            let q = m.divide64_unsigned(x, y, rest);
            if rest {
                m.mov(sign, Val::Word(a.plus(1)));
            } else {
                m.lop(sign, [a.plus(1).into(), b.plus(1).into(), Src::ZERO], 0x3c);
            }
            m.compare(p, mods::cmp::LT, true, sign.into(), Src::ZERO);
            let minus = m.two();
            m.sum64(minus, [Wide::Imm(0), Wide::Pair(q)], [false, true]);
            m.select64(r, Pred::of(p), Wide::Pair(minus), Wide::Pair(q));
        });
        // By zero: all ones, as ptxas has it.
        self.select64(d, Pred::of(zero), Wide::Pair(r), Wide::Imm(u64::MAX));
    }

    /// Reciprocal from a float, two Newton steps of 64 bits, two corrections.
    fn divide64_unsigned(&mut self, a: Word, b: Word, rest: bool) -> Word {
        let (f, r, up, q) = (self.one(), self.one(), self.one(), self.two());
        let m = self.unary_n(op::I2F_R_12, (f, 1), (b, 2)).m(mods::dt::NONE).m(mods::st::U64).m(mods::rnd::RP);
        self.push(m);
        self.unary(op::MUFU_R, r, f.into(), |m| m.m(mods::fn_::RCP));
        self.alu(iadd3(), up, [r.into(), 0x1fff_fffe.into(), Src::ZERO], |m| m);
        let m = self.unary_n(op::F2I_R_11, (q, 2), (up, 1)).m(mods::dt::U64).m(mods::st::NONE).m(mods::rnd::TRUNC);
        self.push(m);
        let mut q = q;
        for _ in 0..2 {
            let (t, minus) = (self.two(), self.two());
            self.low64(t, Wide::Pair(b), Wide::Pair(q), Wide::Imm(0));
            self.sum64(minus, [Wide::Imm(0), Wide::Pair(t)], [false, true]);
            let more = self.high64_unsigned(q, minus);
            let next = self.two();
            self.add64(next, Wide::Pair(q), Wide::Pair(more));
            q = next;
        }
        let mut q = self.high64_unsigned(q, a);
        let (t, mut left) = (self.two(), self.two());
        self.low64(t, Wide::Pair(b), Wide::Pair(q), Wide::Imm(0));
        self.sum64(left, [Wide::Pair(a), Wide::Pair(t)], [false, true]);
        for _ in 0..2 {
            let (p, less, more) = (self.pred(), self.two(), self.two());
            let (l2, q2) = (self.two(), self.two());
            self.compare64(p, mods::cmp::GE, false, Wide::Pair(left), Wide::Pair(b));
            self.sum64(less, [Wide::Pair(left), Wide::Pair(b)], [false, true]);
            self.add64(more, Wide::Pair(q), Wide::Imm(1));
            self.select64(l2, Pred::of(p), Wide::Pair(less), Wide::Pair(left));
            self.select64(q2, Pred::of(p), Wide::Pair(more), Wide::Pair(q));
            (left, q) = (l2, q2);
        }
        if rest { left } else { q }
    }
}

//! Integer arithmetic of up to 32 bits.

use super::build::{Build, Src, iadd3, imad, imad_hi, imad_wide, lea, vimnmx};
use crate::ptx::{Opcode, Type};
use crate::sass::compile::AsmError;
use crate::sass::compile::mir::{Mach, Pred, Val, Wide, Word};
use crate::sass::compile::optimise::facts::Known;
use crate::sass::compile::read::flat::{Flat, Opd};
use crate::sass::{mods, op};

impl Build<'_> {
    pub(super) fn int(&mut self, i: &Flat) -> Result<(), AsmError> {
        let ty = i.ty();
        if matches!(ty, Type::U16x2 | Type::S16x2) {
            return self.packed_int(i);
        }
        if i.has("wide") {
            return self.wide_product(i);
        }
        let d = self.dest(i, &i.opds[0])?;
        let n = i.opds.len() - 1;
        let mut s = [Src::ZERO; 3];
        for (k, o) in i.opds[1..].iter().take(3).enumerate() {
            s[k] = self.src(i, o, ty)?.into();
        }
        let signed = ty.is_signed();
        match (i.op, n) {
            (Opcode::Add | Opcode::Sub | Opcode::Addc | Opcode::Subc, 2) => self.sum(i, d, s, ty)?,
            (Opcode::Mad | Opcode::Madc, 3) if i.has("cc") || i.op == Opcode::Madc => {
                let t = self.one();
                match i.has("hi") {
                    true => self.unguarded(|b| b.high_product(t, s[0].val, s[1].val, signed)),
                    false => self.unguarded(|b| b.multiply(t, s[0], s[1], Src::ZERO)),
                }
                self.chained(i, d, [t.into(), s[2], Src::ZERO], i.op == Opcode::Madc, i.has("cc"))?;
            }
            (Opcode::Mul | Opcode::Mad | Opcode::Mul24 | Opcode::Mad24, _) => self.product(i, d, s, ty)?,
            (Opcode::Neg, 1) => self.alu(iadd3(), d, [s[0].negated(), Src::ZERO, Src::ZERO], |m| m),
            (Opcode::Abs, 1) => {
                let x = self.extended(s[0].val, ty);
                self.unary(op::IABS_R, d, x.into(), |m| m);
            }
            (Opcode::Min | Opcode::Max, 2) => {
                let (a, b) = (self.extended(s[0].val, ty), self.extended(s[1].val, ty));
                if i.has("relu") {
                    let t = self.one();
                    self.unguarded(|m| m.extreme(t, a, b, i.op == Opcode::Max, true));
                    self.extreme(d, Val::Word(t), Val::Imm(0), true, true);
                } else {
                    self.extreme(d, a, b, i.op == Opcode::Max, signed);
                }
            }
            (Opcode::Div | Opcode::Rem, 2) => {
                let (a, b) = (self.extended(s[0].val, ty), self.extended(s[1].val, ty));
                self.divide(d, a, b, signed, i.op == Opcode::Rem);
            }
            (Opcode::Sad, 3) => {
                let (lo, hi, t) = (self.one(), self.one(), self.one());
                let (a, b) = (self.extended(s[0].val, ty), self.extended(s[1].val, ty));
                self.extreme(lo, a, b, false, signed);
                self.extreme(hi, a, b, true, signed);
                self.alu(iadd3(), t, [hi.into(), Src::from(lo).negated(), s[2]], |m| m);
                self.mov(d, Val::Word(t));
            }
            (Opcode::Dp4a | Opcode::Dp2a, 3) => self.dp4a(i, d, s),
            _ => return self.no(i, "no integer instruction of that kind is assembled"),
        }
        Ok(())
    }

    /// Minimum or maximum.
    pub(super) fn extreme(&mut self, d: Word, a: Val, b: Val, larger: bool, signed: bool) {
        let (a, b) = if matches!(a, Val::Word(_)) { (a, b) } else { (b, a) };
        let p = if larger { Pred::TRUE.not() } else { Pred::TRUE };
        self.alu(vimnmx(), d, [a.into(), b.into(), Src::ZERO], |m| {
            m.p("pp", p).m(if signed { mods::ty::NONE } else { mods::ty::U32 })
        });
    }

    fn dp4a(&mut self, i: &Flat, d: Word, s: [Src; 3]) {
        let mut types = i.types();
        let mut signed = || types.next().is_some_and(Type::is_signed);
        let (a_signed, b_signed) = (signed(), signed());
        let bt = if b_signed { mods::bt::S8 } else { mods::bt::U8 };
        let [a, b, c] = s.map(|s| self.in_word(s.val));
        if i.op == Opcode::Dp2a {
            let m = Mach::new(op::IDP_R2A).w("d", d).r("a", a).r("b", b).r("c", c);
            let m = m.m(if i.has("hi") { mods::md::_2A_HI } else { mods::md::_2A_LO });
            let at = if a_signed { mods::at::S16 } else { mods::at::U16 };
            return self.push(m.m(at).m(bt));
        }
        let at = if a_signed { mods::at::S8 } else { mods::at::U8 };
        self.push(Mach::new(op::IDP_R).w("d", d).r("a", a).r("b", b).r("c", c).m(at).m(bt));
    }

    /// A sum: with the carry of the text's .cc, or with a shift or product as one instruction.
    fn sum(&mut self, i: &Flat, d: Word, s: [Src; 3], ty: Type) -> Result<(), AsmError> {
        let minus = matches!(i.op, Opcode::Sub | Opcode::Subc);
        let second = if minus { s[1].negated() } else { s[1] };
        let (takes, gives) = (matches!(i.op, Opcode::Addc | Opcode::Subc), i.has("cc"));
        if takes || gives {
            return self.chained(i, d, [s[0], second, Src::ZERO], takes, gives);
        }
        if i.has("sat") {
            return self.saturated(i, d, [s[0].val, s[1].val], minus);
        }
        if ty.bits() == 32 && !minus && self.funnel(i, d)? {
            return Ok(());
        }
        if ty.bits() == 32 && !minus {
            for (x, y) in [(0, 1), (1, 0)] {
                if self.fused(i, d, &i.opds[1 + x], s[y])? {
                    return Ok(());
                }
            }
        }
        let (a, b) = if matches!(s[0].val, Val::Word(_)) { (s[0], second) } else { (second, s[0]) };
        let b = match b.val {
            Val::Imm(v) if b.neg => v.wrapping_neg().into(),
            _ => b,
        };
        self.alu(iadd3(), d, [a, b, Src::ZERO], |m| m);
        Ok(())
    }

    /// `d = o + other`, fused if o is a product, a shift or a sum without another reader.
    fn fused(&mut self, i: &Flat, d: Word, o: &Opd, other: Src) -> Result<bool, AsmError> {
        let Some(from) = self.only_use(o).filter(|f| f.ty().bits() == 32 && f.opds.len() == 3) else {
            return Ok(false);
        };
        let ty = from.ty();
        match from.op {
            Opcode::Mul if from.has("lo") => {
                let (a, b) = (self.src(i, &from.opds[1], ty)?, self.src(i, &from.opds[2], ty)?);
                self.multiply(d, a.into(), b.into(), other);
            }
            Opcode::Shl => {
                let Opd::Imm(n) = &from.opds[2] else { return Ok(false) };
                let n = crate::sass::compile::optimise::facts::bits_of(*n, Type::U32);
                let a = self.src(i, &from.opds[1], ty)?;
                if n > 31 || !matches!(a, Val::Word(_)) {
                    return Ok(false);
                }
                self.alu(lea(), d, [a.into(), other, Src::ZERO], |m| m.n("sh", n));
            }
            Opcode::Add if !ty.is_float() && !from.has("sat") && !from.has("cc") => {
                let (a, b) = (self.src(i, &from.opds[1], ty)?, self.src(i, &from.opds[2], ty)?);
                let (b, c) = if matches!(b, Val::Word(_)) { (other, b.into()) } else { (b.into(), other) };
                if !matches!(c.val, Val::Word(_)) {
                    return Ok(false);
                }
                self.alu(iadd3(), d, [a.into(), b, c], |m| m);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// A sum or difference with signed saturation.
    pub(super) fn saturated(&mut self, i: &Flat, d: Word, [a, b]: [Val; 2], minus: bool) -> Result<(), AsmError> {
        if i.ty() != Type::S32 {
            return self.no(i, "saturating sums of this type are not assembled");
        }
        let (a, b) = (self.in_word(a), self.in_word(b));
        let (sum, over, limit, p) = (self.one(), self.one(), self.one(), self.pred());
        self.unguarded(|m| {
            let b2 = if minus { Src::from(b).negated() } else { b.into() };
            m.alu(iadd3(), sum, [a.into(), b2, Src::ZERO], |m| m);
            // A sum overflows if its sign differs from that of a, and a and b have the same sign (for a difference:
            // different signs).
            let table = if minus { (0xf0 ^ 0xcc) & (0xf0 ^ 0xaa) } else { !(0xf0 ^ 0xcc) & (0xf0 ^ 0xaa) };
            m.lop(over, [a.into(), b.into(), sum.into()], table);
            m.compare(p, mods::cmp::LT, true, over.into(), Src::ZERO);
            let sign = m.one();
            m.shift(sign, [Src::ZERO, 31.into(), a.into()], mods::dir::R, mods::ty::S32, true);
            m.lop(limit, [sign.into(), 0x7fff_ffff.into(), Src::ZERO], 0x3c);
        });
        self.select(d, Pred::of(p), limit.into(), sum.into());
        Ok(())
    }

    pub(super) fn carry(&mut self, i: &Flat, takes: bool) -> Result<Word, AsmError> {
        match self.carry {
            Some(c) => Ok(c),
            None if takes => self.no(i, "no carry was made before"),
            None => {
                let c = self.pred();
                self.carry = Some(c);
                Ok(c)
            }
        }
    }

    /// A sum that `takes` the carry, or `gives` it.
    fn chained(&mut self, i: &Flat, d: Word, s: [Src; 3], takes: bool, gives: bool) -> Result<(), AsmError> {
        let carry = self.carry(i, takes)?;
        let [a, mut b, c] = s;
        if b.neg && !matches!(b.val, Val::Word(_) | Val::Const(..)) {
            b.val = Val::Word(self.in_word(b.val));
        }
        let mut m = self.arith(iadd3(), [a, b, c]).w("d", d);
        if takes {
            m = m.m(mods::x::X).p("pp", Pred::of(carry)).p("pq", Pred::TRUE.not());
        }
        if gives {
            m = m.w("pu", carry);
        }
        self.push(m);
        Ok(())
    }

    /// `d = a * b + c`, the low half.
    pub(super) fn multiply(&mut self, d: Word, a: Src, b: Src, c: Src) {
        let (a, b) = if matches!(a.val, Val::Word(_)) { (a, b) } else { (b, a) };
        self.alu(imad(), d, [a, b, c], |m| m);
    }

    fn product(&mut self, i: &Flat, d: Word, s: [Src; 3], ty: Type) -> Result<(), AsmError> {
        let (signed, small) = (ty.is_signed(), ty.bits() < 32);
        if i.has("cc") || i.has("sat") && !(i.op == Opcode::Mad && i.has("hi") && ty == Type::S32) {
            return self.no(i, "this modifier of a product is not assembled");
        }
        if matches!(i.op, Opcode::Mul24 | Opcode::Mad24) {
            let table = if signed { mods::sg::NONE } else { mods::sg::U32 };
            let cut = |b: &mut Self, v: Src| {
                let (t, w) = (b.one(), b.in_word(v.val));
                b.unguarded(|b| b.push(Mach::new(op::SGXT_I).w("d", t).r("a", w).n("b", 24).m(table)));
                Src::from(t)
            };
            let (a, b) = (cut(self, s[0]), cut(self, s[1]));
            match i.has("hi") {
                true => self.high_of_24(d, a.val, b.val, s[2], signed),
                false => self.multiply(d, a, b, s[2]),
            }
            return Ok(());
        }
        if !i.has("hi") {
            self.multiply(d, s[0], s[1], s[2]);
            return Ok(());
        }
        let (a, b) = (self.extended(s[0].val, ty), self.extended(s[1].val, ty));
        if small {
            let t = self.one();
            self.unguarded(|m| m.multiply(t, a.into(), b.into(), Src::ZERO));
            let high = if i.op == Opcode::Mad { self.one() } else { d };
            self.shift(
                high,
                [Src::ZERO, 16.into(), t.into()],
                mods::dir::R,
                if signed { mods::ty::S32 } else { mods::ty::U32 },
                true,
            );
            if i.op == Opcode::Mad {
                self.alu(iadd3(), d, [high.into(), s[2], Src::ZERO], |m| m);
            }
            return Ok(());
        }
        let high = if i.op == Opcode::Mad { self.one() } else { d };
        self.high_product(high, a, b, signed);
        match i.op {
            Opcode::Mad if i.has("sat") => self.saturated(i, d, [Val::Word(high), s[2].val], false)?,
            Opcode::Mad => self.alu(iadd3(), d, [high.into(), s[2], Src::ZERO], |m| m),
            _ => {}
        }
        Ok(())
    }

    /// Bits 16 to 47 of a product of 24-bit numbers, and an addend.
    fn high_of_24(&mut self, d: Word, a: Val, b: Val, c: Src, signed: bool) {
        let (product, high) = (self.two(), self.one());
        self.unguarded(|m| {
            m.wide_multiply(product, a, b, Wide::Imm(0), signed);
            let (low, top) = (product.into(), product.plus(1).into());
            m.shift(high, [low, 16.into(), top], mods::dir::R, mods::ty::U64, false);
        });
        self.alu(iadd3(), d, [high.into(), c, Src::ZERO], |m| m);
    }

    /// The high half of a product of 32-bit words.
    pub(super) fn high_product(&mut self, d: Word, a: Val, b: Val, signed: bool) {
        let (a, b) = if matches!(a, Val::Word(_)) { (a, b) } else { (b, a) };
        self.alu(imad_hi(), d, [a.into(), b.into(), Src::ZERO], |m| {
            m.mark(if signed { mods::sg::NONE } else { mods::sg::U32 })
        });
    }

    /// `.wide`: a product of twice the bits, and an addend.
    fn wide_product(&mut self, i: &Flat) -> Result<(), AsmError> {
        let ty = i.types().next().unwrap_or(Type::S32);
        let signed = ty.is_signed();
        let d = self.dest(i, &i.opds[0])?;
        let (a, b) = (self.src(i, &i.opds[1], ty)?, self.src(i, &i.opds[2], ty)?);
        if ty.bits() == 16 {
            let (a, b) = (self.extended(a, ty), self.extended(b, ty));
            let c = match i.opds.get(3) {
                Some(o) => self.src(i, o, Type::U32)?.into(),
                None => Src::ZERO,
            };
            self.multiply(d, a.into(), b.into(), c);
            return Ok(());
        }
        let c = match i.opds.get(3) {
            Some(o) => self.wide(i, o, Type::U64)?,
            None => Wide::Imm(0),
        };
        self.wide_multiply(d, a, b, c, signed);
        Ok(())
    }

    /// `d = a * b + c` of 32 bits each into 64.
    pub(super) fn wide_multiply(&mut self, d: Word, a: Val, b: Val, c: Wide, signed: bool) {
        let (a, b) = if matches!(a, Val::Word(_)) { (a, b) } else { (b, a) };
        let c = match c {
            Wide::Imm(0) => None,
            // From Hopper on the addend of IMAD.WIDE cannot be a constant.
            Wide::Const(bank, at)
                if self.chip.is_before_hopper()
                    && (matches!(b, Val::Word(_) | Val::Imm(0)) || self.takes_constant(bank, at)) =>
            {
                Some(Val::Const(bank, at))
            }
            c => Some(Val::Word(self.in_pair(c))),
        };
        // With a factor in a register the addend can be a constant of a bank.
        let b = match (b, c) {
            (Val::Imm(n @ 1..), Some(Val::Const(..))) => Val::Word(self.immediate(n)),
            _ => b,
        };
        let m = self.arith(imad_wide(), [a.into(), b.into(), c.unwrap_or(Val::Imm(0)).into()]).words("c", 2);
        self.push(m.wn("d", d, 2).mark(if signed { mods::sg::NONE } else { mods::sg::U32 }));
    }

    /// The value of a type in all 32 bits.
    pub(super) fn extended(&mut self, v: Val, ty: Type) -> Val {
        if ty.bits() >= 32 {
            return v;
        }
        match v {
            Val::Imm(i) if ty.bits() == 16 && ty.is_signed() => Val::Imm(i32::from(i as i16).cast_unsigned()),
            Val::Imm(i) if ty.bits() == 8 && ty.is_signed() => Val::Imm(i32::from(i as i8).cast_unsigned()),
            Val::Imm(i) => Val::Imm(i & ((1 << ty.bits()) - 1)),
            v => {
                let d = self.one();
                self.unguarded(|b| b.extend_to(d, v, ty));
                Val::Word(d)
            }
        }
    }

    /// The low bits of a word, extended.
    pub(super) fn extend_to(&mut self, d: Word, v: Val, ty: Type) {
        match (ty.bits(), ty.is_signed()) {
            (8, false) => self.lop(d, [v.into(), 0xff.into(), Src::ZERO], 0xc0),
            (16, false) => self.lop(d, [v.into(), 0xffff.into(), Src::ZERO], 0xc0),
            (8, true) => self.permute(d, v.into(), 0x8880, Src::ZERO),
            (16, true) => self.permute(d, v.into(), 0x9910, Src::ZERO),
            _ => self.mov(d, v),
        }
    }

    /// Whether an operand is a constant.
    pub(super) fn constant_of(&self, o: &Opd) -> Option<u64> {
        match o {
            Opd::Imm(v) => Some(crate::sass::compile::optimise::facts::bits_of(*v, Type::U64)),
            Opd::Reg(r) => match self.facts.known[*r as usize] {
                Known::Imm(v) => Some(v),
                _ => None,
            },
            _ => None,
        }
    }
}

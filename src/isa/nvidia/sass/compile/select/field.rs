//! Bit fields of 64 bits.

use super::build::{Build, Src, iadd3, vimnmx};
use crate::ptx::{Opcode, Type};
use crate::sass::compile::AsmError;
use crate::sass::compile::mir::{Pred, Val, Wide, Word};
use crate::sass::compile::read::flat::Flat;
use crate::sass::mods;

impl Build<'_> {
    pub(super) fn wide_field(&mut self, i: &Flat, d: Word, ty: Type) -> Result<(), AsmError> {
        let a = self.wide(i, &i.opds[1], ty)?;
        match i.op {
            Opcode::Bfi => {
                let into = self.wide(i, &i.opds[2], ty)?;
                let (at, len) = (self.src(i, &i.opds[3], Type::U32)?, self.src(i, &i.opds[4], Type::U32)?);
                self.insert64(d, a, into, [at, len]);
            }
            Opcode::Bfe => {
                let (at, len) = (self.src(i, &i.opds[2], Type::U32)?, self.src(i, &i.opds[3], Type::U32)?);
                self.extract64(d, a, [at, len], ty.is_signed());
            }
            _ => self.find64(d, a, ty.is_signed(), i.has("shiftamt")),
        }
        Ok(())
    }

    fn insert64(&mut self, d: Word, a: Wide, into: Wide, [at, len]: [Val; 2]) {
        if (at, len) == (Val::Imm(32), Val::Imm(32)) {
            let t = self.two();
            self.unguarded(|b| {
                b.mov(t, into.low());
                b.mov(t.plus(1), a.low());
            });
            return self.mov64(d, Wide::Pair(t));
        }
        let (at, len) = (self.byte(at), self.byte(len));
        let (a, into) = (self.in_pair(a), self.in_pair(into));
        let (rest, ones, mask, moved, t) = (self.two(), self.two(), self.two(), self.two(), self.two());
        self.unguarded(|b| {
            let all = b.in_pair(Wide::Imm(u64::MAX));
            b.shift64(rest, all, len, true, false);
            (0..2).for_each(|k| b.lop(ones.plus(k), [rest.plus(k).into(), Src::ZERO, Src::ZERO], 0x0f));
            b.shift64(mask, ones, at, true, false);
            b.shift64(moved, a, at, true, false);
            // mask ? moved : into
            for k in 0..2 {
                b.lop(t.plus(k), [mask.plus(k).into(), moved.plus(k).into(), into.plus(k).into()], 0xca);
            }
        });
        self.mov64(d, Wide::Pair(t));
    }

    /// Shifts down, then up and down again to remove the bits above the field.
    fn extract64(&mut self, d: Word, a: Wide, [at, len]: [Val; 2], signed: bool) {
        let a = self.in_pair(a);
        let (low, up, t, above) = (self.two(), self.two(), self.two(), self.one());
        self.unguarded(|b| {
            b.shift64(low, a, at, false, signed);
            let above = match len {
                Val::Imm(n) => Val::Imm(64 - n.min(64)),
                len => {
                    let least = b.one();
                    let len = b.in_word(len);
                    b.alu(vimnmx(), least, [len.into(), 64.into(), Src::ZERO], |m| {
                        m.p("pp", Pred::TRUE).m(mods::ty::U32)
                    });
                    b.alu(iadd3(), above, [Src::from(least).negated(), 64.into(), Src::ZERO], |m| m);
                    Val::Word(above)
                }
            };
            b.shift64(up, low, above, true, false);
            b.shift64(t, up, above, false, signed);
        });
        self.mov64(d, Wide::Pair(t));
    }

    /// The highest set bit, or the highest bit that differs from the sign.
    fn find64(&mut self, d: Word, a: Wide, signed: bool, shift: bool) {
        let a = self.in_pair(a);
        let (low, high) = (self.one(), self.one());
        let (x, y, z, p) = (self.one(), self.one(), self.one(), self.pred());
        self.unguarded(|b| {
            let sign = b.one();
            match signed {
                true => b.shift(sign, [Src::ZERO, 31.into(), a.plus(1).into()], mods::dir::R, mods::ty::S32, true),
                false => b.mov(sign, Val::Imm(0)),
            }
            b.lop(low, [a.into(), sign.into(), Src::ZERO], 0x3c);
            b.lop(high, [a.plus(1).into(), sign.into(), Src::ZERO], 0x3c);
            b.leading(x, Val::Word(low));
            b.leading(y, Val::Word(high));
            b.compare(p, mods::cmp::EQ, false, high.into(), Src::ZERO);
            b.alu(iadd3(), z, [y.into(), 32.into(), Src::ZERO], |m| m);
        });
        if !shift {
            return self.select(d, Pred::of(p), x.into(), z.into());
        }
        // Counted from the top, or all ones.
        let (found, none, left) = (self.one(), self.pred(), self.one());
        self.unguarded(|b| {
            b.select(found, Pred::of(p), x.into(), z.into());
            b.compare(none, mods::cmp::EQ, false, found.into(), u32::MAX.into());
            b.alu(iadd3(), left, [Src::from(found).negated(), 63.into(), Src::ZERO], |m| m);
        });
        self.select(d, Pred::of(none), u32::MAX.into(), left.into());
    }
}

//! Bits: logic, shifts, fields, counts; comparisons and selects; moves.

use super::build::{Build, Src, bmsk, fsetp, iadd3, isetp, sgxt, shf};
use super::double::DSETP;
use crate::ptx::{Opcode, Type};
use crate::sass::compile::AsmError;
use crate::sass::compile::mir::{Mach, Pred, Val, Wide, Word};
use crate::sass::compile::read::flat::{Flat, Opd};
use crate::sass::{Modifier, mods, op};

/// A comparison's code in integer and float forms.
pub(super) fn compare_code(word: &str, float: bool) -> Option<Modifier> {
    let plain = match word {
        "eq" => mods::cmp::EQ,
        "ne" => mods::cmp::NE,
        "lt" | "lo" => mods::cmp::LT,
        "le" | "ls" => mods::cmp::LE,
        "gt" | "hi" => mods::cmp::GT,
        "ge" | "hs" => mods::cmp::GE,
        _ if !float => return None,
        "equ" => mods::cmp::EQU,
        "neu" => mods::cmp::NEU,
        "ltu" => mods::cmp::LTU,
        "leu" => mods::cmp::LEU,
        "gtu" => mods::cmp::GTU,
        "geu" => mods::cmp::GEU,
        "num" => mods::cmp::NUM,
        "nan" => mods::cmp::NAN,
        _ => return None,
    };
    Some(plain)
}

/// The comparison that holds for `b, a` where this one does for `a, b`.
fn mirrored(cmp: Modifier) -> Modifier {
    match cmp {
        mods::cmp::LT => mods::cmp::GT,
        mods::cmp::LE => mods::cmp::GE,
        mods::cmp::GT => mods::cmp::LT,
        mods::cmp::GE => mods::cmp::LE,
        mods::cmp::LTU => mods::cmp::GTU,
        mods::cmp::LEU => mods::cmp::GEU,
        mods::cmp::GTU => mods::cmp::LTU,
        mods::cmp::GEU => mods::cmp::LEU,
        same => same,
    }
}

/// Puts a constant second: the machine's first operand must be a register.
fn ordered(a: Val, b: Val, cmp: Modifier) -> (Val, Val, Modifier) {
    match (a, b) {
        (Val::Imm(1..) | Val::Const(..), Val::Word(_)) => (b, a, mirrored(cmp)),
        _ => (a, b, cmp),
    }
}

impl Build<'_> {
    pub(super) fn logic(&mut self, i: &Flat) -> Result<(), AsmError> {
        let ty = i.ty();
        if ty == Type::Pred {
            return self.logic_pred(i);
        }
        match i.op {
            Opcode::And | Opcode::Or | Opcode::Xor | Opcode::Not => self.bitwise(i, ty),
            Opcode::Shl | Opcode::Shr => self.shift_inst(i, ty),
            Opcode::Shf => {
                let d = self.dest(i, &i.opds[0])?;
                let [a, b, n] = [1, 2, 3].map(|k| self.src(i, &i.opds[k], Type::B32));
                let (a, b, n) = (a?, b?, n?);
                let (dir, hi) = if i.has("l") { (mods::dir::L, mods::hi::HI) } else { (mods::dir::R, mods::hi::NONE) };
                let wrap = if i.has("wrap") { mods::w::W } else { mods::w::NONE };
                // Low word in a, high word in c; a left shift returns the high word of the result.
                self.alu(shf(), d, [a.into(), n.into(), b.into()], |m| m.m(dir).m(mods::ty::U32).m(hi).m(wrap));
                Ok(())
            }
            Opcode::Lop3 => {
                let d = self.dest(i, &i.opds[0])?;
                let [a, b, c] = [1, 2, 3].map(|k| self.src(i, &i.opds[k], Type::B32));
                let Some(table) = i.opds.get(4).and_then(|o| self.constant_of(o)) else {
                    return self.no(i, "the truth table is no constant");
                };
                let (a, b, c) = (a?, b?, c?);
                let b = if matches!(c, Val::Word(_) | Val::Imm(0)) { b } else { Val::Word(self.in_word(b)) };
                self.lop(d, [a.into(), b.into(), c.into()], table as u8);
                Ok(())
            }
            Opcode::Prmt => {
                let d = self.dest(i, &i.opds[0])?;
                let [a, c, s] = [1, 2, 3].map(|k| self.src(i, &i.opds[k], Type::B32));
                let mode = i.words().find_map(|w| match w {
                    "f4e" => Some(mods::md::F4E),
                    "b4e" => Some(mods::md::B4E),
                    "rc8" => Some(mods::md::RC8),
                    "ecl" => Some(mods::md::ECL),
                    "ecr" => Some(mods::md::ECR),
                    "rc16" => Some(mods::md::RC16),
                    _ => None,
                });
                let (a, c, s) = (a?, c?, s?);
                let s = if let Val::Imm(v) = s { Val::Imm(v & 0xffff) } else { s };
                self.alu(super::build::prmt(), d, [a.into(), s.into(), c.into()], |m| match mode {
                    Some(mode) => m.m(mode),
                    None => m,
                });
                Ok(())
            }
            _ => self.field(i, ty),
        }
    }

    fn logic_pred(&mut self, i: &Flat) -> Result<(), AsmError> {
        let Opd::Reg(r) = i.opds[0] else { return self.no(i, "a predicate is expected") };
        let d = self.home(r);
        if let Some(m) = self.joined_comparison(i)? {
            self.push(m.w("pu", d));
            return Ok(());
        }
        let a = self.pred_src(i, &i.opds[1])?;
        let b = match i.opds.get(2) {
            Some(o) => self.pred_src(i, o)?,
            None => Pred::TRUE,
        };
        let table = match i.op {
            Opcode::And => 0xc0,
            Opcode::Or => 0xfc,
            Opcode::Xor => 0x3c,
            Opcode::Not => 0x0f,
            _ => return self.no(i, "no instruction on predicates"),
        };
        self.plop(d, [a, b, Pred::TRUE], table);
        Ok(())
    }

    /// A comparison fused with the predicate logic on its result.
    fn joined_comparison(&mut self, i: &Flat) -> Result<Option<Mach>, AsmError> {
        let join = match i.op {
            Opcode::And => mods::bop::AND,
            Opcode::Or => mods::bop::OR,
            Opcode::Xor => mods::bop::XOR,
            _ => return Ok(None),
        };
        for (o, other) in [(&i.opds[2], &i.opds[1]), (&i.opds[1], &i.opds[2])] {
            let alone = |c: &&Flat| c.op == Opcode::Setp && c.opds.len() == 3 && matches!(c.opds[0], Opd::Reg(_));
            if let Some(c) = self.only_use_here(o).filter(alone) {
                let other = self.pred_src(i, other)?;
                return Ok(Some(self.comparison(c, c.ty(), 3)?.p("pp", other).m(join)));
            }
        }
        Ok(None)
    }

    fn bitwise(&mut self, i: &Flat, ty: Type) -> Result<(), AsmError> {
        let d = self.dest(i, &i.opds[0])?;
        let table = match i.op {
            Opcode::And => 0xc0,
            Opcode::Or => 0xfc,
            Opcode::Xor => 0x3c,
            _ => 0x0f,
        };
        if ty.bits() == 64 {
            let a = self.wide(i, &i.opds[1], ty)?;
            let b = match i.opds.get(2) {
                Some(o) => self.wide(i, o, ty)?,
                None => Wide::Imm(0),
            };
            let n = self.code.blocks[self.block].ops.len();
            self.lop2(d, a.low(), b.low(), table);
            self.lop2(d.plus(1), a.high(), b.high(), table);
            if self.code.blocks[self.block].ops.len() == n + 2 {
                self.glue(2);
            }
            return Ok(());
        }
        let a = self.src(i, &i.opds[1], ty)?;
        let b = match i.opds.get(2) {
            Some(o) => self.src(i, o, ty)?,
            None => Val::Imm(0),
        };
        if matches!(i.op, Opcode::Or | Opcode::Xor) && self.funnel(i, d)? {
            return Ok(());
        }
        if table != 0x0f && self.lop_fused(i, d, b, table)? {
            return Ok(());
        }
        self.lop2(d, a, b, table);
        Ok(())
    }

    fn lop2(&mut self, d: Word, a: Val, b: Val, table: u8) {
        let (a, b) = if table == 0x0f || matches!(a, Val::Word(_)) { (a, b) } else { (b, a) };
        self.lop(d, [a.into(), b.into(), Src::ZERO], table);
    }

    /// `x << n | y >> (32 - n)`, a rotation if x is y. As the bits do not overlap, an addition is the same.
    pub(super) fn funnel(&mut self, i: &Flat, d: Word) -> Result<bool, AsmError> {
        let Some((left, right, n)) = self.funnelled(i) else { return Ok(false) };
        let (x, y) = (self.src(i, &left.opds[1], Type::B32)?, self.src(i, &right.opds[1], Type::B32)?);
        self.alu(shf(), d, [y.into(), n.into(), x.into()], |m| {
            m.m(mods::dir::L).m(mods::ty::U32).m(mods::hi::HI).m(mods::w::W)
        });
        Ok(true)
    }

    /// `(x op y) op z` if the inner result has no other reader.
    fn lop_fused(&mut self, i: &Flat, d: Word, z: Val, outer: u8) -> Result<bool, AsmError> {
        let Some(from) = self.only_use(&i.opds[1]).filter(|f| f.ty().bits() == 32 && f.opds.len() == 3) else {
            return Ok(false);
        };
        let inner: u8 = match from.op {
            Opcode::And => 0xc0,
            Opcode::Or => 0xfc,
            Opcode::Xor => 0x3c,
            _ => return Ok(false),
        };
        if from.op != Opcode::And && self.funnelled(from).is_some() {
            return Ok(false);
        }
        let (x, y) = (self.src(i, &from.opds[1], Type::B32)?, self.src(i, &from.opds[2], Type::B32)?);
        let fixed = [x, y, z].iter().filter(|v| !matches!(v, Val::Word(_) | Val::Imm(0))).count();
        if fixed > 1 || !matches!(x, Val::Word(_)) {
            return Ok(false);
        }
        let combine = |a: u8, b: u8| match outer {
            0xc0 => a & b,
            0xfc => a | b,
            _ => a ^ b,
        };
        // The operand that is not a register must be in b.
        let (b, c, table) = if matches!(z, Val::Word(_) | Val::Imm(0)) {
            (y, z, combine(inner, 0xaa))
        } else {
            let swapped = match inner {
                0xc0 => 0xf0 & 0xaa,
                0xfc => 0xf0 | 0xaa,
                _ => 0xf0 ^ 0xaa,
            };
            (z, y, combine(swapped, 0xcc))
        };
        self.lop(d, [x.into(), b.into(), c.into()], table);
        Ok(true)
    }

    fn shift_inst(&mut self, i: &Flat, ty: Type) -> Result<(), AsmError> {
        let d = self.dest(i, &i.opds[0])?;
        let n = self.src(i, &i.opds[2], Type::U32)?;
        let n = if let Val::Imm(v) = n { Val::Imm(v.min(64)) } else { n };
        let signed = ty.is_signed();
        if ty.bits() == 64 {
            let a = self.wide(i, &i.opds[1], ty)?;
            let a = self.in_pair(a);
            let t = self.two();
            self.unguarded(|b| b.shift64(t, a, n, i.op == Opcode::Shl, signed));
            self.mov64(d, Wide::Pair(t));
            return Ok(());
        }
        let a = self.src(i, &i.opds[1], ty)?;
        if i.op == Opcode::Shl {
            self.shift(d, [a.into(), n.into(), Src::ZERO], mods::dir::L, mods::ty::U32, false);
        } else {
            let a = self.extended(a, ty);
            self.shift(
                d,
                [Src::ZERO, n.into(), a.into()],
                mods::dir::R,
                if signed { mods::ty::S32 } else { mods::ty::U32 },
                true,
            );
        }
        Ok(())
    }

    /// Shifts of 64 bits by any count.
    pub(super) fn shift64(&mut self, d: Word, a: Word, n: Val, left: bool, signed: bool) {
        let (low, high) = (a, a.plus(1));
        match (left, signed) {
            (true, _) if n == Val::Imm(32) => {
                self.mov(d, Val::Imm(0));
                self.mov(d.plus(1), Val::Word(low));
            }
            (false, false) if n == Val::Imm(32) => {
                self.mov(d, Val::Word(high));
                self.mov(d.plus(1), Val::Imm(0));
            }
            (true, _) => {
                self.shift(d, [low.into(), n.into(), Src::ZERO], mods::dir::L, mods::ty::U32, false);
                self.shift(d.plus(1), [low.into(), n.into(), high.into()], mods::dir::L, mods::ty::U64, true);
            }
            (false, signed) => {
                let (wide, one) = if signed { (mods::ty::S64, mods::ty::S32) } else { (mods::ty::U64, mods::ty::U32) };
                self.shift(d, [low.into(), n.into(), high.into()], mods::dir::R, wide, false);
                self.shift(d.plus(1), [Src::ZERO, n.into(), high.into()], mods::dir::R, one, true);
            }
        }
    }

    /// Bit fields and counts.
    fn field(&mut self, i: &Flat, ty: Type) -> Result<(), AsmError> {
        let d = self.dest(i, &i.opds[0])?;
        if ty.bits() == 64 {
            return self.field64(i, d, ty);
        }
        let a = self.src(i, &i.opds[1], ty)?;
        match i.op {
            Opcode::Brev => self.unary(op::BREV_R, d, a.into(), |m| m),
            Opcode::Popc => self.unary(op::POPC_R, d, a.into(), |m| m),
            Opcode::Clz => {
                let t = self.one();
                self.unguarded(|b| b.leading(t, a));
                self.alu(iadd3(), d, [Src::from(t).negated(), 31.into(), Src::ZERO], |m| m);
            }
            Opcode::Bfind => {
                let shift = if i.has("shiftamt") { mods::sh::SH } else { mods::sh::NONE };
                let sg = if ty.is_signed() { mods::sg::NONE } else { mods::sg::U32 };
                self.unary(op::FLO_R, d, a.into(), |m| m.m(sg).m(shift));
            }
            Opcode::Cnot => {
                let (p, a) = (self.pred(), self.extended(a, ty));
                self.unguarded(|b| b.compare(p, mods::cmp::EQ, false, a.into(), Src::ZERO));
                self.select(d, Pred::of(p), 1.into(), Src::ZERO);
            }
            Opcode::Bmsk | Opcode::Szext => {
                let n = self.src(i, &i.opds[2], Type::U32)?;
                let wrap = if i.has("wrap") { mods::w::W } else { mods::w::NONE };
                let sg = if ty.is_signed() { mods::sg::NONE } else { mods::sg::U32 };
                match i.op {
                    Opcode::Bmsk => self.alu(bmsk(), d, [a.into(), n.into(), Src::ZERO], |m| m.m(wrap)),
                    _ => self.alu(sgxt(), d, [a.into(), n.into(), Src::ZERO], |m| m.m(sg).m(wrap)),
                }
            }
            Opcode::Bfe => self.extract(i, d, a, ty)?,
            Opcode::Bfi => {
                let into = self.src(i, &i.opds[2], ty)?;
                let (at, len) = (self.src(i, &i.opds[3], Type::U32)?, self.src(i, &i.opds[4], Type::U32)?);
                let (at, len) = (self.byte(at), self.byte(len));
                let (ones, mask, moved) = (self.one(), self.one(), self.one());
                self.unguarded(|b| {
                    // ~(all << len) << at
                    let all = b.in_word(Val::Imm(u32::MAX));
                    let t = b.one();
                    b.shift(t, [all.into(), len.into(), Src::ZERO], mods::dir::L, mods::ty::U32, false);
                    b.lop(ones, [t.into(), Src::ZERO, Src::ZERO], 0x0f);
                    b.shift(mask, [ones.into(), at.into(), Src::ZERO], mods::dir::L, mods::ty::U32, false);
                    b.shift(moved, [a.into(), at.into(), Src::ZERO], mods::dir::L, mods::ty::U32, false);
                });
                let into = self.in_word(into);
                // mask ? moved : into
                self.lop(d, [mask.into(), moved.into(), into.into()], 0xca);
            }
            _ => return self.no(i, "no instruction on bits of that kind is assembled"),
        }
        Ok(())
    }

    /// The low eight bits, as field operands count.
    pub(super) fn byte(&mut self, v: Val) -> Val {
        match v {
            Val::Imm(v) => Val::Imm(v & 0xff),
            v => {
                let t = self.one();
                self.unguarded(|b| b.lop(t, [v.into(), 0xff.into(), Src::ZERO], 0xc0));
                Val::Word(t)
            }
        }
    }

    pub(super) fn leading(&mut self, d: Word, a: Val) {
        self.unary(op::FLO_R, d, a.into(), |m| m.m(mods::sg::U32));
    }

    /// `len` bits from `at` on, extended.
    fn extract(&mut self, i: &Flat, d: Word, a: Val, ty: Type) -> Result<(), AsmError> {
        let (at, len) = (self.src(i, &i.opds[2], Type::U32)?, self.src(i, &i.opds[3], Type::U32)?);
        let (at, len) = (self.byte(at), self.byte(len));
        let signed = ty.is_signed();
        let (Val::Imm(p), Val::Imm(n)) = (at, len) else { return self.extract_any(d, a, [at, len], signed) };
        if n == 0 || p > 31 && !signed {
            self.mov(d, Val::Imm(0));
        } else if p + n >= 32 {
            let p = p.min(31);
            self.shift(
                d,
                [Src::ZERO, p.into(), a.into()],
                mods::dir::R,
                if signed { mods::ty::S32 } else { mods::ty::U32 },
                true,
            );
        } else if signed {
            let t = self.one();
            self.unguarded(|b| {
                b.shift(t, [a.into(), (32 - p - n).into(), Src::ZERO], mods::dir::L, mods::ty::U32, false)
            });
            self.shift(d, [Src::ZERO, (32 - n).into(), t.into()], mods::dir::R, mods::ty::S32, true);
        } else {
            let t = self.one();
            self.unguarded(|b| b.shift(t, [Src::ZERO, p.into(), a.into()], mods::dir::R, mods::ty::U32, true));
            self.lop(d, [t.into(), ((1u32 << n) - 1).into(), Src::ZERO], 0xc0);
        }
        Ok(())
    }

    fn extract_any(&mut self, d: Word, a: Val, [at, len]: [Val; 2], signed: bool) -> Result<(), AsmError> {
        let t = self.one();
        self.unguarded(|b| {
            b.shift(
                t,
                [Src::ZERO, at.into(), a.into()],
                mods::dir::R,
                if signed { mods::ty::S32 } else { mods::ty::U32 },
                true,
            )
        });
        let sg = if signed { mods::sg::NONE } else { mods::sg::U32 };
        self.alu(sgxt(), d, [t.into(), len.into(), Src::ZERO], |m| m.m(sg));
        Ok(())
    }

    fn field64(&mut self, i: &Flat, d: Word, ty: Type) -> Result<(), AsmError> {
        let a = self.wide(i, &i.opds[1], ty)?;
        match i.op {
            Opcode::Popc => {
                let (x, y) = (self.one(), self.one());
                self.unguarded(|b| {
                    b.unary(op::POPC_R, x, a.low().into(), |m| m);
                    b.unary(op::POPC_R, y, a.high().into(), |m| m);
                });
                self.alu(iadd3(), d, [x.into(), y.into(), Src::ZERO], |m| m);
            }
            Opcode::Brev => {
                let t = self.two();
                self.unguarded(|b| {
                    b.unary(op::BREV_R, t, a.high().into(), |m| m);
                    b.unary(op::BREV_R, t.plus(1), a.low().into(), |m| m);
                });
                self.mov64(d, Wide::Pair(t));
            }
            Opcode::Clz => {
                let (x, y, z, p) = (self.one(), self.one(), self.one(), self.pred());
                self.unguarded(|b| {
                    let high = b.in_word(a.high());
                    b.leading(x, a.low());
                    b.leading(y, Val::Word(high));
                    b.compare(p, mods::cmp::EQ, false, high.into(), Src::ZERO);
                    // For zero FLO gives -1, and 63 - -1 is the required result.
                    let low = b.one();
                    b.alu(iadd3(), low, [Src::from(x).negated(), 63.into(), Src::ZERO], |m| m);
                    b.alu(iadd3(), z, [Src::from(y).negated(), 31.into(), Src::ZERO], |m| m);
                    b.select(x, Pred::of(p), low.into(), z.into());
                });
                self.mov(d, Val::Word(x));
            }
            Opcode::Cnot => {
                let p = self.pred();
                self.unguarded(|b| b.compare64(p, mods::cmp::EQ, false, a, Wide::Imm(0)));
                self.select64(d, Pred::of(p), Wide::Imm(1), Wide::Imm(0));
            }
            Opcode::Bfi | Opcode::Bfe | Opcode::Bfind => return self.wide_field(i, d, ty),
            _ => return self.no(i, "no instruction on 64 bits of that kind is assembled"),
        }
        Ok(())
    }

    // --- comparisons ---

    pub(super) fn compare_inst(&mut self, i: &Flat) -> Result<(), AsmError> {
        match i.op {
            Opcode::Setp => {
                let (p, q) = match &i.opds[0] {
                    Opd::Reg(p) => (Some(self.home(*p)), None),
                    Opd::Pair(p, q) => (self.pred_dest(p), self.pred_dest(q)),
                    _ => return self.no(i, "a predicate is expected"),
                };
                let m = self.comparison(i, i.ty(), 3)?;
                let m = match p {
                    Some(p) => m.w("pu", p),
                    None => m,
                };
                self.push(match q {
                    Some(q) => m.w("pv", q),
                    None => m,
                });
                Ok(())
            }
            Opcode::Set => {
                let types: smallvec::SmallVec<[Type; 2]> = i.types().collect();
                let [to, from] = types[..] else { return self.no(i, "two types are expected") };
                if matches!(from, Type::F16x2 | Type::Bf16x2) {
                    return self.set_halves(i, to, from);
                }
                let d = self.dest(i, &i.opds[0])?;
                let p = self.pred();
                let guard = self.guard.take();
                let m = self.comparison(i, from, 3);
                let m = m?;
                self.push(m.w("pu", p));
                self.guard = guard;
                let yes = if to == Type::F32 { 1f32.to_bits() } else { u32::MAX };
                if to.bits() != 32 {
                    return self.no(i, "results of this type are not assembled");
                }
                self.select(d, Pred::of(p), yes.into(), Src::ZERO);
                Ok(())
            }
            Opcode::Selp => {
                let p = self.pred_src(i, &i.opds[3])?;
                let ty = i.ty();
                let d = self.dest(i, &i.opds[0])?;
                if ty.bits() == 64 {
                    let (a, b) = (self.wide(i, &i.opds[1], ty)?, self.wide(i, &i.opds[2], ty)?);
                    self.select64(d, p, a, b);
                } else {
                    let (a, b) = (self.src(i, &i.opds[1], ty)?, self.src(i, &i.opds[2], ty)?);
                    self.select(d, p, a.into(), b.into());
                }
                Ok(())
            }
            _ => self.choose(i),
        }
    }

    /// `d = c >= 0 ? a : b`.
    fn choose(&mut self, i: &Flat) -> Result<(), AsmError> {
        let Some(ty) = i.types().next() else { return self.no(i, "two types are expected") };
        let p = self.pred();
        let c = self.src(i, &i.opds[3], i.ty())?;
        self.unguarded(|b| {
            if i.ty() != Type::F32 {
                return b.compare(p, mods::cmp::GE, true, c.into(), Src::ZERO);
            }
            let m = b.arith(fsetp(), [c.into(), Src::ZERO, Src::ZERO]).w("pu", p).m(mods::cmp::GE).p("pp", Pred::TRUE);
            b.push(if i.has("ftz") { m.m(mods::ftz::FTZ) } else { m });
        });
        let d = self.dest(i, &i.opds[0])?;
        if ty.bits() == 64 {
            let (a, b) = (self.wide(i, &i.opds[1], ty)?, self.wide(i, &i.opds[2], ty)?);
            self.select64(d, Pred::of(p), a, b);
        } else {
            let (a, b) = (self.src(i, &i.opds[1], ty)?, self.src(i, &i.opds[2], ty)?);
            self.select(d, Pred::of(p), a.into(), b.into());
        }
        Ok(())
    }

    /// The predicate to write, or none if it is never read.
    pub(super) fn pred_dest(&mut self, o: &Opd) -> Option<Word> {
        if let Opd::Reg(r) = o { Some(self.home(*r)) } else { None }
    }

    /// The comparison without its destination; operand `with` is a predicate it is combined with.
    fn comparison(&mut self, i: &Flat, ty: Type, with: usize) -> Result<Mach, AsmError> {
        let float = ty.is_float() || matches!(ty, Type::F16x2 | Type::Bf16x2);
        let Some(cmp) = i.words().find_map(|w| compare_code(w, float)) else { return self.no(i, "no such comparison") };
        let also = match i.opds.get(with) {
            Some(o) => self.pred_src(i, o)?,
            None => Pred::TRUE,
        };
        let combine = i.words().find_map(|w| match w {
            "and" => Some(mods::bop::AND),
            "or" => Some(mods::bop::OR),
            "xor" => Some(mods::bop::XOR),
            _ => None,
        });
        let unsigned = !ty.is_signed() || i.words().any(|w| matches!(w, "lo" | "ls" | "hi" | "hs"));
        let sg = if unsigned { mods::sg::U32 } else { mods::sg::NONE };
        let m = match ty {
            Type::F16 | Type::Bf16 | Type::F16x2 | Type::Bf16x2 => self.test_half(i, ty, cmp)?,
            Type::F64 => {
                let (a, b) = (self.wide(i, &i.opds[1], ty)?, self.wide(i, &i.opds[2], ty)?);
                let (a, b, cmp) = match (a, b) {
                    (Wide::Imm(_) | Wide::Const(..), Wide::Pair(_)) => (b, a, mirrored(cmp)),
                    _ => (a, b, cmp),
                };
                self.doubles(&DSETP, &["a", "b"], &[(a, false), (b, false)]).m(cmp)
            }
            Type::F32 => {
                let (a, b, cmp) = ordered(self.src(i, &i.opds[1], ty)?, self.src(i, &i.opds[2], ty)?, cmp);
                let m = self.arith(fsetp(), [a.into(), b.into(), Src::ZERO]).m(cmp);
                if i.has("ftz") { m.m(mods::ftz::FTZ) } else { m }
            }
            t if t.bits() == 64 => {
                let (a, b) = (self.wide(i, &i.opds[1], ty)?, self.wide(i, &i.opds[2], ty)?);
                let low = self.pred();
                let m = self.arith(isetp(), [a.low().into(), b.low().into(), Src::ZERO]);
                let m = m.w("pu", low).m(cmp).m(mods::sg::U32).p("pp", Pred::TRUE);
                self.unguarded(|b| b.push(m));
                let m = self.arith(isetp(), [a.high().into(), b.high().into(), Src::ZERO]);
                m.m(cmp).mark(sg).m(mods::x::EX).p("pq", Pred::of(low))
            }
            _ if ty.bits() > 32 || float => return self.no(i, "no comparison of this type is assembled"),
            _ => {
                let (a, b) = (self.src(i, &i.opds[1], ty)?, self.src(i, &i.opds[2], ty)?);
                let (a, b, cmp) = ordered(self.extended(a, ty), self.extended(b, ty), cmp);
                self.arith(isetp(), [a.into(), b.into(), Src::ZERO]).m(cmp).mark(sg)
            }
        };
        let m = m.p("pp", also);
        Ok(match combine {
            Some(word) => m.m(word),
            None => m,
        })
    }

    // --- moves ---

    pub(super) fn mov_inst(&mut self, i: &Flat) -> Result<(), AsmError> {
        let ty = i.ty();
        if i.lanes() > 1 {
            return self.mov_lanes(i, ty);
        }
        match (&i.opds[0], &i.opds[1]) {
            (Opd::Reg(d), s) if ty == Type::Pred => {
                let (d, p) = (self.home(*d), self.pred_src(i, s)?);
                self.plop(d, [p, Pred::TRUE, Pred::TRUE], 0xf0);
            }
            (Opd::Vector(parts), s) => return self.take_apart(i, parts, s, ty),
            (d, Opd::Vector(parts)) => {
                let d = self.dest(i, d)?;
                return self.put_together(i, d, parts, ty);
            }
            (d, Opd::Special(name)) => {
                let d = self.dest(i, d)?;
                return self.special(i, d, name);
            }
            (d, s) if ty.bits() == 64 => {
                let (d, s) = (self.dest(i, d)?, self.wide(i, s, ty)?);
                self.mov64(d, s);
            }
            (d, s) if ty.bits() <= 32 => {
                let (d, s) = (self.dest(i, d)?, self.src(i, s, ty)?);
                self.mov(d, s);
            }
            (d, s) => {
                let (d, s) = (self.dest(i, d)?, self.stored(i, s, ty, 4)?);
                let Some(s) = s else { return self.no(i, "128 bits are expected in one register") };
                for k in [0, 2] {
                    self.mov64(d.plus(k), Wide::Pair(s.plus(k)));
                }
            }
        }
        Ok(())
    }

    /// All lanes of a vector are read before any is written.
    fn mov_lanes(&mut self, i: &Flat, ty: Type) -> Result<(), AsmError> {
        let (Opd::Vector(to), Opd::Vector(from)) = (&i.opds[0], &i.opds[1]) else {
            return self.no(i, "two vectors are expected");
        };
        if to.len() != i.lanes() || from.len() != i.lanes() || ty.bits() > 64 {
            return self.no(i, "vectors of as many lanes as it says, of at most 64 bits each, are expected");
        }
        let wide = ty.bits() == 64;
        let mut values = Vec::with_capacity(from.len());
        for o in *from {
            let kept = if wide { self.two() } else { self.one() };
            if wide {
                let v = self.wide(i, o, ty)?;
                self.unguarded(|b| b.mov64(kept, v));
            } else {
                let v = self.src(i, o, ty)?;
                self.unguarded(|b| b.mov(kept, v));
            }
            values.push(kept);
        }
        for (o, kept) in to.iter().zip(values).filter(|(o, _)| **o != Opd::Nothing) {
            let d = self.dest(i, o)?;
            if wide { self.mov64(d, Wide::Pair(kept)) } else { self.mov(d, Val::Word(kept)) }
        }
        Ok(())
    }

    fn take_apart(&mut self, i: &Flat, parts: &[Opd], s: &Opd, ty: Type) -> Result<(), AsmError> {
        let words = match ty.bits() {
            64 => {
                let w = self.wide(i, s, ty)?;
                vec![w.low(), w.high()]
            }
            128 => match self.stored(i, s, ty, 4)? {
                Some(w) => (0..4).map(|k| Val::Word(w.plus(k))).collect(),
                None => return self.no(i, "128 bits are expected in one register"),
            },
            _ => vec![self.src(i, s, ty)?],
        };
        let each = ty.bits() as usize / parts.len().max(1);
        for (k, o) in parts.iter().enumerate() {
            let bit = k * each;
            let word = words[bit / 32];
            let Opd::Reg(_) = o else { continue };
            let d = self.dest(i, o)?;
            match (each, bit % 32) {
                (64, _) => {
                    self.mov(d, word);
                    self.mov(d.plus(1), words[bit / 32 + 1]);
                }
                (32, _) => self.mov(d, word),
                (16, 0) => self.mov(d, word),
                (16, _) => self.shift(d, [Src::ZERO, 16.into(), word.into()], mods::dir::R, mods::ty::U32, true),
                (8, at) => self.permute(d, word.into(), 0x4440 | (at as u32 / 8), Src::ZERO),
                _ => return self.no(i, "taking apart this way is not assembled"),
            }
        }
        Ok(())
    }

    fn put_together(&mut self, i: &Flat, d: Word, parts: &[Opd], ty: Type) -> Result<(), AsmError> {
        let each = ty.bits() as usize / parts.len().max(1);
        if ty.bits() == 128 {
            let w = self.stored(i, &Opd::Vector(parts), if each == 64 { Type::B64 } else { Type::B32 }, 4)?;
            for k in [0, 2] {
                match w {
                    Some(w) => self.mov64(d.plus(k), Wide::Pair(w.plus(k))),
                    None => self.mov64(d.plus(k), Wide::Imm(0)),
                }
            }
            return Ok(());
        }
        if let (16, [a, b]) = (each, parts)
            && (self.upper_half(a).is_some() || self.upper_half(b).is_some())
        {
            let mut half = |o: &Opd| match self.upper_half(o) {
                Some(w) => Ok((Some(w), 2)),
                None => self.src(i, o, Type::B32).map(|v| (self.held(v), 0)),
            };
            let ((a, low), (b, high)) = (half(a)?, half(b)?);
            let src = |w: Option<Word>| w.map_or(Src::ZERO, Src::from);
            self.permute(d, src(a), 0x5410 + 0x0011 * low + 0x1100 * high, src(b));
            return Ok(());
        }
        let vals = parts.iter().map(|o| self.src(i, o, Type::B32)).collect::<Result<Vec<Val>, _>>()?;
        match (each, vals.as_slice()) {
            (32, [a, b]) => {
                let t = self.two();
                self.unguarded(|m| {
                    m.mov(t, *a);
                    m.mov(t.plus(1), *b);
                });
                self.mov64(d, Wide::Pair(t));
            }
            (16, [a, b]) => self.join_halves(d, *a, *b),
            (16, [a, b, c, e]) => {
                let t = self.two();
                self.unguarded(|m| {
                    m.join_halves(t, *a, *b);
                    m.join_halves(t.plus(1), *c, *e);
                });
                self.mov64(d, Wide::Pair(t));
            }
            (8, [a, b, c, e]) => {
                let (x, y) = (self.one(), self.one());
                self.unguarded(|m| {
                    m.permute(x, (*a).into(), 0x0040, (*b).into());
                    m.permute(y, (*c).into(), 0x0040, (*e).into());
                });
                self.permute(d, x.into(), 0x5410, y.into());
            }
            _ => return self.no(i, "putting together this way is not assembled"),
        }
        Ok(())
    }

    /// The word, if the operand is the upper half of one.
    fn upper_half(&mut self, o: &Opd) -> Option<Word> {
        self.part_of_word(o).filter(|(_, high)| *high).map(|(word, _)| word)
    }

    /// Low halves of two words as one word.
    pub(super) fn join_halves(&mut self, d: Word, a: Val, b: Val) {
        if a == Val::Imm(0) {
            return self.shift(d, [b.into(), 16.into(), Src::ZERO], mods::dir::L, mods::ty::U32, false);
        }
        let (a, b) = (self.held(a), self.held(b));
        let src = |w: Option<Word>| w.map_or(Src::ZERO, Src::from);
        self.permute(d, src(a), 0x5410, src(b));
    }
}

impl<'a> Build<'a> {
    /// The left and right shifts that an instruction combines to a funnel shift, and the left shift's count.
    fn funnelled(&self, i: &Flat) -> Option<(&'a Flat<'a>, &'a Flat<'a>, u32)> {
        let (a, b) = (self.only_use(&i.opds[1])?, self.only_use(&i.opds[2])?);
        let (left, right) = match (a.op, b.op) {
            (Opcode::Shl, Opcode::Shr) => (a, b),
            (Opcode::Shr, Opcode::Shl) => (b, a),
            _ => return None,
        };
        let words = left.ty().bits() == 32 && right.ty().bits() == 32 && !right.ty().is_signed();
        let (n, rest) = (self.constant_of(&left.opds[2])?, self.constant_of(&right.opds[2])?);
        (words && (1..32).contains(&n) && rest == 32 - n).then_some((left, right, n as u32))
    }
}

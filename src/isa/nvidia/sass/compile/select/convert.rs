//! Conversions between all types.

use super::build::{Build, Src, fadd, iadd3};
use super::float::rounding;
use crate::ptx::Type;
use crate::sass::compile::AsmError;
use crate::sass::compile::mir::{Mach, Pred, Val, Wide, Word};
use crate::sass::compile::read::flat::{Flat, Opd};
use crate::sass::{Modifier, mods, op};

/// The name of a conversion's result type; signed 32-bit integers have none.
fn name(ty: Type) -> Modifier {
    match (ty.bits(), ty.is_signed(), ty.is_float()) {
        (_, _, true) => match ty {
            Type::F16 => mods::dt::F16,
            Type::Bf16 => mods::dt::BF16,
            Type::F64 => mods::dt::F64,
            _ => mods::dt::F32,
        },
        (8, true, _) => mods::dt::S8,
        (8, false, _) => mods::dt::U8,
        (16, true, _) => mods::dt::S16,
        (16, false, _) => mods::dt::U16,
        (64, true, _) => mods::dt::S64,
        (64, false, _) => mods::dt::U64,
        (_, true, _) => mods::dt::NONE,
        (_, false, _) => mods::dt::U32,
    }
}

fn is_integer(t: Type) -> bool {
    use Type::{S8, S16, S32, S64, U8, U16, U32, U64};
    matches!(t, S8 | S16 | S32 | S64 | U8 | U16 | U32 | U64)
}

/// Rounding to an integer.
fn integer_rounding(i: &Flat) -> Option<Modifier> {
    i.words().find_map(|w| match w {
        "rni" => Some(mods::rnd::NONE),
        "rzi" => Some(mods::rnd::TRUNC),
        "rmi" => Some(mods::rnd::FLOOR),
        "rpi" => Some(mods::rnd::CEIL),
        _ => None,
    })
}

/// Floats of eight bits as what conversions make and read.
fn byte_names(ty: Type) -> (Modifier, Modifier) {
    if ty == Type::E4m3x2 { (mods::dt::E4M3, mods::st::E4M3) } else { (mods::dt::E5M2, mods::st::E5M2) }
}

/// Modifiers of a conversion to e4m3 or e5m2.
fn byte_float(i: &Flat, m: Mach, to: Type) -> Mach {
    let m = m.m(byte_names(to).0);
    let m = if i.has("satfinite") { m.m(mods::sat::SATFINITE) } else { m };
    if i.has("relu") { m.m(mods::relu::RELU) } else { m }
}

impl Build<'_> {
    pub(super) fn convert(&mut self, i: &Flat) -> Result<(), AsmError> {
        let types: smallvec::SmallVec<[Type; 3]> = i.types().collect();
        if i.has("pack") {
            return self.pack_ints(i, &types);
        }
        let [to, from] = types[..] else { return self.no(i, "a conversion has two types") };
        if matches!((to, from), (Type::F16x2, Type::E4m3x2 | Type::E5m2x2) | (Type::E4m3x2 | Type::E5m2x2, Type::F16x2))
        {
            return self.byte_halves(i, to, from);
        }
        let plain = |t: Type| t.is_float() || is_integer(t);
        if i.opds.len() != 3 && !(plain(to) && plain(from)) {
            return self.no(i, "a conversion of these types is not assembled");
        }
        if i.opds.len() == 3 {
            return self.pack(i, to, from);
        }
        match (to.is_float(), from.is_float()) {
            (false, false) => self.int_to_int(i, to, from),
            (true, false) => self.int_to_float(i, to, from),
            (false, true) => self.float_to_int(i, to, from),
            (true, true) => self.float_to_float(i, to, from),
        }
    }

    /// Packs two floats into a word.
    fn pack(&mut self, i: &Flat, to: Type, from: Type) -> Result<(), AsmError> {
        if matches!((to, from), (Type::E4m3x2 | Type::E5m2x2, Type::F32)) {
            return self.pack_bytes(i, to);
        }
        let brain = match (to, from) {
            (Type::F16x2, Type::F32) => false,
            (Type::Bf16x2, Type::F32) => true,
            _ => return self.no(i, "packing into this type is not assembled"),
        };
        if i.has("satfinite") {
            return self.no(i, "packing with .satfinite is not assembled of this type");
        }
        let d = self.dest(i, &i.opds[0])?;
        let s = [self.src(i, &i.opds[1], from)?.into(), self.src(i, &i.opds[2], from)?.into()];
        self.float_to_half_as(d, s, brain, rounding(i), i.has("relu"));
        Ok(())
    }

    /// Packs two integers, saturated to a smaller type, the first one in the upper part; above both go the lowest bits
    /// of the third operand.
    fn pack_ints(&mut self, i: &Flat, types: &[Type]) -> Result<(), AsmError> {
        let &[to, Type::S32, ref third @ ..] = types else { return self.no(i, "words with a sign are packed") };
        // How much of the third word is taken is an explicit modifier, which follows from the type: all, 24 bits or 28.
        let (name, part) = match to {
            Type::U16 => (mods::dt::U16, 0),
            Type::S16 => (mods::dt::S16, 0),
            Type::U8 => (mods::dt::U8, 0),
            Type::S8 => (mods::dt::S8, 0),
            Type::U4 => (mods::dt::U4, 2),
            Type::S4 => (mods::dt::S4, 2),
            Type::U2 => (mods::dt::U2, 3),
            Type::S2 => (mods::dt::S2, 3),
            _ => return self.no(i, "packing into this type is not assembled"),
        };
        let expected: (&[Type], usize) = if to.bits() < 16 { (&[Type::B32], 4) } else { (&[], 3) };
        if (third, i.opds.len()) != expected || !i.has("sat") {
            return self.no(i, "two sources and .sat are expected, with a third type a third source");
        }
        let d = self.dest(i, &i.opds[0])?;
        let [a, b] = [self.src(i, &i.opds[1], Type::S32)?, self.src(i, &i.opds[2], Type::S32)?];
        let m = match b {
            Val::Imm(n) => Mach::new(op::I2IP_I).n("b", u64::from(n)),
            b => Mach::new(op::I2IP_R).r("b", self.in_word(b)),
        };
        let m = m.w("d", d).r("a", self.in_word(a)).m(name).m(mods::sat::SAT).half("c", part);
        let above = i.opds.get(3).map(|c| self.src(i, c, Type::B32)).transpose()?.filter(|c| *c != Val::Imm(0));
        let m = if let Some(c) = above { m.r("c", self.in_word(c)) } else { m };
        self.push(m);
        Ok(())
    }

    /// Two floats as bytes of e4m3 or e5m2, the first above.
    fn pack_bytes(&mut self, i: &Flat, to: Type) -> Result<(), AsmError> {
        let d = self.dest(i, &i.opds[0])?;
        let [a, b] = [self.src(i, &i.opds[1], Type::F32)?, self.src(i, &i.opds[2], Type::F32)?];
        let (a, b) = (self.in_word(a), self.in_word(b));
        let m = Mach::new(op::F2FP_PACK_AB_MERGE_C_R).w("d", d).r("a", a).r("b", b);
        self.push(byte_float(i, m, to).m(mods::st::F32));
        Ok(())
    }

    /// Between two bytes of e4m3 or e5m2 and two halves.
    fn byte_halves(&mut self, i: &Flat, to: Type, from: Type) -> Result<(), AsmError> {
        let (d, s) = (self.dest(i, &i.opds[0])?, self.src(i, &i.opds[1], Type::B32)?);
        let s = self.in_word(s);
        let m = match to {
            Type::F16x2 => {
                let m = Mach::new(op::F2FP_UNPACK_B_R).m(mods::dt::F16).m(byte_names(from).1);
                if i.has("relu") { m.m(mods::relu::RELU) } else { m }
            }
            _ => byte_float(i, Mach::new(op::F2FP_UNPACK_B_MERGE_C_R), to).m(mods::st::F16),
        };
        self.push(m.w("d", d).r("b", s));
        Ok(())
    }

    fn int_to_int(&mut self, i: &Flat, to: Type, from: Type) -> Result<(), AsmError> {
        if i.has("sat") {
            return self.clamp(i, to, from);
        }
        let d = self.dest(i, &i.opds[0])?;
        let wide_register =
            crate::sass::compile::mir::width(self.code.classes[d.reg().0 as usize]) >= 2 && to.bits() == 64;
        if from.bits() == 64 {
            let s = self.wide(i, &i.opds[1], from)?;
            match to.bits() {
                64 => self.mov64(d, s),
                _ => self.extend_to(d, s.low(), to),
            }
            return Ok(());
        }
        let s = self.src(i, &i.opds[1], from)?;
        if !wide_register {
            let narrow = if to.bits() <= from.bits() { to } else { from };
            let mut v = if let Val::Imm(_) = s { self.extended(s, narrow) } else { s };
            if (to, from) == (Type::U16, Type::S8) && self.opd_bits(&i.opds[0]) > 16 {
                v = self.extended(v, from);
                self.extend_to(d, v, to);
                return Ok(());
            }
            match v {
                Val::Imm(_) => self.mov(d, v),
                // Instructions that read halves ignore the other bits; a wider register has them extended.
                _ if narrow.bits() == 16 && to.bits() == 16 && self.opd_bits(&i.opds[0]) <= 16 => self.mov(d, v),
                _ if narrow.bits() == 16 && to.bits() == 16 => self.extend_to(d, v, to),
                _ => self.extend_to(d, v, narrow),
            }
            return Ok(());
        }
        let low = self.extended(s, from);
        let n = self.code.blocks[self.block].ops.len();
        self.mov(d, low);
        match from.is_signed() {
            true => self.shift(d.plus(1), [Src::ZERO, 31.into(), low.into()], mods::dir::R, mods::ty::S32, true),
            false => self.mov(d.plus(1), Val::Imm(0)),
        }
        if self.code.blocks[self.block].ops.len() == n + 2 {
            self.glue(2);
        }
        Ok(())
    }

    /// Bits of a register of the text.
    fn opd_bits(&self, o: &Opd) -> u32 {
        if let Opd::Reg(r) = o { self.types[*r as usize].bits() } else { 0 }
    }

    /// `.sat`: to the nearest value of the type.
    fn clamp(&mut self, i: &Flat, to: Type, from: Type) -> Result<(), AsmError> {
        let d = self.dest(i, &i.opds[0])?;
        if from.bits() == 64 {
            let s = self.wide(i, &i.opds[1], from)?;
            if (to, from) != (Type::U32, Type::U64) {
                self.clamp64(d, s, to, from.is_signed());
                return Ok(());
            }
            let p = self.pred();
            let high = self.in_word(s.high());
            self.unguarded(|b| b.compare(p, mods::cmp::EQ, false, high.into(), Src::ZERO));
            self.select(d, Pred::of(p), s.low().into(), u32::MAX.into());
            return Ok(());
        }
        let s = self.src(i, &i.opds[1], from)?;
        let x = self.extended(s, from);
        if to.bits() > 32 {
            // Among smaller types only negative values are out of range, and only of an unsigned type.
            let low = self.one();
            let signed = from.is_signed();
            self.unguarded(|b| match signed && !to.is_signed() {
                true => b.extreme(low, x, Val::Imm(0), true, true),
                false => b.mov(low, x),
            });
            self.mov(d, Val::Word(low));
            match signed && to.is_signed() {
                true => self.shift(d.plus(1), [Src::ZERO, 31.into(), low.into()], mods::dir::R, mods::ty::S32, true),
                false => self.mov(d.plus(1), Val::Imm(0)),
            }
            return Ok(());
        }
        let (bits, signed) = (to.bits(), to.is_signed());
        let largest = if signed { (1u32 << (bits - 1)) - 1 } else { ((1u64 << bits) - 1) as u32 };
        let (t, out) = (self.one(), d);
        match from.is_signed() {
            true => {
                let least = if signed { (-(1i64 << (bits - 1))) as u32 } else { 0 };
                let largest = largest.min(i32::MAX as u32);
                self.unguarded(|b| b.extreme(t, x, Val::Imm(least), true, true));
                self.extreme(out, Val::Word(t), Val::Imm(largest), false, true);
            }
            false => self.extreme(out, x, Val::Imm(largest), false, false),
        }
        Ok(())
    }

    /// 64 bits to the nearest value of a type.
    fn clamp64(&mut self, d: Word, s: Wide, to: Type, signed: bool) {
        let (bits, to_signed) = (to.bits(), to.is_signed());
        let largest = u64::MAX >> (64 - bits + u32::from(to_signed));
        let least = if to_signed { (-1i64 << (bits - 1)).cast_unsigned() } else { 0 };
        let mut now = Wide::Pair(self.in_pair(s));
        let guard = self.guard.take();
        if signed {
            let (p, t) = (self.pred(), self.two());
            self.compare64(p, mods::cmp::LT, true, now, Wide::Imm(least));
            self.select64(t, Pred::of(p), Wide::Imm(least), now);
            now = Wide::Pair(t);
        }
        let (p, t) = (self.pred(), self.two());
        // Non-negative values compare as unsigned.
        let as_signed = signed && to_signed;
        self.compare64(p, mods::cmp::GT, as_signed, now, Wide::Imm(largest));
        self.select64(t, Pred::of(p), Wide::Imm(largest), now);
        self.guard = guard;
        match bits {
            64 => self.mov64(d, Wide::Pair(t)),
            _ => self.mov(d, Val::Word(t)),
        }
    }

    fn int_to_float(&mut self, i: &Flat, to: Type, from: Type) -> Result<(), AsmError> {
        let d = self.dest(i, &i.opds[0])?;
        let rnd = rounding(i);
        let words = if to == Type::F64 { 2 } else { 1 };
        if from.bits() == 64 || to == Type::F64 {
            let (s, n) = match from.bits() {
                64 => {
                    let s = self.wide(i, &i.opds[1], from)?;
                    (self.in_pair(s), 2)
                }
                _ => {
                    let s = self.src(i, &i.opds[1], from)?;
                    let s = self.extended(s, from);
                    (self.in_word(s), 1)
                }
            };
            let source = match (from.bits(), from.is_signed()) {
                (64, true) => mods::st::S64,
                (64, false) => mods::st::U64,
                (_, true) => mods::st::NONE,
                (_, false) => mods::st::U32,
            };
            let dt = if to == Type::F32 { mods::dt::NONE } else { name(to) };
            let m = self.unary_n(op::I2F_R_12, (d, words), (s, n)).m(dt).m(source);
            self.push(m.m(rnd));
            return Ok(());
        }
        let s = self.src(i, &i.opds[1], from)?;
        let s = self.extended(s, from);
        if to == Type::F32 && matches!(rnd, mods::rnd::NONE | mods::rnd::RZ) {
            let st = if from.is_signed() { mods::st::S32 } else { mods::st::U32 };
            self.unary(op::I2FP_R, d, s.into(), |m| m.m(st).m(rnd));
            return Ok(());
        }
        let st = if from.is_signed() { mods::st::NONE } else { mods::st::U32 };
        let dt = if to == Type::F32 { mods::dt::NONE } else { name(to) };
        self.unary(op::I2F_R, d, s.into(), |m| m.m(dt).m(st).m(rnd));
        Ok(())
    }

    fn float_to_int(&mut self, i: &Flat, to: Type, from: Type) -> Result<(), AsmError> {
        let extended = self.dest(i, &i.opds[0])?;
        let extend = (from == Type::F64 && to.bits() < self.opd_bits(&i.opds[0]).min(32)).then_some(to);
        let d = if extend.is_some() { self.one() } else { extended };
        let rnd = integer_rounding(i).unwrap_or(mods::rnd::TRUNC);
        let wide = to.bits() == 64 || from == Type::F64;
        let (s, n) = match from {
            Type::F64 => {
                let s = self.wide(i, &i.opds[1], from)?;
                (Some(self.in_pair(s)), 2)
            }
            Type::F16 | Type::Bf16 => {
                let s = self.half_src(i, &i.opds[1], from)?;
                (Some(self.unguarded(|b| b.half_to_float(s, from == Type::Bf16))), 1)
            }
            _ => {
                let s = self.src(i, &i.opds[1], from)?;
                (self.held(s), 1)
            }
        };
        let form = if wide { op::F2I_R_11 } else { op::F2I_R };
        let m = Mach::new(form).wn("d", d, if to.bits() == 64 { 2 } else { 1 }).m(name(to)).m(rnd);
        let m = m.m(if from == Type::F64 { mods::st::F64 } else { mods::st::NONE });
        let m = if from != Type::F64 && to.bits() < 64 { m.m(mods::ntz::NTZ) } else { m };
        let m = if i.has("ftz") { m.m(mods::ftz::FTZ) } else { m };
        let m = match s {
            Some(w) => m.rn("b", w, n),
            None => m,
        };
        match extend {
            None => self.push(m),
            // For doubles the result is not extended: NaN is the sign bit alone.
            Some(to) => {
                self.unguarded(|b| b.push(m));
                self.extend_to(extended, Val::Word(d), to);
            }
        }
        Ok(())
    }

    fn float_to_float(&mut self, i: &Flat, to: Type, from: Type) -> Result<(), AsmError> {
        let d = self.dest(i, &i.opds[0])?;
        let half = |t: Type| matches!(t, Type::F16 | Type::Bf16);
        if to == from
            && let Some(rnd) = integer_rounding(i)
        {
            return self.round(i, d, to, rnd);
        }
        match (to, from) {
            (Type::F64, Type::F64) => {
                let s = self.wide(i, &i.opds[1], from)?;
                self.mov64(d, s);
            }
            (Type::F32, Type::F32) => {
                let s = self.src(i, &i.opds[1], from)?.into();
                let zero = Src { val: Val::Imm(0), neg: true, abs: false };
                let (sat, ftz) = (i.has("sat"), i.has("ftz"));
                self.alu(fadd(), d, [s, Src::ZERO, zero], |m| {
                    let m = if sat { m.m(mods::sat::SAT) } else { m };
                    if ftz { m.m(mods::ftz::FTZ) } else { m }
                });
            }
            (Type::F64, Type::F32) => {
                let s = self.src(i, &i.opds[1], from)?;
                let w = self.in_word(s);
                let ftz = if i.has("ftz") { mods::ftz::FTZ } else { mods::ftz::NONE };
                let m = self.unary_n(op::F2F_R_10, (d, 2), (w, 1)).m(mods::dt::F64).m(mods::st::F32).m(ftz);
                self.push(m);
            }
            (Type::F32, Type::F64) => {
                let s = self.wide(i, &i.opds[1], from)?;
                let w = self.in_pair(s);
                let m = self.unary_n(op::F2F_R_10, (d, 1), (w, 2)).m(mods::dt::F32).m(mods::st::F64).m(rounding(i));
                self.push(m);
            }
            (Type::F32, f) if half(f) => {
                let s = self.half_src(i, &i.opds[1], f)?;
                self.half_to_float_in(d, s, f == Type::Bf16);
            }
            (t, Type::F32) if half(t) => {
                if i.has("sat") || i.has("satfinite") {
                    return self.no(i, "a conversion with this modifier is not assembled");
                }
                let s = self.src(i, &i.opds[1], from)?.into();
                if matches!(rounding(i), mods::rnd::RM | mods::rnd::RP) {
                    let rnd = rounding(i);
                    self.unary(op::F2F_R, d, s, |m| m.m(name(t)).m(mods::st::F32).m(rnd));
                    return Ok(());
                }
                self.float_to_half_as(d, [Src::ZERO, s], t == Type::Bf16, rounding(i), i.has("relu"));
            }
            (Type::F64, f) if half(f) => {
                let s = self.half_src(i, &i.opds[1], f)?;
                let w = self.whole_half(s);
                let w = self.in_word(w.val);
                self.widened(d, w, if f == Type::Bf16 { mods::st::BF16 } else { mods::st::F16 });
            }
            (t, Type::F64) if half(t) => {
                let s = self.wide(i, &i.opds[1], from)?;
                let w = self.in_pair(s);
                let m = self.unary_n(op::F2F_R_10, (d, 1), (w, 2)).m(name(t)).m(mods::st::F64).m(rounding(i));
                self.push(m);
            }
            (t, f) if half(t) && half(f) => {
                let s = self.half_src(i, &i.opds[1], f)?;
                let w = self.unguarded(|b| b.half_to_float(s, f == Type::Bf16));
                self.float_to_half(d, [Src::ZERO, w.into()], t == Type::Bf16, rounding(i));
            }
            (Type::Tf32, Type::F32) => {
                let s = self.src(i, &i.opds[1], from)?;
                let w = self.in_word(s);
                if i.has("rna") {
                    self.round_away(d, w, i.has("satfinite"));
                    return Ok(());
                }
                let m = Mach::new(op::F2FP_PACK_B_R).w("d", d).r("b", w).m(mods::dt::TF32).m(mods::st::F32);
                let m = if i.has("relu") { m.m(mods::relu::RELU) } else { m };
                self.push(m.m(rounding(i)));
            }
            _ => return self.no(i, "no such conversion is assembled"),
        }
        Ok(())
    }

    /// To the nearest tf32, ties away from zero: half a unit is added and the low bits are cut off.
    fn round_away(&mut self, d: Word, w: Word, finite: bool) {
        let (more, t, p) = (self.one(), self.one(), self.pred());
        let infinite = |w: Word| Src { val: Val::Word(w), neg: false, abs: true };
        let limit = || Src::from(f32::INFINITY.to_bits());
        self.unguarded(|b| {
            b.alu(iadd3(), more, [w.into(), 0x1000.into(), Src::ZERO], |m| m);
            b.test(p, mods::cmp::GEU, infinite(w), limit(), Pred::TRUE);
            b.select(t, Pred::of(p), w.into(), more.into());
        });
        if !finite {
            return self.lop(d, [t.into(), 0xffff_e000.into(), Src::ZERO], 0xc0);
        }
        let (r, less, q) = (self.one(), self.one(), self.pred());
        self.unguarded(|b| {
            b.lop(r, [t.into(), 0xffff_e000.into(), Src::ZERO], 0xc0);
            b.test(q, mods::cmp::GEU, infinite(r), limit(), Pred::TRUE);
            b.alu(iadd3(), less, [r.into(), 0xffff_e000.into(), Src::ZERO], |m| m);
        });
        self.select(d, Pred::of(q), less.into(), r.into());
    }

    fn widened(&mut self, d: Word, w: Word, st: Modifier) {
        let m = self.unary_n(op::F2F_R_10, (d, 2), (w, 1)).m(mods::dt::F64).m(st);
        self.push(m);
    }

    /// To an integer of the same float type.
    fn round(&mut self, i: &Flat, d: Word, ty: Type, rnd: Modifier) -> Result<(), AsmError> {
        let to = d;
        let d = if i.has("sat") { self.one() } else { d };
        if i.has("sat") && ty != Type::F32 {
            return self.no(i, "rounding to an integer with .sat is assembled of f32 only");
        }
        match ty {
            Type::F64 => {
                let s: Wide = self.wide(i, &i.opds[1], ty)?;
                let w = self.in_pair(s);
                let m = self.unary_n(op::FRND_R_13, (d, 2), (w, 2)).m(mods::st::F64).m(rnd);
                self.push(m);
            }
            Type::F32 => {
                let s = self.src(i, &i.opds[1], ty)?;
                let ftz = i.has("ftz");
                self.unary(op::FRND_R, d, s.into(), |m| {
                    let m = m.m(mods::st::NONE).m(rnd);
                    if ftz { m.m(mods::ftz::FTZ) } else { m }
                });
                if i.has("sat") {
                    self.alu(fadd(), to, [d.into(), Src::ZERO, Src::ZERO], |m| m.m(mods::sat::SAT));
                }
            }
            _ => {
                let s = self.half_src(i, &i.opds[1], ty)?;
                let (f, r) = (self.unguarded(|b| b.half_to_float(s, ty == Type::Bf16)), self.one());
                self.unguarded(|b| b.unary(op::FRND_R, r, f.into(), |m| m.m(mods::st::NONE).m(rnd)));
                self.float_to_half(d, [Src::ZERO, r.into()], ty == Type::Bf16, mods::rnd::NONE);
            }
        }
        Ok(())
    }
}

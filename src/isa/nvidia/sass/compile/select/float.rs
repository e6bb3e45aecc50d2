//! Arithmetic of f32.

use super::build::{Build, Src, fadd, ffma, fmnmx, fmul};
use crate::ptx::{Opcode, Type};
use crate::sass::compile::AsmError;
use crate::sass::compile::mir::{Mach, Pred, Val, Wide, Word};
use crate::sass::compile::read::flat::Flat;
use crate::sass::{Modifier, mods, op};

/// The rounding modifier in the table.
pub(super) fn rounding(i: &Flat) -> Modifier {
    match () {
        () if i.has("rz") => mods::rnd::RZ,
        () if i.has("rm") => mods::rnd::RM,
        () if i.has("rp") => mods::rnd::RP,
        () => mods::rnd::NONE,
    }
}

const TWO_TO: fn(i32) -> u32 = |n| ((127 + n) as u32) << 23;

impl Build<'_> {
    /// Modifiers that most f32 instructions have.
    fn marks(m: Mach, i: &Flat) -> Mach {
        let m = if i.has("sat") { m.m(mods::sat::SAT) } else { m };
        match (i.has("ftz"), m.inst.form().position("fz", crate::sass::Role::Value)) {
            (false, _) => m,
            (true, Some(_)) => m.m(mods::fz::FTZ),
            (true, None) => m.m(mods::ftz::FTZ),
        }
    }

    /// Sums and products of two f32 each, one after the other.
    pub(super) fn float_pairs(&mut self, i: &Flat) -> Result<(), AsmError> {
        if !matches!(i.op, Opcode::Add | Opcode::Sub | Opcode::Mul | Opcode::Fma) {
            return self.no(i, "no instruction on packed f32 of that kind is assembled");
        }
        let d = self.dest(i, &i.opds[0])?;
        let mut s = [Wide::Imm(0); 3];
        for (k, o) in i.opds[1..].iter().take(3).enumerate() {
            s[k] = self.wide(i, o, Type::B64)?;
        }
        self.float_of(i, d, s.map(|w| w.low().into()))?;
        self.float_of(i, d.plus(1), s.map(|w| w.high().into()))
    }

    pub(super) fn float(&mut self, i: &Flat) -> Result<(), AsmError> {
        let d = self.dest(i, &i.opds[0])?;
        let mut s = [Src::ZERO; 3];
        for (k, o) in i.opds[1..].iter().take(3).enumerate() {
            s[k] = self.src(i, o, Type::F32)?.into();
        }
        self.float_of(i, d, s)
    }

    /// An instruction of these sources.
    fn float_of(&mut self, i: &Flat, d: Word, mut s: [Src; 3]) -> Result<(), AsmError> {
        let minus_zero = Src { val: Val::Imm(0), neg: true, abs: false };
        let rnd = rounding(i);
        let ordered = |a: Src, b: Src| if matches!(a.val, Val::Word(_)) { (a, b) } else { (b, a) };
        match i.op {
            Opcode::Add | Opcode::Sub => {
                let second = if i.op == Opcode::Sub { s[1].negated() } else { s[1] };
                let (a, b) = ordered(s[0], second);
                self.alu(fadd(), d, [a, Src::ZERO, b], |m| Self::marks(m.mark(rnd), i));
            }
            Opcode::Mul => {
                let (a, b) = ordered(s[0], s[1]);
                self.alu(fmul(), d, [a, b, Src::ZERO], |m| Self::marks(m.mark(rnd), i));
            }
            Opcode::Fma | Opcode::Mad => {
                let (a, b) = ordered(s[0], s[1]);
                self.alu(ffma(), d, [a, b, s[2]], |m| Self::marks(m.mark(rnd), i));
            }
            Opcode::Neg => self.alu(fadd(), d, [s[0].negated(), Src::ZERO, minus_zero], |m| Self::marks(m, i)),
            Opcode::Abs => {
                let a = Src { abs: true, ..s[0] };
                self.alu(fadd(), d, [a, Src::ZERO, minus_zero], |m| Self::marks(m, i));
            }
            Opcode::Min | Opcode::Max => {
                if i.opds.len() > 3 {
                    return self.no(i, "three-operand minima and maxima are not assembled");
                }
                let p = if i.op == Opcode::Max { Pred::TRUE.not() } else { Pred::TRUE };
                let (a, b) = ordered(s[0], s[1]);
                let nan = if i.has("NaN") { mods::nan::NAN } else { mods::nan::NONE };
                let xor = if i.has("xorsign") { mods::xor::XORSIGN } else { mods::xor::NONE };
                let mark = |m: Mach| Self::marks(m.p("pp", p).m(nan).mark(xor), i);
                let (a, b) =
                    if xor == mods::xor::NONE { (a, b) } else { (Src { abs: true, ..a }, Src { abs: true, ..b }) };
                self.alu(fmnmx(), d, [a, b, Src::ZERO], mark);
            }
            Opcode::Copysign => self.lop(d, [s[0], 0x8000_0000.into(), s[1]], 0xe2),
            Opcode::Div | Opcode::Rcp | Opcode::Sqrt if i.has("ftz") && !(i.has("approx") && i.op != Opcode::Div) => {
                for v in &mut s {
                    if let Val::Imm(bits) = v.val {
                        // A denormal constant is flushed to a zero of the same sign.
                        v.val = Val::Imm(if bits & 0x7f80_0000 == 0 { bits & 0x8000_0000 } else { bits });
                    } else {
                        let t = self.one();
                        self.unguarded(|b| b.alu(fadd(), t, [*v, Src::ZERO, minus_zero], |m| m.m(mods::ftz::FTZ)));
                        *v = t.into();
                    }
                }
                let t = self.one();
                self.function(i, t, s)?;
                self.alu(fadd(), d, [t.into(), Src::ZERO, minus_zero], |m| m.m(mods::ftz::FTZ));
            }
            _ => return self.function(i, d, s),
        }
        Ok(())
    }

    /// Division and transcendental functions.
    fn function(&mut self, i: &Flat, d: Word, s: [Src; 3]) -> Result<(), AsmError> {
        let (approx, ftz) = (i.has("approx"), i.has("ftz"));
        let exact = !approx && !i.has("full");
        match i.op {
            Opcode::Div if exact => self.divide_float(d, s[0], s[1], rounding(i)),
            Opcode::Rcp if exact => self.invert_float(d, s[0], rounding(i)),
            Opcode::Sqrt if exact => self.root_float(d, s[0], rounding(i)),
            Opcode::Div => self.quick_quotient(d, s),
            Opcode::Rcp if ftz => self.mufu(d, s[0], mods::fn_::RCP),
            Opcode::Rcp => self.scaled_function(d, s[0], mods::fn_::RCP, [TWO_TO(-126), TWO_TO(24), TWO_TO(24)]),
            Opcode::Rsqrt if ftz => self.mufu(d, s[0], mods::fn_::RSQ),
            Opcode::Rsqrt => self.scaled_function(d, s[0], mods::fn_::RSQ, [TWO_TO(-126), TWO_TO(24), TWO_TO(12)]),
            Opcode::Sqrt if ftz => self.mufu(d, s[0], mods::fn_::SQRT),
            Opcode::Sqrt => self.scaled_function(d, s[0], mods::fn_::SQRT, [TWO_TO(-126), TWO_TO(24), TWO_TO(-12)]),
            Opcode::Tanh => self.mufu(d, s[0], mods::fn_::TANH),
            Opcode::Ex2 if ftz => self.mufu(d, s[0], mods::fn_::EX2),
            Opcode::Ex2 => self.small_power(d, s[0]),
            Opcode::Lg2 if ftz => self.mufu(d, s[0], mods::fn_::LG2),
            Opcode::Lg2 => self.small_logarithm(d, s[0]),
            Opcode::Sin | Opcode::Cos => {
                let t = self.one();
                let per_radian = Src::from((std::f32::consts::FRAC_1_PI / 2.0).to_bits());
                self.unguarded(|b| b.alu(fmul(), t, [s[0], per_radian, Src::ZERO], |m| m.m(mods::rnd::RZ)));
                self.mufu(d, t.into(), if i.op == Opcode::Sin { mods::fn_::SIN } else { mods::fn_::COS });
            }
            Opcode::Testp => {
                let w = self.in_word(s[0].val);
                let size = Src { abs: true, ..Src::from(w) };
                let infinity = Src::from(0x7f80_0000);
                match () {
                    () if i.has("infinite") => self.test(d, mods::cmp::EQ, size, infinity, Pred::TRUE),
                    () if i.has("finite") => self.test(d, mods::cmp::LT, size, infinity, Pred::TRUE),
                    () if i.has("notanumber") => self.test(d, mods::cmp::NAN, size, size, Pred::TRUE),
                    () if i.has("number") => self.test(d, mods::cmp::NUM, size, size, Pred::TRUE),
                    () => {
                        // Zeros count as normal.
                        let (p, q) = (self.pred(), self.pred());
                        self.unguarded(|b| {
                            b.test(p, mods::cmp::LT, size, TWO_TO(-126).into(), Pred::TRUE);
                            b.test(q, mods::cmp::GT, size, Src::ZERO, Pred::of(p));
                        });
                        match i.has("normal") {
                            true => self.test(d, mods::cmp::LT, size, infinity, Pred::of(q).not()),
                            false => self.plop(d, [Pred::of(q), Pred::TRUE, Pred::TRUE], 0xf0),
                        }
                    }
                }
            }
            _ => return self.no(i, "no f32 instruction of that kind is assembled"),
        }
        Ok(())
    }

    pub(super) fn mufu(&mut self, d: Word, a: Src, function: Modifier) {
        self.unary(op::MUFU_R, d, a, |m| m.m(function));
    }

    /// `a / b` within two units of the last place if b is at most 2^126 (approx), or always (full): divisor and
    /// quotient are scaled by the same factor, which brings the divisor into the middle of the range.
    fn quick_quotient(&mut self, d: Word, s: [Src; 3]) {
        let out = self.unguarded(|m| {
            let b = m.in_word(s[1].val);
            let b = Src { val: Val::Word(b), ..s[1] };
            let size = Src { neg: false, abs: true, ..b };
            let (large, small) = (m.pred(), m.pred());
            m.test(large, mods::cmp::GT, size, TWO_TO(126).into(), Pred::TRUE);
            m.test(small, mods::cmp::LT, size, TWO_TO(-126).into(), Pred::TRUE);
            let (f, g) = (m.one(), m.one());
            let one = m.in_word(Val::Imm(1f32.to_bits()));
            m.select(f, Pred::of(large), TWO_TO(-24).into(), one.into());
            m.select(g, Pred::of(small), TWO_TO(24).into(), f.into());
            let (x, r, q, out) = (m.one(), m.one(), m.one(), m.one());
            m.alu(fmul(), x, [b, g.into(), Src::ZERO], |m| m);
            m.mufu(r, x.into(), mods::fn_::RCP);
            m.alu(fmul(), q, [s[0], r.into(), Src::ZERO], |m| m);
            m.alu(fmul(), out, [q.into(), g.into(), Src::ZERO], |m| m);
            out
        });
        self.mov(d, Val::Word(out));
    }

    /// `2^a`, also if the result is denormal: `2^(a/2)`, squared.
    fn small_power(&mut self, d: Word, a: Src) {
        let out = self.unguarded(|m| {
            let w = m.in_word(a.val);
            let a = Src { val: Val::Word(w), ..a };
            let (p, half, x, y, square, out) = (m.pred(), m.one(), m.one(), m.one(), m.one(), m.one());
            m.test(p, mods::cmp::LT, a, (-126f32).to_bits().into(), Pred::TRUE);
            m.alu(fmul(), half, [a, 0.5f32.to_bits().into(), Src::ZERO], |m| m);
            m.select(x, Pred::of(p), half.into(), w.into());
            m.mufu(y, x.into(), mods::fn_::EX2);
            m.alu(fmul(), square, [y.into(), y.into(), Src::ZERO], |m| m);
            m.select(out, Pred::of(p), square.into(), y.into());
            out
        });
        self.mov(d, Val::Word(out));
    }

    /// `log2(a)`, also for denormal numbers.
    fn small_logarithm(&mut self, d: Word, a: Src) {
        let out = self.unguarded(|m| {
            let w = m.in_word(a.val);
            let (p, big, x, y, less, out) = (m.pred(), m.one(), m.one(), m.one(), m.one(), m.one());
            m.test(p, mods::cmp::LT, w.into(), TWO_TO(-126).into(), Pred::TRUE);
            m.alu(fmul(), big, [w.into(), TWO_TO(24).into(), Src::ZERO], |m| m);
            m.select(x, Pred::of(p), big.into(), w.into());
            m.mufu(y, x.into(), mods::fn_::LG2);
            m.alu(fadd(), less, [y.into(), Src::ZERO, (-24f32).to_bits().into()], |m| m);
            m.select(out, Pred::of(p), less.into(), y.into());
            out
        });
        self.mov(d, Val::Word(out));
    }
}

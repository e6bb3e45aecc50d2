//! Integer division of 32 bits, and division, reciprocal and square root of f32 rounded as PTX says.

use super::build::{Build, Src, fadd, fmul, fsetp, iadd3, imad};
use super::double::ONE;
use crate::sass::compile::mir::{Mach, Pred, Val, Wide, Word};
use crate::sass::{Modifier, mods, op};

impl Build<'_> {
    /// Quotient or remainder of 32 bits.
    pub(super) fn divide(&mut self, d: Word, a: Val, b: Val, signed: bool, rest: bool) {
        let (a, b) = (self.in_word(a), self.in_word(b));
        let zero = self.pred();
        self.unguarded(|m| m.compare(zero, mods::cmp::NE, false, b.into(), Src::ZERO));
        if !signed {
            let r = self.unguarded(|m| m.divide_unsigned(a, b, rest));
            return self.select(d, Pred::of(zero), r.into(), u32::MAX.into());
        }
        let (r, sign, minus, p) = (self.one(), self.one(), self.one(), self.pred());
        self.unguarded(|m| {
            let (x, y) = (m.one(), m.one());
            m.unary(op::IABS_R, x, a.into(), |m| m);
            m.unary(op::IABS_R, y, b.into(), |m| m);
            let q = m.divide_unsigned(x, y, rest);
            if rest {
                m.mov(sign, Val::Word(a));
            } else {
                m.lop(sign, [a.into(), b.into(), Src::ZERO], 0x3c);
            }
            m.compare(p, mods::cmp::LT, true, sign.into(), Src::ZERO);
            m.alu(iadd3(), minus, [Src::from(q).negated(), Src::ZERO, Src::ZERO], |m| m);
            m.select(r, Pred::of(p), minus.into(), q.into());
        });
        // By zero: all ones, as ptxas has it.
        self.select(d, Pred::of(zero), r.into(), u32::MAX.into());
    }

    /// Reciprocal from a float, one Newton step, two corrections.
    fn divide_unsigned(&mut self, a: Word, b: Word, rest: bool) -> Word {
        let (f, r, up, q0) = (self.one(), self.one(), self.one(), self.one());
        self.unary(op::I2F_R, f, b.into(), |m| m.m(mods::dt::NONE).m(mods::st::U32).m(mods::rnd::RP));
        self.unary(op::MUFU_R, r, f.into(), |m| m.m(mods::fn_::RCP));
        self.alu(iadd3(), up, [r.into(), 0x0fff_fffe.into(), Src::ZERO], |m| m);
        self.unary(op::F2I_R, q0, up.into(), |m| {
            m.m(mods::dt::U32).m(mods::st::NONE).m(mods::rnd::TRUNC).m(mods::ntz::NTZ)
        });
        let (minus, error, more, q1) = (self.one(), self.one(), self.one(), self.one());
        self.alu(iadd3(), minus, [Src::from(b).negated(), Src::ZERO, Src::ZERO], |m| m);
        self.multiply(error, minus.into(), q0.into(), Src::ZERO);
        self.high_product(more, Val::Word(q0), Val::Word(error), false);
        self.alu(iadd3(), q1, [q0.into(), more.into(), Src::ZERO], |m| m);
        let (mut q, mut left) = (self.one(), self.one());
        self.high_product(q, Val::Word(q1), Val::Word(a), false);
        self.alu(imad(), left, [minus.into(), q.into(), a.into()], |m| m);
        for _ in 0..2 {
            let (p, less, l2, q2) = (self.pred(), self.one(), self.one(), self.one());
            self.compare(p, mods::cmp::GE, false, left.into(), b.into());
            self.alu(iadd3(), less, [left.into(), minus.into(), Src::ZERO], |m| m);
            self.select(l2, Pred::of(p), less.into(), left.into());
            if !rest {
                let more = self.one();
                self.alu(iadd3(), more, [q.into(), 1.into(), Src::ZERO], |m| m);
                self.select(q2, Pred::of(p), more.into(), q.into());
                q = q2;
            }
            left = l2;
        }
        if rest { left } else { q }
    }

    fn doubled(&mut self, s: Src) -> Word {
        let (d, w) = (self.two(), self.in_word(s.val));
        let m = self
            .unary_n(op::F2F_R_10, (d, 2), (w, 1))
            .m(mods::dt::F64)
            .m(mods::st::F32)
            .neg("b", s.neg)
            .abs("b", s.abs);
        self.push(m);
        d
    }

    fn rounded(&mut self, d: Word, s: Word, rounding: Modifier) {
        let m = self.unary_n(op::F2F_R_10, (d, 1), (s, 2)).m(mods::dt::F32).m(mods::st::F64).m(rounding);
        self.push(m);
    }

    /// A power of two near an exponent's middle: MUFU gives the high word only.
    pub(super) fn double_seed(&mut self, x: Word, function: Modifier) -> Word {
        let r = self.two();
        self.push(Mach::new(op::MUFU_R).w("d", r.plus(1)).r("b", x.plus(1)).m(function));
        self.mov(r, Val::Imm(0));
        r
    }

    /// `a / b` of f32, correctly rounded: in f64, whose quotient is exact enough that rounding it once more is right;
    /// zeros, infinities and NaN go through a plain product with the reciprocal.
    pub(super) fn far_quotient(&mut self, a: Src, b: Src, rounding: Modifier) -> Word {
        let (x, y) = (self.doubled(a), self.doubled(b));
        let q = self.divide_doubles(x, y);
        let (normal, special, inverse, out) = (self.one(), self.one(), self.one(), self.one());
        self.rounded(normal, q, rounding);
        let (p, unit) = self.plain_operands(a, b);
        self.unary(op::MUFU_R, inverse, unit.into(), |m| m.m(mods::fn_::RCP));
        self.alu(fmul(), special, [a, inverse.into(), Src::ZERO], |m| m);
        self.select(out, Pred::of(p), normal.into(), special.into());
        out
    }

    /// Whether both are finite and not zero; and the divisor, as one with its sign if it is.
    fn plain_operands(&mut self, a: Src, b: Src) -> (Word, Word) {
        let (p, q, unit, out) = (self.pred(), self.pred(), self.one(), self.one());
        let (x, y) = (self.in_word(a.val), self.in_word(b.val));
        for (p, w) in [(p, y), (q, x)] {
            // Exponent and mantissa in [1, 0x7f800000).
            let (low, size) = (self.one(), self.one());
            self.lop(size, [w.into(), 0x7fff_ffff.into(), Src::ZERO], 0xc0);
            self.alu(iadd3(), low, [size.into(), u32::MAX.into(), Src::ZERO], |m| m);
            self.compare(p, mods::cmp::LT, false, low.into(), 0x7f7f_ffff.into());
        }
        self.lop(unit, [y.into(), 0x8000_0000.into(), Src::ZERO], 0xc0);
        let one = self.one();
        self.lop(one, [unit.into(), 0x3f80_0000.into(), Src::ZERO], 0xfc);
        self.select(out, Pred::of(p), one.into(), y.into());
        let both = self.pred();
        self.plop(both, [Pred::of(p), Pred::of(q), Pred::TRUE], 0xc0);
        (both, out)
    }

    /// `p = a cmp b and q`.
    pub(super) fn test(&mut self, p: Word, cmp: Modifier, a: Src, b: Src, q: Pred) {
        let m = self.arith(fsetp(), [a, b, Src::ZERO]).w("pu", p).m(cmp).p("pp", q);
        self.push(m);
    }

    /// `x / y` for doubles that are floats: the remainder corrects the last bit, so a reciprocal with half of the
    /// digits is enough.
    fn divide_doubles(&mut self, x: Word, y: Word) -> Word {
        let seed = self.double_seed(y, mods::fn_::RCP64H);
        let r = self.reciprocal_step_double(y, seed);
        let (q, left, out) = (self.two(), self.two(), self.two());
        self.dmul(q, Wide::Pair(x), Wide::Pair(r));
        self.dfma(left, (Wide::Pair(y), true), Wide::Pair(q), Wide::Pair(x));
        self.dfma(out, (Wide::Pair(left), false), Wide::Pair(r), Wide::Pair(q));
        out
    }

    /// `sqrt(x)` of a double in the middle of the range, correctly rounded where that is to a float's precision.
    pub(super) fn root(&mut self, x: Word) -> Word {
        let seed = self.double_seed(x, mods::fn_::RSQ64H);
        let [s, _] = self.root_steps_double(x, seed);
        s
    }

    /// `1 / sqrt(x)` from a first guess.
    pub(super) fn inverse_root(&mut self, x: Word, seed: Word) -> Word {
        let mut r = seed;
        for _ in 0..3 {
            // r += r/2 (1 - x r r)
            let (xr, e, half, next) = (self.two(), self.two(), self.two(), self.two());
            self.dmul(xr, Wide::Pair(x), Wide::Pair(r));
            self.dfma(e, (Wide::Pair(xr), true), Wide::Pair(r), ONE);
            self.dmul(half, Wide::Pair(r), Wide::Imm(0.5f64.to_bits()));
            self.dfma(next, (Wide::Pair(half), false), Wide::Pair(e), Wide::Pair(r));
            r = next;
        }
        r
    }

    /// `sqrt(a)` of f32, correctly rounded.
    pub(super) fn far_root(&mut self, a: Src, rounding: Modifier) -> Word {
        let x = self.doubled(a);
        let s = self.root(x);
        let (normal, out) = (self.one(), self.one());
        self.rounded(normal, s, rounding);
        let w = self.in_word(a.val);
        let a = Src { val: Val::Word(w), ..a };
        let p = self.has_other_root(a);
        let same = self.one();
        self.alu(fadd(), same, [a, Src::ZERO, Src { val: Val::Imm(0), neg: true, abs: false }], |m| m);
        self.select(out, p, normal.into(), same.into());
        out
    }

    /// Zero and infinity are their own roots: whether it is neither.
    pub(super) fn has_other_root(&mut self, a: Src) -> Pred {
        let (p, q) = (self.pred(), self.pred());
        self.test(p, mods::cmp::NEU, a, Src::ZERO, Pred::TRUE);
        self.test(q, mods::cmp::NEU, a, 0x7f80_0000.into(), Pred::of(p));
        Pred::of(q)
    }

    /// `x * y` by parts, so that small numbers keep their bits: a function of MUFU between powers of two.
    pub(super) fn scaled_function(&mut self, d: Word, a: Src, function: Modifier, [limit, up, down]: [u32; 3]) {
        let r = self.unguarded(|m| {
            let (p, big, x, y, z, out) = (m.pred(), m.one(), m.one(), m.one(), m.one(), m.one());
            let w = m.in_word(a.val);
            let a = Src { val: Val::Word(w), ..a };
            m.test(p, mods::cmp::LT, Src { neg: false, abs: true, ..a }, limit.into(), Pred::TRUE);
            m.alu(fmul(), big, [a, up.into(), Src::ZERO], |m| m);
            // A choice takes no signs.
            let same = if a.neg || a.abs { m.one() } else { w };
            if same != w {
                m.alu(fadd(), same, [a, Src::ZERO, Src { val: Val::Imm(0), neg: true, abs: false }], |m| m);
            }
            m.select(x, Pred::of(p), big.into(), same.into());
            m.unary(op::MUFU_R, y, x.into(), |m| m.m(function));
            m.alu(fmul(), z, [y.into(), down.into(), Src::ZERO], |m| m);
            m.select(out, Pred::of(p), z.into(), y.into());
            out
        });
        self.mov(d, Val::Word(r));
    }
}

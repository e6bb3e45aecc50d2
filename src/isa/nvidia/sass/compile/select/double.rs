//! Arithmetic of f64.
//!
//! Division, reciprocal and square root are correctly rounded, in each direction. The code here is right for all
//! inputs; `near` has the fast paths.

use super::build::{Build, Src, iadd3, isetp, lop3};
use super::float::rounding;
use crate::ptx::{Opcode, Type};
use crate::sass::compile::AsmError;
use crate::sass::compile::mir::{Mach, Pred, Val, Wide, Word};
use crate::sass::compile::read::flat::Flat;
use crate::sass::{Form, Modifier, Role, mods, op};

/// A double with its sign.
type Signed = (Wide, bool);

const INFINITY: u64 = 0x7ff0_0000_0000_0000;

const INFINITY_HIGH: u32 = (INFINITY >> 32) as u32;
const ONE_HIGH: u32 = (1f64.to_bits() >> 32) as u32;
pub(super) const ONE: Wide = Wide::Imm(1f64.to_bits());
/// The smallest normal number.
const LEAST: Wide = Wide::Imm(f64::MIN_POSITIVE.to_bits());

/// A number split into its parts; exponents are at bit 20, as in a high word.
struct Apart {
    /// The number, 2^54 times as large if it was denormal.
    number: Word,
    /// With its sign, from 1 to below 2.
    mantissa: Word,
    /// With its bias, of the number above.
    exponent: Word,
    /// With its bias: 54 or 0.
    grown: Word,
}

/// A number times a power of two.
struct Scaled {
    out: Word,
    /// The factor of the power's last part, and this part's exponent, at bit 20.
    exact: Word,
    rest: Word,
}

/// Comparisons: with a register, a constant's high word, a bank's constant.
pub(super) const DSETP: [&Form; 3] = [op::DSETP_R, op::DSETP_I, op::DSETP_C];

impl Build<'_> {
    pub(super) fn double(&mut self, i: &Flat) -> Result<(), AsmError> {
        let d = self.dest(i, &i.opds[0])?;
        let mut s = [Wide::Imm(0); 3];
        for (k, o) in i.opds[1..].iter().take(3).enumerate() {
            s[k] = self.wide(i, o, Type::F64)?;
        }
        let rnd = rounding(i);
        match i.op {
            Opcode::Add | Opcode::Sub => {
                let m = self.doubles(
                    &[op::DADD_R, op::DADD_I3, op::DADD_C3],
                    &["a", "c"],
                    &[(s[0], false), (s[1], i.op == Opcode::Sub)],
                );
                self.push(m.wn("d", d, 2).m(rnd));
            }
            Opcode::Mul => {
                let m =
                    self.doubles(&[op::DMUL_R, op::DMUL_I, op::DMUL_C], &["a", "b"], &[(s[0], false), (s[1], false)]);
                self.push(m.wn("d", d, 2).m(rnd));
            }
            Opcode::Fma | Opcode::Mad => {
                let m = self.triple([(s[0], false), (s[1], false), (s[2], false)]);
                self.push(m.wn("d", d, 2).m(rnd));
            }
            Opcode::Neg | Opcode::Abs => {
                let x = self.in_pair(s[0]);
                self.mov(d, Val::Word(x));
                let (mask, table) = if i.op == Opcode::Neg { (0x8000_0000, 0x3c) } else { (0x7fff_ffff, 0xc0) };
                self.alu(lop3(), d.plus(1), [x.plus(1).into(), Src::from(mask), Src::ZERO], |m| {
                    m.n("lut", table).p("pp", Pred::TRUE.not())
                });
                self.glue(2);
            }
            Opcode::Min | Opcode::Max => self.extreme_double(d, s[0], s[1], i.op == Opcode::Max),
            Opcode::Div => self.divide_double(d, s[0], s[1], rnd),
            Opcode::Rcp if i.has("approx") => {
                let x = self.in_pair(s[0]);
                let r = self.unguarded(|m| m.double_seed(x, mods::fn_::RCP64H));
                self.mov64(d, Wide::Pair(r));
            }
            Opcode::Rsqrt => {
                let x = self.in_pair(s[0]);
                let ftz = i.has("ftz");
                let r = self.unguarded(|m| {
                    if ftz {
                        return m.double_seed(x, mods::fn_::RSQ64H);
                    }
                    let (small, y) = m.grown(x);
                    let seed = m.double_seed(y, mods::fn_::RSQ64H);
                    let (better, root, out) = (m.inverse_root(y, seed), m.two(), m.two());
                    let scaled = m.two();
                    m.dmul(scaled, Wide::Pair(better), Wide::Imm(2f64.powi(27).to_bits()));
                    m.select64(root, Pred::of(small), Wide::Pair(scaled), Wide::Pair(better));
                    let p = m.finite_and_not_zero(x, Pred::TRUE);
                    m.select64(out, Pred::of(p), Wide::Pair(root), Wide::Pair(seed));
                    out
                });
                self.mov64(d, Wide::Pair(r));
            }
            Opcode::Rcp => self.invert_double(d, s[0], rnd),
            Opcode::Sqrt => self.root_double(d, s[0], rnd),
            Opcode::Copysign => {
                self.mov(d, s[1].low());
                let (a, b) = (s[0].high(), s[1].high());
                let b = self.in_word(b);
                self.alu(lop3(), d.plus(1), [a.into(), 0x8000_0000.into(), b.into()], |m| {
                    m.n("lut", 0xe2).p("pp", Pred::TRUE.not())
                });
            }
            Opcode::Testp => {
                let x = self.in_pair(s[0]);
                self.classify(i, d, x);
            }
            _ => return self.no(i, "no f64 instruction of that kind is assembled"),
        }
        Ok(())
    }

    /// `testp`: what kind of number a double is, by its magnitude.
    fn classify(&mut self, i: &Flat, d: Word, x: Word) {
        let (size, p) = (self.two(), self.pred());
        let word = Wide::Pair(size);
        let (infinity, least) = (Wide::Imm(INFINITY), Wide::Imm(f64::MIN_POSITIVE.to_bits()));
        self.unguarded(|b| {
            b.mov(size, Val::Word(x));
            b.lop(size.plus(1), [x.plus(1).into(), 0x7fff_ffff.into(), Src::ZERO], 0xc0);
        });
        match () {
            () if i.has("infinite") => self.test_double(d, mods::cmp::EQ, word, infinity, Pred::TRUE),
            () if i.has("finite") => self.test_double(d, mods::cmp::LT, word, infinity, Pred::TRUE),
            () if i.has("notanumber") => self.test_double(d, mods::cmp::NAN, word, word, Pred::TRUE),
            () if i.has("number") => self.test_double(d, mods::cmp::NUM, word, word, Pred::TRUE),
            () => {
                // Zeros count as normal.
                let q = self.pred();
                self.unguarded(|b| {
                    b.test_double(p, mods::cmp::LT, word, least, Pred::TRUE);
                    b.test_double(q, mods::cmp::GT, word, Wide::Imm(0), Pred::of(p));
                });
                match i.has("normal") {
                    true => self.test_double(d, mods::cmp::LT, word, infinity, Pred::of(q).not()),
                    false => self.plop(d, [Pred::of(q), Pred::TRUE, Pred::TRUE], 0xf0),
                }
            }
        }
    }

    /// An instruction of two doubles: forms with register, immediate (high word only) and constant as the second.
    pub(super) fn doubles(&mut self, forms: &[&'static Form; 3], slots: &[&'static str; 2], s: &[Signed; 2]) -> Mach {
        let (mut a, mut b) = (s[0], s[1]);
        if !matches!(a.0, Wide::Pair(_)) && matches!(b.0, Wide::Pair(_)) {
            (a, b) = (b, a);
        }
        let first = self.in_pair(a.0);
        let m = match b.0 {
            Wide::Imm(v) if v as u32 == 0 && v != 0 => {
                let v = if b.1 { v ^ 1 << 63 } else { v };
                return Mach::new(forms[1]).rn(slots[0], first, 2).neg(slots[0], a.1).n(slots[1], v >> 32);
            }
            Wide::Const(bank, at) => Mach::new(forms[2]).c(slots[1], bank, at),
            Wide::Imm(0) => Mach::new(forms[0]),
            v => {
                let w = self.in_pair(v);
                Mach::new(forms[0]).rn(slots[1], w, 2)
            }
        };
        m.rn(slots[0], first, 2).neg(slots[0], a.1).neg(slots[1], b.1)
    }

    fn triple(&mut self, s: [Signed; 3]) -> Mach {
        let [mut a, mut b, c] = s;
        if !matches!(a.0, Wide::Pair(_)) {
            (a, b) = (b, a);
        }
        let short = |v: Signed| match v.0 {
            Wide::Imm(x) if x as u32 == 0 && x != 0 => Some(if v.1 { x ^ 1 << 63 } else { x } >> 32),
            _ => None,
        };
        let first = self.in_pair(a.0);
        if let Some(v) = short(c) {
            let second = self.in_pair(b.0);
            return Mach::new(op::DFMA_I3).rn("a", first, 2).neg("a", a.1).rn("b", second, 2).neg("b", b.1).n("c", v);
        }
        let m = match short(b) {
            Some(v) => Mach::new(op::DFMA_I).n("b", v),
            None => {
                let second = self.in_pair(b.0);
                Mach::new(op::DFMA_R).rn("b", second, 2).neg("b", b.1)
            }
        };
        let m = m.rn("a", first, 2).neg("a", a.1);
        match c.0 {
            Wide::Imm(0) => m.neg("c", c.1),
            v => {
                let third = self.in_pair(v);
                m.rn("c", third, 2).neg("c", c.1)
            }
        }
    }

    pub(super) fn dmul(&mut self, d: Word, a: Wide, b: Wide) {
        let m = self.doubles(&[op::DMUL_R, op::DMUL_I, op::DMUL_C], &["a", "b"], &[(a, false), (b, false)]);
        self.push(m.wn("d", d, 2));
    }

    /// `d = ±a * b + c`.
    pub(super) fn dfma(&mut self, d: Word, a: Signed, b: Wide, c: Wide) {
        self.dfma_rounded(d, a, b, c, mods::rnd::NONE);
    }

    /// The same, rounded so.
    pub(super) fn dfma_rounded(&mut self, d: Word, a: Signed, b: Wide, c: Wide, rounding: Modifier) {
        let m = self.triple([a, (b, false), (c, false)]);
        self.push(m.wn("d", d, 2).m(rounding));
    }

    /// `p = a cmp b and q`.
    pub(super) fn test_double(&mut self, p: Word, cmp: Modifier, a: Wide, b: Wide, q: Pred) {
        let m = self.doubles(&DSETP, &["a", "b"], &[(a, false), (b, false)]);
        self.push(m.w("pu", p).m(cmp).p("pp", q));
    }

    /// A NaN gives the other one; of zeros the negative one is smaller.
    fn extreme_double(&mut self, d: Word, a: Wide, b: Wide, larger: bool) {
        let (x, y) = (self.in_pair(a), self.in_pair(b));
        let own = self.guard.is_none() && d.reg() != x.reg() && d.reg() != y.reg();
        let out = if own { d } else { self.two() };
        self.unguarded(|m| {
            // The first is chosen; or neither is a number.
            let (first, neither, high, quiet) = (m.pred(), m.pred(), m.one(), m.one());
            let test = Mach::new(op::DSETP_R).w("pu", first).w("pv", neither).rn("a", x, 2).rn("b", y, 2);
            m.push(test.m(if larger { mods::cmp::MAX } else { mods::cmp::MIN }).p("pp", Pred::TRUE));
            m.lop(quiet, [y.plus(1).into(), 0x0008_0000.into(), Src::ZERO], 0xfc);
            m.select(high, Pred::of(first), x.plus(1).into(), y.plus(1).into());
            m.select(out, Pred::of(first), x.into(), y.into());
            m.select(out.plus(1), Pred::of(neither), quiet.into(), high.into());
        });
        if !own {
            self.mov64(d, Wide::Pair(out));
        }
    }

    /// `x / y`, or `1 / y`: mantissas are divided, exponents put back by a sum and a product.
    pub(super) fn far_quotient_double(&mut self, x: Option<Word>, y: Word, rounding: Modifier) -> Word {
        let below = self.apart(y);
        // With zeros, infinities and NaN: the product with infinity for zero, zero for infinity.
        let (turned, none, special, out) = (self.two(), self.pred(), self.two(), self.two());
        self.mov(turned, Val::Word(below.number));
        let (high, other) = (below.number.plus(1), self.one());
        self.lop(other, [high.into(), INFINITY_HIGH.into(), Src::ZERO], 0x3c);
        self.test_double(none, mods::cmp::NAN, Wide::Pair(y), Wide::Pair(y), Pred::TRUE);
        self.select(turned.plus(1), Pred::of(none), high.into(), other.into());
        self.dmul(special, x.map_or(ONE, Wide::Pair), Wide::Pair(turned));
        let p = self.finite_and_not_zero(y, Pred::TRUE);
        let p = x.map_or(p, |x| self.finite_and_not_zero(x, Pred::of(p)));
        let above = x.map(|x| self.apart(x));
        let (apart, e) = (self.one(), self.one());
        let top = Src::from(ONE_HIGH);
        let [of_x, grown_x] = above.as_ref().map_or([top; 2], |a| [a.exponent.into(), a.grown.into()]);
        self.alu(iadd3(), apart, [of_x, Src::from(below.exponent).negated(), Src::ZERO], |m| m);
        // Further apart, the result is zero or infinite whatever was grown.
        let apart = self.between(apart, 1200);
        self.alu(iadd3(), e, [apart.into(), below.grown.into(), grown_x.negated()], |m| m);
        let (mx, my) = (above.map_or(ONE, |a| Wide::Pair(a.mantissa)), below.mantissa);
        let [near, r] = self.quotient_steps_double(mx, my);
        let scaled = match rounding {
            mods::rnd::NONE => self.scale_nearest(near, e, mx, my),
            _ => {
                let near = self.directed(near, my, mx, Wide::Pair(r), rounding);
                self.scale_double(near, e, rounding).out
            }
        };
        self.select64(out, Pred::of(p), Wide::Pair(scaled), Wide::Pair(special));
        out
    }

    /// What is rounded to nearest, rounded in another direction instead: the sign of what `a * nearest` leaves of
    /// c, made small by a factor, says where the value is.
    pub(super) fn directed(&mut self, nearest: Word, a: Word, c: Wide, factor: Wide, rounding: Modifier) -> Word {
        if rounding == mods::rnd::NONE {
            return nearest;
        }
        let (left, out) = (self.two(), self.two());
        self.dfma(left, (Wide::Pair(a), true), Wide::Pair(nearest), c);
        self.dfma_rounded(out, (Wide::Pair(left), false), factor, Wide::Pair(nearest), rounding);
        out
    }

    fn finite_and_not_zero(&mut self, x: Word, also: Pred) -> Word {
        let (p, q) = (self.pred(), self.pred());
        let m = self.doubles(&DSETP, &["a", "b"], &[(Wide::Pair(x), false), (Wide::Imm(INFINITY), false)]);
        self.push(m.w("pu", p).abs("a", true).m(mods::cmp::LT).p("pp", also));
        self.push(Mach::new(op::DSETP_R).w("pu", q).rn("a", x, 2).m(mods::cmp::NE).p("pp", Pred::of(p)));
        q
    }

    /// A number that is not too small for a normal one, 2^54 times as large where it was, which the predicate says.
    fn grown(&mut self, x: Word) -> (Word, Word) {
        let (p, big, y, size) = (self.pred(), self.two(), self.two(), self.one());
        self.lop(size, [x.plus(1).into(), 0x7ff0_0000.into(), Src::ZERO], 0xc0);
        self.compare(p, mods::cmp::EQ, false, size.into(), Src::ZERO);
        self.dmul(big, Wide::Pair(x), Wide::Imm(2f64.powi(54).to_bits()));
        self.select64(y, Pred::of(p), Wide::Pair(big), Wide::Pair(x));
        (p, y)
    }

    /// A number taken apart; finite numbers that are not zero.
    fn apart(&mut self, x: Word) -> Apart {
        let (p, power, number) = (self.pred(), self.two(), self.two());
        let small = self.doubles(&DSETP, &["a", "b"], &[(Wide::Pair(x), false), (LEAST, false)]);
        self.push(small.w("pu", p).abs("a", true).m(mods::cmp::LT).p("pp", Pred::TRUE));
        let grown = power.plus(1);
        self.mov(power, Val::Imm(0));
        self.select(grown, Pred::of(p), ((2f64.powi(54).to_bits() >> 32) as u32).into(), ONE_HIGH.into());
        self.dmul(number, Wide::Pair(x), Wide::Pair(power));
        let (exponent, mantissa, one) = (self.one(), self.two(), self.in_word(Val::Imm(ONE_HIGH)));
        self.lop(exponent, [number.plus(1).into(), INFINITY_HIGH.into(), Src::ZERO], 0xc0);
        self.mov(mantissa, Val::Word(number));
        self.lop(mantissa.plus(1), [number.plus(1).into(), 0x800f_ffff.into(), one.into()], 0xea);
        Apart { number, mantissa, exponent, grown }
    }

    /// `x` between `-limit << 20` and `limit << 20`.
    fn between(&mut self, x: Word, limit: i32) -> Word {
        let (above, out) = (self.one(), self.one());
        self.extreme(above, Val::Word(x), Val::Imm((-limit << 20).cast_unsigned()), true, true);
        self.extreme(out, Val::Word(above), Val::Imm((limit << 20).cast_unsigned()), false, true);
        out
    }

    /// `2^e * x`, with `e << 20` given, of x between one half and two: the larger part of e is a sum, which is exact, a
    /// product rounds.
    fn scale_double(&mut self, x: Word, e: Word, rounding: Modifier) -> Scaled {
        let most = self.between(e, 900);
        let (rest, exact, out) = (self.one(), self.two(), self.two());
        self.alu(iadd3(), rest, [e.into(), Src::from(most).negated(), Src::ZERO], |m| m);
        self.mov(exact, Val::Word(x));
        self.alu(iadd3(), exact.plus(1), [x.plus(1).into(), most.into(), Src::ZERO], |m| m);
        let power = self.power(ONE_HIGH, rest, false);
        self.push(Mach::new(op::DMUL_R).wn("d", out, 2).rn("a", exact, 2).rn("b", power, 2).m(rounding));
        Scaled { out, exact, rest }
    }

    /// The same of the quotient x of two numbers, rounded to nearest as if it had not been rounded before: where x
    /// looks like a tie of denormals, what the division leaves says by its sign on which side the quotient is.
    fn scale_nearest(&mut self, x: Word, e: Word, dividend: Wide, divisor: Word) -> Word {
        let left = self.multiply_add_double((divisor, true), x, dividend);
        let (inexact, side, tie, wrong) = (self.pred(), self.one(), self.pred(), self.pred());
        self.test_double(inexact, mods::cmp::NE, Wide::Pair(left), Wide::Imm(0), Pred::TRUE);
        self.lop(side, [left.plus(1).into(), divisor.plus(1).into(), Src::ZERO], 0x3c);
        let Scaled { out, exact, rest } = self.scale_double(x, e, mods::rnd::NONE);
        let (lost, opposite, moved, nearest) = (self.two(), self.one(), self.two(), self.two());
        let back = self.power(ONE_HIGH, rest, true);
        self.dfma(lost, (Wide::Pair(out), true), Wide::Pair(back), Wide::Pair(exact));
        let half = self.power((-52i32 << 20).cast_unsigned(), rest, true);
        let test = Mach::new(op::DSETP_R).w("pu", tie).rn("a", lost, 2).abs("a", true).rn("b", half, 2);
        self.push(test.m(mods::cmp::EQ).p("pp", Pred::of(inexact)));
        self.lop(opposite, [side.into(), lost.plus(1).into(), Src::ZERO], 0x3c);
        let test = self.arith(isetp(), [opposite.into(), Src::ZERO, Src::ZERO]).w("pu", wrong).m(mods::cmp::GE);
        self.push(test.mark(mods::sg::NONE).p("pp", Pred::of(tie)));
        let twice = self.power(ONE_HIGH + (1 << 20), rest, false);
        self.dfma(moved, (Wide::Pair(lost), false), Wide::Pair(twice), Wide::Pair(out));
        self.select64(nearest, Pred::of(wrong), Wide::Pair(moved), Wide::Pair(out));
        nearest
    }

    /// A double of the high word `base ± e`.
    fn power(&mut self, base: u32, e: Word, negative: bool) -> Word {
        let d = self.two();
        self.mov(d, Val::Imm(0));
        self.alu(iadd3(), d.plus(1), [Src { neg: negative, ..e.into() }, base.into(), Src::ZERO], |m| m);
        d
    }

    /// The root of what is below 2^-970 or no positive number: of `2^108 x`, made smaller by 2^-54, both exact. With
    /// `all` the root of any value: others are not scaled.
    pub(super) fn far_root_double(&mut self, x: Word, rounding: Modifier, all: bool) -> Word {
        let (big, scaled, out) = (self.two(), self.two(), self.two());
        let mut factors = [108, -54].map(|n| Wide::Imm(2f64.powi(n).to_bits()));
        if all {
            let p = self.pred();
            let size = Src { abs: true, ..x.plus(1).into() };
            self.test(p, mods::cmp::LT, size, 0x0350_0000.into(), Pred::TRUE);
            factors = factors.map(|f| {
                let chosen = self.two();
                self.mov(chosen, Val::Imm(0));
                self.select(chosen.plus(1), Pred::of(p), f.high().into(), ONE_HIGH.into());
                Wide::Pair(chosen)
            });
        }
        self.dmul(big, Wide::Pair(x), factors[0]);
        let r = self.double_seed(big, mods::fn_::RSQ64H);
        let [s, half] = self.root_steps_double(big, r);
        let s = self.directed(s, s, Wide::Pair(big), Wide::Pair(half), rounding);
        self.dmul(scaled, Wide::Pair(s), factors[1]);
        // Zeros and positive infinity are their own roots.
        let (p, q) = (self.pred(), self.pred());
        self.test_double(p, mods::cmp::NEU, Wide::Pair(x), Wide::Imm(INFINITY), Pred::TRUE);
        self.test_double(q, mods::cmp::NEU, Wide::Pair(x), Wide::Imm(0), Pred::of(p));
        self.select64(out, Pred::of(q), Wide::Pair(scaled), Wide::Pair(x));
        out
    }

    /// Whether a form has a slot, for callers that choose by it.
    pub(super) fn has_slot(form: &'static Form, slot: &str) -> bool {
        form.position(slot, Role::Value).is_some()
    }
}

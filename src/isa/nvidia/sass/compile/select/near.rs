//! Division, reciprocal and square root, correctly rounded. If operands and result are in the middle of the range, a
//! few refinement steps from MUFU's estimate are enough. The code for the ends of the range (`far`) is behind a branch
//! that a warp takes if one of its threads needs it.
//!
//! Steps and limits are those of ptxas' code, and rely on the accuracy of MUFU and FCHK that this code relies on.

use super::build::{Build, Src, ffma, fmul, iadd3};
use super::double;
use super::far::{Far, Function, Operands};
use crate::sass::compile::mir::{Mach, Pred, Term, Val, Wide, Word};
use crate::sass::{Modifier, mods, op};

const ONE: u32 = 1f32.to_bits();

impl Build<'_> {
    /// The result of `near`; in threads for which `near` says so, that of the code for the ends of the range.
    fn near_or(&mut self, far: Far, operands: Operands, near: impl FnOnce(&mut Self) -> (Word, Pred)) -> Word {
        let any = self.pred();
        let (out, is_far) = near(self);
        self.push(Mach::new(op::VOTE_R).w("pu", any).m(mods::md::ANY).p("pp", is_far).effect());
        let (elsewhere, done) = (self.fresh(), self.fresh());
        self.code.blocks[self.block].term = Term::Branch(Pred::of(any), elsewhere, done, true);
        self.start(elsewhere);
        self.needs_far(far, operands, out, is_far);
        self.code.blocks[self.block].term = Term::Jump(done);
        self.start(done);
        out
    }

    /// A source in a register.
    fn source(&mut self, s: Src) -> Src {
        Src { val: Val::Word(self.in_word(s.val)), ..s }
    }

    fn guess(&mut self, x: Src, function: Modifier) -> Word {
        let r = self.one();
        self.unary(op::MUFU_R, r, x, |m| m.m(function));
        r
    }

    /// `a * b + c`.
    fn multiply_add(&mut self, a: Src, b: Src, c: Src) -> Word {
        let d = self.one();
        self.alu(ffma(), d, [a, b, c], |m| m);
        d
    }

    pub(super) fn divide_float(&mut self, d: Word, a: Src, b: Src, rounding: Modifier) {
        let r = self.unguarded(|m| {
            if rounding != mods::rnd::NONE || a.abs || b.abs {
                return m.far_quotient(a, b, rounding);
            }
            let (x, y) = (m.source(a), m.source(b));
            let near = |m: &mut Self| {
                let p = m.pred();
                let (top, below) = (m.in_word(x.val), m.in_word(y.val));
                let check = Mach::new(op::FCHK_R).w("pu", p).r("a", top).neg("a", x.neg);
                m.push(check.r("b", below).neg("b", y.neg));
                let r = m.reciprocal_step(y);
                let q = m.one();
                m.alu(fmul(), q, [x, r.into(), Src::ZERO], |m| m);
                let left = m.multiply_add(y.negated(), q.into(), x);
                (m.multiply_add(r.into(), left.into(), q.into()), Pred::of(p))
            };
            m.near_or(Far { function: Function::Quotient, double: false, rounding }, Operands::quotient(x, y), near)
        });
        self.mov(d, Val::Word(r));
    }

    /// MUFU's reciprocal and a Newton step.
    fn reciprocal_step(&mut self, y: Src) -> Word {
        let r = self.guess(y, mods::fn_::RCP);
        let e = self.multiply_add(y.negated(), r.into(), ONE.into());
        self.multiply_add(r.into(), e.into(), r.into())
    }

    pub(super) fn invert_float(&mut self, d: Word, a: Src, rounding: Modifier) {
        let r = self.unguarded(|m| {
            if rounding != mods::rnd::NONE || a.abs {
                return m.far_quotient(ONE.into(), a, rounding);
            }
            let y = m.source(a);
            let near = |m: &mut Self| {
                // Exponents 0, and 253 and above.
                let (up, exponent, p) = (m.one(), m.one(), m.pred());
                m.alu(iadd3(), up, [Src { neg: false, ..y }, 0x0180_0000.into(), Src::ZERO], |m| m);
                m.lop(exponent, [up.into(), 0x7f80_0000.into(), Src::ZERO], 0xc0);
                m.compare(p, mods::cmp::LE, false, exponent.into(), 0x01ff_ffff.into());
                (m.reciprocal_step(y), Pred::of(p))
            };
            m.near_or(Far { function: Function::Reciprocal, double: false, rounding }, Operands::one(y), near)
        });
        self.mov(d, Val::Word(r));
    }

    pub(super) fn root_float(&mut self, d: Word, a: Src, rounding: Modifier) {
        let r = self.unguarded(|m| {
            if rounding != mods::rnd::NONE || a.abs || a.neg {
                return m.far_root(a, rounding);
            }
            let x = m.source(a);
            let near = |m: &mut Self| {
                let (low, p) = (m.one(), m.pred());
                m.alu(iadd3(), low, [x, 0xf300_0000.into(), Src::ZERO], |m| m);
                m.compare(p, mods::cmp::GT, false, low.into(), 0x727f_ffff.into());
                (m.root_steps(x), Pred::of(p))
            };
            m.near_or(Far { function: Function::Root, double: false, rounding }, Operands::one(x), near)
        });
        self.mov(d, Val::Word(r));
    }

    /// MUFU's reciprocal square root and a Newton step.
    fn root_steps(&mut self, x: Src) -> Word {
        let r = self.guess(x, mods::fn_::RSQ);
        let (s, half) = (self.one(), self.one());
        self.alu(fmul(), s, [x, r.into(), Src::ZERO], |m| m);
        self.alu(fmul(), half, [r.into(), 0.5f32.to_bits().into(), Src::ZERO], |m| m);
        let left = self.multiply_add(Src::from(s).negated(), s.into(), x);
        self.multiply_add(left.into(), half.into(), s.into())
    }

    /// The square root of values below 2^-101, and of values that are not positive numbers: of `2^64 x`, scaled back by
    /// 2^-32. Both scalings are exact. With `all` the root of any value: others are not scaled.
    pub(super) fn scaled_root(&mut self, x: Src, all: bool) -> Word {
        let (big, scaled, out) = (self.one(), self.one(), self.one());
        let mut factors = [64, -32].map(|n| Src::from(2f32.powi(n).to_bits()));
        if all {
            let p = self.pred();
            self.test(p, mods::cmp::LT, Src { neg: false, abs: true, ..x }, 0x0d00_0000.into(), Pred::TRUE);
            factors = factors.map(|f| {
                let chosen = self.one();
                self.select(chosen, Pred::of(p), f, ONE.into());
                chosen.into()
            });
        }
        self.alu(fmul(), big, [x, factors[0], Src::ZERO], |m| m);
        let s = self.root_steps(big.into());
        self.alu(fmul(), scaled, [s.into(), factors[1], Src::ZERO], |m| m);
        let p = self.has_other_root(x);
        self.select(out, p, scaled.into(), x);
        out
    }

    /// MUFU's estimate for a double: its high word, above the given low word.
    fn guess_double(&mut self, r: Word, x: Word, function: Modifier) {
        self.push(Mach::new(op::MUFU_R).w("d", r.plus(1)).r("b", x.plus(1)).m(function));
    }

    /// `±a * b + c` of doubles in registers.
    pub(super) fn multiply_add_double(&mut self, a: (Word, bool), b: Word, c: Wide) -> Word {
        let d = self.two();
        self.dfma(d, (Wide::Pair(a.0), a.1), Wide::Pair(b), c);
        d
    }

    /// Triples the number of correct digits of an estimate of `1 / y`.
    pub(super) fn reciprocal_step_double(&mut self, y: Word, r: Word) -> Word {
        let e = self.multiply_add_double((y, true), r, double::ONE);
        let e = self.multiply_add_double((e, false), e, Wide::Pair(e));
        self.multiply_add_double((r, false), e, Wide::Pair(r))
    }

    /// The same, followed by a step that doubles them again.
    fn reciprocal_steps_double(&mut self, y: Word, r: Word) -> [Word; 2] {
        let r = self.reciprocal_step_double(y, r);
        [r, self.multiply_add_double((y, true), r, double::ONE)]
    }

    pub(super) fn invert_double(&mut self, d: Word, a: Wide, rounding: Modifier) {
        let r = self.unguarded(|m| {
            let y = m.in_pair(a);
            let near = |m: &mut Self| {
                let (r, p) = (m.two(), m.pred());
                m.alu(iadd3(), r, [y.plus(1).into(), 0x0030_0402.into(), Src::ZERO], |m| m);
                m.guess_double(r, y, mods::fn_::RCP64H);
                m.test(
                    p,
                    mods::cmp::LT,
                    Src { val: Val::Word(r), neg: false, abs: true },
                    0x0040_0402.into(),
                    Pred::TRUE,
                );
                let [r, e] = m.reciprocal_steps_double(y, r);
                let out = m.multiply_add_double((r, false), e, Wide::Pair(r));
                if rounding != mods::rnd::NONE {
                    return (m.directed(out, y, double::ONE, Wide::Pair(r), rounding), Pred::of(p));
                }
                (out, Pred::of(p))
            };
            m.near_or(Far { function: Function::Reciprocal, double: true, rounding }, Operands::one(y.into()), near)
        });
        self.mov64(d, Wide::Pair(r));
    }

    pub(super) fn divide_double(&mut self, d: Word, a: Wide, b: Wide, rounding: Modifier) {
        let r = self.unguarded(|m| {
            let (x, y) = (m.in_pair(a), m.in_pair(b));
            let near = |m: &mut Self| {
                let (large, p) = (m.pred(), m.pred());
                let [out, r] = m.quotient_steps_double(Wide::Pair(x), y);
                // Compares high words as floats: the numerator and the quotient must be large enough, the divisor must
                // be a number.
                let size = |w: Word| Src { val: Val::Word(w), neg: false, abs: true };
                m.test(large, mods::cmp::GEU, size(x.plus(1)), 0x0360_0000.into(), Pred::TRUE);
                let both = m.multiply_add(Src::ZERO, y.plus(1).into(), out.plus(1).into());
                m.test(p, mods::cmp::GT, size(both), 0x0010_0000.into(), Pred::of(large));
                (m.directed(out, y, Wide::Pair(x), Wide::Pair(r), rounding), Pred::of(p).not())
            };
            let operands = Operands::quotient(x.into(), y.into());
            m.near_or(Far { function: Function::Quotient, double: true, rounding }, operands, near)
        });
        self.mov64(d, Wide::Pair(r));
    }

    /// `x / y`, and an approximation of `1 / y`.
    pub(super) fn quotient_steps_double(&mut self, x: Wide, y: Word) -> [Word; 2] {
        let (r, q) = (self.two(), self.two());
        self.mov(r, Val::Imm(1));
        self.guess_double(r, y, mods::fn_::RCP64H);
        let [r, e] = self.reciprocal_steps_double(y, r);
        let r = self.multiply_add_double((r, false), e, Wide::Pair(r));
        self.dmul(q, x, Wide::Pair(r));
        let left = self.multiply_add_double((y, true), q, x);
        [self.multiply_add_double((r, false), left, Wide::Pair(q)), r]
    }

    pub(super) fn root_double(&mut self, d: Word, a: Wide, rounding: Modifier) {
        let r = self.unguarded(|m| {
            let x = m.in_pair(a);
            let near = |m: &mut Self| {
                let (r, p) = (m.two(), m.pred());
                m.alu(iadd3(), r, [x.plus(1).into(), 0xfcb0_0000.into(), Src::ZERO], |m| m);
                m.guess_double(r, x, mods::fn_::RSQ64H);
                m.compare(p, mods::cmp::GE, false, r.into(), 0x7ca0_0000.into());
                let [out, half] = m.root_steps_double(x, r);
                (m.directed(out, out, Wide::Pair(x), Wide::Pair(half), rounding), Pred::of(p))
            };
            m.near_or(Far { function: Function::Root, double: true, rounding }, Operands::one(x.into()), near)
        });
        self.mov64(d, Wide::Pair(r));
    }

    /// The square root of a double from an estimate of `1 / sqrt(x)`, and half of a better estimate.
    pub(super) fn root_steps_double(&mut self, x: Word, r: Word) -> [Word; 2] {
        let (square, more, s, half, c) = (self.two(), self.two(), self.two(), self.two(), self.two());
        self.dmul(square, Wide::Pair(r), Wide::Pair(r));
        let e = self.multiply_add_double((square, true), x, double::ONE);
        self.dfma(c, (Wide::Pair(e), false), Wide::Imm(0.375f64.to_bits()), Wide::Imm(0.5f64.to_bits()));
        self.dmul(more, Wide::Pair(r), Wide::Pair(e));
        let r = self.multiply_add_double((c, false), more, Wide::Pair(r));
        self.dmul(s, Wide::Pair(x), Wide::Pair(r));
        self.mov(half, Val::Word(r));
        self.alu(iadd3(), half.plus(1), [r.plus(1).into(), 0xfff0_0000.into(), Src::ZERO], |m| m);
        let left = self.multiply_add_double((s, true), s, Wide::Pair(x));
        [self.multiply_add_double((left, false), half, Wide::Pair(s)), half]
    }
}

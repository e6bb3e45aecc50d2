//! Arithmetic of f64.
//!
//! Division, reciprocal and square root are correctly rounded, in each direction, where the result is a normal number; one that is denormal may be one
//! unit of the last place off. What stands here is right everywhere; `near` has the short ways.

use super::super::AsmError;
use super::super::build::{Build, Src, lop3};
use super::super::flat::Flat;
use super::super::mir::{Mach, Pred, Val, Wide, Word};
use super::float::rounding;
use crate::isa::ptx::{Opcode, Type};
use crate::isa::sass::{Form, Role, op};

/// A double with its sign.
type Signed = (Wide, bool);

const INFINITY: u64 = 0x7ff0_0000_0000_0000;

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
                self.push(m.wn("d", d, 2).m("rnd", rnd));
            }
            Opcode::Mul => {
                let m =
                    self.doubles(&[op::DMUL_R, op::DMUL_I, op::DMUL_C], &["a", "b"], &[(s[0], false), (s[1], false)]);
                self.push(m.wn("d", d, 2).m("rnd", rnd));
            }
            Opcode::Fma | Opcode::Mad => {
                let m = self.triple([(s[0], false), (s[1], false), (s[2], false)]);
                self.push(m.wn("d", d, 2).m("rnd", rnd));
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
                let r = self.unguarded(|m| m.double_seed(x, ".RCP64H"));
                self.mov64(d, Wide::Pair(r));
            }
            Opcode::Rsqrt => {
                let x = self.in_pair(s[0]);
                let ftz = i.has("ftz");
                let r = self.unguarded(|m| {
                    if ftz {
                        return m.double_seed(x, ".RSQ64H");
                    }
                    let (small, y) = m.grown(x);
                    let seed = m.double_seed(y, ".RSQ64H");
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
            () if i.has("infinite") => self.test_double(d, ".EQ", word, infinity, Pred::TRUE),
            () if i.has("finite") => self.test_double(d, ".LT", word, infinity, Pred::TRUE),
            () if i.has("notanumber") => self.test_double(d, ".NAN", word, word, Pred::TRUE),
            () if i.has("number") => self.test_double(d, ".NUM", word, word, Pred::TRUE),
            () => {
                // Zeros count as normal.
                let q = self.pred();
                self.unguarded(|b| {
                    b.test_double(p, ".LT", word, least, Pred::TRUE);
                    b.test_double(q, ".GT", word, Wide::Imm(0), Pred::of(p));
                });
                match i.has("normal") {
                    true => self.test_double(d, ".LT", word, infinity, Pred::of(q).not()),
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
        self.dfma_rounded(d, a, (b, c), "");
    }

    /// The same, rounded so.
    pub(super) fn dfma_rounded(&mut self, d: Word, a: Signed, (b, c): (Wide, Wide), rounding: &'static str) {
        let m = self.triple([a, (b, false), (c, false)]);
        self.push(m.wn("d", d, 2).m("rnd", rounding));
    }

    /// `p = a cmp b and q`.
    pub(super) fn test_double(&mut self, p: Word, cmp: &'static str, a: Wide, b: Wide, q: Pred) {
        let m = self.doubles(&DSETP, &["a", "b"], &[(a, false), (b, false)]);
        self.push(m.w("pu", p).m("cmp", cmp).p("pp", q));
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
            m.push(test.m("cmp", if larger { ".MAX" } else { ".MIN" }).p("pp", Pred::TRUE));
            m.lop(quiet, [y.plus(1).into(), 0x0008_0000.into(), Src::ZERO], 0xfc);
            m.select(high, Pred::of(first), x.plus(1).into(), y.plus(1).into());
            m.select(out, Pred::of(first), x.into(), y.into());
            m.select(out.plus(1), Pred::of(neither), quiet.into(), high.into());
        });
        if !own {
            self.mov64(d, Wide::Pair(out));
        }
    }

    /// `1 / y` correctly rounded for y from 1 to below 2. What the steps leave is, but for the largest y: there half is a tie short of it.
    fn reciprocal_of_mantissa(&mut self, y: Word) -> Word {
        let r = self.reciprocal(y);
        let largest = self.in_pair(Wide::Imm(0x3fff_ffff_ffff_ffff));
        let (p, out) = (self.pred(), self.two());
        let test = Mach::new(op::DSETP_R).w("pu", p).rn("a", y, 2).abs("a", true).rn("b", largest, 2).m("cmp", ".EQ");
        self.push(test.p("pp", Pred::TRUE));
        self.select(out, Pred::of(p), 1.into(), r.into());
        self.mov(out.plus(1), Val::Word(r.plus(1)));
        out
    }

    /// `x / y`, or `1 / y`: mantissas are divided, exponents put back by products.
    pub(super) fn far_quotient_double(&mut self, x: Option<Word>, y: Word, rounding: &'static str) -> Word {
        let one = Wide::Imm(1f64.to_bits());
        let (mx, ex) = match x {
            Some(x) => self.parts(x),
            None => (self.in_pair(one), self.in_word(Val::Imm(0))),
        };
        let (my, ey) = self.parts(y);
        let r = self.reciprocal_of_mantissa(my);
        let (q, left, near) = (self.two(), self.two(), self.two());
        self.dmul(q, Wide::Pair(mx), Wide::Pair(r));
        self.dfma(left, (Wide::Pair(my), true), Wide::Pair(q), Wide::Pair(mx));
        self.dfma(near, (Wide::Pair(left), false), Wide::Pair(r), Wide::Pair(q));
        let e = self.one();
        self.alu(super::super::build::iadd3(), e, [ex.into(), Src::from(ey).negated(), Src::ZERO], |m| m);
        let near = self.directed(near, (my, near, mx), Wide::Pair(r), rounding);
        let scaled = self.scale_double(near, e, rounding);
        // Zeros, infinities and NaN: the product with MUFU's reciprocal says it.
        let p = self.finite_and_not_zero(y, Pred::TRUE);
        let unit = self.unit(y, p);
        let (inverse, special, out) = (self.double_seed(unit, ".RCP64H"), self.two(), self.two());
        self.dmul(special, x.map_or(one, Wide::Pair), Wide::Pair(inverse));
        // MUFU does not see the low word, which alone may say that it is no number.
        let (none, known) = (self.pred(), self.two());
        self.test_double(none, ".NAN", Wide::Pair(y), Wide::Pair(y), Pred::TRUE);
        self.select64(known, Pred::of(none), Wide::Pair(y), Wide::Pair(special));
        let p = x.map_or(p, |x| self.finite_and_not_zero(x, Pred::of(p)));
        self.select64(out, Pred::of(p), Wide::Pair(scaled), Wide::Pair(known));
        out
    }

    /// What is rounded to nearest, rounded in another direction instead: the sign of what `a * b` leaves of c, made small by a factor, says where the value is.
    pub(super) fn directed(
        &mut self,
        nearest: Word,
        (a, b, c): (Word, Word, Word),
        factor: Wide,
        rounding: &'static str,
    ) -> Word {
        if rounding.is_empty() {
            return nearest;
        }
        let (left, out) = (self.two(), self.two());
        self.dfma(left, (Wide::Pair(a), true), Wide::Pair(b), Wide::Pair(c));
        self.dfma_rounded(out, (Wide::Pair(left), false), (factor, Wide::Pair(nearest)), rounding);
        out
    }

    /// One with the sign of x where p is set, else x: the high word.
    fn unit(&mut self, x: Word, p: Word) -> Word {
        let (sign, one, out) = (self.one(), self.one(), self.two());
        self.lop(sign, [x.plus(1).into(), 0x8000_0000.into(), Src::ZERO], 0xc0);
        self.lop(one, [sign.into(), 0x3ff0_0000.into(), Src::ZERO], 0xfc);
        self.select(out.plus(1), Pred::of(p), one.into(), x.plus(1).into());
        out
    }

    fn finite_and_not_zero(&mut self, x: Word, also: Pred) -> Word {
        let (p, q) = (self.pred(), self.pred());
        let m = self.doubles(&DSETP, &["a", "b"], &[(Wide::Pair(x), false), (Wide::Imm(INFINITY), false)]);
        self.push(m.w("pu", p).abs("a", true).m("cmp", ".LT").p("pp", also));
        self.push(Mach::new(op::DSETP_R).w("pu", q).rn("a", x, 2).m("cmp", ".NE").p("pp", Pred::of(p)));
        q
    }

    /// A number that is not too small for a normal one, 2^54 times as large where it was, which the predicate tells.
    fn grown(&mut self, x: Word) -> (Word, Word) {
        let (p, big, y, size) = (self.pred(), self.two(), self.two(), self.one());
        self.lop(size, [x.plus(1).into(), 0x7ff0_0000.into(), Src::ZERO], 0xc0);
        self.compare(p, ".EQ", false, size.into(), Src::ZERO);
        self.dmul(big, Wide::Pair(x), Wide::Imm(2f64.powi(54).to_bits()));
        self.select64(y, Pred::of(p), Wide::Pair(big), Wide::Pair(x));
        (p, y)
    }

    /// Mantissa with its sign, in `[1, 2)`, and exponent; of finite numbers that are not zero.
    fn parts(&mut self, x: Word) -> (Word, Word) {
        let (p, y) = self.grown(x);
        let (e, base, less) = (self.one(), self.one(), self.one());
        self.shift(e, [Src::ZERO, 20.into(), y.plus(1).into()], ".R", ".U32", true);
        self.lop(base, [e.into(), 0x7ff.into(), Src::ZERO], 0xc0);
        let by = self.one();
        let normal = self.in_word(Val::Imm(1023));
        self.select(by, Pred::of(p), (1023u32 + 54).into(), normal.into());
        self.alu(super::super::build::iadd3(), less, [base.into(), Src::from(by).negated(), Src::ZERO], |m| m);
        let m = self.two();
        self.mov(m, Val::Word(y));
        let top = self.one();
        self.lop(top, [y.plus(1).into(), 0x800f_ffff.into(), Src::ZERO], 0xc0);
        self.lop(m.plus(1), [top.into(), 0x3ff0_0000.into(), Src::ZERO], 0xfc);
        (m, less)
    }

    /// `x * 2^e` in two exact steps and one that rounds; e between -2200 and 2200.
    fn scale_double(&mut self, x: Word, e: Word, rounding: &'static str) -> Word {
        let mut x = x;
        let mut left = e;
        for step in 0..3 {
            let (part, clipped) = (self.one(), self.one());
            self.extreme(clipped, Val::Word(left), Val::Imm((-900i32).cast_unsigned()), true, true);
            self.extreme(part, Val::Word(clipped), Val::Imm(900), false, true);
            let power = self.two();
            self.mov(power, Val::Imm(0));
            let biased = self.one();
            self.alu(super::super::build::iadd3(), biased, [part.into(), 1023.into(), Src::ZERO], |m| m);
            self.shift(power.plus(1), [biased.into(), 20.into(), Src::ZERO], ".L", ".U32", false);
            let next = self.two();
            let m = Mach::new(op::DMUL_R).wn("d", next, 2).rn("a", x, 2).rn("b", power, 2);
            self.push(m.m("rnd", rounding));
            x = next;
            if step < 2 {
                let rest = self.one();
                self.alu(
                    super::super::build::iadd3(),
                    rest,
                    [left.into(), Src::from(part).negated(), Src::ZERO],
                    |m| m,
                );
                left = rest;
            }
        }
        x
    }

    pub(super) fn far_root_double(&mut self, x: Word, rounding: &'static str) -> Word {
        let (mx, e) = self.parts(x);
        // An even exponent: the mantissa may be doubled.
        let (odd, half, whole) = (self.one(), self.one(), self.one());
        self.lop(odd, [e.into(), 1.into(), Src::ZERO], 0xc0);
        self.shift(half, [Src::ZERO, 1.into(), e.into()], ".R", ".S32", true);
        self.shift(whole, [odd.into(), 20.into(), Src::ZERO], ".L", ".U32", false);
        let even = self.two();
        self.mov(even, Val::Word(mx));
        self.alu(super::super::build::iadd3(), even.plus(1), [mx.plus(1).into(), whole.into(), Src::ZERO], |m| m);
        let s = self.root(even);
        let s = self.directed(s, (s, s, even), Wide::Imm(0.125f64.to_bits()), rounding);
        let scaled = self.scale_double(s, half, rounding);
        let p = self.finite_and_not_zero(x, Pred::TRUE);
        let unit = self.unit(x, p);
        let (inverse, special, out) = (self.double_seed(unit, ".RSQ64H"), self.two(), self.two());
        self.dmul(special, Wide::Pair(x), Wide::Pair(inverse));
        let (positive, zero) = (self.pred(), self.pred());
        self.compare(positive, ".GE", true, x.plus(1).into(), Src::ZERO);
        let both = self.pred();
        self.plop(both, [Pred::of(p), Pred::of(positive), Pred::TRUE], 0xc0);
        let t = self.two();
        self.select64(t, Pred::of(both), Wide::Pair(scaled), Wide::Pair(special));
        // Zeros and positive infinity are their own roots.
        self.push(Mach::new(op::DSETP_R).w("pu", zero).rn("a", x, 2).m("cmp", ".EQ").p("pp", Pred::TRUE));
        let same = self.pred();
        let test = self.doubles(&DSETP, &["a", "b"], &[(Wide::Pair(x), false), (Wide::Imm(INFINITY), false)]);
        self.push(test.w("pu", same).m("cmp", ".EQ").m("bop", ".OR").p("pp", Pred::of(zero)));
        self.select64(out, Pred::of(same), Wide::Pair(x), Wide::Pair(t));
        out
    }

    /// Whether a form has a slot, for callers that choose by it.
    pub(super) fn has_slot(form: &'static Form, slot: &str) -> bool {
        form.position(slot, Role::Value).is_some()
    }
}

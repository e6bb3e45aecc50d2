//! Matrix multiplication with element types that the hardware does not multiply directly.
//!
//! 8-bit floats are converted to halves, which represent them exactly; 4-bit integers to bytes; the xor of bits counts
//! the bits set only in a and those set only in b; 16 rows of doubles are two times 8 rows. Lanes hold the same part of
//! the depth of both factors, so the halves of registers may be multiplied in any order. sm_120 multiplies neither bits
//! nor 8 rows of bytes: bits are converted to bytes, and 8 rows are padded to 16.
//!
//! Signed 4-bit values stay in the upper half of their bytes: each is 16 times its value, and the sum is shifted down
//! before the addend is added.

use super::build::{Build, Src, iadd3};
use crate::ptx::Type;
use crate::sass::compile::AsmError;
use crate::sass::compile::mir::{Mach, Val, Word};
use crate::sass::compile::read::flat::{Flat, Opd};
use crate::sass::{Modifier, SmArch, mods, op};

/// The registers of A, B and C; without C, zeros are added.
struct Factors {
    a: Vec<Word>,
    b: Vec<Word>,
    c: Option<Word>,
}

/// Consecutive words of a register: one operand of a multiplication.
#[derive(Clone, Copy)]
struct Tuple {
    first: Word,
    words: u8,
}

impl Tuple {
    fn new(first: Word, words: u8) -> Tuple {
        Tuple { first, words }
    }
}

impl Build<'_> {
    fn factors(&mut self, i: &Flat, out: u8) -> Result<Factors, AsmError> {
        let mut words = |o: &Opd| -> Result<Vec<Word>, AsmError> {
            let Opd::Vector(v) = o else { return self.no(i, "a fragment is expected") };
            v.iter().map(|o| self.src(i, o, Type::B32).map(|v| self.in_word(v))).collect()
        };
        let (a, b) = (words(&i.opds[1])?, words(&i.opds[2])?);
        let c = if self.is_zero(&i.opds[3]) { None } else { self.stored(i, &i.opds[3], Type::B32, out)? };
        Ok(Factors { a, b, c })
    }

    /// Whether a fragment contains only zeros.
    pub(super) fn is_zero(&self, o: &Opd) -> bool {
        matches!(o, Opd::Vector(v) if v.iter().all(|o| self.constant_of(o) == Some(0)))
    }

    /// `to = a b + c`.
    fn multiply_words(&mut self, m: Mach, to: Tuple, [a, b]: [Tuple; 2], c: Option<Word>) {
        let m = m.wn("d", to.first, to.words).rn("a", a.first, a.words).rn("b", b.first, b.words);
        self.push(
            match c {
                Some(c) => m.rn("c", c, to.words),
                None => m,
            }
            .effect(),
        );
    }

    /// Registers of a fragment, as one operand.
    fn gathered(&mut self, words: &[Word]) -> Tuple {
        let to = match words.len() {
            1 => return Tuple::new(words[0], 1),
            2 => self.two(),
            _ => self.four(),
        };
        words.iter().zip(0..).for_each(|(w, k)| self.mov(to.plus(k), Val::Word(*w)));
        Tuple::new(to, words.len() as u8)
    }

    /// e4m3 and e5m2: 16 of the depth at a time, as halves.
    pub(super) fn multiply_eights(&mut self, i: &Flat, types: [Type; 3]) -> Result<(), AsmError> {
        let [d_ty, a_ty, b_ty] = types;
        let out = if d_ty == Type::F16 { 2 } else { 4 };
        let Factors { a, b, mut c } = self.factors(i, out)?;
        let (d, copies) = self.fragment_dest(i, &i.opds[0], out)?;
        if a.len() != 2 * b.len() || !matches!(b.len(), 1 | 2) {
            return self.no(i, "matrices of this shape and type are not assembled");
        }
        for (k, b) in b.iter().enumerate() {
            let (x, y) = (self.four(), self.two());
            for high in 0..2u8 {
                self.unpack_eight(x.plus(2 * high), a[2 * k], a_ty, high);
                self.unpack_eight(x.plus(2 * high + 1), a[2 * k + 1], a_ty, high);
                self.unpack_eight(y.plus(high), *b, b_ty, high);
            }
            let to = if 2 * k + 2 == a.len() { d } else { self.code_tuple(out) };
            let dt = if d_ty == Type::F16 { mods::dt::F16 } else { mods::dt::F32 };
            let m = Mach::new(op::HMMA_D).m(mods::sh::_16816).m(dt).m(mods::st::NONE);
            self.multiply_words(m, Tuple::new(to, out), [Tuple::new(x, 4), Tuple::new(y, 2)], c);
            c = Some(to);
        }
        self.copy_out(i, copies, d)
    }

    fn code_tuple(&mut self, words: u8) -> Word {
        match words {
            1 => self.one(),
            2 => self.two(),
            _ => self.four(),
        }
    }

    fn unpack_eight(&mut self, d: Word, from: Word, ty: Type, high: u8) {
        let st = if ty == Type::E4m3 { mods::st::E4M3 } else { mods::st::E5M2 };
        let m = Mach::new(op::F2FP_UNPACK_B_R).m(mods::dt::F16).m(st).half("b", u64::from(high));
        self.push(m.w("d", d).r("b", from));
    }

    /// Four bits: 32 of the depth at a time, as bytes.
    pub(super) fn multiply_nibbles(&mut self, i: &Flat, types: [Type; 2], rows: usize) -> Result<(), AsmError> {
        let out = if rows == 8 { 2 } else { 4 };
        let Factors { a, b, c } = self.factors(i, out)?;
        if a.len() != rows / 8 * b.len() {
            return self.no(i, "matrices of this shape and type are not assembled");
        }
        let scale = types.iter().map(|t| if t.is_signed() { 4 } else { 0 }).sum::<u32>();
        let at = |t: Type| if t.is_signed() { mods::at::S8 } else { mods::at::U8 };
        let bt = |t: Type| if t.is_signed() { mods::bt::S8 } else { mods::bt::U8 };
        let (d, copies) = self.fragment_dest(i, &i.opds[0], out)?;
        let mut parts = vec![];
        for (k, b) in b.iter().enumerate() {
            let halves = |m: &mut Self, w: Word, ty: Type| [m.nibbles(w, ty, false), m.nibbles(w, ty, true)];
            let y = halves(self, *b, types[1]);
            if rows == 8 {
                let x = halves(self, a[k], types[0]);
                parts.extend([([x[0]].to_vec(), [y[0]].to_vec()), ([x[1]].to_vec(), [y[1]].to_vec())]);
            } else {
                let (x, z) = (halves(self, a[2 * k], types[0]), halves(self, a[2 * k + 1], types[0]));
                parts.push((vec![x[0], z[0], x[1], z[1]], y.to_vec()));
            }
        }
        let mut sum = c.filter(|_| scale == 0);
        let last = parts.len() - 1;
        for (k, (x, y)) in parts.into_iter().enumerate() {
            let (x, y) = (self.gathered(&x), self.gathered(&y));
            let to = if k == last && scale == 0 { d } else { self.code_tuple(out) };
            let m = Mach::new(op::IMMA_D).m(at(types[0])).m(bt(types[1]));
            let m = if i.has("satfinite") && scale == 0 { m.m(mods::sat::SAT) } else { m };
            self.multiply_bytes(m, Tuple::new(to, out), [x, y], sum);
            sum = Some(to);
        }
        if let Some(sum) = sum.filter(|_| scale > 0) {
            self.scaled_sum(i, Tuple::new(d, out), sum, scale, c)?;
        }
        self.copy_out(i, copies, d)
    }

    /// Multiplies bytes: 8 rows and a depth of 16 if the sum has two words, otherwise 16 rows and 32.
    fn multiply_bytes(&mut self, m: Mach, to: Tuple, [a, b]: [Tuple; 2], c: Option<Word>) {
        if to.words == 4 {
            return self.multiply_words(m.m(mods::sh::_16832), to, [a, b], c);
        }
        if self.chip != SmArch::Sm120 {
            return self.multiply_words(m.m(mods::sh::_8816), to, [a, b], c);
        }
        // It multiplies 16 rows; the missing ones are zeros.
        let (x, all) = (self.two(), self.four());
        self.mov(x, Val::Word(a.first));
        self.mov(x.plus(1), Val::Imm(0));
        let sum = c.map(|c| {
            let wide = self.four();
            (0..4).for_each(|k| self.mov(wide.plus(k), if k < 2 { Val::Word(c.plus(k)) } else { Val::Imm(0) }));
            wide
        });
        self.multiply_words(m.m(mods::sh::_16816), Tuple::new(all, 4), [Tuple::new(x, 2), b], sum);
        (0..2).for_each(|k| self.mov(to.first.plus(k), Val::Word(all.plus(k))));
    }

    /// A multiply of 8 rows of bytes in the text.
    pub(super) fn multiply_eight_rows(&mut self, i: &Flat, m: Mach) -> Result<(), AsmError> {
        let Factors { a, b, c } = self.factors(i, 2)?;
        let ([a], [b]) = (&a[..], &b[..]) else { return self.no(i, "this number of registers is not assembled") };
        let (d, copies) = self.fragment_dest(i, &i.opds[0], 2)?;
        self.multiply_bytes(m, Tuple::new(d, 2), [Tuple::new(*a, 1), Tuple::new(*b, 1)], c);
        self.copy_out(i, copies, d)
    }

    /// `d = c + (sum >> scale)`.
    fn scaled_sum(&mut self, i: &Flat, d: Tuple, sum: Word, scale: u32, c: Option<Word>) -> Result<(), AsmError> {
        // The addend's registers may be those of the result.
        let parts: Vec<Word> = (0..d.words).map(|_| self.one()).collect();
        for (k, t) in (0..).zip(&parts) {
            self.shift(*t, [Src::ZERO, scale.into(), sum.plus(k).into()], mods::dir::R, mods::ty::S32, true);
        }
        for (k, t) in (0..).zip(parts) {
            let d = d.first.plus(k);
            match c {
                None => self.mov(d, Val::Word(t)),
                Some(c) if i.has("satfinite") => {
                    self.saturated(i, d, [Val::Word(c.plus(k)), Val::Word(t)], false)?;
                }
                Some(c) => self.alu(iadd3(), d, [c.plus(k).into(), t.into(), Src::ZERO], |m| m),
            }
        }
        Ok(())
    }

    /// Every second four bits of a word as bytes; of signed ones 16 times the value.
    fn nibbles(&mut self, w: Word, ty: Type, high: bool) -> Word {
        let (t, d) = (self.one(), self.one());
        let signed = ty.is_signed();
        let moved = match (signed, high) {
            (true, true) | (false, false) => w,
            (true, false) => {
                self.shift(t, [w.into(), 4.into(), Src::ZERO], mods::dir::L, mods::ty::U32, false);
                t
            }
            (false, true) => {
                self.shift(t, [Src::ZERO, 4.into(), w.into()], mods::dir::R, mods::ty::U32, true);
                t
            }
        };
        let mask: u32 = if signed { 0xf0f0_f0f0 } else { 0x0f0f_0f0f };
        self.lop(d, [moved.into(), mask.into(), Src::ZERO], 0xc0);
        d
    }

    /// Counts the bits set in both, or in exactly one of the two.
    pub(super) fn multiply_bits(&mut self, i: &Flat, sh: Modifier) -> Result<(), AsmError> {
        let out = if sh == mods::sh::_88128 { 2 } else { 4 };
        let Factors { a, b, c } = self.factors(i, out)?;
        if a.len() != usize::from(out / 2) * b.len() {
            return self.no(i, "this number of registers is not assembled");
        }
        let (d, copies) = self.fragment_dest(i, &i.opds[0], out)?;
        if !i.has("xor") {
            self.count_bits(sh, Tuple::new(d, out), [&a, &b], c);
            return self.copy_out(i, copies, d);
        }
        let inverted = |m: &mut Self, w: &[Word]| -> Vec<Word> {
            w.iter()
                .map(|w| {
                    let t = m.one();
                    m.lop(t, [(*w).into(), Src::ZERO, Src::ZERO], 0x0f);
                    t
                })
                .collect()
        };
        let (not_a, not_b) = (inverted(self, &a), inverted(self, &b));
        let first = self.code_tuple(out);
        self.count_bits(sh, Tuple::new(first, out), [&a, &not_b], c);
        self.count_bits(sh, Tuple::new(d, out), [&not_a, &b], Some(first));
        self.copy_out(i, copies, d)
    }

    /// `to = c +` the number of bits set in both.
    fn count_bits(&mut self, sh: Modifier, to: Tuple, [a, b]: [&[Word]; 2], c: Option<Word>) {
        if self.chip != SmArch::Sm120 {
            let m = Mach::new(op::BMMA_D).m(sh).m(mods::op::AND_POPC);
            let (x, y) = (self.gathered(a), self.gathered(b));
            return self.multiply_words(m, to, [x, y], c);
        }
        // Every eighth bit of a word gives four bytes of the depth, in both factors.
        let rows = usize::from(to.words / 2);
        let parts = b.len() * 8 / rows;
        let mut sum = c;
        for part in 0..parts {
            let (word, bit) = (part * rows / 8, (part * rows % 8) as u32);
            let next = if part + 1 == parts { to.first } else { self.code_tuple(to.words) };
            let mut x = vec![];
            let mut y = vec![];
            for bit in bit..bit + rows as u32 {
                x.extend(a[word * rows..][..rows].iter().map(|w| self.every_eighth(*w, bit)));
                y.push(self.every_eighth(b[word], bit));
            }
            let (x, y) = (self.gathered(&x), self.gathered(&y));
            let m = Mach::new(op::IMMA_D).m(mods::at::U8).m(mods::bt::U8);
            self.multiply_bytes(m, Tuple::new(next, to.words), [x, y], sum);
            sum = Some(next);
        }
    }

    /// One bit from each byte of a word.
    fn every_eighth(&mut self, w: Word, bit: u32) -> Word {
        let (t, d) = (self.one(), self.one());
        self.shift(t, [Src::ZERO, bit.into(), w.into()], mods::dir::R, mods::ty::U32, true);
        self.lop(d, [t.into(), 0x0101_0101.into(), Src::ZERO], 0xc0);
        d
    }

    /// Doubles, of 8 rows and 4 of the depth at a time.
    pub(super) fn multiply_doubles_of(&mut self, i: &Flat) -> Result<(), AsmError> {
        let [Opd::Vector(d), Opd::Vector(a), Opd::Vector(b), Opd::Vector(c)] = &*i.opds else {
            return self.no(i, "fragments are expected");
        };
        let halves = d.len() / 2;
        if halves == 0 || d.len() != c.len() || a.len() != halves * b.len() {
            return self.no(i, "matrices of this shape and type are not assembled");
        }
        let mut pairs = |o: &[Opd]| -> Result<Vec<Word>, AsmError> {
            o.iter().map(|o| self.wide(i, o, Type::F64).map(|v| self.in_pair(v))).collect()
        };
        let (a, b) = (pairs(a)?, pairs(b)?);
        let mut sums = vec![];
        for half in 0..halves {
            let part = Opd::Vector(&c[2 * half..2 * half + 2]);
            let mut sum = if self.is_zero(&part) { None } else { self.stored(i, &part, Type::F64, 4)? };
            for (k, b) in b.iter().enumerate() {
                let to = self.four();
                let m = Mach::new(op::DMMA_D).m(mods::sh::_8X8X4);
                let factors = [a[halves * k + half], *b].map(|w| Tuple::new(w, 2));
                self.multiply_words(m, Tuple::new(to, 4), factors, sum);
                sum = Some(to);
            }
            sums.extend(sum);
        }
        for (k, o) in d.iter().enumerate() {
            let d = self.dest(i, o)?;
            self.mov64(d, crate::sass::compile::mir::Wide::Pair(sums[k / 2].plus(2 * (k % 2) as u8)));
        }
        Ok(())
    }
}

//! Integers, bits, moves and predicates as nodes: each as the function of the same instruction in `integer`, `logic`,
//! `wide` and `memory` computes it.

use super::super::lower::name;
use super::super::operand::{Dst, Fields, In, Src};
use super::state::{Bool, State};
use crate::translate::LANES;
use doorbell_uop::{DType, Op, Scalar, UOp};

/// Adds an instruction; None where it has no nodes, and then nothing was written.
pub(super) fn add(s: &mut State, f: Fields) -> Option<()> {
    let form = f.0.form();
    match name(f) {
        "MOV" | "SEL" | "ISETP" | "IMNMX" if is_wide(f) => None,
        "IADD" => sum_of_two(s, f),
        "IADD3" if !form.name.starts_with("64") => iadd3(s, f),
        "IMAD" if form.name.starts_with("WIDE") => imad_wide(s, f, false),
        "IMAD" if form.name.starts_with("HI") => imad_wide(s, f, true),
        "IMAD" => imad(s, f),
        "LEA" => lea(s, f),
        "ISETP" => isetp(s, f),
        "IABS" => {
            let v = s.int(&f.src("b").ok()?)?;
            let negative = signed(&v).lt(&signed(&s.word(0)));
            let r = negative.select(&s.word(0).binary(Op::Sub, &v), &v);
            s.write(f.dst().ok()?, r)
        }
        "VIADD" => viadd(s, f),
        "IMNMX" | "VIMNMX" => minmax(s, f),
        "LOP3" => lop3(s, f),
        "SHF" => shf(s, f),
        "PRMT" => prmt(s, f),
        "MOV" if f.0.get("mask", doorbell_ptx::sass::Role::Value).is_none_or(|m| m == 15) => {
            let v = s.int(&f.src("b").ok()?)?;
            s.write(f.dst().ok()?, v)
        }
        "SEL" => {
            let p = s.predicate(f.psrc("pp"))?;
            let (a, b) = (s.raw(&f.src("a").ok()?)?, s.raw(&f.src("b").ok()?)?);
            s.write(f.dst().ok()?, p.pick(a, b))
        }
        "PLOP3" if !matches!(form.name, "R" | "U" | "C") => plop3(s, f),
        "LDC" | "LDCU" | "ULDC" => constant(s, f),
        _ => None,
    }
}

/// Whether it is one of sm_120's instructions on 64 bits.
fn is_wide(f: Fields) -> bool {
    let form = f.0.form();
    f.has("w") || form.name == "I64" || form.name.ends_with("64") || f.text("sg").ends_with("64")
}

/// The same bits as a signed integer.
pub(super) fn signed(v: &UOp) -> UOp {
    v.bitcast(v.dtype().with_scalar(Scalar::I32))
}

fn unsigned(v: &UOp) -> UOp {
    v.bitcast(v.dtype().with_scalar(Scalar::U32))
}

fn complement(s: &State, v: &UOp) -> UOp {
    v.binary(Op::Xor, &s.word(u32::MAX))
}

fn is_zero(i: &In) -> bool {
    matches!(i.src, Src::R(255) | Src::U(255) | Src::Imm(0, _))
}

/// 1 where it is true.
fn one_where(s: &State, b: &Bool) -> UOp {
    b.pick(s.word(1), s.word(0))
}

/// A sum with what it carries out: terms, and whether one is added to it.
fn sum(s: &State, terms: &[UOp], ones: &[Bool]) -> (UOp, Bool) {
    let mut total = terms.first().cloned().unwrap_or_else(|| s.word(0));
    let mut carry = Bool::All(false);
    for term in &terms[1.min(terms.len())..] {
        total = total.binary(Op::Add, term);
        carry = carry.or(Bool::Lanes(total.lt(term)));
    }
    for one in ones.iter().filter(|one| !matches!(one, Bool::All(false))) {
        total = total.binary(Op::Add, &one_where(s, one));
        carry = carry.or(Bool::Lanes(total.equal(&s.word(0))).and(one.clone()));
    }
    (total, carry)
}

/// Terms of a sum: what is negated is complemented, and one more is added unless carries are.
fn terms(s: &mut State, sources: &[In], x: bool) -> Option<(Vec<UOp>, Vec<Bool>)> {
    let (mut all, mut ones) = (Vec::new(), Vec::new());
    for i in sources {
        if is_zero(i) && !i.neg {
            continue;
        }
        let raw = s.raw(i)?;
        all.push(if i.neg { complement(s, &raw) } else { raw });
        if i.neg && !x {
            ones.push(Bool::All(true));
        }
    }
    Some((all, ones))
}

fn iadd3(s: &mut State, f: Fields) -> Option<()> {
    let (d, pu, pv) = (f.dst().ok()?, f.pdst("pu"), f.pdst("pv"));
    let sources = [f.src("a").ok()?, f.src("b").ok()?, f.src("c").ok()?];
    let x = f.has("x");
    if pv.index != 7 {
        return None;
    }
    if !x && pu.index == 7 {
        let [a, b, c] = &sources;
        let (a, b, c) = (s.int(a)?, s.int(b)?, s.int(c)?);
        let zero = s.word(0);
        let all = [a, b, c].into_iter().filter(|v| *v != zero).reduce(|x, y| x.binary(Op::Add, &y));
        return s.write(d, all.unwrap_or(zero));
    }
    let (p, q) = if x { (s.predicate(f.psrc("pp"))?, s.predicate(f.psrc("pq"))?) } else { no_carries() };
    let (all, mut ones) = terms(s, &sources, x)?;
    ones.extend([p, q]);
    let (total, carry) = sum(s, &all, &ones);
    s.write(d, total)?;
    s.set_predicate(pu, carry)
}

fn no_carries() -> (Bool, Bool) {
    (Bool::All(false), Bool::All(false))
}

/// IADD of 32 bits.
fn sum_of_two(s: &mut State, f: Fields) -> Option<()> {
    if f.has("w") {
        return None;
    }
    let (d, x) = (f.dst().ok()?, f.has("x"));
    let (all, mut ones) = terms(s, &[f.src("a").ok()?, f.src("b").ok()?], x)?;
    if x {
        ones.push(s.predicate(f.psrc("pp"))?);
    }
    let (total, carry) = sum(s, &all, &ones);
    s.write(d, total)?;
    s.set_predicate(f.pdst("pu"), carry)
}

fn imad(s: &mut State, f: Fields) -> Option<()> {
    let (a, b, c) = (f.src("a").ok()?, f.src("b").ok()?, f.src("c").ok()?);
    if f.has("x") {
        let p = s.predicate(f.psrc("pp"))?;
        let (a, b, raw) = (s.raw(&a)?, s.raw(&b)?, s.raw(&c)?);
        let addend = if c.neg { complement(s, &raw) } else { raw };
        let r = a.binary(Op::Mul, &b).binary(Op::Add, &addend).binary(Op::Add, &one_where(s, &p));
        return s.write(f.dst().ok()?, r);
    }
    let product = match (is_zero(&a) || is_zero(&b), b.src) {
        (true, _) => None,
        (_, Src::Imm(1, _)) if !b.neg && !b.not => Some(s.int(&a)?),
        (_, Src::Imm(n, _)) if n.is_power_of_two() && !b.neg && !b.not => {
            Some(s.int(&a)?.binary(Op::Shl, &s.word(n.trailing_zeros())))
        }
        _ => Some(s.int(&a)?.binary(Op::Mul, &s.int(&b)?)),
    };
    let r = match (product, is_zero(&c)) {
        (None, _) => s.int(&c)?,
        (Some(product), true) => product,
        (Some(product), false) => product.binary(Op::Add, &s.int(&c)?),
    };
    s.write(f.dst().ok()?, r)
}

/// A word in 64 bits, extended with its sign or with zeros.
pub(super) fn widened(v: &UOp, sign: bool) -> UOp {
    let lanes = v.dtype().lanes;
    match sign {
        true => signed(v).cast(DType::I64.vec(lanes)).bitcast(DType::U64.vec(lanes)),
        false => v.cast(DType::U64.vec(lanes)),
    }
}

fn low(v: &UOp) -> UOp {
    v.cast(DType::U32.vec(v.dtype().lanes))
}

fn high(v: &UOp) -> UOp {
    low(&v.binary(Op::Shr, &UOp::constant(v.dtype(), 32i64)))
}

pub(super) fn joined([low, high]: &[UOp; 2]) -> UOp {
    let wide = widened(high, false);
    let up = wide.binary(Op::Shl, &UOp::constant(wide.dtype(), 32i64));
    up.or(&widened(low, false))
}

fn imad_wide(s: &mut State, f: Fields, take_high: bool) -> Option<()> {
    let (d, a, b, c) = (f.dst().ok()?, f.src("a").ok()?, f.src("b").ok()?, f.src("c").ok()?);
    let sign = f.bits("sg") == 1;
    if f.has("x") || f.pdst("pu").index != 7 {
        return None;
    }
    let (a, b) = (widened(&s.raw(&a)?, sign), widened(&s.raw(&b)?, sign));
    let product = a.binary(Op::Mul, &b);
    let r = match is_zero(&c) && !matches!(c.src, Src::Imm(..)) {
        true => product,
        false => product.binary(if c.neg { Op::Sub } else { Op::Add }, &joined(&s.raw_pair(&c)?)),
    };
    match take_high {
        true => s.write(d, high(&r)),
        false => s.write_pair(d, [low(&r), high(&r)]),
    }
}

fn lea(s: &mut State, f: Fields) -> Option<()> {
    let (d, pu, a, b) = (f.dst().ok()?, f.pdst("pu"), f.src("a").ok()?, f.src("b").ok()?);
    let (hi, x, sx) = (f.has("hi"), f.has("x"), f.has("sx"));
    let shift = f.bits("sh") as u32 & 31;
    let av = s.raw(&a)?;
    let up = |s: &State, v: &UOp| if shift == 0 { v.clone() } else { v.binary(Op::Shl, &s.word(shift)) };
    let shifted = match (hi, sx) {
        (false, _) => up(s, &av),
        (true, true) => {
            let by = if shift == 0 { 31 } else { 32 - shift };
            unsigned(&signed(&av).binary(Op::Shr, &signed(&s.word(by))))
        }
        (true, false) => {
            let top = s.raw(&In { neg: false, ..f.src_or_zero("c").ok()? })?;
            match shift {
                0 => top,
                _ => up(s, &top).or(&av.binary(Op::Shr, &s.word(32 - shift))),
            }
        }
    };
    let bv = s.raw(&b)?;
    let p = if x { s.predicate(f.psrc("pp"))? } else { Bool::All(false) };
    let side = |s: &State, v: UOp, neg: bool| if neg { complement(s, &v) } else { v };
    let all = [side(s, shifted, a.neg), side(s, bv, b.neg)];
    let one = |neg: bool| Bool::All(neg && !x);
    let (total, carry) = sum(s, &all, &[one(a.neg), one(b.neg), p]);
    s.write(d, total)?;
    s.set_predicate(pu, carry)
}

/// Where a compare is true: a bit of the code for less, equal, greater and unordered.
pub(super) fn compared(code: u64, less: UOp, equal: UOp, greater: UOp) -> Bool {
    if code & 8 != 0 {
        return compared(code ^ 15, less, equal, greater).not();
    }
    let when = |bit: u64, lanes: UOp| if code & bit != 0 { Bool::Lanes(lanes) } else { Bool::All(false) };
    when(1, less).or(when(2, equal)).or(when(4, greater))
}

/// Writes both predicates of a compare.
pub(super) fn set_compared(s: &mut State, f: Fields, result: Bool) -> Option<()> {
    let with = s.predicate(f.psrc("pp"))?;
    let bop = f.bits("bop");
    let combine = |r: Bool| match bop {
        0 => r.and(with.clone()),
        1 => r.or(with.clone()),
        _ => r.xor(with.clone()),
    };
    let (yes, no) = (combine(result.clone()), combine(result.not()));
    s.set_predicate(f.pdst("pu"), yes)?;
    s.set_predicate(f.pdst("pv"), no)
}

fn isetp(s: &mut State, f: Fields) -> Option<()> {
    let (a, b, code) = (s.raw(&f.src("a").ok()?)?, s.raw(&f.src("b").ok()?)?, f.bits("cmp"));
    let extended = f.has("x") && !matches!(code, 0 | 7);
    let low = s.predicate(f.psrc("pq"))?;
    let (x, y) = if f.bits("sg") == 1 { (signed(&a), signed(&b)) } else { (a.clone(), b.clone()) };
    let equal = a.equal(&b);
    // Integers are never unordered.
    let held = match code & 7 {
        0 => Bool::All(false),
        1 => Bool::Lanes(x.lt(&y)),
        2 => Bool::Lanes(equal.clone()),
        3 => Bool::Lanes(y.lt(&x)).not(),
        4 => Bool::Lanes(y.lt(&x)),
        5 => Bool::Lanes(equal.clone()).not(),
        6 => Bool::Lanes(x.lt(&y)).not(),
        _ => Bool::All(true),
    };
    let equal = Bool::Lanes(equal);
    let result = if extended { held.and(equal.clone().not()).or(low.and(equal)) } else { held };
    set_compared(s, f, result)
}

fn viadd(s: &mut State, f: Fields) -> Option<()> {
    if f.has("is") || matches!(f.text("h"), ".16x2" | ".U8x4" | ".S8x4") {
        return None;
    }
    let (a, b) = (s.int(&f.src("a").ok()?)?, s.int(&f.src("b").ok()?)?);
    s.write(f.dst().ok()?, a.binary(Op::Add, &b))
}

fn minmax(s: &mut State, f: Fields) -> Option<()> {
    let kind = if name(f) == "IMNMX" { f.bits("sg") } else { f.bits("ty") };
    if kind > 1 || f.has("relu") {
        return None;
    }
    let (a, b, min) = (s.int(&f.src("a").ok()?)?, s.int(&f.src("b").ok()?)?, s.predicate(f.psrc("pp"))?);
    let less = if kind == 1 { signed(&a).lt(&signed(&b)) } else { a.lt(&b) };
    let (least, most) = (less.select(&a, &b), less.select(&b, &a));
    s.write(f.dst().ok()?, min.pick(least, most))
}

/// A truth table of three words: bit `4a + 2b + c`.
fn table(s: &State, lut: u32, [a, b, c]: [&UOp; 3]) -> UOp {
    let not = |v: &UOp| complement(s, v);
    match lut & 0xff {
        0x00 => s.word(0),
        0xff => s.word(u32::MAX),
        0xf0 => a.clone(),
        0xcc => b.clone(),
        0xaa => c.clone(),
        0xc0 => a.and(b),
        0xfc => a.or(b),
        0x3c => a.binary(Op::Xor, b),
        0x0c => not(a).and(b),
        0x30 => a.and(&not(b)),
        0x0f => not(a),
        0x33 => not(b),
        0x55 => not(c),
        0x80 => a.and(b).and(c),
        0xfe => a.or(b).or(c),
        0x96 => a.binary(Op::Xor, b).binary(Op::Xor, c),
        0xf8 => a.or(&b.and(c)),
        0xea => a.and(b).or(c),
        0xe2 => a.and(b).or(&c.and(&not(b))),
        0xb8 => a.and(&not(b)).or(&b.and(c)),
        0xca => a.and(b).or(&not(a).and(c)),
        lut if lut.count_ones() > 4 => not(&terms_of(s, !lut & 0xff, [a, b, c])),
        lut => terms_of(s, lut, [a, b, c]),
    }
}

/// A truth table as a sum of its ones.
fn terms_of(s: &State, lut: u32, [a, b, c]: [&UOp; 3]) -> UOp {
    let side = |v: &UOp, k: u32, bit: u32| if k & bit == 0 { complement(s, v) } else { v.clone() };
    let term = |k: u32| side(a, k, 4).and(&side(b, k, 2)).and(&side(c, k, 1));
    let ones = (0..8).filter(|k| lut >> k & 1 == 1).map(term);
    ones.reduce(|x, y| x.or(&y)).unwrap_or_else(|| s.word(0))
}

fn lop3(s: &mut State, f: Fields) -> Option<()> {
    let (a, b, c) = (s.raw(&f.src("a").ok()?)?, s.raw(&f.src("b").ok()?)?, s.raw(&f.src("c").ok()?)?);
    let r = table(s, f.bits("lut") as u32, [&a, &b, &c]);
    let pu = f.pdst("pu");
    let with = s.predicate(f.psrc("pp"))?;
    let d = f.dst().ok()?;
    let some = Bool::Lanes(r.ne(&s.word(0)));
    s.write(d, r)?;
    s.set_predicate(pu, if f.has("pand") { some.and(with) } else { some.or(with) })
}

fn shf(s: &mut State, f: Fields) -> Option<()> {
    let kind = f.text("ty");
    let (right, wrap, hi) = (f.text("dir") == ".R", f.has("w"), f.has("hi"));
    let (bits, sign) = (if kind.ends_with("64") { 64 } else { 32 }, kind.starts_with(".S"));
    let (a, b, c) = (f.src("a").ok()?, f.src("b").ok()?, f.src("c").ok()?);
    let (av, cv) = (s.int(&a)?, s.int(&c)?);
    let d = f.dst().ok()?;
    if let (Src::Imm(by, _), false, false) = (b.src, b.neg, b.not) {
        let by = if wrap { by & (bits - 1) } else { by.min(bits) };
        let r = fixed_shift(s, (right, hi, sign), by, [&av, &cv])?;
        return s.write(d, r);
    }
    let by = s.int(&b)?;
    let most = s.word(31);
    let (by, beyond) = match wrap && bits == 32 {
        true => (by.and(&most), Bool::All(false)),
        false if bits == 32 => (by.clone(), Bool::Lanes(most.lt(&by))),
        false => return None,
    };
    let r = match (right, hi) {
        (true, true) if sign => {
            let by = beyond.pick(most, by);
            unsigned(&signed(&cv).binary(Op::Shr, &signed(&by)))
        }
        (true, true) => beyond.pick(s.word(0), cv.binary(Op::Shr, &by)),
        (false, false) => beyond.pick(s.word(0), av.binary(Op::Shl, &by)),
        _ => {
            let pair = joined(&[av, cv]);
            let by = if matches!(beyond, Bool::All(_)) { by } else { beyond.pick(s.word(32), by) };
            let by = widened(&by, false);
            let pair = match (right, sign) {
                (true, true) => {
                    let wide = pair.dtype().with_scalar(Scalar::I64);
                    pair.bitcast(wide).binary(Op::Shr, &by.bitcast(wide)).bitcast(pair.dtype())
                }
                (true, false) => pair.binary(Op::Shr, &by),
                (false, _) => pair.binary(Op::Shl, &by),
            };
            if hi { high(&pair) } else { low(&pair) }
        }
    };
    s.write(d, r)
}

/// A word of the pair `c:a` shifted by a known distance.
fn fixed_shift(s: &State, (right, hi, sign): (bool, bool, bool), by: u32, [a, c]: [&UOp; 2]) -> Option<UOp> {
    let up = |v: &UOp, by: u32| v.binary(Op::Shl, &s.word(by));
    let down = |v: &UOp, by: u32| match sign {
        true => unsigned(&signed(v).binary(Op::Shr, &signed(&s.word(by.min(31))))),
        false if by > 31 => s.word(0),
        false => v.binary(Op::Shr, &s.word(by)),
    };
    let plain_down = |v: &UOp, by: u32| v.binary(Op::Shr, &s.word(by));
    Some(match (right, hi, by) {
        (_, _, 64..) => return None,
        (true, true, _) => down(c, by),
        (true, false, 0) | (false, false, 0) => a.clone(),
        (false, true, 0) => c.clone(),
        (true, false, 1..32) => plain_down(a, by).or(&up(c, 32 - by)),
        (true, false, _) => down(c, by - 32),
        (false, false, 1..32) => up(a, by),
        (false, false, _) => s.word(0),
        (false, true, 1..32) => up(c, by).or(&plain_down(a, 32 - by)),
        (false, true, 32) => a.clone(),
        (false, true, _) => up(a, by - 32),
    })
}

fn prmt(s: &mut State, f: Fields) -> Option<()> {
    let (a, b, c) = (f.src("a").ok()?, f.src("b").ok()?, f.src("c").ok()?);
    let (0, Src::Imm(selectors, _)) = (f.bits("md"), b.src) else { return None };
    let (av, cv) = (s.raw(&a)?, s.raw(&c)?);
    let d = f.dst().ok()?;
    let whole = match selectors & 0xffff {
        0x3210 => Some(av.clone()),
        0x7654 => Some(cv.clone()),
        0x5410 => Some(av.and(&s.word(0xffff)).or(&cv.binary(Op::Shl, &s.word(16)))),
        0x7632 => Some(av.binary(Op::Shr, &s.word(16)).or(&cv.and(&s.word(0xffff_0000)))),
        _ => None,
    };
    if let Some(whole) = whole {
        return s.write(d, whole);
    }
    let mut r: Option<UOp> = None;
    for k in 0..4 {
        let selector = selectors >> (4 * k) & 15;
        let (from, shift) = (if selector & 4 == 0 { &av } else { &cv }, 8 * (selector & 3));
        let value = match selector & 8 == 0 {
            true => from.binary(Op::Shr, &s.word(shift)).and(&s.word(0xff)),
            false => {
                let top = signed(&from.binary(Op::Shl, &s.word(24 - shift)));
                unsigned(&top.binary(Op::Shr, &signed(&s.word(31)))).and(&s.word(0xff))
            }
        };
        let value = value.binary(Op::Shl, &s.word(8 * k));
        r = Some(r.map_or_else(|| value.clone(), |r| r.or(&value)));
    }
    s.write(d, r?)
}

fn plop3(s: &mut State, f: Fields) -> Option<()> {
    let of = |s: &mut State, slot: &str| s.predicate(f.psrc(slot));
    let (a, b, c) = (of(s, "pa")?, of(s, "pb")?, of(s, "pc")?);
    let table = |lut: u64| {
        let side = |v: &Bool, k: u32, bit: u32| if k & bit == 0 { v.clone().not() } else { v.clone() };
        let term = |k: u32| side(&a, k, 4).and(side(&b, k, 2)).and(side(&c, k, 1));
        (0..8).filter(|k| lut >> k & 1 == 1).map(term).fold(Bool::All(false), Bool::or)
    };
    let (first, second) = (table(f.bits("lut")), table(f.bits("lut2")));
    s.set_predicate(f.pdst("pu"), first)?;
    s.set_predicate(f.pdst("pv"), second)
}

/// A constant of 4 or 8 bytes at a fixed place.
fn constant(s: &mut State, f: Fields) -> Option<()> {
    use doorbell_ptx::sass::Value;
    let Some(Value::Constant { bank, index: None, offset }) = f.0.operand("c").map(|o| o.value) else { return None };
    let (d, offset) = (f.dst().ok()?, offset & 0xffff);
    if !f.text("md").is_empty() || matches!(d, Dst::R(_)) && s.lanes != LANES {
        return None;
    }
    match f.text("sz") {
        "" | ".32" => {
            let word = s.constant(bank, offset)?;
            s.write(d, word)
        }
        ".64" => {
            let words = [s.constant(bank, offset)?, s.constant(bank, offset + 4)?];
            s.write_pair(d, words)
        }
        _ => None,
    }
}

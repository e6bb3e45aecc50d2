//! Integer arithmetic: sums with carries, products, address sums, compares, minima, dot products.

use super::core::{Core, How, mask, zip, zip3};
use super::fault::{R, not_modelled};
use super::lower::{Run, binary, name, ternary, unary};
use super::operand::{Fields, In};
use super::warp::Lanes;
use std::cmp::Ordering;

pub(super) fn lower(f: Fields) -> R<Option<Run>> {
    Ok(Some(match name(f) {
        "IADD3" if f.0.form().name.starts_with("64") => iadd64(f)?,
        "IADD3" => iadd3(f)?,
        "IMAD" if f.0.form().name.starts_with("WIDE") => imad_wide(f, false)?,
        "IMAD" if f.0.form().name.starts_with("HI") => imad_wide(f, true)?,
        "IMAD" => imad(f)?,
        "LEA" => lea(f)?,
        "ISETP" => isetp(f)?,
        "IABS" => unary(f.dst()?, f.src("b")?, |b| b.cast_signed().unsigned_abs()),
        "VABSDIFF" => vabsdiff(f)?,
        "VABSDIFF4" => vabsdiff4(f)?,
        "VIADD" => viadd(f)?,
        "IMNMX" | "VIMNMX" | "VIMNMX3" | "VIADDMNMX" => minmax(f)?,
        "IDP" => dot(f)?,
        _ => return Ok(None),
    }))
}

/// A term of a sum of 64 bits: negation is complement plus one, and with carries in only the complement.
fn term(v: u32, neg: bool, carries: bool) -> u64 {
    u64::from(if neg { !v } else { v }) + u64::from(neg && !carries)
}

fn bit(mask: u32, lane: usize) -> u64 {
    u64::from(mask & 1 << lane != 0)
}

fn iadd3(f: Fields) -> R<Run> {
    let (d, pu, pv) = (f.dst()?, f.pdst("pu"), f.pdst("pv"));
    let (a, b, e) = (f.src("a")?, f.src("b")?, f.src("c")?);
    let (x, pp, pq) = (f.has("x"), f.psrc("pp"), f.psrc("pq"));
    if !x && pu.index == 7 && pv.index == 7 {
        return Ok(ternary(d, (a, b, e), |a, b, c| a.wrapping_add(b).wrapping_add(c)));
    }
    Ok(Box::new(move |c| {
        let (p, q) = if x { (c.pred(pp), c.pred(pq)) } else { (0, 0) };
        let [av, bv, ev] = c.sources(How::Raw, [&a, &b, &e])?;
        let sums: [u64; 32] = std::array::from_fn(|lane| {
            let sum = term(av[lane], a.neg, x) + term(bv[lane], b.neg, x) + term(ev[lane], e.neg, x);
            sum + bit(p, lane) + bit(q, lane)
        });
        let carries = sums.map(|sum| (sum >> 32) as u32);
        c.write(d, &sums.map(|sum| sum as u32));
        c.set_pred(pu, mask(|lane| carries[lane] >= 1));
        c.set_pred(pv, mask(|lane| carries[lane] >= 2));
        Ok(())
    }))
}

/// UIADD3.64; an immediate is extended with its sign.
fn iadd64(f: Fields) -> R<Run> {
    let (d, pu, x, pp) = (f.dst()?, f.pdst("pu"), f.has("x"), f.psrc("pp"));
    let sources = [f.src("a")?, f.src("b")?, f.src("c")?];
    let immediate = f.0.form().name.ends_with('I');
    Ok(Box::new(move |c| {
        let mut sum = if x { u128::from(c.pred(pp) & 1) } else { 0 };
        for (k, s) in sources.iter().enumerate() {
            let v = match immediate && k == 1 {
                true => i64::from(c.raw(s)?[0].cast_signed()).cast_unsigned(),
                false => c.raw_pairs(s)?[0],
            };
            sum += u128::from(if s.neg { !v } else { v }) + u128::from(s.neg && !x);
        }
        c.write_pairs(d, &[sum as u64; 32]);
        c.set_pred(pu, if sum >> 64 == 0 { 0 } else { u32::MAX });
        Ok(())
    }))
}

fn imad(f: Fields) -> R<Run> {
    let (d, a, b, e) = (f.dst()?, f.src("a")?, f.src("b")?, f.src("c")?);
    let (x, pp) = (f.has("x"), f.psrc("pp"));
    if !x {
        return Ok(ternary(d, (a, b, e), |a, b, c| a.wrapping_mul(b).wrapping_add(c)));
    }
    Ok(Box::new(move |c| {
        let p = c.pred(pp);
        let [a, b, addend] = c.sources(How::Raw, [&a, &b, &e])?;
        let r = zip3(a, b, addend, |a, b, c| a.wrapping_mul(b).wrapping_add(if e.neg { !c } else { c }));
        let r: Lanes = std::array::from_fn(|lane| r[lane].wrapping_add(p >> lane & 1));
        c.write(d, &r);
        Ok(())
    }))
}

fn product(c: &mut Core, a: &In, b: &In, signed: bool) -> R<[u64; 32]> {
    let [a, b] = c.sources(How::Raw, [a, b])?;
    Ok(match signed {
        true => zip(a, b, |a, b| (i64::from(a.cast_signed()) * i64::from(b.cast_signed())).cast_unsigned()),
        false => zip(a, b, |a, b| u64::from(a) * u64::from(b)),
    })
}

/// The 64-bit product plus a pair: all of it, or its high word.
fn imad_wide(f: Fields, high: bool) -> R<Run> {
    let (d, pu, a, b, e) = (f.dst()?, f.pdst("pu"), f.src("a")?, f.src("b")?, f.src("c")?);
    let (x, pp, signed) = (f.has("x"), f.psrc("pp"), f.bits("sg") == 1);
    if !x && pu.index == 7 {
        return Ok(Box::new(move |c| {
            let addend = c.raw_pairs(&e)?;
            let product = product(c, &a, &b, signed)?;
            let r = match e.neg {
                true => zip(&product, &addend, u64::wrapping_sub),
                false => zip(&product, &addend, u64::wrapping_add),
            };
            match high {
                true => c.write(d, &r.map(|v| (v >> 32) as u32)),
                false => c.write_pairs(d, &r),
            }
            Ok(())
        }));
    }
    Ok(Box::new(move |c| {
        let p = if x { c.pred(pp) } else { 0 };
        let product = product(c, &a, &b, signed)?;
        let addend = c.raw_pairs(&e)?;
        let (mut r, mut carry) = ([0u64; 32], 0);
        for lane in 0..32 {
            let add = u128::from(if e.neg { !addend[lane] } else { addend[lane] }) + u128::from(e.neg && !x);
            let sum = u128::from(product[lane]) + add + u128::from(bit(p, lane));
            r[lane] = sum as u64;
            carry |= u32::from(sum >> 64 != 0) << lane;
        }
        match high {
            true => c.write(d, &r.map(|v| (v >> 32) as u32)),
            false => c.write_pairs(d, &r),
        }
        c.set_pred(pu, carry);
        Ok(())
    }))
}

/// A shifted value, or the high word of a shifted pair, plus another.
fn lea(f: Fields) -> R<Run> {
    let (d, pu, a, b) = (f.dst()?, f.pdst("pu"), f.src("a")?, f.src("b")?);
    let (hi, x, sx, pp) = (f.has("hi"), f.has("x"), f.has("sx"), f.psrc("pp"));
    let upper = if hi && !sx { f.src_or_zero("c")? } else { In { neg: false, ..a } };
    let shift = f.bits("sh") as u32 & 31;
    Ok(Box::new(move |c| {
        let p = if x { c.pred(pp) } else { 0 };
        let [av, bv, cv] = c.sources(How::Raw, [&a, &b, &upper])?;
        let shifted: Lanes = match (hi, sx) {
            (false, _) => av.map(|a| a << shift),
            (true, true) => av.map(|a| ((i64::from(a.cast_signed()) << shift) >> 32) as u32),
            (true, false) => zip(av, cv, |a, top| ((u64::from(top) << 32 | u64::from(a)) << shift >> 32) as u32),
        };
        if !x && pu.index == 7 {
            let r = match (a.neg, b.neg) {
                (false, false) => zip(&shifted, bv, u32::wrapping_add),
                (true, false) => zip(&shifted, bv, |s, b| b.wrapping_sub(s)),
                (false, true) => zip(&shifted, bv, u32::wrapping_sub),
                (true, true) => zip(&shifted, bv, |s, b| s.wrapping_add(b).wrapping_neg()),
            };
            c.write(d, &r);
            return Ok(());
        }
        let sums: [u64; 32] =
            std::array::from_fn(|lane| term(shifted[lane], a.neg, x) + term(bv[lane], b.neg, x) + bit(p, lane));
        c.write(d, &sums.map(|sum| sum as u32));
        c.set_pred(pu, mask(|lane| sums[lane] >> 32 != 0));
        Ok(())
    }))
}

/// Bits of a compare code: less, equal, greater, unordered.
pub(super) fn holds(code: u64, order: Option<Ordering>) -> bool {
    let bit = match order {
        Some(Ordering::Less) => 1,
        Some(Ordering::Equal) => 2,
        Some(Ordering::Greater) => 4,
        None => 8,
    };
    code & bit != 0
}

/// The lanes where a compare is true, of those that are less, equal and greater; the others are unordered.
pub(super) fn held(code: u64, less: u32, equal: u32, greater: u32) -> u32 {
    let when = |bit: u64, lanes: u32| if code & bit != 0 { lanes } else { 0 };
    when(1, less) | when(2, equal) | when(4, greater) | when(8, !(less | equal | greater))
}

/// Both predicates of a compare: the result and its complement, each combined with `pp`.
pub(super) fn set_compared(c: &mut Core, f: &Compared, result: u32) {
    let with = c.pred(f.pp);
    let combine = |r: u32| match f.bop {
        0 => r & with,
        1 => r | with,
        _ => r ^ with,
    };
    let (yes, no) = (combine(result), combine(!result));
    c.set_pred(f.pu, yes);
    c.set_pred(f.pv, no);
}

/// Destination of a compare's result, and the predicate that it is combined with.
#[derive(Clone, Copy)]
pub(super) struct Compared {
    pub pu: super::operand::PDst,
    pub pv: super::operand::PDst,
    pub pp: super::operand::PSrc,
    pub bop: u64,
}

impl Compared {
    pub(crate) fn of(f: Fields) -> Self {
        Self { pu: f.pdst("pu"), pv: f.pdst("pv"), pp: f.psrc("pp"), bop: f.bits("bop") }
    }
}

fn isetp(f: Fields) -> R<Run> {
    let (a, b, to, code) = (f.src("a")?, f.src("b")?, Compared::of(f), f.bits("cmp"));
    let (signed, extended, pq) = (f.bits("sg") == 1, f.has("x"), f.psrc("pq"));
    Ok(Box::new(move |c| {
        let low = c.pred(pq);
        let [a, b] = c.sources(How::Raw, [&a, &b])?;
        let less = match signed {
            true => mask(|lane| a[lane].cast_signed() < b[lane].cast_signed()),
            false => mask(|lane| a[lane] < b[lane]),
        };
        let equal = mask(|lane| a[lane] == b[lane]);
        let held = held(code, less, equal, !(less | equal));
        // The high words decide unless they are equal.
        let result = if extended && !matches!(code, 0 | 7) { held & !equal | low & equal } else { held };
        set_compared(c, &to, result);
        Ok(())
    }))
}

/// A sum of two: of words, of halves, of bytes; with saturation of signed words.
fn viadd(f: Fields) -> R<Run> {
    let (d, a, b) = (f.dst()?, f.src("a")?, f.src("b")?);
    let kind = f.text("h");
    if f.has("is") {
        let (na, nb) = (a.neg, b.neg);
        if kind != ".S32" {
            return not_modelled(format!("VIADD{kind}.ISAT"));
        }
        let (a, b) = (In { neg: false, ..a }, In { neg: false, ..b });
        let signed = |v: u32, neg: bool| if neg { -i64::from(v.cast_signed()) } else { i64::from(v.cast_signed()) };
        return Ok(binary(d, a, b, move |a, b| {
            let sum = signed(a, na) + signed(b, nb);
            (sum.clamp(i32::MIN.into(), i32::MAX.into()) as i32).cast_unsigned()
        }));
    }
    // Each part is negated by itself.
    let (na, nb) = (a.neg, b.neg);
    let (a, b) = (In { neg: false, ..a }, In { neg: false, ..b });
    let signed = |v: u32, neg: bool| if neg { v.wrapping_neg() } else { v };
    let part = move |a: u32, b: u32| signed(a, na).wrapping_add(signed(b, nb));
    Ok(match kind {
        ".16x2" => {
            let half = move |a: u16, b: u16| part(a.into(), b.into()) as u16;
            binary(d, a, b, move |a, b| halves(a, b, half))
        }
        ".U8x4" | ".S8x4" => binary(d, a, b, move |a, b| bytes(a, b, |a, b| part(a.into(), b.into()) as u8)),
        _ => binary(d, a, b, part),
    })
}

fn vabsdiff(f: Fields) -> R<Run> {
    let signed = f.bits("sg") == 1;
    Ok(ternary(f.dst()?, (f.src("a")?, f.src("b")?, f.src("c")?), move |a, b, c| {
        let difference = match signed {
            true => a.cast_signed().abs_diff(b.cast_signed()),
            false => a.abs_diff(b),
        };
        difference.wrapping_add(c)
    }))
}

/// Differences of bytes, or with ACC their sum and a third source.
fn vabsdiff4(f: Fields) -> R<Run> {
    let (signed, sums) = (f.text("sg").is_empty(), f.has("acc"));
    Ok(ternary(f.dst()?, (f.src("a")?, f.src("b")?, f.src("c")?), move |a, b, c| {
        let difference = |k: u32| {
            let (a, b) = ((a >> (8 * k)) as u8, (b >> (8 * k)) as u8);
            u32::from(if signed { a.cast_signed().abs_diff(b.cast_signed()) } else { a.abs_diff(b) })
        };
        match sums {
            true => (0..4).fold(c, |sum, k| sum.wrapping_add(difference(k))),
            false => (0..4).fold(0, |word, k| word | difference(k) << (8 * k)),
        }
    }))
}

/// An operation on both halves of a word.
pub(super) fn halves(a: u32, b: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
    u32::from(f(a as u16, b as u16)) | u32::from(f((a >> 16) as u16, (b >> 16) as u16)) << 16
}

/// An operation on the four bytes of a word.
fn bytes(a: u32, b: u32, f: impl Fn(u8, u8) -> u8) -> u32 {
    let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
    u32::from_le_bytes(std::array::from_fn(|k| f(a[k], b[k])))
}

#[derive(Clone, Copy)]
enum Type {
    U32,
    S32,
    U16x2,
    S16x2,
    U8x4,
    S8x4,
}

/// By their numbers.
const TYPES: [Type; 6] = [Type::U32, Type::S32, Type::U16x2, Type::S16x2, Type::U8x4, Type::S8x4];

impl Type {
    fn extreme(self, min: bool, a: u32, b: u32) -> u32 {
        match self {
            Type::U32 if min => a.min(b),
            Type::U32 => a.max(b),
            Type::S32 if min => a.cast_signed().min(b.cast_signed()).cast_unsigned(),
            Type::S32 => a.cast_signed().max(b.cast_signed()).cast_unsigned(),
            Type::U16x2 => halves(a, b, |a, b| if min { a.min(b) } else { a.max(b) }),
            Type::S16x2 => halves(a, b, |a, b| {
                let (a, b) = (a.cast_signed(), b.cast_signed());
                (if min { a.min(b) } else { a.max(b) }).cast_unsigned()
            }),
            Type::U8x4 => bytes(a, b, |a, b| if min { a.min(b) } else { a.max(b) }),
            Type::S8x4 => bytes(a, b, |a, b| {
                let (a, b) = (a.cast_signed(), b.cast_signed());
                (if min { a.min(b) } else { a.max(b) }).cast_unsigned()
            }),
        }
    }

    fn sum(self, a: u32, b: u32) -> u32 {
        match self {
            Type::U32 | Type::S32 => a.wrapping_add(b),
            Type::U16x2 | Type::S16x2 => halves(a, b, u16::wrapping_add),
            Type::U8x4 | Type::S8x4 => bytes(a, b, u8::wrapping_add),
        }
    }
}

/// Minimum where the predicate is true, maximum where it is false; of two, of three, of a sum and another.
fn minmax(f: Fields) -> R<Run> {
    let (d, a, b) = (f.dst()?, f.src("a")?, f.src("b")?);
    let (pp, relu, mnemonic) = (f.psrc("pp"), f.has("relu"), name(f));
    // Before sm_90 the field is a sign.
    let kind = if mnemonic == "IMNMX" { f.bits("sg") } else { f.bits("ty") };
    let Some(kind) = TYPES.get(kind as usize).copied() else {
        return not_modelled(format!("{mnemonic} of type {kind}"));
    };
    let (sums, third) = (mnemonic == "VIADDMNMX", !matches!(mnemonic, "VIMNMX" | "IMNMX"));
    let e = if third { f.src("c")? } else { b };
    Ok(Box::new(move |c| {
        let (av, bv, ev) = (c.ints(&a)?, c.ints(&b)?, c.ints(&e)?);
        let p = c.pred(pp);
        let r: Lanes = std::array::from_fn(|lane| {
            let min = p >> lane & 1 == 1;
            let r = match (sums, third) {
                (true, _) => kind.extreme(min, kind.sum(av[lane], bv[lane]), ev[lane]),
                (_, true) => kind.extreme(min, kind.extreme(min, av[lane], bv[lane]), ev[lane]),
                _ => kind.extreme(min, av[lane], bv[lane]),
            };
            if relu { kind.extreme(false, r, 0) } else { r }
        });
        c.write(d, &r);
        Ok(())
    }))
}

/// Sum of four products of bytes, or of two products of a half and a byte.
fn dot(f: Fields) -> R<Run> {
    let (signed_a, signed_b) = (f.bits("at") == 1, f.bits("bt") == 1);
    let part = |v: u32, bits: u32, k: u32, signed: bool| {
        let v = (v >> (bits * k)) << (32 - bits);
        if signed { v.cast_signed() >> (32 - bits) } else { (v >> (32 - bits)).cast_signed() }
    };
    let mode = f.text("md");
    Ok(ternary(f.dst()?, (f.src("a")?, f.src("b")?, f.src("c")?), move |a, b, c| {
        let product = |k: u32| match mode {
            ".4A" => part(a, 8, k, signed_a).wrapping_mul(part(b, 8, k, signed_b)),
            ".2A.LO" => part(a, 16, k, signed_a).wrapping_mul(part(b, 8, k, signed_b)),
            _ => part(a, 16, k, signed_a).wrapping_mul(part(b, 8, k + 2, signed_b)),
        };
        let count = if mode == ".4A" { 4 } else { 2 };
        (0..count).fold(c, |sum, k| sum.wrapping_add(product(k).cast_unsigned()))
    }))
}

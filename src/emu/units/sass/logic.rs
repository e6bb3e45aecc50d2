//! Bits: logic by truth table, funnel shifts, bytes, moves, selections, predicates.

use super::core::{How, mask, zip, zip3};
use super::fault::{R, not_modelled};
use super::lower::{Run, binary, name, ternary, unary};
use super::operand::{Fields, Src};
use super::warp::Lanes;

pub(super) fn lower(f: Fields) -> R<Option<Run>> {
    Ok(Some(match name(f) {
        "LOP3" => lop3(f)?,
        "SHF" => shf(f)?,
        "SGXT" => sgxt(f)?,
        "BMSK" => bmsk(f)?,
        "PRMT" => prmt(f)?,
        "MOV" if f.0.get("mask", doorbell_ptx::sass::Role::Value).is_some_and(|m| m != 15) => {
            return not_modelled("MOV with a mask of bytes");
        }
        "MOV" if f.0.form().name == "SPILL" => return not_modelled("MOV.SPILL"),
        "MOV" => unary(f.dst()?, f.src("b")?, |b| b),
        "SEL" => select(f)?,
        "POPC" => unary(f.dst()?, f.src("b")?, u32::count_ones),
        "BREV" => unary(f.dst()?, f.src("b")?, u32::reverse_bits),
        "FLO" => flo(f)?,
        "PLOP3" => plop3(f)?,
        "P2R" | "UP2UR" => p2r(f)?,
        "R2P" | "UR2UP" => r2p(f)?,
        _ => return Ok(None),
    }))
}

/// A truth table of three inputs: bit `4a + 2b + c`.
fn table(lut: u32, a: u32, b: u32, c: u32) -> u32 {
    (0..8).filter(|k| lut >> k & 1 == 1).fold(0, |all, k| {
        let pick = |v: u32, bit: u32| if k & bit == 0 { !v } else { v };
        all | pick(a, 4) & pick(b, 2) & pick(c, 1)
    })
}

/// The same for all lanes.
fn table_of_lanes(lut: u32, a: &Lanes, b: &Lanes, c: &Lanes) -> Lanes {
    match lut {
        0xc0 => return zip(a, b, |a, b| a & b),
        0xfc => return zip(a, b, |a, b| a | b),
        0x3c => return zip(a, b, |a, b| a ^ b),
        0x0c => return zip(a, b, |a, b| !a & b),
        0x33 => return b.map(|b| !b),
        0x96 => return zip3(a, b, c, |a, b, c| a ^ b ^ c),
        0xf8 => return zip3(a, b, c, |a, b, c| a | b & c),
        0xe2 => return zip3(a, b, c, |a, b, c| a & b | c & !b),
        _ => {}
    }
    // Of the ones or of the zeros, whichever are fewer.
    let (terms, flip) = if (lut & 0xff).count_ones() > 4 { (!lut & 0xff, u32::MAX) } else { (lut & 0xff, 0) };
    let mut r = [flip; 32];
    for k in (0..8).filter(|k| terms >> k & 1 == 1) {
        let not = |bit: u32| if k & bit == 0 { u32::MAX } else { 0 };
        let (x, y, z) = (not(4), not(2), not(1));
        for lane in 0..32 {
            r[lane] ^= (a[lane] ^ x) & (b[lane] ^ y) & (c[lane] ^ z);
        }
    }
    r
}

fn lop3(f: Fields) -> R<Run> {
    let (d, pu, a, b, e) = (f.dst()?, f.pdst("pu"), f.src("a")?, f.src("b")?, f.src("c")?);
    let (lut, and, pp) = (f.bits("lut") as u32, f.has("pand"), f.psrc("pp"));
    Ok(Box::new(move |c| {
        let [a, b, e] = c.sources(How::Raw, [&a, &b, &e])?;
        let r = table_of_lanes(lut, a, b, e);
        c.write(d, &r);
        if pu.index != 7 {
            let (some, with) = (mask(|lane| r[lane] != 0), c.pred(pp));
            c.set_pred(pu, if and { some & with } else { some | with });
        }
        Ok(())
    }))
}

/// How a pair is shifted.
#[derive(Clone, Copy)]
struct Shift {
    right: bool,
    wrap: bool,
    hi: bool,
    bits: u32,
    signed: bool,
}

impl Shift {
    #[inline(always)]
    fn of(self, low: u32, high: u32, by: u32) -> u32 {
        let by = if self.wrap { by & (self.bits - 1) } else { by.min(self.bits) };
        let pair = u64::from(high) << 32 | u64::from(low);
        let shifted = match (self.right, self.signed) {
            (true, true) => (pair.cast_signed() >> by.min(63)).cast_unsigned(),
            (true, false) => pair.checked_shr(by).unwrap_or(0),
            (false, _) => pair.checked_shl(by).unwrap_or(0),
        };
        if self.hi { (shifted >> 32) as u32 } else { shifted as u32 }
    }

    /// All lanes by the same distance, less than 64.
    fn all(self, low: &Lanes, high: &Lanes, by: u32) -> Lanes {
        let pair = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        match (self.right, self.signed, self.hi) {
            (true, true, true) => zip(low, high, |l, h| (pair(l, h).cast_signed() >> by >> 32) as u32),
            (true, true, false) => zip(low, high, |l, h| (pair(l, h).cast_signed() >> by) as u32),
            (true, false, true) => zip(low, high, |l, h| (pair(l, h) >> by >> 32) as u32),
            (true, false, false) => zip(low, high, |l, h| (pair(l, h) >> by) as u32),
            (false, _, true) => zip(low, high, |l, h| (pair(l, h) << by >> 32) as u32),
            (false, _, false) if by < 32 => low.map(|l| l << by),
            (false, _, false) => [0; 32],
        }
    }
}

/// One word of the pair `c:a` shifted by `b`.
fn shf(f: Fields) -> R<Run> {
    let kind = f.text("ty");
    let shift = Shift {
        right: f.text("dir") == ".R",
        wrap: f.has("w"),
        hi: f.has("hi"),
        bits: if kind.ends_with("64") { 64 } else { 32 },
        signed: kind.starts_with(".S"),
    };
    let (d, a, b, e) = (f.dst()?, f.src("a")?, f.src("b")?, f.src("c")?);
    let same = !matches!(b.src, Src::R(_));
    Ok(Box::new(move |c| {
        let [a, b, e] = c.sources(How::Int, [&a, &b, &e])?;
        let by = if shift.wrap { b[0] & (shift.bits - 1) } else { b[0].min(shift.bits) };
        let r = match same && by < 64 {
            true => shift.all(a, e, by),
            false => zip3(a, b, e, |a, b, e| shift.of(a, e, b)),
        };
        c.write(d, &r);
        Ok(())
    }))
}

/// Extends the lowest `b` bits.
fn sgxt(f: Fields) -> R<Run> {
    let (wrap, signed) = (f.has("w"), f.bits("sg") == 1);
    Ok(binary(f.dst()?, f.src("a")?, f.src("b")?, move |a, b| {
        let width = if wrap { b & 31 } else { b };
        match width {
            0 => 0,
            32.. => a,
            _ if signed => (a << (32 - width)).cast_signed().wrapping_shr(32 - width).cast_unsigned(),
            _ => a << (32 - width) >> (32 - width),
        }
    }))
}

/// `b` ones from bit `a`.
fn bmsk(f: Fields) -> R<Run> {
    let wrap = f.has("w");
    Ok(binary(f.dst()?, f.src("a")?, f.src("b")?, move |a, b| {
        let (start, width) = if wrap { (a & 31, b & 31) } else { (a.min(32), b.min(32)) };
        let ones = 1u64.wrapping_shl(width).wrapping_sub(1);
        (ones << start) as u32
    }))
}

/// Byte `k` of the pair `c:a`.
fn byte(a: u32, c: u32, k: u32) -> u32 {
    (u64::from(c) << 32 | u64::from(a)).wrapping_shr(8 * (k & 7)) as u32 & 0xff
}

/// Bytes of `c:a` picked by selectors in `b`, or by one of the modes.
fn prmt(f: Fields) -> R<Run> {
    let mode = f.bits("md");
    let (d, a, b, e) = (f.dst()?, f.src("a")?, f.src("b")?, f.src("c")?);
    if let (0, Src::Imm(selectors, _)) = (mode, b.src) {
        return Ok(Box::new(move |c| {
            let [a, e] = c.sources(How::Raw, [&a, &e])?;
            let mut r = [0; 32];
            for k in 0..4 {
                let selector = selectors >> (4 * k) & 15;
                let (from, shift) = (if selector & 4 == 0 { a } else { e }, 8 * (selector & 3));
                for (r, v) in r.iter_mut().zip(from) {
                    let sign = (v >> shift >> 7 & 1).wrapping_neg() & 0xff;
                    let value = if selector & 8 == 0 { v >> shift & 0xff } else { sign };
                    *r |= value << (8 * k);
                }
            }
            c.write(d, &r);
            Ok(())
        }));
    }
    Ok(ternary(d, (a, b, e), move |a, b, c| {
        let n = b & 3;
        (0..4).fold(0, |word, k| {
            let value = match mode {
                0 => {
                    let selector = b >> (4 * k) & 15;
                    let value = byte(a, c, selector & 7);
                    if selector & 8 == 0 { value } else { (value >> 7) * 0xff }
                }
                1 => byte(a, c, n + k),
                2 => byte(a, c, n.wrapping_sub(k)),
                3 => byte(a, c, n),
                4 => byte(a, c, n.max(k)),
                5 => byte(a, c, n.min(k)),
                _ => byte(a, c, 2 * (n & 1) + (k & 1)),
            };
            word | value << (8 * k)
        })
    }))
}

fn select(f: Fields) -> R<Run> {
    let (d, a, b, pp) = (f.dst()?, f.src("a")?, f.src("b")?, f.psrc("pp"));
    Ok(Box::new(move |c| {
        let p = c.pred(pp);
        let [a, b] = c.sources(How::Raw, [&a, &b])?;
        let r: Lanes = std::array::from_fn(|lane| if p & 1 << lane != 0 { a[lane] } else { b[lane] });
        c.write(d, &r);
        Ok(())
    }))
}

/// Place of the highest one, or of the highest bit that differs from the sign; all ones where there is none.
fn flo(f: Fields) -> R<Run> {
    let (d, pu, b) = (f.dst()?, f.pdst("pu"), f.src("b")?);
    let (signed, shift) = (f.bits("sg") == 1, f.has("sh"));
    Ok(Box::new(move |c| {
        let bv = c.ints(&b)?;
        let r = bv.map(|v| {
            let v = if signed && v >> 31 == 1 { !v } else { v };
            match (v, shift) {
                (0, _) => u32::MAX,
                (_, true) => v.leading_zeros(),
                (_, false) => 31 - v.leading_zeros(),
            }
        });
        let found = (0..32).fold(0, |mask, lane| mask | u32::from(r[lane] != u32::MAX) << lane);
        c.write(d, &r);
        c.set_pred(pu, found);
        Ok(())
    }))
}

/// Two truth tables of three predicates.
fn plop3(f: Fields) -> R<Run> {
    if matches!(f.0.form().name, "R" | "U" | "C") {
        return plop3_signs(f);
    }
    let (pu, pv) = (f.pdst("pu"), f.pdst("pv"));
    let (pa, pb, pc) = (f.psrc("pa"), f.psrc("pb"), f.psrc("pc"));
    let (first, second) = (f.bits("lut") as u32, f.bits("lut2") as u32);
    Ok(Box::new(move |c| {
        let (a, b, e) = (c.pred(pa), c.pred(pb), c.pred(pc));
        c.set_pred(pu, table(first, a, b, e));
        c.set_pred(pv, table(second, a, b, e));
        Ok(())
    }))
}

/// The same of the signs of three registers.
fn plop3_signs(f: Fields) -> R<Run> {
    let (pu, pv, a, b, e) = (f.pdst("pu"), f.pdst("pv"), f.src("a")?, f.src("b")?, f.src("c")?);
    let (first, second) = (f.bits("lut") as u32, f.bits("lut2") as u32);
    Ok(Box::new(move |c| {
        let signs = |v: Lanes| (0..32).fold(0, |all, lane| all | (v[lane] >> 31) << lane);
        let (a, b, e) = (signs(c.raw(&a)?), signs(c.raw(&b)?), signs(c.raw(&e)?));
        c.set_pred(pu, table(first, a, b, e));
        c.set_pred(pv, table(second, a, b, e));
        Ok(())
    }))
}

fn byte_shift(f: Fields) -> u32 {
    match f.text("by").strip_prefix(".B").or(f.0.operand("a").and_then(|o| o.select.strip_prefix(".B"))) {
        Some("1") => 8,
        Some("2") => 16,
        Some("3") => 24,
        _ => 0,
    }
}

/// Predicates into bits of a byte, where the mask selects them.
fn p2r(f: Fields) -> R<Run> {
    let (d, a, b, shift) = (f.dst()?, f.src("a")?, f.src("b")?, byte_shift(f));
    let uniform = f.0.form().mnemonic == "UP2UR";
    Ok(Box::new(move |c| {
        let file = if uniform { c.warp.uniform_predicates } else { c.warp.predicates };
        let bits: Lanes = std::array::from_fn(|lane| (0..7).fold(0, |all, p| all | (file[p] >> lane & 1) << p));
        let old = zip(&c.raw(&a)?, &c.raw(&b)?, |a, mask| (a & !(mask << shift), mask));
        let r = zip(&old, &bits, |(kept, mask), bits| kept | (bits & mask) << shift);
        c.write(d, &r);
        Ok(())
    }))
}

/// Bits of a byte into predicates, where the mask selects them.
fn r2p(f: Fields) -> R<Run> {
    let (a, mask, shift) = (f.src("a")?, f.bits("b"), byte_shift(f));
    let uniform = f.0.form().mnemonic == "UR2UP";
    Ok(Box::new(move |c| {
        let av = c.raw(&a)?;
        for index in (0..7).filter(|p| mask >> p & 1 == 1) {
            let values = (0..32).fold(0, |all, lane| all | (av[lane] >> (shift + u32::from(index)) & 1) << lane);
            c.set_pred(super::operand::PDst { uniform, index }, values);
        }
        Ok(())
    }))
}

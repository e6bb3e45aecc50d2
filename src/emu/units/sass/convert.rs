//! Conversions between floats and integers of all widths, one value a lane.

use super::core::Core;
use super::fault::{R, not_modelled};
use super::float::flush;
use super::lower::{Run, name, ternary, unary};
use super::operand::{Fields, In};
use super::soft::{self, BF16, F16, F32, F64, Format, Round};

pub(super) fn lower(f: Fields) -> R<Option<Run>> {
    Ok(Some(match name(f) {
        "F2F" => float_to_float(f)?,
        "FRND" => integral(f)?,
        "F2I" => float_to_integer(f)?,
        "I2F" | "I2FP" => integer_to_float(f)?,
        "I2I" => saturate(f)?,
        "I2IP" => integer_pack(f)?,
        _ => return Ok(None),
    }))
}

/// A format by the text of a modifier; single precision is not written.
fn format(text: &str) -> Option<Format> {
    Some(match text {
        ".F16" => F16,
        ".BF16" => BF16,
        ".F64" => F64,
        "" | ".F32" => F32,
        _ => return None,
    })
}

fn format_of(f: Fields, slot: &str) -> R<Format> {
    match format(f.text(slot)) {
        Some(format) => Ok(format),
        None => not_modelled(format!("{} of {}", f.0.form().mnemonic, f.text(slot))),
    }
}

/// Values of a source of any format, exactly.
fn values(c: &Core, b: &In, from: Format, ftz: bool) -> R<[f64; 32]> {
    if from == F64 {
        return c.doubles(b);
    }
    if from == F32 {
        return Ok(c.floats(b)?.map(|v| f64::from(if ftz { flush(v) } else { v })));
    }
    let shift = if matches!(b.select, ".H1" | ".H1_H1") { 16 } else { 0 };
    Ok(c.raw(b)?.map(|v| {
        let mut bits = u64::from(v >> shift & 0xffff);
        bits &= if b.abs { from.sign() - 1 } else { 0xffff };
        bits ^= if b.neg { from.sign() } else { 0 };
        soft::widen(bits, from)
    }))
}

/// Stores results of that format.
fn store(c: &mut Core, f: super::operand::Dst, to: Format, bits: &[u64; 32]) {
    if to == F64 {
        c.write_pairs(f, bits);
    } else {
        c.write(f, &bits.map(|b| b as u32));
    }
}

fn float_to_float(f: Fields) -> R<Run> {
    let (d, b, ftz) = (f.dst()?, f.src("b")?, f.has("ftz"));
    let to = format_of(f, "dt")?;
    let from = if f.0.form().name == "RH" { F16 } else { format_of(f, "st")? };
    let round = Round::of(f.text("rnd"));
    Ok(Box::new(move |c| {
        let r = values(c, &b, from, ftz)?.map(|v| match to {
            F64 => v.to_bits(),
            _ => {
                let bits = soft::narrow(v, to, round);
                if ftz && to == F32 && to.is_denormal(bits) { bits & to.sign() } else { bits }
            }
        });
        store(c, d, to, &r);
        Ok(())
    }))
}

fn integral(f: Fields) -> R<Run> {
    let (d, b, ftz) = (f.dst()?, f.src("b")?, f.has("ftz"));
    let (kind, round) = (format_of(f, "st")?, Round::of(f.text("rnd")));
    Ok(Box::new(move |c| {
        let r = values(c, &b, kind, ftz)?.map(|v| {
            let v = soft::integral(v, round);
            if kind == F64 { v.to_bits() } else { soft::narrow(v, kind, Round::Nearest) }
        });
        store(c, d, kind, &r);
        Ok(())
    }))
}

/// Width and signedness by the text of a modifier; 32 bits signed are not written.
fn integer(text: &str) -> Option<(u32, bool)> {
    Some(match text {
        ".U2" => (2, false),
        ".S2" => (2, true),
        ".U4" => (4, false),
        ".S4" => (4, true),
        ".U8" => (8, false),
        ".S8" => (8, true),
        ".U16" => (16, false),
        ".S16" => (16, true),
        ".U32" => (32, false),
        "" | ".S32" => (32, true),
        ".U64" => (64, false),
        ".S64" => (64, true),
        _ => return None,
    })
}

fn integer_of(f: Fields, slot: &str) -> R<(u32, bool)> {
    match integer(f.text(slot)) {
        Some(kind) => Ok(kind),
        None => not_modelled(format!("{} of {}", f.0.form().mnemonic, f.text(slot))),
    }
}

/// The least and the greatest value of an integer type.
fn limits((bits, signed): (u32, bool)) -> (i128, i128) {
    match signed {
        true => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
        false => (0, (1i128 << bits) - 1),
    }
}

/// The nearest value of an integer type.
fn clamp(v: i128, to: (u32, bool)) -> u64 {
    let (low, high) = limits(to);
    v.clamp(low, high) as u64
}

/// Rounds and clamps; "not a number" gives 0 with NTZ and the sign bit alone without.
fn float_to_integer(f: Fields) -> R<Run> {
    let (d, b, ftz, ntz) = (f.dst()?, f.src("b")?, f.has("ftz"), f.has("ntz"));
    let (from, to) = (format_of(f, "st")?, integer_of(f, "dt")?);
    let round = Round::of(f.text("rnd"));
    Ok(Box::new(move |c| {
        let r = values(c, &b, from, ftz)?.map(|v| match (v.is_nan(), ntz) {
            (true, true) => 0,
            (true, false) => 1 << (to.0 - 1),
            // Exact: integers of 32 bits are doubles.
            _ if to.0 <= 32 => {
                let (low, high) = limits(to);
                (soft::integral(v, round).clamp(low as f64, high as f64) as i64).cast_unsigned()
            }
            _ => clamp(soft::integral(v, round) as i128, to),
        });
        if to.0 == 64 {
            c.write_pairs(d, &r);
        } else {
            c.write(d, &r.map(|v| v as u32));
        }
        Ok(())
    }))
}

fn integer_to_float(f: Fields) -> R<Run> {
    let (d, b) = (f.dst()?, f.src("b")?);
    let (bits, signed) = integer_of(f, "st")?;
    let to = format_of(f, "dt").or_else(|e| if name(f) == "I2FP" { Ok(F32) } else { Err(e) })?;
    let round = Round::of(f.text("rnd"));
    let shift = match b.select {
        ".B1" => 8,
        ".B2" | ".H1" => 16,
        ".B3" => 24,
        _ => 0,
    };
    Ok(Box::new(move |c| {
        let raw = if bits == 64 { c.raw_pairs(&b)? } else { c.raw(&b)?.map(|v| u64::from(v >> shift)) };
        let r = raw.map(|v| {
            let up = 64 - bits;
            let v = if signed { (v << up).cast_signed() >> up } else { (v << up >> up).cast_signed() };
            if bits <= 32 {
                return soft::narrow(v as f64, to, round);
            }
            let neg = signed && v < 0;
            soft::from_integer(neg, if neg { v.unsigned_abs() } else { v.cast_unsigned() }, to, round)
        });
        store(c, d, to, &r);
        Ok(())
    }))
}

/// A 32-bit integer clamped to a narrower type.
fn saturate(f: Fields) -> R<Run> {
    let to = integer_of(f, "dt")?;
    Ok(unary(f.dst()?, f.src("b")?, move |b| clamp(i128::from(b.cast_signed()), to) as u32))
}

/// Two 32-bit integers clamped to a narrower type, below what a third word has lowest, or lowest in its high half.
fn integer_pack(f: Fields) -> R<Run> {
    let (to, sources) = (integer_of(f, "dt")?, (f.src("a")?, f.src("b")?, f.src("c")?));
    if f.text("sat") != ".SAT" {
        return not_modelled("I2IP that does not clamp to the type");
    }
    let shift = if sources.2.select == ".H1" { 16 } else { 0 };
    let part = move |v: u32| clamp(i128::from(v.cast_signed()), to) & ((1 << to.0) - 1);
    Ok(ternary(f.dst()?, sources, move |a, b, c| {
        (part(b) | part(a) << to.0 | u64::from(c >> shift) << (2 * to.0)) as u32
    }))
}

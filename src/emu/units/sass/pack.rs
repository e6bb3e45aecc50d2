//! Conversions of two values into the halves of a word, or of bytes into halves: F2FP, F2IP.

use super::core::zip3;
use super::fault::{R, not_modelled};
use super::lower::{Run, name};
use super::operand::{Fields, In, Src};
use super::soft::{self, BF16, E4M3, E5M2, F16, F32, Format, Round, TF32};
use doorbell_ptx::sass::SmArch;

pub(super) fn lower(f: Fields) -> R<Option<Run>> {
    Ok(Some(match name(f) {
        "F2FP" => float_pack(f)?,
        "F2IP" => integer_pack(f)?,
        _ => return Ok(None),
    }))
}

fn format(text: &str) -> Format {
    match text {
        ".F16" => F16,
        ".BF16" => BF16,
        ".TF32" => TF32,
        ".E5M2" => E5M2,
        ".E4M3" => E4M3,
        _ => F32,
    }
}

/// A value of a format whose largest exponent may hold finite numbers.
pub(super) fn widen(bits: u64, from: Format) -> f64 {
    if from != E4M3 {
        return soft::widen(bits, from);
    }
    let sign = if bits & 0x80 == 0 { 1.0 } else { -1.0 };
    match (bits >> 3 & 15, bits & 7) {
        (15, 7) => f64::NAN,
        (0, fraction) => sign * fraction as f64 / 512.0,
        (exponent, fraction) => sign * (1.0 + fraction as f64 / 8.0) * 2f64.powi(exponent as i32 - 7),
    }
}

/// The parts of a conversion other than rounding.
#[derive(Clone, Copy)]
struct Narrow {
    to: Format,
    round: Round,
    relu: bool,
    finite: bool,
}

impl Narrow {
    fn bits(self, v: f64) -> u64 {
        let v = if self.relu && v <= 0.0 { 0.0 } else { v };
        if self.to == E4M3 {
            return self.e4m3(v);
        }
        let bits = soft::narrow(v, self.to, self.round);
        let magnitude = bits & (self.to.sign() - 1);
        match self.finite && magnitude >= self.to.infinity() && !v.is_nan() {
            true => bits & self.to.sign() | (self.to.infinity() - 1),
            false => bits,
        }
    }

    /// The format has no infinity; 448 is its largest value.
    fn e4m3(self, v: f64) -> u64 {
        let sign = if v.is_sign_negative() && !v.is_nan() { 0x80 } else { 0 };
        let magnitude = v.abs();
        match () {
            () if v.is_nan() => 0x7f,
            () if magnitude >= 448.0 => sign | 0x7e,
            // One exponent below the range where the usual rounding applies.
            () if magnitude >= 256.0 => sign | (soft::narrow(magnitude / 2.0, E4M3, self.round) + 8).min(0x7e),
            () => sign | soft::narrow(magnitude, E4M3, self.round),
        }
    }
}

const ZERO: In = In { src: Src::R(255), neg: false, abs: false, not: false, select: "" };

fn float_pack(f: Fields) -> R<Run> {
    let form = f.0.form().name;
    let mode = form.rsplit_once('_').map_or(form, |(mode, _)| mode);
    // sm_80 and sm_86 convert from single precision alone, and do not write what is f16.
    let to = if f.0.chip() < SmArch::Sm89 && f.text("dt").is_empty() { F16 } else { format(f.text("dt")) };
    let from = format(f.text("st"));
    let narrow = Narrow { to, round: Round::of(f.text("rnd")), relu: f.has("relu"), finite: f.has("sat") };
    let (d, b) = (f.dst()?, f.src("b")?);
    let a = if mode.starts_with("PACK_AB") { f.src("a")? } else { ZERO };
    // Its low half becomes the result's high one, or the half that is selected.
    let merged = if mode.ends_with("MERGE_C") { f.src("c")? } else { ZERO };
    let half = if merged.select == ".H1" { 16 } else { 0 };
    let bytes = matches!(to, E4M3 | E5M2);
    let value = move |v: u32| if from == F32 { f64::from(f32::from_bits(v)) } else { widen(u64::from(v), from) };
    let convert: Box<dyn Fn(u32, u32) -> u32 + Send + Sync> = match (mode, bytes) {
        ("PACK_AB", false) => Box::new(move |a, b| (narrow.bits(value(b)) | narrow.bits(value(a)) << 16) as u32),
        ("PACK_AB_MERGE_C", true) => Box::new(move |a, b| (narrow.bits(value(b)) | narrow.bits(value(a)) << 8) as u32),
        ("MERGE_C", false) => Box::new(move |_, b| narrow.bits(value(b)) as u32),
        ("PACK_B", false) if to == TF32 => Box::new(move |_, b| (narrow.bits(value(b)) << 13) as u32),
        ("UNPACK_B", false) if matches!(from, E4M3 | E5M2) => {
            let shift = if b.select == ".H1" { 16 } else { 0 };
            Box::new(move |_, b| {
                let (low, high) = (b >> shift & 0xff, b >> (shift + 8) & 0xff);
                (narrow.bits(value(low)) | narrow.bits(value(high)) << 16) as u32
            })
        }
        ("UNPACK_B_MERGE_C", true) if matches!(from, F16 | BF16) => {
            Box::new(move |_, b| (narrow.bits(value(b & 0xffff)) | narrow.bits(value(b >> 16)) << 8) as u32)
        }
        _ => return not_modelled(format!("F2FP{}{}.{mode}", f.text("dt"), f.text("st"))),
    };
    Ok(Box::new(move |c| {
        let r = zip3(&c.raw(&a)?, &c.raw(&b)?, &c.raw(&merged)?, |a, b, merged| convert(a, b) | merged >> half << 16);
        c.write(d, &r);
        Ok(())
    }))
}

/// Two singles clamped to bytes, before the half of a third word that is selected.
fn integer_pack(f: Fields) -> R<Run> {
    let (d, a, b, e) = (f.dst()?, f.src("a")?, f.src("b")?, f.src("c")?);
    let (signed, round, relu) = (f.text("dt") == ".S8", Round::of(f.text("rnd")), f.has("relu"));
    let shift = if e.select == ".H1" { 16 } else { 0 };
    let byte = move |v: f32| {
        let (low, high) = if signed { (-128.0, 127.0) } else { (0.0, 255.0) };
        let v = soft::integral(f64::from(v), round);
        let v = if v.is_nan() { 0.0 } else { v.clamp(if relu { 0.0 } else { low }, high) };
        (v as i32).cast_unsigned() & 0xff
    };
    Ok(Box::new(move |c| {
        let r = zip3(&c.floats(&a)?, &c.floats(&b)?, &c.raw(&e)?, |a, b, c| {
            byte(b) | byte(a) << 8 | (c >> shift & 0xffff) << 16
        });
        c.write(d, &r);
        Ok(())
    }))
}

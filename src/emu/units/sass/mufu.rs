//! The transcendental unit.
//!
//! Results here are the exact function rounded to nearest; the chip's are within 1 to 2 units in the last place (PTX
//! ISA: maximum errors of the .approx instructions: ex2 and rcp 1 ulp, sqrt and rsqrt 2^-23 relative, lg2 2^-22.6
//! absolute in 0.5..2, sin and cos 2^-20.9 absolute in -pi..pi, tanh 2^-11 relative). Denormal sources and results are
//! zero, as compiled code expects, which scales them itself where PTX requires it. How code handles results that are
//! off by so much is tested with [`super::Options::guess_error`].

use super::fault::{R, not_modelled};
use super::float::flush;
use super::lower::Run;
use super::operand::Fields;
use super::soft::{self, BF16, F16, Format, Round};
use std::num::FpCategory;

pub(super) fn lower(f: Fields) -> R<Option<Run>> {
    if f.0.form().mnemonic != "MUFU" {
        return Ok(None);
    }
    let function = f.text("fn");
    if matches!(function, ".RCP64H" | ".RSQ64H") {
        return high_word(f, function == ".RCP64H").map(Some);
    }
    let Some(run) = approximation(function) else { return not_modelled(format!("MUFU{function}")) };
    match f.text("fmt") {
        ".F16" => half(f, F16, run).map(Some),
        ".BF16" => half(f, BF16, run).map(Some),
        _ => single(f, run).map(Some),
    }
}

type Function = fn(f64) -> f64;

/// The function; angles are in revolutions.
fn approximation(name: &str) -> Option<Function> {
    Some(match name {
        ".COS" => |x| (x * std::f64::consts::TAU).cos(),
        ".SIN" => |x| (x * std::f64::consts::TAU).sin(),
        ".EX2" => f64::exp2,
        ".LG2" => f64::log2,
        ".RCP" => |x| 1.0 / x,
        ".RSQ" => |x| if x == 0.0 { 1.0 / x } else { 1.0 / x.sqrt() },
        ".SQRT" => f64::sqrt,
        ".TANH" => f64::tanh,
        _ => return None,
    })
}

fn single(f: Fields, run: Function) -> R<Run> {
    let (d, b) = (f.dst()?, f.src("b")?);
    Ok(Box::new(move |c| {
        let off = c.machine.options.guess_error;
        let r = c.floats(&b)?.map(|v| {
            let r = run(f64::from(flush(v))) as f32;
            match r.classify() {
                FpCategory::Nan => 0x7fff_ffff,
                FpCategory::Normal => r.to_bits().wrapping_add_signed(off),
                _ => flush(r).to_bits(),
            }
        });
        c.write(d, &r);
        Ok(())
    }))
}

/// 16-bit source and result, which is in the low half.
fn half(f: Fields, format: Format, run: Function) -> R<Run> {
    let (d, b) = (f.dst()?, f.src("b")?);
    let shift = if b.select == ".H1" { 16 } else { 0 };
    Ok(Box::new(move |c| {
        let r = c.raw(&b)?.map(|v| {
            let mut bits = u64::from(v >> shift & 0xffff);
            bits &= if b.abs { format.sign() - 1 } else { 0xffff };
            bits ^= if b.neg { format.sign() } else { 0 };
            soft::narrow(run(soft::widen(bits, format)), format, Round::Nearest) as u32
        });
        c.write(d, &r);
        Ok(())
    }))
}

/// The high word of the reciprocal, or of that of the root, of a double whose high word is given.
fn high_word(f: Fields, reciprocal: bool) -> R<Run> {
    let (d, b) = (f.dst()?, f.src("b")?);
    Ok(Box::new(move |c| {
        let off = c.machine.options.guess_error;
        let r = c.floats(&b)?.map(|v| {
            let x = f64::from_bits(u64::from(v.to_bits()) << 32);
            let x = if x.is_subnormal() { 0f64.copysign(x) } else { x };
            let r = match reciprocal {
                true => 1.0 / x,
                false if x == 0.0 => 1.0 / x,
                false => 1.0 / x.sqrt(),
            };
            let r = if r.is_subnormal() { 0f64.copysign(r) } else { r };
            let high = (r.to_bits() >> 32) as u32;
            if r.is_normal() { high.wrapping_add_signed(off) } else { high }
        });
        c.write(d, &r);
        Ok(())
    }))
}

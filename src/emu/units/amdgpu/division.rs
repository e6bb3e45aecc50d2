//! Division's helpers (scale, fused step), the wide multiply-add, and stochastic rounding to fp8.
//!
//! Source: AMD's ISA documents (V_DIV_SCALE, V_DIV_FMAS). The documents write the last step's scale as a power of two
//! whose sign depends on the quotient's size; the numerator was scaled up when it is small, the denominator when it is
//! large.

use super::bus::ones;
use super::cross::Cross;
use super::fault::R;
use super::float::{Small, fma_odd, fma64, fma64_to_denormal, frexp64, ldexp64, pow2, to_f32};
use super::inst::{Inst, VCC};
use super::lanes::{Round, Ty};
use super::valu::{Fetch, Result32};
use super::wave::{Wave, half_mask};

/// Limits of one precision: bias-free exponents, the scale, and what is near the edges.
struct Precision {
    scale: i32,
    /// Quotients from here up are near the largest number.
    large: i32,
    /// Biased exponents of numerators from here down lose bits in the refinement.
    tiny: i32,
    /// Lowest exponent of a normal number.
    lowest: i32,
    bias: i32,
}

const SINGLE: Precision = Precision { scale: 64, large: 96, tiny: 23, lowest: -126, bias: 127 };
const DOUBLE: Precision = Precision { scale: 128, large: 768, tiny: 53, lowest: -1022, bias: 1023 };

/// Biased exponents of singles far from all limits.
const MODERATE: std::ops::RangeInclusive<i32> = 67..=187;

/// Biased exponent as the instruction sees it: 0 for denormals.
fn biased(v: f64, p: &Precision) -> i32 {
    if v == 0.0 {
        return 0;
    }
    if !v.is_finite() {
        return 2 * p.bias + 1;
    }
    (frexp64(v).1 - 1 + p.bias).max(0)
}

/// Scales an operand of a division so that the refinement neither overflows nor loses bits; true when the last step
/// must undo it. `a` is the operand, `d` the denominator, `n` the numerator.
fn scale(a: f64, d: f64, n: f64, p: &Precision) -> (f64, bool) {
    if n == 0.0 || d == 0.0 {
        return (f64::NAN, false);
    }
    let (ed, en) = (biased(d, p), biased(n, p));
    // A quotient's exponent is known to one; mantissas decide.
    let below = |q: f64, e: i32| q != 0.0 && (frexp64(q).1 + e - 1) < p.lowest;
    let (dm, de) = frexp64(d);
    let (nm, ne) = frexp64(n);
    let reciprocal_denormal = d.is_finite() && below(1.0 / dm, -de);
    let quotient_denormal = d.is_finite() && n.is_finite() && below(nm / dm, ne - de);
    let is = |x: f64| a.to_bits() == x.to_bits();
    let up = |on: bool| if on { ldexp64(a, p.scale) } else { a };
    if en - ed >= p.large {
        return (up(is(d)), true);
    }
    if ed == 0 {
        return (up(true), false);
    }
    match (reciprocal_denormal, quotient_denormal) {
        (true, true) => (if is(d) { ldexp64(a, -p.scale) } else { a }, true),
        (true, false) => (ldexp64(a, -p.scale), false),
        (false, true) => (up(is(n)), true),
        (false, false) => (up(en <= p.tiny), false),
    }
}

/// One half of the helpers; the mask is the scale flag or the carry.
pub(super) fn half(w: &Wave, i: &Inst, c: Cross, fetch: &Fetch, out: &mut Result32) -> R<u32> {
    let types = c.types();
    let [mut a, mut b, mut d] = [[0; 32]; 3];
    fetch.wide(0, types[0], &mut a)?;
    fetch.wide(1, types[1], &mut b)?;
    // Compilers multiply and add 32 bits with it and leave the upper half of the addend unwritten.
    match c {
        Cross::MadWide { .. } => fetch.wide_low(2, &mut d)?,
        _ => fetch.wide(2, types[2], &mut d)?,
    }
    let vcc = match c {
        Cross::DivFmas { .. } => half_mask(w.scalar_operand(super::inst::Operand::S(VCC), 255)?, fetch.h),
        _ => 0,
    };
    let mut mask = 0;
    for k in ones(half_mask(w.exec(), fetch.h).into()) {
        let k = k & 31;
        let (value, flag) = match c {
            Cross::DivScale { double } => scaled(double, [a[k], b[k], d[k]], w.mode.flush_in(Ty::F32)),
            Cross::DivFmas { double } => (fused(double, [a[k], b[k], d[k]], vcc >> k & 1 == 1, w), false),
            _ => wide_mad(matches!(c, Cross::MadWide { signed: true }), a[k] as u32, b[k] as u32, d[k], i.clamp),
        };
        mask |= u32::from(flag) << k;
        (out.lo[k], out.hi[k]) = (value as u32, (value >> 32) as u32);
    }
    Ok(mask)
}

fn single(v: u64) -> f64 {
    f32::from_bits(v as u32).into()
}

fn scaled(double: bool, v: [u64; 3], flush: bool) -> (u64, bool) {
    if double {
        let [a, d, n] = v.map(f64::from_bits);
        let (s, flag) = scale(a, d, n, &DOUBLE);
        return (s.to_bits(), flag);
    }
    // Denormal operands are scaled into range even when MODE flushes them elsewhere.
    let _ = flush;
    // Of moderate numbers nothing is scaled: neither reciprocal nor quotient is near a limit.
    let [a, d, n] = v.map(|v| v as i32 >> 23 & 255);
    if a != 255 && MODERATE.contains(&d) && MODERATE.contains(&n) && n - d < SINGLE.large {
        return (v[0] & 0xffff_ffff, false);
    }
    let [a, d, n] = v.map(single);
    let (s, flag) = scale(a, d, n, &SINGLE);
    (to_f32(s, Round::Nearest).into(), flag)
}

fn fused(double: bool, v: [u64; 3], undo: bool, w: &Wave) -> u64 {
    if double {
        let [a, b, c] = v.map(f64::from_bits);
        if !undo {
            return fma64(a, b, c, w.mode.round64()).to_bits();
        }
        let e = if biased(c, &DOUBLE) > 1023 { 128 } else { -128 };
        let nearest = fma64(a, b, c, w.mode.round64());
        // A denormal result is rounded once, with what the nearest one left.
        let denormal = nearest != 0.0 && frexp64(nearest).1 + e < -1021;
        return if denormal { fma64_to_denormal(a, b, c, e) } else { ldexp64(nearest, e) }.to_bits();
    }
    let [a, b, c] = v.map(|x| f32::from_bits(x as u32));
    let exact = fma_odd(a, b, c);
    let e = match undo {
        false => 0,
        true if biased(c.into(), &SINGLE) > 127 => 64,
        true => -64,
    };
    to_f32(exact * pow2(e), w.mode.round32()).into()
}

fn wide_mad(signed: bool, a: u32, b: u32, c: u64, clamp: bool) -> (u64, bool) {
    if signed {
        let product = i64::from(a as i32) * i64::from(b as i32);
        let (v, over) = product.overflowing_add(c as i64);
        let limit = if product < 0 { i64::MIN } else { i64::MAX };
        return (if over && clamp { limit } else { v } as u64, over);
    }
    let (v, over) = (u64::from(a) * u64::from(b)).overflowing_add(c);
    (if over && clamp { u64::MAX } else { v }, over)
}

/// Rounds by adding random bits below the kept ones, then cutting.
pub(super) fn stochastic(format: Small, v: f32, random: u32) -> u32 {
    let bits = v.to_bits();
    if !v.is_finite() {
        return format.narrow(v.into(), Round::Nearest, false);
    }
    let noise = random >> (32 - (23 - format.fraction));
    format.narrow(f32::from_bits(bits.wrapping_add(noise)).into(), Round::Zero, false)
}

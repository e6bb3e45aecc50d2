//! Floating point done exactly once: sums and fused products are kept as a double rounded to odd, which then rounds to
//! any narrower format under any mode without double rounding; the small formats (f16, bf16, fp8 of both kinds).
//!
//! Source: AMD's ISA documents; Boldo and Melquiond on rounding to odd. Left out: exception flags and traps.

use super::lanes::{L, Round};

/// a + b as a double, rounded to odd: the last bit remembers that something was cut off.
#[inline(always)]
pub(super) fn add_odd(a: f64, b: f64) -> f64 {
    let s = a + b;
    let bb = s - a;
    let e = (a - (s - bb)) + (b - bb);
    odd(s, e)
}

/// Makes an inexact nearest result odd; `e` is the exact remainder.
#[inline(always)]
fn odd(s: f64, e: f64) -> f64 {
    let bits = s.to_bits();
    let toward = (e > 0.0) == (s > 0.0);
    let fixed = if toward { bits.wrapping_add(1) } else { bits.wrapping_sub(1) };
    // False for NaN, which a difference of infinities leaves.
    let inexact = e.abs() > 0.0;
    f64::from_bits(if inexact && bits & 1 == 0 { fixed } else { bits })
}

/// a * b + c of single (or narrower) values, rounded to odd: the product is exact in a double.
#[inline(always)]
pub(super) fn fma_odd(a: f32, b: f32, c: f32) -> f64 {
    add_odd(f64::from(a) * f64::from(b), f64::from(c))
}

#[inline(always)]
pub(super) fn fma32(a: f32, b: f32, c: f32) -> f32 {
    let r = fma_odd(a, b, c) as f32;
    if r.is_nan() { fma_nan(a, b, c) } else { r }
}

/// The result `r` of two operands: where it is no number, the first of them that is none, made quiet. (Of two the host
/// takes either, as its compiler likes.)
#[inline(always)]
pub(super) fn with_nan(a: f32, b: f32, r: f32) -> f32 {
    let quiet = |v: f32| f32::from_bits(v.to_bits() | 1 << 22);
    match (r.is_nan(), a.is_nan(), b.is_nan()) {
        (true, true, _) => quiet(a),
        (true, false, true) => quiet(b),
        _ => r,
    }
}

/// What a fused product that is no number is: as product and sum one after the other.
#[cold]
fn fma_nan(a: f32, b: f32, c: f32) -> f32 {
    let product = with_nan(a, b, a * b);
    with_nan(product, c, product + c)
}

fn has_nan(lanes: &L) -> bool {
    lanes.iter().fold(false, |any, v| any | f32::from_bits(*v).is_nan())
}

/// Two sources' arithmetic on every lane.
#[inline(always)]
pub(super) fn lanes2(a: &L, b: &L, d: &mut L, f: impl Fn(f32, f32) -> f32) {
    let at = f32::from_bits;
    for k in 0..32 {
        d[k] = f(at(a[k]), at(b[k])).to_bits();
    }
    if has_nan(d) {
        for k in 0..32 {
            d[k] = with_nan(at(a[k]), at(b[k]), at(d[k])).to_bits();
        }
    }
}

/// The fused product on every lane.
pub(super) fn fma_lanes(a: &L, b: &L, c: &L, d: &mut L) {
    let at = f32::from_bits;
    for k in 0..32 {
        d[k] = (fma_odd(at(a[k]), at(b[k]), at(c[k])) as f32).to_bits();
    }
    if has_nan(d) {
        for k in 0..32 {
            d[k] = fma32(at(a[k]), at(b[k]), at(c[k])).to_bits();
        }
    }
}

/// A binary format: bits of fraction and exponent, and the meaning of the largest exponent.
#[derive(Clone, Copy)]
pub(super) struct Small {
    pub fraction: u32,
    pub exponent: u32,
    pub bias: i32,
    pub top: Top,
}

/// What the largest exponent means.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Top {
    /// Infinities and NaNs, as IEEE.
    Ieee,
    /// Only the all-ones pattern is NaN (OCP E4M3).
    OneNan,
    /// No infinity; minus zero is the NaN (FNUZ).
    Fnuz,
}

pub(super) const F16: Small = Small { fraction: 10, exponent: 5, bias: 15, top: Top::Ieee };
pub(super) const BF16: Small = Small { fraction: 7, exponent: 8, bias: 127, top: Top::Ieee };
pub(super) const F32: Small = Small { fraction: 23, exponent: 8, bias: 127, top: Top::Ieee };
pub(super) const E5M2: Small = Small { fraction: 2, exponent: 5, bias: 15, top: Top::Ieee };
pub(super) const E4M3: Small = Small { fraction: 3, exponent: 4, bias: 7, top: Top::OneNan };
pub(super) const E5M2_FNUZ: Small = Small { fraction: 2, exponent: 5, bias: 16, top: Top::Fnuz };
pub(super) const E4M3_FNUZ: Small = Small { fraction: 3, exponent: 4, bias: 8, top: Top::Fnuz };

impl Small {
    fn sign_bit(self) -> u32 {
        1 << (self.fraction + self.exponent)
    }

    fn nan(self) -> u32 {
        match self.top {
            Top::Ieee => (((1 << self.exponent) - 1) << self.fraction) | 1 << (self.fraction - 1),
            Top::OneNan => self.sign_bit() - 1,
            Top::Fnuz => self.sign_bit(),
        }
    }

    /// Largest finite pattern, without sign.
    pub(crate) fn largest(self) -> u32 {
        match self.top {
            Top::Ieee => (((1 << self.exponent) - 1) << self.fraction) - 1,
            Top::OneNan => self.sign_bit() - 2,
            Top::Fnuz => self.sign_bit() - 1,
        }
    }

    /// Rounds a double to this format; `saturate` keeps overflow (and infinity) finite.
    pub(crate) fn narrow(self, v: f64, round: Round, saturate: bool) -> u32 {
        let bits = v.to_bits();
        let negative = bits >> 63 == 1;
        let sign = if negative { self.sign_bit() } else { 0 };
        if v.is_nan() {
            return if self.top == Top::Fnuz { self.nan() } else { sign | self.nan() };
        }
        let overflow = |directed_inward: bool| {
            if saturate || directed_inward {
                return sign | self.largest();
            }
            match self.top {
                Top::Ieee => sign | ((1 << self.exponent) - 1) << self.fraction,
                Top::OneNan => sign | self.nan(),
                Top::Fnuz => self.nan(),
            }
        };
        if v.is_infinite() {
            return overflow(false);
        }
        let zero = if self.top == Top::Fnuz { 0 } else { sign };
        if v == 0.0 {
            return zero;
        }
        let biased = (bits >> 52 & 0x7ff) as i32;
        let (e, mantissa) = match biased {
            0 => (-1022, bits & ((1 << 52) - 1)),
            _ => (biased - 1023, bits & ((1 << 52) - 1) | 1 << 52),
        };
        let lowest = 1 - self.bias;
        let cut = 52 - self.fraction as i32 + (lowest - e).max(0);
        let (kept, rest, half) = match cut {
            ..=63 => (mantissa >> cut, mantissa & ((1 << cut) - 1), 1u64 << (cut - 1)),
            _ => (0, mantissa, u64::MAX),
        };
        let away = match round {
            Round::Nearest => rest > half || (rest == half && kept & 1 == 1),
            Round::Up => rest != 0 && !negative,
            Round::Down => rest != 0 && negative,
            Round::Zero => false,
        };
        let kept = kept + u64::from(away);
        let base = if e < lowest { 0 } else { ((e - lowest) as u64) << self.fraction };
        let pattern = kept + base;
        if pattern > u64::from(self.largest()) {
            let inward = matches!((round, negative), (Round::Zero, _) | (Round::Up, true) | (Round::Down, false));
            return overflow(inward);
        }
        if pattern == 0 { zero } else { sign | pattern as u32 }
    }

    /// Exact value of a pattern.
    pub(crate) fn widen(self, bits: u32) -> f64 {
        let negative = bits & self.sign_bit() != 0;
        let sign = if negative { -1.0 } else { 1.0 };
        let exponent = (bits >> self.fraction) & ((1 << self.exponent) - 1);
        let fraction = bits & ((1 << self.fraction) - 1);
        let magnitude = bits & (self.sign_bit() - 1);
        let top = exponent == (1 << self.exponent) - 1;
        match self.top {
            Top::Ieee if top && fraction != 0 => return f64::NAN,
            Top::Ieee if top => return sign * f64::INFINITY,
            Top::OneNan if magnitude == self.sign_bit() - 1 => return f64::NAN,
            Top::Fnuz if bits & (2 * self.sign_bit() - 1) == self.sign_bit() => return f64::NAN,
            _ => {}
        }
        let scale = |m: u32, e: i32| sign * f64::from(m) * pow2(e - self.fraction as i32);
        match exponent {
            0 => scale(fraction, 1 - self.bias),
            e => scale(fraction | 1 << self.fraction, e as i32 - self.bias),
        }
    }
}

/// 2 to an integer power within the range of a double.
pub(super) fn pow2(e: i32) -> f64 {
    match e {
        ..=-1075 => 0.0,
        -1074..=-1023 => f64::from_bits(1u64 << (e + 1074)),
        -1022..=1023 => f64::from_bits(((e + 1023) as u64) << 52),
        _ => f64::INFINITY,
    }
}

/// A half's pattern as a single, by table-free bit tricks; exact.
#[inline(always)]
pub(super) fn half_to_f32(h: u32) -> f32 {
    let sign = (h & 0x8000) << 16;
    let magnitude = h & 0x7fff;
    // Scaling by 2^112 moves the exponent; denormals come out right because the product is exact.
    let scaled = f32::from_bits(magnitude << 13) * f32::from_bits(0x7780_0000);
    let bits = if magnitude >= 0x7c00 { 0x7f80_0000 | (magnitude & 0x3ff) << 13 } else { scaled.to_bits() };
    f32::from_bits(bits | sign)
}

/// Rounds a double to a half; NaN stays NaN.
pub(super) fn to_half(v: f64, round: Round) -> u32 {
    F16.narrow(v, round, false)
}

pub(super) fn to_f32(v: f64, round: Round) -> u32 {
    if round == Round::Nearest || v.is_nan() { (v as f32).to_bits() } else { F32.narrow(v, round, false) }
}

/// bf16 pattern to single.
#[inline(always)]
pub(super) fn bf16_to_f32(bits: u32) -> f32 {
    f32::from_bits(bits << 16)
}

/// Exact remainder's sign of a * b + c - r for doubles, as -1, 0 or 1.
fn fma_remainder(a: f64, b: f64, c: f64, r: f64) -> f64 {
    let p = a * b;
    let pe = a.mul_add(b, -p);
    // p + pe + c - r summed with the large parts first; each step is exact or its error is smaller than what is left.
    let s = p + c;
    let bb = s - p;
    let se = (p - (s - bb)) + (c - bb);
    (s - r) + (se + pe)
}

/// Moves a nearest double one step when the mode asks for the other neighbour.
fn direct(r: f64, remainder: f64, round: Round) -> f64 {
    if !r.is_finite() || remainder == 0.0 || remainder.is_nan() {
        return r;
    }
    match round {
        Round::Nearest => r,
        Round::Up if remainder > 0.0 => r.next_up(),
        Round::Down if remainder < 0.0 => r.next_down(),
        Round::Zero if r > 0.0 && remainder < 0.0 => r.next_down(),
        Round::Zero if r < 0.0 && remainder > 0.0 => r.next_up(),
        _ => r,
    }
}

/// a * b + c in double precision under a rounding mode.
pub(super) fn fma64(a: f64, b: f64, c: f64, round: Round) -> f64 {
    let r = a.mul_add(b, c);
    if round == Round::Nearest { r } else { direct(r, fma_remainder(a, b, c, r), round) }
}

/// (a * b + c) * 2^e rounded once to nearest where the result is denormal: the remainder decides ties.
pub(super) fn fma64_to_denormal(a: f64, b: f64, c: f64, e: i32) -> f64 {
    let r = a.mul_add(b, c);
    if r == 0.0 || !r.is_finite() {
        return r;
    }
    let (m, xe) = frexp64(r);
    let remainder = fma_remainder(a, b, c, r) * r.signum();
    let nudge = i64::from(remainder > 0.0) - i64::from(remainder < 0.0);
    // The 53 bits and three more, of which the last is the remainder's direction.
    let exact = ((m.abs() * pow2(53)) as i64 * 8 + nudge) as u64;
    let cut = (-1074 - (xe + e - 53) + 3) as u32;
    let (kept, rest, half) = match cut {
        0..=62 => (exact >> cut, exact & ((1 << cut) - 1), 1u64 << cut >> 1),
        _ => (0, exact, u64::MAX),
    };
    let up = rest > half || (rest == half && kept & 1 == 1);
    f64::from_bits(kept + u64::from(up)).copysign(r)
}

pub(super) fn add64(a: f64, b: f64, round: Round) -> f64 {
    fma64(a, 1.0, b, round)
}

pub(super) fn mul64(a: f64, b: f64, round: Round) -> f64 {
    let r = a * b;
    if round == Round::Nearest { r } else { direct(r, a.mul_add(b, -r), round) }
}

/// x * 2^e with one rounding.
pub(super) fn ldexp64(x: f64, e: i32) -> f64 {
    let e = e.clamp(-2200, 2200);
    if e >= 0 {
        let (one, two) = (e.min(1023), (e - 1023).clamp(0, 1023));
        return x * pow2(one) * pow2(two) * pow2(e - one - two);
    }
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    // Normalise, so that only the last product can round.
    let (m, xe) = frexp64(x);
    let total = xe + e;
    match total {
        -1021.. => m * pow2(total),
        -1100..-1021 => m * pow2(total + 100) * pow2(-100),
        _ => 0.0_f64.copysign(x),
    }
}

/// Fraction in [0.5, 1) and exponent; zero, infinity and NaN are returned unchanged, with exponent 0.
pub(super) fn frexp64(x: f64) -> (f64, i32) {
    if x == 0.0 || !x.is_finite() {
        return (x, 0);
    }
    let (x, extra) = if x.abs() < f64::MIN_POSITIVE { (x * pow2(54), -54) } else { (x, 0) };
    let e = (x.to_bits() >> 52 & 0x7ff) as i32 - 1022;
    (f64::from_bits(x.to_bits() & !(0x7ff << 52) | 1022 << 52), e + extra)
}

/// Minimum as IEEE minNum, with -0 below +0.
#[inline(always)]
pub(super) fn min32(a: f32, b: f32) -> f32 {
    let pick = if a < b || (a == b && a.is_sign_negative()) { a } else { b };
    if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else {
        pick
    }
}

#[inline(always)]
pub(super) fn max32(a: f32, b: f32) -> f32 {
    let pick = if a > b || (a == b && b.is_sign_negative()) { a } else { b };
    if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else {
        pick
    }
}

pub(super) fn min64(a: f64, b: f64) -> f64 {
    match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if a < b || (a == b && a.is_sign_negative()) => a,
        _ => b,
    }
}

pub(super) fn max64(a: f64, b: f64) -> f64 {
    -min64(-a, -b)
}

/// Minimum that propagates a NaN (IEEE 754-2019 minimum).
pub(super) fn minimum64(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { min64(a, b) }
}

pub(super) fn maximum64(a: f64, b: f64) -> f64 {
    -minimum64(-a, -b)
}

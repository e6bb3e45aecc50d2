//! Rounding: exact values packed into any floating format, in any of the four directions.

/// How an inexact result is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    Nearest,
    Down,
    Up,
    Zero,
}

impl Round {
    /// Of the text of a modifier: `.RM`, `.RP`, `.RZ`, none.
    pub(crate) fn of(text: &str) -> Round {
        match text {
            ".RM" | ".FLOOR" => Round::Down,
            ".RP" | ".CEIL" => Round::Up,
            ".RZ" | ".TRUNC" => Round::Zero,
            _ => Round::Nearest,
        }
    }
}

/// Widths of a format's exponent and fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    pub exponent: u32,
    pub fraction: u32,
}

const fn format(exponent: u32, fraction: u32) -> Format {
    Format { exponent, fraction }
}

pub(super) const F64: Format = format(11, 52);
pub(super) const F32: Format = format(8, 23);
pub(super) const TF32: Format = format(8, 10);
pub(super) const F16: Format = format(5, 10);
pub(super) const BF16: Format = format(8, 7);
pub(super) const E5M2: Format = format(5, 2);
pub(super) const E4M3: Format = format(4, 3);

impl Format {
    const fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    /// The bits of infinity, without a sign.
    pub(crate) const fn infinity(self) -> u64 {
        ((1 << self.exponent) - 1) << self.fraction
    }

    pub(crate) const fn sign(self) -> u64 {
        1 << (self.exponent + self.fraction)
    }

    /// The result of this format's operations for "not a number".
    pub(crate) const fn nan(self) -> u64 {
        match self.fraction {
            52 => 0x7ff8 << 48,
            23 => 0x7fff_ffff,
            _ => self.sign() - 1,
        }
    }

    /// Whether the value is denormal.
    pub(crate) const fn is_denormal(self, bits: u64) -> bool {
        let magnitude = bits & (self.sign() - 1);
        magnitude != 0 && magnitude >> self.fraction == 0
    }
}

/// A value of any format.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    Nan,
    Infinite {
        neg: bool,
    },
    /// `mantissa * 2^exponent`.
    Finite {
        neg: bool,
        mantissa: u128,
        exponent: i32,
    },
}

/// Bits → value.
pub(super) fn unpack(bits: u64, f: Format) -> Value {
    let neg = bits & f.sign() != 0;
    let magnitude = bits & (f.sign() - 1);
    let (biased, fraction) = (magnitude >> f.fraction, magnitude & ((1 << f.fraction) - 1));
    match magnitude.cmp(&f.infinity()) {
        std::cmp::Ordering::Greater => Value::Nan,
        std::cmp::Ordering::Equal => Value::Infinite { neg },
        std::cmp::Ordering::Less => {
            let hidden = u64::from(biased != 0) << f.fraction;
            let exponent = (biased as i32).max(1) - f.bias() - f.fraction.cast_signed();
            Value::Finite { neg, mantissa: u128::from(fraction | hidden), exponent }
        }
    }
}

/// Rounds an exact value, or one whose lowest bit is the OR of everything below it.
pub(super) fn pack(value: Value, f: Format, round: Round) -> u64 {
    let signed = |neg: bool, bits: u64| if neg { bits | f.sign() } else { bits };
    let (neg, mantissa, exponent) = match value {
        Value::Nan => return f.nan(),
        Value::Infinite { neg } => return signed(neg, f.infinity()),
        Value::Finite { neg, mantissa: 0, .. } => return signed(neg, 0),
        Value::Finite { neg, mantissa, exponent } => (neg, mantissa, exponent),
    };
    let top = exponent + 127 - mantissa.leading_zeros().cast_signed();
    let least = 1 - f.bias();
    let unit = top.max(least) - f.fraction.cast_signed();
    let shift = unit - exponent;
    let kept = match shift {
        ..=0 => mantissa << shift.unsigned_abs(),
        128.. => 0,
        _ => mantissa >> shift,
    };
    let above = |kept: u128| match shift {
        ..=0 => (false, false, kept),
        129.. => (true, false, kept),
        _ => {
            let rest = if shift == 128 { mantissa } else { mantissa & ((1 << shift) - 1) };
            let half = 1u128 << (shift - 1);
            (rest != 0, rest > half || rest == half && kept & 1 == 1, kept)
        }
    };
    let (inexact, nearest_up, kept) = above(kept);
    let up = match round {
        Round::Nearest => nearest_up,
        Round::Down => inexact && neg,
        Round::Up => inexact && !neg,
        Round::Zero => false,
    };
    let biased = (top.max(least) - least) as u64;
    let bits = (biased << f.fraction) + kept as u64 + u64::from(up);
    if bits < f.infinity() {
        return signed(neg, bits);
    }
    let to_infinity = match round {
        Round::Nearest => true,
        Round::Down => neg,
        Round::Up => !neg,
        Round::Zero => false,
    };
    signed(neg, if to_infinity { f.infinity() } else { f.infinity() - 1 })
}

/// Bits of one format → bits of another.
pub(super) fn convert(bits: u64, from: Format, to: Format, round: Round) -> u64 {
    pack(unpack(bits, from), to, round)
}

/// An f64 rounded to a format.
pub(super) fn narrow(v: f64, to: Format, round: Round) -> u64 {
    let bits = v.to_bits();
    let (magnitude, biased) = (bits & (F64.sign() - 1), (bits >> 52 & 0x7ff) as i32);
    if to.fraction == 52 || biased == 0x7ff || biased == 0 {
        return convert(bits, F64, to, round);
    }
    let neg = bits != magnitude;
    let sign = if neg { to.sign() } else { 0 };
    let mantissa = magnitude & ((1 << 52) - 1) | 1 << 52;
    let (top, least) = (biased - 1023, 1 - to.bias());
    let exponent = top.max(least);
    // At least 42 - 10: the distance of the lowest bit that is kept from the mantissa's.
    let shift = (exponent - to.fraction.cast_signed() - (top - 52)).min(62);
    let (kept, rest, half) = (mantissa >> shift, mantissa & ((1 << shift) - 1), 1 << (shift - 1));
    let up = match round {
        Round::Nearest => rest > half || rest == half && kept & 1 == 1,
        Round::Down => rest != 0 && neg,
        Round::Up => rest != 0 && !neg,
        Round::Zero => false,
    };
    let rounded = (((exponent - least) as u64) << to.fraction) + kept + u64::from(up);
    if rounded < to.infinity() {
        return sign | rounded;
    }
    convert(bits, F64, to, round)
}

/// A value as an f64; formats of at most 64 bits have one.
pub(super) fn widen(bits: u64, from: Format) -> f64 {
    let magnitude = bits & (from.sign() - 1);
    if from.fraction == 52 || magnitude >= from.infinity() {
        return f64::from_bits(convert(bits, from, F64, Round::Nearest));
    }
    let sign = if bits & from.sign() != 0 { F64.sign() } else { 0 };
    if magnitude >> from.fraction == 0 {
        // Exact: the unit of denormals is a power of two.
        let unit = f64::from_bits(((1024 - from.bias() - from.fraction.cast_signed()) as u64) << 52);
        return f64::from_bits((magnitude as f64 * unit).to_bits() | sign);
    }
    let exponent = (magnitude >> from.fraction) as i64 + i64::from(1023 - from.bias());
    let fraction = magnitude & ((1 << from.fraction) - 1);
    f64::from_bits(sign | (exponent as u64) << 52 | fraction << (52 - from.fraction))
}

/// The f64 sum, made odd where it is inexact: rounding it once more to a narrower format is as rounding the exact sum.
pub(super) fn sum_to_odd(a: f64, b: f64) -> f64 {
    let s = a + b;
    if !s.is_finite() {
        return s;
    }
    let back = s - a;
    let error = (a - (s - back)) + (b - back);
    if error == 0.0 || s.to_bits() & 1 == 1 {
        return s;
    }
    // Towards the error: the neighbour on that side is odd.
    let away = (error > 0.0) == (s > 0.0);
    f64::from_bits(if away { s.to_bits() + 1 } else { s.to_bits() - 1 })
}

/// `a * b + c` of f64 values, rounded once.
pub(super) fn fma(a: f64, b: f64, c: f64, to: Format, round: Round) -> u64 {
    let (x, y, z) = (unpack(a.to_bits(), F64), unpack(b.to_bits(), F64), unpack(c.to_bits(), F64));
    let (Value::Finite { neg: nx, mantissa: mx, exponent: ex }, Value::Finite { neg: ny, mantissa: my, exponent: ey }) =
        (x, y)
    else {
        return pack(unpack(a.mul_add(b, c).to_bits(), F64), to, round);
    };
    let Value::Finite { neg: nz, mantissa: mz, exponent: ez } = z else { return pack(z, to, round) };
    let product = (nx != ny, mx * my, ex + ey);
    pack(add(product, (nz, mz, ez), round), to, round)
}

/// Sign, mantissa, exponent.
type Parts = (bool, u128, i32);

/// The highest bit at 125, so that a sum has room.
fn normal((neg, mantissa, exponent): Parts) -> Parts {
    let shift = mantissa.leading_zeros().saturating_sub(2);
    (neg, mantissa << shift, exponent - shift.cast_signed())
}

fn add(a: Parts, b: Parts, round: Round) -> Value {
    let finite = |(neg, mantissa, exponent): Parts| Value::Finite { neg, mantissa, exponent };
    match (a.1, b.1) {
        (0, 0) => {
            let neg = if a.0 == b.0 { a.0 } else { round == Round::Down };
            return Value::Finite { neg, mantissa: 0, exponent: 0 };
        }
        (0, _) => return finite(b),
        (_, 0) => return finite(a),
        _ => {}
    }
    let (a, b) = (normal(a), normal(b));
    let (big, small) = if (a.2, a.1) >= (b.2, b.1) { (a, b) } else { (b, a) };
    let gap = (big.2 - small.2).unsigned_abs();
    let shifted = match gap {
        0 => small.1,
        128.. => 1,
        _ => small.1 >> gap | u128::from(small.1 & ((1 << gap) - 1) != 0),
    };
    match big.0 == small.0 {
        true => finite((big.0, big.1 + shifted, big.2)),
        false if big.1 == shifted => finite((round == Round::Down, 0, 0)),
        false => finite((big.0, big.1 - shifted, big.2)),
    }
}

/// An integer rounded to a format.
pub(super) fn from_integer(neg: bool, magnitude: u64, to: Format, round: Round) -> u64 {
    match magnitude {
        0 => 0,
        _ => pack(Value::Finite { neg, mantissa: u128::from(magnitude), exponent: 0 }, to, round),
    }
}

/// Rounds to an integer of that format.
pub(super) fn integral(v: f64, round: Round) -> f64 {
    match round {
        Round::Nearest => v.round_ties_even(),
        Round::Down => v.floor(),
        Round::Up => v.ceil(),
        Round::Zero => v.trunc(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_in_all_directions_bracket_the_exact_one() {
        let (a, b) = (1.0, 2f64.powi(-60));
        let bits = |round| f64::from_bits(fma(a, 1.0, b, F64, round));
        assert_eq!(bits(Round::Nearest), 1.0);
        assert_eq!(bits(Round::Down), 1.0);
        assert_eq!(bits(Round::Zero), 1.0);
        assert_eq!(bits(Round::Up), 1.0 + f64::EPSILON);
        assert_eq!(f64::from_bits(fma(a, 1.0, -b, F64, Round::Down)), 1.0 - f64::EPSILON / 2.0);
    }

    #[test]
    fn conversions_to_half_agree_with_the_half_crate() {
        let mut x = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..20_000 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let v = f32::from_bits((x >> 32) as u32);
            if v.is_nan() {
                continue;
            }
            let (f, b) = (::half::f16::from_f32(v).to_bits(), ::half::bf16::from_f32(v).to_bits());
            assert_eq!(narrow(f64::from(v), F16, Round::Nearest), u64::from(f), "{v:e}");
            assert_eq!(narrow(f64::from(v), BF16, Round::Nearest), u64::from(b), "{v:e}");
            assert_eq!(widen(u64::from(f), F16), ::half::f16::from_bits(f).to_f64());
        }
    }

    #[test]
    fn fused_products_agree_with_the_processor() {
        let mut x = 7u64;
        let mut next = || {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            f64::from_bits(x & !(0x3f << 58) | 0x3f0 << 52 | (x >> 3 & 0x3f) << 52)
        };
        for _ in 0..20_000 {
            let (a, b, c) = (next(), next(), next());
            let want = a.mul_add(b, c);
            assert_eq!(fma(a, b, c, F64, Round::Nearest), want.to_bits(), "{a:e} {b:e} {c:e}");
        }
    }
}

//! Floats as exact numbers: what IEEE 754 asks of sums, products and conversions, in every rounding and format.
//!
//! Written for its plainness; nothing of the library is used.

/// Bits of an exponent and of a fraction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Format {
    exponent: u32,
    fraction: u32,
    /// Its largest exponent is one of finite numbers: it has no infinities.
    finite: bool,
}

pub const F16: Format = Format { exponent: 5, fraction: 10, finite: false };
pub const BF16: Format = Format { exponent: 8, fraction: 7, finite: false };
pub const TF32: Format = Format { exponent: 8, fraction: 10, finite: false };
pub const F32: Format = Format { exponent: 8, fraction: 23, finite: false };
pub const F64: Format = Format { exponent: 11, fraction: 52, finite: false };
pub const E4M3: Format = Format { exponent: 4, fraction: 3, finite: true };
pub const E5M2: Format = Format { exponent: 5, fraction: 2, finite: false };

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Round {
    /// To the nearest, of two to the even one.
    Even,
    /// To the nearest, of two to the larger one.
    Away,
    Zero,
    Down,
    Up,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Nan,
    Infinite(bool),
    /// Negative or not; mantissa times two to the exponent. The mantissa's lowest bit may be the OR of all below it.
    Finite(bool, u128, i32),
}

use Number::{Finite, Infinite, Nan};

impl Number {
    pub fn negated(self) -> Number {
        match self {
            Nan => Nan,
            Infinite(n) => Infinite(!n),
            Finite(n, m, e) => Finite(!n, m, e),
        }
    }

    pub fn magnitude(self) -> Number {
        if self.is_negative() { self.negated() } else { self }
    }

    pub fn is_negative(self) -> bool {
        matches!(self, Infinite(true) | Finite(true, ..))
    }

    pub fn of_int(i: i128) -> Number {
        Finite(i < 0, i.unsigned_abs(), 0)
    }

    pub fn add(self, other: Number, round: Round) -> Number {
        let (Finite(na, ma, ea), Finite(nb, mb, eb)) = (self, other) else {
            return match (self, other) {
                (Nan, _) | (_, Nan) => Nan,
                (Infinite(a), Infinite(b)) if a != b => Nan,
                (Infinite(a), _) | (_, Infinite(a)) => Infinite(a),
                _ => unreachable!("both are finite"),
            };
        };
        if ma == 0 && mb == 0 {
            let negative = if na == nb { na } else { round == Round::Down };
            return Finite(negative, 0, 0);
        }
        if ma == 0 || mb == 0 {
            return if ma == 0 { other } else { self };
        }
        let top = |m: u128, e: i32| e + 128 - m.leading_zeros() as i32;
        let ((nx, mx, ex), (ny, my, ey)) = match top(ma, ea) >= top(mb, eb) {
            true => ((na, ma, ea), (nb, mb, eb)),
            false => ((nb, mb, eb), (na, ma, ea)),
        };
        let up = mx.leading_zeros() - 2;
        let (mx, ex) = (mx << up, ex - up as i32);
        let my = if ey >= ex { my << (ey - ex) } else { shifted(my, (ex - ey) as u32) };
        if nx == ny {
            return Finite(nx, mx + my, ex);
        }
        match mx.checked_sub(my) {
            Some(0) => Finite(round == Round::Down, 0, 0),
            Some(m) => Finite(nx, m, ex),
            None => Finite(ny, my - mx, ex),
        }
    }

    pub fn mul(self, other: Number) -> Number {
        let negative = self.is_negative() != other.is_negative();
        match (self, other) {
            (Nan, _) | (_, Nan) => Nan,
            (Infinite(_), Finite(_, 0, _)) | (Finite(_, 0, _), Infinite(_)) => Nan,
            (Infinite(_), _) | (_, Infinite(_)) => Infinite(negative),
            (Finite(_, ma, ea), Finite(_, mb, eb)) => Finite(negative, ma * mb, ea + eb),
        }
    }

    /// To a whole number.
    pub fn integral(self, round: Round) -> Number {
        match self {
            Finite(n, m, e) if e < 0 => Finite(n, rounded(n, m, e.unsigned_abs(), round), 0),
            other => other,
        }
    }

    /// The nearest integer of so many bits; what is none is 0, of 64 bits the lowest number.
    pub fn to_int(self, bits: u32, signed: bool, round: Round) -> u128 {
        let (low, high) = range(bits, signed);
        let mask = u128::MAX >> (128 - bits);
        let whole = match self.integral(round) {
            Nan => return if bits == 64 { 1 << 63 } else { 0 },
            Infinite(n) => {
                if n {
                    low
                } else {
                    high
                }
            }
            Finite(n, m, e) => {
                let big = m != 0 && e + 128 - m.leading_zeros() as i32 > 70;
                match (big, n) {
                    (true, true) => low,
                    (true, false) => high,
                    (false, _) => {
                        let m = (m << e.max(0)) as i128;
                        if n { -m } else { m }
                    }
                }
            }
        };
        whole.clamp(low, high).cast_unsigned() & mask
    }

    /// Less, equal or greater; `None`: one is no number.
    pub fn compare(self, other: Number) -> Option<std::cmp::Ordering> {
        if self == Nan || other == Nan {
            return None;
        }
        Some(match (self, other) {
            (Infinite(a), Infinite(b)) => b.cmp(&a),
            (Infinite(n), _) => 0.cmp(&if n { 1 } else { -1 }),
            (_, Infinite(n)) => 0.cmp(&if n { -1 } else { 1 }),
            _ => match self.add(other.negated(), Round::Even) {
                Finite(_, 0, _) => std::cmp::Ordering::Equal,
                Finite(true, ..) => std::cmp::Ordering::Less,
                _ => std::cmp::Ordering::Greater,
            },
        })
    }
}

/// The lowest and the highest integer.
pub fn range(bits: u32, signed: bool) -> (i128, i128) {
    match signed {
        true => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
        false => (0, (1i128 << bits) - 1),
    }
}

/// Shifted right; the lowest bit tells whether a one was shifted out.
fn shifted(m: u128, by: u32) -> u128 {
    match m.checked_shr(by) {
        Some(kept) => kept | u128::from(kept << by != m),
        None => u128::from(m != 0),
    }
}

/// A mantissa shifted right, rounded.
fn rounded(negative: bool, m: u128, by: u32, round: Round) -> u128 {
    if by == 0 {
        return m;
    }
    // One bit is kept below the number, and one tells of the rest.
    let m = match by {
        1 => m << 1,
        _ => shifted(m, by - 2),
    };
    let (kept, rest) = (m >> 2, m & 3);
    let up = match round {
        Round::Even => rest == 3 || rest == 2 && kept & 1 == 1,
        Round::Away => rest >= 2,
        Round::Zero => false,
        Round::Down => negative && rest > 0,
        Round::Up => !negative && rest > 0,
    };
    kept + u128::from(up)
}

impl Format {
    pub fn bits(self) -> u32 {
        1 + self.exponent + self.fraction
    }

    fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    /// What all results that are no number are.
    pub fn nan(self) -> u128 {
        match self.bits() {
            64 => 0xfff8 << 48,
            n => (1 << (n - 1)) - 1,
        }
    }

    /// The largest finite number.
    fn largest(self) -> u128 {
        let infinite = ((1 << self.exponent) - 1) << self.fraction;
        if self.finite { infinite + (1 << self.fraction) - 2 } else { infinite - 1 }
    }

    pub fn read(self, bits: u128) -> Number {
        let negative = bits >> (self.bits() - 1) & 1 == 1;
        let fraction = bits & ((1 << self.fraction) - 1);
        let exponent = (bits >> self.fraction) as i32 & ((1 << self.exponent) - 1);
        let lowest = 1 - self.bias() - self.fraction as i32;
        match exponent {
            0 => Finite(negative, fraction, lowest),
            _ if self.finite && bits & self.nan() == self.nan() => Nan,
            e if !self.finite && e == (1 << self.exponent) - 1 => {
                if fraction == 0 {
                    Infinite(negative)
                } else {
                    Nan
                }
            }
            e => Finite(negative, fraction | 1 << self.fraction, lowest + e - 1),
        }
    }

    /// Whether the bits are a number too small for a normal one.
    pub fn is_subnormal(self, bits: u128) -> bool {
        let exponent = (bits >> self.fraction) & ((1 << self.exponent) - 1);
        exponent == 0 && bits & ((1 << self.fraction) - 1) != 0
    }

    /// The bits of a number, with all that are too small for a normal one as zeros if they are flushed.
    pub fn flushed(self, bits: u128, flush: bool) -> u128 {
        if flush && self.is_subnormal(bits) { bits & 1 << (self.bits() - 1) } else { bits }
    }

    pub fn write(self, number: Number, round: Round) -> u128 {
        let sign = |negative: bool| u128::from(negative) << (self.bits() - 1);
        let infinite = ((1u128 << self.exponent) - 1) << self.fraction;
        let (negative, m, e) = match number {
            Nan => return self.nan(),
            Infinite(n) => return sign(n) | if self.finite { self.nan() } else { infinite },
            Finite(n, 0, _) => return sign(n),
            Finite(n, m, e) => (n, m, e),
        };
        let top = e + 127 - m.leading_zeros() as i32;
        let lowest = top.max(1 - self.bias()) - self.fraction as i32;
        let kept = if lowest <= e { m << (e - lowest) } else { rounded(negative, m, (lowest - e) as u32, round) };
        // A carry into the exponent comes by itself.
        let steps = (lowest - (1 - self.bias() - self.fraction as i32)) as u128;
        let bits = kept + (steps << self.fraction);
        let over = if self.finite { bits > self.largest() } else { bits >= infinite };
        let away = match round {
            Round::Even | Round::Away => true,
            Round::Zero => false,
            Round::Down => negative,
            Round::Up => !negative,
        };
        match over {
            true if away && !self.finite => sign(negative) | infinite,
            true if away => sign(negative) | self.nan(),
            true => sign(negative) | self.largest(),
            false => sign(negative) | bits,
        }
    }

    /// As [`write`](Self::write), but what is too large, infinities too, becomes the largest number.
    pub fn write_finite(self, number: Number, round: Round) -> u128 {
        let sign = u128::from(number.is_negative()) << (self.bits() - 1);
        let bits = self.write(number, round);
        match number {
            Nan => self.nan(),
            _ if bits & !sign > self.largest() => sign | self.largest(),
            _ => bits,
        }
    }

    pub fn smallest_normal(self) -> f64 {
        self.to_f64(1 << self.fraction)
    }

    pub fn to_f64(self, bits: u128) -> f64 {
        f64::from_bits(F64.write(self.read(bits), Round::Even) as u64)
    }
}

#[test]
fn sums_and_products_are_those_of_the_processor() {
    let samples = [
        0u32,
        0x8000_0000,
        1,
        0x7f_ffff,
        0x80_0000,
        0x3f80_0000,
        0x3f80_0001,
        0xbf7f_ffff,
        0x7f7f_ffff,
        0x7f80_0000,
        0x7fc0_0000,
        0x4b80_0001,
        0x3380_0000,
        0xcb80_0003,
    ];
    for a in samples {
        for b in samples {
            let (x, y) = (f32::from_bits(a), f32::from_bits(b));
            let (p, q) = (F32.read(a.into()), F32.read(b.into()));
            for (got, want) in
                [(p.add(q, Round::Even), x + y), (p.mul(q), x * y), (p.mul(q).add(p, Round::Even), x.mul_add(y, x))]
            {
                let got = f32::from_bits(F32.write(got, Round::Even) as u32);
                assert!(
                    got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
                    "{x:e} {y:e}: {got:e} {want:e}"
                );
            }
            let (x, y) = (f64::from(x) * 1e-300, f64::from(y) * 1.000_000_1);
            let (p, q) = (F64.read(x.to_bits().into()), F64.read(y.to_bits().into()));
            for (got, want) in
                [(p.add(q, Round::Even), x + y), (p.mul(q), x * y), (p.mul(q).add(q, Round::Even), x.mul_add(y, y))]
            {
                let got = f64::from_bits(F64.write(got, Round::Even) as u64);
                assert!(
                    got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(),
                    "{x:e} {y:e}: {got:e} {want:e}"
                );
            }
            assert_eq!(p.compare(q), x.partial_cmp(&y), "{x:e} {y:e}");
        }
    }
}

//! The four 8-bit float formats, by bits. Sources: OCP 8-bit Floating Point Specification (OFP8), revision 1.0; for the
//! two FNUZ formats (finite numbers, unsigned zero: a bias larger by one, the code of -0 is the only NaN) Noune et al.,
//! "8-bit Numerical Formats for Deep Neural Networks", 2022.

use super::Scalar;

/// (exponent bits, mantissa bits, bias)
const fn format(t: Scalar) -> (i32, i32, i32) {
    match t {
        Scalar::F8E5M2 => (5, 2, 15),
        Scalar::F8E4M3Fnuz => (4, 3, 8),
        Scalar::F8E5M2Fnuz => (5, 2, 16),
        _ => (4, 3, 7),
    }
}

const fn is_fnuz(t: Scalar) -> bool {
    matches!(t, Scalar::F8E4M3Fnuz | Scalar::F8E5M2Fnuz)
}

/// `f` rounded to nearest even. E5M2 overflows to infinity; the others have none and overflow to NaN.
pub fn encode(f: f64, t: Scalar) -> u8 {
    if is_fnuz(t) {
        return match magnitude(f.abs(), t) {
            Some(code @ 1..=0x7f) => {
                if f < 0.0 {
                    0x80 | code
                } else {
                    code
                }
            }
            Some(_) => 0,
            None => 0x80,
        };
    }
    let sign = if f.is_sign_negative() { 0x80u8 } else { 0 };
    let e4m3 = t == Scalar::F8E4M3;
    let (nan, inf) = if e4m3 { (0x7f, 0x7f) } else { (0x7e, 0x7c) };
    if f.is_nan() {
        return sign | nan;
    }
    let a = f.abs();
    if a.is_infinite() {
        return sign | inf;
    }
    if a == 0.0 {
        return sign;
    }
    sign | magnitude(a, t).unwrap_or(inf)
}

/// The code of a value that is not negative; `None` beyond the largest one.
fn magnitude(a: f64, t: Scalar) -> Option<u8> {
    if !a.is_finite() {
        return None;
    }
    let (eb, mb, bias) = format(t);
    let exp = ((a.to_bits() >> 52) as i32 - 1023).max(1 - bias);
    // Units of the last place at this exponent; scaling by a power of two is exact.
    let units = a * 2f64.powi(mb - exp);
    let code = ((exp + bias - 1) << mb) + units.round_ties_even() as i32;
    let largest = match t {
        Scalar::F8E4M3 => 0x7e,
        t if is_fnuz(t) => 0x7f,
        _ => (((1 << eb) - 1) << mb) - 1,
    };
    (code <= largest).then_some(code as u8)
}

/// The value of these bits.
pub fn decode(b: u8, t: Scalar) -> f64 {
    let (eb, mb, bias) = format(t);
    let sign = if b & 0x80 != 0 { -1.0 } else { 1.0 };
    let (e, m) = (((b & 0x7f) >> mb) as i32, (b & ((1 << mb) - 1)) as i32);
    let top = (1 << eb) - 1;
    if is_fnuz(t) {
        if b == 0x80 {
            return f64::NAN;
        }
    } else if t == Scalar::F8E4M3 {
        if b & 0x7f == 0x7f {
            return f64::NAN;
        }
    } else if e == top {
        return if m == 0 { sign * f64::INFINITY } else { f64::NAN };
    }
    let frac = if e == 0 { m as f64 } else { (m + (1 << mb)) as f64 };
    sign * frac * 2f64.powi(e.max(1) - bias - mb)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values_of_the_specification() {
        assert_eq!(decode(0x7e, Scalar::F8E4M3), 448.0);
        assert_eq!(decode(0x01, Scalar::F8E4M3), 2f64.powi(-9));
        assert_eq!(decode(0x7b, Scalar::F8E5M2), 57344.0);
        assert_eq!(decode(0x01, Scalar::F8E5M2), 2f64.powi(-16));
        assert_eq!(encode(464.0, Scalar::F8E4M3), 0x7e); // tie to even stays at 448
        assert_eq!(encode(465.0, Scalar::F8E4M3), 0x7f);
        assert_eq!(encode(1e9, Scalar::F8E5M2), 0x7c);
        assert_eq!(decode(0x7f, Scalar::F8E4M3Fnuz), 240.0);
        assert_eq!(decode(0x7f, Scalar::F8E5M2Fnuz), 57344.0);
        assert_eq!(decode(0x01, Scalar::F8E4M3Fnuz), 2f64.powi(-10));
        assert_eq!(encode(-0.0, Scalar::F8E4M3Fnuz), 0);
        assert_eq!(encode(f64::INFINITY, Scalar::F8E5M2Fnuz), 0x80);
    }
}

//! The two 8-bit float formats, by bits. Source: OCP 8-bit Floating Point Specification (OFP8), revision 1.0.

use super::Scalar;

/// (exponent bits, mantissa bits, bias)
const fn format(t: Scalar) -> (i32, i32, i32) {
    match t {
        Scalar::F8E5M2 => (5, 2, 15),
        _ => (4, 3, 7),
    }
}

/// `f` rounded to nearest even. E5M2 overflows to infinity; E4M3 has none and overflows to NaN.
pub fn encode(f: f64, t: Scalar) -> u8 {
    let (eb, mb, bias) = format(t);
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
    let exp = ((a.to_bits() >> 52) as i32 - 1023).max(1 - bias);
    // Units of the last place at this exponent; scaling by a power of two is exact.
    let units = a * 2f64.powi(mb - exp);
    let rounded = units.round_ties_even() as i32;
    let code = ((exp + bias - 1) << mb) + rounded;
    let largest = if e4m3 { 0x7e } else { (((1 << eb) - 1) << mb) - 1 };
    sign | if code > largest { inf } else { code as u8 }
}

/// The value of these bits.
pub fn decode(b: u8, t: Scalar) -> f64 {
    let (eb, mb, bias) = format(t);
    let sign = if b & 0x80 != 0 { -1.0 } else { 1.0 };
    let (e, m) = (((b & 0x7f) >> mb) as i32, (b & ((1 << mb) - 1)) as i32);
    let top = (1 << eb) - 1;
    if t == Scalar::F8E4M3 {
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
    }
}

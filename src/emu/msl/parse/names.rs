//! Numbers as written, and the constants of `metal_stdlib`.

use crate::types::Scalar;

/// The type and bits of a literal.
pub(super) fn literal(text: &str) -> Option<(Scalar, u64)> {
    let text = text.replace('\'', "").to_ascii_lowercase();
    let hex = text.starts_with("0x");
    let floating = if hex { text.contains('p') } else { text.contains(['.', 'e']) || text.ends_with(['f', 'h']) };
    if floating { float_literal(&text, hex) } else { int_literal(&text) }
}

fn float_literal(text: &str, hex: bool) -> Option<(Scalar, u64)> {
    let (body, scalar) = if let Some(body) = text.strip_suffix("bf") {
        (body, Scalar::BFloat)
    } else if let Some(body) = text.strip_suffix('h') {
        (body, Scalar::Half)
    } else {
        (text.strip_suffix('f').unwrap_or(text), Scalar::Float)
    };
    let value = if hex { hex_float(body)? } else { decimal(body)? };
    let bits = match scalar {
        Scalar::Half => crate::exec::half::round_half_f64(value),
        Scalar::BFloat => crate::exec::half::round_bfloat_f64(value),
        _ if hex => value as f32,
        // Rounded once, from the digits.
        _ => body.parse().ok()?,
    };
    Some((scalar, bits.to_bits().into()))
}

fn decimal(body: &str) -> Option<f64> {
    let plain = body.bytes().all(|c| c.is_ascii_digit() || matches!(c, b'.' | b'e' | b'+' | b'-'));
    if plain { body.parse().ok() } else { None }
}

/// `0x1.8p3`
fn hex_float(body: &str) -> Option<f64> {
    let (digits, exponent) = body.strip_prefix("0x")?.split_once('p')?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.len() + fraction.len() > 15 || whole.len() + fraction.len() == 0 {
        return None;
    }
    let mantissa = u64::from_str_radix(&format!("{whole}{fraction}"), 16).ok()?;
    let exponent: i32 = exponent.parse().ok()?;
    Some(mantissa as f64 * 2_f64.powi(exponent.checked_sub(4 * fraction.len() as i32)?))
}

fn int_literal(text: &str) -> Option<(Scalar, u64)> {
    let digits = text.trim_end_matches(['u', 'l']);
    let suffix = &text[digits.len()..];
    if suffix.len() > 3 {
        return None;
    }
    let (radix, body) = match digits.as_bytes() {
        [b'0', b'x', ..] => (16, &digits[2..]),
        [b'0', b'b', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    let value = u64::from_str_radix(body, radix).ok()?;
    let unsigned = suffix.contains('u');
    let long = suffix.contains('l');
    let scalar = match (unsigned, long) {
        (false, false) if i32::try_from(value).is_ok() => Scalar::Int,
        (_, false) if (unsigned || radix != 10) && u32::try_from(value).is_ok() => Scalar::UInt,
        (false, _) if i64::try_from(value).is_ok() => Scalar::Long,
        _ => Scalar::ULong,
    };
    Some((scalar, value))
}

/// A named constant: type and bits.
pub(super) fn constant(name: &str) -> Option<(Scalar, u64)> {
    use std::f32::consts as c;
    let float = match name {
        "INFINITY" | "HUGE_VALF" => f32::INFINITY,
        "NAN" => f32::NAN,
        "MAXFLOAT" | "FLT_MAX" => f32::MAX,
        "FLT_MIN" => f32::MIN_POSITIVE,
        "FLT_EPSILON" => f32::EPSILON,
        "M_PI_F" => c::PI,
        "M_PI_2_F" => c::FRAC_PI_2,
        "M_PI_4_F" => c::FRAC_PI_4,
        "M_1_PI_F" => c::FRAC_1_PI,
        "M_2_PI_F" => c::FRAC_2_PI,
        "M_2_SQRTPI_F" => c::FRAC_2_SQRT_PI,
        "M_E_F" => c::E,
        "M_LOG2E_F" => c::LOG2_E,
        "M_LOG10E_F" => c::LOG10_E,
        "M_LN2_F" => c::LN_2,
        "M_LN10_F" => c::LN_10,
        "M_SQRT2_F" => c::SQRT_2,
        "M_SQRT1_2_F" => c::FRAC_1_SQRT_2,
        _ => return integer(name).or_else(|| half(name)),
    };
    Some((Scalar::Float, float.to_bits().into()))
}

fn half(name: &str) -> Option<(Scalar, u64)> {
    let value: f32 = match name {
        "HALF_MAX" | "MAXHALF" => 65504.0,
        "HALF_MIN" => 6.103_515_6e-5,
        "HALF_EPSILON" => 9.765_625e-4,
        "HUGE_VALH" => f32::INFINITY,
        "M_PI_H" => crate::exec::half::round_half_f64(std::f64::consts::PI),
        "M_E_H" => crate::exec::half::round_half_f64(std::f64::consts::E),
        _ => return None,
    };
    Some((Scalar::Half, value.to_bits().into()))
}

fn integer(name: &str) -> Option<(Scalar, u64)> {
    Some(match name {
        "CHAR_BIT" => (Scalar::Int, 8),
        "CHAR_MAX" | "SCHAR_MAX" => (Scalar::Int, 127),
        "CHAR_MIN" | "SCHAR_MIN" => (Scalar::Int, -128_i64 as u64),
        "UCHAR_MAX" => (Scalar::Int, 255),
        "SHRT_MAX" => (Scalar::Int, 32767),
        "SHRT_MIN" => (Scalar::Int, -32768_i64 as u64),
        "USHRT_MAX" => (Scalar::Int, 65535),
        "INT_MAX" => (Scalar::Int, i32::MAX as u64),
        "INT_MIN" => (Scalar::Int, i64::from(i32::MIN) as u64),
        "UINT_MAX" => (Scalar::UInt, u32::MAX.into()),
        "LONG_MAX" => (Scalar::Long, i64::MAX as u64),
        "LONG_MIN" => (Scalar::Long, i64::MIN as u64),
        "ULONG_MAX" => (Scalar::ULong, u64::MAX),
        "FLT_DIG" => (Scalar::Int, 6),
        "FLT_MANT_DIG" => (Scalar::Int, 24),
        "FLT_MAX_EXP" => (Scalar::Int, 128),
        "FLT_MIN_EXP" => (Scalar::Int, -125_i64 as u64),
        _ => return None,
    })
}

//! Floating-point immediates as nvdisasm writes them: up to 20 significant digits, from 1e9 on always with an exponent.

use half::{bf16, f16};

/// Which format the bits are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    F32,
    /// The high 32 bits of a 64-bit float.
    F64High,
    F16,
    Bf16,
}

impl Format {
    /// Bits in all and bits of the mantissa.
    const fn shape(self) -> (u32, u32) {
        match self {
            Format::F32 => (32, 23),
            Format::F64High => (32, 20),
            Format::F16 => (16, 10),
            Format::Bf16 => (16, 7),
        }
    }

    #[allow(clippy::cast_possible_truncation)] // immediates have 16 or 32 bits
    fn value(self, bits: u64) -> f64 {
        match self {
            Format::F32 => f64::from(f32::from_bits(bits as u32)),
            Format::F64High => f64::from_bits(bits << 32),
            Format::F16 => f16::from_bits(bits as u16).to_f64(),
            Format::Bf16 => bf16::from_bits(bits as u16).to_f64(),
        }
    }

    fn bits(self, value: &str) -> Option<u64> {
        Some(match self {
            Format::F32 => u64::from(value.parse::<f32>().ok()?.to_bits()),
            Format::F64High => value.parse::<f64>().ok()?.to_bits() >> 32,
            Format::F16 => u64::from(f16::from_f64(value.parse().ok()?).to_bits()),
            Format::Bf16 => u64::from(bf16::from_f64(value.parse().ok()?).to_bits()),
        })
    }
}

/// The immediate's text.
pub(super) fn text(format: Format, bits: u64) -> String {
    let (width, mantissa) = format.shape();
    let negative = bits >> (width - 1) & 1 == 1;
    let exponents = (1u64 << (width - 1 - mantissa)) - 1;
    let fraction = bits & ((1 << mantissa) - 1);
    if bits >> mantissa & exponents == exponents {
        let sign = if negative { '-' } else { '+' };
        let name = match fraction {
            0 => "INF",
            f if f >> (mantissa - 1) == 1 => "QNAN",
            _ => "SNAN",
        };
        return format!("{sign}{name} ");
    }
    number(format.value(bits))
}

fn number(value: f64) -> String {
    if value == 0.0 {
        return if value.is_sign_negative() { "-0.0 " } else { "0" }.to_owned();
    }
    if value.abs() >= 1e9 {
        return exponential(&format!("{value:.20e}"), false);
    }
    let digits = format!("{value:.19e}");
    let exponent = digits.split_once('e').and_then(|(_, e)| e.parse::<i32>().ok()).unwrap_or(0);
    match usize::try_from(19 - exponent) {
        Ok(decimals) if exponent >= -4 => strip(&format!("{value:.decimals$}")).to_owned(),
        _ => exponential(&digits, true),
    }
}

/// Without zeros at the end of a fraction.
fn strip(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// The exponent with a sign and two digits at least.
fn exponential(text: &str, stripped: bool) -> String {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let mantissa = if stripped { strip(mantissa) } else { mantissa };
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |e| ('-', e));
    format!("{mantissa}e{sign}{exponent:0>2}")
}

/// The immediate at the text's beginning and how many bytes it takes.
pub(super) fn parse(format: Format, text: &str) -> Option<(u64, usize)> {
    let (width, mantissa) = format.shape();
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let signed = text.len() - unsigned.len();
    let exponents = ((1u64 << (width - 1 - mantissa)) - 1) << mantissa;
    let special = [("INF", exponents), ("QNAN", exponents | 1 << (mantissa - 1)), ("SNAN", exponents | 1)];
    if let Some((name, bits)) = special.iter().find(|s| unsigned.starts_with(s.0)) {
        let sign = u64::from(text.starts_with('-')) << (width - 1);
        let end = signed + name.len();
        return Some((bits | sign, end + usize::from(text[end..].starts_with(' '))));
    }
    let mut end = signed + unsigned.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    if let Some(tail) = text[end..].strip_prefix('e') {
        let sign = usize::from(tail.starts_with(['+', '-']));
        let digits = tail[sign..].bytes().take_while(u8::is_ascii_digit).count();
        end += if digits == 0 { 0 } else { 1 + sign + digits };
    }
    // A space follows a negative zero, as it does the special values.
    let zero = text[..end].starts_with('-')
        && text[end..].starts_with(' ')
        && !text[1..end].contains(|c| !matches!(c, '0' | '.'));
    Some((format.bits(&text[..end])?, end + usize::from(zero)))
}

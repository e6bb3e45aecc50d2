//! Number literals of PTX: `12`, `012`, `0x1f`, `0b11`, `12U`, `1.5e3`, `0f3f800000`, `0d3ff0000000000000`.

use super::module::Imm;

/// A constant without its sign.
pub(super) fn constant(text: &str) -> Option<Imm> {
    if let Some(bits) = text.strip_prefix("0f").or(text.strip_prefix("0F")) {
        return hex(bits, 8).and_then(|b| u32::try_from(b).ok()).map(Imm::F32);
    }
    if let Some(bits) = text.strip_prefix("0d").or(text.strip_prefix("0D")) {
        return hex(bits, 16).map(Imm::F64);
    }
    if let Some(i) = integer(text) {
        return Some(Imm::Int(i.cast_signed()));
    }
    let decimal = text.bytes().all(|c| c.is_ascii_digit() || matches!(c, b'.' | b'e' | b'E' | b'+' | b'-'));
    // An integer that is too long must not become a float.
    let fraction = text.contains(['.', 'e', 'E']);
    let value: f64 = text.parse().ok().filter(|_| decimal && fraction)?;
    Some(Imm::F64(value.to_bits()))
}

/// An integer of up to 64 bits.
pub(super) fn integer(text: &str) -> Option<u64> {
    if let Some(n) = short(text.as_bytes()) {
        return Some(n);
    }
    let text = text.strip_suffix('U').unwrap_or(text);
    if let Some(h) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return digits(h, 16);
    }
    if let Some(b) = text.strip_prefix("0b").or_else(|| text.strip_prefix("0B")) {
        return digits(b, 2);
    }
    match text.strip_prefix('0') {
        Some(octal) if !octal.is_empty() => digits(octal, 8),
        _ => digits(text, 10),
    }
}

/// A decimal number of up to 18 digits, the usual case. Numbers with a leading zero are octal and not handled here.
fn short(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 18 || text[0] == b'0' && text.len() > 1 {
        return None;
    }
    let digit = |n: u64, c: &u8| c.is_ascii_digit().then(|| 10 * n + u64::from(c - b'0'));
    text.iter().try_fold(0, digit)
}

fn digits(text: &str, radix: u32) -> Option<u64> {
    // `from_str_radix` would accept a sign.
    if text.bytes().all(|c| c.is_ascii_alphanumeric()) { u64::from_str_radix(text, radix).ok() } else { None }
}

fn hex(text: &str, len: usize) -> Option<u64> {
    let digit = |n: u64, c: u8| char::from(c).to_digit(16).map(|d| n << 4 | u64::from(d));
    if text.len() == len { text.bytes().try_fold(0, digit) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_kinds_have_their_values() {
        assert_eq!(integer("0x1fU"), Some(31));
        assert_eq!(integer("017"), Some(15));
        assert_eq!(integer("0b101"), Some(5));
        assert_eq!(integer("0"), Some(0));
        assert_eq!(integer("18446744073709551615"), Some(u64::MAX));
        assert_eq!(constant("0f3F800000"), Some(Imm::F32(0x3f80_0000)));
        assert_eq!(constant("0d3FF0000000000000"), Some(Imm::F64(1f64.to_bits())));
        assert_eq!(constant("1.5e-3"), Some(Imm::F64(1.5e-3f64.to_bits())));
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in
            ["0f3F80000", "0f3F8000000", "18446744073709551616", "08", "1x", "0x", "0f+1234567", "0d+234567812345678"]
        {
            assert_eq!(constant(text), None, "{text}");
        }
    }
}

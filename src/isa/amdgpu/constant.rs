//! Inline constants and literals of source operands.

use super::row::Class;
use half::{bf16, f16};

/// Codes of the inline floats 240 to 248: 0.5, 1, 2, 4 with both signs and 1/(2 pi), as bits of each format.
struct Floats {
    f32: u32,
    f16: u16,
    bf16: u16,
    f64: u64,
}

const fn fl(f32: u32, f16: u16, bf16: u16, f64: u64) -> Floats {
    Floats { f32, f16, bf16, f64 }
}

const FLOATS: [Floats; 9] = [
    fl(0x3f00_0000, 0x3800, 0x3f00, 0x3fe0_0000_0000_0000),
    fl(0xbf00_0000, 0xb800, 0xbf00, 0xbfe0_0000_0000_0000),
    fl(0x3f80_0000, 0x3c00, 0x3f80, 0x3ff0_0000_0000_0000),
    fl(0xbf80_0000, 0xbc00, 0xbf80, 0xbff0_0000_0000_0000),
    fl(0x4000_0000, 0x4000, 0x4000, 0x4000_0000_0000_0000),
    fl(0xc000_0000, 0xc000, 0xc000, 0xc000_0000_0000_0000),
    fl(0x4080_0000, 0x4400, 0x4080, 0x4010_0000_0000_0000),
    fl(0xc080_0000, 0xc400, 0xc080, 0xc010_0000_0000_0000),
    fl(0x3e22_f983, 0x3118, 0x3e22, 0x3fc4_5f30_6dc9_c882),
];

/// Texts of codes 240 to 248.
pub(super) const FLOAT_TEXT: [&str; 9] = ["0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0", "0.15915494"];
/// Text of code 248 in a 64-bit operand.
pub(super) const INV_2PI_64: &str = "0.15915494309189532";

/// How a constant is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Constant {
    /// An operand code from 128 to 248.
    Inline(u16),
    /// The dword after the instruction.
    Literal(u32),
}

fn inline_int(value: i64) -> Option<u16> {
    match value {
        0..=64 => u16::try_from(128 + value).ok(),
        -16..=-1 => u16::try_from(192 - value).ok(),
        _ => None,
    }
}

/// The integer of codes 128 to 208.
pub(super) fn int_of(code: u16) -> Option<i64> {
    match code {
        128..=192 => Some(i64::from(code) - 128),
        193..=208 => Some(192 - i64::from(code)),
        _ => None,
    }
}

fn position(test: impl Fn(&Floats) -> bool) -> Option<u16> {
    FLOATS.iter().position(test).and_then(|i| u16::try_from(i).ok()).map(|i| 240 + i)
}

/// An inline constant for the 32 bits, as the operand class reads it.
fn inline_bits(class: Class, bits: u32) -> Option<u16> {
    let signed = i64::from(bits.cast_signed());
    let low = u16::try_from(bits).ok();
    match class {
        Class::B32 => inline_int(signed).or_else(|| position(|f| f.f32 == bits)),
        Class::B64 => inline_int(i64::from(bits)),
        Class::F16 => low.and_then(|l| inline_int(i64::from(l.cast_signed())).or_else(|| position(|f| f.f16 == l))),
        Class::Bf16 => low.and_then(|l| inline_int(i64::from(l.cast_signed())).or_else(|| position(|f| f.bf16 == l))),
        Class::I16 => low.and_then(|l| inline_int(i64::from(l.cast_signed()))),
        Class::P16 => inline_int(signed).or_else(|| low.and_then(|l| position(|f| f.f16 == l))),
        Class::Pbf16 => inline_int(signed).or_else(|| low.and_then(|l| position(|f| f.bf16 == l))),
    }
}

/// Encodes 32 given bits.
pub(super) fn of_bits(class: Class, bits: u32) -> Constant {
    let narrow = matches!(class, Class::F16 | Class::Bf16 | Class::I16);
    let bits = if narrow { bits & 0xffff } else { bits };
    inline_bits(class, bits).map_or(Constant::Literal(bits), Constant::Inline)
}

/// Encodes an integer; `None`: it does not fit the operand.
pub(super) fn of_int(class: Class, value: i64) -> Option<Constant> {
    if let Some(code) = inline_int(value) {
        return Some(Constant::Inline(code));
    }
    match class {
        Class::B64 => {
            let inline = position(|f| f.f64 == value.cast_unsigned()).map(Constant::Inline);
            inline.or_else(|| word(value).map(Constant::Literal))
        }
        Class::F16 | Class::Bf16 | Class::I16 => match value {
            -0x8000..=0xffff => Some(of_bits(class, u32::try_from(value & 0xffff).ok()?)),
            _ => None,
        },
        _ => word(value).map(|bits| of_bits(class, bits)),
    }
}

/// 32 bits of a value that fits them signed or unsigned.
pub(super) fn word(value: i64) -> Option<u32> {
    u32::try_from(value).ok().or_else(|| i32::try_from(value).ok().map(i32::cast_unsigned))
}

/// Encodes a float; `None`: its bits do not fit the operand.
pub(super) fn of_float(class: Class, value: f64) -> Option<Constant> {
    #[allow(clippy::cast_possible_truncation)] // rounding to f32 is what the operand needs
    let narrow = value as f32;
    match class {
        Class::B32 => Some(of_bits(class, narrow.to_bits())),
        Class::B64 => {
            let bits = value.to_bits();
            if bits == 0 {
                return Some(Constant::Inline(128));
            }
            let inline = position(|f| f.f64 == bits).map(Constant::Inline);
            let literal = (bits & 0xffff_ffff == 0).then(|| u32::try_from(bits >> 32).ok()).flatten();
            inline.or(literal.map(Constant::Literal))
        }
        Class::F16 | Class::P16 => Some(of_bits(class, u32::from(f16::from_f64(value).to_bits()))),
        Class::Bf16 | Class::Pbf16 => Some(of_bits(class, u32::from(bf16::from_f64(value).to_bits()))),
        Class::I16 => None,
    }
}

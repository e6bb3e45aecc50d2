//! Half and bfloat: their bits, and rounding to them. Registers hold both as f32.

/// The bits of a half from those of an f32, rounded to nearest even.
#[must_use]
pub(crate) fn half_bits(x: u32) -> u16 {
    let sign = (x >> 16) & 0x8000;
    let abs = x & 0x7fff_ffff;
    let rest = if abs >= 0x7f80_0000 {
        let payload = (abs >> 13) & 0x3ff;
        let quiet = u32::from(abs > 0x7f80_0000 && payload == 0) << 9;
        0x7c00 | payload | quiet
    } else if abs >= 0x477f_f000 {
        0x7c00
    } else if abs < 0x3880_0000 {
        // A unit of 0.5 is the smallest half: the addition rounds.
        (f32::from_bits(abs) + 0.5).to_bits() - 0x3f00_0000
    } else {
        (abs + 0xfff + ((abs >> 13) & 1) - (112 << 23)) >> 13
    };
    (sign | rest) as u16
}

/// The bits of an f32 from those of a half.
#[must_use]
pub(crate) fn half_from_bits(h: u32) -> u32 {
    let sign = (h & 0x8000) << 16;
    let (exponent, mantissa) = ((h >> 10) & 0x1f, h & 0x3ff);
    let rest = match exponent {
        0 => (mantissa as f32 * (1.0 / 16_777_216.0)).to_bits(),
        31 => 0x7f80_0000 | (mantissa << 13),
        _ => ((exponent + 112) << 23) | (mantissa << 13),
    };
    sign | rest
}

/// An f32 rounded to what a half can hold.
#[must_use]
pub(crate) fn round_half(x: u32) -> u32 {
    half_from_bits(half_bits(x).into())
}

/// An f32 rounded to what a bfloat can hold.
#[must_use]
pub(crate) fn round_bfloat(x: u32) -> u32 {
    if x & 0x7fff_ffff > 0x7f80_0000 {
        return (x & 0xffff_0000) | 0x0040_0000;
    }
    x.wrapping_add(0x7fff + ((x >> 16) & 1)) & 0xffff_0000
}

/// Cut towards zero, with the last bit set where something was lost: rounding again is then right.
fn odd(v: f64) -> f32 {
    let near = v as f32;
    if f64::from(near) == v || v.is_nan() || near.is_nan() {
        return near;
    }
    let bits = near.to_bits();
    let cut = if f64::from(near).abs() > v.abs() { bits - 1 } else { bits };
    f32::from_bits(cut | 1)
}

#[must_use]
pub(crate) fn round_half_f64(v: f64) -> f32 {
    f32::from_bits(round_half(odd(v).to_bits()))
}

#[must_use]
pub(crate) fn round_bfloat_f64(v: f64) -> f32 {
    f32::from_bits(round_bfloat(odd(v).to_bits()))
}

/// An integer as a bfloat, rounded once.
#[must_use]
pub(crate) fn bfloat_from_u64(v: u64) -> f32 {
    let lost = v & 0x7ff != 0 && v >> 53 != 0;
    let kept = if v >> 53 == 0 { v } else { (v & !0x7ff) | (u64::from(lost) << 11) };
    round_bfloat_f64(kept as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_survives_the_way_to_f32_and_back() {
        for h in 0..=u16::MAX {
            let back = half_bits(half_from_bits(h.into()));
            assert_eq!(back, h, "{h:#x}");
        }
    }

    #[test]
    fn ties_between_halves_go_to_the_even_one() {
        for h in 0..0x7bff_u32 {
            let (a, b) = (f32::from_bits(half_from_bits(h)), f32::from_bits(half_from_bits(h + 1)));
            let even = if h % 2 == 0 { h } else { h + 1 };
            assert_eq!(u32::from(half_bits(f32::midpoint(a, b).to_bits())), even, "{h:#x}");
            let above = f32::from_bits(f32::midpoint(a, b).to_bits() + 1);
            assert_eq!(u32::from(half_bits(above.to_bits())), h + 1, "{h:#x}");
        }
    }

    #[test]
    fn a_bfloat_of_a_large_integer_is_rounded_once() {
        // Just above a tie: f32 would lose the bit that decides.
        assert_eq!(bfloat_from_u64((0x101 << 30) + 1), (0x102_u64 << 30) as f32);
        assert_eq!(bfloat_from_u64(0x101 << 30), (0x100_u64 << 30) as f32);
    }
}

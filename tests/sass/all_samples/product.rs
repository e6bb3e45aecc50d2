//! Sums of products of matrix elements, as the PTX manual's formats say them, and how far a sum may be from the exact
//! one.

/// A format of elements or sums.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Format {
    F64,
    F32,
    Tf32,
    F16,
    Bf16,
    E4m3,
    E5m2,
    S32,
    S8,
    U8,
    S4,
    U4,
    B1,
}

use Format::*;

impl Format {
    /// The format that an instruction's part names.
    pub fn named(part: &str) -> Option<Format> {
        const NAMES: [&str; 13] =
            ["f64", "f32", "tf32", "f16", "bf16", "e4m3", "e5m2", "s32", "s8", "u8", "s4", "u4", "b1"];
        const ALL: [Format; 13] = [F64, F32, Tf32, F16, Bf16, E4m3, E5m2, S32, S8, U8, S4, U4, B1];
        NAMES.iter().position(|n| *n == part).map(|k| ALL[k])
    }

    pub fn bits(self) -> usize {
        match self {
            F64 => 64,
            F32 | Tf32 | S32 => 32,
            F16 | Bf16 => 16,
            E4m3 | E5m2 | S8 | U8 => 8,
            S4 | U4 => 4,
            B1 => 1,
        }
    }

    fn is_float(self) -> bool {
        matches!(self, F64 | F32 | Tf32 | F16 | Bf16 | E4m3 | E5m2)
    }

    /// Bits of exponent and of fraction.
    fn parts(self) -> (u32, u32) {
        match self {
            F64 => (11, 52),
            Tf32 | F32 => (8, 23),
            F16 => (5, 10),
            Bf16 => (8, 7),
            E4m3 => (4, 3),
            _ => (5, 2),
        }
    }

    /// The value of the bits; those of the tests are never infinite or NaN.
    pub fn value(self, bits: u64) -> f64 {
        let unsigned = bits & (u64::MAX >> (64 - self.bits()));
        if !self.is_float() {
            let shift = 64 - self.bits();
            let signed = (bits << shift).cast_signed() >> shift;
            return if matches!(self, S32 | S8 | S4) { signed as f64 } else { unsigned as f64 };
        }
        let (exponent, fraction) = self.parts();
        let bias = (1i32 << (exponent - 1)) - 1;
        let e = (unsigned >> fraction & ((1 << exponent) - 1)) as i32;
        let f = (unsigned & ((1 << fraction) - 1)) as f64 / (1u64 << fraction) as f64;
        let size = if e == 0 { f * 2f64.powi(1 - bias) } else { (1.0 + f) * 2f64.powi(e - bias) };
        if unsigned >> (exponent + fraction) == 1 { -size } else { size }
    }

    /// Bits of this format from random ones: whole numbers from -4 to 4, or any between -16 and 16; integers of all
    /// kinds, sums near their ends in place of whole numbers.
    pub fn element(self, random: u64, whole: bool) -> u64 {
        if self == S32 && whole {
            return 0x7fff_0000 + random % 0x1_ffff;
        }
        if !self.is_float() {
            return random & (u64::MAX >> (64 - self.bits()));
        }
        let (exponent, fraction) = self.parts();
        let bias = (1u64 << (exponent - 1)) - 1;
        let (sign, random) = (random & 1, random >> 1);
        let size = if whole {
            // 0, 1, 2, 3, 4: exponents and the first bit of the fraction.
            let [e, first] = [[0, 0], [bias, 0], [bias + 1, 0], [bias + 1, 1], [bias + 2, 0]][(random % 5) as usize];
            e << fraction | first << (fraction - 1)
        } else {
            let kept = if self == Tf32 { 10 } else { fraction };
            (bias - 5 + random % 9) << fraction | (random >> 8 & ((1 << kept) - 1)) << (fraction - kept)
        };
        sign << (exponent + fraction) | size
    }
}

/// Numbers that look random.
pub fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state ^ state >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd) >> 9
    }
}

/// A buffer's bytes from elements in their order.
pub fn packed(format: Format, elements: impl Iterator<Item = u64>) -> Vec<u8> {
    let mut bytes = vec![];
    let (mut word, mut filled) = (0u64, 0);
    for e in elements {
        word |= e << filled;
        filled += format.bits();
        if filled == 64 || filled >= 8 && filled % 8 == 0 {
            bytes.extend(&word.to_le_bytes()[..filled / 8]);
            (word, filled) = (0, 0);
        }
    }
    bytes
}

/// Element `k` of a buffer of this format.
pub fn at(format: Format, bytes: &[u8], k: usize) -> u64 {
    let (bit, len) = (k * format.bits(), format.bits().div_ceil(8));
    let read = bytes[bit / 8..][..len].iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b));
    read >> (bit % 8) & (u64::MAX >> (64 - format.bits()))
}

/// A sum that an instruction makes, or several that go on with what the one before left.
pub struct Sum {
    pub format: Format,
    /// Integers stay at the format's ends.
    pub saturates: bool,
    pub start: f64,
    /// Each instruction's products.
    pub steps: Vec<Vec<f64>>,
}

impl Sum {
    /// What is wrong with the bits that are there.
    ///
    /// The manual leaves the order of additions and the intermediate precision open, so that a sum of floats is certain
    /// only where no order can round: where all parts are multiples of one number and together not more than the
    /// format's precision of it. Elsewhere each of its additions may cut off a unit in the last place of what all
    /// parts' sizes give together.
    pub fn wrong(&self, bits: u64) -> Option<String> {
        let got = self.format.value(bits);
        if !self.format.is_float() {
            let want = self.steps.iter().fold(self.start, |sum, step| {
                let sum = sum + step.iter().sum::<f64>();
                if self.saturates {
                    sum.clamp(f64::from(i32::MIN), f64::from(i32::MAX))
                } else {
                    f64::from(sum as i64 as i32)
                }
            });
            return (got != want).then(|| format!("{got}, not {want}"));
        }
        let parts = || self.steps.iter().flatten().copied().chain([self.start]).filter(|p| *p != 0.0);
        let (want, size) = (parts().sum::<f64>(), parts().map(f64::abs).sum::<f64>());
        let precision = self.format.parts().1 as i32 + 1;
        let least = parts().map(last_place).min().unwrap_or(0);
        let certain = size <= 2f64.powi(least + precision);
        let off = if certain { 0.0 } else { parts().count() as f64 * 2f64.powi(1 - precision) * size };
        ((got - want).abs() > off || got.is_nan()).then(|| format!("{got}, not {want} (within {off})"))
    }
}

/// The power of two of a number's last bit that is one.
fn last_place(v: f64) -> i32 {
    let bits = v.to_bits();
    let (exponent, fraction) = ((bits >> 52 & 0x7ff) as i32, bits & ((1 << 52) - 1));
    exponent - 1075 + (fraction | 1 << 52).trailing_zeros() as i32
}

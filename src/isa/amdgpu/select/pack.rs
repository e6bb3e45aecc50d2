//! Lanes of 8 and 16 bits that share a register.

use super::super::op;
use super::mir::Part;
use super::{Res, Select, Src};
use doorbell_uop::Scalar;

impl Select<'_> {
    /// A lane by itself: integers extended, halves in the low bits.
    pub(super) fn unpack(&mut self, x: Src, t: Scalar) -> Res<Src> {
        let Src::Packed { word, shift, bits } = x else { return Ok(x) };
        let (amount, width) = (Src::Bits(shift.into()), Src::Bits(bits.into()));
        let float = matches!(t, Scalar::F16 | Scalar::BF16);
        let word = Src::Part(word);
        match (t.is_signed() && !float, shift + bits == 32) {
            _ if float && shift == 0 => Ok(word),
            (true, true) => self.v(op::V_ASHRREV_I32, &[amount, word]),
            (false, true) => self.v(op::V_LSHRREV_B32, &[amount, word]),
            (true, false) => self.v(op::V_BFE_I32, &[word, amount, width]),
            (false, false) => self.v(op::V_BFE_U32, &[word, amount, width]),
        }
    }

    /// Lanes of `bits` bits as one register; `t` is their type. Fewer than fill it leave the rest undefined.
    pub(super) fn pack(&mut self, lanes: &[Src], t: Scalar, to: Option<Part>) -> Res<Src> {
        let bits = 8 * t.size_bytes() as u8;
        if let Some(word) = whole_word(lanes, bits) {
            return Ok(Src::Part(word));
        }
        if let Some(constant) = constant(lanes, bits) {
            return Ok(Src::Bits(constant));
        }
        let mut single = Vec::with_capacity(lanes.len());
        for lane in lanes {
            single.push(self.unpack(*lane, t)?);
        }
        let bytes = |s: &mut Self, low: Src, high: Src, to: Option<Part>| s.permute(high, low, 0x0c0c_0400, to);
        match (bits, single.as_slice()) {
            (_, [one]) => Ok(*one),
            (16, [low, high]) => self.permute(*high, *low, 0x0504_0100, to),
            (8, [low, high]) => bytes(self, *low, *high, to),
            (8, [a, b, c, d]) => {
                let low = bytes(self, *a, *b, None)?;
                let high = bytes(self, *c, *d, None)?;
                self.permute(high, low, 0x0504_0100, to)
            }
            _ => Err(self.malformed(format!("{} lanes of {t} in a register", lanes.len()))),
        }
    }

    /// `v_perm_b32`: bytes 0..3 of the selector name those of `low`, 4..7 those of `high`, 12 a zero.
    fn permute(&mut self, high: Src, low: Src, selector: u64, to: Option<Part>) -> Res<Src> {
        let to = match to {
            Some(to) => to,
            None => self.v_part(1),
        };
        self.v_to(op::V_PERM_B32, to, &[high, low, Src::Bits(selector)])
    }
}

/// The register whose lanes these are, all of them in order.
fn whole_word(lanes: &[Src], bits: u8) -> Option<Part> {
    let Src::Packed { word, .. } = lanes.first()? else { return None };
    let in_place = |(k, s): (usize, &Src)| *s == Src::Packed { word: *word, shift: k as u8 * bits, bits };
    lanes.iter().enumerate().all(in_place).then_some(*word)
}

fn constant(lanes: &[Src], bits: u8) -> Option<u64> {
    let mask = (1u64 << bits) - 1;
    lanes.iter().enumerate().try_fold(0u64, |sum, (k, s)| match s {
        Src::Bits(b) => Some(sum | (b & mask) << (k as u32 * u32::from(bits))),
        _ => None,
    })
}

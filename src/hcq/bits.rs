//! Bit fields of packet words. Only this module shifts and masks.
//!
//! Layer: used by every `hcq::packet`. A field is given by its word and its bits, as in the manuals: `field(word,
//! lowest, highest)`.

/// A value does not fit its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("packet field {field}: value {value:#x} is over the limit {max:#x}")]
pub struct FieldOverflow {
    pub field: &'static str,
    pub value: u64,
    pub max: u64,
}

/// Bits `lo..=hi` of word `word` of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    word: usize,
    lo: u32,
    hi: u32,
}

/// Bits `lo..=hi` of word `word`.
#[must_use]
pub const fn field(word: usize, lo: u32, hi: u32) -> Field {
    assert!(lo <= hi && hi < 32);
    Field { word, lo, hi }
}

impl Field {
    const fn max(self) -> u32 {
        u32::MAX >> (31 - (self.hi - self.lo))
    }

    /// The packet's word that holds the field.
    #[must_use]
    pub const fn word(self) -> usize {
        self.word
    }

    /// The field's bits within its word.
    #[must_use]
    pub const fn mask(self) -> u32 {
        self.max() << self.lo
    }

    /// Stores `value` in the field of `words`.
    ///
    /// # Errors
    /// `FieldOverflow` if the value is too large, or if the packet has no such word.
    pub fn set(self, words: &mut [u32], name: &'static str, value: u32) -> Result<(), FieldOverflow> {
        let overflow = FieldOverflow { field: name, value: u64::from(value), max: u64::from(self.max()) };
        let word = words.get_mut(self.word).ok_or(overflow)?;
        if value > self.max() {
            return Err(overflow);
        }
        *word = (*word & !(self.max() << self.lo)) | (value << self.lo);
        Ok(())
    }

    /// The field's value; words missing in a short packet read as zero.
    #[must_use]
    #[inline]
    pub fn get(self, words: &[u32]) -> u32 {
        (words.get(self.word).copied().unwrap_or(0) >> self.lo) & self.max()
    }
}

/// Finds reserved bits that are set: the first word with bits outside all fields, as word index and bits. Words without
/// any field are ignored.
#[must_use]
pub(crate) fn unclaimed(words: &[u32], fields: &[Field]) -> Option<(usize, u32)> {
    let claimed = |at: usize| fields.iter().filter(|f| f.word == at).fold(0, |mask, f| mask | f.mask());
    let left = |(at, word): (usize, &u32)| match claimed(at) {
        0 => None,
        mask => Some((at, word & !mask)).filter(|(_, bits)| *bits != 0),
    };
    words.iter().enumerate().find_map(left)
}

/// Low and high dword of a 64-bit value.
#[must_use]
#[inline]
pub fn split(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

/// 64-bit value of a low and a high dword.
#[must_use]
#[inline]
pub fn join(lo: u32, hi: u32) -> u64 {
    u64::from(lo) | (u64::from(hi) << 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_changes_its_bits_only() {
        let mut w = [u32::MAX, u32::MAX];
        field(1, 4, 7).set(&mut w, "f", 0).unwrap();
        assert_eq!(w, [u32::MAX, 0xffff_ff0f]);
        field(1, 0, 31).set(&mut w, "f", 0x1234_5678).unwrap();
        assert_eq!(field(1, 8, 15).get(&w), 0x56);
    }

    #[test]
    fn value_over_the_field_is_refused() {
        let mut w = [0];
        let err = field(0, 8, 11).set(&mut w, "count", 16).unwrap_err();
        assert_eq!(err, FieldOverflow { field: "count", value: 16, max: 15 });
        assert_eq!(w, [0]);
    }

    #[test]
    fn word_beyond_the_packet_is_refused() {
        assert!(field(3, 0, 0).set(&mut [0], "x", 0).is_err());
        assert_eq!(field(3, 0, 0).get(&[0]), 0);
    }

    #[test]
    fn bits_outside_the_named_fields_are_found() {
        let fields = [field(0, 0, 7), field(2, 4, 7), field(2, 0, 0)];
        assert_eq!(unclaimed(&[0xff, u32::MAX, 0xf1], &fields), None); // word 1 has no fields: not looked at
        assert_eq!(unclaimed(&[0xff, 0, 0x1f2], &fields), Some((2, 0x102)));
    }

    #[test]
    fn split_and_join_are_inverse() {
        let [lo, hi] = split(0x0123_4567_89ab_cdef);
        assert_eq!((lo, hi), (0x89ab_cdef, 0x0123_4567));
        assert_eq!(join(lo, hi), 0x0123_4567_89ab_cdef);
    }
}

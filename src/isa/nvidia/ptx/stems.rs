//! Fast lookup of registers by the bytes of their names. Nearly all are declared with a count, as `%rd<12>`, and are
//! found by the part before the digits (the stem) in one step.

/// Slots of the hash table, a power of two.
const PLACES: usize = 16;

/// The ranges in scope, by stem. A register that is not found here may still be declared.
#[derive(Default)]
pub(super) struct Stems {
    places: [Stem; PLACES],
    /// Some names that are declared individually, or stems with digits, may look like registers of these ranges.
    blurred: bool,
}

/// Up to seven bytes of the stem, the first one lowest, and its registers: the number of the first, and how many there
/// are.
#[derive(Clone, Copy, Default)]
struct Stem {
    key: u64,
    first: u32,
    count: u32,
}

/// A one in each byte.
const ONES: u64 = 0x0101_0101_0101_0101;

/// The table slot of a stem.
#[inline]
#[allow(clippy::cast_possible_truncation)] // four bits
const fn place(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize
}

/// The number from up to eight digits, whose values are in the highest bytes, the last digit highest.
#[inline]
#[allow(clippy::cast_possible_truncation)] // less than 10^8
const fn number(digits: u64) -> u32 {
    let pairs = (digits.wrapping_mul(10) + (digits >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(100) + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    (fours.wrapping_mul(10_000) + (fours >> 32)) as u32
}

impl Stems {
    /// Declares the registers `stem<0>` up to that count; the first one has this number.
    pub(crate) fn range(&mut self, stem: &str, first: u32, count: u32) {
        let stem = stem.as_bytes();
        self.blurred |= stem.iter().any(u8::is_ascii_digit);
        if stem.len() > 7 {
            return;
        }
        let key = stem.iter().rev().fold(0, |n, c| n << 8 | u64::from(*c));
        let here = &mut self.places[place(key)];
        match *here {
            Stem { key: 0, .. } => *here = Stem { key, first, count },
            // Two ranges with one stem: which one is meant depends on the number, so this table does not answer.
            Stem { key: old, .. } if old == key => here.count = 0,
            Stem { .. } => {}
        }
    }

    /// Declares a single register.
    pub(crate) fn name(&mut self, name: &str) {
        self.blurred |= name.bytes().any(|c| c.is_ascii_digit());
    }

    /// The number of the register at the start of these eight bytes (the first one lowest), and the length of its name
    /// with all digits.
    #[inline]
    pub(crate) fn begins(&self, head: u64) -> Option<(u32, usize)> {
        // In each byte the highest bit says that it is not a digit.
        let values = head ^ (ONES * 0x30);
        let others = ((values & (ONES * 0x7f)) + ONES * 0x76) | values;
        let at = (!others & (ONES * 0x80)).trailing_zeros() & !7;
        if at == 64 {
            return None;
        }
        let len = ((others & (ONES * 0x80)) >> at).trailing_zeros().min(64 - at) & !7;
        let (key, digits) = (head & !(u64::MAX << at), values >> at << (64 - len));
        let stem = self.places[place(key)];
        let number = number(digits);
        // With a leading zero it is a different name.
        let zero = len > 8 && values >> at & 0xff == 0;
        let found = stem.key == key && number < stem.count && !zero && !self.blurred;
        found.then_some((stem.first.saturating_add(number), ((at + len) / 8) as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begins(stems: &Stems, text: &str) -> Option<(u32, usize)> {
        let mut bytes = [b';'; 8];
        text.bytes().take(8).zip(&mut bytes).for_each(|(c, place)| *place = c);
        stems.begins(u64::from_le_bytes(bytes))
    }

    #[test]
    fn registers_of_ranges_are_found_by_stem_and_number() {
        let mut stems = Stems::default();
        stems.range("%r", 5, 1000);
        stems.range("%rd", 1005, 12_345_678);
        let of = |text| begins(&stems, text);
        assert_eq!((of("%r0, %r1"), of("%r7]"), of("%r10;")), (Some((5, 3)), Some((12, 3)), Some((15, 4))));
        assert_eq!((of("%r999"), of("%r1000"), of("%r01")), (Some((1004, 5)), None, None));
        assert_eq!((of("%rd12345"), of("%rd0"), of("%rd")), (Some((13_350, 8)), Some((1005, 4)), None));
        assert_eq!((of("%f1"), of("r1"), of("12345678"), of("%tid.x")), (None, None, None, None));
    }

    #[test]
    fn what_may_be_another_register_is_not_found() {
        let mut stems = Stems::default();
        stems.range("%r", 0, 10);
        stems.name("%carry");
        assert_eq!(begins(&stems, "%r3"), Some((3, 3)));
        stems.range("%f", 10, 10);
        stems.range("%f", 20, 5);
        assert_eq!((begins(&stems, "%f3"), begins(&stems, "%r3")), (None, Some((3, 3))));
        stems.name("%r3");
        assert_eq!(begins(&stems, "%r3"), None);
    }
}

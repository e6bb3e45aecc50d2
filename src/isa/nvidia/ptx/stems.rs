//! Registers by the bytes of their names: nearly all are declared with a count, as `%rd<12>`, and are found by what
//! stands before their digits in one step.

/// Places of the table, a power of two.
const PLACES: usize = 16;

/// The ranges in sight by their stems. What it does not find may still be declared.
#[derive(Default)]
pub(super) struct Stems {
    places: [Stem; PLACES],
    /// Names that are declared one by one, or stems with digits, may look like registers of these ranges.
    blurred: bool,
}

/// Up to seven bytes, the first one lowest, and the registers that begin so: the number of the first, and how many
/// there are.
#[derive(Clone, Copy, Default)]
struct Stem {
    key: u64,
    first: u32,
    count: u32,
}

/// One in each byte.
const ONES: u64 = 0x0101_0101_0101_0101;

/// Where a stem stands in the table.
#[inline]
#[allow(clippy::cast_possible_truncation)] // four bits
const fn place(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize
}

/// The number that up to eight digits make, whose values stand in the highest bytes, the last digit highest.
#[inline]
#[allow(clippy::cast_possible_truncation)] // less than 10^8
const fn number(digits: u64) -> u32 {
    let pairs = (digits.wrapping_mul(10) + (digits >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(100) + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    (fours.wrapping_mul(10_000) + (fours >> 32)) as u32
}

impl Stems {
    /// Registers `stem<0>` and on, that many, are declared; the first has that number.
    pub fn range(&mut self, stem: &str, first: u32, count: u32) {
        let stem = stem.as_bytes();
        self.blurred |= stem.iter().any(u8::is_ascii_digit);
        if stem.len() > 7 {
            return;
        }
        let key = stem.iter().rev().fold(0, |n, c| n << 8 | u64::from(*c));
        let here = &mut self.places[place(key)];
        match *here {
            Stem { key: 0, .. } => *here = Stem { key, first, count },
            // Which of two is meant depends on the number.
            Stem { key: old, .. } if old == key => here.count = 0,
            Stem { .. } => {}
        }
    }

    /// One register is declared.
    pub fn name(&mut self, name: &str) {
        self.blurred |= name.bytes().any(|c| c.is_ascii_digit());
    }

    /// The number of the register whose name begins eight bytes, the first one lowest, and how long the name is, with
    /// all digits that stand there.
    #[inline]
    pub fn begins(&self, head: u64) -> Option<(u32, usize)> {
        // A byte's highest bit says that it is no digit.
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
        // A zero before other digits makes another name of it.
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

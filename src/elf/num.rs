//! The few conversions between file numbers (`u64`) and memory numbers (`usize`), in one place.

/// `usize` to `u64`: lossless on every target this crate builds for (64 bits or fewer).
pub(crate) const fn wide(n: usize) -> u64 {
    n as u64
}

/// `u64` to an index; a value that no slice can have becomes `usize::MAX`, which every bounds check refuses.
pub(crate) fn index(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// `n` rounded up to a multiple of `align` (a power of two), or `None` beyond the address space.
pub(crate) fn align_up(n: u64, align: u64) -> Option<u64> {
    Some(n.checked_add(align - 1)? & !(align - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn align_up_reaches_the_next_multiple_and_refuses_to_wrap() {
        assert_eq!(align_up(0, 16), Some(0));
        assert_eq!(align_up(1, 16), Some(16));
        assert_eq!(align_up(4096, 4096), Some(4096));
        assert_eq!(align_up(u64::MAX - 2, 16), None);
    }
}

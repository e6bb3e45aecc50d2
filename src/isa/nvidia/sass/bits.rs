//! Bit ranges of a 128-bit word: the only shifts and masks of this room.

/// Ranges of bits, both ends inclusive; a field in several is their concatenation, the first holds its lowest bits.
pub type Ranges = &'static [(u8, u8)];

/// The lowest `count` bits set.
#[must_use]
#[inline]
pub const fn ones(count: u32) -> u128 {
    if count >= 128 { u128::MAX } else { (1 << count) - 1 }
}

/// A word as its halves, the low one first, which need no alignment of sixteen bytes.
#[must_use]
#[inline]
#[allow(clippy::cast_possible_truncation)] // one half, then the other
pub const fn halves(word: u128) -> [u64; 2] {
    [word as u64, (word >> 64) as u64]
}

/// The word of two halves.
#[must_use]
#[inline]
pub const fn joined(halves: &[u64; 2]) -> u128 {
    halves[0] as u128 | (halves[1] as u128) << 64
}

/// How many bits the ranges have.
#[must_use]
#[inline]
pub const fn width(ranges: Ranges) -> u32 {
    let (mut total, mut i) = (0, 0);
    while i < ranges.len() {
        total += ranges[i].1 as u32 - ranges[i].0 as u32 + 1;
        i += 1;
    }
    total
}

/// The bits of the ranges in place.
#[must_use]
#[inline]
pub const fn mask(ranges: Ranges) -> u128 {
    let (mut all, mut i) = (0, 0);
    while i < ranges.len() {
        all |= ones(ranges[i].1 as u32 - ranges[i].0 as u32 + 1) << ranges[i].0;
        i += 1;
    }
    all
}

/// The field's value. Fields have at most 64 bits.
#[must_use]
#[inline]
#[allow(clippy::cast_possible_truncation)] // masked to the width, which is at most 64
pub const fn get(word: u128, ranges: Ranges) -> u64 {
    let (mut value, mut shift, mut i) = (0u64, 0, 0);
    while i < ranges.len() {
        let count = ranges[i].1 as u32 - ranges[i].0 as u32 + 1;
        value |= ((word >> ranges[i].0 & ones(count)) as u64) << shift;
        shift += count;
        i += 1;
    }
    value
}

/// The word with the field set; bits beyond the width are dropped, so check first with [`fits`].
#[must_use]
#[inline]
pub const fn put(word: u128, ranges: Ranges, value: u64) -> u128 {
    let (mut word, mut rest, mut i) = (word, value as u128, 0);
    while i < ranges.len() {
        let count = ranges[i].1 as u32 - ranges[i].0 as u32 + 1;
        word = word & !(ones(count) << ranges[i].0) | (rest & ones(count)) << ranges[i].0;
        rest >>= count;
        i += 1;
    }
    word
}

/// Whether an unsigned value has that many bits at most.
#[must_use]
#[inline]
pub const fn fits(value: u64, width: u32) -> bool {
    width >= 64 || value >> width == 0
}

/// The value of a two's complement number of that many bits (1 to 64).
#[must_use]
#[inline]
pub const fn signed(value: u64, width: u32) -> i64 {
    let up = 64 - width;
    (value << up).cast_signed() >> up
}

/// A number as two's complement of that many bits, when it is in the range of either a signed or an unsigned one.
#[must_use]
#[inline]
#[allow(clippy::cast_possible_truncation)] // masked to at most 64 bits
pub const fn wrapped(value: i128, width: u32) -> Option<u64> {
    if value >= 1 << width || value < -(1 << (width - 1)) {
        return None;
    }
    Some((value.cast_unsigned() & ones(width)) as u64)
}

//! A map from addresses to a driver's buffers, including recently freed ones: to find a buffer by address, and to
//! describe a fault's address in reports.
//!
//! Layer: a driver's connection owns one; reports query it.

use std::collections::{BTreeMap, VecDeque};

/// Number of freed buffers to remember.
const REMEMBERED: usize = 64;

/// Buffers by address, each with the driver's data `T`; address and length of freed ones.
#[derive(Debug)]
pub(crate) struct BufferMap<T> {
    live: BTreeMap<u64, (u64, T)>,
    freed: VecDeque<(u64, u64)>,
}

impl<T> Default for BufferMap<T> {
    fn default() -> Self {
        Self { live: BTreeMap::new(), freed: VecDeque::new() }
    }
}

impl<T> BufferMap<T> {
    /// Adds a buffer.
    pub(crate) fn note(&mut self, va: u64, len_bytes: u64, what: T) {
        self.live.insert(va, (len_bytes, what));
    }

    /// Removes the buffer that starts at `va`, and remembers it as freed.
    pub(crate) fn forget(&mut self, va: u64) {
        if let Some((len_bytes, _)) = self.live.remove(&va) {
            if self.freed.len() == REMEMBERED {
                self.freed.pop_front();
            }
            self.freed.push_back((va, len_bytes));
        }
    }

    /// The buffer that contains an address: its start, its length and the driver's data.
    #[must_use]
    pub(crate) fn containing(&self, va: u64) -> Option<(u64, u64, &T)> {
        let (at, (len_bytes, what)) = self.live.range(..=va).next_back()?;
        (va - at < *len_bytes).then_some((*at, *len_bytes, what))
    }

    /// The driver's data of all buffers.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.live.values_mut().map(|(_, what)| what)
    }

    /// The first buffer that begins before `end` and ends after `start`.
    #[must_use]
    pub(crate) fn overlapping(&self, start: u64, end: u64) -> Option<(u64, u64)> {
        let (at, (len_bytes, _)) = self.live.range(..end).next_back()?;
        (at + len_bytes > start).then_some((*at, *len_bytes))
    }

    /// Describes in words which buffer contains, or contained, an address; for a report.
    #[must_use]
    pub(crate) fn describe(&self, va: u64) -> String {
        let holds = |(at, len): &(u64, u64)| (*at..at + len).contains(&va);
        let below = self.live.range(..=va).next_back().map(|(at, (len, _))| (*at, *len));
        if let Some((at, len)) = below.filter(holds) {
            return format!("{:#x} into a buffer of {len:#x} bytes", va - at);
        }
        if let Some((at, len)) = self.freed.iter().rev().find(|b| holds(b)) {
            return format!("{:#x} into a freed buffer of {len:#x} bytes", va - at);
        }
        let above = self.live.range(va..).next().map(|(at, (len, _))| (*at, *len));
        let near = [
            below.map(|(at, len)| format!("{:#x} after a buffer of {len:#x} bytes", va - at - len)),
            above.map(|(at, len)| format!("{:#x} before a buffer of {len:#x} bytes", at - va)),
        ];
        let near: Vec<String> = near.into_iter().flatten().collect();
        if near.is_empty() { "no buffers".into() } else { near.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_by_the_buffers_around_them() {
        let mut map = BufferMap::default();
        assert_eq!(map.describe(5), "no buffers");
        map.note(0x1000, 0x1000, 'a');
        map.note(0x4000, 0x1000, 'b');
        assert_eq!(map.containing(0x1fff), Some((0x1000, 0x1000, &'a')));
        assert_eq!((map.containing(0x2000), map.containing(0xfff)), (None, None));
        assert_eq!(map.describe(0x4010), "0x10 into a buffer of 0x1000 bytes");
        let between = "0x80 after a buffer of 0x1000 bytes, 0x1f80 before a buffer of 0x1000 bytes";
        assert_eq!(map.describe(0x2080), between);
        assert_eq!(map.overlapping(0x1800, 0x3000), Some((0x1000, 0x1000)));
        assert_eq!(map.overlapping(0x2000, 0x4000), None);
        map.forget(0x1000);
        assert_eq!(map.describe(0x1234), "0x234 into a freed buffer of 0x1000 bytes");
    }
}

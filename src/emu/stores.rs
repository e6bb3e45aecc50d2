//! What a grid stores, kept apart from memory: so that a grid can run twice, once with checks on a copy and once as it
//! is fast, and both have to leave the same bits.
//!
//! Bytes are known by their device address: memory that is mapped at two addresses counts as two.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes that were stored, eight of them a word.
#[derive(Debug, Default)]
pub(crate) struct Stores(Mutex<HashMap<u64, Word>>);

/// Stored bytes of an aligned word: their values, and ones where they are.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    value: u64,
    stored: u64,
}

/// A byte that two runs left with different values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub va: u64,
    /// With checks; none where only the other run has stored.
    pub checked: Option<u8>,
    pub fast: u8,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { va, checked, fast } = self;
        write!(f, "with checks and without, a kernel leaves different bits: at {va:#x} ")?;
        match checked {
            Some(checked) => write!(f, "{checked:#04x} with, {fast:#04x} without"),
            None => write!(f, "nothing with, {fast:#04x} without"),
        }
    }
}

/// Each aligned word of a range: its address, the range's first byte in it, its first byte in the range, how many.
fn words(va: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = va + done as u64;
        let inside = (at % 8) as usize;
        let count = (8 - inside).min(len - done);
        let word = (at - inside as u64, inside, done, count);
        done += count;
        (count != 0).then_some(word)
    })
}

impl Stores {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Word>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes stored bytes.
    pub(crate) fn store(&self, va: u64, bytes: &[u8]) {
        store(&mut self.lock(), va, bytes);
    }

    /// Puts what was stored over bytes that memory has.
    pub(crate) fn over(&self, va: u64, bytes: &mut [u8]) {
        over(&self.lock(), va, bytes);
    }

    /// Replaces a number of 4 or 8 bytes, of which memory has these; the old one.
    pub(crate) fn update(&self, va: u64, memory: &[u8], change: &mut dyn FnMut(u64) -> u64) -> u64 {
        let mut words = self.lock();
        let mut bytes = [0; 8];
        bytes[..memory.len()].copy_from_slice(memory);
        over(&words, va, &mut bytes[..memory.len()]);
        let old = u64::from_le_bytes(bytes);
        store(&mut words, va, &change(old).to_le_bytes()[..memory.len()]);
        old
    }

    /// The first byte that differs from what another run has stored since; `read` reads memory.
    pub(crate) fn difference(&self, other: &Stores, mut read: impl FnMut(u64, &mut [u8])) -> Option<Difference> {
        let (checked, fast) = (self.lock(), other.lock());
        let mut all: Vec<u64> = checked.keys().chain(fast.keys()).copied().collect();
        all.sort_unstable();
        all.dedup();
        all.into_iter().find_map(|va| {
            let expected = checked.get(&va).copied().unwrap_or_default();
            let touched = expected.stored | fast.get(&va).map_or(0, |word| word.stored);
            (0..8).filter(|k| touched >> (8 * k) & 1 != 0).find_map(|k| {
                let at = va + k;
                let mut byte = [0];
                read(at, &mut byte);
                let of = |v: u64| (v >> (8 * k)) as u8;
                let checked = (of(expected.stored) != 0).then(|| of(expected.value));
                (checked != Some(byte[0])).then_some(Difference { va: at, checked, fast: byte[0] })
            })
        })
    }
}

fn store(all: &mut HashMap<u64, Word>, va: u64, bytes: &[u8]) {
    for (word, inside, from, count) in words(va, bytes.len()) {
        let (mut value, mut ones) = ([0; 8], [0; 8]);
        value[inside..inside + count].copy_from_slice(&bytes[from..from + count]);
        ones[inside..inside + count].fill(0xff);
        let (value, ones) = (u64::from_le_bytes(value), u64::from_le_bytes(ones));
        let known = all.entry(word).or_default();
        *known = Word { value: known.value & !ones | value, stored: known.stored | ones };
    }
}

fn over(all: &HashMap<u64, Word>, va: u64, bytes: &mut [u8]) {
    if all.is_empty() {
        return;
    }
    for (word, inside, from, count) in words(va, bytes.len()) {
        let Some(known) = all.get(&word) else { continue };
        let (value, stored) = (known.value.to_le_bytes(), known.stored.to_le_bytes());
        for k in (0..count).filter(|k| stored[inside + k] != 0) {
            bytes[from + k] = value[inside + k];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_bytes_are_read_again_and_the_others_are_memory() {
        let stores = Stores::default();
        stores.store(6, &[1, 2, 3, 4]);
        let mut bytes = [9; 6];
        stores.over(5, &mut bytes);
        assert_eq!(bytes, [9, 1, 2, 3, 4, 9]);
        assert_eq!(stores.update(8, &[7, 7, 7, 7], &mut |old| old + 1), 0x0707_0403);
        stores.over(5, &mut bytes);
        assert_eq!(bytes, [9, 1, 2, 4, 4, 7]);
    }

    #[test]
    fn a_byte_that_differs_and_one_that_only_one_run_has_stored_are_found() {
        let memory = |at: u64, bytes: &mut [u8]| bytes[0] = at as u8;
        let (checked, fast) = (Stores::default(), Stores::default());
        checked.store(16, &[16, 17]);
        fast.store(16, &[0, 0]);
        assert_eq!(checked.difference(&fast, memory), None);
        fast.store(30, &[30]);
        let only_fast = Difference { va: 30, checked: None, fast: 30 };
        assert_eq!(checked.difference(&fast, memory), Some(only_fast));
        checked.store(18, &[1]);
        let other = Difference { va: 18, checked: Some(1), fast: 18 };
        assert_eq!(checked.difference(&fast, memory), Some(other));
    }
}

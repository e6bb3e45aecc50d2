//! A ring of dwords between one producer and one consumer at a time.
//!
//! Layer: `device` owns one ring per queue. Source: the rings of AMD's and NVIDIA's channels: a power of two of words,
//! a write pointer advanced by the producer and a read pointer advanced by the consumer, both counting all dwords ever
//! written.
//! Invariants: rptr <= wptr <= rptr + size; words in rptr..wptr belong to the consumer, all others to the producer.
//! The producer is whoever holds the queue's lock, the consumer whoever holds its [`super::sync::Role`].

use super::memory::{Dwords, MemError, View};
use super::sync::AtomicWord;
use std::sync::atomic::{AtomicU64, Ordering};

/// Storage of a ring: dwords that both sides can access.
pub trait Slots {
    /// A power of two.
    fn count(&self) -> u64;
    fn load(&self, index: u64) -> u32;
    fn store(&self, index: u64, word: u32);
}

impl Slots for Dwords {
    fn count(&self) -> u64 {
        self.count()
    }
    #[inline]
    fn load(&self, index: u64) -> u32 {
        self.get(index).map_or(0, |w| w.load(Ordering::Relaxed))
    }
    #[inline]
    fn store(&self, index: u64, word: u32) {
        if let Some(w) = self.get(index) {
            w.store(word, Ordering::Relaxed);
        }
    }
}

/// The ring. `A` and `S` have other types only under the model checker.
#[derive(Debug)]
pub struct Ring<A: AtomicWord = AtomicU64, S: Slots = Dwords> {
    slots: S,
    wptr: A,
    rptr: A,
}

impl Ring {
    /// A ring of at least `count_dwords` dwords in new host memory.
    ///
    /// # Errors
    /// `Port` if there is no memory.
    pub fn new(count_dwords: u64) -> Result<Self, MemError> {
        let count = count_dwords.next_power_of_two();
        Ok(Self::over(View::anonymous(count * 4, 64)?.dwords()?))
    }
}

impl<A: AtomicWord, S: Slots> Ring<A, S> {
    /// A ring over storage whose count is a power of two.
    pub fn over(slots: S) -> Self {
        assert!(slots.count().is_power_of_two(), "ring of {} dwords: not a power of two", slots.count());
        Self { slots, wptr: A::new(0), rptr: A::new(0) }
    }

    /// Dwords that the ring holds.
    pub fn size(&self) -> u64 {
        self.slots.count()
    }

    /// Dwords written since the ring was made.
    #[inline]
    pub fn wptr(&self) -> u64 {
        // ORDER: acquire; makes the words below the pointer visible to the consumer.
        self.wptr.load(Ordering::Acquire)
    }

    /// Dwords consumed since the ring was made.
    #[inline]
    pub fn rptr(&self) -> u64 {
        // ORDER: acquire; the consumer has finished reading the words below the pointer.
        self.rptr.load(Ordering::Acquire)
    }

    /// Producer: writes as many of `words` as there is room for, and publishes them; returns how many.
    pub fn push(&self, words: &[u32]) -> usize {
        let wptr = self.wptr.load(Ordering::Relaxed);
        let room = self.size() - (wptr - self.rptr());
        let count = words.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        for (at, &word) in (wptr..).zip(&words[..count]) {
            self.slots.store(at & (self.size() - 1), word);
        }
        // ORDER: release; the words are stored before the write pointer.
        self.wptr.store(wptr + count as u64, Ordering::Release);
        count
    }

    /// Consumer: copies the words at the read pointer into `out`; returns how many there were.
    #[inline]
    pub fn peek(&self, out: &mut [u32]) -> usize {
        let rptr = self.rptr.load(Ordering::Relaxed);
        self.copy_from(rptr, out)
    }

    /// Words at position `at` (at most up to the write pointer), for consumers and reports.
    pub fn copy_from(&self, at: u64, out: &mut [u32]) -> usize {
        let here = self.wptr().saturating_sub(at);
        let count = out.len().min(usize::try_from(here).unwrap_or(usize::MAX));
        for (at, word) in (at..).zip(&mut out[..count]) {
            *word = self.slots.load(at & (self.size() - 1));
        }
        count
    }

    /// Consumer: returns `count` words to the producer.
    #[inline]
    pub fn retire(&self, count: usize) {
        let rptr = self.rptr.load(Ordering::Relaxed);
        // ORDER: release; the reads of the words come before the producer's next stores to them.
        self.rptr.store(rptr + count as u64, Ordering::Release);
    }

    /// Whether everything written has been consumed.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rptr() == self.wptr()
    }
}

impl std::fmt::Debug for Dwords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dwords({})", self.count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_out_in_order_across_many_wraps() {
        let ring = Ring::new(8).unwrap();
        let mut out = [0; 3];
        for round in 0..100u32 {
            assert_eq!(ring.push(&[round, round + 1, round + 2]), 3);
            assert_eq!(ring.peek(&mut out), 3);
            assert_eq!(out, [round, round + 1, round + 2]);
            ring.retire(3);
        }
        assert!(ring.is_empty());
        assert_eq!((ring.wptr(), ring.rptr()), (300, 300));
    }

    #[test]
    fn full_ring_takes_what_fits_and_no_more() {
        let ring = Ring::new(4).unwrap();
        assert_eq!(ring.push(&[1, 2, 3, 4, 5, 6]), 4);
        assert_eq!(ring.push(&[5]), 0);
        ring.retire(1);
        assert_eq!(ring.push(&[5, 6]), 1);
        let mut out = [0; 8];
        assert_eq!(ring.peek(&mut out), 4);
        assert_eq!(out[..4], [2, 3, 4, 5]);
    }
}

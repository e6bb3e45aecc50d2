//! Arguments of launches in flight: a ring of 64-bit words. Allocation advances the head, with wrap-around; words are
//! freed when their submission is done.
//!
//! Layer: `device` owns one per queue, under the queue's lock. Source: AMD's kernarg segment, NVIDIA's constant buffer
//! 0.
//! Positions count all words ever allocated. A span never crosses the end of the ring; the words skipped at the end
//! count as part of it. When no submission uses the ring, allocation restarts at its first word, since recently written
//! words are still in the cache.

use super::error::SubmitError;
use super::memory::{MemError, View};
use super::signal::Timeline;
use std::collections::VecDeque;
use std::time::Duration;

/// Why an allocation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernargsError {
    /// Full; there will be room when the timeline reaches `until`.
    #[error("kernargs ring is full until the timeline reaches {until}")]
    Full { until: u64 },
    /// Larger than the ring.
    #[error("{asked_words} kernarg words requested, the ring has {max_words}")]
    TooBig { asked_words: u64, max_words: u64 },
    #[error(transparent)]
    Mem(#[from] MemError),
}

/// An allocation in the ring: its start in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room(u64);

impl Room {
    /// Bytes from the ring's start.
    #[must_use]
    pub fn offset(self) -> u64 {
        self.0
    }
}

struct Span {
    value: u64,
    end: u64,
}

/// The ring of kernargs.
pub struct Kernargs {
    view: View,
    size: u64,
    /// Position of the start of the head's current lap. Kept because a division per submission would cost more than the
    /// rest of the bookkeeping.
    lap: u64,
    head: u64,
    tail: u64,
    spans: VecDeque<Span>,
}

impl std::fmt::Debug for Kernargs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kernargs({} of {} words)", self.head - self.tail, self.size)
    }
}

impl Kernargs {
    /// A ring of `count_words` 64-bit words in new host memory.
    ///
    /// # Errors
    /// `Mem` if there is no memory.
    pub fn new(count_words: u64) -> Result<Self, MemError> {
        Ok(Self::of(View::anonymous(count_words * 8, 64)?))
    }

    /// A ring over all of `view`, which is mapped for a device, too.
    #[must_use]
    pub fn of(view: View) -> Self {
        let size = view.len_bytes() / 8;
        Self { view, size, lap: 0, head: 0, tail: 0, spans: VecDeque::new() }
    }

    /// Frees what was allocated for submissions after `value`, which were abandoned before they were queued.
    pub fn forget_after(&mut self, value: u64) {
        while self.spans.pop_back_if(|s| s.value > value).is_some() {}
        let head = self.spans.back().map_or(self.tail, |s| s.end);
        if head != self.head {
            (self.head, self.lap) = (head, head - head % self.size);
        }
    }

    /// Writes `words` into the ring for the submission that will signal `value`; `completed` is what the timeline has
    /// reached.
    /// Returns the host address of the first word.
    ///
    /// # Errors
    /// `Full` while older submissions use the ring, `TooBig` if the ring is smaller than `words`.
    pub fn put(&mut self, words: &[u64], value: u64, completed: u64) -> Result<u64, KernargsError> {
        let room = self.take(words.len() as u64, value, completed)?;
        self.write(room, words)?;
        Ok(self.address(room))
    }

    /// Allocates `count` words, as [`Kernargs::put`], to be written afterwards.
    ///
    /// # Errors
    /// As [`Kernargs::put`].
    pub fn take(&mut self, count: u64, value: u64, completed: u64) -> Result<Room, KernargsError> {
        if count > self.size {
            return Err(KernargsError::TooBig { asked_words: count, max_words: self.size });
        }
        while let Some(span) = self.spans.pop_front_if(|s| s.value <= completed) {
            self.tail = span.end;
        }
        if self.spans.is_empty() {
            self.lap += if self.head == self.lap { 0 } else { self.size };
            (self.head, self.tail) = (self.lap, self.lap);
        }
        let (mut start, mut lap) = (self.head, self.lap);
        if start - lap + count > self.size {
            lap += self.size;
            start = lap;
        }
        if start + count - self.tail > self.size {
            match self.spans.front() {
                Some(span) => return Err(KernargsError::Full { until: span.value }),
                None => self.tail = start, // only skipped words were left
            }
        }
        (self.head, self.lap) = (start + count, lap);
        match self.spans.back_mut() {
            Some(last) if last.value == value => last.end = self.head,
            _ => self.spans.push_back(Span { value, end: self.head }),
        }
        Ok(Room((start - lap) * 8))
    }

    /// Address of an allocation.
    #[must_use]
    pub fn address(&self, room: Room) -> u64 {
        self.view.base().offset(room.0).0
    }

    /// Writes words to the start of an allocation of at least that length.
    ///
    /// # Errors
    /// `Mem` if the words exceed the ring.
    pub fn write(&self, room: Room, words: &[u64]) -> Result<(), MemError> {
        self.view.write(room.0, bytemuck::cast_slice(words))
    }

    /// Writes bytes at a byte offset in an allocation.
    ///
    /// # Errors
    /// As [`Kernargs::write`].
    pub fn write_at(&self, room: Room, offset: u64, bytes: &[u8]) -> Result<(), MemError> {
        self.view.write(room.0 + offset, bytes)
    }

    /// As [`Kernargs::put`]; waits for room, `timeout` at most.
    ///
    /// # Errors
    /// `Kernargs` if there can never be room in addition to this submission's own words; `Wait`.
    pub fn put_waiting(
        &mut self,
        words: &[u64],
        timeline: &Timeline,
        value: u64,
        timeout: Duration,
    ) -> Result<u64, SubmitError> {
        let room = self.take_waiting(words.len() as u64, timeline, value, timeout)?;
        self.write(room, words)?;
        Ok(self.address(room))
    }

    /// As [`Kernargs::take`]; waits for room, `timeout` at most.
    ///
    /// # Errors
    /// As [`Kernargs::put_waiting`].
    pub fn take_waiting(
        &mut self,
        count: u64,
        timeline: &Timeline,
        value: u64,
        timeout: Duration,
    ) -> Result<Room, SubmitError> {
        loop {
            match self.take(count, value, timeline.completed()) {
                Ok(room) => return Ok(room),
                // Only this submission's own words occupy the ring: waiting for them would never end.
                Err(KernargsError::Full { until }) if until >= value => {
                    let max_words = self.size;
                    return Err(KernargsError::TooBig { asked_words: max_words + 1, max_words }.into());
                }
                Err(KernargsError::Full { until }) => timeline.wait(until, timeout)?,
                Err(e) => return Err(e.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_wrap_only_when_the_old_ones_are_done() {
        let mut k = Kernargs::new(8).unwrap();
        let a = k.put(&[1, 2, 3], 1, 0).unwrap();
        let b = k.put(&[4, 5, 6], 2, 0).unwrap();
        assert_eq!(b, a + 24);
        // Two words are left at the end: three do not fit there, and the start is still submission 1's.
        assert!(matches!(k.put(&[7, 8, 9], 3, 0), Err(KernargsError::Full { until: 1 })));
        assert_eq!(k.put(&[7, 8, 9], 3, 1).unwrap(), a);
        let mut bytes = [0; 8];
        k.view.read(0, &mut bytes).unwrap();
        assert_eq!(u64::from_le_bytes(bytes), 7);
    }

    #[test]
    fn more_words_than_the_ring_can_never_fit() {
        let mut k = Kernargs::new(4).unwrap();
        assert!(matches!(k.put(&[0; 5], 1, 0), Err(KernargsError::TooBig { asked_words: 5, max_words: 4 })));
    }

    #[test]
    fn whole_ring_can_be_taken_again_after_each_submission() {
        let mut k = Kernargs::new(4).unwrap();
        for value in 1..100 {
            k.put(&[value; 3], value, value - 1).unwrap();
            assert!(matches!(k.put(&[0; 4], value + 1, value - 1), Err(KernargsError::Full { .. })));
        }
        k.put(&[0; 4], 100, 99).unwrap();
    }

    #[test]
    fn words_of_a_submission_given_up_are_free_again() {
        let mut k = Kernargs::new(8).unwrap();
        k.put(&[0; 3], 1, 0).unwrap();
        let a = k.put(&[0; 4], 2, 0).unwrap();
        assert!(matches!(k.put(&[0; 4], 2, 0), Err(KernargsError::Full { until: 1 })));
        k.forget_after(1);
        assert_eq!(k.put(&[0; 5], 2, 0).unwrap(), a);
    }

    #[test]
    fn a_ring_that_nobody_reads_begins_anew() {
        let mut k = Kernargs::new(64).unwrap();
        let first = k.put(&[0; 8], 1, 0).unwrap();
        assert_eq!(k.put(&[0; 8], 2, 0).unwrap(), first + 64);
        assert_eq!(k.put(&[0; 8], 3, 1).unwrap(), first + 128, "the second is read");
        assert_eq!(k.put(&[0; 8], 4, 3).unwrap(), first);
        k.forget_after(3);
        assert_eq!(k.put(&[0; 64], 4, 3).unwrap(), first);
    }

    #[test]
    fn spans_of_one_submission_are_one() {
        let mut k = Kernargs::new(64).unwrap();
        for _ in 0..10 {
            k.put(&[0, 1], 1, 0).unwrap();
        }
        assert_eq!(k.spans.len(), 1);
    }
}

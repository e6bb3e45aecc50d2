//! The address ranges at which traced files are mapped.
#![forbid(unsafe_code)]

use doorbell_ioctl::port::page_bytes;
use std::collections::BTreeMap;

/// Ranges that do not overlap, by start; the value is the end.
#[derive(Default)]
pub struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds whole pages from `start` on, in place of what was there.
    pub fn insert(&mut self, start: u64, len_bytes: u64) {
        self.remove(start, len_bytes);
        let end = end_of(start, len_bytes);
        if end > start {
            self.0.insert(start, end);
        }
    }

    /// Removes whole pages from `start` on; returns what was there, as start and length.
    pub fn remove(&mut self, start: u64, len_bytes: u64) -> Vec<(u64, u64)> {
        let end = end_of(start, len_bytes);
        let touched: Vec<(u64, u64)> = self.0.range(..end).map(|(a, b)| (*a, *b)).filter(|(_, b)| *b > start).collect();
        let mut taken = Vec::new();
        for (from, to) in touched {
            self.0.remove(&from);
            if from < start {
                self.0.insert(from, start);
            }
            if to > end {
                self.0.insert(end, to);
            }
            taken.push((from.max(start), to.min(end) - from.max(start)));
        }
        taken
    }
}

fn end_of(start: u64, len_bytes: u64) -> u64 {
    start.saturating_add(len_bytes.checked_next_multiple_of(page_bytes()).unwrap_or(u64::MAX))
}

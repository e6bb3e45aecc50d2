//! A bus without page tables: a few ranges of host memory at fixed addresses. Tests and benchmarks run kernels on it;
//! the software driver has its own.

use super::bus::{Access, Bus, BusFault, Memory, Window};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that several threads may access, stored in atomic words.
pub struct SharedBytes {
    words: Box<[AtomicU64]>,
}

impl SharedBytes {
    /// Zeroed bytes; the length is rounded up to 8.
    #[must_use]
    pub fn new(len_bytes: usize) -> Arc<Self> {
        Arc::new(Self { words: (0..len_bytes.div_ceil(8)).map(|_| AtomicU64::new(0)).collect() })
    }

    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Arc<Self> {
        let memory = Self::new(bytes.len());
        memory.write(0, bytes);
        memory
    }

    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        self.words.iter().flat_map(|w| w.load(Ordering::Relaxed).to_le_bytes()).collect()
    }

    fn word(&self, offset: u64) -> Option<&AtomicU64> {
        self.words.get(usize::try_from(offset / 8).ok()?)
    }
}

impl Memory for SharedBytes {
    fn read(&self, offset: u64, into: &mut [u8]) {
        let mut at = 0;
        while at < into.len() {
            let here = offset + at as u64;
            let inside = (here % 8) as usize;
            let n = (8 - inside).min(into.len() - at);
            let word = self.word(here).map_or(0, |w| w.load(Ordering::Relaxed)).to_le_bytes();
            into[at..at + n].copy_from_slice(&word[inside..inside + n]);
            at += n;
        }
    }

    fn write(&self, offset: u64, from: &[u8]) {
        let mut at = 0;
        while at < from.len() {
            let here = offset + at as u64;
            let inside = (here % 8) as usize;
            let n = (8 - inside).min(from.len() - at);
            let mut value = [0; 8];
            value[inside..inside + n].copy_from_slice(&from[at..at + n]);
            if let Some(word) = self.word(here) {
                if n == 8 {
                    word.store(u64::from_le_bytes(value), Ordering::Relaxed);
                } else {
                    let mask = (u64::MAX >> (64 - 8 * n)) << (8 * inside);
                    let new = |old: u64| Some(old & !mask | u64::from_le_bytes(value));
                    let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, new);
                }
            }
            at += n;
        }
    }

    fn update_u32(&self, offset: u64, f: &mut dyn FnMut(u32) -> u32) -> u32 {
        let shift = 8 * (offset % 8);
        let Some(word) = self.word(offset) else { return 0 };
        let part = |old: u64| (old >> shift) as u32;
        let new = |old: u64| Some(old & !(0xffff_ffff << shift) | u64::from(f(part(old))) << shift);
        let old = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, new);
        part(old.unwrap_or_else(|old| old))
    }

    fn update_u64(&self, offset: u64, f: &mut dyn FnMut(u64) -> u64) -> u64 {
        let Some(word) = self.word(offset) else { return 0 };
        word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| Some(f(old))).unwrap_or_else(|old| old)
    }
}

/// A range and what it permits.
struct Range {
    window: Window,
    write: bool,
    execute: bool,
}

/// Ranges added one by one; addresses between them are unmapped.
#[derive(Default)]
pub struct PlainBus {
    ranges: Vec<Range>,
}

impl PlainBus {
    /// Maps memory that may be read, and written when `write`.
    pub fn map(&mut self, va_start: u64, memory: Arc<SharedBytes>, write: bool) {
        self.add(va_start, memory, write, false);
    }

    /// Maps code: read and fetched.
    pub fn map_code(&mut self, va_start: u64, memory: Arc<SharedBytes>) {
        self.add(va_start, memory, false, true);
    }

    fn add(&mut self, va_start: u64, memory: Arc<SharedBytes>, write: bool, execute: bool) {
        let len_bytes = memory.words.len() as u64 * 8;
        self.ranges.push(Range { window: Window { va_start, len_bytes, memory }, write, execute });
    }
}

impl Bus for PlainBus {
    fn translate(&self, va: u64, access: Access) -> Result<Window, BusFault> {
        let hit = self.ranges.iter().find(|r| va.wrapping_sub(r.window.va_start) < r.window.len_bytes);
        let range = hit.ok_or(BusFault::Unmapped)?;
        let permitted = match access {
            Access::Read => true,
            Access::Write => range.write,
            Access::Fetch => range.execute,
        };
        if permitted { Ok(range.window.clone()) } else { Err(BusFault::Permission) }
    }

    fn epoch(&self) -> u64 {
        0
    }
}

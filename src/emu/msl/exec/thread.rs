//! A thread's own variables in memory: words of 32 lanes, with a note of which bytes have a value.

use super::alu::{Lanes, put};
use super::half;
use super::memory::Offsets;
use super::simd::Simd;
use crate::code::{Memory, Row};
use crate::fault::{FaultKind, Run, trouble};
use crate::memory::ones;

fn missing<T>(lane: u32) -> Run<T> {
    trouble(FaultKind::Uninitialised { what: "a local variable".into() }, lane as usize)
}

impl Simd {
    /// Lanes that have not written all of some bytes of a word.
    fn unknown(&self, at: u64, bytes: u32) -> u32 {
        let marks = &self.shadow[(at >> 2) as usize];
        let first = (at & 3) as usize;
        !marks[first..(first + bytes as usize).min(4)].iter().fold(u32::MAX, |a, b| a & b)
    }

    fn mark(&mut self, at: u64, bytes: u32, lanes: u32) {
        let marks = &mut self.shadow[(at >> 2) as usize];
        let first = (at & 3) as usize;
        marks[first..(first + bytes as usize).min(4)].iter_mut().for_each(|m| *m |= lanes);
    }

    /// A value at the same offset for all lanes.
    pub(super) fn load_thread(&mut self, d: Row, at: u32, kind: Memory, n: u32) -> Run<()> {
        let mask = self.mask;
        let size = kind.bytes();
        for k in 0..n {
            let at = u64::from(at + k * size);
            let parts = if kind == Memory::Wide { 2 } else { 1 };
            for part in 0..parts {
                let at = at + 4 * u64::from(part);
                let unknown = self.unknown(at, size.min(4)) & mask;
                if unknown != 0 {
                    return missing(unknown.trailing_zeros());
                }
                let by = 8 * (at & 3) as u32;
                let word = self.words[(at >> 2) as usize];
                let row = match kind {
                    Memory::Word | Memory::Wide => word,
                    Memory::Bool => word.map(|w| u32::from((w >> by) & 0xff != 0)),
                    Memory::U8 => word.map(|w| (w >> by) & 0xff),
                    Memory::I8 => word.map(|w| (w >> by) as i8 as i32 as u32),
                    Memory::U16 => word.map(|w| (w >> by) & 0xffff),
                    Memory::I16 => word.map(|w| (w >> by) as i16 as i32 as u32),
                    Memory::Half => word.map(|w| half::half_from_bits((w >> by) & 0xffff)),
                    Memory::BFloat => word.map(|w| (w >> by) << 16),
                };
                put(&mut self.regs[(d + k * parts + part) as usize], &row, mask);
            }
        }
        Ok(())
    }

    pub(super) fn store_thread(&mut self, s: Row, at: u32, kind: Memory, n: u32) {
        let mask = self.mask;
        let size = kind.bytes();
        for k in 0..n {
            let parts = if kind == Memory::Wide { 2 } else { 1 };
            for part in 0..parts {
                let at = u64::from(at + k * size + 4 * part);
                let row = self.regs[(s + k * parts + part) as usize];
                let by = 8 * (at & 3) as u32;
                let word = self.words[(at >> 2) as usize];
                let (bits, row) = match kind {
                    Memory::Word | Memory::Wide => (u32::MAX, row),
                    Memory::Bool | Memory::U8 | Memory::I8 => (0xff, row),
                    Memory::U16 | Memory::I16 => (0xffff, row),
                    Memory::Half => (0xffff, row.map(|v| half::half_bits(v).into())),
                    Memory::BFloat => (0xffff, row.map(|v| v >> 16)),
                };
                let made: Lanes = std::array::from_fn(|l| (word[l] & !(bits << by)) | ((row[l] & bits) << by));
                put(&mut self.words[(at >> 2) as usize], &made, mask);
                self.mark(at, size.min(4), mask);
            }
        }
    }

    pub(super) fn clear_thread(&mut self, at: u32, bytes: u32, zero: bool) {
        let mask = self.mask;
        for at in at..at + bytes {
            let mark = &mut self.shadow[(at >> 2) as usize][(at & 3) as usize];
            *mark = if zero { *mark | mask } else { *mark & !mask };
            if zero {
                let by = 8 * (at & 3);
                let word = self.words[(at >> 2) as usize].map(|w| w & !(0xff << by));
                put(&mut self.words[(at >> 2) as usize], &word, mask);
            }
        }
    }

    pub(super) fn gather_thread(&self, lanes: u32, at: &Offsets, bytes: u32, out: &mut Lanes) -> Run<()> {
        let first = at[lanes.trailing_zeros() as usize & 31];
        if bytes == 4 && at.iter().all(|o| *o == first) {
            let unknown = self.unknown(first, 4) & lanes;
            if unknown != 0 {
                return missing(unknown.trailing_zeros());
            }
            *out = self.words[(first >> 2) as usize];
            return Ok(());
        }
        for lane in ones(lanes) {
            if self.unknown(at[lane], bytes) >> lane & 1 != 0 {
                return missing(lane as u32);
            }
            out[lane] = self.word_part(at[lane], bytes, lane);
        }
        Ok(())
    }

    fn word_part(&self, at: u64, bytes: u32, lane: usize) -> u32 {
        let word = self.words[(at >> 2) as usize][lane] >> (8 * (at & 3));
        if bytes >= 4 { word } else { word & ((1 << (8 * bytes)) - 1) }
    }

    pub(super) fn scatter_thread(&mut self, lanes: u32, at: &Offsets, bytes: u32, values: &Lanes) {
        for lane in ones(lanes) {
            let by = 8 * (at[lane] & 3) as u32;
            let bits = if bytes >= 4 { u32::MAX } else { ((1 << (8 * bytes)) - 1) << by };
            let word = &mut self.words[(at[lane] >> 2) as usize][lane];
            *word = (*word & !bits) | ((values[lane] << by) & bits);
            self.mark(at[lane], bytes, 1 << lane);
        }
    }

    /// As `gather_thread`, but tells for each byte which lanes have a value instead of failing.
    pub(super) fn peek_thread(&self, lanes: u32, at: &Offsets, bytes: u32, out: &mut Lanes, marks: &mut [u32]) {
        for lane in ones(lanes) {
            out[lane] = self.word_part(at[lane], bytes, lane);
            for byte in 0..u64::from(bytes) {
                let from = at[lane] + byte;
                let known = self.shadow[(from >> 2) as usize][(from & 3) as usize] >> lane & 1 != 0;
                if !known {
                    marks[byte as usize] &= !(1 << lane);
                }
            }
        }
    }

    /// Takes back marks that `peek_thread` has found missing.
    pub(super) fn unmark_thread(&mut self, lanes: u32, at: &Offsets, bytes: u32, marks: &[u32]) {
        for lane in ones(lanes) {
            for byte in 0..u64::from(bytes) {
                if marks[byte as usize] >> lane & 1 == 0 {
                    let to = at[lane] + byte;
                    self.shadow[(to >> 2) as usize][(to & 3) as usize] &= !(1 << lane);
                }
            }
        }
    }
}

//! Memory of a threadgroup: what has been written, and by which simdgroup since the last barrier.

use super::alu::Lanes;
use super::memory::{Offsets, little};
use crate::fault::{FaultKind, Run, trouble};
use crate::memory::ones;

/// What threadgroup memory holds before anything is written.
const PATTERN: u8 = 0xaa;
/// Simdgroups of several numbers.
const SEVERAL: u8 = u8::MAX;

/// Of a byte.
#[derive(Clone, Copy, Default)]
struct Mark {
    written: bool,
    /// Numbers, from 1, of the simdgroups that wrote and read it in an epoch; 0: none.
    writer: u8,
    reader: u8,
    epoch: u32,
}

pub(crate) struct GroupMemory {
    bytes: Vec<u8>,
    marks: Vec<Mark>,
    /// Counts barriers that order this memory.
    epoch: u32,
    /// Number, from 1, of the simdgroup that runs.
    pub simdgroup: u8,
    /// The access is atomic: it races with no other.
    pub atomic: bool,
}

impl GroupMemory {
    pub(crate) fn new(len: u64) -> Self {
        let marks = vec![Mark::default(); len as usize];
        Self { bytes: vec![PATTERN; len as usize], marks, epoch: 0, simdgroup: 1, atomic: false }
    }

    pub(crate) fn reset(&mut self) {
        self.bytes.fill(PATTERN);
        self.marks.fill(Mark::default());
    }

    /// All threads have passed a barrier.
    pub(crate) fn barrier(&mut self, orders: bool) {
        self.epoch = self.epoch.wrapping_add(u32::from(orders));
    }

    pub(super) fn gather(&mut self, (lanes, start): (u32, u64), at: &Offsets, bytes: u32, out: &mut Lanes) -> Run<()> {
        let (epoch, own) = (self.epoch, self.simdgroup);
        for lane in ones(lanes) {
            let from = (start + at[lane]) as usize;
            let marks = self.marks.get_mut(from..from + bytes as usize).unwrap_or_default();
            if !marks.iter().all(|m| m.written) {
                let what = format!("threadgroup memory at offset {}", at[lane]).into();
                return trouble(FaultKind::Uninitialised { what }, lane);
            }
            for mark in marks.iter_mut().filter(|_| !self.atomic) {
                if mark.epoch != epoch {
                    *mark = Mark { written: true, writer: 0, reader: own, epoch };
                } else if mark.writer != 0 && mark.writer != own {
                    return trouble(FaultKind::Race { offset: at[lane], write: false }, lane);
                } else if mark.reader != own {
                    mark.reader = if mark.reader == 0 { own } else { SEVERAL };
                }
            }
            out[lane] = little(&self.bytes, from, bytes as usize);
        }
        Ok(())
    }

    pub(super) fn scatter(&mut self, (lanes, start): (u32, u64), at: &Offsets, bytes: u32, values: &Lanes) -> Run<()> {
        let (count, epoch, own) = (bytes as usize, self.epoch, self.simdgroup);
        for lane in ones(lanes) {
            let from = (start + at[lane]) as usize;
            let marks = self.marks.get_mut(from..from + count).unwrap_or_default();
            let to = self.bytes.get_mut(from..from + count).unwrap_or_default();
            let value = &values[lane].to_le_bytes()[..to.len()];
            // The value that is there already changes nothing for anybody.
            let same = to == value && marks.iter().all(|m| m.written);
            for mark in marks {
                let others = |n: u8| n != 0 && n != own;
                if mark.epoch != epoch {
                    *mark = Mark { written: true, writer: 0, reader: 0, epoch };
                } else if !self.atomic && !same && (others(mark.writer) || others(mark.reader)) {
                    return trouble(FaultKind::Race { offset: at[lane], write: true }, lane);
                }
                mark.written = true;
                if !self.atomic {
                    mark.writer = own;
                }
            }
            to.copy_from_slice(value);
        }
        Ok(())
    }
}

//! The workgroup's local memory, with strict mode's shadow state of each dword: which bytes were written, which wave
//! wrote and read it last and in which interval between barriers.

use super::Strict;
use super::fault::{FaultKind, R, fail};
use super::wave::Wave;

#[derive(Clone, Copy, Default)]
struct Cell {
    /// Bytes that were written.
    known: u8,
    /// Wave number plus one, its barrier count, its LDS operation and the bytes of the last write.
    writer: u8,
    write_bytes: u8,
    write_atomic: bool,
    write_epoch: u32,
    write_seq: u32,
    /// The last reader, or `MANY`.
    reader: u8,
    read_bytes: u8,
    read_epoch: u32,
}

const MANY: u8 = 255;

pub(super) struct Lds {
    words: Vec<u32>,
    size_bytes: usize,
    cells: Vec<Cell>,
    strict: Strict,
    /// LDS operations of each wave that were complete at its last barrier.
    done_at_barrier: Vec<u32>,
    /// Stores to global memory likewise.
    stores_at_barrier: Vec<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Read,
    Write,
    Atomic,
}

impl How {
    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "written",
            Self::Atomic => "changed",
        }
    }
}

impl Lds {
    /// Checks by other rules from now on; returns the old ones.
    pub(crate) fn replace_strict(&mut self, strict: Strict) -> Strict {
        std::mem::replace(&mut self.strict, strict)
    }

    /// What it contains at first: a pattern rather than zeros, for code that relies on either is wrong.
    pub(crate) fn pattern(size_bytes: u32, seed: u64) -> Vec<u32> {
        let mut seed = seed | 1;
        let mut next = || {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (seed >> 56) as u8
        };
        (0..size_bytes.div_ceil(4)).map(|_| u32::from_le_bytes([next(), next(), next(), next()]).to_le()).collect()
    }

    pub(crate) fn new(words: Vec<u32>, size_bytes: u32, waves: usize, strict: Strict) -> Self {
        let size = size_bytes as usize;
        let is_checked = strict.poison || strict.races;
        Self {
            words,
            size_bytes: size,
            cells: vec![Cell::default(); if is_checked { size.div_ceil(4) } else { 0 }],
            strict,
            done_at_barrier: vec![0; waves],
            stores_at_barrier: vec![0; waves],
        }
    }

    fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.size_bytes]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.size_bytes]
    }

    pub(crate) fn words_mut(&mut self) -> &mut [u32] {
        &mut self.words
    }

    pub(crate) fn size_bytes(&self) -> u32 {
        self.size_bytes as u32
    }

    pub(crate) fn arrive(&mut self, w: &Wave) {
        if let Some(done) = self.done_at_barrier.get_mut(w.index as usize) {
            *done = w.waits.lds_done();
        }
        if let Some(done) = self.stores_at_barrier.get_mut(w.index as usize) {
            *done = w.waits.stores_done();
        }
    }

    /// Stores to global memory that a wave had waited for at its last barrier.
    pub(crate) fn stores_done(&self, wave: u8) -> u32 {
        self.stores_at_barrier.get(usize::from(wave)).copied().unwrap_or(u32::MAX)
    }

    /// Bounds; `None` when the access is dropped as hardware drops it.
    fn range(&self, offset: u64, len: usize) -> R<Option<usize>> {
        let fits = offset.checked_add(len as u64).is_some_and(|end| end <= self.size_bytes as u64);
        if fits {
            return Ok(Some(offset as usize));
        }
        if self.strict.registers {
            let size_bytes = self.size_bytes as u32;
            return fail(FaultKind::LdsOutOfRange { offset, len_bytes: len as u32, size_bytes });
        }
        Ok(None)
    }

    pub(crate) fn read(&mut self, w: &Wave, offset: u64, into: &mut [u8]) -> R<()> {
        let Some(at) = self.range(offset, into.len())? else {
            into.fill(0);
            return Ok(());
        };
        self.note(w, at, into.len(), How::Read)?;
        into.copy_from_slice(&self.bytes()[at..at + into.len()]);
        Ok(())
    }

    /// The dword at an offset.
    #[inline]
    pub(crate) fn word(&mut self, w: &Wave, offset: u64) -> R<u32> {
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        if offset.is_multiple_of(4)
            && let Some(raw) = self.bytes().get(at..).and_then(|rest| rest.first_chunk())
        {
            let value = u32::from_le_bytes(*raw);
            if !self.cells.is_empty() {
                self.note_cell(w, at, 15, How::Read)?;
            }
            return Ok(value);
        }
        let mut raw = [0; 4];
        self.read(w, offset, &mut raw)?;
        Ok(u32::from_le_bytes(raw))
    }

    /// Stores the dword at an offset.
    #[inline]
    pub(crate) fn put_word(&mut self, w: &Wave, offset: u64, value: u32) -> R<()> {
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        if offset.is_multiple_of(4) && self.size_bytes >= 4 && at <= self.size_bytes - 4 {
            if !self.cells.is_empty() {
                self.note_cell(w, at, 15, How::Write)?;
            }
            self.bytes_mut()[at..at + 4].copy_from_slice(&value.to_le_bytes());
            return Ok(());
        }
        self.write(w, offset, &value.to_le_bytes())
    }

    pub(crate) fn write(&mut self, w: &Wave, offset: u64, from: &[u8]) -> R<()> {
        let Some(at) = self.range(offset, from.len())? else { return Ok(()) };
        self.note(w, at, from.len(), How::Write)?;
        self.bytes_mut()[at..at + from.len()].copy_from_slice(from);
        Ok(())
    }

    /// Replaces 4 or 8 bytes by `f` of them; returns the old value.
    pub(crate) fn update(&mut self, w: &Wave, offset: u64, wide: bool, f: impl FnOnce(u64) -> u64) -> R<u64> {
        let len = if wide { 8 } else { 4 };
        if !offset.is_multiple_of(len as u64) {
            return fail(FaultKind::Misaligned { va: offset, align: len as u32 });
        }
        let Some(at) = self.range(offset, len)? else { return Ok(0) };
        self.note(w, at, len, How::Atomic)?;
        let mut raw = [0; 8];
        raw[..len].copy_from_slice(&self.bytes()[at..at + len]);
        let old = u64::from_le_bytes(raw);
        self.bytes_mut()[at..at + len].copy_from_slice(&f(old).to_le_bytes()[..len]);
        Ok(old)
    }

    /// Records an access in the shadow state, or reports it as a fault.
    fn note(&mut self, w: &Wave, at: usize, len: usize, how: How) -> R<()> {
        if self.cells.is_empty() {
            return Ok(());
        }
        if len == 4 && at.is_multiple_of(4) {
            return self.note_cell(w, at, 15, how);
        }
        let mut from = at;
        while from < at + len {
            let end = (from / 4 * 4 + 4).min(at + len);
            let mask = (((1u32 << (end - from)) - 1) << (from % 4)) as u8;
            self.note_cell(w, from, mask, how)?;
            from = end;
        }
        Ok(())
    }

    #[inline]
    fn note_cell(&mut self, w: &Wave, from: usize, mask: u8, how: How) -> R<()> {
        let me = w.index as u8 + 1;
        let offset = from as u32;
        let c = &self.cells[from / 4];
        if self.strict.poison && how != How::Write && c.known & mask != mask {
            return fail(FaultKind::LdsUnwritten { offset });
        }
        if self.strict.races {
            let foreign_write = c.writer != 0 && c.writer != me && c.write_bytes & mask != 0;
            let both_atomic = how == How::Atomic && c.write_atomic;
            if foreign_write && c.write_epoch == w.epoch && !both_atomic {
                let other = if c.write_atomic { How::Atomic } else { How::Write };
                return self.race(offset, how, other, c.writer);
            }
            let done = || self.done_at_barrier.get(usize::from(c.writer).wrapping_sub(1));
            let unfinished = || done().is_some_and(|done| c.write_seq > *done);
            if foreign_write && c.write_epoch < w.epoch && !both_atomic && unfinished() {
                return fail(FaultKind::LdsStoreNotWaited { offset, wave: u32::from(c.writer) - 1 });
            }
            let foreign_read = c.reader != 0 && c.reader != me && c.read_bytes & mask != 0 && c.read_epoch == w.epoch;
            if foreign_read && how != How::Read {
                return self.race(offset, how, How::Read, c.reader);
            }
        }
        let c = &mut self.cells[from / 4];
        match how {
            How::Read => {
                let again = c.reader != 0 && c.read_epoch == w.epoch;
                c.reader = if again && c.reader != me { MANY } else { me };
                c.read_bytes = if again { c.read_bytes | mask } else { mask };
                c.read_epoch = w.epoch;
            }
            _ => {
                let again = c.writer == me && c.write_epoch == w.epoch;
                c.write_bytes = if again { c.write_bytes | mask } else { mask };
                (c.writer, c.write_epoch, c.write_atomic) = (me, w.epoch, how == How::Atomic);
                c.write_seq = w.waits.lds_issued();
                c.known |= mask;
            }
        }
        Ok(())
    }

    fn race(&self, offset: u32, this: How, other: How, wave: u8) -> R<()> {
        fail(FaultKind::LdsRace {
            offset,
            this: this.name(),
            other: other.name(),
            wave: u32::from(wave).saturating_sub(1),
        })
    }
}

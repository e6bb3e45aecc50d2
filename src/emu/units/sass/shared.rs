//! A CTA: its shared memory and named barriers.

use super::fault::{FaultKind, R, fail};
use super::memory::Rows;
use super::shadow::Shadow;
use super::warp::{Lanes, ones};

/// How an access counts in strict mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// Ordered by barriers alone.
    Warp(u32),
    /// Atomics, mbarriers and asynchronous copies have orders of their own.
    Unordered,
}

/// A named barrier.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Barrier {
    pub arrived: u32,
    /// Threads it was first used with; 0: all of the CTA.
    pub count: u32,
    pub generation: u32,
    pub popc: u32,
    pub and: bool,
    pub or: bool,
    /// Results of the generation before.
    pub result: (u32, bool, bool),
}

/// A CTA of the cluster that runs.
pub(super) struct Cta {
    /// Its place in the grid.
    pub index: [u32; 3],
    /// Its number in the cluster.
    pub rank: u32,
    bytes: Vec<u8>,
    /// Strict mode's.
    shadow: Option<Shadow>,
    pub barriers: [Barrier; 16],
    /// Threads that have not exited.
    pub live: u32,
    /// Barriers of the CTA that have completed.
    epoch: u32,
}

impl Cta {
    pub(crate) fn new(index: [u32; 3], rank: u32, shared_bytes: u32, strict: bool) -> Self {
        let len = shared_bytes as usize;
        Self {
            index,
            rank,
            bytes: vec![0; len],
            shadow: strict.then(|| Shadow::new(len)),
            barriers: [Barrier { and: true, ..Barrier::default() }; 16],
            live: 0,
            epoch: 0,
        }
    }

    pub(crate) fn shared_bytes(&self) -> u32 {
        self.bytes.len() as u32
    }

    /// Its whole words, where nothing is noted of accesses to them.
    pub(crate) fn words(&mut self) -> Option<&mut [u32]> {
        let whole = self.bytes.len() & !3;
        match whole {
            0 => Some(&mut []),
            _ => bytemuck::try_cast_slice_mut(&mut self.bytes[..whole]).ok().filter(|_| self.shadow.is_none()),
        }
    }

    /// The place of an access, aligned to its length.
    #[inline]
    fn offset(&self, address: u32, len: usize) -> R<usize> {
        let (from, len_bytes) = (address as usize, len as u32);
        if from & (len.min(16) - 1) != 0 {
            return fail(FaultKind::Misaligned { space: "shared", address: address.into(), len_bytes });
        }
        if from + len > self.bytes.len() {
            let size_bytes = self.bytes.len() as u64;
            return fail(FaultKind::OutOfRange { space: "shared", address: address.into(), len_bytes, size_bytes });
        }
        Ok(from)
    }

    /// Reads a power of two of bytes.
    #[inline]
    pub(crate) fn read(&mut self, address: u32, into: &mut [u8], who: Who) -> R<()> {
        let from = self.offset(address, into.len())?;
        into.copy_from_slice(&self.bytes[from..from + into.len()]);
        match &mut self.shadow {
            None => Ok(()),
            Some(shadow) => shadow.read(from, into.len(), who, self.epoch),
        }
    }

    /// Writes a power of two of bytes.
    #[inline]
    pub(crate) fn write(&mut self, address: u32, from: &[u8], who: Who) -> R<()> {
        let at = self.offset(address, from.len())?;
        self.bytes[at..at + from.len()].copy_from_slice(from);
        match &mut self.shadow {
            None => Ok(()),
            Some(shadow) => shadow.write(at, from.len(), who, self.epoch),
        }
    }

    /// Reads 1 to 16 bytes of each lane as words.
    pub(crate) fn gather(&mut self, lanes: u32, at: &[u64; 32], len: usize, who: Who, rows: &mut Rows) -> R<()> {
        for lane in ones(lanes) {
            let from = self.offset(at[lane] as u32 & 0xff_ffff, len)?;
            let bytes = &self.bytes[from..from + len];
            match *bytes {
                [a] => rows[0][lane] = a.into(),
                [a, b] => rows[0][lane] = u16::from_le_bytes([a, b]).into(),
                _ => {
                    for (row, word) in rows.iter_mut().zip(bytes.chunks_exact(4)) {
                        row[lane] = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
                    }
                }
            }
            if let Some(shadow) = &mut self.shadow {
                shadow.read(from, len, who, self.epoch)?;
            }
        }
        Ok(())
    }

    /// Writes 1 to 16 bytes of each lane; a function returns their words.
    pub(crate) fn scatter<'a>(
        &mut self,
        lanes: u32,
        at: &[u64; 32],
        len: usize,
        who: Who,
        row: impl Fn(usize) -> &'a Lanes,
    ) -> R<()> {
        let rows: [&Lanes; 4] = std::array::from_fn(row);
        for lane in ones(lanes) {
            let to = self.offset(at[lane] as u32 & 0xff_ffff, len)?;
            for (k, word) in self.bytes[to..to + len].chunks_mut(4).enumerate() {
                word.copy_from_slice(&rows[k][lane].to_le_bytes()[..word.len()]);
            }
            if let Some(shadow) = &mut self.shadow {
                shadow.write(to, len, who, self.epoch)?;
            }
        }
        Ok(())
    }

    /// Reads for asynchronous engines: any number of bytes at once.
    pub(crate) fn bytes(&mut self, address: u32, len: usize) -> R<&[u8]> {
        let from = self.range(address, len)?;
        if let Some(shadow) = &mut self.shadow {
            shadow.read(from, len, Who::Unordered, self.epoch)?;
        }
        Ok(&self.bytes[from..from + len])
    }

    /// The same with no note of it.
    pub(crate) fn peek(&self, address: u32, len: usize) -> R<&[u8]> {
        let from = self.range(address, len)?;
        Ok(&self.bytes[from..from + len])
    }

    /// Whether these bytes were written; true where that is not recorded.
    pub(crate) fn is_written(&self, address: u32, len: usize) -> bool {
        self.shadow.as_ref().is_none_or(|shadow| shadow.is_written(address as usize, len))
    }

    /// Writes what asynchronous engines deliver.
    pub(crate) fn deliver(&mut self, address: u32, bytes: &[u8]) -> R<()> {
        let at = self.range(address, bytes.len())?;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        match &mut self.shadow {
            None => Ok(()),
            Some(shadow) => shadow.write(at, bytes.len(), Who::Unordered, self.epoch),
        }
    }

    fn range(&self, address: u32, len: usize) -> R<usize> {
        let from = address as usize;
        if from + len > self.bytes.len() {
            let (len_bytes, size_bytes) = (len as u32, self.bytes.len() as u64);
            return fail(FaultKind::OutOfRange { space: "shared", address: address.into(), len_bytes, size_bytes });
        }
        Ok(from)
    }

    /// Changes a word of 4 or 8 bytes; returns the old one.
    pub(crate) fn update(&mut self, address: u32, len: usize, change: impl FnOnce(u64) -> u64) -> R<u64> {
        let mut word = [0; 8];
        self.read(address, &mut word[..len], Who::Unordered)?;
        let old = u64::from_le_bytes(word);
        self.write(address, &change(old).to_le_bytes()[..len], Who::Unordered)?;
        Ok(old)
    }

    /// Threads that the barrier waits for.
    fn expected(&self, number: usize) -> u32 {
        match self.barriers[number].count {
            0 => self.live,
            count => count,
        }
    }

    /// Threads arrive, with a predicate where the barrier reduces one; the generation they wait to end.
    pub(crate) fn arrive(&mut self, number: usize, threads: u32, count: u32, votes: Option<(u32, bool, bool)>) -> u32 {
        let barrier = &mut self.barriers[number];
        let generation = barrier.generation;
        barrier.count = count;
        barrier.arrived += threads;
        if let Some((popc, and, or)) = votes {
            barrier.popc += popc;
            barrier.and &= and;
            barrier.or |= or;
        }
        self.complete(number);
        generation
    }

    /// Ends the barrier's generation if all have come.
    fn complete(&mut self, number: usize) {
        let expected = self.expected(number);
        let barrier = &mut self.barriers[number];
        if barrier.arrived != 0 && barrier.arrived >= expected {
            let result = (barrier.popc, barrier.and, barrier.or);
            *barrier =
                Barrier { generation: barrier.generation.wrapping_add(1), and: true, result, ..Barrier::default() };
            self.epoch = self.epoch.wrapping_add(1);
        }
    }

    /// Threads exit: barriers of the whole CTA wait for fewer.
    pub(crate) fn leave(&mut self, threads: u32) {
        self.live -= threads;
        for number in 0..16 {
            if self.barriers[number].count == 0 {
                self.complete(number);
            }
        }
    }

    /// Events that order shared memory other than barriers: an mbarrier's phase has ended, a cluster's barrier was
    /// passed.
    pub(crate) fn order(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }
}

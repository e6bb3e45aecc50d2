//! A CTA: its shared memory and named barriers.

use super::fault::{FaultKind, R, fail};

/// Who touched a byte of shared memory since when; strict mode's.
#[derive(Clone, Copy, Debug, Default)]
struct Byte {
    written: bool,
    /// Warp plus one that wrote it last, and the barriers passed until then; 0: nobody, or an atomic or asynchronous write.
    writer: u16,
    write_epoch: u32,
    /// Warp plus one that read it last; `u16::MAX`: several.
    reader: u16,
    read_epoch: u32,
}

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
    shadow: Vec<Byte>,
    pub barriers: [Barrier; 16],
    /// Threads that have not exited.
    pub live: u32,
    /// Barriers of the CTA that have completed.
    epoch: u32,
}

impl Cta {
    pub fn new(index: [u32; 3], rank: u32, shared_bytes: u32, strict: bool) -> Self {
        let len = shared_bytes as usize;
        Self {
            index,
            rank,
            bytes: vec![0; len],
            shadow: vec![Byte::default(); if strict { len } else { 0 }],
            barriers: [Barrier { and: true, ..Barrier::default() }; 16],
            live: 0,
            epoch: 0,
        }
    }

    pub fn shared_bytes(&self) -> u32 {
        self.bytes.len() as u32
    }

    /// The place of an access, aligned to its length.
    fn place(&self, address: u32, len: usize) -> R<usize> {
        let (from, len_bytes) = (address as usize, len as u32);
        if !from.is_multiple_of(len.min(16)) {
            return fail(FaultKind::Misaligned { space: "shared", address: address.into(), len_bytes });
        }
        if from + len > self.bytes.len() {
            let size_bytes = self.bytes.len() as u64;
            return fail(FaultKind::OutOfRange { space: "shared", address: address.into(), len_bytes, size_bytes });
        }
        Ok(from)
    }

    /// Reads a power of two of bytes.
    pub fn read(&mut self, address: u32, into: &mut [u8], who: Who) -> R<()> {
        let from = self.place(address, into.len())?;
        into.copy_from_slice(&self.bytes[from..from + into.len()]);
        if self.shadow.is_empty() {
            return Ok(());
        }
        for k in from..from + into.len() {
            self.note_read(k, who)?;
        }
        Ok(())
    }

    fn note_read(&mut self, k: usize, who: Who) -> R<()> {
        let (epoch, byte) = (self.epoch, &mut self.shadow[k]);
        if !byte.written {
            return fail(FaultKind::SharedUnwritten { address: k as u32 });
        }
        let Who::Warp(warp) = who else { return Ok(()) };
        let me = warp as u16 + 1;
        if byte.writer != 0 && byte.writer != me && byte.write_epoch == epoch {
            let warp = u32::from(byte.writer - 1);
            return fail(FaultKind::SharedRace { address: k as u32, this: "read", other: "written", warp });
        }
        byte.reader = match byte.read_epoch == epoch && byte.reader != 0 && byte.reader != me {
            true => u16::MAX,
            false => me,
        };
        byte.read_epoch = epoch;
        Ok(())
    }

    /// Writes a power of two of bytes.
    pub fn write(&mut self, address: u32, from: &[u8], who: Who) -> R<()> {
        let at = self.place(address, from.len())?;
        self.bytes[at..at + from.len()].copy_from_slice(from);
        if self.shadow.is_empty() {
            return Ok(());
        }
        for k in at..at + from.len() {
            self.note_write(k, who)?;
        }
        Ok(())
    }

    fn note_write(&mut self, k: usize, who: Who) -> R<()> {
        let (epoch, byte) = (self.epoch, &mut self.shadow[k]);
        byte.written = true;
        let Who::Warp(warp) = who else {
            byte.writer = 0;
            return Ok(());
        };
        let me = warp as u16 + 1;
        let race = |other: &'static str, by: u16| {
            fail(FaultKind::SharedRace { address: k as u32, this: "write", other, warp: u32::from(by) - 1 })
        };
        if byte.reader != 0 && byte.reader != me && byte.read_epoch == epoch {
            return race("read", byte.reader);
        }
        if byte.writer != 0 && byte.writer != me && byte.write_epoch == epoch {
            return race("written", byte.writer);
        }
        (byte.writer, byte.write_epoch) = (me, epoch);
        Ok(())
    }

    /// Changes a word of 4 or 8 bytes; gives the old one.
    pub fn update(&mut self, address: u32, len: usize, change: impl FnOnce(u64) -> u64) -> R<u64> {
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
    pub fn arrive(&mut self, number: usize, threads: u32, count: u32, votes: Option<(u32, bool, bool)>) -> u32 {
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
    pub fn leave(&mut self, threads: u32) {
        self.live -= threads;
        for number in 0..16 {
            if self.barriers[number].count == 0 {
                self.complete(number);
            }
        }
    }

    /// What orders shared memory beside barriers: an mbarrier's phase has ended, a cluster's barrier was passed.
    pub fn order(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }
}

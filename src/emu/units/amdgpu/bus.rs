//! The interface to memory: a bus translates addresses into windows, a window is a range of shared memory, and a
//! compute unit caches a few windows like a TLB, checked at every access against bounds and kind of access.
//!
//! The driver (`emu::kfd`) implements `Bus` over its page tables.

use super::fault::{FaultKind, R, WaveFault, fail};
use super::shadow::{Policy, ShadowMemory, ThreadShadow};
use doorbell_ioctl::port::DeviceView;
use std::sync::Arc;

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    Fetch,
}

/// Why a translation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BusFault {
    #[error("no mapping")]
    Unmapped,
    #[error("mapping does not permit it")]
    Permission,
}

/// Memory that others write at the same time: never a slice. Offsets are bytes; the caller has checked the bounds given
/// by the window, and an implementation ignores or zero-fills what is outside rather than panic.
pub trait Memory: Send + Sync {
    fn read(&self, offset: u64, into: &mut [u8]);
    fn write(&self, offset: u64, from: &[u8]);
    /// Atomically replaces an aligned dword by `f` of it; returns the old one.
    fn update_u32(&self, offset: u64, f: &mut dyn FnMut(u32) -> u32) -> u32;
    /// Atomically replaces an aligned quadword by `f` of it; returns the old one.
    fn update_u64(&self, offset: u64, f: &mut dyn FnMut(u64) -> u64) -> u64;

    /// The memory itself, if it is mapped here: code of the host may read it.
    fn view(&self) -> Option<DeviceView> {
        None
    }

    /// Fills `rows[word][lane]` with `words` dwords at the offset of each lane that is on.
    fn gather(&self, lanes: u64, offsets: &[u64; 64], words: usize, rows: &mut Rows) {
        for lane in ones(lanes) {
            for (word, row) in rows.iter_mut().enumerate().take(words) {
                let mut raw = [0; 4];
                self.read(offsets[lane] + 4 * word as u64, &mut raw);
                row[lane] = u32::from_le_bytes(raw);
            }
        }
    }

    /// Stores `rows[word][lane]` at the offset of each lane that is on, lower lanes first.
    fn scatter(&self, lanes: u64, offsets: &[u64; 64], words: usize, rows: &Rows) {
        for lane in ones(lanes) {
            for (word, row) in rows.iter().enumerate().take(words) {
                self.write(offsets[lane] + 4 * word as u64, &row[lane].to_le_bytes());
            }
        }
    }
}

/// Up to four dwords of each lane.
pub type Rows = [[u32; 64]; 4];

/// Numbers of the bits that are set.
pub(super) fn ones(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros() as usize;
        (mask != 0).then(|| {
            mask &= mask - 1;
            bit
        })
    })
}

/// A contiguous mapped range and the memory behind it, starting at the memory's byte 0.
#[derive(Clone)]
pub struct Window {
    pub va_start: u64,
    pub len_bytes: u64,
    pub memory: Arc<dyn Memory>,
}

impl Window {
    fn holds(&self, va: u64, len_bytes: u64) -> bool {
        va >= self.va_start && va - self.va_start < self.len_bytes && self.len_bytes - (va - self.va_start) >= len_bytes
    }
}

/// Where addresses lead.
pub trait Bus: Send + Sync {
    /// The window around an address that permits the access.
    ///
    /// # Errors
    /// `Unmapped` and `Permission`.
    fn translate(&self, va: u64, access: Access) -> Result<Window, BusFault>;

    /// Changes whenever a mapping changes.
    fn epoch(&self) -> u64;

    /// The card's shadow state over its dispatches; without it each dispatch has its own.
    fn shadow(&self) -> Option<&ShadowMemory> {
        None
    }

    /// What kind of memory is at an address.
    fn policy(&self, _va: u64) -> Policy {
        Policy::default()
    }

    /// XCCs that workgroups are spread over, each with an L2.
    fn xccs(&self) -> u32 {
        1
    }

    /// The queue whose dispatch runs.
    fn queue(&self) -> u32 {
        0
    }

    /// Takes what lenient checks find.
    fn note(&self, _finding: &WaveFault) {}
}

const WAYS: usize = 8;

/// Windows used so far, a few for each kind of access.
pub(super) struct Tlb<'a> {
    bus: &'a dyn Bus,
    epoch: u64,
    ways: [[Option<Window>; WAYS]; 3],
    next: usize,
    /// The way of each kind that matched last.
    recent: [usize; 3],
    /// What strict mode writes down of the accesses.
    pub shadow: Option<ThreadShadow<'a>>,
}

impl<'a> Tlb<'a> {
    /// Passes a finding on.
    pub(crate) fn note(&self, finding: &WaveFault) {
        self.bus.note(finding);
    }

    pub(crate) fn new(bus: &'a dyn Bus, shadow: Option<ThreadShadow<'a>>) -> Self {
        Self { bus, epoch: bus.epoch(), ways: Default::default(), next: 0, recent: [0; 3], shadow }
    }

    /// What changes when a mapping does.
    pub(crate) fn bus_epoch(&self) -> u64 {
        self.bus.epoch()
    }

    /// Drops everything when a mapping has changed; once an instruction.
    pub(crate) fn refresh(&mut self) {
        let epoch = self.bus.epoch();
        if epoch != self.epoch {
            self.ways = Default::default();
            self.epoch = epoch;
        }
    }

    pub(crate) fn window(&mut self, va: u64, len_bytes: u64, access: Access) -> R<&Window> {
        let set = access as usize;
        let holds = |w: &Option<Window>| w.as_ref().is_some_and(|w| w.holds(va, len_bytes));
        let mut way = self.recent[set];
        if !holds(&self.ways[set][way]) {
            way = match self.ways[set].iter().position(holds) {
                Some(way) => way,
                None => self.fill(va, len_bytes, access)?,
            };
            self.recent[set] = way;
        }
        // PANIC: the way was just found or filled.
        Ok(self.ways[set][way].as_ref().expect("a filled way"))
    }

    fn fill(&mut self, va: u64, len_bytes: u64, access: Access) -> R<usize> {
        let memory = |va, fault| FaultKind::Memory { va, access, fault };
        let window = self.bus.translate(va, access).map_err(|fault| memory(va, fault))?;
        if !window.holds(va, len_bytes) {
            // The access runs over the window's end: name the first byte that is not there.
            return fail(memory(window.va_start.wrapping_add(window.len_bytes), BusFault::Unmapped));
        }
        self.next = (self.next + 1) % WAYS;
        self.ways[access as usize][self.next] = Some(window);
        Ok(self.next)
    }

    pub(crate) fn read(&mut self, va: u64, into: &mut [u8]) -> R<()> {
        self.load(va, into, Access::Read)
    }

    pub(crate) fn fetch(&mut self, va: u64, into: &mut [u8]) -> R<()> {
        self.load(va, into, Access::Fetch)
    }

    fn load(&mut self, va: u64, into: &mut [u8], access: Access) -> R<()> {
        let len_bytes = into.len() as u64;
        let found = self.window(va, len_bytes, access);
        match found {
            Ok(w) => {
                w.memory.read(va - w.va_start, into);
                Ok(())
            }
            Err(fault) => self
                .split(va, len_bytes, access, fault, |tlb, va, at, len| tlb.load(va, &mut into[at..at + len], access)),
        }
    }

    pub(crate) fn write(&mut self, va: u64, from: &[u8]) -> R<()> {
        let len_bytes = from.len() as u64;
        let found = self.window(va, len_bytes, Access::Write);
        match found {
            Ok(w) => {
                w.memory.write(va - w.va_start, from);
                Ok(())
            }
            Err(fault) => {
                self.split(va, len_bytes, Access::Write, fault, |tlb, va, at, len| tlb.write(va, &from[at..at + len]))
            }
        }
    }

    /// An access over the end of one window into the next: done in two parts, or the fault remains.
    fn split(
        &mut self,
        va: u64,
        len_bytes: u64,
        access: Access,
        fault: Box<FaultKind>,
        mut part: impl FnMut(&mut Self, u64, usize, usize) -> R<()>,
    ) -> R<()> {
        let FaultKind::Memory { va: end, .. } = *fault else { return Err(fault) };
        if end <= va || end - va >= len_bytes {
            return Err(fault);
        }
        let first = (end - va) as usize;
        // Both halves are looked up before either is touched, so that a fault leaves no half-written value.
        self.window(va, 1, access)?;
        self.window(end, 1, access)?;
        part(self, va, 0, first)?;
        part(self, end, first, len_bytes as usize - first)
    }

    pub(crate) fn update_u32(&mut self, va: u64, f: &mut dyn FnMut(u32) -> u32) -> R<u32> {
        let w = self.window(va, 4, Access::Write)?;
        Ok(w.memory.update_u32(va - w.va_start, f))
    }

    pub(crate) fn update_u64(&mut self, va: u64, f: &mut dyn FnMut(u64) -> u64) -> R<u64> {
        let w = self.window(va, 8, Access::Write)?;
        Ok(w.memory.update_u64(va - w.va_start, f))
    }
}

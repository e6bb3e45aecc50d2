//! What a multiprocessor sees of the GPU's virtual memory, and a bus of plain ranges for tests.

use doorbell_ioctl::port::{DeviceView, ViewError};
use thiserror::Error;

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    Atomic,
    Fetch,
}

/// An address that the memory does not permit; the contents of an MMU fault.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("{access:?} of {va:#x}: {what}")]
pub struct MemoryFault {
    pub va: u64,
    pub access: Access,
    pub what: &'static str,
}

/// The GPU's virtual memory. Bytes that several multiprocessors touch at a time may come torn; `update` is atomic.
pub trait Bus: Sync {
    /// Reads `bytes.len()` bytes.
    ///
    /// # Errors
    /// An address that is not mapped or may not be read.
    fn read(&self, va: u64, bytes: &mut [u8]) -> Result<(), MemoryFault>;

    /// Writes bytes.
    ///
    /// # Errors
    /// An address that is not mapped or may not be written; then nothing has been written.
    fn write(&self, va: u64, bytes: &[u8]) -> Result<(), MemoryFault>;

    /// One atomic read-modify-write of 4 or 8 bytes; returns the old value.
    ///
    /// # Errors
    /// An address that is not mapped or may not be written.
    fn update(&self, va: u64, len_bytes: u32, change: &mut dyn FnMut(u64) -> u64) -> Result<u64, MemoryFault>;

    /// The mapped range around `va`, with its first address, if it permits the access: valid until [`Bus::epoch`]
    /// changes. None: through the other methods alone.
    fn view(&self, va: u64, access: Access) -> Option<(u64, DeviceView)> {
        let _ = (va, access);
        None
    }

    /// Changes whenever a mapping does.
    fn epoch(&self) -> u64 {
        0
    }
}

/// Ranges of bytes at fixed addresses; addresses between them are unmapped.
#[derive(Default)]
pub struct PlainBus {
    ranges: Vec<Range>,
}

struct Range {
    va: u64,
    write: bool,
    memory: DeviceView,
}

impl PlainBus {
    /// Maps bytes, to be written too when `write`.
    pub fn map(&mut self, va: u64, bytes: &[u8], write: bool) {
        self.ranges.push(Range { va, write, memory: DeviceView::of_bytes(bytes) });
    }

    /// The bytes now at the range that begins at `va`; empty where none does.
    #[must_use]
    pub fn bytes(&self, va: u64) -> Vec<u8> {
        self.ranges.iter().find(|r| r.va == va).map_or_else(Vec::new, |r| r.memory.to_vec())
    }

    fn range(&self, va: u64, access: Access) -> Result<(u64, &DeviceView), MemoryFault> {
        let around = |r: &&Range| va.wrapping_sub(r.va) < r.memory.len_bytes();
        let range = self.ranges.iter().find(around).ok_or(MemoryFault { va, access, what: "not mapped" })?;
        match access == Access::Read || range.write {
            true => Ok((range.va, &range.memory)),
            false => Err(MemoryFault { va, access, what: "read-only" }),
        }
    }

    fn with<T>(
        &self,
        va: u64,
        access: Access,
        f: impl FnOnce(u64, &DeviceView) -> Result<T, ViewError>,
    ) -> Result<T, MemoryFault> {
        let (start, memory) = self.range(va, access)?;
        f(va - start, memory).map_err(|e| {
            let what = if matches!(e, ViewError::Alignment { .. }) { "misaligned" } else { "not mapped" };
            MemoryFault { va, access, what }
        })
    }
}

impl Bus for PlainBus {
    fn read(&self, va: u64, bytes: &mut [u8]) -> Result<(), MemoryFault> {
        self.with(va, Access::Read, |offset, memory| memory.copy_to_slice(offset, bytes))
    }

    fn write(&self, va: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.with(va, Access::Write, |offset, memory| memory.copy_from_slice(offset, bytes))
    }

    fn update(&self, va: u64, len_bytes: u32, change: &mut dyn FnMut(u64) -> u64) -> Result<u64, MemoryFault> {
        self.with(va, Access::Atomic, |offset, memory| match len_bytes {
            4 => memory.fetch_update_u32(offset, |old| change(old.into()) as u32).map(u64::from),
            _ => memory.fetch_update_u64(offset, change),
        })
    }

    fn view(&self, va: u64, access: Access) -> Option<(u64, DeviceView)> {
        self.range(va, access).ok().map(|(start, memory)| (start, memory.clone()))
    }
}

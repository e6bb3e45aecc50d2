//! What a multiprocessor sees of the GPU's virtual memory, and a bus of plain ranges for tests.

use doorbell_ioctl::port::DeviceView;
use std::sync::{Mutex, MutexGuard, PoisonError};
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
    ranges: Vec<(u64, bool, Mutex<Vec<u8>>)>,
}

impl PlainBus {
    /// Maps bytes, to be written too when `write`.
    pub fn map(&mut self, va: u64, bytes: Vec<u8>, write: bool) {
        self.ranges.push((va, write, Mutex::new(bytes)));
    }

    /// The bytes now at the range that begins at `va`; empty where none does.
    #[must_use]
    pub fn bytes(&self, va: u64) -> Vec<u8> {
        self.ranges.iter().find(|r| r.0 == va).map_or_else(Vec::new, |r| lock(&r.2).clone())
    }

    fn with<T>(&self, va: u64, len: usize, access: Access, f: impl FnOnce(&mut [u8]) -> T) -> Result<T, MemoryFault> {
        for (start, write, bytes) in &self.ranges {
            let Some(from) = va.checked_sub(*start).and_then(|o| usize::try_from(o).ok()) else { continue };
            let mut bytes = lock(bytes);
            let Some(part) = from.checked_add(len).and_then(|end| bytes.get_mut(from..end)) else { continue };
            if access != Access::Read && !write {
                return Err(MemoryFault { va, access, what: "read-only" });
            }
            return Ok(f(part));
        }
        Err(MemoryFault { va, access, what: "not mapped" })
    }
}

fn lock(bytes: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    bytes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bus for PlainBus {
    fn read(&self, va: u64, bytes: &mut [u8]) -> Result<(), MemoryFault> {
        self.with(va, bytes.len(), Access::Read, |part| bytes.copy_from_slice(part))
    }

    fn write(&self, va: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.with(va, bytes.len(), Access::Write, |part| part.copy_from_slice(bytes))
    }

    fn update(&self, va: u64, len_bytes: u32, change: &mut dyn FnMut(u64) -> u64) -> Result<u64, MemoryFault> {
        self.with(va, len_bytes as usize, Access::Atomic, |part| {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            let old = u64::from_le_bytes(word);
            part.copy_from_slice(&change(old).to_le_bytes()[..part.len()]);
            old
        })
    }
}

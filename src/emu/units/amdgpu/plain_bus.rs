//! A bus without page tables: a few ranges of host memory at fixed addresses. Tests and benchmarks run kernels on it;
//! the software driver has its own.

use super::bus::{Access, Bus, BusFault, Memory, Window};
use doorbell_ioctl::port::DeviceView;
use std::sync::Arc;

/// Bytes that several threads may access.
pub struct SharedBytes(DeviceView);

impl SharedBytes {
    /// Zeroed bytes; the length is rounded up to 8.
    #[must_use]
    pub fn new(len_bytes: usize) -> Arc<Self> {
        Arc::new(Self(DeviceView::of_bytes(&vec![0; len_bytes.next_multiple_of(8)])))
    }

    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Arc<Self> {
        let memory = Self::new(bytes.len());
        memory.write(0, bytes);
        memory
    }

    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        self.0.to_vec()
    }
}

impl Memory for SharedBytes {
    fn read(&self, offset: u64, into: &mut [u8]) {
        self.0.read(offset, into);
    }

    fn write(&self, offset: u64, from: &[u8]) {
        self.0.write(offset, from);
    }

    fn update_u32(&self, offset: u64, f: &mut dyn FnMut(u32) -> u32) -> u32 {
        self.0.update_u32(offset, f)
    }

    fn update_u64(&self, offset: u64, f: &mut dyn FnMut(u64) -> u64) -> u64 {
        self.0.update_u64(offset, f)
    }

    fn view(&self) -> Option<DeviceView> {
        Some(self.0.clone())
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
        let len_bytes = memory.0.len_bytes();
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

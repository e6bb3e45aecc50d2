//! Buffers mapped for both host and device, which users hold by handles: freed when the last handle and the last copy
//! are gone.
//!
//! Layer: a device owns one, for allocations outside its pool.

use super::pool::Buffer;
use crate::{Release, Uses};
use doorbell_hcq::memory::View;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The buffers in use.
#[derive(Debug)]
pub(crate) struct HostBuffers<B>(Mutex<Vec<B>>);

impl<B> Default for HostBuffers<B> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<B: Buffer> HostBuffers<B> {
    /// Keeps a buffer until its memory is released.
    pub(crate) fn keep(&self, buffer: B) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
    }
}

impl<B: Buffer> Release for HostBuffers<B> {
    fn release(&self, va: u64, _host: Option<View>, uses: Uses) {
        // TIMEOUT: for the last copy. If it hangs, the buffer is leaked, since the device may still access it.
        let is_done = uses.wait(Duration::from_secs(1)).is_ok() || uses.are_done();
        let mut buffers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = buffers.iter().position(|b| b.va() == va) {
            let buffer = buffers.swap_remove(index);
            if !is_done {
                std::mem::forget(buffer);
            }
        }
    }
}

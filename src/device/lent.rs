//! Memory that both sides see and users hold by a handle: the buffers behind it, given back when the last handle and the last copy are gone.
//!
//! Place in the arrows: a device keeps one for what it gives out beside its pool.

use super::pool::Buffer;
use super::{Release, Uses};
use doorbell_hcq::memory::View;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Buffers given out.
#[derive(Debug)]
pub struct Lent<B>(Mutex<Vec<B>>);

impl<B> Default for Lent<B> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<B: Buffer> Lent<B> {
    /// Keeps a buffer until its memory is released.
    pub fn keep(&self, buffer: B) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
    }
}

impl<B: Buffer> Release for Lent<B> {
    fn release(&self, va: u64, _host: Option<View>, uses: Uses) {
        // TIMEOUT: the last copy on it; one that hangs makes the buffer leak rather than vanish under it.
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

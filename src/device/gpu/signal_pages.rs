//! The pages that a GPU's signals lie in.
//!
//! Layer: a device owns them, with the pool that divides them into signals; its queues check here whether they can wait
//! for a signal.

use super::pool::Buffer;
use doorbell_hcq::signal::Signal;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Pages of signals, shared with the pool that divides them.
#[derive(Debug)]
pub struct SignalPages<B>(Arc<Mutex<Vec<B>>>);

impl<B> Clone for SignalPages<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B> Default for SignalPages<B> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<B: Buffer> SignalPages<B> {
    fn pages(&self) -> MutexGuard<'_, Vec<B>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a page.
    pub fn keep(&self, page: B) {
        self.pages().push(page);
    }

    /// Whether the signal lies in one of the pages, so that the device's queues can wait for it.
    #[must_use]
    pub fn hold(&self, signal: &Signal) -> bool {
        self.pages().iter().any(|page| (page.va()..page.va() + page.len_bytes()).contains(&signal.va()))
    }

    /// Frees the pages. No queue may write them any more.
    pub fn free(&self) {
        self.pages().clear();
    }
}

//! Whether a device still works: open, closed, or ended by a fault; and the pages that its signals lie in.
//!
//! Place in the arrows: part of what a driver-backed device's queues and memories share.

use super::DeviceError;
use super::pool::Buffer;
use doorbell_hcq::signal::Signal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Open until it is closed or a fault is set; the first fault stays.
#[derive(Debug, Default)]
pub struct Life {
    fault: OnceLock<String>,
    closed: AtomicBool,
}

impl Life {
    /// Remembers the first fault: the device does nothing from then on.
    pub fn set_fault(&self, text: String) {
        let _first_one_stays = self.fault.set(text);
    }

    #[must_use]
    pub fn fault(&self) -> Option<&str> {
        self.fault.get().map(String::as_str)
    }

    /// Refuses work from now on.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// # Errors
    /// `Unavailable` after a fault, `Closed`.
    pub fn check(&self, device: &str) -> Result<(), DeviceError> {
        if self.is_closed() {
            return Err(DeviceError::Closed { device: device.into() });
        }
        match self.fault() {
            Some(fault) => Err(DeviceError::Unavailable { name: device.into(), why: fault.into() }),
            None => Ok(()),
        }
    }
}

/// Pages of signals, shared with the pool that cuts them up.
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

    /// Keeps a page.
    pub fn keep(&self, page: B) {
        self.pages().push(page);
    }

    /// Whether the signal lies in one of the pages, where the device's queues can wait for it.
    #[must_use]
    pub fn hold(&self, signal: &Signal) -> bool {
        self.pages().iter().any(|page| (page.va()..page.va() + page.len_bytes()).contains(&signal.va()))
    }

    /// Gives the pages back. No queue writes them any more.
    pub fn free(&self) {
        self.pages().clear();
    }
}

//! Whether a device still works: open, closed, or ended by a fault.
//!
//! Layer: part of what a GPU's queues and memories share, whatever its driver.

use crate::DeviceError;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// A device's state: open until it is closed or a fault is set; only the first fault counts.
#[derive(Debug, Default)]
pub(crate) struct Health {
    fault: OnceLock<String>,
    closed: AtomicBool,
}

impl Health {
    /// Sets the fault, unless there is one; the device refuses work from then on.
    pub(crate) fn set_fault(&self, text: String) {
        let _first_one_stays = self.fault.set(text);
    }

    #[must_use]
    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.get().map(String::as_str)
    }

    /// Refuses work from now on.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    #[must_use]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// # Errors
    /// `Unavailable` after a fault, `Closed`.
    pub(crate) fn check(&self, device: &str) -> Result<(), DeviceError> {
        if self.is_closed() {
            return Err(DeviceError::Closed { device: device.into() });
        }
        match self.fault() {
            Some(fault) => Err(DeviceError::Unavailable { name: device.into(), why: fault.into() }),
            None => Ok(()),
        }
    }
}

//! The pages that a GPU's signals lie in.
//!
//! Layer: a device owns them, with the pool that divides them into signals; its queues check here whether they can wait
//! for a signal.

use super::pool::Buffer;
use doorbell_hcq::signal::Signal;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The signal pages of all devices of a driver. What a device's queue waits for may be another one's signal: it then
/// keeps the page until the wait is over, also where that device was closed.
#[derive(Debug)]
pub struct SharedPages<B>(Mutex<Vec<Weak<B>>>);

impl<B> Default for SharedPages<B> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<B: Buffer> SharedPages<B> {
    /// The page that a signal lies in.
    #[must_use]
    pub fn holding(&self, signal: &Signal) -> Option<Arc<B>> {
        let pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pages.iter().filter_map(Weak::upgrade).find(|page| holds(&**page, signal))
    }

    fn add(&self, page: &Arc<B>) {
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pages.retain(|page| page.strong_count() > 0);
        pages.push(Arc::downgrade(page));
    }
}

fn holds<B: Buffer>(page: &B, signal: &Signal) -> bool {
    (page.va()..page.va() + page.len_bytes()).contains(&signal.va())
}

/// Pages of signals, shared with the pool that divides them.
#[derive(Debug)]
pub(crate) struct SignalPages<B>(Arc<Mutex<Vec<Arc<B>>>>);

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
    fn pages(&self) -> MutexGuard<'_, Vec<Arc<B>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a page, and shows it to the driver's other devices.
    pub(crate) fn keep(&self, page: B, shared: &SharedPages<B>) {
        let page = Arc::new(page);
        shared.add(&page);
        self.pages().push(page);
    }

    /// Whether the signal lies in one of the pages, so that the device's queues can wait for it.
    #[must_use]
    pub(crate) fn hold(&self, signal: &Signal) -> bool {
        self.pages().iter().any(|page| holds(&**page, signal))
    }

    /// Frees the pages, but for those that other devices' queues still read. No queue may write them any more.
    pub(crate) fn free(&self) {
        self.pages().clear();
    }
}

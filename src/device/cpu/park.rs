//! Threads that sleep until there is work, without lost wake-ups. [`Bell`] implements the protocol, `std::thread::park`
//! the sleeping.

use doorbell_hcq::sync::Bell;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::Duration;

/// A set of sleeping threads with the same role.
#[derive(Debug, Default)]
pub(super) struct Parking {
    bell: Bell,
    sleepers: Mutex<Vec<Thread>>,
}

impl Parking {
    fn sleepers(&self) -> MutexGuard<'_, Vec<Thread>> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until woken or for `limit`, unless `has_work` is true after the thread has registered as sleeping. May
    /// return early.
    pub(super) fn sleep(&self, has_work: impl Fn() -> bool, limit: Option<Duration>) {
        let me = std::thread::current();
        let id = me.id();
        self.sleepers().push(me);
        self.bell.announce();
        if !has_work() {
            match limit {
                Some(limit) => std::thread::park_timeout(limit),
                None => std::thread::park(),
            }
        }
        self.sleepers().retain(|t| t.id() != id);
        self.bell.leave();
    }

    /// Wakes up to `count` sleepers for work that has just been published; returns how many were woken.
    #[inline]
    pub(super) fn wake(&self, count: usize) -> usize {
        if !self.bell.must_wake() {
            return 0;
        }
        let mut sleepers = self.sleepers();
        let keep = sleepers.len().saturating_sub(count);
        let woken = sleepers.split_off(keep);
        drop(sleepers);
        woken.iter().for_each(Thread::unpark);
        woken.len()
    }
}

//! Events that files wait for: RM's notifiers, as a process hears of them through poll.
//!
//! Source: nv.md 6 (wake-ups), `nv.c` of the open kernel modules. A file has a queue once ALLOC_OS_EVENT named it; an event object connects a
//! notifier of a card to that queue; the notifier tells only when EVENT_SET_NOTIFICATION has switched it on.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// NV2080_NOTIFIERS (`cl2080_notification.h`): graphics exceptions, non-stall interrupts of channels, RC errors.
pub const NOTIFIER_GR0: u32 = 12;
pub const NOTIFIER_FIFO_EVENT_MTHD: u32 = 35;
pub const NOTIFIER_RC_ERROR: u32 = 37;
/// How often a notifier tells.
const ACTION_OFF: u32 = 0;
const ACTION_ONCE: u32 = 1;
/// Events that a file keeps.
const KEPT: usize = 256;

/// What a file is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occurred {
    pub object: u32,
    pub notifier: u32,
    pub info32: u32,
    pub info16: u16,
}

/// An event object: tells `file` of a card's notifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    pub client: u32,
    pub object: u32,
    pub gpu: usize,
    pub notifier: u32,
    pub file: u64,
}

#[derive(Debug, Default)]
struct Inner {
    queues: BTreeMap<u64, VecDeque<Occurred>>,
    listeners: Vec<Listener>,
    /// By card and notifier.
    actions: BTreeMap<(usize, u32), u32>,
}

/// All events of a machine.
#[derive(Debug, Default)]
pub struct Events {
    inner: Mutex<Inner>,
    wake: Condvar,
}

impl Events {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a file a queue; false when it has one.
    pub fn open(&self, file: u64) -> bool {
        self.inner().queues.insert(file, VecDeque::new()).is_none()
    }

    /// Takes it away; false when there is none.
    pub fn close(&self, file: u64) -> bool {
        let mut inner = self.inner();
        inner.listeners.retain(|listener| listener.file != file);
        inner.queues.remove(&file).is_some()
    }

    /// Whether the file has a queue.
    #[must_use]
    pub fn has(&self, file: u64) -> bool {
        self.inner().queues.contains_key(&file)
    }

    pub fn listen(&self, listener: Listener) {
        self.inner().listeners.push(listener);
    }

    pub fn unlisten(&self, client: u32, object: u32) {
        self.inner().listeners.retain(|l| (l.client, l.object) != (client, object));
    }

    /// EVENT_SET_NOTIFICATION.
    pub fn set_action(&self, gpu: usize, notifier: u32, action: u32) {
        self.inner().actions.insert((gpu, notifier), action);
    }

    /// Something happened.
    pub fn notify(&self, gpu: usize, notifier: u32, info32: u32, info16: u16) {
        let mut inner = self.inner();
        let action = inner.actions.get(&(gpu, notifier)).copied().unwrap_or(ACTION_OFF);
        if action == ACTION_OFF {
            return;
        }
        if action == ACTION_ONCE {
            inner.actions.insert((gpu, notifier), ACTION_OFF);
        }
        let hit: Vec<Listener> =
            inner.listeners.iter().filter(|l| (l.gpu, l.notifier) == (gpu, notifier)).copied().collect();
        for listener in hit {
            if let Some(queue) = inner.queues.get_mut(&listener.file)
                && queue.len() < KEPT
            {
                queue.push_back(Occurred { object: listener.object, notifier, info32, info16 });
            }
        }
        drop(inner);
        self.wake.notify_all();
    }

    /// The oldest event of a file, and whether there are more.
    pub fn take(&self, file: u64) -> Option<(Occurred, bool)> {
        let mut inner = self.inner();
        let queue = inner.queues.get_mut(&file)?;
        let first = queue.pop_front()?;
        Some((first, !queue.is_empty()))
    }

    /// Sleeps until one of the files has an event: gives those that do. No timeout: for ever.
    pub fn wait(&self, files: &[u64], timeout: Option<Duration>) -> Vec<bool> {
        let end = timeout.map(|timeout| Instant::now() + timeout);
        let mut inner = self.inner();
        loop {
            let ready = |file: &u64| inner.queues.get(file).is_some_and(|queue| !queue.is_empty());
            let seen: Vec<bool> = files.iter().map(ready).collect();
            if seen.contains(&true) {
                return seen;
            }
            inner = match end {
                None => self.wake.wait(inner).unwrap_or_else(PoisonError::into_inner),
                Some(end) => {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return seen;
                    }
                    // TIMEOUT: the caller's own.
                    self.wake.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_reach_the_file_only_when_switched_on() {
        let events = Events::default();
        assert!(events.open(7) && !events.open(7));
        events.listen(Listener { client: 1, object: 2, gpu: 0, notifier: NOTIFIER_RC_ERROR, file: 7 });
        events.notify(0, NOTIFIER_RC_ERROR, 31, 1);
        assert_eq!(events.take(7), None);
        events.set_action(0, NOTIFIER_RC_ERROR, ACTION_ONCE);
        events.notify(0, NOTIFIER_RC_ERROR, 31, 1);
        events.notify(0, NOTIFIER_RC_ERROR, 32, 1);
        assert_eq!(events.wait(&[6, 7], Some(Duration::ZERO)), [false, true]);
        let first = Occurred { object: 2, notifier: NOTIFIER_RC_ERROR, info32: 31, info16: 1 };
        assert_eq!(events.take(7), Some((first, false)));
        assert_eq!(events.take(7), None);
        assert!(events.close(7) && !events.has(7));
    }
}

//! Events that files wait for: RM's notifiers and channels' interrupts, as a process receives them through poll.
//!
//! Source: `osapi.c`, `os.c`, `event_notification.c`, `gpu_rmapi.c`, `intr.c` and `nv.c` of the open kernel modules
//! 595.45. ALLOC_OS_EVENT names a file by a client and a number; an event object connects a notifier of a subdevice to
//! it. A notifier fires only once EVENT_SET_NOTIFICATION has enabled it for that subdevice; the interrupts that
//! channels request go to events with NONSTALL_INTR, and to no others, regardless of that setting. An event without
//! data is one bit of its file, which the first poll that sees it clears. Left out: events of channels and of the
//! client (never sent), events of other clients' objects.

use super::status;
use doorbell_ioctl::abi::nvrm::{NOTIFICATION_DISABLE, NOTIFICATION_SINGLE, NV2080_NOTIFIERS_FIFO_EVENT_MTHD, Status};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Events with data that a file queues; the real driver queues as many as memory allows.
const KEPT: usize = 4096;

/// One event as a file receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Occurred {
    pub object: u32,
    pub notifier: u32,
    pub info32: u32,
    pub info16: u16,
}

/// An event object: sends a subdevice's notifier to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    pub client: u32,
    pub object: u32,
    /// The subdevice.
    pub source: u32,
    pub gpu: usize,
    pub notifier: u32,
    /// For interrupts that channels request.
    pub is_nonstall: bool,
    pub has_data: bool,
    /// What ALLOC_OS_EVENT made.
    pub os_event: OsEvent,
}

/// A file as ALLOC_OS_EVENT has named it; a later one of the same name is another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OsEvent {
    id: u64,
    file: u64,
}

/// What waits in a file.
#[derive(Debug, Default)]
struct Queue {
    data: VecDeque<Occurred>,
    without_data: bool,
}

#[derive(Debug, Default)]
struct Inner {
    queues: BTreeMap<u64, Queue>,
    /// By client and number.
    named: BTreeMap<(u32, i32), OsEvent>,
    made: u64,
    listeners: Vec<Listener>,
    /// By client, subdevice and notifier; absent ones are off.
    actions: BTreeMap<(u32, u32, u32), u32>,
}

/// All events of a machine.
#[derive(Debug, Default)]
pub(crate) struct Events {
    inner: Mutex<Inner>,
    wake: Condvar,
}

impl Inner {
    /// Puts an event into its file, unless the file's name was given back.
    fn post(&mut self, listener: &Listener, info32: u32, info16: u16) {
        if !self.named.values().any(|known| *known == listener.os_event) {
            return;
        }
        let queue = self.queues.entry(listener.os_event.file).or_default();
        if !listener.has_data {
            queue.without_data = true;
        } else if queue.data.len() < KEPT {
            let (object, notifier) = (listener.object, listener.notifier);
            queue.data.push_back(Occurred { object, notifier, info32, info16 });
        }
    }

    /// Whether a file is ready; an event without data is consumed by that.
    fn look(&mut self, file: u64) -> bool {
        let Some(queue) = self.queues.get_mut(&file) else { return false };
        std::mem::take(&mut queue.without_data) || !queue.data.is_empty()
    }
}

impl Events {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// ALLOC_OS_EVENT.
    ///
    /// # Errors
    /// `INSUFFICIENT_RESOURCES`: the client has named that number.
    pub(crate) fn name(&self, client: u32, fd: i32, file: u64) -> Result<(), Status> {
        let mut inner = self.inner();
        if inner.named.contains_key(&(client, fd)) {
            return Err(status::INSUFFICIENT_RESOURCES);
        }
        inner.made += 1;
        let id = inner.made;
        inner.named.insert((client, fd), OsEvent { id, file });
        Ok(())
    }

    /// FREE_OS_EVENT.
    ///
    /// # Errors
    /// `INVALID_EVENT`: the client has not named that number.
    pub(crate) fn forget_name(&self, client: u32, fd: i32) -> Result<(), Status> {
        self.inner().named.remove(&(client, fd)).map(|_| ()).ok_or(status::INVALID_EVENT)
    }

    /// What the client has named so.
    ///
    /// # Errors
    /// `OBJECT_NOT_FOUND`.
    pub(crate) fn named(&self, client: u32, fd: i32) -> Result<OsEvent, Status> {
        self.inner().named.get(&(client, fd)).copied().ok_or(status::OBJECT_NOT_FOUND)
    }

    /// A file is closed.
    pub(crate) fn close(&self, file: u64) {
        let mut inner = self.inner();
        inner.named.retain(|_, known| known.file != file);
        inner.queues.remove(&file);
    }

    /// What waits in a file is lost.
    pub(crate) fn forget(&self, file: u64) {
        self.inner().queues.remove(&file);
    }

    /// A client is freed.
    pub(crate) fn end_client(&self, client: u32) {
        let mut inner = self.inner();
        inner.named.retain(|(owner, _), _| *owner != client);
        inner.actions.retain(|(owner, ..), _| *owner != client);
    }

    pub(crate) fn listen(&self, listener: Listener) {
        self.inner().listeners.push(listener);
    }

    /// An object is freed: an event, or a subdevice with events.
    pub(crate) fn unlisten(&self, client: u32, object: u32) {
        let mut inner = self.inner();
        inner.listeners.retain(|l| l.client != client || l.object != object);
        inner.actions.retain(|(owner, source, _), _| (*owner, *source) != (client, object));
    }

    /// Whether an event is plugged into a subdevice.
    #[must_use]
    pub(crate) fn has_listener(&self, client: u32, source: u32) -> bool {
        self.inner().listeners.iter().any(|l| (l.client, l.source) == (client, source))
    }

    /// EVENT_SET_NOTIFICATION of a subdevice.
    ///
    /// # Errors
    /// `INVALID_STATE`: the notifier is on already.
    pub(crate) fn set_action(&self, client: u32, source: u32, notifier: u32, action: u32) -> Result<(), Status> {
        let mut inner = self.inner();
        let old = inner.actions.entry((client, source, notifier)).or_insert(NOTIFICATION_DISABLE);
        if action != NOTIFICATION_DISABLE && *old != NOTIFICATION_DISABLE {
            return Err(status::INVALID_STATE);
        }
        *old = action;
        Ok(())
    }

    /// Something happened to a card.
    pub(crate) fn notify(&self, gpu: usize, notifier: u32, info32: u32, info16: u16) {
        let mut inner = self.inner();
        let listeners: Vec<Listener> = inner.listeners.clone();
        let mut fired: Vec<(u32, u32, u32)> = Vec::new();
        for listener in listeners.iter().filter(|l| (l.gpu, l.notifier) == (gpu, notifier)) {
            let key = (listener.client, listener.source, notifier);
            if inner.actions.get(&key).is_some_and(|action| *action != NOTIFICATION_DISABLE) {
                inner.post(listener, info32, info16);
                fired.push(key);
            }
        }
        for key in fired {
            if inner.actions.get(&key) == Some(&NOTIFICATION_SINGLE) {
                inner.actions.insert(key, NOTIFICATION_DISABLE);
            }
        }
        drop(inner);
        self.wake.notify_all();
    }

    /// A channel requested an interrupt: the notifier of its runlist's engine fires, and the host's, which fires for
    /// all.
    pub(crate) fn interrupt(&self, gpu: usize, engine: u32) {
        let mut inner = self.inner();
        let listeners: Vec<Listener> =
            inner.listeners.iter().filter(|l| l.is_nonstall && l.gpu == gpu).copied().collect();
        for listener in listeners.iter().filter(|l| [engine, NV2080_NOTIFIERS_FIFO_EVENT_MTHD].contains(&l.notifier)) {
            inner.post(listener, 0, 0);
        }
        drop(inner);
        self.wake.notify_all();
    }

    /// The oldest event with data of a file, and whether there are more.
    pub(crate) fn take(&self, file: u64) -> Option<(Occurred, bool)> {
        let mut inner = self.inner();
        let queue = inner.queues.get_mut(&file)?;
        let first = queue.data.pop_front()?;
        Some((first, !queue.data.is_empty()))
    }

    /// Sleeps until one of the files has an event: returns those that have. No timeout: for ever.
    pub(crate) fn wait(&self, files: &[u64], timeout: Option<Duration>) -> Vec<bool> {
        let end = timeout.map(|timeout| Instant::now() + timeout);
        let mut inner = self.inner();
        loop {
            let seen: Vec<bool> = files.iter().map(|file| inner.look(*file)).collect();
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
    use doorbell_ioctl::abi::nvrm::{NOTIFICATION_REPEAT, NV2080_NOTIFIERS_GR0, NV2080_NOTIFIERS_RC_ERROR};

    const CLIENT: u32 = 1;
    const SUBDEVICE: u32 = 3;

    /// File 7 receives a notifier by an object.
    fn listener(events: &Events, object: u32, notifier: u32) -> Listener {
        let os_event = events.named(CLIENT, 70).unwrap();
        let (is_nonstall, has_data) = (false, true);
        Listener { client: CLIENT, object, source: SUBDEVICE, gpu: 0, notifier, is_nonstall, has_data, os_event }
    }

    fn events() -> Events {
        let events = Events::default();
        events.name(CLIENT, 70, 7).unwrap();
        events
    }

    #[test]
    fn events_reach_the_file_only_when_switched_on() {
        let events = events();
        assert_eq!(events.name(CLIENT, 70, 8), Err(status::INSUFFICIENT_RESOURCES));
        let set = |action| events.set_action(CLIENT, SUBDEVICE, NV2080_NOTIFIERS_RC_ERROR, action);
        assert!(!events.has_listener(CLIENT, SUBDEVICE));
        events.listen(listener(&events, 2, NV2080_NOTIFIERS_RC_ERROR));
        assert!(events.has_listener(CLIENT, SUBDEVICE) && !events.has_listener(CLIENT, SUBDEVICE + 1));
        events.notify(0, NV2080_NOTIFIERS_RC_ERROR, 31, 1);
        assert_eq!(events.take(7), None);
        set(NOTIFICATION_SINGLE).unwrap();
        assert_eq!(set(NOTIFICATION_REPEAT), Err(status::INVALID_STATE));
        events.notify(0, NV2080_NOTIFIERS_RC_ERROR, 31, 1);
        events.notify(0, NV2080_NOTIFIERS_RC_ERROR, 32, 1);
        assert_eq!(events.wait(&[6, 7], Some(Duration::ZERO)), [false, true]);
        let first = Occurred { object: 2, notifier: NV2080_NOTIFIERS_RC_ERROR, info32: 31, info16: 1 };
        assert_eq!(events.take(7), Some((first, false)));
        assert_eq!((events.take(7), events.wait(&[7], Some(Duration::ZERO))), (None, vec![false]));
    }

    #[test]
    fn interrupts_reach_only_what_is_for_them_and_a_look_takes_what_has_no_data() {
        let events = events();
        events.listen(listener(&events, 2, NV2080_NOTIFIERS_GR0));
        events.set_action(CLIENT, SUBDEVICE, NV2080_NOTIFIERS_GR0, NOTIFICATION_REPEAT).unwrap();
        events.interrupt(0, NV2080_NOTIFIERS_GR0);
        let look = || events.wait(&[7], Some(Duration::ZERO)) == [true];
        assert!(!look());
        for (object, notifier) in [(3, NV2080_NOTIFIERS_FIFO_EVENT_MTHD), (4, NV2080_NOTIFIERS_GR0 + 1)] {
            let plain = listener(&events, object, notifier);
            events.listen(Listener { is_nonstall: true, has_data: false, ..plain });
        }
        // Of all engines to the host's notifier; twice is once.
        events.interrupt(0, NV2080_NOTIFIERS_GR0);
        events.interrupt(0, NV2080_NOTIFIERS_GR0);
        assert_eq!((look(), look(), events.take(7)), (true, false, None));
        events.interrupt(1, NV2080_NOTIFIERS_GR0);
        assert!(!look(), "another card's");
        events.forget_name(CLIENT, 70).unwrap();
        events.name(CLIENT, 70, 7).unwrap();
        events.interrupt(0, NV2080_NOTIFIERS_GR0);
        assert!(!look(), "the event was of the name that was given back");
    }
}

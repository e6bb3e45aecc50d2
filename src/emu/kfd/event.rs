//! Events: a process sleeps on them until a queue, a fault or another of its threads signals.
//!
//! Source: docs/amd.md 1.9; `kfd_events.c` for auto reset, ages, ids and error numbers.
//! Left out: CRIU, events of types that no path of this driver raises (they can be made and waited for).

use doorbell_ioctl::abi::kfd::{
    EVENT_DEBUG, EVENT_HW_EXCEPTION, EVENT_MEMORY, EVENT_SIGNAL, EventData, HwException, MemoryException,
    SIGNAL_EVENT_LIMIT, WAIT_RESULT_COMPLETE, WAIT_RESULT_FAIL, WAIT_RESULT_TIMEOUT,
};
use doorbell_ioctl::port::{DeviceView, Errno};
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A slot that was not signalled.
pub(crate) const UNSIGNALED_EVENT_SLOT: u64 = u64::MAX;
/// Id 0 is reserved for interrupts without a context.
const FIRST_SIGNAL_ID: u32 = 1;
const FIRST_NONSIGNAL_ID: u32 = 0x8000_0000;
/// Ages 0 and 1 have a meaning of their own.
const FIRST_AGE: u64 = 1;
const AGE_AFTER_WRAP: u64 = 2;

#[derive(Debug)]
struct Event {
    kind: u32,
    auto_reset: bool,
    signaled: bool,
    age: u64,
    memory: MemoryException,
    hw: HwException,
}

/// One element of one wait.
#[derive(Debug, Clone, Copy)]
struct Waiter {
    event: u32,
    activated: bool,
    destroyed: bool,
    by_age: bool,
}

#[derive(Debug, Default)]
struct Inner {
    events: BTreeMap<u32, Event>,
    page: Option<DeviceView>,
    page_handle: u64,
    waits: BTreeMap<u64, Vec<Waiter>>,
    next_wait: u64,
    /// Waits that a signal will interrupt.
    interrupts: u32,
    /// Waits that a signal without a handler will begin again.
    restarts: u32,
    /// The process has ended.
    ended: bool,
}

/// A process's events.
#[derive(Debug, Default)]
pub(crate) struct Events {
    inner: Mutex<Inner>,
    changed: Condvar,
    /// Signal events carry an age (1.14).
    ages: bool,
    /// A wait that begins again has lost what it had taken.
    pub(super) restart_forgets: bool,
}

/// How a wait ended: `WAIT_RESULT_*`.
pub(crate) type WaitResult = u32;

impl Inner {
    /// The kernel's set_event: an event with auto reset stays signalled only when no thread waits for it.
    fn set(&mut self, id: u32) {
        let mut waiters = self.waits.values_mut().flatten().filter(|w| w.event == id && !w.activated).peekable();
        let waited_for = waiters.peek().is_some();
        waiters.for_each(|w| w.activated = true);
        if let Some(event) = self.events.get_mut(&id) {
            event.signaled = !event.auto_reset || !waited_for;
            event.age = if event.age == u64::MAX { AGE_AFTER_WRAP } else { event.age + 1 };
        }
    }

    /// A slot that the GPU has written is taken: all-ones again, and the event set.
    fn take_slot(&mut self, id: u32) -> bool {
        let Some(page) = &self.page else { return false };
        let at = u64::from(id) * 8;
        let is_signal = self.events.get(&id).is_some_and(|e| matches!(e.kind, EVENT_SIGNAL | EVENT_DEBUG));
        if !is_signal || !page.read_u64(at).is_ok_and(|slot| slot != UNSIGNALED_EVENT_SLOT) {
            return false;
        }
        let _in_range = page.write_u64(at, UNSIGNALED_EVENT_SLOT);
        self.set(id);
        true
    }

    fn status(waiters: &[Waiter], all: bool) -> WaitResult {
        if waiters.iter().any(|w| w.destroyed) {
            return WAIT_RESULT_FAIL;
        }
        let activated = waiters.iter().filter(|w| w.activated).count();
        let complete = if all || waiters.is_empty() { activated == waiters.len() } else { activated > 0 };
        if complete { WAIT_RESULT_COMPLETE } else { WAIT_RESULT_TIMEOUT }
    }

    /// Registers a wait: an event that is signalled already, or whose age moved on, counts at once.
    fn register(&mut self, data: &[EventData], ages: bool) -> Result<Vec<Waiter>, Errno> {
        let mut waiters = Vec::with_capacity(data.len());
        for item in data {
            let event = self.events.get_mut(&item.event_id).ok_or(Errno::EINVAL)?;
            let mut activated = event.signaled;
            event.signaled = event.signaled && !event.auto_reset;
            let by_age = ages && event.kind == EVENT_SIGNAL && item.payload[0] != 0;
            activated |= by_age && event.age != item.payload[0];
            waiters.push(Waiter { event: item.event_id, activated, destroyed: false, by_age });
        }
        Ok(waiters)
    }

    /// Fills the payloads of the events that happened.
    fn report(&self, waiters: &[Waiter], data: &mut [EventData]) {
        for (waiter, item) in waiters.iter().zip(data).filter(|(w, _)| w.activated) {
            let Some(event) = self.events.get(&waiter.event) else { continue };
            match event.kind {
                EVENT_MEMORY => item.payload = bytemuck::cast(event.memory),
                EVENT_HW_EXCEPTION => {
                    let [a, b]: [u64; 2] = bytemuck::cast(event.hw);
                    item.payload[..2].copy_from_slice(&[a, b]);
                }
                EVENT_SIGNAL if waiter.by_age => item.payload[0] = event.age,
                _ => {}
            }
        }
    }
}

impl Events {
    #[must_use]
    pub(crate) fn new(ages: bool) -> Self {
        Self { ages, ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the event page in place and fills it with all-ones.
    ///
    /// # Errors
    /// `EINVAL` when there is one already or the buffer holds too few slots.
    pub(crate) fn set_page(&self, page: DeviceView, handle: u64) -> Result<(), Errno> {
        let mut inner = self.lock();
        let bytes = u64::from(SIGNAL_EVENT_LIMIT) * 8;
        if inner.page.is_some() || page.fill(0, bytes, 0xff).is_err() {
            return Err(Errno::EINVAL);
        }
        inner.page = Some(page);
        inner.page_handle = handle;
        Ok(())
    }

    /// Whether the buffer is the event page.
    #[must_use]
    pub(crate) fn is_page(&self, handle: u64) -> bool {
        let inner = self.lock();
        inner.page.is_some() && inner.page_handle == handle
    }

    /// A new event; returns its id, which is its slot for signal events.
    ///
    /// # Errors
    /// `ENOSPC` when all signal events are used.
    pub(crate) fn create(&self, kind: u32, auto_reset: bool) -> Result<u32, Errno> {
        let mut inner = self.lock();
        let (first, last) = match kind {
            EVENT_SIGNAL | EVENT_DEBUG => (FIRST_SIGNAL_ID, SIGNAL_EVENT_LIMIT - 1),
            _ => (FIRST_NONSIGNAL_ID, FIRST_NONSIGNAL_ID + SIGNAL_EVENT_LIMIT - 1),
        };
        let id = (first..=last).find(|id| !inner.events.contains_key(id)).ok_or(Errno::ENOSPC)?;
        let (memory, hw) = (MemoryException::default(), HwException::default());
        inner.events.insert(id, Event { kind, auto_reset, signaled: false, age: FIRST_AGE, memory, hw });
        Ok(id)
    }

    /// # Errors
    /// `EINVAL` for an unknown id.
    pub(crate) fn destroy(&self, id: u32) -> Result<(), Errno> {
        let mut inner = self.lock();
        inner.events.remove(&id).ok_or(Errno::EINVAL)?;
        inner.waits.values_mut().flatten().filter(|w| w.event == id).for_each(|w| w.destroyed = true);
        self.changed.notify_all();
        Ok(())
    }

    /// Sets or clears a signal event from the CPU.
    ///
    /// # Errors
    /// `EINVAL` for an unknown id, or an event that the CPU may not signal.
    pub(crate) fn signal(&self, id: u32, set: bool) -> Result<(), Errno> {
        let mut inner = self.lock();
        let event = inner.events.get_mut(&id).filter(|e| e.kind == EVENT_SIGNAL).ok_or(Errno::EINVAL)?;
        if set {
            inner.set(id);
        } else {
            event.signaled = false;
        }
        self.changed.notify_all();
        Ok(())
    }

    /// An interrupt of a queue with this context: the event of that id if its slot was written, else all whose slots
    /// were. False when no slot was.
    pub(crate) fn interrupt(&self, context: u32) -> bool {
        let mut inner = self.lock();
        let mut found = inner.take_slot(context);
        if !found {
            let ids: Vec<u32> = inner.events.range(..SIGNAL_EVENT_LIMIT).map(|(id, _)| *id).collect();
            found = ids.into_iter().filter(|id| inner.take_slot(*id)).count() > 0;
        }
        self.changed.notify_all();
        found
    }

    /// Sets an event regardless of its slot: exceptions that the kernel delivers by id.
    pub(crate) fn deliver(&self, id: u32) {
        self.lock().set(id);
        self.changed.notify_all();
    }

    /// A page fault of a card: all memory events.
    pub(crate) fn memory_fault(&self, exception: MemoryException) {
        self.raise(EVENT_MEMORY, |event| event.memory = exception);
    }

    /// A reset: all hardware exception events.
    pub(crate) fn hw_exception(&self, exception: HwException) {
        self.raise(EVENT_HW_EXCEPTION, |event| event.hw = exception);
    }

    fn raise(&self, kind: u32, fill: impl Fn(&mut Event)) {
        let mut inner = self.lock();
        let ids: Vec<u32> = inner.events.iter().filter(|(_, e)| e.kind == kind).map(|(id, _)| *id).collect();
        for id in ids {
            if let Some(event) = inner.events.get_mut(&id) {
                fill(event);
            }
            inner.set(id);
        }
        self.changed.notify_all();
    }

    /// The next wait that would sleep is interrupted as by a signal: `EINTR`.
    pub(crate) fn interrupt_next_wait(&self) {
        self.lock().interrupts += 1;
        self.changed.notify_all();
    }

    /// The next wait that sleeps is begun again, as when a signal that nobody handles arrives.
    pub(crate) fn restart_next_wait(&self) {
        self.lock().restarts += 1;
        self.changed.notify_all();
    }

    /// The process ends: its waits do too.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// Waits for any or all of the events; `None` waits for ever. Fills the payloads of what happened.
    ///
    /// # Errors
    /// `EINVAL` for an unknown id, `EIO` when an event is destroyed meanwhile, `EINTR` when interrupted.
    pub(crate) fn wait(
        &self,
        data: &mut [EventData],
        all: bool,
        timeout: Option<Duration>,
    ) -> Result<WaitResult, Errno> {
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        let mut inner = self.lock();
        let waiters = inner.register(data, self.ages)?;
        let key = inner.next_wait;
        inner.next_wait += 1;
        inner.waits.insert(key, waiters);
        loop {
            let status = inner.waits.get(&key).map_or(WAIT_RESULT_FAIL, |w| Inner::status(w, all));
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            let sleeps = status == WAIT_RESULT_TIMEOUT && left != Some(Duration::ZERO);
            if sleeps && inner.restarts > 0 && !inner.ended {
                inner.restarts -= 1;
                let taken = inner.waits.remove(&key).unwrap_or_default();
                if !self.restart_forgets {
                    taken.iter().filter(|w| w.activated).for_each(|w| inner.set(w.event));
                }
                let waiters = inner.register(data, self.ages)?;
                inner.waits.insert(key, waiters);
                continue;
            }
            let interrupted = sleeps && (inner.interrupts > 0 || inner.ended);
            if status != WAIT_RESULT_TIMEOUT || left == Some(Duration::ZERO) || interrupted {
                let waiters = inner.waits.remove(&key).unwrap_or_default();
                if interrupted {
                    inner.interrupts = inner.interrupts.saturating_sub(1);
                    // As the kernel: what the wait has taken is put back.
                    waiters.iter().filter(|w| w.activated).for_each(|w| inner.set(w.event));
                    return Err(Errno::EINTR);
                }
                if status == WAIT_RESULT_FAIL {
                    return Err(Errno::EIO);
                }
                if status == WAIT_RESULT_COMPLETE {
                    inner.report(&waiters, data);
                }
                return Ok(status);
            }
            inner = match left {
                // TIMEOUT: the caller's own.
                Some(left) => self.changed.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(id: u32, age: u64) -> EventData {
        EventData { event_id: id, payload: [age, 0, 0, 0], ..EventData::default() }
    }

    const NOW: Option<Duration> = Some(Duration::ZERO);

    #[test]
    fn an_auto_reset_event_is_taken_by_one_wait() {
        let events = Events::new(true);
        let id = events.create(EVENT_SIGNAL, true).unwrap();
        events.signal(id, true).unwrap();
        assert_eq!(events.wait(&mut [asked(id, 0)], false, NOW), Ok(WAIT_RESULT_COMPLETE));
        assert_eq!(events.wait(&mut [asked(id, 0)], false, NOW), Ok(WAIT_RESULT_TIMEOUT));
    }

    #[test]
    fn a_manual_event_stays_until_reset() {
        let events = Events::new(true);
        let id = events.create(EVENT_SIGNAL, false).unwrap();
        events.signal(id, true).unwrap();
        for _ in 0..2 {
            assert_eq!(events.wait(&mut [asked(id, 0)], false, NOW), Ok(WAIT_RESULT_COMPLETE));
        }
        events.signal(id, false).unwrap();
        assert_eq!(events.wait(&mut [asked(id, 0)], false, NOW), Ok(WAIT_RESULT_TIMEOUT));
    }

    #[test]
    fn the_age_shows_a_signal_between_two_waits() {
        let events = Events::new(true);
        let id = events.create(EVENT_SIGNAL, true).unwrap();
        let mut data = [asked(id, 1)];
        assert_eq!(events.wait(&mut data, false, NOW), Ok(WAIT_RESULT_TIMEOUT));
        events.signal(id, true).unwrap();
        assert_eq!(events.wait(&mut [asked(id, 0)], false, NOW), Ok(WAIT_RESULT_COMPLETE), "taken by somebody else");
        assert_eq!(events.wait(&mut data, false, NOW), Ok(WAIT_RESULT_COMPLETE));
        assert_eq!(data[0].payload[0], 2);
        assert_eq!(events.wait(&mut data, false, NOW), Ok(WAIT_RESULT_TIMEOUT));
    }

    #[test]
    fn kernels_before_ages_ignore_them() {
        let events = Events::new(false);
        let id = events.create(EVENT_SIGNAL, true).unwrap();
        events.signal(id, true).unwrap();
        assert_eq!(events.wait(&mut [asked(id, 0)], false, NOW), Ok(WAIT_RESULT_COMPLETE));
        assert_eq!(events.wait(&mut [asked(id, 1)], false, NOW), Ok(WAIT_RESULT_TIMEOUT));
    }

    #[test]
    fn waiting_for_all_needs_all_and_for_any_one() {
        let events = Events::new(true);
        let (a, b) = (events.create(EVENT_SIGNAL, false).unwrap(), events.create(EVENT_SIGNAL, false).unwrap());
        events.signal(a, true).unwrap();
        let mut data = [asked(a, 0), asked(b, 0)];
        assert_eq!(events.wait(&mut data, false, NOW), Ok(WAIT_RESULT_COMPLETE));
        assert_eq!(events.wait(&mut data, true, NOW), Ok(WAIT_RESULT_TIMEOUT));
        events.signal(b, true).unwrap();
        assert_eq!(events.wait(&mut data, true, NOW), Ok(WAIT_RESULT_COMPLETE));
    }

    #[test]
    fn an_interrupt_takes_written_slots_only() {
        let events = Events::new(true);
        let page = doorbell_ioctl::port::SharedMemory::new(0x8000).unwrap().map().unwrap();
        events.set_page(page.clone(), 7).unwrap();
        assert_eq!(page.read_u64(8), Ok(UNSIGNALED_EVENT_SLOT));
        let (a, b) = (events.create(EVENT_SIGNAL, true).unwrap(), events.create(EVENT_SIGNAL, true).unwrap());
        assert!(!events.interrupt(a));
        assert_eq!(events.wait(&mut [asked(a, 0)], false, NOW), Ok(WAIT_RESULT_TIMEOUT), "nobody wrote its slot");
        page.write_u64(u64::from(b) * 8, 5).unwrap();
        assert!(events.interrupt(99));
        assert_eq!(events.wait(&mut [asked(b, 0)], false, NOW), Ok(WAIT_RESULT_COMPLETE), "a wrong context scans all");
        assert_eq!(page.read_u64(u64::from(b) * 8), Ok(UNSIGNALED_EVENT_SLOT));
        assert_eq!(events.set_page(page, 8), Err(Errno::EINVAL));
    }

    #[test]
    fn destroying_an_awaited_event_fails_the_wait_and_a_signal_interrupts_it() {
        let events = Events::new(true);
        let id = events.create(EVENT_SIGNAL, true).unwrap();
        std::thread::scope(|scope| {
            let wait = scope.spawn(|| events.wait(&mut [asked(id, 0)], false, None));
            while events.lock().waits.is_empty() {
                std::thread::yield_now();
            }
            events.destroy(id).unwrap();
            assert_eq!(wait.join().unwrap(), Err(Errno::EIO));
        });
        let id = events.create(EVENT_SIGNAL, true).unwrap();
        events.interrupt_next_wait();
        assert_eq!(events.wait(&mut [asked(id, 0)], false, None), Err(Errno::EINTR));
        assert_eq!(events.wait(&mut [asked(99, 0)], false, NOW), Err(Errno::EINVAL));
    }

    #[test]
    fn faults_fill_the_payload_of_their_kind() {
        let events = Events::new(true);
        let memory = events.create(EVENT_MEMORY, false).unwrap();
        assert!(memory >= FIRST_NONSIGNAL_ID);
        let fault = MemoryException { va: 0x7000, gpu_id: 9, not_present: 1, ..MemoryException::default() };
        events.memory_fault(fault);
        let mut data = [asked(memory, 0)];
        assert_eq!(events.wait(&mut data, false, NOW), Ok(WAIT_RESULT_COMPLETE));
        assert_eq!(data[0].memory_exception(), fault);
        assert_eq!(events.signal(memory, true), Err(Errno::EINVAL), "the CPU may not signal it");
    }
}

//! The events that a process sleeps on: one signal event per queue, and two fault events for all cards of the
//! connection.
//!
//! Layer: part of `driver`. Source: docs/amd.md 1.9, 7; `kfd_events.c`. A fault of any card wakes an
//! arbitrary waiter. Therefore faults are recorded by card, until a device of that card checks for them. The event page
//! is given to the kernel once, and the kernel keeps it.

use super::bo::{Buffer, Placement};
use super::driver::{Driver, Fault};
use doorbell_ioctl::abi::kfd;
use doorbell_ioctl::port::{CallError, Errno, Fd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of the event page: 4096 slots of 8.
const EVENT_PAGE_BYTES: u64 = 8 * kfd::SIGNAL_EVENT_LIMIT as u64;

/// A signal event of one device: an interrupt with this id wakes its waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalEvent {
    pub id: u32,
    /// Address of its slot; storing any value except all-ones signals the event.
    pub mailbox: u64,
    pub gpu_id: u32,
    /// The last fault before the device was opened; only later ones concern it.
    pub since: FaultMark,
}

/// A position in the sequence of the connection's faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FaultMark(u64);

/// What ended a wait for events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The signal event, or a fault of another card.
    Signal,
    Timeout,
    /// A fault of the event's card.
    Fault(Fault),
}

/// Events of the process.
#[derive(Debug, Default)]
pub(super) struct Events(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    page: Option<Buffer>,
    /// The page was passed to the kernel (`is_offered`), and the kernel accepted it.
    is_offered: bool,
    is_accepted: bool,
    memory: u32,
    hw_exception: u32,
    /// The last fault of each card.
    faults: Vec<(u32, FaultMark, Fault)>,
    last: FaultMark,
}

impl Inner {
    /// Records the faults that a wait returned.
    fn note(&mut self, memory: &kfd::EventData, hw_exception: &kfd::EventData) {
        let (memory, hw) = (memory.memory_exception(), hw_exception.hw_exception());
        let found = [(memory.gpu_id, Fault::Memory(memory)), (hw.gpu_id, Fault::Hardware(hw))];
        for (gpu_id, fault) in found.into_iter().filter(|(gpu_id, _)| *gpu_id != 0) {
            self.last.0 += 1;
            self.faults.retain(|(id, ..)| *id != gpu_id);
            self.faults.push((gpu_id, self.last, fault));
        }
    }

    fn fault_of(&self, event: &SignalEvent) -> Option<Fault> {
        self.faults.iter().find(|(id, mark, _)| *id == event.gpu_id && *mark > event.since).map(|(_, _, fault)| *fault)
    }
}

impl Events {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Destroys the connection's events and page when it closes.
    pub(crate) fn close(&mut self, driver: &Driver) {
        let inner = std::mem::take(self.0.get_mut().unwrap_or_else(PoisonError::into_inner));
        for id in [inner.memory, inner.hw_exception].into_iter().filter(|id| *id != 0) {
            if let Err(e) = destroy(driver, id) {
                log::warn!("closing KFD: {e}");
            }
        }
        if let Some(page) = inner.page {
            // The kernel keeps the event page until the process ends, and returns EPERM here.
            match page.free(driver) {
                Ok(()) | Err(CallError { errno: Errno::EPERM, .. }) => {}
                Err(e) => log::warn!("closing KFD: {e}"),
            }
        }
    }
}

impl Driver {
    /// Collects the faults so far. A device opened now does not report them.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn faults_so_far(&self) -> Result<FaultMark, CallError> {
        let mut inner = self.events.lock();
        if inner.memory != 0 && inner.hw_exception != 0 {
            let mut data = [inner.memory, inner.hw_exception].map(wait_entry);
            wait(self, &mut data, 0)?;
            inner.note(&data[0], &data[1]);
        }
        Ok(inner.last)
    }

    /// Creates a signal event for a device opened at `since`. The first one also creates the event page and the fault
    /// events.
    ///
    /// # Errors
    /// The driver's.
    pub fn create_event(&self, gpu_id: u32, render: Fd, since: FaultMark) -> Result<SignalEvent, CallError> {
        let mut inner = self.events.lock();
        let (base, handle) = match &inner.page {
            Some(page) => {
                page.map_to(self, gpu_id)?;
                (page.va(), page.handle())
            }
            None => {
                let page = Buffer::new(self, gpu_id, render, EVENT_PAGE_BYTES, Placement::Host)?;
                let found = (page.va(), page.handle());
                inner.page = Some(page);
                found
            }
        };
        let offered = std::mem::replace(&mut inner.is_offered, true);
        let made = match new_event(self, kfd::EVENT_SIGNAL, if inner.is_accepted { 0 } else { handle }) {
            // An earlier attempt may have failed only after the kernel accepted the page.
            Err(CallError { errno: Errno::EINVAL, .. }) if offered && !inner.is_accepted => {
                new_event(self, kfd::EVENT_SIGNAL, 0)
            }
            made => made,
        };
        let signal = made?;
        inner.is_accepted = true;
        if let Err(error) = fault_events(self, &mut inner) {
            let _first_error_counts = destroy(self, signal.event_id);
            return Err(error);
        }
        let mailbox = base + 8 * u64::from(signal.event_slot_index);
        Ok(SignalEvent { id: signal.event_id, mailbox, gpu_id, since })
    }

    /// Destroys a device's event.
    ///
    /// # Errors
    /// The driver's.
    pub fn destroy_event(&self, event: SignalEvent) -> Result<(), CallError> {
        destroy(self, event.id)
    }

    /// The fault of the event's card, if there was one: a look without a sleep.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn fault_now(&self, event: SignalEvent) -> Result<Option<Fault>, CallError> {
        self.faults_so_far()?;
        Ok(self.events.lock().fault_of(&event))
    }

    /// Sleeps until the event, a fault of its card, or the timeout; a fault of another card ends the sleep early.
    ///
    /// # Errors
    /// The driver's.
    pub fn wait(&self, event: SignalEvent, timeout_ms: u32) -> Result<Woken, CallError> {
        let (fault, fault_events) = {
            let inner = self.events.lock();
            (inner.fault_of(&event), [inner.memory, inner.hw_exception])
        };
        if let Some(fault) = fault {
            return Ok(Woken::Fault(fault));
        }
        let [memory, hw_exception] = fault_events;
        let mut data = [event.id, memory, hw_exception].map(wait_entry);
        let result = wait(self, &mut data, timeout_ms)?;
        let mut inner = self.events.lock();
        inner.note(&data[1], &data[2]);
        Ok(match inner.fault_of(&event) {
            Some(fault) => Woken::Fault(fault),
            None if result == kfd::WAIT_RESULT_TIMEOUT => Woken::Timeout,
            None => Woken::Signal,
        })
    }
}

fn wait_entry(event_id: u32) -> kfd::EventData {
    kfd::EventData { event_id, ..Default::default() }
}

fn wait(driver: &Driver, data: &mut [kfd::EventData], timeout_ms: u32) -> Result<u32, CallError> {
    let mut args = kfd::WaitEvents {
        events_ptr: data.as_mut_ptr().expose_provenance() as u64,
        num_events: u32::try_from(data.len()).unwrap_or(0),
        timeout: timeout_ms,
        ..Default::default()
    };
    driver.call(&kfd::WAIT_EVENTS, &mut args)?;
    Ok(args.wait_result)
}

/// Creates an event with auto-reset: each signal wakes one wait.
fn new_event(driver: &Driver, event_type: u32, page_handle: u64) -> Result<kfd::CreateEvent, CallError> {
    let mut args = kfd::CreateEvent { event_page_offset: page_handle, event_type, auto_reset: 1, ..Default::default() };
    driver.call(&kfd::CREATE_EVENT, &mut args)?;
    Ok(args)
}

fn fault_events(driver: &Driver, inner: &mut Inner) -> Result<(), CallError> {
    if inner.memory == 0 {
        inner.memory = new_event(driver, kfd::EVENT_MEMORY, 0)?.event_id;
    }
    if inner.hw_exception == 0 {
        inner.hw_exception = new_event(driver, kfd::EVENT_HW_EXCEPTION, 0)?.event_id;
    }
    Ok(())
}

fn destroy(driver: &Driver, event_id: u32) -> Result<(), CallError> {
    driver.call(&kfd::DESTROY_EVENT, &mut kfd::DestroyEvent { event_id, pad: 0 })
}

//! Events: a host that waits for a channel sleeps in `poll` until the channel's interrupt, or an error, wakes it.
//!
//! Layer: above `driver` and `gpu`, below `core` and `queue`; `core` creates them when a wait is about to
//! sleep for the first time; `queue` requests the interrupt, `watch` sleeps.
//! Source: docs/nv.md 6; `osapi.c`, `event_notification.c`, `intr.c` and `nv.c` of the open kernel modules 595.45.
//! A file of the driver receives events once ALLOC_OS_EVENT has registered it; event objects under the subdevice
//! connect notifiers to it. From Turing on, the host's notifier fires for the NON_STALL_INTERRUPT of every channel,
//! including those of other processes, so an event is only a hint to check. The events carry no data, so the driver
//! queues nothing for a process that does not poll. The first `poll` consumes a pending event; therefore only one of
//! the waiting threads polls, on behalf of all.
//! Left out: events of a single engine or, with MIG, of a single instance.

use super::driver::{CTL_PATH, Handle, RmError};
use super::gpu::Gpu;
use crate::DeviceError;
use doorbell_hcq::memory::View;
use doorbell_hcq::packet::GpuVa;
use doorbell_hcq::packet::nv::{Entry, PushBuffer, host};
use doorbell_ioctl::abi::nvrm;
use doorbell_ioctl::port::{Errno, Fd, PollEvents, PollFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes reserved at the end of the ring of push buffers, for the methods that wake a waiting host.
pub(crate) const WAKE_BYTES: u64 = 64;
/// After this many consecutive waits that ended without their event, interrupts are assumed not to arrive.
const MAX_MISSED: u32 = 3;

/// Events of a GPU.
#[derive(Debug)]
pub struct Events {
    gpu: Arc<Gpu>,
    file: Fd,
    is_named: bool,
    objects: Vec<Handle>,
    poller: Mutex<Poller>,
    changed: Condvar,
    /// Waits that ended without their event since the last event was received.
    missed: AtomicU32,
    is_broken: AtomicBool,
}

/// State shared by the waiting threads, of which one polls.
#[derive(Debug, Default)]
struct Poller {
    /// A thread is polling.
    is_polling: bool,
    /// Number of polls that received an event.
    generation: u64,
}

impl Events {
    /// Registers a file for the GPU's interrupts and, if the driver allows it, for its errors.
    ///
    /// # Errors
    /// The driver's; everything is released then.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Self, RmError> {
        let driver = &gpu.driver;
        let mut events = Self {
            gpu: Arc::clone(gpu),
            file: driver.open_file(CTL_PATH)?,
            is_named: false,
            objects: Vec::new(),
            poller: Mutex::default(),
            changed: Condvar::new(),
            missed: AtomicU32::new(0),
            is_broken: AtomicBool::new(false),
        };
        let (h_client, h_device, fd) = (driver.client(), gpu.device, events.file.0);
        let mut args = nvrm::AllocOsEvent { h_client, h_device, fd, ..Default::default() };
        driver.call(events.file, &nvrm::ALLOC_OS_EVENT, &mut args, "", |a| a.status)?;
        events.is_named = true;
        events.listen(nvrm::NV2080_NOTIFIERS_FIFO_EVENT_MTHD | nvrm::NV01_EVENT_NONSTALL_INTR)?;
        // Without error events, errors are found in the channels' notifiers, a little later.
        if let Err(e) = events.listen_to_errors() {
            log::debug!("{}: errors do not wake waiting threads: {e}", gpu.card.bdf);
        }
        Ok(events)
    }

    fn listen(&mut self, notifier: u32) -> Result<(), RmError> {
        let (driver, subdevice) = (&self.gpu.driver, self.gpu.subdevice);
        let mut params = nvrm::EventAlloc {
            h_parent_client: driver.client(),
            h_src_resource: subdevice,
            h_class: nvrm::NV01_EVENT_OS_EVENT,
            notify_index: notifier | nvrm::NV01_EVENT_WITHOUT_EVENT_DATA,
            data: u64::from(self.file.0.cast_unsigned()),
        };
        self.objects.push(driver.alloc(subdevice, nvrm::NV01_EVENT_OS_EVENT, Some(&mut params))?);
        Ok(())
    }

    fn listen_to_errors(&mut self) -> Result<(), RmError> {
        self.listen(nvrm::NV2080_NOTIFIERS_RC_ERROR)?;
        let (event, action) = (nvrm::NV2080_NOTIFIERS_RC_ERROR, nvrm::NOTIFICATION_REPEAT);
        let mut params = nvrm::SetNotification { event, action, ..Default::default() };
        self.gpu.driver.control(self.gpu.subdevice, &nvrm::EVENT_SET_NOTIFICATION, &mut params)
    }

    fn poller(&self) -> MutexGuard<'_, Poller> {
        self.poller.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The generation: read it before checking whether there is something to wait for, so that `sleep` misses no event.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.poller().generation
    }

    /// Sleeps until an event arrives after `generation` was read. Returns `false` on a timeout.
    pub fn sleep(&self, generation: u64, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut poller = self.poller();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if poller.generation != generation || left.is_zero() {
                return poller.generation != generation;
            }
            if !poller.is_polling {
                break;
            }
            // TIMEOUT: the caller's own.
            poller = self.changed.wait_timeout(poller, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        poller.is_polling = true;
        drop(poller);
        let is_received = self.poll(deadline.saturating_duration_since(Instant::now()));
        let mut poller = self.poller();
        poller.is_polling = false;
        poller.generation += u64::from(is_received);
        drop(poller);
        // A thread that is still waiting becomes the next to poll.
        self.changed.notify_all();
        is_received
    }

    fn poll(&self, timeout: Duration) -> bool {
        let mut files = [PollFd { fd: self.file, wanted: PollEvents::IN, seen: PollEvents::empty() }];
        let timeout_ms = i32::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
        match self.gpu.driver.port().poll(&mut files, timeout_ms) {
            Ok(_) if files[0].seen.contains(PollEvents::IN) => {
                self.missed.store(0, Ordering::Relaxed);
                true
            }
            Ok(_) if files[0].seen.is_empty() => false,
            Err(Errno::EINTR) => false,
            outcome => {
                log::warn!(
                    "{}: waiting for events: {outcome:?}, {:?}; waits poll instead",
                    self.gpu.card.bdf,
                    files[0].seen
                );
                self.is_broken.store(true, Ordering::Relaxed);
                false
            }
        }
    }

    /// Records a wait that ended without its interrupt being received.
    pub(crate) fn note_missed(&self) {
        if self.missed.fetch_add(1, Ordering::Relaxed) + 1 == MAX_MISSED {
            log::warn!("{}: interrupts of channels do not arrive; waits poll instead", self.gpu.card.bdf);
            self.is_broken.store(true, Ordering::Relaxed);
        }
    }

    /// Whether events do not arrive, so that sleeping on them is useless.
    #[must_use]
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let driver = &self.gpu.driver;
        let warn = |e| log::warn!("events of {} were not freed: {e}", self.gpu.card.bdf);
        for object in self.objects.iter().rev() {
            driver.free(self.gpu.subdevice, *object).unwrap_or_else(warn);
        }
        if self.is_named {
            let (h_client, h_device, fd) = (driver.client(), self.gpu.device, self.file.0);
            let mut args = nvrm::FreeOsEvent { h_client, h_device, fd, ..Default::default() };
            driver.call(self.file, &nvrm::FREE_OS_EVENT, &mut args, "", |a| a.status).unwrap_or_else(warn);
        }
        driver.close(self.file);
    }
}

/// Writes the methods that wake a waiting host to offset `at` of the push buffers: an interrupt after all earlier work.
/// Returns the ring entry that runs them.
///
/// # Errors
/// `at` is outside the push buffers.
pub(crate) fn wake_entry(push_view: &View, at: u64) -> Result<[u32; 2], DeviceError> {
    let mut list = PushBuffer::new();
    host::Action::WaitIdle { all: false }.emit(&mut list)?;
    host::Action::Interrupt.emit(&mut list)?;
    let words = list.words();
    push_view.write(at, bytemuck::cast_slice(words))?;
    let count = u32::try_from(words.len()).unwrap_or(u32::MAX);
    Ok(Entry::fetch(GpuVa(push_view.base().0 + at), count).emit()?)
}

//! Events: a host that waits for a channel sleeps in poll until the channel's interrupt, or an error, wakes it.
//!
//! Place in the arrows: above `driver` and `gpu`, below `core` and `queue`; `core` makes them when a wait is about to sleep for the first time, `queue` asks for the interrupt and sleeps.
//! Source: nv.md 6; `osapi.c`, `event_notification.c`, `intr.c` and `nv.c` of the open kernel modules 595.45.
//! A file of the driver hears of events once ALLOC_OS_EVENT has named it; event objects under the subdevice tie notifiers to it. From Turing on the host's
//! notifier is told of every channel's NON_STALL_INTERRUPT, those of other processes too: an event is a reason to look, no more. The events have no data, so
//! that the driver gathers nothing for a process that does not look; what there is, the first poll takes. So one of those who wait polls for all of them.
//! Left out: events of one engine alone, with MIG events of an instance.

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

/// Bytes at the end of the ring of push buffers, for the methods that wake a waiting host.
pub const WAKE_BYTES: u64 = 64;
/// So many waits in a row that ended unheard: the interrupts do not arrive.
const UNHEARD: u32 = 3;

/// How a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slept {
    /// By an event.
    Woken,
    /// By its time.
    InVain,
}

/// Events of a GPU.
#[derive(Debug)]
pub struct Events {
    gpu: Arc<Gpu>,
    file: Fd,
    is_named: bool,
    objects: Vec<Handle>,
    turn: Mutex<Turn>,
    told: Condvar,
    /// Waits that ended unheard since something was heard.
    unheard: AtomicU32,
    is_deaf: AtomicBool,
}

/// Who polls.
#[derive(Debug, Default)]
struct Turn {
    /// Somebody does.
    is_taken: bool,
    /// How often something was heard.
    round: u64,
}

impl Events {
    /// Has a file hear of the GPU's interrupts and, if the driver lets it, of its errors.
    ///
    /// # Errors
    /// The driver's; nothing is left behind then.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Self, RmError> {
        let driver = &gpu.driver;
        let mut events = Self {
            gpu: Arc::clone(gpu),
            file: driver.open_file(CTL_PATH)?,
            is_named: false,
            objects: Vec::new(),
            turn: Mutex::default(),
            told: Condvar::new(),
            unheard: AtomicU32::new(0),
            is_deaf: AtomicBool::new(false),
        };
        let (h_client, h_device, fd) = (driver.client(), gpu.device, events.file.0);
        let mut args = nvrm::AllocOsEvent { h_client, h_device, fd, ..Default::default() };
        driver.call(events.file, &nvrm::ALLOC_OS_EVENT, &mut args, "", |a| a.status)?;
        events.is_named = true;
        events.listen(nvrm::NV2080_NOTIFIERS_FIFO_EVENT_MTHD | nvrm::NV01_EVENT_NONSTALL_INTR)?;
        // Without it the channels' notifiers tell of errors, a little later.
        if let Err(e) = events.listen_to_errors() {
            log::debug!("{}: errors wake nobody: {e}", gpu.card.bdf);
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

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was heard so far: to be asked before one looks whether there is something to sleep for.
    #[must_use]
    pub fn round(&self) -> u64 {
        self.turn().round
    }

    /// Sleeps until something is heard that was not yet at `round`; `false`: the time is over.
    pub fn sleep(&self, round: u64, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut turn = self.turn();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if turn.round != round || left.is_zero() {
                return turn.round != round;
            }
            if !turn.is_taken {
                break;
            }
            // TIMEOUT: the caller's own.
            turn = self.told.wait_timeout(turn, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        turn.is_taken = true;
        drop(turn);
        let is_heard = self.poll(deadline.saturating_duration_since(Instant::now()));
        let mut turn = self.turn();
        turn.is_taken = false;
        turn.round += u64::from(is_heard);
        drop(turn);
        // Who sleeps on takes the turn.
        self.told.notify_all();
        is_heard
    }

    fn poll(&self, timeout: Duration) -> bool {
        let mut files = [PollFd { fd: self.file, wanted: PollEvents::IN, seen: PollEvents::empty() }];
        let timeout_ms = i32::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
        match self.gpu.driver.port().poll(&mut files, timeout_ms) {
            Ok(_) if files[0].seen.contains(PollEvents::IN) => {
                self.unheard.store(0, Ordering::Relaxed);
                true
            }
            Ok(_) if files[0].seen.is_empty() => false,
            Err(Errno::EINTR) => false,
            outcome => {
                log::warn!("{}: waiting for events: {outcome:?}, {:?}; waits nap", self.gpu.card.bdf, files[0].seen);
                self.is_deaf.store(true, Ordering::Relaxed);
                false
            }
        }
    }

    /// A wait ended whose interrupt nobody heard.
    pub fn note_unheard(&self) {
        if self.unheard.fetch_add(1, Ordering::Relaxed) + 1 == UNHEARD {
            log::warn!("{}: interrupts of channels do not arrive; waits nap", self.gpu.card.bdf);
            self.is_deaf.store(true, Ordering::Relaxed);
        }
    }

    /// Whether sleeping is of no use: nothing is heard.
    #[must_use]
    pub fn is_deaf(&self) -> bool {
        self.is_deaf.load(Ordering::Relaxed)
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

/// Writes the methods that wake a waiting host to `at` of the push buffers: an interrupt, once all before it is done. Gives the entry that has them read.
///
/// # Errors
/// A place outside of them.
pub fn wake_entry(push_view: &View, at: u64) -> Result<[u32; 2], DeviceError> {
    let mut list = PushBuffer::new();
    host::Action::WaitIdle { all: false }.emit(&mut list)?;
    host::Action::Interrupt.emit(&mut list)?;
    let words = list.words();
    push_view.write(at, bytemuck::cast_slice(words))?;
    let count = u32::try_from(words.len()).unwrap_or(u32::MAX);
    Ok(Entry::fetch(GpuVa(push_view.base().0 + at), count).emit()?)
}

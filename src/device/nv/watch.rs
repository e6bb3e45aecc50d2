//! How the host waits for a channel: it sleeps until the channel's interrupt, and checks whether the driver has stopped
//! the channel.
//!
//! Layer: beside `queue`, above `events` and `faults`. Source: docs/nv.md 6.

use super::channel::{Channel, Notification};
use super::core::Core;
use super::driver::Handle;
use super::faults;
use super::queue::{Methods, NvQueue};
use crate::DeviceError;
use crate::gpu::encode::Watch;
use doorbell_hcq::memory::View;
use doorbell_hcq::signal::Backoff;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// How long a host sleeps before it checks without an event: initially, and at most.
// TIMEOUT: the delay that a lost interrupt causes at first; later sleeps are longer.
const FIRST_SLEEP: Duration = Duration::from_millis(1);
// TIMEOUT: 50 checks per second cost almost nothing; closing a device is noticed with this delay.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);

/// The debugger object that is queried for exceptions, and the channel to query: the one that runs kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debugger {
    pub handle: Handle,
    pub channel: Handle,
}

/// What a waiting host checks, also while another thread submits.
#[derive(Debug)]
struct Watched {
    channel: Handle,
    notifier: View,
}

/// Watches one channel for errors.
#[derive(Debug)]
pub(crate) struct ChannelWatch {
    /// None once the queue is closed.
    watched: Mutex<Option<Watched>>,
    debugger: OnceLock<Debugger>,
    /// The device's other queue: this one may be waiting for that one's work.
    peer: OnceLock<Weak<NvQueue>>,
}

/// State of a waiting host between sleeps.
#[derive(Debug)]
pub(crate) struct Nap {
    longest: Duration,
    backoff: Backoff,
}

impl Default for Nap {
    fn default() -> Self {
        Self { longest: FIRST_SLEEP, backoff: Backoff::default() }
    }
}

/// How a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slept {
    /// Woken by an event.
    Woken,
    /// The time was over.
    TimedOut,
}

impl ChannelWatch {
    #[must_use]
    pub(crate) fn new(channel: &Channel) -> Self {
        let watched = Watched { channel: channel.handle(), notifier: channel.notifier().clone() };
        Self { watched: Mutex::new(Some(watched)), debugger: OnceLock::new(), peer: OnceLock::new() }
    }

    /// Sets the debugger object that is queried for exceptions.
    pub(crate) fn set_debugger(&self, debugger: Debugger) {
        let _first_one_counts = self.debugger.set(debugger);
    }

    /// Sets the queue whose channel is also checked while the host waits for this one.
    pub(crate) fn set_peer(&self, peer: &Arc<NvQueue>) {
        let _first_one_counts = self.peer.set(Arc::downgrade(peer));
    }

    /// Checks whether the driver has stopped the channel; if so, sets the device's fault.
    fn look_at_channel(&self, core: &Core) {
        if core.health.fault().is_some() {
            return;
        }
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Watched { channel, notifier }) = &*watched else { return };
        if let Some(what) = Notification::read(notifier) {
            core.health.set_fault(faults::describe(core, *channel, self.debugger.get().copied(), &what));
        }
    }
}

/// Requests an interrupt from the channel. Returns how long the host may sleep; this is short if more work was queued
/// after `value`, because the interrupt then comes too late. `None` if a submission holds the lock, possibly the
/// waiting thread's own.
fn ask_for_interrupt(queue: &NvQueue, value: u64) -> Option<Duration> {
    let mut producer = queue.try_lock()?;
    let is_last = producer.encoder()?.ask_for_interrupt(value, queue.timeline().submitted());
    Some(if is_last { LONGEST_SLEEP } else { FIRST_SLEEP })
}

/// Sleeps until an event of the card, for `timeout` at most; `None` if no event would wake the host.
fn sleep(queue: &NvQueue, value: u64, timeout: Duration) -> Option<Slept> {
    let events = queue.core().events()?;
    // Read before the check: an event between the two then ends the sleep at once.
    let generation = events.generation();
    let longest = ask_for_interrupt(queue, value)?;
    if queue.timeline().completed() >= value || events.sleep(generation, timeout.min(longest)) {
        return Some(Slept::Woken);
    }
    if longest == LONGEST_SLEEP && queue.timeline().completed() >= value {
        events.note_missed();
    }
    Some(Slept::TimedOut)
}

impl Watch<Methods> for ChannelWatch {
    type Nap = Nap;

    fn look(&self, queue: &NvQueue) {
        self.look_at_channel(queue.core());
        if let Some(peer) = self.peer.get().and_then(Weak::upgrade) {
            peer.watch().look_at_channel(queue.core());
        }
    }

    fn sleep(&self, queue: &NvQueue, value: u64, nap: &mut Nap, left: Duration) -> bool {
        match sleep(queue, value, nap.longest.min(left)) {
            Some(Slept::Woken) => {
                nap.longest = FIRST_SLEEP;
                return true;
            }
            Some(Slept::TimedOut) => nap.longest = (nap.longest * 2).min(LONGEST_SLEEP),
            None => nap.backoff.pause(),
        }
        false
    }

    fn lacks_wakes(&self, queue: &NvQueue) -> Option<String> {
        queue.core().events().is_none().then(|| "no interrupt of the driver wakes this process".into())
    }

    fn end(&self, _core: &Core, methods: Methods) -> Result<(), DeviceError> {
        // The notifier's last view is dropped first, because the notifier is unmapped with the channel.
        *self.watched.lock().unwrap_or_else(PoisonError::into_inner) = None;
        drop(methods);
        Ok(())
    }
}

//! A host that waits for a channel: it sleeps until the channel's interrupt, and looks whether the driver has ended the
//! channel.
//!
//! Place in the arrows: beside `queue`, above `events` and `faults`. Source: nv.md 6.

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

/// How long a host sleeps before it looks by itself: at first, and at most.
// TIMEOUT: what an interrupt that is lost costs at most, beside the wait so far.
const FIRST_SLEEP: Duration = Duration::from_millis(1);
// TIMEOUT: 50 looks a second are next to nothing; a closed device is noticed that late.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);

/// Who is asked about exceptions, and of which channel: the one whose engine runs kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debugger {
    pub handle: Handle,
    pub channel: Handle,
}

/// What a waiting host looks at, also while another thread submits.
#[derive(Debug)]
struct Watched {
    channel: Handle,
    notifier: View,
}

/// The watch over one channel.
#[derive(Debug)]
pub struct ChannelWatch {
    /// None once the queue is closed.
    watched: Mutex<Option<Watched>>,
    debugger: OnceLock<Debugger>,
    /// The other queue of the device: what this one waits for may have been that one's work.
    peer: OnceLock<Weak<NvQueue>>,
}

/// A host between sleeps.
#[derive(Debug)]
pub struct Nap {
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
    /// By an event.
    Woken,
    /// By its time.
    InVain,
}

impl ChannelWatch {
    #[must_use]
    pub fn new(channel: &Channel) -> Self {
        let watched = Watched { channel: channel.handle(), notifier: channel.notifier().clone() };
        Self { watched: Mutex::new(Some(watched)), debugger: OnceLock::new(), peer: OnceLock::new() }
    }

    /// Who is asked about exceptions of the engine.
    pub fn set_debugger(&self, debugger: Debugger) {
        let _first_one_counts = self.debugger.set(debugger);
    }

    /// Whose channel is looked at too while the host waits for this queue.
    pub fn set_peer(&self, peer: &Arc<NvQueue>) {
        let _first_one_counts = self.peer.set(Arc::downgrade(peer));
    }

    /// Looks whether the driver has ended the channel; remembers why.
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

/// Has the channel interrupt the host. Gives how long the host may sleep: where more was queued after `value`, it looks
/// by itself. Nothing: somebody is submitting, perhaps the one who waits.
fn ask_for_interrupt(queue: &NvQueue, value: u64) -> Option<Duration> {
    let mut producer = queue.try_lock()?;
    let is_last = producer.encoder()?.ask_for_interrupt(value, queue.timeline().submitted());
    Some(if is_last { LONGEST_SLEEP } else { FIRST_SLEEP })
}

/// Sleeps until something happened on the card, for `timeout` at most; nothing where nobody would wake the host.
fn sleep(queue: &NvQueue, value: u64, timeout: Duration) -> Option<Slept> {
    let events = queue.core().events()?;
    // Before the look: what is heard between the two ends the sleep at once.
    let round = events.round();
    let longest = ask_for_interrupt(queue, value)?;
    if queue.timeline().completed() >= value || events.sleep(round, timeout.min(longest)) {
        return Some(Slept::Woken);
    }
    if longest == LONGEST_SLEEP && queue.timeline().completed() >= value {
        events.note_unheard();
    }
    Some(Slept::InVain)
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
            Some(Slept::InVain) => nap.longest = (nap.longest * 2).min(LONGEST_SLEEP),
            None => nap.backoff.pause(),
        }
        false
    }

    fn end(&self, _core: &Core, methods: Methods) -> Result<(), DeviceError> {
        // The notifier's last view goes first: it is unmapped with the channel.
        *self.watched.lock().unwrap_or_else(PoisonError::into_inner) = None;
        drop(methods);
        Ok(())
    }
}

//! Signals (16 bytes of host-visible memory that queues and hosts wait on), timelines (a queue's monotonic counter) and
//! reports.
//!
//! Layer: `device` signals and waits; `engine` holds [`Point`]s. Source: HCQ's signal layout: value u64, timestamp_ns
//! u64.
//! A wait is always for "at least value". A timestamp is in nanoseconds of the host's monotonic clock; if a device
//! stores its own ticks, the pool's clock converts them.

use super::memory::{MemError, View, Word64};
use doorbell_ioctl::port::see_device_stores;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Bytes of one signal.
pub(crate) const SIGNAL_BYTES: u64 = 16;
const PAGE_BYTES: u64 = 4096;

/// Nanoseconds of the host's monotonic clock: the clock of timestamps.
#[must_use]
pub fn host_ns() -> u64 {
    doorbell_ioctl::port::monotonic_ns()
}

/// Converts a device's ticks to nanoseconds of the host's monotonic clock.
pub trait Clock: Send + Sync {
    fn ns(&self, ticks: u64) -> u64;
}

/// Allocates a page mapped for both device and host; the view keeps it alive.
pub type PageSource = Box<dyn Fn() -> Result<View, MemError> + Send + Sync>;

/// A pool of signals in pages of host-visible memory; the words of a dropped signal are reused.
#[derive(Default)]
pub struct SignalPool {
    free: Mutex<Vec<SignalWords>>,
    /// `None`: memory of this process.
    source: Option<PageSource>,
    /// `None`: timestamps are stored in nanoseconds.
    clock: Option<Arc<dyn Clock>>,
}

impl fmt::Debug for SignalPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SignalPool")
    }
}

struct SignalWords {
    value: Word64,
    timestamp: Word64,
}

struct Slot {
    // None only while dropping.
    words: Option<SignalWords>,
    pool: Weak<SignalPool>,
}

/// A value and a timestamp that a queue writes and others wait for. Clones refer to the same signal.
#[derive(Clone)]
pub struct Signal {
    value: Word64,
    timestamp: Word64,
    clock: Option<Arc<dyn Clock>>,
    _slot: Arc<Slot>,
}

impl SignalPool {
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Signals in a device's pages, with timestamps in its ticks.
    #[must_use]
    pub fn of_device(source: PageSource, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { free: Mutex::default(), source: Some(source), clock: Some(clock) })
    }

    /// A signal of value 0.
    ///
    /// # Errors
    /// `Port` if there is no memory for another page.
    pub fn signal(self: &Arc<Self>) -> Result<Signal, MemError> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.is_empty() {
            let page = match &self.source {
                None => View::anonymous(PAGE_BYTES, 64)?,
                Some(source) => source()?,
            };
            for index in (0..PAGE_BYTES / SIGNAL_BYTES).rev() {
                let at = index * SIGNAL_BYTES;
                free.push(SignalWords { value: page.word64(at)?, timestamp: page.word64(at + 8)? });
            }
        }
        // PANIC: a page has just been added if the list was empty.
        #[allow(clippy::expect_used)]
        let words = free.pop().expect("a page holds 256 signals");
        words.value.atomic().store(0, Ordering::Relaxed);
        words.timestamp.atomic().store(0, Ordering::Relaxed);
        let (value, timestamp) = (words.value.clone(), words.timestamp.clone());
        let clock = self.clock.clone();
        Ok(Signal { value, timestamp, clock, _slot: Arc::new(Slot { words: Some(words), pool: Arc::downgrade(self) }) })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let (Some(words), Some(pool)) = (self.words.take(), self.pool.upgrade()) {
            pool.free.lock().unwrap_or_else(PoisonError::into_inner).push(words);
        }
    }
}

impl Signal {
    /// Address of the 16 bytes in this process.
    #[must_use]
    pub fn va(&self) -> u64 {
        self.value.at().0
    }

    #[must_use]
    #[inline]
    pub fn value(&self) -> u64 {
        // ORDER: acquire, also of a device's stores; makes the signaller's earlier stores visible.
        let value = self.value.atomic().load(Ordering::Acquire);
        see_device_stores();
        value
    }

    /// Signals from the host.
    #[inline]
    pub fn set(&self, value: u64) {
        // ORDER: release; makes the host's earlier stores visible.
        self.value.atomic().store(value, Ordering::Release);
    }

    /// The time when the last timestamp packet for this signal ran.
    #[must_use]
    pub fn timestamp_ns(&self) -> u64 {
        let stored = self.timestamp.atomic().load(Ordering::Acquire);
        match &self.clock {
            Some(clock) if stored != 0 => clock.ns(stored),
            _ => stored,
        }
    }

    /// Address of the word that timestamps are stored to.
    #[must_use]
    pub fn timestamp_va(&self) -> u64 {
        self.timestamp.at().0
    }

    /// Stores a time from the host.
    pub fn set_timestamp_ns(&self, ns: u64) {
        self.timestamp.atomic().store(ns, Ordering::Release);
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signal({:#x} = {})", self.va(), self.value())
    }
}

/// The state of a queue when a wait failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Device and queue, as `CPU:0/compute`.
    pub queue: String,
    pub timeout_ms: u64,
    /// Dwords consumed and written.
    pub rptr: u64,
    pub wptr: u64,
    /// Signals as name, current value, awaited value; the timeline comes first.
    pub signals: Vec<(String, u64, u64)>,
    /// The packets from the read pointer on, decoded, oldest first.
    pub tail: Vec<String>,
    pub fault: Option<String>,
    /// Further information from the device: last kernels, last driver calls.
    pub notes: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.timeout_ms {
            0 if self.fault.is_some() => write!(f, "{} stopped: rptr {} wptr {}", self.queue, self.rptr, self.wptr)?,
            ms => write!(f, "{} did not finish in {ms} ms: rptr {} wptr {}", self.queue, self.rptr, self.wptr)?,
        }
        for (name, now, wanted) in &self.signals {
            write!(f, ", {name} at {now} of {wanted}")?;
        }
        if let Some(fault) = &self.fault {
            write!(f, ", fault {fault}")?;
        }
        if !self.tail.is_empty() {
            write!(f, ", ring: {}", self.tail.join("; "))?;
        }
        if !self.notes.is_empty() {
            write!(f, ", {}", self.notes.join(", "))?;
        }
        Ok(())
    }
}

/// Why a wait for a point failed.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    #[error("{0}")]
    Timeout(Box<Report>),
    /// The device was closed, or its worker died, before the work was done.
    #[error("{queue} is closed at {completed} before {wanted}")]
    Lost { queue: String, completed: u64, wanted: u64 },
    /// The device reported a fault, and does no more work.
    #[error("{0}")]
    Fault(Box<Report>),
}

/// The text of `Display`: what `?` out of `main` prints.
impl std::fmt::Debug for WaitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// How a host waits for a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitBy {
    /// As the device's options say: it spins for a while, runs work itself where it can, and then sleeps.
    #[default]
    Options,
    /// It reads the signal until the value is there: the fastest, and a core is busy for as long.
    Spin,
    /// It sleeps at once, until the driver's interrupt wakes it; on a CPU, until the thread that signals does.
    Sleep,
}

/// The queue that advances a timeline. A waiting host calls it, so that the host can run work or sleep as suits the
/// device.
pub trait Progress: Send + Sync {
    /// Returns when `timeline` has reached `value`, at the deadline, or when it never will, because the queue has
    /// ended.
    fn advance(&self, timeline: &Timeline, value: u64, deadline: Instant, by: WaitBy);
    /// Why a host cannot wait in that way here, if it cannot; it then waits as it can.
    fn lacks(&self, _by: WaitBy) -> Option<String> {
        None
    }
    /// The queue's state for a report; the timeline's own fields are filled in by the caller.
    fn report(&self) -> Report;
    /// False once no more work will ever be done.
    fn is_alive(&self) -> bool;
    /// The report of the fault that ended the queue, if there was one.
    fn fault_report(&self) -> Option<Report> {
        None
    }
}

/// A queue's monotonic counter in host-visible memory: submission n signals value n.
pub struct Timeline {
    queue: String,
    signal: Signal,
    submitted: AtomicU64,
    progress: OnceLock<Weak<dyn Progress>>,
}

impl fmt::Debug for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timeline({} {}/{})", self.queue, self.completed(), self.submitted())
    }
}

impl Timeline {
    /// A timeline at zero for the queue of that name.
    #[must_use]
    pub fn new(queue: String, signal: Signal) -> Arc<Self> {
        Arc::new(Self { queue, signal, submitted: AtomicU64::new(0), progress: OnceLock::new() })
    }

    /// Sets the queue that advances this timeline; only the first call has an effect.
    pub fn set_progress(&self, progress: Weak<dyn Progress>) {
        let _first_wins = self.progress.set(progress);
    }

    #[must_use]
    pub fn queue(&self) -> &str {
        &self.queue
    }

    #[must_use]
    pub fn signal(&self) -> &Signal {
        &self.signal
    }

    /// The value of the last submission.
    #[must_use]
    #[inline]
    pub fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::Acquire)
    }

    /// The last value that was signalled.
    #[must_use]
    #[inline]
    pub fn completed(&self) -> u64 {
        self.signal.value()
    }

    /// The value of the next submission. The caller holds the queue's lock and will signal it.
    #[inline]
    pub fn next(&self) -> u64 {
        let value = self.submitted.load(Ordering::Relaxed) + 1;
        self.submitted.store(value, Ordering::Release);
        value
    }

    /// The point at `value`.
    #[must_use]
    #[inline]
    pub fn point(self: &Arc<Self>, value: u64) -> Point {
        Point { timeline: Arc::clone(self), value }
    }

    /// Waits until the timeline reaches `value`.
    ///
    /// # Errors
    /// `Timeout` with a report after `timeout`; `Lost` if the queue ended first.
    pub fn wait(&self, value: u64, timeout: Duration) -> Result<(), WaitError> {
        self.wait_by(value, timeout, WaitBy::Options)
    }

    /// Why a host cannot wait for this queue in that way, if it cannot.
    #[must_use]
    pub fn lacks(&self, by: WaitBy) -> Option<String> {
        match self.progress.get().map(Weak::upgrade) {
            Some(progress) => progress.and_then(|p| p.lacks(by)),
            None if by == WaitBy::Sleep => Some("nothing wakes a host that waits for this queue".into()),
            None => None,
        }
    }

    /// As `wait`, in a way of one's own; where the queue lacks it ([`Timeline::lacks`]), as it can.
    ///
    /// # Errors
    /// As `wait`.
    pub fn wait_by(&self, value: u64, timeout: Duration, by: WaitBy) -> Result<(), WaitError> {
        if self.completed() >= value {
            return Ok(());
        }
        let deadline = Instant::now() + timeout;
        let progress = match self.progress.get() {
            Some(weak) => weak.upgrade(),
            None => {
                self.watch(value, deadline);
                None
            }
        };
        if let Some(progress) = &progress {
            progress.advance(self, value, deadline, by);
        }
        let completed = self.completed();
        if completed >= value {
            return Ok(());
        }
        let is_lost = self.progress.get().is_some() && progress.as_ref().is_none_or(|p| !p.is_alive());
        if is_lost {
            if let Some(mut report) = progress.as_ref().and_then(|p| p.fault_report()) {
                report.queue.clone_from(&self.queue);
                report.signals.insert(0, ("timeline".into(), completed, value));
                return Err(WaitError::Fault(Box::new(report)));
            }
            return Err(WaitError::Lost { queue: self.queue.clone(), completed, wanted: value });
        }
        Err(self.timed_out(value, timeout, progress.map(|p| p.report()).unwrap_or_default()))
    }

    /// The error of a wait for `value` that timed out after `timeout`; `report` is the queue's state.
    #[must_use]
    pub fn timed_out(&self, value: u64, timeout: Duration, mut report: Report) -> WaitError {
        report.queue.clone_from(&self.queue);
        report.timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        report.signals.insert(0, ("timeline".into(), self.completed(), value));
        WaitError::Timeout(Box::new(report))
    }

    /// Polls with growing pauses, for a signal that no thread of this process announces.
    fn watch(&self, value: u64, deadline: Instant) {
        let mut backoff = Backoff::default();
        while self.completed() < value && Instant::now() < deadline {
            backoff.pause();
        }
    }
}

/// Pauses of a polling loop: first spins, then sleeps, from 20 us doubling up to 1 ms.
#[derive(Debug, Default)]
pub struct Backoff {
    rounds: u32,
}

impl Backoff {
    const SPINS: u32 = 2000; // TIMEOUT: some 50 us of pause instructions, the price of two wake-ups by futex.

    /// Pauses once, at least as long as the last time.
    pub fn pause(&mut self) {
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds < Self::SPINS {
            std::hint::spin_loop();
            return;
        }
        let doubled = 20u64 << (self.rounds - Self::SPINS).min(6);
        std::thread::park_timeout(Duration::from_micros(doubled.min(1000)));
    }
}

/// A point on a timeline: "submission n of this queue is done".
#[derive(Clone, Debug)]
pub struct Point {
    timeline: Arc<Timeline>,
    value: u64,
}

impl Point {
    #[must_use]
    pub fn timeline(&self) -> &Arc<Timeline> {
        &self.timeline
    }

    #[must_use]
    pub fn value(&self) -> u64 {
        self.value
    }

    /// Whether the work is done and its stores are visible.
    #[must_use]
    #[inline]
    pub fn is_done(&self) -> bool {
        self.timeline.completed() >= self.value
    }

    /// Waits for the work.
    ///
    /// # Errors
    /// As [`Timeline::wait`].
    pub fn wait(&self, timeout: Duration) -> Result<(), WaitError> {
        self.timeline.wait(self.value, timeout)
    }

    /// As `wait`, in a way of one's own.
    ///
    /// # Errors
    /// As [`Timeline::wait`].
    pub fn wait_by(&self, timeout: Duration, by: WaitBy) -> Result<(), WaitError> {
        self.timeline.wait_by(self.value, timeout, by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_signal_is_used_again_from_zero() {
        let pool = SignalPool::new();
        let a = pool.signal().unwrap();
        let va = a.va();
        a.set(9);
        let keep = a.clone();
        drop(a);
        assert_ne!(pool.signal().unwrap().va(), va, "a clone still lives");
        drop(keep);
        let b = pool.signal().unwrap();
        assert_eq!((b.va(), b.value(), b.va() % SIGNAL_BYTES), (va, 0, 0));
    }

    #[test]
    fn pool_grows_past_a_page() {
        let pool = SignalPool::new();
        let all: Vec<Signal> = (0..600).map(|_| pool.signal().unwrap()).collect();
        let mut vas: Vec<u64> = all.iter().map(Signal::va).collect();
        vas.sort_unstable();
        vas.dedup();
        assert_eq!(vas.len(), 600);
    }

    #[test]
    fn wait_past_its_deadline_reports_the_timeline() {
        let pool = SignalPool::new();
        let t = Timeline::new("X/compute".into(), pool.signal().unwrap());
        let value = t.next();
        let Err(WaitError::Timeout(report)) = t.wait(value, Duration::from_millis(5)) else { panic!("no timeout") };
        assert_eq!(report.signals, [("timeline".to_string(), 0, 1)]);
        assert_eq!(report.to_string(), "X/compute did not finish in 5 ms: rptr 0 wptr 0, timeline at 0 of 1");
        t.signal().set(1);
        assert!(t.point(value).is_done() && t.wait(value, Duration::ZERO).is_ok());
    }
}

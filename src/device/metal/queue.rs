//! A queue of an open GPU: its event as a timeline, what is in flight, and how a host waits.
//!
//! Metal has no memory words that a host could watch: an event's value is read by a message. So a completed submission
//! becomes visible to others (the timeline's word) when someone looks: a waiting host, the next submission, or the
//! queue's watcher, a thread that waits for the oldest command buffer in flight.

use super::core::{Common, lock};
use super::messages::{CommandBuffer, CommandQueue, Gpu, SharedEvent};
use super::ns::{ErrorText, Owned};
use crate::in_flight::InFlight;
use crate::{DeviceError, Stamp};
use doorbell_hcq::signal::{Progress, Report, Signal, SignalPool, Timeline, WaitBy};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Command buffers that a queue may have in flight.
pub(crate) const MAX_IN_FLIGHT: usize = 512;
/// What the framework is asked for: more than we use, since it blocks a thread instead of refusing one too many.
pub(crate) const MAX_COMMAND_BUFFERS: u64 = 1024;

/// States of a command buffer (`MTLCommandBufferStatus`).
pub(crate) const COMPLETED: u64 = 4;
pub(crate) const FAILED: u64 = 5;

// TIMEOUT: a wake-up of a blocked thread takes some 100 us, half of which spinning saves.
const SPIN: Duration = Duration::from_micros(50);
// TIMEOUT: how soon a command buffer's error is seen, which no event announces.
const SLICE_MS: u64 = 50;
/// A moment between the event's signal and the command buffer's completion.
const MOMENT: Duration = Duration::from_micros(20);

/// A queue.
pub(crate) struct Queue {
    pub common: Arc<Common>,
    pub timeline: Arc<Timeline>,
    /// Held from the first to the last step of a submission.
    pub producer: Mutex<Producer>,
    /// Command buffers in flight; never held while waiting.
    sent: Mutex<VecDeque<Sent>>,
    work: Condvar,
    watcher: Mutex<Option<JoinHandle<()>>>,
    pub event: Owned<SharedEvent>,
    pub queue: Owned<CommandQueue>,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Queue({:?})", self.timeline)
    }
}

/// The state of who submits.
#[derive(Debug, Default)]
pub(crate) struct Producer {
    pub in_flight: InFlight,
    /// The event's value that the last command buffer signals.
    pub signalled: u64,
}

/// A committed command buffer.
#[derive(Debug)]
pub(crate) struct Sent {
    pub buffer: Owned<CommandBuffer>,
    /// The event's value that it signals.
    pub event_value: u64,
    /// The submission that ends with it.
    pub submission: Option<u64>,
    /// Its kernels.
    pub label: String,
    pub stamp: Option<Stamp>,
}

impl Queue {
    /// Opens a queue, and starts its watcher.
    ///
    /// # Errors
    /// `Unavailable`, with what is missing.
    pub(crate) fn open(
        common: &Arc<Common>,
        gpu: &Owned<Gpu>,
        kind: &str,
        signals: &Arc<SignalPool>,
    ) -> Result<Arc<Self>, DeviceError> {
        let name = &common.name;
        let missing =
            |what: &str| DeviceError::Unavailable { name: name.clone(), why: format!("Metal gives no {what}") };
        let queue =
            common.runtime.pool(|| gpu.new_command_queue(MAX_COMMAND_BUFFERS)).ok_or_else(|| missing("queue"))?;
        let event = common.runtime.pool(|| gpu.new_shared_event()).ok_or_else(|| missing("shared event"))?;
        let timeline = Timeline::new(format!("{name}/{kind}"), signals.signal()?);
        let queue = Arc::new(Self {
            common: Arc::clone(common),
            timeline,
            producer: Mutex::default(),
            sent: Mutex::default(),
            work: Condvar::new(),
            watcher: Mutex::default(),
            event,
            queue,
        });
        let progress: Weak<dyn Progress> = Arc::downgrade(&(Arc::clone(&queue) as Arc<dyn Progress>));
        queue.timeline.set_progress(progress);
        let watched = Arc::clone(&queue);
        let watcher = std::thread::Builder::new().name(format!("{name} watcher")).spawn(move || watch(&watched));
        let watcher = watcher.map_err(|e| DeviceError::Unavailable { name: name.clone(), why: e.to_string() })?;
        *lock(&queue.watcher) = Some(watcher);
        Ok(queue)
    }

    /// How many more command buffers there is room for, after a look at what has completed.
    pub(crate) fn room(&self) -> usize {
        self.collect();
        MAX_IN_FLIGHT.saturating_sub(lock(&self.sent).len())
    }

    /// Commits command buffers and keeps them until they are completed.
    pub(crate) fn commit(&self, all: Vec<Sent>) {
        let mut sent = lock(&self.sent);
        for one in all {
            one.buffer.commit();
            sent.push_back(one);
        }
        drop(sent);
        self.work.notify_all();
    }

    /// Publishes what has completed, and notes a fault.
    pub(crate) fn collect(&self) {
        self.common.runtime.pool(|| {
            let mut sent = lock(&self.sent);
            let reached = self.event.signaled_value();
            while let Some(front) = sent.front() {
                let status = front.buffer.status();
                if status == FAILED {
                    self.fail(&sent);
                    return;
                }
                // The times come with completion, a moment after the signal.
                if front.event_value > reached || (front.stamp.is_some() && status < COMPLETED) {
                    return;
                }
                if let Some(stamp) = &front.stamp {
                    set_time(&stamp.start, front.buffer.gpu_start_time());
                    set_time(&stamp.stop, front.buffer.gpu_end_time());
                }
                if let Some(value) = front.submission {
                    self.timeline.signal().set(value);
                }
                sent.pop_front();
            }
        });
    }

    /// The first command buffer failed: its signal will never come, so the host signals in its place and the rest
    /// drains.
    fn fail(&self, sent: &VecDeque<Sent>) {
        if self.common.health.fault().is_some() {
            return;
        }
        let Some(front) = sent.front() else { return };
        let error = front.buffer.error().0.map(|e| ErrorText::of(&e).to_string());
        let error = error.unwrap_or_else(|| "a command buffer failed without an error".into());
        self.common.health.set_fault(format!("{} in {}", error, front.label));
        if let Some(last) = sent.back() {
            self.event.set_signaled_value(last.event_value);
        }
    }

    /// Waits for the watcher's next look: until the oldest command buffer has signalled, or some time.
    fn wait_for(&self, event_value: u64, most: Duration) {
        let ms = u64::try_from(most.as_millis()).unwrap_or(u64::MAX).clamp(1, SLICE_MS);
        let reached = self.common.runtime.pool(|| self.event.wait_until(event_value, ms));
        if reached {
            std::thread::sleep(MOMENT);
        }
    }

    /// The event's value of a submission, or of the last before it that is still in flight; `None`: it is done.
    pub(crate) fn event_value(&self, submission: u64) -> Option<u64> {
        let sent = lock(&self.sent);
        let one = sent.iter().find(|s| s.submission.is_some_and(|value| value >= submission));
        one.map(|s| s.event_value)
    }

    /// Lets command buffers run through that wait for the event, after work is refused.
    pub(crate) fn end(&self) {
        lock(&self.producer).in_flight.release(self.timeline.completed());
        if let Some(last) = lock(&self.sent).back() {
            self.event.set_signaled_value(last.event_value);
        }
        self.work.notify_all();
        if let Some(watcher) = lock(&self.watcher).take() {
            let _it_does_not_panic = watcher.join();
        }
    }
}

/// Seconds of Metal's clock, which is the host's monotonic one.
fn set_time(signal: &Signal, seconds: f64) {
    signal.set_timestamp_ns((seconds * 1e9) as u64);
}

/// Looks at what has completed, for those who only read the timeline's word; returns when the device has ended.
fn watch(queue: &Queue) {
    loop {
        let mut sent = lock(&queue.sent);
        while sent.is_empty() && !queue.common.health.is_closed() {
            sent = queue.work.wait(sent).unwrap_or_else(PoisonError::into_inner);
        }
        let front = sent.front().map(|s| s.event_value);
        drop(sent);
        let ended = queue.common.health.fault().is_some() || queue.common.health.is_closed();
        match front {
            Some(_) if ended => return,
            Some(value) => queue.wait_for(value, Duration::from_millis(SLICE_MS)),
            None => return,
        }
        queue.collect();
    }
}

impl Progress for Queue {
    fn advance(&self, timeline: &Timeline, value: u64, deadline: Instant, by: WaitBy) {
        let begun = Instant::now();
        let spin = match by {
            WaitBy::Options => SPIN,
            WaitBy::Spin => deadline.saturating_duration_since(begun),
            WaitBy::Sleep => Duration::ZERO,
        };
        loop {
            self.collect();
            let now = Instant::now();
            if timeline.completed() >= value || !self.is_alive() || now >= deadline {
                return;
            }
            if now < begun + spin {
                std::hint::spin_loop();
                continue;
            }
            match self.event_value(value) {
                Some(event_value) => self.wait_for(event_value, deadline - now),
                None => std::thread::sleep(MOMENT),
            }
        }
    }

    fn report(&self) -> Report {
        let sent = lock(&self.sent);
        let reached = self.common.runtime.pool(|| self.event.signaled_value());
        let line = |s: &Sent| format!("{}: status {}, signals {}", s.label, s.buffer.status(), s.event_value);
        let wanted = sent.back().map_or(reached, |s| s.event_value);
        Report {
            queue: self.timeline.queue().into(),
            signals: vec![("event".into(), reached, wanted)],
            tail: sent.iter().take(8).map(line).collect(),
            fault: self.common.health.fault().map(Into::into),
            notes: vec![format!("{} command buffers in flight", sent.len())],
            ..Report::default()
        }
    }

    fn is_alive(&self) -> bool {
        self.common.health.fault().is_none() && !self.common.health.is_closed()
    }

    fn fault_report(&self) -> Option<Report> {
        self.common.health.fault()?;
        Some(self.report())
    }
}

//! A queue's bookkeeping of submissions: what the next one must wait for, and what those in flight keep alive.
//!
//! Layer: under the lock of every device's queue. The calls for one submission, in order:
//! [`InFlight::begin`], the waits ([`InFlight::wait_for_all`] and its siblings), [`InFlight::emit_waits`],
//! [`InFlight::keep`], [`commit`].

use super::memory::add_wait;
use super::{Command, DeviceError, Kernel, Memory, Stamp};
use doorbell_hcq::error::SubmitError;
use doorbell_hcq::signal::{Backoff, Point, Report, Timeline};
use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Something that a submission keeps alive. The fields are never read, only dropped.
#[derive(Clone)]
#[allow(dead_code)]
pub(crate) enum Kept {
    Kernel(Kernel),
    Stamp(Stamp),
    Timeline(Arc<Timeline>),
    Memory(Memory),
    /// What one replay of a recorded list reads.
    List(Arc<dyn Any + Send + Sync>),
}

/// The submission under construction and those in flight, of one queue.
#[derive(Default)]
pub(crate) struct InFlight {
    /// What the submission under construction waits for.
    waits: Vec<Point>,
    /// What submissions keep alive, with the timeline value until which it is kept; oldest first.
    kept: VecDeque<(u64, Kept)>,
}

impl std::fmt::Debug for InFlight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "InFlight({} waits, {} kept)", self.waits.len(), self.kept.len())
    }
}

impl InFlight {
    /// Begins a submission, and releases what completed ones kept. The previous one may have been abandoned.
    #[inline]
    pub(crate) fn begin(&mut self, timeline: &Timeline) {
        self.waits.clear();
        let submitted = timeline.submitted();
        // An abandoned submission may have kept something that an older one uses, too: it is kept until everything
        // submitted is done.
        let given_up = self.kept.iter_mut().rev().take_while(|(until, _)| *until > submitted);
        given_up.for_each(|(until, _)| *until = submitted);
        self.release(timeline.completed());
    }

    /// Releases what submissions up to `completed` kept.
    #[inline]
    pub(crate) fn release(&mut self, completed: u64) {
        while self.kept.pop_front_if(|(until, _)| *until <= completed).is_some() {}
    }

    /// Releases everything, after the queue has ended.
    #[cfg(any(feature = "amd", feature = "nv"))]
    pub(crate) fn clear(&mut self) {
        self.waits.clear();
        self.kept.clear();
    }

    /// Makes the submission wait for a point.
    pub(crate) fn wait_for(&mut self, point: &Point) {
        add_wait(&mut self.waits, point);
    }

    /// Makes the submission, on `timeline`, wait for other queues' uses of a memory.
    #[inline]
    pub(crate) fn wait_for_memory(&mut self, timeline: &Arc<Timeline>, memory: &Memory) {
        memory.uses().hazards(timeline, &mut self.waits);
    }

    /// Makes the submission wait for its commands' points, and for other queues' uses of their memories. All hazards
    /// are read before any use is marked, so that two submissions to two queues never wait for each other.
    #[inline]
    pub(crate) fn wait_for_all(&mut self, timeline: &Arc<Timeline>, commands: &[Command]) {
        for command in commands {
            if let Command::Wait(point) = command {
                self.wait_for(point);
            }
            command.locations().for_each(|location| self.wait_for_memory(timeline, &location.memory));
        }
    }

    /// Calls `emit` for each collected wait, and keeps the timelines of those that it encoded.
    ///
    /// # Errors
    /// The first error of `emit`.
    #[inline]
    pub(crate) fn emit_waits<E>(
        &mut self,
        value: u64,
        mut emit: impl FnMut(&Point) -> Result<bool, E>,
    ) -> Result<(), E> {
        let Self { waits, kept } = self;
        for point in waits.drain(..) {
            if emit(&point)? {
                kept.push_back((value, Kept::Timeline(Arc::clone(point.timeline()))));
            }
        }
        Ok(())
    }

    /// Keeps something alive until the submission of `value` is done.
    #[inline]
    pub(crate) fn keep(&mut self, value: u64, what: Kept) {
        self.kept.push_back((value, what));
    }

    /// Keeps a kernel alive; consecutive launches of it are one entry, kept until the last of them is done.
    #[inline]
    pub(crate) fn keep_kernel(&mut self, value: u64, kernel: &Kernel) {
        match self.kept.back_mut() {
            Some((until, Kept::Kernel(last))) if last.entry() == kernel.entry() => *until = value,
            _ => self.kept.push_back((value, Kept::Kernel(kernel.clone()))),
        }
    }
}

/// Commits the submission of `value`, when it can no longer fail: marks its memories as used, and advances the
/// timeline.
#[inline]
pub(crate) fn commit<'m>(timeline: &Arc<Timeline>, value: u64, used: impl Iterator<Item = &'m Memory>) {
    used.for_each(|memory| memory.uses().mark(timeline, value));
    let given = timeline.next();
    debug_assert_eq!(given, value, "the producer's lock is held");
}

/// Polling for room in a ring: growing pauses, and a timeout that starts with the first check.
#[derive(Default)]
pub(crate) struct RoomWait {
    deadline: Option<Instant>,
    backoff: Backoff,
}

impl RoomWait {
    /// Whether `timeout` has passed since the first call.
    pub(crate) fn is_over(&mut self, timeout: Duration) -> bool {
        let now = Instant::now();
        now >= *self.deadline.get_or_insert_with(|| now + timeout)
    }

    pub(crate) fn pause(&mut self) {
        self.backoff.pause();
    }
}

/// The error for a ring that had no room for `timeout`.
pub(crate) fn ring_full_error(timeline: &Timeline, timeout: Duration, report: Report) -> DeviceError {
    SubmitError::from(timeline.timed_out(timeline.submitted(), timeout, report)).into()
}

/// Converts an error of waiting for room: a failed wait becomes a device's wait error.
pub(crate) fn submit_to_device_error(error: SubmitError) -> DeviceError {
    match error {
        SubmitError::Wait(e) => e.into(),
        e => e.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceTag;
    use doorbell_hcq::signal::SignalPool;

    fn timeline() -> Arc<Timeline> {
        Timeline::new("X/compute".into(), SignalPool::new().signal().unwrap())
    }

    fn kernel(entry: u64) -> Kernel {
        Kernel::new(DeviceTag::new("X"), "k", entry, Arc::new(()))
    }

    #[test]
    fn what_a_submission_keeps_is_let_go_when_it_is_done() {
        let (mut in_flight, t) = (InFlight::default(), timeline());
        for _ in 0..2 {
            in_flight.begin(&t);
            in_flight.keep(t.submitted() + 1, Kept::List(Arc::new(())));
            commit(&t, t.submitted() + 1, std::iter::empty());
        }
        in_flight.begin(&t);
        assert_eq!(in_flight.kept.len(), 2);
        t.signal().set(1);
        in_flight.begin(&t);
        assert_eq!(in_flight.kept.len(), 1);
    }

    #[test]
    fn a_kernel_launched_in_a_row_is_kept_once_and_until_its_last_launch() {
        let (mut in_flight, t) = (InFlight::default(), timeline());
        for (value, entry) in [(1, 7), (2, 7), (3, 8)] {
            in_flight.keep_kernel(value, &kernel(entry));
            t.next();
        }
        t.signal().set(1);
        in_flight.begin(&t);
        assert_eq!(in_flight.kept.iter().map(|(until, _)| *until).collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn what_a_submission_given_up_kept_is_an_older_ones_too() {
        let (mut in_flight, t) = (InFlight::default(), timeline());
        in_flight.keep_kernel(1, &kernel(7));
        t.next();
        in_flight.keep_kernel(2, &kernel(7)); // submission 2 is never queued
        in_flight.begin(&t);
        assert_eq!(in_flight.kept.len(), 1);
        t.signal().set(1);
        in_flight.begin(&t);
        assert!(in_flight.kept.is_empty());
    }

    #[test]
    fn waits_that_are_encoded_keep_their_timelines() {
        let (mut in_flight, mine, others) = (InFlight::default(), timeline(), [timeline(), timeline()]);
        others.iter().for_each(|t| in_flight.wait_for(&t.point(t.next())));
        let mut seen = 0;
        let first_alone = |_: &Point| -> Result<bool, DeviceError> {
            seen += 1;
            Ok(seen == 1)
        };
        in_flight.emit_waits(1, first_alone).unwrap();
        assert_eq!((seen, in_flight.kept.len(), in_flight.waits.len()), (2, 1, 0));
        drop(mine);
    }
}

//! What a queue remembers of its submissions: what the next one must wait for, and what those in flight keep alive.
//!
//! Place in the arrows: under the lock of every device's queue. The order of calls is the life of a submission:
//! [`InFlight::begin`], the waits ([`InFlight::wait_for_all`] and its siblings), [`InFlight::emit_waits`],
//! [`InFlight::keep`], [`commit`].

use super::memory::add_wait;
use super::{Command, DeviceError, Kernel, Memory, Stamp};
use doorbell_hcq::queue::SubmitError;
use doorbell_hcq::signal::{Backoff, Point, Report, Timeline};
use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a submission keeps alive. The fields are only ever dropped.
#[derive(Clone)]
#[allow(dead_code)]
pub enum Kept {
    Kernel(Kernel),
    Stamp(Stamp),
    Timeline(Arc<Timeline>),
    Memory(Memory),
    /// What a run of a recorded list reads.
    List(Arc<dyn Any + Send + Sync>),
}

/// The submissions of one queue that are being made or not yet done.
#[derive(Default)]
pub struct InFlight {
    /// What the submission that is being made waits for.
    waits: Vec<Point>,
    /// Each until its submission is done, oldest first.
    kept: VecDeque<(u64, Kept)>,
}

impl std::fmt::Debug for InFlight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "InFlight({} waits, {} kept)", self.waits.len(), self.kept.len())
    }
}

impl InFlight {
    /// Begins a submission, and lets go of what finished ones kept. The one before may have been given up.
    #[inline]
    pub fn begin(&mut self, timeline: &Timeline) {
        self.waits.clear();
        let submitted = timeline.submitted();
        // What a submission that was given up kept may be an older one's too: it stays until all that was submitted is
        // done.
        let given_up = self.kept.iter_mut().rev().take_while(|(until, _)| *until > submitted);
        given_up.for_each(|(until, _)| *until = submitted);
        self.release(timeline.completed());
    }

    /// Lets go of what submissions up to `completed` kept.
    #[inline]
    pub fn release(&mut self, completed: u64) {
        while self.kept.pop_front_if(|(until, _)| *until <= completed).is_some() {}
    }

    /// Lets go of everything: the queue has ended.
    #[cfg(any(feature = "amd", feature = "nv"))]
    pub fn clear(&mut self) {
        self.waits.clear();
        self.kept.clear();
    }

    /// The submission waits for a point.
    pub fn wait_for(&mut self, point: &Point) {
        add_wait(&mut self.waits, point);
    }

    /// The submission, on `timeline`, waits for what others do with a memory.
    #[inline]
    pub fn wait_for_memory(&mut self, timeline: &Arc<Timeline>, memory: &Memory) {
        memory.uses().hazards(timeline, &mut self.waits);
    }

    /// The submission waits for what its commands wait for, and for what others do with their memories. All hazards are
    /// read before any use is marked: two submissions to two queues can then never wait for one another.
    #[inline]
    pub fn wait_for_all(&mut self, timeline: &Arc<Timeline>, commands: &[Command]) {
        for command in commands {
            if let Command::Wait(point) = command {
                self.wait_for(point);
            }
            command.places().for_each(|place| self.wait_for_memory(timeline, &place.memory));
        }
    }

    /// Has `emit` encode the waits gathered, and keeps the timelines of those that it did encode.
    ///
    /// # Errors
    /// The first of `emit`.
    #[inline]
    pub fn emit_waits<E>(&mut self, value: u64, mut emit: impl FnMut(&Point) -> Result<bool, E>) -> Result<(), E> {
        let Self { waits, kept } = self;
        for point in waits.drain(..) {
            if emit(&point)? {
                kept.push_back((value, Kept::Timeline(Arc::clone(point.timeline()))));
            }
        }
        Ok(())
    }

    /// Keeps something until the submission of `value` is done.
    #[inline]
    pub fn keep(&mut self, value: u64, what: Kept) {
        self.kept.push_back((value, what));
    }

    /// Keeps a kernel; once for launches of it in a row, until the last of them is done.
    #[inline]
    pub fn keep_kernel(&mut self, value: u64, kernel: &Kernel) {
        match self.kept.back_mut() {
            Some((until, Kept::Kernel(last))) if last.entry() == kernel.entry() => *until = value,
            _ => self.kept.push_back((value, Kept::Kernel(kernel.clone()))),
        }
    }
}

/// Nothing can keep the submission of `value` from the device any more: its memories are marked, its value is given
/// out.
#[inline]
pub fn commit<'m>(timeline: &Arc<Timeline>, value: u64, used: impl Iterator<Item = &'m Memory>) {
    used.for_each(|memory| memory.uses().mark(timeline, value));
    let given = timeline.next();
    debug_assert_eq!(given, value, "the producer's lock is held");
}

/// A submitter that waits for room in its ring: pauses that grow, until a time that runs from the first look at it.
#[derive(Default)]
pub struct RoomWait {
    deadline: Option<Instant>,
    backoff: Backoff,
}

impl RoomWait {
    /// Whether `timeout` is over.
    pub fn is_over(&mut self, timeout: Duration) -> bool {
        let now = Instant::now();
        now >= *self.deadline.get_or_insert_with(|| now + timeout)
    }

    pub fn pause(&mut self) {
        self.backoff.pause();
    }
}

/// The ring had no room for `timeout`.
pub fn stayed_full(timeline: &Timeline, timeout: Duration, report: Report) -> DeviceError {
    SubmitError::from(timeline.timed_out(timeline.submitted(), timeout, report)).into()
}

/// A wait for room that failed is a wait that failed.
pub fn no_room(error: SubmitError) -> DeviceError {
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

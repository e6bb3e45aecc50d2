//! Devices that are measured at the same time: the samples of a case begin when all of them have warmed up, and a
//! device that has its samples goes on working until the others have theirs.
//!
//! Layer: below `measure`; `run` makes one for each case.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Where the devices of one case wait for each other.
#[derive(Debug)]
pub(crate) struct Meeting {
    of: usize,
    state: Mutex<State>,
    changed: Condvar,
}

/// How many devices have come how far. One whose case has failed has come all the way.
#[derive(Debug, Default)]
struct State {
    ready: usize,
    done: usize,
}

/// One device's part; given back by its drop, also after an error.
#[derive(Debug)]
pub struct Part<'a> {
    meeting: &'a Meeting,
    is_ready: bool,
    is_done: bool,
}

impl Meeting {
    /// Of so many devices.
    #[must_use]
    pub(crate) fn new(of: usize) -> Self {
        Self { of, state: Mutex::default(), changed: Condvar::new() }
    }

    /// The part of one of them.
    #[must_use]
    pub(crate) fn part(&self) -> Part<'_> {
        Part { meeting: self, is_ready: false, is_done: false }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Part<'_> {
    /// The device has warmed up: returns when all have.
    // TIMEOUT: none of its own. The others are ready or give up, since each wait for a device has a deadline.
    pub fn ready(&mut self) {
        self.note_ready();
        let mut state = self.meeting.state();
        while state.ready < self.meeting.of {
            state = self.meeting.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The device has its samples.
    pub fn done(&mut self) {
        self.note_ready();
        if !std::mem::replace(&mut self.is_done, true) {
            self.meeting.state().done += 1;
            self.meeting.changed.notify_all();
        }
    }

    /// Whether all devices have their samples.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.meeting.state().done >= self.meeting.of
    }

    fn note_ready(&mut self) {
        if !std::mem::replace(&mut self.is_ready, true) {
            self.meeting.state().ready += 1;
            self.meeting.changed.notify_all();
        }
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        self.done();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn nobody_begins_before_all_are_ready_and_one_that_fails_holds_up_nobody() {
        let (meeting, ready) = (Meeting::new(3), AtomicUsize::new(0));
        std::thread::scope(|s| {
            for n in 0..3 {
                let (mut part, ready) = (meeting.part(), &ready);
                s.spawn(move || {
                    ready.fetch_add(1, Ordering::SeqCst);
                    if n == 1 {
                        return; // Its case is left out.
                    }
                    part.ready();
                    assert_eq!(ready.load(Ordering::SeqCst), 3);
                    part.done();
                    while !part.is_over() {
                        std::thread::yield_now();
                    }
                });
            }
        });
        assert!(meeting.part().is_over());
    }
}

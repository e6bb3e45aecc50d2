//! When a call began, and on which thread: for the two ports that record calls.

use super::Moment;
use crate::port::monotonic_ns;
use std::thread::ThreadId;

/// When a trace began, and its threads.
#[derive(Debug)]
pub(super) struct Clock {
    began_ns: u64,
    threads: Vec<ThreadId>,
}

impl Default for Clock {
    fn default() -> Self {
        Self { began_ns: monotonic_ns(), threads: Vec::new() }
    }
}

impl Clock {
    /// The moment of a call of this thread that began at `start_ns` of the host's clock and ends now.
    pub(super) fn moment(&mut self, start_ns: u64) -> Moment {
        let end = monotonic_ns();
        let me = std::thread::current().id();
        let thread = self.threads.iter().position(|t| *t == me).unwrap_or_else(|| {
            self.threads.push(me);
            self.threads.len() - 1
        });
        Moment {
            start_ns: start_ns.saturating_sub(self.began_ns),
            length_ns: end.saturating_sub(start_ns),
            thread: u32::try_from(thread).unwrap_or(u32::MAX),
        }
    }
}

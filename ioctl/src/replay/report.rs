//! The options of a replay, and its report.

use super::translate::Names;
use std::fmt;
use std::time::Duration;

/// How a recording is played.
#[derive(Clone, Copy, Debug)]
pub struct ReplayOptions {
    /// How long a queue may take to catch up with its write pointer before the next call is made all the same.
    pub queue_timeout: Duration,
}

impl Default for ReplayOptions {
    fn default() -> Self {
        Self { queue_timeout: Duration::from_secs(10) }
    }
}

/// Something that came out differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Number of the event in the recording, from 0.
    pub event: usize,
    /// The call, as ioctls are named.
    pub call: String,
    /// The field or the answer, as it was recorded and as it is in the replay.
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {} {}: {}", self.event, self.call, self.what)
    }
}

/// What a replay has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub calls: usize,
    pub doorbells: usize,
    /// Queues that did not catch up in time.
    pub timeouts: usize,
    /// Mappings that lie elsewhere now: recorded start, length in bytes, start now.
    pub moved: Vec<(u64, u64, u64)>,
    pub differences: Vec<Difference>,
}

impl Report {
    /// Recorded memory as the replay wrote it.
    pub fn translate(&self, bytes: &mut [u8]) {
        let mut names = Names::default();
        self.moved.iter().for_each(|(recorded, len_bytes, now)| names.learn_range(*recorded, *len_bytes, *now));
        names.memory(bytes);
    }
}

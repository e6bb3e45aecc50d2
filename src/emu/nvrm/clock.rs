//! PTIMER: the nanosecond counter that all cards of a machine share here.

use doorbell_ioctl::port::monotonic_ns;
use std::sync::atomic::{AtomicU64, Ordering};

/// Hardware counts in steps of 32 ns; every reading is larger than the one before, so that an end is after its start.
#[derive(Debug, Default)]
pub struct Ptimer {
    last: AtomicU64,
    /// It counts its steps, not ns.
    counts_steps: bool,
}

const STEP_NS: u64 = 32;

impl Ptimer {
    /// One that is wrong: it counts in its steps.
    #[must_use]
    pub fn of_steps() -> Self {
        Self { counts_steps: true, ..Self::default() }
    }

    /// The counter now, in ns.
    pub fn ns(&self) -> u64 {
        let unit = if self.counts_steps { STEP_NS } else { 1 };
        let now = monotonic_ns() / unit / STEP_NS * STEP_NS;
        let next = |last: u64| Some(now.max(last + STEP_NS));
        let last = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or_else(|last| last);
        now.max(last + STEP_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_grow_in_hardware_steps() {
        let clock = Ptimer::default();
        let readings: Vec<u64> = (0..1000).map(|_| clock.ns()).collect();
        assert!(readings.is_sorted_by(|a, b| a < b) && readings.iter().all(|ns| ns.is_multiple_of(STEP_NS)));
    }
}

//! Conversion of a device's counter to nanoseconds of the host's monotonic clock.
//!
//! Layer: a device creates one, sets it from a simultaneous reading of both clocks, and passes it to its
//! signals.

use doorbell_hcq::signal::Clock;
use std::sync::{Mutex, PoisonError};

/// A counter of known frequency, with one simultaneous reading of both clocks.
#[derive(Debug)]
pub struct LinearClock {
    khz: u64,
    /// Ticks and nanoseconds of the reading.
    pair: Mutex<(u64, u64)>,
}

impl LinearClock {
    /// A counter of `khz` kilohertz, without a reading yet.
    #[must_use]
    pub fn new(khz: u64) -> Self {
        Self { khz, pair: Mutex::default() }
    }

    /// Sets the reading: the counter was at `ticks` when the host's clock was at `ns`.
    pub fn set(&self, ticks: u64, ns: u64) {
        *self.pair.lock().unwrap_or_else(PoisonError::into_inner) = (ticks, ns);
    }
}

impl Clock for LinearClock {
    fn ns(&self, ticks: u64) -> u64 {
        let (at, ns) = *self.pair.lock().unwrap_or_else(PoisonError::into_inner);
        let since = (i128::from(ticks) - i128::from(at)) * 1_000_000 / i128::from(self.khz.max(1));
        u64::try_from((i128::from(ns) + since).max(1)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_become_host_nanoseconds_on_both_sides_of_the_reading() {
        let clock = LinearClock::new(100_000);
        clock.set(1000, 5_000_000);
        assert_eq!((clock.ns(1000), clock.ns(1001), clock.ns(999)), (5_000_000, 5_000_010, 4_999_990));
        assert_eq!(clock.ns(0), 4_990_000);
    }
}

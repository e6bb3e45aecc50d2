//! The 100 MHz counter that all queues of a machine share.

use doorbell_ioctl::port::monotonic_ns;
use std::sync::atomic::{AtomicU64, Ordering};

/// Hertz.
pub(crate) const GPU_CLOCK_HZ: u64 = 100_000_000;
const NS_PER_TICK: u64 = 10;

/// Never 0, and every reading is larger than the one before: an end is after its start.
#[derive(Debug, Default)]
pub struct GpuClock {
    last: AtomicU64,
}

impl GpuClock {
    /// The counter now.
    pub fn ticks(&self) -> u64 {
        let now = monotonic_ns() / NS_PER_TICK;
        let next = |last: u64| Some(now.max(last + 1));
        let last = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or_else(|last| last);
        now.max(last + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_grow() {
        let clock = GpuClock::default();
        let readings: Vec<u64> = (0..1000).map(|_| clock.ticks()).collect();
        assert!(readings[0] > 0 && readings.is_sorted_by(|a, b| a < b));
    }
}

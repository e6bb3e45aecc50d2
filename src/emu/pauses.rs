//! Pauses of software GPUs' engines, so that queues overtake each other in different orders.

use std::time::Duration;

/// Seeded pauses between the packets of a queue.
pub(super) struct Pauses {
    /// 0: none.
    state: u64,
}

impl Pauses {
    const ONE_IN: u64 = 4;
    const MOST_US: u64 = 200;

    /// For a queue; seed 0: none.
    pub(crate) fn new(seed: u64, queue: u32) -> Self {
        Self { state: if seed == 0 { 0 } else { seed ^ u64::from(queue + 1) << 32 | 1 } }
    }

    /// Sleeps, one time in four.
    pub(crate) fn pause(&mut self) {
        if self.state == 0 {
            return;
        }
        // xorshift64: never 0 once it is not.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        if self.state.is_multiple_of(Self::ONE_IN) {
            // TIMEOUT: long enough for another queue to get ahead.
            std::thread::sleep(Duration::from_micros((self.state >> 32) % Self::MOST_US));
        }
    }
}

//! One kernel distributed over cores: executors claim its chunks. [`Chunks`] implements the protocol; this adds the
//! kernel's description.

use super::exec::Bus;
use doorbell_hcq::sync::Chunks;
use std::sync::atomic::{AtomicU64, Ordering};

/// The kernel being distributed; one at a time, published by the thread with the queue's consumer role.
#[derive(Debug, Default)]
pub(super) struct Job {
    entry: AtomicU64,
    args: AtomicU64,
    count: AtomicU64,
    chunks: Chunks,
}

impl Job {
    /// Publishes the chunks `0..count`. The previous job must be finished.
    pub(super) fn publish(&self, entry: u64, args: u64, count: u32) {
        self.entry.store(entry, Ordering::Relaxed);
        self.args.store(args, Ordering::Relaxed);
        self.count.store(u64::from(count), Ordering::Relaxed);
        self.chunks.publish(count);
    }

    /// Runs chunks until none is left to claim; returns whether there was any.
    pub(super) fn help(&self) -> bool {
        let mut helped = false;
        while let Some(left) = self.chunks.claim() {
            // While a chunk is claimed, the description does not change until `finish_one`.
            let tid = self.count.load(Ordering::Relaxed) - u64::from(left);
            Bus.call(self.entry.load(Ordering::Relaxed), self.args.load(Ordering::Relaxed), tid);
            self.chunks.finish_one();
            helped = true;
        }
        helped
    }

    pub(super) fn has_work(&self) -> bool {
        self.chunks.has_work()
    }

    /// Waits for the chunks that others have claimed.
    pub(super) fn join(&self) {
        let mut rounds = 0u32;
        while !self.chunks.is_finished() {
            rounds += 1;
            if rounds < 2000 {
                std::hint::spin_loop();
            } else {
                // The thread still running may need this core.
                std::thread::yield_now();
            }
        }
    }
}

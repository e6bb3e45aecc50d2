//! One kernel spread over cores: the chunks that executors claim. The protocol is [`Chunks`]'s; here is the description beside it.

use super::exec::Bus;
use doorbell_hcq::sync::Chunks;
use std::sync::atomic::{AtomicU64, Ordering};

/// The kernel being spread; one at a time, published by the holder of the queue's consumer role.
#[derive(Debug, Default)]
pub(super) struct Job {
    entry: AtomicU64,
    args: AtomicU64,
    count: AtomicU64,
    chunks: Chunks,
}

impl Job {
    /// Offers the chunks `0..count`. The job before must be finished.
    pub(super) fn publish(&self, entry: u64, args: u64, count: u32) {
        self.entry.store(entry, Ordering::Relaxed);
        self.args.store(args, Ordering::Relaxed);
        self.count.store(u64::from(count), Ordering::Relaxed);
        self.chunks.publish(count);
    }

    /// Runs chunks until none is left to claim; whether there was any.
    pub(super) fn help(&self) -> bool {
        let mut helped = false;
        while let Some(left) = self.chunks.claim() {
            // The claim keeps the description in place until `finish_one`.
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
                // The straggler may need this very core.
                std::thread::yield_now();
            }
        }
    }
}

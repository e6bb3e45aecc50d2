//! The lock-free protocols of a queue that host threads run, generic over the atomic word so that a model checker can
//! run the same code.
//!
//! Layer: used by `hcq::ring` and `device::cpu`; `tests/hcq_model.rs` instantiates it with loom's atomics.
//! Three protocols: [`Role`] (which thread may consume a queue), [`Chunks`] (how executors share the chunks of one
//! kernel), [`Bell`] (how threads sleep and wake without lost wake-ups).

use std::sync::atomic::{AtomicU64, Ordering};

/// The atomic operations that the protocols need; implemented for the words of `std` and loom.
pub trait AtomicWord {
    fn new(value: u64) -> Self;
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    /// Strong compare-exchange; returns whether it succeeded.
    fn replace(&self, old: u64, new: u64, success: Ordering) -> bool;
    fn fetch_add(&self, value: u64, order: Ordering) -> u64;
    fn fetch_sub(&self, value: u64, order: Ordering) -> u64;
    /// A fence of the memory model that the words live in.
    fn fence(order: Ordering);
}

impl AtomicWord for AtomicU64 {
    fn new(value: u64) -> Self {
        Self::new(value)
    }
    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }
    #[inline]
    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }
    #[inline]
    fn replace(&self, old: u64, new: u64, success: Ordering) -> bool {
        self.compare_exchange(old, new, success, Ordering::Relaxed).is_ok()
    }
    #[inline]
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_add(value, order)
    }
    #[inline]
    fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_sub(value, order)
    }
    #[inline]
    fn fence(order: Ordering) {
        std::sync::atomic::fence(order);
    }
}

/// A role that at most one thread has at a time: the consumer of a queue. Taking it never blocks.
#[derive(Debug)]
pub struct Role<A: AtomicWord = AtomicU64> {
    taken: A,
}

/// The held role; released on drop.
pub struct RoleGuard<'a, A: AtomicWord>(&'a Role<A>);

impl<A: AtomicWord> Default for Role<A> {
    fn default() -> Self {
        Self { taken: A::new(0) }
    }
}

impl<A: AtomicWord> Role<A> {
    /// Takes the role, if no thread has it.
    #[inline]
    pub fn try_take(&self) -> Option<RoleGuard<'_, A>> {
        // The plain load avoids bouncing the cache line between spinning threads. ORDER: acquire; sees the last
        // holder's stores.
        let free = self.taken.load(Ordering::Relaxed) == 0 && self.taken.replace(0, 1, Ordering::Acquire);
        free.then(|| RoleGuard(self))
    }

    /// Takes the role and drains the queue, repeatedly while work is pending and no other thread has the role. `drain`
    /// returns whether it reached the end of the queue. If it stopped before, this returns false while work is pending;
    /// then the caller must wake another thread. A thread that publishes work, executes the fence ([`Bell::must_wake`])
    /// and then finds the role taken need not do anything: the holder checks once more.
    pub fn serve(&self, pending: impl Fn() -> bool, mut drain: impl FnMut() -> bool) -> bool {
        while pending() {
            let Some(role) = self.try_take() else { return true };
            let has_ended = drain();
            drop(role);
            // ORDER: the role is released before the work is checked again.
            A::fence(Ordering::SeqCst);
            if !has_ended {
                return !pending();
            }
        }
        true
    }

    /// Whether a thread has the role now.
    #[inline]
    pub fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Relaxed) != 0
    }
}

impl<A: AtomicWord> Drop for RoleGuard<'_, A> {
    fn drop(&mut self) {
        // ORDER: release; the next holder sees this holder's stores.
        self.0.taken.store(0, Ordering::Release);
    }
}

/// The chunks of one job. Any number of executors claim them; the holder of the [`Role`] publishes one job at a time.
///
/// `ticket` is generation << 32 | unclaimed chunks. A claim is one compare-exchange of the whole ticket, so a slow
/// executor that saw an older job cannot claim from a newer one. An executor with a claimed chunk may read the job's
/// description until it finishes the chunk, since `publish` is not called again before `is_finished`.
#[derive(Debug)]
pub struct Chunks<A: AtomicWord = AtomicU64> {
    ticket: A,
    unfinished: A,
}

const CLAIMABLE: u64 = 0xffff_ffff;

impl<A: AtomicWord> Default for Chunks<A> {
    fn default() -> Self {
        Self { ticket: A::new(0), unfinished: A::new(0) }
    }
}

impl<A: AtomicWord> Chunks<A> {
    /// Publishes `count` chunks of a job whose description has just been written. The previous job must be finished.
    pub fn publish(&self, count: u32) {
        let generation = (self.ticket.load(Ordering::Relaxed) >> 32).wrapping_add(1);
        self.unfinished.store(u64::from(count), Ordering::Relaxed);
        // ORDER: release; makes the description and the count visible to a claiming thread.
        self.ticket.store((generation << 32) | u64::from(count), Ordering::Release);
    }

    /// Claims one chunk: `Some(n)` with n unclaimed chunks before the claim (so chunk number is count - n), `None` if
    /// none is left.
    #[inline]
    pub fn claim(&self) -> Option<u32> {
        loop {
            let ticket = self.ticket.load(Ordering::Relaxed);
            let left = ticket & CLAIMABLE;
            if left == 0 {
                return None;
            }
            // ORDER: acquire; pairs with the release in `publish` (read-modify-writes in between continue the release
            // sequence).
            if self.ticket.replace(ticket, ticket - 1, Ordering::Acquire) {
                return u32::try_from(left).ok();
            }
        }
    }

    /// Whether a claim would succeed now.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.ticket.load(Ordering::Relaxed) & CLAIMABLE != 0
    }

    /// Marks one claimed chunk as done.
    #[inline]
    pub fn finish_one(&self) {
        // ORDER: release; the publisher that reads zero sees the chunk's stores.
        self.unfinished.fetch_sub(1, Ordering::Release);
    }

    /// Whether all chunks of the job are done; then their stores are visible to the caller.
    #[inline]
    pub fn is_finished(&self) -> bool {
        // ORDER: acquire; pairs with `finish_one`.
        self.unfinished.load(Ordering::Acquire) == 0
    }
}

/// Counts sleeping threads, so that waking costs a single load if there are none.
///
/// Sleeper: `announce`, check for work once more, sleep, `leave`. Waker: publish the work, then `must_wake`. Because of
/// the two fences, it cannot happen both that the sleeper misses the work and that the waker misses the sleeper
/// (Dekker's argument).
#[derive(Debug)]
pub struct Bell<A: AtomicWord = AtomicU64> {
    sleepers: A,
}

impl<A: AtomicWord> Default for Bell<A> {
    fn default() -> Self {
        Self { sleepers: A::new(0) }
    }
}

impl<A: AtomicWord> Bell<A> {
    /// Announces that the thread is about to sleep. It must check for work after this call and before it sleeps.
    pub fn announce(&self) {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        // ORDER: the announcement is visible before the sleeper's last check for work.
        A::fence(Ordering::SeqCst);
    }

    /// Withdraws the announcement: the thread is awake.
    pub fn leave(&self) {
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether a thread may be sleeping and must be woken for the work that was just published.
    #[inline]
    pub fn must_wake(&self) -> bool {
        // ORDER: the published work is visible before the sleepers are counted.
        A::fence(Ordering::SeqCst);
        self.sleepers.load(Ordering::Relaxed) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_is_held_by_one_at_a_time() {
        let role = Role::<AtomicU64>::default();
        let held = role.try_take();
        assert!(held.is_some() && role.try_take().is_none());
        drop(held);
        assert!(role.try_take().is_some());
    }

    #[test]
    fn chunks_are_claimed_once_each_and_then_finished() {
        let chunks = Chunks::<AtomicU64>::default();
        assert!(chunks.claim().is_none() && chunks.is_finished());
        chunks.publish(3);
        assert_eq!([chunks.claim(), chunks.claim(), chunks.claim(), chunks.claim()], [Some(3), Some(2), Some(1), None]);
        chunks.finish_one();
        chunks.finish_one();
        assert!(!chunks.is_finished());
        chunks.finish_one();
        assert!(chunks.is_finished() && !chunks.has_work());
    }

    #[test]
    fn bell_wakes_only_announced_sleepers() {
        let bell = Bell::<AtomicU64>::default();
        assert!(!bell.must_wake());
        bell.announce();
        assert!(bell.must_wake());
        bell.leave();
        assert!(!bell.must_wake());
    }
}

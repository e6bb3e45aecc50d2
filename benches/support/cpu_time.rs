//! Time that the thread has run: other work on the machine does not count.

use std::time::Duration;

/// What so many rounds take of it.
pub fn of(rounds: u64, mut round: impl FnMut()) -> Duration {
    let began = now();
    (0..rounds).for_each(|_| round());
    now() - began
}

fn now() -> Duration {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes a timespec to a place that holds one.
    let rc = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut t) };
    assert_eq!(rc, 0, "clock_gettime of the thread's own clock");
    Duration::new(t.tv_sec.unsigned_abs(), u32::try_from(t.tv_nsec).unwrap_or(0))
}

//! The numbers of traced files, and of our own: sets that any thread reads without a lock or memory of its own.
#![forbid(unsafe_code)]

use libc::c_int;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// Numbers from here on are not traced; Linux allows 2^20 by default (`fs.nr_open`).
const MAX_FILES: usize = 1 << 20;

static TRACED: [AtomicU64; MAX_FILES / 64] = [const { AtomicU64::new(0) }; MAX_FILES / 64];

/// The files that we write to; -1 where there is none. They lie where programs do not expect numbers.
pub static OURS: [AtomicI32; 2] = [const { AtomicI32::new(-1) }; 2];

fn place(fd: c_int) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    TRACED.get(fd / 64).map(|word| (word, 1 << (fd % 64)))
}

pub fn is_traced(fd: c_int) -> bool {
    // ORDER: a thread that uses a number got it from the thread that opened it, synchronised by themselves.
    place(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

pub fn set_traced(fd: c_int, traced: bool) {
    if let Some((word, bit)) = place(fd) {
        if traced {
            word.fetch_or(bit, Ordering::Relaxed);
        } else {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

/// Which of our own files has that number.
pub fn ours(fd: c_int) -> Option<&'static AtomicI32> {
    if fd < 0 { None } else { OURS.iter().find(|slot| slot.load(Ordering::Relaxed) == fd) }
}

//! The library's allocator: the caller's functions, or the system's. It counts, so that a caller can see that runs
//! allocate nothing.

use crate::door::{self, Done, Error};
use crate::status::{Failure, Status};
use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// `doorbell_allocate_fn`.
pub(crate) type Allocate = extern "C" fn(user: *mut c_void, size: usize, align: usize) -> *mut c_void;
/// `doorbell_free_fn`.
pub(crate) type Free = extern "C" fn(user: *mut c_void, memory: *mut c_void, size: usize, align: usize);

struct Door;

#[global_allocator]
static ALLOCATOR: Door = Door;

static ALLOCATE: AtomicUsize = AtomicUsize::new(0);
static FREE: AtomicUsize = AtomicUsize::new(0);
static USER: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static TOTAL: AtomicU64 = AtomicU64::new(0);
static LIVE: AtomicU64 = AtomicU64::new(0);

/// The caller's functions; set before anything is allocated, and never changed after.
fn of_caller() -> Option<(Allocate, Free)> {
    let (allocate, free) = (ALLOCATE.load(Ordering::Acquire), FREE.load(Ordering::Acquire));
    if allocate == 0 || free == 0 {
        return None;
    }
    // SAFETY: both numbers are functions of these types, stored by `doorbell_set_allocator`.
    Some(unsafe { (std::mem::transmute::<usize, Allocate>(allocate), std::mem::transmute::<usize, Free>(free)) })
}

// SAFETY: blocks come from the system's allocator or from the caller's functions, of which the header asks the same;
// all blocks of the process come from the same one.
unsafe impl GlobalAlloc for Door {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TOTAL.fetch_add(1, Ordering::Relaxed);
        LIVE.fetch_add(1, Ordering::AcqRel);
        match of_caller() {
            Some((allocate, _)) => allocate(USER.load(Ordering::Acquire), layout.size(), layout.align()).cast(),
            // SAFETY: the layout is the caller's of `alloc`.
            None => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        match of_caller() {
            Some((_, free)) => free(USER.load(Ordering::Acquire), at.cast(), layout.size(), layout.align()),
            // SAFETY: the block came from the system's allocator, with this layout.
            None => unsafe { System.dealloc(at, layout) },
        }
        LIVE.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Sets the caller's allocator.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_set_allocator(
    allocate: Option<Allocate>,
    free: Option<Free>,
    user: *mut c_void,
    error: *mut Error,
) -> i32 {
    // Nothing may be allocated before the check.
    let live = LIVE.load(Ordering::Acquire);
    if let (0, Some(allocate), Some(free)) = (live, allocate, free) {
        USER.store(user, Ordering::Release);
        FREE.store(free as usize, Ordering::Release);
        ALLOCATE.store(allocate as usize, Ordering::Release);
        return Status::Ok as i32;
    }
    door::enter(error, || -> Done {
        let why = if live == 0 { "both functions are needed" } else { "set it before any other call" };
        Err(Failure::new(Status::InvalidArgument, why))
    })
}

/// Blocks that the library has allocated so far.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn doorbell_allocations() -> u64 {
    TOTAL.load(Ordering::Relaxed)
}

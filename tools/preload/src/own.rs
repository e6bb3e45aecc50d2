//! Keeps our own work separate from the program's: errno, signals and cancellation stay as they were, our own calls are
//! not traced, a panic stays inside, and a fork finds our lock free.
//!
//! Source: pthread_sigmask(3), pthread_setcancelstate(3), pthread_atfork(3), vfork(2).

use libc::{c_int, pid_t, pthread_mutex_t, sigset_t};
use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE` of pthread.h.
const CANCEL_DISABLE: c_int = 1;

thread_local! {
    // Constant and without a destructor: readable before main, in every thread, until its end.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    static THREAD: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The process that this memory belongs to; the child of vfork sees the memory and is another.
static OWNER: AtomicI32 = AtomicI32::new(0);
static THREADS: AtomicU32 = AtomicU32::new(0);
/// This process is a fork's child and has not yet made files of its own.
static FORKED: AtomicBool = AtomicBool::new(false);

pub fn errno() -> c_int {
    // SAFETY: the address of this thread's errno is always valid.
    unsafe { *libc::__errno_location() }
}

pub fn set_errno(number: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = number }
}

fn pid() -> pid_t {
    // SAFETY: getpid has no preconditions.
    unsafe { libc::getpid() }
}

/// Does our own work. `None`: not done, because our own work was the caller, because the process is not the memory's
/// owner, or because it panicked.
pub fn work<R>(what: impl FnOnce() -> R) -> Option<R> {
    if INSIDE.get() || pid() != OWNER.load(Ordering::Relaxed) {
        return None;
    }
    let errno = errno();
    INSIDE.set(true);
    let quiet = Quiet::new();
    let done = catch_unwind(AssertUnwindSafe(what)).ok();
    quiet.end();
    INSIDE.set(false);
    set_errno(errno);
    done
}

/// True while this thread does our own work.
pub fn is_inside() -> bool {
    INSIDE.get()
}

/// True in the process that this memory belongs to.
pub fn is_owner() -> bool {
    pid() == OWNER.load(Ordering::Relaxed)
}

/// No signal handler and no cancellation runs in between: neither may find our lock held, nor unwind through us.
struct Quiet {
    signals: MaybeUninit<sigset_t>,
    cancel: c_int,
}

impl Quiet {
    fn new() -> Self {
        let mut quiet = Self { signals: MaybeUninit::uninit(), cancel: 0 };
        let mut all = MaybeUninit::uninit();
        // SAFETY: sigfillset fills the set it is given.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        // SAFETY: both sets are valid, the first one filled; SIG_SETMASK with valid sets cannot fail, so the old set is
        // written.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), quiet.signals.as_mut_ptr()) };
        // SAFETY: a known state, and a place for the old one.
        unsafe { pthread_setcancelstate(CANCEL_DISABLE, &raw mut quiet.cancel) };
        quiet
    }

    fn end(self) {
        // SAFETY: the state that was there before.
        unsafe { pthread_setcancelstate(self.cancel, std::ptr::null_mut()) };
        // SAFETY: the set was written by `new`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, self.signals.as_ptr(), std::ptr::null_mut()) };
    }
}

/// Removes the SIGPIPE that our write has raised: the program has not written.
pub fn drop_sigpipe() {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset fills the set it is given.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: the set is filled; SIGPIPE is a signal.
    unsafe { libc::sigaddset(set.as_mut_ptr(), libc::SIGPIPE) };
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: set and time are valid; nothing is asked about the signal. It is blocked here, as all are.
    unsafe { libc::sigtimedwait(set.as_ptr(), std::ptr::null_mut(), &raw const now) };
}

/// The calling thread's number, in the order of first traced calls.
pub fn thread() -> u32 {
    THREAD.get().unwrap_or_else(|| {
        let number = THREADS.fetch_add(1, Ordering::Relaxed);
        THREAD.set(Some(number));
        number
    })
}

/// True once in a fork's child.
pub fn take_forked() -> bool {
    FORKED.swap(false, Ordering::Relaxed)
}

/// A mutex that fork's handlers can hold on one side and release on both. Its value is a static's.
pub struct Lock<T> {
    mutex: UnsafeCell<pthread_mutex_t>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached with the mutex held only.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub const fn new(value: T) -> Self {
        Self { mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER), value: UnsafeCell::new(value) }
    }

    /// Holds the lock for `what`, inside [`work`]; `what` must not take this lock again: then no thread takes it twice.
    pub fn with<R>(&self, what: impl FnOnce(&mut T) -> R) -> R {
        struct Held<'a, T>(&'a Lock<T>);
        impl<T> Drop for Held<'_, T> {
            fn drop(&mut self) {
                self.0.release();
            }
        }
        self.hold();
        let _held = Held(self);
        // SAFETY: the mutex is held until `_held` goes, after the borrow has ended.
        what(unsafe { &mut *self.value.get() })
    }

    /// Takes the lock; `release` must follow.
    pub fn hold(&self) {
        // SAFETY: an initialised mutex that is never moved (it is a static's) and never destroyed.
        unsafe { libc::pthread_mutex_lock(self.mutex.get()) };
    }

    /// Releases the lock that this thread holds.
    pub fn release(&self) {
        // SAFETY: held by this thread: `with` and the handlers of fork pair both calls.
        unsafe { libc::pthread_mutex_unlock(self.mutex.get()) };
    }
}

/// Sets up the process, once, and handles its forks.
pub fn start() {
    OWNER.store(pid(), Ordering::Relaxed);
    // SAFETY: three handlers that live as long as this library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
}

/// Another thread may hold a lock at a fork; the child has no such thread and would wait for ever. A signal handler may
/// run until the fork is over, and must not come for the locks.
extern "C" fn before_fork() {
    INSIDE.set(true);
    crate::record::RECORDER.hold();
    crate::arena::PIECES.hold();
}

extern "C" fn in_parent() {
    crate::arena::PIECES.release();
    crate::record::RECORDER.release();
    INSIDE.set(false);
}

extern "C" fn in_child() {
    OWNER.store(pid(), Ordering::Relaxed);
    FORKED.store(true, Ordering::Relaxed);
    THREADS.store(0, Ordering::Relaxed);
    THREAD.set(None);
    in_parent();
}

//! libc's names. Each function passes its call on; its frame holds nothing that a cancelled thread would have to drop,
//! so that cancellation in open and close unwinds through it as through libc's own.
//!
//! A variadic function of C is declared with fixed parameters: on Linux's calling conventions the third argument of
//! open, fcntl and ioctl comes where a third parameter is, given or not, and is passed on as it came. Their contracts
//! are libc's, kept by the program that calls.

use crate::config::config;
use crate::record::{self, Asked, outcome};
use crate::{fds, own, real};
use doorbell_ioctl::port::{Errno, monotonic_ns};
use libc::{c_char, c_int, c_ulong, c_void, mode_t, off_t, size_t};
use std::ffi::CStr;
use std::sync::atomic::Ordering;

/// Runs before main; calls from other constructors may still come first and start us as well.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    config();
}

/// The result of a function that this libc lacks.
fn missing() -> c_int {
    own::set_errno(libc::ENOSYS);
    -1
}

/// Handles an open that has returned `fd`.
///
/// # Safety
/// `path` is what the kernel has been given.
unsafe fn opened(start_ns: u64, path: *const c_char, flags: c_int, fd: c_int) -> c_int {
    let result = outcome(fd);
    // For these the kernel returns without having read the name, which then may be an invalid pointer.
    if own::is_inside() || path.is_null() || matches!(result, Err(Errno::EFAULT | Errno::EINVAL)) {
        return fd;
    }
    // SAFETY: the kernel has read the name: it is a C string in this process, and the caller keeps it during its call.
    let name = unsafe { CStr::from_ptr(path) }.to_bytes();
    let known = config();
    let is_candidate = if name.starts_with(b"/") { known.is_traced(name) } else { known.may_be_traced(name) };
    // A number whose close was not seen loses its mark.
    if is_candidate || fds::is_traced(fd) {
        own::work(|| record::open(start_ns, name, flags, result));
    }
    fd
}

/// Declares a function of the open family: handles its result and returns it.
macro_rules! opens {
    ($($symbol:ident = $real:ident($($before:ident: $ty:ty)?; $($mode:ident)?);)*) => {
        $(
            /// # Safety
            /// As libc's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $symbol(
                $($before: $ty,)? path: *const c_char, flags: c_int $(, $mode: mode_t)?
            ) -> c_int {
                let Some(call) = real::$real() else { return missing() };
                let start_ns = monotonic_ns();
                // SAFETY: the caller's arguments, as they came.
                let fd = unsafe { call($($before,)? path, flags $(, $mode)?) };
                // SAFETY: the path that the call has just had.
                unsafe { opened(start_ns, path, flags, fd) }
            }
        )*
    };
}

opens! {
    open = open(; mode);
    open64 = open64(; mode);
    openat = openat(dir: c_int; mode);
    openat64 = openat64(dir: c_int; mode);
    __open_2 = open_2(;);
    __open64_2 = open64_2(;);
    __openat_2 = openat_2(dir: c_int;);
    __openat64_2 = openat64_2(dir: c_int;);
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    let Some(call) = real::close() else { return missing() };
    if fds::ours(fd).is_some() && !own::is_inside() {
        own::set_errno(libc::EBADF);
        return -1;
    }
    let is_traced = fds::is_traced(fd) && !own::is_inside() && own::is_owner();
    if is_traced {
        // Before the call: after it, the number may already be another thread's.
        fds::set_traced(fd, false);
    }
    let start_ns = if is_traced { monotonic_ns() } else { 0 };
    // SAFETY: the caller's argument, as it came.
    let returned = unsafe { call(fd) };
    if is_traced {
        let result = outcome(returned);
        own::work(|| record::close(start_ns, fd, result));
    }
    returned
}

/// A number has become a copy of another.
fn copied(from: c_int, to: c_int) -> c_int {
    if to >= 0 && fds::is_traced(from) != fds::is_traced(to) {
        own::work(|| fds::set_traced(to, fds::is_traced(from)));
    }
    to
}

/// The program reuses a number of ours: our writing there ends.
fn given_up(fd: c_int, old: c_int) {
    if let Some(slot) = fds::ours(fd).filter(|_| fd != old && own::is_owner()) {
        slot.store(-1, Ordering::Relaxed);
    }
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup(fd: c_int) -> c_int {
    let Some(call) = real::dup() else { return missing() };
    // SAFETY: the caller's argument, as it came.
    copied(fd, unsafe { call(fd) })
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup2(fd: c_int, to: c_int) -> c_int {
    let Some(call) = real::dup2() else { return missing() };
    given_up(to, fd);
    // SAFETY: the caller's arguments, as they came.
    copied(fd, unsafe { call(fd, to) })
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    let Some(call) = real::dup3() else { return missing() };
    given_up(to, fd);
    // SAFETY: the caller's arguments, as they came.
    copied(fd, unsafe { call(fd, to, flags) })
}

/// Handles a fcntl that has returned.
fn controlled(fd: c_int, command: c_int, returned: c_int) -> c_int {
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) { copied(fd, returned) } else { returned }
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, arg: *mut c_void) -> c_int {
    let Some(call) = real::fcntl() else { return missing() };
    // SAFETY: the caller's arguments, as they came.
    controlled(fd, command, unsafe { call(fd, command, arg) })
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, arg: *mut c_void) -> c_int {
    let Some(call) = real::fcntl64() else { return missing() };
    // SAFETY: the caller's arguments, as they came.
    controlled(fd, command, unsafe { call(fd, command, arg) })
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ioctl(fd: c_int, request: c_ulong, arg: *mut c_void) -> c_int {
    let Some(call) = real::ioctl() else { return missing() };
    if !fds::is_traced(fd) {
        // SAFETY: the caller's arguments, as they came.
        return unsafe { call(fd, request, arg) };
    }
    // The kernel takes the request as 32 bits.
    let (word, at) = (request as u32, arg.expose_provenance() as u64);
    let before = own::work(|| record::before_ioctl(word, at));
    let start_ns = monotonic_ns();
    // SAFETY: the caller's arguments, as they came.
    let returned = unsafe { call(fd, request, arg) };
    let result = outcome(returned);
    if let Some(before) = before {
        own::work(|| record::ioctl(start_ns, (fd, word, at), before, result));
    }
    returned
}

/// Passes an mmap on and handles its result.
///
/// # Safety
/// As mmap's.
unsafe fn mapped(call: real::Mmap, addr: *mut c_void, asked: Asked) -> *mut c_void {
    let is_traced = asked.flags & libc::MAP_ANONYMOUS == 0 && fds::is_traced(asked.fd);
    let start_ns = if is_traced { monotonic_ns() } else { 0 };
    let (len, offset) = (asked.len_bytes as size_t, asked.offset.cast_signed());
    // SAFETY: the caller's arguments, as they came.
    let at = unsafe { call(addr, len, asked.prot, asked.flags, asked.fd, offset) };
    let is_done = at != libc::MAP_FAILED;
    if is_traced {
        let result = if is_done { Ok(at.expose_provenance() as u64) } else { Err(Errno(own::errno())) };
        own::work(|| record::mmap(start_ns, asked, result));
    } else if is_done && record::is_mapped() {
        own::work(|| record::forget(at.expose_provenance() as u64, asked.len_bytes));
    }
    at
}

/// Declares a function of the mmap family.
macro_rules! maps {
    ($($symbol:ident)*) => {
        $(
            /// # Safety
            /// As libc's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $symbol(
                addr: *mut c_void, len: size_t, prot: c_int, flags: c_int, fd: c_int, offset: off_t,
            ) -> *mut c_void {
                let Some(call) = real::$symbol() else {
                    missing();
                    return libc::MAP_FAILED;
                };
                let (at, len_bytes, offset) = (addr.expose_provenance() as u64, len as u64, offset.cast_unsigned());
                // SAFETY: the caller's arguments, as they came.
                unsafe { mapped(call, addr, Asked { addr: at, len_bytes, prot, flags, fd, offset }) }
            }
        )*
    };
}

maps! { mmap mmap64 }

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn munmap(addr: *mut c_void, len: size_t) -> c_int {
    let Some(call) = real::munmap() else { return missing() };
    let range = (addr.expose_provenance() as u64, len as u64);
    let taken = if record::is_mapped() { own::work(|| record::forget(range.0, range.1)) } else { None };
    let taken = taken.unwrap_or_default();
    let start_ns = if taken.is_empty() { 0 } else { monotonic_ns() };
    // SAFETY: the caller's arguments, as they came.
    let returned = unsafe { call(addr, len) };
    if !taken.is_empty() {
        let result = outcome(returned);
        own::work(|| record::munmap(start_ns, range, taken, result));
    }
    returned
}

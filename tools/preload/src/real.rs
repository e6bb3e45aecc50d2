//! libc's own functions, which ours override. Source: dlsym(3), RTLD_NEXT.

use crate::own;
use libc::{c_char, c_int, c_ulong, c_void, mode_t, off_t, size_t};
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

pub type Open = unsafe extern "C-unwind" fn(*const c_char, c_int, ...) -> c_int;
pub type OpenAt = unsafe extern "C-unwind" fn(c_int, *const c_char, c_int, ...) -> c_int;
pub type Open2 = unsafe extern "C-unwind" fn(*const c_char, c_int) -> c_int;
pub type OpenAt2 = unsafe extern "C-unwind" fn(c_int, *const c_char, c_int) -> c_int;
pub type OnFile = unsafe extern "C-unwind" fn(c_int) -> c_int;
pub type OnTwo = unsafe extern "C-unwind" fn(c_int, c_int) -> c_int;
pub type Dup3 = unsafe extern "C-unwind" fn(c_int, c_int, c_int) -> c_int;
pub type Fcntl = unsafe extern "C-unwind" fn(c_int, c_int, ...) -> c_int;
pub type Ioctl = unsafe extern "C-unwind" fn(c_int, c_ulong, ...) -> c_int;
pub type Mmap = unsafe extern "C-unwind" fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void;
pub type Munmap = unsafe extern "C-unwind" fn(*mut c_void, size_t) -> c_int;

/// Declares, for each name, a function that finds it; `None` when this libc lacks it.
macro_rules! real {
    ($($name:ident: $ty:ty = $symbol:literal;)*) => {
        $(pub fn $name() -> Option<$ty> {
            static AT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            let at = found(&AT, $symbol);
            // SAFETY: the address of libc's function of that name, whose C type is `$ty`; null is `None`.
            unsafe { std::mem::transmute::<*mut c_void, Option<$ty>>(at) }
        })*
    };
}

real! {
    open: Open = c"open";
    open64: Open = c"open64";
    openat: OpenAt = c"openat";
    openat64: OpenAt = c"openat64";
    open_2: Open2 = c"__open_2";
    open64_2: Open2 = c"__open64_2";
    openat_2: OpenAt2 = c"__openat_2";
    openat64_2: OpenAt2 = c"__openat64_2";
    close: OnFile = c"close";
    dup: OnFile = c"dup";
    dup2: OnTwo = c"dup2";
    dup3: Dup3 = c"dup3";
    fcntl: Fcntl = c"fcntl";
    fcntl64: Fcntl = c"fcntl64";
    ioctl: Ioctl = c"ioctl";
    mmap: Mmap = c"mmap";
    mmap64: Mmap = c"mmap64";
    munmap: Munmap = c"munmap";
}

fn found(at: &AtomicPtr<c_void>, symbol: &CStr) -> *mut c_void {
    // ORDER: the pointer is all there is to see; libc was there before.
    let known = at.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    let errno = own::errno();
    // SAFETY: the name is a C string; RTLD_NEXT searches the objects after this one.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, symbol.as_ptr()) };
    own::set_errno(errno);
    at.store(next, Ordering::Relaxed);
    next
}

/// Opens a file for a trace with libc's function, so that no line of ours is about it.
pub fn create(name: &CStr, flags: c_int, mode: mode_t) -> c_int {
    match open() {
        // SAFETY: the name is a C string; the third argument is open's mode.
        Some(call) => unsafe { call(name.as_ptr(), flags, mode) },
        None => -1,
    }
}

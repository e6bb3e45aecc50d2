//! What every function of the header needs: pointers from C as Rust values, results as a status, panics caught.
//!
//! The header says what a pointer must be; nothing else is assumed. A null pointer where one is needed is
//! `InvalidArgument`.

use crate::status::{Failure, Status};
use std::cell::RefCell;
use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

/// Bytes of the text in `doorbell_error`.
const TEXT_BYTES: usize = 488;

/// `doorbell_error`.
#[repr(C)]
pub(crate) struct Error {
    struct_size: u32,
    status: i32,
    driver_code: i64,
    text: [c_char; TEXT_BYTES],
}

const _: () = assert!(std::mem::size_of::<Error>() == 504);

/// The result of a function's body.
pub(crate) type Done = Result<(), Failure>;

thread_local! {
    /// Where this thread's last panic was, and what it said.
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
    /// Whether this thread is inside a function of the header.
    static INSIDE: RefCell<bool> = const { RefCell::new(false) };
}

/// Panics inside the library go to the caller as a text, not to standard error.
fn hush() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let former = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if INSIDE.with_borrow(|inside| *inside) {
                PANIC.with_borrow_mut(|text| *text = info.to_string());
            } else {
                former(info);
            }
        }));
    });
}

/// Runs the body of a function of the header: what it returns goes to `error`, and is the status.
pub(crate) fn enter(error: *mut Error, body: impl FnOnce() -> Done) -> i32 {
    hush();
    let before = INSIDE.with_borrow_mut(|inside| std::mem::replace(inside, true));
    let done = catch_unwind(AssertUnwindSafe(body));
    INSIDE.with_borrow_mut(|inside| *inside = before);
    let failure = match done {
        Ok(Ok(())) => return Status::Ok as i32,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::new(Status::Internal, PANIC.with_borrow_mut(std::mem::take)),
    };
    report(error, &failure);
    failure.status as i32
}

/// Fills the caller's error, as much of it as it has.
fn report(error: *mut Error, failure: &Failure) {
    if error.is_null() {
        return;
    }
    // SAFETY: the header says that `error` is null or a `doorbell_error` of the size that its first field says.
    let size = unsafe { (&raw const (*error).struct_size).read() } as usize;
    if size < std::mem::size_of::<Error>() {
        return;
    }
    let mut text = [0; TEXT_BYTES];
    let mut len = failure.text.len().min(TEXT_BYTES - 1);
    while !failure.text.is_char_boundary(len) {
        len -= 1;
    }
    let bytes = failure.text.bytes().take(len).map(|b| if b == 0 { b' ' } else { b }.cast_signed());
    text.iter_mut().zip(bytes).for_each(|(to, b)| *to = b as c_char);
    let filled =
        Error { struct_size: size as u32, status: failure.status as i32, driver_code: failure.driver_code, text };
    // SAFETY: as above; it has room for all fields.
    unsafe { error.write(filled) };
}

fn missing(what: &str) -> Failure {
    Failure::new(Status::InvalidArgument, format!("{what} is a null pointer"))
}

/// A text of the caller's.
pub(crate) fn text<'a>(what: &str, at: *const c_char) -> Result<&'a str, Failure> {
    if at.is_null() {
        return Err(missing(what));
    }
    // SAFETY: the header says that texts end with a zero and stay as they are during the call.
    let text = unsafe { CStr::from_ptr(at) };
    text.to_str().map_err(|_| Failure::new(Status::InvalidArgument, format!("{what} is not UTF-8")))
}

/// Something that one of the functions has given out, or a struct of the caller's that is read.
pub(crate) fn shared<'a, T>(what: &str, at: *const T) -> Result<&'a T, Failure> {
    // SAFETY: the header says that handles come from this library and are closed once, after the last call that uses
    // them, and that structs are whole; both stay during the call. What threads may share is behind a lock.
    unsafe { at.as_ref() }.ok_or_else(|| missing(what))
}

/// Where a result goes: handles, numbers, structs.
pub(crate) fn put<T>(what: &str, to: *mut T, value: T) -> Done {
    if to.is_null() {
        return Err(missing(what));
    }
    // SAFETY: the header says that results are written to memory of that type.
    unsafe { to.write(value) };
    Ok(())
}

/// Gives a value to the caller, who closes it.
pub(crate) fn give<T>(what: &str, to: *mut *mut T, make: impl FnOnce() -> Result<T, Failure>) -> Done {
    put(what, to, std::ptr::null_mut())?;
    let value = Box::into_raw(Box::new(make()?));
    put(what, to, value)
}

/// Takes a value back. Null is allowed.
pub(crate) fn take<T>(at: *mut T) {
    if !at.is_null() {
        // SAFETY: the header says that a handle is closed once; it came from `give`.
        drop(unsafe { Box::from_raw(at) });
    }
}

/// Bytes of the caller's.
pub(crate) fn bytes<'a>(what: &str, at: *const u8, len: usize) -> Result<&'a [u8], Failure> {
    match (at.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(missing(what)),
        // SAFETY: the header says that there are `len` bytes, which stay as they are during the call.
        _ => Ok(unsafe { std::slice::from_raw_parts(at, len) }),
    }
}

/// Bytes of the caller's to be written.
pub(crate) fn bytes_mut<'a>(what: &str, at: *mut u8, len: usize) -> Result<&'a mut [u8], Failure> {
    match (at.is_null(), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(missing(what)),
        // SAFETY: the header says that there is room for `len` bytes, which nobody else uses during the call.
        _ => Ok(unsafe { std::slice::from_raw_parts_mut(at, len) }),
    }
}

/// Memory of the caller's that stays with the library after the call.
pub(crate) fn view(
    what: &str,
    at: *const u8,
    len: usize,
    writable: bool,
) -> Result<doorbell_hcq::memory::View, Failure> {
    if at.is_null() {
        return Err(missing(what));
    }
    let base = doorbell_ioctl::port::CpuPtr(at.expose_provenance() as u64);
    // SAFETY: the header says how long the caller leaves that memory there, and that it may be written if `writable`.
    Ok(unsafe { doorbell_hcq::memory::View::borrowed(base, len as u64, writable) })
}

/// Writes a text with its final zero into the caller's buffer, as much as fits; the length that it needs to `needed`.
pub(crate) fn put_text(text: &str, to: *mut c_char, len: usize, needed: *mut usize) -> Done {
    if !needed.is_null() {
        put("needed", needed, text.len() + 1)?;
    }
    if len == 0 {
        return Ok(());
    }
    let out = bytes_mut("the buffer", to.cast(), len)?;
    let cut = text.len().min(len - 1);
    out.iter_mut().zip(text.bytes().take(cut).chain([0])).for_each(|(to, b)| *to = b);
    Ok(())
}

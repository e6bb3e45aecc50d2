//! Messages beside those of the runtime's own device, by the same table of functions.
//!
//! A message can only be sent with the selector and the types of a row of the device's list, which the step `abi`
//! compares with the system's own; anything else panics before it is sent.

use doorbell::device::metal::messages::ROWS;
use doorbell_ioctl::port::objc::{Functions, Id, Objc, Sel};
use std::ffi::{CString, c_void};

/// A type in the encoding of a message.
pub trait Code {
    const CODE: &'static str;
}

macro_rules! codes {
    ($($t:ty => $code:literal,)*) => { $(
        impl Code for $t {
            const CODE: &'static str = $code;
        }
    )* };
}

codes! {
    () => "v",
    u64 => "Q",
    i64 => "q",
    Bool => "B",
    f64 => "d",
    Id => "@",
    *mut Id => "^@",
    *mut u8 => "^v",
    *const u8 => "r^v",
    *const i8 => "r*",
    Size => "{?=QQQ}",
}

/// `MTLSize`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Size(pub [u64; 3]);

/// `BOOL`: one byte.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Bool(pub u8);

impl Bool {
    pub fn is_yes(self) -> bool {
        self.0 != 0
    }
}

/// The functions of one Metal.
#[derive(Clone, Copy, Debug)]
pub struct Raw(Functions);

/// Sends a message: receiver, selector, arguments with their types, type of the result.
macro_rules! send {
    ($raw:expr, $to:expr, $name:literal $(, $arg:expr => $t:ty)*; $r:ty) => {{
        use $crate::objc::Code;
        let (entry, selector) = $raw.entry($name, &[<$r>::CODE, "@:" $(, <$t>::CODE)*]);
        // SAFETY: the types are those of the list's row, as `entry` has checked, and the caller keeps the arguments
        // alive until the message has returned.
        unsafe {
            let entry = std::mem::transmute::<
                unsafe extern "C" fn(),
                unsafe extern "C" fn(doorbell_ioctl::port::objc::Id, doorbell_ioctl::port::objc::Sel $(, $t)*) -> $r,
            >(entry);
            entry($to, selector $(, $arg)*)
        }
    }};
}
pub(crate) use send;

impl Raw {
    pub fn new(objc: Objc) -> Self {
        Self(*objc.functions())
    }

    /// The entry of messages, for a message of the list.
    ///
    /// # Panics
    /// The list has no message of that name with these types.
    pub fn entry(&self, name: &str, codes: &[&str]) -> (unsafe extern "C" fn(), Sel) {
        let codes = codes.concat();
        let is_known = ROWS.iter().any(|row| row.selector == name && row.encoding() == codes);
        assert!(is_known, "the list of messages has no {name} of type {codes}");
        (self.0.msg_send, self.selector(name))
    }

    /// What is at the start of a shared buffer of at least four bytes.
    pub fn first_float(&self, buffer: Id) -> f32 {
        let at = send!(self, buffer, "contents"; *mut u8).cast::<f32>();
        // SAFETY: a living buffer's memory; a command buffer that writes to it has ended or never will.
        unsafe { at.read_volatile() }
    }

    pub fn selector(&self, name: &str) -> Sel {
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: the name is a C string.
        unsafe { (self.0.sel_register_name)(name.as_ptr()) }
    }

    pub fn class(&self, name: &str) -> Id {
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: the name is a C string.
        unsafe { (self.0.get_class)(name.as_ptr()) }
    }

    /// The default device, which the caller owns.
    pub fn create_device(&self) -> Id {
        // SAFETY: it has no arguments.
        unsafe { (self.0.create_system_default_device)() }
    }

    /// Runs `f` in an autorelease pool.
    pub fn pool<R>(&self, f: impl FnOnce() -> R) -> R {
        /// Ends the pool also when `f` panics.
        struct Pool(Functions, *mut c_void);
        impl Drop for Pool {
            fn drop(&mut self) {
                // SAFETY: the pool was begun on this thread, and pools begun later have ended.
                unsafe { (self.0.pool_pop)(self.1) };
            }
        }
        // SAFETY: the guard ends the pool.
        let _pool = Pool(self.0, unsafe { (self.0.pool_push)() });
        f()
    }

    /// Takes a reference away that the caller owns.
    pub fn release(&self, all: &[Id]) {
        let selector = self.selector("release");
        for id in all.iter().filter(|id| !id.is_nil()) {
            // SAFETY: every object answers `release`, which has no arguments and no result.
            unsafe {
                let entry =
                    std::mem::transmute::<unsafe extern "C" fn(), unsafe extern "C" fn(Id, Sel)>(self.0.msg_send);
                entry(*id, selector);
            }
        }
    }

    /// A string of the pool.
    pub fn string(&self, text: &str) -> Id {
        let text = CString::new(text).unwrap_or_default();
        send!(self, self.class("NSString"), "stringWithUTF8String:", text.as_ptr().cast() => *const i8; Id)
    }

    /// What a string holds; empty for nil.
    pub fn text(&self, string: Id) -> String {
        let at = send!(self, string, "UTF8String"; *const i8);
        if at.is_null() {
            return String::new();
        }
        // SAFETY: a C string that lives as long as the string.
        unsafe { std::ffi::CStr::from_ptr(at.cast()) }.to_string_lossy().into_owned()
    }

    /// An error's domain, code and text; `None` for nil.
    pub fn error(&self, error: Id) -> Option<(String, i64, String)> {
        if error.is_nil() {
            return None;
        }
        let domain = self.text(send!(self, error, "domain"; Id));
        let code = send!(self, error, "code"; i64);
        Some((domain, code, self.text(send!(self, error, "localizedDescription"; Id))))
    }
}

/// The types of an object's method as the system's runtime has them; `None` where the object has no such method.
#[cfg(target_os = "macos")]
pub fn encoding_of(object: Id, selector: Sel) -> Option<String> {
    #[link(name = "objc")]
    unsafe extern "C" {
        fn object_getClass(object: Id) -> Id;
        fn class_getInstanceMethod(class: Id, selector: Sel) -> *const c_void;
        fn method_getTypeEncoding(method: *const c_void) -> *const std::ffi::c_char;
    }
    // SAFETY: the object is alive; for a class, its class is that of the class's own methods.
    let method = unsafe { class_getInstanceMethod(object_getClass(object), selector) };
    if method.is_null() {
        return None;
    }
    // SAFETY: the method exists, and its types live as long as the process.
    let text = unsafe { std::ffi::CStr::from_ptr(method_getTypeEncoding(method)) };
    Some(text.to_string_lossy().into_owned())
}

/// The host's clock that the GPU's times are on, in nanoseconds.
pub fn clock() -> u64 {
    #[cfg(target_os = "macos")]
    let id = libc::CLOCK_UPTIME_RAW;
    #[cfg(not(target_os = "macos"))]
    let id = libc::CLOCK_MONOTONIC;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists, and the struct is written to.
    unsafe { libc::clock_gettime(id, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

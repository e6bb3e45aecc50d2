//! The Objective-C runtime and Metal's functions as one table: the system's on a Mac, a stand-in's elsewhere.
//!
//! Messages are no system calls, but they are to Metal what those are to other drivers: the only way to the GPU, and
//! the place where a stand-in is put.

use super::DeviceView;
use crate::abi::{Message, Value};
use std::ffi::{c_char, c_void};
use std::fmt::Debug;
use std::sync::Weak;

/// A pointer to an object, or nil. Only ever given back to the runtime that it came from.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id(pub *mut c_void);

impl Id {
    /// No object.
    pub const NIL: Id = Id(std::ptr::null_mut());

    /// Whether it is nil.
    #[must_use]
    pub fn is_nil(self) -> bool {
        self.0.is_null()
    }

    /// Its number in traces.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0.expose_provenance() as u64
    }

    /// The object of that number.
    #[must_use]
    pub fn of_number(number: u64) -> Id {
        Id(std::ptr::with_exposed_provenance_mut(usize::try_from(number).unwrap_or(0)))
    }
}

/// A selector.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sel(pub *const c_void);

/// The functions, with the types that Apple's headers give them.
#[derive(Clone, Copy, Debug)]
pub struct Functions {
    /// `objc_msgSend`, which has no type of its own: it is called as a function of the message's type.
    pub msg_send: unsafe extern "C" fn(),
    /// `sel_registerName`.
    pub sel_register_name: unsafe extern "C" fn(*const c_char) -> Sel,
    /// `objc_getClass`: nil for a class of a framework that is not loaded.
    pub get_class: unsafe extern "C" fn(*const c_char) -> Id,
    /// `objc_autoreleasePoolPush`.
    pub pool_push: unsafe extern "C" fn() -> *mut c_void,
    /// `objc_autoreleasePoolPop`.
    pub pool_pop: unsafe extern "C" fn(*mut c_void),
    /// `MTLCreateSystemDefaultDevice`: the caller owns the device.
    pub create_system_default_device: unsafe extern "C" fn() -> Id,
    /// `MTLCopyAllDevices`: the caller owns the list.
    pub copy_all_devices: unsafe extern "C" fn() -> Id,
}

/// What came of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    /// The result.
    pub value: Value,
    /// It was not sent: a tap answered.
    pub is_instead: bool,
}

impl Passed {
    /// The runtime's own answer.
    #[must_use]
    pub fn sent(value: Value) -> Self {
        Self { value, is_instead: false }
    }

    /// An answer in its place.
    #[must_use]
    pub fn instead(value: Value) -> Self {
        Self { value, is_instead: true }
    }
}

/// Sends a message, and renews those of its arguments that are places for results.
pub type Send<'a> = dyn FnMut(&mut Message) -> Value + 'a;

/// Sees every message that a device sends: a trace, a recording, injected faults. As ports wrap ports, taps wrap taps.
pub trait Tap: std::marker::Send + Sync + Debug {
    /// Passes a message on by `send`, or answers in its place; the arguments cannot be changed, except places for
    /// errors.
    fn pass(&self, message: &mut Message, send: &mut Send<'_>) -> Passed;

    /// A buffer and the memory that host and GPU share through it. The device forgets it before it releases the buffer.
    fn shares(&self, _buffer: u64, _memory: &Weak<DeviceView>) {}

    /// The buffer is about to be released.
    fn frees(&self, _buffer: u64) {}
}

/// A tap around another.
#[derive(Debug)]
struct Nested {
    outer: &'static dyn Tap,
    inner: &'static dyn Tap,
}

impl Tap for Nested {
    fn pass(&self, message: &mut Message, send: &mut Send<'_>) -> Passed {
        let mut is_instead = false;
        let passed = self.outer.pass(message, &mut |message| {
            let passed = self.inner.pass(message, send);
            is_instead = passed.is_instead;
            passed.value
        });
        Passed { is_instead: passed.is_instead || is_instead, ..passed }
    }

    fn shares(&self, buffer: u64, memory: &Weak<DeviceView>) {
        self.outer.shares(buffer, memory);
        self.inner.shares(buffer, memory);
    }

    fn frees(&self, buffer: u64) {
        self.outer.frees(buffer);
        self.inner.frees(buffer);
    }
}

/// A table of functions that behave as the system's do, and what sees the messages.
#[derive(Clone, Copy, Debug)]
pub struct Objc {
    functions: Functions,
    tap: Option<&'static dyn Tap>,
}

impl Objc {
    /// A stand-in's table.
    ///
    /// # Safety
    /// The functions behave as the system's do.
    #[must_use]
    pub unsafe fn new(functions: Functions) -> Objc {
        Objc { functions, tap: None }
    }

    /// The table with a tap around those that it has. Taps live as long as the process, as runtimes do.
    #[must_use]
    pub fn tapped(self, outer: Box<dyn Tap>) -> Objc {
        let outer: &'static dyn Tap = Box::leak(outer);
        let tap = match self.tap {
            Some(inner) => Box::leak(Box::new(Nested { outer, inner })),
            None => outer,
        };
        Objc { tap: Some(tap), ..self }
    }

    /// A new error without user info, left to the pool of the calling thread; nil without Foundation.
    #[must_use]
    pub fn error(&self, domain: &std::ffi::CStr, code: i64) -> Id {
        let Functions { msg_send, sel_register_name, get_class, .. } = self.functions;
        // SAFETY: the names are C strings.
        let class = |name: &std::ffi::CStr| unsafe { get_class(name.as_ptr()) };
        // SAFETY: as above.
        let selector = |name: &std::ffi::CStr| unsafe { sel_register_name(name.as_ptr()) };
        // SAFETY: a message is sent by a function of its own type: receiver, selector, a C string.
        let of_text: unsafe extern "C" fn(Id, Sel, *const c_char) -> Id = unsafe { std::mem::transmute(msg_send) };
        // SAFETY: as above: a string, an integer, an object.
        let of_code: unsafe extern "C" fn(Id, Sel, Id, i64, Id) -> Id = unsafe { std::mem::transmute(msg_send) };
        // SAFETY: the class answers it, or is nil, which answers nil.
        let domain = unsafe { of_text(class(c"NSString"), selector(c"stringWithUTF8String:"), domain.as_ptr()) };
        // SAFETY: as above.
        unsafe { of_code(class(c"NSError"), selector(c"errorWithDomain:code:userInfo:"), domain, code, Id::NIL) }
    }

    /// What sees the messages.
    #[must_use]
    pub fn tap(&self) -> Option<&'static dyn Tap> {
        self.tap
    }

    /// The functions.
    #[must_use]
    pub fn functions(&self) -> &Functions {
        &self.functions
    }

    /// The system's, on a Mac.
    #[must_use]
    pub fn system() -> Option<Objc> {
        #[cfg(target_os = "macos")]
        return Some(system::TABLE);
        #[cfg(not(target_os = "macos"))]
        None
    }
}

#[cfg(target_os = "macos")]
mod system {
    use super::{Functions, Id, Objc, Sel};
    use std::ffi::{c_char, c_void};

    pub(crate) const TABLE: Objc = Objc {
        tap: None,
        functions: Functions {
            msg_send: objc_msgSend,
            sel_register_name: sel_registerName,
            get_class: objc_getClass,
            pool_push: objc_autoreleasePoolPush,
            pool_pop: objc_autoreleasePoolPop,
            create_system_default_device: MTLCreateSystemDefaultDevice,
            copy_all_devices: MTLCopyAllDevices,
        },
    };

    #[link(name = "objc")]
    unsafe extern "C" {
        fn objc_msgSend();
        fn sel_registerName(name: *const c_char) -> Sel;
        fn objc_getClass(name: *const c_char) -> Id;
        fn objc_autoreleasePoolPush() -> *mut c_void;
        fn objc_autoreleasePoolPop(pool: *mut c_void);
    }

    #[link(name = "Metal", kind = "framework")]
    unsafe extern "C" {
        fn MTLCreateSystemDefaultDevice() -> Id;
        fn MTLCopyAllDevices() -> Id;
    }

    // NSString and NSError.
    #[link(name = "Foundation", kind = "framework")]
    unsafe extern "C" {}

    // Without it a program of the command line may get no default device.
    #[link(name = "CoreGraphics", kind = "framework")]
    unsafe extern "C" {}
}

//! The Objective-C runtime and Metal's functions as one table: the system's on a Mac, a stand-in's elsewhere.
//!
//! Messages are no system calls, but they are to Metal what those are to other drivers: the only way to the GPU, and the
//! place where a stand-in is put.

use std::ffi::{c_char, c_void};

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

/// A table of functions that behave as the system's do.
#[derive(Clone, Copy, Debug)]
pub struct Objc(Functions);

impl Objc {
    /// A stand-in's table.
    ///
    /// # Safety
    /// The functions behave as the system's do.
    #[must_use]
    pub unsafe fn new(functions: Functions) -> Objc {
        Objc(functions)
    }

    /// The functions.
    #[must_use]
    pub fn functions(&self) -> &Functions {
        &self.0
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

    pub const TABLE: Objc = Objc(Functions {
        msg_send: objc_msgSend,
        sel_register_name: sel_registerName,
        get_class: objc_getClass,
        pool_push: objc_autoreleasePoolPush,
        pool_pop: objc_autoreleasePoolPop,
        create_system_default_device: MTLCreateSystemDefaultDevice,
        copy_all_devices: MTLCopyAllDevices,
    });

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

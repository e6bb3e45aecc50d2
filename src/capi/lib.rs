#![doc = include_str!("README.md")]
#![warn(unreachable_pub)]
//!
//! Layer: above `runtime` (and, with the feature `compiler`, above the library). A function of the header is a function
//! here, in the file of its topic; `door` has what all of them need: pointers from C, the status of a result, panics.

mod allocator;
mod device;
mod door;
mod log;
mod package;
mod program;
mod status;
#[cfg(feature = "compiler")]
mod tensor;

/// The library's version, as in `Cargo.toml`.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_version() -> *const std::ffi::c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Counts changes of the header that callers have to know of.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_abi_version() -> u32 {
    1
}

//! Software GPUs: drivers that implement the system-call interface and execute the packets and the machine code that a
//! real chip would get, so that everything above runs and is tested without one.
//!
//! The units that execute machine code are a crate of their own (`doorbell-emu-units`), as is Metal, which has a
//! framework in the place of system calls.
//!
//! Place in the arrows: `emu` uses `ioctl`, of `hcq` packets and bit fields, and of `isa` the table of SASS; no other
//! room but `engine` knows that it exists.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

#[cfg(all(target_os = "linux", any(feature = "amd", feature = "nv")))]
mod forked;
#[cfg(all(target_os = "linux", feature = "amd"))]
pub mod kfd;
#[cfg(feature = "metal")]
pub use doorbell_emu_metal as metal;
#[cfg(feature = "amd")]
pub use doorbell_emu_units::amdgpu;
#[cfg(feature = "nv")]
pub use doorbell_emu_units::sass;
#[cfg(any(feature = "amd", feature = "nv"))]
pub use doorbell_emu_units::translate;
#[cfg(all(target_os = "linux", feature = "nv"))]
pub mod nvrm;
#[cfg(all(target_os = "linux", any(feature = "amd", feature = "nv")))]
mod pauses;
#[cfg(all(target_os = "linux", any(feature = "amd", feature = "nv")))]
mod stores;
#[cfg(target_os = "linux")]
pub mod vm;

#[cfg(doctest)]
#[doc = include_str!("README.md")]
struct Readme;

//! Units that execute the machine code of GPUs on the host, without a driver: AMD's compute units, NVIDIA's
//! multiprocessors, and the translation of what runs often to code of the host.
//!
//! A crate of its own, as it is what a software GPU spends its time in: `cargo run --release` optimises it, and the
//! drivers around it only in what is shipped.
//!
//! Place in the arrows: part of `emu`. It uses of `ioctl` the views of memory, `uop`, and of `isa` the table of SASS.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

#[cfg(feature = "amd")]
pub mod amdgpu;
#[cfg(feature = "nv")]
pub mod sass;
#[cfg(any(feature = "amd", feature = "nv"))]
pub mod translate;

#[cfg(doctest)]
#[doc = include_str!("README.md")]
struct Readme;

//! Kernel interfaces as data (`abi`), the module that makes the system calls (`port`), and its wrappers: traces of
//! calls (`trace`), fault injection (`fault`), and replay of recorded runs (`replay`).
//!
//! Layer: `ioctl` knows nothing of the rooms above; `device`, `hcq` and `emu` use it.
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod abi;
pub mod fault;
pub mod port;
pub mod replay;
pub mod trace;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

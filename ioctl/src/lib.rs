//! Kernel interfaces as data (`abi`), the only place that makes system calls (`port`), and traces of what passes it (`trace`).
//!
//! Place in the arrows: `ioctl` knows nothing of the rooms above; `device`, `hcq` and `emu` sit on it.
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

pub mod abi;
pub mod port;
#[cfg(target_os = "linux")]
pub mod trace;

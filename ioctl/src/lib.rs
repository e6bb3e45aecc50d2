//! Kernel interfaces as data (`abi`) and the only place that makes system calls (`port`).
//!
//! Place in the arrows: `ioctl` knows nothing of the rooms above; `device`, `hcq` and `emu` sit on it.
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

pub mod abi;
pub mod port;

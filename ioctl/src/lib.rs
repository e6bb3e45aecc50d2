//! Kernel interfaces as data (`abi`, with its devices) and the only place that makes system calls (`port`).
//!
//! Place in the arrows: `ioctl` knows nothing of the rooms above; `device` and `hcq` sit on it.
//! `port` holds the memory mappings that the CPU and disk devices need. Driver interfaces (`abi`) come with their devices.
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

pub mod port;

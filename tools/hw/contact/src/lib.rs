//! Shared code of the programs for the first hours with a real card, for all vendors: reports of failures, the trace of
//! all calls in memory and in a file, planned faults by name, and parts of a rung that run in a process of their own.
//!
//! Place: outside the library, below `amd-first-contact`, `nv-first-contact` and `nv-check`.
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

mod apart;
mod failure;
mod part;
mod watch;

pub use apart::{Ended, run_until};
pub use doorbell_ioctl::fault::{Spec, port_plan};
pub use failure::{Failure, Refused, fail};
pub use part::Part;
pub use watch::Watched;

//! Shared code of the programs for the first hours with a real card, for all vendors: reports of failures, the trace of
//! all calls in memory and in a file, planned faults by name, and parts of a rung that run in a process of their own.
//!
//! Place: outside the library, below `amd-first-contact`, `nv-first-contact`, `nv-check` and
//! `metal-first-contact`.
#![forbid(unsafe_code)]

mod apart;
mod failure;
mod part;
#[cfg(target_os = "linux")]
mod refused;
#[cfg(target_os = "linux")]
mod watch;

pub use apart::{Ended, run_until};
#[cfg(target_os = "linux")]
pub use doorbell_ioctl::fault::{Spec, port_plan};
pub use failure::{Failure, fail};
pub use part::Part;
#[cfg(target_os = "linux")]
pub use refused::Refused;
#[cfg(target_os = "linux")]
pub use watch::Watched;

//! Fault injection: a port that fails, delays or corrupts chosen calls of another, from a list or from a seed.
//!
//! Layer: wraps any [`Port`](crate::port::Port); tests of drivers put it between the device and a
//! software GPU or the kernel. `plan` (what goes wrong and when, as values; `spec` reads one from
//! text) → `wrap` (the port that injects it). Left
//! out: mappings shorter than requested: a port guarantees the length of what it maps (safe code reads it), so a
//! mapping that does not fit is `ENOMEM`, as in mmap(2); faults inside the device, which the software GPU injects.
#![forbid(unsafe_code)]

mod plan;
mod spec;
mod wrap;

pub use plan::{Call, Fault, Plan, Trouble};
pub use spec::{Spec, port_plan};
pub use wrap::{Faults, Injected};

//! Fault injection: a port that fails, delays or corrupts chosen calls of another, from a list or from a seed.
//!
//! Layer: wraps any [`Port`](crate::port::Port); tests of drivers put it between the device and a
//! software GPU or the kernel. `plan` (what goes wrong and when, as values; `spec` reads one from
//! text) → `wrap` (the port that injects it). Left
//! out: mappings shorter than requested: a port guarantees the length of what it maps (safe code reads it), so a
//! mapping that does not fit is `ENOMEM`, as in mmap(2); faults inside the device, which the software GPU injects.
//! `messages` does the same to the Objective-C messages that Metal is reached by.
#![forbid(unsafe_code)]

#[cfg(feature = "metal")]
mod messages;
mod plan;
mod spec;
#[cfg(target_os = "linux")]
mod wrap;

#[cfg(feature = "metal")]
pub use messages::{MessageFault, MessageFaults, MessageTrouble, message_fault};
pub use plan::{Call, Fault, Plan, Trouble};
pub use spec::{Spec, port_plan};
#[cfg(target_os = "linux")]
pub use wrap::{Faults, Injected};

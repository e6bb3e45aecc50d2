//! Recorded runs, replayed against another port: another software GPU, or the kernel.
//!
//! Layer: reads what [`Trace::recording`](crate::trace::Trace::recording) wrote, drives any
//! [`Port`](crate::port::Port). `translate` (recorded names and addresses → the new run's) → `player` (the calls, the
//! memory and the doorbells in their order, and the differences); `rings` and `channels` read from a recording the
//! packets of each doorbell.
//!
//! Each mapping is requested at its recorded address; where that is not free, addresses in structs and in recorded
//! memory are translated: in memory, two neighbouring 32-bit words that form an address in a moved mapping, or one
//! shifted right by eight, as packets hold them. An NVIDIA recording is replayed at its own addresses only: in methods
//! and QMDs an address cannot be distinguished from other words. A mapping at another address is reported as a
//! difference then. Objective-C messages are replayed by the device that
//! sends them (`device::metal::replay`), with this module's options and report. Left out: the time between calls; a
//! process's reads of memory (the player waits until a queue has caught up before the next call); memory that only the
//! device accesses, which the replayed packets fill again.
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod channels;
#[cfg(target_os = "linux")]
mod memory;
#[cfg(target_os = "linux")]
mod player;
mod report;
#[cfg(target_os = "linux")]
mod rings;
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
mod translate;

#[cfg(target_os = "linux")]
pub use memory::Memory;
#[cfg(target_os = "linux")]
pub use player::replay;
pub use report::{Difference, ReplayOptions, Report};
#[cfg(target_os = "linux")]
pub use rings::{Submission, each_submission, submissions};

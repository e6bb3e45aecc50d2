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
//! difference then. Left out: the time between calls; a process's reads of memory (the player waits until a queue has
//! caught up before the next call); memory that only the device accesses, which the replayed packets fill again.
#![forbid(unsafe_code)]

mod channels;
mod memory;
mod player;
mod rings;
mod translate;

pub use memory::Memory;
pub use player::{Difference, ReplayOptions, Report, replay};
pub use rings::{Submission, each_submission, submissions};

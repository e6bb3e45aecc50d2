//! Recorded runs, played again against another port: another software GPU, or the kernel.
//!
//! Place in the arrows: reads what [`Trace::recording`](crate::trace::Trace::recording) wrote, drives any [`Port`](crate::port::Port).
//! `translate` (recorded names and addresses → today's) → `player` (the calls, the memory and the doorbells in their order, and what came
//! out differently) ; `rings` and `channels` read from a recording the packets that each doorbell handed over.
//!
//! Each mapping is asked for at its recorded address; where that is taken, addresses in structs and in recorded memory are translated: in
//! memory, two neighbouring 32-bit words that form an address in a moved mapping, or one shifted right by eight, as packets hold them.
//! An NVIDIA recording is played at its own addresses only: methods and QMDs hold addresses in ways that cannot be told from other words. A mapping
//! that lies elsewhere is a difference then.
//! Left out: the time between calls; a process's reads of memory (a queue has caught up before the next call instead); memory that only
//! the device sees, which the played packets fill again.
#![forbid(unsafe_code)]

mod channels;
mod memory;
mod player;
mod rings;
mod translate;

pub use player::{Difference, ReplayOptions, Report, replay};
pub use rings::{Submission, submissions};

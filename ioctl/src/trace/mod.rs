//! Traces of what passes a port: as text with named fields, as a binary file, and as a list in memory that tests check
//! for leaks.
//!
//! Layer: wraps any [`Port`](crate::port::Port); `abi` decodes. Off, it costs one atomic load a call.
//! `event` (the record of a call) → `file` (its bytes, versioned) → `text` (its line); `wrap` is the port, `audit`
//! finds what was not freed. A trace holds the calls; one that records also holds the memory that both sides see
//! (`memory`), so that it can be replayed. `messages` is the same for the Objective-C messages that Metal is reached
//! by. Left out: memory of the device that is not mapped into the process.
#![forbid(unsafe_code)]

mod audit;
#[cfg(any(target_os = "linux", feature = "metal"))]
mod clock;
mod event;
mod file;
#[cfg(target_os = "linux")]
mod memory;
#[cfg(feature = "metal")]
mod messages;
#[cfg(any(target_os = "linux", feature = "metal"))]
mod runs;
mod sink;
mod text;
#[cfg(target_os = "linux")]
mod wrap;

pub use audit::leftovers;
#[cfg(any(target_os = "linux", feature = "metal"))]
use clock::Clock;
pub use event::{Event, IoctlEvent, MessageEvent, Moment, What};
pub use file::{FileSink, MAGIC, TraceError, VERSION, read_trace};
#[cfg(target_os = "linux")]
pub(crate) use memory::Registers;
#[cfg(feature = "metal")]
pub use messages::MessageTrace;
pub use sink::{Log, Sink};
pub use text::TextSink;
#[cfg(target_os = "linux")]
pub use wrap::{Trace, pointed_memory};

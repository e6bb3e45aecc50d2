//! Traces of what passes a port: as text with named fields, as a binary file, and as a list in memory that tests check
//! for leaks.
//!
//! Layer: wraps any [`Port`](crate::port::Port); `abi` decodes. Off, it costs one atomic load a call.
//! `event` (the record of a call) → `file` (its bytes, versioned) → `text` (its line); `wrap` is the port, `audit`
//! finds what was not freed. A trace holds the calls; one that records also holds the memory that both sides see
//! (`memory`), so that it can be replayed. Left out: memory of the device that is not mapped into the process.
#![forbid(unsafe_code)]

mod audit;
mod event;
mod file;
mod memory;
mod text;
mod wrap;

pub use audit::leftovers;
pub use event::{Event, IoctlEvent, Moment, What};
pub use file::{FileSink, MAGIC, TraceError, VERSION, read_trace};
pub(crate) use memory::Registers;
pub use text::TextSink;
pub use wrap::{Log, Sink, Trace, pointed_memory};

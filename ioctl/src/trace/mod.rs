//! Traces of what passes a port: as text with named fields, as a binary file, and as a list in memory that tests ask for leaks.
//!
//! Place in the arrows: wraps any [`Port`](crate::port::Port); `abi` decodes. Off, it costs one atomic load a call.
//! `event` (what is kept of a call) → `file` (its bytes, versioned) → `text` (its line); `wrap` is the port, `audit` finds what was not given back.
//! Left out: the memory that a device reads and writes by itself (rings, signals); only what the driver was told is here.
#![forbid(unsafe_code)]

mod audit;
mod event;
mod file;
mod text;
mod wrap;

pub use audit::leftovers;
pub use event::{Event, IoctlEvent, Moment, What};
pub use file::{FileSink, MAGIC, TraceError, VERSION, read_trace};
pub use text::TextSink;
pub use wrap::{Log, Sink, Trace};

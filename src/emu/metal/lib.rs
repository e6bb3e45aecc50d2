#![doc = include_str!("README.md")]
//!
//! Place in the arrows: part of `emu`; uses `emu::msl` and nothing else of the workspace. `send` is the entry of
//! messages, `object` what an object is, `machine` whose objects they are and what went wrong with them; the other
//! files are classes. An object's pointer is a number that is never used again, so a message to a dead object, or to
//! something that is none, is always found out.
//!
//! `unsafe` is here for three reasons: the entry of messages is a few lines of assembly, callers pass pointers to text
//! and bytes, and buffers are memory that host and kernels share.
#![deny(missing_docs)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod archive;
mod buffer;
mod command;
mod compile;
mod device;
mod encode;
mod encoder;
mod event;
mod foundation;
mod indirect;
mod ledger;
mod machine;
mod object;
mod queue;
mod send;
#[cfg(test)]
mod tests;

pub use machine::{Config, Entered, Failure, Fault, FaultKind, Knobs, Machine, Order};
pub use send::{Row, Table, rows, sel};

#![doc = include_str!("README.md")]
//!
//! Place in the arrows: part of `emu`, depends on nothing of the workspace. Source text goes through `lex`, `pre`
//! (preprocessor) and `parse` (types are checked while parsing) to a typed tree, through `lower` to bytecode (`code`),
//! and `exec` runs that 32 lanes at a time. `kernel` and `memory` are what a host uses.
//!
//! Source of the language's rules: Apple's Metal Shading Language Specification, as far as the project's notes on
//! Metal quote it; where they are silent, clang's rules for C++14.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod code;
mod error;
mod exec;
mod fault;
mod kernel;
mod lex;
mod lower;
mod memory;
mod parse;
mod pre;
mod tree;
mod types;

#[cfg(test)]
mod tests;

pub use error::{CompileError, Pos};
pub use fault::{Fault, FaultKind};
pub use kernel::{Argument, ArgumentKind, Binding, Kernel, Launch, Library, Options};
pub use memory::{Buffer, Memory, Width, Words};
pub use types::{Scalar, Space};

/// Most bytes of threadgroup memory.
pub(crate) const MAX_THREADGROUP: u64 = 32 << 10;
/// Most threads of a threadgroup.
pub(crate) const MAX_THREADS: u32 = 1024;

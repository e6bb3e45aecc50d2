#![doc = include_str!("README.md")]
//!
//! Layer: beside `engine`: uses `device` and `package`, and what these are made of; no compiler is below it.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod choose;
mod error;
mod file;
mod memory;
mod program;
mod run;
mod syscalls;

pub use error::RunError;
pub use file::{Check, PackageFile};
pub use memory::Limits;
pub use program::{Port, Program, VariableId};
pub use run::{Canceller, Running};
pub use syscalls::syscalls;

/// The format.
pub use doorbell_package as package;

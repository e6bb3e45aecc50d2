#![doc = include_str!("README.md")]
//!
//! Layer: `engine` writes packages, `runtime` runs them. Depends on no other room, does no I/O. What the code in a
//! package does is not checked: whoever runs one trusts it as a program.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod check;
mod contents;
mod error;
mod layout;
mod read;
mod size;
mod write;

pub use contents::{
    Argument, Block, BlockKind, Contents, DataFile, Element, Kernel, Launch, Place, Port, Step, Target, Variable,
};
pub use error::PackageError;
pub use layout::{ALIGN_BYTES, HEADER_BYTES, Head, MAGIC, VERSION};
pub use read::{Package, checksum_of};
pub use size::{Size, Term};
pub use write::write;

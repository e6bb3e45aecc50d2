//! Linear program → machine code, one folder a target.
//!
//! Each target implements [`Backend`]: what codegen must know of it, a program's [`Binary`], and that code as text. The
//! list of back ends is the engine's. Depends on `codegen` (Program, Target, register allocation), `uop` and `elf`
//! (Object); does no I/O.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod backend;

pub use backend::{Argument, Backend, Binary, BinaryCode, IsaError, NoCode};

#[cfg(doctest)]
#[doc = include_str!("README.md")]
struct Readme;

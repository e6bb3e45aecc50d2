//! NVIDIA's two languages: PTX, the text, and SASS, the machine code.
//!
//! [`ptx`] renders a linear program as PTX and parses PTX of others; [`sass`] encodes, decodes, prints and checks
//! machine code, and assembles PTX. [`Nvidia`] puts both together as a back end. [`runtime`] has what CUDA's runtime
//! supplies to kernels.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod backend;
mod chip;
mod matrix;
pub mod ptx;
pub mod runtime;
pub mod sass;

pub use backend::{Assemble, Features, Nvidia, no_code};
pub use matrix::{WORDS, words};

#[cfg(doctest)]
#[doc = include_str!("README.md")]
struct Readme;

#![doc = include_str!("README.md")]
#![deny(missing_docs)]
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod backend;
mod family;
mod render;

pub use backend::Metal;
pub use family::{Family, MAX_BUFFERS};
pub use render::{RenderError, render};

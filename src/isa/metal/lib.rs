#![doc = include_str!("README.md")]
#![deny(missing_docs)]
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod backend;
mod family;
mod render;

pub use backend::Metal;
pub use family::{Family, MAX_BUFFERS};
pub use render::{RenderError, render};

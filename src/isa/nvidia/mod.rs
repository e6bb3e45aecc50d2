//! NVIDIA's two languages: PTX, the text, and SASS, the machine code.
//!
//! [`ptx`] renders a linear program as PTX and parses PTX of others; [`sass`] encodes, decodes, prints and checks
//! machine code, and assembles PTX.

mod chip;
pub mod ptx;
pub mod sass;

//! Lower: sm_90 code with physical registers → the chip's code.
//!
//! In: [`Routine`](link::Routine)s of a kernel and of the functions that it calls. Out: one list of lines, all of which
//! the chip supports. Unsupported instructions are reported by name.
//!
//! Order: [`link`] puts functions after their kernel, [`constants`] moves constants to uniform registers (from Hopper
//! on), [`described`] adds the memory descriptor, [`chips`] uses the chip's forms and its offsets of the launch's
//! words.

pub(crate) mod chips;
pub(crate) mod constants;
pub(crate) mod described;
pub(super) mod link;

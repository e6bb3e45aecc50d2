//! Lower: sm_90's code with registers → the chip's.
//!
//! In: [`Routine`](link::Routine)s of a kernel and of the functions that it calls. Out: one list of lines, all of which
//! the chip has. Refused, by name: what the chip lacks.
//!
//! Order: [`link`] puts functions after their kernel, [`constants`] brings constants to uniform registers (from Hopper
//! on), [`described`] names the memory descriptor, [`chips`] takes the chip's forms and places of the launch's words.

pub mod chips;
pub mod constants;
pub mod described;
pub mod link;

//! SASS: the machine code of NVIDIA's sm_80, sm_86, sm_89, sm_90 and sm_120, one 128-bit word an instruction.
//!
//! One table ([`Form::all`], made by `tools/sass_rows.py`) defines the forms of instructions, the positions of their
//! fields and their text in nvdisasm's syntax; encoder, decoder, printer and parser are driven by it.
//!
//! ```text
//! text --parse--> Instruction --encode--> word       assemble: a listing with labels and control words -> words
//! text <--print-- Instruction <--decode-- word       listing_line: a word's line of such a listing
//! ```
//!
//! An instruction carries its own scheduling ([`Control`]): the only interlocks in hardware are the six scoreboards.
//! [`effects`] says which registers an instruction reads and writes.
//!
//! Place in the architecture: the assembler and the emulator for these chips build on it; nothing in here knows UOps.
//! Source: ptxas and nvdisasm 13.5.37, probed bit by bit; tests compare with them. Left out: graphics and surface
//! instructions, calls into firmware, sm_75 and sm_100.
#![forbid(unsafe_code)]

pub mod bits;
pub mod check;
mod chip;
pub mod compile;
mod control;
mod decode;
mod effects;
mod encode;
mod file;
mod float;
mod inst;
mod legal;
mod order;
mod parse;
mod print;
mod registers;
mod row;
mod source;
mod table;
pub mod tensor_map;
mod timing;
mod token;

pub use chip::{SmArch, SmArchs};
pub use control::{Control, ControlError, SCOREBOARDS};
pub use decode::{DecodeError, DecodeReason, decode, decode_for};
pub(crate) use effects::is_group_multiply;
pub use effects::{Access, Effects, RegFile, Slot, effects};
pub use encode::{EncodeError, encode};
pub use file::{assemble_file, listing, words_listing};
pub use inst::{FieldError, Guard, Instruction, Operand, Signs, Value};
pub use parse::{ParseError, parse, parse_at, parse_for};
pub use print::{print, print_at};
pub use row::{Field, File, Form, Index, Kind, Modifier, Named, Pipe, Role, Style};
pub use source::{SourceError, SourceReason, assemble, assemble_for, listing_line};
pub use table::{mods, op};
pub(crate) use timing::SCOREBOARD_SET;
pub use timing::{
    Completion, Distance, completion, delivers_with_reads, distance, ends_shared_reads, guessed_latency, least_stall,
    overwrite, reads_late,
};

//! AMDGPU machine code: instructions of gfx1100 (RDNA3), gfx942 (CDNA3) and gfx1201 (RDNA4).
//!
//! One table (`rows`, generated from isa.tsv) lists the operations, their formats and operands; encoder,
//! decoder, printer and parser are driven by it. [`mod@format`] has the positions of a format's fields.
//!
//! ```text
//! text --parse--> Inst --encode--> dwords          Assembler: instructions and labels -> code
//! text <--print-- Inst <--decode-- dwords
//! ```
//!
//! Place in the arrows: the instruction selection for these chips builds [`Inst`]s; the encoding knows no UOp. Sources:
//! AMD's ISA manuals; the table was made by probing LLVM 19 with every opcode, and the tests compare with it.
//!
//! Left out: image, export and interpolation instructions, typed buffers, GWS.
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

mod asm;
mod cache;
mod check;
mod chip;
mod constant;
mod decode;
mod describe;
mod dpp;
mod encode;
mod finish;
pub mod format;
mod inst;
mod listing;
pub use table::op;
mod parse;
mod print;
mod reg;
mod row;
mod sdwa;
mod select;
mod source;
mod special;
mod table;
mod target;
mod true16;
mod vopd;

pub use asm::{AsmError, Assembler, Label};
pub use check::{CheckError, check};
pub use chip::{Chip, Target, Wave};
pub use decode::{DecodeError, decode};
pub use encode::{EncodeError, Words, encode, row_of};
pub use finish::{CompileError, Limits, MachineCode, compile, compile_within};
pub use inst::{Dpp, DppCtrl, Enc, Inst, Modifiers, Sdwa};
pub use listing::listing;
pub use parse::{ParseError, parse};
pub use print::{operand_text, print, print_true16};
pub use reg::{EXEC, EXEC_HI, EXEC_LO, File, M0, NULL, Operand, Reg, SCC, VCC, VCC_HI, VCC_LO, a, acc, s, ss, v, vs};
pub use row::{Accepts, Access, Allows, Class, Imm, Implicit, Kind, Op, Row, Slot, Unit, all_rows};
pub use source::{Assembled, SourceError, SourceKernel, assemble};
pub use special::{hwreg, waitcnt};
pub use target::Amdgpu;

#[cfg(doctest)]
#[doc = include_str!("README.md")]
struct Readme;

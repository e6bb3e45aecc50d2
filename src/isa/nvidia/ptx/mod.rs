//! PTX, the assembly language of NVIDIA's GPUs, as text and as data.
//!
//! ```text
//! text --parse--> Module --Display--> text        Program (linear UOps) --render--> Module
//! ```
//!
//! Place in the architecture: [`render`] is instruction selection for PTX ([`Chip::target`] describes the target to
//! codegen). The assembler in `sass::compile` reads a [`Module`], whether it was rendered or parsed. Nothing here knows
//! about devices. Source: NVIDIA's PTX ISA 8.8.
//!
//! Left out: texture and surface instructions are parsed like all others but never rendered; there is no preprocessor.
#![forbid(unsafe_code)]

mod bodies;
mod body;
mod constant;
mod lex;
mod module;
mod name;
mod names;
mod number;
mod parse;
mod print;
mod quick;
mod render;
mod stems;
mod walk;

pub use super::chip::{CHIPS, Chip};
pub(crate) use bodies::{Bodies, Head, Operands};
pub(crate) use body::mnemonic;
pub use module::{
    Function, Guard, Imm, Init, Inlined, Inst, Item, Linkage, Loc, Modifier, Module, Operand, Pointer, Pos, Registers,
    Statement, Tuning, Variable,
};
pub use name::Name;
pub use names::{Opcode, Space, Type, is_special};
pub(crate) use parse::parse_with;
pub use parse::{ParseError, parse};
pub use render::{Buffers, RenderError, launch_shared_bytes, render};
pub(crate) use walk::walk;

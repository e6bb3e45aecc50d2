//! PTX, the assembly language of NVIDIA's GPUs, as text and as data.
//!
//! ```text
//! text --parse--> Module --Display--> text        Program (linear UOps) --render--> Module
//! ```
//!
//! Place in the arrows: [`render`] is instruction selection for PTX ([`Chip::target`] tells codegen what it may use);
//! what turns a [`Module`] into machine code reads the same data, whoever wrote the text. Nothing here knows a device.
//! Source: NVIDIA's PTX ISA 8.8.
//!
//! Left out: texture and surface instructions are parsed as any other, never rendered; the preprocessor.
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

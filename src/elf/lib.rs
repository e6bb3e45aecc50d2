//! Machine code → ELF object → placed and relocated image.
//!
//! From an [`Object`] (what `isa` makes of one program) to bytes that may be executed at an address:
//!
//! ```text
//! Object --write--> relocatable ELF64 (.o) --parse, link--> Image --relocated(base)--> bytes to copy and protect
//! Object ----------------- link_object -----------------> Image
//! ```
//!
//! Foreign objects (`gcc -c`, `as`) enter at the second arrow. GPUs' files have loaders of their own: [`amdgpu`],
//! [`cubin`]. Nothing in here opens a file, maps memory or runs code: the loader of a device queries the [`Image`] for
//! its size and segments, maps that much, copies what [`Image::relocated`] returns, gives each segment its permission
//! and calls at [`Image::entry`].
//!
//! Place in the arrows: depends on no other room; `isa` and `device` depend on it. So what both must know of a GPU's
//! chip is here, beside its files ([`amdgpu::Chip`], [`cubin::ChipFacts`]).
//!
//! Sources: System V ABI, generic ELF chapter (2013-06-10 draft) and its AMD64 supplement (version 1.0, relocations in
//! table 4.9).
//!
//! Left out: big-endian and 32-bit files, shared objects and executables, thread-local storage, constructors
//! (`.init_array`), indirect functions, unwinding tables (`.eh_frame` is not loaded), merging of string sections (they
//! are loaded as they are).
#![deny(missing_docs)]
#![forbid(unsafe_code)]
#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod abi;
pub mod amdgpu;
pub mod cubin;
mod direct;
mod error;
mod image;
mod layout;
mod link;
mod num;
pub mod object;
pub mod parse;
mod write;
mod x86_64;

pub use error::ElfError;
pub use image::{Image, PAGE_BYTES, Perm, Segment};
pub use link::{link, link_in_pages, link_object};
pub use object::{GpuKernel, Machine, Object, RelocKind, Relocation, Section, Symbol, Target};
pub use write::write;

#[cfg(doctest)]
#[doc = include_str!("README.md")]
struct Readme;

//! Packets: conversion between structs and dwords; one module per packet set, with `emit` and `parse` side by side.
//!
//! Layer: uses [`super::bits`] only; used by the queue builders, the tracer, error reports and the software GPUs, so
//! that all interpret dwords in the same way. A parser accepts exactly what its emitter can produce; set reserved bits
//! are an error.

pub mod aql;
pub mod cpu;
pub mod nv;
pub mod pm4;
pub mod sdma;

use super::bits::{Field, FieldOverflow, unclaimed};
use std::fmt;

/// A virtual address in a GPU's address space, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GpuVa(pub u64);

impl fmt::Display for GpuVa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Why a packet cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EmitError {
    #[error(transparent)]
    Field(#[from] FieldOverflow),
    #[error("{packet}: address {addr} is not aligned to {align} bytes")]
    Misaligned { packet: &'static str, addr: GpuVa, align: u64 },
    #[error("{packet}: {count} values, the packet carries {min} to {max}")]
    Values { packet: &'static str, count: usize, min: usize, max: usize },
    #[error("{packet}: {field} {value:#x} is over the limit {max:#x} of this chip")]
    OverLimit { packet: &'static str, field: &'static str, value: u64, max: u64 },
}

/// Why dwords are not a valid packet of their set, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("dword {offset_dwords:#x}: {kind}")]
pub struct DecodeError {
    /// Offset from the start of the parsed dwords; [`DecodeError::at`] makes it relative to the ring's start.
    pub offset_dwords: u64,
    pub kind: DecodeKind,
}

impl DecodeError {
    /// The same error with its offset relative to the ring or buffer, in which the packet starts at `base_dwords`.
    #[must_use]
    pub fn at(self, base_dwords: u64) -> Self {
        Self { offset_dwords: self.offset_dwords.saturating_add(base_dwords), ..self }
    }
}

impl From<DecodeKind> for DecodeError {
    fn from(kind: DecodeKind) -> Self {
        Self { offset_dwords: 0, kind }
    }
}

/// What is wrong with the dwords.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeKind {
    #[error("invalid {set} packet header {header:#010x}")]
    Header { set: &'static str, header: u32 },
    #[error("unknown {set} opcode {opcode:#x}")]
    Opcode { set: &'static str, opcode: u32 },
    #[error("{packet} needs {wanted} dwords, {have} are left")]
    Truncated { packet: &'static str, wanted: usize, have: usize },
    #[error("{packet} takes {min} to {max} dwords, its header says {have}")]
    Count { packet: &'static str, min: usize, max: usize, have: usize },
    #[error("{packet}: {field} has no meaning for value {value:#x}")]
    Value { packet: &'static str, field: &'static str, value: u32 },
    #[error("{packet}: reserved bits {bits:#010x} of its dword {dword} are set")]
    Reserved { packet: &'static str, dword: usize, bits: u32 },
    #[error("{packet}: address {addr} is not aligned to {align} bytes")]
    Misaligned { packet: &'static str, addr: GpuVa, align: u64 },
}

/// Refuses set bits outside `fields`, in words with at least one field.
fn check_reserved(packet: &'static str, words: &[u32], fields: &[Field]) -> Result<(), DecodeKind> {
    match unclaimed(words, fields) {
        Some((dword, bits)) => Err(DecodeKind::Reserved { packet, dword, bits }),
        None => Ok(()),
    }
}

fn check_emit_align(packet: &'static str, addr: GpuVa, align: u64) -> Result<(), EmitError> {
    if addr.0.is_multiple_of(align) { Ok(()) } else { Err(EmitError::Misaligned { packet, addr, align }) }
}

fn check_align(packet: &'static str, addr: GpuVa, align: u64) -> Result<(), DecodeKind> {
    if addr.0.is_multiple_of(align) { Ok(()) } else { Err(DecodeKind::Misaligned { packet, addr, align }) }
}

/// Selector fields: a Rust enum whose values are the manual's numbers.
macro_rules! selector {
    ($(#[$doc:meta])* $name:ident, $field:literal { $($(#[$vdoc:meta])* $variant:ident = $value:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$vdoc])* $variant = $value),+ }
        impl $name {
            /// The field's value.
            #[must_use]
            pub const fn bits(self) -> u32 { self as u32 }
            fn from_bits(packet: &'static str, value: u32) -> Result<Self, crate::packet::DecodeKind> {
                match value {
                    $($value => Ok(Self::$variant),)+
                    _ => Err(crate::packet::DecodeKind::Value { packet, field: $field, value }),
                }
            }
        }
    };
}
use selector;

#[cfg(test)]
pub(super) mod seeded {
    //! Seeded numbers for tests with random dwords (splitmix64).

    pub(crate) struct Random(pub u64);

    impl Random {
        pub(crate) fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }

        /// A dword that often has few set bits: reserved bits are mostly zero in real packets.
        pub(crate) fn dword(&mut self) -> u32 {
            let [a, b] = [self.next(), self.next()];
            match a >> 62 {
                0 => 0,
                1 => (b as u32) & (b >> 32) as u32 & a as u32,
                2 => 1 << (b % 32),
                _ => b as u32,
            }
        }
    }
}

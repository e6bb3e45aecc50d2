//! The parts of an ELF file that code objects use beyond relocatable ones: numbers of the header, the dynamic section.

use crate::error::ElfError;
use crate::num::wide;

pub(super) const ELFOSABI_AMDGPU_HSA: u8 = 64;
pub(super) const ELFABIVERSION_V5: u8 = 3;
pub(super) const SHT_HASH: u32 = 5;
pub(super) const SHT_DYNAMIC: u32 = 6;

/// A number in a checked array; offsets beyond it read 0.
pub(super) fn u32_at(raw: &[u8], at: usize) -> u32 {
    raw.get(at..at + 4).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
}

pub(super) fn u64_at(raw: &[u8], at: usize) -> u64 {
    raw.get(at..at + 8).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b))
}

/// What does not fit, as an error about `what`.
pub(super) fn outside(what: &'static str, offset: u64, end: u64, limit: usize) -> ElfError {
    ElfError::OutOfSection { what, offset, end, limit: wide(limit) }
}

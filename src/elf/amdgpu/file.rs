//! The parts of an ELF file that code objects use beyond relocatable ones: machine flags, the dynamic section.

use crate::error::ElfError;
use crate::num::wide;

pub(super) const ELFOSABI_AMDGPU_HSA: u8 = 64;
pub(super) const ELFABIVERSION_V5: u8 = 3;
pub(super) const SHT_HASH: u32 = 5;
pub(super) const SHT_DYNAMIC: u32 = 6;

/// A chip that code objects are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gpu {
    Gfx1100,
    Gfx942,
    Gfx1201,
}

impl Gpu {
    /// Name as in the target id.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Gpu::Gfx1100 => "gfx1100",
            Gpu::Gfx942 => "gfx942",
            Gpu::Gfx1201 => "gfx1201",
        }
    }

    /// The chip of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Gpu> {
        [Gpu::Gfx1100, Gpu::Gfx942, Gpu::Gfx1201].into_iter().find(|g| g.name() == name)
    }

    /// `e_flags`: machine in the low byte, and on gfx942 XNACK and SRAM-ECC «any».
    #[must_use]
    pub const fn flags(self) -> u32 {
        match self {
            Gpu::Gfx1100 => 0x41,
            Gpu::Gfx942 => 0x54c,
            Gpu::Gfx1201 => 0x4e,
        }
    }

    /// The chip that the low byte of `e_flags` names.
    #[must_use]
    pub fn from_flags(flags: u32) -> Option<Gpu> {
        [Gpu::Gfx1100, Gpu::Gfx942, Gpu::Gfx1201].into_iter().find(|g| g.flags() & 0xff == flags & 0xff)
    }

    /// Vector registers a step of the granulated count.
    #[must_use]
    pub const fn vgpr_granule(self, wave32: bool) -> u32 {
        match (self, wave32) {
            (Gpu::Gfx942, _) | (_, true) => 8,
            (_, false) => 4,
        }
    }
}

/// A number in a checked array; places beyond it read 0.
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

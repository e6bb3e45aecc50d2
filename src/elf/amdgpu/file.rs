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
    pub(crate) fn from_flags(flags: u32) -> Option<Gpu> {
        [Gpu::Gfx1100, Gpu::Gfx942, Gpu::Gfx1201].into_iter().find(|g| g.flags() & 0xff == flags & 0xff)
    }

    /// Vector registers a step of the granulated count.
    #[must_use]
    pub(crate) const fn vgpr_granule(self, wave32: bool) -> u32 {
        match (self, wave32) {
            (Gpu::Gfx942, _) | (_, true) => 8,
            (_, false) => 4,
        }
    }
}

/// Names by the low byte of `e_flags`. Source: AMDGPUUsage «AMDGPU ELF Header e_flags».
#[rustfmt::skip]
const MACHINES: &[(u8, &str)] = &[
    (0x20, "gfx600"), (0x21, "gfx601"), (0x3a, "gfx602"), (0x22, "gfx700"), (0x23, "gfx701"), (0x24, "gfx702"),
    (0x25, "gfx703"), (0x26, "gfx704"), (0x3b, "gfx705"), (0x28, "gfx801"), (0x29, "gfx802"), (0x2a, "gfx803"),
    (0x3c, "gfx805"), (0x2b, "gfx810"), (0x2c, "gfx900"), (0x2d, "gfx902"), (0x2e, "gfx904"), (0x2f, "gfx906"),
    (0x30, "gfx908"), (0x31, "gfx909"), (0x3f, "gfx90a"), (0x32, "gfx90c"), (0x40, "gfx940"), (0x4b, "gfx941"),
    (0x4c, "gfx942"), (0x4f, "gfx950"), (0x33, "gfx1010"), (0x34, "gfx1011"), (0x35, "gfx1012"), (0x42, "gfx1013"),
    (0x36, "gfx1030"), (0x37, "gfx1031"), (0x38, "gfx1032"), (0x39, "gfx1033"), (0x3e, "gfx1034"), (0x3d, "gfx1035"),
    (0x45, "gfx1036"), (0x41, "gfx1100"), (0x46, "gfx1101"), (0x47, "gfx1102"), (0x44, "gfx1103"), (0x43, "gfx1150"),
    (0x4a, "gfx1151"), (0x48, "gfx1200"), (0x4e, "gfx1201"),
];

/// The name of the chip that `e_flags` names, whether or not there are tables for it; else the number.
#[must_use]
pub fn machine_name(flags: u32) -> String {
    let found = MACHINES.iter().find(|m| u32::from(m.0) == flags & 0xff);
    found.map_or_else(|| format!("chip {:#x}", flags & 0xff), |m| m.1.to_owned())
}

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

//! The chips: what their files and their launches have in common. Who makes code for a chip and who runs it read it here;
//! what one side alone needs is in that side's table. Emulators have numbers of their own, so that a wrong one here is
//! noticed.
//!
//! Source: AMDGPUUsage (e_flags, kernel descriptor), docs/amd.md 4.5 (LDS).

/// Largest LDS of a workgroup: the same on each of these chips, and on gfx90a.
pub const LDS_BYTES: u32 = 64 << 10;

/// A chip that code objects are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Chip {
    /// RDNA3.
    Gfx1100,
    /// CDNA3.
    Gfx942,
    /// RDNA4.
    Gfx1201,
}

impl Chip {
    /// All of them.
    pub const ALL: [Chip; 3] = [Chip::Gfx1100, Chip::Gfx942, Chip::Gfx1201];

    /// Name as in the target id, and as compilers spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Chip::Gfx1100 => "gfx1100",
            Chip::Gfx942 => "gfx942",
            Chip::Gfx1201 => "gfx1201",
        }
    }

    /// The chip of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Chip> {
        Chip::ALL.into_iter().find(|c| c.name() == name)
    }

    /// GFX9: AccVGPRs, no NULL register, even VGPR tuples, no literal in 64-bit encodings.
    #[must_use]
    pub const fn is_gfx9(self) -> bool {
        matches!(self, Chip::Gfx942)
    }

    /// Low byte of `e_flags`.
    const fn machine(self) -> u8 {
        match self {
            Chip::Gfx1100 => 0x41,
            Chip::Gfx942 => 0x4c,
            Chip::Gfx1201 => 0x4e,
        }
    }

    /// `e_flags`: machine in the low byte, and on gfx942 XNACK and SRAM-ECC «any».
    pub(super) fn flags(self) -> u32 {
        u32::from(self.machine()) | if self.is_gfx9() { 0x500 } else { 0 }
    }

    /// The chip that the low byte of `e_flags` names.
    pub(super) fn from_flags(flags: u32) -> Option<Chip> {
        Chip::ALL.into_iter().find(|c| u32::from(c.machine()) == flags & 0xff)
    }

    /// Vector registers a step of the granulated count.
    pub(super) const fn vgpr_granule(self, wave32: bool) -> u32 {
        if self.is_gfx9() || wave32 { 8 } else { 4 }
    }

    /// Its row of [`MACHINES`].
    const fn row(self) -> (u8, &'static str) {
        (self.machine(), self.name())
    }
}

/// Names by the low byte of `e_flags`. Source: AMDGPUUsage «AMDGPU ELF Header e_flags».
#[rustfmt::skip]
const MACHINES: &[(u8, &str)] = &[
    Chip::Gfx1100.row(), Chip::Gfx942.row(), Chip::Gfx1201.row(),
    (0x20, "gfx600"), (0x21, "gfx601"), (0x3a, "gfx602"), (0x22, "gfx700"), (0x23, "gfx701"), (0x24, "gfx702"),
    (0x25, "gfx703"), (0x26, "gfx704"), (0x3b, "gfx705"), (0x28, "gfx801"), (0x29, "gfx802"), (0x2a, "gfx803"),
    (0x3c, "gfx805"), (0x2b, "gfx810"), (0x2c, "gfx900"), (0x2d, "gfx902"), (0x2e, "gfx904"), (0x2f, "gfx906"),
    (0x30, "gfx908"), (0x31, "gfx909"), (0x3f, "gfx90a"), (0x32, "gfx90c"), (0x40, "gfx940"), (0x4b, "gfx941"),
    (0x4f, "gfx950"), (0x33, "gfx1010"), (0x34, "gfx1011"), (0x35, "gfx1012"), (0x42, "gfx1013"), (0x36, "gfx1030"),
    (0x37, "gfx1031"), (0x38, "gfx1032"), (0x39, "gfx1033"), (0x3e, "gfx1034"), (0x3d, "gfx1035"), (0x45, "gfx1036"),
    (0x46, "gfx1101"), (0x47, "gfx1102"), (0x44, "gfx1103"), (0x43, "gfx1150"), (0x4a, "gfx1151"), (0x48, "gfx1200"),
];

/// The name of the chip that `e_flags` names, whether or not there are tables for it; else the number.
#[must_use]
pub fn machine_name(flags: u32) -> String {
    let found = MACHINES.iter().find(|m| u32::from(m.0) == flags & 0xff);
    found.map_or_else(|| format!("chip {:#x}", flags & 0xff), |m| m.1.to_owned())
}

//! What instructions are encoded for: a chip, and the wave size that decides how wide a lane mask is.

pub use doorbell_elf::amdgpu::Chip;

/// Column in a row's opcodes.
pub(super) const fn column(chip: Chip) -> usize {
    match chip {
        Chip::Gfx1100 => 0,
        Chip::Gfx942 => 1,
        Chip::Gfx1201 => 2,
    }
}

/// Lanes of a wave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wave {
    W32,
    W64,
}

/// What an instruction is encoded for: the bytes depend on the chip, the width of mask operands on the wave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    pub chip: Chip,
    pub wave: Wave,
}

impl Target {
    /// The chip with the wave size that compilers use for it: 64 on gfx942, 32 on the others.
    #[must_use]
    pub const fn of(chip: Chip) -> Target {
        Target { chip, wave: if chip.is_gfx9() { Wave::W64 } else { Wave::W32 } }
    }

    /// Scalar registers of a lane mask.
    #[must_use]
    pub const fn mask_words(self) -> u8 {
        match self.wave {
            Wave::W32 => 1,
            Wave::W64 => 2,
        }
    }
}

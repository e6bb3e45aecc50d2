//! The chips, and the wave size that decides how wide a lane mask is.

/// A chip whose instructions are known.
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
    /// All of them, in the order of a row's opcode columns.
    pub const ALL: [Chip; 3] = [Chip::Gfx1100, Chip::Gfx942, Chip::Gfx1201];

    /// Name, as compilers spell it.
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

    /// Column in a row's opcodes.
    pub(super) const fn column(self) -> usize {
        match self {
            Chip::Gfx1100 => 0,
            Chip::Gfx942 => 1,
            Chip::Gfx1201 => 2,
        }
    }

    /// GFX9: AccVGPRs, no NULL register, even VGPR tuples, no literal in 64-bit encodings.
    #[must_use]
    pub const fn is_gfx9(self) -> bool {
        matches!(self, Chip::Gfx942)
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

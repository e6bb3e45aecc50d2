//! The SM architectures with machine code in the instruction table. All other properties of chips are in the table for
//! both languages ([`ptx::CHIPS`](CHIPS)).

use crate::ptx::CHIPS;
use doorbell_elf::cubin::Arch;

/// An SM architecture: selects rows of the instruction table, and instruction latencies. sm_90a is sm_90 with
/// additional rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SmArch {
    Sm80,
    Sm86,
    Sm89,
    #[default]
    Sm90,
    Sm120,
}

impl SmArch {
    pub const ALL: [SmArch; 5] = [SmArch::Sm80, SmArch::Sm86, SmArch::Sm89, SmArch::Sm90, SmArch::Sm120];

    /// The number in its name, as in the table of chips.
    #[must_use]
    pub const fn number(self) -> u32 {
        let mut i = 0;
        loop {
            // PANIC: each chip has a row, which a test holds.
            if let Some(chip) = CHIPS[i].machine
                && chip as u8 == self as u8
            {
                return CHIPS[i].sm;
            }
            i += 1;
        }
    }

    /// The architecture that a file is for; `None`: the table has no rows for it.
    #[must_use]
    pub fn of(arch: Arch) -> Option<SmArch> {
        SmArch::ALL.into_iter().find(|c| c.number() == arch.sm)
    }

    /// The architecture for a file header, without architecture-specific features.
    #[must_use]
    pub const fn arch(self) -> Arch {
        Arch { sm: self.number(), specific: false }
    }

    /// Ampere and Ada: branches have one field for the distance, there are 63 uniform registers, and instructions have
    /// no memory descriptors.
    #[must_use]
    pub const fn is_before_hopper(self) -> bool {
        matches!(self, SmArch::Sm80 | SmArch::Sm86 | SmArch::Sm89)
    }
}

impl std::fmt::Display for SmArch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sm_{}", self.number())
    }
}

/// A set of SM architectures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmArchs(u8);

impl SmArchs {
    /// The set with these bits: bit i is the i-th of [`SmArch::ALL`].
    pub(super) const fn of(bits: u8) -> SmArchs {
        SmArchs(bits)
    }

    #[must_use]
    pub const fn has(self, chip: SmArch) -> bool {
        self.0 >> chip as u8 & 1 == 1
    }

    /// The oldest of the set.
    pub(super) const fn first(self) -> SmArch {
        let mut i = 0;
        while i + 1 < SmArch::ALL.len() && !self.has(SmArch::ALL[i]) {
            i += 1;
        }
        SmArch::ALL[i]
    }

    /// The members of the set, oldest first.
    pub fn iter(self) -> impl Iterator<Item = SmArch> {
        SmArch::ALL.into_iter().filter(move |c| self.has(*c))
    }
}

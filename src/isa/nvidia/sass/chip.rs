//! The chips whose machine code the table holds.

use doorbell_elf::cubin::Arch;

/// A chip: which rows of the table are its, and how long its instructions take. sm_90a is sm_90 with rows that only it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Chip {
    Sm80,
    Sm86,
    Sm89,
    #[default]
    Sm90,
    Sm120,
}

impl Chip {
    pub const ALL: [Chip; 5] = [Chip::Sm80, Chip::Sm86, Chip::Sm89, Chip::Sm90, Chip::Sm120];

    /// The number in its name.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Chip::Sm80 => 80,
            Chip::Sm86 => 86,
            Chip::Sm89 => 89,
            Chip::Sm90 => 90,
            Chip::Sm120 => 120,
        }
    }

    /// The chip that a file is for; `None`: the table has no rows of it.
    #[must_use]
    pub fn of(arch: Arch) -> Option<Chip> {
        Chip::ALL.into_iter().find(|c| c.number() == arch.sm)
    }

    /// The chip a file names, with the features that all of its kind have.
    #[must_use]
    pub const fn arch(self) -> Arch {
        Arch { sm: self.number(), specific: false }
    }

    /// Ampere and Ada: branches have one field for the distance, uniform registers count to 63, descriptors are not written.
    #[must_use]
    pub const fn is_before_hopper(self) -> bool {
        matches!(self, Chip::Sm80 | Chip::Sm86 | Chip::Sm89)
    }
}

impl std::fmt::Display for Chip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "sm_{}", self.number())
    }
}

/// A set of chips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chips(u8);

impl Chips {
    /// The set of those bits: bit i is the chip at place i of [`Chip::ALL`].
    pub(super) const fn of(bits: u8) -> Chips {
        Chips(bits)
    }

    #[must_use]
    pub const fn has(self, chip: Chip) -> bool {
        self.0 >> chip as u8 & 1 == 1
    }

    /// The oldest of the set.
    pub(super) const fn first(self) -> Chip {
        let mut i = 0;
        while i + 1 < Chip::ALL.len() && !self.has(Chip::ALL[i]) {
            i += 1;
        }
        Chip::ALL[i]
    }

    /// Those of the set, oldest first.
    pub fn iter(self) -> impl Iterator<Item = Chip> {
        Chip::ALL.into_iter().filter(move |c| self.has(*c))
    }
}

//! Table of NVIDIA chips for both languages, one row each: what PTX for a chip may use, and which machine code it has.
//!
//! Chips without a row are not supported as targets. What devices know of a chip as well, its number and the shared
//! memory of a block, is in [`ChipFacts`]. Source: PTX ISA 8.8 (`.target`, notes on each instruction).

use super::sass;
use doorbell_codegen::target::Grid;
use doorbell_codegen::{Target, units};
use doorbell_elf::cubin::ChipFacts;
use doorbell_uop::WmmaArg;

/// A chip, under its name in `.target`.
#[derive(Debug, PartialEq, Eq)]
pub struct Chip {
    /// The name in `.target`.
    pub name: &'static str,
    /// Compute capability, times ten.
    pub sm: u32,
    /// The `.version` that supports the chip and everything that is rendered for it.
    pub version: (u32, u32),
    /// Maximum shared memory of one block.
    pub shared_bytes: usize,
    /// Multiprocessors of the largest card with this chip.
    pub multiprocessors: u32,
    /// Its machine code; `None`: the instruction table has no rows for it.
    pub machine: Option<sass::SmArch>,
}

const fn chip(facts: ChipFacts, version: (u32, u32), multiprocessors: u32) -> Chip {
    let ChipFacts { name, sm, shared_max_bytes } = facts;
    Chip { name, sm, version, shared_bytes: shared_max_bytes as usize, multiprocessors, machine: None }
}

impl Chip {
    /// The same chip with the features that only this name has.
    const fn called(self, name: &'static str) -> Chip {
        Chip { name, ..self }
    }

    const fn with(self, machine: sass::SmArch) -> Chip {
        Chip { machine: Some(machine), ..self }
    }
}

/// All of them, the oldest first.
pub const CHIPS: &[Chip] = &[
    chip(ChipFacts::SM_75, (7, 8), 72),
    chip(ChipFacts::SM_80, (7, 8), 108).with(sass::SmArch::Sm80),
    chip(ChipFacts::SM_86, (7, 8), 84).with(sass::SmArch::Sm86),
    chip(ChipFacts::SM_87, (7, 8), 16),
    chip(ChipFacts::SM_89, (8, 4), 142).with(sass::SmArch::Sm89),
    chip(ChipFacts::SM_90, (8, 4), 132).with(sass::SmArch::Sm90),
    chip(ChipFacts::SM_90, (8, 4), 132).called("sm_90a").with(sass::SmArch::Sm90),
    chip(ChipFacts::SM_100, (8, 6), 148),
    chip(ChipFacts::SM_100, (8, 6), 148).called("sm_100a"),
    chip(ChipFacts::SM_120, (8, 7), 188).with(sass::SmArch::Sm120),
    chip(ChipFacts::SM_120, (8, 7), 188).called("sm_120a").with(sass::SmArch::Sm120),
];

impl Chip {
    /// The chip with that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<&'static Chip> {
        CHIPS.iter().find(|c| c.name == name)
    }

    /// The most specific target that a card of this chip supports: on Hopper with the features that only Hopper has.
    #[must_use]
    pub fn of_card(&'static self) -> &'static Chip {
        let specific = CHIPS.iter().find(|c| c.sm == self.sm && c.has_warpgroups());
        specific.unwrap_or(self)
    }

    /// Its matrix units; with `tf32` also those that drop low bits of f32.
    #[must_use]
    pub const fn tensor_cores(&self, tf32: bool) -> &'static [WmmaArg] {
        let all: &'static [WmmaArg] = match self.sm {
            _ if self.has_warpgroups() => units::SM90A,
            89.. => units::SM89,
            80.. => units::SM80,
            _ => &[],
        };
        if tf32 { all } else { units::exact(all) }
    }

    /// The description of the target for codegen.
    #[must_use]
    pub const fn target(&self) -> Target {
        Target {
            local_bytes: self.shared_bytes,
            f16_math: true,
            exp2: true,
            tensor_cores: self.tensor_cores(false),
            async_copies: self.sm >= 80,
            tma_copies: self.has_warpgroups(),
            matrix_loads: self.sm >= 80,
            compute_units: self.multiprocessors,
            ..Target::gpu(self.name, Grid::nv())
        }
    }

    /// `wgmma`: only Hopper has it, and only under the architecture-specific name (sm_90a).
    #[must_use]
    pub(crate) const fn has_warpgroups(&self) -> bool {
        matches!(self.name.as_bytes(), b"sm_90a")
    }

    /// `mma` of fp8.
    pub(super) const fn has_fp8(&self) -> bool {
        self.sm >= 89
    }

    /// `max.NaN`, conversions to bf16, `mma` of bf16, `cp.async`.
    pub(super) const fn has_sm80(&self) -> bool {
        self.sm >= 80
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_chip_with_machine_code_has_a_row_of_its_number() {
        for chip in sass::SmArch::ALL {
            let row = Chip::parse(&chip.to_string()).unwrap();
            assert_eq!((row.machine, row.sm), (Some(chip), chip.number()));
        }
        for row in CHIPS {
            assert_eq!(row.machine, row.machine.filter(|c| c.number() == row.sm), "{}", row.name);
        }
    }

    #[test]
    fn a_name_finds_its_chip_and_its_limits() {
        let t = Chip::parse("sm_90a").unwrap().target();
        assert_eq!((t.name, t.local_bytes, t.has_grid()), ("sm_90a", 227 << 10, true));
        let of_card = |name| Chip::parse(name).map(|c| c.of_card().name);
        assert_eq!((of_card("sm_90"), of_card("sm_80")), (Some("sm_90a"), Some("sm_80")));
        assert!(Chip::parse("sm_91").is_none() && Chip::parse("90").is_none());
    }
}

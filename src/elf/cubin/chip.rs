//! The chips: what their code and its launches have in common. Who makes code for a chip and who runs it read it here;
//! what one side alone needs is in that side's table. Emulators have numbers of their own, so that a wrong one here is
//! noticed.
//!
//! Source: CUDA C++ Programming Guide, table of compute capabilities; the products, NVIDIA's page "CUDA GPU Compute
//! Capability". Left out: sm_103 and sm_121, which differ only in features that are not used here.

use super::new::Arch;

/// A chip, without the features that only its name with `a` has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChipFacts {
    /// As compilers spell it: `sm_90`.
    pub name: &'static str,
    /// Compute capability, times ten: 90 of sm_90.
    pub sm: u32,
    /// Largest shared memory of a CTA that its kernel may use.
    pub shared_max_bytes: u32,
}

const fn chip(name: &'static str, sm: u32, shared_max_kib: u32) -> ChipFacts {
    ChipFacts { name, sm, shared_max_bytes: shared_max_kib << 10 }
}

impl ChipFacts {
    /// The chip of a file with code for it.
    #[must_use]
    pub const fn arch(self) -> Arch {
        Arch { sm: self.sm, specific: false }
    }

    /// Turing (T4, RTX 20).
    pub const SM_75: ChipFacts = chip("sm_75", 75, 64);
    /// Ampere, GA100 (A100).
    pub const SM_80: ChipFacts = chip("sm_80", 80, 163);
    /// Ampere, GA10x (A10, RTX 30).
    pub const SM_86: ChipFacts = chip("sm_86", 86, 99);
    /// Ampere of the Orin modules.
    pub const SM_87: ChipFacts = chip("sm_87", 87, 163);
    /// Ada (L4, RTX 40).
    pub const SM_89: ChipFacts = chip("sm_89", 89, 99);
    /// Hopper (H100, H200).
    pub const SM_90: ChipFacts = chip("sm_90", 90, 227);
    /// Blackwell, GB100 (B200).
    pub const SM_100: ChipFacts = chip("sm_100", 100, 227);
    /// Blackwell, GB20x (RTX 50).
    pub const SM_120: ChipFacts = chip("sm_120", 120, 99);
}

/// Whether that is the name of an NVIDIA chip, as `sm_90`; of one without a row here too.
#[must_use]
pub fn is_arch(name: &str) -> bool {
    name.strip_prefix("sm_").is_some_and(|number| !number.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_chips_are_told_from_others() {
        assert!(is_arch(ChipFacts::SM_90.name) && is_arch("sm_90a") && is_arch("sm_999"));
        assert!(["sm_", "gfx1100", "x86_64-avx2", "SM_90", ""].iter().all(|name| !is_arch(name)));
    }
}

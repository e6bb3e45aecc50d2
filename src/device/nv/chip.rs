//! Differences between NVIDIA's chips, one row per chip.
//!
//! Layer: chosen once at open, by the classes that the driver lists. What compilers know of a chip as well, its number
//! and the shared memory of a CTA, is in [`ChipFacts`]. Source: docs/nv.md 1.5, 2 (step 9), 2.5, 4.3; the CUDA
//! programming guide's table of compute capabilities for warps and blocks per SM.
//! Left out: Volta and older; sm_87, sm_103 and sm_121, which differ only in features that are not used here.

use super::bank0::{self, Bank0};
use doorbell_elf::cubin::ChipFacts;
use doorbell_hcq::packet::nv::compute::Pcas;
use doorbell_hcq::packet::nv::copy::Payload;
use doorbell_hcq::packet::nv::qmd::Version;
use doorbell_ioctl::abi::nvrm;

const KIB: u32 = 1 << 10;

/// The parameters of a chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chip {
    pub name: &'static str,
    /// Compute capability: 90 for sm_90.
    pub sm: u32,
    pub compute_class: u32,
    pub gpfifo_class: u32,
    pub copy_class: u32,
    pub usermode_class: u32,
    pub qmd: Version,
    pub pcas: Pcas,
    pub copy_payload: Payload,
    /// The compute engine writes semaphores of 64 bits (not on Turing and GA100).
    pub has_report_semaphore: bool,
    pub has_clusters: bool,
    /// The largest shared memory of a CTA, and the amount reserved in addition.
    pub shared_max_bytes: u32,
    pub shared_reserved_bytes: u32,
    /// The possible sizes of an SM's shared memory, in KiB, ascending; the rest is L1 cache.
    pub shared_splits_kib: &'static [u32],
    /// Resident warps of an SM at most.
    pub sm_warps: u32,
    pub bank0: &'static Bank0,
}

const TURING: Chip = Chip {
    name: ChipFacts::SM_75.name,
    sm: ChipFacts::SM_75.sm,
    compute_class: nvrm::TURING_COMPUTE_A,
    gpfifo_class: nvrm::TURING_CHANNEL_GPFIFO_A,
    copy_class: nvrm::TURING_DMA_COPY_A,
    usermode_class: nvrm::TURING_USERMODE_A,
    qmd: Version::V2_3,
    pcas: Pcas::Signaling,
    copy_payload: Payload::Word,
    has_report_semaphore: false,
    has_clusters: false,
    shared_max_bytes: ChipFacts::SM_75.shared_max_bytes,
    shared_reserved_bytes: 0,
    shared_splits_kib: &[32, 64],
    sm_warps: 32,
    bank0: &bank0::TURING,
};
const GA100: Chip = Chip {
    compute_class: nvrm::AMPERE_COMPUTE_A,
    gpfifo_class: nvrm::AMPERE_CHANNEL_GPFIFO_A,
    copy_class: nvrm::AMPERE_DMA_COPY_A,
    usermode_class: nvrm::AMPERE_USERMODE_A,
    qmd: Version::V3_0,
    pcas: Pcas::Signaling2,
    shared_reserved_bytes: KIB,
    shared_splits_kib: &[0, 8, 16, 32, 64, 100, 132, 164],
    sm_warps: 64,
    bank0: &bank0::AMPERE,
    ..TURING.with(ChipFacts::SM_80)
};
const GA10X: Chip = Chip {
    compute_class: nvrm::AMPERE_COMPUTE_B,
    copy_class: nvrm::AMPERE_DMA_COPY_B,
    copy_payload: Payload::Wide,
    has_report_semaphore: true,
    shared_splits_kib: &[0, 8, 16, 32, 64, 100],
    sm_warps: 48,
    ..GA100.with(ChipFacts::SM_86)
};
const HOPPER: Chip = Chip {
    compute_class: nvrm::HOPPER_COMPUTE_A,
    gpfifo_class: nvrm::HOPPER_CHANNEL_GPFIFO_A,
    copy_class: nvrm::HOPPER_DMA_COPY_A,
    usermode_class: nvrm::HOPPER_USERMODE_A,
    qmd: Version::V4_0,
    has_clusters: true,
    shared_splits_kib: &[0, 8, 16, 32, 64, 100, 132, 164, 196, 228],
    sm_warps: 64,
    bank0: &bank0::HOPPER,
    ..GA10X.with(ChipFacts::SM_90)
};
const GB100: Chip = Chip {
    compute_class: nvrm::BLACKWELL_COMPUTE_A,
    gpfifo_class: nvrm::BLACKWELL_CHANNEL_GPFIFO_A,
    copy_class: nvrm::BLACKWELL_DMA_COPY_A,
    usermode_class: nvrm::BLACKWELL_USERMODE_A,
    qmd: Version::V5_0,
    bank0: &bank0::BLACKWELL,
    ..HOPPER.with(ChipFacts::SM_100)
};

/// All known chips, oldest first.
pub const CHIPS: &[Chip] = &[
    TURING,
    GA100,
    GA10X,
    Chip { compute_class: nvrm::ADA_COMPUTE_A, ..GA10X.with(ChipFacts::SM_89) },
    HOPPER,
    GB100,
    Chip {
        compute_class: nvrm::BLACKWELL_COMPUTE_B,
        gpfifo_class: nvrm::BLACKWELL_CHANNEL_GPFIFO_B,
        copy_class: nvrm::BLACKWELL_DMA_COPY_B,
        shared_splits_kib: &[0, 8, 16, 32, 64, 100],
        sm_warps: 48,
        ..GB100.with(ChipFacts::SM_120)
    },
];

impl Chip {
    /// This row for another chip, which has all else in common with it.
    const fn with(self, facts: ChipFacts) -> Chip {
        let ChipFacts { name, sm, shared_max_bytes } = facts;
        Chip { name, sm, shared_max_bytes, ..self }
    }

    /// Finds a chip by name, such as `sm_90` or `sm_90a`.
    #[cfg(test)]
    pub(crate) fn of_name(name: &str) -> Option<&'static Chip> {
        let plain = name.trim_end_matches(['a', 'f']);
        CHIPS.iter().find(|c| c.name == plain)
    }

    /// Finds the chip by the classes that a driver lists. The newest match counts, since newer chips also list older
    /// classes.
    #[must_use]
    pub fn of_classes(classes: &[u32]) -> Option<&'static Chip> {
        CHIPS.iter().rev().find(|c| classes.contains(&c.compute_class))
    }

    /// The smallest split with at least `shared_bytes` of shared memory, and the largest split; both in bytes.
    #[must_use]
    pub fn shared_config(&self, shared_bytes: u64) -> Option<[u32; 2]> {
        let largest = self.shared_splits_kib.last()? * KIB;
        let fits = |kib: &&u32| u64::from(**kib * KIB) >= shared_bytes;
        Some([self.shared_splits_kib.iter().find(fits)? * KIB, largest])
    }

    /// Local memory in bytes of a TPC (two SMs), and of a chip with `tpcs` TPCs, for `thread_bytes` per thread.
    #[must_use]
    pub(crate) fn local_memory_bytes(&self, thread_bytes: u32, tpcs: u32) -> [u64; 2] {
        let warp = (32 * u64::from(thread_bytes.next_multiple_of(32))).next_multiple_of(0x200);
        let tpc = (warp * u64::from(self.sm_warps) * 2).next_multiple_of(0x8000);
        [tpc, (tpc * u64::from(tpcs)).next_multiple_of(0x2_0000)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chips_are_found_by_name_and_by_the_newest_class() {
        assert_eq!(Chip::of_name("sm_90a").map(|c| c.sm), Some(90));
        assert_eq!(Chip::of_name("sm_42"), None);
        let hopper = [nvrm::AMPERE_COMPUTE_A, nvrm::HOPPER_COMPUTE_A, nvrm::TURING_COMPUTE_A];
        assert_eq!(Chip::of_classes(&hopper).map(|c| c.name), Some("sm_90"));
        assert_eq!(Chip::of_classes(&[1, 2]), None);
        for chip in CHIPS {
            assert_eq!(Version::of_compute_class(chip.compute_class), Some(chip.qmd), "{}", chip.name);
            let top = chip.shared_splits_kib.last().unwrap() * KIB;
            assert_eq!(top, chip.shared_max_bytes + chip.shared_reserved_bytes, "{}", chip.name);
        }
    }

    #[test]
    fn splits_are_the_smallest_that_hold_the_shared_memory() {
        let hopper = Chip::of_name("sm_90").unwrap();
        assert_eq!(hopper.shared_config(0x400), Some([8 * KIB, 228 * KIB]));
        assert_eq!(hopper.shared_config(228 << 10), Some([228 * KIB, 228 * KIB]));
        assert_eq!(hopper.shared_config((228 << 10) + 1), None);
        assert_eq!(CHIPS[0].shared_config(1), Some([32 * KIB, 64 * KIB]));
    }

    #[test]
    fn local_memory_of_the_whole_chip_is_what_others_allocate() {
        // docs/nv.md 2.5: on Hopper, 0x260 bytes per thread are 0x260000 per TPC; 72 TPCs need about 171 MiB.
        let [tpc, all] = Chip::of_name("sm_90").unwrap().local_memory_bytes(0x260, 72);
        assert_eq!((tpc, all >> 20), (0x26_0000, 171));
    }
}

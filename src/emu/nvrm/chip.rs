//! The chips that the software driver can have: their classes, and the numbers that RM returns.
//!
//! Source: `g_gpu_class_list.c` of the open kernel modules 595.45 (classes), docs/nv.md 2 and 2.5 (limits), NVIDIA's
//! architecture white papers (units). Device ids, clocks and memory widths are of one product a chip; what a board or
//! its firmware decides is plausible.

use doorbell_hcq::packet::nv::qmd::Version;
use doorbell_ioctl::abi::nvrm;

/// A chip, by the code it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Chip {
    Sm75,
    Sm80,
    Sm86,
    Sm89,
    Sm90,
    Sm100,
    Sm120,
}

/// A chip's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChipFacts {
    /// As `sm_90`.
    pub name: &'static str,
    pub product: &'static str,
    pub short_name: &'static str,
    /// PCI device id; the vendor is 0x10de.
    pub device_id: u16,
    /// MC_GET_ARCH_INFO.
    pub architecture: u32,
    pub implementation: u32,
    /// GR_INFO's SM_VERSION: 0x900 of sm_90.
    pub sm_version: u32,
    pub compute_class: u32,
    pub copy_class: u32,
    pub gpfifo_classes: &'static [u32],
    pub usermode_classes: &'static [u32],
    pub qmd: Version,
    /// Chip maxima: GPCs, TPCs of a GPC; two SMs a TPC.
    pub gpcs: u32,
    pub tpcs_per_gpc: u32,
    /// SMs in use.
    pub sms: u32,
    pub sm_warps: u32,
    /// Shared memory of an SM, in KiB: what the largest split has.
    pub sm_shared_kib: u32,
    /// Copy engines; the first two share the graphics engine's runlist.
    pub copy_engines: u32,
    pub l2_bytes: u32,
    pub memory_bus_bits: u32,
    /// Bits of a GPU address.
    pub va_bits: u32,
    /// Windows for channels' contexts end below it.
    pub channel_va_limit: u64,
    /// The compute engine writes report semaphores of 64 bits; the copy engine takes payloads of 64 bits.
    pub wide_semaphores: bool,
    /// SEND_SIGNALING_PCAS2_B.
    pub has_pcas2: bool,
    pub has_clusters: bool,
    /// GPGet is in USERD.
    pub has_gp_get: bool,
    /// Highest PCIe generation.
    pub pcie_gen: u32,
    /// Largest clocks in kHz: graphics, memory.
    pub clocks_khz: [u32; 2],
}

const TURING_FIFOS: &[u32] = &[nvrm::VOLTA_CHANNEL_GPFIFO_A, nvrm::TURING_CHANNEL_GPFIFO_A];
const AMPERE_FIFOS: &[u32] =
    &[nvrm::VOLTA_CHANNEL_GPFIFO_A, nvrm::TURING_CHANNEL_GPFIFO_A, nvrm::AMPERE_CHANNEL_GPFIFO_A];
const HOPPER_FIFOS: &[u32] = &[
    nvrm::VOLTA_CHANNEL_GPFIFO_A,
    nvrm::TURING_CHANNEL_GPFIFO_A,
    nvrm::AMPERE_CHANNEL_GPFIFO_A,
    nvrm::HOPPER_CHANNEL_GPFIFO_A,
];
const GB100_FIFOS: &[u32] = &[
    nvrm::VOLTA_CHANNEL_GPFIFO_A,
    nvrm::TURING_CHANNEL_GPFIFO_A,
    nvrm::AMPERE_CHANNEL_GPFIFO_A,
    nvrm::HOPPER_CHANNEL_GPFIFO_A,
    nvrm::BLACKWELL_CHANNEL_GPFIFO_A,
];
const GB202_FIFOS: &[u32] = &[
    nvrm::VOLTA_CHANNEL_GPFIFO_A,
    nvrm::TURING_CHANNEL_GPFIFO_A,
    nvrm::AMPERE_CHANNEL_GPFIFO_A,
    nvrm::HOPPER_CHANNEL_GPFIFO_A,
    nvrm::BLACKWELL_CHANNEL_GPFIFO_A,
    nvrm::BLACKWELL_CHANNEL_GPFIFO_B,
];
const TURING_USERMODES: &[u32] = &[nvrm::VOLTA_USERMODE_A, nvrm::TURING_USERMODE_A];
const AMPERE_USERMODES: &[u32] = &[nvrm::VOLTA_USERMODE_A, nvrm::TURING_USERMODE_A, nvrm::AMPERE_USERMODE_A];
const HOPPER_USERMODES: &[u32] =
    &[nvrm::VOLTA_USERMODE_A, nvrm::TURING_USERMODE_A, nvrm::AMPERE_USERMODE_A, nvrm::HOPPER_USERMODE_A];
const GB202_USERMODES: &[u32] = &[
    nvrm::VOLTA_USERMODE_A,
    nvrm::TURING_USERMODE_A,
    nvrm::AMPERE_USERMODE_A,
    nvrm::HOPPER_USERMODE_A,
    nvrm::BLACKWELL_USERMODE_A,
];

/// Quadro RTX 6000.
const TU102: ChipFacts = ChipFacts {
    name: "sm_75",
    product: "Quadro RTX 6000",
    short_name: "TU102",
    device_id: 0x1e30,
    architecture: 0x160,
    implementation: 2,
    sm_version: 0x705,
    compute_class: nvrm::TURING_COMPUTE_A,
    copy_class: nvrm::TURING_DMA_COPY_A,
    gpfifo_classes: TURING_FIFOS,
    usermode_classes: TURING_USERMODES,
    qmd: Version::V2_3,
    gpcs: 6,
    tpcs_per_gpc: 6,
    sms: 72,
    sm_warps: 32,
    sm_shared_kib: 64,
    copy_engines: 6,
    l2_bytes: 6 << 20,
    memory_bus_bits: 384,
    va_bits: 49,
    channel_va_limit: 1 << 40,
    wide_semaphores: false,
    has_pcas2: false,
    has_clusters: false,
    has_gp_get: true,
    pcie_gen: 3,
    clocks_khz: [2_100_000, 7_001_000],
};
/// A100.
const GA100: ChipFacts = ChipFacts {
    name: "sm_80",
    product: "NVIDIA A100-SXM4-80GB",
    short_name: "GA100",
    device_id: 0x20b2,
    architecture: 0x170,
    implementation: 0,
    sm_version: 0x800,
    compute_class: nvrm::AMPERE_COMPUTE_A,
    copy_class: nvrm::AMPERE_DMA_COPY_A,
    gpfifo_classes: AMPERE_FIFOS,
    usermode_classes: AMPERE_USERMODES,
    qmd: Version::V3_0,
    gpcs: 8,
    tpcs_per_gpc: 8,
    sms: 108,
    sm_warps: 64,
    sm_shared_kib: 164,
    copy_engines: 10,
    l2_bytes: 40 << 20,
    memory_bus_bits: 5120,
    has_pcas2: true,
    pcie_gen: 4,
    clocks_khz: [1_410_000, 1_593_000],
    ..TU102
};
/// RTX A6000.
const GA102: ChipFacts = ChipFacts {
    name: "sm_86",
    product: "NVIDIA RTX A6000",
    short_name: "GA102",
    device_id: 0x2230,
    implementation: 2,
    sm_version: 0x806,
    compute_class: nvrm::AMPERE_COMPUTE_B,
    copy_class: nvrm::AMPERE_DMA_COPY_B,
    gpcs: 7,
    tpcs_per_gpc: 6,
    sms: 84,
    sm_warps: 48,
    sm_shared_kib: 100,
    copy_engines: 5,
    l2_bytes: 6 << 20,
    memory_bus_bits: 384,
    wide_semaphores: true,
    clocks_khz: [2_100_000, 8_001_000],
    ..GA100
};
/// RTX 6000 Ada.
const AD102: ChipFacts = ChipFacts {
    name: "sm_89",
    product: "NVIDIA RTX 6000 Ada Generation",
    short_name: "AD102",
    device_id: 0x26b1,
    architecture: 0x190,
    sm_version: 0x809,
    compute_class: nvrm::ADA_COMPUTE_A,
    gpcs: 12,
    sms: 142,
    l2_bytes: 96 << 20,
    clocks_khz: [3_105_000, 10_001_000],
    ..GA102
};
/// H200.
const GH100: ChipFacts = ChipFacts {
    name: "sm_90",
    product: "NVIDIA H200",
    short_name: "GH100",
    device_id: 0x2335,
    architecture: 0x180,
    implementation: 0,
    sm_version: 0x900,
    compute_class: nvrm::HOPPER_COMPUTE_A,
    copy_class: nvrm::HOPPER_DMA_COPY_A,
    gpfifo_classes: HOPPER_FIFOS,
    usermode_classes: HOPPER_USERMODES,
    qmd: Version::V4_0,
    gpcs: 8,
    tpcs_per_gpc: 9,
    sms: 132,
    sm_warps: 64,
    sm_shared_kib: 228,
    copy_engines: 10,
    l2_bytes: 50 << 20,
    memory_bus_bits: 6144,
    va_bits: 57,
    channel_va_limit: 1 << 57,
    has_clusters: true,
    pcie_gen: 5,
    clocks_khz: [1_980_000, 3_201_000],
    ..GA102
};
/// B200.
const GB100: ChipFacts = ChipFacts {
    name: "sm_100",
    product: "NVIDIA B200",
    short_name: "GB100",
    device_id: 0x2901,
    architecture: 0x1a0,
    sm_version: 0xa00,
    compute_class: nvrm::BLACKWELL_COMPUTE_A,
    copy_class: nvrm::BLACKWELL_DMA_COPY_A,
    gpfifo_classes: GB100_FIFOS,
    qmd: Version::V5_0,
    sms: 148,
    tpcs_per_gpc: 10,
    l2_bytes: 126 << 20,
    memory_bus_bits: 8192,
    has_gp_get: false,
    ..GH100
};
/// RTX PRO 6000 Blackwell.
const GB202: ChipFacts = ChipFacts {
    name: "sm_120",
    product: "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
    short_name: "GB202",
    device_id: 0x2bb1,
    architecture: 0x1b0,
    implementation: 2,
    sm_version: 0xc00,
    compute_class: nvrm::BLACKWELL_COMPUTE_B,
    copy_class: nvrm::BLACKWELL_DMA_COPY_B,
    gpfifo_classes: GB202_FIFOS,
    usermode_classes: GB202_USERMODES,
    gpcs: 12,
    tpcs_per_gpc: 8,
    sms: 188,
    sm_warps: 48,
    sm_shared_kib: 100,
    l2_bytes: 128 << 20,
    memory_bus_bits: 512,
    clocks_khz: [3_090_000, 14_001_000],
    ..GB100
};

/// Classes that all of these chips have in addition to their engines'.
const COMMON: &[u32] = &[
    nvrm::NV01_MEMORY_LOCAL_PRIVILEGED,
    nvrm::NV01_MEMORY_LOCAL_USER,
    nvrm::NV01_MEMORY_VIRTUAL,
    nvrm::NV01_MEMORY_LIST_FBMEM,
    nvrm::NV50_MEMORY_VIRTUAL,
    nvrm::GT200_DEBUGGER,
    nvrm::FERMI_CONTEXT_SHARE_A,
    nvrm::FERMI_VASPACE_A,
    nvrm::KEPLER_CHANNEL_GROUP_A,
];

impl Chip {
    /// Every chip there is.
    pub const ALL: [Self; 7] = [Self::Sm75, Self::Sm80, Self::Sm86, Self::Sm89, Self::Sm90, Self::Sm100, Self::Sm120];

    /// The chip's numbers.
    #[must_use]
    pub const fn facts(self) -> &'static ChipFacts {
        match self {
            Self::Sm75 => &TU102,
            Self::Sm80 => &GA100,
            Self::Sm86 => &GA102,
            Self::Sm89 => &AD102,
            Self::Sm90 => &GH100,
            Self::Sm100 => &GB100,
            Self::Sm120 => &GB202,
        }
    }

    /// The chip of that name, as `sm_90` or `sm_90a`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let plain = name.trim_end_matches(['a', 'f']);
        Self::ALL.into_iter().find(|chip| chip.facts().name == plain)
    }
}

impl ChipFacts {
    /// The device's class list.
    #[must_use]
    pub fn classes(&self) -> Vec<u32> {
        let engines = [self.compute_class, self.copy_class];
        [COMMON, self.gpfifo_classes, self.usermode_classes, &engines].concat()
    }

    /// Whether the product can be cut into instances (MIG): A100, H200, B200 can.
    #[must_use]
    pub(crate) const fn can_be_partitioned(&self) -> bool {
        matches!(self.sm_version, 0x800 | 0x900 | 0xa00)
    }

    /// TPCs in use.
    #[must_use]
    pub const fn tpcs(&self) -> u32 {
        self.sms / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chips_are_found_by_name_and_list_their_own_classes() {
        assert_eq!(Chip::named("sm_90a"), Some(Chip::Sm90));
        assert_eq!(Chip::named("sm_70"), None);
        for chip in Chip::ALL {
            let facts = chip.facts();
            assert_eq!(Version::of_compute_class(facts.compute_class), Some(facts.qmd), "{}", facts.name);
            let classes = facts.classes();
            assert!(classes.contains(&facts.copy_class) && classes.contains(&nvrm::KEPLER_CHANNEL_GROUP_A));
            assert!(facts.tpcs() <= facts.gpcs * facts.tpcs_per_gpc, "{}", facts.name);
        }
        assert_eq!((Chip::Sm90.facts().sms, Chip::Sm90.facts().tpcs()), (132, 66));
    }
}

//! Differences between AMD chips, one row per chip: packet formats, queue format, sizes of the state that the kernel
//! saves on preemption.
//!
//! Layer: chosen once at open; no other code depends on a chip's name. What compilers know of a chip as well, its name,
//! its number in a file and its LDS, is in [`doorbell_elf::amdgpu`]. Source: docs/amd.md 1.6, 1.8, 2.1, 2.9, 4.1
//! (`kfd_queue.c`, `kfd_topology.c` of Linux 6.12; `amd_hsa_queue.h`; LLVM's AMDGPU usage).
//! Left out: gfx10 and older RDNA, gfx908 and older CDNA, gfx950.

use super::topology::Node;
use doorbell_elf::amdgpu::{self as elf, LDS_BYTES};
use doorbell_hcq::packet::pm4::Gfx;
use doorbell_hcq::packet::sdma::Sdma;

/// A compute queue's packet format; it decides who reads the kernel descriptor and sets the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueFormat {
    /// This runtime does: for one XCC, each register by a packet.
    Pm4,
    /// The firmware does; it also distributes workgroups over XCCs.
    Aql,
}

/// The parameters of a chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chip {
    pub name: &'static str,
    /// `gfx_target_version` of the topology.
    pub target_version: u32,
    pub gfx: Gfx,
    pub sdma: Sdma,
    pub format: QueueFormat,
    /// Bytes of vector registers that the kernel saves per CU.
    pub save_vgpr_bytes: u64,
    /// Bytes of control stack per wave.
    pub save_wave_bytes: u64,
    /// Unit of RSRC2's LDS field.
    pub lds_granule_bytes: u32,
    /// COMPUTE_TMPRING_SIZE counts the waves of a shader engine; otherwise those of the whole device.
    pub scratch_waves_per_engine: bool,
    /// Fourth word of a scratch buffer descriptor, and the swizzle bit of the second.
    pub scratch_descriptor_word3: u32,
    pub scratch_descriptor_swizzle: u32,
}

const GFX1100: Chip = Chip {
    name: elf::Chip::Gfx1100.name(),
    target_version: 110_000,
    gfx: Gfx::Gfx11,
    sdma: Sdma::V6,
    format: QueueFormat::Pm4,
    save_vgpr_bytes: 0x6_0000,
    save_wave_bytes: 12,
    lds_granule_bytes: 512,
    scratch_waves_per_engine: true,
    scratch_descriptor_word3: 0x2081_4fac,
    scratch_descriptor_swizzle: 1 << 30,
};

const GFX942: Chip = Chip {
    name: elf::Chip::Gfx942.name(),
    target_version: 90_402,
    gfx: Gfx::Gfx9,
    sdma: Sdma::V4,
    format: QueueFormat::Aql,
    save_vgpr_bytes: 0x8_0000,
    save_wave_bytes: 8,
    scratch_waves_per_engine: false,
    scratch_descriptor_word3: 0x00ea_4fac,
    scratch_descriptor_swizzle: 1 << 31,
    ..GFX1100
};

/// All known chips. gfx90a uses the same tables as gfx942, and only these tables are tested for it.
pub const CHIPS: &[Chip] = &[
    GFX1100,
    Chip { name: elf::Chip::Gfx1201.name(), target_version: 120_001, gfx: Gfx::Gfx12, sdma: Sdma::V7, ..GFX1100 },
    GFX942,
    Chip { name: "gfx90a", target_version: 90_010, ..GFX942 },
];

impl Chip {
    /// The chip with that `gfx_target_version`.
    #[must_use]
    pub fn of_version(version: u32) -> Option<&'static Self> {
        CHIPS.iter().find(|c| c.target_version == version)
    }

    /// The names of all chips, for messages.
    #[must_use]
    pub fn names() -> String {
        CHIPS.iter().map(|c| c.name).collect::<Vec<_>>().join(", ")
    }

    /// Alignment of a wave's scratch in bytes.
    #[must_use]
    pub(crate) fn scratch_align(&self) -> u64 {
        u64::from(self.gfx.table().scratch_granule_bytes)
    }
}

/// Name of any `gfx_target_version`: major * 10000 + minor * 100 + step, the last two in hexadecimal digits.
#[must_use]
pub fn version_name(version: u32) -> String {
    format!("gfx{}{:x}{:x}", version / 10_000, version / 100 % 100, version % 100)
}

/// Sizes of a compute queue's save area, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaveArea {
    /// `ctl_stack_size` of CREATE_QUEUE.
    pub ctl_stack: u64,
    /// `ctx_save_restore_size` of CREATE_QUEUE, for one XCC.
    pub context: u64,
    /// Bytes of the debugger's part, for one XCC.
    pub debug: u64,
    /// Bytes of the whole buffer.
    pub buffer: u64,
}

const SGPR_BYTES: u64 = 0x4000;
const HWREG_BYTES: u64 = 0x1000;
const HEADER_BYTES: u64 = 40;

impl SaveArea {
    /// The sizes that the kernel expects for this node: the topology's numbers if it has them, else computed in the
    /// same way as the kernel, whose pages have `page` bytes.
    #[must_use]
    pub fn of(chip: &Chip, node: &Node, page: u64) -> Self {
        let xcc = node.xcc_count();
        let cu = node.cu_count() / xcc;
        let is_gfx9 = chip.gfx == Gfx::Gfx9;
        let engines = node.value("array_count") / xcc / node.value("simd_arrays_per_engine").max(1);
        let waves = if is_gfx9 { (cu * 40).min(engines * 512) } else { cu * 32 };
        let lds = u64::from(LDS_BYTES);
        let per_cu = chip.save_vgpr_bytes + SGPR_BYTES + lds + HWREG_BYTES;
        let computed = (HEADER_BYTES + waves * chip.save_wave_bytes + 8).next_multiple_of(page);
        let printed = |key: &str| Some(node.value(key)).filter(|n| *n != 0);
        let ctl_stack = printed("ctl_stack_size").unwrap_or(computed);
        let context = printed("cwsr_size").unwrap_or(computed + (cu * per_cu).next_multiple_of(page));
        let debug = (waves * 32).next_multiple_of(64);
        Self { ctl_stack, context, debug, buffer: ((context + debug) * xcc).next_multiple_of(page) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(pairs: &[(&str, u64)]) -> Node {
        Node { properties: pairs.iter().map(|(k, v)| ((*k).to_string(), *v)).collect(), ..Node::default() }
    }

    #[test]
    fn save_areas_are_the_kernels_numbers() {
        // The table of docs/amd.md 1.6: active CUs, and the sizes that the kernel computes from them.
        let sizes = |version, pairs: &[(&str, u64)]| {
            let s = SaveArea::of(Chip::of_version(version).unwrap(), &node(pairs), 4096);
            [s.ctl_stack, s.context, s.debug, s.buffer]
        };
        let rdna = |simds| {
            [
                ("simd_count", simds),
                ("simd_per_cu", 2),
                ("array_count", 12),
                ("simd_arrays_per_engine", 2),
                ("num_xcc", 1),
            ]
        };
        assert_eq!(sizes(110_000, &rdna(192)), [0xa000, 0x2be_a000, 0x1_8000, 0x2c0_2000]);
        assert_eq!(sizes(120_001, &rdna(128)), [0x7000, 0x1d4_7000, 0x1_0000, 0x1d5_7000]);
        let mi300 = [
            ("simd_count", 1216),
            ("simd_per_cu", 4),
            ("array_count", 32),
            ("simd_arrays_per_engine", 1),
            ("num_xcc", 8),
        ];
        assert_eq!(sizes(90_402, &mi300), [0x3000, 0x162_1000, 0xbe00, 0xb16_7000]);
    }

    #[test]
    fn numbers_that_the_kernel_prints_win() {
        let n =
            node(&[("simd_count", 192), ("simd_per_cu", 2), ("cwsr_size", 0x1000_0000), ("ctl_stack_size", 0xb000)]);
        let s = SaveArea::of(Chip::of_version(110_000).unwrap(), &n, 4096);
        assert_eq!((s.ctl_stack, s.context), (0xb000, 0x1000_0000));
    }

    #[test]
    fn names_follow_from_versions() {
        for chip in CHIPS {
            assert_eq!(version_name(chip.target_version), chip.name);
        }
        assert_eq!(version_name(90_010), "gfx90a");
        assert_eq!(version_name(110_003), "gfx1103");
    }
}

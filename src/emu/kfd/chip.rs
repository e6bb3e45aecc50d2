//! The chips that the software KFD can be: properties of their topology nodes and engines, one table a chip.
//!
//! Source: docs/amd.md 1.6 (context-save sizes), 1.8 (properties, IP versions), 4.5 (limits). Numbers that a real
//! card's firmware or board decides (versions, ids, clocks) are plausible ones.

pub use crate::amdgpu::Chip;
use doorbell_hcq::packet::pm4::Gfx;
use doorbell_hcq::packet::sdma::Sdma;

/// A chip's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChipFacts {
    pub gfx: Gfx,
    pub sdma: Sdma,
    pub gfx_target_version: u32,
    pub device_id: u32,
    pub simd_count: u32,
    pub simd_per_cu: u32,
    pub array_count: u32,
    pub simd_arrays_per_engine: u32,
    pub cu_per_simd_array: u32,
    pub max_waves_per_simd: u32,
    pub wave_front_size: u32,
    pub num_sdma_engines: u32,
    pub num_sdma_xgmi_engines: u32,
    pub num_sdma_queues_per_engine: u32,
    pub num_xcc: u32,
    /// Queues of one process.
    pub max_queues: usize,
    /// Bytes of vector registers that a CU saves.
    vgpr_save_bytes: u32,
    /// Hardware id, major, minor, revision of each IP block.
    pub ip: &'static [(u32, u32, u32, u32)],
}

/// EOP buffer size that the kernel requires, on all three.
pub(crate) const EOP_BYTES: u64 = 4096;
/// LDS of a workgroup, on all three.
pub(crate) const LDS_BYTES: u32 = 0x1_0000;
/// Waves of a CU that may have scratch.
pub(crate) const MAX_SLOTS_SCRATCH_CU: u32 = 32;
/// Lanes of a workgroup.
pub(crate) const MAX_WORKGROUP: u32 = 1024;
/// Unit of the LDS size in RSRC2, in bytes.
pub(crate) const LDS_GRANULE: u32 = 512;

/// RDNA3, 96 CUs.
const GFX1100: ChipFacts = ChipFacts {
    gfx: Gfx::Gfx11,
    sdma: Sdma::V6,
    gfx_target_version: 110_000,
    device_id: 0x744c,
    simd_count: 192,
    simd_per_cu: 2,
    array_count: 12,
    simd_arrays_per_engine: 2,
    cu_per_simd_array: 8,
    max_waves_per_simd: 16,
    wave_front_size: 32,
    num_sdma_engines: 2,
    num_sdma_xgmi_engines: 0,
    num_sdma_queues_per_engine: 6,
    num_xcc: 1,
    max_queues: 127,
    vgpr_save_bytes: 0x6_0000,
    ip: &[(11, 11, 0, 0), (34, 3, 0, 0), (41, 6, 0, 0), (42, 6, 0, 0), (108, 4, 3, 0), (255, 13, 0, 0)],
};

/// CDNA3, 8 XCCs of 38 CUs.
const GFX942: ChipFacts = ChipFacts {
    gfx: Gfx::Gfx9,
    sdma: Sdma::V4,
    gfx_target_version: 90_402,
    device_id: 0x74a1,
    simd_count: 1216,
    simd_per_cu: 4,
    array_count: 32,
    simd_arrays_per_engine: 1,
    cu_per_simd_array: 10,
    max_waves_per_simd: 8,
    wave_front_size: 64,
    num_sdma_engines: 2,
    num_sdma_xgmi_engines: 14,
    num_sdma_queues_per_engine: 8,
    num_xcc: 8,
    max_queues: 255,
    vgpr_save_bytes: 0x8_0000,
    ip: &[(11, 9, 4, 3), (34, 1, 8, 0), (41, 4, 4, 2), (42, 4, 4, 2), (108, 7, 9, 0), (255, 13, 0, 6)],
};

/// RDNA4, 64 CUs.
const GFX1201: ChipFacts = ChipFacts {
    gfx: Gfx::Gfx12,
    sdma: Sdma::V7,
    gfx_target_version: 120_001,
    device_id: 0x7550,
    simd_count: 128,
    array_count: 8,
    ip: &[(11, 12, 0, 1), (34, 4, 1, 0), (41, 7, 0, 0), (42, 7, 0, 1), (108, 6, 3, 1), (255, 14, 0, 3)],
    num_sdma_queues_per_engine: 8,
    ..GFX1100
};

/// The chip's numbers.
#[must_use]
pub const fn facts_of(chip: Chip) -> &'static ChipFacts {
    match chip {
        Chip::Gfx1100 => &GFX1100,
        Chip::Gfx942 => &GFX942,
        Chip::Gfx1201 => &GFX1201,
    }
}

/// Sizes of the context-save area of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SaveArea {
    pub ctl_stack_bytes: u32,
    pub cwsr_bytes: u32,
    pub debug_bytes: u32,
    /// The whole mapping, over all XCCs.
    pub total_bytes: u64,
}

const SGPR_SAVE_BYTES: u32 = 0x4000;
const LDS_SAVE_BYTES: u32 = 0x1_0000;
const HWREG_SAVE_BYTES: u32 = 0x1000;

impl ChipFacts {
    /// Compute units of one XCC.
    #[must_use]
    pub const fn cu_per_xcc(&self) -> u32 {
        self.simd_count / self.simd_per_cu / self.num_xcc
    }

    /// The size that a kernel with such pages requires for a queue's context-save area (docs/amd.md 1.6).
    #[must_use]
    pub(crate) const fn save_area(&self, page_bytes: u64) -> SaveArea {
        let page = page_bytes as u32;
        let cu = self.cu_per_xcc();
        let is_gfx9 = matches!(self.gfx, Gfx::Gfx9);
        let waves = if is_gfx9 {
            let by_engine = (self.array_count / self.num_xcc) / self.simd_arrays_per_engine * 512;
            if cu * 40 < by_engine { cu * 40 } else { by_engine }
        } else {
            cu * 32
        };
        let per_cu = self.vgpr_save_bytes + SGPR_SAVE_BYTES + LDS_SAVE_BYTES + HWREG_SAVE_BYTES;
        let ctl = (40 + waves * (if is_gfx9 { 8 } else { 12 }) + 8).next_multiple_of(page);
        let cwsr = ctl + (cu * per_cu).next_multiple_of(page);
        let debug = (waves * 32).next_multiple_of(64);
        let total = ((cwsr + debug) as u64 * self.num_xcc as u64).next_multiple_of(page_bytes);
        SaveArea { ctl_stack_bytes: ctl, cwsr_bytes: cwsr, debug_bytes: debug, total_bytes: total }
    }

    /// Queues that all SDMA engines of this kind carry together.
    #[must_use]
    pub(crate) const fn sdma_queues(&self, xgmi: bool) -> u32 {
        let engines = if xgmi { self.num_sdma_xgmi_engines } else { self.num_sdma_engines };
        engines * self.num_sdma_queues_per_engine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn save_areas_are_the_tables_of_the_kernel() {
        let area = |chip: Chip| facts_of(chip).save_area(4096);
        let of = |ctl_stack_bytes, cwsr_bytes, debug_bytes, total_bytes| SaveArea {
            ctl_stack_bytes,
            cwsr_bytes,
            debug_bytes,
            total_bytes,
        };
        // docs/amd.md 1.6
        assert_eq!(area(Chip::Gfx1100), of(0xa000, 0x02be_a000, 0x1_8000, 0x02c0_2000));
        assert_eq!(area(Chip::Gfx1201), of(0x7000, 0x01d4_7000, 0x1_0000, 0x01d5_7000));
        assert_eq!(area(Chip::Gfx942), of(0x3000, 0x0162_1000, 0xbe00, 0x0b16_7000));
    }

    #[test]
    fn chips_are_found_by_name() {
        assert_eq!(Chip::named("gfx942"), Some(Chip::Gfx942));
        assert_eq!(Chip::named("gfx900"), None);
    }
}

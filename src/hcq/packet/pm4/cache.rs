//! Cache controls of ACQUIRE_MEM and RELEASE_MEM.
//!
//! Source: docs/amd.md 2.3; bit names of the kernel driver. Two-bit fields have one flag per bit (`SEQ_LO`, `SEQ_HI`).

use bitflags::bitflags;

bitflags! {
    /// `gcr_cntl` of ACQUIRE_MEM and SDMA's GCR, gfx10 and later.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct GcrCntl: u32 {
        const GLI_INV = 1 << 0;
        const GLI_INV_HI = 1 << 1;
        const GL1_RANGE_LO = 1 << 2;
        const GL1_RANGE_HI = 1 << 3;
        const GLM_WB = 1 << 4;
        const GLM_INV = 1 << 5;
        const GLK_WB = 1 << 6;
        const GLK_INV = 1 << 7;
        const GLV_INV = 1 << 8;
        const GL1_INV = 1 << 9;
        const GL2_US = 1 << 10;
        const GL2_RANGE_LO = 1 << 11;
        const GL2_RANGE_HI = 1 << 12;
        const GL2_DISCARD = 1 << 13;
        const GL2_INV = 1 << 14;
        const GL2_WB = 1 << 15;
        const SEQ_LO = 1 << 16;
        const SEQ_HI = 1 << 17;
        const RANGE_IS_PA = 1 << 18;

        /// Scalar, vector and L1 caches; no instructions, no L2.
        const BEFORE_DISPATCH = 0x03f0;
        /// Everything.
        const FULL = 0xc3f1;
    }
}

bitflags! {
    /// `cp_coher_cntl` of ACQUIRE_MEM, gfx9.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CoherCntl: u32 {
        const TC_NC = 1 << 3;
        const TC_WB = 1 << 18;
        const TCL1 = 1 << 22;
        const TC = 1 << 23;
        const SH_KCACHE = 1 << 27;
        const SH_ICACHE = 1 << 29;

        /// Scalar data cache and vector L1.
        const BEFORE_DISPATCH = 0x0840_0000;
        /// Everything.
        const FULL = 0x28c4_0000;
    }
}

bitflags! {
    /// Cache bits of RELEASE_MEM's event dword, gfx10 and later.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReleaseGcr: u32 {
        const GLM_WB = 1 << 12;
        const GLM_INV = 1 << 13;
        const GLV_INV = 1 << 14;
        const GL1_INV = 1 << 15;
        const GL2_US = 1 << 16;
        const GL2_RANGE_LO = 1 << 17;
        const GL2_RANGE_HI = 1 << 18;
        const GL2_DISCARD = 1 << 19;
        const GL2_INV = 1 << 20;
        const GL2_WB = 1 << 21;
        const SEQ_LO = 1 << 22;
        const SEQ_HI = 1 << 23;
        const CACHE_POLICY_LO = 1 << 25;
        const CACHE_POLICY_HI = 1 << 26;
        const EXECUTE = 1 << 28;

        /// Write back and invalidate all, in sequence.
        const FLUSH = 0x0070_f000;
    }
}

bitflags! {
    /// Cache bits of RELEASE_MEM's event dword, gfx9.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReleaseTc: u32 {
        const TCL1_VOL = 1 << 12;
        const TC_VOL = 1 << 13;
        const TC_WB = 1 << 15;
        const TCL1 = 1 << 16;
        const TC = 1 << 17;
        const TC_NC = 1 << 19;
        const TC_MD = 1 << 21;
        const EXEC = 1 << 28;

        /// Write back; clean lines stay cached.
        const FLUSH = 0x0008_8000;
    }
}

/// The address range of a cache action, in 256-byte units, as in the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoherRange {
    pub base_256: u64,
    pub size_256: u64,
}

impl CoherRange {
    /// All of memory.
    pub const ALL: Self = Self { base_256: 0, size_256: u64::MAX };
}

/// Flag names joined by `|`, or `none`.
pub(super) fn names(mut flags: impl Iterator<Item = &'static str>) -> String {
    let Some(first) = flags.next() else { return "none".to_owned() };
    flags.fold(first.to_owned(), |text, name| text + "|" + name)
}

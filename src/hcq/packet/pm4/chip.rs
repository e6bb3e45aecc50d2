//! Differences between gfx families in PM4: one table per family, chosen once at open.
//!
//! Source: docs/amd.md 2.3 (tested cache controls), 2.4 (register numbers, field widths).

use super::cache::{CoherCntl, GcrCntl, ReleaseGcr, ReleaseTc};
use super::regs::ShReg;
use super::sync::{Acquire, Release};

/// A family of graphics cores with the same PM4 variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gfx {
    /// gfx90a, gfx942: CDNA.
    Gfx9,
    /// gfx10: RDNA1, RDNA2.
    Gfx10,
    /// gfx11: RDNA3.
    Gfx11,
    /// gfx12: RDNA4.
    Gfx12,
}

/// The strength of an acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireScope {
    /// All caches, including instructions: after code was uploaded, or after other agents wrote data.
    Full,
    /// Scalar and vector caches, but neither L2 nor instructions: before a dispatch that reads data written by this
    /// queue or the host.
    Dispatch,
}

/// The family's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    pub name: &'static str,
    pub compute_pgm_rsrc3: ShReg,
    pub acquire_full: Acquire,
    pub acquire_dispatch: Acquire,
    /// RELEASE_MEM that writes back and invalidates.
    pub release_flush: Release,
    /// RELEASE_MEM without cache actions.
    pub release_plain: Release,
    /// COMPUTE_TMPRING_SIZE's wave size field: its unit in bytes, and its highest bit (the lowest is 12).
    pub scratch_granule_bytes: u32,
    pub scratch_wave_size_hi: u32,
    /// COMPUTE_NUM_THREAD: highest bit of the full count.
    pub num_thread_full_hi: u32,
    /// The family has waves of 32 lanes (bit 15 of the dispatch initiator).
    pub wave32: bool,
    /// The priv bit of RSRC1 must be set (a context-save workaround).
    pub rsrc1_priv: bool,
    /// Packets control caches by GCR fields, not by CP_COHER_CNTL.
    pub gcr: bool,
}

const GFX9: Table = Table {
    name: "gfx9",
    compute_pgm_rsrc3: ShReg::COMPUTE_PGM_RSRC3_GFX9,
    acquire_full: Acquire::Coher(CoherCntl::FULL),
    acquire_dispatch: Acquire::Coher(CoherCntl::BEFORE_DISPATCH),
    release_flush: Release::Tc(ReleaseTc::FLUSH),
    release_plain: Release::Tc(ReleaseTc::empty()),
    scratch_granule_bytes: 1024,
    scratch_wave_size_hi: 24,
    num_thread_full_hi: 15,
    wave32: false,
    rsrc1_priv: false,
    gcr: false,
};

const GFX10: Table = Table {
    name: "gfx10",
    compute_pgm_rsrc3: ShReg::COMPUTE_PGM_RSRC3,
    acquire_full: Acquire::Gcr(GcrCntl::FULL),
    acquire_dispatch: Acquire::Gcr(GcrCntl::BEFORE_DISPATCH),
    release_flush: Release::Gcr(ReleaseGcr::FLUSH),
    release_plain: Release::Gcr(ReleaseGcr::empty()),
    wave32: true,
    gcr: true,
    ..GFX9
};

const GFX11: Table =
    Table { name: "gfx11", scratch_granule_bytes: 256, scratch_wave_size_hi: 26, rsrc1_priv: true, ..GFX10 };

const GFX12: Table =
    Table { name: "gfx12", scratch_wave_size_hi: 29, num_thread_full_hi: 12, rsrc1_priv: false, ..GFX11 };

impl Gfx {
    /// The family's table.
    #[must_use]
    pub const fn table(self) -> &'static Table {
        match self {
            Self::Gfx9 => &GFX9,
            Self::Gfx10 => &GFX10,
            Self::Gfx11 => &GFX11,
            Self::Gfx12 => &GFX12,
        }
    }

    /// The cache control for an acquire of this strength.
    #[must_use]
    pub const fn acquire(self, scope: AcquireScope) -> Acquire {
        match scope {
            AcquireScope::Full => self.table().acquire_full,
            AcquireScope::Dispatch => self.table().acquire_dispatch,
        }
    }
}

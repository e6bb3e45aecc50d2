//! What a launch must know of a kernel: the contents of its descriptor (amd.md 4.2, 4.3).

use super::super::select::{Selected, user_sgprs};
use super::super::{Chip, Target, Wave};
use super::place::Placed;
use crate::codegen::Program;

/// Resources and settings of one kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    pub target: Target,
    /// Vector registers used, counted from 0.
    pub vgprs: u32,
    /// Scalar registers used, VCC among them.
    pub sgprs: u32,
    pub lds_bytes: u32,
    /// Private memory of a thread.
    pub scratch_bytes: u32,
    pub kernarg_bytes: u32,
    pub user_sgprs: u32,
    /// Which workgroup ids the kernel reads.
    pub group_ids: [bool; 3],
    /// Highest axis of the thread ids that it reads.
    pub item_axes: u32,
}

impl Facts {
    pub(super) fn of(program: &Program, selected: &Selected, placed: &Placed, target: Target) -> Facts {
        let args = (program.params.len() + program.vars.len()) as u32;
        Facts {
            target,
            vgprs: placed.vgprs,
            sgprs: placed.sgprs,
            lds_bytes: selected.lds_bytes,
            scratch_bytes: placed.scratch_bytes,
            kernarg_bytes: 8 * args,
            user_sgprs: user_sgprs(target.chip),
            group_ids: selected.group_axes,
            item_axes: selected.item_axes,
        }
    }

    /// COMPUTE_PGM_RSRC1: register counts; rounding to nearest even, denormals kept.
    #[must_use]
    pub fn rsrc1(&self) -> u32 {
        let granule = if self.target.wave == Wave::W32 || self.target.chip.is_gfx9() { 8 } else { 4 };
        let vgprs = self.vgprs.max(1).div_ceil(granule) - 1;
        let modes = 0xf << 16;
        match self.target.chip {
            Chip::Gfx1100 => vgprs | modes | 1 << 21 | 1 << 23 | 1 << 29 | 1 << 30,
            Chip::Gfx1201 => vgprs | modes | 1 << 29 | 1 << 30,
            Chip::Gfx942 => {
                let sgprs = 2 * ((self.sgprs + 6).div_ceil(16).max(1) - 1);
                vgprs | sgprs << 6 | modes | 1 << 21 | 1 << 23
            }
        }
    }

    /// COMPUTE_PGM_RSRC2: scratch, user registers, which ids the wave finds.
    #[must_use]
    pub fn rsrc2(&self) -> u32 {
        let scratch = u32::from(self.scratch_bytes > 0);
        let groups = (0..3).filter(|k| self.group_ids[*k as usize]).map(|k| 1 << (7 + k)).sum::<u32>();
        scratch | self.user_sgprs << 1 | groups | self.item_axes << 11
    }

    /// COMPUTE_PGM_RSRC3: gfx942's split of the register file.
    #[must_use]
    pub fn rsrc3(&self) -> u32 {
        match self.target.chip {
            Chip::Gfx942 => self.vgprs.max(1).div_ceil(4) - 1,
            _ => 0,
        }
    }

    /// kernel_code_properties: kernel argument pointer, wave32.
    #[must_use]
    pub fn properties(&self) -> u16 {
        1 << 3 | u16::from(self.target.wave == Wave::W32) << 10
    }
}

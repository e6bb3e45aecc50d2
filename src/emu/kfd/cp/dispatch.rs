//! Registers → a dispatch: what both command processors pass to the compute units.
//!
//! Source: docs/amd.md 2.4, 4.3.

use super::super::chip::{Chip, LDS_BYTES, LDS_GRANULE, MAX_WORKGROUP};
use super::super::compute::Dispatch;
use super::{BadDispatch, Cause};
use crate::kfd::chip::facts_of;
use doorbell_hcq::bits::join;
use doorbell_hcq::packet::pm4::regs::{
    RSRC2_LDS_SIZE, SH_REG_COUNT, ShReg, TmpringSize, USER_DATA_COUNT, initiator, num_thread, sh_reg_exists,
};

/// The compute registers of one queue on one XCC. They keep their values over dispatches, as hardware's do.
#[derive(Clone, Debug)]
pub(super) struct Registers {
    chip: Chip,
    sh: Vec<u32>,
    /// User SGPRs that were written.
    user_data_written: u32,
}

pub(super) fn bad(code: BadDispatch, what: impl Into<String>) -> Cause {
    Cause::Dispatch { what: what.into(), code }
}

impl Registers {
    pub(crate) fn new(chip: Chip) -> Self {
        Self { chip, sh: vec![0; SH_REG_COUNT as usize], user_data_written: 0 }
    }

    /// Writes a register of the SH space.
    pub(crate) fn set(&mut self, packet: &'static str, reg: ShReg, value: u32) -> Result<(), Cause> {
        if !sh_reg_exists(facts_of(self.chip).gfx, reg) {
            return Err(Cause::Register { packet, reg: u32::from(reg.0) });
        }
        self.sh[usize::from(reg.0)] = value;
        let user = reg.0.wrapping_sub(ShReg::COMPUTE_USER_DATA_0.0);
        if u32::from(user) < USER_DATA_COUNT {
            self.user_data_written |= 1 << user;
        }
        Ok(())
    }

    /// Reads a register of the SH space.
    pub(crate) fn get(&self, packet: &'static str, reg: ShReg) -> Result<u32, Cause> {
        if !sh_reg_exists(facts_of(self.chip).gfx, reg) {
            return Err(Cause::Register { packet, reg: u32::from(reg.0) });
        }
        Ok(self.at(reg, 0))
    }

    fn at(&self, reg: ShReg, index: u16) -> u32 {
        self.sh.get(usize::from(reg.0 + index)).copied().unwrap_or(0)
    }

    fn three(&self, first: ShReg) -> [u32; 3] {
        std::array::from_fn(|i| self.at(first, i as u16))
    }

    /// The dispatch that these registers describe; `None` for one without workgroups.
    pub(crate) fn dispatch(&self, counts: [u32; 3], start: u32) -> Result<Option<Dispatch>, Cause> {
        let gfx = facts_of(self.chip).gfx;
        if start & initiator::COMPUTE_SHADER_EN == 0 {
            return Err(bad(BadDispatch::Register, format!("initiator {start:#x} does not enable compute")));
        }
        let wave32 = start & initiator::CS_W32_EN != 0;
        if wave32 && !gfx.table().wave32 {
            return Err(bad(BadDispatch::Register, "wave32 on a chip that has waves of 64 only"));
        }
        if self.three(ShReg::COMPUTE_START_X) != [0; 3] || self.three(ShReg::COMPUTE_RESTART_X) != [0; 3] {
            return Err(bad(BadDispatch::Register, "COMPUTE_START and COMPUTE_RESTART other than 0 are not modelled"));
        }
        let lanes = self.three(ShReg::COMPUTE_NUM_THREAD_X).map(|word| num_thread(gfx, word));
        let local = lanes.map(|(full, _)| full);
        check_workgroup(local)?;
        let Some((groups, last_partial)) = shape(counts, lanes, start)? else { return Ok(None) };
        let tmpring = TmpringSize::parse(gfx, self.at(ShReg::COMPUTE_TMPRING_SIZE, 0));
        let rsrc2 = self.at(ShReg::COMPUTE_PGM_RSRC2, 0);
        let wide = |lo| join(self.at(lo, 0), self.at(lo, 1)) << 8;
        Ok(Some(Dispatch {
            chip: self.chip,
            entry: wide(ShReg::COMPUTE_PGM_LO),
            wave32,
            groups,
            local,
            last_partial,
            rsrc1: self.at(ShReg::COMPUTE_PGM_RSRC1, 0),
            rsrc2,
            rsrc3: self.at(gfx.table().compute_pgm_rsrc3, 0),
            user_data: (0..USER_DATA_COUNT as u16).map(|i| self.at(ShReg::COMPUTE_USER_DATA_0, i)).collect(),
            user_data_written: self.user_data_written,
            lds_bytes: check_lds(RSRC2_LDS_SIZE.get(&[rsrc2]) * LDS_GRANULE)?,
            scratch_base: wide(ShReg::COMPUTE_DISPATCH_SCRATCH_BASE_LO),
            scratch_wave_bytes: tmpring.wave_bytes,
            scratch_waves: tmpring.waves,
        }))
    }
}

/// Refuses more LDS than a workgroup can have.
pub(super) fn check_lds(bytes: u32) -> Result<u32, Cause> {
    if bytes > LDS_BYTES {
        return Err(bad(BadDispatch::GroupSegment, format!("{bytes} bytes of LDS, a workgroup has {LDS_BYTES}")));
    }
    Ok(bytes)
}

/// Refuses workgroups without lanes or with too many.
pub(super) fn check_workgroup(local: [u32; 3]) -> Result<(), Cause> {
    let [x, y, z] = local;
    if local.contains(&0) {
        return Err(bad(BadDispatch::Dimensions, format!("workgroup of {x},{y},{z} lanes")));
    }
    let all = u64::from(x) * u64::from(y) * u64::from(z);
    if all > u64::from(MAX_WORKGROUP) {
        let what = format!("workgroup of {x},{y},{z} is {all} lanes, at most {MAX_WORKGROUP}");
        return Err(bad(BadDispatch::WorkgroupSize, what));
    }
    Ok(())
}

/// Workgroups and the lanes of the last ones.
type Shape = ([u32; 3], [u32; 3]);

fn shape(counts: [u32; 3], lanes: [(u32, u32); 3], start: u32) -> Result<Option<Shape>, Cause> {
    if counts.contains(&0) {
        return Ok(None);
    }
    let mut groups = counts;
    let mut last = lanes.map(|(full, _)| full);
    for d in 0..3 {
        let (full, partial) = lanes[d];
        if start & initiator::USE_THREAD_DIMENSIONS != 0 {
            groups[d] = counts[d].div_ceil(full);
            last[d] = counts[d] - (groups[d] - 1) * full;
        } else if start & initiator::PARTIAL_TG_EN != 0 && partial != 0 {
            if partial > full {
                let what = format!("partial workgroup of {partial} lanes, the full one has {full}");
                return Err(bad(BadDispatch::Dimensions, what));
            }
            last[d] = partial;
        }
    }
    Ok(Some((groups, last)))
}

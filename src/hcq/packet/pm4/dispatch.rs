//! Register writes and dispatches: SET_SH_REG, SET_UCONFIG_REG, DISPATCH_DIRECT, DISPATCH_INDIRECT, and one whole
//! launch.
//!
//! Source: docs/amd.md 2.3-2.5; DISPATCH_INDIRECT's form on compute rings after Mesa.

use super::chip::Gfx;
use super::regs::{self, SH_REG_COUNT, ShReg, UCONFIG_REG_COUNT, USER_DATA_COUNT, UconfigReg, initiator};
use super::{GpuVa, check_len, op, put_header, put_values, values};
use crate::bits::{Field, field, join, split};
use crate::packet::{DecodeKind, EmitError, check_align, check_emit_align, check_reserved};
use std::fmt;

const REG_OFFSET: Field = field(1, 0, 15);

/// Refuses registers outside their space.
fn check_space(packet: &'static str, reg: u32, count: usize, space: u32) -> Result<(), DecodeKind> {
    let end = u64::from(reg) + count as u64;
    if end <= u64::from(space) { Ok(()) } else { Err(DecodeKind::Value { packet, field: "register", value: reg }) }
}

fn check_emit_space(packet: &'static str, reg: u16, count: usize, space: u32) -> Result<(), EmitError> {
    let (end, max) = (u64::from(reg) + count as u64, u64::from(space));
    if end <= max { Ok(()) } else { Err(EmitError::OverLimit { packet, field: "register", value: end, max }) }
}

/// SET_SH_REG: consecutive registers of the SH space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetShReg<'a> {
    pub first: ShReg,
    pub values: &'a [u32],
}

impl<'a> SetShReg<'a> {
    /// # Errors
    /// `Values` for none or too many, `OverLimit` when they leave the register space.
    pub fn emit(&self, out: &mut Vec<u32>) -> Result<(), EmitError> {
        check_emit_space("SET_SH_REG", self.first.0, self.values.len(), SH_REG_COUNT)?;
        let mut head = [0, u32::from(self.first.0)];
        put_values(out, "SET_SH_REG", op::PACKET3_SET_SH_REG, &mut head, self.values)
    }

    pub(super) fn parse(words: &'a [u32]) -> Result<Self, DecodeKind> {
        const NAME: &str = "SET_SH_REG";
        let values = values(NAME, words, 2)?;
        check_reserved(NAME, &words[..2], &[REG_OFFSET])?;
        let reg = REG_OFFSET.get(words);
        check_space(NAME, reg, values.len(), SH_REG_COUNT)?;
        // PANIC: the field has 16 bits.
        let first = ShReg(u16::try_from(reg).expect("16 bits"));
        Ok(Self { first, values })
    }

    pub(super) fn print(&self, f: &mut fmt::Formatter<'_>, gfx: Gfx) -> fmt::Result {
        let name = regs::sh_reg_name(gfx, self.first).unwrap_or_else(|| format!("register {:#x}", self.first.0));
        write!(f, "SET_SH_REG {name} =")?;
        self.values.iter().try_for_each(|value| write!(f, " {value:#x}"))
    }
}

/// SET_UCONFIG_REG: consecutive registers of the UCONFIG space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetUconfigReg<'a> {
    pub first: UconfigReg,
    pub values: &'a [u32],
}

impl<'a> SetUconfigReg<'a> {
    /// # Errors
    /// `Values` for none or too many, `OverLimit` when they leave the register space.
    pub fn emit(&self, out: &mut Vec<u32>) -> Result<(), EmitError> {
        check_emit_space("SET_UCONFIG_REG", self.first.0, self.values.len(), UCONFIG_REG_COUNT)?;
        let mut head = [0, u32::from(self.first.0)];
        put_values(out, "SET_UCONFIG_REG", op::PACKET3_SET_UCONFIG_REG, &mut head, self.values)
    }

    pub(super) fn parse(words: &'a [u32]) -> Result<Self, DecodeKind> {
        const NAME: &str = "SET_UCONFIG_REG";
        let values = values(NAME, words, 2)?;
        check_reserved(NAME, &words[..2], &[REG_OFFSET])?;
        let reg = REG_OFFSET.get(words);
        check_space(NAME, reg, values.len(), UCONFIG_REG_COUNT)?;
        // PANIC: the field has 16 bits.
        let first = UconfigReg(u16::try_from(reg).expect("16 bits"));
        Ok(Self { first, values })
    }
}

impl fmt::Display for SetUconfigReg<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SET_UCONFIG_REG register {:#x} =", self.first.0)?;
        self.values.iter().try_for_each(|value| write!(f, " {value:#x}"))
    }
}

/// DISPATCH_DIRECT: starts workgroups with the current registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DispatchDirect {
    /// Workgroups in x, y, z.
    pub groups: [u32; 3],
    /// COMPUTE_DISPATCH_INITIATOR ([`regs::initiator`]).
    pub initiator: u32,
}

impl DispatchDirect {
    /// # Errors
    /// None for these fields; the signature is the same for all packets.
    pub fn emit(&self, out: &mut Vec<u32>) -> Result<(), EmitError> {
        let [x, y, z] = self.groups;
        let mut w = [0, x, y, z, self.initiator];
        put_header(&mut w, op::PACKET3_DISPATCH_DIRECT)?;
        out.extend(w);
        Ok(())
    }

    pub(super) fn parse(words: &[u32]) -> Result<Self, DecodeKind> {
        const NAME: &str = "DISPATCH_DIRECT";
        check_len(NAME, words, 5)?;
        check_initiator(NAME, 4, words[4])?;
        Ok(Self { groups: [words[1], words[2], words[3]], initiator: words[4] })
    }
}

fn check_initiator(packet: &'static str, dword: usize, value: u32) -> Result<(), DecodeKind> {
    match value & !initiator::KNOWN {
        0 => Ok(()),
        bits => Err(DecodeKind::Reserved { packet, dword, bits }),
    }
}

impl fmt::Display for DispatchDirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.groups;
        write!(f, "DISPATCH_DIRECT groups {x},{y},{z} initiator {:#x}", self.initiator)
    }
}

/// DISPATCH_INDIRECT: as DISPATCH_DIRECT, with the three group counts read from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DispatchIndirect {
    /// 4-byte aligned, of three dwords.
    pub addr: GpuVa,
    pub initiator: u32,
}

impl DispatchIndirect {
    /// # Errors
    /// `Misaligned` for an address that is not a dword's.
    pub fn emit(&self, out: &mut Vec<u32>) -> Result<(), EmitError> {
        check_emit_align("DISPATCH_INDIRECT", self.addr, 4)?;
        let [lo, hi] = split(self.addr.0);
        let mut w = [0, lo, hi, self.initiator];
        put_header(&mut w, op::PACKET3_DISPATCH_INDIRECT)?;
        out.extend(w);
        Ok(())
    }

    pub(super) fn parse(words: &[u32]) -> Result<Self, DecodeKind> {
        const NAME: &str = "DISPATCH_INDIRECT";
        check_len(NAME, words, 4)?;
        check_initiator(NAME, 3, words[3])?;
        let addr = GpuVa(join(words[1], words[2]));
        check_align(NAME, addr, 4)?;
        Ok(Self { addr, initiator: words[3] })
    }
}

impl fmt::Display for DispatchIndirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DISPATCH_INDIRECT [{}] initiator {:#x}", self.addr, self.initiator)
    }
}

/// The packets of one launch: docs/amd.md 2.5, steps 2 to 6 (the queue emits the acquire before and the flush after).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ComputeDispatch<'a> {
    /// First instruction, 256-byte aligned.
    pub entry: GpuVa,
    /// Register values, with LDS size and priv bit filled in.
    pub rsrc1: u32,
    pub rsrc2: u32,
    pub rsrc3: u32,
    pub tmpring_size: u32,
    /// 256-byte aligned; 0 without scratch.
    pub scratch_base: GpuVa,
    /// User SGPRs in order, at most 16.
    pub user_data: &'a [u32],
    /// Lanes of a workgroup.
    pub local: [u32; 3],
    /// Workgroups.
    pub groups: [u32; 3],
    pub wave32: bool,
}

impl ComputeDispatch<'_> {
    /// Appends the SET_SH_REGs and the DISPATCH_DIRECT.
    ///
    /// # Errors
    /// `Misaligned` for code or scratch that is not 256-byte aligned, `Values` for more than 16 user SGPRs, `OverLimit`
    /// for a workgroup too large for the register's field.
    pub fn emit(&self, gfx: Gfx, out: &mut Vec<u32>) -> Result<(), EmitError> {
        const NAME: &str = "dispatch";
        check_emit_align(NAME, self.entry, 256)?;
        check_emit_align(NAME, self.scratch_base, 256)?;
        if self.user_data.len() > USER_DATA_COUNT as usize {
            let (count, max) = (self.user_data.len(), USER_DATA_COUNT as usize);
            return Err(EmitError::Values { packet: NAME, count, min: 0, max });
        }
        let table = gfx.table();
        let full = field(0, 0, table.num_thread_full_hi);
        for lanes in self.local {
            full.set(&mut [0], "workgroup lanes", lanes)?;
        }
        let set = |out: &mut Vec<u32>, first, values: &[u32]| SetShReg { first, values }.emit(out);
        set(out, ShReg::COMPUTE_PGM_LO, &split(self.entry.0 / 256))?;
        set(out, ShReg::COMPUTE_PGM_RSRC1, &[self.rsrc1, self.rsrc2])?;
        set(out, table.compute_pgm_rsrc3, &[self.rsrc3])?;
        set(out, ShReg::COMPUTE_TMPRING_SIZE, &[self.tmpring_size])?;
        set(out, ShReg::COMPUTE_DISPATCH_SCRATCH_BASE_LO, &split(self.scratch_base.0 / 256))?;
        set(out, ShReg::COMPUTE_RESTART_X, &[0; 3])?;
        if !self.user_data.is_empty() {
            set(out, ShReg::COMPUTE_USER_DATA_0, self.user_data)?;
        }
        set(out, ShReg::COMPUTE_RESOURCE_LIMITS, &[0])?;
        let [x, y, z] = self.local;
        set(out, ShReg::COMPUTE_START_X, &[0, 0, 0, x, y, z, 0, 0])?;
        let wave32 = if self.wave32 { initiator::CS_W32_EN } else { 0 };
        DispatchDirect { groups: self.groups, initiator: initiator::PLAIN | wave32 }.emit(out)
    }
}

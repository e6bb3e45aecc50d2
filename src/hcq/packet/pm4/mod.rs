//! PM4 type 3 packets of AMD's compute command processor (MEC), gfx9 to gfx12.
//!
//! Layer: emitted by `device::amd`, parsed by the software GPU, the tracer and error reports.
//! Source: docs/amd.md 2.3-2.5 (amdgpu kernel driver `nvd.h`, `soc15d.h`; Mesa `sid.h` for DISPATCH_INDIRECT,
//! ATOMIC_MEM, DMA_DATA).
//! Differences between families are in [`chip`]; registers and their names are in [`regs`].
//! Left out: packets of graphics rings, the predicate and shader-type bits of the header (must be 0), VMID fields.

mod cache;
pub mod chip;
mod data;
mod dispatch;
mod flow;
pub mod regs;
mod sync;

pub use cache::{CoherCntl, CoherRange, GcrCntl, ReleaseGcr, ReleaseTc};
pub use chip::Gfx;
pub use data::{AtomicMem, CopyData, CopyDst, CopySrc, DmaData, DmaDst, DmaSrc, DstSel, WriteData};
pub use dispatch::{ComputeDispatch, DispatchDirect, DispatchIndirect, SetShReg, SetUconfigReg};
pub use flow::{CondExec, IndirectBuffer, NOP_ONE_DWORD, Nop, PredExec};
pub use sync::{
    Acquire, AcquireMem, DataSel, EventWrite, Function, IntSel, Operation, Release, ReleaseMem, WaitRegMem,
    WaitRegMem64, WaitSpace,
};

use super::{DecodeError, DecodeKind, EmitError, GpuVa};
use crate::bits::{Field, FieldOverflow, field};
use std::fmt;

const SET: &str = "PM4";
const TYPE3: u32 = 3;

const HDR_FLAGS: Field = field(0, 0, 7); // predicate 0, shader type 1: zero on compute rings
const HDR_OPCODE: Field = field(0, 8, 15);
const HDR_COUNT: Field = field(0, 16, 29); // payload dwords - 1
const HDR_TYPE: Field = field(0, 30, 31);

/// Dwords of the longest packet, header included.
pub const MAX_DWORDS: usize = 1 + 0x4000;

/// Opcodes, in the kernel's spelling.
#[allow(missing_docs)]
pub(crate) mod op {
    pub(crate) const PACKET3_NOP: u32 = 0x10;
    pub(crate) const PACKET3_DISPATCH_DIRECT: u32 = 0x15;
    pub(crate) const PACKET3_DISPATCH_INDIRECT: u32 = 0x16;
    pub(crate) const PACKET3_ATOMIC_MEM: u32 = 0x1e;
    pub(crate) const PACKET3_COND_EXEC: u32 = 0x22;
    pub(crate) const PACKET3_PRED_EXEC: u32 = 0x23;
    pub(crate) const PACKET3_WRITE_DATA: u32 = 0x37;
    pub(crate) const PACKET3_WAIT_REG_MEM: u32 = 0x3c;
    pub(crate) const PACKET3_INDIRECT_BUFFER: u32 = 0x3f;
    pub(crate) const PACKET3_COPY_DATA: u32 = 0x40;
    pub(crate) const PACKET3_EVENT_WRITE: u32 = 0x46;
    pub(crate) const PACKET3_RELEASE_MEM: u32 = 0x49;
    pub(crate) const PACKET3_DMA_DATA: u32 = 0x50;
    pub(crate) const PACKET3_ACQUIRE_MEM: u32 = 0x58;
    pub(crate) const PACKET3_SET_SH_REG: u32 = 0x76;
    pub(crate) const PACKET3_SET_UCONFIG_REG: u32 = 0x79;
    pub(crate) const PACKET3_WAIT_REG_MEM64: u32 = 0x93;
}

/// One packet. Variable-length packets borrow their values from the parsed dwords, or from the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    Nop(Nop<'a>),
    SetShReg(SetShReg<'a>),
    SetUconfigReg(SetUconfigReg<'a>),
    DispatchDirect(DispatchDirect),
    DispatchIndirect(DispatchIndirect),
    EventWrite(EventWrite),
    IndirectBuffer(IndirectBuffer),
    PredExec(PredExec),
    CondExec(CondExec),
    WriteData(WriteData<'a>),
    CopyData(CopyData),
    DmaData(DmaData),
    AtomicMem(AtomicMem),
    WaitRegMem(WaitRegMem),
    WaitRegMem64(WaitRegMem64),
    AcquireMem(AcquireMem),
    ReleaseMem(ReleaseMem),
}

/// Writes the header of a packet; `words` are all its dwords, including the header.
fn put_header(words: &mut [u32], opcode: u32) -> Result<(), FieldOverflow> {
    let payload = words.len().saturating_sub(2); // minus header, minus one
    HDR_TYPE.set(words, "type", TYPE3)?;
    HDR_OPCODE.set(words, "opcode", opcode)?;
    HDR_COUNT.set(words, "count", u32::try_from(payload).unwrap_or(u32::MAX))
}

/// Appends a packet whose last dwords are `values`.
fn put_values(
    out: &mut Vec<u32>,
    packet: &'static str,
    opcode: u32,
    head: &mut [u32],
    values: &[u32],
) -> Result<(), EmitError> {
    let count = head.len() + values.len();
    if values.is_empty() || count > MAX_DWORDS {
        return Err(EmitError::Values { packet, count: values.len(), min: 1, max: MAX_DWORDS - head.len() });
    }
    HDR_TYPE.set(head, "type", TYPE3)?;
    HDR_OPCODE.set(head, "opcode", opcode)?;
    HDR_COUNT.set(head, "count", u32::try_from(count - 2).unwrap_or(u32::MAX))?;
    out.extend_from_slice(head);
    out.extend_from_slice(values);
    Ok(())
}

/// Refuses a packet that is not exactly `wanted` dwords long.
fn check_len(packet: &'static str, words: &[u32], wanted: usize) -> Result<(), DecodeKind> {
    if words.len() == wanted {
        return Ok(());
    }
    Err(DecodeKind::Count { packet, min: wanted, max: wanted, have: words.len() })
}

/// The values that follow the first `head` dwords; at least one.
fn values<'a>(packet: &'static str, words: &'a [u32], head: usize) -> Result<&'a [u32], DecodeKind> {
    match words.get(head..) {
        Some(values) if !values.is_empty() => Ok(values),
        _ => Err(DecodeKind::Count { packet, min: head + 1, max: MAX_DWORDS, have: words.len() }),
    }
}

/// Name of an opcode, for messages about truncated packets.
#[must_use]
pub(crate) fn opcode_name(opcode: u32) -> Option<&'static str> {
    Some(match opcode {
        op::PACKET3_NOP => "NOP",
        op::PACKET3_DISPATCH_DIRECT => "DISPATCH_DIRECT",
        op::PACKET3_DISPATCH_INDIRECT => "DISPATCH_INDIRECT",
        op::PACKET3_ATOMIC_MEM => "ATOMIC_MEM",
        op::PACKET3_COND_EXEC => "COND_EXEC",
        op::PACKET3_PRED_EXEC => "PRED_EXEC",
        op::PACKET3_WRITE_DATA => "WRITE_DATA",
        op::PACKET3_WAIT_REG_MEM => "WAIT_REG_MEM",
        op::PACKET3_INDIRECT_BUFFER => "INDIRECT_BUFFER",
        op::PACKET3_COPY_DATA => "COPY_DATA",
        op::PACKET3_EVENT_WRITE => "EVENT_WRITE",
        op::PACKET3_RELEASE_MEM => "RELEASE_MEM",
        op::PACKET3_DMA_DATA => "DMA_DATA",
        op::PACKET3_ACQUIRE_MEM => "ACQUIRE_MEM",
        op::PACKET3_SET_SH_REG => "SET_SH_REG",
        op::PACKET3_SET_UCONFIG_REG => "SET_UCONFIG_REG",
        op::PACKET3_WAIT_REG_MEM64 => "WAIT_REG_MEM64",
        _ => return None,
    })
}

/// Dwords of the packet that starts with `header`, without reading its payload.
///
/// # Errors
/// `Header` if it is not a type 3 header or has flags that are invalid on compute rings, `Opcode` if the opcode is
/// unknown.
pub fn len_dwords(header: u32) -> Result<usize, DecodeError> {
    let words = [header];
    if HDR_TYPE.get(&words) != TYPE3 || HDR_FLAGS.get(&words) != 0 {
        return Err(DecodeKind::Header { set: SET, header }.into());
    }
    if header == NOP_ONE_DWORD {
        return Ok(1);
    }
    let opcode = HDR_OPCODE.get(&words);
    if opcode_name(opcode).is_none() {
        return Err(DecodeKind::Opcode { set: SET, opcode }.into());
    }
    Ok(HDR_COUNT.get(&words) as usize + 2)
}

impl<'a> Packet<'a> {
    /// Appends the packet's dwords.
    ///
    /// # Errors
    /// `EmitError` names the field that does not fit.
    pub fn emit(&self, out: &mut Vec<u32>) -> Result<(), EmitError> {
        match self {
            Self::Nop(p) => p.emit(out),
            Self::SetShReg(p) => p.emit(out),
            Self::SetUconfigReg(p) => p.emit(out),
            Self::DispatchDirect(p) => p.emit(out),
            Self::DispatchIndirect(p) => p.emit(out),
            Self::EventWrite(p) => p.emit(out),
            Self::IndirectBuffer(p) => p.emit(out),
            Self::PredExec(p) => p.emit(out),
            Self::CondExec(p) => p.emit(out),
            Self::WriteData(p) => p.emit(out),
            Self::CopyData(p) => p.emit(out),
            Self::DmaData(p) => p.emit(out),
            Self::AtomicMem(p) => p.emit(out),
            Self::WaitRegMem(p) => p.emit(out),
            Self::WaitRegMem64(p) => p.emit(out),
            Self::AcquireMem(p) => p.emit(out),
            Self::ReleaseMem(p) => p.emit(out),
        }
    }

    /// The packet at the start of `words`, and its length in dwords.
    ///
    /// # Errors
    /// `Truncated` if dwords are missing; else an error of header or fields, with the offset from the start of `words`.
    pub fn parse(gfx: Gfx, words: &'a [u32]) -> Result<(Self, usize), DecodeError> {
        let Some(&header) = words.first() else {
            return Err(DecodeKind::Truncated { packet: "PM4 header", wanted: 1, have: 0 }.into());
        };
        let len = len_dwords(header)?;
        let opcode = HDR_OPCODE.get(words);
        let Some(body) = words.get(..len) else {
            let packet = opcode_name(opcode).unwrap_or(SET);
            return Err(DecodeKind::Truncated { packet, wanted: len, have: words.len() }.into());
        };
        Ok((Self::parse_body(gfx, opcode, body)?, len))
    }

    fn parse_body(gfx: Gfx, opcode: u32, body: &'a [u32]) -> Result<Self, DecodeKind> {
        Ok(match opcode {
            op::PACKET3_NOP => Self::Nop(Nop { payload: &body[1..] }),
            op::PACKET3_SET_SH_REG => Self::SetShReg(SetShReg::parse(body)?),
            op::PACKET3_SET_UCONFIG_REG => Self::SetUconfigReg(SetUconfigReg::parse(body)?),
            op::PACKET3_DISPATCH_DIRECT => Self::DispatchDirect(DispatchDirect::parse(body)?),
            op::PACKET3_DISPATCH_INDIRECT => Self::DispatchIndirect(DispatchIndirect::parse(body)?),
            op::PACKET3_EVENT_WRITE => Self::EventWrite(EventWrite::parse(body)?),
            op::PACKET3_INDIRECT_BUFFER => Self::IndirectBuffer(IndirectBuffer::parse(body)?),
            op::PACKET3_PRED_EXEC => Self::PredExec(PredExec::parse(body)?),
            op::PACKET3_COND_EXEC => Self::CondExec(CondExec::parse(body)?),
            op::PACKET3_WRITE_DATA => Self::WriteData(WriteData::parse(body)?),
            op::PACKET3_COPY_DATA => Self::CopyData(CopyData::parse(body)?),
            op::PACKET3_DMA_DATA => Self::DmaData(DmaData::parse(body)?),
            op::PACKET3_ATOMIC_MEM => Self::AtomicMem(AtomicMem::parse(body)?),
            op::PACKET3_WAIT_REG_MEM => Self::WaitRegMem(WaitRegMem::parse(body)?),
            op::PACKET3_WAIT_REG_MEM64 => Self::WaitRegMem64(WaitRegMem64::parse(body)?),
            op::PACKET3_ACQUIRE_MEM => Self::AcquireMem(AcquireMem::parse(gfx, body)?),
            op::PACKET3_RELEASE_MEM => Self::ReleaseMem(ReleaseMem::parse(gfx, body)?),
            _ => return Err(DecodeKind::Opcode { set: SET, opcode }),
        })
    }

    /// The packet as one line of text, with this family's register names.
    #[must_use]
    pub fn text(self, gfx: Gfx) -> Text<'a> {
        Text { packet: self, gfx }
    }
}

/// A packet that prints itself as one line.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    packet: Packet<'a>,
    gfx: Gfx,
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.packet {
            Packet::Nop(p) => write!(f, "{p}"),
            Packet::SetShReg(p) => p.print(f, self.gfx),
            Packet::SetUconfigReg(p) => write!(f, "{p}"),
            Packet::DispatchDirect(p) => write!(f, "{p}"),
            Packet::DispatchIndirect(p) => write!(f, "{p}"),
            Packet::EventWrite(p) => write!(f, "{p}"),
            Packet::IndirectBuffer(p) => write!(f, "{p}"),
            Packet::PredExec(p) => write!(f, "{p}"),
            Packet::CondExec(p) => write!(f, "{p}"),
            Packet::WriteData(p) => write!(f, "{p}"),
            Packet::CopyData(p) => write!(f, "{p}"),
            Packet::DmaData(p) => write!(f, "{p}"),
            Packet::AtomicMem(p) => write!(f, "{p}"),
            Packet::WaitRegMem(p) => write!(f, "{p}"),
            Packet::WaitRegMem64(p) => write!(f, "{p}"),
            Packet::AcquireMem(p) => write!(f, "{p}"),
            Packet::ReleaseMem(p) => write!(f, "{p}"),
        }
    }
}

/// A listing of `words`: dword offset and one line per packet. A dword that starts no packet is listed with its error,
/// and the listing continues after it, since a ring's tail may start in the middle of a packet.
#[must_use]
pub fn describe(gfx: Gfx, words: &[u32]) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut at = 0;
    while let Some(rest) = words.get(at..).filter(|rest| !rest.is_empty()) {
        let (line, len) = match Packet::parse(gfx, rest) {
            Ok((packet, len)) => (packet.text(gfx).to_string(), len),
            Err(e) => (e.kind.to_string(), 1),
        };
        lines.push((at, line));
        at += len;
    }
    lines
}

#[cfg(test)]
mod tests;

//! SDMA packets: copy engine 4.4.2 (gfx942), 6 (gfx11) and 7 (gfx12).
//!
//! Layer: as [`super::pm4`]. Source: docs/amd.md 3 (`vega10_sdma_pkt_open.h`, `sdma0_v6..` of the kernel driver, AMD's
//! open runtime).
//! The ring's pointers count bytes; a packet may not cross the ring's end ([`pad_dwords`]).
//! Left out: rectangular and tiled copies, TMZ, the compression dword of version 7, VMID fields, physical addresses.

mod mem;
mod order;

pub use mem::{ConstFill, CopyLinear, FillSize, Write};
pub(crate) use order::HDP_FLUSH;
pub use order::{Atomic, Fence, Gcr, Indirect, PollRegmem, TC_OP_ATOMIC_ADD_RTN_64, Timestamp, Trap};

use super::{DecodeError, DecodeKind, EmitError, GpuVa};
use crate::bits::{Field, field};
use std::fmt;

const SET: &str = "SDMA";

const HDR_OP: Field = field(0, 0, 7);
const HDR_SUB: Field = field(0, 8, 15);

/// Opcodes, in the kernel's spelling.
#[allow(missing_docs)]
pub(crate) mod op {
    pub(crate) const SDMA_OP_NOP: u32 = 0;
    pub(crate) const SDMA_OP_COPY: u32 = 1;
    pub(crate) const SDMA_OP_WRITE: u32 = 2;
    pub(crate) const SDMA_OP_INDIRECT: u32 = 4;
    pub(crate) const SDMA_OP_FENCE: u32 = 5;
    pub(crate) const SDMA_OP_TRAP: u32 = 6;
    pub(crate) const SDMA_OP_POLL_REGMEM: u32 = 8;
    pub(crate) const SDMA_OP_ATOMIC: u32 = 10;
    pub(crate) const SDMA_OP_CONST_FILL: u32 = 11;
    pub(crate) const SDMA_OP_TIMESTAMP: u32 = 13;
    pub(crate) const SDMA_OP_GCR: u32 = 17;
    pub(crate) const SDMA_OP_DUMMY_TRAP: u32 = 32;
    pub(crate) const SDMA_SUBOP_COPY_LINEAR: u32 = 0;
    pub(crate) const SDMA_SUBOP_TIMESTAMP_GET_GLOBAL: u32 = 2;
    pub(crate) const SDMA_SUBOP_USER_GCR: u32 = 1;
}

/// The engine's version, which determines the packet formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sdma {
    /// gfx90a (4.4.0) and gfx942 (4.4.2).
    V4,
    /// gfx10 from 10.3 on.
    V5,
    /// gfx11.
    V6,
    /// gfx12.
    V7,
}

/// The version's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    pub name: &'static str,
    /// Bits of the copy's count field (bytes - 1).
    pub copy_count_bits: u32,
    /// Bytes per copy packet: a size that works on all chips with little overhead.
    pub copy_piece_bytes: u64,
    /// Bytes of one fill packet.
    pub fill_piece_bytes: u64,
    /// Memory type of FENCE.
    pub fence_mtype: u32,
    /// The engine has the GCR packet.
    pub gcr: bool,
}

const V4: Table = Table {
    name: "sdma4",
    copy_count_bits: 22,
    copy_piece_bytes: 0x40_0000,
    fill_piece_bytes: 0x3f_ffe0,
    fence_mtype: 0,
    gcr: false,
};
const V6: Table = Table { name: "sdma6", copy_count_bits: 30, fence_mtype: 3, gcr: true, ..V4 };
const V5: Table = Table { name: "sdma5", ..V6 };
const V7: Table = Table { name: "sdma7", ..V6 };

impl Sdma {
    /// The version's table.
    #[must_use]
    pub const fn table(self) -> &'static Table {
        match self {
            Self::V4 => &V4,
            Self::V5 => &V5,
            Self::V6 => &V6,
            Self::V7 => &V7,
        }
    }
}

/// One packet. The data of WRITE and the skipped dwords of NOP are borrowed from the parsed dwords, or from the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// One dword, and the `skipped` ones after it.
    Nop {
        skipped: &'a [u32],
    },
    CopyLinear(CopyLinear),
    Write(Write<'a>),
    Indirect(Indirect),
    Fence(Fence),
    Trap(Trap),
    PollRegmem(PollRegmem),
    /// The HDP flush that user space may send.
    HdpFlush,
    Atomic(Atomic),
    ConstFill(ConstFill),
    Timestamp(Timestamp),
    Gcr(Gcr),
    DummyTrap,
}

const NOP_COUNT: Field = field(0, 16, 29);

/// The number of zero dwords that pad a ring of `ring_bytes` up to its end if a packet of `len_dwords` would cross it
/// from `put_bytes` (the monotonic write pointer); 0 if the packet fits.
#[must_use]
pub const fn pad_dwords(put_bytes: u64, ring_bytes: u64, len_dwords: u64) -> u64 {
    let left = (ring_bytes - put_bytes % ring_bytes) / 4;
    if len_dwords <= left { 0 } else { left }
}

/// Returns the dwords of a packet, or an error if some are missing.
fn take<'a>(packet: &'static str, words: &'a [u32], wanted: usize) -> Result<&'a [u32], DecodeKind> {
    words.get(..wanted).ok_or(DecodeKind::Truncated { packet, wanted, have: words.len() })
}

impl<'a> Packet<'a> {
    /// Appends the packet's dwords.
    ///
    /// # Errors
    /// `EmitError` names the field that does not fit this engine.
    pub fn emit(&self, sdma: Sdma, out: &mut Vec<u32>) -> Result<(), EmitError> {
        match self {
            Self::Nop { skipped } => {
                let mut w = [0];
                NOP_COUNT.set(&mut w, "nop count", u32::try_from(skipped.len()).unwrap_or(u32::MAX))?;
                out.extend(w);
                out.extend_from_slice(skipped);
                Ok(())
            }
            Self::CopyLinear(p) => p.emit(sdma, out),
            Self::Write(p) => p.emit(out),
            Self::Indirect(p) => p.emit(out),
            Self::Fence(p) => p.emit(sdma, out),
            Self::Trap(p) => p.emit(out),
            Self::PollRegmem(p) => p.emit(out),
            Self::HdpFlush => {
                out.extend(HDP_FLUSH);
                Ok(())
            }
            Self::Atomic(p) => p.emit(out),
            Self::ConstFill(p) => p.emit(sdma, out),
            Self::Timestamp(p) => p.emit(out),
            Self::Gcr(p) => p.emit(sdma, out),
            Self::DummyTrap => {
                out.push(op::SDMA_OP_DUMMY_TRAP);
                Ok(())
            }
        }
    }

    /// The packet at the start of `words`, and its length in dwords. `words` ends at the ring's end: a packet that
    /// would cross it is truncated.
    ///
    /// # Errors
    /// `Truncated` if dwords are missing; `Opcode`, or an error of its fields.
    pub fn parse(sdma: Sdma, words: &'a [u32]) -> Result<(Self, usize), DecodeError> {
        Ok(Self::parse_kind(sdma, words)?)
    }

    fn parse_kind(sdma: Sdma, words: &'a [u32]) -> Result<(Self, usize), DecodeKind> {
        let Some(&header) = words.first() else {
            return Err(DecodeKind::Truncated { packet: "SDMA header", wanted: 1, have: 0 });
        };
        let (opcode, sub) = (HDR_OP.get(words), HDR_SUB.get(words));
        let packet = match (opcode, sub) {
            (op::SDMA_OP_NOP, 0) => {
                super::check_reserved("NOP", &words[..1], &[HDR_OP, HDR_SUB, NOP_COUNT])?;
                let len = 1 + NOP_COUNT.get(words) as usize;
                return Ok((Self::Nop { skipped: &take("NOP", words, len)?[1..] }, len));
            }
            (op::SDMA_OP_WRITE, 0) => {
                let write = Write::parse(words)?;
                return Ok((Self::Write(write), 4 + write.values.len()));
            }
            (op::SDMA_OP_COPY, op::SDMA_SUBOP_COPY_LINEAR) => {
                (Self::CopyLinear(CopyLinear::parse(sdma, take("COPY", words, 7)?)?), 7)
            }
            (op::SDMA_OP_INDIRECT, 0) => (Self::Indirect(Indirect::parse(take("INDIRECT", words, 6)?)?), 6),
            (op::SDMA_OP_FENCE, 0) => (Self::Fence(Fence::parse(sdma, take("FENCE", words, 4)?)?), 4),
            (op::SDMA_OP_TRAP, 0) => (Self::Trap(Trap::parse(take("TRAP", words, 2)?)?), 2),
            (op::SDMA_OP_POLL_REGMEM, 0) => {
                let body = take("POLL_REGMEM", words, 6)?;
                let flush = body == HDP_FLUSH;
                (if flush { Self::HdpFlush } else { Self::PollRegmem(PollRegmem::parse(body)?) }, 6)
            }
            (op::SDMA_OP_ATOMIC, 0) => (Self::Atomic(Atomic::parse(take("ATOMIC", words, 8)?)?), 8),
            (op::SDMA_OP_CONST_FILL, 0) => (Self::ConstFill(ConstFill::parse(sdma, take("CONST_FILL", words, 5)?)?), 5),
            (op::SDMA_OP_TIMESTAMP, op::SDMA_SUBOP_TIMESTAMP_GET_GLOBAL) => {
                (Self::Timestamp(Timestamp::parse(take("TIMESTAMP", words, 3)?)?), 3)
            }
            (op::SDMA_OP_GCR, op::SDMA_SUBOP_USER_GCR) if sdma.table().gcr => {
                (Self::Gcr(Gcr::parse(take("GCR", words, 5)?)?), 5)
            }
            (op::SDMA_OP_DUMMY_TRAP, 0) => {
                super::check_reserved("DUMMY_TRAP", &words[..1], &[HDR_OP, HDR_SUB])?;
                (Self::DummyTrap, 1)
            }
            _ => return Err(DecodeKind::Opcode { set: SET, opcode: header & (HDR_OP.mask() | HDR_SUB.mask()) }),
        };
        Ok(packet)
    }
}

impl fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nop { skipped } => write!(f, "NOP {} dwords", skipped.len() + 1),
            Self::CopyLinear(p) => write!(f, "{p}"),
            Self::Write(p) => write!(f, "{p}"),
            Self::Indirect(p) => write!(f, "{p}"),
            Self::Fence(p) => write!(f, "{p}"),
            Self::Trap(p) => write!(f, "{p}"),
            Self::PollRegmem(p) => write!(f, "{p}"),
            Self::HdpFlush => f.write_str("HDP_FLUSH"),
            Self::Atomic(p) => write!(f, "{p}"),
            Self::ConstFill(p) => write!(f, "{p}"),
            Self::Timestamp(p) => write!(f, "{p}"),
            Self::Gcr(p) => write!(f, "{p}"),
            Self::DummyTrap => f.write_str("DUMMY_TRAP"),
        }
    }
}

/// A listing of `words`: dword offset and one line per packet; runs of one-dword NOPs are one line. It continues after
/// a dword that starts no packet, since a ring's tail may start in the middle of one.
#[must_use]
pub fn describe(sdma: Sdma, words: &[u32]) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut at = 0;
    while let Some(rest) = words.get(at..).filter(|rest| !rest.is_empty()) {
        let zeros = rest.iter().take_while(|word| **word == 0).count();
        let (line, len) = match Packet::parse(sdma, rest) {
            _ if zeros > 1 => (format!("NOP x {zeros}"), zeros),
            Ok((packet, len)) => (packet.to_string(), len),
            Err(e) => (e.kind.to_string(), 1),
        };
        lines.push((at, line));
        at += len;
    }
    lines
}

#[cfg(test)]
mod tests;

//! AQL packets: 64 bytes each, read by AMD's compute firmware.
//!
//! Layer: as [`super::pm4`]. Source: docs/amd.md 2.7 (HSA runtime `hsa.h`, `amd_hsa_queue.h`, AMD's open runtime).
//! The structures in memory that packets refer to are in [`queue`].
//! Left out: vendor packets other than the PM4 indirect buffer.

pub mod queue;

use super::pm4::IndirectBuffer;
use super::{DecodeError, DecodeKind, EmitError, GpuVa, check_align, check_emit_align, check_reserved, selector};
use crate::bits::{Field, field, join, split};
use std::fmt;

/// Dwords of every packet.
pub const PACKET_DWORDS: usize = 16;
/// Bytes of every packet.
pub const PACKET_BYTES: u64 = 64;
const SET: &str = "AQL";

const HDR_TYPE: Field = field(0, 0, 7);
const HDR_BARRIER: Field = field(0, 8, 8);
const HDR_ACQUIRE: Field = field(0, 9, 10);
const HDR_RELEASE: Field = field(0, 11, 12);
const HDR_HIGH: Field = field(0, 16, 31); // dispatch: setup; vendor: format

selector! {
    /// How far memory is made coherent before (acquire) or after (release) a packet.
    Scope, "fence scope" { None = 0, Agent = 1, System = 2 }
}

selector! {
    /// The packet types.
    PacketType, "type" { Vendor = 0, Invalid = 1, KernelDispatch = 2, BarrierAnd = 3, AgentDispatch = 4, BarrierOr = 5 }
}

/// The part of the first dword that all packets share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Wait for all earlier packets.
    pub barrier: bool,
    pub acquire: Scope,
    pub release: Scope,
}

impl Header {
    /// Barrier bit, and both scopes at system: for a single packet without context.
    pub const SYSTEM: Self = Self { barrier: true, acquire: Scope::System, release: Scope::System };

    fn emit(self, words: &mut [u32], kind: PacketType) -> Result<(), EmitError> {
        HDR_TYPE.set(words, "type", kind.bits())?;
        HDR_BARRIER.set(words, "barrier", u32::from(self.barrier))?;
        HDR_ACQUIRE.set(words, "acquire scope", self.acquire.bits())?;
        HDR_RELEASE.set(words, "release scope", self.release.bits())?;
        Ok(())
    }

    fn parse(words: &[u32]) -> Result<Self, DecodeKind> {
        Ok(Self {
            barrier: HDR_BARRIER.get(words) == 1,
            acquire: Scope::from_bits(SET, HDR_ACQUIRE.get(words))?,
            release: Scope::from_bits(SET, HDR_RELEASE.get(words))?,
        })
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let barrier = if self.barrier { "barrier " } else { "" };
        write!(f, "{barrier}acquire {:?} release {:?}", self.acquire, self.release)
    }
}

/// The dword of an empty slot: header INVALID. A new ring is filled with such slots.
pub const INVALID_HEADER: u32 = PacketType::Invalid.bits();

/// One packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// An empty slot: the firmware waits here.
    Invalid,
    KernelDispatch(KernelDispatch),
    Barrier(Barrier),
    VendorPm4(VendorPm4),
    /// A packet for a host agent; compute firmware has no use for it.
    AgentDispatch(AgentDispatch),
}

impl Packet {
    /// The packet's 16 dwords. When writing them to a ring, store the first one last.
    ///
    /// # Errors
    /// `EmitError` names the field that does not fit.
    pub fn emit(&self) -> Result<[u32; PACKET_DWORDS], EmitError> {
        match self {
            Self::Invalid => {
                let mut w = [0; PACKET_DWORDS];
                HDR_TYPE.set(&mut w, "type", INVALID_HEADER)?;
                Ok(w)
            }
            Self::KernelDispatch(p) => p.emit(),
            Self::Barrier(p) => p.emit(),
            Self::VendorPm4(p) => p.emit(),
            Self::AgentDispatch(p) => p.emit(),
        }
    }

    /// Parses the packet in a slot. The payload of an INVALID slot is ignored.
    ///
    /// # Errors
    /// `Header` for an unknown type, else an error of the packet's fields.
    pub fn parse(words: &[u32; PACKET_DWORDS]) -> Result<Self, DecodeError> {
        Ok(Self::parse_kind(words)?)
    }

    fn parse_kind(words: &[u32; PACKET_DWORDS]) -> Result<Self, DecodeKind> {
        let unknown = |_| DecodeKind::Header { set: SET, header: words[0] };
        let kind = PacketType::from_bits(SET, HDR_TYPE.get(words)).map_err(unknown)?;
        if kind != PacketType::Invalid {
            let known = [HDR_TYPE, HDR_BARRIER, HDR_ACQUIRE, HDR_RELEASE, HDR_HIGH];
            check_reserved(SET, words, &known)?;
        }
        match kind {
            PacketType::Invalid => Ok(Self::Invalid),
            PacketType::KernelDispatch => KernelDispatch::parse(words).map(Self::KernelDispatch),
            PacketType::BarrierAnd | PacketType::BarrierOr => Barrier::parse(words, kind).map(Self::Barrier),
            PacketType::Vendor => VendorPm4::parse(words).map(Self::VendorPm4),
            PacketType::AgentDispatch => AgentDispatch::parse(words).map(Self::AgentDispatch),
        }
    }

    /// Address of the completion signal; 0 for none.
    #[must_use]
    pub const fn completion(&self) -> GpuVa {
        match self {
            Self::Invalid => GpuVa(0),
            Self::KernelDispatch(p) => p.completion,
            Self::Barrier(p) => p.completion,
            Self::VendorPm4(p) => p.completion,
            Self::AgentDispatch(p) => p.completion,
        }
    }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid => f.write_str("INVALID"),
            Self::KernelDispatch(p) => write!(f, "{p}"),
            Self::Barrier(p) => write!(f, "{p}"),
            Self::VendorPm4(p) => write!(f, "{p}"),
            Self::AgentDispatch(p) => write!(f, "{p}"),
        }?;
        let completion = self.completion();
        if completion == GpuVa(0) { Ok(()) } else { write!(f, " completion {completion}") }
    }
}

/// Refuses non-zero dwords that the packet must leave zero.
fn check_zero(packet: &'static str, words: &[u32], range: std::ops::Range<usize>) -> Result<(), DecodeKind> {
    match range.clone().zip(&words[range]).find(|(_, word)| **word != 0) {
        Some((dword, &bits)) => Err(DecodeKind::Reserved { packet, dword, bits }),
        None => Ok(()),
    }
}

fn put_va(words: &mut [u32; PACKET_DWORDS], at: usize, va: GpuVa) {
    words[at..at + 2].copy_from_slice(&split(va.0));
}

fn get_va(words: &[u32; PACKET_DWORDS], at: usize) -> GpuVa {
    GpuVa(join(words[at], words[at + 1]))
}

/// Signals are `amd_signal_t`: 64-byte aligned.
const SIGNAL_ALIGN: u64 = 64;

const SETUP_DIMENSIONS: Field = field(0, 16, 17);
const SETUP_RESERVED: Field = field(0, 18, 31);
const WG_X: Field = field(1, 0, 15);
const WG_Y: Field = field(1, 16, 31);
const WG_Z: Field = field(2, 0, 15);

/// Kernel dispatch: the firmware reads the descriptor and sets the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelDispatch {
    pub header: Header,
    /// 1 to 3.
    pub dimensions: u32,
    /// Work-items of a workgroup.
    pub workgroup: [u32; 3],
    /// Work-items of the grid.
    pub grid: [u32; 3],
    /// Scratch bytes per work-item.
    pub private_bytes: u32,
    /// LDS bytes per workgroup, static and dynamic.
    pub group_bytes: u32,
    /// Address of the 64-byte kernel descriptor, 64-byte aligned.
    pub kernel_object: GpuVa,
    /// 16-byte aligned.
    pub kernarg: GpuVa,
    pub completion: GpuVa,
}

impl KernelDispatch {
    /// # Errors
    /// `Field` for a workgroup dimension over 16 bits or dimensions over 3, `Misaligned` for a misaligned address.
    pub fn emit(&self) -> Result<[u32; PACKET_DWORDS], EmitError> {
        const NAME: &str = "kernel dispatch";
        check_emit_align(NAME, self.kernel_object, 64)?;
        check_emit_align(NAME, self.kernarg, 16)?;
        check_emit_align(NAME, self.completion, SIGNAL_ALIGN)?;
        let mut w = [0; PACKET_DWORDS];
        self.header.emit(&mut w, PacketType::KernelDispatch)?;
        SETUP_DIMENSIONS.set(&mut w, "dimensions", self.dimensions)?;
        for (field, lanes) in [WG_X, WG_Y, WG_Z].into_iter().zip(self.workgroup) {
            field.set(&mut w, "workgroup", lanes)?;
        }
        w[3..6].copy_from_slice(&self.grid);
        w[6] = self.private_bytes;
        w[7] = self.group_bytes;
        put_va(&mut w, 8, self.kernel_object);
        put_va(&mut w, 10, self.kernarg);
        put_va(&mut w, 14, self.completion);
        Ok(w)
    }

    fn parse(words: &[u32; PACKET_DWORDS]) -> Result<Self, DecodeKind> {
        const NAME: &str = "kernel dispatch";
        let reserved = SETUP_RESERVED.get(words);
        if reserved != 0 {
            return Err(DecodeKind::Reserved { packet: NAME, dword: 0, bits: reserved << 18 });
        }
        check_reserved(NAME, &words[1..3], &[field(0, 0, 31), field(1, 0, 15)])?;
        check_zero(NAME, words, 12..14)?;
        let p = Self {
            header: Header::parse(words)?,
            dimensions: SETUP_DIMENSIONS.get(words),
            workgroup: [WG_X.get(words), WG_Y.get(words), WG_Z.get(words)],
            grid: [words[3], words[4], words[5]],
            private_bytes: words[6],
            group_bytes: words[7],
            kernel_object: get_va(words, 8),
            kernarg: get_va(words, 10),
            completion: get_va(words, 14),
        };
        check_align(NAME, p.kernel_object, 64)?;
        check_align(NAME, p.kernarg, 16)?;
        check_align(NAME, p.completion, SIGNAL_ALIGN)?;
        Ok(p)
    }
}

impl fmt::Display for KernelDispatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([gx, gy, gz], [wx, wy, wz]) = (self.grid, self.workgroup);
        write!(
            f,
            "KERNEL_DISPATCH {} grid {gx},{gy},{gz} workgroup {wx},{wy},{wz} descriptor {} kernarg {} lds {} scratch {}",
            self.header, self.kernel_object, self.kernarg, self.group_bytes, self.private_bytes
        )
    }
}

/// Number of signals of a barrier packet.
pub(crate) const BARRIER_SIGNALS: usize = 5;

/// Barrier-and, barrier-or: wait until all, or any, of the signals are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Barrier {
    pub header: Header,
    /// Ready when any signal is zero, instead of all.
    pub any: bool,
    /// Addresses of `amd_signal_t`; 0 for none.
    pub signals: [GpuVa; BARRIER_SIGNALS],
    pub completion: GpuVa,
}

impl Barrier {
    /// # Errors
    /// `Misaligned` for a signal that is not 64-byte aligned.
    pub fn emit(&self) -> Result<[u32; PACKET_DWORDS], EmitError> {
        let mut w = [0; PACKET_DWORDS];
        self.header.emit(&mut w, if self.any { PacketType::BarrierOr } else { PacketType::BarrierAnd })?;
        for (at, &signal) in self.signals.iter().enumerate() {
            check_emit_align("barrier", signal, SIGNAL_ALIGN)?;
            put_va(&mut w, 2 + 2 * at, signal);
        }
        check_emit_align("barrier", self.completion, SIGNAL_ALIGN)?;
        put_va(&mut w, 14, self.completion);
        Ok(w)
    }

    fn parse(words: &[u32; PACKET_DWORDS], kind: PacketType) -> Result<Self, DecodeKind> {
        const NAME: &str = "barrier";
        let high = HDR_HIGH.get(words);
        if high != 0 {
            return Err(DecodeKind::Reserved { packet: NAME, dword: 0, bits: high << 16 });
        }
        check_zero(NAME, words, 1..2)?;
        check_zero(NAME, words, 12..14)?;
        let mut signals = [GpuVa(0); BARRIER_SIGNALS];
        for (at, signal) in signals.iter_mut().enumerate() {
            *signal = get_va(words, 2 + 2 * at);
            check_align(NAME, *signal, SIGNAL_ALIGN)?;
        }
        let completion = get_va(words, 14);
        check_align(NAME, completion, SIGNAL_ALIGN)?;
        Ok(Self { header: Header::parse(words)?, any: kind == PacketType::BarrierOr, signals, completion })
    }
}

impl fmt::Display for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BARRIER_{} {}", if self.any { "OR" } else { "AND" }, self.header)?;
        let mut used = self.signals.iter().filter(|s| **s != GpuVa(0));
        used.try_for_each(|signal| write!(f, " {signal}"))
    }
}

/// Dwords of the vendor packet after its PM4 packet.
const VENDOR_REMAINING: u32 = 0xa;
const VENDOR_FORMAT_PM4: u32 = 1;

/// Vendor packet that runs an indirect buffer of PM4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VendorPm4 {
    pub header: Header,
    pub ib: IndirectBuffer,
    pub completion: GpuVa,
}

impl VendorPm4 {
    /// # Errors
    /// As [`IndirectBuffer::words`]; `Misaligned` for a completion signal that is not 64-byte aligned.
    pub fn emit(&self) -> Result<[u32; PACKET_DWORDS], EmitError> {
        check_emit_align("vendor packet", self.completion, SIGNAL_ALIGN)?;
        let mut w = [0; PACKET_DWORDS];
        self.header.emit(&mut w, PacketType::Vendor)?;
        HDR_HIGH.set(&mut w, "format", VENDOR_FORMAT_PM4)?;
        w[1..5].copy_from_slice(&self.ib.words()?);
        w[5] = VENDOR_REMAINING;
        put_va(&mut w, 14, self.completion);
        Ok(w)
    }

    fn parse(words: &[u32; PACKET_DWORDS]) -> Result<Self, DecodeKind> {
        const NAME: &str = "vendor packet";
        let format = HDR_HIGH.get(words);
        if format != VENDOR_FORMAT_PM4 {
            return Err(DecodeKind::Value { packet: NAME, field: "format", value: format });
        }
        let (ib, _) = super::pm4::Packet::parse(super::pm4::Gfx::Gfx9, &words[1..5]).map_err(|e| e.kind)?;
        let super::pm4::Packet::IndirectBuffer(ib) = ib else {
            return Err(DecodeKind::Value { packet: NAME, field: "PM4 header", value: words[1] });
        };
        if words[5] != VENDOR_REMAINING {
            return Err(DecodeKind::Value { packet: NAME, field: "remaining dwords", value: words[5] });
        }
        check_zero(NAME, words, 6..14)?;
        let completion = get_va(words, 14);
        check_align(NAME, completion, SIGNAL_ALIGN)?;
        Ok(Self { header: Header::parse(words)?, ib, completion })
    }
}

impl fmt::Display for VendorPm4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VENDOR PM4 {} {}", self.header, self.ib)
    }
}

/// A call to a host agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentDispatch {
    pub header: Header,
    pub function: u32,
    pub return_address: GpuVa,
    pub arguments: [u64; 4],
    pub completion: GpuVa,
}

impl AgentDispatch {
    /// # Errors
    /// `Field` for a function over 16 bits, `Misaligned` for a completion signal that is not 64-byte aligned.
    pub fn emit(&self) -> Result<[u32; PACKET_DWORDS], EmitError> {
        check_emit_align("agent dispatch", self.completion, SIGNAL_ALIGN)?;
        let mut w = [0; PACKET_DWORDS];
        self.header.emit(&mut w, PacketType::AgentDispatch)?;
        HDR_HIGH.set(&mut w, "function", self.function)?;
        put_va(&mut w, 2, self.return_address);
        for (at, &argument) in self.arguments.iter().enumerate() {
            put_va(&mut w, 4 + 2 * at, GpuVa(argument));
        }
        put_va(&mut w, 14, self.completion);
        Ok(w)
    }

    fn parse(words: &[u32; PACKET_DWORDS]) -> Result<Self, DecodeKind> {
        const NAME: &str = "agent dispatch";
        check_zero(NAME, words, 1..2)?;
        check_zero(NAME, words, 12..14)?;
        let completion = get_va(words, 14);
        check_align(NAME, completion, SIGNAL_ALIGN)?;
        Ok(Self {
            header: Header::parse(words)?,
            function: HDR_HIGH.get(words),
            return_address: get_va(words, 2),
            arguments: std::array::from_fn(|at| get_va(words, 4 + 2 * at).0),
            completion,
        })
    }
}

impl fmt::Display for AgentDispatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AGENT_DISPATCH {} function {:#x}", self.header, self.function)
    }
}

/// A listing of the packets in `words`: slot index and one line each, without INVALID slots.
#[must_use]
pub fn describe(words: &[u32]) -> Vec<(usize, String)> {
    let slots = words.as_chunks::<PACKET_DWORDS>().0;
    let line = |slot: &[u32; PACKET_DWORDS]| match Packet::parse(slot) {
        Ok(Packet::Invalid) => None,
        Ok(packet) => Some(packet.to_string()),
        Err(e) => Some(e.kind.to_string()),
    };
    slots.iter().enumerate().filter_map(|(at, slot)| Some((at, line(slot)?))).collect()
}

#[cfg(test)]
mod tests;

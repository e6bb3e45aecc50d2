//! SDMA packets for ordering and signalling: INDIRECT, FENCE, TRAP, POLL_REGMEM, ATOMIC, TIMESTAMP, GCR. Source:
//! docs/amd.md
//! 3.

use super::{GpuVa, HDR_OP, HDR_SUB, Sdma, op};
use crate::bits::{Field, field, join, split};
use crate::packet::pm4::{Function, GcrCntl};
use crate::packet::{DecodeKind, EmitError, check_align, check_emit_align, check_reserved};
use std::fmt;

/// The HDP flush that AMD's runtime sends from user space.
pub(crate) const HDP_FLUSH: [u32; 6] = [0x0000_0008, 0, 0x8000_0000, 0, 0, 0];

const IB_SIZE: Field = field(3, 0, 19);

/// INDIRECT: runs packets at another address. The packet must end on an 8-dword boundary of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Indirect {
    /// 32-byte aligned.
    pub addr: GpuVa,
    pub size_dwords: u32,
}

impl Indirect {
    /// # Errors
    /// `Field` when the size is over 20 bits, `Misaligned` for an address that is not 32-byte aligned.
    pub fn emit(&self, out: &mut Vec<u32>) -> Result<(), EmitError> {
        check_emit_align("INDIRECT", self.addr, 32)?;
        let [lo, hi] = split(self.addr.0);
        let mut w = [op::SDMA_OP_INDIRECT, lo, hi, 0, 0, 0];
        IB_SIZE.set(&mut w, "IB size", self.size_dwords)?;
        out.extend(w);
        Ok(())
    }

    pub(super) fn parse(words: &[u32]) -> Result<Self, DecodeKind> {
        const NAME: &str = "INDIRECT";
        check_reserved(NAME, words, &[HDR_OP, HDR_SUB, IB_SIZE])?;
        if let Some(dword) = [4, 5].into_iter().find(|&at| words[at] != 0) {
            return Err(DecodeKind::Reserved { packet: NAME, dword, bits: words[dword] });
        }
        let addr = GpuVa(join(words[1], words[2]));
        check_align(NAME, addr, 32)?;
        Ok(Self { addr, size_dwords: IB_SIZE.get(words) })
    }
}

impl fmt::Display for Indirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "INDIRECT {} {} dwords", self.addr, self.size_dwords)
    }
}

const FENCE_MTYPE: Field = field(0, 16, 18);

/// FENCE: stores one dword, after all earlier packets' writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// 4-byte aligned.
    pub addr: GpuVa,
    pub value: u32,
}

impl Fence {
    /// # Errors
    /// `Misaligned` for an address that is not a dword's.
    pub fn emit(&self, sdma: Sdma, out: &mut Vec<u32>) -> Result<(), EmitError> {
        check_emit_align("FENCE", self.addr, 4)?;
        let [lo, hi] = split(self.addr.0);
        let mut w = [op::SDMA_OP_FENCE, lo, hi, self.value];
        FENCE_MTYPE.set(&mut w, "mtype", sdma.table().fence_mtype)?;
        out.extend(w);
        Ok(())
    }

    pub(super) fn parse(sdma: Sdma, words: &[u32]) -> Result<Self, DecodeKind> {
        const NAME: &str = "FENCE";
        check_reserved(NAME, &words[..1], &[HDR_OP, HDR_SUB, FENCE_MTYPE])?;
        let mtype = FENCE_MTYPE.get(words);
        if mtype != sdma.table().fence_mtype {
            return Err(DecodeKind::Value { packet: NAME, field: "mtype", value: mtype });
        }
        let addr = GpuVa(join(words[1], words[2]));
        check_align(NAME, addr, 4)?;
        Ok(Self { addr, value: words[3] })
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FENCE [{}] = {:#x}", self.addr, self.value)
    }
}

const TRAP_CONTEXT: Field = field(1, 0, 27);

/// TRAP: interrupt the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trap {
    /// Event id, 28 bits.
    pub context: u32,
}

impl Trap {
    /// # Errors
    /// `Field` when the context is over 28 bits.
    pub fn emit(&self, out: &mut Vec<u32>) -> Result<(), EmitError> {
        let mut w = [op::SDMA_OP_TRAP, 0];
        TRAP_CONTEXT.set(&mut w, "trap context", self.context)?;
        out.extend(w);
        Ok(())
    }

    pub(super) fn parse(words: &[u32]) -> Result<Self, DecodeKind> {
        check_reserved("TRAP", words, &[HDR_OP, HDR_SUB, TRAP_CONTEXT])?;
        Ok(Self { context: TRAP_CONTEXT.get(words) })
    }
}

impl fmt::Display for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TRAP interrupt {}", self.context)
    }
}

const POLL_FUNCTION: Field = field(0, 28, 30);
const POLL_MEM: Field = field(0, 31, 31);
const POLL_INTERVAL: Field = field(5, 0, 15);
const POLL_RETRY: Field = field(5, 16, 27);

/// POLL_REGMEM: stall this queue until a 32-bit compare of memory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollRegmem {
    pub function: Function,
    /// 4-byte aligned.
    pub addr: GpuVa,
    pub reference: u32,
    pub mask: u32,
    pub interval: u32,
    /// Retry count; 0xfff means unlimited.
    pub retry: u32,
}

impl PollRegmem {
    /// Unlimited retries.
    pub const RETRY_FOR_EVER: u32 = 0xfff;

    /// Waits until the low dword of the memory word is at least `value`.
    #[must_use]
    pub const fn at_least(addr: GpuVa, value: u32) -> Self {
        let (function, retry) = (Function::GreaterEqual, Self::RETRY_FOR_EVER);
        Self { function, addr, reference: value, mask: u32::MAX, interval: 4, retry }
    }

    /// # Errors
    /// `Field` for interval or retry, `Misaligned` for an address that is not a dword's.
    pub fn emit(&self, out: &mut Vec<u32>) -> Result<(), EmitError> {
        check_emit_align("POLL_REGMEM", self.addr, 4)?;
        let [lo, hi] = split(self.addr.0);
        let mut w = [op::SDMA_OP_POLL_REGMEM, lo, hi, self.reference, self.mask, 0];
        POLL_FUNCTION.set(&mut w, "function", self.function.bits())?;
        POLL_MEM.set(&mut w, "mem", 1)?;
        POLL_INTERVAL.set(&mut w, "interval", self.interval)?;
        POLL_RETRY.set(&mut w, "retry", self.retry)?;
        out.extend(w);
        Ok(())
    }

    pub(super) fn parse(words: &[u32]) -> Result<Self, DecodeKind> {
        const NAME: &str = "POLL_REGMEM";
        check_reserved(NAME, words, &[HDR_OP, HDR_SUB, POLL_FUNCTION, POLL_MEM, POLL_INTERVAL, POLL_RETRY])?;
        if POLL_MEM.get(words) == 0 {
            return Err(DecodeKind::Value { packet: NAME, field: "mem (registers are the driver's)", value: 0 });
        }
        let addr = GpuVa(join(words[1], words[2]));
        check_align(NAME, addr, 4)?;
        Ok(Self {
            function: Function::parse(NAME, POLL_FUNCTION.get(words))?,
            addr,
            reference: words[3],
            mask: words[4],
            interval: POLL_INTERVAL.get(words),
            retry: POLL_RETRY.get(words),
        })
    }
}

impl fmt::Display for PollRegmem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "POLL_REGMEM [{}] & {:#x} {} {:#x}", self.addr, self.mask, self.function.sign(), self.reference)
    }
}

const ATOMIC_OP: Field = field(0, 25, 31);
const ATOMIC_INTERVAL: Field = field(7, 0, 12);

/// 64-bit add that returns the old value (which SDMA drops).
pub const TC_OP_ATOMIC_ADD_RTN_64: u32 = 47;

/// ATOMIC: an atomic of the texture cache's set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Atomic {
    pub tc_op: u32,
    /// 4-byte aligned.
    pub addr: GpuVa,
    pub data: u64,
    pub compare: u64,
    pub loop_interval: u32,
}

impl Atomic {
    /// # Errors
    /// `Field` when operation or interval do not fit, `Misaligned` for an address that is not a dword's.
    pub fn emit(&self, out: &mut Vec<u32>) -> Result<(), EmitError> {
        check_emit_align("ATOMIC", self.addr, 4)?;
        let ([lo, hi], [data_lo, data_hi], [cmp_lo, cmp_hi]) =
            (split(self.addr.0), split(self.data), split(self.compare));
        let mut w = [op::SDMA_OP_ATOMIC, lo, hi, data_lo, data_hi, cmp_lo, cmp_hi, 0];
        ATOMIC_OP.set(&mut w, "atomic op", self.tc_op)?;
        ATOMIC_INTERVAL.set(&mut w, "loop interval", self.loop_interval)?;
        out.extend(w);
        Ok(())
    }

    pub(super) fn parse(words: &[u32]) -> Result<Self, DecodeKind> {
        const NAME: &str = "ATOMIC";
        check_reserved(NAME, words, &[HDR_OP, HDR_SUB, ATOMIC_OP, ATOMIC_INTERVAL])?;
        let addr = GpuVa(join(words[1], words[2]));
        check_align(NAME, addr, 4)?;
        Ok(Self {
            tc_op: ATOMIC_OP.get(words),
            addr,
            data: join(words[3], words[4]),
            compare: join(words[5], words[6]),
            loop_interval: ATOMIC_INTERVAL.get(words),
        })
    }
}

impl fmt::Display for Atomic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ATOMIC op {} [{}] data {:#x} compare {:#x}", self.tc_op, self.addr, self.data, self.compare)
    }
}

/// TIMESTAMP: store the 64-bit 100 MHz counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp {
    /// 8-byte aligned.
    pub addr: GpuVa,
}

impl Timestamp {
    /// # Errors
    /// `Misaligned` for an address that is not 8-byte aligned.
    pub fn emit(&self, out: &mut Vec<u32>) -> Result<(), EmitError> {
        check_emit_align("TIMESTAMP", self.addr, 8)?;
        let [lo, hi] = split(self.addr.0);
        let mut w = [op::SDMA_OP_TIMESTAMP, lo, hi];
        HDR_SUB.set(&mut w, "sub-op", op::SDMA_SUBOP_TIMESTAMP_GET_GLOBAL)?;
        out.extend(w);
        Ok(())
    }

    pub(super) fn parse(words: &[u32]) -> Result<Self, DecodeKind> {
        check_reserved("TIMESTAMP", &words[..1], &[HDR_OP, HDR_SUB])?;
        let addr = GpuVa(join(words[1], words[2]));
        check_align("TIMESTAMP", addr, 8)?;
        Ok(Self { addr })
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TIMESTAMP [{}]", self.addr)
    }
}

const GCR_BASE_LO: Field = field(1, 7, 31);
const GCR_BASE_HI: Field = field(2, 0, 15);
const GCR_LO: Field = field(2, 16, 31);
const GCR_HI: Field = field(3, 0, 2);
const GCR_LIMIT_LO: Field = field(3, 7, 31);
const GCR_LIMIT_HI: Field = field(4, 0, 15);
const GCR_UNIT_BYTES: u64 = 128;

/// GCR: cache control over a range, gfx10 and later. A range of 0 to 0 is all of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gcr {
    pub cache: GcrCntl,
    /// 128-byte aligned, 48 bits.
    pub base: GpuVa,
    /// 128-byte aligned, 48 bits.
    pub limit: GpuVa,
}

impl Gcr {
    /// # Errors
    /// `OverLimit` on an engine without the packet, `Misaligned` and `Field` for the range.
    pub fn emit(&self, sdma: Sdma, out: &mut Vec<u32>) -> Result<(), EmitError> {
        if !sdma.table().gcr {
            return Err(EmitError::OverLimit { packet: "GCR", field: "opcode", value: 17, max: 0 });
        }
        check_emit_align("GCR", self.base, GCR_UNIT_BYTES)?;
        check_emit_align("GCR", self.limit, GCR_UNIT_BYTES)?;
        let ([base_lo, base_hi], [limit_lo, limit_hi]) = (split(self.base.0), split(self.limit.0));
        let mut w = [op::SDMA_OP_GCR, base_lo, 0, limit_lo, 0];
        HDR_SUB.set(&mut w, "sub-op", op::SDMA_SUBOP_USER_GCR)?;
        GCR_BASE_HI.set(&mut w, "gcr base", base_hi)?;
        GCR_LIMIT_HI.set(&mut w, "gcr limit", limit_hi)?;
        GCR_LO.set(&mut w, "gcr control", self.cache.bits() & 0xffff)?;
        GCR_HI.set(&mut w, "gcr control", self.cache.bits() >> 16)?;
        out.extend(w);
        Ok(())
    }

    pub(super) fn parse(words: &[u32]) -> Result<Self, DecodeKind> {
        const NAME: &str = "GCR";
        let known = [HDR_OP, HDR_SUB, GCR_BASE_LO, GCR_BASE_HI, GCR_LO, GCR_HI, GCR_LIMIT_LO, GCR_LIMIT_HI];
        check_reserved(NAME, words, &known)?;
        let bits = GCR_LO.get(words) | GCR_HI.get(words) << 16;
        Ok(Self {
            cache: GcrCntl::from_bits_truncate(bits),
            base: GpuVa(join(words[1], GCR_BASE_HI.get(words))),
            limit: GpuVa(join(words[3] & GCR_LIMIT_LO.mask(), GCR_LIMIT_HI.get(words))),
        })
    }
}

impl fmt::Display for Gcr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags: Vec<_> = self.cache.iter_names().map(|(name, _)| name).collect();
        write!(f, "GCR {} base {} limit {}", flags.join("|"), self.base, self.limit)
    }
}

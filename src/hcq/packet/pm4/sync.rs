//! Packets for synchronization: WAIT_REG_MEM, EVENT_WRITE, ACQUIRE_MEM, RELEASE_MEM. Source: docs/amd.md 2.3, 2.6.
//!
//! Left out: cache policies of WAIT_REG_MEM, events with an address (such as ZPASS), GDS destinations.

use super::cache::{CoherCntl, CoherRange, GcrCntl, ReleaseGcr, ReleaseTc, names};
use super::chip::Gfx;
use super::{GpuVa, check_len, op, put_header};
use crate::bits::{Field, field, join, split};
use crate::packet::{DecodeKind, EmitError, check_align, check_emit_align, check_reserved, selector};
use std::fmt;

selector! {
    /// How a wait compares `value & mask` with the reference, unsigned. SDMA uses the same numbers.
    Function, "function" { Always = 0, Less = 1, LessEqual = 2, Equal = 3, NotEqual = 4, GreaterEqual = 5, Greater = 6 }
}

impl Function {
    /// Whether the comparison holds, which ends the wait.
    #[must_use]
    pub fn holds(self, masked: u64, reference: u64) -> bool {
        match self {
            Self::Always => true,
            Self::Less => masked < reference,
            Self::LessEqual => masked <= reference,
            Self::Equal => masked == reference,
            Self::NotEqual => masked != reference,
            Self::GreaterEqual => masked >= reference,
            Self::Greater => masked > reference,
        }
    }

    pub(in crate::packet) const fn sign(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Less => "<",
            Self::LessEqual => "<=",
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::GreaterEqual => ">=",
            Self::Greater => ">",
        }
    }

    pub(in crate::packet) fn parse(packet: &'static str, bits: u32) -> Result<Self, DecodeKind> {
        Self::from_bits(packet, bits)
    }
}

selector! {
    /// Operation of WAIT_REG_MEM.
    Operation, "operation" {
        Wait = 0,
        /// Write the reference to the first register, then wait on the second: the HDP flush.
        WriteThenWait = 1,
        WaitPreemptible = 3,
    }
}

/// What WAIT_REG_MEM polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitSpace {
    Memory(GpuVa),
    /// Register and, for [`Operation::WriteThenWait`], the second one; dword addresses.
    Register(u32, u32),
}

impl fmt::Display for WaitSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(addr) => write!(f, "[{addr}]"),
            Self::Register(reg, 0) => write!(f, "register {reg:#x}"),
            Self::Register(reg, done) => write!(f, "registers {reg:#x}, {done:#x}"),
        }
    }
}

const WRM_FUNCTION: Field = field(1, 0, 2);
const WRM_SPACE: Field = field(1, 4, 5);
const WRM_OPERATION: Field = field(1, 6, 7);
const WRM_INTERVAL: Field = field(6, 0, 15);
const WRM64_INTERVAL: Field = field(8, 0, 15);

/// Poll interval that drivers use, in units of 16 clocks.
pub(crate) const POLL_INTERVAL: u32 = 4;

/// WAIT_REG_MEM: stall this queue until a 32-bit compare holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitRegMem {
    pub space: WaitSpace,
    pub function: Function,
    pub operation: Operation,
    pub reference: u32,
    pub mask: u32,
    /// 16 bits.
    pub poll_interval: u32,
}

fn put_wait(
    w: &mut [u32],
    opcode: u32,
    space: WaitSpace,
    function: Function,
    operation: Operation,
) -> Result<(), EmitError> {
    put_header(w, opcode)?;
    WRM_FUNCTION.set(w, "function", function.bits())?;
    WRM_OPERATION.set(w, "operation", operation.bits())?;
    WRM_SPACE.set(w, "mem_space", u32::from(matches!(space, WaitSpace::Memory(_))))?;
    Ok(())
}

fn get_space(packet: &'static str, words: &[u32], align: u64) -> Result<WaitSpace, DecodeKind> {
    match WRM_SPACE.get(words) {
        0 => Ok(WaitSpace::Register(words[2], words[3])),
        1 => {
            let addr = GpuVa(join(words[2], words[3]));
            check_align(packet, addr, align)?;
            Ok(WaitSpace::Memory(addr))
        }
        value => Err(DecodeKind::Value { packet, field: "mem_space", value }),
    }
}

fn space_words(packet: &'static str, space: WaitSpace, align: u64) -> Result<[u32; 2], EmitError> {
    match space {
        WaitSpace::Memory(addr) => {
            check_emit_align(packet, addr, align)?;
            Ok(split(addr.0))
        }
        WaitSpace::Register(reg, done) => Ok([reg, done]),
    }
}

impl WaitRegMem {
    /// Waits until the low dword of the memory word is at least `value`.
    #[must_use]
    pub const fn at_least(addr: GpuVa, value: u32) -> Self {
        Self {
            space: WaitSpace::Memory(addr),
            function: Function::GreaterEqual,
            operation: Operation::Wait,
            reference: value,
            mask: u32::MAX,
            poll_interval: POLL_INTERVAL,
        }
    }

    /// # Errors
    /// `Field` when the interval is over 16 bits, `Misaligned` for an address that is not a dword's.
    pub fn emit(&self, out: &mut Vec<u32>) -> Result<(), EmitError> {
        let [lo, hi] = space_words("WAIT_REG_MEM", self.space, 4)?;
        let mut w = [0, 0, lo, hi, self.reference, self.mask, 0];
        put_wait(&mut w, op::PACKET3_WAIT_REG_MEM, self.space, self.function, self.operation)?;
        WRM_INTERVAL.set(&mut w, "poll interval", self.poll_interval)?;
        out.extend(w);
        Ok(())
    }

    pub(super) fn parse(words: &[u32]) -> Result<Self, DecodeKind> {
        const NAME: &str = "WAIT_REG_MEM";
        check_len(NAME, words, 7)?;
        check_reserved(NAME, words, &[WRM_FUNCTION, WRM_SPACE, WRM_OPERATION, WRM_INTERVAL])?;
        Ok(Self {
            space: get_space(NAME, words, 4)?,
            function: Function::from_bits(NAME, WRM_FUNCTION.get(words))?,
            operation: Operation::from_bits(NAME, WRM_OPERATION.get(words))?,
            reference: words[4],
            mask: words[5],
            poll_interval: WRM_INTERVAL.get(words),
        })
    }
}

impl fmt::Display for WaitRegMem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WAIT_REG_MEM {} & {:#x} {} {:#x}", self.space, self.mask, self.function.sign(), self.reference)?;
        if self.operation == Operation::Wait { Ok(()) } else { write!(f, " {:?}", self.operation) }
    }
}

/// WAIT_REG_MEM64: as WAIT_REG_MEM with 64-bit reference and mask. Firmware support has not been tested on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitRegMem64 {
    pub space: WaitSpace,
    pub function: Function,
    pub operation: Operation,
    pub reference: u64,
    pub mask: u64,
    pub poll_interval: u32,
}

impl WaitRegMem64 {
    /// # Errors
    /// `Field` when the interval is over 16 bits, `Misaligned` for an address off its 8 bytes.
    pub fn emit(&self, out: &mut Vec<u32>) -> Result<(), EmitError> {
        let [lo, hi] = space_words("WAIT_REG_MEM64", self.space, 8)?;
        let ([ref_lo, ref_hi], [mask_lo, mask_hi]) = (split(self.reference), split(self.mask));
        let mut w = [0, 0, lo, hi, ref_lo, ref_hi, mask_lo, mask_hi, 0];
        put_wait(&mut w, op::PACKET3_WAIT_REG_MEM64, self.space, self.function, self.operation)?;
        WRM64_INTERVAL.set(&mut w, "poll interval", self.poll_interval)?;
        out.extend(w);
        Ok(())
    }

    pub(super) fn parse(words: &[u32]) -> Result<Self, DecodeKind> {
        const NAME: &str = "WAIT_REG_MEM64";
        check_len(NAME, words, 9)?;
        check_reserved(NAME, words, &[WRM_FUNCTION, WRM_SPACE, WRM_OPERATION, WRM64_INTERVAL])?;
        Ok(Self {
            space: get_space(NAME, words, 8)?,
            function: Function::from_bits(NAME, WRM_FUNCTION.get(words))?,
            operation: Operation::from_bits(NAME, WRM_OPERATION.get(words))?,
            reference: join(words[4], words[5]),
            mask: join(words[6], words[7]),
            poll_interval: WRM64_INTERVAL.get(words),
        })
    }
}

impl fmt::Display for WaitRegMem64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WAIT_REG_MEM64 {} & {:#x} {} {:#x}", self.space, self.mask, self.function.sign(), self.reference)
    }
}

const EV_TYPE: Field = field(1, 0, 5);
const EV_INDEX: Field = field(1, 8, 11);
const CS_PARTIAL_FLUSH: u32 = 0x07;
const CS_PARTIAL_FLUSH_INDEX: u32 = 4;
const CACHE_FLUSH_AND_INV_TS: u32 = 0x14;
const END_OF_PIPE_INDEX: u32 = 5;

/// EVENT_WRITE: sends an event into the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventWrite {
    pub event_type: u32,
    pub event_index: u32,
}

impl EventWrite {
    /// The next packet waits until all earlier waves have ended.
    pub const CS_PARTIAL_FLUSH: Self = Self { event_type: CS_PARTIAL_FLUSH, event_index: CS_PARTIAL_FLUSH_INDEX };

    /// # Errors
    /// `Field` when type or index do not fit.
    pub fn emit(&self, out: &mut Vec<u32>) -> Result<(), EmitError> {
        let mut w = [0; 2];
        put_header(&mut w, op::PACKET3_EVENT_WRITE)?;
        EV_TYPE.set(&mut w, "event type", self.event_type)?;
        EV_INDEX.set(&mut w, "event index", self.event_index)?;
        out.extend(w);
        Ok(())
    }

    pub(super) fn parse(words: &[u32]) -> Result<Self, DecodeKind> {
        check_len("EVENT_WRITE", words, 2)?;
        check_reserved("EVENT_WRITE", words, &[EV_TYPE, EV_INDEX])?;
        Ok(Self { event_type: EV_TYPE.get(words), event_index: EV_INDEX.get(words) })
    }
}

impl fmt::Display for EventWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::CS_PARTIAL_FLUSH {
            return f.write_str("EVENT_WRITE CS_PARTIAL_FLUSH");
        }
        write!(f, "EVENT_WRITE type {:#x} index {}", self.event_type, self.event_index)
    }
}

/// Cache control of ACQUIRE_MEM, which determines the packet's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquire {
    /// gfx10 and later.
    Gcr(GcrCntl),
    /// gfx9.
    Coher(CoherCntl),
}

const ACQUIRE_POLL_GFX9: u32 = 0xa;

/// ACQUIRE_MEM: invalidate and write back caches before the next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcquireMem {
    pub cache: Acquire,
    pub range: CoherRange,
}

impl AcquireMem {
    /// An acquire for all of memory.
    #[must_use]
    pub const fn all(cache: Acquire) -> Self {
        Self { cache, range: CoherRange::ALL }
    }

    /// # Errors
    /// None for these fields; the signature is that of all packets.
    pub fn emit(&self, out: &mut Vec<u32>) -> Result<(), EmitError> {
        let ([size_lo, size_hi], [base_lo, base_hi]) = (split(self.range.size_256), split(self.range.base_256));
        match self.cache {
            Acquire::Gcr(gcr) => {
                let mut w = [0, 0, size_lo, size_hi, base_lo, base_hi, 0, gcr.bits()];
                put_header(&mut w, op::PACKET3_ACQUIRE_MEM)?;
                out.extend(w);
            }
            Acquire::Coher(coher) => {
                let mut w = [0, coher.bits(), size_lo, size_hi, base_lo, base_hi, ACQUIRE_POLL_GFX9];
                put_header(&mut w, op::PACKET3_ACQUIRE_MEM)?;
                out.extend(w);
            }
        }
        Ok(())
    }

    pub(super) fn parse(gfx: Gfx, words: &[u32]) -> Result<Self, DecodeKind> {
        const NAME: &str = "ACQUIRE_MEM";
        let reserved = |dword: usize, bits: u32| DecodeKind::Reserved { packet: NAME, dword, bits };
        let cache = if gfx.table().gcr {
            check_len(NAME, words, 8)?;
            if let Some(dword) = [1, 6].into_iter().find(|&at| words[at] != 0) {
                return Err(reserved(dword, words[dword]));
            }
            let bits = words[7];
            Acquire::Gcr(GcrCntl::from_bits(bits).ok_or(reserved(7, bits & !GcrCntl::all().bits()))?)
        } else {
            check_len(NAME, words, 7)?;
            if words[6] != ACQUIRE_POLL_GFX9 {
                return Err(DecodeKind::Value { packet: NAME, field: "poll interval", value: words[6] });
            }
            let bits = words[1];
            Acquire::Coher(CoherCntl::from_bits(bits).ok_or(reserved(1, bits & !CoherCntl::all().bits()))?)
        };
        let range = CoherRange { size_256: join(words[2], words[3]), base_256: join(words[4], words[5]) };
        Ok(Self { cache, range })
    }
}

impl fmt::Display for AcquireMem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = match self.cache {
            Acquire::Gcr(gcr) => names(gcr.iter_names().map(|(name, _)| name)),
            Acquire::Coher(coher) => names(coher.iter_names().map(|(name, _)| name)),
        };
        write!(f, "ACQUIRE_MEM {flags}")?;
        if self.range == CoherRange::ALL {
            return Ok(());
        }
        write!(f, " base {:#x}00 size {:#x}00", self.range.base_256, self.range.size_256)
    }
}

selector! {
    /// The data that RELEASE_MEM writes.
    DataSel, "data_sel" { None = 0, Low32 = 1, All64 = 2, GpuClock = 3 }
}

selector! {
    /// Whether RELEASE_MEM interrupts.
    IntSel, "int_sel" { None = 0, Interrupt = 1, AfterConfirm = 2 }
}

/// Cache control of RELEASE_MEM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// gfx10 and later.
    Gcr(ReleaseGcr),
    /// gfx9.
    Tc(ReleaseTc),
}

const RM_TYPE: Field = field(1, 0, 5);
const RM_INDEX: Field = field(1, 8, 11);
const RM_CACHE: Field = field(1, 12, 31);
const RM_DATA_SEL: Field = field(2, 29, 31);
const RM_INT_SEL: Field = field(2, 24, 26);

/// RELEASE_MEM: at end of pipe (all earlier waves ended, caches done) write a value and interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReleaseMem {
    pub cache: Release,
    pub data_sel: DataSel,
    pub int_sel: IntSel,
    /// 4-byte aligned, 8-byte for 64 bits and the clock.
    pub addr: GpuVa,
    pub data: u64,
    /// Interrupt context: the event id.
    pub ctxid: u32,
}

impl ReleaseMem {
    const fn align(data_sel: DataSel) -> u64 {
        match data_sel {
            DataSel::None => 1,
            DataSel::Low32 => 4,
            DataSel::All64 | DataSel::GpuClock => 8,
        }
    }

    /// # Errors
    /// `Misaligned` for an address that is not aligned to 4 or 8 bytes.
    pub fn emit(&self, out: &mut Vec<u32>) -> Result<(), EmitError> {
        check_emit_align("RELEASE_MEM", self.addr, Self::align(self.data_sel))?;
        let cache = match self.cache {
            Release::Gcr(gcr) => gcr.bits(),
            Release::Tc(tc) => tc.bits(),
        };
        let ([lo, hi], [data_lo, data_hi]) = (split(self.addr.0), split(self.data));
        let mut w = [0, cache, 0, lo, hi, data_lo, data_hi, self.ctxid];
        put_header(&mut w, op::PACKET3_RELEASE_MEM)?;
        RM_TYPE.set(&mut w, "event type", CACHE_FLUSH_AND_INV_TS)?;
        RM_INDEX.set(&mut w, "event index", END_OF_PIPE_INDEX)?;
        RM_DATA_SEL.set(&mut w, "data_sel", self.data_sel.bits())?;
        RM_INT_SEL.set(&mut w, "int_sel", self.int_sel.bits())?;
        out.extend(w);
        Ok(())
    }

    pub(super) fn parse(gfx: Gfx, words: &[u32]) -> Result<Self, DecodeKind> {
        const NAME: &str = "RELEASE_MEM";
        check_len(NAME, words, 8)?;
        check_reserved(NAME, words, &[RM_TYPE, RM_INDEX, RM_CACHE, RM_DATA_SEL, RM_INT_SEL])?;
        let (event_type, index) = (RM_TYPE.get(words), RM_INDEX.get(words));
        if event_type != CACHE_FLUSH_AND_INV_TS {
            return Err(DecodeKind::Value { packet: NAME, field: "event type", value: event_type });
        }
        if index != END_OF_PIPE_INDEX {
            return Err(DecodeKind::Value { packet: NAME, field: "event index", value: index });
        }
        let bits = words[1] & RM_CACHE.mask();
        let reserved = |known: u32| DecodeKind::Reserved { packet: NAME, dword: 1, bits: bits & !known };
        let cache = if gfx.table().gcr {
            Release::Gcr(ReleaseGcr::from_bits(bits).ok_or(reserved(ReleaseGcr::all().bits()))?)
        } else {
            Release::Tc(ReleaseTc::from_bits(bits).ok_or(reserved(ReleaseTc::all().bits()))?)
        };
        let data_sel = DataSel::from_bits(NAME, RM_DATA_SEL.get(words))?;
        let addr = GpuVa(join(words[3], words[4]));
        check_align(NAME, addr, Self::align(data_sel))?;
        let int_sel = IntSel::from_bits(NAME, RM_INT_SEL.get(words))?;
        Ok(Self { cache, data_sel, int_sel, addr, data: join(words[5], words[6]), ctxid: words[7] })
    }
}

impl fmt::Display for ReleaseMem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = match self.cache {
            Release::Gcr(gcr) => names(gcr.iter_names().map(|(name, _)| name)),
            Release::Tc(tc) => names(tc.iter_names().map(|(name, _)| name)),
        };
        f.write_str("RELEASE_MEM ")?;
        match self.data_sel {
            DataSel::None => f.write_str("nothing")?,
            DataSel::Low32 => write!(f, "[{}] = {:#x} (32 bits)", self.addr, self.data & 0xffff_ffff)?,
            DataSel::All64 => write!(f, "[{}] = {:#x}", self.addr, self.data)?,
            DataSel::GpuClock => write!(f, "[{}] = clock", self.addr)?,
        }
        write!(f, " flush {flags}")?;
        match self.int_sel {
            IntSel::None => Ok(()),
            IntSel::Interrupt | IntSel::AfterConfirm => write!(f, " interrupt {}", self.ctxid),
        }
    }
}

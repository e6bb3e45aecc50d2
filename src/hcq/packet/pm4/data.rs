//! Packets that move data: WRITE_DATA, COPY_DATA, DMA_DATA, ATOMIC_MEM.
//!
//! Source: docs/amd.md 2.3; DMA_DATA and ATOMIC_MEM from the kernel driver's and Mesa's definitions (docs/amd.md has
//! only their opcodes).
//! Left out: cache policies, GDS, perf counters as a destination.

use super::{GpuVa, check_len, op, put_header, put_values, values};
use crate::bits::{Field, field, join, split};
use crate::packet::{DecodeKind, EmitError, check_align, check_emit_align, check_reserved, selector};
use std::fmt;

selector! {
    /// Destination of WRITE_DATA.
    DstSel, "dst_sel" { Register = 0, L2 = 2, Memory = 5 }
}

const WD_DST: Field = field(1, 8, 11);
const WD_NO_INCR: Field = field(1, 16, 16);
const WD_CONFIRM: Field = field(1, 20, 20);

/// WRITE_DATA: the command processor stores dwords.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteData<'a> {
    pub dst: DstSel,
    /// Store all values to one address.
    pub no_incr: bool,
    /// Wait for the store before the next packet.
    pub confirm: bool,
    /// 4-byte aligned; a register's dword address when `dst` is `Register`.
    pub addr: GpuVa,
    pub values: &'a [u32],
}

impl<'a> WriteData<'a> {
    /// # Errors
    /// `Values` for none or too many, `Misaligned` for an address that is not dword-aligned.
    pub fn emit(&self, out: &mut Vec<u32>) -> Result<(), EmitError> {
        if self.dst != DstSel::Register {
            check_emit_align("WRITE_DATA", self.addr, 4)?;
        }
        let [lo, hi] = split(self.addr.0);
        let mut w = [0, 0, lo, hi];
        WD_DST.set(&mut w, "dst_sel", self.dst.bits())?;
        WD_NO_INCR.set(&mut w, "no_incr", u32::from(self.no_incr))?;
        WD_CONFIRM.set(&mut w, "wr_confirm", u32::from(self.confirm))?;
        put_values(out, "WRITE_DATA", op::PACKET3_WRITE_DATA, &mut w, self.values)
    }

    pub(super) fn parse(words: &'a [u32]) -> Result<Self, DecodeKind> {
        const NAME: &str = "WRITE_DATA";
        let values = values(NAME, words, 4)?;
        check_reserved(NAME, &words[..4], &[WD_DST, WD_NO_INCR, WD_CONFIRM])?;
        let dst = DstSel::from_bits(NAME, WD_DST.get(words))?;
        let addr = GpuVa(join(words[2], words[3]));
        if dst != DstSel::Register {
            check_align(NAME, addr, 4)?;
        }
        let flag = |f: Field| f.get(words) == 1;
        Ok(Self { dst, no_incr: flag(WD_NO_INCR), confirm: flag(WD_CONFIRM), addr, values })
    }
}

impl fmt::Display for WriteData<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WRITE_DATA {:?} [{}] = {:#x}", self.dst, self.addr, self.values.first().copied().unwrap_or(0))?;
        if self.values.len() > 1 {
            write!(f, " .. {} dwords", self.values.len())?;
        }
        let flags = [(self.no_incr, " no_incr"), (self.confirm, " confirm")];
        flags.iter().filter(|(on, _)| *on).try_for_each(|(_, name)| f.write_str(name))
    }
}

selector! {
    /// Source of COPY_DATA.
    CopySrc, "src_sel" { Register = 0, MemoryL2 = 2, PerfCounter = 4, Immediate = 5, GpuClock = 9 }
}

selector! {
    /// Destination of COPY_DATA.
    CopyDst, "dst_sel" { Register = 0, L2 = 2, Memory = 5 }
}

const CD_SRC: Field = field(1, 0, 3);
const CD_DST: Field = field(1, 8, 11);
const CD_COUNT: Field = field(1, 16, 16);
const CD_CONFIRM: Field = field(1, 20, 20);

/// COPY_DATA: copies one or two dwords from a register, memory, an immediate or the clock to a register or memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyData {
    pub src_sel: CopySrc,
    pub dst_sel: CopyDst,
    /// 64 bits instead of 32.
    pub wide: bool,
    pub confirm: bool,
    /// Address, register or immediate value.
    pub src: u64,
    pub dst: GpuVa,
}

impl CopyData {
    /// # Errors
    /// `Misaligned` for a memory destination that is not dword-aligned.
    pub fn emit(&self, out: &mut Vec<u32>) -> Result<(), EmitError> {
        if self.dst_sel != CopyDst::Register {
            check_emit_align("COPY_DATA", self.dst, 4)?;
        }
        let ([src_lo, src_hi], [dst_lo, dst_hi]) = (split(self.src), split(self.dst.0));
        let mut w = [0, 0, src_lo, src_hi, dst_lo, dst_hi];
        put_header(&mut w, op::PACKET3_COPY_DATA)?;
        CD_SRC.set(&mut w, "src_sel", self.src_sel.bits())?;
        CD_DST.set(&mut w, "dst_sel", self.dst_sel.bits())?;
        CD_COUNT.set(&mut w, "count_sel", u32::from(self.wide))?;
        CD_CONFIRM.set(&mut w, "wr_confirm", u32::from(self.confirm))?;
        out.extend(w);
        Ok(())
    }

    pub(super) fn parse(words: &[u32]) -> Result<Self, DecodeKind> {
        const NAME: &str = "COPY_DATA";
        check_len(NAME, words, 6)?;
        check_reserved(NAME, words, &[CD_SRC, CD_DST, CD_COUNT, CD_CONFIRM])?;
        let dst_sel = CopyDst::from_bits(NAME, CD_DST.get(words))?;
        let dst = GpuVa(join(words[4], words[5]));
        if dst_sel != CopyDst::Register {
            check_align(NAME, dst, 4)?;
        }
        Ok(Self {
            src_sel: CopySrc::from_bits(NAME, CD_SRC.get(words))?,
            dst_sel,
            wide: CD_COUNT.get(words) == 1,
            confirm: CD_CONFIRM.get(words) == 1,
            src: join(words[2], words[3]),
            dst,
        })
    }
}

impl fmt::Display for CopyData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = if self.wide { 64 } else { 32 };
        let confirm = if self.confirm { " confirm" } else { "" };
        write!(
            f,
            "COPY_DATA {bits} bits {:?} [{}] <- {:?} {:#x}{confirm}",
            self.dst_sel, self.dst, self.src_sel, self.src
        )
    }
}

selector! {
    /// Source of DMA_DATA.
    DmaSrc, "src_sel" { Address = 0, Data = 2, AddressL2 = 3 }
}

selector! {
    /// Destination of DMA_DATA.
    DmaDst, "dst_sel" { Address = 0, Nowhere = 2, AddressL2 = 3 }
}

const DMA_DST: Field = field(1, 20, 21);
const DMA_SRC: Field = field(1, 29, 30);
const DMA_SYNC: Field = field(1, 31, 31);
const DMA_BYTES: Field = field(6, 0, 25);

/// DMA_DATA: a copy or fill by the command processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaData {
    pub src_sel: DmaSrc,
    pub dst_sel: DmaDst,
    /// The next packet waits for it.
    pub sync: bool,
    /// Address, or the fill value in its low dword.
    pub src: u64,
    pub dst: GpuVa,
    /// 26 bits.
    pub len_bytes: u32,
}

impl DmaData {
    /// # Errors
    /// `Field` when the length is over 26 bits.
    pub fn emit(&self, out: &mut Vec<u32>) -> Result<(), EmitError> {
        let ([src_lo, src_hi], [dst_lo, dst_hi]) = (split(self.src), split(self.dst.0));
        let mut w = [0, 0, src_lo, src_hi, dst_lo, dst_hi, 0];
        put_header(&mut w, op::PACKET3_DMA_DATA)?;
        DMA_SRC.set(&mut w, "src_sel", self.src_sel.bits())?;
        DMA_DST.set(&mut w, "dst_sel", self.dst_sel.bits())?;
        DMA_SYNC.set(&mut w, "cp_sync", u32::from(self.sync))?;
        DMA_BYTES.set(&mut w, "byte count", self.len_bytes)?;
        out.extend(w);
        Ok(())
    }

    pub(super) fn parse(words: &[u32]) -> Result<Self, DecodeKind> {
        const NAME: &str = "DMA_DATA";
        check_len(NAME, words, 7)?;
        check_reserved(NAME, words, &[DMA_DST, DMA_SRC, DMA_SYNC, DMA_BYTES])?;
        Ok(Self {
            src_sel: DmaSrc::from_bits(NAME, DMA_SRC.get(words))?,
            dst_sel: DmaDst::from_bits(NAME, DMA_DST.get(words))?,
            sync: DMA_SYNC.get(words) == 1,
            src: join(words[2], words[3]),
            dst: GpuVa(join(words[4], words[5])),
            len_bytes: DMA_BYTES.get(words),
        })
    }
}

impl fmt::Display for DmaData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sync = if self.sync { " sync" } else { "" };
        write!(
            f,
            "DMA_DATA {:?} {} <- {:?} {:#x} {} bytes{sync}",
            self.dst_sel, self.dst, self.src_sel, self.src, self.len_bytes
        )
    }
}

const AT_OP: Field = field(1, 0, 6);
const AT_LOOP: Field = field(1, 8, 11);
const AT_INTERVAL: Field = field(8, 0, 12);

/// ATOMIC_MEM: an atomic of the texture cache's set (`TC_OP`; 47 is a 64-bit add).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicMem {
    pub tc_op: u32,
    /// Repeat until the compare holds.
    pub until_compare: bool,
    pub addr: GpuVa,
    pub data: u64,
    pub compare: u64,
    pub loop_interval: u32,
}

impl AtomicMem {
    /// # Errors
    /// `Field` if the operation or interval does not fit, `Misaligned` for an address that is not dword-aligned.
    pub fn emit(&self, out: &mut Vec<u32>) -> Result<(), EmitError> {
        check_emit_align("ATOMIC_MEM", self.addr, 4)?;
        let ([lo, hi], [data_lo, data_hi], [cmp_lo, cmp_hi]) =
            (split(self.addr.0), split(self.data), split(self.compare));
        let mut w = [0, 0, lo, hi, data_lo, data_hi, cmp_lo, cmp_hi, 0];
        put_header(&mut w, op::PACKET3_ATOMIC_MEM)?;
        AT_OP.set(&mut w, "atomic op", self.tc_op)?;
        AT_LOOP.set(&mut w, "command", u32::from(self.until_compare))?;
        AT_INTERVAL.set(&mut w, "loop interval", self.loop_interval)?;
        out.extend(w);
        Ok(())
    }

    pub(super) fn parse(words: &[u32]) -> Result<Self, DecodeKind> {
        const NAME: &str = "ATOMIC_MEM";
        check_len(NAME, words, 9)?;
        check_reserved(NAME, words, &[AT_OP, AT_LOOP, AT_INTERVAL])?;
        let addr = GpuVa(join(words[2], words[3]));
        check_align(NAME, addr, 4)?;
        let command = AT_LOOP.get(words);
        if command > 1 {
            return Err(DecodeKind::Value { packet: NAME, field: "command", value: command });
        }
        Ok(Self {
            tc_op: AT_OP.get(words),
            until_compare: command == 1,
            addr,
            data: join(words[4], words[5]),
            compare: join(words[6], words[7]),
            loop_interval: AT_INTERVAL.get(words),
        })
    }
}

impl fmt::Display for AtomicMem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ATOMIC_MEM op {} [{}] data {:#x} compare {:#x}", self.tc_op, self.addr, self.data, self.compare)
    }
}

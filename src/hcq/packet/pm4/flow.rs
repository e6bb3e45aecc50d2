//! Packets that control the command processor: NOP, INDIRECT_BUFFER, PRED_EXEC, COND_EXEC. Source: docs/amd.md 2.3,
//! 2.8.

use super::{GpuVa, check_len, op, put_header, put_values};
use crate::bits::{Field, field, join, split};
use crate::packet::{DecodeKind, EmitError, check_align, check_emit_align, check_reserved};
use std::fmt;

/// A NOP of one dword: its count field is all ones.
pub const NOP_ONE_DWORD: u32 = 0xffff_1000;

/// NOP: the dwords after the header are ignored. With an empty payload, it is the NOP of one dword.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nop<'a> {
    pub payload: &'a [u32],
}

impl Nop<'_> {
    /// # Errors
    /// `Values` when the payload is longer than a packet.
    pub fn emit(&self, out: &mut Vec<u32>) -> Result<(), EmitError> {
        if self.payload.is_empty() {
            out.push(NOP_ONE_DWORD);
            return Ok(());
        }
        // A count of all ones means one dword, so the longest payload is one less than the field's range.
        let max = super::MAX_DWORDS - 2;
        if self.payload.len() > max {
            let count = self.payload.len();
            return Err(EmitError::Values { packet: "NOP", count, min: 0, max });
        }
        put_values(out, "NOP", op::PACKET3_NOP, &mut [0], self.payload)
    }
}

impl fmt::Display for Nop<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NOP {} dwords", self.payload.len() + 1)
    }
}

const IB_SIZE: Field = field(3, 0, 19);
const IB_CHAIN: Field = field(3, 20, 20);
const IB_VALID: Field = field(3, 23, 23);

/// INDIRECT_BUFFER: runs dwords at another address; a chained one does not return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndirectBuffer {
    /// 4-byte aligned.
    pub addr: GpuVa,
    /// 20 bits.
    pub size_dwords: u32,
    pub chain: bool,
}

impl IndirectBuffer {
    /// The packet's four dwords, which AQL vendor packets contain, too.
    ///
    /// # Errors
    /// `Field` when the size is over 20 bits, `Misaligned` for an address that is not a dword's.
    pub fn words(&self) -> Result<[u32; 4], EmitError> {
        check_emit_align("INDIRECT_BUFFER", self.addr, 4)?;
        let [lo, hi] = split(self.addr.0);
        let mut w = [0, lo, hi, 0];
        put_header(&mut w, op::PACKET3_INDIRECT_BUFFER)?;
        IB_SIZE.set(&mut w, "IB size", self.size_dwords)?;
        IB_CHAIN.set(&mut w, "chain", u32::from(self.chain))?;
        IB_VALID.set(&mut w, "valid", 1)?;
        Ok(w)
    }

    /// # Errors
    /// As [`Self::words`].
    pub fn emit(&self, out: &mut Vec<u32>) -> Result<(), EmitError> {
        out.extend(self.words()?);
        Ok(())
    }

    /// The packet in `words`, which are its four dwords.
    ///
    /// # Errors
    /// `Count`, `Reserved`, `Misaligned`; `Value` when the valid bit is missing.
    pub fn parse(words: &[u32]) -> Result<Self, DecodeKind> {
        const NAME: &str = "INDIRECT_BUFFER";
        check_len(NAME, words, 4)?;
        check_reserved(NAME, words, &[IB_SIZE, IB_CHAIN, IB_VALID])?;
        if IB_VALID.get(words) == 0 {
            return Err(DecodeKind::Value { packet: NAME, field: "valid", value: 0 });
        }
        let addr = GpuVa(join(words[1], words[2]));
        check_align(NAME, addr, 4)?;
        Ok(Self { addr, size_dwords: IB_SIZE.get(words), chain: IB_CHAIN.get(words) == 1 })
    }
}

impl fmt::Display for IndirectBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chain = if self.chain { " chain" } else { "" };
        write!(f, "INDIRECT_BUFFER {} {} dwords{chain}", self.addr, self.size_dwords)
    }
}

const PRED_XCC: Field = field(1, 24, 31);
const PRED_COUNT: Field = field(1, 0, 13);

/// PRED_EXEC: the next dwords run only on the XCCs of the mask. Only inside an indirect buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PredExec {
    pub xcc_mask: u32,
    pub exec_dwords: u32,
}

impl PredExec {
    /// # Errors
    /// `Field` when the mask is over 8 or the count over 14 bits.
    pub fn emit(&self, out: &mut Vec<u32>) -> Result<(), EmitError> {
        let mut w = [0; 2];
        put_header(&mut w, op::PACKET3_PRED_EXEC)?;
        PRED_XCC.set(&mut w, "xcc mask", self.xcc_mask)?;
        PRED_COUNT.set(&mut w, "exec count", self.exec_dwords)?;
        out.extend(w);
        Ok(())
    }

    pub(super) fn parse(words: &[u32]) -> Result<Self, DecodeKind> {
        check_len("PRED_EXEC", words, 2)?;
        check_reserved("PRED_EXEC", words, &[PRED_XCC, PRED_COUNT])?;
        Ok(Self { xcc_mask: PRED_XCC.get(words), exec_dwords: PRED_COUNT.get(words) })
    }
}

impl fmt::Display for PredExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PRED_EXEC xcc mask {:#x} {} dwords", self.xcc_mask, self.exec_dwords)
    }
}

const COND_COUNT: Field = field(4, 0, 13);

/// COND_EXEC: the next dwords are skipped when the dword at the address is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CondExec {
    /// 4-byte aligned.
    pub addr: GpuVa,
    pub exec_dwords: u32,
}

impl CondExec {
    /// # Errors
    /// `Field` when the count is over 14 bits, `Misaligned` for an address that is not a dword's.
    pub fn emit(&self, out: &mut Vec<u32>) -> Result<(), EmitError> {
        check_emit_align("COND_EXEC", self.addr, 4)?;
        let [lo, hi] = split(self.addr.0);
        let mut w = [0, lo, hi, 0, 0];
        put_header(&mut w, op::PACKET3_COND_EXEC)?;
        COND_COUNT.set(&mut w, "exec count", self.exec_dwords)?;
        out.extend(w);
        Ok(())
    }

    pub(super) fn parse(words: &[u32]) -> Result<Self, DecodeKind> {
        check_len("COND_EXEC", words, 5)?;
        check_reserved("COND_EXEC", words, &[COND_COUNT])?;
        if words[3] != 0 {
            return Err(DecodeKind::Reserved { packet: "COND_EXEC", dword: 3, bits: words[3] });
        }
        let addr = GpuVa(join(words[1], words[2]));
        check_align("COND_EXEC", addr, 4)?;
        Ok(Self { addr, exec_dwords: COND_COUNT.get(words) })
    }
}

impl fmt::Display for CondExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "COND_EXEC [{}] {} dwords", self.addr, self.exec_dwords)
    }
}

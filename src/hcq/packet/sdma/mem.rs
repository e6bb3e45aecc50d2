//! SDMA packets that move data: COPY linear, WRITE, CONST_FILL. Source: docs/amd.md 3.

use super::{GpuVa, HDR_OP, HDR_SUB, Sdma, op, take};
use crate::bits::{Field, field, join, split};
use crate::packet::{DecodeKind, EmitError, check_align, check_emit_align, check_reserved, selector};
use std::fmt;

/// COPY linear: copies bytes from one address to another. No alignment is needed, but aligned dwords are faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyLinear {
    pub dst: GpuVa,
    pub src: GpuVa,
    /// At least 1; the engine's count field limits it.
    pub len_bytes: u64,
}

fn copy_count(sdma: Sdma) -> Field {
    field(1, 0, sdma.table().copy_count_bits - 1)
}

impl CopyLinear {
    /// # Errors
    /// `OverLimit` if the length is 0 or exceeds the engine's field.
    pub fn emit(&self, sdma: Sdma, out: &mut Vec<u32>) -> Result<(), EmitError> {
        let max = 1 << sdma.table().copy_count_bits;
        if self.len_bytes == 0 || self.len_bytes > max {
            return Err(EmitError::OverLimit { packet: "COPY", field: "bytes", value: self.len_bytes, max });
        }
        let ([src_lo, src_hi], [dst_lo, dst_hi]) = (split(self.src.0), split(self.dst.0));
        // PANIC: at most 2^30, checked above.
        let count = u32::try_from(self.len_bytes - 1).expect("checked above");
        out.extend([op::SDMA_OP_COPY, count, 0, src_lo, src_hi, dst_lo, dst_hi]);
        Ok(())
    }

    pub(super) fn parse(sdma: Sdma, words: &[u32]) -> Result<Self, DecodeKind> {
        check_reserved("COPY", words, &[HDR_OP, HDR_SUB, copy_count(sdma)])?;
        if words[2] != 0 {
            return Err(DecodeKind::Reserved { packet: "COPY", dword: 2, bits: words[2] });
        }
        Ok(Self {
            len_bytes: u64::from(words[1]) + 1,
            src: GpuVa(join(words[3], words[4])),
            dst: GpuVa(join(words[5], words[6])),
        })
    }
}

impl fmt::Display for CopyLinear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "COPY {} <- {} {} bytes", self.dst, self.src, self.len_bytes)
    }
}

const WRITE_COUNT: Field = field(3, 0, 19);
/// Most dwords of one WRITE.
const WRITE_MAX: usize = 1 << 20;

/// WRITE: stores dwords contained in the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// 4-byte aligned.
    pub dst: GpuVa,
    pub values: &'a [u32],
}

impl<'a> Write<'a> {
    /// # Errors
    /// `Values` for none or too many, `Misaligned` for an address that is not a dword's.
    pub fn emit(&self, out: &mut Vec<u32>) -> Result<(), EmitError> {
        check_emit_align("WRITE", self.dst, 4)?;
        let count = self.values.len();
        if count == 0 || count > WRITE_MAX {
            return Err(EmitError::Values { packet: "WRITE", count, min: 1, max: WRITE_MAX });
        }
        let [lo, hi] = split(self.dst.0);
        // PANIC: at most 2^20, checked above.
        out.extend([op::SDMA_OP_WRITE, lo, hi, u32::try_from(count - 1).expect("checked above")]);
        out.extend_from_slice(self.values);
        Ok(())
    }

    pub(super) fn parse(words: &'a [u32]) -> Result<Self, DecodeKind> {
        const NAME: &str = "WRITE";
        let head = take(NAME, words, 4)?;
        check_reserved(NAME, head, &[HDR_OP, HDR_SUB, WRITE_COUNT])?;
        let dst = GpuVa(join(head[1], head[2]));
        check_align(NAME, dst, 4)?;
        let len = 5 + WRITE_COUNT.get(head) as usize;
        Ok(Self { dst, values: &take(NAME, words, len)?[4..] })
    }
}

impl fmt::Display for Write<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WRITE [{}] = {:#x}", self.dst, self.values.first().copied().unwrap_or(0))?;
        if self.values.len() > 1 { write!(f, " .. {} dwords", self.values.len()) } else { Ok(()) }
    }
}

selector! {
    /// Unit of a fill's pattern.
    FillSize, "fillsize" { Byte = 0, Half = 1, Dword = 2 }
}

const FILL_SIZE: Field = field(0, 30, 31);
const FILL_COUNT_HI: u32 = 21;

fn fill_count(sdma: Sdma) -> Field {
    field(4, 0, if sdma == Sdma::V4 { FILL_COUNT_HI } else { 29 })
}

/// CONST_FILL: fills memory with a repeated byte, half or dword. The count is bytes minus one, as in the kernel driver.
/// AMD's runtime uses `(dwords - 1) * 4` for dword fills, which fills the same bytes if the length is a multiple of 4;
/// the parser accepts both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConstFill {
    pub dst: GpuVa,
    pub size: FillSize,
    pub value: u32,
    /// The raw count field: bytes - 1.
    pub count: u32,
}

impl ConstFill {
    /// A fill of whole dwords.
    ///
    /// # Errors
    /// `OverLimit` if `len_bytes` is 0 or exceeds the engine's safe piece, `Misaligned` if address or length is not a
    /// multiple of 4.
    pub fn dwords(sdma: Sdma, dst: GpuVa, value: u32, len_bytes: u64) -> Result<Self, EmitError> {
        const NAME: &str = "CONST_FILL";
        check_emit_align(NAME, dst, 4)?;
        check_emit_align(NAME, GpuVa(len_bytes), 4)?;
        let max = sdma.table().fill_piece_bytes;
        let over = EmitError::OverLimit { packet: NAME, field: "bytes", value: len_bytes, max };
        let count = len_bytes.checked_sub(1).filter(|_| len_bytes <= max).ok_or(over)?;
        Ok(Self { dst, size: FillSize::Dword, value, count: u32::try_from(count).map_err(|_| over)? })
    }

    /// Number of bytes filled.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        match self.size {
            FillSize::Dword => u64::from(self.count / 4 + 1) * 4,
            FillSize::Half => u64::from(self.count / 2 + 1) * 2,
            FillSize::Byte => u64::from(self.count) + 1,
        }
    }

    /// # Errors
    /// `Field` when the count is over the engine's field.
    pub fn emit(&self, sdma: Sdma, out: &mut Vec<u32>) -> Result<(), EmitError> {
        let [lo, hi] = split(self.dst.0);
        let mut w = [op::SDMA_OP_CONST_FILL, lo, hi, self.value, 0];
        FILL_SIZE.set(&mut w, "fillsize", self.size.bits())?;
        fill_count(sdma).set(&mut w, "fill count", self.count)?;
        out.extend(w);
        Ok(())
    }

    pub(super) fn parse(sdma: Sdma, words: &[u32]) -> Result<Self, DecodeKind> {
        const NAME: &str = "CONST_FILL";
        check_reserved(NAME, words, &[HDR_OP, HDR_SUB, FILL_SIZE, fill_count(sdma)])?;
        let size = FillSize::from_bits(NAME, FILL_SIZE.get(words))?;
        Ok(Self { dst: GpuVa(join(words[1], words[2])), size, value: words[3], count: words[4] })
    }
}

impl fmt::Display for ConstFill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CONST_FILL {} <- {:?} {:#x} {} bytes", self.dst, self.size, self.value, self.len_bytes())
    }
}

//! Data that a push buffer carries itself: copies of inline data, and QMDs written method by method.
//!
//! Source: docs/nv.md 3.4; `clcbc0.h`. Left out: block-linear destinations, interrupts and semaphores of inline copies.

use super::super::defect::Defect;
use super::{Cause, Site};
use doorbell_hcq::packet::nv::MethodError;

const LINE_LENGTH_IN: u16 = 0x180;
const LINE_COUNT: u16 = 0x184;
const OFFSET_OUT_UPPER: u16 = 0x188;
const OFFSET_OUT: u16 = 0x18c;
const PITCH_OUT: u16 = 0x190;
const LAUNCH_DMA: u16 = 0x1b0;
const LOAD_INLINE_DATA: u16 = 0x1b4;
const INLINE_QMD_ADDRESS_A: u16 = 0x318;
const INLINE_QMD_ADDRESS_B: u16 = 0x31c;
const LOAD_INLINE_QMD_DATA: u16 = 0x320;
/// Dwords of the longest QMD.
const QMD_DWORDS: u16 = 96;

/// LAUNCH_DMA: destination pitch, no system membar; completion type 5:4.
const DST_PITCH: u32 = 1;
const KNOWN_LAUNCH: u32 = DST_PITCH | 1 << 4 | 1 << 6;

/// A copy whose bytes are still coming.
#[derive(Debug, Default)]
struct Transfer {
    left_bytes: u64,
    bytes: Vec<u8>,
}

/// Methods of inline data, as far as written.
#[derive(Debug, Default)]
pub(crate) struct Inline {
    line_bytes: u32,
    lines: u32,
    out: u64,
    pitch: u32,
    transfer: Option<Transfer>,
    qmd: u64,
}

impl Inline {
    /// Handles a write; false if the method is not of this unit.
    pub(crate) fn write(&mut self, site: Site<'_>, method: u16, value: u32) -> Result<bool, Cause> {
        match method {
            LINE_LENGTH_IN => self.line_bytes = value,
            LINE_COUNT => self.lines = value,
            OFFSET_OUT_UPPER => self.out = u64::from(value & 0x1ff_ffff) << 32 | self.out & u64::from(u32::MAX),
            OFFSET_OUT => self.out = self.out >> 32 << 32 | u64::from(value),
            PITCH_OUT => self.pitch = value,
            LAUNCH_DMA => self.launch(value)?,
            LOAD_INLINE_DATA => self.data(site, value)?,
            // Bits of the address above 40; bit 30 selects a QMD of 384 bytes.
            INLINE_QMD_ADDRESS_A => self.qmd = u64::from(value & 0x1_ffff) << 40 | self.qmd & 0xff_ffff_ffff,
            INLINE_QMD_ADDRESS_B => self.qmd = self.qmd >> 40 << 40 | u64::from(value) << 8,
            LOAD_INLINE_QMD_DATA..0x4a0 => {
                debug_assert_eq!(LOAD_INLINE_QMD_DATA + QMD_DWORDS * 4, 0x4a0);
                site.vm().write_u32(self.qmd + u64::from(method - LOAD_INLINE_QMD_DATA), value)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn launch(&mut self, value: u32) -> Result<(), Cause> {
        let refuse =
            |why| Cause::Method(MethodError::Value { engine: "compute engine", name: "LAUNCH_DMA", value, why });
        if value & !KNOWN_LAUNCH != 0 || value & DST_PITCH == 0 {
            return Err(refuse("only copies to pitch memory without interrupt and semaphore are supported"));
        }
        let left_bytes = u64::from(self.line_bytes) * u64::from(self.lines);
        if left_bytes == 0 || left_bytes > 1 << 24 {
            return Err(refuse("there are no bytes to copy, or too many"));
        }
        self.transfer = Some(Transfer { left_bytes, bytes: Vec::new() });
        Ok(())
    }

    fn data(&mut self, site: Site<'_>, value: u32) -> Result<(), Cause> {
        let Some(transfer) = &mut self.transfer else {
            let why = "no LAUNCH_DMA waits for data";
            let name = "LOAD_INLINE_DATA";
            return Err(Cause::Method(MethodError::Value { engine: "compute engine", name, value, why }));
        };
        let take = transfer.left_bytes.min(4) as usize;
        transfer.bytes.extend_from_slice(&value.to_le_bytes()[..take]);
        transfer.left_bytes -= take as u64;
        if transfer.left_bytes > 0 {
            return Ok(());
        }
        let bytes = std::mem::take(&mut transfer.bytes);
        self.transfer = None;
        if site.gpu.has(Defect::InlineLost) {
            return Ok(());
        }
        let line = (self.line_bytes as usize).max(1);
        for (n, part) in (0u64..).zip(bytes.chunks(line)) {
            site.vm().write_bytes(self.out.wrapping_add(n * u64::from(self.pitch)), part)?;
        }
        Ok(())
    }
}

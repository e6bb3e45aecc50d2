//! Actions of a copy engine: linear copies, fills, and semaphores ordered with its work.

use super::{Latched, MethodError, PushBuffer, Subchannel, names};
use crate::bits::{Field, field, join, split};
use crate::packet::{EmitError, GpuVa, check_emit_align};

const ENGINE: &str = "copy engine";
const TO: Subchannel = Subchannel::COPY;

const SEMAPHORE_A: u16 = 0x240;
const SEMAPHORE_PAYLOAD: u16 = 0x248;
const LAUNCH_DMA: u16 = 0x300;
const OFFSET_IN_UPPER: u16 = 0x400;
const OFFSET_OUT_UPPER: u16 = 0x408;
const PITCH_IN: u16 = 0x410;
const LINE_LENGTH_IN: u16 = 0x418;
const LINE_COUNT: u16 = 0x41c;
const REMAP_CONST_A: u16 = 0x700;
const REMAP_COMPONENTS: u16 = 0x708;

const TRANSFER: Field = field(0, 0, 1);
const FLUSH: Field = field(0, 2, 2);
const SEMAPHORE: Field = field(0, 3, 4);
const SRC_PITCH: Field = field(0, 7, 7);
const DST_PITCH: Field = field(0, 8, 8);
const MULTI_LINE: Field = field(0, 9, 9);
const REMAP: Field = field(0, 10, 10);
const PAYLOAD_64: Field = field(0, 27, 27);
const LAUNCH: &[Field] = &[TRANSFER, FLUSH, SEMAPHORE, SRC_PITCH, DST_PITCH, MULTI_LINE, REMAP, PAYLOAD_64];

const DST_X: Field = field(0, 0, 2);
const DST_Y: Field = field(0, 4, 6);
const COMPONENT_SIZE: Field = field(0, 16, 17);
const NUM_SRC: Field = field(0, 20, 21);
const NUM_DST: Field = field(0, 24, 25);
const COMPONENTS: &[Field] = &[DST_X, DST_Y, COMPONENT_SIZE, NUM_SRC, NUM_DST];

/// Most bytes of one copy; the caller must split longer ones.
pub const MAX_COPY_BYTES: u32 = 1 << 31;

/// Payload size of a generation's semaphores: 64 bits from GA10x on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Turing and GA100.
    Word,
    Wide,
}

/// One action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Copies bytes from one address to another.
    Copy {
        src: GpuVa,
        dst: GpuVa,
        len_bytes: u32,
        /// May overlap with the previous copy.
        pipelined: bool,
    },
    /// Copies lines of bytes, each side with its own pitch.
    CopyLines { src: GpuVa, dst: GpuVa, line_bytes: u32, lines: u32, src_pitch: u32, dst_pitch: u32 },
    /// Fills memory with a repeated value. `dst` must be aligned to the element; `count` is in elements.
    Fill { dst: GpuVa, value: u64, element: Element, count: u32 },
    /// Writes a semaphore after all earlier copies and, with `timestamp`, the time in ns after it.
    Release { address: GpuVa, value: u64, timestamp: bool, payload: Payload },
}

/// Size of a fill's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    B1,
    B2,
    B4,
    B8,
}

impl Element {
    /// The size in bytes.
    #[must_use]
    pub const fn len_bytes(self) -> u32 {
        match self {
            Self::B1 => 1,
            Self::B2 => 2,
            Self::B4 => 4,
            Self::B8 => 8,
        }
    }

    /// REMAP_COMPONENTS for a constant of that many bytes.
    fn components(self) -> Result<u32, EmitError> {
        let mut w = [0];
        // 4 is CONST_A, 5 is CONST_B.
        DST_X.set(&mut w, "dst x", 4)?;
        let size = match self {
            Self::B1 => 0,
            Self::B2 => 1,
            Self::B4 | Self::B8 => 3,
        };
        COMPONENT_SIZE.set(&mut w, "component size", size)?;
        if self == Self::B8 {
            DST_Y.set(&mut w, "dst y", 5)?;
            NUM_DST.set(&mut w, "dst components", 1)?;
        }
        Ok(w[0])
    }

    fn of_components(value: u32) -> Option<Self> {
        let known = COMPONENTS.iter().fold(0, |mask, f| mask | f.mask());
        let all = [Self::B1, Self::B2, Self::B4, Self::B8];
        all.into_iter().find(|e| e.components() == Ok(value & known))
    }
}

impl Action {
    /// Appends the methods.
    ///
    /// # Errors
    /// Lengths of 0 or over [`MAX_COPY_BYTES`], addresses over 57 bits, a misaligned semaphore, a payload that is too
    /// wide.
    pub fn emit(&self, out: &mut PushBuffer) -> Result<(), EmitError> {
        match *self {
            Self::Copy { src, dst, len_bytes, pipelined } => {
                ends(out, src, dst)?;
                length("copy", len_bytes.into())?;
                out.methods(TO, LINE_LENGTH_IN, &[len_bytes])?;
                out.methods(TO, LAUNCH_DMA, &[launch(if pipelined { 1 } else { 2 })?])
            }
            Self::CopyLines { src, dst, line_bytes, lines, src_pitch, dst_pitch } => {
                ends(out, src, dst)?;
                length("copy of lines", u64::from(line_bytes) * u64::from(lines))?;
                out.methods(TO, PITCH_IN, &[src_pitch, dst_pitch, line_bytes, lines])?;
                out.methods(TO, LAUNCH_DMA, &[launch(2)? | MULTI_LINE.mask()])
            }
            Self::Fill { dst, value, element, count } => {
                length("fill", u64::from(count) * u64::from(element.len_bytes()))?;
                let [lo, hi] = split(value);
                out.methods(TO, REMAP_CONST_A, &[lo, hi, element.components()?])?;
                out.methods(TO, OFFSET_OUT_UPPER, &super::upper_lower("fill", dst)?)?;
                out.methods(TO, LINE_LENGTH_IN, &[count])?;
                out.methods(TO, LAUNCH_DMA, &[launch(2)? | REMAP.mask()])
            }
            Self::Release { address, value, timestamp, payload } => {
                check_emit_align("copy semaphore", address, if timestamp { 16 } else { 4 })?;
                let [hi, lo] = super::upper_lower("copy semaphore", address)?;
                let [value_lo, value_hi] = split(value);
                let mut w = [0];
                FLUSH.set(&mut w, "flush", 1)?;
                SEMAPHORE.set(&mut w, "semaphore", if timestamp { 2 } else { 1 })?;
                match payload {
                    Payload::Word => {
                        let max = u32::MAX.into();
                        if value > max {
                            return Err(EmitError::OverLimit {
                                packet: "copy semaphore",
                                field: "payload",
                                value,
                                max,
                            });
                        }
                        out.methods(TO, SEMAPHORE_A, &[hi, lo, value_lo])?;
                    }
                    Payload::Wide => {
                        PAYLOAD_64.set(&mut w, "64-bit payload", 1)?;
                        out.methods(TO, SEMAPHORE_A, &[hi, lo, value_lo, value_hi])?;
                    }
                }
                out.methods(TO, LAUNCH_DMA, &w)
            }
        }
    }
}

fn launch(transfer: u32) -> Result<u32, EmitError> {
    let mut w = [0];
    TRANSFER.set(&mut w, "transfer", transfer)?;
    SRC_PITCH.set(&mut w, "src layout", 1)?;
    DST_PITCH.set(&mut w, "dst layout", 1)?;
    Ok(w[0])
}

fn ends(out: &mut PushBuffer, src: GpuVa, dst: GpuVa) -> Result<(), EmitError> {
    let ([src_hi, src_lo], [dst_hi, dst_lo]) = (super::upper_lower("copy", src)?, super::upper_lower("copy", dst)?);
    out.methods(TO, OFFSET_IN_UPPER, &[src_hi, src_lo, dst_hi, dst_lo])
}

fn length(packet: &'static str, bytes: u64) -> Result<(), EmitError> {
    let max = MAX_COPY_BYTES.into();
    if bytes == 0 || bytes > max {
        return Err(EmitError::OverLimit { packet, field: "bytes", value: bytes, max });
    }
    Ok(())
}

/// The state of one channel's copy engine: the methods written so far.
#[derive(Clone, Debug, Default)]
pub struct Copy(Latched);

impl Copy {
    /// Processes a write; returns the actions that it starts: a launch may copy bytes, and write a semaphore
    /// afterwards.
    ///
    /// # Errors
    /// Unknown methods, and launches that no [`Action`] describes.
    pub fn write(&mut self, method: u16, value: u32) -> Result<[Option<Action>; 2], MethodError> {
        if names::name_of(names::COPY, method).is_none() {
            return Err(MethodError::Unknown { engine: ENGINE, method, value });
        }
        self.0.set(method, value);
        if method != LAUNCH_DMA {
            return Ok([None, None]);
        }
        let refuse = |why| Err(MethodError::Value { engine: ENGINE, name: "LAUNCH_DMA", value, why });
        let known = LAUNCH.iter().fold(0, |mask, f| mask | f.mask());
        if value & !known != 0 {
            return refuse("interrupts, physical addresses, reductions and scrubbing are not supported");
        }
        let moved = match TRANSFER.get(&[value]) {
            0 => None,
            3 => return refuse("the transfer type is unknown"),
            _ if SRC_PITCH.get(&[value]) & DST_PITCH.get(&[value]) == 0 => {
                return refuse("block-linear layouts are not supported");
            }
            transfer => Some(self.transfer(value, transfer == 1)?),
        };
        let address = self.0.address(SEMAPHORE_A);
        let (payload, upper) = match PAYLOAD_64.get(&[value]) {
            0 => (Payload::Word, 0),
            _ => (Payload::Wide, self.0.get(SEMAPHORE_PAYLOAD + 4)),
        };
        let written = join(self.0.get(SEMAPHORE_PAYLOAD), upper);
        let released = match SEMAPHORE.get(&[value]) {
            0 => None,
            1 => Some(Action::Release { address, value: written, timestamp: false, payload }),
            2 => Some(Action::Release { address, value: written, timestamp: true, payload }),
            _ => return refuse("conditional semaphores are not supported"),
        };
        Ok([moved, released])
    }

    fn transfer(&self, value: u32, pipelined: bool) -> Result<Action, MethodError> {
        let (src, dst) = (self.0.address(OFFSET_IN_UPPER), self.0.address(OFFSET_OUT_UPPER));
        let line = self.0.get(LINE_LENGTH_IN);
        let (multi_line, remap) = (MULTI_LINE.get(&[value]) == 1, REMAP.get(&[value]) == 1);
        let refuse = |name, value, why| Err(MethodError::Value { engine: ENGINE, name, value, why });
        if multi_line && remap {
            return refuse("LAUNCH_DMA", value, "fills of several lines are not supported");
        }
        if remap {
            let components = self.0.get(REMAP_COMPONENTS);
            let Some(element) = Element::of_components(components) else {
                return refuse("SET_REMAP_COMPONENTS", components, "only fills with one constant are supported");
            };
            let value = join(self.0.get(REMAP_CONST_A), self.0.get(REMAP_CONST_A + 4));
            return Ok(Action::Fill { dst, value, element, count: line });
        }
        if multi_line {
            let (src_pitch, dst_pitch) = (self.0.get(PITCH_IN), self.0.get(PITCH_IN + 4));
            return Ok(Action::CopyLines {
                src,
                dst,
                line_bytes: line,
                lines: self.0.get(LINE_COUNT),
                src_pitch,
                dst_pitch,
            });
        }
        Ok(Action::Copy { src, dst, len_bytes: line, pipelined })
    }
}

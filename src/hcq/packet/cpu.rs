//! The CPU device's packets. Its ring entries are these dwords; its workers are the command processor.
//!
//! Layer: `device::cpu` emits through [`CpuList`] and parses in its consumer. Source: this project's own format,
//! modelled on PM4's type 3 header (opcode, and number of dwords that follow). Addresses are addresses of this process.
//! Kernargs of a launch are a block of 64-bit words: thread count, then the arguments. In words run by INDIRECT, a
//! kernargs address is relative to the base in the INDIRECT packet, so that several replays of one recorded list can be
//! in flight.

use crate::bits::{Field, FieldOverflow, field, join, split};
use crate::signal::Signal;

/// Dwords of the longest packet.
pub const MAX_DWORDS: usize = 7;

const HDR_OPCODE: Field = field(0, 0, 7);
const HDR_COUNT: Field = field(0, 16, 29); // dwords after the header
const HDR_TYPE: Field = field(0, 30, 31); // 3, as in PM4
const TYPE3: u32 = 3;

/// Why dwords are not a valid packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    #[error("dword 0: header {header:#010x} is not a CPU packet")]
    Header { header: u32 },
    #[error("dword 0: opcode {opcode:#x} takes {wanted} dwords, the header says {count}")]
    Count { opcode: u32, wanted: u32, count: u32 },
    #[error("packet of {wanted} dwords is truncated to {have}")]
    Truncated { wanted: usize, have: usize },
}

/// One packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// Stall until the signal's value is `value` or more.
    Wait { signal: u64, value: u64 },
    /// Store `value` to the signal, after all earlier work is done and visible.
    Signal { signal: u64, value: u64 },
    /// Store the time to the signal's timestamp.
    Timestamp { signal: u64 },
    /// Make all earlier stores visible to all later loads. The CPU's caches are coherent, so this is a fence.
    Barrier,
    /// Run a kernel: kernargs point to its thread count and arguments.
    Exec { entry: u64, kernargs: u64 },
    /// Copy bytes; the ranges do not overlap.
    Copy { dst: u64, src: u64, len_bytes: u64 },
    /// As `Copy`, but with dst, src and length in three kernarg words, which can be patched.
    CopyArgs { kernargs: u64 },
    /// Run `count_dwords` dwords of a recorded list with this kernargs base.
    Indirect { words: u64, count_dwords: u32, kernargs: u64 },
}

mod op {
    pub(crate) const WAIT: u32 = 0x01;
    pub(crate) const SIGNAL: u32 = 0x02;
    pub(crate) const TIMESTAMP: u32 = 0x03;
    pub(crate) const BARRIER: u32 = 0x04;
    pub(crate) const EXEC: u32 = 0x05;
    pub(crate) const COPY: u32 = 0x06;
    pub(crate) const COPY_ARGS: u32 = 0x07;
    pub(crate) const INDIRECT: u32 = 0x08;
}

impl Packet {
    /// Opcode, the 64-bit fields in order, and the one field of 32 bits.
    fn fields(self) -> (u32, [u64; 3], usize, Option<u32>) {
        match self {
            Self::Wait { signal, value } => (op::WAIT, [signal, value, 0], 2, None),
            Self::Signal { signal, value } => (op::SIGNAL, [signal, value, 0], 2, None),
            Self::Timestamp { signal } => (op::TIMESTAMP, [signal, 0, 0], 1, None),
            Self::Barrier => (op::BARRIER, [0; 3], 0, None),
            Self::Exec { entry, kernargs } => (op::EXEC, [entry, kernargs, 0], 2, None),
            Self::Copy { dst, src, len_bytes } => (op::COPY, [dst, src, len_bytes], 3, None),
            Self::CopyArgs { kernargs } => (op::COPY_ARGS, [kernargs, 0, 0], 1, None),
            Self::Indirect { words, count_dwords, kernargs } => {
                (op::INDIRECT, [words, kernargs, 0], 2, Some(count_dwords))
            }
        }
    }

    /// Appends the packet's dwords.
    ///
    /// # Errors
    /// Never `FieldOverflow` for these packets, whose counts are fixed; the field setter is shared with other packet
    /// sets.
    pub fn emit(self, out: &mut Vec<u32>) -> Result<(), FieldOverflow> {
        let (opcode, wide, count_wide, narrow) = self.fields();
        let mut header = [0];
        HDR_TYPE.set(&mut header, "type", TYPE3)?;
        HDR_OPCODE.set(&mut header, "opcode", opcode)?;
        let count = 2 * count_wide as u32 + u32::from(narrow.is_some());
        HDR_COUNT.set(&mut header, "count", count)?;
        out.push(header[0]);
        out.extend(wide[..count_wide].iter().flat_map(|&v| split(v)));
        out.extend(narrow);
        Ok(())
    }

    /// The packet at the start of `words`, and its length in dwords.
    ///
    /// # Errors
    /// `Truncated` if more dwords are needed; `Header` and `Count` if they are not a packet.
    #[inline]
    pub fn parse(words: &[u32]) -> Result<(Self, usize), DecodeError> {
        let Some(&header) = words.first() else { return Err(DecodeError::Truncated { wanted: 1, have: 0 }) };
        if HDR_TYPE.get(words) != TYPE3 {
            return Err(DecodeError::Header { header });
        }
        let opcode = HDR_OPCODE.get(words);
        let count = HDR_COUNT.get(words);
        let wanted = match opcode {
            op::WAIT | op::SIGNAL | op::EXEC => 4,
            op::TIMESTAMP | op::COPY_ARGS => 2,
            op::BARRIER => 0,
            op::COPY => 6,
            op::INDIRECT => 5,
            _ => return Err(DecodeError::Header { header }),
        };
        if count != wanted {
            return Err(DecodeError::Count { opcode, wanted, count });
        }
        let len = 1 + wanted as usize;
        if words.len() < len {
            return Err(DecodeError::Truncated { wanted: len, have: words.len() });
        }
        let wide = |n: usize| join(words[1 + 2 * n], words[2 + 2 * n]);
        let packet = match opcode {
            op::WAIT => Self::Wait { signal: wide(0), value: wide(1) },
            op::SIGNAL => Self::Signal { signal: wide(0), value: wide(1) },
            op::TIMESTAMP => Self::Timestamp { signal: wide(0) },
            op::EXEC => Self::Exec { entry: wide(0), kernargs: wide(1) },
            op::COPY => Self::Copy { dst: wide(0), src: wide(1), len_bytes: wide(2) },
            op::COPY_ARGS => Self::CopyArgs { kernargs: wide(0) },
            op::INDIRECT => Self::Indirect { words: wide(0), kernargs: wide(1), count_dwords: words[5] },
            _ => Self::Barrier,
        };
        Ok((packet, len))
    }
}

impl std::fmt::Display for Packet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Wait { signal, value } => write!(f, "WAIT [{signal:#x}] >= {value}"),
            Self::Signal { signal, value } => write!(f, "SIGNAL [{signal:#x}] = {value}"),
            Self::Timestamp { signal } => write!(f, "TIMESTAMP [{signal:#x}]"),
            Self::Barrier => write!(f, "BARRIER"),
            Self::Exec { entry, kernargs } => write!(f, "EXEC {entry:#x} kernargs {kernargs:#x}"),
            Self::Copy { dst, src, len_bytes } => write!(f, "COPY {dst:#x} <- {src:#x} {len_bytes} bytes"),
            Self::CopyArgs { kernargs } => write!(f, "COPY_ARGS kernargs {kernargs:#x}"),
            Self::Indirect { words, count_dwords, kernargs } => {
                write!(f, "INDIRECT {words:#x} {count_dwords} dwords kernargs {kernargs:#x}")
            }
        }
    }
}

/// A list of packets under construction. Fences are explicit; no packets are added implicitly.
#[derive(Clone, Debug, Default)]
pub struct CpuList {
    words: Vec<u32>,
}

impl CpuList {
    /// The dwords so far.
    #[must_use]
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Removes the dwords, but keeps the allocation.
    pub fn clear(&mut self) {
        self.words.clear();
    }

    /// Appends a packet.
    ///
    /// # Errors
    /// As [`Packet::emit`]. This holds for all methods here.
    #[inline]
    pub fn push(&mut self, packet: Packet) -> Result<(), FieldOverflow> {
        packet.emit(&mut self.words)
    }

    /// Stalls the queue until the signal is at least `value`.
    #[inline]
    pub fn wait(&mut self, signal: &Signal, value: u64) -> Result<(), FieldOverflow> {
        self.push(Packet::Wait { signal: signal.va(), value })
    }

    /// Stores `value` to the signal after all earlier work.
    #[inline]
    pub fn signal(&mut self, signal: &Signal, value: u64) -> Result<(), FieldOverflow> {
        self.push(Packet::Signal { signal: signal.va(), value })
    }

    /// Stores the time to the signal.
    #[inline]
    pub fn timestamp(&mut self, signal: &Signal) -> Result<(), FieldOverflow> {
        self.push(Packet::Timestamp { signal: signal.va() })
    }
}

/// The packets in `words` as text, for reports and traces; ends with the first invalid one.
#[must_use]
pub fn describe(words: &[u32]) -> Vec<String> {
    let mut rest = words;
    let mut lines = Vec::new();
    while !rest.is_empty() {
        match Packet::parse(rest) {
            Ok((packet, len)) => {
                lines.push(packet.to_string());
                rest = &rest[len..];
            }
            Err(DecodeError::Truncated { .. }) => break,
            Err(e) => {
                lines.push(e.to_string());
                break;
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Packet; 8] = [
        Packet::Wait { signal: 0x7f00_1234_5678, value: 7 },
        Packet::Signal { signal: 0x7f00_1234_5680, value: u64::MAX },
        Packet::Timestamp { signal: 16 },
        Packet::Barrier,
        Packet::Exec { entry: 0x5555_0000_0000, kernargs: 0x1000 },
        Packet::Copy { dst: 1, src: 2, len_bytes: 1 << 40 },
        Packet::CopyArgs { kernargs: 24 },
        Packet::Indirect { words: 0xdead_0000_beef, count_dwords: u32::MAX, kernargs: 8 },
    ];

    #[test]
    fn every_packet_parses_to_itself() {
        for packet in ALL {
            let mut words = Vec::new();
            packet.emit(&mut words).unwrap();
            assert!(words.len() <= MAX_DWORDS);
            assert_eq!(Packet::parse(&words), Ok((packet, words.len())));
        }
    }

    #[test]
    fn wait_is_the_dwords_of_its_layout() {
        let mut words = Vec::new();
        ALL[0].emit(&mut words).unwrap();
        assert_eq!(words, [0xc004_0001, 0x1234_5678, 0x7f00, 7, 0]); // header: type 3, count 4, opcode 1
    }

    #[test]
    fn every_truncation_is_refused() {
        for packet in ALL {
            let mut words = Vec::new();
            packet.emit(&mut words).unwrap();
            for cut in 0..words.len() {
                assert!(matches!(Packet::parse(&words[..cut]), Err(DecodeError::Truncated { .. })));
            }
        }
    }

    #[test]
    fn unknown_opcode_and_wrong_count_are_refused() {
        assert_eq!(Packet::parse(&[0xc000_0063]), Err(DecodeError::Header { header: 0xc000_0063 }));
        assert_eq!(Packet::parse(&[0]), Err(DecodeError::Header { header: 0 }));
        assert_eq!(Packet::parse(&[0xc001_0004]), Err(DecodeError::Count { opcode: 4, wanted: 0, count: 1 }));
    }

    #[test]
    fn describe_names_packets_and_stops_at_a_bad_one() {
        let mut words = Vec::new();
        ALL[3].emit(&mut words).unwrap();
        ALL[2].emit(&mut words).unwrap();
        words.push(5);
        let lines = describe(&words);
        assert_eq!(lines, ["BARRIER", "TIMESTAMP [0x10]", "dword 0: header 0x00000005 is not a CPU packet"]);
    }
}

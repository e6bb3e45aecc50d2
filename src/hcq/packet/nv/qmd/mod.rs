//! QMD, the descriptor of a grid launch, which the compute engine reads from memory: versions 2.3 and 2.4 (Turing), 3.0
//! (Ampere, Ada), 4.0 (Hopper) and
//! 5.0 (Blackwell) as tables of named fields, and [`Launch`], the same for all versions.
//!
//! Source: NVIDIA's class headers; the required values are in docs/nv.md 4.2. A QMD must be aligned to 256 bytes, below
//! 2^40, and start as zeros: other values in unused fields can fault the scheduler.
//! Left out of [`Launch`]: queues (the circular fields), latches, texture pools, occupancy hints, program prefetch.
//! These fields can be set and read by name.

mod launch;
mod v2;
mod v3;
mod v4;
mod v5;

pub use launch::{Action, BankSlot, Constant, Dependent, Invalidate, Launch, Release};

use crate::packet::{EmitError, GpuVa};
use std::fmt::Write;

/// Alignment of QMDs, which is also the granularity of their addresses.
pub const ALIGN_BYTES: u64 = 256;
/// Dwords of the longest version.
pub const MAX_DWORDS: usize = 96;

/// A version of the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    V2_3,
    V2_4,
    V3_0,
    V4_0,
    V5_0,
}

/// One field: the bits of element 0 and, for an array, the number of elements and their stride in bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub name: &'static str,
    pub hi: u16,
    pub lo: u16,
    pub count: u8,
    pub stride: u8,
}

const fn row(name: &'static str, hi: u16, lo: u16) -> Row {
    assert!(lo <= hi && lo / 32 == hi / 32);
    Row { name, hi, lo, count: 1, stride: 0 }
}

impl Row {
    const fn array(self, count: u8, stride: u8) -> Self {
        Self { count, stride, ..self }
    }

    /// Word, lowest bit in it, and largest value of element `index`.
    fn place(&self, index: u32) -> Option<(usize, u32, u32)> {
        if index >= u32::from(self.count) {
            return None;
        }
        let lo = u32::from(self.lo) + index * u32::from(self.stride);
        let bits = u32::from(self.hi - self.lo) + 1;
        Some(((lo / 32) as usize, lo % 32, u32::MAX >> (32 - bits)))
    }
}

/// Why a field cannot be read or set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    #[error("QMD {version:?} has no field {name}({index})")]
    Unknown { version: Version, name: &'static str, index: u32 },
    #[error("QMD field {name}({index}): value {value:#x} is over the limit {max:#x}")]
    Overflow { name: &'static str, index: u32, value: u64, max: u64 },
}

/// Why a QMD cannot be represented as a [`Launch`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("QMD {version:?} needs {wanted} dwords, only {have} are given")]
    Truncated { version: Version, wanted: usize, have: usize },
    #[error("QMD {version:?}: the version field says {major}.{minor}")]
    Version { version: Version, major: u32, minor: u32 },
    #[error("QMD {version:?}: {name}({index}) is {value:#x}, which is not supported")]
    Unsupported { version: Version, name: &'static str, index: u32, value: u32 },
    #[error("QMD {version:?}: bits {bits:#010x} of dword {dword} belong to no field")]
    Reserved { version: Version, dword: usize, bits: u32 },
}

impl Version {
    /// The version for a chip's compute class; `None` for unknown classes.
    #[must_use]
    pub fn of_compute_class(class: u32) -> Option<Self> {
        match class {
            0xc5c0 => Some(Self::V2_3),
            0xc6c0 | 0xc7c0 | 0xc9c0 => Some(Self::V3_0),
            0xcbc0 => Some(Self::V4_0),
            0xcdc0 | 0xcec0 => Some(Self::V5_0),
            _ => None,
        }
    }

    /// All fields, by position.
    #[must_use]
    pub const fn rows(self) -> &'static [Row] {
        match self {
            Self::V2_3 => v2::V2_3,
            Self::V2_4 => v2::V2_4,
            Self::V3_0 => v3::V3_0,
            Self::V4_0 => v4::V4_0,
            Self::V5_0 => v5::V5_0,
        }
    }

    /// Dwords of a QMD.
    #[must_use]
    pub const fn dwords(self) -> usize {
        match self {
            Self::V2_3 | Self::V2_4 | Self::V3_0 => 64,
            Self::V4_0 | Self::V5_0 => MAX_DWORDS,
        }
    }

    /// Major and minor version number.
    #[must_use]
    pub const fn number(self) -> (u32, u32) {
        match self {
            Self::V2_3 => (2, 3),
            Self::V2_4 => (2, 4),
            Self::V3_0 => (3, 0),
            Self::V4_0 => (4, 0),
            Self::V5_0 => (5, 0),
        }
    }

    fn row(self, name: &str) -> Option<&'static Row> {
        self.rows().iter().find(|r| r.name == name)
    }
}

/// A QMD's dwords, accessible by field names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Qmd {
    version: Version,
    words: [u32; MAX_DWORDS],
}

impl Qmd {
    /// A QMD of zeros.
    #[must_use]
    pub const fn new(version: Version) -> Self {
        Self { version, words: [0; MAX_DWORDS] }
    }

    /// A QMD from dwords in memory.
    ///
    /// # Errors
    /// `Truncated` if there are too few dwords.
    pub fn from_words(version: Version, words: &[u32]) -> Result<Self, ParseError> {
        let wanted = version.dwords();
        let own = words.get(..wanted).ok_or(ParseError::Truncated { version, wanted, have: words.len() })?;
        let mut qmd = Self::new(version);
        qmd.words[..wanted].copy_from_slice(own);
        Ok(qmd)
    }

    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// The dwords to write to memory.
    #[must_use]
    pub fn words(&self) -> &[u32] {
        &self.words[..self.version.dwords()]
    }

    /// The value of element `index` of a field; `index` is 0 for a field that is not an array.
    ///
    /// # Errors
    /// `Unknown` if this version has no such field.
    pub fn get(&self, name: &'static str, index: u32) -> Result<u32, FieldError> {
        let unknown = FieldError::Unknown { version: self.version, name, index };
        let (word, lo, max) = self.version.row(name).and_then(|r| r.place(index)).ok_or(unknown)?;
        Ok(self.words[word] >> lo & max)
    }

    /// Sets element `index` of a field.
    ///
    /// # Errors
    /// `Unknown`, and `Overflow` for a value that is too large.
    pub fn set(&mut self, name: &'static str, index: u32, value: u32) -> Result<(), FieldError> {
        let unknown = FieldError::Unknown { version: self.version, name, index };
        let (word, lo, max) = self.version.row(name).and_then(|r| r.place(index)).ok_or(unknown)?;
        if value > max {
            return Err(FieldError::Overflow { name, index, value: value.into(), max: max.into() });
        }
        self.words[word] = self.words[word] & !(max << lo) | value << lo;
        Ok(())
    }

    /// Fields that are not zero: name, element, value.
    pub fn used(&self) -> impl Iterator<Item = (&'static Row, u32, u32)> + '_ {
        self.version.rows().iter().flat_map(move |r| {
            (0..u32::from(r.count)).filter_map(move |index| {
                let (word, lo, max) = r.place(index)?;
                let value = self.words[word] >> lo & max;
                (value != 0).then_some((r, index, value))
            })
        })
    }

    /// The first set bits that belong to no field: dword index and bits.
    #[must_use]
    pub(crate) fn unclaimed(&self) -> Option<(usize, u32)> {
        let mut claimed = [0u32; MAX_DWORDS];
        for r in self.version.rows() {
            for (word, lo, max) in (0..u32::from(r.count)).filter_map(|index| r.place(index)) {
                claimed[word] |= max << lo;
            }
        }
        let left = self.words.iter().zip(&claimed).map(|(word, known)| word & !known);
        left.enumerate().find(|(_, bits)| *bits != 0)
    }

    /// One line such as `QMD 4.0: GRID_WIDTH=4, ...`, without fields that are zero.
    #[must_use]
    pub fn describe(&self) -> String {
        let (major, minor) = self.version.number();
        let mut text = format!("QMD {major}.{minor}:");
        for (n, (r, index, value)) in self.used().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            let _infallible = match r.count {
                1 => write!(text, "{comma} {}={value:#x}", r.name),
                _ => write!(text, "{comma} {}({index})={value:#x}", r.name),
            };
        }
        text
    }
}

impl std::fmt::Debug for Qmd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.describe())
    }
}

/// Refuses an address that the scheduler does not accept.
pub(super) fn check_address(packet: &'static str, qmd: GpuVa) -> Result<(), EmitError> {
    crate::packet::check_emit_align(packet, qmd, ALIGN_BYTES)?;
    let max = (1 << 40) - ALIGN_BYTES;
    if qmd.0 > max {
        return Err(EmitError::OverLimit { packet, field: "address", value: qmd.0, max });
    }
    Ok(())
}

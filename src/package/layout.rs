//! Header and table of sections.

use crate::PackageError;

/// The first bytes of a package.
pub const MAGIC: [u8; 8] = [0x89, b'D', b'B', b'P', 0x0d, 0x0a, 0x1a, 0x0a];
/// The version of the format.
pub const VERSION: u32 = 1;
/// Alignment of sections and blocks: a cache line and a 512-bit vector.
pub const ALIGN_BYTES: u64 = 64;
/// Length of the header.
pub const HEADER_BYTES: usize = 64;
/// Length of a section's row in the table.
pub(crate) const ROW_BYTES: usize = 32;
/// More than a file of any use has.
const MAX_SECTIONS: u32 = 1 << 10;

pub(crate) const PROGRAM: u32 = 1;
pub(crate) const TARGET: u32 = 2;
pub(crate) const DATA: u32 = 3;

/// What the header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub(crate) sections: u32,
    /// Length of the file.
    pub file_bytes: u64,
    /// Where the constants begin: all that a loader reads lies before.
    pub head_bytes: u64,
    pub(crate) table_checksum: u32,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub kind: u32,
    pub checksum: u32,
    pub at: u64,
    pub len_bytes: u64,
}

impl Row {
    /// The section's name in messages.
    pub(crate) fn name(&self, index: usize) -> String {
        match self.kind {
            PROGRAM => "the program".into(),
            TARGET => format!("target {}", index.saturating_sub(1)),
            _ => "the constants".into(),
        }
    }

    pub(crate) fn end(&self) -> Option<u64> {
        self.at.checked_add(self.len_bytes)
    }

    pub(crate) fn bytes(&self) -> [u8; ROW_BYTES] {
        let mut out = [0; ROW_BYTES];
        put(&mut out, 0, &self.kind.to_le_bytes());
        put(&mut out, 4, &self.checksum.to_le_bytes());
        put(&mut out, 8, &self.at.to_le_bytes());
        put(&mut out, 16, &self.len_bytes.to_le_bytes());
        out
    }

    /// `None`: its last bytes are not zero.
    pub(crate) fn parse(bytes: &[u8; ROW_BYTES]) -> Option<Row> {
        let row = Row {
            kind: u32_at(bytes, 0),
            checksum: u32_at(bytes, 4),
            at: u64_at(bytes, 8),
            len_bytes: u64_at(bytes, 16),
        };
        (row.bytes() == *bytes).then_some(row)
    }
}

impl Head {
    pub(crate) fn bytes(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        put(&mut out, 0, &MAGIC);
        put(&mut out, 8, &VERSION.to_le_bytes());
        put(&mut out, 12, &self.sections.to_le_bytes());
        put(&mut out, 16, &self.file_bytes.to_le_bytes());
        put(&mut out, 24, &self.head_bytes.to_le_bytes());
        put(&mut out, 32, &self.table_checksum.to_le_bytes());
        let (body, _) = out.split_at(HEADER_BYTES - 4);
        let checksum = crc32fast::hash(body);
        put(&mut out, HEADER_BYTES - 4, &checksum.to_le_bytes());
        out
    }

    /// Reads a header: the first [`HEADER_BYTES`] of a file of `file_bytes`.
    ///
    /// # Errors
    /// `Foreign`, `Version`, `Length`, `Damaged`, `Invalid`.
    pub fn parse(bytes: &[u8], file_bytes: u64) -> Result<Head, PackageError> {
        let start = bytes.get(..MAGIC.len()).unwrap_or(bytes);
        if start != MAGIC {
            let have = if start.is_empty() { "nothing".into() } else { hex(start) };
            return Err(PackageError::Foreign { have });
        }
        let Some(bytes) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(PackageError::Length { have: file_bytes, want: HEADER_BYTES as u64 });
        };
        let head = Head {
            sections: u32_at(bytes, 12),
            file_bytes: u64_at(bytes, 16),
            head_bytes: u64_at(bytes, 24),
            table_checksum: u32_at(bytes, 32),
        };
        if u32_at(bytes, 8) != VERSION && crc32fast::hash(&bytes[..60]) == u32_at(bytes, 60) {
            return Err(PackageError::Version { have: u32_at(bytes, 8) });
        }
        if head.bytes() != *bytes {
            return Err(PackageError::Damaged { what: "the header".into(), from: 0, to: HEADER_BYTES as u64 });
        }
        if head.file_bytes != file_bytes {
            return Err(PackageError::Length { have: file_bytes, want: head.file_bytes });
        }
        head.checked()
    }

    fn checked(self) -> Result<Head, PackageError> {
        let invalid = |at, why: String| Err(PackageError::Invalid { what: "the header".into(), at, why });
        if self.sections == 0 || self.sections > MAX_SECTIONS {
            return invalid(12, format!("{} sections, 1 to {MAX_SECTIONS} are possible", self.sections));
        }
        if self.head_bytes > self.file_bytes || self.head_bytes < self.table_end() as u64 {
            return invalid(24, format!("constants begin at byte {}", self.head_bytes));
        }
        Ok(self)
    }

    /// The byte after the table.
    pub(crate) fn table_end(&self) -> usize {
        HEADER_BYTES + self.sections as usize * ROW_BYTES
    }
}

fn hex(bytes: &[u8]) -> String {
    let all: Vec<String> = bytes.iter().map(|b| format!("{b:02x}")).collect();
    all.join(" ")
}

fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(to) = out.get_mut(at..at + bytes.len()) {
        to.copy_from_slice(bytes);
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b))
}

//! What the device's functions wrote, read by the host.

use super::format::{Arguments, format, text};
use crate::isa::nvidia::runtime::{FAULT_BYTES, FAULT_TEXTS};
use std::fmt;

/// Bytes of a record before the format.
const HEAD_BYTES: usize = 40;

/// What kernels printed, and the assertion that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// In the order of the calls of each thread.
    pub printed: Vec<Printed>,
    /// Calls of `printf` whose text did not fit.
    pub lost: u32,
    /// The assertion that ended the grid.
    pub failed: Option<Assertion>,
    pub(super) used_bytes: u64,
}

/// One call of `printf`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Printed {
    /// The block of the call.
    pub block: [u32; 3],
    /// Its thread in the block.
    pub thread: [u32; 3],
    /// Its text.
    pub bytes: Vec<u8>,
}

/// A failed assertion.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as __assertfail's parameters")]
pub struct Assertion {
    pub message: String,
    pub file: String,
    pub line: u32,
    pub function: String,
    pub block: [u32; 3],
    pub thread: [u32; 3],
}

impl fmt::Display for Assertion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { message, file, line, function, block, thread } = self;
        write!(f, "{file}:{line}: {function}: block {block:?}, thread {thread:?}: assertion `{message}` failed")
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn words(bytes: &[u8], at: usize) -> Option<[u32; 3]> {
    Some([word(bytes, at)?, word(bytes, at + 4)?, word(bytes, at + 8)?])
}

impl Report {
    /// Reads the memory of the host: the description of an assertion, then records.
    pub(super) fn read(bytes: &[u8]) -> Report {
        let (fault, mut records) = bytes.split_at_checked(FAULT_BYTES as usize).unwrap_or((bytes, &[]));
        let mut report = Report { failed: Assertion::read(fault), ..Report::default() };
        // A length of 0 is the end. Records that a fault has interrupted are left out.
        while let Some(len_bytes) = records.first_chunk::<8>().map(|len| u64::from_le_bytes(*len)) {
            let len = usize::try_from(len_bytes).unwrap_or(usize::MAX);
            let Some((record, rest)) = records.split_at_checked(len).filter(|_| len >= HEAD_BYTES) else { break };
            report.printed.extend(Printed::read(record));
            report.used_bytes += len_bytes;
            records = rest;
        }
        report
    }

    /// All text, one call after the other.
    #[must_use]
    pub fn text(&self) -> String {
        let all: Vec<u8> = self.printed.iter().flat_map(|p| p.bytes.iter().copied()).collect();
        String::from_utf8_lossy(&all).into_owned()
    }
}

impl Printed {
    fn read(record: &[u8]) -> Option<Printed> {
        if word(record, 32)? != 1 {
            return None;
        }
        let (block, thread) = (words(record, 8)?, words(record, 20)?);
        let mut rest = record.get(HEAD_BYTES..)?;
        let directives = text(&mut rest)?;
        Some(Printed { block, thread, bytes: format(directives, &mut Arguments(rest))? })
    }
}

impl Assertion {
    fn read(bytes: &[u8]) -> Option<Assertion> {
        if word(bytes, 0)? != 1 {
            return None;
        }
        let text = |at: usize| {
            let all = bytes.get(at..)?;
            let end = all.iter().position(|b| *b == 0)?;
            Some(String::from_utf8_lossy(all.get(..end)?).into_owned())
        };
        let [message, file, function] = FAULT_TEXTS.map(text);
        Some(Assertion {
            message: message?,
            file: file?,
            line: word(bytes, 4)?,
            function: function?,
            block: words(bytes, 8)?,
            thread: words(bytes, 20)?,
        })
    }
}

//! What the software machine has to say beyond status codes: the lines that a kernel would put into its log, and the emulator's own findings.

use std::fmt;
use std::sync::{Mutex, PoisonError};

/// What kind of thing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReportKind {
    /// A channel stopped for an error; the number is the kernel log's Xid, as in the error notifier.
    Xid(u32),
    /// The program asked for something that exists and is not modelled.
    Unmodelled,
    /// The program asked for something that nobody knows.
    Unknown,
    /// Hardware would have gone on; the program is wrong all the same.
    Strict,
    /// The emulator itself failed.
    Bug,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub kind: ReportKind,
    /// Which card.
    pub gpu: usize,
    /// The channel's id.
    pub channel: Option<u32>,
    pub text: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ReportKind::Xid(code) => write!(f, "Xid {code}")?,
            kind => write!(f, "{kind:?}")?,
        }
        write!(f, " on gpu {}", self.gpu)?;
        if let Some(channel) = self.channel {
            write!(f, " channel {channel:#x}")?;
        }
        write!(f, ": {}", self.text)
    }
}

/// Most reports that are kept; the first ones say what went wrong.
const KEPT: usize = 1024;

/// The findings of a machine so far.
#[derive(Debug, Default)]
pub(super) struct Reports {
    list: Mutex<Vec<Report>>,
}

impl Reports {
    pub fn add(&self, report: Report) {
        log::debug!("{report}");
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() < KEPT {
            list.push(report);
        }
    }

    pub fn all(&self) -> Vec<Report> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

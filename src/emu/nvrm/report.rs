//! Reports of the software machine beyond status codes: the lines that a kernel would write to its log, and the
//! emulator's own findings.
//!
//! A channel's death is also in the machine's kernel log ([`KERNEL_LOG`](doorbell_ioctl::port::KERNEL_LOG)), in the
//! form of NVIDIA's driver.

use super::sysfs;
use doorbell_ioctl::port::monotonic_ns;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// What kind of thing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReportKind {
    /// A channel stopped for an error; the number is the kernel log's Xid, as in the error notifier.
    Xid(u32),
    /// The program used a feature that exists and is not modelled.
    Unmodelled,
    /// The program used a number that no release has.
    Unknown,
    /// Hardware would have continued; the program is wrong nonetheless.
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

/// Most reports that are kept; the first ones show the cause.
const KEPT: usize = 1024;

/// The findings of a machine so far, each with its time.
#[derive(Debug, Default)]
pub(super) struct Reports {
    list: Mutex<Vec<(u64, Report)>>,
}

impl Reports {
    pub(crate) fn add(&self, report: Report) {
        match report.kind {
            ReportKind::Xid(_) | ReportKind::Bug => log::warn!("software GPU: {report}"),
            _ => log::debug!("software GPU: {report}"),
        }
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() < KEPT {
            list.push((monotonic_ns(), report));
        }
    }

    pub(crate) fn all(&self) -> Vec<Report> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|(_, report)| report.clone()).collect()
    }

    /// The machine's kernel log.
    pub(crate) fn kernel_log(&self) -> String {
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let xid = |(ns, report): &(u64, Report)| {
            let ReportKind::Xid(code) = report.kind else { return None };
            let place = sysfs::bdf(report.gpu);
            let place = place.trim_end_matches(".0");
            let channel = report.channel.map(|id| format!(" channel {id:#010x},")).unwrap_or_default();
            let (pid, text) = (std::process::id(), report.text.replace('\n', " "));
            Some((ns / 1000, format!("NVRM: Xid (PCI:{place}): {code}, pid={pid}, name=doorbell,{channel} {text}")))
        };
        let lines = list.iter().filter_map(xid).enumerate();
        lines.map(|(n, (us, text))| format!("3,{n},{us},-;{text}\n")).collect()
    }
}

//! Reports of the software machine beyond errno: the lines that a kernel would write to dmesg, and the emulator's own
//! findings.

use doorbell_ioctl::port::monotonic_ns;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// What kind of thing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReportKind {
    /// An access without a mapping or right; the process's queues on the card stopped.
    PageFault,
    /// A queue stopped at a packet, register or instruction.
    QueueHung,
    /// The kernel reset a queue.
    Reset,
    /// The program used a feature that exists and is not modelled.
    Unmodelled,
    /// A fault of the emulator itself.
    Bug,
    /// Hardware would have continued; the program is wrong nonetheless.
    Strict,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub kind: ReportKind,
    pub gpu_id: u32,
    pub queue: Option<u32>,
    pub text: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} on gpu {:#x}", self.kind, self.gpu_id)?;
        if let Some(queue) = self.queue {
            write!(f, " queue {queue}")?;
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
        log::debug!("{report}");
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() < KEPT {
            list.push((monotonic_ns(), report));
        }
    }

    pub(crate) fn all(&self) -> Vec<Report> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|(_, report)| report.clone()).collect()
    }

    /// The machine's kernel log: what a kernel would write there, page faults, resets and hung queues.
    pub(crate) fn kernel_log(&self) -> String {
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let line = |(ns, report): &(u64, Report)| {
            let level = match report.kind {
                ReportKind::PageFault | ReportKind::QueueHung | ReportKind::Bug => 3,
                ReportKind::Reset => 4,
                ReportKind::Unmodelled | ReportKind::Strict => return None,
            };
            Some((level, ns / 1000, format!("amdgpu: {}", report.to_string().replace('\n', " "))))
        };
        let lines = list.iter().filter_map(line).enumerate();
        lines.map(|(n, (level, us, text))| format!("{level},{n},{us},-;{text}\n")).collect()
    }
}

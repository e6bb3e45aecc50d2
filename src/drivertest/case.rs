//! What a case is: a name, what it checks, what it provokes in the kernel's log, and its body.

use crate::bench::Bench;
use crate::child::{Cue, Role};
use doorbell_emu::{kfd, nvrm};
use doorbell_ioctl::port::{CallError, Errno, ViewError};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Why a case did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The driver did something else than the case expects.
    Failed(String),
    /// A precondition does not hold here; `key` is for machines and never changes its meaning.
    Skipped { key: &'static str, why: String },
}

/// Outcome of a step of a case.
pub type Step<T = ()> = Result<T, Problem>;

impl Problem {
    /// A failure in words.
    pub fn failed(what: impl Into<String>) -> Self {
        Self::Failed(what.into())
    }
}

impl From<CallError> for Problem {
    fn from(error: CallError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<Errno> for Problem {
    fn from(errno: Errno) -> Self {
        Self::Failed(format!("a file or mapping was refused: {errno}"))
    }
}

impl From<ViewError> for Problem {
    fn from(error: ViewError) -> Self {
        Self::Failed(format!("shared memory: {error}"))
    }
}

/// Fails unless both are equal.
///
/// # Errors
/// The failure, with both values.
pub fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: T, want: T) -> Step {
    if got == want { Ok(()) } else { Err(Problem::Failed(format!("{what}: got {got:?}, want {want:?}"))) }
}

/// Fails unless it holds.
///
/// # Errors
/// The failure.
pub fn holds(what: &str, it: bool) -> Step {
    if it { Ok(()) } else { Err(Problem::Failed(what.to_owned())) }
}

/// How the software machine differs for a case: a second card, another release.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// As it comes.
    None,
    /// KFD's.
    Kfd(fn(&mut kfd::Config)),
    /// NVIDIA's.
    Nv(fn(&mut nvrm::Config)),
}

/// A body.
pub type Body = Box<dyn Fn(&Bench) -> Step + Send + Sync>;

/// A case.
pub struct Case {
    /// `driver.family.name`.
    pub name: String,
    /// One sentence: what the driver has to do.
    pub what: String,
    /// What it provokes in the kernel's log; any other warning there fails it.
    pub log: &'static [&'static str],
    /// The software machine that it needs.
    pub machine: Change,
    /// What it does in a second process.
    pub role: Option<Role>,
    body: Body,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl Case {
    /// A case that leaves the log alone, on the plain machine.
    pub fn new(
        name: impl Into<String>,
        what: impl Into<String>,
        body: impl Fn(&Bench) -> Step + Send + Sync + 'static,
    ) -> Self {
        Self::boxed(name.into(), what.into(), Box::new(body))
    }

    /// Apart from [`Case::new`], which is compiled for every body.
    fn boxed(name: String, what: String, body: Body) -> Self {
        Self { name, what, log: &[], machine: Change::None, role: None, body }
    }

    /// The same, allowed to provoke lines of the kernel's log with one of these texts.
    #[must_use]
    pub fn provoking(mut self, log: &'static [&'static str]) -> Self {
        self.log = log;
        self
    }

    /// The same on another software machine.
    #[must_use]
    pub fn on(mut self, machine: Change) -> Self {
        self.machine = machine;
        self
    }

    /// The same with a second process that does this.
    #[must_use]
    pub fn beside(mut self, role: fn(&Bench, &Cue) -> Step) -> Self {
        self.role = Some(Arc::new(role));
        self
    }

    /// The middle part of its name.
    #[must_use]
    pub fn family(&self) -> &str {
        self.name.split('.').nth(1).unwrap_or("")
    }

    /// Runs the body alone.
    ///
    /// # Errors
    /// Its problem.
    pub fn body(&self, bench: &Bench) -> Step {
        (self.body)(bench)
    }
}

/// How a case ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// As expected.
    Pass,
    /// The driver did something else.
    Fail,
    /// A precondition does not hold.
    Skip,
    /// It passed, and left handles, memory or files behind.
    Leak,
    /// It passed, and the kernel warned meanwhile.
    KernelWarn,
    /// Its process died.
    Crash,
    /// It ran longer than a case may.
    CaseTimeout,
    /// It said nothing for too long.
    Silent,
    /// The whole run was over its time before or while it ran.
    RunTimeout,
    /// The machine or the runner went down while it ran.
    Incomplete,
}

impl Verdict {
    /// The word of reports and of expectations.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Skip => "skip",
            Self::Leak => "leak",
            Self::KernelWarn => "kernel-warn",
            Self::Crash => "crash",
            Self::CaseTimeout => "case-timeout",
            Self::Silent => "silent",
            Self::RunTimeout => "run-timeout",
            Self::Incomplete => "incomplete",
        }
    }

    /// Whether it counts against the driver.
    #[must_use]
    pub fn is_bad(self) -> bool {
        !matches!(self, Self::Pass | Self::Skip)
    }
}

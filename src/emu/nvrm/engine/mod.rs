//! The engines of a channel: the host engine that reads its ring, and the compute and copy engines that it feeds, on
//! one thread a channel.
//!
//! Source: docs/nv.md 3, 4, 6. In strict mode work of the engines is deferred as long as the program allows: it is done
//! when something waits for it (a wait for idle, a semaphore of the engine, a release that waits, an acquire, the end
//! of the ring). So a release that does not wait is reliably seen before the work it should wait for. Grids and copies
//! run one after another, each to its end. Left out: overlap of independent grids, time slices, preemption in the
//! middle of a grid, textures, the macro engine.

mod copy;
mod grid;
mod host;
mod inline;
mod report;

use super::channel::Channel;
use super::compute::ComputeFault;
use super::defect::Defect;
use super::gpu::Gpu;
use crate::pauses::Pauses;
use crate::vm::VmFault;
use doorbell_hcq::packet::nv::{MethodError, qmd};
use doorbell_hcq::packet::{DecodeError, DecodeKind};
use std::fmt;

/// Codes of errors, as the notifier's info32 and the kernel log's Xid: docs/nv.md 6.
pub(crate) mod code {
    pub(crate) const NO_METHOD: u32 = 11;
    pub(crate) const GR_EXCEPTION: u32 = 13;
    pub(crate) const MMU_FAULT: u32 = 31;
    pub(crate) const PBDMA: u32 = 32;
    pub(crate) const RESET_CHANNEL: u32 = 43;
    pub(crate) const PREEMPTIVE_REMOVAL: u32 = 45;
    pub(crate) const CLASS_ERROR: u32 = 69;
    pub(crate) const OFF_THE_BUS: u32 = 79;
    /// Exceptions of a copy engine: not in a row.
    #[must_use]
    pub(crate) fn copy_engine(index: u32) -> u32 {
        match index {
            0..=2 => 39 + index,
            3..=5 => 70 + index - 3,
            6..=8 => 75 + index - 6,
            _ => 85,
        }
    }
}

/// What stopped a channel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Cause {
    #[error("GPFIFO entry: {0}")]
    Entry(DecodeKind),
    #[error("GPPut {put} is outside of a ring of {entries} entries")]
    Put { put: u32, entries: u32 },
    #[error("push buffer: {0}")]
    Header(DecodeKind),
    #[error("{0}")]
    HostMethod(MethodError),
    #[error("subchannel {subchannel} has no object, method {method:#06x}")]
    Unbound { subchannel: u8, method: u16 },
    #[error("SET_OBJECT {class:#06x}: the channel has no object of this class")]
    NoObject { class: u32 },
    #[error("{0}")]
    Method(MethodError),
    #[error("{0}")]
    CopyMethod(MethodError),
    #[error(transparent)]
    Memory(#[from] VmFault),
    #[error("QMD at {va:#x}: {error}")]
    Qmd { va: u64, error: qmd::ParseError },
    #[error("QMD at {va:#x}: {what}")]
    Grid { va: u64, what: String },
    #[error("{0} is not modelled")]
    NotModelled(String),
    #[error("grid: {0}")]
    Compute(#[from] ComputeFault),
    /// The driver freed the channel; not a fault.
    #[error("stopped by the driver")]
    Taken,
}

impl Cause {
    /// The access that failed, if that is what it was.
    pub(crate) fn page_fault(&self) -> Option<VmFault> {
        match self {
            Self::Memory(fault) | Self::Compute(ComputeFault::Memory { fault, .. }) => Some(*fault),
            _ => None,
        }
    }

    /// The contents of the notifier.
    pub(crate) fn code(&self, engine_type: u32) -> u32 {
        let copy = super::channel::copy_engine_index(engine_type);
        match self {
            Self::Memory(_) | Self::Compute(ComputeFault::Memory { .. }) => code::MMU_FAULT,
            Self::Entry(_) | Self::Put { .. } | Self::Header(_) | Self::HostMethod(_) => code::PBDMA,
            // The graphics engine knows its objects.
            Self::Unbound { .. } | Self::NoObject { .. } if copy.is_none() => code::GR_EXCEPTION,
            Self::Unbound { .. } => code::PBDMA,
            Self::Method(MethodError::Unknown { .. }) => code::NO_METHOD,
            Self::Method(_) | Self::NoObject { .. } | Self::NotModelled(_) => code::CLASS_ERROR,
            Self::CopyMethod(_) => copy.map_or(code::copy_engine(0), code::copy_engine),
            Self::Qmd { .. } | Self::Grid { .. } | Self::Compute(_) | Self::Taken => code::GR_EXCEPTION,
        }
    }

    /// Whether hardware might have done it.
    pub(crate) fn is_unmodelled(&self) -> bool {
        match self {
            Self::NotModelled(_) | Self::Compute(ComputeFault::Refused(_)) => true,
            Self::Qmd { error, .. } => matches!(error, qmd::ParseError::Unsupported { .. }),
            Self::Method(e) | Self::CopyMethod(e) | Self::HostMethod(e) => matches!(e, MethodError::Value { .. }),
            _ => false,
        }
    }
}

impl From<DecodeError> for Cause {
    fn from(error: DecodeError) -> Self {
        Self::Header(error.kind)
    }
}

/// A cause and where it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stop {
    pub cause: Cause,
    /// Of the ring.
    pub entry: u32,
    /// Address of the push buffer and dword in it, when it was in one.
    pub push_buffer: Option<(u64, usize)>,
    /// The method, when it could be read.
    pub method: Option<String>,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPFIFO entry {}", self.entry)?;
        if let Some((va, dword)) = self.push_buffer {
            write!(f, ", dword {dword} of the push buffer at {va:#x}")?;
        }
        write!(f, ": {}", self.cause)?;
        match &self.method {
            Some(method) => write!(f, " in `{method}`"),
            None => Ok(()),
        }
    }
}

/// What the engines of one channel work on.
#[derive(Clone, Copy)]
struct Site<'a> {
    gpu: &'a Gpu,
    channel: &'a Channel,
}

impl Site<'_> {
    fn vm(&self) -> &crate::vm::Vm {
        &self.channel.setup.space.vm
    }

    /// Blocks the channel until a condition on memory holds.
    fn wait_until(&self, ready: impl FnMut() -> Result<bool, VmFault>) -> Result<(), Cause> {
        self.channel.wait_until(ready).map_err(|e| e.map_or(Cause::Taken, Cause::Memory))
    }

    /// A fault that hardware does not report.
    fn complain(&self, text: String) {
        if self.gpu.strict {
            self.gpu.report(super::report::ReportKind::Strict, Some(self.channel.setup.id), text);
        }
    }

    /// Runs work of an engine, which a preemption has to wait for.
    fn busy<T>(&self, work: impl FnOnce() -> T) -> T {
        self.channel.set_busy(true);
        let result = work();
        self.channel.set_busy(false);
        result
    }
}

/// The main loop of an engine thread: takes entries from its channel's ring until the channel is freed.
pub(crate) fn run(gpu: &Gpu, channel: &Channel) {
    let site = Site { gpu, channel };
    let mut host = host::Host::new(gpu.facts());
    let mut pauses = Pauses::new(gpu.shuffle, channel.setup.id);
    while let Some((get, put)) = channel.next_work() {
        pauses.pause();
        let outcome = host.step(site, get, put);
        match outcome {
            Ok(()) => {
                let get = channel.advance();
                if gpu.facts().has_gp_get && !gpu.stale_gp_get && !gpu.has(Defect::GetStuck) {
                    // USERD has 512 bytes: the allocation made sure.
                    let _inside = channel.setup.userd.write_u32(doorbell_hcq::packet::nv::gpfifo::USERD_GP_GET, get);
                }
            }
            Err(stop) => gpu.stopped(channel, *stop),
        }
    }
}

//! The interface to the compute units: a dispatch with all its registers, and the reasons it stops.
//!
//! The command processors make [`Dispatch`]es; an implementation of [`Compute`] runs them to their end:
//! `ComputeUnits`, or a test.

pub use crate::amdgpu::{Dispatch, ShadowMemory};

use super::caching::Policies;
use super::gpu::Gpu;
use super::report::ReportKind;

use super::clock::GpuClock;
use super::vm::{Vm, VmFault};
use std::fmt;
use std::sync::atomic::AtomicBool;

/// Why a dispatch did not end well.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ComputeFault {
    /// The page table refused an access.
    #[error("{fault} ({place})")]
    Memory { fault: VmFault, place: String },
    /// No instruction, or one that the chip does not have.
    #[error("illegal instruction: {0}")]
    Illegal(String),
    /// s_trap without a handler.
    #[error("trap: {0}")]
    Trap(String),
    /// The machine cannot do it, or strict mode found the program wrong.
    #[error("{0}")]
    Refused(String),
    /// The queue was taken away.
    #[error("stopped by the driver")]
    Stopped,
}

/// The card as a running dispatch sees it.
#[derive(Clone, Copy)]
pub struct Machine<'a> {
    pub vm: &'a Vm,
    pub clock: &'a GpuClock,
    /// What its dispatches read and stored.
    pub shadow: &'a ShadowMemory,
    /// What kind of memory is where.
    pub policies: &'a Policies,
    /// Takes findings that do not stop the dispatch.
    pub(super) gpu: &'a Gpu,
    /// The queue of the dispatch, and the XCCs that run it.
    pub queue: u32,
    pub xccs: u32,
    /// True: end now.
    pub stop: &'a AtomicBool,
}

impl Machine<'_> {
    /// Reports a finding that does not stop the dispatch.
    pub fn note(&self, text: String) {
        self.gpu.report(ReportKind::Strict, Some(self.queue), text);
    }
}

impl fmt::Debug for Machine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Machine")
    }
}

/// Compute units.
pub trait Compute: Send + Sync + fmt::Debug {
    /// Runs all waves of the dispatch to their end. Must return soon after `machine.stop` became true.
    ///
    /// # Errors
    /// `ComputeFault`.
    fn run(&self, dispatch: &Dispatch, machine: &Machine<'_>) -> Result<(), ComputeFault>;
}

/// A card without compute units: every dispatch is refused.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCompute;

impl Compute for NoCompute {
    fn run(&self, _: &Dispatch, _: &Machine<'_>) -> Result<(), ComputeFault> {
        Err(ComputeFault::Refused("this card has no compute units".to_owned()))
    }
}

//! The interface to the SMs: a grid with all fields of its QMD and channel, and the reasons it stops.
//!
//! The compute engine makes [`Launch`]es; an implementation of [`Compute`] runs them to their end: [`super::Sms`], or a
//! test.

use super::chip::Chip;
use super::clock::Ptimer;
use crate::vm::{Vm, VmFault};
use std::fmt;
use std::sync::atomic::AtomicBool;

/// A grid. Sizes are in bytes, addresses the GPU's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    pub chip: Chip,
    /// Address of its QMD.
    pub qmd_va: u64,
    /// Of the first instruction.
    pub entry: u64,
    /// CTAs.
    pub grid: [u32; 3],
    /// Threads of a CTA.
    pub block: [u32; 3],
    /// CTAs of a cluster; all 1 without clusters.
    pub cluster: [u32; 3],
    /// Of a thread, hidden ones included.
    pub registers: u32,
    pub barriers: u32,
    /// Of a CTA, what is reserved included.
    pub shared_bytes: u32,
    /// Of a thread.
    pub local_bytes: u32,
    /// Constant banks: address and length.
    pub banks: [Option<(u64, u32)>; 8],
    /// Where generic addresses mean shared and local memory; 0 if the channel never set it.
    pub shared_window: u64,
    pub local_window: u64,
}

/// An SM's state for a warp that it stopped: the debugger's registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WarpError {
    /// Of the chip's SMs, in the order of GR_GET_GLOBAL_SM_ORDER.
    pub sm: u32,
    /// The exception's number, as in the warp's ESR.
    pub code: u32,
    pub pc: u64,
    /// The address, for exceptions that have one.
    pub va: u64,
}

/// Why a grid did not end well.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ComputeFault {
    /// The page table refused an access.
    #[error("{fault} ({place})")]
    Memory { fault: VmFault, place: String },
    /// A warp did what no SM does.
    #[error("{text}")]
    Exception { error: WarpError, text: String },
    /// The machine cannot do it, or strict mode found the program wrong.
    #[error("{0}")]
    Refused(String),
    /// The channel was taken away.
    #[error("stopped by the driver")]
    Stopped,
}

/// The card as a running grid sees it.
#[derive(Clone, Copy)]
pub struct Machine<'a> {
    pub vm: &'a Vm,
    pub clock: &'a Ptimer,
    /// True: end now.
    pub stop: &'a AtomicBool,
}

impl fmt::Debug for Machine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Machine")
    }
}

/// SMs.
pub trait Compute: Send + Sync + fmt::Debug {
    /// Runs all CTAs of the grid to their end. Must return soon after `machine.stop` became true.
    ///
    /// # Errors
    /// `ComputeFault`.
    fn run(&self, launch: &Launch, machine: &Machine<'_>) -> Result<(), ComputeFault>;
}

/// A card without SMs: every grid is refused.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCompute;

impl Compute for NoCompute {
    fn run(&self, _: &Launch, _: &Machine<'_>) -> Result<(), ComputeFault> {
        Err(ComputeFault::Refused("this card has no SMs".to_owned()))
    }
}

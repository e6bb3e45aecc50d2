//! The card's compute units: dispatches run as machine code over the page table.
//!
//! Place in the arrows: connects this driver to `emu::amdgpu`.

use super::compared::{self, Ended};
use super::compute::{Compute, ComputeFault, Dispatch, Machine};
use super::vm::{self, VmFault};
use crate::amdgpu::{self, Access, Bus, BusFault, FaultKind, HotCode, Policy, ShadowMemory, Strict, WaveFault, Window};
use crate::translate::Translation;
use std::sync::Arc;

/// Compute units that execute what they are given.
#[derive(Debug)]
pub(crate) struct ComputeUnits {
    strict: Strict,
    hot: HotCode,
    twice: bool,
}

impl ComputeUnits {
    /// Compute units that have executed nothing; without checks, what they execute often is compiled.
    #[must_use]
    pub(crate) fn new(strict: Strict, translation: Translation) -> Self {
        Self { strict, hot: HotCode::new(translation), twice: false }
    }

    /// Whether they run each dispatch twice, with checks and without, and compare what it leaves. What is
    /// entered twice is compiled then, so that short kernels are translated too.
    #[must_use]
    pub(crate) fn twice(self, twice: bool) -> Self {
        let hot = if twice { self.hot.after(2) } else { self.hot };
        Self { hot, twice, ..self }
    }
}

/// The page table as waves see it.
pub(super) struct VmBus<'a>(&'a Machine<'a>);

fn access(of: Access) -> vm::Access {
    match of {
        Access::Read => vm::Access::Read,
        Access::Write => vm::Access::Write,
        Access::Fetch => vm::Access::Fetch,
    }
}

impl Bus for VmBus<'_> {
    fn translate(&self, va: u64, wanted: Access) -> Result<Window, BusFault> {
        let refused = |fault: VmFault| if fault.mapped { BusFault::Permission } else { BusFault::Unmapped };
        let range = self.0.vm.translate(va, access(wanted)).map_err(refused)?;
        Ok(Window { va_start: range.va_start, len_bytes: range.view.len_bytes(), memory: Arc::new(range.view) })
    }

    fn epoch(&self) -> u64 {
        self.0.vm.epoch()
    }

    fn shadow(&self) -> Option<&ShadowMemory> {
        Some(self.0.shadow)
    }

    fn policy(&self, va: u64) -> Policy {
        self.0.vm.handle_at(va).map_or_else(Policy::default, |handle| self.0.policies.of(handle))
    }

    fn xccs(&self) -> u32 {
        self.0.xccs
    }

    fn queue(&self) -> u32 {
        self.0.queue
    }

    fn note(&self, finding: &WaveFault) {
        self.0.note(finding.to_string());
    }
}

impl Compute for ComputeUnits {
    fn run(&self, dispatch: &Dispatch, machine: &Machine<'_>) -> Result<(), ComputeFault> {
        if self.twice {
            let outcome = compared::run(dispatch, &VmBus(machine), &self.strict, machine.stop, &self.hot);
            return outcome.map_err(|ended| match ended {
                Ended::Fault(fault) => explain(&fault),
                Ended::Differs(text) => ComputeFault::Refused(text),
            });
        }
        let outcome = amdgpu::run_hot(dispatch, &VmBus(machine), &self.strict, machine.stop, &self.hot);
        outcome.map(|_| ()).map_err(|fault| explain(&fault))
    }
}

fn explain(fault: &WaveFault) -> ComputeFault {
    match &fault.kind {
        FaultKind::Stopped => ComputeFault::Stopped,
        FaultKind::Memory { va, access: of, fault: why } => {
            let mapped = *why == BusFault::Permission;
            ComputeFault::Memory { fault: VmFault { va: *va, access: access(*of), mapped }, place: fault.place() }
        }
        FaultKind::IllegalInstruction { .. } => ComputeFault::Illegal(fault.to_string()),
        FaultKind::Trap { .. } => ComputeFault::Trap(fault.to_string()),
        _ => ComputeFault::Refused(fault.to_string()),
    }
}

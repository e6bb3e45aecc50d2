//! One card: page table, queues, doorbells, and the handling of bad accesses and packets.
//!
//! Source: docs/amd.md 7.1-7.3: a page fault stops all of the process's queues on the card for good; a bad packet hangs
//! its queue only.

use super::caching::Policies;
use super::chip::{Chip, ChipFacts};
use super::clock::GpuClock;
use super::compute::{Compute, Machine, ShadowMemory};
use super::config::Config;
use super::cp::{self, Caches, Cause, Stop};
use super::defect::Defect;
use super::event::Events;
use super::queue::{End, Kind, Queue};
use super::report::{Report, ReportKind, Reports};
use super::vm::{Access, Vm, VmFault};
use crate::kfd::chip::facts_of;
use doorbell_ioctl::abi::kfd::{HwException, MemoryException};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Page that a fault is reported for.
const PAGE_MASK: u64 = !0xfff;

/// A card.
#[derive(Debug)]
pub(crate) struct Gpu {
    pub gpu_id: u32,
    pub chip: Chip,
    pub vm: Vm,
    pub clock: Arc<GpuClock>,
    pub events: Arc<Events>,
    pub(super) reports: Arc<Reports>,
    pub compute: Arc<dyn Compute>,
    pub strict: bool,
    /// Seed of pauses between packets; 0 for none.
    pub shuffle: u64,
    lenient: bool,
    tells_hangs: bool,
    defect: Option<Defect>,
    /// RUNTIME_ENABLE is on: exceptions go to the process.
    pub exceptions: AtomicBool,
    queues: Mutex<BTreeMap<u32, Arc<Queue>>>,
    fault: Mutex<Option<VmFault>>,
    pub(super) caches: Caches,
    pub(super) shadow: ShadowMemory,
    pub(super) policies: Policies,
}

impl Gpu {
    #[must_use]
    pub(super) fn new(gpu_id: u32, shared: &Shared, config: &Config) -> Self {
        Self {
            gpu_id,
            chip: config.chip,
            vm: Vm::default(),
            clock: Arc::clone(&shared.clock),
            events: Arc::clone(&shared.events),
            reports: Arc::clone(&shared.reports),
            compute: Arc::clone(&shared.compute),
            strict: config.strict,
            shuffle: config.shuffle,
            lenient: config.lenient,
            tells_hangs: config.tells_hangs,
            defect: config.defect,
            exceptions: AtomicBool::new(false),
            queues: Mutex::default(),
            fault: Mutex::default(),
            caches: Caches::default(),
            shadow: ShadowMemory::default(),
            policies: Policies::default(),
        }
    }

    /// Whether this is wrong with the card.
    #[must_use]
    pub(crate) fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    /// The last page fault.
    #[must_use]
    pub(crate) fn last_fault(&self) -> Option<VmFault> {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[must_use]
    pub(crate) fn facts(&self) -> &'static ChipFacts {
        facts_of(self.chip)
    }

    /// The process's queues on this card, by id.
    pub(crate) fn queues(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Queue>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The card as a dispatch of `queue` sees it.
    #[must_use]
    pub(crate) fn machine<'a>(&'a self, queue: &'a Queue) -> Machine<'a> {
        Machine {
            vm: &self.vm,
            clock: &self.clock,
            shadow: &self.shadow,
            policies: &self.policies,
            gpu: self,
            queue: queue.setup.id,
            xccs: if queue.setup.kind == Kind::Aql { queue.setup.xccs } else { 1 },
            stop: &queue.stop,
        }
    }

    pub(super) fn report(&self, kind: ReportKind, queue: Option<u32>, text: String) {
        self.reports.add(Report { kind, gpu_id: self.gpu_id, queue, text });
    }

    /// What a check found: it stops the queue, or is reported where findings are no more than that.
    pub(super) fn found(&self, queue: Option<u32>, cause: Cause) -> Result<(), Cause> {
        if !self.lenient {
            return Err(cause);
        }
        self.report(ReportKind::Strict, queue, cause.to_string());
        Ok(())
    }

    /// Puts a queue to work on a thread of its own.
    pub(crate) fn start(self: &Arc<Self>, queue: &Arc<Queue>) {
        let (gpu, engine) = (Arc::clone(self), Arc::clone(queue));
        queue.set_thread(std::thread::spawn(move || cp::run(&gpu, &engine)));
        self.queues().insert(queue.setup.id, Arc::clone(queue));
    }

    /// A store of `value` to the doorbell at this offset of the slice. A doorbell without a queue does nothing.
    pub(crate) fn ring(&self, offset_bytes: u64, value: u64) {
        let hit = self.queues().values().find(|q| q.setup.doorbell_bytes == offset_bytes).map(Arc::clone);
        let Some(queue) = hit else {
            self.report(
                ReportKind::Strict,
                None,
                format!("doorbell at {offset_bytes:#x} rang, it belongs to no queue"),
            );
            return;
        };
        let put = if queue.setup.kind == Kind::Aql { value.wrapping_add(1) } else { value };
        // Hardware uses the doorbell's value; a write pointer less than it is a store that came too late.
        if self.strict
            && let Ok(stored) = self.vm.read_u64(queue.setup.write_ptr_va)
            && stored < put
        {
            let text = format!("doorbell says {put:#x}, the write pointer in memory is still {stored:#x}");
            self.report(ReportKind::Strict, Some(queue.setup.id), text);
        }
        queue.ring(put);
    }

    /// An interrupt of a queue. One that finds no written slot wakes no thread, as on hardware.
    pub(super) fn interrupt(&self, queue: Option<u32>, context: u32) {
        if self.has(Defect::InterruptLost) {
            return;
        }
        if !self.events.interrupt(context) && self.strict {
            let text = format!("interrupt with context {context:#x} found no event whose slot was written");
            self.report(ReportKind::Strict, queue, text);
        }
    }

    /// Deals with what stopped a queue.
    pub(super) fn stopped(&self, queue: &Queue, stop: Stop) {
        match &stop.cause {
            Cause::Taken => {}
            cause => match cause.page_fault() {
                Some(fault) => self.page_fault(queue, &fault, &stop),
                None => self.hang(queue, stop),
            },
        }
    }

    fn page_fault(&self, queue: &Queue, fault: &VmFault, stop: &Stop) {
        self.report(ReportKind::PageFault, Some(queue.setup.id), stop.to_string());
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(*fault);
        let spared = |other: &Queue| self.has(Defect::FaultSpares) && other.setup.id != queue.setup.id;
        self.queues().values().filter(|other| !spared(other)).for_each(|other| other.evict());
        if self.has(Defect::FaultSilent) {
            return;
        }
        self.events.memory_fault(MemoryException {
            not_present: u32::from(!fault.mapped),
            read_only: u32::from(fault.mapped && matches!(fault.access, Access::Write | Access::Atomic)),
            no_execute: u32::from(fault.mapped && fault.access == Access::Fetch),
            imprecise: 0,
            va: fault.va & PAGE_MASK,
            gpu_id: self.gpu_id,
            error_type: 0,
        });
    }

    fn hang(&self, queue: &Queue, stop: Stop) {
        let (text, code, error) = (stop.to_string(), stop.cause.exception_code(), stop.cause.aql_error());
        // Whoever receives the event may destroy the queue at once, which is then a hung one already.
        queue.change(|control| control.hung = Some(stop));
        self.report(ReportKind::QueueHung, Some(queue.setup.id), text);
        cp::signal_inactive(self, queue, error);
        if self.exceptions.load(Ordering::Relaxed) && !self.has(Defect::ExceptionSilent) {
            self.deliver_exception(queue, code);
        }
        if self.tells_hangs {
            self.events.hw_exception(self.reset_of_a_queue());
        }
    }

    fn reset_of_a_queue(&self) -> HwException {
        HwException { reset_type: 1, reset_cause: 0, memory_lost: 0, gpu_id: self.gpu_id }
    }

    /// Writes the exception's bit to the payload address in the save area's header, and signals the event named there
    /// (docs/amd.md 7.3).
    fn deliver_exception(&self, queue: &Queue, code: u32) {
        const ERR_PAYLOAD_ADDR: u64 = 24;
        const ERR_EVENT_ID: u64 = 32;
        let save = queue.setup.save_va;
        if save == 0 {
            return;
        }
        let payload = self.vm.read_u64(save.wrapping_add(ERR_PAYLOAD_ADDR)).unwrap_or(0);
        let event = self.vm.read_u32(save.wrapping_add(ERR_EVENT_ID)).unwrap_or(0);
        if payload != 0 && self.vm.update_u64(payload, |mask| mask | 1 << (code - 1)).is_ok() {
            self.events.deliver(event);
        }
    }

    /// Destroys a queue: the kernel preempts it, and resets it when it does not respond.
    pub(crate) fn destroy_queue(&self, id: u32) -> bool {
        let Some(queue) = self.queues().remove(&id) else { return false };
        let End { hung, panicked } = queue.destroy();
        if panicked {
            self.report(ReportKind::Bug, Some(id), "the queue's engine panicked".to_owned());
        }
        self.vm.pin(&queue.setup.pinned, false);
        if hung && self.has(Defect::ResetSpreads) {
            self.queues().values().for_each(|other| other.evict());
        }
        if hung && !self.has(Defect::ResetSilent) {
            self.report(ReportKind::Reset, Some(id), "the queue did not answer and was reset".to_owned());
            self.events.hw_exception(self.reset_of_a_queue());
        }
        true
    }
}

/// What all cards of a machine share.
#[derive(Debug)]
pub(super) struct Shared {
    pub clock: Arc<GpuClock>,
    pub events: Arc<Events>,
    pub reports: Arc<Reports>,
    pub compute: Arc<dyn Compute>,
}

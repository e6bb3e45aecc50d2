//! One card: the state that its channels' engines share, and the handling of faults.
//!
//! Source: docs/nv.md 6: the offending channel's notifier is filled, all channels of its group stop for good, other
//! groups go on.

use super::channel::{Channel, Dead, MmuFault, copy_engine_index};
use super::chip::{Chip, ChipFacts};
use super::clock::Ptimer;
use super::compute::{Compute, ComputeFault, WarpError};
use super::config::Config;
use super::defect::Defect;
use super::engine::{self, Cause, Stop};
use super::event::Events;
use super::report::{Report, ReportKind, Reports};
use crate::vm::{Access, Vm, VmFault};
use doorbell_ioctl::abi::nvrm::{NV2080_NOTIFIERS_CE0, NV2080_NOTIFIERS_GR0, NV2080_NOTIFIERS_RC_ERROR};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A notifier's status word once it is filled.
const NOTIFIER_FILLED: u16 = 0xffff;
/// Faults that the debugger remembers.
const KEPT_FAULTS: usize = 4;
/// Channels of a card.
pub(crate) const MAX_CHANNELS: u32 = 2048;

/// A card.
#[derive(Debug)]
pub(crate) struct Gpu {
    pub index: usize,
    pub chip: Chip,
    pub clock: Arc<Ptimer>,
    pub events: Arc<Events>,
    pub(super) reports: Arc<Reports>,
    pub compute: Arc<dyn Compute>,
    pub strict: bool,
    pub stale_gp_get: bool,
    /// Interrupts of channels do not reach the driver.
    pub interrupts_lost: bool,
    /// Seed of pauses between entries; 0 for none.
    pub shuffle: u64,
    defect: Option<Defect>,
    /// Bytes of VRAM and of BAR1 in use.
    pub vram_used: Arc<AtomicU64>,
    pub bar1_used: Arc<AtomicU64>,
    /// It fell off the bus.
    pub lost: AtomicBool,
    pub rc_errors: AtomicU32,
    channels: Mutex<BTreeMap<u32, Arc<Channel>>>,
    warp_errors: Mutex<Vec<WarpError>>,
    faults: Mutex<Vec<MmuFault>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gpu {
    pub(super) fn new(index: usize, shared: &Shared, config: &Config) -> Self {
        Self {
            index,
            chip: config.chip,
            clock: Arc::clone(&shared.clock),
            events: Arc::clone(&shared.events),
            reports: Arc::clone(&shared.reports),
            compute: Arc::clone(&shared.compute),
            strict: config.strict,
            stale_gp_get: config.stale_gp_get,
            interrupts_lost: config.interrupts_lost,
            shuffle: config.shuffle,
            defect: config.defect,
            vram_used: Arc::default(),
            bar1_used: Arc::default(),
            lost: AtomicBool::new(false),
            rc_errors: AtomicU32::new(0),
            channels: Mutex::default(),
            warp_errors: Mutex::default(),
            faults: Mutex::default(),
        }
    }

    /// Whether this is wrong with the card.
    #[must_use]
    pub(crate) fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    #[must_use]
    pub(crate) fn facts(&self) -> &'static ChipFacts {
        self.chip.facts()
    }

    pub(super) fn report(&self, kind: ReportKind, channel: Option<u32>, text: String) {
        self.reports.add(Report { kind, gpu: self.index, channel, text });
    }

    /// Channels by id.
    pub(crate) fn channels(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Channel>>> {
        lock(&self.channels)
    }

    /// The lowest free channel id.
    #[must_use]
    pub(crate) fn free_channel_id(&self) -> Option<u32> {
        let channels = self.channels();
        (0..MAX_CHANNELS).find(|id| !channels.contains_key(id))
    }

    /// Puts a channel's engine to work on a thread of its own.
    pub(crate) fn start(self: &Arc<Self>, channel: &Arc<Channel>) {
        let (gpu, own) = (Arc::clone(self), Arc::clone(channel));
        channel.set_thread(std::thread::spawn(move || engine::run(&gpu, &own)));
        self.channels().insert(channel.setup.id, Arc::clone(channel));
    }

    /// Removes a channel.
    pub(crate) fn end(&self, channel: &Channel) {
        self.channels().remove(&channel.setup.id);
        if channel.destroy().panicked {
            self.report(ReportKind::Bug, Some(channel.setup.id), "the channel's engine panicked".to_owned());
        }
    }

    /// A store of `token` to the doorbell.
    pub(crate) fn ring(&self, token: u32) {
        let hit = self.channels().values().find(|channel| channel.token() == token).map(Arc::clone);
        match hit {
            Some(channel) => channel.ring(),
            None if self.strict => {
                self.report(
                    ReportKind::Strict,
                    None,
                    format!("doorbell rang with token {token:#x}, it is no channel's"),
                );
            }
            None => {}
        }
    }

    /// The card is lost: channels stop, calls fail.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Relaxed);
        let channels: Vec<Arc<Channel>> = self.channels().values().map(Arc::clone).collect();
        for channel in channels {
            channel.kill(Dead { code: engine::code::OFF_THE_BUS });
        }
        self.report(ReportKind::Xid(engine::code::OFF_THE_BUS), None, "the card has fallen off the bus".to_owned());
    }

    /// Errors of warps since the last clearing, one a SM.
    #[must_use]
    pub(crate) fn warp_errors(&self) -> Vec<WarpError> {
        lock(&self.warp_errors).clone()
    }

    pub(crate) fn clear_warp_errors(&self) {
        lock(&self.warp_errors).clear();
    }

    /// The last faults of the MMU, oldest first.
    #[must_use]
    pub(crate) fn faults(&self) -> Vec<MmuFault> {
        lock(&self.faults).clone()
    }

    /// Deals with what stopped a channel.
    pub(super) fn stopped(&self, channel: &Channel, stop: Stop) {
        if matches!(stop.cause, Cause::Taken) {
            return;
        }
        let code = stop.cause.code(channel.setup.engine_type);
        let unmodelled = stop.cause.is_unmodelled();
        if let Some(fault) = stop.cause.page_fault() {
            let fault = mmu_fault(&channel.setup.space.vm, &fault);
            *lock(&channel.fault) = Some(fault);
            let mut faults = lock(&self.faults);
            if faults.len() == KEPT_FAULTS {
                faults.remove(0);
            }
            faults.push(fault);
        }
        if let Cause::Compute(ComputeFault::Exception { error, .. }) = &stop.cause {
            lock(&self.warp_errors).push(*error);
        }
        let text = stop.to_string();
        if unmodelled {
            self.report(ReportKind::Unmodelled, Some(channel.setup.id), text.clone());
        }
        self.report(ReportKind::Xid(code), Some(channel.setup.id), text);
        self.recover(channel, Dead { code });
    }

    /// Takes a channel and its group off the hardware, and notifies its events.
    pub(super) fn recover(&self, channel: &Channel, dead: Dead) {
        let code = dead.code;
        self.rc_errors.fetch_add(1, Ordering::Relaxed);
        self.notify(channel, code);
        channel.kill(dead);
        if self.has(Defect::ErrorSpreads) {
            let dead = || Dead { code };
            self.channels().values().for_each(|other| other.kill(dead()));
        }
        for sibling in channel.group.members() {
            if sibling.setup.id == channel.setup.id || self.has(Defect::GroupSpares) {
                continue;
            }
            self.notify(&sibling, code);
            sibling.kill(Dead { code });
        }
        if self.has(Defect::EventLost) {
            return;
        }
        let info16 = channel.setup.engine_type as u16;
        self.events.notify(self.index, NV2080_NOTIFIERS_RC_ERROR, code, info16);
        if code == engine::code::GR_EXCEPTION {
            self.events.notify(self.index, NV2080_NOTIFIERS_GR0, code, info16);
        }
    }

    /// Fills the error record of a channel's notifier: time, code, engine type, and last the status.
    pub(super) fn notify(&self, channel: &Channel, code: u32) {
        const INFO32: u64 = 8;
        const INFO16: u64 = 12;
        const STATUS: u64 = 14;
        let Some(notifier) = channel.setup.notifier.as_ref().filter(|_| !self.has(Defect::NotifierSilent)) else {
            return;
        };
        // The notifier has at least one record: the allocation made sure.
        let _whole = notifier.write_u64(0, self.clock.ns());
        let _whole = notifier.write_u32(INFO32, code);
        let _whole = notifier.write_u16(INFO16, channel.setup.engine_type as u16);
        // ORDER: the status is what a reader reads first; it is written last.
        std::sync::atomic::fence(Ordering::Release);
        let _whole = notifier.write_u16(STATUS, NOTIFIER_FILLED);
    }

    /// A channel requests an interrupt: its runlist's notifier fires, in the name of the runlist's engine.
    pub(super) fn interrupt(&self, channel: &Channel) {
        let engine = match copy_engine_index(channel.setup.engine_type) {
            Some(index) if channel.group.runlist() != 0 => NV2080_NOTIFIERS_CE0 + index,
            _ => NV2080_NOTIFIERS_GR0,
        };
        if !self.interrupts_lost && !self.has(Defect::InterruptLost) {
            self.events.interrupt(self.index, engine);
        }
    }
}

/// Kinds of faults: docs/nv.md 6.
pub(crate) const FAULT_PDE: u32 = 0;
pub(crate) const FAULT_PTE: u32 = 2;
pub(crate) const FAULT_RO_VIOLATION: u32 = 6;
pub(crate) const FAULT_ATOMIC_VIOLATION: u32 = 0xf;

/// What one table of small pages maps.
const TABLE_BYTES: u64 = 2 << 20;

fn mmu_fault(vm: &Vm, fault: &VmFault) -> MmuFault {
    let (access, denied) = match fault.access {
        Access::Read | Access::Fetch => (0, FAULT_PTE),
        Access::Write => (1, FAULT_RO_VIOLATION),
        Access::Atomic => (2, FAULT_ATOMIC_VIOLATION),
    };
    let has_table = || vm.is_used(fault.va & !(TABLE_BYTES - 1), TABLE_BYTES);
    let kind = match fault.mapped {
        true => denied,
        false if has_table() => FAULT_PTE,
        false => FAULT_PDE,
    };
    MmuFault { va: fault.va, kind, access }
}

/// What all cards of a machine share.
#[derive(Debug)]
pub(super) struct Shared {
    pub clock: Arc<Ptimer>,
    pub events: Arc<Events>,
    pub reports: Arc<Reports>,
    pub compute: Arc<dyn Compute>,
}

//! Processes of a machine: each has cards, events and files of its own; memory of the cards, copy engines, clock and
//! log are shared by all. And what becomes of a process: fork, signals, its end.
//!
//! Source: `kfd_process.c`, `kfd_chardev.c`, `kfd_doorbell.c`, `kfd_events.c` of Linux 6.12. A process's state ends
//! with its address space, however it ends. Left out: the time between the end of a process and that of its state.

use super::config::Config;
use super::defect::Defect;
use super::driver::{Open, State};
use super::event::Events;
use super::gpu::{Gpu, Shared};
use super::queue::Kind;
use super::report::Reports;
use super::sysfs::{self, Sysfs};
use super::{SoftKfd, compute::Compute};
use crate::forked::is_mapped;
use crate::kfd::GpuClock;
use doorbell_ioctl::abi::kfd::MINOR_EVENT_AGE;
use doorbell_ioctl::port::{AddressSpace, CpuPtr, Errno, Fd, Forked};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Where the kernel lists the processes that have the driver open.
const PROCESSES: &str = "/sys/class/kfd/kfd/proc";

/// What all processes of a machine share.
#[derive(Debug)]
pub(super) struct Machine {
    clock: Arc<GpuClock>,
    reports: Arc<Reports>,
    compute: Arc<dyn Compute>,
    /// VRAM in use, card by card.
    vram_used: Vec<Arc<AtomicU64>>,
    processes: Mutex<Vec<Weak<SoftKfd>>>,
    /// Processes that ended, where a defect keeps what they had.
    kept: Mutex<Vec<Arc<SoftKfd>>>,
    next_pid: AtomicU32,
    /// Offsets in the render nodes' files are the card's, whoever has the buffer.
    next_mmap_offset: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Machine {
    pub(crate) fn new(config: &Config, compute: Arc<dyn Compute>) -> Arc<Self> {
        Arc::new(Self {
            clock: Arc::default(),
            reports: Arc::default(),
            compute,
            vram_used: (0..config.gpus).map(|_| Arc::default()).collect(),
            processes: Mutex::default(),
            kept: Mutex::default(),
            next_pid: AtomicU32::new(std::process::id()),
            next_mmap_offset: AtomicU64::new(0),
        })
    }

    /// A counter of a card's VRAM in use.
    pub(crate) fn vram_used(&self, gpu: usize) -> Arc<AtomicU64> {
        self.vram_used.get(gpu).map(Arc::clone).unwrap_or_default()
    }

    /// Room for a buffer in the render nodes' files.
    pub(crate) fn take_mmap_offset(&self, len_bytes: u64) -> u64 {
        self.next_mmap_offset.fetch_add(len_bytes, Ordering::Relaxed)
    }

    fn processes(&self) -> Vec<Arc<SoftKfd>> {
        lock(&self.processes).iter().filter_map(Weak::upgrade).collect()
    }

    /// Queues of a kind on a card, of all processes.
    pub(crate) fn queues(&self, gpu_id: u32, kind: Kind) -> usize {
        let processes = self.processes();
        let cards = processes.iter().flat_map(|process| process.gpus.iter()).filter(|gpu| gpu.gpu_id == gpu_id);
        cards.map(|gpu| gpu.queues().values().filter(|queue| queue.setup.kind == kind).count()).sum()
    }
}

impl SoftKfd {
    /// A process of a machine.
    pub(super) fn of_machine(config: Config, machine: Arc<Machine>, is_first: bool) -> Result<Arc<Self>, Errno> {
        let mut events = Events::new(config.kfd_minor >= MINOR_EVENT_AGE);
        events.restart_forgets = config.defect == Some(Defect::RestartForgets);
        let shared = Shared {
            clock: Arc::clone(&machine.clock),
            events: Arc::new(events),
            reports: Arc::clone(&machine.reports),
            compute: Arc::clone(&machine.compute),
        };
        let card = |gpu| Arc::new(Gpu::new(sysfs::gpu_id(gpu), &shared, &config));
        let process = Arc::new(Self {
            space: AddressSpace::of_driver(config.page_bytes),
            sysfs: Sysfs::new(&config),
            gpus: (0..config.gpus).map(card).collect(),
            state: Mutex::new(State::new(&config, &machine)?),
            pid: machine.next_pid.fetch_add(1, Ordering::Relaxed),
            is_first,
            config,
            events: shared.events,
            clock: shared.clock,
            reports: shared.reports,
            machine: Arc::clone(&machine),
        });
        lock(&machine.processes).push(Arc::downgrade(&process));
        Ok(process)
    }

    /// Another process of the same machine. Of this one's files it inherits the dma-bufs that exec
    /// leaves open.
    ///
    /// # Errors
    /// `ENOMEM`, `EMFILE`.
    pub fn another_process(&self) -> Result<Arc<Self>, Errno> {
        let other = Self::of_machine(self.config.clone(), Arc::clone(&self.machine), false)?;
        let inherited = |(fd, file): (&i32, &Open)| {
            matches!(file, Open::Dmabuf { cloexec: false, .. }).then(|| (*fd, file.clone()))
        };
        let files: Vec<(i32, Open)> = self.state().files.iter().filter_map(inherited).collect();
        other.state().files.extend(files);
        Ok(other)
    }

    /// The number of the process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Buffers and queues of processes that ended, which the driver has not given back.
    #[must_use]
    pub fn left_over_of_the_dead(&self) -> (usize, usize) {
        lock(&self.machine.kept).iter().map(|kept| kept.left_over()).fold((0, 0), |(a, b), (c, d)| (a + c, b + d))
    }

    /// The process ends, by itself or killed: what sleeps in a call wakes up, and everything that it had is given back.
    pub fn end_process(self: &Arc<Self>) {
        self.events.end();
        if self.config.defect == Some(Defect::DeathSpreads) {
            let others = self.machine.processes().into_iter().filter(|other| other.pid != self.pid);
            others.for_each(|other| other.stop_queues());
        }
        if self.config.defect == Some(Defect::DeathKeeps) {
            lock(&self.machine.kept).push(Arc::clone(self));
            return;
        }
        self.give_back();
    }

    /// Gives everything back that the process has.
    pub(super) fn give_back(&self) {
        self.end_queues();
        let mut state = self.state();
        state.files.clear();
        for (device, used) in state.devices.iter_mut().zip(&self.machine.vram_used) {
            let bytes = device.bos.values().filter(|bo| bo.vram_of.is_some()).map(|bo| bo.len_bytes).sum();
            used.fetch_sub(bytes, Ordering::Relaxed);
            device.bos.clear();
        }
    }

    fn stop_queues(&self) {
        self.gpus.iter().for_each(|gpu| gpu.queues().values().for_each(|queue| queue.evict()));
    }

    /// Takes all queues off the cards for good.
    fn end_queues(&self) {
        for gpu in &self.gpus {
            let queues = std::mem::take(&mut *gpu.queues());
            queues.values().for_each(|queue| {
                queue.destroy();
            });
        }
    }

    /// What a child of fork(2) sees: one call on an inherited file, and whether an address is mapped. Then it ends.
    ///
    /// # Errors
    /// `EBADF` for a file that this process has not open.
    pub fn forked(&self, fd: Fd, request: u32, arg: &mut [u8], at: CpuPtr) -> Result<Forked, Errno> {
        let file = self.state().files.get(&fd.0).cloned().ok_or(Errno::EBADF)?;
        let answer = match file {
            Open::Kfd { .. } if self.config.defect == Some(Defect::ForkMayCall) => self.kfd_ioctl(request, arg),
            // The driver's state is that of the process that opened the file.
            Open::Kfd { .. } => Err(Errno::EBADF),
            Open::Render { gpu, .. } => self.render_ioctl(gpu, request, arg),
            Open::Dmabuf { .. } => Err(Errno::ENOTTY),
        };
        let is_doorbell = self.state().doorbell_maps.iter().any(|map| at.0.wrapping_sub(map.at.0) < map.len_bytes);
        let stays = !is_doorbell || self.config.defect == Some(Defect::ForkCopiesDoorbells);
        let mapped = is_mapped(&self.space, at) && stays;
        if self.config.defect == Some(Defect::ForkEnds) {
            self.stop_queues();
        }
        Ok(Forked { answer, mapped })
    }

    /// The machine goes to sleep: all queues of all processes are off the hardware until it wakes up.
    pub fn suspend(&self) {
        for process in self.machine.processes() {
            process.set_asleep(true);
            if self.config.defect == Some(Defect::SuspendLosesVram) {
                let state = process.state();
                let lost =
                    state.devices.iter().flat_map(|device| device.bos.values()).filter(|bo| bo.vram_of.is_some());
                lost.for_each(|bo| {
                    let _in_range = bo.view.fill(0, bo.len_bytes, 0);
                });
            }
        }
    }

    /// The machine wakes up: queues go on where they were.
    pub fn resume(&self) {
        if self.config.defect != Some(Defect::ResumeForgets) {
            self.machine.processes().iter().for_each(|process| process.set_asleep(false));
        }
    }

    fn set_asleep(&self, asleep: bool) {
        let queues = self.gpus.iter().flat_map(|gpu| gpu.queues().values().map(Arc::clone).collect::<Vec<_>>());
        queues.for_each(|queue| queue.change(|control| control.asleep = asleep));
    }

    /// A signal stops the process and another one lets it go on: a wait is begun again.
    pub fn stop_and_continue(&self) {
        self.events.restart_next_wait();
    }

    /// The processes that have the driver open.
    pub(super) fn process_list(&self, path: &str) -> Option<Vec<String>> {
        let is_open = |process: &Arc<Self>| process.state().files.values().any(|f| matches!(f, Open::Kfd { .. }));
        let list = || self.machine.processes().iter().filter(|p| is_open(p)).map(|p| p.pid.to_string()).collect();
        (path == PROCESSES).then(list)
    }

    /// The machine ends with its first process.
    pub(super) fn forget_the_dead(&self) {
        if self.is_first {
            lock(&self.machine.kept).clear();
        }
    }
}

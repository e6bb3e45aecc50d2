//! The software KFD: a `Port` that serves /dev/kfd, render nodes and topology of a chosen chip, and executes the
//! packets of its queues.
//!
//! Place in the arrows: implements `ioctl`'s `Port`; parses with `hcq::packet`; passes dispatches to `emu::amdgpu`
//! through [`compute`]. Source: docs/amd.md 1, 2, 3, 6, 7; the amdkfd driver of Linux 6.12 for checks and error
//! numbers. Left out: what the module heads list; GPU stores to doorbells do not wake queues. A port is one process;
//! [`SoftKfd::another_process`] is one beside it.
//!
//! Client → [`SoftKfd`] (ioctls, mappings) → [`gpu`] (page table, queues) → `cp` (packets, one thread a queue) →
//! compute units.

mod caching;
mod chip;
mod clock;
mod compared;
pub mod compute;
mod config;
mod cp;
mod create;
mod defect;
mod driver;
mod event;
mod gpu;
mod memory;
mod process;
mod queue;
mod render;
mod report;
mod sysfs;
mod units;

pub use super::vm;

pub use chip::{Chip, ChipFacts, facts_of};
pub use clock::GpuClock;
pub use config::Config;
pub use defect::Defect;
pub use report::{Report, ReportKind};
pub(crate) use units::ComputeUnits;

use compute::Compute;
use doorbell_ioctl::abi::kfd::{MMAP_TYPE_DOORBELL, MMAP_TYPE_MMIO, MMAP_TYPE_SHIFT};
use doorbell_ioctl::port::{
    AddressSpace, Backing as PortBacking, CpuPtr, Errno, Fd, KERNEL_LOG, MapRequest, OpenFlags, PollFd, Port,
};
use driver::{DoorbellMap, Open, State};
use event::Events;
use gpu::Gpu;
use memory::{Backing, mmap_gpu_bits};
use process::Machine;
use report::Reports;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use sysfs::{FIRST_RENDER_MINOR, Sysfs};

/// A process on a machine with AMD cards and their driver, in software.
#[derive(Debug)]
pub struct SoftKfd {
    config: Config,
    space: AddressSpace,
    sysfs: Sysfs,
    gpus: Vec<Arc<Gpu>>,
    events: Arc<Events>,
    clock: Arc<GpuClock>,
    reports: Arc<Reports>,
    state: Mutex<State>,
    machine: Arc<Machine>,
    pid: u32,
    is_first: bool,
}

impl SoftKfd {
    /// A machine whose cards execute machine code.
    ///
    /// # Errors
    /// `ENOMEM`, `EMFILE`.
    pub fn new(config: Config) -> Result<Arc<Self>, Errno> {
        let units = ComputeUnits::new(config.waves, config.translation.clone()).twice(config.compare);
        Self::with_compute(config, Arc::new(units))
    }

    /// A machine whose cards run dispatches on `compute`.
    ///
    /// # Errors
    /// `ENOMEM`, `EMFILE`.
    pub fn with_compute(config: Config, compute: Arc<dyn Compute>) -> Result<Arc<Self>, Errno> {
        let machine = Machine::new(&config, compute);
        Self::of_machine(config, machine, true)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the machine has found so far: page faults, hung queues, resets, unmodelled calls, strict mode's findings.
    #[must_use]
    pub fn reports(&self) -> Vec<Report> {
        self.reports.all()
    }

    /// The next WAIT_EVENTS that would sleep ends with `EINTR`, as when a signal arrives.
    pub fn interrupt_next_wait(&self) {
        self.events.interrupt_next_wait();
    }

    /// Files that the process has open.
    #[must_use]
    pub fn open_files(&self) -> usize {
        self.state().files.len()
    }

    /// Buffers and queues that the process has not given back.
    #[must_use]
    pub fn left_over(&self) -> (usize, usize) {
        let buffers = self.state().devices.iter().map(|d| d.bos.len()).sum();
        (buffers, self.gpus.iter().map(|gpu| gpu.queues().len()).sum())
    }

    /// The open file, as far as this process may use it.
    fn file(&self, fd: Fd) -> Result<Open, Errno> {
        let file = self.state().files.get(&fd.0).cloned().ok_or(Errno::EBADF)?;
        match file {
            Open::Kfd { pid } if pid != std::process::id() => Err(Errno::EBADF),
            file => Ok(file),
        }
    }

    /// mmap of a render node: a whole buffer or its front, named by its offset.
    fn map_buffer(&self, gpu: usize, map: &MapRequest) -> Result<CpuPtr, Errno> {
        let state = self.state();
        let named = |bo: &&memory::Bo| bo.mmap_offset == map.offset && matches!(bo.backing, Backing::Shared(_));
        let bo = state.devices[gpu].bos.values().find(named).ok_or(Errno::EINVAL)?;
        match &bo.backing {
            Backing::Shared(memory) if map.len_bytes <= bo.len_bytes => {
                self.space.map(map, PortBacking::Shared(memory, 0))
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// mmap of the kfd file: doorbells or the HDP page of the card that the offset names.
    fn map_kfd(&self, map: &MapRequest) -> Result<CpuPtr, Errno> {
        let card = |gpu: &Arc<Gpu>| mmap_gpu_bits(gpu.gpu_id) == map.offset & mmap_gpu_bits(u32::MAX);
        let gpu = self.gpus.iter().position(card).ok_or(Errno::EINVAL)?;
        let (mut state, page) = (self.state(), self.config.page_bytes);
        match map.offset >> MMAP_TYPE_SHIFT {
            MMAP_TYPE_DOORBELL if map.len_bytes.next_multiple_of(page) == self.config.doorbell_slice() => {
                let at = self.space.map(map, PortBacking::Shared(&state.devices[gpu].doorbells, 0))?;
                forget_doorbells(&mut state, at, map.len_bytes);
                state.doorbell_maps.push(DoorbellMap { at, len_bytes: map.len_bytes, gpu });
                Ok(at)
            }
            MMAP_TYPE_MMIO if map.len_bytes.next_multiple_of(page) == page => {
                self.space.map(map, PortBacking::Shared(&state.devices[gpu].mmio, 0))
            }
            _ => Err(Errno::EINVAL),
        }
    }
}

/// Doorbell mappings in this range are there no more.
fn forget_doorbells(state: &mut State, at: CpuPtr, len_bytes: u64) {
    let end = at.0.saturating_add(len_bytes);
    state.doorbell_maps.retain(|m| m.at.0 >= end || m.at.0 + m.len_bytes <= at.0);
}

impl Port for SoftKfd {
    fn open(&self, path: &str, _flags: OpenFlags) -> Result<Fd, Errno> {
        let mut state = self.state();
        if path == "/dev/kfd" {
            return Ok(Fd(state.open(Open::Kfd { pid: std::process::id() })));
        }
        let minor = path.strip_prefix("/dev/dri/renderD").and_then(|minor| minor.parse::<usize>().ok());
        let gpu = minor.and_then(|minor| minor.checked_sub(FIRST_RENDER_MINOR)).filter(|gpu| *gpu < self.gpus.len());
        let gpu = gpu.ok_or(Errno::ENOENT)?;
        let file = state.next_file;
        state.next_file += 1;
        Ok(Fd(state.open(Open::Render { gpu, file })))
    }

    fn close(&self, fd: Fd) -> Result<(), Errno> {
        self.state().files.remove(&fd.0).map(|_| ()).ok_or(Errno::EBADF)
    }

    fn ioctl(&self, fd: Fd, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
        match self.file(fd)? {
            Open::Kfd { .. } => self.kfd_ioctl(request, arg),
            Open::Render { gpu, .. } => self.render_ioctl(gpu, request, arg),
            Open::Dmabuf { .. } => Err(Errno::ENOTTY),
        }
    }

    fn mmap(&self, map: &MapRequest) -> Result<CpuPtr, Errno> {
        let Some(fd) = map.fd else { return self.space.map(map, PortBacking::Anonymous) };
        match self.file(fd)? {
            Open::Kfd { .. } => self.map_kfd(map),
            Open::Render { gpu, .. } => self.map_buffer(gpu, map),
            Open::Dmabuf { bo, .. } => match &bo.backing {
                Backing::Shared(memory) => self.space.map(map, PortBacking::Shared(memory, map.offset)),
                Backing::User(_) => Err(Errno::EINVAL),
            },
        }
    }

    fn munmap(&self, addr: CpuPtr, len_bytes: u64) -> Result<(), Errno> {
        // Another thread may map the range again as soon as it is free.
        let mut state = self.state();
        self.space.unmap(addr, len_bytes)?;
        forget_doorbells(&mut state, addr, len_bytes);
        self.revoke_user_memory(&state, addr, len_bytes);
        Ok(())
    }

    /// None of these files is ever ready.
    fn poll(&self, fds: &mut [PollFd], timeout_ms: i32) -> Result<usize, Errno> {
        for p in &*fds {
            self.file(p.fd)?;
        }
        // TIMEOUT: the caller's own; no event can end it earlier.
        std::thread::sleep(Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(u64::MAX)));
        Ok(0)
    }

    fn read_file(&self, path: &str) -> Result<Vec<u8>, Errno> {
        if path == KERNEL_LOG { Ok(self.reports.kernel_log().into_bytes()) } else { self.sysfs.read(path) }
    }

    fn read_dir(&self, path: &str) -> Result<Vec<String>, Errno> {
        self.process_list(path).map_or_else(|| self.sysfs.list(path), Ok)
    }

    fn page_bytes(&self) -> u64 {
        self.config.page_bytes
    }

    fn doorbell(&self, at: CpuPtr, value: u64) {
        let map = self.state().doorbell_maps.iter().find(|m| at.0.wrapping_sub(m.at.0) < m.len_bytes).copied();
        if let Some(DoorbellMap { at: base, gpu, .. }) = map {
            self.gpus[gpu].ring(at.0 - base.0, value);
        }
    }
}

impl Drop for SoftKfd {
    fn drop(&mut self) {
        self.give_back();
        self.forget_the_dead();
    }
}

//! The ioctls of /dev/kfd: which handler a request word selects, how its struct is copied, and what each one returns.
//!
//! Source: docs/amd.md 1.1-1.3, 6.1; `kfd_chardev.c`. Handlers are chosen by number alone; a shorter struct is extended
//! with zeros, a longer one is cut. Left out (a named report and ENOSYS, which no kernel gives): GET_TILE_CONFIG,
//! GET_QUEUE_WAVE_STATE of stopped queues, SMI_EVENTS, DBG_TRAP. SVM returns EPERM, as a kernel built without it;
//! CRIU_OP EACCES, as without the capability.

use super::config::Config;
use super::defect::Defect;
use super::memory::{Bo, GPUVM_BASE, GPUVM_LIMIT, handle_gpu};
use super::process::Machine;
use super::report::ReportKind;
use super::{SoftKfd, sysfs};
use crate::kfd::chip::facts_of;
use bytemuck::Pod;
use doorbell_ioctl::abi::kfd::{self, EventData, ProcessDeviceApertures};
use doorbell_ioctl::abi::{Desc, request_len_bytes, request_number};
use doorbell_ioctl::port::{CpuPtr, Errno, SharedMemory, monotonic_ns, read_process, write_process};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const LDS_BASE: u64 = 0x1_0000_0000_0000;
const SCRATCH_BASE: u64 = 0x2_0000_0000_0000;
const APERTURE_LAST: u64 = 0xffff_ffff;
/// The removed debugger calls: they have handlers that refuse.
const REMOVED: std::ops::RangeInclusive<u8> = 0x0d..=0x10;
const MAJOR: u32 = 1;
const NS_PER_SECOND: u64 = 1_000_000_000;
const TIMEOUT_FOR_EVER: u32 = u32::MAX;
const TIMEOUT_MOST_MS: u32 = 0x7fff_ffff;
/// A wait for more events than that needs more memory than the kernel gives.
const WAIT_EVENTS_MOST: u32 = 1 << 16;
const RUNTIME_MODE_ENABLE: u32 = 1;

/// The process's state on one card.
#[derive(Debug)]
pub(crate) struct Device {
    /// Open file of the render node that the address space belongs to.
    pub vm_file: Option<u64>,
    pub bos: BTreeMap<u32, Bo>,
    /// VRAM in use on the card, of all processes.
    pub vram_used: Arc<AtomicU64>,
    /// The doorbell slice.
    pub doorbells: Arc<SharedMemory>,
    /// The page of HDP registers.
    pub mmio: Arc<SharedMemory>,
}

/// An open file.
#[derive(Clone, Debug)]
pub(crate) enum Open {
    /// /dev/kfd, and the process that opened it.
    Kfd { pid: u32 },
    /// A render node; every open is a file of its own.
    Render { gpu: usize, file: u64 },
    /// A dma-buf, and whether exec closes it.
    Dmabuf { bo: Box<Bo>, owner: usize, cloexec: bool },
}

/// A doorbell slice that the process has mapped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DoorbellMap {
    pub at: CpuPtr,
    pub len_bytes: u64,
    pub gpu: usize,
}

/// The driver's state.
#[derive(Debug)]
pub(crate) struct State {
    pub files: BTreeMap<i32, Open>,
    pub next_file: u64,
    pub devices: Vec<Device>,
    pub doorbell_maps: Vec<DoorbellMap>,
    queue_ids: BTreeSet<u32>,
    runtime_enabled: bool,
    xnack: bool,
}

/// Numbers of open files start here, where they are not mistaken for the process's own.
const FIRST_FD: i32 = 1000;

impl State {
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn new(config: &Config, machine: &Machine) -> Result<Self, Errno> {
        let device = |gpu| {
            Ok(Device {
                vm_file: None,
                bos: BTreeMap::new(),
                vram_used: machine.vram_used(gpu),
                doorbells: Arc::new(SharedMemory::new(config.doorbell_slice())?),
                mmio: Arc::new(SharedMemory::new(config.page_bytes)?),
            })
        };
        Ok(Self {
            files: BTreeMap::new(),
            next_file: 1,
            devices: (0..config.gpus).map(device).collect::<Result<_, Errno>>()?,
            doorbell_maps: Vec::new(),
            queue_ids: BTreeSet::new(),
            runtime_enabled: false,
            xnack: false,
        })
    }

    /// A number for an open file, the lowest that is free.
    pub(crate) fn open(&mut self, file: Open) -> i32 {
        let fd = (FIRST_FD..).find(|fd| !self.files.contains_key(fd)).unwrap_or(i32::MAX);
        self.files.insert(fd, file);
        fd
    }

    pub(crate) fn open_dmabuf(&mut self, bo: Bo, owner: usize, cloexec: bool) -> i32 {
        self.open(Open::Dmabuf { bo: Box::new(bo), owner, cloexec })
    }

    /// The buffer of a dma-buf, and its card.
    pub(crate) fn dmabuf(&self, fd: u32) -> Option<(Bo, usize)> {
        match self.files.get(&i32::try_from(fd).ok()?)? {
            Open::Dmabuf { bo, owner, .. } => Some(((**bo).clone(), *owner)),
            _ => None,
        }
    }

    /// The lowest free queue id.
    pub(crate) fn take_queue_id(&mut self) -> u32 {
        let id = (0..).find(|id| !self.queue_ids.contains(id)).unwrap_or(u32::MAX);
        self.queue_ids.insert(id);
        id
    }

    pub(crate) fn give_queue_id(&mut self, id: u32) {
        self.queue_ids.remove(&id);
    }
}

/// Which card has the id.
pub(crate) fn device_index(driver: &SoftKfd, gpu_id: u32) -> Option<usize> {
    driver.gpus.iter().position(|gpu| gpu.gpu_id == gpu_id)
}

/// Refuses a card whose address space was not acquired.
pub(crate) fn bound(state: &State, index: usize, errno: Errno) -> Result<(), Errno> {
    state.devices.get(index).and_then(|d| d.vm_file).map(|_| ()).ok_or(errno)
}

/// Runs a handler over the struct in `bytes`; what it changed is stored whether it fails or not.
fn with<T: Pod>(bytes: &mut [u8], handler: impl FnOnce(&mut T) -> Result<(), Errno>) -> Result<(), Errno> {
    // PANIC: the buffer has at least the length of the description's struct.
    let head = bytes.get_mut(..size_of::<T>()).expect("a whole struct");
    let mut args: T = bytemuck::pod_read_unaligned(head);
    let result = handler(&mut args);
    head.copy_from_slice(bytemuck::bytes_of(&args));
    result
}

impl SoftKfd {
    /// The description that a number has at this interface minor.
    fn description(&self, number: u8) -> Result<&'static Desc, Errno> {
        let minor = self.config.kfd_minor;
        if number == 0 || number > kfd::last_number(minor) {
            return Err(Errno::ENOTTY);
        }
        if REMOVED.contains(&number) {
            return Err(Errno::EPERM);
        }
        let valid = |d: &&&Desc| {
            request_number(d.request) == number && d.since <= minor && d.until.is_none_or(|last| minor <= last)
        };
        kfd::TABLE.iter().find(valid).copied().ok_or(Errno::EINVAL)
    }

    pub(super) fn kfd_ioctl(&self, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
        let desc = self.description(request_number(request))?;
        let theirs = request_len_bytes(request);
        let user = arg.get_mut(..theirs).ok_or(Errno::EFAULT)?;
        let ours = desc.layout.len_bytes as usize;
        let mut bytes = vec![0; ours.max(theirs).max(size_of::<kfd::CreateQueue>())];
        let (copies_in, copies_out) = (desc.request >> 30 & 1 != 0, desc.request >> 30 & 2 != 0);
        if copies_in {
            bytes[..theirs].copy_from_slice(user);
            // A longer struct of a newer program: the rest is not looked at.
            if ours < theirs {
                bytes[ours..].fill(0);
            }
        }
        let result = self.handle(desc, &mut bytes);
        if copies_out {
            user[..theirs.min(ours)].copy_from_slice(&bytes[..theirs.min(ours)]);
        }
        result.map(|()| 0)
    }

    fn handle(&self, desc: &'static Desc, bytes: &mut [u8]) -> Result<(), Errno> {
        use doorbell_ioctl::abi::kfd as k;
        // The wait sleeps: it holds no lock of the driver.
        if desc.request == k::WAIT_EVENTS.desc.request {
            return with(bytes, |args| self.wait_events(args));
        }
        let mut state = self.state();
        let state = &mut *state;
        let is = |request: u32| desc.request == request;
        match () {
            () if is(k::GET_VERSION.desc.request) => with(bytes, |args: &mut k::GetVersion| {
                (args.major_version, args.minor_version) = (MAJOR, self.config.kfd_minor);
                Ok(())
            }),
            () if is(k::ACQUIRE_VM.desc.request) => with(bytes, |args| self.acquire_vm(state, args)),
            () if is(k::CREATE_QUEUE.desc.request) || is(k::CREATE_QUEUE_V11.desc.request) => {
                with(bytes, |args| self.create_queue(state, args))
            }
            () if is(k::DESTROY_QUEUE.desc.request) => {
                with(bytes, |args: &mut k::DestroyQueue| self.destroy_queue(state, args.queue_id))
            }
            () if is(k::UPDATE_QUEUE.desc.request) => with(bytes, |args: &mut k::UpdateQueue| self.update_queue(args)),
            () if is(k::SET_CU_MASK.desc.request) => with(bytes, |args: &mut k::SetCuMask| self.set_cu_mask(args)),
            () if is(k::ALLOC_MEMORY_OF_GPU.desc.request) => with(bytes, |args| self.alloc(state, args)),
            () if is(k::FREE_MEMORY_OF_GPU.desc.request) => {
                with(bytes, |args: &mut k::FreeMemoryOfGpu| self.free(state, args.handle))
            }
            () if is(k::MAP_MEMORY_TO_GPU.desc.request) => with(bytes, |args| self.map(state, args, true)),
            // The same struct under another name.
            () if is(k::UNMAP_MEMORY_FROM_GPU.desc.request) => with(bytes, |args| self.map(state, args, false)),
            () if is(k::EXPORT_DMABUF.desc.request) => with(bytes, |args| self.export_dmabuf(state, args)),
            () if is(k::IMPORT_DMABUF.desc.request) => with(bytes, |args| self.import_dmabuf(state, args)),
            () if is(k::GET_DMABUF_INFO.desc.request) => with(bytes, |args| self.dmabuf_info(state, args)),
            () if is(k::RUNTIME_ENABLE.desc.request) => with(bytes, |args| self.runtime_enable(state, args)),
            () if is(k::SET_XNACK_MODE.desc.request) => with(bytes, |args| self.set_xnack_mode(state, args)),
            () => self.handle_small(desc, state, bytes),
        }
    }

    /// Calls about events and facts.
    fn handle_small(&self, desc: &'static Desc, state: &State, bytes: &mut [u8]) -> Result<(), Errno> {
        use doorbell_ioctl::abi::kfd as k;
        let is = |request: u32| desc.request == request;
        match () {
            () if is(k::CREATE_EVENT.desc.request) => with(bytes, |args| self.create_event(state, args)),
            () if is(k::DESTROY_EVENT.desc.request) => {
                with(bytes, |args: &mut k::DestroyEvent| self.events.destroy(args.event_id))
            }
            () if is(k::SET_EVENT.desc.request) => {
                with(bytes, |args: &mut k::SetEvent| self.events.signal(args.event_id, true))
            }
            () if is(k::RESET_EVENT.desc.request) => {
                with(bytes, |args: &mut k::ResetEvent| self.events.signal(args.event_id, false))
            }
            () if is(k::GET_CLOCK_COUNTERS.desc.request) => with(bytes, |args| self.clock_counters(args)),
            () if is(k::GET_PROCESS_APERTURES.desc.request) => with(bytes, |args| self.apertures(args)),
            () if is(k::GET_PROCESS_APERTURES_NEW.desc.request) => with(bytes, |args| self.apertures_new(args)),
            () if is(k::AVAILABLE_MEMORY.desc.request) => with(bytes, |args: &mut k::GetAvailableMemory| {
                let index = device_index(self, args.gpu_id).ok_or(Errno::EINVAL)?;
                let counted = self.config.defect != Some(Defect::VramUncounted);
                let used = if counted { state.devices[index].vram_used.load(Ordering::Relaxed) } else { 0 };
                args.available = self.config.vram_bytes - used;
                Ok(())
            }),
            () if is(k::SET_MEMORY_POLICY.desc.request) => with(bytes, |args: &mut k::SetMemoryPolicy| {
                if args.default_policy > 1 || args.alternate_policy > 1 {
                    return Err(Errno::EINVAL);
                }
                self.check_bound(state, args.gpu_id, Errno::ESRCH)
            }),
            () if is(k::SET_TRAP_HANDLER.desc.request) => {
                with(bytes, |args: &mut k::SetTrapHandler| self.check_bound(state, args.gpu_id, Errno::ESRCH))
            }
            () if is(k::SET_SCRATCH_BACKING_VA.desc.request) => {
                with(bytes, |args: &mut k::SetScratchBackingVa| self.check_bound(state, args.gpu_id, Errno::ENODEV))
            }
            () if is(k::GET_QUEUE_WAVE_STATE.desc.request) => {
                with(bytes, |args: &mut k::GetQueueWaveState| self.wave_state(args.queue_id))
            }
            () if is(k::ALLOC_QUEUE_GWS.desc.request) => Err(Errno::ENODEV),
            () if is(k::SVM.desc.request) => Err(Errno::EPERM),
            () if is(k::CRIU_OP.desc.request) => Err(Errno::EACCES),
            () => Err(self.unmodelled(desc)),
        }
    }

    /// Reports it, and returns an error that no kernel gives here.
    pub(super) fn unmodelled(&self, desc: &Desc) -> Errno {
        let text = format!("{} exists and is not modelled", desc.name);
        self.gpus[0].report(ReportKind::Unmodelled, None, text);
        Errno::ENOSYS
    }

    fn check_bound(&self, state: &State, gpu_id: u32, errno: Errno) -> Result<(), Errno> {
        let index = device_index(self, gpu_id).ok_or(Errno::EINVAL)?;
        bound(state, index, errno)
    }

    fn acquire_vm(&self, state: &mut State, args: &mut kfd::AcquireVm) -> Result<(), Errno> {
        let fd = i32::try_from(args.drm_fd).map_err(|_| Errno::EINVAL)?;
        let opened = state.files.get(&fd).ok_or(Errno::EINVAL)?.clone();
        let index = device_index(self, args.gpu_id).ok_or(Errno::EINVAL)?;
        let Open::Render { gpu, file } = opened else { return Err(Errno::EINVAL) };
        let device = &mut state.devices[index];
        match device.vm_file {
            Some(bound) if bound == file => Ok(()),
            Some(_) => Err(Errno::EBUSY),
            None if gpu != index => Err(Errno::EINVAL),
            None => {
                device.vm_file = Some(file);
                Ok(())
            }
        }
    }

    fn create_event(&self, state: &State, args: &mut kfd::CreateEvent) -> Result<(), Errno> {
        let handle = args.event_page_offset;
        if handle != 0 {
            let index = device_index(self, handle_gpu(handle)).ok_or(Errno::EINVAL)?;
            let bo = state.devices[index].bo(handle).ok_or(Errno::EINVAL)?;
            self.events.set_page(bo.view.clone(), handle)?;
        }
        args.event_page_offset = 0;
        let id = self.events.create(args.event_type, args.auto_reset != 0)?;
        if matches!(args.event_type, kfd::EVENT_SIGNAL | kfd::EVENT_DEBUG) {
            args.event_page_offset = kfd::MMAP_TYPE_EVENTS << kfd::MMAP_TYPE_SHIFT;
            args.event_slot_index = id;
        }
        (args.event_id, args.event_trigger_data) = (id, id);
        Ok(())
    }

    fn wait_events(&self, args: &mut kfd::WaitEvents) -> Result<(), Errno> {
        args.wait_result = kfd::WAIT_RESULT_FAIL;
        if args.num_events > WAIT_EVENTS_MOST {
            return Err(Errno::ENOMEM);
        }
        let mut bytes = vec![0; args.num_events as usize * size_of::<EventData>()];
        read_process(CpuPtr(args.events_ptr), &mut bytes)?;
        let items = bytes.chunks_exact(size_of::<EventData>());
        let mut data: Vec<EventData> = items.map(bytemuck::pod_read_unaligned).collect();
        let timeout = match args.timeout {
            TIMEOUT_FOR_EVER => None,
            ms => Some(Duration::from_millis(u64::from(ms.min(TIMEOUT_MOST_MS)))),
        };
        args.wait_result = self.events.wait(&mut data, args.wait_for_all != 0, timeout)?;
        if args.wait_result == kfd::WAIT_RESULT_COMPLETE {
            write_process(CpuPtr(args.events_ptr), bytemuck::cast_slice(&data))?;
        }
        Ok(())
    }

    /// The three clocks; the host's two are the same monotonic one here.
    fn clock_counters(&self, args: &mut kfd::GetClockCounters) -> Result<(), Errno> {
        let known = device_index(self, args.gpu_id).is_some();
        args.gpu_clock_counter = if known { self.clock.ticks() } else { 0 };
        args.cpu_clock_counter = monotonic_ns();
        args.system_clock_counter = monotonic_ns();
        args.system_clock_freq = NS_PER_SECOND;
        Ok(())
    }

    fn aperture(&self, gpu: usize) -> ProcessDeviceApertures {
        ProcessDeviceApertures {
            lds_base: LDS_BASE,
            lds_limit: LDS_BASE + APERTURE_LAST,
            scratch_base: SCRATCH_BASE,
            scratch_limit: SCRATCH_BASE + APERTURE_LAST,
            gpuvm_base: GPUVM_BASE,
            gpuvm_limit: GPUVM_LIMIT,
            gpu_id: sysfs::gpu_id(gpu),
            pad: 0,
        }
    }

    fn apertures(&self, args: &mut kfd::GetProcessApertures) -> Result<(), Errno> {
        let count = self.gpus.len().min(args.process_apertures.len());
        for (gpu, slot) in args.process_apertures[..count].iter_mut().enumerate() {
            *slot = self.aperture(gpu);
        }
        args.num_of_nodes = count as u32;
        Ok(())
    }

    fn apertures_new(&self, args: &mut kfd::GetProcessAperturesNew) -> Result<(), Errno> {
        let have = self.gpus.len() as u32;
        if args.num_of_nodes == 0 {
            args.num_of_nodes = have;
            return Ok(());
        }
        let count = args.num_of_nodes.min(have);
        let all: Vec<ProcessDeviceApertures> = (0..count as usize).map(|gpu| self.aperture(gpu)).collect();
        write_process(CpuPtr(args.kfd_process_device_apertures_ptr), bytemuck::cast_slice(&all))?;
        args.num_of_nodes = count;
        Ok(())
    }

    fn runtime_enable(&self, state: &mut State, args: &mut kfd::RuntimeEnable) -> Result<(), Errno> {
        let enable = args.mode_mask & RUNTIME_MODE_ENABLE != 0;
        if enable && state.runtime_enabled {
            return Err(Errno::EBUSY);
        }
        if enable && self.gpus.iter().any(|gpu| !gpu.queues().is_empty()) {
            return Err(Errno::EEXIST);
        }
        state.runtime_enabled = enable;
        self.gpus.iter().for_each(|gpu| gpu.exceptions.store(enable, Ordering::Relaxed));
        args.capabilities_mask = 0;
        Ok(())
    }

    fn set_xnack_mode(&self, state: &mut State, args: &mut kfd::SetXnackMode) -> Result<(), Errno> {
        if args.xnack_enabled < 0 {
            args.xnack_enabled = i32::from(state.xnack);
            return Ok(());
        }
        if self.gpus.iter().any(|gpu| !gpu.queues().is_empty()) {
            return Err(Errno::EBUSY);
        }
        let on = args.xnack_enabled != 0;
        let has_retry = !facts_of(self.config.chip).gfx.table().gcr;
        if on && !has_retry {
            return Err(Errno::EPERM);
        }
        state.xnack = on;
        Ok(())
    }
}

//! NVIDIA GPUs over RM and UVM: no CUDA, only the kernel driver, through a [`Port`](doorbell_ioctl::port::Port).
//!
//! Layer: as any device; it uses `doorbell_ioctl`, `hcq::packet::nv` and `elf::cubin`. The port may be the running
//! kernel, a software GPU, or a wrapper of either; the code here is the same for all. Source: docs/nv.md (open kernel
//! modules 580.142, class headers, open-gpu-doc).
//! Shape: find (`find`, `chip`) → open (`driver`, `gpu`, `core`) → queues (`channel`, `queue`, `graph`, `watch`,
//! `events`) → memory (`paging`, `bo`, `local`) → programs (`program`, `launch`, `bank0`) → faults (`faults`) and
//! telemetry; the rest of queues and memory is `device::gpu`'s. Faults and hangs become reports; after a fault the
//! device refuses all work with an error.
//! Left out: MIG, confidential computing, recovery of a channel group, kernels that access a peer's memory.

mod bank0;
mod blocks;
mod bo;
mod channel;
mod chip;
mod core;
mod driver;
mod events;
mod faults;
mod find;
mod gpu;
mod graph;
mod launch;
mod local;
mod paging;
mod program;
mod queue;
mod telemetry;
mod watch;

pub use self::core::{Core, NvOptions};
pub use bank0::{Bank0, LaunchValues};
pub use bo::{Bo, Placement};
pub use channel::{Channel, Engine, Group, Notification};
pub use chip::{CHIPS, Chip};
pub use driver::{CTL_PATH, Driver, Outcome, RmError, UVM_PATH, explain};
pub use events::Events;
pub use faults::{code_name, describe, kernel_log};
pub use find::{Card, Selector, cards, uuid_text};
pub use gpu::{Gpu, GpuProperties, OpenError, STEPS, Step};
pub use launch::{LaunchError, Plan, Request, local_bytes};
pub use local::{LOCAL_WINDOW, SHARED_WINDOW};
pub use paging::PageTables;
pub use telemetry::Telemetry;
pub use watch::Debugger;

use super::gpu::encode::GpuCore;
use super::gpu::host_buffers::HostBuffers;
use super::gpu::pool::Pool;
use super::gpu::queue::{submit_runs, synchronize};
use super::gpu::recorded::GpuList;
use super::gpu::staging::{Staging, upload_code};
use super::memory::check_wrapped;
use super::{
    Command, CopyEngine, Device, DeviceError, DeviceInfo, DeviceState, DeviceTag, Kernel, KernelImage, Location,
    Memory, MemoryParts,
};
use super::{QueueKind, Recorded, Stamp, Uses, no_engine, record_by_resubmission};
use doorbell_hcq::memory::View;
use doorbell_hcq::packet::GpuVa;
use doorbell_hcq::packet::nv::copy::Element;
use doorbell_hcq::signal::Point;
use doorbell_ioctl::abi::nvrm;
use program::{CubinImage, LoadedKernel, Templates};
use queue::NvQueue;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// An open GPU.
pub struct NvDevice {
    tag: DeviceTag,
    info: DeviceInfo,
    inner: Arc<Inner>,
}

/// The shared part of the device, which recorded lists and memories keep alive.
struct Inner {
    core: Arc<Core>,
    pool: Arc<Pool>,
    compute: Arc<NvQueue>,
    copy: Arc<NvQueue>,
    /// Queues on chosen copy engines, those that were used, with the engines' numbers.
    engines: Mutex<Vec<(u8, Arc<NvQueue>)>>,
    // The channels' groups: freed after them.
    groups: Mutex<Vec<Arc<Group>>>,
    /// The debugger object, which is queried for exceptions.
    debugger: Mutex<Option<u32>>,
    staging: Staging,
    // Buffers mapped by both host and GPU, kept until their last handle is dropped.
    host: Arc<HostBuffers<Bo>>,
}

impl std::fmt::Debug for NvDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NvDevice({}, {}, {} SMs)", self.tag, self.info.arch, self.info.threads)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl NvDevice {
    /// Opens the GPU that `selector` names on a driver's connection. If UVM refuses a step, RM manages the page tables
    /// instead, if the options allow it.
    ///
    /// # Errors
    /// `Unavailable`: no such GPU, or an unknown chip; `Rm` with the step and the call that was refused.
    pub fn open(
        name: &str,
        driver: &Arc<Driver>,
        selector: &Selector,
        options: &NvOptions,
    ) -> Result<Self, DeviceError> {
        let refused =
            |what: &'static str| move |source| DeviceError::Rm { device: name.into(), what, source: Box::new(source) };
        let cards = cards(driver).map_err(refused("list cards"))?;
        let card = selector.pick(&cards, driver).map_err(refused("ask for UUIDs"))?.ok_or_else(|| {
            let found: Vec<&str> = cards.iter().map(|c| c.bdf.as_str()).collect();
            let why = format!("no such GPU; there are {}: {}", cards.len(), found.join(", "));
            DeviceError::Unavailable { name: name.into(), why }
        })?;
        match Self::bring_up(name, driver, card, options) {
            Err(DeviceError::Rm { what, source, .. })
                if source.is_uvm_call() && options.tables == PageTables::UvmOrRm =>
            {
                log::warn!("{name}: {what}: {source}; RM alone fills the page tables");
                Self::bring_up(name, driver, card, &NvOptions { tables: PageTables::Rm, ..options.clone() })
            }
            opened => opened,
        }
    }

    /// Brings up a card, its queues and the device over them.
    fn bring_up(name: &str, driver: &Arc<Driver>, card: &Card, options: &NvOptions) -> Result<Self, DeviceError> {
        let tag = DeviceTag::new(name);
        let core = Core::open(tag.clone(), driver, card, options.clone())?;
        let group = Group::new(&core)?;
        let compute = queue::open(&core, &group, QueueKind::Compute)?;
        let (copy, own) = copy_queue(&core, &group)?;
        compute.watch().set_peer(&copy);
        copy.watch().set_peer(&compute);
        let groups = std::iter::once(group).chain(own).collect();
        let info = DeviceInfo {
            arch: core.gpu.chip.name.into(),
            threads: core.gpu.properties.sms,
            memory_bytes: core.gpu.properties.vram_bytes,
        };
        let (pool, groups) = (Pool::new(Arc::clone(&core) as _), Mutex::new(groups));
        let (debugger, staging, host) = (Mutex::default(), Staging::default(), Arc::default());
        let inner =
            Arc::new(Inner { core, pool, compute, copy, engines: Mutex::default(), groups, debugger, staging, host });
        // From here on the device's drop cleans up after a failure.
        let device = Self { tag, info, inner };
        device.inner.start()?;
        Ok(device)
    }

    /// The GPU that was opened.
    #[must_use]
    pub fn gpu(&self) -> &Gpu {
        &self.inner.core.gpu
    }

    /// Current clocks, memory and errors, as the driver reports them.
    #[must_use]
    pub fn telemetry(&self) -> Telemetry {
        Telemetry::read(&self.inner.core.gpu)
    }

    /// Allocates memory that is also mapped for the host, for copies without staging: pages of this process that the
    /// driver pins, the driver's own system memory, or VRAM through BAR1.
    ///
    /// # Errors
    /// `OutOfMemory`, `Unsupported` for VRAM that is not mapped.
    pub fn alloc_host(&self, len_bytes: u64, placement: Placement) -> Result<Memory, DeviceError> {
        let core = &self.inner.core;
        core.check_open()?;
        if placement == Placement::Vram {
            return Err(core.cannot("show VRAM to the host that is not mapped".into()));
        }
        let bo = core.bo(len_bytes, placement).map_err(|e| DeviceError::OutOfMemory {
            device: self.tag.name().into(),
            asked: len_bytes,
            used: self.inner.pool.used_bytes(),
            why: e.to_string(),
        })?;
        self.memory_of_buffer(bo, len_bytes)
    }

    /// Makes a host-mapped buffer into a `Memory`; the buffer is freed with the last handle.
    fn memory_of_buffer(&self, bo: Bo, len_bytes: u64) -> Result<Memory, DeviceError> {
        let view = self.inner.core.view_of("host memory", &bo)?.sub(0, len_bytes)?;
        let va = bo.va();
        self.inner.host.keep(bo);
        Ok(Memory::new(MemoryParts {
            device: self.tag.clone(),
            va,
            len_bytes,
            host: Some(view),
            uses: Uses::new(Some(Arc::clone(self.inner.compute.timeline()))),
            release: Some(Arc::clone(&self.inner.host) as _),
        }))
    }

    /// Fills memory with a repeated value of 1, 2, 4 or 8 bytes, on the copy engine.
    ///
    /// # Errors
    /// `Unsupported` for another value size, or if address or length is not a multiple of it; the errors of a
    /// submission.
    pub fn fill(&self, dst: &Location, value: u64, value_bytes: u32, len_bytes: u64) -> Result<Point, DeviceError> {
        let element = [Element::B1, Element::B2, Element::B4, Element::B8];
        let element = element.into_iter().find(|e| e.len_bytes() == value_bytes);
        let unit = u64::from(value_bytes.max(1));
        match element {
            Some(element) if dst.va().is_multiple_of(unit) && len_bytes.is_multiple_of(unit) => {
                queue::fill(&self.inner.copy, dst, value, element, len_bytes / unit)
            }
            _ => Err(self.inner.core.cannot(format!("fill {len_bytes} bytes with values of {value_bytes}"))),
        }
    }

    fn load_one(&self, image: &KernelImage<'_>) -> Result<Kernel, DeviceError> {
        let core = &self.inner.core;
        let bad = |why: String| DeviceError::Load { device: self.tag.name().into(), kernel: image.name.into(), why };
        let cubin_image = CubinImage::read(image, core.gpu.chip).map_err(bad)?;
        let len_bytes = cubin_image.cubin.size() as u64;
        let code = Arc::new(core.own_bo("code", len_bytes, Placement::Vram)?);
        let va = code.va();
        let bytes = cubin_image.cubin.image(va).map_err(|e| bad(e.to_string()))?;
        let entry = va + cubin_image.kernel.code_offset;
        let (name, code_sm, image_va) = (image.name.into(), cubin_image.cubin.sm, GpuVa(va));
        let kernel = cubin_image.kernel;
        let program = LoadedKernel { name, kernel, code_sm, image: image_va, code, templates: Templates::default() };
        let kernel = Kernel::new(self.tag.clone(), image.name, entry, Arc::new(program));
        upload_code(self, va, &bytes, core.options.submit_timeout)?;
        core.note_code();
        Ok(kernel)
    }
}

/// Opens the copy queue on an engine of its own, with that engine's group. If there is none or the driver refuses a
/// step, the copy queue shares the graphics engine's runlist.
fn copy_queue(core: &Arc<Core>, shared: &Arc<Group>) -> Result<(Arc<NvQueue>, Option<Arc<Group>>), DeviceError> {
    if core.options.own_copy_engine {
        let own = Group::of_own_copy_engine(core);
        let running = |group: Arc<Group>| Ok((running_queue(core, &group, QueueKind::Copy)?, group));
        match own.and_then(|group| group.map(running).transpose()) {
            Ok(Some((queue, group))) => return Ok((queue, Some(group))),
            Ok(None) => log::debug!("{}: no copy engine beside the graphics engine", core.tag),
            Err(e) => log::warn!("{}: copies share the graphics engine: {e}", core.tag),
        }
    }
    Ok((queue::open(core, shared, QueueKind::Copy)?, None))
}

/// Opens a copy queue in a group of its own, and waits for its engine to answer.
fn running_queue(core: &Arc<Core>, group: &Arc<Group>, kind: QueueKind) -> Result<Arc<NvQueue>, DeviceError> {
    let queue = queue::open(core, group, kind)?;
    group.schedule().map_err(|e| core.refused("schedule the copy channel", e))?;
    queue::start(&queue)?;
    Ok(queue)
}

impl Inner {
    /// Schedules the channels, waits for both to answer, and creates the debugger object for exceptions. A copy queue
    /// on an engine of its own is already scheduled.
    fn start(&self) -> Result<(), DeviceError> {
        let shares = {
            let groups = locked(&self.groups);
            let shared = groups.first().map_or(Ok(()), |group| group.schedule());
            shared.map_err(|e| self.core.refused("schedule channels", e))?;
            groups.len() == 1
        };
        queue::start(&self.compute)?;
        if shares {
            queue::start(&self.copy)?;
        }
        let (gpu, driver) = (&self.core.gpu, &self.core.gpu.driver);
        let [channel, h_class3d_object] = queue::engine_of(&self.compute).unwrap_or_default();
        let mut params = nvrm::DebuggerAlloc { h_app_client: driver.client(), h_class3d_object, ..Default::default() };
        match driver.alloc(gpu.device, nvrm::GT200_DEBUGGER, Some(&mut params)) {
            Ok(handle) => {
                *locked(&self.debugger) = Some(handle);
                // Either queue may be the first to notice that the group failed.
                self.queues().into_iter().for_each(|queue| queue.watch().set_debugger(Debugger { handle, channel }));
            }
            Err(e) => log::debug!("{}: exceptions are not reported in detail: {e}", self.core.tag),
        }
        Ok(())
    }

    fn queues(&self) -> Vec<Arc<NvQueue>> {
        let engines = locked(&self.engines);
        [&self.compute, &self.copy].into_iter().chain(engines.iter().map(|(_, queue)| queue)).cloned().collect()
    }

    /// The queue on a copy engine, created on first use.
    fn engine_queue(&self, number: u8) -> Result<Arc<NvQueue>, DeviceError> {
        let (core, kind) = (&self.core, QueueKind::CopyEngine(number));
        let mut engines = locked(&self.engines);
        if let Some((_, queue)) = engines.iter().find(|(own, _)| *own == number) {
            return Ok(Arc::clone(queue));
        }
        core.check_open()?;
        let Some(engine) = Engine::of_gpu(core)?.into_iter().find(|engine| engine.number() == number) else {
            return Err(no_engine(&core.tag, number));
        };
        let group = Group::of_copy_engine(core, engine.engine_type)?;
        let queue = running_queue(core, &group, kind)?;
        queue.watch().set_peer(&self.compute);
        locked(&self.groups).push(group);
        engines.push((number, Arc::clone(&queue)));
        Ok(queue)
    }

    fn submit(&self, kind: QueueKind, commands: &[Command]) -> Result<Point, DeviceError> {
        match kind {
            QueueKind::Copy => self.copy.submit(commands, &[]),
            QueueKind::CopyEngine(number) => self.engine_queue(number)?.submit(commands, &[]),
            QueueKind::Compute if !commands.iter().any(Command::is_copy) => self.compute.submit(commands, &[]),
            QueueKind::Compute => submit_runs(&self.compute, &self.copy, commands),
        }
    }

    fn synchronize(&self, timeout: Duration) -> Result<(), DeviceError> {
        synchronize(self.queues(), timeout)
    }

    /// Waits for the queues' work, for `timeout` at most, ends the queues, then frees all memory that no handle holds.
    fn close_within(&self, timeout: Duration) -> Result<(), DeviceError> {
        let core = &self.core;
        if core.health.is_closed() {
            return Ok(());
        }
        let finished = if core.health.fault().is_some() { Ok(()) } else { self.synchronize(timeout) };
        core.health.close();
        let mut ended = Ok(());
        if let Some(debugger) = locked(&self.debugger).take() {
            let freed = core.gpu.driver.free(core.gpu.device, debugger);
            ended = freed.map_err(|e| core.refused("free the debugger", e));
        }
        for queue in self.queues() {
            ended = ended.and(queue.close());
        }
        core.end_events();
        locked(&self.groups).clear();
        self.staging.free();
        self.pool.close();
        core.free_signals();
        finished.and(ended)
    }
}

impl Device for NvDevice {
    fn tag(&self) -> &DeviceTag {
        &self.tag
    }

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn alloc(&self, len_bytes: u64) -> Result<Memory, DeviceError> {
        self.inner.core.check_open()?;
        self.inner.pool.alloc(&self.tag, self.inner.compute.timeline(), len_bytes)
    }

    fn alloc_pinned(&self, len_bytes: u64) -> Result<Memory, DeviceError> {
        self.alloc_host(len_bytes, Placement::Host)
    }

    /// The driver pins the pages until the last handle is dropped.
    fn wrap_host(&self, host: &View) -> Result<Memory, DeviceError> {
        let core = &self.inner.core;
        core.check_open()?;
        check_wrapped(&self.tag, host, core.gpu.driver.page_bytes())?;
        let bo = Bo::wrap(&core.gpu, host.clone()).map_err(|e| core.refused("wrap memory of the program", e))?;
        self.memory_of_buffer(bo, host.len_bytes())
    }

    fn copy_in(&self, dst: &Memory, offset: u64, src: &[u8]) -> Result<(), DeviceError> {
        self.inner.copy.check_range(&dst.at(offset), src.len() as u64, "copy in")?;
        self.inner.staging.copy_in(&*self.inner.copy, dst, offset, src)
    }

    fn copy_out(&self, src: &Memory, offset: u64, dst: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.copy.check_range(&src.at(offset), dst.len() as u64, "copy out")?;
        self.inner.staging.copy_out(&*self.inner.copy, src, offset, dst)
    }

    fn load(&self, images: &[KernelImage<'_>]) -> Result<Vec<Kernel>, DeviceError> {
        images.iter().map(|image| self.load_one(image)).collect()
    }

    fn submit(&self, queue: QueueKind, commands: &[Command]) -> Result<Point, DeviceError> {
        self.inner.submit(queue, commands)
    }

    fn copy_engines(&self) -> Result<Vec<CopyEngine>, DeviceError> {
        let engines = Engine::of_gpu(&self.inner.core)?.into_iter();
        let engine = |e: Engine| CopyEngine {
            number: e.number(),
            name: format!("ce{}", e.number()),
            reaches_host: e.reaches_host,
        };
        Ok(engines.map(engine).collect())
    }

    fn record(&self, commands: &[Command]) -> Result<Box<dyn Recorded>, DeviceError> {
        if commands.iter().all(|c| matches!(c, Command::Exec { .. })) {
            return Ok(Box::new(GpuList::new(&self.inner.compute, commands)?));
        }
        let inner = Arc::clone(&self.inner);
        record_by_resubmission(self.tag.name(), commands, move |commands| inner.submit(QueueKind::Compute, commands))
    }

    fn stamp(&self) -> Result<Stamp, DeviceError> {
        let core = &self.inner.core;
        core.check_open()?;
        core.calibrate()?;
        Ok(Stamp { start: core.signals.signal()?, stop: core.signals.signal()? })
    }

    /// Also memory of this driver's other GPUs, if the driver lets this GPU map it.
    fn reaches(&self, memory: &Memory) -> bool {
        let gpu = &self.inner.core.gpu;
        *memory.device() == self.tag || gpu.map_peer(memory.va()).unwrap_or(false)
    }

    /// The submission timeout, which is longer on a software GPU, but at least 30 s.
    fn patience(&self) -> Duration {
        self.inner.core.options.submit_timeout.max(Duration::from_secs(30)) // TIMEOUT: as other devices'.
    }

    fn synchronize(&self, timeout: Duration) -> Result<(), DeviceError> {
        self.inner.synchronize(timeout)
    }

    fn memory_used(&self) -> u64 {
        self.inner.pool.used_bytes()
    }

    fn state(&self) -> Option<DeviceState> {
        let telemetry = self.telemetry();
        Some(DeviceState { line: telemetry.to_string(), values: serde_json::to_value(&telemetry).unwrap_or_default() })
    }

    fn close(&self) -> Result<(), DeviceError> {
        self.inner.close_within(self.inner.core.options.submit_timeout)
    }
}

impl Drop for NvDevice {
    fn drop(&mut self) {
        // TIMEOUT: a drop must not block for long; `close` waits properly and returns the error.
        if let Err(e) = self.inner.close_within(Duration::from_secs(1)) {
            log::warn!("device {} dropped with unfinished work: {e}", self.tag);
        }
    }
}

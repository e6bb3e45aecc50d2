//! AMD GPUs over KFD: no ROCm, no LLVM, only the kernel driver, through a [`Port`].
//!
//! Layer: as any device; it uses `doorbell_ioctl`, `hcq::packet` and `elf`. The port may be the running kernel, a
//! software GPU, or a wrapper of either; the code here is the same for all. Source: docs/amd.md 1-4, 7 (KFD's header
//! and sources, AMD's open runtime).
//! Shape: find (`topology`, `chip`) → open (`driver`, `core`) → queues (`ring`, `encode`, `queue`, `graph`) → memory
//! (`bo`, `scratch`) → programs (`load`, `program`); the rest of queues and memory is `device::gpu`'s. Faults and hangs
//! become reports; after a fault the device refuses all work with an error.
//! Left out: kernels that access a peer's memory (copies can, if the driver links the GPUs), SVM, dma-buf, CU masks,
//! CPU access to VRAM.

mod bo;
mod chip;
mod core;
mod driver;
mod encode;
mod events;
mod graph;
mod load;
pub mod metrics;
mod program;
mod queue;
mod ring;
mod scratch;
mod state;
mod topology;

pub use self::core::{AmdOptions, Core};
pub use bo::{Bo, Placement};
pub use chip::{CHIPS, Chip, SaveArea, version_name};
pub use driver::{Driver, Fault};
pub use events::{FaultMark, SignalEvent, Woken};
pub use ring::{HwRing, RingKind};
pub use state::state;
pub use topology::{Node, Selector, read_nodes};

use super::gpu::encode::GpuCore;
use super::gpu::host_buffers::HostBuffers;
use super::gpu::pool::Pool;
use super::gpu::queue::{submit_runs, synchronize};
use super::gpu::recorded::GpuList;
use super::gpu::staging::{Staging, upload_code};
use super::memory::check_wrapped;
use super::{
    Command, CopyEngine, Device, DeviceError, DeviceInfo, DeviceState, DeviceTag, Kernel, KernelImage, Memory,
    MemoryParts,
};
use super::{QueueKind, Recorded, Stamp, Uses, no_engine, record_by_resubmission};
use doorbell_hcq::memory::View;
use doorbell_hcq::signal::Point;
use doorbell_ioctl::abi::kfd;
use doorbell_ioctl::port::{Errno, Port};
use load::ParsedImage;
use program::LoadedKernel;
use queue::AmdQueue;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// An open GPU.
pub struct AmdDevice {
    tag: DeviceTag,
    info: DeviceInfo,
    inner: Arc<Inner>,
}

/// The shared part of the device, which recorded lists and memories keep alive.
struct Inner {
    core: Arc<Core>,
    pool: Arc<Pool>,
    compute: Arc<AmdQueue>,
    /// Those that were used.
    copies: Mutex<Vec<(QueueKind, Arc<AmdQueue>)>>,
    staging: Staging,
    // Buffers mapped by both host and GPU, kept until their last handle is dropped.
    host: Arc<HostBuffers<Bo>>,
}

impl std::fmt::Debug for AmdDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AmdDevice({}, {}, {} CUs)", self.tag, self.info.arch, self.info.threads)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The GPUs that this build can open, in the order of `AMD:n`.
///
/// # Errors
/// `Unavailable`: the topology cannot be read, for example because there is no driver.
pub(crate) fn usable_nodes(name: &str, port: &dyn Port) -> Result<Vec<Node>, DeviceError> {
    let nodes = read_nodes(port).map_err(|errno| {
        let hint = if errno == Errno::ENOENT { " (no amdgpu driver)" } else { "" };
        DeviceError::Unavailable { name: name.into(), why: format!("read {}: {errno}{hint}", topology::NODES) }
    })?;
    Ok(nodes)
}

impl AmdDevice {
    /// Opens the GPU that `selector` names on a driver's connection.
    ///
    /// # Errors
    /// `Unavailable`: no such GPU, a chip that this build does not know; `Driver` with the call that was refused.
    pub fn open(
        name: &str,
        driver: &Arc<Driver>,
        selector: &Selector,
        options: &AmdOptions,
    ) -> Result<Self, DeviceError> {
        let unavailable = |why: String| DeviceError::Unavailable { name: name.into(), why };
        let nodes = usable_nodes(name, &**driver.port())?;
        let node = selector.pick(&nodes).ok_or_else(|| {
            let found: Vec<String> = nodes.iter().map(|n| format!("{} at {}", n.gfx(), n.bdf())).collect();
            unavailable(format!("no such GPU; there are {}: {}", nodes.len(), found.join(", ")))
        })?;
        let chip = Chip::of_version(node.target_version())
            .ok_or_else(|| unavailable(format!("chip {} is unknown, known are {}", node.gfx(), Chip::names())))?;
        let tag = DeviceTag::new(name);
        let core = Core::open(tag.clone(), Arc::clone(driver), node.clone(), chip, options.clone())?;
        let compute = queue::open(&core, QueueKind::Compute)?;
        let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let info =
            DeviceInfo { arch: chip.name.into(), threads: small(node.cu_count()), memory_bytes: node.vram_bytes() };
        let (pool, copies, staging) = (Pool::new(Arc::clone(&core) as _), Mutex::default(), Staging::default());
        Ok(Self { tag, info, inner: Arc::new(Inner { core, pool, compute, copies, staging, host: Arc::default() }) })
    }

    /// The node that was opened.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.inner.core.node
    }

    /// Allocates memory that is also mapped for the host, for copies without staging: uncached memory of the driver, or
    /// pages of this process that it pins.
    ///
    /// # Errors
    /// `OutOfMemory`, `Unsupported` for VRAM.
    pub fn alloc_host(&self, len_bytes: u64, placement: Placement) -> Result<Memory, DeviceError> {
        let core = &self.inner.core;
        core.check_open()?;
        if placement == Placement::Vram {
            return Err(DeviceError::Unsupported {
                device: self.tag.name().into(),
                what: "map VRAM for the host".into(),
            });
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
        let view = bo.view().map_err(|source| self.inner.core.refused("host memory", source))?.sub(0, len_bytes)?;
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

    fn load_one(&self, image: &KernelImage<'_>) -> Result<Kernel, DeviceError> {
        let core = &self.inner.core;
        let bad = |why: String| DeviceError::Load { device: self.tag.name().into(), kernel: image.name.into(), why };
        let parsed = ParsedImage::read(image, core.chip).map_err(bad)?;
        let len_bytes = parsed.len_bytes();
        let code = Arc::new(core.own_bo("code", len_bytes, Placement::Vram)?);
        let va = code.va();
        let bytes = parsed.bytes_at(va).map_err(bad)?;
        let name: Arc<str> = image.name.into();
        let entry = va + parsed.entry_offset;
        let descriptor_va = va + parsed.descriptor_offset;
        let (descriptor, arg_ranges) = (parsed.descriptor, parsed.args);
        let program = LoadedKernel { name, descriptor, arg_ranges, descriptor_va, entry, code };
        let kernel = Kernel::new(self.tag.clone(), image.name, entry, Arc::new(program));
        upload_code(self, va, &bytes, core.options.submit_timeout)?;
        core.note_code();
        Ok(kernel)
    }
}

impl Inner {
    /// The copy queue, created on first use.
    fn copy_queue(&self) -> Result<Arc<AmdQueue>, DeviceError> {
        self.queue_of(QueueKind::Copy)
    }

    /// A copy queue of this kind, created on first use.
    fn queue_of(&self, kind: QueueKind) -> Result<Arc<AmdQueue>, DeviceError> {
        let mut copies = locked(&self.copies);
        if let Some((_, queue)) = copies.iter().find(|(own, _)| *own == kind) {
            return Ok(Arc::clone(queue));
        }
        self.core.check_open()?;
        if let QueueKind::CopyEngine(number) = kind
            && !self.copy_engines().iter().any(|engine| engine.number == number)
        {
            return Err(no_engine(&self.core.tag, number));
        }
        let queue = queue::open(&self.core, kind)?;
        copies.push((kind, Arc::clone(&queue)));
        Ok(queue)
    }

    /// The SDMA engines of the node: the general ones, then those for links between GPUs. None if the driver's
    /// interface is older than their numbers.
    fn copy_engines(&self) -> Vec<CopyEngine> {
        if self.core.driver.minor() < kfd::MINOR_SDMA_ENGINE {
            return Vec::new();
        }
        let count = |key| u8::try_from(self.core.node.value(key)).unwrap_or(u8::MAX);
        let general = count("num_sdma_engines");
        let engine = |number: u8| {
            let name = number.checked_sub(general).map_or(format!("sdma{number}"), |link| format!("xgmi{link}"));
            CopyEngine { number, name, reaches_host: true }
        };
        (0..general.saturating_add(count("num_sdma_xgmi_engines"))).map(engine).collect()
    }

    fn queues(&self) -> impl Iterator<Item = Arc<AmdQueue>> {
        let copies: Vec<_> = locked(&self.copies).iter().map(|(_, queue)| Arc::clone(queue)).collect();
        std::iter::once(Arc::clone(&self.compute)).chain(copies)
    }

    fn submit(&self, kind: QueueKind, commands: &[Command]) -> Result<Point, DeviceError> {
        match kind {
            QueueKind::Copy | QueueKind::CopyEngine(_) => self.queue_of(kind)?.submit(commands, &[]),
            QueueKind::Compute if !commands.iter().any(Command::is_copy) => self.compute.submit(commands, &[]),
            QueueKind::Compute => submit_runs(&self.compute, &*self.copy_queue()?, commands),
        }
    }

    fn synchronize(&self, timeout: Duration) -> Result<(), DeviceError> {
        synchronize(self.queues(), timeout)
    }

    /// Waits for the queues' work, for `timeout` at most, ends the queues, then frees all memory that no handle holds.
    fn close_within(&self, timeout: Duration) -> Result<(), DeviceError> {
        if self.core.is_closed() {
            return Ok(());
        }
        let finished = if self.core.fault().is_some() { Ok(()) } else { self.synchronize(timeout) };
        self.core.close();
        let mut ended = Ok(());
        for queue in self.queues() {
            ended = ended.and(queue.close());
        }
        self.staging.free();
        self.pool.close();
        self.core.free_signals();
        finished.and(ended)
    }
}

impl Device for AmdDevice {
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
        self.alloc_host(len_bytes, Placement::Pinned)
    }

    /// The driver follows the pages until the last handle is dropped: what takes them away from the process meanwhile
    /// stops the GPU's queues.
    fn wrap_host(&self, host: &View) -> Result<Memory, DeviceError> {
        let core = &self.inner.core;
        core.check_open()?;
        check_wrapped(&self.tag, host, core.driver.page_bytes())?;
        let bo = Bo::wrap(&core.driver, core.node.gpu_id, host.clone());
        self.memory_of_buffer(bo.map_err(|e| core.refused("wrap memory of the program", e))?, host.len_bytes())
    }

    fn copy_in(&self, dst: &Memory, offset: u64, src: &[u8]) -> Result<(), DeviceError> {
        dst.check("copy in", offset, src.len() as u64)?;
        self.inner.compute.check_range(&dst.at(offset), src.len() as u64, "copy in")?;
        self.inner.staging.copy_in(&*self.inner.copy_queue()?, dst, offset, src)
    }

    fn copy_out(&self, src: &Memory, offset: u64, dst: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.compute.check_range(&src.at(offset), dst.len() as u64, "copy out")?;
        self.inner.staging.copy_out(&*self.inner.copy_queue()?, src, offset, dst)
    }

    fn load(&self, images: &[KernelImage<'_>]) -> Result<Vec<Kernel>, DeviceError> {
        images.iter().map(|image| self.load_one(image)).collect()
    }

    fn submit(&self, queue: QueueKind, commands: &[Command]) -> Result<Point, DeviceError> {
        self.inner.submit(queue, commands)
    }

    fn copy_engines(&self) -> Result<Vec<CopyEngine>, DeviceError> {
        Ok(self.inner.copy_engines())
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

    /// Also memory of this driver's other devices, if the driver lets this device map it.
    fn reaches(&self, memory: &Memory) -> bool {
        let core = &self.inner.core;
        *memory.device() == self.tag || core.driver.map_peer(memory.va(), core.node.gpu_id).unwrap_or(false)
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
        let core = &self.inner.core;
        Some(state(&core.node, &**core.driver.port(), Some(core.driver.minor())))
    }

    fn close(&self) -> Result<(), DeviceError> {
        self.inner.close_within(self.inner.core.options.submit_timeout)
    }
}

impl Drop for AmdDevice {
    fn drop(&mut self) {
        // TIMEOUT: a drop must not block for long; `close` waits properly and returns the error.
        if let Err(e) = self.inner.close_within(Duration::from_secs(1)) {
            log::warn!("device {} dropped with unfinished work: {e}", self.tag);
        }
    }
}

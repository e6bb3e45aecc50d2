//! Apple's GPUs through Metal: the framework's messages, and no binding or wrapper between.
//!
//! Layer: as any device. `objc` has the runtime, `messages` the list of all messages with their types, `ns` owned
//! objects; `core` is the open GPU and how a host waits, `encode` turns commands into command buffers, `program` compiles
//! a kernel's source. The table of functions is the system's on a Mac, or the software GPU's. Sources: docs/metal.md.
//! Left out: a pool of small buffers, indirect command buffers (a recorded list is encoded anew at each replay), a queue
//! for copies, GPUs with memory of their own.

mod core;
mod encode;
pub mod messages;
mod ns;
pub mod objc;
mod program;
mod select;
#[cfg(test)]
mod tests;

pub use select::{SOFTWARE_FAMILIES, Selector};

use self::core::{Core, Producer, lock};
use super::{Command, QueueKind, Recorded, Release, Stamp, Uses, record_by_resubmission};
use super::{Device, DeviceError, DeviceInfo, DeviceState, DeviceTag, Kernel, KernelImage, Memory, MemoryParts};
use crate::health::Health;
use crate::memory::check_wrapped;
use doorbell_hcq::memory::View;
use doorbell_hcq::signal::{Point, Progress, SignalPool, Timeline};
use doorbell_ioctl::port::{CpuPtr, DeviceView};
use messages::{Gpu, NsArray};
use ns::{Block, Owned};
use objc::{Objc, Runtime};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// GPU families (`MTLGPUFamily`) and the arch that kernels are compiled for, the newest first.
const FAMILIES: &[(i64, &str)] =
    &[(1009, "metal-apple9"), (1008, "metal-apple8"), (1007, "metal"), (1005, "metal-apple5")];
/// Buffers are a multiple of this.
const BUFFER_STEP: u64 = 16;
/// A page of Apple's chips: where memory of the program can be used in place, it is whole pages.
const PAGE: u64 = 16 << 10;
/// Memory that host and GPU share, with hazards tracked by the framework.
const SHARED: u64 = 0;
/// Cores of an M1, the smallest chip of a Mac: Metal does not tell how many there are.
const CORES: u32 = 8;
// TIMEOUT: a common limit for a hung device.
const PATIENCE: Duration = Duration::from_secs(30);

/// An open GPU.
#[derive(Debug)]
pub struct MetalDevice {
    info: DeviceInfo,
    core: Arc<Core>,
    signals: Arc<SignalPool>,
    watcher: Mutex<Option<JoinHandle<()>>>,
}

/// Forgets a buffer when its memory is freed; the framework keeps it until command buffers with it are done.
struct Free(Arc<Core>, u64);

impl Release for Free {
    fn release(&self, va: u64, host: Option<View>, _uses: Uses) {
        lock(&self.0.buffers).remove(&va);
        self.0.used_bytes.fetch_sub(self.1, Ordering::Relaxed);
        drop(host);
    }
}

/// As [`Free`], for memory of the program: it stays mapped until nothing uses it any more.
struct Unwrap(Arc<Core>);

impl Release for Unwrap {
    fn release(&self, va: u64, host: Option<View>, uses: Uses) {
        lock(&self.0.buffers).remove(&va);
        if uses.wait(self.0.patience).is_err() && !uses.are_done() {
            // A command buffer that never ends may still use it.
            std::mem::forget(host);
        }
    }
}

/// The GPU that a selector means.
fn find(name: &str, runtime: &'static Runtime, selector: &Selector) -> Result<Owned<Gpu>, DeviceError> {
    let unavailable = |why: &str| DeviceError::Unavailable { name: name.into(), why: why.into() };
    let index = if let Selector::Index(index) = selector { *index } else { 0 };
    if index == 0 {
        // SAFETY: the function gives away a reference to a device, or nil.
        let gpu = unsafe { Owned::take(runtime, (runtime.objc.create_system_default_device)()) };
        return gpu.ok_or_else(|| unavailable("Metal has no device for this process"));
    }
    // SAFETY: the function gives away a reference to a list of devices.
    let all = unsafe { Owned::<NsArray>::take(runtime, (runtime.objc.copy_all_devices)()) };
    let gpu = all.and_then(|all| (u64::from(index) < all.count()).then(|| all.object_at(index.into()).0).flatten());
    // SAFETY: the list holds devices.
    gpu.map(|gpu| unsafe { gpu.cast() }).ok_or_else(|| unavailable("there are fewer GPUs"))
}

/// The arch of a family of Apple's GPUs: 7 for Apple7.
#[must_use]
pub fn arch_of_family(family: u32) -> &'static str {
    let has = |known: &&(i64, &str)| known.0 <= 1000 + i64::from(family);
    FAMILIES.iter().find(has).map_or("", |(_, arch)| arch)
}

/// What one GPU is, without opening a queue: its name, arch and memory in bytes.
///
/// # Errors
/// `Unavailable` without a GPU, or for one that no kernel can be compiled for.
pub fn describe(name: &str, objc: Objc, selector: &Selector) -> Result<DeviceInfo, DeviceError> {
    let runtime = Runtime::of(objc);
    runtime.pool(|| info(name, &find(name, runtime, selector)?))
}

fn info(name: &str, gpu: &Owned<Gpu>) -> Result<DeviceInfo, DeviceError> {
    let unavailable = |why: &str| DeviceError::Unavailable { name: name.into(), why: why.into() };
    let family = FAMILIES.iter().find(|(family, _)| gpu.supports_family(*family));
    let (_, arch) = family.ok_or_else(|| unavailable("its GPU is of none of Apple's families from Apple5 on"))?;
    if !gpu.has_unified_memory() {
        return Err(unavailable("its GPU has memory of its own, which is not supported"));
    }
    let memory_bytes = gpu.recommended_working_set();
    Ok(DeviceInfo { arch: (*arch).into(), threads: CORES, memory_bytes })
}

impl MetalDevice {
    /// Opens a GPU of the framework behind `objc`. `patience`: how long its work may take, `None` for the usual limit.
    ///
    /// # Errors
    /// `Unavailable`, with what is missing.
    pub fn open(name: &str, objc: Objc, selector: &Selector, patience: Option<Duration>) -> Result<Self, DeviceError> {
        let missing =
            |what: &str| DeviceError::Unavailable { name: name.into(), why: format!("Metal gives no {what}") };
        let runtime = Runtime::of(objc);
        let (gpu, info, queue, event) = runtime.pool(|| {
            let gpu = find(name, runtime, selector)?;
            let info = info(name, &gpu)?;
            let queue = gpu.new_command_queue(self::core::MAX_COMMAND_BUFFERS).ok_or_else(|| missing("queue"))?;
            let event = gpu.new_shared_event().ok_or_else(|| missing("shared event"))?;
            Ok::<_, DeviceError>((gpu, info, queue, event))
        })?;
        let signals = SignalPool::new();
        let timeline = Timeline::new(format!("{name}/compute"), signals.signal()?);
        let core = Arc::new(Core {
            name: name.into(),
            tag: DeviceTag::new(name),
            runtime,
            health: Health::default(),
            patience: patience.unwrap_or(PATIENCE),
            timeline: Arc::clone(&timeline),
            used_bytes: AtomicU64::new(0),
            buffers: Mutex::default(),
            producer: Mutex::new(Producer::default()),
            sent: Mutex::default(),
            work: std::sync::Condvar::new(),
            event,
            queue,
            gpu,
        });
        let progress: Weak<dyn Progress> = Arc::downgrade(&(Arc::clone(&core) as Arc<dyn Progress>));
        timeline.set_progress(progress);
        let watched = Arc::clone(&core);
        let watch = move || self::core::watch(&watched);
        let watcher = std::thread::Builder::new().name(format!("{name} watcher")).spawn(watch);
        let watcher = watcher.map_err(|e| DeviceError::Unavailable { name: name.into(), why: e.to_string() })?;
        Ok(Self { info, core, signals, watcher: Mutex::new(Some(watcher)) })
    }

    fn ends(&self) {
        self.core.end();
        if let Some(watcher) = lock(&self.watcher).take() {
            let _it_does_not_panic = watcher.join();
        }
    }
}

impl Drop for MetalDevice {
    fn drop(&mut self) {
        if !self.core.health.is_closed() {
            // In a drop there is no caller to report to.
            let _ended_anyway = self.close();
        }
    }
}

impl Device for MetalDevice {
    fn tag(&self) -> &DeviceTag {
        &self.core.tag
    }

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn alloc(&self, len_bytes: u64) -> Result<Memory, DeviceError> {
        let core = &self.core;
        core.check_open()?;
        let size = len_bytes.max(1).checked_next_multiple_of(BUFFER_STEP).unwrap_or(u64::MAX);
        let max = core.gpu.max_buffer_length();
        if size > max {
            return Err(DeviceError::TooBig { device: core.name.clone(), asked: len_bytes, max });
        }
        let made = core.runtime.pool(|| core.gpu.new_buffer(size, SHARED));
        let buffer = made.map(|b| (b.contents(), b)).filter(|(contents, _)| !contents.is_null());
        let (contents, buffer) = buffer.ok_or_else(|| DeviceError::OutOfMemory {
            device: core.name.clone(),
            asked: len_bytes,
            used: core.used_bytes.load(Ordering::Relaxed),
            why: format!("Metal has {} bytes in use", core.gpu.current_allocated()),
        })?;
        let va = contents.expose_provenance() as u64;
        let buffer = Arc::new(buffer);
        lock(&core.buffers).insert(va, Arc::clone(&buffer));
        core.used_bytes.fetch_add(len_bytes, Ordering::Relaxed);
        // SAFETY: the contents of a shared buffer are mapped as long as the buffer lives, which is the view's owner.
        let view = unsafe { DeviceView::from_raw(CpuPtr(va), size, buffer) };
        Ok(Memory::new(MemoryParts {
            device: core.tag.clone(),
            va,
            len_bytes,
            host: Some(View::of_device(&view).sub(0, len_bytes)?),
            uses: Uses::new(Some(Arc::clone(&core.timeline))),
            release: Some(Arc::new(Free(Arc::clone(core), len_bytes))),
        }))
    }

    /// As the framework's `newBufferWithBytesNoCopy`: whole pages of 16 KiB.
    fn wrap_host(&self, host: &View) -> Result<Memory, DeviceError> {
        let core = &self.core;
        core.check_open()?;
        check_wrapped(&core.tag, host, PAGE)?;
        let (at, len_bytes) = (host.base(), host.len_bytes());
        let refused = |why: &str| DeviceError::Wrap { device: core.name.clone(), at: at.0, len_bytes, why: why.into() };
        if !len_bytes.is_multiple_of(PAGE) {
            return Err(refused("it is not whole pages of 16384 bytes"));
        }
        let max = core.gpu.max_buffer_length();
        if len_bytes > max {
            return Err(DeviceError::TooBig { device: core.name.clone(), asked: len_bytes, max });
        }
        let mut buffers = lock(&core.buffers);
        if buffers.contains_key(&at.0) {
            return Err(refused("it is memory of this device already"));
        }
        let made = core.runtime.pool(|| core.gpu.new_buffer_in_place(at.as_ptr::<u8>(), len_bytes, SHARED, Block(0)));
        let buffer = made.filter(|b| b.contents() == at.as_ptr::<u8>());
        buffers.insert(at.0, Arc::new(buffer.ok_or_else(|| refused("Metal makes no buffer of it"))?));
        Ok(Memory::new(MemoryParts {
            device: core.tag.clone(),
            va: at.0,
            len_bytes,
            host: Some(host.clone()),
            uses: Uses::new(Some(Arc::clone(&core.timeline))),
            release: Some(Arc::new(Unwrap(Arc::clone(core)))),
        }))
    }

    fn copy_in(&self, dst: &Memory, offset: u64, src: &[u8]) -> Result<(), DeviceError> {
        self.core.own(dst)?;
        dst.check("copy in", offset, src.len() as u64)?;
        dst.uses().wait(self.core.patience)?;
        Ok(dst.host().map_or(Ok(()), |view| view.write(offset, src))?)
    }

    fn copy_out(&self, src: &Memory, offset: u64, dst: &mut [u8]) -> Result<(), DeviceError> {
        self.core.own(src)?;
        src.check("copy out", offset, dst.len() as u64)?;
        src.uses().wait(self.core.patience)?;
        Ok(src.host().map_or(Ok(()), |view| view.read(offset, dst))?)
    }

    fn load(&self, images: &[KernelImage<'_>]) -> Result<Vec<Kernel>, DeviceError> {
        self.core.check_open()?;
        let one = |image: &KernelImage<'_>| {
            let program = Arc::new(self.core.program(image)?);
            // Of no use but to tell kernels apart.
            let entry = Arc::as_ptr(&program).addr() as u64;
            Ok(Kernel::new(self.core.tag.clone(), image.name, entry, program))
        };
        images.iter().map(one).collect()
    }

    /// All work goes through one queue.
    fn submit(&self, queue: QueueKind, commands: &[Command]) -> Result<Point, DeviceError> {
        queue.check_no_engine(self.tag())?;
        self.core.submit(commands)
    }

    fn record(&self, commands: &[Command]) -> Result<Box<dyn Recorded>, DeviceError> {
        let core = Arc::clone(&self.core);
        record_by_resubmission(&self.core.name, commands, move |list| core.submit(list))
    }

    fn stamp(&self) -> Result<Stamp, DeviceError> {
        Ok(Stamp { start: self.signals.signal()?, stop: self.signals.signal()? })
    }

    fn patience(&self) -> Duration {
        self.core.patience
    }

    fn synchronize(&self, timeout: Duration) -> Result<(), DeviceError> {
        Ok(self.core.timeline.wait(self.core.timeline.submitted(), timeout)?)
    }

    fn memory_used(&self) -> u64 {
        self.core.used_bytes.load(Ordering::Relaxed)
    }

    fn state(&self) -> Option<DeviceState> {
        let gpu = &self.core.gpu;
        let (used, most) = (gpu.current_allocated(), gpu.recommended_working_set());
        let (name, id) = (self.core.gpu_name(), gpu.registry_id());
        let mib = |bytes: u64| bytes >> 20;
        let line = format!("{name}, {} of {} MiB in use", mib(used), mib(most));
        let values = serde_json::json!({"name": name, "registry_id": id, "used_bytes": used, "memory_bytes": most});
        Some(DeviceState { line, values })
    }

    fn close(&self) -> Result<(), DeviceError> {
        if self.core.health.is_closed() {
            return Ok(());
        }
        let done = self.core.timeline.wait(self.core.timeline.submitted(), self.core.patience);
        self.ends();
        Ok(done?)
    }
}

impl Core {
    fn own(&self, memory: &Memory) -> Result<(), DeviceError> {
        if *memory.device() == self.tag {
            return Ok(());
        }
        let theirs = memory.device().name().into();
        Err(DeviceError::WrongDevice { what: "memory", ours: self.name.clone(), theirs })
    }
}

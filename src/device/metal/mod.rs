//! Apple's GPUs through Metal: the framework's messages, and no binding or wrapper between.
//!
//! Layer: as any device. `objc` has the runtime, `messages` the list of all messages with their types, `ns` owned
//! objects; `core` is the open GPU, `queue` one of its queues and how a host waits, `memory` its buffers, `encode`
//! turns commands into command buffers, `indirect` keeps recorded lists, `program` compiles a kernel's source,
//! `archive` keeps pipelines in a file, `replay` plays recorded messages. The table of functions is the system's on a
//! Mac, or the software GPU's. Sources: docs/metal.md. Left out: a pool of small buffers, GPUs with memory of their
//! own.

mod archive;
mod core;
mod encode;
mod indirect;
mod memory;
pub mod messages;
mod ns;
pub mod objc;
mod program;
mod queue;
mod replay;
mod select;
#[cfg(test)]
mod tests;

pub use replay::{family_of, replay};
pub(crate) use select::SOFTWARE_FAMILIES;
pub use select::Selector;

use self::archive::ArchiveFile;
use self::core::{Common, Core, lock};
use super::{Command, QueueKind, Recorded, Stamp, record_by_resubmission};
use super::{Device, DeviceError, DeviceInfo, DeviceState, DeviceTag, Kernel, KernelImage, Memory};
use crate::health::Health;
use doorbell_hcq::memory::View;
use doorbell_hcq::signal::{Point, SignalPool};
use indirect::IndirectList;
use messages::{Gpu, NsArray};
use ns::{Owned, text_of};
use objc::{Objc, Runtime};
use queue::Queue;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// GPU families (`MTLGPUFamily`) and the arch that kernels are compiled for, the newest first.
const FAMILIES: &[(i64, &str)] =
    &[(1009, "metal-apple9"), (1008, "metal-apple8"), (1007, "metal"), (1005, "metal-apple5")];
/// The first family on which pipelines that only an indirect command buffer names are resident.
const RESIDENT_PIPELINES: i64 = 1009;
/// Cores of an M1, the smallest chip of a Mac: Metal does not tell how many there are.
const CORES: u32 = 8;
// TIMEOUT: a common limit for a hung device.
const PATIENCE: Duration = Duration::from_secs(30);

/// An open GPU.
#[derive(Debug)]
pub struct MetalDevice {
    info: DeviceInfo,
    core: Arc<Core>,
    is_private: bool,
}

/// The GPU that a selector means.
fn find(name: &str, runtime: &'static Runtime, selector: &Selector) -> Result<Owned<Gpu>, DeviceError> {
    let unavailable = |why: &str| DeviceError::Unavailable { name: name.into(), why: why.into() };
    let (Selector::Index(index) | Selector::Emulated { index, .. }) = *selector;
    if index == 0 {
        // SAFETY: the function gives away a reference to a device, or nil.
        let gpu = unsafe { Owned::take(runtime, runtime.system_default_device()) };
        return gpu.ok_or_else(|| unavailable("Metal has no device for this process"));
    }
    // SAFETY: the function gives away a reference to a list of devices.
    let all = unsafe { Owned::<NsArray>::take(runtime, runtime.all_devices()) };
    let gpu = all.and_then(|all| (u64::from(index) < all.count()).then(|| all.object_at(index.into()).0).flatten());
    // SAFETY: the list holds devices.
    gpu.map(|gpu| unsafe { gpu.cast() }).ok_or_else(|| unavailable("there are fewer GPUs"))
}

/// The arch of a family of Apple's GPUs: 7 for Apple7.
#[must_use]
pub(crate) fn arch_of_family(family: u32) -> &'static str {
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

/// How a device is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetalOptions {
    /// How long its work may take; `None` for the usual limit.
    pub patience: Option<Duration>,
    /// Memory lies in private storage, which only the GPU reaches: copies to and from the host go through a buffer that
    /// both share.
    pub private: bool,
    /// Recorded lists are encoded anew at each replay, even where the GPU can keep them.
    pub encode_anew: bool,
    /// Folder for the file in which pipelines are kept; `None`: they are not.
    pub archive: Option<PathBuf>,
}

impl MetalDevice {
    /// Opens a GPU of the framework behind `objc`. `patience`: how long its work may take, `None` for the usual limit.
    ///
    /// # Errors
    /// `Unavailable`, with what is missing.
    pub fn open(name: &str, objc: Objc, selector: &Selector, patience: Option<Duration>) -> Result<Self, DeviceError> {
        Self::open_with(name, objc, selector, &MetalOptions { patience, ..MetalOptions::default() })
    }

    /// As `open`, with options.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_with(name: &str, objc: Objc, selector: &Selector, options: &MetalOptions) -> Result<Self, DeviceError> {
        let runtime = Runtime::of(objc);
        let (gpu, info, gpu_name, is_lazy) = runtime.pool(|| {
            let gpu = find(name, runtime, selector)?;
            let info = info(name, &gpu)?;
            let gpu_name = gpu.name().0.map(|n| text_of(&n)).unwrap_or_default();
            let is_lazy = !gpu.supports_family(RESIDENT_PIPELINES);
            Ok::<_, DeviceError>((gpu, info, gpu_name, is_lazy))
        })?;
        let common = Arc::new(Common {
            name: name.into(),
            tag: DeviceTag::new(name),
            runtime,
            health: Health::default(),
            patience: options.patience.unwrap_or(PATIENCE),
        });
        let archive = options.archive.as_ref();
        let archive = archive.and_then(|folder| ArchiveFile::open(runtime, &gpu, folder, &gpu_name));
        let signals = SignalPool::new();
        let compute = Queue::open(&common, &gpu, "compute", &signals)?;
        let core = Arc::new(Core {
            common,
            used_bytes: AtomicU64::new(0),
            buffers: Mutex::default(),
            shared: Mutex::default(),
            staging: Mutex::default(),
            signals,
            // Those of virtual machines are broken.
            has_indirect: !options.encode_anew && !gpu_name.contains("virtual"),
            is_lazy,
            archive,
            compute,
            copy: Mutex::default(),
            gpu,
        });
        Ok(Self { info, core, is_private: options.private })
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
        if self.is_private { self.core.alloc_private(len_bytes) } else { self.core.alloc_shared(len_bytes) }
    }

    fn alloc_pinned(&self, len_bytes: u64) -> Result<Memory, DeviceError> {
        self.core.alloc_shared(len_bytes)
    }

    /// As the framework's `newBufferWithBytesNoCopy`: whole pages of 16 KiB.
    fn wrap_host(&self, host: &View) -> Result<Memory, DeviceError> {
        self.core.wrap(host)
    }

    fn copy_in(&self, dst: &Memory, offset: u64, src: &[u8]) -> Result<(), DeviceError> {
        self.core.copy_in(dst, offset, src)
    }

    fn copy_out(&self, src: &Memory, offset: u64, dst: &mut [u8]) -> Result<(), DeviceError> {
        self.core.copy_out(src, offset, dst)
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

    fn submit(&self, queue: QueueKind, commands: &[Command]) -> Result<Point, DeviceError> {
        queue.check_no_engine(self.tag())?;
        self.core.submit(queue, commands)
    }

    fn record(&self, commands: &[Command]) -> Result<Box<dyn Recorded>, DeviceError> {
        if let Some(list) = IndirectList::new(&self.core, commands)? {
            return Ok(Box::new(list));
        }
        let core = Arc::clone(&self.core);
        record_by_resubmission(&self.core.name, commands, move |list| core.submit(QueueKind::Compute, list))
    }

    fn stamp(&self) -> Result<Stamp, DeviceError> {
        Ok(Stamp { start: self.core.signals.signal()?, stop: self.core.signals.signal()? })
    }

    fn patience(&self) -> Duration {
        self.core.patience
    }

    fn synchronize(&self, timeout: Duration) -> Result<(), DeviceError> {
        self.core.synchronize(timeout)
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
        let done = self.core.synchronize(self.core.patience);
        if let Some(archive) = &self.core.archive {
            archive.save();
        }
        // Memory of the device's own.
        drop(lock(&self.core.staging).take());
        self.core.end();
        done
    }
}

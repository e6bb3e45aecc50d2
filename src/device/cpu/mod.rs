//! The CPU as a device with command queues: its ring entries are packets, and its worker threads are both command
//! processor and cores.
//!
//! Layer: as any device; `engine` sees only the trait. Code comes from `isa::x86_64` (or any ELF object).
//! Structure: `options` (settings, machine features) → `alloc` (memory) → `exec` (code) → `queue` (producer) →
//! `consumer`, `job`, `park` (executors) → `graph` (recorded lists). With THREADS=n there are n-1 worker threads (at
//! least one): the host thread that waits is the n-th executor. Without workers (`CpuOptions::workers`) it is the only
//! one. The copy queue's thread starts with the first copy submitted to it. All threads end with the device. Left out:
//! pinning to cores, NUMA placement, faults inside kernels (they end the process).

mod alloc;
mod consumer;
mod exec;
mod graph;
mod job;
mod options;
mod park;
mod queue;

pub use alloc::MemoryCounters;
pub use doorbell_ioctl::port::machine_memory_bytes;
pub use exec::InPlace;
pub use options::{ARCHS, CpuOptions, choose_arch};

use super::{Command, Device, DeviceError, DeviceInfo, DeviceTag, Kernel, KernelImage, Memory, MemoryParts, QueueKind};
use super::{Recorded, Release, Stamp, Uses};
use alloc::Allocator;
use consumer::Consumer;
use doorbell_hcq::memory::View;
use doorbell_hcq::ring::Ring;
use doorbell_hcq::signal::{Point, SignalPool, Timeline};
use queue::{CpuQueue, QueueSettings};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The CPU device.
pub struct CpuDevice {
    tag: DeviceTag,
    info: DeviceInfo,
    options: CpuOptions,
    signals: Arc<SignalPool>,
    allocator: Arc<Allocator>,
    compute: Arc<CpuQueue>,
    copy: Mutex<Option<Arc<CpuQueue>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl fmt::Debug for CpuDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuDevice({}, {}, {} threads)", self.tag, self.info.arch, self.info.threads)
    }
}

impl CpuDevice {
    /// Opens the device and starts its workers.
    ///
    /// # Errors
    /// `UnknownArch` and `MissingFeature` for the arch, `Unavailable` if a thread cannot start, `Memory` if there is
    /// none.
    pub fn open(name: &str, options: &CpuOptions) -> Result<Self, DeviceError> {
        let arch = choose_arch(name, options.arch.as_deref())?;
        let tag = DeviceTag::new(name);
        let executors = options.resolved_threads();
        let signals = SignalPool::new();
        let compute = open_queue(&tag, QueueKind::Compute, &signals, options)?;
        let device = Self {
            info: DeviceInfo { arch, threads: executors, memory_bytes: machine_memory_bytes() },
            options: options.clone(),
            signals,
            allocator: Arc::new(Allocator::new(name, options.cache_bytes)),
            compute,
            copy: Mutex::new(None),
            threads: Mutex::new(Vec::new()),
            tag,
        };
        for n in 0..options.workers.unwrap_or_else(|| executors.saturating_sub(1).max(1)) {
            device.start(&device.compute, &format!("{name}/{n}"))?;
        }
        Ok(device)
    }

    /// Memory counters: bytes in use and cached bytes.
    #[must_use]
    pub fn memory_counters(&self) -> MemoryCounters {
        self.allocator.counters()
    }

    /// Returns freed memory that is kept for reuse to the system.
    pub fn drop_cache(&self) {
        self.allocator.drop_cache();
    }

    fn start(&self, queue: &Arc<CpuQueue>, name: &str) -> Result<(), DeviceError> {
        let worker = Arc::clone(queue);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || worker.consumer.work());
        let thread = thread.map_err(|e| DeviceError::Unavailable {
            name: self.tag.name().into(),
            why: format!("thread {name}: {e}"),
        })?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    fn queue(&self, kind: QueueKind) -> Result<Arc<CpuQueue>, DeviceError> {
        if kind == QueueKind::Compute {
            return Ok(Arc::clone(&self.compute));
        }
        let mut copy = self.copy.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = &*copy {
            return Ok(Arc::clone(queue));
        }
        if !self.compute.consumer.is_alive() {
            return Err(DeviceError::Closed { device: self.tag.name().into() });
        }
        let queue = open_queue(&self.tag, kind, &self.signals, &self.options)?;
        self.start(&queue, &format!("{}/copy", self.tag))?;
        *copy = Some(Arc::clone(&queue));
        Ok(queue)
    }

    fn queues(&self) -> impl Iterator<Item = Arc<CpuQueue>> {
        let copy = self.copy.lock().unwrap_or_else(PoisonError::into_inner).clone();
        std::iter::once(Arc::clone(&self.compute)).chain(copy)
    }

    fn check(&self, memory: &Memory) -> Result<(), DeviceError> {
        if *memory.device() == self.tag {
            return Ok(());
        }
        let (ours, theirs) = (self.tag.name().into(), memory.device().name().into());
        Err(DeviceError::WrongDevice { what: "memory", ours, theirs })
    }

    /// Ends the threads after the queued work, or after `timeout`.
    fn close_within(&self, timeout: Duration) -> Result<(), DeviceError> {
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        if threads.is_empty() {
            return Ok(());
        }
        let finished = self.synchronize(timeout);
        self.queues().for_each(|q| q.consumer.close());
        if finished.is_ok() {
            // A worker of an unfinished queue may be inside a kernel that never returns: it is leaked, with everything
            // it owns.
            for thread in threads {
                let _panicked_worker_is_gone_too = thread.join();
            }
            self.queues().for_each(|q| q.lock().reap(u64::MAX));
        }
        finished
    }
}

/// Memory that is not the allocator's: it goes away only when nothing uses it any more.
struct HostMemory {
    timeout: Duration,
}

impl Release for HostMemory {
    fn release(&self, _va: u64, host: Option<View>, uses: Uses) {
        if uses.wait(self.timeout).is_err() && !uses.are_done() {
            // A kernel that never returns may still use it.
            std::mem::forget(host);
        }
    }
}

fn open_queue(
    tag: &DeviceTag,
    kind: QueueKind,
    signals: &Arc<SignalPool>,
    options: &CpuOptions,
) -> Result<Arc<CpuQueue>, DeviceError> {
    let (suffix, executors) = match kind {
        QueueKind::Compute => ("compute", options.resolved_threads()),
        QueueKind::Copy | QueueKind::CopyEngine(_) => ("copy", 1),
    };
    let timeline = Timeline::new(format!("{tag}/{suffix}"), signals.signal()?);
    let consumer = Consumer::new(Ring::new(options.ring_dwords.max(16))?, executors, options.spin_ns);
    let settings = QueueSettings {
        kind,
        host_helps: options.host_helps,
        has_workers: kind.only_copies() || options.workers != Some(0),
        spin: Duration::from_nanos(options.spin_ns),
        submit_timeout: options.submit_timeout,
        kernargs_words: options.kernargs_words,
    };
    CpuQueue::new(tag.clone(), timeline, consumer, settings)
}

impl Device for CpuDevice {
    fn tag(&self) -> &DeviceTag {
        &self.tag
    }

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn alloc(&self, len_bytes: u64) -> Result<Memory, DeviceError> {
        let max = if self.info.memory_bytes == 0 { u64::MAX / 2 } else { self.info.memory_bytes };
        let (view, uses) = self.allocator.take(len_bytes, max)?;
        let release: Arc<dyn Release> = Arc::clone(&self.allocator) as _;
        Ok(Memory::new(MemoryParts {
            device: self.tag.clone(),
            va: view.base().0,
            len_bytes,
            host: Some(view),
            uses: uses.unwrap_or_else(|| Uses::new(Some(Arc::clone(&self.compute.timeline)))),
            release: Some(release),
        }))
    }

    fn wrap_host(&self, host: &View) -> Result<Memory, DeviceError> {
        Ok(Memory::new(MemoryParts {
            device: self.tag.clone(),
            va: host.base().0,
            len_bytes: host.len_bytes(),
            host: Some(host.clone()),
            uses: Uses::new(Some(Arc::clone(&self.compute.timeline))),
            release: Some(Arc::new(HostMemory { timeout: self.options.submit_timeout })),
        }))
    }

    fn copy_in(&self, dst: &Memory, offset: u64, src: &[u8]) -> Result<(), DeviceError> {
        self.check(dst)?;
        dst.check("copy in", offset, src.len() as u64)?;
        dst.uses().wait(self.options.submit_timeout)?;
        dst.host().map_or(Ok(()), |view| view.write(offset, src))?;
        Ok(())
    }

    fn copy_out(&self, src: &Memory, offset: u64, dst: &mut [u8]) -> Result<(), DeviceError> {
        self.check(src)?;
        src.check("copy out", offset, dst.len() as u64)?;
        src.uses().wait(self.options.submit_timeout)?;
        src.host().map_or(Ok(()), |view| view.read(offset, dst))?;
        Ok(())
    }

    fn load(&self, images: &[KernelImage<'_>]) -> Result<Vec<Kernel>, DeviceError> {
        exec::load(&self.tag, images)
    }

    fn submit(&self, queue: QueueKind, commands: &[Command]) -> Result<Point, DeviceError> {
        if queue == QueueKind::Compute {
            return self.compute.submit(commands);
        }
        queue.check_no_engine(&self.tag)?;
        self.queue(queue)?.submit(commands)
    }

    fn record(&self, commands: &[Command]) -> Result<Box<dyn Recorded>, DeviceError> {
        Ok(Box::new(graph::CpuGraph::new(&self.compute, commands, self.stamp()?, self.options.inline_ns)?))
    }

    fn stamp(&self) -> Result<Stamp, DeviceError> {
        Ok(Stamp { start: self.signals.signal()?, stop: self.signals.signal()? })
    }

    fn synchronize(&self, timeout: Duration) -> Result<(), DeviceError> {
        let start = Instant::now();
        for queue in self.queues() {
            queue.timeline.wait(queue.timeline.submitted(), timeout.saturating_sub(start.elapsed()))?;
        }
        Ok(())
    }

    fn memory_used(&self) -> u64 {
        self.allocator.counters().used_bytes
    }

    fn close(&self) -> Result<(), DeviceError> {
        self.close_within(self.options.submit_timeout)
    }
}

impl Drop for CpuDevice {
    fn drop(&mut self) {
        // TIMEOUT: a drop must not block for long; `close` waits properly and returns the error.
        if let Err(e) = self.close_within(Duration::from_secs(1)) {
            log::warn!("device {} dropped with unfinished work: {e}", self.tag);
        }
    }
}

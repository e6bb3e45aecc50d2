//! State shared by the parts of one open AMD device: driver, node, chip, signals, clock, and its fault, if any.
//!
//! Layer: below queues and memory, above `driver` and `bo`. Source: docs/amd.md 1.3, 1.10, 2.6.

use super::bo::{Bo, Placement};
use super::chip::Chip;
use super::driver::{Driver, Fault};
use super::events::FaultMark;
use super::topology::Node;
use crate::gpu::clock::LinearClock;
use crate::gpu::encode::GpuCore;
use crate::gpu::pool;
use crate::gpu::signal_pages::SignalPages;
use crate::gpu::staging::SharedBuffer;
use crate::health::Health;
use crate::{DeviceError, DeviceTag};
use doorbell_hcq::memory::{MemError, View};
use doorbell_hcq::signal::{Signal, SignalPool};
use doorbell_ioctl::abi::{drm, kfd};
use doorbell_ioctl::port::{CallError, Fd, KERNEL_LOG, call, monotonic_ns};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Options for opening a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AmdOptions {
    /// Bytes of each ring; a power of two.
    pub ring_bytes: u64,
    /// Bytes of the kernargs ring.
    pub kernargs_bytes: u64,
    /// Bytes of each of the two staging buffers.
    pub staging_bytes: u64,
    /// Bytes of freed memory to keep for reuse.
    pub cache_bytes: u64,
    /// How long a submission waits for ring space, and a host copy for a staging buffer.
    pub submit_timeout: Duration,
    /// How long a wait spins before it sleeps in the driver.
    pub spin: Duration,
}

impl Default for AmdOptions {
    fn default() -> Self {
        Self {
            ring_bytes: 1 << 20,
            kernargs_bytes: 1 << 20,
            staging_bytes: 4 << 20,
            cache_bytes: 1 << 30,
            // TIMEOUT: as for the CPU device; a suspended GPU needs a second to wake up.
            submit_timeout: Duration::from_secs(10),
            // TIMEOUT: about the cost of a sleep and a wake-up.
            spin: Duration::from_micros(100),
        }
    }
}

/// The shared state.
#[derive(Debug)]
pub struct Core {
    pub tag: DeviceTag,
    pub driver: Arc<Driver>,
    pub node: Node,
    pub chip: &'static Chip,
    pub render: Fd,
    /// The card's last fault before the device was opened; only later ones concern it.
    pub since: FaultMark,
    pub options: AmdOptions,
    pub clock: Arc<LinearClock>,
    pages: SignalPages<Bo>,
    pub signals: Arc<SignalPool>,
    health: Health,
    /// Counts loaded kernels.
    code: AtomicU64,
}

impl Core {
    /// Reads the GPU's and the host's clock together again, since they drift apart.
    ///
    /// # Errors
    /// The driver's.
    pub fn calibrate(&self) -> Result<(), DeviceError> {
        let read = calibrate(&self.clock, &self.driver, self.node.gpu_id);
        read.map_err(|source| self.refused("read clocks", source))
    }

    /// Acquires the device for the process and creates its signal pool.
    ///
    /// # Errors
    /// `Driver` with the call that was refused.
    pub fn open(
        tag: DeviceTag,
        driver: Arc<Driver>,
        node: Node,
        chip: &'static Chip,
        options: AmdOptions,
    ) -> Result<Arc<Self>, DeviceError> {
        let refused = |what| {
            let device = tag.name().to_string();
            move |source| DeviceError::Driver { device, what, source }
        };
        let render = driver.acquire(node.gpu_id, node.render_minor()).map_err(refused("acquire"))?;
        let since = driver.faults_so_far().map_err(refused("read the events of faults"))?;
        let clock = read_clock(&driver, node.gpu_id, render).map_err(refused("read clocks"))?;
        let pages = SignalPages::default();
        let (source_driver, source_pages, gpu_id) = (Arc::clone(&driver), pages.clone(), node.gpu_id);
        let source = move || {
            let failed = |e: CallError| MemError::Driver(format!("signals: {e}"));
            let page = Bo::new(&source_driver, gpu_id, render, 4096, Placement::Host).map_err(failed)?;
            let view = page.view().map_err(failed)?;
            source_pages.keep(page, source_driver.signal_pages());
            Ok(view)
        };
        let signals = SignalPool::of_device(Box::new(source), Arc::clone(&clock) as _);
        let health = Health::default();
        Ok(Arc::new(Self {
            tag,
            driver,
            node,
            chip,
            render,
            since,
            options,
            clock,
            pages,
            signals,
            health,
            code: AtomicU64::new(1),
        }))
    }

    /// Allocates a buffer of this device.
    ///
    /// # Errors
    /// The driver's.
    pub fn bo(&self, len_bytes: u64, placement: Placement) -> Result<Bo, CallError> {
        Bo::new(&self.driver, self.node.gpu_id, self.render, len_bytes, placement)
    }

    /// As [`Core::bo`], for buffers of the device itself; `what` names the buffer in errors.
    ///
    /// # Errors
    /// `Driver`.
    pub fn own_bo(&self, what: &'static str, len_bytes: u64, placement: Placement) -> Result<Bo, DeviceError> {
        self.bo(len_bytes, placement).map_err(|source| self.refused(what, source))
    }

    /// Allocates a host-mapped buffer; returns it with its view.
    ///
    /// # Errors
    /// `Driver`.
    pub fn shared_bo(&self, what: &'static str, len_bytes: u64) -> Result<(Bo, View), DeviceError> {
        let bo = self.own_bo(what, len_bytes, Placement::Host)?;
        let view = bo.view().map_err(|source| self.refused(what, source))?;
        Ok((bo, view))
    }

    #[must_use]
    pub fn refused(&self, what: &'static str, source: CallError) -> DeviceError {
        DeviceError::Driver { device: self.tag.name().into(), what, source }
    }

    /// Sets the device's fault, unless it has one; the device refuses all work from then on.
    pub(crate) fn set_fault(&self, fault: &Fault) {
        if self.fault().is_some() {
            return;
        }
        let place = match fault {
            Fault::Memory(m) => format!(" ({}){}", self.driver.describe(m.va), self.fault_query()),
            Fault::Hardware(_) => self.kernel_says(),
        };
        self.set_fault_text(format!("{fault}{place}"));
    }

    /// What the kernel's log has to say about the card just now; empty where this process may not read it.
    fn kernel_says(&self) -> String {
        const RECENT_NS: u64 = 10_000_000_000;
        let bytes = self.driver.port().read_file(KERNEL_LOG).unwrap_or_default();
        let since = monotonic_ns().saturating_sub(RECENT_NS);
        let recent = |line: &str| {
            let (head, text) = line.split_once(';')?;
            let us: u64 = head.split(',').nth(2)?.parse().ok()?;
            (us.saturating_mul(1000) >= since && text.contains("amdgpu")).then(|| text.to_owned())
        };
        let last = String::from_utf8_lossy(&bytes).lines().filter_map(recent).next_back();
        last.map(|line| format!(", kernel log: {line}")).unwrap_or_default()
    }

    /// What amdgpu reports about the last fault: address, status register, hub. Empty on kernels that are too old.
    fn fault_query(&self) -> String {
        let mut last = drm::GpuvmFault::default();
        let mut ask = drm::Info {
            return_pointer: (&raw mut last).expose_provenance() as u64,
            return_size: size_of::<drm::GpuvmFault>() as u32,
            query: drm::AMDGPU_INFO_GPUVM_FAULT,
            ..Default::default()
        };
        match call(&**self.driver.port(), self.render, &drm::INFO, &mut ask) {
            Ok(_) if last.status != 0 => format!(
                ", amdgpu says address {:#x}, status {:#x}, hub {}",
                last.addr,
                last.status,
                drm::hub_name(last.vmhub)
            ),
            _ => String::new(),
        }
    }

    /// As [`Core::set_fault`], with a text.
    pub(crate) fn set_fault_text(&self, text: String) {
        self.health.set_fault(text);
    }

    #[must_use]
    pub fn fault(&self) -> Option<&str> {
        self.health.fault()
    }

    /// Records that code was loaded: the instruction cache may be stale.
    pub(crate) fn note_code(&self) {
        // ORDER: release; the code has been written before.
        self.code.fetch_add(1, Ordering::Release);
    }

    /// Changes whenever code is loaded; never 0.
    #[must_use]
    pub(crate) fn code_loaded(&self) -> u64 {
        self.code.load(Ordering::Acquire)
    }

    /// Refuses work from now on.
    pub fn close(&self) {
        self.health.close();
    }

    /// Frees the signals' pages. No queue may write them any more.
    pub fn free_signals(&self) {
        self.pages.free();
    }

    #[must_use]
    pub(crate) fn is_closed(&self) -> bool {
        self.health.is_closed()
    }
}

impl GpuCore for Core {
    fn tag(&self) -> &DeviceTag {
        &self.tag
    }

    fn health(&self) -> &Health {
        &self.health
    }

    fn submit_timeout(&self) -> Duration {
        self.options.submit_timeout
    }

    fn spin(&self) -> Duration {
        self.options.spin
    }

    fn staging_bytes(&self) -> u64 {
        self.options.staging_bytes
    }

    fn has_signal(&self, signal: &Signal) -> bool {
        self.pages.hold(signal)
    }

    fn peer_signal(&self, signal: &Signal) -> Option<Arc<dyn Any + Send + Sync>> {
        let page = self.driver.signal_pages().holding(signal)?;
        self.driver.map_peer(page.va(), self.node.gpu_id).ok()?.then_some(page as _)
    }

    fn map_peer(&self, va: u64) -> Result<bool, DeviceError> {
        let mapped = self.driver.map_peer(va, self.node.gpu_id);
        mapped.map_err(|source| self.refused("map a peer's memory", source))
    }

    fn shared_buffer(&self, what: &'static str, len_bytes: u64) -> Result<SharedBuffer, DeviceError> {
        let (bo, view) = self.shared_bo(what, len_bytes)?;
        Ok(SharedBuffer { va: bo.va(), view, keep: Arc::new(bo) })
    }

    fn platform(&self) -> String {
        format!("chip {} KFD 1.{}", self.chip.name, self.driver.minor())
    }

    fn last_calls(&self) -> String {
        self.driver.recent_calls()
    }
}

impl pool::Source for Core {
    fn device(&self) -> &str {
        self.tag.name()
    }

    fn memory_bytes(&self) -> u64 {
        self.node.vram_bytes()
    }

    fn cache_bytes(&self) -> u64 {
        self.options.cache_bytes
    }

    fn buffer(&self, len_bytes: u64) -> Result<Arc<dyn pool::Buffer>, String> {
        Ok(Arc::new(self.bo(len_bytes, Placement::Vram).map_err(|e| e.to_string())?))
    }
}

/// Frequency of the counter on all chips so far, if the driver does not report one.
const DEFAULT_KHZ: u64 = 100_000;

/// Makes the device's clock and reads it once.
fn read_clock(driver: &Driver, gpu_id: u32, render: Fd) -> Result<Arc<LinearClock>, CallError> {
    let mut info = drm::DeviceInfo::default();
    let mut ask = drm::Info {
        return_pointer: (&raw mut info).expose_provenance() as u64,
        return_size: size_of::<drm::DeviceInfo>() as u32,
        query: drm::AMDGPU_INFO_DEV_INFO,
        ..Default::default()
    };
    let khz = match call(&**driver.port(), render, &drm::INFO, &mut ask) {
        Ok(_) if info.gpu_counter_freq != 0 => u64::from(info.gpu_counter_freq),
        _ => DEFAULT_KHZ,
    };
    let clock = Arc::new(LinearClock::new(khz));
    calibrate(&clock, driver, gpu_id)?;
    Ok(clock)
}

/// Reads both clocks together.
fn calibrate(clock: &LinearClock, driver: &Driver, gpu_id: u32) -> Result<(), CallError> {
    let mut args = kfd::GetClockCounters { gpu_id, ..Default::default() };
    let before = monotonic_ns();
    driver.call(&kfd::GET_CLOCK_COUNTERS, &mut args)?;
    clock.set(args.gpu_clock_counter, before + (monotonic_ns() - before) / 2);
    Ok(())
}

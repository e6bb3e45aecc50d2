//! What the parts of one open AMD device share: driver, node, chip, signals, clock, and the fault that ended it.
//!
//! Place in the arrows: below queues and memory, above `driver` and `bo`. Source: amd.md 1.3, 1.10, 2.6.

use super::bo::{Bo, Placement};
use super::chip::Chip;
use super::driver::{Driver, Fault};
use super::topology::Node;
use crate::device::{DeviceError, DeviceTag};
use crate::hcq::memory::MemError;
use crate::hcq::signal::{Clock, Signal, SignalPool};
use doorbell_ioctl::abi::{drm, kfd};
use doorbell_ioctl::port::{CallError, Fd, call, monotonic_ns};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// How a device is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AmdOptions {
    /// Bytes of each ring; a power of two.
    pub ring_bytes: u64,
    /// Bytes of the kernargs ring.
    pub kernargs_bytes: u64,
    /// Bytes of each of the two staging buffers.
    pub staging_bytes: u64,
    /// Freed memory kept for reuse.
    pub cache_bytes: u64,
    /// How long a submission waits for room, and a host copy for its turn.
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
            // TIMEOUT: as the CPU device's; a suspended GPU needs a second to wake up.
            submit_timeout: Duration::from_secs(10),
            // TIMEOUT: the price of a sleep and a wake-up.
            spin: Duration::from_micros(100),
        }
    }
}

/// The shared part.
#[derive(Debug)]
pub struct Core {
    pub tag: DeviceTag,
    pub driver: Arc<Driver>,
    pub node: Node,
    pub chip: &'static Chip,
    pub render: Fd,
    pub options: AmdOptions,
    pub clock: Arc<GpuClock>,
    pages: Arc<Mutex<Vec<Bo>>>,
    pub signals: Arc<SignalPool>,
    fault: OnceLock<String>,
    closed: AtomicBool,
}

impl Core {
    /// Ties the process to the device and makes its signal pool.
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
        let clock = Arc::new(GpuClock::new(&driver, node.gpu_id, render).map_err(refused("read clocks"))?);
        let pages = Arc::new(Mutex::new(Vec::<Bo>::new()));
        let (source_driver, source_pages, gpu_id) = (Arc::clone(&driver), Arc::clone(&pages), node.gpu_id);
        let source = move || {
            let failed = |e: CallError| MemError::Driver(format!("signals: {e}"));
            let page = Bo::new(&source_driver, gpu_id, render, 4096, Placement::Host).map_err(failed)?;
            let view = page.view().map_err(failed)?;
            source_pages.lock().unwrap_or_else(PoisonError::into_inner).push(page);
            Ok(view)
        };
        let signals = SignalPool::of_device(Box::new(source), Arc::clone(&clock) as _);
        let (fault, closed) = (OnceLock::new(), AtomicBool::new(false));
        Ok(Arc::new(Self { tag, driver, node, chip, render, options, clock, pages, signals, fault, closed }))
    }

    /// A buffer of this device.
    ///
    /// # Errors
    /// The driver's.
    pub fn bo(&self, len_bytes: u64, placement: Placement) -> Result<Bo, CallError> {
        Bo::new(&self.driver, self.node.gpu_id, self.render, len_bytes, placement)
    }

    /// As [`Core::bo`] for what the device itself needs.
    ///
    /// # Errors
    /// `Driver`.
    pub fn own_bo(&self, what: &'static str, len_bytes: u64, placement: Placement) -> Result<Bo, DeviceError> {
        self.bo(len_bytes, placement).map_err(|source| self.refused(what, source))
    }

    #[must_use]
    pub fn refused(&self, what: &'static str, source: CallError) -> DeviceError {
        DeviceError::Driver { device: self.tag.name().into(), what, source }
    }

    /// Remembers the first fault: the device does nothing from then on.
    pub fn set_fault(&self, fault: &Fault) {
        if self.fault.get().is_some() {
            return;
        }
        let place = match fault {
            Fault::Memory(m) => format!(" ({}){}", self.driver.describe(m.va), self.fault_query()),
            Fault::Hardware(_) => String::new(),
        };
        self.set_fault_text(format!("{fault}{place}"));
    }

    /// What amdgpu itself knows of the last fault: its address, the status register, the hub. Nothing on kernels that are too old to say.
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

    /// As [`Core::set_fault`], in words.
    pub fn set_fault_text(&self, text: String) {
        let _first_one_stays = self.fault.set(text);
    }

    #[must_use]
    pub fn fault(&self) -> Option<&str> {
        self.fault.get().map(String::as_str)
    }

    /// Refuses work from now on.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Whether the signal lies in this device's pages, where its queues can wait for it.
    #[must_use]
    pub fn has_signal(&self, signal: &Signal) -> bool {
        let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        pages.iter().any(|page| (page.va()..page.va() + page.len_bytes()).contains(&signal.va()))
    }

    /// Gives the signals' pages back. No queue writes them any more.
    pub fn free_signals(&self) {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// # Errors
    /// `Unavailable` after a fault, `Closed`.
    pub fn check_open(&self) -> Result<(), DeviceError> {
        if self.is_closed() {
            return Err(DeviceError::Closed { device: self.tag.name().into() });
        }
        match self.fault() {
            Some(fault) => Err(DeviceError::Unavailable { name: self.tag.name().into(), why: fault.into() }),
            None => Ok(()),
        }
    }
}

/// The device's counter against the host's monotonic clock.
#[derive(Debug)]
pub struct GpuClock {
    khz: u64,
    /// Ticks and nanoseconds read together.
    pair: Mutex<(u64, u64)>,
}

/// The counter of all chips so far; the driver is asked first.
const DEFAULT_KHZ: u64 = 100_000;

impl GpuClock {
    fn new(driver: &Driver, gpu_id: u32, render: Fd) -> Result<Self, CallError> {
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
        let clock = Self { khz, pair: Mutex::default() };
        clock.calibrate(driver, gpu_id)?;
        Ok(clock)
    }

    /// Reads both clocks again: they drift apart.
    ///
    /// # Errors
    /// The driver's.
    pub fn calibrate(&self, driver: &Driver, gpu_id: u32) -> Result<(), CallError> {
        let mut args = kfd::GetClockCounters { gpu_id, ..Default::default() };
        let before = monotonic_ns();
        driver.call(&kfd::GET_CLOCK_COUNTERS, &mut args)?;
        let now = before + (monotonic_ns() - before) / 2;
        *self.pair.lock().unwrap_or_else(PoisonError::into_inner) = (args.gpu_clock_counter, now);
        Ok(())
    }
}

impl Clock for GpuClock {
    fn ns(&self, ticks: u64) -> u64 {
        let (at, ns) = *self.pair.lock().unwrap_or_else(PoisonError::into_inner);
        let since = (i128::from(ticks) - i128::from(at)) * 1_000_000 / i128::from(self.khz.max(1));
        u64::try_from((i128::from(ns) + since).max(1)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_become_host_nanoseconds_on_both_sides_of_the_reading() {
        let clock = GpuClock { khz: 100_000, pair: Mutex::new((1000, 5_000_000)) };
        assert_eq!((clock.ns(1000), clock.ns(1001), clock.ns(999)), (5_000_000, 5_000_010, 4_999_990));
        assert_eq!(clock.ns(0), 4_990_000);
    }
}

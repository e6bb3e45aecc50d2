//! State shared by the parts of one open NVIDIA device: GPU, options, signals, clock, and its fault, if any.
//!
//! Layer: below queues and memory, above `gpu` and `bo`.

use super::bo::{Bo, Placement};
use super::driver::{Driver, RmError};
use super::events::Events;
use super::find::Card;
use super::gpu::Gpu;
use super::paging::PageTables;
use crate::gpu::clock::LinearClock;
use crate::gpu::encode::GpuCore;
use crate::gpu::pool;
use crate::gpu::signal_pages::SignalPages;
use crate::gpu::staging::SharedBuffer;
use crate::health::Health;
use crate::{DeviceError, DeviceTag};
use doorbell_hcq::memory::{MemError, View};
use doorbell_hcq::signal::{Signal, SignalPool};
use doorbell_ioctl::port::monotonic_ns;
use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Options for opening a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvOptions {
    /// Accepts driver releases that were not tested, using the structs of the nearest tested one.
    pub any_release: bool,
    /// Maps the doorbells through BAR1 (Hopper and later), for machines where BAR0 is not passed through.
    pub bar1_doorbell: bool,
    /// Who manages the page tables; always RM if the connection was made without UVM.
    pub tables: PageTables,
    /// Gives the copy queue an engine of its own, if the driver offers one; otherwise it shares the graphics engine's
    /// runlist.
    pub own_copy_engine: bool,
    /// Entries of each GPFIFO; a power of two.
    pub ring_entries: u32,
    /// Bytes of each ring of push buffers.
    pub push_bytes: u64,
    /// Bytes of the ring of constant banks and QMDs.
    pub launch_bytes: u64,
    /// Bytes of each of the two staging buffers.
    pub staging_bytes: u64,
    /// Bytes of freed memory to keep for reuse.
    pub cache_bytes: u64,
    /// Bytes of the address range for the channels' contexts.
    pub context_bytes: u64,
    /// How long a submission waits for ring space, and a host copy for a staging buffer.
    pub submit_timeout: Duration,
    /// How long a wait spins before it sleeps.
    pub spin: Duration,
    /// A wait sleeps until the channel's interrupt, if the driver supports events; otherwise it polls with short
    /// sleeps.
    pub events: bool,
}

impl Default for NvOptions {
    fn default() -> Self {
        Self {
            any_release: false,
            bar1_doorbell: false,
            tables: PageTables::default(),
            own_copy_engine: true,
            ring_entries: 1 << 13,
            push_bytes: 4 << 20,
            launch_bytes: 8 << 20,
            staging_bytes: 4 << 20,
            cache_bytes: 1 << 30,
            context_bytes: 512 << 20,
            // TIMEOUT: as for the other devices; an idle GPU needs a second to raise its clocks.
            submit_timeout: Duration::from_secs(10),
            // TIMEOUT: about the cost of a sleep and a wake-up.
            spin: Duration::from_micros(100),
            events: true,
        }
    }
}

/// The shared state.
#[derive(Debug)]
pub struct Core {
    pub tag: DeviceTag,
    pub gpu: Arc<Gpu>,
    pub options: NvOptions,
    pub clock: Arc<LinearClock>,
    pages: SignalPages<Bo>,
    pub signals: Arc<SignalPool>,
    pub(crate) health: Health,
    /// Code was loaded since the instruction caches were last invalidated.
    fresh_code: AtomicBool,
    wakes: Mutex<Wakes>,
}

/// What wakes a waiting host.
#[derive(Debug, Default)]
enum Wakes {
    /// No wait has slept yet.
    #[default]
    NotTried,
    Events(Arc<Events>),
    /// A timer only.
    Nothing,
}

impl Core {
    /// Brings a card up and creates its signal pool.
    ///
    /// # Errors
    /// `Rm` with the call that was refused, `Unavailable` for an unknown chip or an unsupported mode.
    pub fn open(
        tag: DeviceTag,
        driver: &Arc<Driver>,
        card: &Card,
        options: NvOptions,
    ) -> Result<Arc<Self>, DeviceError> {
        let opened = Gpu::open(driver, card, options.bar1_doorbell, options.tables);
        Self::of(tag.clone(), opened.map_err(|e| e.into_device_error(tag.name()))?, options)
    }

    /// Creates the shared state over an open GPU.
    ///
    /// # Errors
    /// `Rm`: its clock cannot be read.
    pub fn of(tag: DeviceTag, gpu: Arc<Gpu>, options: NvOptions) -> Result<Arc<Self>, DeviceError> {
        let clock = Arc::new(LinearClock::new(1_000_000));
        let pages = SignalPages::default();
        let (source_gpu, source_pages) = (Arc::clone(&gpu), pages.clone());
        let source = move || {
            let failed = |e: &dyn std::fmt::Display| MemError::Driver(format!("signals: {e}"));
            let page = Bo::new(&source_gpu, 4096, Placement::Host).map_err(|e| failed(&e))?;
            let view = page.view().map_err(|e| failed(&e))?;
            source_pages.keep(page, source_gpu.driver.signal_pages());
            Ok(view)
        };
        let signals = SignalPool::of_device(Box::new(source), Arc::clone(&clock) as _);
        let (health, fresh_code) = (Health::default(), AtomicBool::new(true));
        let wakes = Mutex::new(if options.events { Wakes::NotTried } else { Wakes::Nothing });
        let core = Self { tag, gpu, options, clock, pages, signals, health, fresh_code, wakes };
        core.calibrate()?;
        Ok(Arc::new(core))
    }

    /// Reads the GPU's and the host's clock together, since they drift apart.
    ///
    /// # Errors
    /// `Rm`.
    pub fn calibrate(&self) -> Result<(), DeviceError> {
        let before = monotonic_ns();
        let ns = self.gpu.time_ns().map_err(|e| self.refused("read clocks", e))?;
        self.clock.set(ns, before + (monotonic_ns() - before) / 2);
        Ok(())
    }

    /// Allocates a buffer of this device.
    ///
    /// # Errors
    /// The driver's.
    pub fn bo(&self, len_bytes: u64, placement: Placement) -> Result<Bo, RmError> {
        Bo::new(&self.gpu, len_bytes, placement)
    }

    /// As [`Core::bo`], for buffers of the device itself; `what` names the buffer in errors.
    ///
    /// # Errors
    /// `Rm`.
    pub fn own_bo(&self, what: &'static str, len_bytes: u64, placement: Placement) -> Result<Bo, DeviceError> {
        self.bo(len_bytes, placement).map_err(|source| self.refused(what, source))
    }

    /// Allocates a host-mapped buffer; returns it with its view.
    ///
    /// # Errors
    /// `Rm`, `Driver`.
    pub fn shared_bo(&self, what: &'static str, len_bytes: u64) -> Result<(Bo, View), DeviceError> {
        let bo = self.own_bo(what, len_bytes, Placement::Host)?;
        let view = self.view_of(what, &bo)?;
        Ok((bo, view))
    }

    /// The host's view of a buffer.
    ///
    /// # Errors
    /// `Driver` for a buffer that is not mapped for the host.
    pub(crate) fn view_of(&self, what: &'static str, bo: &Bo) -> Result<View, DeviceError> {
        bo.view().map_err(|source| DeviceError::Driver { device: self.tag.name().into(), what, source })
    }

    #[must_use]
    pub fn refused(&self, what: &'static str, source: RmError) -> DeviceError {
        DeviceError::Rm { device: self.tag.name().into(), what, source: Box::new(source) }
    }

    /// Frees the signals' pages. No channel may write them any more.
    pub fn free_signals(&self) {
        self.pages.free();
    }

    /// The events that wake a sleeping host, created on the first call. `None` if the driver has no events, or if they
    /// do not arrive.
    #[must_use]
    pub fn events(&self) -> Option<Arc<Events>> {
        let mut wakes = self.wakes.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*wakes, Wakes::NotTried) {
            *wakes = match Events::new(&self.gpu) {
                Ok(events) => Wakes::Events(Arc::new(events)),
                Err(e) => {
                    log::warn!("{}: no events: {e}; waits poll instead", self.tag);
                    Wakes::Nothing
                }
            };
        }
        match &*wakes {
            Wakes::Events(events) if !events.is_broken() => Some(Arc::clone(events)),
            _ => None,
        }
    }

    /// Frees the events. No wait may be sleeping any more.
    pub(crate) fn end_events(&self) {
        *self.wakes.lock().unwrap_or_else(PoisonError::into_inner) = Wakes::Nothing;
    }

    /// Records that code was loaded: instruction caches may be stale.
    pub(crate) fn note_code(&self) {
        self.fresh_code.store(true, Ordering::Release);
    }

    /// Whether instruction caches must be invalidated; reading it clears the flag.
    #[must_use]
    pub(crate) fn take_fresh_code(&self) -> bool {
        // The flag is nearly always clear, so a plain load comes first.
        self.fresh_code.load(Ordering::Acquire) && self.fresh_code.swap(false, Ordering::AcqRel)
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
        let page = self.gpu.driver.signal_pages().holding(signal)?;
        self.gpu.map_peer(page.va()).ok()?.then_some(page as _)
    }

    fn map_peer(&self, va: u64) -> Result<bool, DeviceError> {
        self.gpu.map_peer(va).map_err(|source| self.refused("map a peer's memory", source))
    }

    fn shared_buffer(&self, what: &'static str, len_bytes: u64) -> Result<SharedBuffer, DeviceError> {
        let (bo, view) = self.shared_bo(what, len_bytes)?;
        Ok(SharedBuffer { va: bo.va(), view, keep: Arc::new(bo) })
    }

    fn platform(&self) -> String {
        format!("chip {} driver {}", self.gpu.chip.name, self.gpu.driver.release())
    }

    fn last_calls(&self) -> String {
        self.gpu.driver.recent_calls()
    }
}

impl pool::Source for Core {
    fn device(&self) -> &str {
        self.tag.name()
    }

    fn memory_bytes(&self) -> u64 {
        self.gpu.properties.vram_bytes
    }

    fn cache_bytes(&self) -> u64 {
        self.options.cache_bytes
    }

    fn buffer(&self, len_bytes: u64) -> Result<Arc<dyn pool::Buffer>, String> {
        Ok(Arc::new(self.bo(len_bytes, Placement::Vram).map_err(|e| e.to_string())?))
    }
}

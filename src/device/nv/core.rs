//! What the parts of one open NVIDIA device share: GPU, options, signals, clock, and the fault that ended it.
//!
//! Place in the arrows: below queues and memory, above `gpu` and `bo`.

use super::bo::{Bo, Placement};
use super::driver::{Driver, RmError};
use super::events::Events;
use super::find::Card;
use super::gpu::Gpu;
use super::paging::PageTables;
use crate::clock::LinearClock;
use crate::life::{Life, SignalPages};
use crate::{DeviceError, DeviceTag, pool};
use doorbell_hcq::memory::{MemError, View};
use doorbell_hcq::signal::{Signal, SignalPool};
use doorbell_ioctl::port::monotonic_ns;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How a device is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvOptions {
    /// Takes driver releases that were not tested, with the structs of the nearest one that was.
    pub any_release: bool,
    /// Maps the doorbells through BAR1 (from Hopper on), for machines where BAR0 is not passed through.
    pub bar1_doorbell: bool,
    /// Who fills the page tables; RM in any case where the connection was made without UVM.
    pub tables: PageTables,
    /// Gives the copy queue an engine beside the graphics engine, where the driver has one; else it shares that engine's runlist.
    pub own_copy_engine: bool,
    /// Entries of each GPFIFO; a power of two.
    pub ring_entries: u32,
    /// Bytes of each ring of push buffers.
    pub push_bytes: u64,
    /// Bytes of the ring of constant banks and QMDs.
    pub launch_bytes: u64,
    /// Bytes of each of the two staging buffers.
    pub staging_bytes: u64,
    /// Freed memory kept for reuse.
    pub cache_bytes: u64,
    /// Addresses for the contexts of the channels.
    pub context_bytes: u64,
    /// How long a submission waits for room, and a host copy for its turn.
    pub submit_timeout: Duration,
    /// How long a wait spins before it sleeps.
    pub spin: Duration,
    /// A wait sleeps until the channel's interrupt wakes it, where the driver has events; else it naps.
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
            // TIMEOUT: as the other devices'; a GPU that was idle needs a second for its clocks.
            submit_timeout: Duration::from_secs(10),
            // TIMEOUT: the price of a sleep and a wake-up.
            spin: Duration::from_micros(100),
            events: true,
        }
    }
}

/// The shared part.
#[derive(Debug)]
pub struct Core {
    pub tag: DeviceTag,
    pub gpu: Arc<Gpu>,
    pub options: NvOptions,
    pub clock: Arc<LinearClock>,
    pages: SignalPages<Bo>,
    pub signals: Arc<SignalPool>,
    pub life: Life,
    /// Code was loaded since the instruction caches were last dropped.
    fresh_code: AtomicBool,
    wakes: Mutex<Wakes>,
}

/// What wakes a host that waits.
#[derive(Debug, Default)]
enum Wakes {
    /// Nobody has slept yet.
    #[default]
    Unasked,
    Events(Arc<Events>),
    /// Time alone.
    Nothing,
}

impl Core {
    /// Brings a card up and makes its signal pool.
    ///
    /// # Errors
    /// `Rm` with the call that was refused, `Unavailable` for what this runtime does not know or do.
    pub fn open(
        tag: DeviceTag,
        driver: &Arc<Driver>,
        card: &Card,
        options: NvOptions,
    ) -> Result<Arc<Self>, DeviceError> {
        let opened = Gpu::open(driver, card, options.bar1_doorbell, options.tables);
        Self::of(tag.clone(), opened.map_err(|e| e.of_device(tag.name()))?, options)
    }

    /// Over a GPU that is up.
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
            source_pages.keep(page);
            Ok(view)
        };
        let signals = SignalPool::of_device(Box::new(source), Arc::clone(&clock) as _);
        let (life, fresh_code) = (Life::default(), AtomicBool::new(true));
        let wakes = Mutex::new(if options.events { Wakes::Unasked } else { Wakes::Nothing });
        let core = Self { tag, gpu, options, clock, pages, signals, life, fresh_code, wakes };
        core.calibrate()?;
        Ok(Arc::new(core))
    }

    /// Reads both clocks: they drift apart.
    ///
    /// # Errors
    /// `Rm`.
    pub fn calibrate(&self) -> Result<(), DeviceError> {
        let before = monotonic_ns();
        let ns = self.gpu.time_ns().map_err(|e| self.refused("read clocks", e))?;
        self.clock.set(ns, before + (monotonic_ns() - before) / 2);
        Ok(())
    }

    /// A buffer of this device.
    ///
    /// # Errors
    /// The driver's.
    pub fn bo(&self, len_bytes: u64, placement: Placement) -> Result<Bo, RmError> {
        Bo::new(&self.gpu, len_bytes, placement)
    }

    /// As [`Core::bo`] for what the device itself needs.
    ///
    /// # Errors
    /// `Rm`.
    pub fn own_bo(&self, what: &'static str, len_bytes: u64, placement: Placement) -> Result<Bo, DeviceError> {
        self.bo(len_bytes, placement).map_err(|source| self.refused(what, source))
    }

    /// A buffer that the host sees, with its view.
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
    /// `Driver` for one that it does not see.
    pub fn view_of(&self, what: &'static str, bo: &Bo) -> Result<View, DeviceError> {
        bo.view().map_err(|source| DeviceError::Driver { device: self.tag.name().into(), what, source })
    }

    #[must_use]
    pub fn refused(&self, what: &'static str, source: RmError) -> DeviceError {
        DeviceError::Rm { device: self.tag.name().into(), what, source: Box::new(source) }
    }

    #[must_use]
    pub fn cannot(&self, what: String) -> DeviceError {
        DeviceError::Unsupported { device: self.tag.name().into(), what }
    }

    /// # Errors
    /// `Unavailable` after a fault, `Closed`.
    pub fn check_open(&self) -> Result<(), DeviceError> {
        self.life.check(self.tag.name())
    }

    /// Whether the signal lies in this device's pages, where its channels can wait for it.
    #[must_use]
    pub fn has_signal(&self, signal: &Signal) -> bool {
        self.pages.hold(signal)
    }

    /// Gives the signals' pages back. No channel writes them any more.
    pub fn free_signals(&self) {
        self.pages.free();
    }

    /// What can wake a host that is about to sleep; asked for the first time, it is made. Nothing where the driver has none, or they do not arrive.
    #[must_use]
    pub fn events(&self) -> Option<Arc<Events>> {
        let mut wakes = self.wakes.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*wakes, Wakes::Unasked) {
            *wakes = match Events::new(&self.gpu) {
                Ok(events) => Wakes::Events(Arc::new(events)),
                Err(e) => {
                    log::warn!("{}: no events: {e}; waits nap", self.tag);
                    Wakes::Nothing
                }
            };
        }
        match &*wakes {
            Wakes::Events(events) if !events.is_deaf() => Some(Arc::clone(events)),
            _ => None,
        }
    }

    /// Gives them back: nobody sleeps any more.
    pub fn end_events(&self) {
        *self.wakes.lock().unwrap_or_else(PoisonError::into_inner) = Wakes::Nothing;
    }

    /// Code was loaded: instruction caches may hold what was there before.
    pub fn note_code(&self) {
        self.fresh_code.store(true, Ordering::Release);
    }

    /// Whether instruction caches are to be dropped; asked once.
    #[must_use]
    pub fn take_fresh_code(&self) -> bool {
        // Nearly always there is none: a plain load tells.
        self.fresh_code.load(Ordering::Acquire) && self.fresh_code.swap(false, Ordering::AcqRel)
    }
}

impl pool::Source for Core {
    fn device(&self) -> &str {
        self.tag.name()
    }

    fn memory_bytes(&self) -> u64 {
        self.gpu.facts.vram_bytes
    }

    fn cache_bytes(&self) -> u64 {
        self.options.cache_bytes
    }

    fn buffer(&self, len_bytes: u64) -> Result<Arc<dyn pool::Buffer>, String> {
        Ok(Arc::new(self.bo(len_bytes, Placement::Vram).map_err(|e| e.to_string())?))
    }
}

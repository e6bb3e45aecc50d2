//! Channels: channel groups with their context, rings with their pointers, engine objects, tokens, and error notifiers.
//!
//! Layer: above `bo`; `queue` fills the rings. Source: docs/nv.md 2 (steps 15 to 24), 2.2, 3.1;
//! `alloc_channel.h` of release 580.
//! Ring and USERD lie together in VRAM that is mapped through BAR1 or, if it cannot be mapped, together in system
//! memory.
//! A ring slot becomes free when the submission that used it completes; the GPU does not keep GP_GET up to date.
//! A copy engine gets a group of its own if the driver offers a suitable engine (2.3). That group has no context share,
//! since copy engines have no context.
//! Left out: channels without a group, recovery of a group (a failed one ends the device).

use super::bo::{Bo, Placement};
use super::core::Core;
use super::driver::{Driver, Handle, RmError};
use super::gpu::Gpu;
use crate::DeviceError;
use doorbell_hcq::bits::join;
use doorbell_hcq::memory::{Dwords, View};
use doorbell_hcq::packet::nv::gpfifo::{Entry, USERD_GP_GET, USERD_GP_PUT};
use doorbell_ioctl::abi::{nvrm, uvm};
use doorbell_ioctl::port::{Doorbell, Mapped, drain_stores, see_device_stores};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of USERD and of the error notifier; a buffer is a page of the host at least.
const PAGE: u64 = 4096;
const ENTRY_BYTES: u64 = 8;
/// Alignment of the address range for contexts.
const CONTEXT_ALIGN: u64 = 2 << 20;
/// NV2080_ENGINE_TYPE of the graphics engine, which computes.
const ENGINE_GRAPHICS: u32 = 1;
/// NVB0B5_ALLOCATION_PARAMETERS version: the engine is selected by its engine type.
const COPY_BY_ENGINE_TYPE: u32 = 1;
/// CE_GET_CAPS_V2 bits: shares the graphics engine's runlist; is meant for reads of system memory, for writes, for
/// both. An H100 sets the last one only.
const CAPS_GRAPHICS: u16 = 1 << 0;
const CAPS_SYSTEM_READ: u16 = 1 << 2;
const CAPS_SYSTEM_WRITE: u16 = 1 << 3;
const CAPS_SYSTEM: u16 = 1 << 5;
/// Context share flag: subcontexts run concurrently.
const CTXSHARE_ASYNC: u32 = 1;

/// The contents of an error notifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    /// Error code of `nverror.h`; the same number as in Xid log lines.
    pub code: u32,
    pub engine: u16,
    pub status: u16,
    pub time_ns: u64,
}

impl Notification {
    /// Reads a notifier; `None` while the channel has no error.
    #[must_use]
    pub fn read(notifier: &View) -> Option<Self> {
        let mut bytes = [0; 16];
        notifier.read(14, &mut bytes[14..]).ok()?;
        if bytes[14..] == [0; 2] {
            return None;
        }
        // ORDER: the driver stores the status last.
        see_device_stores();
        notifier.read(0, &mut bytes).ok()?;
        let word = |n: usize| u32::from_le_bytes([bytes[n], bytes[n + 1], bytes[n + 2], bytes[n + 3]]);
        let (engine, status) = ((word(12) & 0xffff) as u16, (word(12) >> 16) as u16);
        Some(Self { code: word(8), engine, status, time_ns: join(word(0), word(4)) })
    }
}

/// A channel group: either of the graphics engine, with a context share and an address range for the context buffers,
/// or of a copy engine.
#[derive(Debug)]
pub struct Group {
    gpu: Arc<Gpu>,
    handle: Handle,
    /// NV2080_ENGINE_TYPE.
    engine_type: u32,
    /// 0 for a copy engine.
    ctxshare: Handle,
    /// Address range for the channels' context buffers, which only UVM maps into. None if RM manages the page tables:
    /// it chooses addresses itself.
    context_range: Option<Arc<Mapped>>,
}

/// One channel with its engine object.
#[derive(Debug)]
pub struct Channel {
    gpu: Arc<Gpu>,
    // Keeps the group.
    group: Arc<Group>,
    handle: Handle,
    engine: Handle,
    token: u32,
    doorbell: Doorbell,
    views: RingViews,
    entries: u32,
    /// Total entries written.
    put: u64,
    /// Ring index of the next entry: `put` modulo the ring's length.
    slot: u32,
    is_registered: bool,
    notifier: View,
    /// Buffers of ring, USERD and notifier; freed after the channel.
    buffers: Vec<Bo>,
}

/// The host's views of ring and USERD.
struct RingViews {
    ring: Dwords,
    userd: Dwords,
}

impl std::fmt::Debug for RingViews {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RingViews({})", self.ring.count())
    }
}

impl Group {
    /// Steps 15 and 17: creates the group of the graphics engine, and reserves addresses for its contexts.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(core: &Core) -> Result<Arc<Self>, DeviceError> {
        let (gpu, driver) = (&core.gpu, &core.gpu.driver);
        let refused = |e| core.refused("make a channel group", e);
        let reserve = || {
            driver.reserve(core.options.context_bytes, CONTEXT_ALIGN).map(Arc::new).map_err(|errno| {
                let outcome = super::driver::Outcome::Errno(errno);
                refused(RmError { call: "reserve addresses of contexts".into(), outcome })
            })
        };
        let context_range = gpu.uses_uvm().then(reserve).transpose()?;
        // From here on the group's drop cleans up after a failure.
        let engine_type = ENGINE_GRAPHICS;
        let mut group = Self { gpu: Arc::clone(gpu), handle: 0, engine_type, ctxshare: 0, context_range };
        let mut params = nvrm::ChannelGroupAlloc { engine_type, ..Default::default() };
        group.handle = driver.alloc(gpu.device, nvrm::KEPLER_CHANNEL_GROUP_A, Some(&mut params)).map_err(refused)?;
        let mut params = nvrm::CtxShareAlloc { h_va_space: gpu.vaspace, flags: CTXSHARE_ASYNC, ..Default::default() };
        group.ctxshare = driver.alloc(group.handle, nvrm::FERMI_CONTEXT_SHARE_A, Some(&mut params)).map_err(refused)?;
        Ok(Arc::new(group))
    }

    /// Creates a group for a copy engine that runs concurrently with the graphics engine; `None` if there is none.
    ///
    /// # Errors
    /// The driver's.
    pub fn of_own_copy_engine(core: &Core) -> Result<Option<Arc<Self>>, DeviceError> {
        let best = Engine::of_gpu(core)?.into_iter().filter(|engine| engine.reaches_host);
        // Of those with equally many the first.
        let best = best.rev().max_by_key(|engine| engine.physical);
        best.map(|engine| Self::of_copy_engine(core, engine.engine_type)).transpose()
    }

    /// Creates a group for this copy engine.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn of_copy_engine(core: &Core, engine_type: u32) -> Result<Arc<Self>, DeviceError> {
        let (gpu, driver) = (&core.gpu, &core.gpu.driver);
        let refused = |e| core.refused("make a group of a copy engine", e);
        let mut params = nvrm::ChannelGroupAlloc { h_va_space: gpu.vaspace, engine_type, ..Default::default() };
        let handle = driver.alloc(gpu.device, nvrm::KEPLER_CHANNEL_GROUP_A, Some(&mut params)).map_err(refused)?;
        Ok(Arc::new(Self { gpu: Arc::clone(gpu), handle, engine_type, ctxshare: 0, context_range: None }))
    }

    /// The NV2080_ENGINE_TYPE of its engine.
    #[must_use]
    pub fn engine_type(&self) -> u32 {
        self.engine_type
    }

    /// Step 24: schedules the group's channels, so that they run.
    ///
    /// # Errors
    /// The driver's.
    pub fn schedule(&self) -> Result<(), RmError> {
        let mut params = nvrm::GroupSchedule { b_enable: 1, ..Default::default() };
        self.gpu.driver.control(self.handle, &nvrm::GROUP_GPFIFO_SCHEDULE, &mut params)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let driver = &self.gpu.driver;
        if self.handle != 0
            && let Err(e) = driver.free(self.gpu.device, self.handle)
        {
            log::warn!("channel group {:#x} was not freed: {e}", self.handle);
        }
        if let Some(context_range) = &self.context_range {
            driver.forget(context_range.base().0);
        }
    }
}

impl Channel {
    /// Steps 16, 18 to 22: creates a channel with an engine object of `class`.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(core: &Core, group: &Arc<Group>, class: u32) -> Result<Self, DeviceError> {
        let gpu = &core.gpu;
        let refused = |what| move |e| core.refused(what, e);
        let entries = core.options.ring_entries.next_power_of_two().max(4);
        let ring_bytes = u64::from(entries) * ENTRY_BYTES;
        let ring_bytes = ring_bytes.next_multiple_of(PAGE);
        let ring = ring_memory(core, ring_bytes + PAGE)?;
        let notifier_bo = core.own_bo("error notifier", PAGE, Placement::System)?;
        let notifier = core.view_of("error notifier", &notifier_bo)?;
        notifier.write(0, &[0; 64])?;
        let view = core.view_of("ring", &ring)?;
        view.sub(ring_bytes, PAGE)?.write(0, &[0; 512])?;
        let views =
            RingViews { ring: view.sub(0, ring_bytes)?.dwords()?, userd: view.sub(ring_bytes, PAGE)?.dwords()? };
        let mut params = nvrm::ChannelAlloc {
            h_object_error: notifier_bo.memory(),
            gp_fifo_offset: ring.va(),
            gp_fifo_entries: entries,
            h_context_share: group.ctxshare,
            ..Default::default()
        };
        (params.h_userd_memory[0], params.userd_offset[0]) = (ring.memory(), ring_bytes);
        let own = gpu.chip.gpfifo_class;
        let handle = if gpu.driver.release().major >= nvrm::CHANNELS_MOVED {
            gpu.driver.alloc(group.handle, own, Some(&mut nvrm::ChannelAllocV610::from(params)))
        } else {
            gpu.driver.alloc(group.handle, own, Some(&mut params))
        };
        let handle = handle.map_err(refused("make a channel"))?;
        let doorbell = gpu.doorbell().map_err(|errno| {
            let outcome = super::driver::Outcome::Errno(errno);
            core.refused("doorbell", RmError { call: "map".into(), outcome })
        })?;
        let mut channel = Self {
            gpu: Arc::clone(gpu),
            group: Arc::clone(group),
            handle,
            engine: 0,
            token: 0,
            doorbell,
            views,
            entries,
            put: 0,
            slot: 0,
            is_registered: false,
            notifier,
            buffers: vec![ring, notifier_bo],
        };
        channel.connect(class).map_err(refused("connect a channel"))?;
        Ok(channel)
    }

    /// Creates the engine object, gets the token, registers with UVM; in this order.
    fn connect(&mut self, class: u32) -> Result<(), RmError> {
        let driver = Arc::clone(&self.gpu.driver);
        self.engine = match self.group.engine_type {
            ENGINE_GRAPHICS => driver.alloc::<nvrm::GraphicsAlloc>(self.handle, class, None)?,
            engine_type => {
                let mut params = nvrm::CopyAlloc { version: COPY_BY_ENGINE_TYPE, engine_type };
                driver.alloc(self.handle, class, Some(&mut params))?
            }
        };
        let mut token = nvrm::WorkSubmitToken::default();
        driver.control(self.handle, &nvrm::GPFIFO_GET_WORK_SUBMIT_TOKEN, &mut token)?;
        self.token = token.work_submit_token;
        if self.gpu.uses_uvm() {
            self.register()?;
        }
        Ok(())
    }

    /// Step 21: registers the channel with UVM, which maps its context.
    fn register(&mut self) -> Result<(), RmError> {
        let driver = &self.gpu.driver;
        let mut args = uvm::RegisterChannel {
            gpu_uuid: self.gpu.uuid,
            rm_ctrl_fd: driver.ctl().0,
            h_client: driver.client(),
            h_channel: self.handle,
            // Copy engines have no context.
            base: self.group.context_range.as_ref().map_or(0, |w| w.base().0),
            length: self.group.context_range.as_ref().map_or(0, |w| w.len_bytes()),
            ..Default::default()
        };
        driver.uvm(&uvm::REGISTER_CHANNEL, &mut args, |a| a.rm_status)?;
        self.is_registered = true;
        Ok(())
    }

    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// The engine object.
    #[must_use]
    pub fn engine(&self) -> Handle {
        self.engine
    }

    #[must_use]
    pub fn token(&self) -> u32 {
        self.token
    }

    /// Entries that submissions can have in the ring at once. One slot stays empty, because a full ring would look like
    /// an empty one; another is reserved for the entry that wakes a waiting host.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        u64::from(self.entries) - 2
    }

    /// Total entries written so far.
    #[must_use]
    pub fn put(&self) -> u64 {
        self.put
    }

    /// GP_GET and GP_PUT, as stored in USERD.
    #[must_use]
    pub fn pointers(&self) -> (u32, u32) {
        let word = |at: u64| self.views.userd.get(at / 4).map_or(0, |w| w.load(Ordering::Acquire));
        (word(USERD_GP_GET), word(USERD_GP_PUT))
    }

    /// Stores an entry in the next slot. The caller has made sure that the slot is free.
    pub fn push(&mut self, entry: [u32; 2]) {
        let at = u64::from(self.slot) * 2;
        for (n, value) in (0..).zip(entry) {
            if let Some(word) = self.views.ring.get(at + n) {
                word.store(value, Ordering::Relaxed);
            }
        }
        self.put += 1;
        self.slot = if self.slot + 1 == self.entries { 0 } else { self.slot + 1 };
    }

    /// Publishes the pushed entries to the GPU: orders the entries first, then stores GP_PUT, then rings the doorbell.
    pub fn publish(&self) {
        // ORDER: entries may still be in a write-combining buffer.
        drain_stores();
        if let Some(word) = self.views.userd.get(USERD_GP_PUT / 4) {
            word.store(self.slot, Ordering::Release);
        }
        self.doorbell.ring(self.token.into());
    }

    /// The entry pushed as the `index`-th, counted from the start.
    #[must_use]
    pub fn entry(&self, index: u64) -> Option<Entry> {
        let at = index % u64::from(self.entries) * 2;
        let word = |n| self.views.ring.get(at + n).map_or(0, |w| w.load(Ordering::Relaxed));
        Entry::parse([word(0), word(1)]).ok()
    }

    /// The error notifier, which the driver writes when the channel fails.
    #[must_use]
    pub fn notifier(&self) -> &View {
        &self.notifier
    }

    /// Ends the channel: unregisters it from UVM and frees it with its engine object.
    fn end(&mut self) -> Result<(), RmError> {
        let driver = &self.gpu.driver;
        let unregistered = if self.is_registered { unregister(driver, self.gpu.uuid, self.handle) } else { Ok(()) };
        unregistered.and(driver.free(self.group.handle, self.handle))
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if let Err(e) = self.end() {
            // The GPU may still access the buffers, so they are leaked.
            log::warn!("channel {:#x} was not freed, its ring stays allocated: {e}", self.handle);
            self.buffers.drain(..).for_each(std::mem::forget);
        }
    }
}

/// A copy engine that channels can be on.
#[derive(Clone, Copy, Debug)]
pub struct Engine {
    /// Its NV2080_ENGINE_TYPE.
    pub engine_type: u32,
    /// How many physical copy engines do its work.
    physical: u32,
    /// Whether it is on the graphics engine's runlist.
    shares_graphics: bool,
    /// Whether it reads and writes memory of the host.
    pub reaches_host: bool,
}

impl Engine {
    /// The copy engines of a GPU that have physical ones and a runlist of their own. UVM takes a channel on the
    /// graphics engine's runlist for one of the graphics engine, and does not register it without a context.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn of_gpu(core: &Core) -> Result<Vec<Self>, DeviceError> {
        let gpu = &core.gpu;
        let refused = |e| core.refused("ask for copy engines", e);
        let mut engines = nvrm::Engines::default();
        gpu.driver.control(gpu.subdevice, &nvrm::GPU_GET_ENGINES_V2, &mut engines).map_err(refused)?;
        let count = (engines.engine_count as usize).min(engines.engine_list.len());
        let copies = engines.engine_list[..count].iter().filter(|ty| copy_engine_number(**ty).is_some());
        let asked: Result<Vec<Self>, RmError> = copies.map(|ty| Self::ask(gpu, *ty)).collect();
        let usable = |engine: &Self| engine.physical > 0 && !engine.shares_graphics;
        Ok(asked.map_err(refused)?.into_iter().filter(usable).collect())
    }

    fn ask(gpu: &Gpu, engine_type: u32) -> Result<Self, RmError> {
        let mut caps = nvrm::CeCaps { ce_engine_type: engine_type, ..Default::default() };
        gpu.driver.control(gpu.subdevice, &nvrm::CE_GET_CAPS_V2, &mut caps)?;
        let both = CAPS_SYSTEM_READ | CAPS_SYSTEM_WRITE;
        let reaches_host = caps.caps_tbl & CAPS_SYSTEM != 0 || caps.caps_tbl & both == both;
        let mut mask = nvrm::CePceMask { ce_engine_type: engine_type, ..Default::default() };
        // If the driver does not answer, each is assumed to have one.
        let asked = gpu.driver.control(gpu.subdevice, &nvrm::CE_GET_CE_PCE_MASK, &mut mask);
        let physical = if asked.is_ok() { mask.pce_mask.count_ones() } else { 1 };
        Ok(Self { engine_type, physical, shares_graphics: caps.caps_tbl & CAPS_GRAPHICS != 0, reaches_host })
    }

    /// n of its NV2080_ENGINE_TYPE_COPYn.
    #[must_use]
    pub fn number(self) -> u8 {
        copy_engine_number(self.engine_type).unwrap_or(0)
    }
}

/// n, if an NV2080_ENGINE_TYPE is COPYn: COPY0 to COPY9, and COPY10 to COPY19 in a second range.
fn copy_engine_number(engine_type: u32) -> Option<u8> {
    let number = match engine_type {
        0x09..=0x12 => engine_type - 0x09,
        0x34..=0x3d => engine_type - 0x34 + 10,
        _ => return None,
    };
    u8::try_from(number).ok()
}

fn unregister(driver: &Driver, gpu_uuid: [u8; 16], h_channel: Handle) -> Result<(), RmError> {
    let h_client = driver.client();
    if driver.release().major >= 595 {
        let mut args = uvm::UnregisterChannelV595 { h_client, h_channel, ..Default::default() };
        return driver.uvm(&uvm::UNREGISTER_CHANNEL_V595, &mut args, |a| a.rm_status);
    }
    let mut args = uvm::UnregisterChannel { gpu_uuid, h_client, h_channel, ..Default::default() };
    driver.uvm(&uvm::UNREGISTER_CHANNEL, &mut args, |a| a.rm_status)
}

/// Allocates memory for a ring and its USERD.
fn ring_memory(core: &Core, len_bytes: u64) -> Result<Bo, DeviceError> {
    match core.bo(len_bytes, Placement::VramMapped) {
        Ok(bo) => Ok(bo),
        Err(e) => {
            log::debug!("{}: VRAM cannot be mapped for the host, rings go to system memory: {e}", core.tag);
            core.own_bo("ring", len_bytes, Placement::Host)
        }
    }
}

//! One queue of the device: commands become packets, waits for other queues are added, the host waits with the driver's events.
//!
//! Place in the arrows: above `encode`, `ring`, `program`, `scratch`; `mod.rs` owns a compute and a copy queue. Source: amd.md 1.9, 2.5-2.9, 7.4.
//! What a submission needs stays alive until it is done: kernels, stamps, foreign timelines, memories of peers. Waits in packets compare 32
//! bits, so a timeline ends after 2^32 - 1 submissions with an error. Waits for signals of other drivers are done by the submitting host.

use super::core::Core;
use super::encode::{Compute, Copy, CopyCaches, IbMemory, List};
use super::events::{SignalEvent, Woken};
use super::program::{self, Block, Launch, Program};
use super::ran::{LastRan, Named};
use super::ring::{HwRing, RingKind};
use super::scratch::Scratch;
use crate::checks::Checks;
use crate::staging::{CopyPath, SharedBuffer};
use crate::{Arg, Command, DeviceError, DeviceTag, Geometry, Kernel, Memory, QueueKind, Stamp};
use doorbell_hcq::kernargs::Kernargs;
use doorbell_hcq::packet::pm4::chip::AcquireScope;
use doorbell_hcq::queue::SubmitError;
use doorbell_hcq::signal::{Backoff, Point, Progress, Report, Signal, Timeline, WaitError};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One sleep in the driver: its event may be taken by another waiter.
const SLICE_MS: u128 = 20; // TIMEOUT: what a waiter loses then.
/// Share of the kernargs ring that indirect buffers get on AQL rings.
const IB_BYTES: u64 = 1 << 20;

/// What a submission keeps alive. The fields are only ever dropped.
#[derive(Clone, Debug)]
#[allow(dead_code)]
pub enum Kept {
    Kernel(Kernel),
    Stamp(Stamp),
    Timeline(Arc<Timeline>),
    Memory(Memory),
    List(Arc<dyn std::any::Any + Send + Sync>),
}

/// State of whoever submits.
#[derive(Debug)]
pub struct Producer {
    // None once the queue is closed.
    ring: Option<HwRing>,
    encoder: Encoder,
    kernargs: Kernargs,
    ibs: Option<Kernargs>,
    scratch: Scratch,
    waits: Vec<Point>,
    kept: VecDeque<(u64, Kept)>,
    recent: LastRan,
    /// Code that had been loaded when the instruction cache was last invalidated, and when the list that is being made does it.
    code_seen: u64,
    code_opened: u64,
    // Freed after the ring.
    buffers: Vec<super::bo::Bo>,
}

/// The encoder of the ring.
#[derive(Debug)]
enum Encoder {
    Compute(Compute),
    Copy(Copy),
}

/// The queue.
pub struct AmdQueue {
    core: Arc<Core>,
    kind: QueueKind,
    timeline: Arc<Timeline>,
    event: SignalEvent,
    producer: Mutex<Producer>,
}

impl std::fmt::Debug for AmdQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AmdQueue({:?})", self.timeline)
    }
}

/// Indirect buffers in a ring of device-visible words.
struct IbRing<'a> {
    queue: &'a AmdQueue,
    ring: &'a mut Kernargs,
    value: u64,
}

impl IbMemory<DeviceError> for IbRing<'_> {
    fn place(&mut self, words: &[u32]) -> Result<u64, DeviceError> {
        let pad = doorbell_hcq::packet::pm4::NOP_ONE_DWORD;
        let pairs = words.chunks(2).map(|pair| doorbell_hcq::bits::join(pair[0], pair.get(1).copied().unwrap_or(pad)));
        let mut block: SmallVec<[u64; 48]> = pairs.collect();
        block.resize(block.len().next_multiple_of(program::KERNARG_ALIGN / 8), 0);
        self.queue.put_words(self.ring, &block, self.value)
    }
}

impl From<doorbell_hcq::packet::EmitError> for DeviceError {
    fn from(error: doorbell_hcq::packet::EmitError) -> Self {
        SubmitError::from(error).into()
    }
}

impl Producer {
    pub fn scratch_regs(&self) -> super::encode::ScratchRegs {
        self.scratch.regs()
    }

    /// What the list that is being made will wait for.
    pub fn waits(&mut self) -> &mut Vec<Point> {
        &mut self.waits
    }

    pub fn keep(&mut self, value: u64, what: Kept) {
        self.kept.push_back((value, what));
    }

    /// The last kernels of a recorded list, for a report.
    pub fn ran(&mut self, last: &Arc<[Named]>) {
        self.recent.list(last);
    }

    /// Runs dwords that lie elsewhere.
    ///
    /// # Errors
    /// As all packets.
    pub fn indirect(&mut self, addr: u64, size_dwords: u32) -> Result<(), DeviceError> {
        match &mut self.encoder {
            Encoder::Compute(c) => Ok(c.indirect(addr, size_dwords)?),
            Encoder::Copy(_) => Ok(()),
        }
    }
}

impl AmdQueue {
    /// Makes the ring and what it needs.
    ///
    /// # Errors
    /// `Driver` with the call that was refused.
    pub fn new(core: &Arc<Core>, kind: QueueKind) -> Result<Arc<Self>, DeviceError> {
        let is_pm4 = core.chip.format == super::chip::QueueFormat::Pm4;
        let (suffix, ring_kind) = match kind {
            QueueKind::Compute => ("compute", if is_pm4 { RingKind::Pm4 } else { RingKind::Aql }),
            QueueKind::Copy => ("copy", RingKind::Sdma),
        };
        let timeline = Timeline::new(format!("{}/{suffix}", core.tag), core.signals.signal()?);
        let event = core.driver.create_event(core.node.gpu_id, core.render, core.since);
        let event = event.map_err(|source| core.refused("create event", source))?;
        let producer = match Self::producer(core, ring_kind) {
            Ok(producer) => producer,
            Err(error) => {
                let _first_error_counts = core.driver.destroy_event(event);
                return Err(error);
            }
        };
        let queue = Arc::new(Self { core: Arc::clone(core), kind, timeline, event, producer: Mutex::new(producer) });
        let progress: Arc<dyn Progress> = Arc::clone(&queue) as _;
        queue.timeline.set_progress(Arc::downgrade(&progress));
        Ok(queue)
    }

    fn producer(core: &Arc<Core>, kind: RingKind) -> Result<Producer, DeviceError> {
        let words = |what, len_bytes| -> Result<(super::bo::Bo, Kernargs), DeviceError> {
            let bo = core.own_bo(what, len_bytes, super::bo::Placement::Host)?;
            let view = bo.view().map_err(|source| core.refused(what, source))?;
            Ok((bo, Kernargs::of(view)))
        };
        let ring = HwRing::new(core, kind)?;
        let kernargs_bytes = if kind == RingKind::Sdma { 4096 } else { core.options.kernargs_bytes };
        let (bo, kernargs) = words("kernargs", kernargs_bytes)?;
        let mut buffers = vec![bo];
        let mut ibs = None;
        if kind == RingKind::Aql {
            let (bo, ring) = words("indirect buffers", IB_BYTES)?;
            buffers.push(bo);
            ibs = Some(ring);
        }
        let encoder = match kind {
            RingKind::Sdma => Encoder::Copy(Copy::new(core.chip)),
            RingKind::Pm4 | RingKind::Aql => Encoder::Compute(Compute::new(core.chip, core.node.xcc_count())),
        };
        Ok(Producer {
            ring: Some(ring),
            encoder,
            kernargs,
            ibs,
            scratch: Scratch::default(),
            waits: Vec::new(),
            kept: VecDeque::new(),
            recent: LastRan::default(),
            code_seen: 0,
            code_opened: 0,
            buffers,
        })
    }

    #[must_use]
    pub fn timeline(&self) -> &Arc<Timeline> {
        &self.timeline
    }

    pub fn lock(&self) -> MutexGuard<'_, Producer> {
        self.producer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues commands behind all queued before, after `after`.
    ///
    /// # Errors
    /// As [`crate::Device::submit`].
    pub fn submit(&self, commands: &[Command], after: &[Point]) -> Result<Point, DeviceError> {
        commands.iter().try_for_each(|c| self.check(c))?;
        let mut producer = self.lock();
        self.core.check_open()?;
        let p = &mut *producer;
        self.begin(p);
        let private_bytes = commands.iter().map(|c| self.private_bytes(c)).max();
        self.need_scratch(p, private_bytes.unwrap_or(0))?;
        after.iter().for_each(|point| crate::memory::add_wait(&mut p.waits, point));
        // All hazards are read before any use is marked: two submissions to two queues can then never wait for one another.
        for command in commands {
            if let Command::Wait(point) = command {
                crate::memory::add_wait(&mut p.waits, point);
            }
            command.places().for_each(|place| place.memory.uses().hazards(&self.timeline, &mut p.waits));
        }
        let value = self.timeline.submitted() + 1;
        self.open_list(p, value)?;
        for command in commands {
            self.emit(p, command, value)?;
        }
        let places = commands.iter().flat_map(Command::places);
        self.finish(p, value, places.map(|place| &place.memory))
    }

    /// Starts a list, and lets go of what finished submissions kept.
    pub fn begin(&self, p: &mut Producer) {
        match &mut p.encoder {
            Encoder::Compute(c) => c.clear(),
            Encoder::Copy(c) => c.list.clear(),
        }
        p.waits.clear();
        let submitted = self.timeline.submitted();
        p.kernargs.forget_after(submitted);
        if let Some(ibs) = &mut p.ibs {
            ibs.forget_after(submitted);
        }
        let completed = self.timeline.completed();
        while p.kept.pop_front_if(|(value, _)| *value <= completed).is_some() {}
    }

    /// The waits gathered, and caches made to see what others wrote.
    pub fn open_list(&self, p: &mut Producer, value: u64) -> Result<(), DeviceError> {
        if u32::try_from(value).is_err() {
            return Err(SubmitError::Unsupported { queue: "AMD", what: "number more than 2^32 - 1 submissions" }.into());
        }
        let waits: SmallVec<[Point; 4]> = p.waits.drain(..).collect();
        for point in waits {
            let is_ours = self.core.has_signal(point.timeline().signal());
            let Some(low) = u32::try_from(point.value()).ok().filter(|_| is_ours) else {
                // Another driver's signal lies in no page table of this device.
                point.wait(self.core.options.submit_timeout)?;
                continue;
            };
            let signal = point.timeline().signal();
            match &mut p.encoder {
                Encoder::Compute(c) => c.wait(signal, low)?,
                Encoder::Copy(c) => c.wait(signal, low)?,
            }
            p.kept.push_back((value, Kept::Timeline(Arc::clone(point.timeline()))));
        }
        p.code_opened = self.core.code_loaded();
        let is_aql = p.ibs.is_some();
        match &mut p.encoder {
            // AQL packets say themselves what they acquire: all but new code.
            Encoder::Compute(_) if is_aql && p.code_seen == p.code_opened => {}
            Encoder::Compute(c) => c.acquire(AcquireScope::Full)?,
            Encoder::Copy(c) => c.cache_control(CopyCaches::Invalidate)?,
        }
        Ok(())
    }

    fn emit(&self, p: &mut Producer, command: &Command, value: u64) -> Result<(), DeviceError> {
        match command {
            Command::Wait(_) => Ok(()),
            Command::Exec { kernel, args, geometry, stamp, .. } => {
                let program = self.program(kernel)?;
                p.kept.push_back((value, Kept::Kernel(kernel.clone())));
                self.stamped(p, value, stamp.as_ref(), |queue, p| queue.exec(p, program, args, geometry, value))
            }
            Command::Copy { dst, src, len_bytes, stamp } => {
                self.stamped(p, value, stamp.as_ref(), |_, p| match &mut p.encoder {
                    Encoder::Copy(copy) => Ok(copy.copy(dst.va(), src.va(), *len_bytes)?),
                    Encoder::Compute(_) => Ok(()),
                })
            }
        }
    }

    /// Emits with timestamps around, if asked.
    fn stamped(
        &self,
        p: &mut Producer,
        value: u64,
        stamp: Option<&Stamp>,
        emit: impl FnOnce(&Self, &mut Producer) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let Some(stamp) = stamp else { return emit(self, p) };
        p.encoder.timestamp(&stamp.start)?;
        emit(self, p)?;
        p.encoder.timestamp(&stamp.stop)?;
        p.kept.push_back((value, Kept::Stamp(stamp.clone())));
        Ok(())
    }

    /// The device's part of a kernel.
    ///
    /// # Errors
    /// `WrongDevice` for a kernel of another kind of device.
    pub fn program<'a>(&self, kernel: &'a Kernel) -> Result<&'a Program, DeviceError> {
        kernel.program().downcast_ref::<Program>().ok_or_else(|| self.wrong("kernel", kernel.device()))
    }

    /// Scratch of the command's kernel.
    pub fn private_bytes(&self, command: &Command) -> u32 {
        let Command::Exec { kernel, .. } = command else { return 0 };
        self.program(kernel).map_or(0, |p| p.descriptor.private_segment_bytes)
    }

    fn exec(
        &self,
        p: &mut Producer,
        program: &Program,
        args: &[Arg],
        geometry: &Geometry,
        value: u64,
    ) -> Result<(), DeviceError> {
        if geometry.is_empty() {
            return Ok(());
        }
        let lds_bytes = program::check(program, self.core.chip, geometry).map_err(|what| self.cannot(what))?;
        let block = Block::new(program, args, geometry).map_err(|what| self.cannot(what))?;
        let packet_offset = block.packet_offset as u64;
        let mut launch = Launch { program, geometry: *geometry, lds_bytes, kernarg_va: 0, packet_offset };
        let words = launch.words(&block)?;
        launch.kernarg_va = self.put_words(&mut p.kernargs, &words, value)?;
        self.emit_launch(p, &launch, value)
    }

    /// A launch whose argument block is in place.
    fn emit_launch(&self, p: &mut Producer, launch: &Launch<'_>, value: u64) -> Result<(), DeviceError> {
        p.recent.kernel(launch.program);
        let regs = p.scratch.regs();
        if let Encoder::Compute(compute) = &mut p.encoder
            && !launch.geometry.is_empty()
        {
            match &mut p.ibs {
                Some(ring) => compute.exec(launch, regs, &mut IbRing { queue: self, ring, value })?,
                None => compute.exec::<DeviceError>(launch, regs, &mut NoIb)?,
            }
        }
        Ok(())
    }

    /// Packets of a recorded list, on an AQL ring.
    ///
    /// # Errors
    /// As `submit`.
    pub fn packets(&self, p: &mut Producer, words: &[u32], value: u64) -> Result<(), DeviceError> {
        let Producer { encoder: Encoder::Compute(compute), ibs: Some(ring), .. } = p else { return Ok(()) };
        compute.packets(words, &mut IbRing { queue: self, ring, value })
    }

    /// Scratch for kernels of `private_bytes` a work-item; growing it waits until the ring is idle.
    ///
    /// # Errors
    /// `OutOfMemory`, `Wait`.
    pub fn need_scratch(&self, p: &mut Producer, private_bytes: u32) -> Result<(), DeviceError> {
        if p.scratch.holds(private_bytes) {
            return Ok(());
        }
        let Some(page) = p.ring.as_ref().map(|ring| ring.pointers().clone()) else { return Ok(()) };
        self.timeline.wait(self.timeline.submitted(), self.core.options.submit_timeout)?;
        p.scratch.grow(&self.core, private_bytes, &page)
    }

    /// Puts words into a ring of device-visible words; a multiple of the alignment, so that the next block is aligned. Waits for room.
    fn put_words(&self, ring: &mut Kernargs, words: &[u64], value: u64) -> Result<u64, DeviceError> {
        debug_assert!(words.len().is_multiple_of(program::KERNARG_ALIGN / 8), "{} words", words.len());
        let put = ring.put_waiting(words, &self.timeline, value, self.core.options.submit_timeout);
        put.map_err(|e| match e {
            SubmitError::Wait(e) => e.into(),
            e => e.into(),
        })
    }

    /// Signal, ring, doorbell. The memories are marked as used when nothing can keep the list from the ring any more.
    pub fn finish<'m>(
        &self,
        p: &mut Producer,
        value: u64,
        used: impl Iterator<Item = &'m Memory>,
    ) -> Result<Point, DeviceError> {
        let low = u32::try_from(value).unwrap_or(u32::MAX);
        let signal = self.timeline.signal();
        match &mut p.encoder {
            Encoder::Compute(c) => {
                c.signal(signal, low, Some(self.event))?;
                match &mut p.ibs {
                    Some(ring) => c.flush(&mut IbRing { queue: self, ring, value })?,
                    None => c.flush::<DeviceError>(&mut NoIb)?,
                }
            }
            Encoder::Copy(c) => {
                c.cache_control(CopyCaches::WriteBack)?;
                c.signal(signal, low, Some(self.event))?;
            }
        }
        let closed = || DeviceError::Closed { device: self.core.tag.name().into() };
        let Producer { ring, encoder, code_seen, code_opened, .. } = p;
        let ring = ring.as_mut().ok_or_else(closed)?;
        let list = encoder.list();
        if list.longest() as u64 > ring.max_dwords() {
            return Err(SubmitError::Unsupported { queue: "AMD", what: "hold so long a packet" }.into());
        }
        used.for_each(|memory| memory.uses().mark(&self.timeline, value));
        let given = self.timeline.next();
        debug_assert_eq!(given, value, "the producer's lock is held");
        self.push(ring, list)?;
        *code_seen = *code_opened;
        Ok(self.timeline.point(value))
    }

    /// Writes the pieces to the ring, waiting for room, and rings.
    fn push(&self, ring: &mut HwRing, list: &List) -> Result<(), DeviceError> {
        let timeout = self.core.options.submit_timeout;
        let mut backoff = Backoff::default();
        let mut deadline = None;
        for piece in list.pieces() {
            while !ring.push(piece)? {
                // What is there so far makes room.
                ring.publish();
                let deadline = *deadline.get_or_insert_with(|| Instant::now() + timeout);
                if Instant::now() >= deadline || self.core.fault().is_some() {
                    // A list half written can never be run to its signal: the queue is lost.
                    let report = self.report_of(Some(ring), Vec::new());
                    self.core.set_fault_text(format!("{} stayed full", self.timeline.queue()));
                    return Err(SubmitError::from(WaitError::Timeout(Box::new(report))).into());
                }
                backoff.pause();
            }
        }
        ring.publish();
        Ok(())
    }

    fn cannot(&self, what: String) -> DeviceError {
        DeviceError::Unsupported { device: self.core.tag.name().into(), what }
    }

    /// Ends the queue: the ring is destroyed, running or not, and its buffers are freed.
    ///
    /// # Errors
    /// `Driver` when the event cannot be ended.
    pub fn shut(&self) -> Result<(), DeviceError> {
        let mut p = self.lock();
        if p.ring.take().is_none() {
            return Ok(());
        }
        p.scratch = Scratch::default();
        p.kept.clear();
        p.buffers.clear();
        self.core.driver.destroy_event(self.event).map_err(|source| self.core.refused("destroy event", source))
    }

    fn report_of(&self, ring: Option<&HwRing>, kernels: Vec<String>) -> Report {
        let (rptr, wptr) = ring.map_or((0, 0), HwRing::positions);
        let mut notes = vec![format!("chip {} KFD 1.{}", self.core.chip.name, self.core.driver.minor())];
        if !kernels.is_empty() {
            notes.push(format!("last kernels: {}", kernels.join(", ")));
        }
        notes.push(format!("last calls: {}", self.core.driver.recent_calls()));
        Report {
            queue: self.timeline.queue().into(),
            rptr,
            wptr,
            tail: ring.map(HwRing::tail).unwrap_or_default(),
            fault: self.core.fault().map(Into::into),
            notes,
            ..Report::default()
        }
    }

    /// Sleeps in the driver until the event, a fault, or `deadline`.
    fn sleep(&self, deadline: Instant) {
        let left = deadline.saturating_duration_since(Instant::now()).as_millis().clamp(1, SLICE_MS);
        match self.core.driver.wait(self.event, u32::try_from(left).unwrap_or(1)) {
            Ok(Woken::Fault(fault)) => self.core.set_fault(&fault),
            Ok(Woken::Signal | Woken::Timeout) => {}
            Err(e) => self.core.set_fault_text(format!("wait for events: {e}")),
        }
    }
}

impl Checks for AmdQueue {
    fn tag(&self) -> &DeviceTag {
        &self.core.tag
    }

    fn kind(&self) -> QueueKind {
        self.kind
    }

    fn map_peer(&self, va: u64) -> Result<bool, DeviceError> {
        let mapped = self.core.driver.map_peer(va, self.core.node.gpu_id);
        mapped.map_err(|source| self.core.refused("map a peer's memory", source))
    }
}

impl CopyPath for AmdQueue {
    fn shared(&self, what: &'static str, len_bytes: u64) -> Result<SharedBuffer, DeviceError> {
        let bo = self.core.own_bo(what, len_bytes, super::bo::Placement::Host)?;
        let view = bo.view().map_err(|source| self.core.refused(what, source))?;
        Ok(SharedBuffer { va: bo.va(), view, keep: Arc::new(bo) })
    }

    fn staging_bytes(&self) -> u64 {
        self.core.options.staging_bytes
    }

    fn timeout(&self) -> Duration {
        self.core.options.submit_timeout
    }

    fn copy(&self, dst: u64, src: u64, len_bytes: u64, memory: &Memory) -> Result<Point, DeviceError> {
        let mut producer = self.lock();
        self.core.check_open()?;
        let p = &mut *producer;
        self.begin(p);
        memory.uses().hazards(&self.timeline, &mut p.waits);
        let value = self.timeline.submitted() + 1;
        self.open_list(p, value)?;
        if let Encoder::Copy(copy) = &mut p.encoder {
            copy.copy(dst, src, len_bytes)?;
        }
        self.finish(p, value, std::iter::once(memory))
    }
}

/// A PM4 ring has no indirect buffers of its own.
pub struct NoIb;

impl IbMemory<DeviceError> for NoIb {
    fn place(&mut self, _words: &[u32]) -> Result<u64, DeviceError> {
        Err(SubmitError::Unsupported { queue: "PM4", what: "gather packets" }.into())
    }
}

impl Encoder {
    fn list(&self) -> &List {
        match self {
            Self::Compute(c) => &c.list,
            Self::Copy(c) => &c.list,
        }
    }

    fn timestamp(&mut self, signal: &Signal) -> Result<(), DeviceError> {
        match self {
            Self::Compute(c) => c.timestamp(signal)?,
            Self::Copy(c) => c.timestamp(signal)?,
        }
        Ok(())
    }
}

impl Progress for AmdQueue {
    fn advance(&self, timeline: &Timeline, value: u64, deadline: Instant) {
        let spin = Instant::now() + self.core.options.spin.min(deadline.saturating_duration_since(Instant::now()));
        loop {
            if timeline.completed() >= value || self.core.fault().is_some() || self.core.is_closed() {
                return;
            }
            let now = Instant::now();
            if now >= deadline {
                return;
            }
            if now < spin {
                std::hint::spin_loop();
            } else {
                self.sleep(deadline);
            }
        }
    }

    fn report(&self) -> Report {
        // A submission that waits for room holds the lock and makes its own report.
        match self.producer.try_lock() {
            Ok(p) => self.report_of(p.ring.as_ref(), p.recent.lines()),
            Err(_) => self.report_of(None, Vec::new()),
        }
    }

    fn is_alive(&self) -> bool {
        self.core.fault().is_none() && !self.core.is_closed()
    }

    fn fault_report(&self) -> Option<Report> {
        self.core.fault().is_some().then(|| self.report())
    }
}

impl Launch<'_> {
    /// The argument block as words, with the dispatch packet behind it where the kernel reads it.
    fn words(&self, block: &Block) -> Result<SmallVec<[u64; 24]>, DeviceError> {
        let (eights, _) = block.bytes.as_chunks::<8>();
        let mut words: SmallVec<[u64; 24]> = eights.iter().map(|c| u64::from_le_bytes(*c)).collect();
        if self.wants_packet() {
            let packet = self.aql_packet()?.emit()?;
            let (pairs, _) = packet.as_chunks::<2>();
            let behind = words.iter_mut().skip(block.packet_offset / 8);
            behind.zip(pairs).for_each(|(word, [low, high])| *word = doorbell_hcq::bits::join(*low, *high));
        }
        Ok(words)
    }
}

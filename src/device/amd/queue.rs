//! AMD's implementation of a queue: commands become packets in a hardware ring, and waiting hosts sleep on the driver's
//! events.
//!
//! Layer: above `encode`, `ring`, `program`, `scratch`; code shared by all GPUs is in `device::gpu`,
//! and `mod.rs` owns a compute queue and copy queues. Source: docs/amd.md 1.9, 2.5-2.9, 7.4.
//! Waits in packets compare 32 bits, so a timeline ends after 2^32 - 1 submissions with an error.

use super::bo::Bo;
use super::core::Core;
use super::encode::{Compute, Copy, CopyCaches, IbMemory, List, ScratchRegs};
use super::events::{SignalEvent, Woken};
use super::program::{self, Block, Launch, LoadedKernel};
use super::ring::{HwRing, RingKind};
use super::scratch::Scratch;
use crate::gpu::encode::{Encode, GpuCore, GpuProgram, SubmitContext, Watch};
use crate::gpu::queue::{GpuQueue, name_of};
use crate::in_flight::submit_to_device_error;
use crate::{Arg, DeviceError, Geometry, QueueKind};
use doorbell_hcq::bits::join;
use doorbell_hcq::error::SubmitError;
use doorbell_hcq::kernargs::Kernargs;
use doorbell_hcq::packet::pm4::NOP_ONE_DWORD;
use doorbell_hcq::packet::pm4::chip::AcquireScope;
use doorbell_hcq::signal::{Report, Signal, Timeline};
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;

/// Longest single sleep in the driver: another waiter may consume the event.
const SLICE_MS: u128 = 20; // TIMEOUT: the delay in that case.
/// Bytes of the ring of indirect buffers, on AQL rings.
const IB_BYTES: u64 = 1 << 20;

/// A queue of this device.
pub(crate) type AmdQueue = GpuQueue<Packets>;

/// The list of packets under construction, and the ring that it will be submitted to.
#[derive(Debug)]
pub(crate) struct Packets {
    ring: HwRing,
    engine: Engine,
    kernargs: Kernargs,
    /// Indirect buffers; AQL rings only.
    ibs: Option<Kernargs>,
    scratch: Scratch,
    event: SignalEvent,
    /// Number of the list's pieces that are in the ring.
    pushed: usize,
    /// [`Core::code_loaded`] at the last invalidation of the instruction cache, and at the start of the list under
    /// construction.
    code_seen: u64,
    code_opened: u64,
    // Freed after the ring.
    #[allow(dead_code)]
    buffers: Vec<Bo>,
}

/// The encoder of the ring.
#[derive(Debug)]
enum Engine {
    Compute(Compute),
    Copy(Copy),
}

impl Engine {
    fn list(&self) -> &List {
        match self {
            Self::Compute(c) => &c.list,
            Self::Copy(c) => &c.list,
        }
    }
}

/// The event on which a waiting host sleeps.
#[derive(Debug)]
pub(crate) struct Event(SignalEvent);

/// Indirect buffers in a ring of device-visible words.
struct IbRing<'a> {
    ring: &'a mut Kernargs,
    context: &'a SubmitContext<'a, Core>,
}

impl IbMemory<DeviceError> for IbRing<'_> {
    fn place(&mut self, words: &[u32]) -> Result<u64, DeviceError> {
        let pairs = words.chunks(2).map(|pair| join(pair[0], pair.get(1).copied().unwrap_or(NOP_ONE_DWORD)));
        let mut block: SmallVec<[u64; 48]> = pairs.collect();
        block.resize(block.len().next_multiple_of(program::KERNARG_ALIGN / 8), 0);
        put_words(self.ring, &block, self.context)
    }
}

/// No memory for indirect buffers: a PM4 ring does not need any.
pub(crate) struct NoIb;

impl IbMemory<DeviceError> for NoIb {
    fn place(&mut self, _words: &[u32]) -> Result<u64, DeviceError> {
        Err(SubmitError::Unsupported { queue: "PM4", what: "gather packets" }.into())
    }
}

/// Stores words in a ring of device-visible memory, waiting for room. Their number is a multiple of the alignment, so
/// that the next block is aligned, too.
fn put_words(ring: &mut Kernargs, words: &[u64], context: &SubmitContext<'_, Core>) -> Result<u64, DeviceError> {
    debug_assert!(words.len().is_multiple_of(program::KERNARG_ALIGN / 8), "{} words", words.len());
    ring.put_waiting(words, context.timeline, context.value, context.core.options.submit_timeout)
        .map_err(submit_to_device_error)
}

/// Opens a queue with its ring, buffers and event.
///
/// # Errors
/// `Driver` with the call that was refused.
pub(crate) fn open(core: &Arc<Core>, kind: QueueKind) -> Result<Arc<AmdQueue>, DeviceError> {
    let is_pm4 = core.chip.format == super::chip::QueueFormat::Pm4;
    let ring_kind = match kind {
        QueueKind::Compute if is_pm4 => RingKind::Pm4,
        QueueKind::Compute => RingKind::Aql,
        QueueKind::Copy | QueueKind::CopyEngine(_) => RingKind::Sdma,
    };
    let sdma_engine = if let QueueKind::CopyEngine(number) = kind { Some(number) } else { None };
    let timeline = Timeline::new(name_of(&core.tag, kind), core.signals.signal()?);
    let event = core.driver.create_event(core.node.gpu_id, core.render, core.since);
    let event = event.map_err(|source| core.refused("create event", source))?;
    match Packets::new(core, ring_kind, sdma_engine, event) {
        Ok(packets) => Ok(AmdQueue::new(core, kind, timeline, packets, Event(event))),
        Err(error) => {
            let _first_error_counts = core.driver.destroy_event(event);
            Err(error)
        }
    }
}

impl Packets {
    fn new(core: &Arc<Core>, kind: RingKind, sdma: Option<u8>, event: SignalEvent) -> Result<Self, DeviceError> {
        let ring = HwRing::new(core, kind, sdma)?;
        let kernargs_bytes = if kind == RingKind::Sdma { 4096 } else { core.options.kernargs_bytes };
        let (bo, view) = core.shared_bo("kernargs", kernargs_bytes)?;
        let (mut buffers, kernargs, mut ibs) = (vec![bo], Kernargs::of(view), None);
        if kind == RingKind::Aql {
            let (bo, view) = core.shared_bo("indirect buffers", IB_BYTES)?;
            buffers.push(bo);
            ibs = Some(Kernargs::of(view));
        }
        let engine = match kind {
            RingKind::Sdma => Engine::Copy(Copy::new(core.chip)),
            RingKind::Pm4 | RingKind::Aql => Engine::Compute(Compute::new(core.chip, core.node.xcc_count())),
        };
        let scratch = Scratch::default();
        Ok(Self { ring, engine, kernargs, ibs, scratch, event, pushed: 0, code_seen: 0, code_opened: 0, buffers })
    }

    /// Address and size of the kernels' scratch.
    pub(super) fn scratch_regs(&self) -> ScratchRegs {
        self.scratch.regs()
    }

    /// Runs an indirect buffer, on a PM4 ring.
    ///
    /// # Errors
    /// As all packets.
    pub(super) fn indirect(&mut self, addr: u64, size_dwords: u32) -> Result<(), DeviceError> {
        match &mut self.engine {
            Engine::Compute(c) => Ok(c.indirect(addr, size_dwords)?),
            Engine::Copy(_) => Ok(()),
        }
    }

    /// Appends the packets of a recorded list, on an AQL ring.
    ///
    /// # Errors
    /// As a submission.
    pub(super) fn splice(&mut self, context: &SubmitContext<'_, Core>, words: &[u32]) -> Result<(), DeviceError> {
        let Self { engine: Engine::Compute(compute), ibs: Some(ring), .. } = self else { return Ok(()) };
        compute.packets(words, &mut IbRing { ring, context })
    }
}

impl GpuProgram for LoadedKernel {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn entry(&self) -> u64 {
        self.entry
    }

    fn private_bytes(&self) -> u32 {
        self.descriptor.private_segment_bytes
    }
}

impl Encode for Packets {
    type Core = Core;
    type Program = LoadedKernel;
    type Watch = Event;

    #[inline]
    fn begin(&mut self, _core: &Core, submitted: u64) {
        match &mut self.engine {
            Engine::Compute(c) => c.clear(),
            Engine::Copy(c) => c.list.clear(),
        }
        self.pushed = 0;
        self.kernargs.forget_after(submitted);
        if let Some(ibs) = &mut self.ibs {
            ibs.forget_after(submitted);
        }
    }

    #[inline]
    fn holds_private(&self, bytes: u32) -> bool {
        self.scratch.holds(bytes)
    }

    fn grow_private(&mut self, core: &Core, bytes: u32) -> Result<(), DeviceError> {
        let page = self.ring.pointers().clone();
        self.scratch.grow(core, bytes, &page)
    }

    #[inline]
    fn open(&mut self, context: &SubmitContext<'_, Core>) -> Result<(), DeviceError> {
        match u32::try_from(context.value) {
            Ok(_) => Ok(()),
            Err(_) => {
                Err(SubmitError::Unsupported { queue: "AMD", what: "number more than 2^32 - 1 submissions" }.into())
            }
        }
    }

    fn wait(&mut self, signal: &Signal, value: u64) -> Result<bool, DeviceError> {
        let Ok(low) = u32::try_from(value) else { return Ok(false) };
        match &mut self.engine {
            Engine::Compute(c) => c.wait(signal, low)?,
            Engine::Copy(c) => c.wait(signal, low)?,
        }
        Ok(true)
    }

    #[inline]
    fn acquire(&mut self, core: &Core) -> Result<(), DeviceError> {
        self.code_opened = core.code_loaded();
        let is_aql = self.ibs.is_some();
        match &mut self.engine {
            // AQL packets have acquire scopes of their own, which cover everything except new code.
            Engine::Compute(_) if is_aql && self.code_seen == self.code_opened => {}
            Engine::Compute(c) => c.acquire(AcquireScope::Full)?,
            Engine::Copy(c) => c.cache_control(CopyCaches::Invalidate)?,
        }
        Ok(())
    }

    fn timestamp(&mut self, signal: &Signal) -> Result<(), DeviceError> {
        match &mut self.engine {
            Engine::Compute(c) => c.timestamp(signal)?,
            Engine::Copy(c) => c.timestamp(signal)?,
        }
        Ok(())
    }

    #[inline]
    fn exec(
        &mut self,
        context: &SubmitContext<'_, Core>,
        program: &LoadedKernel,
        args: &[Arg],
        geometry: &Geometry,
    ) -> Result<(), DeviceError> {
        let core = context.core;
        let lds_bytes = program::check(program, core.chip, geometry).map_err(|what| core.cannot(what))?;
        let block = Block::new(program, args, geometry).map_err(|what| core.cannot(what))?;
        let packet_offset = block.packet_offset as u64;
        let mut launch = Launch { program, geometry: *geometry, lds_bytes, kernarg_va: 0, packet_offset };
        let words = launch.words(&block)?;
        launch.kernarg_va = put_words(&mut self.kernargs, &words, context)?;
        let Self { engine: Engine::Compute(compute), ibs, scratch, .. } = self else { return Ok(()) };
        match ibs {
            Some(ring) => compute.exec(&launch, scratch.regs(), &mut IbRing { ring, context }),
            None => compute.exec::<DeviceError>(&launch, scratch.regs(), &mut NoIb),
        }
    }

    fn copy(&mut self, _slot: &SubmitContext<'_, Core>, dst: u64, src: u64, len_bytes: u64) -> Result<(), DeviceError> {
        match &mut self.engine {
            Engine::Copy(copy) => Ok(copy.copy(dst, src, len_bytes)?),
            Engine::Compute(_) => Ok(()),
        }
    }

    #[inline]
    fn seal(&mut self, context: &SubmitContext<'_, Core>) -> Result<(), DeviceError> {
        let low = u32::try_from(context.value).unwrap_or(u32::MAX);
        let (signal, event) = (context.timeline.signal(), Some(self.event));
        match &mut self.engine {
            Engine::Compute(c) => {
                c.signal(signal, low, event)?;
                match &mut self.ibs {
                    Some(ring) => c.flush(&mut IbRing { ring, context })?,
                    None => c.flush::<DeviceError>(&mut NoIb)?,
                }
            }
            Engine::Copy(c) => {
                c.cache_control(CopyCaches::WriteBack)?;
                c.signal(signal, low, event)?;
            }
        }
        if self.engine.list().longest() as u64 > self.ring.max_dwords() {
            return Err(SubmitError::Unsupported { queue: "AMD", what: "hold a packet of this length" }.into());
        }
        Ok(())
    }

    #[inline]
    fn push(&mut self, _slot: &SubmitContext<'_, Core>) -> Result<bool, DeviceError> {
        let Self { ring, engine, pushed, .. } = self;
        for piece in engine.list().pieces_from(*pushed) {
            if !ring.push(piece)? {
                // Publishing the pieces so far lets the GPU make room.
                ring.publish();
                return Ok(false);
            }
            *pushed += 1;
        }
        ring.publish();
        self.code_seen = self.code_opened;
        Ok(true)
    }

    fn report(&self, _timeline: &Timeline) -> Report {
        let (rptr, wptr) = self.ring.positions();
        Report { rptr, wptr, tail: self.ring.tail(), ..Report::default() }
    }
}

impl Watch<Packets> for Event {
    type Nap = ();

    /// Nothing to check: faults wake a sleeping host.
    fn look(&self, _queue: &AmdQueue) {}

    fn look_awake(&self, queue: &AmdQueue) {
        let core = queue.core();
        match core.driver.fault_now(self.0) {
            Ok(fault) => fault.iter().for_each(|fault| core.set_fault(fault)),
            Err(e) => core.set_fault_text(format!("look for events: {e}")),
        }
    }

    fn sleep(&self, queue: &AmdQueue, _value: u64, _nap: &mut (), left: Duration) -> bool {
        let (core, left) = (queue.core(), left.as_millis().clamp(1, SLICE_MS));
        match core.driver.wait(self.0, u32::try_from(left).unwrap_or(1)) {
            Ok(Woken::Fault(fault)) => core.set_fault(&fault),
            Ok(Woken::Signal | Woken::Timeout) => {}
            Err(e) => core.set_fault_text(format!("wait for events: {e}")),
        }
        false
    }

    fn end(&self, core: &Core, packets: Packets) -> Result<(), DeviceError> {
        drop(packets);
        core.driver.destroy_event(self.0).map_err(|source| core.refused("destroy event", source))
    }
}

impl Launch<'_> {
    /// The argument block as words, followed by the dispatch packet if the kernel reads it.
    fn words(&self, block: &Block) -> Result<SmallVec<[u64; 24]>, DeviceError> {
        let (eights, _) = block.bytes.as_chunks::<8>();
        let mut words: SmallVec<[u64; 24]> = eights.iter().map(|c| u64::from_le_bytes(*c)).collect();
        if self.program.reads_dispatch_packet() {
            let packet = self.aql_packet()?.emit()?;
            let (pairs, _) = packet.as_chunks::<2>();
            let after = words.iter_mut().skip(block.packet_offset / 8);
            after.zip(pairs).for_each(|(word, [low, high])| *word = join(*low, *high));
        }
        Ok(words)
    }
}

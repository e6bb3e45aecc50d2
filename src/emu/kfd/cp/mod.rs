//! The packet processors: one engine a queue, on a thread of its own.
//!
//! Source: docs/amd.md 2, 3, 6.2. A packet runs to its end before the next one starts, dispatches included: what
//! RELEASE_MEM, barrier bits and CS_PARTIAL_FLUSH wait for is always complete. A waiting packet blocks its queue only.
//! Left out: overlap of independent dispatches, preemption in the middle of a dispatch.

mod aql;
mod atomic;
mod dispatch;
mod pm4;
mod sdma;
mod stale;

pub(crate) use aql::signal_inactive;
pub(crate) use stale::Caches;

use super::compute::ComputeFault;
use super::defect::Defect;
use super::gpu::Gpu;
use super::queue::{Kind, Queue, Work};
use super::vm::VmFault;
use crate::pauses::Pauses;
use doorbell_hcq::packet::aql::queue::queue_error;
use doorbell_hcq::packet::{DecodeError, DecodeKind};
use std::fmt;

/// What stopped a queue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    #[error(transparent)]
    Packet(#[from] DecodeKind),
    #[error(transparent)]
    Memory(#[from] VmFault),
    #[error("{packet}: no register {reg:#x} on this chip")]
    Register { packet: &'static str, reg: u32 },
    #[error("{packet}: {what} is not modelled")]
    NotModelled { packet: &'static str, what: String },
    #[error("PRED_EXEC works in an indirect buffer only")]
    PredExecInRing,
    #[error("{packet} steers {wanted} dwords, {have} follow it")]
    Beyond { packet: &'static str, wanted: u64, have: u64 },
    #[error("RELEASE_MEM on a queue without an EOP buffer")]
    NoEop,
    #[error("indirect buffer: {0}")]
    Indirect(&'static str),
    #[error("write pointer {put:#x} is more than a ring of {ring:#x} ahead of read pointer {get:#x}")]
    Overrun { put: u64, get: u64, ring: u64 },
    #[error("dispatch: {what}")]
    Dispatch { what: String, code: BadDispatch },
    #[error("amd_queue_t: {0}")]
    QueueStruct(String),
    #[error("dispatch: {what} at {va:#x} changed since the card read it, and no packet invalidated the {missing}")]
    Stale { what: &'static str, va: u64, missing: &'static str },
    #[error("{packet} reads {va:#x}, which a dispatch stored {dispatches} dispatches ago, and no packet wrote L2 back")]
    NotWrittenBack { packet: &'static str, va: u64, dispatches: u32 },
    #[error(
        "{packet} interrupts the host, and what a dispatch stored to its memory at {va:#x} is still in L2: no packet wrote it back"
    )]
    HostMisses { packet: &'static str, va: u64 },
    #[error("dispatch: {0}")]
    Compute(#[from] ComputeFault),
    /// The driver destroyed the queue; not a fault.
    #[error("stopped by the driver")]
    Taken,
}

/// Kinds of bad dispatches, as the firmware distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadDispatch {
    Dimensions,
    GroupSegment,
    Code,
    WorkgroupSize,
    Scratch,
    Register,
}

impl From<DecodeError> for Cause {
    fn from(error: DecodeError) -> Self {
        Self::Packet(error.kind)
    }
}

impl Cause {
    /// The access that failed, if that is what it was.
    pub fn page_fault(&self) -> Option<VmFault> {
        match self {
            Self::Memory(fault) | Self::Compute(ComputeFault::Memory { fault, .. }) => Some(*fault),
            _ => None,
        }
    }

    /// The kernel's exception code (docs/amd.md 7.3).
    pub fn exception_code(&self) -> u32 {
        match self {
            Self::Dispatch { code, .. } => match code {
                BadDispatch::Dimensions => 16,
                BadDispatch::GroupSegment => 17,
                BadDispatch::Code | BadDispatch::Scratch => 18,
                BadDispatch::WorkgroupSize => 21,
                BadDispatch::Register => 22,
            },
            Self::Compute(ComputeFault::Illegal(_)) => 4,
            Self::Compute(ComputeFault::Trap(_)) => 2,
            Self::Compute(_) => 1,
            Self::Register { .. } => 22,
            Self::Memory(_) => 5,
            _ => 20,
        }
    }

    /// The mask that the firmware stores into an AQL queue's inactive signal.
    pub fn aql_error(&self) -> u64 {
        match self {
            Self::Dispatch { code, .. } => match code {
                BadDispatch::Dimensions => queue_error::BAD_DIMENSIONS,
                BadDispatch::GroupSegment => queue_error::TOO_MUCH_LDS,
                BadDispatch::Code | BadDispatch::Register => queue_error::BAD_CODE_OBJECT,
                BadDispatch::WorkgroupSize => queue_error::WORKGROUP_TOO_LARGE,
                BadDispatch::Scratch => queue_error::NOT_ENOUGH_SCRATCH,
            },
            Self::Compute(ComputeFault::Illegal(_)) => queue_error::ILLEGAL_INSTRUCTION,
            Self::Compute(_) => queue_error::TRAP,
            Self::Memory(_) => queue_error::APERTURE_VIOLATION,
            Self::NotModelled { .. } => queue_error::UNSUPPORTED_PACKET,
            _ => queue_error::BAD_PACKET,
        }
    }
}

/// A cause and where it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    pub cause: Cause,
    /// From the ring's start, in dwords.
    pub ring_dword: u64,
    /// Address of the indirect buffer and dword in it, when it was in one.
    pub indirect: Option<(u64, u64)>,
    /// The packet, when it could be read.
    pub packet: Option<String>,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ring dword {:#x}", self.ring_dword)?;
        if let Some((va, dword)) = self.indirect {
            write!(f, ", dword {dword:#x} of the indirect buffer at {va:#x}")?;
        }
        write!(f, ": {}", self.cause)?;
        match &self.packet {
            Some(packet) => write!(f, " in `{packet}`"),
            None => Ok(()),
        }
    }
}

impl From<Cause> for Box<Stop> {
    fn from(cause: Cause) -> Self {
        Self::new(Stop { cause, ring_dword: 0, indirect: None, packet: None })
    }
}

/// Result of a processor.
type Run<T> = Result<T, Box<Stop>>;

/// The outcome of one poll of the ring.
enum Step {
    /// So many units of the ring are done.
    Done(u64),
    /// The rest of a packet is missing: wait for another doorbell.
    Starved,
}

/// What every processor works on.
#[derive(Clone, Copy)]
struct Site<'a> {
    gpu: &'a Gpu,
    queue: &'a Queue,
}

impl Site<'_> {
    /// Blocks the queue until a condition on memory holds.
    fn wait_until(&self, ready: impl FnMut() -> Result<bool, VmFault>) -> Result<(), Cause> {
        if self.gpu.has(Defect::WaitIgnored) {
            return self.may_go_on();
        }
        self.queue.wait_until(ready).map_err(|e| e.map_or(Cause::Taken, Cause::Memory))
    }

    /// What a fence stores.
    fn fence(&self, value: u64) -> u64 {
        if self.gpu.has(Defect::FenceValue) { value.wrapping_add(1) } else { value }
    }

    /// The time as packets store it.
    fn ticks(&self) -> u64 {
        if self.gpu.has(Defect::ClockZero) { 0 } else { self.gpu.clock.ticks() }
    }

    fn interrupt(&self, context: u32) {
        self.gpu.interrupt(Some(self.queue.setup.id), context);
    }

    /// Between two packets: stays here while the queue is stopped.
    fn may_go_on(&self) -> Result<(), Cause> {
        self.queue.wait_until(|| Ok(true)).map_err(|e: Option<VmFault>| e.map_or(Cause::Taken, Cause::Memory))
    }
}

/// A queue's processor.
enum Processor {
    Pm4(Box<pm4::Pm4>),
    Aql(Box<aql::Aql>),
    Sdma(sdma::Sdma),
}

impl Processor {
    fn step(&mut self, site: Site<'_>, work: &Work) -> Run<Step> {
        match self {
            Self::Pm4(p) => p.step(site, work),
            Self::Aql(p) => p.step(site, work),
            Self::Sdma(p) => p.step(site, work),
        }
    }

    /// Units of the ring, and dwords of one unit.
    fn dwords_per_unit(&self) -> (u64, bool) {
        match self {
            Self::Pm4(_) => (1, false),
            Self::Aql(_) => (16, false),
            Self::Sdma(_) => (1, true),
        }
    }
}

/// The main loop of an engine: takes work from its queue until the queue is destroyed.
pub(crate) fn run(gpu: &Gpu, queue: &Queue) {
    let site = Site { gpu, queue };
    let mut processor = match queue.setup.kind {
        Kind::Pm4 => Processor::Pm4(Box::new(pm4::Pm4::new(gpu.chip, 1))),
        Kind::Aql => Processor::Aql(Box::new(aql::Aql::new(gpu.chip, queue.setup.xccs))),
        Kind::Sdma { .. } => Processor::Sdma(sdma::Sdma::new(gpu.facts().sdma)),
    };
    let mut starved = None;
    let mut pauses = Pauses::new(gpu.shuffle, queue.setup.id);
    while let Some(work) = queue.next_work(starved) {
        starved = None;
        pauses.pause();
        let outcome = check_overrun(&processor, &work).and_then(|()| processor.step(site, &work));
        match outcome {
            Ok(Step::Done(units)) => {
                let get = queue.change(|control| {
                    control.get += units;
                    control.get
                });
                if let Err(fault) = store_read_ptr(site, &processor, &work, get) {
                    let stop: Box<Stop> = Cause::Memory(fault).into();
                    gpu.stopped(queue, *stop);
                }
            }
            Ok(Step::Starved) => starved = Some(work.put),
            Err(mut stop) => {
                let (per_unit, bytes) = processor.dwords_per_unit();
                let ring_units = if bytes { work.ring_bytes } else { work.ring_bytes / 4 / per_unit };
                let unit = if ring_units == 0 { 0 } else { work.get % ring_units };
                stop.ring_dword = if bytes { unit / 4 } else { unit * per_unit };
                gpu.stopped(queue, *stop);
            }
        }
    }
}

fn check_overrun(processor: &Processor, work: &Work) -> Run<()> {
    let (per_unit, bytes) = processor.dwords_per_unit();
    let ring = if bytes { work.ring_bytes } else { work.ring_bytes / 4 / per_unit };
    if work.put.wrapping_sub(work.get) <= ring {
        return Ok(());
    }
    Err(Cause::Overrun { put: work.put, get: work.get, ring }.into())
}

/// The read pointer as each kind of queue stores it in memory (docs/amd.md 2.2).
fn store_read_ptr(site: Site<'_>, processor: &Processor, work: &Work, get: u64) -> Result<(), VmFault> {
    let va = site.queue.setup.read_ptr_va;
    if site.gpu.has(Defect::ReadPointer) {
        return Ok(());
    }
    match processor {
        // PANIC: a dword index below the ring's size in dwords, which fits 32 bits.
        Processor::Pm4(_) => site.gpu.vm.write_u32(va, u32::try_from(get % (work.ring_bytes / 4)).expect("32 bits")),
        Processor::Aql(_) | Processor::Sdma(_) => site.gpu.vm.write_u64(va, get),
    }
}

//! A recorded list of launches: packets encoded once into command buffers, argument blocks patched at each replay.
//!
//! Place in the arrows: part of `device::amd`, used by `engine`'s JIT. Source: amd.md 2.3 (INDIRECT_BUFFER), 2.7.
//! There are several copies of the argument blocks and of the packets that name them, so that a replay never rewrites what one in flight reads; a copy
//! is taken again when its last run is done. On PM4 rings the packets are command buffers that the ring calls; an AQL ring calls nothing, so a copy's
//! packets go into it in one piece, with one doorbell. Left out: copies inside a list (they are submitted anew at each replay).

use super::bo::{Bo, Placement};
use super::chip::QueueFormat;
use super::core::Core;
use super::encode::{Compute, IbMemory, ScratchRegs};
use super::program::{self, Block, Launch};
use super::queue::{AmdQueue, Kept, NoIb, Producer};
use super::ran::{self, Named};
use crate::checks::Checks;
use crate::launches::LaunchArgs;
use crate::{Arg, Command, DeviceError, Geometry, Kernel, Patch, Place, Recorded, Stamp};
use doorbell_hcq::memory::View;
use doorbell_hcq::packet::pm4::NOP_ONE_DWORD;
use doorbell_hcq::signal::Point;
use std::sync::Arc;

/// Replays in flight.
const COPIES: usize = 4;
/// Dwords of one indirect buffer: the packet's field has 20 bits.
const MAX_IB_DWORDS: usize = 1 << 19;
/// Indirect buffers start at a line.
const IB_ALIGN_DWORDS: usize = 16;

/// Indirect buffers of a copy, one behind the other from an address on.
#[derive(Debug, Default)]
struct OwnIbs {
    base: u64,
    words: Vec<u32>,
}

impl IbMemory<DeviceError> for OwnIbs {
    fn place(&mut self, words: &[u32]) -> Result<u64, DeviceError> {
        let va = self.base + 4 * self.words.len() as u64;
        self.words.extend_from_slice(words);
        self.words.resize(self.words.len().next_multiple_of(IB_ALIGN_DWORDS), NOP_ONE_DWORD);
        Ok(va)
    }
}

/// One launch of the list.
#[derive(Debug)]
struct Step {
    kernel: Kernel,
    geometry: Geometry,
    lds_bytes: u32,
    /// Where its block starts in the argument image.
    at: usize,
    packet_offset: u64,
    stamp: Option<Stamp>,
}

/// What a run in flight keeps: the buffers that the device reads, code, stamps. Only ever dropped.
#[derive(Debug)]
#[allow(dead_code)]
struct Held {
    buffers: Vec<Bo>,
    kernels: Vec<Kernel>,
    stamps: Vec<Stamp>,
}

/// One copy of what the device reads.
#[derive(Debug)]
struct Copy {
    held: Arc<Held>,
    kernargs_va: u64,
    kernargs: View,
    /// Indirect buffers: address, dwords. PM4 rings.
    ibs: Vec<(u64, u32)>,
    /// Packets for an AQL ring.
    packets: Vec<u32>,
    /// The scratch that the packets name.
    scratch: ScratchRegs,
    last: Option<Point>,
    /// Whether the blocks are those of the image.
    is_fresh: bool,
}

/// The list.
#[derive(Debug)]
pub struct AmdGraph {
    core: Arc<Core>,
    queue: Arc<AmdQueue>,
    steps: Vec<Step>,
    /// Their argument blocks.
    args: LaunchArgs,
    copies: Vec<Copy>,
    next: usize,
    private_bytes: u32,
    last: Arc<[Named]>,
}

impl AmdGraph {
    /// Encodes `commands`, which are launches.
    ///
    /// # Errors
    /// As a submission.
    pub fn new(core: &Arc<Core>, queue: &Arc<AmdQueue>, commands: &[Command]) -> Result<Self, DeviceError> {
        let mut graph = Self {
            core: Arc::clone(core),
            queue: Arc::clone(queue),
            steps: Vec::with_capacity(commands.len()),
            args: LaunchArgs::default(),
            copies: Vec::new(),
            next: 0,
            last: Arc::from([]),
            private_bytes: commands.iter().map(|c| queue.private_bytes(c)).max().unwrap_or(0),
        };
        for command in commands {
            queue.check(command)?;
            if let Command::Exec { kernel, args, geometry, stamp, .. } = command {
                graph.push(kernel, args, geometry, stamp.clone())?;
            }
        }
        let programs: Result<Vec<_>, _> = graph.steps.iter().map(|s| queue.program(&s.kernel)).collect();
        graph.last = ran::last_of(programs?.into_iter());
        Ok(graph)
    }

    fn cannot(&self, what: String) -> DeviceError {
        DeviceError::Unsupported { device: self.core.tag.name().into(), what }
    }

    fn push(
        &mut self,
        kernel: &Kernel,
        args: &[Arg],
        geometry: &Geometry,
        stamp: Option<Stamp>,
    ) -> Result<(), DeviceError> {
        let program = self.queue.program(kernel)?;
        let lds_bytes = program::check(program, self.core.chip, geometry).map_err(|what| self.cannot(what))?;
        let block = Block::new(program, args, geometry).map_err(|what| self.cannot(what))?;
        let length = |arg: &Arg| match arg {
            Arg::Scalar { len_bytes, .. } => usize::from(*len_bytes),
            Arg::Buffer(_) | Arg::Var(_) => 8,
        };
        self.steps.push(Step {
            kernel: kernel.clone(),
            geometry: *geometry,
            lds_bytes,
            at: self.args.image().len(),
            packet_offset: block.packet_offset as u64,
            stamp,
        });
        let places = block.offsets.iter().copied().zip(args.iter().map(length)).collect();
        self.args.push(&block.bytes, places, args);
        Ok(())
    }

    /// The launch of a step with its block in a copy.
    fn launch<'a>(&'a self, step: &'a Step, kernargs_va: u64) -> Result<Launch<'a>, DeviceError> {
        Ok(Launch {
            program: self.queue.program(&step.kernel)?,
            geometry: step.geometry,
            lds_bytes: step.lds_bytes,
            kernarg_va: kernargs_va + step.at as u64,
            packet_offset: step.packet_offset,
        })
    }

    /// Memory that the device reads and the host writes.
    fn own(&self, what: &'static str, len_bytes: usize) -> Result<(Bo, View), DeviceError> {
        let bo = self.core.own_bo(what, len_bytes as u64, Placement::Host)?;
        let view = bo.view().map_err(|source| self.core.refused(what, source))?;
        Ok((bo, view))
    }

    /// Encodes one copy: its argument memory and its packets.
    fn copy(&self, scratch: ScratchRegs) -> Result<Copy, DeviceError> {
        let (bo, kernargs) = self.own("recorded arguments", self.args.image().len())?;
        let kernargs_va = bo.va();
        let mut buffers = vec![bo];
        let (mut ibs, mut packets) = (Vec::new(), Vec::new());
        match self.core.chip.format {
            QueueFormat::Pm4 => self.command_buffers(kernargs_va, scratch, &mut buffers, &mut ibs)?,
            QueueFormat::Aql => packets = self.aql_packets(kernargs_va, scratch, &mut buffers)?,
        }
        let kernels = self.steps.iter().map(|s| s.kernel.clone()).collect();
        let stamps = self.steps.iter().filter_map(|s| s.stamp.clone()).collect();
        let held = Arc::new(Held { buffers, kernels, stamps });
        Ok(Copy { held, kernargs_va, kernargs, ibs, packets, scratch, last: None, is_fresh: false })
    }

    fn command_buffers(
        &self,
        kernargs_va: u64,
        scratch: ScratchRegs,
        buffers: &mut Vec<Bo>,
        ibs: &mut Vec<(u64, u32)>,
    ) -> Result<(), DeviceError> {
        let mut to = Compute::new(self.core.chip, self.core.node.xcc_count());
        for (n, step) in self.steps.iter().enumerate() {
            self.encode(step, kernargs_va, scratch, &mut to, &mut NoIb)?;
            let words = to.list.words();
            if words.len() >= MAX_IB_DWORDS || n + 1 == self.steps.len() && !words.is_empty() {
                let (bo, view) = self.own("command buffer", words.len() * 4)?;
                view.write(0, bytemuck::cast_slice(words))?;
                ibs.push((bo.va(), u32::try_from(words.len()).unwrap_or(u32::MAX)));
                buffers.push(bo);
                to.clear();
            }
        }
        Ok(())
    }

    /// Dispatches, and between them calls of the timestamps' indirect buffers, which the copy owns.
    fn aql_packets(
        &self,
        kernargs_va: u64,
        scratch: ScratchRegs,
        buffers: &mut Vec<Bo>,
    ) -> Result<Vec<u32>, DeviceError> {
        let all = |ib: &mut OwnIbs| -> Result<Vec<u32>, DeviceError> {
            let mut to = Compute::new(self.core.chip, self.core.node.xcc_count());
            self.steps.iter().try_for_each(|step| self.encode(step, kernargs_va, scratch, &mut to, ib))?;
            to.flush(ib)?;
            Ok(to.list.words().to_vec())
        };
        // First for their length, then where they are.
        let mut ibs = OwnIbs::default();
        let packets = all(&mut ibs)?;
        if ibs.words.is_empty() {
            return Ok(packets);
        }
        let (bo, view) = self.own("command buffer", ibs.words.len() * 4)?;
        let mut ibs = OwnIbs { base: bo.va(), words: Vec::new() };
        let packets = all(&mut ibs)?;
        view.write(0, bytemuck::cast_slice(&ibs.words))?;
        buffers.push(bo);
        Ok(packets)
    }

    fn encode(
        &self,
        step: &Step,
        kernargs_va: u64,
        scratch: ScratchRegs,
        to: &mut Compute,
        ib: &mut dyn IbMemory<DeviceError>,
    ) -> Result<(), DeviceError> {
        if let Some(stamp) = &step.stamp {
            to.timestamp(&stamp.start)?;
        }
        if !step.geometry.is_empty() {
            to.exec(&self.launch(step, kernargs_va)?, scratch, ib)?;
        }
        if let Some(stamp) = &step.stamp {
            to.timestamp(&stamp.stop)?;
        }
        Ok(())
    }

    /// A copy that no run reads, with the blocks of the image.
    fn ready_copy(&mut self, scratch: ScratchRegs) -> Result<usize, DeviceError> {
        let n = if self.copies.len() < COPIES { self.copies.len() } else { self.next % COPIES };
        if n == self.copies.len() {
            let copy = self.copy(scratch)?;
            self.copies.push(copy);
        }
        // Until it is known to be done, a run is not forgotten.
        if let Some(point) = &self.copies[n].last {
            point.wait(self.core.options.submit_timeout)?;
            self.copies[n].last = None;
        }
        if self.copies[n].scratch != scratch {
            self.copies[n] = self.copy(scratch)?;
        }
        if !self.copies[n].is_fresh {
            self.write_blocks(n)?;
        }
        self.next = n + 1;
        Ok(n)
    }

    fn write_blocks(&mut self, n: usize) -> Result<(), DeviceError> {
        self.copies[n].kernargs.write(0, self.args.image())?;
        for step in &self.steps {
            let launch = self.launch(step, self.copies[n].kernargs_va)?;
            if launch.wants_packet() {
                let packet = launch.aql_packet()?.emit()?;
                self.copies[n].kernargs.write(step.at as u64 + step.packet_offset, bytemuck::cast_slice(&packet))?;
            }
        }
        self.copies[n].is_fresh = true;
        Ok(())
    }

    fn run(&mut self, p: &mut Producer) -> Result<Point, DeviceError> {
        let queue = Arc::clone(&self.queue);
        queue.begin(p);
        queue.need_scratch(p, self.private_bytes)?;
        let n = self.ready_copy(p.scratch_regs())?;
        let memories = self.args.memories();
        memories.iter().for_each(|m| m.uses().hazards(queue.timeline(), p.waits()));
        let value = queue.timeline().submitted() + 1;
        queue.open_list(p, value)?;
        let copy = &self.copies[n];
        p.keep(value, Kept::List(Arc::clone(&copy.held) as _));
        match self.core.chip.format {
            QueueFormat::Pm4 => copy.ibs.iter().try_for_each(|(va, count)| p.indirect(*va, *count))?,
            QueueFormat::Aql => queue.packets(p, &copy.packets, value)?,
        }
        p.ran(&self.last);
        let point = queue.finish(p, value, memories.iter())?;
        self.copies[n].last = Some(point.clone());
        Ok(point)
    }
}

impl Recorded for AmdGraph {
    fn replay(&mut self, patches: &[Patch]) -> Result<Point, DeviceError> {
        self.core.check_open()?;
        let check = |place: &Place| self.queue.check_place(place, 0, "kernel argument");
        patches.iter().try_for_each(|p| self.args.check(p, check))?;
        for patch in patches {
            self.args.patch(patch)?;
            self.copies.iter_mut().for_each(|c| c.is_fresh = false);
        }
        let queue = Arc::clone(&self.queue);
        let mut producer = queue.lock();
        self.run(&mut producer)
    }
}

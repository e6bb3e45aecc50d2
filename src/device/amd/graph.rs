//! AMD's implementation of recorded lists: packets are encoded once into command buffers, and patches rewrite the
//! argument blocks.
//!
//! Layer: above `queue` and `encode`; copies and patches are handled in `device::gpu`. Source: docs/amd.md 2.3
//! (INDIRECT_BUFFER), 2.7. On PM4 rings the packets form command buffers that the ring calls. An AQL ring cannot call a
//! buffer of AQL packets, so a copy's packets are written to the ring itself, with a single doorbell.

use super::bo::Bo;
use super::chip::QueueFormat;
use super::core::Core;
use super::encode::{Compute, IbMemory, ScratchRegs};
use super::program::{self, Block, Launch, LoadedKernel};
use super::queue::{AmdQueue, NoIb, Packets};
use crate::gpu::encode::{GpuCore, SubmitContext};
use crate::gpu::recorded::{EncodeList, LaidOut, Launches, Step};
use crate::{Arg, DeviceError, Geometry};
use doorbell_hcq::memory::View;
use doorbell_hcq::packet::pm4::NOP_ONE_DWORD;
use std::ops::Range;

/// Dwords of one indirect buffer: the packet's field has 20 bits.
const MAX_IB_DWORDS: usize = 1 << 19;
/// Alignment of indirect buffers: a cache line.
const IB_ALIGN_DWORDS: usize = 16;

/// Indirect buffers of a copy, stored one after another from `base`.
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

/// Layout of a launch's argument block.
#[derive(Debug)]
pub(crate) struct Layout {
    lds_bytes: u32,
    /// Its offset in the list's arguments.
    at: u64,
    packet_offset: u64,
    /// Whether its kernel reads the dispatch packet.
    reads_dispatch_packet: bool,
}

/// One copy of the data that the GPU reads.
#[derive(Debug)]
pub(crate) struct Image {
    kernargs_va: u64,
    kernargs: View,
    /// Indirect buffers: address, dwords. PM4 rings.
    ibs: Vec<(u64, u32)>,
    /// Packets for an AQL ring.
    packets: Vec<u32>,
    /// The scratch that the packets refer to.
    scratch: ScratchRegs,
    #[allow(dead_code)] // keeps the memory of the addresses alive
    buffers: Vec<Bo>,
}

/// The inputs for encoding a copy.
struct Encoding<'a> {
    queue: &'a AmdQueue,
    launches: &'a Launches<Layout>,
    kernargs_va: u64,
    scratch: ScratchRegs,
}

/// The launch of a step with its argument block in a copy.
fn launch<'a>(queue: &AmdQueue, step: &'a Step<Layout>, kernargs_va: u64) -> Result<Launch<'a>, DeviceError> {
    Ok(Launch {
        program: queue.program(&step.kernel)?,
        geometry: step.geometry,
        lds_bytes: step.layout.lds_bytes,
        kernarg_va: kernargs_va + step.layout.at,
        packet_offset: step.layout.packet_offset,
    })
}

impl Encoding<'_> {
    fn compute(&self) -> Compute {
        Compute::new(self.queue.core().chip, self.queue.core().node.xcc_count())
    }

    fn command_buffers(&self, buffers: &mut Vec<Bo>) -> Result<Vec<(u64, u32)>, DeviceError> {
        let (mut to, mut ibs, steps) = (self.compute(), Vec::new(), &self.launches.steps);
        for (n, step) in steps.iter().enumerate() {
            self.step(step, &mut to, &mut NoIb)?;
            let words = to.list.words();
            if words.len() >= MAX_IB_DWORDS || n + 1 == steps.len() && !words.is_empty() {
                let (bo, view) = self.queue.core().shared_bo("command buffer", words.len() as u64 * 4)?;
                view.write(0, bytemuck::cast_slice(words))?;
                ibs.push((bo.va(), u32::try_from(words.len()).unwrap_or(u32::MAX)));
                buffers.push(bo);
                to.clear();
            }
        }
        Ok(ibs)
    }

    /// Dispatch packets and, between them, calls of the indirect buffers for timestamps, which the copy owns.
    fn aql_packets(&self, buffers: &mut Vec<Bo>) -> Result<Vec<u32>, DeviceError> {
        let all = |ib: &mut OwnIbs| -> Result<Vec<u32>, DeviceError> {
            let mut to = self.compute();
            self.launches.steps.iter().try_for_each(|step| self.step(step, &mut to, ib))?;
            to.flush(ib)?;
            Ok(to.list.words().to_vec())
        };
        // The first pass finds their length, the second uses their address.
        let mut ibs = OwnIbs::default();
        let packets = all(&mut ibs)?;
        if ibs.words.is_empty() {
            return Ok(packets);
        }
        let (bo, view) = self.queue.core().shared_bo("command buffer", ibs.words.len() as u64 * 4)?;
        let mut ibs = OwnIbs { base: bo.va(), words: Vec::new() };
        let packets = all(&mut ibs)?;
        view.write(0, bytemuck::cast_slice(&ibs.words))?;
        buffers.push(bo);
        Ok(packets)
    }

    fn step(
        &self,
        step: &Step<Layout>,
        to: &mut Compute,
        ib: &mut dyn IbMemory<DeviceError>,
    ) -> Result<(), DeviceError> {
        if let Some(stamp) = &step.stamp {
            to.timestamp(&stamp.start)?;
        }
        if !step.geometry.is_empty() {
            to.exec(&launch(self.queue, step, self.kernargs_va)?, self.scratch, ib)?;
        }
        if let Some(stamp) = &step.stamp {
            to.timestamp(&stamp.stop)?;
        }
        Ok(())
    }
}

/// Writes the argument blocks of launches, adjacent ones together, then dispatch packets for kernels that read them.
fn write_blocks(
    queue: &AmdQueue,
    image: &Image,
    launches: &Launches<Layout>,
    which: impl Iterator<Item = usize> + Clone,
) -> Result<(), DeviceError> {
    let args = launches.args.image();
    let write = |run: &Range<usize>| image.kernargs.write(run.start as u64, args.get(run.clone()).unwrap_or_default());
    let mut run = 0..0;
    for block in which.clone().filter_map(|n| launches.args.range(n)) {
        if block.start != run.end {
            write(&run)?;
            run.start = block.start;
        }
        run.end = block.end;
    }
    write(&run)?;
    for step in which.filter_map(|n| launches.steps.get(n)).filter(|step| step.layout.reads_dispatch_packet) {
        let packet = launch(queue, step, image.kernargs_va)?.aql_packet()?.emit()?;
        image.kernargs.write(step.layout.at + step.layout.packet_offset, bytemuck::cast_slice(&packet))?;
    }
    Ok(())
}

impl EncodeList for Packets {
    type Layout = Layout;
    type Image = Image;

    fn lay_out(
        core: &Core,
        before: &Launches<Layout>,
        program: &LoadedKernel,
        args: &[Arg],
        geometry: &Geometry,
    ) -> Result<LaidOut<Layout>, DeviceError> {
        let lds_bytes = program::check(program, core.chip, geometry).map_err(|what| core.cannot(what))?;
        let block = Block::new(program, args, geometry).map_err(|what| core.cannot(what))?;
        let length = |arg: &Arg| match arg {
            Arg::Scalar { len_bytes, .. } => usize::from(*len_bytes),
            Arg::Buffer(_) | Arg::Var(_) => 8,
        };
        let (at, packet_offset) = (before.args.image().len() as u64, block.packet_offset as u64);
        let arg_ranges = block.offsets.iter().copied().zip(args.iter().map(length)).collect();
        let reads_dispatch_packet = program.reads_dispatch_packet();
        let layout = Layout { lds_bytes, at, packet_offset, reads_dispatch_packet };
        Ok(LaidOut { bytes: block.bytes.to_vec(), arg_ranges, layout })
    }

    fn image(&self, queue: &AmdQueue, launches: &Launches<Layout>) -> Result<Image, DeviceError> {
        let (core, scratch) = (queue.core(), self.scratch_regs());
        let (bo, kernargs) = core.shared_bo("recorded arguments", launches.args.image().len() as u64)?;
        let kernargs_va = bo.va();
        let mut buffers = vec![bo];
        let encoding = Encoding { queue, launches, kernargs_va, scratch };
        let (mut ibs, mut packets) = (Vec::new(), Vec::new());
        match core.chip.format {
            QueueFormat::Pm4 => ibs = encoding.command_buffers(&mut buffers)?,
            QueueFormat::Aql => packets = encoding.aql_packets(&mut buffers)?,
        }
        let image = Image { kernargs_va, kernargs, ibs, packets, scratch, buffers };
        write_blocks(queue, &image, launches, 0..launches.steps.len())?;
        Ok(image)
    }

    fn is_current(&self, image: &Image) -> bool {
        self.scratch_regs() == image.scratch
    }

    fn rewrite(
        queue: &AmdQueue,
        image: &Image,
        launches: &Launches<Layout>,
        changed: impl Iterator<Item = usize> + Clone,
    ) -> Result<(), DeviceError> {
        write_blocks(queue, image, launches, changed)
    }

    fn run(&mut self, context: &SubmitContext<'_, Core>, image: &Image) -> Result<(), DeviceError> {
        match context.core.chip.format {
            QueueFormat::Pm4 => image.ibs.iter().try_for_each(|(va, count)| self.indirect(*va, *count)),
            QueueFormat::Aql => self.splice(context, &image.packets),
        }
    }
}

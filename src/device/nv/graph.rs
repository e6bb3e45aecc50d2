//! NVIDIA's implementation of recorded lists: QMDs, banks and push buffers are built once, and patches rewrite the
//! arguments.
//!
//! Layer: above `queue` and `blocks`; copies and patches are handled in `device::gpu`. Source: docs/nv.md
//! 4.4.
//! Launches without timestamps between them form a chain: only the first is submitted, and each QMD starts the next on
//! completion.
//! Left out: chains on Turing, whose QMDs have no field for it.

use super::blocks::{BlockLayout, block_words};
use super::bo::Bo;
use super::chip::Chip;
use super::core::Core;
use super::program::LoadedKernel;
use super::queue::{Methods, NvQueue};
use crate::gpu::encode::{GpuCore, SubmitContext};
use crate::gpu::recorded::{EncodeList, LaidOut, Launches, Step};
use crate::{Arg, DeviceError, Geometry};
use doorbell_hcq::memory::View;
use doorbell_hcq::packet::GpuVa;
use doorbell_hcq::packet::nv::qmd::{Action, Dependent, Version};
use doorbell_hcq::packet::nv::{Entry, PushBuffer, compute, host};
use doorbell_hcq::signal::Signal;

/// Dwords of one push buffer; far below the limit of a ring entry.
const PIECE_DWORDS: usize = 1 << 18;

/// Position and layout of a launch's block.
#[derive(Debug)]
pub(crate) struct Layout {
    /// Offset of the block, and its layout.
    at: u64,
    block: BlockLayout,
    /// Offset of the first parameter from the block's start.
    params_offset: u64,
}

impl Layout {
    fn end(&self) -> u64 {
        self.at + self.block.len_bytes
    }
}

/// One copy of the data that the GPU reads.
#[derive(Debug)]
pub(crate) struct Image {
    blocks: View,
    /// Ring entries for its push buffers.
    entries: Vec<[u32; 2]>,
    #[allow(dead_code)] // keeps the memory of the addresses alive
    buffers: Vec<Bo>,
}

/// The inputs for encoding a copy.
struct Encoding<'a> {
    queue: &'a NvQueue,
    launches: &'a Launches<Layout>,
    /// Address of the blocks.
    base: u64,
    blocks: &'a View,
}

impl Encoding<'_> {
    fn chip(&self) -> &'static Chip {
        self.queue.core().gpu.chip
    }

    /// Whether a step's QMD can start the next step's.
    fn is_chained(&self, n: usize) -> bool {
        let is_launch = |s: &Step<Layout>| !s.geometry.is_empty() && s.stamp.is_none();
        let steps = &self.launches.steps;
        let both = steps.get(n).is_some_and(is_launch) && steps.get(n + 1).is_some_and(is_launch);
        both && !matches!(self.chip().qmd, Version::V2_3 | Version::V2_4)
    }

    /// Writes QMD and bank of a step.
    fn write_block(&self, n: usize) -> Result<(), DeviceError> {
        let step = &self.launches.steps[n];
        if step.geometry.is_empty() {
            return Ok(());
        }
        let program = self.queue.program(&step.kernel)?;
        let dependent = self.is_chained(n).then(|| Dependent {
            qmd: GpuVa(self.base + self.launches.steps[n + 1].layout.at),
            action: Action::Schedule,
            prefetch: true,
        });
        let bank0 = GpuVa(self.base + step.layout.at + step.layout.block.bank_offset);
        let plan = program.plan(self.chip(), &step.geometry, self.launches.args.bytes(n), bank0, dependent);
        let plan = plan.map_err(|what| self.queue.core().cannot(what))?;
        let words = block_words(&plan, step.layout.block);
        self.blocks.write(step.layout.at, bytemuck::cast_slice(&words))?;
        Ok(())
    }

    /// Emits the methods of a step; none if the previous QMD starts it.
    fn step(&self, n: usize, list: &mut PushBuffer) -> Result<(), DeviceError> {
        let step = &self.launches.steps[n];
        let mark = |list: &mut PushBuffer, signal: &Signal| {
            let address = GpuVa(signal.va());
            host::Action::Release { address, value: 1, wait_idle: true, timestamp: true }.emit(list)
        };
        if let Some(stamp) = &step.stamp {
            mark(list, &stamp.start)?;
        }
        let is_started = n > 0 && self.is_chained(n - 1);
        if !step.geometry.is_empty() && !is_started {
            compute::Action::WaitIdle.emit(list)?;
            let caches = compute::Action::InvalidateCaches { instruction: false, data: true, constant: true };
            caches.emit(list)?;
            let qmd = GpuVa(self.base + step.layout.at);
            compute::Action::Launch { qmd, pcas: self.chip().pcas }.emit(list)?;
        }
        if let Some(stamp) = &step.stamp {
            mark(list, &stamp.stop)?;
        }
        Ok(())
    }
}

impl EncodeList for Methods {
    type Layout = Layout;
    type Image = Image;

    fn lay_out(
        core: &Core,
        before: &Launches<Layout>,
        program: &LoadedKernel,
        args: &[Arg],
        geometry: &Geometry,
    ) -> Result<LaidOut<Layout>, DeviceError> {
        let mut arg_ranges = Vec::with_capacity(args.len());
        let arguments = program.arguments(args, |at, len| arg_ranges.push((at, len)));
        let arguments = arguments.map_err(|what| core.cannot(what))?;
        let chip = core.gpu.chip;
        if !geometry.is_empty() {
            program.with_template(chip, geometry, &arguments, |_| ()).map_err(|what| core.cannot(what))?;
        }
        let block = BlockLayout::of(&program.kernel, chip);
        let at = before.steps.last().map_or(0, |step| step.layout.end());
        let params_offset = block.bank_offset + u64::from(program.kernel.param_base);
        Ok(LaidOut { bytes: arguments.to_vec(), arg_ranges, layout: Layout { at, block, params_offset } })
    }

    fn image(&self, queue: &NvQueue, launches: &Launches<Layout>) -> Result<Image, DeviceError> {
        let (core, steps) = (queue.core(), &launches.steps);
        let block_bytes = steps.last().map_or(0, |step| step.layout.end());
        let (bo, blocks) = core.shared_bo("recorded launches", block_bytes.max(8))?;
        let encoding = Encoding { queue, launches, base: bo.va(), blocks: &blocks };
        let mut buffers = vec![bo];
        let mut entries = Vec::new();
        let mut list = PushBuffer::new();
        for n in 0..steps.len() {
            encoding.write_block(n)?;
            encoding.step(n, &mut list)?;
            if list.words().len() >= PIECE_DWORDS || n + 1 == steps.len() && !list.words().is_empty() {
                let (bo, view) = core.shared_bo("recorded methods", list.words().len() as u64 * 4)?;
                view.write(0, bytemuck::cast_slice(list.words()))?;
                let count = u32::try_from(list.words().len()).unwrap_or(u32::MAX);
                entries.push(Entry::fetch(GpuVa(bo.va()), count).emit()?);
                buffers.push(bo);
                list.clear();
            }
        }
        Ok(Image { blocks, entries, buffers })
    }

    /// Always: a copy refers to nothing of the queue that could change.
    fn is_current(&self, _image: &Image) -> bool {
        true
    }

    fn rewrite(
        _queue: &NvQueue,
        image: &Image,
        launches: &Launches<Layout>,
        changed: impl Iterator<Item = usize> + Clone,
    ) -> Result<(), DeviceError> {
        let changed = changed.filter_map(|n| Some((launches.steps.get(n)?, launches.args.bytes(n))));
        for (step, args) in changed.filter(|(step, _)| !step.geometry.is_empty()) {
            image.blocks.write(step.layout.at + step.layout.params_offset, args)?;
        }
        Ok(())
    }

    fn run(&mut self, context: &SubmitContext<'_, Core>, image: &Image) -> Result<(), DeviceError> {
        self.splice(context, &image.entries)
    }
}

//! A recorded list of launches: QMDs, banks and push buffers made once, arguments patched at each replay.
//!
//! Place in the arrows: part of `device::nv`, used by `engine`'s JIT. Source: nv.md 4.4.
//! Launches without timestamps between them form a chain: the first is sent, each QMD starts the next when it is done. There are several copies of
//! everything, so that a replay never rewrites what one in flight reads; a copy is taken again when its last run is done.
//! Left out: copies inside a list (they are submitted anew at each replay); chains on Turing, whose QMDs name no action.

use super::blocks::{BlockLayout, block_words};
use super::bo::Bo;
use super::core::Core;
use super::program::Program;
use super::queue::{Kept, NvQueue, Producer};
use crate::checks::Checks;
use crate::launches::LaunchArgs;
use crate::{Arg, Command, DeviceError, Geometry, Kernel, Patch, Place, Recorded, Stamp};
use doorbell_hcq::memory::View;
use doorbell_hcq::packet::GpuVa;
use doorbell_hcq::packet::nv::qmd::{Action, Dependent, Version};
use doorbell_hcq::packet::nv::{PushBuffer, compute, host};
use doorbell_hcq::signal::Point;
use std::sync::Arc;

/// Replays in flight.
const COPIES: usize = 4;
/// Dwords of one push buffer, far below what an entry can fetch.
const PIECE_DWORDS: usize = 1 << 18;

/// One launch of the list.
#[derive(Debug)]
struct Step {
    kernel: Kernel,
    geometry: Geometry,
    /// Where its block starts, and its parts.
    at: u64,
    layout: BlockLayout,
    /// Of its first parameter, from the block's start.
    params_offset: u64,
    stamp: Option<Stamp>,
}

/// What a run in flight keeps: the buffers that the GPU reads, code, stamps. Only ever dropped.
#[derive(Debug)]
#[allow(dead_code)]
struct Held {
    buffers: Vec<Bo>,
    kernels: Vec<Kernel>,
    stamps: Vec<Stamp>,
}

/// One copy of what the GPU reads.
#[derive(Debug)]
struct Copy {
    held: Arc<Held>,
    blocks: View,
    /// Push buffers: address, dwords.
    pieces: Vec<(u64, u32)>,
    last: Option<Point>,
    /// Steps whose arguments have changed since they were written here.
    stale: Vec<usize>,
}

/// The list.
#[derive(Debug)]
pub struct NvGraph {
    core: Arc<Core>,
    queue: Arc<NvQueue>,
    steps: Vec<Step>,
    /// Their arguments.
    args: LaunchArgs,
    /// Bytes of all blocks.
    block_bytes: u64,
    copies: Vec<Copy>,
    next: usize,
    local_bytes: u32,
}

impl NvGraph {
    /// Encodes `commands`, which are launches.
    ///
    /// # Errors
    /// As a submission.
    pub fn new(core: &Arc<Core>, queue: &Arc<NvQueue>, commands: &[Command]) -> Result<Self, DeviceError> {
        let mut graph = Self {
            core: Arc::clone(core),
            queue: Arc::clone(queue),
            steps: Vec::with_capacity(commands.len()),
            args: LaunchArgs::default(),
            block_bytes: 0,
            copies: Vec::new(),
            next: 0,
            local_bytes: commands.iter().map(|c| queue.local_bytes(c)).max().unwrap_or(0),
        };
        for command in commands {
            queue.check(command)?;
            if let Command::Exec { kernel, args, geometry, stamp, .. } = command {
                graph.push(kernel, args, geometry, stamp.clone())?;
            }
        }
        // What cannot be launched is told now, not at the first replay.
        graph.copies.push(graph.copy()?);
        Ok(graph)
    }

    fn push(
        &mut self,
        kernel: &Kernel,
        args: &[Arg],
        geometry: &Geometry,
        stamp: Option<Stamp>,
    ) -> Result<(), DeviceError> {
        let program = self.queue.program(kernel)?;
        let mut places = Vec::with_capacity(args.len());
        let arguments = program.arguments(args, |at, len| places.push((at, len)));
        let arguments = arguments.map_err(|what| self.core.cannot(what))?;
        let layout = BlockLayout::of(&program.kernel, self.core.gpu.chip);
        self.args.push(&arguments, places, args);
        self.steps.push(Step {
            kernel: kernel.clone(),
            geometry: *geometry,
            at: self.block_bytes,
            layout,
            params_offset: layout.bank_offset + u64::from(program.kernel.param_base),
            stamp,
        });
        self.block_bytes += layout.len_bytes;
        Ok(())
    }

    /// Whether a step's QMD can start the one of the next step.
    fn is_chained(&self, n: usize) -> bool {
        let is_launch = |s: &Step| !s.geometry.is_empty() && s.stamp.is_none();
        let both = self.steps.get(n).is_some_and(is_launch) && self.steps.get(n + 1).is_some_and(is_launch);
        both && !matches!(self.core.gpu.chip.qmd, Version::V2_3 | Version::V2_4)
    }

    /// Makes one copy: its blocks and its push buffers.
    fn copy(&self) -> Result<Copy, DeviceError> {
        let (bo, blocks) = self.core.shared_bo("recorded launches", self.block_bytes.max(8))?;
        let base = bo.va();
        let mut buffers = vec![bo];
        let mut pieces = Vec::new();
        let mut list = PushBuffer::new();
        for (n, step) in self.steps.iter().enumerate() {
            self.write_block(n, base, &blocks)?;
            self.encode(n, base, &mut list)?;
            if list.words().len() >= PIECE_DWORDS || n + 1 == self.steps.len() && !list.words().is_empty() {
                let (bo, view) = self.core.shared_bo("recorded methods", list.words().len() as u64 * 4)?;
                view.write(0, bytemuck::cast_slice(list.words()))?;
                pieces.push((bo.va(), u32::try_from(list.words().len()).unwrap_or(u32::MAX)));
                buffers.push(bo);
                list.clear();
            }
            debug_assert!(step.at + step.layout.len_bytes <= self.block_bytes);
        }
        let kernels = self.steps.iter().map(|s| s.kernel.clone()).collect();
        let stamps = self.steps.iter().filter_map(|s| s.stamp.clone()).collect();
        let held = Arc::new(Held { buffers, kernels, stamps });
        Ok(Copy { held, blocks, pieces, last: None, stale: Vec::new() })
    }

    /// QMD and bank of a step.
    fn write_block(&self, n: usize, base: u64, blocks: &View) -> Result<(), DeviceError> {
        let step = &self.steps[n];
        if step.geometry.is_empty() {
            return Ok(());
        }
        let program: &Program = self.queue.program(&step.kernel)?;
        let dependent = self.is_chained(n).then(|| Dependent {
            qmd: GpuVa(base + self.steps[n + 1].at),
            action: Action::Schedule,
            prefetch: true,
        });
        let bank0 = GpuVa(base + step.at + step.layout.bank_offset);
        let plan = program.plan(self.core.gpu.chip, &step.geometry, self.args.bytes(n), bank0, dependent);
        let plan = plan.map_err(|what| self.core.cannot(what))?;
        let words = block_words(&plan, step.layout);
        blocks.write(step.at, bytemuck::cast_slice(&words))?;
        Ok(())
    }

    /// The methods of a step: none for one that the QMD before it starts.
    fn encode(&self, n: usize, base: u64, list: &mut PushBuffer) -> Result<(), DeviceError> {
        let step = &self.steps[n];
        let mark = |list: &mut PushBuffer, signal: &doorbell_hcq::signal::Signal| {
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
            let qmd = GpuVa(base + step.at);
            compute::Action::Launch { qmd, pcas: self.core.gpu.chip.pcas }.emit(list)?;
        }
        if let Some(stamp) = &step.stamp {
            mark(list, &stamp.stop)?;
        }
        Ok(())
    }

    fn patch(&mut self, patch: &Patch) -> Result<(), DeviceError> {
        let step = self.args.patch(patch)?;
        for copy in &mut self.copies {
            if copy.stale.last() != Some(&step) {
                copy.stale.push(step);
            }
        }
        Ok(())
    }

    /// A copy that no run reads, brought up to the arguments of the steps.
    fn ready_copy(&mut self) -> Result<usize, DeviceError> {
        let n = if self.copies.len() < COPIES { self.copies.len() } else { self.next % COPIES };
        if n == self.copies.len() {
            let copy = self.copy()?;
            self.copies.push(copy);
        }
        // Until it is known to be done, a run is not forgotten.
        if let Some(point) = &self.copies[n].last {
            point.wait(self.core.options.submit_timeout)?;
            self.copies[n].last = None;
        }
        let mut stale = std::mem::take(&mut self.copies[n].stale);
        stale.sort_unstable();
        stale.dedup();
        let changed = stale.iter().filter_map(|n| Some((self.steps.get(*n)?, self.args.bytes(*n))));
        for (step, args) in changed.filter(|(step, _)| !step.geometry.is_empty()) {
            self.copies[n].blocks.write(step.at + step.params_offset, args)?;
        }
        self.next = n + 1;
        Ok(n)
    }

    fn run(&mut self, p: &mut Producer) -> Result<Point, DeviceError> {
        let queue = Arc::clone(&self.queue);
        queue.begin(p);
        queue.need_local(p, self.local_bytes)?;
        let n = self.ready_copy()?;
        let memories = self.args.memories();
        memories.iter().for_each(|m| m.uses().hazards(queue.timeline(), p.waits()));
        let value = queue.timeline().submitted() + 1;
        queue.open_list(p, value)?;
        let copy = &self.copies[n];
        p.keep(value, Kept::List(Arc::clone(&copy.held) as _));
        queue.splice(p, value, &copy.pieces)?;
        let point = queue.finish(p, value, memories.iter())?;
        self.copies[n].last = Some(point.clone());
        Ok(point)
    }
}

impl Recorded for NvGraph {
    fn replay(&mut self, patches: &[Patch]) -> Result<Point, DeviceError> {
        self.core.check_open()?;
        let check = |place: &Place| self.queue.check_place(place, 0, "kernel argument");
        patches.iter().try_for_each(|p| self.args.check(p, check))?;
        patches.iter().try_for_each(|p| self.patch(p))?;
        let queue = Arc::clone(&self.queue);
        let mut producer = queue.lock();
        self.run(&mut producer)
    }
}

//! A recorded list of launches as an indirect command buffer: encoded once, patched, and executed by one message.
//!
//! Source: Apple's documentation of `MTLIndirectCommandBuffer`; tinygrad (`runtime/graph/metal.py`). There is no
//! `setBytes` for its commands, so variables lie in a buffer. What it names must be made resident by the encoder that
//! executes it: buffers by `useResource`, and before Apple9 pipelines by a dispatch of nothing. Nobody keeps buffers
//! alive that only it names, so a replay does. There are two copies: one is patched while the other runs. Left out:
//! copies, times, threadgroup memory given at the launch, and lists that take fewer messages when they are encoded
//! anew.

use super::core::Core;
use super::encode::{label, stamp_of};
use super::messages::{Buffer, IndirectBuffer, IndirectCommand, IndirectDescriptor, Pipeline};
use super::ns::{Owned, Range, Size};
use super::queue::Sent;
use crate::record::apply;
use crate::{Arg, Command, DeviceError, Kernel, Memory, Patch, Recorded};
use doorbell_hcq::signal::Point;
use std::collections::HashSet;
use std::sync::Arc;

/// `MTLIndirectCommandTypeConcurrentDispatch`.
pub(crate) const CONCURRENT_DISPATCH: u64 = 32;
/// `MTLResourceUsageRead | MTLResourceUsageWrite`.
const READ_WRITE: u64 = 3;
/// Bytes from one variable to the next.
const VARIABLE_STEP: u64 = 16;
/// Copies of a list.
const COPIES: usize = 2;

/// One copy of a list.
#[derive(Debug)]
struct Image {
    icb: Owned<IndirectBuffer>,
    commands: Vec<Owned<IndirectCommand>>,
    variables: Option<Memory>,
}

/// What a replay in flight keeps alive.
#[derive(Debug)]
struct Kept {
    #[allow(dead_code)] // never read, only dropped
    image: Arc<Image>,
    #[allow(dead_code)]
    kernels: Vec<Kernel>,
    buffers: Vec<Arc<Owned<Buffer>>>,
}

#[derive(Debug)]
struct Copy {
    image: Arc<Image>,
    last: Option<Point>,
    /// Number of patches when its commands were last written.
    patches: u64,
    kept: Arc<Kept>,
}

/// A recorded list.
#[derive(Debug)]
pub(crate) struct IndirectList {
    core: Arc<Core>,
    commands: Vec<Command>,
    label: String,
    /// Number of patches so far and, for each command, the number of the last one that changed it.
    patches: u64,
    patched: Vec<u64>,
    copies: Vec<Copy>,
    next: usize,
}

impl IndirectList {
    /// `None` for a list that is better encoded anew, or cannot be kept.
    ///
    /// # Errors
    /// As a submission.
    pub(crate) fn new(core: &Arc<Core>, commands: &[Command]) -> Result<Option<Self>, DeviceError> {
        core.check_open()?;
        if !core.has_indirect || !core.is_worth_it(commands) {
            return Ok(None);
        }
        commands.iter().try_for_each(|command| core.check(command))?;
        let mut list = Self {
            core: Arc::clone(core),
            commands: commands.to_vec(),
            label: label(commands),
            patches: 0,
            patched: vec![0; commands.len()],
            copies: Vec::with_capacity(COPIES),
            next: 0,
        };
        let Some(copy) = list.copy()? else { return Ok(None) };
        list.copies.push(copy);
        Ok(Some(list))
    }

    /// A copy with the current arguments; `None` where Metal makes no indirect command buffer.
    fn copy(&self) -> Result<Option<Copy>, DeviceError> {
        let core = &self.core;
        let variables = self.commands.iter().flat_map(args).filter(|arg| !matches!(arg, Arg::Buffer(_))).count() as u64;
        let variables = (variables > 0).then(|| core.alloc_shared(variables * VARIABLE_STEP)).transpose()?;
        let made = core.runtime.pool(|| {
            let descriptor = IndirectDescriptor::create(core.runtime).flatten()?;
            descriptor.set_command_types(CONCURRENT_DISPATCH);
            descriptor.set_inherit_buffers(false);
            descriptor.set_inherit_pipeline(false);
            descriptor.set_max_buffers(self.commands.iter().map(|c| args(c).len()).max().unwrap_or(0).max(1) as u64);
            let icb = core.gpu.new_indirect_buffer(&descriptor, self.commands.len() as u64, 0)?;
            let all: Option<Vec<_>> = (0..self.commands.len() as u64).map(|at| icb.command_at(at).0).collect();
            Some((icb, all?))
        });
        let Some((icb, commands)) = made else { return Ok(None) };
        let image = Arc::new(Image { icb, commands, variables });
        core.runtime.pool(|| (0..self.commands.len()).try_for_each(|at| self.write(&image, at)))?;
        let kept = self.kept(&image)?;
        Ok(Some(Copy { image, last: None, patches: self.patches, kept }))
    }

    fn kept(&self, image: &Arc<Image>) -> Result<Arc<Kept>, DeviceError> {
        let mut buffers: Vec<Arc<Owned<Buffer>>> = Vec::new();
        let variables = image.variables.iter().map(|memory| memory.at(0));
        for place in self.commands.iter().flat_map(Command::locations).cloned().chain(variables) {
            let buffer = self.core.buffer(&place)?;
            if !buffers.iter().any(|known| Arc::ptr_eq(known, &buffer)) {
                buffers.push(buffer);
            }
        }
        let kernel = |command: &Command| match command {
            Command::Exec { kernel, .. } => Some(kernel.clone()),
            _ => None,
        };
        let kernels = self.commands.iter().filter_map(kernel).collect();
        Ok(Arc::new(Kept { image: Arc::clone(image), kernels, buffers }))
    }

    /// Writes one command of a copy that is not in flight.
    fn write(&self, image: &Image, at: usize) -> Result<(), DeviceError> {
        let (core, command) = (&self.core, &image.commands[at]);
        let Command::Exec { kernel, args: own, geometry, .. } = &self.commands[at] else { return Ok(()) };
        command.set_pipeline(&core.program_of(kernel)?.pipeline);
        let before = self.commands[..at].iter().flat_map(args).filter(|arg| !matches!(arg, Arg::Buffer(_)));
        let mut variable = before.count() as u64 * VARIABLE_STEP;
        for (slot, arg) in (0..).zip(own) {
            match arg {
                Arg::Buffer(place) => {
                    if u32::try_from(place.offset).is_err() {
                        return Err(core.cannot(format!("keep an offset of {} bytes in a recorded list", place.offset)));
                    }
                    command.set_buffer(&*core.buffer(place)?, place.offset, slot);
                }
                Arg::Var(_) | Arg::Scalar { .. } => {
                    let Some(memory) = &image.variables else { continue };
                    memory.host().map_or(Ok(()), |view| view.write(variable, &arg.bits().to_le_bytes()))?;
                    command.set_buffer(&*core.buffer(&memory.at(0))?, variable, slot);
                    variable += VARIABLE_STEP;
                }
            }
        }
        command.dispatch(Size(geometry.groups.map(u64::from)), Size(geometry.local.map(u64::from)));
        command.set_barrier();
        Ok(())
    }

    /// A copy that is not in flight, with the current arguments.
    fn ready_copy(&mut self) -> Result<usize, DeviceError> {
        let at = self.next % COPIES;
        if at == self.copies.len() {
            let copy = self.copy()?;
            self.copies.push(copy.ok_or_else(|| self.core.cannot("make an indirect command buffer".into()))?);
        }
        self.next = at + 1;
        // Its last run is one run ago: there is seldom something to wait for.
        if let Some(last) = &self.copies[at].last {
            last.wait(self.core.patience)?;
        }
        if self.copies[at].patches < self.patches {
            let (have, image) = (self.copies[at].patches, Arc::clone(&self.copies[at].image));
            let changed = |at: &usize| self.patched[*at] > have;
            let changed: Vec<usize> = (0..self.commands.len()).filter(changed).collect();
            self.core.runtime.pool(|| changed.iter().try_for_each(|command| self.write(&image, *command)))?;
            self.copies[at].kept = self.kept(&image)?;
            self.copies[at].patches = self.patches;
        }
        Ok(at)
    }
}

fn args(command: &Command) -> &[Arg] {
    if let Command::Exec { args, .. } = command { args } else { &[] }
}

impl Recorded for IndirectList {
    fn replay(&mut self, patches: &[Patch]) -> Result<Point, DeviceError> {
        self.core.check_open()?;
        for patch in patches {
            apply(&mut self.commands, patch)?;
            let (Patch::Arg { command, .. } | Patch::Threads { command, .. }) = patch;
            self.patches += 1;
            self.patched[*command] = self.patches;
            self.core.check(&self.commands[*command])?;
        }
        let at = self.ready_copy()?;
        let (core, copy, label) = (&self.core, &self.copies[at], &self.label);
        let queue = &*core.compute;
        let kept = Some(Arc::clone(&copy.kept) as _);
        let point = core.submit_as(queue, &self.commands, (1, kept), |queue, value, start| {
            let buffer = core.command_buffer(queue, (start.after, &start.waits), label, |buffer| {
                let made = buffer.compute_encoder().0;
                let encoder = made.ok_or_else(|| core.cannot("make a compute encoder".into()))?;
                if core.is_lazy {
                    for pipeline in pipelines(core, &self.commands) {
                        encoder.set_pipeline(pipeline);
                        encoder.dispatch(Size([0; 3]), Size([0; 3]));
                    }
                }
                copy.kept.buffers.iter().for_each(|used| encoder.use_resource(used, READ_WRITE));
                encoder.execute(&copy.image.icb, Range { location: 0, length: self.commands.len() as u64 });
                encoder.end();
                Ok(())
            })?;
            let (event_value, label) = (start.after + 1, label.clone());
            Ok(vec![Sent { buffer, event_value, submission: Some(value), label, stamp: None }])
        })?;
        self.copies[at].last = Some(point.clone());
        Ok(point)
    }
}

/// The pipelines of launches, each once.
fn pipelines<'a>(core: &Core, commands: &'a [Command]) -> Vec<&'a Owned<Pipeline>> {
    let mut all: Vec<&Owned<Pipeline>> = Vec::new();
    for command in commands {
        if let Command::Exec { kernel, .. } = command
            && let Ok(program) = core.program_of(kernel)
            && !all.iter().any(|known| known.number() == program.pipeline.number())
        {
            all.push(&program.pipeline);
        }
    }
    all
}

impl Core {
    /// Whether a list can be an indirect command buffer, and takes fewer messages at a replay then.
    fn is_worth_it(&self, commands: &[Command]) -> bool {
        let can = |command: &Command| {
            let Command::Exec { kernel, geometry, .. } = command else { return false };
            let is_kept = stamp_of(command).is_none() && geometry.local_bytes == 0 && !geometry.is_empty();
            is_kept && self.program_of(kernel).is_ok_and(|program| program.is_indirect)
        };
        if commands.len() < 2 || !commands.iter().all(can) {
            return false;
        }
        let anew: usize = commands.iter().map(|command| 2 + args(command).len()).sum();
        let memories = commands.iter().flat_map(Command::locations).map(|l| l.memory.va());
        let memories: HashSet<u64> = memories.collect();
        let resident = if self.is_lazy { 2 * pipelines(self, commands).len() } else { 0 };
        memories.len() + 2 + resident < anew
    }
}

//! Commands → command buffers.
//!
//! A submission is a few command buffers: one for each run of commands, one for each command whose time is asked for,
//! since Metal gives times of whole command buffers only. Each begins with a wait for the one before it and ends with a
//! signal: command buffers of one queue may overlap otherwise.

use super::core::{Core, lock};
use super::messages::{BlitEncoder, Buffer, CommandBuffer, ComputeEncoder};
use super::ns::{Owned, Size, string};
use super::program::Program;
use super::queue::{MAX_IN_FLIGHT, Producer, Queue, Sent};
use crate::in_flight::{Kept, RoomWait, commit, ring_full_error};
use crate::{Arg, Command, DeviceError, Geometry, Kernel, Location, QueueKind, Stamp};
use doorbell_hcq::signal::{Point, Progress};
use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

/// Threadgroup memory comes in pieces of this size.
const THREADGROUP_STEP: u64 = 16;
/// Slots for buffers and variables.
const SLOTS: usize = 31;
/// Longest label of a command buffer.
const LABEL_BYTES: usize = 200;

/// The encoder that is open.
enum Open {
    None,
    Compute(Owned<ComputeEncoder>),
    Blit(Owned<BlitEncoder>),
}

impl Open {
    fn end(&mut self) {
        match std::mem::replace(self, Open::None) {
            Open::None => {}
            Open::Compute(encoder) => encoder.end(),
            Open::Blit(encoder) => encoder.end(),
        }
    }
}

impl Core {
    /// Submits commands. Copies between this device's memory and another's, both in the host's sight, are made by the
    /// host when what they wait for is done.
    ///
    /// # Errors
    /// As [`crate::Device::submit`]. Without such copies nothing was submitted then.
    pub(crate) fn submit(&self, kind: QueueKind, commands: &[Command]) -> Result<Point, DeviceError> {
        self.check_open()?;
        commands.iter().try_for_each(|command| self.check(command))?;
        let queue = &*self.queue(kind)?;
        if kind.only_copies()
            && let Some(Command::Exec { kernel, .. }) = commands.iter().find(|c| matches!(c, Command::Exec { .. }))
        {
            return Err(self.cannot(format!("run {} on its copy queue", kernel.name())));
        }
        let mut rest = commands;
        while let Some(at) = rest.iter().position(|command| self.is_by_host(command)) {
            if at > 0 {
                self.submit_own(queue, &rest[..at])?;
            }
            self.copy_by_host(&rest[at])?;
            rest = &rest[at + 1..];
            if rest.is_empty() {
                return Ok(queue.timeline.point(queue.timeline.submitted()));
            }
        }
        self.submit_own(queue, rest)
    }

    fn is_by_host(&self, command: &Command) -> bool {
        let Command::Copy { dst, src, .. } = command else { return false };
        let is_own = |place: &Location| *place.memory.device() == self.tag;
        !(is_own(dst) && is_own(src)) && dst.memory.host().is_some() && src.memory.host().is_some()
    }

    fn copy_by_host(&self, command: &Command) -> Result<(), DeviceError> {
        let Command::Copy { dst, src, len_bytes, stamp } = command else { return Ok(()) };
        dst.memory.uses().wait(self.patience)?;
        src.memory.uses().wait(self.patience)?;
        let begun = Instant::now();
        if let (Some(to), Some(from)) = (dst.memory.host(), src.memory.host()) {
            to.write_from(dst.offset, from, src.offset, *len_bytes)?;
        }
        if let Some(stamp) = stamp {
            stamp.start.set_timestamp_ns(0);
            stamp.stop.set_timestamp_ns(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
        Ok(())
    }

    fn submit_own(&self, queue: &Queue, commands: &[Command]) -> Result<Point, DeviceError> {
        let runs = runs(commands);
        self.submit_as(queue, commands, (runs.len(), None), |queue, value, from| self.encode(queue, value, from, &runs))
    }

    /// Submits what `encode` makes of a submission's value and of what it begins after: at most `most` command buffers.
    /// They keep what they name, and the queue keeps `kept`, until they are done.
    ///
    /// # Errors
    /// As `submit`; those of `encode`.
    pub(crate) fn submit_as(
        &self,
        queue: &Queue,
        commands: &[Command],
        (most, kept): (usize, Option<Arc<dyn Any + Send + Sync>>),
        encode: impl FnOnce(&Queue, u64, &Start) -> Result<Vec<Sent>, DeviceError>,
    ) -> Result<Point, DeviceError> {
        let mut producer = lock(&queue.producer);
        self.wait_for_room(queue, most)?;
        self.check_open()?;
        let value = queue.timeline.submitted() + 1;
        let start =
            Start { after: producer.signalled, waits: self.wait_for_others(queue, &mut producer, value, commands)? };
        let sent = self.runtime.pool(|| encode(queue, value, &start))?;
        producer.signalled = sent.last().map_or(producer.signalled, |last| last.event_value);
        if let Some(kept) = kept {
            producer.in_flight.keep(value, Kept::List(kept));
        }
        commit(&queue.timeline, value, commands.iter().flat_map(Command::locations).map(|l| &l.memory));
        queue.commit(sent);
        Ok(queue.timeline.point(value))
    }

    fn wait_for_room(&self, queue: &Queue, needed: usize) -> Result<(), DeviceError> {
        let mut wait = RoomWait::default();
        while queue.room() < needed.min(MAX_IN_FLIGHT) {
            self.check_open()?;
            if wait.is_over(self.patience) {
                return Err(ring_full_error(&queue.timeline, self.patience, queue.report()));
            }
            wait.pause();
        }
        Ok(())
    }

    /// What the submission waits for in this device's other queue. Waits on the host for other devices' work: a queue
    /// of Metal can only wait for events of Metal.
    fn wait_for_others(
        &self,
        queue: &Queue,
        producer: &mut Producer,
        value: u64,
        commands: &[Command],
    ) -> Result<Vec<(Arc<Queue>, u64)>, DeviceError> {
        let mut waits = Vec::new();
        producer.in_flight.begin(&queue.timeline);
        producer.in_flight.wait_for_all(&queue.timeline, commands);
        producer.in_flight.emit_waits(value, |point| -> Result<bool, DeviceError> {
            // What this queue was given before runs before.
            if Arc::ptr_eq(point.timeline(), &queue.timeline) {
                return Ok(false);
            }
            match self.queue_of(point.timeline()) {
                Some(other) => {
                    let reached = other.event_value(point.value());
                    waits.extend(reached.map(|reached| (other, reached)));
                    Ok(true)
                }
                None => {
                    point.wait(self.patience)?;
                    Ok(false)
                }
            }
        })?;
        Ok(waits)
    }

    fn encode(&self, queue: &Queue, value: u64, start: &Start, runs: &[&[Command]]) -> Result<Vec<Sent>, DeviceError> {
        let mut all: Vec<Sent> = Vec::with_capacity(runs.len());
        for (at, run) in runs.iter().enumerate() {
            let after = start.after + at as u64;
            let stamp = run.first().and_then(stamp_of).cloned();
            let label = label(run);
            let waits = if at == 0 { &start.waits[..] } else { &[] };
            let buffer = self.command_buffer(queue, (after, waits), &label, |buffer| self.commands(buffer, run))?;
            let submission = (at + 1 == runs.len()).then_some(value);
            all.push(Sent { buffer, event_value: after + 1, submission, label, stamp });
        }
        Ok(all)
    }

    /// One command buffer, to run when the queue's event has the value `after`, and other queues' have theirs.
    pub(crate) fn command_buffer(
        &self,
        queue: &Queue,
        (after, waits): (u64, &[(Arc<Queue>, u64)]),
        label: &str,
        encode: impl FnOnce(&Owned<CommandBuffer>) -> Result<(), DeviceError>,
    ) -> Result<Owned<CommandBuffer>, DeviceError> {
        let buffer = queue.queue.command_buffer().0.ok_or_else(|| self.cannot("make a command buffer".into()))?;
        if let Some(text) = string(self.runtime, label) {
            buffer.set_label(&text);
        }
        if after > 0 {
            buffer.wait(&queue.event, after);
        }
        waits.iter().for_each(|(other, reached)| buffer.wait(&other.event, *reached));
        encode(&buffer)?;
        buffer.signal(&queue.event, after + 1);
        Ok(buffer)
    }

    fn commands(&self, buffer: &Owned<CommandBuffer>, run: &[Command]) -> Result<(), DeviceError> {
        let mut open = Open::None;
        let done = run.iter().try_for_each(|command| self.command(buffer, &mut open, command));
        open.end();
        done
    }

    fn command(&self, buffer: &Owned<CommandBuffer>, open: &mut Open, command: &Command) -> Result<(), DeviceError> {
        match command {
            Command::Exec { kernel, args, geometry, .. } => {
                if !matches!(open, Open::Compute(_)) {
                    open.end();
                    let made = buffer.compute_encoder().0;
                    *open = Open::Compute(made.ok_or_else(|| self.cannot("make a compute encoder".into()))?);
                }
                let Open::Compute(encoder) = open else { return Ok(()) };
                self.launch(encoder, kernel, args, geometry)
            }
            Command::Copy { dst, src, len_bytes, .. } => {
                if *len_bytes == 0 {
                    return Ok(());
                }
                if !matches!(open, Open::Blit(_)) {
                    open.end();
                    let made = buffer.blit_encoder().0;
                    *open = Open::Blit(made.ok_or_else(|| self.cannot("make a blit encoder".into()))?);
                }
                let Open::Blit(encoder) = open else { return Ok(()) };
                let (from, to) = (self.buffer(src)?, self.buffer(dst)?);
                encoder.copy(&from, src.offset, &to, dst.offset, *len_bytes);
                Ok(())
            }
            Command::Wait(_) => Ok(()),
        }
    }

    fn launch(
        &self,
        encoder: &Owned<ComputeEncoder>,
        kernel: &Kernel,
        args: &[Arg],
        geometry: &Geometry,
    ) -> Result<(), DeviceError> {
        if geometry.is_empty() {
            return Ok(());
        }
        encoder.set_pipeline(&self.program_of(kernel)?.pipeline);
        for (slot, arg) in (0..).zip(args) {
            match arg {
                Arg::Buffer(place) => encoder.set_buffer(Some(&*self.buffer(place)?), place.offset, slot),
                Arg::Var(value) => encoder.set_bytes(value.to_le_bytes().as_ptr(), 8, slot),
                Arg::Scalar { bits, len_bytes } => {
                    encoder.set_bytes(bits.to_le_bytes().as_ptr(), u64::from(*len_bytes).min(8), slot);
                }
            }
        }
        if geometry.local_bytes > 0 {
            let len = u64::from(geometry.local_bytes).next_multiple_of(THREADGROUP_STEP);
            encoder.set_threadgroup_memory(len, 0);
        }
        encoder.dispatch(Size(geometry.groups.map(u64::from)), Size(geometry.local.map(u64::from)));
        Ok(())
    }

    pub(crate) fn program_of<'k>(&self, kernel: &'k Kernel) -> Result<&'k Program, DeviceError> {
        let program = kernel.program().downcast_ref::<Program>();
        program.ok_or_else(|| self.cannot(format!("run {}, which is no Metal kernel", kernel.name())))
    }

    pub(crate) fn buffer(&self, place: &Location) -> Result<Arc<Owned<Buffer>>, DeviceError> {
        let found = lock(&self.buffers).get(&place.memory.va()).cloned();
        found.ok_or_else(|| self.cannot(format!("use memory at {:#x}", place.memory.va())))
    }

    /// What can be wrong with a command; a launch above a pipeline's limit would be dropped silently.
    pub(crate) fn check(&self, command: &Command) -> Result<(), DeviceError> {
        let foreign = |what, theirs: &crate::DeviceTag| DeviceError::WrongDevice {
            what,
            ours: self.name.clone(),
            theirs: theirs.name().into(),
        };
        let by_host = self.is_by_host(command);
        for place in command.locations() {
            if !by_host && *place.memory.device() != self.tag {
                return Err(foreign("memory", place.memory.device()));
            }
            place.memory.check("argument", place.offset, 0)?;
        }
        match command {
            Command::Exec { kernel, args, geometry, .. } => {
                if *kernel.device() != self.tag {
                    return Err(foreign("kernel", kernel.device()));
                }
                let threads: u64 = geometry.local.iter().map(|n| u64::from(*n)).product();
                let most = self.program_of(kernel)?.max_threads;
                if threads > most {
                    let what = format!("run {} with {threads} threads a threadgroup, at most {most}", kernel.name());
                    return Err(self.cannot(what));
                }
                if args.len() > SLOTS {
                    return Err(self.cannot(format!(
                        "give {} {} arguments, at most {SLOTS}",
                        kernel.name(),
                        args.len()
                    )));
                }
                Ok(())
            }
            Command::Copy { dst, src, len_bytes, .. } => {
                dst.memory.check("copy", dst.offset, *len_bytes)?;
                src.memory.check("copy", src.offset, *len_bytes)
            }
            Command::Wait(_) => Ok(()),
        }
    }
}

/// What a submission begins after.
pub(crate) struct Start {
    /// The event's value of the command buffer before it.
    pub after: u64,
    /// Other queues of the device, each with its event's value.
    pub waits: Vec<(Arc<Queue>, u64)>,
}

pub(crate) fn stamp_of(command: &Command) -> Option<&Stamp> {
    match command {
        Command::Exec { stamp, .. } | Command::Copy { stamp, .. } => stamp.as_ref(),
        Command::Wait(_) => None,
    }
}

/// The commands of each command buffer, at least one of them.
fn runs(commands: &[Command]) -> Vec<&[Command]> {
    let is_together = |a: &Command, b: &Command| stamp_of(a).is_none() && stamp_of(b).is_none();
    let mut runs: Vec<&[Command]> = commands.chunk_by(is_together).collect();
    if runs.is_empty() {
        runs.push(&[]);
    }
    runs
}

/// The kernels of a command buffer, for its errors.
pub(crate) fn label(run: &[Command]) -> String {
    let mut label = String::new();
    for command in run {
        let name = match command {
            Command::Exec { kernel, .. } => kernel.name(),
            Command::Copy { .. } => "copy",
            Command::Wait(_) => continue,
        };
        if label.len() + name.len() > LABEL_BYTES {
            label.push_str(" ...");
            break;
        }
        if !label.is_empty() {
            label.push(' ');
        }
        label.push_str(name);
    }
    label
}

//! Commands → command buffers.
//!
//! A submission is a few command buffers: one for each run of commands, one for each command whose time is asked for,
//! since Metal gives times of whole command buffers only. Each begins with a wait for the one before it and ends with a
//! signal: command buffers of one queue may overlap otherwise.

use super::core::{Core, MAX_IN_FLIGHT, Producer, Sent, lock};
use super::messages::{BlitEncoder, Buffer, CommandBuffer, ComputeEncoder};
use super::ns::{Owned, Size, string};
use super::program::Program;
use crate::in_flight::{RoomWait, commit, ring_full_error};
use crate::{Arg, Command, DeviceError, Geometry, Kernel, Location, Stamp};
use doorbell_hcq::signal::{Point, Progress};
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
    pub fn submit(&self, commands: &[Command]) -> Result<Point, DeviceError> {
        self.check_open()?;
        commands.iter().try_for_each(|command| self.check(command))?;
        let mut rest = commands;
        while let Some(at) = rest.iter().position(|command| self.is_by_host(command)) {
            if at > 0 {
                self.submit_own(&rest[..at])?;
            }
            self.copy_by_host(&rest[at])?;
            rest = &rest[at + 1..];
            if rest.is_empty() {
                return Ok(self.timeline.point(self.timeline.submitted()));
            }
        }
        self.submit_own(rest)
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

    fn submit_own(&self, commands: &[Command]) -> Result<Point, DeviceError> {
        let runs = runs(commands);
        let mut producer = lock(&self.producer);
        self.wait_for_room(runs.len())?;
        self.check_open()?;
        let value = self.timeline.submitted() + 1;
        self.wait_for_others(&mut producer, value, commands)?;
        let sent = self.runtime.pool(|| self.encode(&producer, value, &runs))?;
        producer.signalled = sent.last().map_or(producer.signalled, |last| last.event_value);
        // Command buffers keep buffers, pipelines and events until they are done.
        commit(&self.timeline, value, commands.iter().flat_map(Command::locations).map(|l| &l.memory));
        self.commit(sent);
        Ok(self.timeline.point(value))
    }

    fn wait_for_room(&self, needed: usize) -> Result<(), DeviceError> {
        let mut wait = RoomWait::default();
        while self.room() < needed.min(MAX_IN_FLIGHT) {
            self.check_open()?;
            if wait.is_over(self.patience) {
                return Err(ring_full_error(&self.timeline, self.patience, self.report()));
            }
            wait.pause();
        }
        Ok(())
    }

    /// Waits on the host for other devices' work: a queue of Metal can only wait for events of Metal.
    fn wait_for_others(&self, producer: &mut Producer, value: u64, commands: &[Command]) -> Result<(), DeviceError> {
        producer.in_flight.begin(&self.timeline);
        producer.in_flight.wait_for_all(&self.timeline, commands);
        producer.in_flight.emit_waits(value, |point| {
            // What this queue was given before runs before.
            if !Arc::ptr_eq(point.timeline(), &self.timeline) {
                point.wait(self.patience)?;
            }
            Ok(false)
        })
    }

    fn encode(&self, producer: &Producer, value: u64, runs: &[&[Command]]) -> Result<Vec<Sent>, DeviceError> {
        let mut all: Vec<Sent> = Vec::with_capacity(runs.len());
        for (at, run) in runs.iter().enumerate() {
            let after = producer.signalled + at as u64;
            let stamp = run.first().and_then(stamp_of).cloned();
            let (buffer, label) = self.command_buffer(run, after)?;
            let submission = (at + 1 == runs.len()).then_some(value);
            all.push(Sent { buffer, event_value: after + 1, submission, label, stamp });
        }
        Ok(all)
    }

    /// One command buffer, to run when the event has the value `after`.
    fn command_buffer(&self, run: &[Command], after: u64) -> Result<(Owned<CommandBuffer>, String), DeviceError> {
        let buffer = self.queue.command_buffer().0.ok_or_else(|| self.cannot("make a command buffer".into()))?;
        let label = label(run);
        if let Some(text) = string(self.runtime, &label) {
            buffer.set_label(&text);
        }
        if after > 0 {
            buffer.wait(&self.event, after);
        }
        let mut open = Open::None;
        for command in run {
            let done = self.command(&buffer, &mut open, command);
            if done.is_err() {
                open.end();
                return Err(done.err().unwrap_or_else(|| self.cannot("encode a command".into())));
            }
        }
        open.end();
        buffer.signal(&self.event, after + 1);
        Ok((buffer, label))
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

    fn program_of<'k>(&self, kernel: &'k Kernel) -> Result<&'k Program, DeviceError> {
        let program = kernel.program().downcast_ref::<Program>();
        program.ok_or_else(|| self.cannot(format!("run {}, which is no Metal kernel", kernel.name())))
    }

    fn buffer(&self, place: &Location) -> Result<Arc<Owned<Buffer>>, DeviceError> {
        let found = lock(&self.buffers).get(&place.memory.va()).cloned();
        found.ok_or_else(|| self.cannot(format!("use memory at {:#x}", place.memory.va())))
    }

    /// What can be wrong with a command; a launch above a pipeline's limit would be dropped silently.
    fn check(&self, command: &Command) -> Result<(), DeviceError> {
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

    pub fn cannot(&self, what: String) -> DeviceError {
        DeviceError::Unsupported { device: self.name.clone(), what }
    }
}

fn stamp_of(command: &Command) -> Option<&Stamp> {
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
fn label(run: &[Command]) -> String {
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

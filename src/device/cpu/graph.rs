//! A recorded list of the CPU device: encoded once, kernargs patched at each replay, one ring entry per replay.
//!
//! Layer: part of `device::cpu`, used by `engine`'s JIT. Addresses, variables and thread counts are stored in a
//! kernargs image; a replay patches the image and copies it to the kernargs ring, so several replays may be in flight.
//! A list that takes less time than waking a thread runs on the submitting thread if the queue is idle, directly from
//! the image: without ring, copy and signal.
//! Left out: waits inside a list. Hazards with other queues are found from the memories, before a replay starts.

use super::queue::{CpuQueue, EncodedList};
use crate::in_flight::Kept;
use crate::{Arg, Command, DeviceError, Location, Memory, Patch, Recorded, Stamp};
use doorbell_hcq::error::SubmitError;
use doorbell_hcq::packet::cpu::{CpuList, Packet};
use doorbell_hcq::signal::Point;
use std::fmt;
use std::sync::Arc;

/// Dwords of the TIMESTAMP packet at either end of the list; an unmeasured run skips both.
const STAMP_DWORDS: usize = 3;
/// One in this many runs on the submitting thread is measured again, since larger variables may have made the list
/// slower.
const MEASURE_EVERY: u32 = 64;

/// Position of a command's kernarg words.
#[derive(Clone, Copy, Debug)]
enum Slot {
    /// Thread count at `at`, then `args` arguments.
    Exec { at: usize, args: usize },
    /// Destination, source, length.
    Copy { at: usize },
}

pub(super) struct CpuGraph {
    queue: Arc<CpuQueue>,
    program: Arc<EncodedList>,
    inline_ns: u64,
    kernargs: Vec<u64>,
    /// The memory of each kernarg word that is an address.
    memories: Vec<Option<Memory>>,
    slots: Vec<Slot>,
    runs_unmeasured: u32,
}

impl fmt::Debug for CpuGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuGraph({} commands, {} dwords)", self.slots.len(), self.program.words.len())
    }
}

impl CpuGraph {
    /// Encodes `commands`; `span` will hold the times of the last measured run.
    pub(super) fn new(
        queue: &Arc<CpuQueue>,
        commands: &[Command],
        span: Stamp,
        inline_ns: u64,
    ) -> Result<Self, DeviceError> {
        let mut list = CpuList::default();
        let mut kept = Vec::new();
        let (mut kernargs, mut memories, mut slots) = (Vec::new(), Vec::new(), Vec::new());
        list.timestamp(&span.start)?;
        for command in commands {
            queue.check(command)?;
            let at = kernargs.len();
            let stamp = match command {
                Command::Exec { kernel, args, threads, stamp, .. } => {
                    kernargs.push(u64::from(*threads));
                    kernargs.extend(args.iter().map(Arg::bits));
                    memories.push(None);
                    memories.extend(args.iter().map(memory_of));
                    slots.push(Slot::Exec { at, args: args.len() });
                    kept.push(Kept::Kernel(kernel.clone()));
                    stamp
                }
                Command::Copy { dst, src, len_bytes, stamp } => {
                    kernargs.extend([dst.va(), src.va(), *len_bytes]);
                    memories.extend([Some(dst.memory.clone()), Some(src.memory.clone()), None]);
                    slots.push(Slot::Copy { at });
                    stamp
                }
                Command::Wait(_) => {
                    return Err(DeviceError::Unsupported {
                        device: queue.tag.name().into(),
                        what: "record a wait".into(),
                    });
                }
            };
            emit(&mut list, command, at as u64 * 8, stamp.as_ref())?;
            kept.extend(stamp.clone().map(Kept::Stamp));
        }
        list.timestamp(&span.stop)?;
        let program = Arc::new(EncodedList::freeze(&list, kept, span)?);
        Ok(Self { queue: Arc::clone(queue), program, inline_ns, kernargs, memories, slots, runs_unmeasured: 0 })
    }

    fn patch(&mut self, patch: &Patch) -> Result<(), DeviceError> {
        match patch {
            Patch::Threads { command, threads } => match self.slots.get(*command) {
                Some(Slot::Exec { at, .. }) => {
                    self.kernargs[*at] = u64::from(*threads);
                    Ok(())
                }
                _ => Err(SubmitError::Patch { command: *command, arg: 0 }.into()),
            },
            Patch::Arg { command, arg, value } => {
                let no_such = || DeviceError::from(SubmitError::Patch { command: *command, arg: *arg });
                match self.slots.get(*command).copied() {
                    Some(Slot::Exec { at, args }) if *arg < args => {
                        if let Arg::Buffer(location) = value {
                            self.queue.check_range(location, 0, "kernel argument")?;
                        }
                        self.put(at + 1 + arg, value);
                        Ok(())
                    }
                    Some(Slot::Copy { at }) => self.patch_copy(at, *arg, value).ok_or_else(no_such)?,
                    _ => Err(no_such()),
                }
            }
        }
    }

    /// Patches an argument of a copy, and checks source and destination against the length, whichever changed. `None`:
    /// no such argument.
    fn patch_copy(&mut self, at: usize, arg: usize, value: &Arg) -> Option<Result<(), DeviceError>> {
        let check = |graph: &Self| match (arg, value) {
            (0, Arg::Buffer(location)) => {
                graph.queue.check_writable(location)?;
                graph.queue.check_range(location, graph.kernargs[at + 2], "copy destination")
            }
            (1, Arg::Buffer(location)) => graph.queue.check_range(location, graph.kernargs[at + 2], "copy source"),
            (_, Arg::Var(len)) => (0..2).try_for_each(|i| match &graph.memories[at + i] {
                Some(memory) => {
                    let location = Location { memory: memory.clone(), offset: graph.kernargs[at + i] - memory.va() };
                    graph.queue.check_range(&location, len.cast_unsigned(), "copy length")
                }
                None => Ok(()),
            }),
            _ => Ok(()),
        };
        if !matches!((arg, value), (0 | 1, Arg::Buffer(_)) | (2, Arg::Var(_))) {
            return None;
        }
        let checked = check(self);
        if checked.is_ok() {
            self.put(at + arg, value);
        }
        Some(checked)
    }

    /// Writes a kernarg word; the location was checked when the list was made (PANIC: `slots` index words of these
    /// vectors).
    fn put(&mut self, at: usize, value: &Arg) {
        self.kernargs[at] = value.bits();
        match value {
            Arg::Buffer(location) if self.memories[at].as_ref().is_some_and(|m| m.is_same(&location.memory)) => {}
            _ => self.memories[at] = memory_of(value),
        }
    }

    /// Runs the list on this thread, if it is short, the queue is idle and no other queue's work must be waited for.
    fn run_here(&mut self) -> bool {
        if self.inline_ns == 0 {
            return false;
        }
        let timeline = &self.queue.timeline;
        let last = self.program.span.stop.timestamp_ns();
        if last == 0 || self.program.span.elapsed_ns() > self.inline_ns {
            return false;
        }
        let mut waits = Vec::new();
        self.memories.iter().flatten().for_each(|m| m.uses().hazards(timeline, &mut waits));
        if !waits.is_empty() {
            return false;
        }
        let words = &self.program.words;
        let measured = self.runs_unmeasured >= MEASURE_EVERY;
        let words = if measured { &words[..] } else { &words[STAMP_DWORDS..words.len() - STAMP_DWORDS] };
        let kernargs = self.kernargs.as_ptr().expose_provenance() as u64;
        let has_run = self.queue.consumer.run_if_idle(|consumer| consumer.run_words(words, kernargs));
        if has_run {
            self.runs_unmeasured = if measured { 0 } else { self.runs_unmeasured + 1 };
        }
        has_run
    }
}

fn memory_of(arg: &Arg) -> Option<Memory> {
    if let Arg::Buffer(location) = arg { Some(location.memory.clone()) } else { None }
}

/// Emits one command's packets; its kernargs are at `offset` bytes from the replay's base.
fn emit(list: &mut CpuList, command: &Command, offset: u64, stamp: Option<&Stamp>) -> Result<(), SubmitError> {
    if let Some(stamp) = stamp {
        list.timestamp(&stamp.start)?;
    }
    match command {
        Command::Exec { kernel, .. } => {
            list.push(Packet::Exec { entry: kernel.entry(), kernargs: offset })?;
        }
        Command::Copy { .. } => {
            list.push(Packet::CopyArgs { kernargs: offset })?;
        }
        Command::Wait(_) => {}
    }
    if let Some(stamp) = stamp {
        list.timestamp(&stamp.stop)?;
    }
    Ok(())
}

impl Recorded for CpuGraph {
    fn replay(&mut self, patches: &[Patch]) -> Result<Point, DeviceError> {
        patches.iter().try_for_each(|p| self.patch(p))?;
        let queue = Arc::clone(&self.queue);
        // Holding the producer's lock keeps a run on this thread in order with other submissions.
        let mut producer = queue.lock();
        if self.run_here() {
            return Ok(queue.timeline.point(queue.timeline.submitted()));
        }
        queue.submit_program(&mut producer, &self.program, &self.kernargs, &self.memories)
    }
}

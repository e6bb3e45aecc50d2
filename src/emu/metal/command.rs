//! Command buffers: what is encoded in them, their life from the first command to completion or error, and execution.

use crate::buffer::Buffer;
use crate::compile::Pipeline;
use crate::encode::Sel;
use crate::encoder::{BlitEncoder, ComputeEncoder};
use crate::event::Event;
use crate::foundation::{Own, Text, error};
use crate::machine::{Failure, FaultKind, Machine};
use crate::object::{self, Body, Class, Held, Id};
use crate::queue::Queue;
use crate::send::Methods;
use doorbell_emu_msl::{Binding, Fault, Launch};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const ERROR_DOMAIN: &str = "MTLCommandBufferErrorDomain";
/// Instructions of one launch before the watchdog ends it.
const WATCHDOG_STEPS: u64 = 1 << 36;

/// States of a command buffer.
const NOT_ENQUEUED: u64 = 0;
const COMMITTED: u64 = 2;
const SCHEDULED: u64 = 3;
const COMPLETED: u64 = 4;
const FAILED: u64 = 5;

/// What is bound to a slot.
#[derive(Clone)]
pub enum Bound {
    /// A buffer from an offset on.
    Buffer(Arc<Own>, u64),
    /// Bytes copied when they were set.
    Bytes(Arc<[u8]>),
}

/// A launch.
pub struct Dispatch {
    pub pipeline: Arc<Own>,
    pub bound: Vec<Option<Bound>>,
    pub threadgroup: Vec<u64>,
    pub groups: [u32; 3],
    pub threads: [u32; 3],
}

/// A command.
pub enum Command {
    Wait(Own, u64),
    Signal(Own, u64),
    Dispatch(Dispatch),
    Copy { from: Own, from_offset: u64, to: Own, to_offset: u64, len_bytes: u64 },
    Fill { to: Own, offset: u64, len_bytes: u64, value: u8 },
}

/// A command buffer.
pub struct CommandBuffer {
    queue: Own,
    pending: Arc<AtomicU64>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
pub struct State {
    status: u64,
    error: Option<Own>,
    label: String,
    /// The encoder that is open; no reference.
    pub open: Option<Id>,
    pub commands: Vec<Command>,
    /// Seconds of the host's clock.
    start: f64,
    end: f64,
}

impl Body for CommandBuffer {
    const CLASS: Class = Class::MTLCommandBuffer;

    fn end(&self, _: &Machine) {
        if self.lock().status < COMPLETED {
            self.pending.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl CommandBuffer {
    pub fn new(queue: Id, pending: Arc<AtomicU64>) -> Self {
        Self { queue: Own::retain(queue), pending, state: Mutex::default(), changed: Condvar::new() }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn complete(&self, status: u64, error: Option<Own>) {
        let mut state = self.lock();
        state.end = seconds();
        (state.status, state.error) = (status, error);
        let commands = std::mem::take(&mut state.commands);
        drop(state);
        drop(commands);
        self.pending.fetch_sub(1, Ordering::AcqRel);
        self.changed.notify_all();
    }
}

/// Seconds of the host's monotonic clock.
fn seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes the struct that it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

pub fn methods(all: &mut Methods) {
    let class = Class::MTLCommandBuffer;
    all.on(class, "computeCommandEncoder", compute as extern "C" fn(_, _) -> _);
    all.on(class, "blitCommandEncoder", blit as extern "C" fn(_, _) -> _);
    all.on(class, "encodeSignalEvent:value:", signal as extern "C" fn(_, _, _, _));
    all.on(class, "encodeWaitForEvent:value:", wait as extern "C" fn(_, _, _, _));
    all.on(class, "setLabel:", set_label as extern "C" fn(_, _, _));
    all.on(class, "commit", commit as extern "C" fn(_, _));
    all.on(class, "waitUntilCompleted", wait_until_completed as extern "C" fn(_, _));
    all.on(class, "status", status as extern "C" fn(_, _) -> _);
    all.on(class, "error", error_of as extern "C" fn(_, _) -> _);
    all.on(class, "GPUStartTime", start_time as extern "C" fn(_, _) -> _);
    all.on(class, "GPUEndTime", end_time as extern "C" fn(_, _) -> _);
}

/// A buffer that can take a command outside of an encoder.
fn open_for(this: Id, what: &str) -> Option<Held<CommandBuffer>> {
    let buffer = object::get::<CommandBuffer>(this)?;
    let state = buffer.lock();
    let (status, open) = (state.status, state.open);
    drop(state);
    let machine = buffer.machine();
    if status != NOT_ENQUEUED {
        machine.fault(FaultKind::AfterEnd, format!("{what} after the command buffer's commit"));
    } else if open.is_some() {
        machine.fault(FaultKind::OpenEncoder, format!("{what} while an encoder is open"));
    } else {
        return Some(buffer);
    }
    None
}

extern "C" fn compute(this: Id, _: Sel) -> Id {
    let Some(buffer) = open_for(this, "computeCommandEncoder") else { return Id::NIL };
    let encoder = object::create(buffer.machine(), ComputeEncoder::new(this));
    buffer.lock().open = Some(encoder);
    object::autorelease(encoder)
}

extern "C" fn blit(this: Id, _: Sel) -> Id {
    let Some(buffer) = open_for(this, "blitCommandEncoder") else { return Id::NIL };
    let encoder = object::create(buffer.machine(), BlitEncoder::new(this));
    buffer.lock().open = Some(encoder);
    object::autorelease(encoder)
}

extern "C" fn signal(this: Id, _: Sel, event: Id, value: u64) {
    let Some(buffer) = open_for(this, "encodeSignalEvent:") else { return };
    if object::argument::<Event>(buffer.machine(), "encodeSignalEvent:", event).is_some() {
        buffer.lock().commands.push(Command::Signal(Own::retain(event), value));
    }
}

extern "C" fn wait(this: Id, _: Sel, event: Id, value: u64) {
    let Some(buffer) = open_for(this, "encodeWaitForEvent:") else { return };
    if object::argument::<Event>(buffer.machine(), "encodeWaitForEvent:", event).is_some() {
        buffer.lock().commands.push(Command::Wait(Own::retain(event), value));
    }
}

extern "C" fn set_label(this: Id, _: Sel, label: Id) {
    let Some(buffer) = object::get::<CommandBuffer>(this) else { return };
    if let Some(text) = object::argument::<Text>(buffer.machine(), "setLabel:", label) {
        buffer.lock().label = text.get();
    }
}

extern "C" fn commit(this: Id, _: Sel) {
    let Some(buffer) = open_for(this, "commit") else { return };
    buffer.lock().status = COMMITTED;
    if let Some(queue) = object::get::<Queue>(buffer.queue.0) {
        queue.commit(this);
    }
}

extern "C" fn wait_until_completed(this: Id, _: Sel) {
    let Some(buffer) = object::get::<CommandBuffer>(this) else { return };
    let mut state = buffer.lock();
    while (COMMITTED..COMPLETED).contains(&state.status) {
        state = buffer.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
}

fn state<R>(this: Id, none: R, f: impl FnOnce(&State) -> R) -> R {
    object::get::<CommandBuffer>(this).map_or(none, |b| f(&b.lock()))
}

extern "C" fn status(this: Id, _: Sel) -> u64 {
    state(this, 0, |s| s.status)
}

extern "C" fn error_of(this: Id, _: Sel) -> Id {
    state(this, Id::NIL, |s| s.error.as_ref().map_or(Id::NIL, |e| e.0))
}

/// Zero before completion.
extern "C" fn start_time(this: Id, _: Sel) -> f64 {
    state(this, 0.0, |s| if s.status >= COMPLETED { s.start } else { 0.0 })
}

extern "C" fn end_time(this: Id, _: Sel) -> f64 {
    state(this, 0.0, |s| if s.status >= COMPLETED { s.end } else { 0.0 })
}

/// Why a command buffer ended before its last command.
struct Broken(Failure, String);

/// Runs a committed buffer on its queue's thread.
pub fn execute(machine: &Arc<Machine>, id: Id) {
    let Some(buffer) = object::get::<CommandBuffer>(id) else { return };
    let number = machine.committed.fetch_add(1, Ordering::AcqRel);
    let commands = {
        let mut state = buffer.lock();
        (state.status, state.start) = (SCHEDULED, seconds());
        std::mem::take(&mut state.commands)
    };
    let failure = machine.knobs().fail.filter(|(n, _)| *n == number);
    let result = match failure {
        Some((_, Failure::Hang)) => hang(machine),
        Some((_, failure)) => Err(Broken(failure, String::new())),
        None => commands.iter().try_for_each(|command| run(machine, &buffer, command)),
    };
    let why = result.err().map(|Broken(failure, more)| {
        let (code, text) = failure.code_and_text();
        Own(error(machine, ERROR_DOMAIN, code, format!("{text}{more}")))
    });
    buffer.complete(if why.is_some() { FAILED } else { COMPLETED }, why);
}

/// Does not return while the knob says so.
fn hang(machine: &Machine) -> Result<(), Broken> {
    while machine.knobs().fail.is_some() {
        std::thread::sleep(Duration::from_millis(2));
    }
    Err(Broken(Failure::Hang, String::new()))
}

fn run(machine: &Machine, buffer: &CommandBuffer, command: &Command) -> Result<(), Broken> {
    match command {
        Command::Wait(event, value) => {
            if let Some(event) = object::get::<Event>(event.0) {
                while !event.wait(*value, Duration::from_secs(1)) {}
            }
            // The GPU begins when it need not wait any more.
            buffer.lock().start = seconds();
        }
        Command::Signal(event, value) => {
            if let Some(event) = object::get::<Event>(event.0) {
                event.signal(*value);
            }
        }
        Command::Dispatch(dispatch) => {
            launch(machine, dispatch).map_err(|fault| Broken(Failure::PageFault, format!(": {fault}")))?;
        }
        Command::Copy { from, from_offset, to, to_offset, len_bytes } => {
            if let (Some(from), Some(to)) = (object::get::<Buffer>(from.0), object::get::<Buffer>(to.0)) {
                to.copy_from(*to_offset, &from, *from_offset, *len_bytes);
            }
        }
        Command::Fill { to, offset, len_bytes, value } => {
            if let Some(to) = object::get::<Buffer>(to.0) {
                to.fill(*offset, *len_bytes, *value);
            }
        }
    }
    Ok(())
}

fn launch(machine: &Machine, dispatch: &Dispatch) -> Result<(), Fault> {
    let Some(pipeline) = object::get::<Pipeline>(dispatch.pipeline.0) else { return Ok(()) };
    let held: Vec<Option<Held<Buffer>>> = dispatch
        .bound
        .iter()
        .map(|b| match b {
            Some(Bound::Buffer(own, _)) => object::get::<Buffer>(own.0),
            _ => None,
        })
        .collect();
    let bindings: Vec<Option<Binding<'_>>> = dispatch
        .bound
        .iter()
        .zip(&held)
        .map(|(bound, held)| match (bound, held) {
            (Some(Bound::Buffer(_, offset)), Some(buffer)) => {
                Some(Binding::Buffer { memory: &**buffer, offset: *offset })
            }
            (Some(Bound::Bytes(bytes)), _) => Some(Binding::Bytes(bytes)),
            _ => None,
        })
        .collect();
    let launch = Launch {
        threadgroup: &dispatch.threadgroup,
        host_threads: machine.config.host_threads,
        max_steps: WATCHDOG_STEPS,
        ..Launch::new(dispatch.groups, dispatch.threads, &bindings)
    };
    pipeline.kernel.run(&launch)
}

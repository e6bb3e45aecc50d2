//! Command buffers: what is encoded in them, their life from the first command to completion or error, and execution.

use crate::buffer::Buffer;
use crate::compile::Pipeline;
use crate::encode::Sel;
use crate::encoder::{BlitEncoder, ComputeEncoder};
use crate::event::Event;
use crate::foundation::{Own, Text, error};
use crate::indirect::Execute;
use crate::ledger::Use;
use crate::machine::{Failure, FaultKind, Machine};
use crate::object::{self, Body, Class, Held, Id};
use crate::queue::Queue;
use crate::send::Methods;
use doorbell_emu_msl::{Binding, Fault, Launch};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

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
pub(crate) enum Bound {
    /// A buffer from an offset on.
    Buffer(Arc<Own>, u64),
    /// Bytes copied when they were set.
    Bytes(Arc<[u8]>),
}

/// A launch.
pub(crate) struct Dispatch {
    pub pipeline: Arc<Own>,
    pub bound: Vec<Option<Bound>>,
    pub threadgroup: Vec<u64>,
    pub groups: [u32; 3],
    pub threads: [u32; 3],
}

/// A command.
pub(crate) enum Command {
    Wait(Own, u64),
    Signal(Own, u64),
    Dispatch(Dispatch),
    Execute(Execute),
    Copy { from: Own, from_offset: u64, to: Own, to_offset: u64, len_bytes: u64 },
    Fill { to: Own, offset: u64, len_bytes: u64, value: u8 },
}

/// A command buffer.
pub(crate) struct CommandBuffer {
    queue: Own,
    pending: Arc<AtomicU64>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
pub(crate) struct State {
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
    pub(crate) fn new(queue: Id, pending: Arc<AtomicU64>) -> Self {
        Self { queue: Own::retain(queue), pending, state: Mutex::default(), changed: Condvar::new() }
    }

    /// The GPU that runs it.
    pub(crate) fn gpu(&self) -> u32 {
        object::get::<Queue>(self.queue.0).map_or(0, |queue| queue.gpu)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
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

pub(crate) fn methods(all: &mut Methods) {
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
    let uses = {
        let mut state = buffer.lock();
        state.status = COMMITTED;
        state.commands.iter().for_each(|command| {
            if let Command::Execute(execute) = command {
                execute.begin();
            }
        });
        uses(&state.commands)
    };
    if let Some(queue) = object::get::<Queue>(buffer.queue.0) {
        queue.commit(buffer.machine(), Run::new(buffer.machine(), (buffer.queue.0, this), uses));
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

/// What a step of a command buffer has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// There are more commands.
    Going,
    /// That was the last one, or it failed.
    Ended,
}

/// A committed command buffer on its queue.
pub(crate) struct Run {
    buffer: Own,
    number: u64,
    /// Command buffers that it runs after because of tracked resources.
    before: Vec<u64>,
    /// Taken from the buffer at the first step.
    commands: Option<Vec<Command>>,
    next: usize,
    why: Option<Broken>,
}

impl Run {
    /// A command buffer that was just committed.
    fn new(machine: &Machine, (queue, id): (Id, Id), uses: Vec<Use>) -> Self {
        let (number, before) = machine.ledger.commit(queue, uses);
        machine.committed.fetch_add(1, Ordering::AcqRel);
        Self { buffer: Own::retain(id), number, before, commands: None, next: 0, why: None }
    }

    /// Runs the next command, or all until one that waits; `None` where it waits already.
    pub(crate) fn step(&mut self, machine: &Machine, is_whole: bool) -> Option<Step> {
        if self.before.iter().any(|other| !machine.ledger.is_done(*other)) {
            return None;
        }
        self.before.drain(..).for_each(|other| machine.ledger.order(self.number, other));
        let buffer = object::get::<CommandBuffer>(self.buffer.0)?;
        let commands = self.commands.get_or_insert_with(|| {
            let mut state = buffer.lock();
            (state.status, state.start) = (SCHEDULED, seconds());
            std::mem::take(&mut state.commands)
        });
        match machine.failure_of(self.number) {
            Some(Failure::Hang) => return None,
            Some(failure) => self.why = Some(Broken(failure, String::new())),
            None => {}
        }
        let mut is_moved = false;
        while self.why.is_none()
            && let Some(command) = commands.get(self.next)
        {
            if let Command::Wait(event, value) = command {
                let passed = object::get::<Event>(event.0).map(|event| event.passed(*value));
                match passed {
                    Some(None) if is_moved => return Some(Step::Going),
                    Some(None) => return None,
                    Some(Some(Some(by))) => machine.ledger.order(self.number, by),
                    Some(Some(None)) | None => {}
                }
                // The GPU begins when it need not wait any more.
                buffer.lock().start = seconds();
            } else {
                // Whoever sees its last signals may use its resources.
                let is_last = |rest: &[Command]| rest.iter().all(|c| matches!(c, Command::Signal(..)));
                if matches!(command, Command::Signal(..)) && is_last(&commands[self.next..]) {
                    machine.ledger.done(machine, self.number);
                }
                self.why = run(machine, self.number, command).err();
            }
            (self.next, is_moved) = (self.next + 1, true);
            if !is_whole && self.next < commands.len() && self.why.is_none() {
                return Some(Step::Going);
            }
        }
        Some(Step::Ended)
    }

    /// Completes it.
    pub(crate) fn end(self, machine: &Arc<Machine>) {
        let why = self.why.map(|Broken(failure, more)| {
            let (code, text) = failure.code_and_text();
            Own(error(machine, ERROR_DOMAIN, code, format!("{text}{more}")))
        });
        // Those that did not run.
        self.commands.iter().flatten().skip(self.next).for_each(|command| {
            if let Command::Execute(execute) = command {
                execute.end();
            }
        });
        // Those that come after may begin when its own resources are free: before the host learns of it.
        machine.ledger.done(machine, self.number);
        if let Some(buffer) = object::get::<CommandBuffer>(self.buffer.0) {
            buffer.complete(if why.is_some() { FAILED } else { COMPLETED }, why);
        }
        drop(self.commands);
    }
}

/// The resources of commands.
fn uses(commands: &[Command]) -> Vec<Use> {
    let mut all: Vec<Use> = Vec::new();
    let mut add = |id: Id| {
        if !all.iter().any(|used| used.resource == id)
            && let Some(buffer) = object::get::<Buffer>(id)
        {
            let is_tracked = buffer.is_tracked && !buffer.machine().config.all_untracked;
            all.push(Use { resource: id, is_tracked });
        }
    };
    for command in commands {
        match command {
            Command::Wait(..) | Command::Signal(..) => {}
            Command::Dispatch(dispatch) => dispatch.bound.iter().flatten().for_each(|bound| {
                if let Bound::Buffer(own, _) = bound {
                    add(own.0);
                }
            }),
            Command::Execute(execute) => execute.resident.iter().for_each(|own| add(own.0)),
            Command::Copy { from, to, .. } => [from, to].into_iter().for_each(|own| add(own.0)),
            Command::Fill { to, .. } => add(to.0),
        }
    }
    all
}

fn run(machine: &Machine, number: u64, command: &Command) -> Result<(), Broken> {
    match command {
        Command::Wait(..) => {}
        Command::Signal(event, value) => {
            if let Some(event) = object::get::<Event>(event.0) {
                event.signal(machine, *value, Some(number));
            }
        }
        Command::Dispatch(dispatch) => {
            launch(machine, dispatch).map_err(|fault| Broken(Failure::PageFault, format!(": {fault}")))?;
        }
        Command::Execute(execute) => {
            let dispatches = execute.dispatches(machine);
            let all = dispatches.map_err(|why| Broken(Failure::PageFault, format!(": {why}")));
            let launched = all.and_then(|all| {
                let fault = |fault| Broken(Failure::PageFault, format!(": {fault}"));
                all.iter().try_for_each(|dispatch| launch(machine, dispatch).map_err(fault))
            });
            execute.end();
            launched?;
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

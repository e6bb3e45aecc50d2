//! The tap that traces messages, and with them the memory that host and GPU share.
//!
//! A message without a result is reported before it is sent, any other when it has been answered: so what one thread
//! makes stands before what another thread sees of it. A trace that records reads, before a command buffer's commit,
//! the buffers that it binds and no other command buffer in flight does: what the host has written. When the command
//! buffer is seen to be done (by its event, or its status), they are read again: what the GPU has computed. Left out:
//! memory without contents for the host; buffers that a program changes while the GPU uses them.

use super::event::MessageEvent;
use super::runs::runs;
use super::{Clock, Event, Sink, What};
use crate::abi::{Message, Value};
use crate::port::objc::{Passed, Send, Tap};
use crate::port::{CpuPtr, DeviceView, monotonic_ns};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A command buffer is completed, or failed, from this status on.
const COMPLETED: u64 = 4;

/// Traces messages into a sink.
pub struct MessageTrace(Mutex<State>);

struct State {
    sink: Box<dyn Sink>,
    clock: Clock,
    shared: Option<Shared>,
}

impl fmt::Debug for MessageTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MessageTrace")
    }
}

impl MessageTrace {
    /// Messages only.
    #[must_use]
    pub fn new(sink: Box<dyn Sink>) -> Self {
        Self(Mutex::new(State { sink, clock: Clock::default(), shared: None }))
    }

    /// Messages and memory, so that the run can be replayed.
    #[must_use]
    pub fn recording(sink: Box<dyn Sink>) -> Self {
        Self(Mutex::new(State { sink, clock: Clock::default(), shared: Some(Shared::default()) }))
    }

    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Selectors without a result: they are reported before they are sent.
fn is_void(selector: &str) -> bool {
    let prefixes = ["set", "encode", "dispatch", "copyFrom", "fill", "use", "execute", "concurrentDispatch", "reset"];
    let whole = ["release", "commit", "endEncoding", "waitUntilCompleted", "objc_autoreleasePoolPop"];
    whole.contains(&selector) || prefixes.iter().any(|prefix| selector.starts_with(prefix))
}

impl Tap for MessageTrace {
    fn pass(&self, message: &mut Message, send: &mut Send<'_>) -> Passed {
        let start = monotonic_ns();
        // What is read of memory keeps buffers alive: it is let go of outside the lock, since the last one to do so
        // sends a message.
        let mut held = Vec::new();
        if is_void(&message.selector) {
            self.with(|state| state.before(message, start, &mut held));
            drop(held);
            return Passed::sent(send(message));
        }
        let result = send(message);
        self.with(|state| state.after(message, &result, start, &mut held));
        drop(held);
        Passed::sent(result)
    }

    fn shares(&self, buffer: u64, memory: &Weak<DeviceView>) {
        self.with(|state| {
            if let Some(shared) = &mut state.shared {
                shared.buffers.insert(buffer, Buffer { memory: Weak::clone(memory), known: None });
            }
        });
    }

    fn frees(&self, buffer: u64) {
        self.with(|state| state.shared.as_mut().and_then(|shared| shared.buffers.remove(&buffer)));
    }
}

/// Memory that is read keeps its buffer alive until then.
type HeldMemory = Vec<Arc<DeviceView>>;

impl State {
    fn report(&mut self, start: u64, what: What) {
        let moment = self.clock.moment(start);
        self.sink.event(&Event { moment, what });
    }

    fn before(&mut self, message: &Message, start: u64, held: &mut HeldMemory) {
        let written = self.shared.as_mut().map(|shared| shared.before(message, held)).unwrap_or_default();
        for (at, bytes) in written {
            self.report(start, What::Memory { at, bytes });
        }
        let event = MessageEvent { message: message.clone(), result: Value::Nothing };
        self.report(start, What::Message(Box::new(event)));
    }

    fn after(&mut self, message: &Message, result: &Value, start: u64, held: &mut HeldMemory) {
        let event = MessageEvent { message: message.clone(), result: result.clone() };
        self.report(start, What::Message(Box::new(event)));
        let computed = self.shared.as_mut().map(|shared| shared.after(message, result, held)).unwrap_or_default();
        for (at, bytes) in computed {
            self.report(monotonic_ns(), What::Computed { at, bytes });
        }
    }
}

/// A buffer's memory, and its bytes as they were last read.
struct Buffer {
    memory: Weak<DeviceView>,
    known: Option<Vec<u8>>,
}

impl Buffer {
    /// What has changed.
    fn changes(&mut self, held: &mut HeldMemory) -> Vec<(CpuPtr, Vec<u8>)> {
        let Some(memory) = self.memory.upgrade() else { return Vec::new() };
        let mut now = vec![0; usize::try_from(memory.len_bytes()).unwrap_or(0)];
        let base = memory.base();
        let is_read = memory.copy_to_slice(0, &mut now).is_ok();
        held.push(memory);
        let found = match &self.known {
            _ if !is_read => return Vec::new(),
            Some(old) => runs(old, &now).map(|(a, b)| (base.offset(a as u64), now[a..b].to_vec())).collect(),
            None => vec![(base, now.clone())],
        };
        self.known = Some(now);
        found
    }
}

/// What is known of a command buffer that is not done.
#[derive(Default)]
struct Work {
    buffers: BTreeSet<u64>,
    /// Event and value of its last signal.
    signal: Option<(u64, u64)>,
    is_committed: bool,
}

#[derive(Default)]
struct Shared {
    buffers: BTreeMap<u64, Buffer>,
    /// Encoder → command buffer.
    encoders: HashMap<u64, u64>,
    work: BTreeMap<u64, Work>,
}

impl Shared {
    /// Before a message that has no result; what the host has written to what is about to be used.
    fn before(&mut self, message: &Message, held: &mut HeldMemory) -> Vec<(CpuPtr, Vec<u8>)> {
        let Message { receiver, selector, arguments, .. } = message;
        if let Some(work) = self.encoders.get(receiver).and_then(|buffer| self.work.get_mut(buffer)) {
            work.buffers.extend(arguments.iter().filter_map(Value::object).filter(|id| self.buffers.contains_key(id)));
            if selector == "endEncoding" {
                self.encoders.remove(receiver);
            }
            return Vec::new();
        }
        match (&**selector, &arguments[..]) {
            ("encodeSignalEvent:value:", [Value::Object(event), Value::Unsigned(value)]) => {
                self.work.entry(*receiver).or_default().signal = Some((*event, *value));
                Vec::new()
            }
            ("commit", _) => self.commit(*receiver, held),
            _ => Vec::new(),
        }
    }

    fn commit(&mut self, id: u64, held: &mut HeldMemory) -> Vec<(CpuPtr, Vec<u8>)> {
        let idle = self.idle_of(id);
        if let Some(work) = self.work.get_mut(&id) {
            work.is_committed = true;
        }
        self.changes(&idle, held)
    }

    /// The buffers of one command buffer that no committed one uses.
    fn idle_of(&self, id: u64) -> Vec<u64> {
        let Some(work) = self.work.get(&id) else { return Vec::new() };
        let in_flight = |buffer: &u64| {
            let others = self.work.iter().filter(|(other, work)| **other != id && work.is_committed);
            others.into_iter().any(|(_, work)| work.buffers.contains(buffer))
        };
        work.buffers.iter().copied().filter(|buffer| !in_flight(buffer)).collect()
    }

    fn changes(&mut self, which: &[u64], held: &mut HeldMemory) -> Vec<(CpuPtr, Vec<u8>)> {
        let mut found = Vec::new();
        for id in which {
            found.extend(self.buffers.get_mut(id).map(|buffer| buffer.changes(held)).unwrap_or_default());
        }
        found
    }

    /// After a message that was answered; what the GPU is now known to have computed.
    fn after(&mut self, message: &Message, result: &Value, held: &mut HeldMemory) -> Vec<(CpuPtr, Vec<u8>)> {
        let Message { receiver, selector, arguments, .. } = message;
        match (&**selector, result, &arguments[..]) {
            ("computeCommandEncoder" | "blitCommandEncoder", Value::Object(encoder), _) => {
                self.work.entry(*receiver).or_default();
                self.encoders.insert(*encoder, *receiver);
                Vec::new()
            }
            ("signaledValue", Value::Unsigned(reached), _) => self.reached(*receiver, *reached, held),
            ("waitUntilSignaledValue:timeoutMS:", Value::Byte(1), [Value::Unsigned(reached), _]) => {
                self.reached(*receiver, *reached, held)
            }
            ("status", Value::Unsigned(status), _) if *status >= COMPLETED => self.done(&[*receiver], held),
            _ => Vec::new(),
        }
    }

    fn reached(&mut self, event: u64, value: u64, held: &mut HeldMemory) -> Vec<(CpuPtr, Vec<u8>)> {
        let is_done =
            |work: &Work| work.is_committed && work.signal.is_some_and(|(of, wanted)| of == event && wanted <= value);
        let done: Vec<u64> = self.work.iter().filter(|(_, work)| is_done(work)).map(|(id, _)| *id).collect();
        self.done(&done, held)
    }

    fn done(&mut self, all: &[u64], held: &mut HeldMemory) -> Vec<(CpuPtr, Vec<u8>)> {
        let mut found = Vec::new();
        for id in all {
            let idle = self.idle_of(*id);
            if self.work.remove(id).is_some_and(|work| work.is_committed) {
                found.extend(self.changes(&idle, held));
            }
        }
        found
    }
}

//! Replays a recording of messages against a framework: the stand-in, or a Mac's.
//!
//! Source: what `ioctl::trace::MessageTrace` records. The messages are sent in their recorded order on one thread, with
//! the new run's objects and memory. Pools are not replayed as such: what a message lends is kept until the recorded
//! pool of the recorded thread ends. Before an answer that shows that work was done, the replay waits for that work;
//! before memory is written, for all command buffers. Compared are answers, and what the GPU computed. Left out: times,
//! and waits that ended without their event.

use super::messages::{self, ROWS, Row, play};
use super::ns::Keep;
use super::objc::{Id, Objc, Runtime};
use doorbell_hcq::memory::View;
use doorbell_ioctl::abi::{Message, Value};
use doorbell_ioctl::replay::{Difference, ReplayOptions, Report};
use doorbell_ioctl::trace::{Event, MessageEvent, What};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// Status of a command buffer from which on it is done.
const COMPLETED: u64 = 4;
/// Answers that are another thing each time.
const VARYING: &[&str] = &["GPUStartTime", "GPUEndTime", "currentAllocatedSize", "registryID", "retain"];
/// The class of objects whose class the list does not tell.
const ANY: &str = "NSObject";
/// A page of Apple's chips.
const PAGE: u64 = 16 << 10;
// TIMEOUT: how often what is waited for is looked at.
const PAUSE: Duration = Duration::from_micros(100);

/// The newest family of Apple's GPUs that a recorded device answered to.
#[must_use]
pub fn family_of(events: &[Event]) -> Option<u32> {
    let family = |event: &Event| {
        let What::Message(event) = &event.what else { return None };
        let MessageEvent { message, result: Value::Byte(1) } = &**event else { return None };
        let family = message.arguments.first().filter(|_| message.selector == "supportsFamily:")?.number()?;
        u32::try_from(family).ok()?.checked_sub(1000).filter(|n| *n < 1000)
    };
    events.iter().filter_map(family).max()
}

/// Plays `events` against `objc`. What comes out differently is a difference, not an end.
///
/// A recording is trusted as a program is: its kernels run.
#[must_use]
pub fn replay(events: &[Event], objc: Objc, options: &ReplayOptions) -> Report {
    let runtime = Runtime::of(objc);
    let mut player = Player {
        runtime,
        options,
        objects: HashMap::new(),
        memory: BTreeMap::new(),
        pools: HashMap::new(),
        committed: Vec::new(),
        report: Report::default(),
        at: 0,
    };
    for (at, event) in events.iter().enumerate() {
        player.at = at;
        match &event.what {
            What::Message(message) => player.message(event.moment.thread, message),
            What::Memory { at, bytes } => {
                player.settle();
                player.write(at.0, bytes);
            }
            What::Computed { at, bytes } => player.computed(at.0, bytes),
            _ => {}
        }
    }
    player.end()
}

/// An object of the new run.
#[derive(Clone, Copy, Debug)]
struct Object {
    now: Id,
    class: &'static str,
    /// References of the recorded program that it has not given back.
    references: u64,
    /// Bytes of a buffer.
    len_bytes: u64,
}

/// Where recorded memory is now.
struct Place {
    len_bytes: u64,
    now: *mut u8,
    /// The recorded buffer.
    buffer: u64,
    /// Memory of the program, in this run.
    _own: Option<View>,
}

struct Player<'a> {
    runtime: &'static Runtime,
    options: &'a ReplayOptions,
    /// By recorded number.
    objects: HashMap<u64, Object>,
    /// By recorded address.
    memory: BTreeMap<u64, Place>,
    /// The recorded pools of each recorded thread, with what they will release.
    pools: HashMap<u32, Vec<(u64, Vec<Id>)>>,
    /// Command buffers in flight, with a reference each.
    committed: Vec<Id>,
    report: Report,
    at: usize,
}

impl Player<'_> {
    fn differ(&mut self, call: &str, what: String) {
        self.report.differences.push(Difference { event: self.at, call: call.into(), what });
    }

    fn message(&mut self, thread: u32, event: &MessageEvent) {
        let MessageEvent { message, result } = event;
        self.report.calls += 1;
        match (&*message.class, &*message.selector) {
            ("", "objc_autoreleasePoolPush") => {
                self.pools.entry(thread).or_default().push((result.number().unwrap_or(0), Vec::new()));
            }
            ("", "objc_autoreleasePoolPop") => {
                let number = message.arguments.first().and_then(Value::number).unwrap_or(0);
                let pools = self.pools.entry(thread).or_default();
                let at = pools.iter().position(|(pool, _)| *pool == number).unwrap_or(pools.len());
                let ended: Vec<Id> = pools.drain(at..).flat_map(|(_, all)| all).collect();
                ended.into_iter().for_each(|id| self.release(id));
            }
            ("", name) => self.function(name, result),
            (_, "retain" | "release") => self.count(message),
            _ => self.send(thread, event),
        }
    }

    fn function(&mut self, name: &str, then: &Value) {
        let (now, class) = match name {
            "MTLCreateSystemDefaultDevice" => (self.runtime.system_default_device(), "MTLDevice"),
            "MTLCopyAllDevices" => (self.runtime.all_devices(), "NSArray"),
            _ => return self.differ(name, "no such function".into()),
        };
        self.learn(then.object().unwrap_or(0), now, class, 1);
        self.compare(name, then, &Value::Object(now.number()));
    }

    fn learn(&mut self, recorded: u64, now: Id, class: &'static str, references: u64) {
        if recorded == 0 || now.is_nil() {
            return;
        }
        // The same object again: a device is one, and what is lent may be lent twice.
        let known = self.objects.entry(recorded).or_insert(Object { now, class, references: 0, len_bytes: 0 });
        if known.references == 0 {
            (known.now, known.class) = (now, class);
        }
        known.references += references;
    }

    /// Counts a reference as the recorded program does.
    fn count(&mut self, message: &Message) {
        let Some(object) = self.objects.get_mut(&message.receiver) else {
            return self.differ(&message.selector, format!("{:#x} is no object of the recording", message.receiver));
        };
        let now = object.now;
        if message.selector == "retain" {
            object.references += 1;
            // SAFETY: the object is alive: this run has as many references as the recorded one.
            unsafe { messages::retain(self.runtime, now) };
            return;
        }
        if object.references == 0 {
            return self.differ("release", format!("{:#x} has no reference of the program", message.receiver));
        }
        object.references -= 1;
        if object.references == 0 {
            self.memory.retain(|_, place| place.buffer != message.receiver);
        }
        self.release(now);
    }

    fn release(&self, id: Id) {
        // SAFETY: the reference is the player's or the recorded program's, and is counted.
        unsafe { messages::release(self.runtime, id) };
    }

    fn send(&mut self, thread: u32, event: &MessageEvent) {
        let MessageEvent { message, result: then } = event;
        let is_row = |row: &&Row| (row.class, row.of_class, row.selector) == key(message);
        let Some(row) = ROWS.iter().find(is_row) else {
            return self.differ(&message.selector, format!("{message} is not in the list of messages"));
        };
        let waits = message.selector == "waitUntilSignaledValue:timeoutMS:";
        if waits && *then == Value::Byte(0) {
            return;
        }
        let mut now = match self.translated(message, row) {
            Ok(now) => now,
            Err(what) => return self.differ(&message.selector, what),
        };
        if waits && let Some(timeout) = now.arguments.last_mut() {
            *timeout = Value::Unsigned(u64::try_from(self.options.queue_timeout.as_millis()).unwrap_or(u64::MAX));
        }
        self.wait_for(&now, then);
        if message.selector == "commit" {
            // SAFETY: the command buffer is alive, as the recorded program's was.
            self.committed.push(unsafe { messages::retain(self.runtime, Id::of_number(now.receiver)) });
            self.report.doorbells += 1;
        }
        let answer = self.answer(thread, event, row, &now);
        match answer {
            Some(value) => {
                self.learn_memory(message, then, &value);
                self.compare(&message.selector, then, &value);
            }
            None => self.differ(&message.selector, format!("{message} has other types now")),
        }
    }

    /// The message with this run's objects and memory.
    fn translated(&mut self, message: &Message, row: &Row) -> Result<Message, String> {
        let mut now = message.clone();
        now.receiver = match message.of_class {
            true => self.class(row.class).number(),
            false => self.object(message.receiver, row.class)?.number(),
        };
        let in_place = message.selector.starts_with("newBufferWithBytesNoCopy:");
        for (at, argument) in now.arguments.iter_mut().enumerate() {
            let class = row.argument_classes.get(at).copied().unwrap_or_default();
            match argument {
                Value::Object(id) if *id != 0 => *id = self.object(*id, class)?.number(),
                Value::Pointer(from) if *from != 0 => {
                    let len_bytes = message.arguments.get(at + 1).and_then(Value::number).unwrap_or(0);
                    if !in_place {
                        return Err(format!("memory at {from:#x} is not recorded"));
                    }
                    let own = View::anonymous(len_bytes, PAGE).map_err(|e| e.to_string())?;
                    let place = Place { len_bytes, now: own.base().as_ptr(), buffer: 0, _own: Some(own) };
                    let recorded = std::mem::replace(from, place.now.expose_provenance() as u64);
                    self.memory.insert(recorded, place);
                }
                _ => {}
            }
        }
        Ok(now)
    }

    fn class(&self, name: &str) -> Id {
        let name = std::ffi::CString::new(name).unwrap_or_default();
        // SAFETY: the name is a C string.
        unsafe { (self.runtime.objc.get_class)(name.as_ptr()) }
    }

    /// An object that was recorded as one of a class.
    fn object(&self, recorded: u64, class: &str) -> Result<Id, String> {
        match self.objects.get(&recorded) {
            Some(object) if [object.class, class].contains(&ANY) || object.class == class => Ok(object.now),
            Some(object) => Err(format!("{recorded:#x} is a {}, not a {class}", object.class)),
            None => Err(format!("{recorded:#x} is no object of the recording")),
        }
    }

    /// Sends a message, and keeps what it lends for the recorded pool.
    fn answer(&mut self, thread: u32, event: &MessageEvent, row: &Row, now: &Message) -> Option<Value> {
        let runtime = self.runtime;
        runtime.pool(|| {
            let mut keep = Keep::new(runtime);
            // SAFETY: receiver and arguments are objects of this run, of the classes of the list, and alive as long as
            // the recorded ones were.
            let value = unsafe { play(Id::of_number(now.receiver), now, &mut keep) }?;
            let places = event.message.arguments.iter().filter(|a| matches!(a, Value::Error(_)));
            for (then, slot) in places.zip(&keep.slots) {
                self.lend(thread, then.object().unwrap_or(0), **slot, "NSError");
                self.compare(&event.message.selector, then, &Value::Error(slot.number()));
            }
            if let Value::Object(id) = value {
                let (then, id) = (event.result.object().unwrap_or(0), Id::of_number(id));
                match row.ownership {
                    "+1" if then == 0 => self.release(id),
                    "+1" => self.learn(then, id, row.result_class, 1),
                    _ => self.lend(thread, then, id, row.result_class),
                }
            }
            Some(value)
        })
    }

    fn lend(&mut self, thread: u32, recorded: u64, now: Id, class: &'static str) {
        if now.is_nil() {
            return;
        }
        // SAFETY: what is lent is alive until the pool ends that is open now.
        let kept = unsafe { messages::retain(self.runtime, now) };
        match self.pools.entry(thread).or_default().last_mut() {
            Some((_, all)) => all.push(kept),
            // A recording that began in the middle of a pool.
            None => self.release(kept),
        }
        self.learn(recorded, now, class, 0);
    }

    /// Learns sizes and places of buffers.
    fn learn_memory(&mut self, message: &Message, then: &Value, now: &Value) {
        let length = match &*message.selector {
            "newBufferWithLength:options:" => message.arguments.first(),
            "newBufferWithBytesNoCopy:length:options:deallocator:" => message.arguments.get(1),
            "contents" => {
                let (Some(at), Some(now)) = (then.number(), now.number().filter(|n| *n != 0)) else { return };
                let len_bytes = self.objects.get(&message.receiver).map_or(0, |object| object.len_bytes);
                let now = std::ptr::with_exposed_provenance_mut(usize::try_from(now).unwrap_or(0));
                let buffer = message.receiver;
                match self.memory.get_mut(&at) {
                    // Memory of the program stays its own.
                    Some(place) if place._own.is_some() => place.buffer = buffer,
                    _ => drop(self.memory.insert(at, Place { len_bytes, now, buffer, _own: None })),
                }
                return;
            }
            _ => return,
        };
        if let (Some(length), Some(object)) =
            (length.and_then(Value::number), then.object().and_then(|id| self.objects.get_mut(&id)))
        {
            object.len_bytes = length;
        }
    }

    fn compare(&mut self, call: &str, then: &Value, now: &Value) {
        let is_same = match (call, then, now) {
            (call, _, _) if VARYING.contains(&call) => true,
            ("signaledValue", Value::Unsigned(then), Value::Unsigned(now)) => now >= then,
            // Before its end a command buffer's status depends on the moment.
            ("status", Value::Unsigned(then), Value::Unsigned(now)) => *then < COMPLETED || then == now,
            ("contents", then, now) => (then.number() == Some(0)) == (now.number() == Some(0)),
            (_, Value::Object(then) | Value::Error(then), Value::Object(now) | Value::Error(now)) => {
                (*then == 0) == (*now == 0)
            }
            (_, then, now) => then == now,
        };
        if !is_same {
            self.differ(call, format!("{then} then, {now} now"));
        }
    }

    /// Waits for the work that an answer shows to be done.
    fn wait_for(&mut self, now: &Message, then: &Value) {
        let wanted = match (&*now.selector, then) {
            ("signaledValue", Value::Unsigned(value)) => *value,
            ("status", Value::Unsigned(status)) if *status >= COMPLETED => COMPLETED,
            _ => return,
        };
        let answer = || match self.ask(now) {
            Some(Value::Unsigned(n)) => n >= wanted,
            _ => true,
        };
        if !self.in_time(answer) {
            self.report.timeouts += 1;
        }
    }

    /// Asks until it is so, or time is up.
    fn in_time(&self, mut is_so: impl FnMut() -> bool) -> bool {
        let deadline = Instant::now() + self.options.queue_timeout;
        while !is_so() {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
        true
    }

    /// The answer to a message without objects among its arguments.
    fn ask(&self, now: &Message) -> Option<Value> {
        let mut keep = Keep::new(self.runtime);
        // SAFETY: the receiver is an object of this run, of the list's class.
        self.runtime.pool(|| unsafe { play(Id::of_number(now.receiver), now, &mut keep) })
    }

    /// Waits until no command buffer is in flight.
    fn settle(&mut self) {
        for id in std::mem::take(&mut self.committed) {
            let (class, selector) = ("MTLCommandBuffer".into(), "status".into());
            let message = Message { class, of_class: false, receiver: id.number(), selector, arguments: Vec::new() };
            let is_done = || self.ask(&message).and_then(|v| v.number()).is_none_or(|status| status >= COMPLETED);
            if !self.in_time(is_done) {
                self.report.timeouts += 1;
            }
            self.release(id);
        }
    }

    /// The recorded range in this run.
    fn place(&self, at: u64, len: usize) -> Option<*mut u8> {
        let (start, place) = self.memory.range(..=at).next_back()?;
        let offset = at - start;
        let is_inside = offset.checked_add(len as u64).is_some_and(|end| end <= place.len_bytes);
        is_inside.then(|| place.now.wrapping_add(usize::try_from(offset).unwrap_or(0)))
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        let Some(to) = self.place(at, bytes.len()) else {
            return self.differ("memory", format!("{} bytes at {at:#x} are in no buffer", bytes.len()));
        };
        // SAFETY: the range is inside a buffer that this run has not released, and no command buffer is in flight.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Compares what was computed then with what is computed now, and goes on with the former.
    fn computed(&mut self, at: u64, bytes: &[u8]) {
        let Some(from) = self.place(at, bytes.len()) else {
            return self.differ("memory", format!("{} bytes at {at:#x} are in no buffer", bytes.len()));
        };
        // SAFETY: the range is inside a buffer that this run has not released, whose work is done.
        let now = unsafe { std::slice::from_raw_parts(from, bytes.len()) }.to_vec();
        if let Some(first) = bytes.iter().zip(&now).position(|(then, now)| then != now) {
            let count = bytes.iter().zip(&now).filter(|(then, now)| then != now).count();
            let (then, now) = (bytes[first], now[first]);
            let where_ = at + first as u64;
            self.differ(
                "computed",
                format!("{count} bytes differ, the first at {where_:#x}: {then:#x} then, {now:#x} now"),
            );
            self.write(at, bytes);
        }
    }

    /// Gives back what the recording did not.
    fn end(mut self) -> Report {
        self.settle();
        let unreleased = std::mem::take(&mut self.pools).into_values().flatten().flat_map(|(_, all)| all);
        unreleased.for_each(|id| self.release(id));
        let objects = std::mem::take(&mut self.objects);
        for object in objects.values() {
            (0..object.references).for_each(|_| self.release(object.now));
        }
        self.report
    }
}

fn key(message: &Message) -> (&str, bool, &str) {
    (&message.class, message.of_class, &message.selector)
}

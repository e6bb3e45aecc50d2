//! The device: what it is, and what it makes.

use crate::buffer::{Buffer, Options};
use crate::encode::{Block, Bool, Sel};
use crate::event::Event;
use crate::foundation::string;
use crate::machine::{FaultKind, Machine};
use crate::object::{self, Body, Class, Id};
use crate::queue::Queue;
use crate::send::Methods;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of threadgroup memory.
pub(crate) const THREADGROUP_BYTES: u64 = 32 << 10;

/// A GPU of its machine, by its number.
pub(crate) struct Device(pub u32);

impl Body for Device {
    const CLASS: Class = Class::MTLDevice;
}

/// A device with one reference, or nil.
pub(crate) fn create(machine: &Arc<Machine>, gpu: u32) -> Id {
    if machine.knobs().nil_device { Id::NIL } else { object::create(machine, Device(gpu)) }
}

/// The number of a device's GPU.
pub(crate) fn gpu_of(device: Id) -> u32 {
    object::get::<Device>(device).map_or(0, |device| device.0)
}

pub(crate) fn methods(all: &mut Methods) {
    let class = Class::MTLDevice;
    all.on(class, "name", name as extern "C" fn(_, _) -> _);
    all.on(class, "registryID", registry_id as extern "C" fn(_, _) -> _);
    all.on(class, "maxThreadgroupMemoryLength", threadgroup_bytes as extern "C" fn(_, _) -> _);
    all.on(class, "maxBufferLength", max_buffer as extern "C" fn(_, _) -> _);
    all.on(class, "recommendedMaxWorkingSetSize", working_set as extern "C" fn(_, _) -> _);
    all.on(class, "currentAllocatedSize", allocated as extern "C" fn(_, _) -> _);
    all.on(class, "hasUnifiedMemory", unified as extern "C" fn(_, _) -> _);
    all.on(class, "supportsFamily:", supports as extern "C" fn(_, _, _) -> _);
    all.on(class, "newCommandQueueWithMaxCommandBufferCount:", new_queue as extern "C" fn(_, _, _) -> _);
    all.on(class, "newBufferWithLength:options:", new_buffer as extern "C" fn(_, _, _, _) -> _);
    let in_place = new_buffer_in_place as extern "C" fn(_, _, _, _, _, _) -> _;
    all.on(class, "newBufferWithBytesNoCopy:length:options:deallocator:", in_place);
    all.on(class, "newSharedEvent", new_event as extern "C" fn(_, _) -> _);
}

fn of<R>(this: Id, none: R, f: impl FnOnce(&Arc<Machine>) -> R) -> R {
    object::get::<Device>(this).map_or(none, |d| f(d.machine()))
}

extern "C" fn name(this: Id, _: Sel) -> Id {
    of(this, Id::NIL, |m| object::autorelease(string(m, &m.config.name)))
}

extern "C" fn registry_id(this: Id, _: Sel) -> u64 {
    of(this, 0, |m| u64::from(m.config.family) + 1 + (u64::from(gpu_of(this)) << 8))
}

extern "C" fn threadgroup_bytes(_: Id, _: Sel) -> u64 {
    THREADGROUP_BYTES
}

extern "C" fn max_buffer(this: Id, _: Sel) -> u64 {
    of(this, 0, |m| m.config.max_buffer_bytes)
}

extern "C" fn working_set(this: Id, _: Sel) -> u64 {
    of(this, 0, |m| m.config.max_buffer_bytes * 2)
}

extern "C" fn allocated(this: Id, _: Sel) -> u64 {
    of(this, 0, |m| m.allocated.load(Ordering::Relaxed))
}

extern "C" fn unified(this: Id, _: Sel) -> Bool {
    of(this, Bool(0), |m| (m.config.family > 0).into())
}

/// Apple's families contain the older ones; a GPU of another make has Mac2.
extern "C" fn supports(this: Id, _: Sel, family: i64) -> Bool {
    let has = |m: &Arc<Machine>| match (i64::from(m.config.family), family) {
        (0, asked) => asked == 2002,
        (newest, asked @ 1001..=1999) => asked - 1000 <= newest,
        (newest, 5001) => newest >= 7,
        (_, asked) => asked == 2002 || (3001..=3003).contains(&asked),
    };
    of(this, Bool(0), |m| has(m).into())
}

extern "C" fn new_queue(this: Id, _: Sel, most: u64) -> Id {
    of(this, Id::NIL, |m| match m.knobs().nil_queue {
        true => Id::NIL,
        false => Queue::start(m, this, most).map_or(Id::NIL, |queue| object::create(m, queue)),
    })
}

/// What the options of a buffer mean; a fault where they are not modelled.
fn options(machine: &Machine, bits: u64) -> Option<Options> {
    let found = Options::of(bits);
    if found.is_none() {
        machine.fault(FaultKind::WrongArgument, format!("resource options {bits:#x}: managed or memoryless storage"));
    }
    found
}

extern "C" fn new_buffer(this: Id, _: Sel, len_bytes: u64, bits: u64) -> Id {
    of(this, Id::NIL, |m| {
        if m.knobs().nil_buffer || len_bytes > m.config.max_buffer_bytes {
            return Id::NIL;
        }
        let Some(options) = options(m, bits) else { return Id::NIL };
        let Some(buffer) = Buffer::new(len_bytes, options, gpu_of(this)) else { return Id::NIL };
        m.allocated.fetch_add(len_bytes, Ordering::Relaxed);
        object::create(m, buffer)
    })
}

/// Memory of the program: whole pages. What the deallocator would be called for stays the program's.
extern "C" fn new_buffer_in_place(this: Id, _: Sel, at: *mut u8, len_bytes: u64, bits: u64, deallocator: Block) -> Id {
    of(this, Id::NIL, |m| {
        if m.knobs().nil_buffer || len_bytes > m.config.max_buffer_bytes {
            return Id::NIL;
        }
        if deallocator.0 != 0 {
            m.fault(FaultKind::WrongArgument, "newBufferWithBytesNoCopy: with a deallocator, which is not modelled");
            return Id::NIL;
        }
        let Some(options) = options(m, bits) else { return Id::NIL };
        if options.is_private {
            m.fault(FaultKind::Private, "newBufferWithBytesNoCopy: of private storage");
            return Id::NIL;
        }
        let Some(buffer) = Buffer::in_place(at, len_bytes, options, gpu_of(this)) else {
            let text = format!("newBufferWithBytesNoCopy: {len_bytes} bytes at {at:p}: not whole pages of 16384 bytes");
            m.fault(FaultKind::Range, text);
            return Id::NIL;
        };
        object::create(m, buffer)
    })
}

extern "C" fn new_event(this: Id, _: Sel) -> Id {
    of(this, Id::NIL, |m| if m.knobs().nil_event { Id::NIL } else { object::create(m, Event::default()) })
}

//! Command queues: a thread each, which runs committed command buffers one after the other.

use crate::command::{self, CommandBuffer};
use crate::encode::Sel;
use crate::foundation::Own;
use crate::machine::{FaultKind, Machine};
use crate::object::{self, Body, Class, Id};
use crate::send::Methods;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// A queue.
pub struct Queue {
    committed: Mutex<Sender<Id>>,
    /// Command buffers that were made and are not completed.
    pub pending: Arc<AtomicU64>,
    most: u64,
    _device: Own,
}

impl Body for Queue {
    const CLASS: Class = Class::MTLCommandQueue;
}

impl Queue {
    /// Starts the queue's thread, which ends with the queue; `None` if there is none.
    pub fn start(machine: &Arc<Machine>, device: Id, most: u64) -> Option<Self> {
        let (committed, received) = channel::<Id>();
        let machine = Arc::clone(machine);
        let work = move || {
            let _entered = machine.enter();
            for buffer in received {
                command::execute(&machine, buffer);
                object::release(buffer);
            }
        };
        std::thread::Builder::new().name("software Metal".into()).spawn(work).ok()?;
        let pending = Arc::default();
        Some(Self { committed: Mutex::new(committed), pending, most, _device: Own::retain(device) })
    }

    /// Hands over a command buffer with a reference to it.
    pub fn commit(&self, buffer: Id) {
        let sender = self.committed.lock().unwrap_or_else(PoisonError::into_inner);
        if sender.send(object::retain(buffer)).is_err() {
            object::release(buffer);
        }
    }
}

pub fn methods(all: &mut Methods) {
    all.on(Class::MTLCommandQueue, "commandBuffer", command_buffer as extern "C" fn(_, _) -> _);
}

extern "C" fn command_buffer(this: Id, _: Sel) -> Id {
    let Some(queue) = object::get::<Queue>(this) else { return Id::NIL };
    let machine = queue.machine();
    if queue.pending.fetch_add(1, Ordering::AcqRel) >= queue.most {
        let text = format!("commandBuffer would block: {} buffers of the queue are not completed", queue.most);
        machine.fault(FaultKind::QueueFull, text);
        queue.pending.fetch_sub(1, Ordering::AcqRel);
        return Id::NIL;
    }
    object::autorelease(object::create(machine, CommandBuffer::new(this, Arc::clone(&queue.pending))))
}

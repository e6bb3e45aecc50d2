//! Command queues: a thread each, which runs committed command buffers. They begin in the order of their commits, and
//! one that waits for an event, or for another that uses the same tracked resource, holds back nobody else.

use crate::command::{CommandBuffer, Run, Step};
use crate::encode::Sel;
use crate::foundation::Own;
use crate::machine::{FaultKind, Machine, Order};
use crate::object::{self, Body, Class, Id};
use crate::send::Methods;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

// TIMEOUT: how soon a queue without wake-ups looks at what the machine is set to do: hang, or hold work back.
const LOOK: Duration = Duration::from_millis(2);
/// As `LOOK`, where wake-ups tell of everything.
const IDLE: Duration = Duration::from_secs(1);

/// A queue.
pub(crate) struct Queue {
    inbox: Arc<Inbox>,
    /// Command buffers that were made and are not completed.
    pub pending: Arc<AtomicU64>,
    most: u64,
    /// The GPU whose queue it is.
    pub gpu: u32,
    _device: Own,
}

/// Where commits arrive.
#[derive(Default)]
struct Inbox {
    committed: Mutex<VecDeque<Run>>,
    is_ended: AtomicBool,
}

impl Body for Queue {
    const CLASS: Class = Class::MTLCommandQueue;

    fn end(&self, machine: &Machine) {
        self.inbox.is_ended.store(true, Ordering::Release);
        machine.pulse.beat();
    }
}

impl Queue {
    /// Starts the queue's thread, which ends with the queue; `None` if there is none.
    pub(crate) fn start(machine: &Arc<Machine>, device: Id, most: u64) -> Option<Self> {
        let inbox: Arc<Inbox> = Arc::default();
        let (machine, from) = (Arc::clone(machine), Arc::clone(&inbox));
        let work = move || {
            let _entered = machine.enter();
            run(&machine, &from);
        };
        std::thread::Builder::new().name("software Metal".into()).spawn(work).ok()?;
        let gpu = crate::device::gpu_of(device);
        Some(Self { inbox, pending: Arc::default(), most, gpu, _device: Own::retain(device) })
    }

    /// Hands over a command buffer.
    pub(crate) fn commit(&self, machine: &Machine, run: Run) {
        self.inbox.committed.lock().unwrap_or_else(PoisonError::into_inner).push_back(run);
        machine.pulse.beat();
    }
}

/// Runs what is committed until the queue ends.
fn run(machine: &Arc<Machine>, inbox: &Inbox) {
    let mut active: Vec<Run> = Vec::new();
    let mut draws = 0_u64;
    loop {
        let seen = machine.pulse.count();
        let is_ended = inbox.is_ended.load(Ordering::Acquire);
        active.extend(inbox.committed.lock().unwrap_or_else(PoisonError::into_inner).drain(..));
        if active.is_empty() && is_ended {
            return;
        }
        let (is_held, is_told) = (machine.is_held(), machine.is_told());
        let step = if is_held { None } else { step(machine, &mut active, &mut draws) };
        match step {
            Some((at, Step::Ended)) => {
                let ended = active.remove(at);
                ended.end(machine);
                machine.pulse.beat();
            }
            Some(_) => {}
            None => machine.pulse.wait(seen, if is_held || is_told { LOOK } else { IDLE }),
        }
    }
}

/// Takes a step of the first command buffer that can, in the machine's order; `None` if all wait.
fn step(machine: &Arc<Machine>, active: &mut [Run], draws: &mut u64) -> Option<(usize, Step)> {
    let mut order: Vec<usize> = (0..active.len()).collect();
    match machine.config.order {
        Order::Commit => {}
        Order::Newest => order.reverse(),
        Order::Seeded(seed) => {
            *draws += 1;
            let mut draw = seed ^ draws.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            for at in (1..order.len()).rev() {
                // SplitMix64 (Steele, Lea and Flood, 2014).
                draw = (draw ^ (draw >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(31).wrapping_add(seed);
                order.swap(at, (draw % (at as u64 + 1)) as usize);
            }
        }
    }
    let is_whole = machine.config.order == Order::Commit;
    order.into_iter().find_map(|at| active[at].step(machine, is_whole).map(|step| (at, step)))
}

pub(crate) fn methods(all: &mut Methods) {
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

//! What is noted of memory: when each buffer was there, and which items used it.

use super::{Recorder, State};
use crate::device::Memory;
use crate::engine::memory::attached;
use crate::explorer::Buffer;
use crate::schedule::{Schedule, ScheduleItem};
use crate::uop::UOp;

/// Users that are noted of one buffer at most.
const MOST_USERS: usize = 64;

impl Recorder {
    /// Notes the memories that a plan uses, and those that are gone since the last call.
    pub(crate) fn used(&self, plan: usize, s: &Schedule, now_ns: u64) {
        let mut state = self.state();
        state.let_go(now_ns);
        for (k, item) in s.items.iter().enumerate() {
            let buffers: Vec<&UOp> = match item {
                ScheduleItem::Kernel { bufs, .. } => bufs.iter().collect(),
                ScheduleItem::Copy { dst, src, .. } => vec![dst, src],
            };
            for b in buffers {
                let Some(place) = b.buffer_ref().and_then(|r| attached(r)) else { continue };
                let is_temporary = || s.temps.iter().any(|t| t.buffer == *b);
                let number = state.buffer(&place.memory, b, &is_temporary, now_ns);
                state.use_of(number, (plan, k));
            }
        }
    }
}

impl State {
    /// Notes the memories that are gone.
    pub(super) fn let_go(&mut self, now_ns: u64) {
        let mut k = 0;
        while k < self.alive.len() {
            if self.alive[k].0.is_gone() {
                let (watch, number) = self.alive.swap_remove(k);
                self.buffers.remove(&watch.number());
                self.record.buffers[number].died_ns = now_ns;
            } else {
                k += 1;
            }
        }
    }

    fn buffer(&mut self, memory: &Memory, of: &UOp, is_temporary: &dyn Fn() -> bool, now_ns: u64) -> usize {
        let watch = memory.watch();
        if let Some(known) = self.buffers.get(&watch.number()) {
            return *known;
        }
        let number = self.record.buffers.len();
        let len = of.buffer_ref().map_or(0, |r| r.len);
        self.record.buffers.push(Buffer {
            device: memory.device().name().into(),
            bytes: memory.len_bytes(),
            what: if is_temporary() { "temporaries".into() } else { format!("{len} x {}", of.dtype().scalar) },
            born_ns: now_ns,
            ..Buffer::default()
        });
        self.buffers.insert(watch.number(), number);
        self.alive.push((watch, number));
        number
    }

    fn use_of(&mut self, buffer: usize, (plan, item): (usize, usize)) {
        let users = &mut self.record.buffers[buffer].users;
        if users.len() < MOST_USERS && !users.contains(&(plan, item)) {
            users.push((plan, item));
        }
        let buffers = self.record.plans.get_mut(plan).and_then(|p| p.items.get_mut(item)).map(|i| &mut i.buffers);
        if let Some(buffers) = buffers.filter(|b| b.len() < MOST_USERS && !b.contains(&buffer)) {
            buffers.push(buffer);
        }
    }
}

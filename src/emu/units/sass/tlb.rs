//! Ranges of global memory that a host thread has accessed, so that an access need not query the page table.

use super::bus::{Access, Bus};
use doorbell_ioctl::port::DeviceView;

const WAYS: usize = 8;

fn set_of(access: Access) -> usize {
    match access {
        Access::Read | Access::Fetch => 0,
        Access::Write => 1,
        Access::Atomic => 2,
    }
}

struct Way {
    start: u64,
    view: DeviceView,
}

/// A few ranges for reading, for writing and for atomics, dropped when any mapping changes.
pub(super) struct Tlb {
    epoch: u64,
    ways: [Vec<Way>; 3],
    /// The range of each kind that matched last.
    recent: [usize; 3],
    next: usize,
}

impl Tlb {
    pub(crate) fn new(bus: &dyn Bus) -> Tlb {
        Tlb { epoch: bus.epoch(), ways: Default::default(), recent: [0; 3], next: 0 }
    }

    /// Drops everything when a mapping has changed; once an instruction.
    pub(crate) fn refresh(&mut self, bus: &dyn Bus) {
        let epoch = bus.epoch();
        if epoch != self.epoch {
            self.ways.iter_mut().for_each(Vec::clear);
            self.epoch = epoch;
        }
    }

    /// Memory that holds all of these bytes and permits the access, and their offset in it. None: call the bus, which
    /// names the fault.
    #[inline]
    pub(crate) fn range(
        &mut self,
        bus: &dyn Bus,
        va: u64,
        len_bytes: u64,
        access: Access,
    ) -> Option<(&DeviceView, u64)> {
        let set = set_of(access);
        let holds = |w: &Way| {
            va.checked_sub(w.start).is_some_and(|at| at <= w.view.len_bytes() && w.view.len_bytes() - at >= len_bytes)
        };
        let mut way = self.recent[set];
        if !self.ways[set].get(way).is_some_and(holds) {
            way = match self.ways[set].iter().position(holds) {
                Some(way) => way,
                None => self.fill(bus, va, access)?,
            };
            self.recent[set] = way;
        }
        let found = self.ways[set].get(way).filter(|w| holds(w))?;
        Some((&found.view, va - found.start))
    }

    #[cold]
    fn fill(&mut self, bus: &dyn Bus, va: u64, access: Access) -> Option<usize> {
        let (start, view) = bus.view(va, access)?;
        let ways = &mut self.ways[set_of(access)];
        if ways.len() < WAYS {
            ways.push(Way { start, view });
            return Some(ways.len() - 1);
        }
        self.next = (self.next + 1) % WAYS;
        ways[self.next] = Way { start, view };
        Some(self.next)
    }
}

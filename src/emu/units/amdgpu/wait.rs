//! Wait counters: which loads are in flight, and which registers they will write. In the emulator data arrives at once;
//! this shadow state checks whether a program was allowed to read it.
//!
//! Source: docs/amd-isa.md 5.6. Vector memory loads return in order among themselves, LDS operations too; scalar loads
//! do not, so only a count of zero tells anything about them.

use super::Chip;

/// Which counter an operation raises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counter {
    /// vmcnt, loadcnt.
    Load,
    /// vscnt, storecnt; on gfx942 stores raise the load counter.
    Store,
    /// The LDS part of lgkmcnt, dscnt.
    Lds,
    /// The scalar part of lgkmcnt, kmcnt.
    Scalar,
}

#[derive(Clone, Copy, Debug, Default)]
struct Order {
    issued: u32,
    done: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pending {
    load: u32,
    lds: u32,
}

pub(super) struct Waits {
    chip: Chip,
    load: Order,
    store: Order,
    lds: Order,
    scalars: u128,
    scalar_count: u32,
    vectors: Vec<Pending>,
}

impl Waits {
    pub(crate) fn new(chip: Chip, registers: usize) -> Self {
        Self {
            chip,
            load: Order::default(),
            store: Order::default(),
            lds: Order::default(),
            scalars: 0,
            scalar_count: 0,
            vectors: vec![Pending::default(); registers],
        }
    }

    /// An operation is issued.
    #[inline]
    pub(crate) fn issue(&mut self, counter: Counter) {
        match counter {
            Counter::Load => self.load.issued += 1,
            Counter::Store if self.chip == Chip::Gfx942 => self.load.issued += 1,
            Counter::Store => self.store.issued += 1,
            Counter::Lds => self.lds.issued += 1,
            Counter::Scalar => self.scalar_count += 1,
        }
    }

    /// The last operation of that kind will write this register.
    #[inline]
    pub(crate) fn claims(&mut self, place: usize, counter: Counter) {
        match counter {
            Counter::Lds => self.vectors[place].lds = self.lds.issued,
            _ => self.vectors[place].load = self.load.issued,
        }
    }

    pub(crate) fn claims_scalar(&mut self, n: u32) {
        self.scalars |= 1 << (n & 127);
    }

    #[inline]
    pub(crate) fn scalar_pending(&self, n: u32) -> bool {
        self.scalars >> (n & 127) & 1 == 1
    }

    pub(crate) fn scalar_counter(&self) -> &'static str {
        if self.chip == Chip::Gfx1201 { "kmcnt" } else { "lgkmcnt" }
    }

    /// The counter that a register still waits for.
    #[inline]
    pub(crate) fn vector_pending(&self, place: usize) -> Option<&'static str> {
        let p = self.vectors[place];
        if p.load <= self.load.done && p.lds <= self.lds.done {
            return None;
        }
        let split = self.chip == Chip::Gfx1201;
        if p.load > self.load.done {
            return Some(if split { "loadcnt" } else { "vmcnt" });
        }
        (p.lds > self.lds.done).then_some(if split { "dscnt" } else { "lgkmcnt" })
    }

    /// As `vector_pending`, without the operations that a new operation of `counter` queues after.
    #[inline]
    pub(crate) fn pending_elsewhere(&self, place: usize, counter: Counter) -> Option<&'static str> {
        let p = self.vectors[place];
        let own = if counter == Counter::Lds { p.load <= self.load.done } else { p.lds <= self.lds.done };
        if own { None } else { self.vector_pending(place) }
    }

    pub(crate) fn lds_issued(&self) -> u32 {
        self.lds.issued
    }

    pub(crate) fn lds_done(&self) -> u32 {
        self.lds.done
    }

    /// Stores issued; on gfx942 with the loads among them.
    pub(crate) fn stores_issued(&self) -> u32 {
        if self.chip == Chip::Gfx942 { self.load.issued } else { self.store.issued }
    }

    pub(crate) fn stores_done(&self) -> u32 {
        if self.chip == Chip::Gfx942 { self.load.done } else { self.store.done }
    }

    pub(crate) fn wait_load(&mut self, n: u32) {
        self.load.done = self.load.done.max(self.load.issued.saturating_sub(n));
    }

    pub(crate) fn wait_store(&mut self, n: u32) {
        self.store.done = self.store.done.max(self.store.issued.saturating_sub(n));
    }

    pub(crate) fn wait_lds(&mut self, n: u32) {
        self.lds.done = self.lds.done.max(self.lds.issued.saturating_sub(n));
    }

    pub(crate) fn wait_scalar(&mut self, n: u32) {
        if n == 0 {
            (self.scalars, self.scalar_count) = (0, 0);
        }
    }

    /// lgkmcnt: LDS and scalar loads in one counter; with a scalar load in flight only zero is certain.
    pub(crate) fn wait_lgkm(&mut self, n: u32) {
        if n == 0 {
            self.wait_scalar(0);
            self.wait_lds(0);
        } else if self.scalar_count == 0 {
            self.wait_lds(n);
        }
    }

    pub(crate) fn wait_all(&mut self) {
        self.wait_load(0);
        self.wait_store(0);
        self.wait_lgkm(0);
    }
}

//! When the caches were last invalidated, and when L2 was last written back: timestamps of a clock that advances with
//! every such action.
//!
//! A line read, or a store made, at a tick is covered by every later action. Packets act on the whole card; an
//! instruction invalidates the caches of its own compute unit, and writes back the L2 of its own XCC.

use std::sync::atomic::{AtomicU32, Ordering};

/// What a packet or an instruction does to the caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flush {
    /// Invalidates the vector caches of the compute units: L0, on gfx942 L1.
    pub vector: bool,
    /// Empties the caches of the shader arrays: GL1 of gfx11.
    pub array: bool,
    /// Empties the scalar caches.
    pub scalar: bool,
    /// Drops the lines of L2 whose memory others may change.
    pub l2: bool,
    /// Writes the dirty lines of L2 to memory.
    pub write_back: bool,
}

impl Flush {
    /// All of it.
    pub const ALL: Self = Self { vector: true, array: true, scalar: true, l2: true, write_back: true };
}

/// XCCs of a card at most.
pub(super) const XCCS: usize = 8;

/// The clock and its stamps; 0 is before everything.
pub(super) struct Stamps {
    clock: AtomicU32,
    vector: AtomicU32,
    array: AtomicU32,
    scalar: AtomicU32,
    l2: AtomicU32,
    back: [AtomicU32; XCCS],
}

impl Default for Stamps {
    fn default() -> Self {
        let zero = || AtomicU32::new(0);
        Self {
            clock: AtomicU32::new(1),
            vector: zero(),
            array: zero(),
            scalar: zero(),
            l2: zero(),
            back: Default::default(),
        }
    }
}

/// Ticks after which each cache may hold something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::amdgpu) struct Invalidated {
    pub vector: u32,
    pub array: u32,
    pub scalar: u32,
}

impl Invalidated {
    /// The later of both.
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            vector: self.vector.max(other.vector),
            array: self.array.max(other.array),
            scalar: self.scalar.max(other.scalar),
        }
    }
}

impl Stamps {
    pub(crate) fn now(&self) -> u32 {
        self.clock.load(Ordering::Relaxed)
    }

    /// The tick that an action deals with all up to.
    fn tick(&self) -> u32 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    /// A packet's action.
    pub(crate) fn by_packet(&self, flush: Flush) {
        let tick = self.tick();
        let set = |does: bool, stamp: &AtomicU32| {
            if does {
                stamp.fetch_max(tick, Ordering::Relaxed);
            }
        };
        set(flush.vector, &self.vector);
        set(flush.array, &self.array);
        set(flush.scalar, &self.scalar);
        set(flush.l2, &self.l2);
        self.back.iter().for_each(|stamp| set(flush.write_back, stamp));
    }

    /// An instruction's action on the caches that its wave shares with all others of the XCC; returns the tick for the
    /// caches of its own unit.
    pub(crate) fn by_wave(&self, flush: Flush, xcc: usize) -> u32 {
        let tick = self.tick();
        if flush.l2 {
            self.l2.fetch_max(tick, Ordering::Relaxed);
        }
        if flush.write_back {
            self.back[xcc % XCCS].fetch_max(tick, Ordering::Relaxed);
        }
        tick
    }

    pub(crate) fn invalidated(&self) -> Invalidated {
        let load = |stamp: &AtomicU32| stamp.load(Ordering::Relaxed);
        Invalidated { vector: load(&self.vector), array: load(&self.array), scalar: load(&self.scalar) }
    }

    pub(crate) fn l2(&self) -> u32 {
        self.l2.load(Ordering::Relaxed)
    }

    /// Up to when the L2 of an XCC is written back.
    pub(crate) fn back(&self, xcc: usize) -> u32 {
        self.back[xcc % XCCS].load(Ordering::Relaxed)
    }

    /// Whether nothing that happened up to `tick` can still be in a cache.
    pub(crate) fn is_settled(&self, tick: u32) -> bool {
        // GL1, where there is one, is invalidated with the vector caches.
        let Invalidated { vector, scalar, .. } = self.invalidated();
        let back = (0..XCCS).map(|xcc| self.back(xcc)).min().unwrap_or(0);
        [vector, scalar, self.l2(), back].into_iter().all(|stamp| stamp >= tick)
    }
}

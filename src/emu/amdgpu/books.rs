//! Books of global memory: who read and wrote each dword, and what caches between the waves and everybody else may still hold.
//!
//! Three things that an emulator normally hides are found in them. Waves that touch the same bytes, one of them storing, with no
//! barrier between them (in one workgroup) or at all (in two). A vector cache that may still hold what a dispatch read, when memory
//! has changed since and nothing invalidated the cache; the scalar cache likewise. Stores that sit in L2 when somebody who does not look there reads memory.
//! Hardware gets these wrong now and then; here each is an error.
//!
//! Source: amd.md 5.8 (levels, which instructions and packets act on them), 6.3, 8.1. The card's vector caches count as one that never
//! gives a line up, L2 as one that never writes back by itself.
//! Left out: buffer accesses, scratch (each lane has its own), stale lines of L2 (nothing that a wave reads through it is written behind
//! it: host memory is mapped past it), stores after a scalar load of the same dispatch, and what waves order among themselves by
//! atomics or coherent accesses: a wave that has made one is let off.

use super::Strict;
use super::bus::ones;
use super::fault::{FaultKind, R, fail};
use super::wave::Wave;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

const PAGE: u64 = 4096;
const DWORDS: usize = (PAGE / 4) as usize;
/// Pages kept while all of them are settled.
const KEPT: usize = 4096;

/// One side of a dword: the last access, in which dispatch (0: none), by whom, in which stretch between barriers.
#[derive(Clone, Copy, Default)]
struct Side {
    dispatch: u32,
    group: u32,
    epoch: u32,
    wave: u8,
    /// Which of the four bytes.
    bytes: u8,
    /// Others of the same workgroup did the same; others of other workgroups.
    many: bool,
    far: bool,
}

#[derive(Clone, Copy, Default)]
struct Cell {
    write: Side,
    read: Side,
    /// Stores the writer had made, this one included.
    store: u32,
    /// What the readers found.
    value: u32,
    /// The last dispatch that read it through the scalar cache (0: none), and what that found.
    scalar: (u32, u32),
    atomic: bool,
}

type Page = Mutex<Box<[Cell; DWORDS]>>;

/// The books of a card, over its dispatches.
#[derive(Default)]
pub struct Books {
    pages: RwLock<HashMap<u64, Arc<Page>>>,
    dispatches: AtomicU32,
    /// The last dispatch before the vector caches were invalidated, and before L2 was written back.
    invalidated: AtomicU32,
    written_back: AtomicU32,
    /// The last dispatch before the scalar cache was invalidated.
    scalars_invalidated: AtomicU32,
}

impl std::fmt::Debug for Books {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Books({} dispatches)", self.dispatches.load(Ordering::Relaxed))
    }
}

fn lock(page: &Page) -> MutexGuard<'_, Box<[Cell; DWORDS]>> {
    page.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Books {
    /// A dispatch begins; its number.
    pub(super) fn begin(&self) -> u32 {
        let mut pages = self.pages.write().unwrap_or_else(PoisonError::into_inner);
        let before = self.dispatches.fetch_add(1, Ordering::Relaxed);
        let caches = [&self.invalidated, &self.written_back, &self.scalars_invalidated];
        let settled = caches.iter().all(|at| at.load(Ordering::Relaxed) == before);
        if settled && pages.len() > KEPT {
            pages.clear();
        }
        before + 1
    }

    /// The vector caches were invalidated.
    pub fn invalidate(&self) {
        self.invalidated.fetch_max(self.dispatches.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// The scalar cache was invalidated.
    pub fn invalidate_scalars(&self) {
        self.scalars_invalidated.fetch_max(self.dispatches.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// L2 was written back.
    pub fn write_back(&self) {
        self.written_back.fetch_max(self.dispatches.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// The first dword of a range that a dispatch stored to and nothing wrote back from L2, and how many dispatches
    /// ago that was.
    #[must_use]
    pub fn first_dirty(&self, va: u64, len_bytes: u64) -> Option<(u64, u32)> {
        let back = self.written_back.load(Ordering::Relaxed);
        let now = self.dispatches.load(Ordering::Relaxed);
        if back == now || len_bytes == 0 {
            return None;
        }
        let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
        let end = va.saturating_add(len_bytes);
        (va / PAGE..=(end - 1) / PAGE).find_map(|number| {
            let page = lock(pages.get(&number)?);
            let at = |n: usize| number * PAGE + 4 * n as u64;
            let dirty = |n: &usize| at(*n) + 4 > va && at(*n) < end && page[*n].write.dispatch > back;
            (0..DWORDS).find(dirty).map(|n| (at(n), now - page[n].write.dispatch))
        })
    }

    fn page(&self, number: u64) -> Arc<Page> {
        if let Some(page) = self.pages.read().unwrap_or_else(PoisonError::into_inner).get(&number) {
            return Arc::clone(page);
        }
        let mut pages = self.pages.write().unwrap_or_else(PoisonError::into_inner);
        let fresh = || Arc::new(Mutex::new(Box::new([Cell::default(); DWORDS])));
        Arc::clone(pages.entry(number).or_insert_with(fresh))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    Read,
    /// Through the scalar cache.
    Scalar,
    Write,
    Atomic,
}

impl How {
    fn name(self) -> &'static str {
        match self {
            Self::Read | Self::Scalar => "read",
            Self::Write => "written",
            Self::Atomic => "changed",
        }
    }
}

/// One instruction's accesses: the lanes, where each begins, how long each is.
pub(super) struct Accesses<'a> {
    pub how: How,
    pub lanes: u64,
    pub at: &'a [u64; 64],
    pub len_bytes: u32,
}

/// What is looked for, and since when.
#[derive(Clone, Copy)]
struct Rules {
    races: bool,
    caches: bool,
    /// The last dispatch of which the vector caches hold nothing any more.
    invalidated: u32,
    /// And of which the scalar cache holds nothing.
    scalars_invalidated: u32,
}

/// One access to one dword.
struct Touch {
    va: u64,
    me: Side,
    how: How,
    /// What memory has now, for reads.
    value: u32,
    /// Stores the wave has made.
    store: u32,
}

/// Pages that a host thread keeps at hand.
const NEAR: usize = 16;

/// The books as one host thread sees them during a dispatch.
pub(super) struct Ledger<'a> {
    books: &'a Books,
    dispatch: u32,
    races: bool,
    caches: bool,
    near: [Option<(u64, Arc<Page>)>; NEAR],
}

impl<'a> Ledger<'a> {
    /// `None` when nothing of it is wanted.
    pub fn new(books: &'a Books, dispatch: u32, strict: &Strict) -> Option<Self> {
        let (races, caches) = (strict.races, strict.caches);
        (races || caches).then(|| Self { books, dispatch, races, caches, near: Default::default() })
    }

    /// Books what an instruction did, or finds it wrong. `value` is a lane's n-th dword (or what it has of one) as memory has it
    /// now; `done` says how many stores a wave of the workgroup had waited for at its last barrier.
    pub fn note(
        &mut self,
        w: &Wave,
        accesses: &Accesses<'_>,
        value: impl Fn(usize, usize) -> u32,
        done: impl Fn(u8) -> u32,
    ) -> R<()> {
        if w.synchronises {
            return Ok(());
        }
        let invalidated = self.books.invalidated.load(Ordering::Relaxed);
        let scalars_invalidated = self.books.scalars_invalidated.load(Ordering::Relaxed);
        let rules = Rules { races: self.races, caches: self.caches, invalidated, scalars_invalidated };
        let mut lanes = ones(accesses.lanes).peekable();
        while let Some(&first) = lanes.peek() {
            let number = accesses.at[first] / PAGE;
            let slot = (number % NEAR as u64) as usize;
            let page = match self.near[slot].take() {
                Some((known, page)) if known == number => page,
                _ => self.books.page(number),
            };
            let mut cells = lock(&page);
            while let Some(lane) = lanes.next_if(|lane| accesses.at[*lane] / PAGE == number) {
                let value = |n| value(lane, n);
                note_lane(rules, self.side(w), &mut cells, (accesses, lane, w.waits.stores_issued()), &value, &done)?;
            }
            drop(cells);
            self.near[slot] = Some((number, page));
        }
        Ok(())
    }

    fn side(&self, w: &Wave) -> Side {
        Side { dispatch: self.dispatch, group: w.group, epoch: w.epoch, wave: w.index as u8, ..Side::default() }
    }
}

/// The dwords of one lane's access. What lies on the next page, or off the dwords' grid, is not booked.
fn note_lane(
    rules: Rules,
    me: Side,
    cells: &mut [Cell; DWORDS],
    (accesses, lane, store): (&Accesses<'_>, usize, u32),
    value: &impl Fn(usize) -> u32,
    done: &impl Fn(u8) -> u32,
) -> R<()> {
    let (va, len) = (accesses.at[lane], accesses.len_bytes);
    let inside = (va % 4) as u32;
    if inside + len.min(4) > 4 {
        return Ok(());
    }
    let first = (va % PAGE / 4) as usize;
    for (n, cell) in cells[first..].iter_mut().enumerate().take(len.div_ceil(4) as usize) {
        let bytes = ((1u32 << len.min(4)) - 1) << inside;
        let me = Side { bytes: bytes as u8, ..me };
        let va = (va & !3) + 4 * n as u64;
        let touch = Touch { va, me, how: accesses.how, value: value(n) << (8 * inside), store };
        note_cell(rules, cell, &touch, done)?;
    }
    Ok(())
}

fn note_cell(rules: Rules, c: &mut Cell, t: &Touch, done: &impl Fn(u8) -> u32) -> R<()> {
    let me = t.me;
    if rules.races {
        race(c, t, done)?;
    }
    if t.how == How::Scalar {
        return scalar(rules, c, t);
    }
    if t.how == How::Read {
        let same = c.read.dispatch == me.dispatch;
        // Of queues that run at once a later dispatch may have been there first.
        let before = rules.invalidated < c.read.dispatch && c.read.dispatch < me.dispatch;
        let changed = before && (c.value ^ t.value) & mask(c.read.bytes & me.bytes) != 0;
        if rules.caches && changed && c.write.dispatch != me.dispatch {
            return fail(FaultKind::StaleRead {
                va: t.va,
                dispatches: me.dispatch - c.read.dispatch,
                cache: "vector caches",
            });
        }
        let again = same && c.read.epoch == me.epoch && c.read.group == me.group;
        c.read = Side {
            many: again && (c.read.many || c.read.wave != me.wave),
            far: same && (c.read.far || c.read.group != me.group),
            bytes: if same { c.read.bytes | me.bytes } else { me.bytes },
            ..me
        };
        let keep = if same { !mask(me.bytes) } else { 0 };
        c.value = c.value & keep | t.value & mask(me.bytes);
        return Ok(());
    }
    let w = c.write;
    let again = (w.dispatch, w.group, w.wave, w.epoch) == (me.dispatch, me.group, me.wave, me.epoch);
    c.write = Side { bytes: if again { w.bytes | me.bytes } else { me.bytes }, ..me };
    (c.store, c.atomic) = (t.store, t.how == How::Atomic);
    Ok(())
}

/// A whole dword through the scalar cache.
fn scalar(rules: Rules, c: &mut Cell, t: &Touch) -> R<()> {
    if t.me.bytes != 15 {
        return Ok(());
    }
    let ((then, value), now) = (c.scalar, t.me.dispatch);
    let before = rules.scalars_invalidated < then && then < now;
    if rules.caches && before && value != t.value && c.write.dispatch != now {
        return fail(FaultKind::StaleRead { va: t.va, dispatches: now - then, cache: "scalar cache" });
    }
    c.scalar = (now, t.value);
    Ok(())
}

/// The bits of these bytes.
fn mask(bytes: u8) -> u32 {
    u32::from_le_bytes([0, 1, 2, 3].map(|n| if bytes >> n & 1 == 1 { 255 } else { 0 }))
}

/// Whether another wave of the same dispatch did what must not meet this access.
fn race(c: &Cell, t: &Touch, done: &impl Fn(u8) -> u32) -> R<()> {
    let Touch { va, me, how, .. } = *t;
    let meets = |side: &Side| side.dispatch == me.dispatch && side.bytes & me.bytes != 0;
    let found = |other: How, side: &Side| {
        let (this, other) = (how.name(), other.name());
        fail(FaultKind::GlobalRace { va, this, other, group: side.group, wave: side.wave.into() })
    };
    // A plain load beside atomics is how loops around compare-and-swap begin.
    if meets(&c.write) && !(c.atomic && how != How::Write) {
        let other = if c.atomic { How::Atomic } else { How::Write };
        let near = c.write.group == me.group;
        if !near || c.write.wave != me.wave && c.write.epoch == me.epoch {
            return found(other, &c.write);
        }
        if c.write.wave != me.wave && c.store > done(c.write.wave) {
            return fail(FaultKind::GlobalStoreNotWaited { va, wave: c.write.wave.into() });
        }
    }
    if how == How::Write && meets(&c.read) {
        let near = c.read.group == me.group && !c.read.far;
        let other_wave = c.read.wave != me.wave || c.read.many;
        if !near || other_wave && c.read.epoch == me.epoch {
            return found(How::Read, &c.read);
        }
    }
    Ok(())
}

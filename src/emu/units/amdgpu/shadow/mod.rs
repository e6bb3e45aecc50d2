//! Shadow state of global memory: which access read and wrote each dword last, and what caches between the waves and
//! other readers may still hold.
//!
//! It finds faults that an emulator normally hides: waves that access the same bytes, one of them storing, with no
//! barrier between them (in one workgroup) or at all (in two) ([`race`]); loads that a cache may answer with an older
//! content of memory ([`cache`]); stores that are still in L2 when a reader that bypasses it reads memory. Hardware
//! returns wrong values now and then; here each is an error. Packets and instructions that invalidate caches or write
//! them back are recorded in [`stamps`].
//!
//! Source: docs/amd.md 2.8, 6.3, 8.1, docs/amd-isa.md 5.8; LLVM's AMDGPU usage (memory models); memory types as the
//! kernel driver chooses them. A modelled cache never evicts a line and never writes back by itself; of a dword's
//! readers only the last one is known. Left out: scratch (each lane has its own), loads into LDS and transposing ones,
//! stores that a coherent access publishes before their wait, races between accesses that waves order by atomics or
//! coherent accesses: a wave that has made one is exempt, and with it the waves that meet it at a barrier.

mod cache;
mod race;
mod stamps;

pub use stamps::Flush;

pub(super) use stamps::Invalidated;

use super::bus::{Bus, ones};
use super::fault::R;
use super::wave::Wave;
use super::{Chip, Strict};
use cache::{Levels, Taken};
use stamps::Stamps;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

const PAGE: u64 = 4096;
const DWORDS: usize = (PAGE / 4) as usize;
/// Dwords of a line of the vector caches.
const LINE: usize = 32;
/// Pages kept while all of them are clean.
const KEPT: usize = 4096;

/// How L2 treats a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum L2 {
    /// Cached; changes of memory by others are not noticed (memory type NC).
    #[default]
    Cached,
    /// Cached; memory reports changes to it (type RW of a card's own memory on gfx942).
    Probed,
    /// Not cached (type UC: coherent host memory, rings, signals).
    Bypassed,
}

/// What kind of memory a page is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    pub l2: L2,
    /// The host's memory: the host reads it when it is interrupted.
    pub host: bool,
}

/// One side of a dword: the last access, its dispatch (0: none), its wave, and its interval between barriers.
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
    /// The wave synchronises by other means than barriers.
    synced: bool,
    /// A read-modify-write.
    atomic: bool,
    /// A store that went through L2 to memory.
    clean: bool,
}

#[derive(Clone, Copy, Default)]
struct Cell {
    write: Side,
    read: Side,
    /// Stores the writer had made, this one included.
    store: u32,
    /// When it was last stored, by whomever.
    stored: u32,
    /// What a vector cache, the scalar cache, L2 may hold.
    taken: Taken,
    taken_bytes: u8,
    scalar: Taken,
    l2: Taken,
}

/// A line of the vector caches: when it was first read since they were invalidated, and by which unit.
#[derive(Clone, Copy, Default)]
struct Line {
    when: u32,
    dispatch: u32,
    group: u32,
    wave: u8,
    many: bool,
    far: bool,
}

impl Line {
    fn take(&mut self, invalidated: u32, now: u32, me: &Side) {
        if self.when <= invalidated {
            *self = Self { when: now, dispatch: me.dispatch, group: me.group, wave: me.wave, many: false, far: false };
        } else {
            self.far |= (self.dispatch, self.group) != (me.dispatch, me.group);
            self.many |= self.wave != me.wave;
        }
    }
}

struct Sheet {
    policy: Policy,
    lines: [Line; DWORDS / LINE],
    cells: [Cell; DWORDS],
}

type Page = Mutex<Box<Sheet>>;

/// The first store of a queue that the host may miss: when, and where.
type Missed = (u32, u64);

/// The shadow state of a card's memory, over its dispatches.
#[derive(Default)]
pub struct ShadowMemory {
    pages: RwLock<HashMap<u64, Arc<Page>>>,
    dispatches: AtomicU32,
    /// Dispatches that run, and the tick at which one last ended.
    running: AtomicU32,
    ended: AtomicU32,
    stamps: Stamps,
    /// Stores to the host's memory by the queue that made them, until they are written back.
    hosts: Mutex<HashMap<u32, Missed>>,
}

impl std::fmt::Debug for ShadowMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ShadowMemory({} dispatches)", self.dispatches.load(Ordering::Relaxed))
    }
}

fn lock(page: &Page) -> MutexGuard<'_, Box<Sheet>> {
    page.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ShadowMemory {
    /// A dispatch begins; its number.
    pub(super) fn begin(&self) -> u32 {
        let mut pages = self.pages.write().unwrap_or_else(PoisonError::into_inner);
        let idle = self.running.fetch_add(1, Ordering::Relaxed) == 0;
        if pages.len() > KEPT && idle && self.stamps.is_settled(self.ended.load(Ordering::Relaxed)) {
            pages.clear();
        }
        self.stamps.by_packet(Flush::default());
        self.dispatches.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A dispatch ended.
    pub(super) fn end(&self) {
        self.ended.fetch_max(self.stamps.now(), Ordering::Relaxed);
        self.stamps.by_packet(Flush::default());
        self.running.fetch_sub(1, Ordering::Relaxed);
    }

    /// A packet acts on the caches of the card.
    pub fn flush(&self, flush: Flush) {
        self.stamps.by_packet(flush);
    }

    /// A range is mapped to other memory from now on.
    pub fn forget(&self, va: u64, len_bytes: u64) {
        let mut pages = self.pages.write().unwrap_or_else(PoisonError::into_inner);
        let end = va.saturating_add(len_bytes);
        if !pages.is_empty() {
            pages.retain(|number, _| number * PAGE >= end || (number + 1) * PAGE <= va);
        }
    }

    /// The known dwords of a range, page by page, until one matches.
    fn find<T>(&self, va: u64, len_bytes: u64, mut look: impl FnMut(u64, &mut Sheet, usize) -> Option<T>) -> Option<T> {
        if len_bytes == 0 {
            return None;
        }
        let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
        let end = va.saturating_add(len_bytes);
        if pages.is_empty() {
            return None;
        }
        (va / PAGE..=(end - 1) / PAGE).find_map(|number| {
            let mut page = lock(pages.get(&number)?);
            let at = |n: usize| number * PAGE + 4 * n as u64;
            let inside = |n: &usize| at(*n) + 4 > va && at(*n) < end;
            (0..DWORDS).filter(inside).find_map(|n| look(at(n), &mut page, n))
        })
    }

    /// The first dword of a range that a dispatch stored and that was not written back from L2, and how many dispatches
    /// ago that was.
    #[must_use]
    pub fn first_dirty(&self, va: u64, len_bytes: u64) -> Option<(u64, u32)> {
        let now = self.dispatches.load(Ordering::Relaxed);
        let back = (0..stamps::XCCS).map(|xcc| self.stamps.back(xcc)).min().unwrap_or(0);
        if back >= self.ended.load(Ordering::Relaxed) && self.running.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.find(va, len_bytes, |va, page, n| {
            let (c, w) = (&page.cells[n], &page.cells[n].write);
            let in_l2 = page.policy.l2 != L2::Bypassed && w.dispatch != 0 && !w.clean;
            (in_l2 && c.stored > back).then(|| (va, now - w.dispatch))
        })
    }

    /// A store by the host or an engine, not by a wave: through L2, or bypassing it.
    pub fn stored(&self, va: u64, len_bytes: u64, through_l2: bool) {
        self.stamps.by_packet(Flush::default());
        let now = self.stamps.now();
        let _all_of_it: Option<()> = self.find(va, len_bytes, |_, page, n| {
            let c = &mut page.cells[n];
            (c.stored, c.write) = (now, Side::default());
            if through_l2 {
                c.l2.when = 0;
            }
            None
        });
        self.stamps.by_packet(Flush::default());
    }

    /// Where a queue first stored to the host's memory since L2 was written back.
    #[must_use]
    pub fn missed_by_host(&self, queue: u32) -> Option<u64> {
        let hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        hosts.get(&queue).filter(|(when, _)| *when > self.stamps.back(0)).map(|(_, va)| *va)
    }

    fn page(&self, number: u64, policy: impl FnOnce() -> Policy) -> Arc<Page> {
        if let Some(page) = self.pages.read().unwrap_or_else(PoisonError::into_inner).get(&number) {
            return Arc::clone(page);
        }
        let sheet =
            Sheet { policy: policy(), lines: [Line::default(); DWORDS / LINE], cells: [Cell::default(); DWORDS] };
        let mut pages = self.pages.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(pages.entry(number).or_insert_with(|| Arc::new(Mutex::new(Box::new(sheet)))))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    Read,
    /// Past the caches of the compute unit.
    Coherent,
    /// Past L2 too.
    PastL2,
    /// Through the scalar cache.
    Scalar,
    Write,
    /// A store that does not stay in L2.
    WriteThrough,
    Atomic,
}

impl How {
    fn name(self) -> &'static str {
        match self {
            Self::Read | Self::Scalar | Self::Coherent | Self::PastL2 => "read",
            Self::Write | Self::WriteThrough => "written",
            Self::Atomic => "changed",
        }
    }

    fn is_store(self) -> bool {
        matches!(self, Self::Write | Self::WriteThrough | Self::Atomic)
    }

    /// By which waves order what they do.
    fn orders(self) -> bool {
        matches!(self, Self::Coherent | Self::PastL2 | Self::Atomic)
    }
}

/// One instruction's accesses: the lanes, where each begins, how long each is.
pub(super) struct Accesses<'a> {
    pub how: How,
    pub lanes: u64,
    pub at: &'a [u64],
    pub len_bytes: u32,
}

/// What is looked for, on which kind of page, and since when.
#[derive(Clone, Copy)]
struct Rules<'a> {
    races: bool,
    caches: bool,
    levels: Levels,
    /// All waves of a workgroup share one vector cache.
    one_unit: bool,
    xccs: u32,
    policy: Policy,
    now: u32,
    invalidated: Invalidated,
    l2_invalidated: u32,
    stamps: &'a Stamps,
}

impl Rules<'_> {
    fn back(&self, xcc: u32) -> u32 {
        self.stamps.back(xcc as usize)
    }
}

/// One access to one dword.
struct Touch {
    va: u64,
    me: Side,
    how: How,
    /// For reads, the content of memory; for stores, the stored value.
    value: u32,
    /// Stores the wave has made.
    store: u32,
}

/// What the shadow state needs to know of a dispatch.
#[derive(Clone, Copy)]
pub(super) struct DispatchInfo {
    pub number: u32,
    pub chip: Chip,
    /// The waves of a workgroup run on one compute unit.
    pub one_unit: bool,
}

/// Pages that a host thread caches.
const NEAR: usize = 16;

/// The shadow state as one host thread uses it during a dispatch.
pub(super) struct ThreadShadow<'a> {
    shadow: &'a ShadowMemory,
    bus: &'a dyn Bus,
    info: DispatchInfo,
    races: bool,
    caches: bool,
    xccs: u32,
    near: [Option<(u64, Arc<Page>)>; NEAR],
    /// When it last reported a store to the host's memory.
    reported: u32,
}

impl<'a> ThreadShadow<'a> {
    /// `None` when none of the checks is on.
    pub(crate) fn new(shadow: &'a ShadowMemory, bus: &'a dyn Bus, info: DispatchInfo, strict: &Strict) -> Option<Self> {
        let (races, caches) = (strict.races, strict.caches);
        let (xccs, near) = (bus.xccs().max(1), Default::default());
        (races || caches).then_some(Self { shadow, bus, info, races, caches, xccs, near, reported: 0 })
    }

    fn xcc(&self, w: &Wave) -> usize {
        (w.group % self.xccs) as usize
    }

    /// The waves of a workgroup share a vector cache.
    pub(crate) fn one_unit(&self) -> bool {
        self.info.one_unit
    }

    /// An instruction of the wave acts on caches.
    pub(crate) fn flush(&mut self, w: &mut Wave, flush: Flush) {
        let tick = self.shadow.stamps.by_wave(flush, self.xcc(w));
        let set = |does: bool, at: &mut u32| *at = if does { tick } else { *at };
        set(flush.vector, &mut w.invalidated.vector);
        set(flush.array, &mut w.invalidated.array);
        set(flush.scalar, &mut w.invalidated.scalar);
    }

    /// Waves met at a barrier: later accesses are ordered after earlier ones.
    pub(crate) fn barrier(&self) {
        self.shadow.stamps.by_packet(Flush::default());
    }

    /// What one of them invalidated is empty for those that share it.
    pub(crate) fn shared(&self, all: Invalidated, own: Invalidated) -> Invalidated {
        Invalidated { vector: if self.info.one_unit { all.vector } else { own.vector }, ..all }
    }

    /// Records an instruction's access, or reports it as a fault. `value` is a lane's n-th dword (or the accessed part
    /// of one) as memory has it now, or as a store leaves it; `done` is the number of stores that a wave of the
    /// workgroup had waited for at its last barrier.
    pub(crate) fn record(
        &mut self,
        w: &Wave,
        accesses: &Accesses<'_>,
        value: impl Fn(usize, usize) -> u32,
        done: impl Fn(u8) -> u32,
    ) -> R<()> {
        if accesses.how.orders() {
            self.barrier();
        }
        let stamps = &self.shadow.stamps;
        let mut rules = Rules {
            races: self.races && !w.synchronises && !matches!(accesses.how, How::Coherent | How::PastL2),
            caches: self.caches,
            levels: Levels::of(self.info.chip),
            one_unit: self.info.one_unit,
            xccs: self.xccs,
            policy: Policy::default(),
            now: stamps.now(),
            invalidated: stamps.invalidated().max(w.invalidated),
            l2_invalidated: stamps.l2(),
            stamps,
        };
        let me = self.side(w, accesses.how);
        let mut lanes = ones(accesses.lanes).peekable();
        while let Some(&first) = lanes.peek() {
            let number = accesses.at[first] / PAGE;
            let slot = (number % NEAR as u64) as usize;
            let page = match self.near[slot].take() {
                Some((known, page)) if known == number => page,
                _ => self.shadow.page(number, || self.bus.policy(number * PAGE)),
            };
            let mut sheet = lock(&page);
            rules.policy = sheet.policy;
            let mut last = None;
            while let Some(lane) = lanes.next_if(|lane| accesses.at[*lane] / PAGE == number) {
                // The same load again changes nothing.
                if last.replace(accesses.at[lane]) == Some(accesses.at[lane]) && !accesses.how.is_store() {
                    continue;
                }
                let value = |n| value(lane, n);
                let one = Lane { accesses, lane, store: w.waits.stores_issued() };
                record_lane(&rules, me, &mut sheet, &one, &value, &done)?;
            }
            drop(sheet);
            self.near[slot] = Some((number, page));
            if rules.policy.host && rules.policy.l2 == L2::Cached && accesses.how == How::Write {
                self.report_host_store(accesses.at[first]);
            }
        }
        Ok(())
    }

    /// A store to host memory that stays in L2.
    fn report_host_store(&mut self, va: u64) {
        let (back, now) = (self.shadow.stamps.back(0), self.shadow.stamps.now());
        if self.reported > back {
            return;
        }
        let mut hosts = self.shadow.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let first = hosts.entry(self.bus.queue()).or_default();
        if first.0 <= back {
            *first = (now, va);
        }
        self.reported = now;
    }

    fn side(&self, w: &Wave, how: How) -> Side {
        Side {
            dispatch: self.info.number,
            group: w.group,
            epoch: w.epoch,
            wave: w.index as u8,
            synced: w.synchronises,
            atomic: how == How::Atomic,
            clean: how == How::WriteThrough,
            ..Side::default()
        }
    }
}

/// One lane of an instruction's accesses.
struct Lane<'a> {
    accesses: &'a Accesses<'a>,
    lane: usize,
    store: u32,
}

/// The dwords of one lane's access. Bytes on the next page, or not aligned to dwords, are not recorded.
#[inline]
fn record_lane(
    rules: &Rules,
    me: Side,
    sheet: &mut Sheet,
    one: &Lane<'_>,
    value: &impl Fn(usize) -> u32,
    done: &impl Fn(u8) -> u32,
) -> R<()> {
    let (va, len) = (one.accesses.at[one.lane], one.accesses.len_bytes);
    let inside = (va % 4) as u32;
    if inside + len.min(4) > 4 {
        return Ok(());
    }
    let first = (va % PAGE / 4) as usize;
    let Sheet { lines, cells, .. } = sheet;
    for (n, cell) in cells[first..].iter_mut().enumerate().take(len.div_ceil(4) as usize) {
        let bytes = ((1u32 << len.min(4)) - 1) << inside;
        let me = Side { bytes: bytes as u8, ..me };
        let va = (va & !3) + 4 * n as u64;
        let touch = Touch { va, me, how: one.accesses.how, value: value(n) << (8 * inside), store: one.store };
        record_cell(rules, &mut lines[(first + n) / LINE], cell, &touch, done)?;
    }
    Ok(())
}

#[inline]
fn record_cell(rules: &Rules, line: &mut Line, c: &mut Cell, t: &Touch, done: &impl Fn(u8) -> u32) -> R<()> {
    let me = t.me;
    if rules.races {
        race::race(c, t, done)?;
    }
    if t.how.is_store() {
        if rules.caches {
            cache::store(rules, c, t);
        }
        let w = c.write;
        let again = (w.dispatch, w.group, w.wave, w.epoch) == (me.dispatch, me.group, me.wave, me.epoch);
        c.write = Side { bytes: if again { w.bytes | me.bytes } else { me.bytes }, ..me };
        c.store = t.store;
        return Ok(());
    }
    if rules.caches {
        cache::load(rules, line, c, t)?;
    }
    if t.how == How::Read {
        let same = c.read.dispatch == me.dispatch;
        let again = same && c.read.epoch == me.epoch && c.read.group == me.group;
        c.read = Side {
            many: again && (c.read.many || c.read.wave != me.wave),
            far: same && (c.read.far || c.read.group != me.group),
            bytes: if same { c.read.bytes | me.bytes } else { me.bytes },
            ..me
        };
    }
    Ok(())
}

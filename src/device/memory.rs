//! A device's memory as its users hold it: a handle that frees on drop and knows which submissions still use it.
//!
//! Place in the arrows: made by a device's allocator, held by `engine`'s buffers. Every submission that names a memory leaves its
//! timeline value here, so a host copy waits for just that work, another queue orders itself after it, and a freed block is never
//! unmapped under a running kernel. Reads and writes are not told apart: two readers on different queues run one after the other.

use super::{DeviceError, DeviceTag};
use doorbell_hcq::memory::View;
use doorbell_hcq::signal::{Point, Timeline, WaitError};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The submissions that may still touch a memory.
#[derive(Default)]
pub struct Uses {
    // The device's main timeline, where nearly all uses are.
    own: Option<Arc<Timeline>>,
    own_value: AtomicU64,
    // Uses on any other timeline, the newest each.
    others: Mutex<Vec<Point>>,
    has_others: AtomicBool,
}

impl Uses {
    /// None yet; `own` is the timeline that most uses will be on.
    #[must_use]
    pub fn new(own: Option<Arc<Timeline>>) -> Self {
        Self { own, ..Self::default() }
    }

    /// A submission will use the memory. Called before the submission is published.
    #[inline]
    pub fn mark(&self, timeline: &Arc<Timeline>, value: u64) {
        if self.own.as_ref().is_some_and(|own| Arc::ptr_eq(own, timeline)) {
            self.own_value.store(value, Ordering::Release);
            return;
        }
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        others.retain(|p| !p.is_done() && !Arc::ptr_eq(p.timeline(), timeline));
        others.push(timeline.point(value));
        self.has_others.store(true, Ordering::Release);
    }

    /// Adds to `waits` what a submission on `timeline` must wait for before it may touch the memory.
    #[inline]
    pub fn hazards(&self, timeline: &Arc<Timeline>, waits: &mut Vec<Point>) {
        if let Some(own) = self.own.as_ref().filter(|own| !Arc::ptr_eq(own, timeline)) {
            add_wait(waits, &own.point(self.own_value.load(Ordering::Acquire)));
        }
        if self.has_others.load(Ordering::Acquire) {
            let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
            for point in others.iter().filter(|p| !Arc::ptr_eq(p.timeline(), timeline)) {
                add_wait(waits, point);
            }
        }
    }

    /// Whether no submission uses the memory any more.
    #[must_use]
    pub fn are_done(&self) -> bool {
        let own = self.own.as_ref().is_none_or(|t| t.completed() >= self.own_value.load(Ordering::Acquire));
        own && (!self.has_others.load(Ordering::Acquire)
            || self.others.lock().unwrap_or_else(PoisonError::into_inner).iter().all(Point::is_done))
    }

    /// Waits until no submission uses the memory.
    ///
    /// # Errors
    /// `Timeout` with a report, `Lost`.
    pub fn wait(&self, timeout: Duration) -> Result<(), WaitError> {
        let start = Instant::now();
        if let Some(own) = &self.own {
            own.wait(self.own_value.load(Ordering::Acquire), timeout)?;
        }
        if self.has_others.load(Ordering::Acquire) {
            let others = self.others.lock().unwrap_or_else(PoisonError::into_inner).clone();
            for point in others {
                point.wait(timeout.saturating_sub(start.elapsed()))?;
            }
        }
        Ok(())
    }
}

/// Adds a point unless it is done or a later one of its timeline is there.
pub(crate) fn add_wait(waits: &mut Vec<Point>, point: &Point) {
    if point.is_done() {
        return;
    }
    match waits.iter_mut().find(|w| Arc::ptr_eq(w.timeline(), point.timeline())) {
        Some(wait) if wait.value() >= point.value() => {}
        Some(wait) => *wait = point.clone(),
        None => waits.push(point.clone()),
    }
}

/// Takes a block back when its last handle is dropped; `uses` may still be pending.
pub trait Release: Send + Sync {
    fn release(&self, va: u64, host: Option<View>, uses: Uses);
}

/// What a device says about a new memory.
pub struct MemoryParts {
    pub device: DeviceTag,
    /// Address of the first byte as the device sees it.
    pub va: u64,
    pub len_bytes: u64,
    /// The same bytes as the host sees them, where it does.
    pub host: Option<View>,
    pub uses: Uses,
    /// Who takes the block back; `None` when dropping `host` is enough.
    pub release: Option<Arc<dyn Release>>,
}

struct Inner {
    parts: MemoryParts,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(release) = self.parts.release.take() {
            release.release(self.parts.va, self.parts.host.take(), std::mem::take(&mut self.parts.uses));
        }
    }
}

/// A device's memory. Clones are the same memory; the last one frees it.
#[derive(Clone)]
pub struct Memory(Arc<Inner>);

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} {:#x}, {} bytes)", self.device(), self.va(), self.len_bytes())
    }
}

impl Memory {
    #[must_use]
    pub fn new(parts: MemoryParts) -> Self {
        Self(Arc::new(Inner { parts }))
    }

    /// The device that the memory belongs to.
    #[must_use]
    pub fn device(&self) -> &DeviceTag {
        &self.0.parts.device
    }

    /// Address as the device sees it.
    #[must_use]
    #[inline]
    pub fn va(&self) -> u64 {
        self.0.parts.va
    }

    #[must_use]
    #[inline]
    pub fn len_bytes(&self) -> u64 {
        self.0.parts.len_bytes
    }

    /// The host's view of the memory, if it has one. Order accesses with [`Uses::wait`] or a timeline.
    #[must_use]
    pub fn host(&self) -> Option<&View> {
        self.0.parts.host.as_ref()
    }

    #[must_use]
    #[inline]
    pub fn uses(&self) -> &Uses {
        &self.0.parts.uses
    }

    /// Whether both handles are the same memory.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The place `offset` bytes in.
    #[must_use]
    pub fn at(&self, offset: u64) -> Place {
        Place { memory: self.clone(), offset }
    }

    /// Checks a range, for copies.
    ///
    /// # Errors
    /// `Range`.
    pub fn check(&self, what: &'static str, offset: u64, len_bytes: u64) -> Result<(), DeviceError> {
        match offset.checked_add(len_bytes) {
            Some(end) if end <= self.len_bytes() => Ok(()),
            _ => Err(DeviceError::Range { what, offset, len_bytes, size_bytes: self.len_bytes() }),
        }
    }
}

/// A byte position in a memory.
#[derive(Clone, Debug)]
pub struct Place {
    pub memory: Memory,
    /// Bytes from the start.
    pub offset: u64,
}

impl Place {
    /// The address as the device sees it.
    #[must_use]
    #[inline]
    pub fn va(&self) -> u64 {
        self.memory.va().wrapping_add(self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorbell_hcq::signal::SignalPool;

    fn timeline(name: &str) -> Arc<Timeline> {
        Timeline::new(name.into(), SignalPool::new().signal().unwrap())
    }

    #[test]
    fn use_on_the_same_queue_is_no_hazard() {
        let (a, b) = (timeline("a"), timeline("b"));
        let uses = Uses::new(Some(Arc::clone(&a)));
        uses.mark(&a, a.next());
        let mut waits = Vec::new();
        uses.hazards(&a, &mut waits);
        assert!(waits.is_empty());
        uses.hazards(&b, &mut waits);
        assert_eq!((waits.len(), waits[0].value()), (1, 1));
    }

    #[test]
    fn foreign_use_is_a_hazard_until_it_is_done() {
        let (a, b) = (timeline("a"), timeline("b"));
        let uses = Uses::new(Some(Arc::clone(&a)));
        uses.mark(&b, b.next());
        uses.mark(&b, b.next());
        let mut waits = Vec::new();
        uses.hazards(&a, &mut waits);
        assert_eq!((waits.len(), waits[0].value(), uses.are_done()), (1, 2, false));
        b.signal().set(2);
        waits.clear();
        uses.hazards(&a, &mut waits);
        assert!(waits.is_empty() && uses.are_done());
    }

    #[test]
    fn waiting_for_a_use_that_never_ends_times_out() {
        let a = timeline("a");
        let uses = Uses::new(Some(Arc::clone(&a)));
        uses.mark(&a, a.next());
        assert!(matches!(uses.wait(Duration::from_millis(2)), Err(WaitError::Timeout(_))));
    }
}

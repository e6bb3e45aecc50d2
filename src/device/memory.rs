//! Handles of device memory: a handle frees the memory on drop and tracks which submissions still use it.
//!
//! Layer: created by a device's allocator, held by `engine`'s buffers. Every submission that uses a
//! memory records its timeline value here. So a host copy waits only for that work, another queue's work is ordered
//! after it, and a freed block is never unmapped under a running kernel. Reads and writes are not distinguished: two
//! readers on different queues run one after the other.

use super::{DeviceError, DeviceTag};
use doorbell_hcq::memory::View;
use doorbell_hcq::signal::{Point, Timeline, WaitError};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The submissions that may still access a memory.
#[derive(Default)]
pub struct Uses {
    // The device's main timeline, to which nearly all uses belong.
    own: Option<Arc<Timeline>>,
    own_value: AtomicU64,
    // The newest use on each other timeline.
    others: Mutex<Vec<Point>>,
    has_others: AtomicBool,
}

impl Uses {
    /// No uses yet; `own` is the timeline that most uses will belong to.
    #[must_use]
    pub fn new(own: Option<Arc<Timeline>>) -> Self {
        Self { own, ..Self::default() }
    }

    /// Records that a submission will use the memory. Must be called before the submission is published.
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

    /// Adds to `waits` what a submission on `timeline` must wait for before it may access the memory.
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

    /// Whether all submissions that use the memory are done.
    #[must_use]
    pub(crate) fn are_done(&self) -> bool {
        let own = self.own.as_ref().is_none_or(|t| t.completed() >= self.own_value.load(Ordering::Acquire));
        own && (!self.has_others.load(Ordering::Acquire)
            || self.others.lock().unwrap_or_else(PoisonError::into_inner).iter().all(Point::is_done))
    }

    /// Waits until all submissions that use the memory are done.
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

/// Adds a point, unless it is done or the list has a later one of its timeline.
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

/// Checks that memory of the program can be a GPU's: that it is some, may be written, and starts on a page of
/// `page_bytes`.
///
/// # Errors
/// `Wrap`.
#[cfg(any(feature = "amd", feature = "nv", feature = "metal"))]
pub(crate) fn check_wrapped(device: &DeviceTag, host: &View, page_bytes: u64) -> Result<(), DeviceError> {
    let (at, len_bytes) = (host.base().0, host.len_bytes());
    let why = match () {
        () if host.is_empty() => "it is empty".into(),
        () if !host.is_writable() => "it is read-only".into(),
        () if !at.is_multiple_of(page_bytes) => format!("it does not start on a page of {page_bytes} bytes"),
        () => return Ok(()),
    };
    Err(DeviceError::Wrap { device: device.name().into(), at, len_bytes, why })
}

/// The owner of memory blocks, called when a block's last handle is dropped; `uses` may still be pending.
pub trait Release: Send + Sync {
    fn release(&self, va: u64, host: Option<View>, uses: Uses);
}

/// The parts from which a device makes a [`Memory`].
pub struct MemoryParts {
    pub device: DeviceTag,
    /// Address of the first byte as the device sees it.
    pub va: u64,
    pub len_bytes: u64,
    /// The host's view of the same bytes, if they are mapped for the host.
    pub host: Option<View>,
    pub uses: Uses,
    /// The owner to return the block to; `None` if dropping `host` is enough.
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

/// A block of a device's memory. Clones refer to the same block; it is freed with the last one.
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

    /// The host's view of the memory, if it is mapped for the host. Order accesses with [`Uses::wait`] or a timeline.
    #[must_use]
    pub fn host(&self) -> Option<&View> {
        self.0.parts.host.as_ref()
    }

    #[must_use]
    #[inline]
    pub fn uses(&self) -> &Uses {
        &self.0.parts.uses
    }

    /// Whether both handles refer to the same memory.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Sees whether this memory is still there, without keeping it.
    #[must_use]
    pub fn watch(&self) -> MemoryWatch {
        MemoryWatch(Arc::downgrade(&self.0))
    }

    /// The location `offset` bytes from the start.
    #[must_use]
    pub fn at(&self, offset: u64) -> Location {
        Location { memory: self.clone(), offset }
    }

    /// Checks that a range lies within the memory.
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

/// Sees whether a memory is still there, without keeping it.
#[derive(Clone, Debug)]
pub struct MemoryWatch(Weak<Inner>);

impl MemoryWatch {
    /// Whether no handle of the memory is left.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }

    /// A number that no other memory has while this value exists.
    #[must_use]
    pub fn number(&self) -> usize {
        self.0.as_ptr().addr()
    }
}

/// A location in a memory: the memory and a byte offset.
#[derive(Clone, Debug)]
pub struct Location {
    pub memory: Memory,
    /// Bytes from the start.
    pub offset: u64,
}

impl Location {
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

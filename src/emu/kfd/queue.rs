//! A hardware queue as driver and engine share it: where its ring is, the last doorbell value, whether it may run.

use super::cp::Stop;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The packet format of a queue's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Pm4,
    Aql,
    Sdma { xgmi: bool },
}

/// What CREATE_QUEUE fixed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setup {
    pub id: u32,
    pub kind: Kind,
    pub read_ptr_va: u64,
    pub write_ptr_va: u64,
    pub has_eop: bool,
    /// Context-save area; 0 for none.
    pub save_va: u64,
    /// Byte offset of the doorbell in the card's slice.
    pub doorbell_bytes: u64,
    /// XCCs that consume it.
    pub xccs: u32,
    /// First addresses of the buffers that the queue uses.
    pub pinned: Vec<u64>,
}

/// The mutable state of a queue.
#[derive(Debug)]
pub(crate) struct Control {
    pub ring_va: u64,
    pub ring_bytes: u64,
    /// UPDATE_QUEUE gave it a share and a ring.
    pub active: bool,
    /// The driver took it off the hardware for good, after a page fault.
    pub evicted: bool,
    /// The machine sleeps.
    pub asleep: bool,
    pub destroyed: bool,
    /// Write pointer of the last doorbell, in the ring's unit.
    pub put: u64,
    /// Read pointer, in the ring's unit, monotonic.
    pub get: u64,
    /// Why it hangs.
    pub hung: Option<Stop>,
}

/// A queue.
#[derive(Debug)]
pub(crate) struct Queue {
    pub setup: Setup,
    control: Mutex<Control>,
    wake: Condvar,
    /// Ends a running dispatch.
    pub stop: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Polls of a word that an engine waits for before it sleeps between two: other queues respond fast.
const FAST_LOOKS: u32 = 64;
/// The first sleep, and the longest.
const NAP: Duration = Duration::from_micros(20);
const LONGEST_NAP: Duration = Duration::from_micros(320);

/// How a queue ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// A packet or kernel had stopped it.
    pub hung: bool,
    /// The engine itself failed.
    pub panicked: bool,
}

impl Queue {
    #[must_use]
    pub(crate) fn new(setup: Setup, ring_va: u64, ring_bytes: u64, active: bool) -> Self {
        let control = Control {
            ring_va,
            ring_bytes,
            active,
            evicted: false,
            asleep: false,
            destroyed: false,
            put: 0,
            get: 0,
            hung: None,
        };
        Self {
            setup,
            control: Mutex::new(control),
            wake: Condvar::new(),
            stop: AtomicBool::new(false),
            thread: Mutex::default(),
        }
    }

    pub(crate) fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the control and wakes the engine.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Control) -> T) -> T {
        let result = change(&mut self.control());
        self.wake.notify_all();
        result
    }

    /// A doorbell store: work up to `put` may start.
    pub(crate) fn ring(&self, put: u64) {
        self.change(|control| control.put = control.put.max(put));
    }

    pub(crate) fn set_thread(&self, thread: JoinHandle<()>) {
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
    }

    /// Takes the queue off the hardware for good: a running dispatch ends, no other starts.
    pub(crate) fn evict(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.change(|control| control.evicted = true);
    }

    /// Ends the engine's thread.
    pub(crate) fn destroy(&self) -> End {
        self.stop.store(true, Ordering::Relaxed);
        let hung = self.change(|control| {
            control.destroyed = true;
            control.hung.is_some()
        });
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let panicked = thread.is_some_and(|thread| thread.join().is_err());
        End { hung, panicked }
    }

    /// Sleeps until there is work: returns ring and write pointer, or `None` when the queue ends. A queue that starved
    /// at `starved` needs a later doorbell.
    pub(crate) fn next_work(&self, starved: Option<u64>) -> Option<Work> {
        let mut control = self.control();
        loop {
            if control.destroyed {
                return None;
            }
            let may_run = control.active && !control.asleep && !control.evicted && control.hung.is_none();
            if may_run && control.put != control.get && starved != Some(control.put) {
                let Control { ring_va, ring_bytes, put, get, .. } = *control;
                return Some(Work { ring_va, ring_bytes, put, get });
            }
            control = self.wake.wait(control).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until `ready` returns true, polling; other queues run meanwhile. A stopped queue stays here until it is
    /// started again.
    ///
    /// # Errors
    /// `Err(None)` when the queue was taken away, `Err(Some(e))` when `ready` fails.
    pub(crate) fn wait_until<E>(&self, mut ready: impl FnMut() -> Result<bool, E>) -> Result<(), Option<E>> {
        let (mut looks, mut nap) = (0, NAP);
        loop {
            let (gone, active) = {
                let control = self.control();
                (control.destroyed || control.evicted, control.active && !control.asleep)
            };
            if gone {
                return Err(None);
            }
            if active && ready().map_err(Some)? {
                // ORDER: acquire; what was stored before the awaited word is seen by what follows.
                fence(Ordering::Acquire);
                return Ok(());
            }
            looks += 1;
            if looks < FAST_LOOKS {
                std::thread::yield_now();
                continue;
            }
            let control = self.control();
            // TIMEOUT: memory words have no wake-up; a longer sleep keeps a long wait cheap.
            let _woken = self.wake.wait_timeout(control, nap).unwrap_or_else(PoisonError::into_inner);
            nap = (nap * 2).min(LONGEST_NAP);
        }
    }
}

/// What an engine may do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    pub ring_va: u64,
    pub ring_bytes: u64,
    pub put: u64,
    pub get: u64,
}

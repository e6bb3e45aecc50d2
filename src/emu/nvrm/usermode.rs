//! The usermode region of a card: doorbell and clock, as BAR0 and BAR1 show it.
//!
//! Source: docs/nv.md 2 (step 10). The clock's two words are memory here, which a thread of the machine writes; BAR1's
//! view has none.

use super::clock::Ptimer;
use super::map::USERMODE_BYTES;
use doorbell_hcq::packet::nv::gpfifo;
use doorbell_ioctl::port::{DeviceView, Errno, SharedMemory};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Offset of the doorbell.
pub(crate) const DOORBELL: u64 = gpfifo::DOORBELL;
/// How often the clock's words are written while the region is mapped.
const TICK: Duration = Duration::from_millis(2);

/// Pages of the region, for each of its BARs.
#[derive(Debug)]
pub(crate) struct Usermode {
    pub bar0: SharedMemory,
    pub bar1: SharedMemory,
    view: DeviceView,
    clock: Arc<Ptimer>,
    ticker: Mutex<Option<(Arc<AtomicBool>, JoinHandle<()>)>>,
}

impl Usermode {
    /// # Errors
    /// `ENOMEM`, `EMFILE`.
    pub(crate) fn new(clock: &Arc<Ptimer>) -> Result<Self, Errno> {
        let (bar0, bar1) = (SharedMemory::new(USERMODE_BYTES)?, SharedMemory::new(USERMODE_BYTES)?);
        let view = bar0.map()?;
        Ok(Self { bar0, bar1, view, clock: Arc::clone(clock), ticker: Mutex::default() })
    }

    /// The BAR0 view was mapped: its clock has to run.
    pub(crate) fn start_clock(&self) {
        let mut ticker = self.ticker.lock().unwrap_or_else(PoisonError::into_inner);
        if ticker.is_some() {
            return;
        }
        tick(&self.view, &self.clock);
        let end = Arc::new(AtomicBool::new(false));
        let (view, clock, stop) = (self.view.clone(), Arc::clone(&self.clock), Arc::clone(&end));
        let thread = std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                tick(&view, &clock);
                // TIMEOUT: how old a reading may be.
                std::thread::park_timeout(TICK);
            }
        });
        *ticker = Some((end, thread));
    }
}

/// Writes low and high word of the time at once: a reader of both reads the high one twice anyway.
fn tick(view: &DeviceView, clock: &Ptimer) {
    // The region holds both words.
    let _inside = view.write_u64(gpfifo::PTIMER, clock.ns());
}

impl Drop for Usermode {
    fn drop(&mut self) {
        let ticker = self.ticker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((end, thread)) = ticker {
            end.store(true, Ordering::Relaxed);
            thread.thread().unpark();
            let _stopped = thread.join();
        }
    }
}

//! A channel and its group as driver and engine share them: where ring and USERD are, pending doorbells, whether it may
//! run.

use super::space::VaSpace;
use doorbell_ioctl::port::DeviceView;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Types of engines, as NV2080_ENGINE_TYPE numbers them.
pub(crate) const ENGINE_GR0: u32 = 1;

/// NV2080_ENGINE_TYPE of a copy engine: ten, and from there on elsewhere.
#[must_use]
pub(crate) fn copy_engine_type(index: u32) -> u32 {
    if index < 10 { 0x09 + index } else { 0x34 + index - 10 }
}

/// The index of the copy engine of an engine type.
#[must_use]
pub(crate) fn copy_engine_index(engine_type: u32) -> Option<u32> {
    match engine_type {
        0x09..=0x12 => Some(engine_type - 0x09),
        0x34..=0x3d => Some(engine_type - 0x34 + 10),
        _ => None,
    }
}

/// What the allocation fixed.
#[derive(Debug)]
pub(crate) struct Setup {
    /// Of the card's channels.
    pub id: u32,
    pub engine_type: u32,
    pub ring_va: u64,
    /// A power of two.
    pub entries: u32,
    /// Its 512 bytes.
    pub userd: DeviceView,
    pub space: Arc<VaSpace>,
    /// Records of 16 bytes: error, token, key rotation.
    pub notifier: Option<DeviceView>,
}

/// An access of this channel that the MMU refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MmuFault {
    pub va: u64,
    /// As docs/nv.md 6 numbers them.
    pub kind: u32,
    pub access: u32,
}

/// The mutable state of a channel.
#[derive(Debug, Default)]
pub(crate) struct Control {
    /// A doorbell that has not been handled yet.
    rung: bool,
    /// On its runlist.
    scheduled: bool,
    /// The machine sleeps.
    asleep: bool,
    destroyed: bool,
    /// Why it runs no more.
    dead: Option<Dead>,
    /// A grid or copy runs.
    busy: bool,
    /// Next entry of the ring.
    get: u32,
}

/// How a channel died.
#[derive(Clone, Debug)]
pub(crate) struct Dead {
    /// As the error notifier's info32.
    pub code: u32,
}

/// A channel.
#[derive(Debug)]
pub(crate) struct Channel {
    pub setup: Setup,
    pub group: Arc<Group>,
    control: Mutex<Control>,
    wake: Condvar,
    /// Ends a running grid.
    pub stop: AtomicBool,
    /// Classes of the objects below it: what SET_OBJECT may name.
    pub classes: Mutex<Vec<u32>>,
    /// The runlist that its first object chose; none before.
    placed: Mutex<Option<u32>>,
    /// UVM has mapped its context.
    pub bound: AtomicBool,
    /// The fault it died of.
    pub fault: Mutex<Option<MmuFault>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Channels that share an engine's time, and die together.
#[derive(Debug)]
pub(crate) struct Group {
    pub gpu: usize,
    pub engine_type: u32,
    /// For channels without a context share.
    pub space: Option<Arc<VaSpace>>,
    pub channels: Mutex<Vec<Weak<Channel>>>,
    pub timeslice_us: Mutex<u64>,
}

impl Group {
    #[must_use]
    pub(crate) fn new(gpu: usize, engine_type: u32, space: Option<Arc<VaSpace>>) -> Self {
        Self { gpu, engine_type, space, channels: Mutex::default(), timeslice_us: Mutex::new(2000) }
    }

    /// Its channels that live.
    pub(crate) fn members(&self) -> Vec<Arc<Channel>> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        channels.retain(|weak| weak.strong_count() > 0);
        channels.iter().filter_map(Weak::upgrade).collect()
    }

    /// The runlist of its engine.
    #[must_use]
    pub(crate) fn runlist(&self) -> u32 {
        runlist(self.engine_type)
    }
}

/// The runlist of an engine: graphics and the copy engines that share it have 0.
#[must_use]
pub(crate) fn runlist(engine_type: u32) -> u32 {
    copy_engine_index(engine_type).map_or(0, |index| if index < 2 { 0 } else { index - 1 })
}

/// Polls of a word that a channel waits for before it sleeps between two: other channels respond fast.
const FAST_LOOKS: u32 = 64;
/// The first sleep, and the longest.
const NAP: Duration = Duration::from_micros(20);
const LONGEST_NAP: Duration = Duration::from_micros(320);
/// Within USERD.
const GP_PUT: u64 = doorbell_hcq::packet::nv::gpfifo::USERD_GP_PUT;

/// What is left of a channel that was taken off its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// The engine itself failed.
    pub panicked: bool,
}

impl Channel {
    #[must_use]
    pub(crate) fn new(setup: Setup, group: Arc<Group>) -> Self {
        Self {
            setup,
            group,
            control: Mutex::default(),
            wake: Condvar::new(),
            stop: AtomicBool::new(false),
            classes: Mutex::default(),
            placed: Mutex::default(),
            bound: AtomicBool::new(false),
            fault: Mutex::default(),
            thread: Mutex::default(),
        }
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Control) -> T) -> T {
        let result = change(&mut self.control());
        self.wake.notify_all();
        result
    }

    /// Puts it on the runlist of an object's engine: the first object chooses.
    ///
    /// # Errors
    /// It is on another one.
    pub(crate) fn place(&self, runlist: u32) -> Result<(), u32> {
        let mut placed = self.placed.lock().unwrap_or_else(PoisonError::into_inner);
        match *placed.get_or_insert(runlist) {
            own if own == runlist => Ok(()),
            own => Err(own),
        }
    }

    /// Its runlist, once an object has chosen it.
    #[must_use]
    pub(crate) fn runlist(&self) -> Option<u32> {
        *self.placed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is stored to the doorbell: channel id 11:0, runlist 22:16.
    #[must_use]
    pub(crate) fn token(&self) -> u32 {
        self.setup.id | self.runlist().unwrap_or_else(|| self.group.runlist()) << 16
    }

    /// A doorbell store.
    pub(crate) fn ring(&self) {
        self.change(|control| control.rung = true);
    }

    /// Puts it on its runlist; hardware reads GPPut then.
    pub(crate) fn schedule(&self) {
        let put = self.setup.userd.read_u32(GP_PUT).unwrap_or(0);
        self.change(|control| {
            control.scheduled = true;
            control.rung |= put != control.get;
        });
    }

    /// The machine goes to sleep, or wakes up.
    pub(crate) fn set_asleep(&self, asleep: bool) {
        self.change(|control| control.asleep = asleep);
    }

    /// How it died, if it did.
    #[must_use]
    pub(crate) fn death(&self) -> Option<Dead> {
        self.control().dead.clone()
    }

    /// Takes it off the hardware for good: a running grid ends, no other starts. The first reason stays.
    pub(crate) fn kill(&self, dead: Dead) {
        self.stop.store(true, Ordering::Relaxed);
        self.change(|control| control.dead.get_or_insert(dead).code);
    }

    pub(crate) fn set_thread(&self, thread: JoinHandle<()>) {
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
    }

    /// Ends the engine's thread.
    pub(crate) fn destroy(&self) -> End {
        self.stop.store(true, Ordering::Relaxed);
        self.change(|control| control.destroyed = true);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        End { panicked: thread.is_some_and(|thread| thread.join().is_err()) }
    }

    /// Whether all that GPPut allows is done.
    #[must_use]
    pub(crate) fn is_idle(&self) -> bool {
        let control = self.control();
        let put = self.setup.userd.read_u32(GP_PUT).unwrap_or(0);
        control.dead.is_some() || !control.busy && (!control.scheduled || control.get == put)
    }

    /// Whether a grid or copy is in the middle of its work.
    #[must_use]
    pub(crate) fn is_busy(&self) -> bool {
        self.control().busy
    }

    pub(crate) fn set_busy(&self, busy: bool) {
        self.change(|control| control.busy = busy);
    }

    /// Waits until `done` returns true.
    ///
    /// # Errors
    /// `false`: the time is over.
    pub(crate) fn wait_for(&self, timeout: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let end = Instant::now() + timeout;
        while !done(self) {
            if Instant::now() >= end {
                return false;
            }
            // TIMEOUT: the state has no single wake-up; the caller's timeout bounds the whole.
            std::thread::sleep(NAP);
        }
        true
    }

    /// One more entry is done.
    pub(crate) fn advance(&self) -> u32 {
        self.change(|control| {
            control.get = (control.get + 1) % self.setup.entries;
            control.get
        })
    }

    /// Sleeps until there is work: returns GPGet and GPPut, or `None` when the channel ends. GPPut counts when a
    /// doorbell has come since it was last read.
    pub(crate) fn next_work(&self) -> Option<(u32, u32)> {
        let mut control = self.control();
        loop {
            if control.destroyed {
                return None;
            }
            if control.scheduled && !control.asleep && control.dead.is_none() && control.rung {
                let put = self.setup.userd.read_u32(GP_PUT).unwrap_or(0);
                if put != control.get {
                    return Some((control.get, put));
                }
                control.rung = false;
            }
            control = self.wake.wait(control).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until `ready` returns true, polling; other channels run meanwhile.
    ///
    /// # Errors
    /// `Err(None)` when the channel was taken away, `Err(Some(e))` when `ready` fails.
    pub(crate) fn wait_until<E>(&self, mut ready: impl FnMut() -> Result<bool, E>) -> Result<(), Option<E>> {
        let (mut looks, mut nap) = (0, NAP);
        loop {
            let (gone, scheduled) = {
                let control = self.control();
                (control.destroyed || control.dead.is_some(), control.scheduled && !control.asleep)
            };
            if gone {
                return Err(None);
            }
            if scheduled && ready().map_err(Some)? {
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

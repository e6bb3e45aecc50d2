//! A channel driven by raw methods, and memory that both sides see: below the device, above the driver.

use crate::ladder::Climb;
use doorbell::device::nv::{Bo, Channel, Core, Group, Notification, Placement, code_name, describe};
use doorbell::hcq::memory::View;
use doorbell::hcq::packet::GpuVa;
use doorbell::hcq::packet::nv::{Entry, PushBuffer, Writes};
use hw_contact::{Failure, fail};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of a lane's ring of push buffers.
const PUSH_BYTES: u64 = 64 << 10;
/// Methods that a failure shows.
const SHOWN_WRITES: usize = 40;

/// A buffer of the host with its view.
pub struct Shared {
    pub bo: Bo,
    pub view: View,
}

impl Shared {
    /// # Errors
    /// The driver's.
    pub fn new(core: &Core, what: &'static str, len_bytes: u64) -> Result<Self, Failure> {
        let (bo, view) = core.shared_bo(what, len_bytes)?;
        Ok(Self { bo, view })
    }

    pub fn va(&self) -> u64 {
        self.bo.va()
    }

    /// The word at a byte offset.
    ///
    /// # Errors
    /// A place outside.
    pub fn wide(&self, at: u64) -> Result<u64, Failure> {
        let mut bytes = [0; 8];
        self.view.read(at, &mut bytes).map_err(fail)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// # Errors
    /// As [`Shared::wide`].
    pub fn put(&self, at: u64, bytes: &[u8]) -> Result<(), Failure> {
        self.view.write(at, bytes).map_err(fail)
    }
}

/// A channel, its push buffers, and a page of words that it writes.
pub struct Lane {
    core: Arc<Core>,
    pub channel: Channel,
    push: Shared,
    /// Offset of the next push buffer.
    at: u64,
    pub page: Shared,
    patience: Duration,
    /// The last list, for the report of what was not executed.
    last: Vec<u32>,
}

impl Lane {
    /// A channel of a group whose engine has objects of `class`.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(climb: &Climb, group: &Arc<Group>, class: u32) -> Result<Self, Failure> {
        let core = Arc::clone(climb.core()?);
        let channel = Channel::new(&core, group, class)?;
        let push = Shared::new(&core, "push buffers", PUSH_BYTES)?;
        let page = Shared::new(&core, "words", 4096)?;
        Ok(Self { core, channel, push, at: 0, page, patience: climb.patience(), last: Vec::new() })
    }

    /// Submits a list without waiting.
    ///
    /// # Errors
    /// A list that does not fit.
    pub fn send(&mut self, list: &PushBuffer) -> Result<(), Failure> {
        let bytes: Vec<u8> = list.words().iter().flat_map(|w| w.to_le_bytes()).collect();
        if self.at + bytes.len() as u64 > PUSH_BYTES {
            self.at = 0;
        }
        self.push.put(self.at, &bytes)?;
        let va = GpuVa(self.push.va() + self.at);
        let count = u32::try_from(list.words().len()).map_err(fail)?;
        self.at += (bytes.len() as u64).next_multiple_of(16);
        self.channel.push(Entry::fetch(va, count).emit().map_err(fail)?);
        self.channel.publish();
        self.last = list.words().to_vec();
        Ok(())
    }

    /// Waits until a word of the page is what it should become.
    ///
    /// # Errors
    /// The deadline, or the channel's death, with all that is known.
    pub fn until(&self, at: u64, wanted: u64, what: &str) -> Result<(), Failure> {
        let deadline = Instant::now() + self.patience;
        loop {
            let seen = self.page.wide(at)?;
            if seen == wanted {
                return Ok(());
            }
            let dead = Notification::read(self.channel.notifier());
            if dead.is_some() || Instant::now() >= deadline {
                let waited = self.patience.as_secs();
                let story = match dead {
                    Some(died) => describe(&self.core, self.channel.handle(), None, &died),
                    None => format!("the notifier is clean, {seen:#x} instead of {wanted:#x} after {waited} s"),
                };
                return Err(self.stuck(format!("{what}: {story}"), dead));
            }
            std::thread::yield_now();
        }
    }

    /// A list, then the word that it ends with.
    ///
    /// # Errors
    /// As `send` and `until`.
    pub fn run(&mut self, list: &PushBuffer, at: u64, wanted: u64, what: &str) -> Result<(), Failure> {
        self.send(list)?;
        self.until(at, wanted, what)
    }

    fn stuck(&self, what: String, dead: Option<Notification>) -> Failure {
        let (get, put) = self.channel.pointers();
        let mut packets = vec![format!("token {:#x}, GP_GET {get}, GP_PUT {put}", self.channel.token())];
        if let Some(died) = dead {
            packets.push(format!("error {} ({}), engine {:#x}", died.code, code_name(died.code), died.engine));
        }
        if let Ok(ns) = self.core.gpu.register_time_ns() {
            packets.push(format!("the GPU's clock reads {ns} ns"));
        }
        let methods = Writes::of(&self.last).take(SHOWN_WRITES);
        packets.extend(methods.map(|w| w.map_or_else(|e| e.to_string(), |w| w.describe())));
        Failure { what, packets }
    }
}

/// Channels created directly.
pub struct Raw {
    pub compute: Lane,
    /// Freed after the channel.
    pub _group: Arc<Group>,
}

/// Words that differ at each place.
pub fn pattern(len_bytes: usize, seed: u32) -> Vec<u8> {
    let word = |i: u32| i.wrapping_mul(0x9e37_79b9) ^ seed;
    (0..len_bytes.div_ceil(4) as u32).flat_map(|i| word(i).to_le_bytes()).take(len_bytes).collect()
}

/// A memory that only the GPU sees.
///
/// # Errors
/// The driver's.
pub fn vram(core: &Core, len_bytes: u64) -> Result<Bo, Failure> {
    Ok(core.own_bo("copies", len_bytes, Placement::Vram)?)
}

//! A queue driven by raw packets, and memory that both sides see: below the device, above the driver.

use crate::explain::{Failure, fail};
use crate::ladder::Climb;
use doorbell::device::amd::{Bo, HwRing, Placement, RingKind};
use doorbell::hcq::memory::View;
use std::time::{Duration, Instant};

/// A buffer of the host with its view.
pub struct Shared {
    pub bo: Bo,
    pub view: View,
}

impl Shared {
    /// # Errors
    /// The driver's.
    pub fn new(climb: &Climb, what: &'static str, len_bytes: u64) -> Result<Self, Failure> {
        let bo = climb.core()?.own_bo(what, len_bytes, Placement::Host)?;
        let view = bo.view().map_err(fail)?;
        Ok(Self { bo, view })
    }

    pub fn va(&self) -> u64 {
        self.bo.va()
    }

    /// The dword at a byte offset.
    ///
    /// # Errors
    /// A place outside.
    pub fn word(&self, at: u64) -> Result<u32, Failure> {
        let mut bytes = [0; 4];
        self.view.read(at, &mut bytes).map_err(fail)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// # Errors
    /// As [`Shared::word`].
    pub fn wide(&self, at: u64) -> Result<u64, Failure> {
        let mut bytes = [0; 8];
        self.view.read(at, &mut bytes).map_err(fail)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// # Errors
    /// As [`Shared::word`].
    pub fn put(&self, at: u64, bytes: &[u8]) -> Result<(), Failure> {
        self.view.write(at, bytes).map_err(fail)
    }
}

/// A ring of one kind.
pub struct Queue {
    ring: HwRing,
    patience: Duration,
}

impl Queue {
    /// # Errors
    /// The driver's.
    pub fn new(climb: &Climb, kind: RingKind) -> Result<Self, Failure> {
        Ok(Self { ring: HwRing::new(climb.core()?, kind, None)?, patience: climb.patience() })
    }

    /// Submits packets; waits for room.
    ///
    /// # Errors
    /// A ring that stays full.
    pub fn push(&mut self, words: &[u32]) -> Result<(), Failure> {
        let deadline = Instant::now() + self.patience;
        while !self.ring.push(words)? {
            if Instant::now() >= deadline {
                return Err(self.stuck("the ring stayed full".into()));
            }
            std::thread::yield_now();
        }
        self.ring.publish();
        Ok(())
    }

    /// Waits until a dword is what it should become.
    ///
    /// # Errors
    /// The deadline, with the contents of the ring.
    pub fn until(&self, memory: &Shared, at: u64, wanted: u32, what: &str) -> Result<(), Failure> {
        let deadline = Instant::now() + self.patience;
        loop {
            let seen = memory.word(at)?;
            if seen == wanted {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let waited = self.patience.as_secs();
                return Err(self.stuck(format!("{what}: {seen:#x} instead of {wanted:#x} after {waited} s")));
            }
            std::thread::yield_now();
        }
    }

    /// Packets, then the dword that they end with.
    ///
    /// # Errors
    /// As `push` and `until`.
    pub fn run(&mut self, words: &[u32], memory: &Shared, at: u64, wanted: u32, what: &str) -> Result<(), Failure> {
        self.push(words)?;
        self.until(memory, at, wanted, what)
    }

    fn stuck(&self, what: String) -> Failure {
        let (get, put) = self.ring.positions();
        let mut packets = vec![format!("read pointer {get}, write pointer {put}")];
        packets.extend(self.ring.tail());
        Failure { what, packets }
    }
}

//! A channel: its push buffer, the entries of its ring, GPPut and the doorbell.

use super::client::Buffer;
use crate::case::Step;
use doorbell_ioctl::port::{Doorbell, drain_stores};

/// Entries of a case's rings.
pub(crate) const ENTRIES: u32 = 64;

/// A channel ready for work.
pub(crate) struct Channel {
    /// Handle.
    pub handle: u32,
    /// Its group's.
    pub group: u32,
    /// GPFIFO entries, then USERD.
    pub ring: Buffer,
    /// Its error record.
    pub notifier: Buffer,
    pub(super) push: Buffer,
    /// Next entry.
    pub put: u32,
    pub(super) at: u64,
    pub(super) doorbell: Doorbell,
    pub(super) token: u32,
}

impl Channel {
    /// A push buffer and its entry, no doorbell.
    ///
    /// # Errors
    /// The buffer's end.
    pub(crate) fn push(&mut self, words: &[u32]) -> Step {
        let bytes = words.len() as u64 * 4;
        if self.at + bytes > self.push.view.len_bytes() {
            self.at = 0;
        }
        for (n, word) in (0..).zip(words) {
            self.push.view.write_u32(self.at + n * 4, *word)?;
        }
        let va = self.push.va + self.at;
        self.at += bytes;
        self.entry([va as u32, (va >> 32) as u32 | (words.len() as u32) << 10])
    }

    /// An entry of the ring.
    ///
    /// # Errors
    /// The ring's end.
    pub(crate) fn entry(&mut self, words: [u32; 2]) -> Step {
        for (n, word) in (0..).zip(words) {
            self.ring.view.write_u32(u64::from(self.put) * 8 + n * 4, word)?;
        }
        self.put = (self.put + 1) % ENTRIES;
        Ok(())
    }

    /// GPPut and doorbell.
    ///
    /// # Errors
    /// None, as USERD is there.
    pub(crate) fn ring(&self) -> Step {
        // ORDER: VRAM is write-combined; entries and what they name come before GPPut, and GPPut before the doorbell.
        drain_stores();
        self.ring.view.write_u32(u64::from(ENTRIES) * 8 + 0x8c, self.put)?;
        drain_stores();
        self.doorbell.ring(self.token.into());
        Ok(())
    }

    /// Push buffer, entry, doorbell.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn submit(&mut self, words: &[u32]) -> Step {
        self.push(words)?;
        self.ring()
    }

    /// GPGet in USERD.
    ///
    /// # Errors
    /// None, as USERD is there.
    pub(crate) fn get(&self) -> Step<u32> {
        Ok(self.ring.view.read_u32(u64::from(ENTRIES) * 8 + 0x88)?)
    }
}

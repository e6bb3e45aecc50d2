//! The queue builder: calls that say one hardware action each become dwords of a packet set.
//!
//! Place in the arrows: `device` builds lists with it, sends them through a ring or freezes them ([`Queue::bind`]).
//! A packet set ([`Packets`]) is one module of `hcq::packet`; the builder is the same for all. Fences are explicit: nothing is added.

use super::bits::FieldOverflow;
use super::kernargs::KernargsError;
use super::memory::{MemError, View};
use super::packet::EmitError;
use super::signal::{Signal, WaitError};

/// Why a list could not be built or sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    #[error(transparent)]
    Field(#[from] FieldOverflow),
    #[error(transparent)]
    Packet(#[from] EmitError),
    #[error(transparent)]
    Mem(#[from] MemError),
    #[error(transparent)]
    Kernargs(#[from] KernargsError),
    #[error(transparent)]
    Wait(#[from] WaitError),
    #[error("{queue} queue cannot {what}")]
    Unsupported { queue: &'static str, what: &'static str },
    #[error("patch of argument {arg} of command {command}: the recorded list has no such place")]
    Patch { command: usize, arg: usize },
}

/// What one family of queues can encode. Addresses are as the queue's engine sees them.
pub trait Packets {
    /// What a launch needs beyond the queue: code, kernargs, geometry.
    type Launch;
    /// Stall the queue until the signal has `value` or more.
    ///
    /// # Errors
    /// `Field` when a value does not fit its packet; so for all methods here.
    fn wait(&self, out: &mut Vec<u32>, signal: &Signal, value: u64) -> Result<(), SubmitError>;
    /// Store `value` to the signal when all before is done.
    fn signal(&self, out: &mut Vec<u32>, signal: &Signal, value: u64) -> Result<(), SubmitError>;
    /// Store the engine's time to the signal.
    fn timestamp(&self, out: &mut Vec<u32>, signal: &Signal) -> Result<(), SubmitError>;
    /// Make stores of kernels before visible to kernels after.
    fn memory_barrier(&self, out: &mut Vec<u32>) -> Result<(), SubmitError>;
    /// Launch a kernel.
    fn exec(&self, out: &mut Vec<u32>, launch: &Self::Launch) -> Result<(), SubmitError>;
    /// Copy bytes.
    fn copy(&self, out: &mut Vec<u32>, dst: u64, src: u64, len_bytes: u64) -> Result<(), SubmitError>;
    /// Copy bytes; destination, source and length stand in kernargs.
    fn copy_args(&self, out: &mut Vec<u32>, kernargs: u64) -> Result<(), SubmitError>;
    /// Run frozen words.
    fn indirect(&self, out: &mut Vec<u32>, words: u64, count_dwords: u32, kernargs: u64) -> Result<(), SubmitError>;
    /// The packets in `words` as text, for reports and traces.
    fn describe(&self, words: &[u32]) -> Vec<String>;
}

/// A list of packets being built.
#[derive(Clone, Debug, Default)]
pub struct Queue<P: Packets> {
    packets: P,
    words: Vec<u32>,
}

impl<P: Packets> Queue<P> {
    pub fn new(packets: P) -> Self {
        Self { packets, words: Vec::new() }
    }

    /// The dwords so far.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Forgets the dwords and keeps their room.
    pub fn clear(&mut self) {
        self.words.clear();
    }

    /// See [`Packets::wait`].
    ///
    /// # Errors
    /// `Field`; so for all methods here.
    pub fn wait(&mut self, signal: &Signal, value: u64) -> Result<&mut Self, SubmitError> {
        self.packets.wait(&mut self.words, signal, value)?;
        Ok(self)
    }

    /// See [`Packets::signal`].
    pub fn signal(&mut self, signal: &Signal, value: u64) -> Result<&mut Self, SubmitError> {
        self.packets.signal(&mut self.words, signal, value)?;
        Ok(self)
    }

    /// See [`Packets::timestamp`].
    pub fn timestamp(&mut self, signal: &Signal) -> Result<&mut Self, SubmitError> {
        self.packets.timestamp(&mut self.words, signal)?;
        Ok(self)
    }

    /// See [`Packets::memory_barrier`].
    pub fn memory_barrier(&mut self) -> Result<&mut Self, SubmitError> {
        self.packets.memory_barrier(&mut self.words)?;
        Ok(self)
    }

    /// See [`Packets::exec`].
    pub fn exec(&mut self, launch: &P::Launch) -> Result<&mut Self, SubmitError> {
        self.packets.exec(&mut self.words, launch)?;
        Ok(self)
    }

    /// See [`Packets::copy`].
    pub fn copy(&mut self, dst: u64, src: u64, len_bytes: u64) -> Result<&mut Self, SubmitError> {
        self.packets.copy(&mut self.words, dst, src, len_bytes)?;
        Ok(self)
    }

    /// See [`Packets::copy_args`].
    pub fn copy_args(&mut self, kernargs: u64) -> Result<&mut Self, SubmitError> {
        self.packets.copy_args(&mut self.words, kernargs)?;
        Ok(self)
    }

    /// Runs frozen words with a kernargs base.
    pub fn replay(&mut self, bound: &Bound, kernargs: u64) -> Result<&mut Self, SubmitError> {
        self.packets.indirect(&mut self.words, bound.view.base().0, bound.count_dwords, kernargs)?;
        Ok(self)
    }

    /// Freezes the list in host memory: from now on one packet runs it.
    pub fn bind(&self) -> Result<Bound, SubmitError> {
        let view = View::anonymous(self.words.len() as u64 * 4, 64)?;
        view.write(0, bytemuck::cast_slice(&self.words))?;
        let count_dwords = u32::try_from(self.words.len()).map_err(|_| FieldOverflow {
            field: "count_dwords",
            value: self.words.len() as u64,
            max: u64::from(u32::MAX),
        })?;
        Ok(Bound { view, count_dwords })
    }
}

/// A frozen list. Its words never change; what a replay changes stands in kernargs.
#[derive(Clone, Debug)]
pub struct Bound {
    view: View,
    count_dwords: u32,
}

impl Bound {
    /// Address of the first dword in this process.
    #[must_use]
    pub fn va(&self) -> u64 {
        self.view.base().0
    }

    #[must_use]
    pub fn count_dwords(&self) -> u32 {
        self.count_dwords
    }
}

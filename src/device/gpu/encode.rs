//! The traits that a vendor implements for GPU queues: the open device, packets and their ring, and how the host waits.
//!
//! Layer: implemented by `device::amd` and `device::nv`, called only by [`GpuQueue`].

use super::queue::GpuQueue;
use super::staging::SharedBuffer;
use crate::health::Health;
use crate::{Arg, DeviceError, DeviceTag, Geometry};
use doorbell_hcq::signal::{Report, Signal, Timeline};
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// The state that the queues of one open GPU share.
pub(crate) trait GpuCore: Debug + Send + Sync + 'static {
    fn tag(&self) -> &DeviceTag;
    fn health(&self) -> &Health;
    /// How long a submission waits for ring space, and a host copy for a staging buffer.
    fn submit_timeout(&self) -> Duration;
    /// How long a wait spins before it sleeps.
    fn spin(&self) -> Duration;
    /// Bytes of each of the two staging buffers.
    fn staging_bytes(&self) -> u64;
    /// Whether the signal lies in this device's pages, where its queues can wait for it.
    fn has_signal(&self, signal: &Signal) -> bool;

    /// Maps the signal of another device of the same driver for this device's queues; what keeps it there, or `None`
    /// if the driver has no such signal, or the device cannot reach it.
    fn peer_signal(&self, signal: &Signal) -> Option<Arc<dyn Any + Send + Sync>>;

    /// Maps memory of another device of the same driver for this device. Returns `false` if the driver has no buffer at
    /// the address.
    ///
    /// # Errors
    /// The driver's.
    fn map_peer(&self, va: u64) -> Result<bool, DeviceError>;

    /// Allocates a buffer that is mapped for both host and device.
    ///
    /// # Errors
    /// The driver's.
    fn shared_buffer(&self, what: &'static str, len_bytes: u64) -> Result<SharedBuffer, DeviceError>;

    /// Chip and driver, for a report.
    fn platform(&self) -> String;

    /// The driver's last calls, for a report.
    fn last_calls(&self) -> String;

    /// # Errors
    /// `Unavailable` after a fault, `Closed`.
    fn check_open(&self) -> Result<(), DeviceError> {
        self.health().check(self.tag().name())
    }

    fn cannot(&self, what: String) -> DeviceError {
        DeviceError::Unsupported { device: self.tag().name().into(), what }
    }
}

/// A vendor's part of a loaded kernel.
pub(crate) trait GpuProgram: Any + Send + Sync {
    fn name(&self) -> &Arc<str>;
    /// Address of the first instruction.
    fn entry(&self) -> u64;
    /// Bytes of private memory (scratch, local memory) that a work-item needs.
    fn private_bytes(&self) -> u32;
}

/// The submission being encoded: its device, its timeline, and the value that it will signal.
#[derive(Debug)]
pub(crate) struct SubmitContext<'a, C> {
    pub core: &'a C,
    pub timeline: &'a Arc<Timeline>,
    pub value: u64,
}

/// The vendor's part of a queue under its lock: a list of packets (or methods) under construction, and the ring that it
/// is submitted to.
///
/// For each submission: `begin`, `open`, a `wait` for each signal, `acquire`, the commands, `seal`, and `push` until
/// everything is in the ring. A list may be abandoned before `push`; the next `begin` then discards it.
pub(crate) trait Encode: Debug + Send + Sized + 'static {
    type Core: GpuCore;
    type Program: GpuProgram;
    type Watch: Watch<Self>;

    /// Begins a list; any submission after `submitted` was abandoned.
    fn begin(&mut self, core: &Self::Core, submitted: u64);

    /// Whether private memory is large enough for kernels with `bytes` per work-item.
    fn holds_private(&self, bytes: u32) -> bool;

    /// Grows private memory to at least `bytes` per work-item. The queue must be idle.
    ///
    /// # Errors
    /// `OutOfMemory`.
    fn grow_private(&mut self, core: &Self::Core, bytes: u32) -> Result<(), DeviceError>;

    /// Emits the engine's initial set-up, if it is still needed.
    ///
    /// # Errors
    /// `Unsupported` for a value that the timeline's packets cannot hold.
    fn open(&mut self, context: &SubmitContext<'_, Self::Core>) -> Result<(), DeviceError>;

    /// Stalls the queue until the signal is at least `value`. Returns `false` if no packet can wait for that value.
    ///
    /// # Errors
    /// A packet field that does not fit.
    fn wait(&mut self, signal: &Signal, value: u64) -> Result<bool, DeviceError>;

    /// Makes others' writes and new code visible to the following commands.
    ///
    /// # Errors
    /// As `wait`.
    fn acquire(&mut self, core: &Self::Core) -> Result<(), DeviceError>;

    /// Stores the time to the signal, after all earlier work.
    ///
    /// # Errors
    /// As `wait`.
    fn timestamp(&mut self, signal: &Signal) -> Result<(), DeviceError>;

    /// Launches a kernel after all earlier work; the geometry is not empty. For compute queues.
    ///
    /// # Errors
    /// `Unsupported` for a launch that the kernel or the chip does not support; `Wait` if no room becomes free.
    fn exec(
        &mut self,
        context: &SubmitContext<'_, Self::Core>,
        program: &Self::Program,
        args: &[Arg],
        geometry: &Geometry,
    ) -> Result<(), DeviceError>;

    /// Copies between addresses. For copy queues.
    ///
    /// # Errors
    /// As `wait`.
    fn copy(
        &mut self,
        context: &SubmitContext<'_, Self::Core>,
        dst: u64,
        src: u64,
        len_bytes: u64,
    ) -> Result<(), DeviceError>;

    /// Ends the list with the timeline's signal, after all earlier work. Afterwards, only a ring that stays full can
    /// make the submission fail.
    ///
    /// # Errors
    /// `Wait` if no room becomes free, `Unsupported` for a list that can never fit.
    fn seal(&mut self, context: &SubmitContext<'_, Self::Core>) -> Result<(), DeviceError>;

    /// Moves as much as fits to the ring and publishes it to the GPU (pointer, then doorbell). Returns whether that was
    /// everything.
    ///
    /// # Errors
    /// In theory only: an access outside the ring's own view.
    fn push(&mut self, context: &SubmitContext<'_, Self::Core>) -> Result<bool, DeviceError>;

    /// The ring's state for a report: pointers, packets that the GPU has not read, and notes.
    fn report(&self, timeline: &Timeline) -> Report;
}

/// The vendor's part of a queue outside its lock: how a waiting host sleeps and checks for faults.
pub(crate) trait Watch<E: Encode>: Debug + Send + Sync {
    /// A host's state between sleeps.
    type Nap: Default;

    /// Checks whether the driver has reported a fault; if so, sets it.
    fn look(&self, queue: &GpuQueue<E>);

    /// As `look`, for a host that never sleeps, where it is a sleep that brings the driver's report.
    fn look_awake(&self, queue: &GpuQueue<E>) {
        self.look(queue);
    }

    /// Sleeps for `left` at most, or until something may have happened. Returns whether to check for errors at once.
    fn sleep(&self, queue: &GpuQueue<E>, value: u64, nap: &mut Self::Nap, left: Duration) -> bool;

    /// Why nothing wakes a host that sleeps, if so: it then polls.
    fn lacks_wakes(&self, _queue: &GpuQueue<E>) -> Option<String> {
        None
    }

    /// Ends the queue, even if it is running: first its ring, then the driver's objects that the watch holds.
    ///
    /// # Errors
    /// The driver's.
    fn end(&self, core: &E::Core, encoder: E) -> Result<(), DeviceError>;
}

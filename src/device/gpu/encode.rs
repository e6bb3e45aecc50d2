//! What a vendor adds to a GPU's queue: the open device, its packets and their ring, and how the host waits.
//!
//! Place in the arrows: implemented by `device::amd` and `device::nv`, called by [`GpuQueue`] alone.

use super::health::Health;
use super::queue::GpuQueue;
use super::staging::SharedBuffer;
use crate::{Arg, DeviceError, DeviceTag, Geometry};
use doorbell_hcq::signal::{Report, Signal, Timeline};
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// What the queues of one open GPU share.
pub trait GpuCore: Debug + Send + Sync + 'static {
    fn tag(&self) -> &DeviceTag;
    fn health(&self) -> &Health;
    /// How long a submission waits for room, and a host copy for its staging buffer.
    fn submit_timeout(&self) -> Duration;
    /// How long a wait spins before it sleeps.
    fn spin(&self) -> Duration;
    /// Bytes of each of the two staging buffers.
    fn staging_bytes(&self) -> u64;
    /// Whether the signal lies in this device's pages, where its queues can wait for it.
    fn has_signal(&self, signal: &Signal) -> bool;

    /// Lets this device reach the memory at an address of another device of its driver; `false`: the driver knows of
    /// none there.
    ///
    /// # Errors
    /// The driver's.
    fn map_peer(&self, va: u64) -> Result<bool, DeviceError>;

    /// A buffer that both sides see.
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
pub trait GpuProgram: Any + Send + Sync {
    fn name(&self) -> &Arc<str>;
    /// Address of the first instruction.
    fn entry(&self) -> u64;
    /// Memory of its own that a work-item needs (scratch, local memory).
    fn private_bytes(&self) -> u32;
}

/// The submission that is being encoded: on which device and timeline, and the value that it will signal.
#[derive(Debug)]
pub struct SubmitContext<'a, C> {
    pub core: &'a C,
    pub timeline: &'a Arc<Timeline>,
    pub value: u64,
}

/// What a vendor adds under a queue's lock: a list of packets (or methods) that is being made, and the ring that takes
/// it.
///
/// For each submission: `begin`, `open`, a `wait` for each signal, `acquire`, the commands, `seal`, and `push` until
/// all is in the ring. A list may be given up before `push`: the next `begin` then forgets what it held.
pub trait Encode: Debug + Send + Sized + 'static {
    type Core: GpuCore;
    type Program: GpuProgram;
    type Watch: Watch<Self>;

    /// Begins a list; submissions after `submitted` were given up.
    fn begin(&mut self, core: &Self::Core, submitted: u64);

    /// Whether kernels of `bytes` of private memory a work-item can run as it is.
    fn holds_private(&self, bytes: u32) -> bool;

    /// Makes private memory large enough. The queue is idle.
    ///
    /// # Errors
    /// `OutOfMemory`.
    fn grow_private(&mut self, core: &Self::Core, bytes: u32) -> Result<(), DeviceError>;

    /// What the engine must know before anything else.
    ///
    /// # Errors
    /// `Unsupported` for a value that the timeline's packets cannot hold.
    fn open(&mut self, context: &SubmitContext<'_, Self::Core>) -> Result<(), DeviceError>;

    /// Stalls the queue until the signal has `value` or more; `false`: no packet can wait for that value.
    ///
    /// # Errors
    /// A field that does not fit; so for all packets.
    fn wait(&mut self, signal: &Signal, value: u64) -> Result<bool, DeviceError>;

    /// What others wrote, and new code, is seen from here on.
    ///
    /// # Errors
    /// As `wait`.
    fn acquire(&mut self, core: &Self::Core) -> Result<(), DeviceError>;

    /// Stores the time to the signal, after all before.
    ///
    /// # Errors
    /// As `wait`.
    fn timestamp(&mut self, signal: &Signal) -> Result<(), DeviceError>;

    /// A launch, after all before, of a grid that is not empty. Compute queues.
    ///
    /// # Errors
    /// `Unsupported` for a launch that the kernel or the chip does not take; `Wait` for room.
    fn exec(
        &mut self,
        context: &SubmitContext<'_, Self::Core>,
        program: &Self::Program,
        args: &[Arg],
        geometry: &Geometry,
    ) -> Result<(), DeviceError>;

    /// A copy between addresses. Copy queues.
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

    /// Ends the list: the timeline's signal after all before. Afterwards nothing but a ring that stays full can keep it
    /// from the GPU.
    ///
    /// # Errors
    /// `Wait` for room, `Unsupported` for what never has room.
    fn seal(&mut self, context: &SubmitContext<'_, Self::Core>) -> Result<(), DeviceError>;

    /// Moves what has room to the ring and shows it to the GPU (pointer, then doorbell); whether that was all.
    ///
    /// # Errors
    /// None but a ring's own view.
    fn push(&mut self, context: &SubmitContext<'_, Self::Core>) -> Result<bool, DeviceError>;

    /// The ring for a report: pointers, what the GPU has not read, and notes.
    fn report(&self, timeline: &Timeline) -> Report;
}

/// What a vendor adds beside a queue's lock: a host that waits sleeps, and looks for faults.
pub trait Watch<E: Encode>: Debug + Send + Sync {
    /// A host's state between sleeps.
    type Nap: Default;

    /// Looks whether the driver has reported a fault, and sets it.
    fn look(&self, queue: &GpuQueue<E>);

    /// Sleeps for `left` at most, or until something may have happened; whether errors should be looked for at once.
    fn sleep(&self, queue: &GpuQueue<E>, value: u64, nap: &mut Self::Nap, left: Duration) -> bool;

    /// Ends the queue, running or not: first its ring, then what the watch holds of the driver.
    ///
    /// # Errors
    /// The driver's.
    fn end(&self, core: &E::Core, encoder: E) -> Result<(), DeviceError>;
}

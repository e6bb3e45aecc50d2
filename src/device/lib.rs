//! Devices: one folder each, one trait over all, and the registry that opens them by name. `gpu` is what all GPUs have in common,
//! `in_flight` what every queue remembers of its submissions.
//!
//! Place in the arrows: `engine` decides what to run and calls [`Device`]; a device turns [`Command`]s into packets of `hcq`, loads images of
//! `elf`, and reaches kernel drivers through `ioctl`. Source: HCQ's device contract; `docs/custom-device.md` walks through it.
//! A CPU kernel is `extern "C" fn kernel(args: *const u64, tid: u64)`: `args[i]` is a buffer's address or a variable's i64 bits.
//! A GPU kernel runs the workgroups of its [`Geometry`] and finds its arguments in a block at their natural alignment, in order.

#[cfg(feature = "amd")]
pub mod amd;
pub mod command;
pub mod cpu;
pub mod disk;
mod error;
#[cfg(any(feature = "amd", feature = "nv"))]
// With one vendor alone, what only the other one uses is not used.
#[cfg_attr(not(all(feature = "amd", feature = "nv")), allow(dead_code))]
mod gpu;
mod in_flight;
pub mod memory;
pub mod null;
#[cfg(feature = "nv")]
pub mod nv;
mod record;
pub mod registry;
mod timing;

pub use command::{Arg, Code, Command, Geometry, Kernel, KernelImage, Patch, Stamp};
pub use error::DeviceError;
pub use memory::{Memory, MemoryParts, Place, Release, Uses};
pub use record::record_by_resubmission;
pub use registry::{DeviceListing, DeviceOptions, Registry, open};
pub use timing::time_command;

use doorbell_hcq::signal::Point;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Names one open device: a number of its own and a name for people. Cheap to clone and to compare.
#[derive(Clone)]
pub struct DeviceTag {
    id: u32,
    name: Arc<str>,
}

impl DeviceTag {
    /// A tag unlike any other of this process.
    #[must_use]
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Self { id: NEXT.fetch_add(1, Ordering::Relaxed), name: name.into() }
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl PartialEq for DeviceTag {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for DeviceTag {}

impl fmt::Display for DeviceTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for DeviceTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.name, self.id)
    }
}

/// Facts about an open device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// What code must be made for: `x86_64-avx512`, `gfx1100`, `sm_90`; empty where no kernel runs.
    pub arch: String,
    /// Cores (or compute units) that a kernel is spread over.
    pub threads: u32,
    /// Memory of the device in bytes, 0 where that has no meaning.
    pub memory_bytes: u64,
}

/// Which of a device's queues. Each is in order by itself; between them, memories and [`Command::Wait`] order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum QueueKind {
    #[default]
    Compute,
    /// Copies only; runs beside kernels. A device without one uses its compute queue.
    Copy,
}

/// A device. Handles it gives out ([`Memory`], [`Kernel`], recorded lists) stay valid while they live, also past `close`, though no work
/// is done after that.
///
/// Ordering: a submission waits by itself for submissions of other queues and devices that use the same memories, and host copies
/// wait for the memory's last use. So a program that only shares memories needs no waits of its own.
pub trait Device: Send + Sync + fmt::Debug {
    /// Name and identity.
    fn tag(&self) -> &DeviceTag;

    /// What it is.
    fn info(&self) -> &DeviceInfo;

    /// Whether kernels run. A device on which none does takes any code, or none, and only claims its arch.
    fn executes(&self) -> bool {
        true
    }

    /// Memory of at least `len_bytes` bytes, aligned to 64; its contents are unspecified. Zero bytes give a memory of none.
    ///
    /// # Errors
    /// `OutOfMemory`, `TooBig`, `Closed`.
    fn alloc(&self, len_bytes: u64) -> Result<Memory, DeviceError>;

    /// Host bytes into memory, after all submitted work that uses it.
    ///
    /// # Errors
    /// `Range`, `WrongDevice`, `Wait` when that work does not end.
    fn copy_in(&self, dst: &Memory, offset: u64, src: &[u8]) -> Result<(), DeviceError>;

    /// Memory into host bytes, after all submitted work that uses it.
    ///
    /// # Errors
    /// As `copy_in`.
    fn copy_out(&self, src: &Memory, offset: u64, dst: &mut [u8]) -> Result<(), DeviceError>;

    /// Places the images in executable memory, all in one batch (one change of protection for all), in their order.
    /// The caller vouches for the code: it runs with the device's rights and no check.
    ///
    /// # Errors
    /// `Load` names the image that is malformed, for another machine, or without its entry.
    fn load(&self, images: &[KernelImage<'_>]) -> Result<Vec<Kernel>, DeviceError>;

    /// Queues commands and returns without waiting for them: encode, ring, doorbell.
    ///
    /// # Errors
    /// `WrongDevice`, `Range`, `Closed`; `Submit` when the queue stayed full for the device's submit timeout. On an error nothing was queued.
    fn submit(&self, queue: QueueKind, commands: &[Command]) -> Result<Point, DeviceError>;

    /// Encodes commands once, to be replayed many times. `Wait` has no place in it.
    ///
    /// # Errors
    /// As `submit`, and `Unsupported` for a `Wait`.
    fn record(&self, commands: &[Command]) -> Result<Box<dyn Recorded>, DeviceError>;

    /// A pair of times for [`Command::stamped`].
    ///
    /// # Errors
    /// `Memory` when there is no room for its signals.
    fn stamp(&self) -> Result<Stamp, DeviceError>;

    /// Whether [`Command::Copy`] on this device may name that memory although it is another device's.
    fn reaches(&self, memory: &Memory) -> bool {
        memory.device() == self.tag()
    }

    /// How long the engine waits for work before it calls the device hung.
    fn patience(&self) -> Duration {
        Duration::from_secs(30) // TIMEOUT: the field's usual patience with a hung device.
    }

    /// Waits for a point on any queue.
    ///
    /// # Errors
    /// `Wait`: past the deadline, with a report; or because the queue has ended.
    fn wait(&self, point: &Point, timeout: Duration) -> Result<(), DeviceError> {
        Ok(point.wait(timeout)?)
    }

    /// Waits for all work submitted so far, on all queues of the device.
    ///
    /// # Errors
    /// As `wait`.
    fn synchronize(&self, timeout: Duration) -> Result<(), DeviceError>;

    /// Bytes of live memories.
    fn memory_used(&self) -> u64;

    /// What the driver says of the device now: free memory, clocks, temperature, errors. Nothing where there is nobody to ask.
    fn state(&self) -> Option<DeviceState> {
        None
    }

    /// Waits for the queued work, ends the device's threads and refuses work from then on. Closing twice is fine.
    ///
    /// # Errors
    /// `Wait` when the queued work does not end; the device is closed nevertheless.
    fn close(&self) -> Result<(), DeviceError>;
}

/// What a driver says of a device, as a line and as data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceState {
    pub line: String,
    pub values: serde_json::Value,
}

/// A list of commands encoded once.
pub trait Recorded: Send + fmt::Debug {
    /// Applies the patches and runs the list once, in order with the device's compute queue.
    ///
    /// # Errors
    /// As [`Device::submit`]; `Submit` with `Patch` for a place that the list lacks. On an error nothing ran; patches before the bad one may hold.
    fn replay(&mut self, patches: &[Patch]) -> Result<Point, DeviceError>;
}

#[cfg(doctest)]
#[doc = include_str!("README.md")]
struct Readme;

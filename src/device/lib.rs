//! Devices: one folder each, one trait for all, and the registry that opens them by name. `gpu` is shared by all GPUs;
//! `in_flight` is every queue's bookkeeping of submissions.
//!
//! Layer: `engine` decides what to run and calls [`Device`]; a device turns [`Command`]s into packets of `hcq`, loads
//! images of `elf`, and reaches kernel drivers through `ioctl`. Source: HCQ's device contract; `docs/custom-device.md`
//! walks through it.
//! A CPU kernel is `extern "C" fn kernel(args: *const u64, tid: u64)`; `args[i]` is a buffer's address or a variable's
//! i64 bits.
//! A GPU kernel runs the workgroups of its [`Geometry`] and reads its arguments from a block, in order and naturally
//! aligned.
#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

#[cfg(feature = "amd")]
pub mod amd;
mod command;
pub mod cpu;
pub mod disk;
mod error;
#[cfg(any(feature = "amd", feature = "nv"))]
// With only one vendor's feature enabled, code for the other one is unused.
#[cfg_attr(not(all(feature = "amd", feature = "nv")), allow(dead_code))]
mod gpu;
#[cfg(any(feature = "amd", feature = "nv", feature = "metal"))]
mod health;
mod host;
mod in_flight;
mod memory;
#[cfg(feature = "metal")]
pub mod metal;
pub mod null;
#[cfg(feature = "nv")]
pub mod nv;
mod record;
pub mod registry;
mod timing;

pub use command::{Arg, Code, Command, Geometry, Kernel, KernelImage, Patch, Stamp};
pub use error::DeviceError;
pub use host::{Executor, HostDevice};
pub use memory::{Location, Memory, MemoryParts, MemoryWatch, Release, Uses};
pub use record::{record_by_resubmission, record_in_order};
pub use registry::{DeviceListing, DeviceOptions, Registry, open};
pub use timing::time_command;

use doorbell_hcq::memory::View;
use doorbell_hcq::signal::Point;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Identifies one open device by a unique number, with a name for display. Cheap to clone and to compare.
#[derive(Clone)]
pub struct DeviceTag {
    id: u32,
    name: Arc<str>,
}

impl DeviceTag {
    /// A new tag, unique in this process.
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

/// Properties of an open device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The architecture to compile for: `x86_64-avx512`, `gfx1100`, `sm_90`; empty if the device runs no kernels.
    pub arch: String,
    /// Cores (or compute units) that a kernel is distributed over.
    pub threads: u32,
    /// Memory of the device in bytes; 0 if that has no meaning.
    pub memory_bytes: u64,
}

impl DeviceInfo {
    /// Whether it is a CPU: a kernel is a function of the host's, called once for each work-item.
    #[must_use]
    pub fn is_cpu(&self) -> bool {
        ["x86_64-", "aarch64-"].iter().any(|set| self.arch.starts_with(set))
    }
}

/// One of a device's queues. Each queue runs in order; shared memories and [`Command::Wait`] order work between queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum QueueKind {
    #[default]
    Compute,
    /// Copies only, concurrently with kernels. A device without a copy queue uses its compute queue.
    Copy,
    /// Copies only, by the engine of this number ([`Device::copy_engines`]), whose queue is made when it is first used.
    CopyEngine(u8),
}

impl QueueKind {
    /// Whether it takes copies only.
    #[must_use]
    pub(crate) const fn only_copies(self) -> bool {
        !matches!(self, Self::Compute)
    }

    /// For a device whose driver names no copy engines.
    ///
    /// # Errors
    /// `Unsupported` for one of them.
    pub(crate) fn check_no_engine(self, tag: &DeviceTag) -> Result<(), DeviceError> {
        if let Self::CopyEngine(number) = self { Err(no_engine(tag, number)) } else { Ok(()) }
    }
}

/// The error for a number that is not among the copy engines of a device.
#[must_use]
pub(crate) fn no_engine(tag: &DeviceTag, number: u8) -> DeviceError {
    DeviceError::Unsupported { device: tag.name().into(), what: format!("copy by an engine {number}") }
}

/// A copy engine of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyEngine {
    /// Its number in [`QueueKind::CopyEngine`], which is the driver's.
    pub number: u8,
    /// What the vendor's documents call it: `sdma0`, `xgmi0`, `ce3`.
    pub name: String,
    /// Whether it reads and writes memory of the host.
    pub reaches_host: bool,
}

/// A device. Its handles ([`Memory`], [`Kernel`], recorded lists) stay valid also after `close`, but no more work is
/// done then.
///
/// Ordering: a submission automatically waits for submissions of other queues and devices that use the same memories,
/// and host copies wait for the memory's last use. So a program that only shares memories needs no explicit waits.
pub trait Device: Send + Sync + fmt::Debug {
    /// Name and identity.
    fn tag(&self) -> &DeviceTag;

    /// Its properties.
    fn info(&self) -> &DeviceInfo;

    /// Whether kernels run. Otherwise the device accepts any code, or none, and its arch is nominal.
    fn executes(&self) -> bool {
        true
    }

    /// Memory of at least `len_bytes` bytes, aligned to 64; its contents are unspecified. Zero bytes give an empty
    /// memory.
    ///
    /// # Errors
    /// `OutOfMemory`, `TooBig`, `Closed`.
    fn alloc(&self, len_bytes: u64) -> Result<Memory, DeviceError>;

    /// Memory of the host that the device's copies and kernels reach without staging, mapped for both sides
    /// ([`Memory::host`]).
    ///
    /// # Errors
    /// `Unsupported` if the device has none; as `alloc`.
    fn alloc_pinned(&self, len_bytes: u64) -> Result<Memory, DeviceError> {
        let memory = self.alloc(len_bytes)?;
        let device = self.tag().name().into();
        let unsupported = || DeviceError::Unsupported { device, what: "share memory with the host".into() };
        if memory.host().is_some() { Ok(memory) } else { Err(unsupported()) }
    }

    /// Memory that the program has already, as memory of this device: kernels and copies work on the same bytes where
    /// they are. The returned memory keeps `host` until its last handle is dropped; until then the program must not map
    /// anything else there, and orders its accesses as with any memory mapped for both ([`Memory::host`]).
    ///
    /// GPUs reach whole pages, so the memory must start on one: of 4 KiB for AMD and NVIDIA, which take the rest of the
    /// last page along, of 16 KiB for Metal, which takes whole pages only. They need the right to write it, a CPU does
    /// not.
    ///
    /// # Errors
    /// `Unsupported` if the device has its own memory only, `Wrap` for memory that it cannot reach, `Closed`; an error
    /// of the driver for pages that it refuses (NVIDIA's: mapped files of most file systems).
    fn wrap_host(&self, _host: &View) -> Result<Memory, DeviceError> {
        let device = self.tag().name().into();
        Err(DeviceError::Unsupported { device, what: "use memory of the program in place".into() })
    }

    /// Copies host bytes to memory, after all submitted work that uses the memory.
    ///
    /// # Errors
    /// `Range`, `WrongDevice`; `Wait` if that work does not complete.
    fn copy_in(&self, dst: &Memory, offset: u64, src: &[u8]) -> Result<(), DeviceError>;

    /// Copies memory to host bytes, after all submitted work that uses the memory.
    ///
    /// # Errors
    /// As `copy_in`.
    fn copy_out(&self, src: &Memory, offset: u64, dst: &mut [u8]) -> Result<(), DeviceError>;

    /// Loads the images into executable memory, as one batch (with one change of protection); returns the kernels in
    /// the same order. The caller must trust the code: it runs unchecked, with the device's rights.
    ///
    /// # Errors
    /// `Load` for an image that is malformed, for another machine, or lacks its entry.
    fn load(&self, images: &[KernelImage<'_>]) -> Result<Vec<Kernel>, DeviceError>;

    /// Queues commands and returns without waiting for them: encode, ring, doorbell.
    ///
    /// # Errors
    /// `WrongDevice`, `Range`, `Closed`; `Submit` if the queue stayed full for the device's submit timeout. On an error
    /// nothing was queued.
    fn submit(&self, queue: QueueKind, commands: &[Command]) -> Result<Point, DeviceError>;

    /// The copy engines that a queue can be on; none if the driver does not name them.
    ///
    /// # Errors
    /// The driver's.
    fn copy_engines(&self) -> Result<Vec<CopyEngine>, DeviceError> {
        Ok(Vec::new())
    }

    /// Encodes commands once, to be replayed many times. The list must not contain a `Wait`.
    ///
    /// # Errors
    /// As `submit`, and `Unsupported` for a `Wait`.
    fn record(&self, commands: &[Command]) -> Result<Box<dyn Recorded>, DeviceError>;

    /// A pair of times for [`Command::stamped`].
    ///
    /// # Errors
    /// `Memory` if there is no room for its signals.
    fn stamp(&self) -> Result<Stamp, DeviceError>;

    /// Whether [`Command::Copy`] on this device can access a memory, which may belong to another device.
    fn reaches(&self, memory: &Memory) -> bool {
        memory.device() == self.tag()
    }

    /// How long the engine waits for work before it treats the device as hung.
    fn patience(&self) -> Duration {
        Duration::from_secs(30) // TIMEOUT: a common limit for a hung device.
    }

    /// Waits for a point on any queue.
    ///
    /// # Errors
    /// `Wait`: at the deadline, with a report; or because the queue has ended.
    fn wait(&self, point: &Point, timeout: Duration) -> Result<(), DeviceError> {
        Ok(point.wait(timeout)?)
    }

    /// Waits for all work submitted so far, on all queues of the device.
    ///
    /// # Errors
    /// As `wait`.
    fn synchronize(&self, timeout: Duration) -> Result<(), DeviceError>;

    /// Bytes of allocated memories.
    fn memory_used(&self) -> u64;

    /// The current state that the driver reports: free memory, clocks, temperature, errors. `None` if there is no
    /// driver.
    fn state(&self) -> Option<DeviceState> {
        None
    }

    /// Waits for the queued work, ends the device's threads and refuses work from then on. Closing twice is allowed.
    ///
    /// # Errors
    /// `Wait` if the queued work does not complete; the device is closed nevertheless.
    fn close(&self) -> Result<(), DeviceError>;
}

/// A driver's report about a device, as a line of text and as data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceState {
    pub line: String,
    pub values: serde_json::Value,
}

/// A list of commands that was encoded once, for replay.
pub trait Recorded: Send + fmt::Debug {
    /// Applies the patches and runs the list once, in order with the device's compute queue.
    ///
    /// # Errors
    /// As [`Device::submit`]; `Submit` with `Patch` for an argument that the list does not have. On an error nothing
    /// ran; patches before the bad one may have been applied.
    fn replay(&mut self, patches: &[Patch]) -> Result<Point, DeviceError>;
}

#[cfg(doctest)]
#[doc = include_str!("README.md")]
struct Readme;

//! What a device is asked to do: kernels, arguments, commands, patches.
//!
//! Place in the arrows: `engine` makes them, devices encode them as packets.

use super::DeviceTag;
use super::memory::Place;
use doorbell_hcq::signal::{Point, Signal};
use smallvec::SmallVec;
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Machine code to be loaded. The caller vouches for it: a device runs it with the process's rights, and the CPU device cannot catch
/// its faults.
#[derive(Clone, Copy, Debug)]
pub struct KernelImage<'a> {
    pub name: &'a str,
    pub code: Code<'a>,
}

/// The forms of machine code.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Code<'a> {
    /// An ELF object and the symbol to start at.
    Elf { bytes: &'a [u8], entry: &'a str },
    /// Position-independent instructions, started at the first byte.
    Raw(&'a [u8]),
}

/// A loaded kernel. Clones are the same kernel; its code stays loaded while one lives or a submission runs it.
#[derive(Clone)]
pub struct Kernel(Arc<KernelInner>);

struct KernelInner {
    device: DeviceTag,
    name: String,
    entry: u64,
    program: Arc<dyn Any + Send + Sync>,
}

impl Kernel {
    /// A kernel of `device` whose code starts at `entry` (as the device sees it) and is owned by `program`.
    #[must_use]
    pub fn new(device: DeviceTag, name: &str, entry: u64, program: Arc<dyn Any + Send + Sync>) -> Self {
        Self(Arc::new(KernelInner { device, name: name.into(), entry, program }))
    }

    #[must_use]
    pub fn device(&self) -> &DeviceTag {
        &self.0.device
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    #[must_use]
    #[inline]
    pub fn entry(&self) -> u64 {
        self.0.entry
    }

    /// What the device keeps for it.
    #[must_use]
    pub fn program(&self) -> &Arc<dyn Any + Send + Sync> {
        &self.0.program
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernel({} {} at {:#x})", self.device(), self.name(), self.entry())
    }
}

/// One argument of a kernel: a buffer's address, a variable's value, or a scalar of a foreign kernel.
#[derive(Clone, Debug)]
pub enum Arg {
    Buffer(Place),
    Var(i64),
    /// The low `len_bytes` (1, 2, 4 or 8) of `bits`, at their natural alignment where the device packs arguments.
    Scalar {
        bits: u64,
        len_bytes: u8,
    },
}

impl Arg {
    /// The 64 bits that the kernel finds in `args[i]`.
    #[must_use]
    #[inline]
    pub fn bits(&self) -> u64 {
        match self {
            Self::Buffer(place) => place.va(),
            Self::Var(value) => value.cast_unsigned(),
            Self::Scalar { bits, .. } => *bits,
        }
    }
}

/// Start and end time of one command, written by the device; read them when the command's point is done.
#[derive(Clone, Debug)]
pub struct Stamp {
    pub start: Signal,
    pub stop: Signal,
}

impl Stamp {
    /// Start and end in nanoseconds of the host's monotonic clock.
    #[must_use]
    pub fn times_ns(&self) -> (u64, u64) {
        (self.start.timestamp_ns(), self.stop.timestamp_ns())
    }

    /// How long the command ran, in nanoseconds.
    #[must_use]
    pub fn elapsed_ns(&self) -> u64 {
        self.stop.timestamp_ns().saturating_sub(self.start.timestamp_ns())
    }
}

/// How a GPU kernel is spread: workgroups, their work-items, and the shared memory of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Workgroups in x, y, z.
    pub groups: [u32; 3],
    /// Work-items of a workgroup in x, y, z.
    pub local: [u32; 3],
    /// Shared memory (LDS) of a workgroup beside what the kernel's own descriptor asks for, in bytes.
    pub local_bytes: u32,
    /// Workgroups of a cluster in x, y, z; `None`: what the kernel itself asks for, if it does. Only for chips that have clusters.
    pub cluster: Option<[u32; 3]>,
}

impl Default for Geometry {
    /// One work-item.
    fn default() -> Self {
        Self::of([1; 3], [1; 3])
    }
}

impl Geometry {
    /// So many workgroups of so many work-items, with the shared memory and the clusters that the kernel itself asks for.
    #[must_use]
    pub const fn of(groups: [u32; 3], local: [u32; 3]) -> Self {
        Self { groups, local, local_bytes: 0, cluster: None }
    }

    /// Whether nothing runs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.contains(&0) || self.local.contains(&0)
    }
}

/// One step of a submission; steps run in order.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Command {
    /// Run `kernel`. A CPU runs `entry(args, tid)` for each tid in `0..threads`, in any order and on any number of cores; a GPU runs the
    /// workgroups of `geometry`.
    Exec { kernel: Kernel, args: SmallVec<[Arg; 6]>, threads: u32, geometry: Geometry, stamp: Option<Stamp> },
    /// Copy bytes between memories that both are reachable from the device; the ranges must not overlap.
    Copy { dst: Place, src: Place, len_bytes: u64, stamp: Option<Stamp> },
    /// Run nothing after this before the point is done (on whatever queue or device it lies).
    Wait(Point),
}

impl Command {
    /// An `Exec` of one work-item and without timestamps.
    #[must_use]
    pub fn exec(kernel: &Kernel, args: impl IntoIterator<Item = Arg>, threads: u32) -> Self {
        let (kernel, args, geometry) = (kernel.clone(), args.into_iter().collect(), Geometry::default());
        Self::Exec { kernel, args, threads, geometry, stamp: None }
    }

    /// The same command, an `Exec`, over these workgroups.
    #[must_use]
    pub fn over(mut self, over: Geometry) -> Self {
        if let Self::Exec { geometry, .. } = &mut self {
            *geometry = over;
        }
        self
    }

    /// A `Copy` without timestamps.
    #[must_use]
    pub fn copy(dst: Place, src: Place, len_bytes: u64) -> Self {
        Self::Copy { dst, src, len_bytes, stamp: None }
    }

    /// The same command with timestamps.
    #[must_use]
    pub fn stamped(mut self, with: Stamp) -> Self {
        if let Self::Exec { stamp, .. } | Self::Copy { stamp, .. } = &mut self {
            *stamp = Some(with);
        }
        self
    }

    /// The memories that the command touches.
    pub fn places(&self) -> impl Iterator<Item = &Place> {
        let (args, pair): (&[Arg], [Option<&Place>; 2]) = match self {
            Self::Exec { args, .. } => (args, [None, None]),
            Self::Copy { dst, src, .. } => (&[], [Some(dst), Some(src)]),
            Self::Wait(_) => (&[], [None, None]),
        };
        let of_args = args.iter().filter_map(|a| if let Arg::Buffer(place) = a { Some(place) } else { None });
        of_args.chain(pair.into_iter().flatten())
    }
}

/// A change to a recorded list; it holds from this replay on.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Patch {
    /// Argument `arg` of command `command`. Of a copy: 0 is the destination, 1 the source, 2 the length in bytes (a `Var`).
    Arg { command: usize, arg: usize, value: Arg },
    /// Thread count of the `Exec` at `command`.
    Threads { command: usize, threads: u32 },
}

//! Work for a device: kernels, arguments, commands, patches.
//!
//! Layer: `engine` creates commands, devices encode them as packets.

use super::DeviceTag;
use super::memory::Location;
use doorbell_elf::Object;
use doorbell_elf::cubin::Functions;
use doorbell_hcq::signal::{Point, Signal};
use smallvec::SmallVec;
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Machine code to load. The caller must trust it: a device runs it with the process's rights, and the CPU device
/// cannot catch its faults.
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
    /// The output of an instruction set's back end, and the symbol to start at.
    Object { object: &'a Object, entry: &'a str },
    /// A cubin of another compiler, with the functions that it calls by name.
    Cubin { bytes: &'a [u8], entry: &'a str, functions: &'a Functions },
    /// Position-independent instructions, started at the first byte.
    Raw(&'a [u8]),
}

/// A loaded kernel. Clones refer to the same kernel; its code stays loaded while a clone exists or a submission uses
/// it.
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

    /// The device's own data for the kernel.
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
    Buffer(Location),
    Var(i64),
    /// The low `len_bytes` (1, 2, 4 or 8) of `bits`; naturally aligned if the device packs arguments.
    Scalar {
        bits: u64,
        len_bytes: u8,
    },
}

impl Arg {
    /// The 64 bits that the kernel reads from `args[i]`.
    #[must_use]
    #[inline]
    pub fn bits(&self) -> u64 {
        match self {
            Self::Buffer(location) => location.va(),
            Self::Var(value) => value.cast_unsigned(),
            Self::Scalar { bits, .. } => *bits,
        }
    }
}

/// Start and end time of one command, written by the device. Valid once the command's point is done.
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

/// The launch geometry of a GPU kernel: workgroups, their work-items, and the shared memory of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Workgroups in x, y, z.
    pub groups: [u32; 3],
    /// Work-items of a workgroup in x, y, z.
    pub local: [u32; 3],
    /// Shared memory (LDS) of a workgroup in bytes, in addition to the kernel's static amount.
    pub local_bytes: u32,
    /// Workgroups of a cluster in x, y, z; `None`: the size that the kernel declares, if any. Only for chips that have
    /// clusters.
    pub cluster: Option<[u32; 3]>,
}

impl Default for Geometry {
    /// One work-item.
    fn default() -> Self {
        Self::of([1; 3], [1; 3])
    }
}

impl Geometry {
    /// `groups` workgroups of `local` work-items, with the shared memory and the clusters that the kernel declares.
    #[must_use]
    pub const fn of(groups: [u32; 3], local: [u32; 3]) -> Self {
        Self { groups, local, local_bytes: 0, cluster: None }
    }

    /// Whether there are no work-items to run.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.contains(&0) || self.local.contains(&0)
    }
}

/// One step of a submission; steps run in order.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Command {
    /// Run `kernel`. A CPU runs `entry(args, tid)` for each tid in `0..threads`, in any order and on any number of
    /// cores; a GPU runs the workgroups of `geometry`.
    Exec { kernel: Kernel, args: SmallVec<[Arg; 6]>, threads: u32, geometry: Geometry, stamp: Option<Stamp> },
    /// Copy bytes between memories that the device can reach; the ranges must not overlap.
    Copy { dst: Location, src: Location, len_bytes: u64, stamp: Option<Stamp> },
    /// Wait until the point is done, on any queue or device, before running the following commands.
    Wait(Point),
}

impl Command {
    /// An `Exec` of one work-item and without timestamps.
    #[must_use]
    pub fn exec(kernel: &Kernel, args: impl IntoIterator<Item = Arg>, threads: u32) -> Self {
        let (kernel, args, geometry) = (kernel.clone(), args.into_iter().collect(), Geometry::default());
        Self::Exec { kernel, args, threads, geometry, stamp: None }
    }

    /// The same command with this geometry, if it is an `Exec`.
    #[must_use]
    pub fn over(mut self, over: Geometry) -> Self {
        if let Self::Exec { geometry, .. } = &mut self {
            *geometry = over;
        }
        self
    }

    /// A `Copy` without timestamps.
    #[must_use]
    pub fn copy(dst: Location, src: Location, len_bytes: u64) -> Self {
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

    #[must_use]
    pub fn is_copy(&self) -> bool {
        matches!(self, Self::Copy { .. })
    }

    /// The memory locations that the command accesses.
    pub fn locations(&self) -> impl Iterator<Item = &Location> {
        let (args, pair): (&[Arg], [Option<&Location>; 2]) = match self {
            Self::Exec { args, .. } => (args, [None, None]),
            Self::Copy { dst, src, .. } => (&[], [Some(dst), Some(src)]),
            Self::Wait(_) => (&[], [None, None]),
        };
        let of_args = args.iter().filter_map(|a| if let Arg::Buffer(location) = a { Some(location) } else { None });
        of_args.chain(pair.into_iter().flatten())
    }
}

/// A change to a recorded list, effective from this replay on.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Patch {
    /// Argument `arg` of command `command`. Of a copy: 0 is the destination, 1 the source, 2 the length in bytes (a
    /// `Var`).
    Arg { command: usize, arg: usize, value: Arg },
    /// Thread count of the `Exec` at `command`.
    Threads { command: usize, threads: u32 },
}

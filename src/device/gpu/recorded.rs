//! A recorded list of launches on a GPU: encoded once, arguments patched at each replay.
//!
//! Layer: used by `engine`'s JIT through [`Recorded`]; the vendor's part is an [`EncodeList`].
//! The data that the GPU reads exists in several copies, so that a replay never rewrites data of a replay in flight. A
//! copy is reused when its last run is done, after applying the patches made since. Left out: copy commands inside a
//! list (they are submitted anew at each replay).

use super::encode::{Encode, GpuCore, GpuProgram, SubmitContext};
use super::last_kernels::{NamedKernel, last_of};
use super::launch_args::LaunchArgs;
use super::queue::{GpuQueue, Submission};
use crate::in_flight::Kept;
use crate::{Arg, Command, DeviceError, Geometry, Kernel, Location, Patch, Recorded, Stamp};
use doorbell_hcq::signal::Point;
use std::fmt::Debug;
use std::sync::Arc;

/// Number of copies, which limits the replays in flight.
const COPIES: usize = 4;

/// A launch's arguments, as its kernel reads them.
#[derive(Debug)]
pub(crate) struct LaidOut<L> {
    pub bytes: Vec<u8>,
    /// Offset in these bytes and length of each argument.
    pub arg_ranges: Vec<(usize, usize)>,
    pub layout: L,
}

/// One launch of a list.
#[derive(Debug)]
pub(crate) struct Step<L> {
    pub kernel: Kernel,
    pub geometry: Geometry,
    pub stamp: Option<Stamp>,
    /// The vendor's layout of the launch's data.
    pub layout: L,
}

/// The launches of a list, in order.
#[derive(Debug)]
pub(crate) struct Launches<L> {
    pub steps: Vec<Step<L>>,
    pub args: LaunchArgs,
}

/// The vendor's part of a recorded list: packets prepared in memory of their own, and how a submission runs them.
pub(crate) trait EncodeList: Encode {
    /// Layout of a launch's data in an image.
    type Layout: Debug + Send;
    /// One copy of the data that the GPU reads: arguments and packets.
    type Image: Debug + Send + Sync;

    /// Checks a launch and lays out its data after that of the earlier launches.
    ///
    /// # Errors
    /// `Unsupported` for a launch that the kernel or the chip does not support.
    fn lay_out(
        core: &Self::Core,
        before: &Launches<Self::Layout>,
        program: &Self::Program,
        args: &[Arg],
        geometry: &Geometry,
    ) -> Result<LaidOut<Self::Layout>, DeviceError>;

    /// Creates a copy with the current arguments.
    ///
    /// # Errors
    /// As a submission.
    fn image(&self, queue: &GpuQueue<Self>, launches: &Launches<Self::Layout>) -> Result<Self::Image, DeviceError>;

    /// Whether a copy can run unchanged: everything of the queue that it refers to still exists.
    fn is_current(&self, image: &Self::Image) -> bool;

    /// Writes the arguments of the launches in `changed`, in order, to a copy that is not in flight.
    ///
    /// # Errors
    /// `Memory` in theory only: an access outside the copy's own view.
    fn rewrite(
        queue: &GpuQueue<Self>,
        image: &Self::Image,
        launches: &Launches<Self::Layout>,
        changed: impl Iterator<Item = usize> + Clone,
    ) -> Result<(), DeviceError>;

    /// Runs a copy after all earlier work.
    ///
    /// # Errors
    /// As a submission.
    fn run(&mut self, context: &SubmitContext<'_, Self::Core>, image: &Self::Image) -> Result<(), DeviceError>;
}

/// What a run in flight keeps alive: the buffers that the GPU reads, code, stamps.
#[derive(Debug)]
struct Held<I> {
    image: I,
    #[allow(dead_code)] // never read, only dropped
    kernels: Vec<Kernel>,
    #[allow(dead_code)]
    stamps: Vec<Stamp>,
}

#[derive(Debug)]
struct Copy<I> {
    held: Arc<Held<I>>,
    last: Option<Point>,
    /// Number of patches applied when arguments were last written here.
    patches: u64,
}

/// A recorded list on a GPU.
#[derive(Debug)]
pub(crate) struct GpuList<E: EncodeList> {
    queue: Arc<GpuQueue<E>>,
    launches: Launches<E::Layout>,
    /// Number of patches so far and, for each launch, the number of the last one that changed it.
    patches: u64,
    patched: Vec<u64>,
    copies: Vec<Copy<E::Image>>,
    next: usize,
    private_bytes: u32,
    last_kernels: Arc<[NamedKernel]>,
}

impl<E: EncodeList> GpuList<E> {
    /// Checks and lays out `commands`, which must be launches. Invalid launches are reported here; the first replays
    /// allocate memory.
    ///
    /// # Errors
    /// As a submission.
    pub(crate) fn new(queue: &Arc<GpuQueue<E>>, commands: &[Command]) -> Result<Self, DeviceError> {
        let mut launches = Launches { steps: Vec::with_capacity(commands.len()), args: LaunchArgs::default() };
        let mut named = Vec::with_capacity(commands.len());
        for command in commands {
            queue.check(command)?;
            let Command::Exec { kernel, args, geometry, stamp, .. } = command else { continue };
            let program = queue.program(kernel)?;
            let laid_out = E::lay_out(queue.core(), &launches, program, args, geometry)?;
            launches.args.push(&laid_out.bytes, laid_out.arg_ranges, args);
            let (kernel, geometry, stamp) = (kernel.clone(), *geometry, stamp.clone());
            launches.steps.push(Step { kernel, geometry, stamp, layout: laid_out.layout });
            named.push((Arc::clone(program.name()), program.entry()));
        }
        let private_bytes = commands.iter().map(|c| queue.private_bytes(c)).max().unwrap_or(0);
        let (queue, last_kernels) = (Arc::clone(queue), last_of(named.into_iter()));
        let (patched, copies) = (vec![0; launches.steps.len()], Vec::new());
        Ok(Self { queue, launches, patches: 0, patched, copies, next: 0, private_bytes, last_kernels })
    }

    fn copy(&self, encoder: &E) -> Result<Copy<E::Image>, DeviceError> {
        let steps = &self.launches.steps;
        let kernels = steps.iter().map(|s| s.kernel.clone()).collect();
        let stamps = steps.iter().filter_map(|s| s.stamp.clone()).collect();
        let image = encoder.image(&self.queue, &self.launches)?;
        Ok(Copy { held: Arc::new(Held { image, kernels, stamps }), last: None, patches: self.patches })
    }

    fn patch(&mut self, patch: &Patch) -> Result<(), DeviceError> {
        let step = self.launches.args.patch(patch)?;
        self.patches += 1;
        if let Some(last) = self.patched.get_mut(step) {
            *last = self.patches;
        }
        Ok(())
    }

    /// A copy that is not in flight, updated to the current arguments.
    fn ready_copy(&mut self, encoder: &E) -> Result<usize, DeviceError> {
        let n = if self.copies.len() < COPIES { self.copies.len() } else { self.next % COPIES };
        if n == self.copies.len() {
            let copy = self.copy(encoder)?;
            self.copies.push(copy);
        }
        // `last` is cleared only once the run is known to be done.
        if let Some(point) = &self.copies[n].last {
            point.wait(self.queue.core().submit_timeout())?;
            self.copies[n].last = None;
        }
        if !encoder.is_current(&self.copies[n].held.image) {
            self.copies[n] = self.copy(encoder)?;
        }
        let copy = &mut self.copies[n];
        if copy.patches < self.patches {
            let have = copy.patches;
            let changed = self.patched.iter().enumerate().filter(|(_, last)| **last > have).map(|(n, _)| n);
            E::rewrite(&self.queue, &copy.held.image, &self.launches, changed)?;
            copy.patches = self.patches;
        }
        self.next = n + 1;
        Ok(n)
    }

    fn run(&mut self, mut submission: Submission<'_, E>) -> Result<Point, DeviceError> {
        submission.need_private(self.private_bytes)?;
        let n = self.ready_copy(submission.encoder)?;
        let memories = self.launches.args.memories();
        memories.iter().for_each(|memory| submission.wait_for_memory(memory));
        submission.open()?;
        let copy = &mut self.copies[n];
        submission.in_flight.keep(submission.context.value, Kept::List(Arc::clone(&copy.held) as _));
        submission.encoder.run(&submission.context, &copy.held.image)?;
        submission.last_kernels.list(&self.last_kernels);
        let point = submission.finish(memories.iter())?;
        copy.last = Some(point.clone());
        Ok(point)
    }
}

impl<E: EncodeList> Recorded for GpuList<E> {
    fn replay(&mut self, patches: &[Patch]) -> Result<Point, DeviceError> {
        self.queue.core().check_open()?;
        let check = |location: &Location| self.queue.check_range(location, 0, "kernel argument");
        patches.iter().try_for_each(|p| self.launches.args.check(p, check))?;
        patches.iter().try_for_each(|p| self.patch(p))?;
        let queue = Arc::clone(&self.queue);
        let mut producer = queue.lock();
        let submission = queue.begin(&mut producer)?;
        self.run(submission)
    }
}

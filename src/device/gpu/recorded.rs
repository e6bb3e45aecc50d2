//! A recorded list of launches on a GPU: encoded once, arguments patched at each replay.
//!
//! Place in the arrows: used by `engine`'s JIT through [`Recorded`]; what a vendor adds is an [`EncodeList`].
//! There are several copies of what the GPU reads, so that a replay never rewrites what one in flight reads; a copy is
//! taken again when its last run is done, and brought up to the patches since. Left out: copies inside a list (they are
//! submitted anew at each replay).

use super::encode::{Encode, GpuCore, GpuProgram, SubmitContext};
use super::last_kernels::{Named, last_of};
use super::launch_args::LaunchArgs;
use super::queue::{GpuQueue, Submission};
use crate::in_flight::Kept;
use crate::{Arg, Command, DeviceError, Geometry, Kernel, Patch, Place, Recorded, Stamp};
use doorbell_hcq::signal::Point;
use std::fmt::Debug;
use std::sync::Arc;

/// Replays in flight.
const COPIES: usize = 4;

/// A launch's arguments as its kernel finds them.
#[derive(Debug)]
pub struct LaidOut<L> {
    pub bytes: Vec<u8>,
    /// Where each argument lies in them, and its length.
    pub places: Vec<(usize, usize)>,
    pub layout: L,
}

/// One launch of a list.
#[derive(Debug)]
pub struct Step<L> {
    pub kernel: Kernel,
    pub geometry: Geometry,
    pub stamp: Option<Stamp>,
    /// Where the vendor puts what belongs to it.
    pub layout: L,
}

/// The launches of a list, in order.
#[derive(Debug)]
pub struct Launches<L> {
    pub steps: Vec<Step<L>>,
    pub args: LaunchArgs,
}

/// What a vendor adds to a recorded list: packets that lie ready in memory of their own, and how a submission runs
/// them.
pub trait EncodeList: Encode {
    /// Where what belongs to a launch lies in an image.
    type Layout: Debug + Send;
    /// One copy of what the GPU reads: arguments and packets.
    type Image: Debug + Send + Sync;

    /// Lays a launch out after those that are there, and checks it.
    ///
    /// # Errors
    /// `Unsupported` for a launch that the kernel or the chip does not take.
    fn lay_out(
        core: &Self::Core,
        before: &Launches<Self::Layout>,
        program: &Self::Program,
        args: &[Arg],
        geometry: &Geometry,
    ) -> Result<LaidOut<Self::Layout>, DeviceError>;

    /// Makes a copy, with the arguments as they are.
    ///
    /// # Errors
    /// As a submission.
    fn image(&self, queue: &GpuQueue<Self>, launches: &Launches<Self::Layout>) -> Result<Self::Image, DeviceError>;

    /// Whether a copy can run as it is: what it names of the queue is still there.
    fn is_current(&self, image: &Self::Image) -> bool;

    /// Writes the arguments of the launches in `changed`, in order, to a copy that no run reads.
    ///
    /// # Errors
    /// `Memory` never: the copy's own view.
    fn rewrite(
        queue: &GpuQueue<Self>,
        image: &Self::Image,
        launches: &Launches<Self::Layout>,
        changed: impl Iterator<Item = usize> + Clone,
    ) -> Result<(), DeviceError>;

    /// Runs a copy after all before.
    ///
    /// # Errors
    /// As a submission.
    fn run(&mut self, context: &SubmitContext<'_, Self::Core>, image: &Self::Image) -> Result<(), DeviceError>;
}

/// What a run in flight keeps: the buffers that the GPU reads, code, stamps.
#[derive(Debug)]
struct Held<I> {
    image: I,
    #[allow(dead_code)] // only ever dropped
    kernels: Vec<Kernel>,
    #[allow(dead_code)]
    stamps: Vec<Stamp>,
}

#[derive(Debug)]
struct Copy<I> {
    held: Arc<Held<I>>,
    last: Option<Point>,
    /// Patches that had been made when arguments were last written here.
    patches: u64,
}

/// The list.
#[derive(Debug)]
pub struct GpuList<E: EncodeList> {
    queue: Arc<GpuQueue<E>>,
    launches: Launches<E::Layout>,
    /// Patches so far, and for each launch the last one of them.
    patches: u64,
    patched: Vec<u64>,
    copies: Vec<Copy<E::Image>>,
    next: usize,
    private_bytes: u32,
    last_kernels: Arc<[Named]>,
}

impl<E: EncodeList> GpuList<E> {
    /// Lays `commands` out, which are launches. What cannot be launched is reported now; memory is taken by the first
    /// replays.
    ///
    /// # Errors
    /// As a submission.
    pub fn new(queue: &Arc<GpuQueue<E>>, commands: &[Command]) -> Result<Self, DeviceError> {
        let mut launches = Launches { steps: Vec::with_capacity(commands.len()), args: LaunchArgs::default() };
        let mut named = Vec::with_capacity(commands.len());
        for command in commands {
            queue.check(command)?;
            let Command::Exec { kernel, args, geometry, stamp, .. } = command else { continue };
            let program = queue.program(kernel)?;
            let laid_out = E::lay_out(queue.core(), &launches, program, args, geometry)?;
            launches.args.push(&laid_out.bytes, laid_out.places, args);
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

    /// A copy that no run reads, brought up to the arguments of the launches.
    fn ready_copy(&mut self, encoder: &E) -> Result<usize, DeviceError> {
        let n = if self.copies.len() < COPIES { self.copies.len() } else { self.next % COPIES };
        if n == self.copies.len() {
            let copy = self.copy(encoder)?;
            self.copies.push(copy);
        }
        // Until it is known to be done, a run is not forgotten.
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
        let check = |place: &Place| self.queue.check_place(place, 0, "kernel argument");
        patches.iter().try_for_each(|p| self.launches.args.check(p, check))?;
        patches.iter().try_for_each(|p| self.patch(p))?;
        let queue = Arc::clone(&self.queue);
        let mut producer = queue.lock();
        let submission = queue.begin(&mut producer)?;
        self.run(submission)
    }
}

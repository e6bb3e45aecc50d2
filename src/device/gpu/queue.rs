//! One queue of a GPU of any vendor: commands are checked, ordered after other uses of their memories, encoded, and
//! submitted.
//!
//! Layer: `device::amd` and `device::nv` each own a compute and a copy queue; the vendor's part is an [`Encode`].
//! Everything that a submission needs is kept alive until it is done: kernels, stamps, other queues' timelines,
//! recorded lists. A queue waits by itself for signals of this driver's devices; for those of other drivers the
//! submitting host waits, since these are not mapped for this GPU.

use super::encode::{Encode, GpuCore, GpuProgram, SubmitContext, Watch};
use super::last_kernels::LastKernels;
use crate::in_flight::{InFlight, Kept, RoomWait, commit, ring_full_error};
use crate::{Command, DeviceError, DeviceTag, Kernel, Location, Memory, QueueKind, Stamp};
use doorbell_hcq::error::SubmitError;
use doorbell_hcq::signal::{Point, Progress, Report, Timeline, WaitBy};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a waiting host checks for errors.
const WATCH: Duration = Duration::from_millis(2); // TIMEOUT: a fault is reported with this delay at most.

/// State for submitting, under the queue's lock.
#[derive(Debug)]
pub(crate) struct Producer<E> {
    // None once the queue is closed.
    encoder: Option<E>,
    in_flight: InFlight,
    last_kernels: LastKernels,
}

impl<E> Producer<E> {
    /// The vendor's encoder; `None` once the queue is closed.
    pub(crate) fn encoder(&mut self) -> Option<&mut E> {
        self.encoder.as_mut()
    }
}

/// A queue of a GPU.
pub(crate) struct GpuQueue<E: Encode> {
    core: Arc<E::Core>,
    kind: QueueKind,
    timeline: Arc<Timeline>,
    watch: E::Watch,
    producer: Mutex<Producer<E>>,
}

impl<E: Encode> Debug for GpuQueue<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GpuQueue({:?})", self.timeline)
    }
}

/// The name of a queue's timeline.
#[must_use]
pub(crate) fn name_of(tag: &DeviceTag, kind: QueueKind) -> String {
    match kind {
        QueueKind::Compute => format!("{tag}/compute"),
        QueueKind::Copy => format!("{tag}/copy"),
        QueueKind::CopyEngine(number) => format!("{tag}/copy{number}"),
    }
}

impl<E: Encode> GpuQueue<E> {
    /// Creates a queue over an encoder whose ring is ready.
    pub(crate) fn new(
        core: &Arc<E::Core>,
        kind: QueueKind,
        timeline: Arc<Timeline>,
        encoder: E,
        watch: E::Watch,
    ) -> Arc<Self> {
        let (in_flight, last_kernels) = (InFlight::default(), LastKernels::default());
        let producer = Mutex::new(Producer { encoder: Some(encoder), in_flight, last_kernels });
        let queue = Arc::new(Self { core: Arc::clone(core), kind, timeline, watch, producer });
        let progress: Arc<dyn Progress> = Arc::clone(&queue) as _;
        queue.timeline.set_progress(Arc::downgrade(&progress));
        queue
    }

    #[must_use]
    pub(crate) fn core(&self) -> &Arc<E::Core> {
        &self.core
    }

    #[must_use]
    pub(crate) fn timeline(&self) -> &Arc<Timeline> {
        &self.timeline
    }

    #[must_use]
    pub(crate) fn watch(&self) -> &E::Watch {
        &self.watch
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Producer<E>> {
        self.producer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`GpuQueue::lock`], but `None` if a submission holds the lock.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Producer<E>>> {
        self.producer.try_lock().ok()
    }

    /// Queues commands, to run after all earlier ones and after the points of `after`.
    ///
    /// # Errors
    /// As [`crate::Device::submit`].
    pub(crate) fn submit(&self, commands: &[Command], after: &[Point]) -> Result<Point, DeviceError> {
        commands.iter().try_for_each(|c| self.check(c))?;
        let mut producer = self.lock();
        let mut submission = self.begin(&mut producer)?;
        submission.need_private(commands.iter().map(|c| self.private_bytes(c)).max().unwrap_or(0))?;
        after.iter().for_each(|point| submission.in_flight.wait_for(point));
        submission.in_flight.wait_for_all(&self.timeline, commands);
        submission.open()?;
        commands.iter().try_for_each(|command| submission.command(command))?;
        submission.finish(commands.iter().flat_map(Command::locations).map(|location| &location.memory))
    }

    /// Submits what `encode` emits, as a use of one memory.
    ///
    /// # Errors
    /// As `submit`; those of `encode`.
    pub(crate) fn submit_on(
        &self,
        memory: &Memory,
        encode: impl FnOnce(&mut E, &SubmitContext<'_, E::Core>) -> Result<(), DeviceError>,
    ) -> Result<Point, DeviceError> {
        let mut producer = self.lock();
        let mut submission = self.begin(&mut producer)?;
        submission.wait_for_memory(memory);
        submission.open()?;
        encode(submission.encoder, &submission.context)?;
        submission.finish(std::iter::once(memory))
    }

    /// Begins a submission, and releases what completed ones kept.
    ///
    /// # Errors
    /// `Closed`, `Unavailable`.
    #[inline]
    pub(crate) fn begin<'a>(&'a self, producer: &'a mut Producer<E>) -> Result<Submission<'a, E>, DeviceError> {
        self.core.check_open()?;
        let Producer { encoder, in_flight, last_kernels } = producer;
        let closed = || DeviceError::Closed { device: self.core.tag().name().into() };
        let encoder = encoder.as_mut().ok_or_else(closed)?;
        let submitted = self.timeline.submitted();
        encoder.begin(&self.core, submitted);
        in_flight.begin(&self.timeline);
        let context = SubmitContext { core: &*self.core, timeline: &self.timeline, value: submitted + 1 };
        Ok(Submission { queue: self, context, encoder, in_flight, last_kernels })
    }

    /// The vendor's part of a kernel.
    ///
    /// # Errors
    /// `WrongDevice` for a kernel of another kind of device.
    pub(crate) fn program<'k>(&self, kernel: &'k Kernel) -> Result<&'k E::Program, DeviceError> {
        kernel.program().downcast_ref::<E::Program>().ok_or_else(|| self.wrong("kernel", kernel.device()))
    }

    /// Private memory that a work-item of the command's kernel needs.
    #[must_use]
    pub(crate) fn private_bytes(&self, command: &Command) -> u32 {
        let Command::Exec { kernel, .. } = command else { return 0 };
        self.program(kernel).map_or(0, GpuProgram::private_bytes)
    }

    /// Whether this queue can run the command at all.
    ///
    /// # Errors
    /// `Unsupported` on the other queue, `WrongDevice`, `Range`.
    pub(crate) fn check(&self, command: &Command) -> Result<(), DeviceError> {
        match command {
            Command::Wait(_) => Ok(()),
            Command::Exec { .. } if self.kind.only_copies() => {
                Err(SubmitError::Unsupported { queue: "copy", what: "run kernels" }.into())
            }
            Command::Exec { kernel, .. } if kernel.device() != self.core.tag() => {
                Err(self.wrong("kernel", kernel.device()))
            }
            Command::Exec { .. } => command.locations().try_for_each(|p| self.check_range(p, 0, "kernel argument")),
            Command::Copy { .. } if self.kind == QueueKind::Compute => {
                Err(SubmitError::Unsupported { queue: "compute", what: "copy" }.into())
            }
            Command::Copy { dst, src, len_bytes, .. } => {
                self.check_copied(src, *len_bytes, "copy source")?;
                self.check_copied(dst, *len_bytes, "copy destination")
            }
        }
    }

    /// As [`GpuQueue::check_range`], but also accepts memory of the driver's other devices, and maps it for this one.
    fn check_copied(&self, location: &Location, len_bytes: u64, what: &'static str) -> Result<(), DeviceError> {
        let theirs = location.memory.device();
        if theirs != self.core.tag() && !self.core.map_peer(location.memory.va())? {
            return Err(self.wrong(what, theirs));
        }
        location.memory.check(what, location.offset, len_bytes)
    }

    /// Checks that `len_bytes` from a location on are this device's memory.
    ///
    /// # Errors
    /// `WrongDevice`, `Range`.
    pub(crate) fn check_range(
        &self,
        location: &Location,
        len_bytes: u64,
        what: &'static str,
    ) -> Result<(), DeviceError> {
        if location.memory.device() != self.core.tag() {
            return Err(self.wrong(what, location.memory.device()));
        }
        location.memory.check(what, location.offset, len_bytes)
    }

    fn wrong(&self, what: &'static str, theirs: &DeviceTag) -> DeviceError {
        DeviceError::WrongDevice { what, ours: self.core.tag().name().into(), theirs: theirs.name().into() }
    }

    /// Ends the queue: destroys its ring, even if it is running, then releases what submissions kept.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn close(&self) -> Result<(), DeviceError> {
        let mut producer = self.lock();
        let ended = producer.encoder.take().map_or(Ok(()), |encoder| self.watch.end(&self.core, encoder));
        producer.in_flight.clear();
        ended
    }

    fn report_of(&self, encoder: Option<&E>, last_kernels: Option<&LastKernels>) -> Report {
        let ring = encoder.map(|e| e.report(&self.timeline)).unwrap_or_default();
        let mut notes = vec![self.core.platform()];
        notes.extend(ring.notes);
        let kernels = last_kernels.map(LastKernels::lines).unwrap_or_default();
        if !kernels.is_empty() {
            notes.push(format!("last kernels: {}", kernels.join(", ")));
        }
        notes.push(format!("last calls: {}", self.core.last_calls()));
        let fault = self.core.health().fault().map(Into::into);
        Report { queue: self.timeline.queue().into(), fault, notes, ..ring }
    }
}

/// Submits a list as alternating runs: copies to the copy queue, the rest to the compute queue, each after the previous
/// one.
///
/// # Errors
/// The errors of a submission; an invalid command is refused before the first run is submitted.
pub(crate) fn submit_runs<E: Encode>(
    compute: &GpuQueue<E>,
    copies: &GpuQueue<E>,
    commands: &[Command],
) -> Result<Point, DeviceError> {
    let queue_of = |c: &Command| if c.is_copy() { copies } else { compute };
    commands.iter().try_for_each(|c| queue_of(c).check(c))?;
    let mut last: Option<Point> = None;
    for run in commands.chunk_by(|a, b| a.is_copy() == b.is_copy()) {
        if let Some(first) = run.first() {
            last = Some(queue_of(first).submit(run, last.as_slice())?);
        }
    }
    last.map_or_else(|| compute.submit(&[], &[]), Ok)
}

/// Waits for everything that was submitted to the queues.
///
/// # Errors
/// `Wait` after `timeout`, or when a queue has ended.
pub(crate) fn synchronize<E: Encode>(
    queues: impl IntoIterator<Item = Arc<GpuQueue<E>>>,
    timeout: Duration,
) -> Result<(), DeviceError> {
    let start = Instant::now();
    for queue in queues {
        let timeline = queue.timeline();
        timeline.wait(timeline.submitted(), timeout.saturating_sub(start.elapsed()))?;
    }
    Ok(())
}

/// A submission under construction, under the queue's lock.
#[derive(Debug)]
pub(crate) struct Submission<'a, E: Encode> {
    queue: &'a GpuQueue<E>,
    pub context: SubmitContext<'a, E::Core>,
    pub encoder: &'a mut E,
    pub in_flight: &'a mut InFlight,
    pub last_kernels: &'a mut LastKernels,
}

impl<E: Encode> Submission<'_, E> {
    /// Ensures private memory for kernels with `bytes` per work-item; growing it waits until the queue is idle.
    ///
    /// # Errors
    /// `OutOfMemory`, `Wait`.
    pub(crate) fn need_private(&mut self, bytes: u32) -> Result<(), DeviceError> {
        if self.encoder.holds_private(bytes) {
            return Ok(());
        }
        let timeline = self.context.timeline;
        timeline.wait(timeline.submitted(), self.context.core.submit_timeout())?;
        self.encoder.grow_private(self.context.core, bytes)
    }

    /// Makes the submission wait for other queues' uses of a memory.
    #[inline]
    pub(crate) fn wait_for_memory(&mut self, memory: &Memory) {
        self.in_flight.wait_for_memory(self.context.timeline, memory);
    }

    /// Emits set-up if needed, the collected waits, and the cache invalidation that makes others' writes visible.
    ///
    /// # Errors
    /// `Wait` if the host had to wait itself; a packet field that does not fit.
    pub(crate) fn open(&mut self) -> Result<(), DeviceError> {
        let Self { context, encoder, in_flight, .. } = self;
        encoder.open(context)?;
        let mut peers = Vec::new();
        in_flight.emit_waits(context.value, |point| {
            let signal = point.timeline().signal();
            let mut is_reached = context.core.has_signal(signal);
            if !is_reached && let Some(page) = context.core.peer_signal(signal) {
                peers.push(page);
                is_reached = true;
            }
            let is_encoded = is_reached && encoder.wait(signal, point.value())?;
            if !is_encoded {
                point.wait(context.core.submit_timeout())?;
            }
            Ok::<_, DeviceError>(is_encoded)
        })?;
        peers.into_iter().for_each(|page| in_flight.keep(context.value, Kept::List(page)));
        encoder.acquire(context.core)
    }

    #[inline]
    fn command(&mut self, command: &Command) -> Result<(), DeviceError> {
        match command {
            Command::Wait(_) => Ok(()),
            Command::Exec { kernel, args, geometry, stamp, .. } => {
                let program = self.queue.program(kernel)?;
                self.in_flight.keep_kernel(self.context.value, kernel);
                self.stamped(stamp.as_ref(), |s| {
                    if geometry.is_empty() {
                        return Ok(());
                    }
                    s.encoder.exec(&s.context, program, args, geometry)?;
                    s.last_kernels.kernel(program.name(), program.entry());
                    Ok(())
                })
            }
            Command::Copy { dst, src, len_bytes, stamp } => {
                self.stamped(stamp.as_ref(), |s| s.encoder.copy(&s.context, dst.va(), src.va(), *len_bytes))
            }
        }
    }

    /// Calls `emit`, with timestamps before and after if requested.
    #[inline]
    fn stamped(
        &mut self,
        stamp: Option<&Stamp>,
        emit: impl FnOnce(&mut Self) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let Some(stamp) = stamp else { return emit(self) };
        self.encoder.timestamp(&stamp.start)?;
        emit(self)?;
        self.encoder.timestamp(&stamp.stop)?;
        self.in_flight.keep(self.context.value, Kept::Stamp(stamp.clone()));
        Ok(())
    }

    /// Emits the signal, moves the list to the ring and rings the doorbell. The memories are marked as used once the
    /// submission can no longer fail.
    ///
    /// # Errors
    /// As [`Encode::seal`]; `Submit` if the ring stayed full. The list is then partly written, so the device is
    /// unusable.
    #[inline]
    pub(crate) fn finish<'m>(mut self, used: impl Iterator<Item = &'m Memory>) -> Result<Point, DeviceError> {
        self.encoder.seal(&self.context)?;
        commit(self.context.timeline, self.context.value, used);
        if !self.encoder.push(&self.context)? {
            self.push_rest()?;
        }
        Ok(self.context.timeline.point(self.context.value))
    }

    /// Moves the rest of the list to the ring, as the GPU makes room.
    #[cold]
    fn push_rest(&mut self) -> Result<(), DeviceError> {
        let SubmitContext { core, timeline, .. } = self.context;
        let mut room = RoomWait::default();
        loop {
            if room.is_over(core.submit_timeout()) || core.health().fault().is_some() {
                // A partly written list never reaches its signal: the queue is lost.
                let report = self.queue.report_of(Some(self.encoder), Some(self.last_kernels));
                core.health().set_fault(format!("{} stayed full", timeline.queue()));
                return Err(ring_full_error(timeline, core.submit_timeout(), report));
            }
            room.pause();
            if self.encoder.push(&self.context)? {
                return Ok(());
            }
        }
    }
}

impl<E: Encode> Progress for GpuQueue<E> {
    fn advance(&self, timeline: &Timeline, value: u64, deadline: Instant, by: WaitBy) {
        let (health, start) = (self.core.health(), Instant::now());
        let left = deadline.saturating_duration_since(start);
        let spin = start
            + match by {
                WaitBy::Options => self.core.spin().min(left),
                WaitBy::Spin => left,
                WaitBy::Sleep => Duration::ZERO,
            };
        let (mut look, mut nap) = (start + WATCH, <E::Watch as Watch<E>>::Nap::default());
        loop {
            let now = Instant::now();
            if now >= look || now >= deadline {
                match by {
                    WaitBy::Spin => self.watch.look_awake(self),
                    WaitBy::Options | WaitBy::Sleep => self.watch.look(self),
                }
                look = now + WATCH;
            }
            let is_over = health.fault().is_some() || health.is_closed();
            if timeline.completed() >= value || is_over || now >= deadline {
                return;
            }
            if now < spin {
                std::hint::spin_loop();
            } else if self.watch.sleep(self, value, &mut nap, deadline.saturating_duration_since(now)) {
                // An error may have woken the host.
                look = now;
            }
        }
    }

    fn lacks(&self, by: WaitBy) -> Option<String> {
        (by == WaitBy::Sleep).then(|| self.watch.lacks_wakes(self)).flatten()
    }

    fn report(&self) -> Report {
        // A submission that waits for room holds the lock, and may itself be making this report.
        match self.try_lock() {
            Some(p) => self.report_of(p.encoder.as_ref(), Some(&p.last_kernels)),
            None => self.report_of(None, None),
        }
    }

    fn is_alive(&self) -> bool {
        self.core.health().fault().is_none() && !self.core.health().is_closed()
    }

    fn fault_report(&self) -> Option<Report> {
        self.core.health().fault().is_some().then(|| self.report())
    }
}

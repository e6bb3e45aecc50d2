//! One queue of the CPU device: the producer's side. Commands become packets in the ring; waits for other queues are added by themselves.
//!
//! Place in the arrows: above `consumer`, below the device. What a queued packet needs stays alive until its submission is done: kernels,
//! signals and foreign memories are kept here, own memories by the allocator (a freed block is not unmapped while a use is pending).

use super::consumer::Consumer;
use crate::{Arg, Command, DeviceError, DeviceTag, Kernel, Memory, Place, QueueKind, Stamp};
use doorbell_hcq::kernargs::{Kernargs, KernargsError};
use doorbell_hcq::packet::cpu::{CpuLaunch, CpuPackets};
use doorbell_hcq::queue::{Bound, Packets, Queue, SubmitError};
use doorbell_hcq::signal::{Backoff, Point, Progress, Report, Timeline, WaitError};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a submission keeps alive. The fields are only ever dropped.
#[derive(Clone)]
#[allow(dead_code)]
pub(super) enum Kept {
    Kernel(Kernel),
    Stamp(Stamp),
    Timeline(Arc<Timeline>),
    Memory(Memory),
    Program(Arc<Program>),
}

/// A recorded list, frozen: the words and what they name.
pub(super) struct Program {
    pub(super) bound: Bound,
    pub(super) words: Vec<u32>,
    #[allow(dead_code)] // keeps the kernels and stamps that the words name
    pub(super) kept: Vec<Kept>,
    /// Times of the last run.
    pub(super) span: Stamp,
}

/// State of whoever submits.
pub(super) struct Producer {
    kernargs: Kernargs,
    list: Queue<CpuPackets>,
    waits: Vec<Point>,
    kept: VecDeque<(u64, Kept)>,
    block: Vec<u64>,
}

/// Settings that a queue needs from its device.
#[derive(Clone, Debug)]
pub(super) struct QueueSettings {
    pub(super) kind: QueueKind,
    pub(super) host_helps: bool,
    pub(super) submit_timeout: Duration,
    pub(super) kernargs_words: u64,
}

pub(super) struct CpuQueue {
    pub(super) tag: DeviceTag,
    pub(super) timeline: Arc<Timeline>,
    pub(super) consumer: Consumer,
    pub(super) settings: QueueSettings,
    producer: Mutex<Producer>,
}

impl CpuQueue {
    pub(super) fn new(
        tag: DeviceTag,
        timeline: Arc<Timeline>,
        consumer: Consumer,
        settings: QueueSettings,
    ) -> Result<Arc<Self>, DeviceError> {
        let producer = Producer {
            kernargs: Kernargs::new(settings.kernargs_words)?,
            list: Queue::new(CpuPackets),
            waits: Vec::new(),
            kept: VecDeque::new(),
            block: Vec::new(),
        };
        let queue = Arc::new(Self { tag, timeline, consumer, settings, producer: Mutex::new(producer) });
        let progress: Arc<dyn Progress> = Arc::clone(&queue) as _;
        queue.timeline.set_progress(Arc::downgrade(&progress));
        Ok(queue)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Producer> {
        self.producer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_open(&self) -> Result<(), DeviceError> {
        if self.consumer.is_alive() {
            return Ok(());
        }
        match self.consumer.fault() {
            Some(fault) => Err(DeviceError::Unavailable { name: self.timeline.queue().into(), why: fault }),
            None => Err(DeviceError::Closed { device: self.tag.name().into() }),
        }
    }

    /// Queues commands behind all queued before.
    pub(super) fn submit(&self, commands: &[Command]) -> Result<Point, DeviceError> {
        commands.iter().try_for_each(|c| self.check(c))?;
        let mut producer = self.lock();
        self.check_open()?;
        let p = &mut *producer;
        p.begin(&self.timeline);
        // All hazards are read before any use is marked: two submissions to two queues can then never wait for one another.
        for command in commands {
            if let Command::Wait(point) = command {
                crate::memory::add_wait(&mut p.waits, point);
            }
            command.places().for_each(|place| place.memory.uses().hazards(&self.timeline, &mut p.waits));
        }
        let value = self.timeline.submitted() + 1;
        p.emit_waits(value)?;
        for command in commands {
            self.emit(p, command, value)?;
        }
        for place in commands.iter().flat_map(Command::places) {
            place.memory.uses().mark(&self.timeline, value);
            if *place.memory.device() != self.tag {
                p.keep(value, Kept::Memory(place.memory.clone()));
            }
        }
        self.finish(p, value)
    }

    /// Queues one run of a recorded list with these kernargs. `memories` are all that it touches.
    pub(super) fn submit_program(
        &self,
        p: &mut Producer,
        program: &Arc<Program>,
        kernargs: &[u64],
        memories: &[Option<Memory>],
    ) -> Result<Point, DeviceError> {
        self.check_open()?;
        p.begin(&self.timeline);
        memories.iter().flatten().for_each(|m| m.uses().hazards(&self.timeline, &mut p.waits));
        let value = self.timeline.submitted() + 1;
        p.emit_waits(value)?;
        let at = self.put_kernargs(&mut p.kernargs, kernargs, value)?;
        p.list.replay(&program.bound, at)?;
        p.keep(value, Kept::Program(Arc::clone(program)));
        for memory in memories.iter().flatten() {
            memory.uses().mark(&self.timeline, value);
            if *memory.device() != self.tag {
                p.keep(value, Kept::Memory(memory.clone()));
            }
        }
        self.finish(p, value)
    }

    /// Signal, ring, doorbell.
    fn finish(&self, p: &mut Producer, value: u64) -> Result<Point, DeviceError> {
        p.list.signal(self.timeline.signal(), value)?;
        let given = self.timeline.next();
        debug_assert_eq!(given, value, "the producer's lock is held");
        self.push(p.list.words())?;
        self.consumer.workers.wake(1);
        Ok(self.timeline.point(value))
    }

    /// Writes words to the ring, waiting for room.
    fn push(&self, words: &[u32]) -> Result<(), DeviceError> {
        let mut rest = &words[self.consumer.ring.push(words)..];
        if rest.is_empty() {
            return Ok(());
        }
        let timeout = self.settings.submit_timeout;
        let deadline = Instant::now() + timeout;
        let mut backoff = Backoff::default();
        while !rest.is_empty() {
            if Instant::now() >= deadline || !self.consumer.is_alive() {
                // A list half written can never be run to its signal: the queue is lost.
                self.consumer.close();
                return Err(SubmitError::from(WaitError::Timeout(Box::new(self.full_report(timeout)))).into());
            }
            self.consumer.workers.wake(1);
            let has_helped = self.settings.host_helps && self.consumer.consume(false, || false);
            if !has_helped {
                backoff.pause();
            }
            rest = &rest[self.consumer.ring.push(rest)..];
        }
        Ok(())
    }

    fn full_report(&self, timeout: Duration) -> Report {
        let signals = vec![("timeline".to_string(), self.timeline.completed(), self.timeline.submitted())];
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        Report { timeout_ms, signals, ..self.report() }
    }

    /// Puts words into the kernargs ring, waiting for room.
    fn put_kernargs(&self, kernargs: &mut Kernargs, words: &[u64], value: u64) -> Result<u64, DeviceError> {
        loop {
            match kernargs.put(words, value, self.timeline.completed()) {
                Ok(at) => return Ok(at),
                // Only this submission's own words are in the way: waiting for it would be for ever.
                Err(KernargsError::Full { until }) if until >= value => {
                    let max_words = self.settings.kernargs_words;
                    return Err(
                        SubmitError::from(KernargsError::TooBig { asked_words: max_words + 1, max_words }).into()
                    );
                }
                Err(KernargsError::Full { until }) => self.timeline.wait(until, self.settings.submit_timeout)?,
                Err(e) => return Err(SubmitError::from(e).into()),
            }
        }
    }

    fn emit(&self, p: &mut Producer, command: &Command, value: u64) -> Result<(), DeviceError> {
        match command {
            Command::Wait(_) => {}
            Command::Exec { kernel, args, threads, stamp, .. } => {
                p.block.clear();
                p.block.push(u64::from(*threads));
                p.block.extend(args.iter().map(Arg::bits));
                let kernargs = self.put_kernargs(&mut p.kernargs, &p.block, value)?;
                p.keep(value, Kept::Kernel(kernel.clone()));
                p.stamped(value, stamp.as_ref(), |list| {
                    list.exec(&CpuLaunch { entry: kernel.entry(), kernargs }).map(|_| ())
                })?;
            }
            Command::Copy { dst, src, len_bytes, stamp } => {
                p.stamped(value, stamp.as_ref(), |list| list.copy(dst.va(), src.va(), *len_bytes).map(|_| ()))?;
            }
        }
        Ok(())
    }

    /// Whether this queue can run the command at all.
    pub(super) fn check(&self, command: &Command) -> Result<(), DeviceError> {
        match command {
            Command::Wait(_) => Ok(()),
            Command::Exec { .. } if self.settings.kind == QueueKind::Copy => {
                Err(SubmitError::Unsupported { queue: "copy", what: "run kernels" }.into())
            }
            Command::Exec { kernel, .. } if *kernel.device() != self.tag => Err(self.wrong("kernel", kernel.device())),
            Command::Exec { .. } => command.places().try_for_each(|p| self.check_place(p, 0, "kernel argument")),
            Command::Copy { dst, src, len_bytes, .. } => {
                self.check_place(src, *len_bytes, "copy source")?;
                self.check_place(dst, *len_bytes, "copy destination")?;
                self.check_writable(dst)
            }
        }
    }

    fn wrong(&self, what: &'static str, theirs: &DeviceTag) -> DeviceError {
        DeviceError::WrongDevice { what, ours: self.tag.name().into(), theirs: theirs.name().into() }
    }

    pub(super) fn check_writable(&self, dst: &Place) -> Result<(), DeviceError> {
        if dst.memory.host().is_some_and(doorbell_hcq::memory::View::is_writable) {
            return Ok(());
        }
        Err(DeviceError::Unsupported {
            device: dst.memory.device().name().into(),
            what: "be copied to: it is read-only".into(),
        })
    }

    pub(super) fn check_place(&self, place: &Place, len_bytes: u64, what: &'static str) -> Result<(), DeviceError> {
        if place.memory.host().is_none() {
            return Err(self.wrong(what, place.memory.device()));
        }
        place.memory.check(what, place.offset, len_bytes)
    }
}

impl Producer {
    /// Starts a list, and lets go of what finished submissions kept.
    fn begin(&mut self, timeline: &Timeline) {
        self.list.clear();
        self.waits.clear();
        self.kernargs.forget_after(timeline.submitted());
        self.reap(timeline.completed());
    }

    pub(super) fn reap(&mut self, completed: u64) {
        while self.kept.pop_front_if(|(value, _)| *value <= completed).is_some() {}
    }

    fn keep(&mut self, value: u64, what: Kept) {
        self.kept.push_back((value, what));
    }

    fn emit_waits(&mut self, value: u64) -> Result<(), SubmitError> {
        let waits: SmallVec<[Point; 4]> = self.waits.drain(..).collect();
        for point in waits {
            self.list.wait(point.timeline().signal(), point.value())?;
            self.keep(value, Kept::Timeline(Arc::clone(point.timeline())));
        }
        Ok(())
    }

    /// Emits with timestamps around, if asked.
    fn stamped(
        &mut self,
        value: u64,
        stamp: Option<&Stamp>,
        emit: impl FnOnce(&mut Queue<CpuPackets>) -> Result<(), SubmitError>,
    ) -> Result<(), SubmitError> {
        let Some(stamp) = stamp else { return emit(&mut self.list) };
        self.list.timestamp(&stamp.start)?;
        emit(&mut self.list)?;
        self.list.timestamp(&stamp.stop)?;
        self.keep(value, Kept::Stamp(stamp.clone()));
        Ok(())
    }
}

/// Packets shown in a report.
const TAIL_DWORDS: usize = 48;

impl Progress for CpuQueue {
    fn advance(&self, timeline: &Timeline, value: u64, deadline: Instant) {
        self.consumer.wait(self.settings.host_helps, deadline, || timeline.completed() >= value);
    }

    fn report(&self) -> Report {
        let ring = &self.consumer.ring;
        let (rptr, wptr) = (ring.rptr(), ring.wptr());
        let mut words = [0; TAIL_DWORDS];
        let have = ring.copy_from(rptr, &mut words);
        let tail = CpuPackets.describe(&words[..have]);
        Report {
            queue: self.timeline.queue().into(),
            rptr,
            wptr,
            tail,
            fault: self.consumer.fault(),
            ..Report::default()
        }
    }

    fn is_alive(&self) -> bool {
        self.consumer.is_alive()
    }
}

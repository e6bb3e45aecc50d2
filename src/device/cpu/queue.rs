//! One queue of the CPU device, producer side. Commands become packets in the ring; waits for other queues are added
//! automatically.
//!
//! Layer: above `consumer`, below the device. Everything that a queued packet needs stays alive until its submission is
//! done: kernels, signals and other devices' memories are kept here, own memories by the allocator (a freed block is
//! not unmapped while a use is pending).

use super::consumer::Consumer;
use crate::in_flight::{InFlight, Kept, RoomWait, commit, ring_full_error, submit_to_device_error};
use crate::{Arg, Command, DeviceError, DeviceTag, Location, Memory, QueueKind, Stamp};
use doorbell_hcq::bits::FieldOverflow;
use doorbell_hcq::error::SubmitError;
use doorbell_hcq::kernargs::Kernargs;
use doorbell_hcq::memory::View;
use doorbell_hcq::packet::cpu::{CpuList, Packet, describe};
use doorbell_hcq::signal::{Point, Progress, Report, Timeline, WaitBy};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// An encoded list: its words and everything that they refer to.
pub(super) struct EncodedList {
    pub(super) words: Vec<u32>,
    /// The same words in memory that packets can refer to.
    pub(super) frozen: View,
    #[allow(dead_code)] // keeps the kernels and stamps that the words refer to
    pub(super) kept: Vec<Kept>,
    /// Start and end time of the last run.
    pub(super) span: Stamp,
}

/// State for submitting, under the queue's lock.
pub(super) struct Producer {
    kernargs: Kernargs,
    list: CpuList,
    in_flight: InFlight,
    block: Vec<u64>,
}

/// Settings that a queue needs from its device.
#[derive(Clone, Debug)]
pub(super) struct QueueSettings {
    pub(super) kind: QueueKind,
    pub(super) host_helps: bool,
    /// There are threads besides the waiting host that run the work.
    pub(super) has_workers: bool,
    /// How long a waiting host spins before it sleeps.
    pub(super) spin: Duration,
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
            list: CpuList::default(),
            in_flight: InFlight::default(),
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

    /// Queues commands after all earlier ones.
    pub(super) fn submit(&self, commands: &[Command]) -> Result<Point, DeviceError> {
        commands.iter().try_for_each(|c| self.check(c))?;
        let mut producer = self.lock();
        self.check_open()?;
        let p = &mut *producer;
        p.begin(&self.timeline);
        p.in_flight.wait_for_all(&self.timeline, commands);
        let value = self.timeline.submitted() + 1;
        p.emit_waits(value)?;
        for command in commands {
            self.emit(p, command, value)?;
        }
        self.finish(p, value, commands.iter().flat_map(Command::locations).map(|location| &location.memory))
    }

    /// Queues one run of a recorded list with these kernargs. `memories` are all that it accesses.
    pub(super) fn submit_program(
        &self,
        p: &mut Producer,
        program: &Arc<EncodedList>,
        kernargs: &[u64],
        memories: &[Option<Memory>],
    ) -> Result<Point, DeviceError> {
        self.check_open()?;
        p.begin(&self.timeline);
        memories.iter().flatten().for_each(|m| p.in_flight.wait_for_memory(&self.timeline, m));
        let value = self.timeline.submitted() + 1;
        p.emit_waits(value)?;
        let kernargs = self.put_kernargs(&mut p.kernargs, kernargs, value)?;
        p.list.push(program.run(kernargs)?)?;
        p.in_flight.keep(value, Kept::List(Arc::clone(program) as _));
        self.finish(p, value, memories.iter().flatten())
    }

    /// Emits the signal, writes the list to the ring, wakes a worker.
    fn finish<'m>(
        &self,
        p: &mut Producer,
        value: u64,
        used: impl Iterator<Item = &'m Memory>,
    ) -> Result<Point, DeviceError> {
        p.list.signal(self.timeline.signal(), value)?;
        let Producer { in_flight, .. } = p;
        let used = used.inspect(|memory| {
            if *memory.device() != self.tag {
                in_flight.keep(value, Kept::Memory((*memory).clone()));
            }
        });
        commit(&self.timeline, value, used);
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
        let mut wait = RoomWait::default();
        while !rest.is_empty() {
            if wait.is_over(timeout) || !self.consumer.is_alive() {
                // A partly written list never reaches its signal: the queue is lost.
                self.consumer.close();
                return Err(ring_full_error(&self.timeline, timeout, self.report()));
            }
            self.consumer.workers.wake(1);
            let has_helped = self.settings.host_helps && self.consumer.consume(false, || false);
            if !has_helped {
                wait.pause();
            }
            rest = &rest[self.consumer.ring.push(rest)..];
        }
        Ok(())
    }

    /// Stores words in the kernargs ring, waiting for room.
    fn put_kernargs(&self, kernargs: &mut Kernargs, words: &[u64], value: u64) -> Result<u64, DeviceError> {
        kernargs.put_waiting(words, &self.timeline, value, self.settings.submit_timeout).map_err(submit_to_device_error)
    }

    fn emit(&self, p: &mut Producer, command: &Command, value: u64) -> Result<(), DeviceError> {
        match command {
            Command::Wait(_) => {}
            Command::Exec { kernel, args, threads, stamp, .. } => {
                p.block.clear();
                p.block.push(u64::from(*threads));
                p.block.extend(args.iter().map(Arg::bits));
                let kernargs = self.put_kernargs(&mut p.kernargs, &p.block, value)?;
                p.in_flight.keep_kernel(value, kernel);
                p.stamped(value, stamp.as_ref(), Packet::Exec { entry: kernel.entry(), kernargs })?;
            }
            Command::Copy { dst, src, len_bytes, stamp } => {
                let copy = Packet::Copy { dst: dst.va(), src: src.va(), len_bytes: *len_bytes };
                p.stamped(value, stamp.as_ref(), copy)?;
            }
        }
        Ok(())
    }

    /// Whether this queue can run the command at all.
    pub(super) fn check(&self, command: &Command) -> Result<(), DeviceError> {
        match command {
            Command::Wait(_) => Ok(()),
            Command::Exec { .. } if self.settings.kind.only_copies() => {
                Err(SubmitError::Unsupported { queue: "copy", what: "run kernels" }.into())
            }
            Command::Exec { kernel, .. } if *kernel.device() != self.tag => Err(self.wrong("kernel", kernel.device())),
            Command::Exec { .. } => command.locations().try_for_each(|p| self.check_range(p, 0, "kernel argument")),
            Command::Copy { dst, src, len_bytes, .. } => {
                self.check_range(src, *len_bytes, "copy source")?;
                self.check_range(dst, *len_bytes, "copy destination")?;
                self.check_writable(dst)
            }
        }
    }

    fn wrong(&self, what: &'static str, theirs: &DeviceTag) -> DeviceError {
        DeviceError::WrongDevice { what, ours: self.tag.name().into(), theirs: theirs.name().into() }
    }

    pub(super) fn check_writable(&self, dst: &Location) -> Result<(), DeviceError> {
        if dst.memory.host().is_some_and(View::is_writable) {
            return Ok(());
        }
        Err(DeviceError::Unsupported {
            device: dst.memory.device().name().into(),
            what: "be copied to: it is read-only".into(),
        })
    }

    pub(super) fn check_range(
        &self,
        location: &Location,
        len_bytes: u64,
        what: &'static str,
    ) -> Result<(), DeviceError> {
        if location.memory.host().is_none() {
            return Err(self.wrong(what, location.memory.device()));
        }
        location.memory.check(what, location.offset, len_bytes)
    }
}

impl Producer {
    /// Starts a list, and releases what completed submissions kept.
    fn begin(&mut self, timeline: &Timeline) {
        self.list.clear();
        self.kernargs.forget_after(timeline.submitted());
        self.in_flight.begin(timeline);
    }

    pub(super) fn reap(&mut self, completed: u64) {
        self.in_flight.release(completed);
    }

    fn emit_waits(&mut self, value: u64) -> Result<(), SubmitError> {
        let Self { list, in_flight, .. } = self;
        in_flight.emit_waits(value, |point| {
            list.wait(point.timeline().signal(), point.value())?;
            Ok(true)
        })
    }

    /// Emits a packet, with timestamps before and after if requested.
    fn stamped(&mut self, value: u64, stamp: Option<&Stamp>, packet: Packet) -> Result<(), SubmitError> {
        let Some(stamp) = stamp else { return Ok(self.list.push(packet)?) };
        self.list.timestamp(&stamp.start)?;
        self.list.push(packet)?;
        self.list.timestamp(&stamp.stop)?;
        self.in_flight.keep(value, Kept::Stamp(stamp.clone()));
        Ok(())
    }
}

impl EncodedList {
    /// Stores an encoded list in host memory, so that one packet can run it. Values that replays change are in
    /// kernargs.
    pub(super) fn freeze(list: &CpuList, kept: Vec<Kept>, span: Stamp) -> Result<Self, SubmitError> {
        let words = list.words().to_vec();
        let frozen = View::anonymous(words.len() as u64 * 4, 64)?;
        frozen.write(0, bytemuck::cast_slice(&words))?;
        Ok(Self { words, frozen, kept, span })
    }

    /// The packet that runs the list with kernargs at an address.
    fn run(&self, kernargs: u64) -> Result<Packet, FieldOverflow> {
        let value = self.words.len() as u64;
        let too_long = |_| FieldOverflow { field: "count_dwords", value, max: u64::from(u32::MAX) };
        let count_dwords = u32::try_from(value).map_err(too_long)?;
        Ok(Packet::Indirect { words: self.frozen.base().0, count_dwords, kernargs })
    }
}

/// Dwords of packets that a report shows.
const TAIL_DWORDS: usize = 48;

impl Progress for CpuQueue {
    fn advance(&self, timeline: &Timeline, value: u64, deadline: Instant, by: WaitBy) {
        let options = (self.settings.host_helps, self.settings.spin);
        let (helps, spin) = match by {
            // Nobody else would do the work.
            _ if !self.settings.has_workers => options,
            WaitBy::Options => options,
            WaitBy::Spin => (false, deadline.saturating_duration_since(Instant::now())),
            WaitBy::Sleep => (false, Duration::ZERO),
        };
        self.consumer.wait((helps, spin), deadline, || timeline.completed() >= value);
    }

    fn lacks(&self, by: WaitBy) -> Option<String> {
        let runs_it = by != WaitBy::Options && !self.settings.has_workers;
        runs_it.then(|| "there are no worker threads: a host that waits runs the work itself".into())
    }

    fn report(&self) -> Report {
        let ring = &self.consumer.ring;
        let (rptr, wptr) = (ring.rptr(), ring.wptr());
        let mut words = [0; TAIL_DWORDS];
        let have = ring.copy_from(rptr, &mut words);
        let tail = describe(&words[..have]);
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

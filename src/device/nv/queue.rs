//! One queue of the device: commands become methods, waits for other queues are added, the host waits and watches for errors.
//!
//! Place in the arrows: above `channel`, `program`, `local`; `mod.rs` owns a compute and a copy queue. Source: nv.md 3, 6.
//! A submission is one push buffer a piece of its list: methods go to a ring of host memory, their places to the channel's ring. It ends with a
//! semaphore of the engine, which is the timeline. What it needs stays alive until it is done: kernels, stamps, foreign timelines.
//! Waits for signals of other drivers or GPUs are done by the submitting host.

use super::blocks::Blocks;
use super::channel::{Channel, Group, Notification};
use super::core::Core;
use super::driver::Handle;
use super::events::{Slept, WAKE_BYTES, wake_entry};
use super::faults;
use super::local::{LOCAL_WINDOW, Local, SHARED_WINDOW};
use super::program::Program;
use crate::checks::Checks;
use crate::memory::add_wait;
use crate::staging::{CopyPath, SharedBuffer};
use crate::{Arg, Command, DeviceError, DeviceTag, Geometry, Kernel, Memory, Place, QueueKind, Stamp};
use doorbell_hcq::kernargs::Kernargs;
use doorbell_hcq::memory::View;
use doorbell_hcq::packet::GpuVa;
use doorbell_hcq::packet::nv::copy::{self, Element, MAX_COPY_BYTES, Payload};
use doorbell_hcq::packet::nv::{Entry, PushBuffer, Subchannel, Writes, compute, host};
use doorbell_hcq::queue::SubmitError;
use doorbell_hcq::signal::{Backoff, Point, Progress, Report, Signal, Timeline};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Kernels that a report names.
const REMEMBERED: usize = 4;
/// Methods of a report's tail.
const TAIL_WRITES: usize = 24;
/// Dwords after which a list is cut: one fetch, a fraction of the ring of push buffers.
const PIECE_DWORDS: usize = 1 << 14;
/// Words between two push buffers.
const PUSH_ALIGN_WORDS: u64 = 2;
/// How long a host sleeps before it looks by itself: at first, and at most.
const FIRST_SLEEP: Duration = Duration::from_millis(1); // TIMEOUT: what an interrupt that is lost costs at most, beside the wait so far.
const LONGEST_SLEEP: Duration = Duration::from_millis(20); // TIMEOUT: 50 looks a second are next to nothing; a closed device is noticed that late.
/// How often a waiting host looks for errors.
const WATCH: Duration = Duration::from_millis(2); // TIMEOUT: a fault is told that much later.

/// What a submission keeps alive. The fields are only ever dropped.
#[derive(Clone, Debug)]
#[allow(dead_code)]
pub enum Kept {
    Kernel(Kernel),
    Stamp(Stamp),
    Timeline(Arc<Timeline>),
    List(Arc<dyn std::any::Any + Send + Sync>),
}

/// State of whoever submits.
#[derive(Debug)]
pub struct Producer {
    // None once the queue is closed.
    channel: Option<Channel>,
    push: Kernargs,
    push_view: View,
    /// Banks and QMDs; compute only.
    blocks: Blocks,
    pub list: PushBuffer,
    /// Push buffers of the list so far: address, dwords.
    pieces: SmallVec<[(u64, u32); 4]>,
    /// The engine knows its class and windows.
    is_set_up: bool,
    /// A launch of this list may still run.
    is_busy: bool,
    /// A list was begun and has not been queued.
    is_open: bool,
    pub local: Local,
    waits: Vec<Point>,
    kept: VecDeque<(u64, Kept)>,
    /// Name and entry of the last kernels.
    recent: VecDeque<(Arc<str>, u64)>,
    /// Submissions whose entries are in the ring: value, entries written with it.
    in_flight: VecDeque<(u64, u64)>,
    /// Entries whose submissions are done.
    done: u64,
    /// The entry that wakes a waiting host, always the same one.
    wake: [u32; 2],
    /// The last submission that such an entry stands behind.
    woken_behind: u64,
    // Freed after the channel.
    buffers: Vec<super::bo::Bo>,
}

/// The queue.
pub struct NvQueue {
    core: Arc<Core>,
    kind: QueueKind,
    timeline: Arc<Timeline>,
    producer: Mutex<Producer>,
    /// None once the queue is closed.
    watched: Mutex<Option<Watched>>,
    debugger: OnceLock<Debugger>,
    /// The other queue of the device: what this one waits for may have been that one's work.
    peer: OnceLock<Weak<NvQueue>>,
}

/// Who is asked about exceptions, and of which channel: the one whose engine runs kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debugger {
    pub handle: Handle,
    pub channel: Handle,
}

/// What a waiting host looks at, also while another thread submits.
#[derive(Debug)]
struct Watched {
    channel: Handle,
    notifier: View,
}

impl std::fmt::Debug for NvQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NvQueue({:?})", self.timeline)
    }
}

impl Producer {
    /// What the list that is being made will wait for.
    pub fn waits(&mut self) -> &mut Vec<Point> {
        &mut self.waits
    }

    pub fn keep(&mut self, value: u64, what: Kept) {
        self.kept.push_back((value, what));
    }

    /// Keeps a kernel; once for launches of it in a row, until the last of them is done.
    fn keep_kernel(&mut self, value: u64, kernel: &Kernel) {
        match self.kept.back_mut() {
            Some((until, Kept::Kernel(last))) if last.entry() == kernel.entry() => *until = value,
            _ => self.kept.push_back((value, Kept::Kernel(kernel.clone()))),
        }
    }

    /// A list was given up: what it kept may be an older one's too, and stays until all that was submitted is done.
    fn keep_given_up(&mut self, submitted: u64) {
        self.kept
            .iter_mut()
            .rev()
            .take_while(|(until, _)| *until > submitted)
            .for_each(|(until, _)| *until = submitted);
    }

    /// A launch is about to be sent: work before it ends first, unless none is under way in this list.
    ///
    /// # Errors
    /// As all methods.
    pub fn order_launch(&mut self) -> Result<(), DeviceError> {
        if self.is_busy {
            compute::Action::WaitIdle.emit(&mut self.list)?;
            invalidate(false).emit(&mut self.list)?;
        }
        self.is_busy = true;
        Ok(())
    }

    /// Names a kernel for reports.
    pub fn remember(&mut self, program: &Program) {
        let entry = program.image.0 + program.kernel.code_offset;
        if self.recent.back().is_some_and(|(_, last)| *last == entry) {
            return;
        }
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back((program.name.clone(), entry));
    }
}

/// Caches dropped so that a launch sees what others wrote, and what code is new.
fn invalidate(instruction: bool) -> compute::Action {
    compute::Action::InvalidateCaches { instruction, data: true, constant: true }
}

impl NvQueue {
    /// Makes the channel and what it needs. It runs once its group is scheduled.
    ///
    /// # Errors
    /// `Rm` with the call that was refused.
    pub fn new(core: &Arc<Core>, group: &Arc<Group>, kind: QueueKind) -> Result<Arc<Self>, DeviceError> {
        let (suffix, class, block_bytes) = match kind {
            QueueKind::Compute => ("compute", core.gpu.chip.compute_class, core.options.launch_bytes),
            QueueKind::Copy => ("copy", core.gpu.chip.copy_class, 4096),
        };
        let timeline = Timeline::new(format!("{}/{suffix}", core.tag), core.signals.signal()?);
        let (push_bo, push_view) = core.shared_bo("push buffers", core.options.push_bytes)?;
        let (block_bo, block_view) = core.shared_bo("launches", block_bytes)?;
        let push_bytes = push_view.len_bytes().saturating_sub(WAKE_BYTES);
        let wake = wake_entry(&push_view, push_bytes)?;
        let channel = Channel::new(core, group, class)?;
        let watched = Watched { channel: channel.handle(), notifier: channel.notifier().clone() };
        let producer = Producer {
            channel: Some(channel),
            push: Kernargs::of(push_view.sub(0, push_bytes)?),
            push_view,
            blocks: Blocks::of(block_view),
            list: PushBuffer::new(),
            pieces: SmallVec::new(),
            is_set_up: false,
            is_busy: false,
            is_open: false,
            local: Local::default(),
            waits: Vec::new(),
            kept: VecDeque::new(),
            recent: VecDeque::new(),
            in_flight: VecDeque::new(),
            done: 0,
            wake,
            woken_behind: 0,
            buffers: vec![push_bo, block_bo],
        };
        let (producer, watched) = (Mutex::new(producer), Mutex::new(Some(watched)));
        let (core, debugger, peer) = (Arc::clone(core), OnceLock::new(), OnceLock::new());
        let queue = Arc::new(Self { core, kind, timeline, producer, watched, debugger, peer });
        let progress: Arc<dyn Progress> = Arc::clone(&queue) as _;
        queue.timeline.set_progress(Arc::downgrade(&progress));
        Ok(queue)
    }

    /// Tells the engine its class and windows, and waits for the answer: the channel works.
    ///
    /// # Errors
    /// As a submission; `Wait` with a report when nothing comes back.
    pub fn start(&self) -> Result<(), DeviceError> {
        let point = self.submit(&[], &[])?;
        Ok(point.wait(self.core.options.submit_timeout)?)
    }

    /// Who is asked about exceptions of the engine.
    pub fn set_debugger(&self, debugger: Debugger) {
        let _first_one_counts = self.debugger.set(debugger);
    }

    /// Whose channel is looked at too while the host waits for this queue.
    pub fn set_peer(&self, peer: &Arc<NvQueue>) {
        let _first_one_counts = self.peer.set(Arc::downgrade(peer));
    }

    /// The channel and its engine's object, for a debugger.
    #[must_use]
    pub fn engine(&self) -> Option<[Handle; 2]> {
        self.lock().channel.as_ref().map(|c| [c.handle(), c.engine()])
    }

    #[must_use]
    pub fn timeline(&self) -> &Arc<Timeline> {
        &self.timeline
    }

    pub fn lock(&self) -> MutexGuard<'_, Producer> {
        self.producer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues commands behind all queued before, after `after`.
    ///
    /// # Errors
    /// As [`crate::Device::submit`].
    pub fn submit(&self, commands: &[Command], after: &[Point]) -> Result<Point, DeviceError> {
        commands.iter().try_for_each(|c| self.check(c))?;
        let mut producer = self.lock();
        self.core.check_open()?;
        let p = &mut *producer;
        self.begin(p);
        let local_bytes = commands.iter().map(|c| self.local_bytes(c)).max();
        self.need_local(p, local_bytes.unwrap_or(0))?;
        after.iter().for_each(|point| add_wait(&mut p.waits, point));
        // All hazards are read before any use is marked: two submissions to two queues can then never wait for one another.
        for command in commands {
            if let Command::Wait(point) = command {
                add_wait(&mut p.waits, point);
            }
            command.places().for_each(|place| place.memory.uses().hazards(&self.timeline, &mut p.waits));
        }
        let value = self.timeline.submitted() + 1;
        self.open_list(p, value)?;
        for command in commands {
            self.emit(p, command, value)?;
        }
        let places = commands.iter().flat_map(Command::places);
        self.finish(p, value, places.map(|place| &place.memory))
    }

    /// Queues a fill of memory with a value over and over; `dst` and length are multiples of the element. Copy queues.
    ///
    /// # Errors
    /// As `submit`.
    pub fn fill(&self, dst: &Place, value: u64, element: Element, count: u64) -> Result<Point, DeviceError> {
        let len_bytes = count.saturating_mul(element.len_bytes().into());
        self.check_place(dst, len_bytes, "fill")?;
        self.alone(&dst.memory, |p| {
            let (mut at, mut left) = (dst.va(), count);
            let most = u64::from(MAX_COPY_BYTES / 2 / element.len_bytes());
            while left > 0 {
                let count = left.min(most);
                copy::Action::Fill { dst: GpuVa(at), value, element, count: count as u32 }.emit(&mut p.list)?;
                (at, left) = (at + count * u64::from(element.len_bytes()), left - count);
            }
            Ok(())
        })
    }

    /// A submission of one action on one memory.
    fn alone(
        &self,
        memory: &Memory,
        emit: impl FnOnce(&mut Producer) -> Result<(), DeviceError>,
    ) -> Result<Point, DeviceError> {
        let mut producer = self.lock();
        self.core.check_open()?;
        let p = &mut *producer;
        self.begin(p);
        memory.uses().hazards(&self.timeline, &mut p.waits);
        let value = self.timeline.submitted() + 1;
        self.open_list(p, value)?;
        emit(p)?;
        self.finish(p, value, std::iter::once(memory))
    }

    /// Starts a list, and lets go of what finished submissions kept.
    pub fn begin(&self, p: &mut Producer) {
        p.list.clear();
        p.pieces.clear();
        p.waits.clear();
        p.is_busy = false;
        if std::mem::take(&mut p.is_open) {
            // The last list was given up: what it would have told the engine is still to be told.
            self.core.note_code();
            p.local.forget();
        }
        let submitted = self.timeline.submitted();
        p.push.forget_after(submitted);
        p.blocks.forget_after(submitted);
        p.keep_given_up(submitted);
        self.retire(p);
    }

    /// What is done frees its slots, and what it kept.
    fn retire(&self, p: &mut Producer) {
        let completed = self.timeline.completed();
        while p.kept.pop_front_if(|(value, _)| *value <= completed).is_some() {}
        while let Some((_, put)) = p.in_flight.pop_front_if(|(value, _)| *value <= completed) {
            p.done = put;
        }
    }

    /// Set-up where it is missing, the waits gathered, and caches made to see what others wrote.
    pub fn open_list(&self, p: &mut Producer, value: u64) -> Result<(), DeviceError> {
        let chip = self.core.gpu.chip;
        if self.kind == QueueKind::Copy && chip.copy_payload == Payload::Word && u32::try_from(value).is_err() {
            let what = "number more than 2^32 - 1 submissions";
            return Err(SubmitError::Unsupported { queue: "copy", what }.into());
        }
        p.is_open = true;
        if !p.is_set_up {
            let (subchannel, class) = match self.kind {
                QueueKind::Compute => (Subchannel::COMPUTE, chip.compute_class),
                QueueKind::Copy => (Subchannel::COPY, chip.copy_class),
            };
            host::Action::SetObject { subchannel, class }.emit(&mut p.list)?;
            if self.kind == QueueKind::Compute {
                compute::Action::SharedWindow(SHARED_WINDOW).emit(&mut p.list)?;
                compute::Action::LocalWindow(LOCAL_WINDOW).emit(&mut p.list)?;
            }
        }
        let mut waits = std::mem::take(&mut p.waits);
        for point in waits.drain(..) {
            let signal = point.timeline().signal();
            if !self.core.has_signal(signal) {
                // Another driver's signal lies in no page table of this GPU.
                point.wait(self.core.options.submit_timeout)?;
                continue;
            }
            let (address, value_of) = (GpuVa(signal.va()), point.value());
            let wait = host::Action::Acquire { address, value: value_of, until: host::Until::AtLeast, switch: true };
            wait.emit(&mut p.list)?;
            p.kept.push_back((value, Kept::Timeline(Arc::clone(point.timeline()))));
        }
        p.waits = waits;
        if self.kind == QueueKind::Compute {
            p.local.emit(&mut p.list)?;
            invalidate(self.core.take_fresh_code()).emit(&mut p.list)?;
        }
        Ok(())
    }

    fn emit(&self, p: &mut Producer, command: &Command, value: u64) -> Result<(), DeviceError> {
        match command {
            Command::Wait(_) => Ok(()),
            Command::Exec { kernel, args, geometry, stamp, .. } => {
                let program = self.program(kernel)?;
                p.keep_kernel(value, kernel);
                self.stamped(p, value, stamp.as_ref(), |queue, p| queue.exec(p, program, args, geometry, value))
            }
            Command::Copy { dst, src, len_bytes, stamp } => {
                self.stamped(p, value, stamp.as_ref(), |_, p| copy_bytes(p, dst.va(), src.va(), *len_bytes))
            }
        }?;
        self.cut(p, value)
    }

    /// Emits with timestamps around, if asked.
    fn stamped(
        &self,
        p: &mut Producer,
        value: u64,
        stamp: Option<&Stamp>,
        emit: impl FnOnce(&Self, &mut Producer) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let Some(stamp) = stamp else { return emit(self, p) };
        self.signal(p, &stamp.start, 1)?;
        emit(self, p)?;
        self.signal(p, &stamp.stop, 1)?;
        p.kept.push_back((value, Kept::Stamp(stamp.clone())));
        Ok(())
    }

    /// Writes a signal, with the time, after all work before it.
    ///
    /// # Errors
    /// As all methods.
    pub fn signal(&self, p: &mut Producer, signal: &Signal, value: u64) -> Result<(), DeviceError> {
        let address = GpuVa(signal.va());
        match self.kind {
            QueueKind::Compute => {
                let release = host::Action::Release { address, value, wait_idle: true, timestamp: true };
                release.emit(&mut p.list)?;
                p.is_busy = false;
            }
            QueueKind::Copy => {
                let payload = self.core.gpu.chip.copy_payload;
                copy::Action::Release { address, value, timestamp: true, payload }.emit(&mut p.list)?;
            }
        }
        Ok(())
    }

    /// The device's part of a kernel.
    ///
    /// # Errors
    /// `WrongDevice` for a kernel of another kind of device.
    pub fn program<'a>(&self, kernel: &'a Kernel) -> Result<&'a Program, DeviceError> {
        kernel.program().downcast_ref::<Program>().ok_or_else(|| self.wrong("kernel", kernel.device()))
    }

    /// Local memory that a thread of the command's kernel needs.
    #[must_use]
    pub fn local_bytes(&self, command: &Command) -> u32 {
        let Command::Exec { kernel, .. } = command else { return 0 };
        self.program(kernel).map_or(0, Program::local_bytes)
    }

    fn exec(
        &self,
        p: &mut Producer,
        program: &Program,
        args: &[Arg],
        geometry: &Geometry,
        value: u64,
    ) -> Result<(), DeviceError> {
        if geometry.is_empty() {
            return Ok(());
        }
        let (core, chip) = (&self.core, self.core.gpu.chip);
        let arguments = program.arguments(args, |_, _| {}).map_err(|what| core.cannot(what))?;
        let timeout = core.options.submit_timeout;
        let blocks = &mut p.blocks;
        let qmd = program.with_template(chip, geometry, &arguments, |template| {
            blocks.put(template, &arguments, &self.timeline, value, timeout)
        });
        let qmd = qmd.map_err(|what| core.cannot(what))?.map_err(waited)?;
        p.remember(program);
        p.order_launch()?;
        compute::Action::Launch { qmd: GpuVa(qmd), pcas: chip.pcas }.emit(&mut p.list)?;
        Ok(())
    }

    /// Local memory for kernels of `thread_bytes` a thread; growing it waits until the channel is idle.
    ///
    /// # Errors
    /// `OutOfMemory`, `Wait`.
    pub fn need_local(&self, p: &mut Producer, thread_bytes: u32) -> Result<(), DeviceError> {
        if thread_bytes <= p.local.thread_bytes() {
            return Ok(());
        }
        self.timeline.wait(self.timeline.submitted(), self.core.options.submit_timeout)?;
        p.local.grow(&self.core, thread_bytes)
    }

    /// Moves the list so far to the ring of push buffers when it is long.
    fn cut(&self, p: &mut Producer, value: u64) -> Result<(), DeviceError> {
        if p.list.words().len() < PIECE_DWORDS { Ok(()) } else { self.place(p, value) }
    }

    /// The list so far, then push buffers that lie elsewhere.
    ///
    /// # Errors
    /// `Wait` for room.
    pub fn splice(&self, p: &mut Producer, value: u64, pieces: &[(u64, u32)]) -> Result<(), DeviceError> {
        if !p.list.words().is_empty() {
            self.place(p, value)?;
        }
        p.pieces.extend_from_slice(pieces);
        p.is_busy = true;
        Ok(())
    }

    fn place(&self, p: &mut Producer, value: u64) -> Result<(), DeviceError> {
        let words = p.list.words();
        let count = u32::try_from(words.len()).unwrap_or(u32::MAX);
        let room = u64::from(count).div_ceil(2).next_multiple_of(PUSH_ALIGN_WORDS);
        let room =
            p.push.take_waiting(room, &self.timeline, value, self.core.options.submit_timeout).map_err(waited)?;
        p.push.write_at(room, 0, bytemuck::cast_slice(words))?;
        p.pieces.push((p.push.address(room), count));
        p.list.clear();
        Ok(())
    }

    /// Signal, ring, doorbell.
    /// The memories are marked as used when nothing can keep the list from the channel any more.
    pub fn finish<'m>(
        &self,
        p: &mut Producer,
        value: u64,
        used: impl Iterator<Item = &'m Memory>,
    ) -> Result<Point, DeviceError> {
        self.signal(p, self.timeline.signal(), value)?;
        self.place(p, value)?;
        let mut entries: SmallVec<[[u32; 2]; 4]> = SmallVec::new();
        for (va, count) in &p.pieces {
            entries.push(Entry::fetch(GpuVa(*va), *count).emit()?);
        }
        self.wait_for_slots(p, entries.len() as u64)?;
        let closed = || DeviceError::Closed { device: self.core.tag.name().into() };
        let channel = p.channel.as_mut().ok_or_else(closed)?;
        used.for_each(|memory| memory.uses().mark(&self.timeline, value));
        let given = self.timeline.next();
        debug_assert_eq!(given, value, "the producer's lock is held");
        entries.into_iter().for_each(|entry| channel.push(entry));
        channel.publish();
        p.in_flight.push_back((value, channel.put()));
        (p.is_set_up, p.is_open) = (true, false);
        Ok(self.timeline.point(value))
    }

    /// Until the ring has room for so many entries.
    fn wait_for_slots(&self, p: &mut Producer, count: u64) -> Result<(), DeviceError> {
        let capacity = p.channel.as_ref().map_or(0, Channel::capacity);
        if count > capacity {
            return Err(SubmitError::Unsupported { queue: "NV", what: "hold so long a list" }.into());
        }
        loop {
            self.retire(p);
            let put = p.channel.as_ref().map_or(0, Channel::put);
            if put - p.done + count <= capacity {
                return Ok(());
            }
            let Some((value, _)) = p.in_flight.front() else { return Ok(()) };
            self.timeline.wait(*value, self.core.options.submit_timeout)?;
        }
    }

    /// Ends the queue: the channel is freed, running or not, and its buffers with it.
    pub fn shut(&self) {
        let mut p = self.lock();
        // The notifier's last view goes first: it is unmapped with the channel.
        *self.watched.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if p.channel.take().is_none() {
            return;
        }
        p.local = Local::default();
        p.kept.clear();
        p.buffers.clear();
    }

    /// Looks whether the driver has ended a channel of the device; remembers why.
    fn watch(&self) {
        self.look();
        if let Some(peer) = self.peer.get().and_then(Weak::upgrade) {
            peer.look();
        }
    }

    fn look(&self) {
        if self.core.life.fault().is_some() {
            return;
        }
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Watched { channel, notifier }) = &*watched else { return };
        if let Some(what) = Notification::read(notifier) {
            let text = faults::describe(&self.core, *channel, self.debugger.get().copied(), &what);
            self.core.life.set_fault(text);
        }
    }

    /// Has the channel interrupt the host when all that it was given, `value` too, is done; once for as much. Gives how long the host may sleep: where more
    /// was queued behind `value`, it looks by itself. Nothing: somebody is submitting, perhaps the one who waits.
    fn ask_for_interrupt(&self, value: u64) -> Option<Duration> {
        let mut producer = self.producer.try_lock().ok()?;
        let p = &mut *producer;
        if p.woken_behind < value {
            let channel = p.channel.as_mut()?;
            channel.push(p.wake);
            channel.publish();
            p.woken_behind = self.timeline.submitted();
        }
        Some(if p.woken_behind == value { LONGEST_SLEEP } else { FIRST_SLEEP })
    }

    /// Sleeps until something happened on the card, for `timeout` at most; nothing where nobody would wake the host.
    fn sleep(&self, value: u64, timeout: Duration) -> Option<Slept> {
        let events = self.core.events()?;
        // Before the look: what is heard between the two ends the sleep at once.
        let round = events.round();
        let longest = self.ask_for_interrupt(value)?;
        if self.timeline.completed() >= value || events.sleep(round, timeout.min(longest)) {
            return Some(Slept::Woken);
        }
        if longest == LONGEST_SLEEP && self.timeline.completed() >= value {
            events.note_unheard();
        }
        Some(Slept::InVain)
    }

    fn report_of(&self, p: Option<&Producer>) -> Report {
        let channel = p.and_then(|p| p.channel.as_ref());
        let (core, driver) = (&self.core, &self.core.gpu.driver);
        let mut notes = vec![format!("chip {} driver {}", core.gpu.chip.name, driver.release())];
        if let Some(channel) = channel {
            let (get, put) = channel.pointers();
            let (handle, token) = (channel.handle(), channel.token());
            notes.push(format!("channel {handle:#x} token {token:#x} GP_GET {get} GP_PUT {put}"));
        }
        let kernels: Vec<String> =
            p.iter().flat_map(|p| &p.recent).map(|(name, entry)| format!("{name} at {entry:#x}")).collect();
        if !kernels.is_empty() {
            notes.push(format!("last kernels: {}", kernels.join(", ")));
        }
        notes.push(format!("last calls: {}", driver.recent_calls()));
        Report {
            queue: self.timeline.queue().into(),
            rptr: p.map_or(0, |p| p.done),
            wptr: channel.map_or(0, Channel::put),
            tail: p.map(|p| self.tail(p)).unwrap_or_default(),
            fault: core.life.fault().map(Into::into),
            notes,
            ..Report::default()
        }
    }

    /// The methods of the oldest submission that is not done, decoded.
    fn tail(&self, p: &Producer) -> Vec<String> {
        let completed = self.timeline.completed();
        let started =
            p.in_flight.iter().take_while(|(value, _)| *value <= completed).last().map_or(p.done, |(_, at)| *at);
        let Some(channel) = &p.channel else { return Vec::new() };
        let mut lines = Vec::new();
        for index in started..channel.put() {
            let Some(Entry::Fetch { va, len_dwords, .. }) = channel.entry(index) else { continue };
            let mut bytes = vec![0; len_dwords as usize * 4];
            let at = va.0.wrapping_sub(p.push_view.base().0);
            if p.push_view.read(at, &mut bytes).is_err() {
                lines.push(format!("push buffer at {:#x}, {len_dwords} dwords", va.0));
                continue;
            }
            let (fours, _) = bytes.as_chunks::<4>();
            let words: Vec<u32> = fours.iter().map(|b| u32::from_le_bytes(*b)).collect();
            lines.extend(Writes::of(&words).map(|w| w.map_or_else(|e| e.to_string(), |w| w.describe())));
            if lines.len() >= TAIL_WRITES {
                break;
            }
        }
        lines.truncate(TAIL_WRITES);
        lines
    }
}

/// A wait for room that failed is a wait that failed.
fn waited(error: SubmitError) -> DeviceError {
    match error {
        SubmitError::Wait(e) => e.into(),
        e => e.into(),
    }
}

/// Copies in pieces that the engine takes.
fn copy_bytes(p: &mut Producer, dst: u64, src: u64, len_bytes: u64) -> Result<(), DeviceError> {
    let most = u64::from(MAX_COPY_BYTES / 2);
    let mut done = 0;
    while done < len_bytes {
        let len = (len_bytes - done).min(most);
        let (src, dst) = (GpuVa(src + done), GpuVa(dst + done));
        copy::Action::Copy { src, dst, len_bytes: len as u32, pipelined: false }.emit(&mut p.list)?;
        done += len;
    }
    Ok(())
}

impl Checks for NvQueue {
    fn tag(&self) -> &DeviceTag {
        &self.core.tag
    }

    fn kind(&self) -> QueueKind {
        self.kind
    }

    fn map_peer(&self, va: u64) -> Result<bool, DeviceError> {
        let mapped = self.core.gpu.map_peer(va);
        mapped.map_err(|source| self.core.refused("map a peer's memory", source))
    }
}

impl CopyPath for NvQueue {
    fn shared(&self, what: &'static str, len_bytes: u64) -> Result<SharedBuffer, DeviceError> {
        let (bo, view) = self.core.shared_bo(what, len_bytes)?;
        Ok(SharedBuffer { va: bo.va(), view, keep: Arc::new(bo) })
    }

    fn staging_bytes(&self) -> u64 {
        self.core.options.staging_bytes
    }

    fn timeout(&self) -> Duration {
        self.core.options.submit_timeout
    }

    fn copy(&self, dst: u64, src: u64, len_bytes: u64, memory: &Memory) -> Result<Point, DeviceError> {
        self.alone(memory, |p| copy_bytes(p, dst, src, len_bytes))
    }
}

impl Progress for NvQueue {
    fn advance(&self, timeline: &Timeline, value: u64, deadline: Instant) {
        let spin = Instant::now() + self.core.options.spin.min(deadline.saturating_duration_since(Instant::now()));
        let mut backoff = Backoff::default();
        let (mut look, mut sleep) = (Instant::now() + WATCH, FIRST_SLEEP);
        loop {
            let now = Instant::now();
            if now >= look || now >= deadline {
                self.watch();
                look = now + WATCH;
            }
            let is_over = self.core.life.fault().is_some() || self.core.life.is_closed();
            if timeline.completed() >= value || is_over || now >= deadline {
                return;
            }
            if now < spin {
                std::hint::spin_loop();
                continue;
            }
            match self.sleep(value, sleep.min(deadline.saturating_duration_since(now))) {
                // It may have been an error that woke the host.
                Some(Slept::Woken) => (sleep, look) = (FIRST_SLEEP, now),
                Some(Slept::InVain) => sleep = (sleep * 2).min(LONGEST_SLEEP),
                None => backoff.pause(),
            }
        }
    }

    fn report(&self) -> Report {
        // A submission that waits for room holds the lock.
        match self.producer.try_lock() {
            Ok(p) => self.report_of(Some(&p)),
            Err(_) => self.report_of(None),
        }
    }

    fn is_alive(&self) -> bool {
        self.core.life.fault().is_none() && !self.core.life.is_closed()
    }

    fn fault_report(&self) -> Option<Report> {
        self.core.life.fault().is_some().then(|| self.report())
    }
}

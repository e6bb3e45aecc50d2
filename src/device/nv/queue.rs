//! NVIDIA's implementation of a queue: commands become methods in push buffers, whose addresses go to a channel's ring.
//!
//! Layer: above `channel`, `program`, `local`; code shared by all GPUs is in `device::gpu`, waiting
//! is in `watch`, and `mod.rs` owns a compute queue and copy queues. Source: docs/nv.md 3, 6.
//! A submission is a list of methods, cut into pieces. Each piece is one push buffer in a ring of host memory, and its
//! address goes to the channel's ring. The last method writes the timeline's semaphore.

use super::blocks::Blocks;
use super::bo::Bo;
use super::channel::{Channel, Group};
use super::core::Core;
use super::driver::Handle;
use super::events::{WAKE_BYTES, wake_entry};
use super::local::{LOCAL_WINDOW, Local, SHARED_WINDOW};
use super::program::LoadedKernel;
use super::watch::ChannelWatch;
use crate::gpu::encode::{Encode, GpuCore, GpuProgram, SubmitContext};
use crate::gpu::queue::{GpuQueue, name_of};
use crate::in_flight::submit_to_device_error;
use crate::{Arg, DeviceError, Geometry, Location, QueueKind};
use doorbell_hcq::error::SubmitError;
use doorbell_hcq::kernargs::Kernargs;
use doorbell_hcq::memory::View;
use doorbell_hcq::packet::GpuVa;
use doorbell_hcq::packet::nv::copy::{self, Element, MAX_COPY_BYTES, Payload};
use doorbell_hcq::packet::nv::{Entry, PushBuffer, Subchannel, Writes, compute, host};
use doorbell_hcq::signal::{Point, Report, Signal, Timeline};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;

/// Methods that a report shows at most.
const TAIL_WRITES: usize = 24;
/// Length in dwords from which a list is cut into pieces: a single fetch, and a fraction of the ring of push buffers.
const PIECE_DWORDS: usize = 1 << 14;
/// Alignment of push buffers, in 64-bit words.
const PUSH_ALIGN_WORDS: u64 = 2;

/// A queue of this device.
pub(crate) type NvQueue = GpuQueue<Methods>;

/// The list of methods under construction, and the channel that it will be submitted to.
#[derive(Debug)]
pub(crate) struct Methods {
    channel: Channel,
    kind: QueueKind,
    copy_payload: Payload,
    push: Kernargs,
    push_view: View,
    /// Banks and QMDs; compute only.
    blocks: Blocks,
    list: PushBuffer,
    /// Ring entries for the list's push buffers so far.
    entries: SmallVec<[[u32; 2]; 4]>,
    /// Class and windows have been set in the engine.
    is_set_up: bool,
    /// A launch earlier in this list may still be running.
    is_busy: bool,
    /// A list was begun and not yet queued.
    is_open: bool,
    local: Local,
    /// Submissions whose entries are in the ring: timeline value, and total entries written up to it.
    in_ring: VecDeque<(u64, u64)>,
    /// Total entries whose submissions are complete.
    done: u64,
    /// The ring entry that interrupts a waiting host; always the same one.
    wake: [u32; 2],
    /// The last submission that is followed by such an entry.
    woken_after: u64,
    // Freed after the channel.
    #[allow(dead_code)]
    buffers: Vec<Bo>,
}

/// Invalidates caches so that a launch sees data written by others and, with `instruction`, new code.
fn invalidate(instruction: bool) -> compute::Action {
    compute::Action::InvalidateCaches { instruction, data: true, constant: true }
}

/// Opens a queue with its channel. It runs once its channel group is scheduled.
///
/// # Errors
/// `Rm` with the call that was refused.
pub(crate) fn open(core: &Arc<Core>, group: &Arc<Group>, kind: QueueKind) -> Result<Arc<NvQueue>, DeviceError> {
    let timeline = Timeline::new(name_of(&core.tag, kind), core.signals.signal()?);
    let methods = Methods::new(core, group, kind)?;
    let watch = ChannelWatch::new(&methods.channel);
    Ok(NvQueue::new(core, kind, timeline, methods, watch))
}

/// Sets class and windows in the engine and waits for completion, which shows that the channel works.
///
/// # Errors
/// The errors of a submission; `Wait` with a report on a timeout.
pub(crate) fn start(queue: &NvQueue) -> Result<(), DeviceError> {
    let point = queue.submit(&[], &[])?;
    Ok(point.wait(queue.core().options.submit_timeout)?)
}

/// The channel and its engine's object, for a debugger.
#[must_use]
pub(crate) fn engine_of(queue: &NvQueue) -> Option<[Handle; 2]> {
    queue.lock().encoder().map(|methods| [methods.channel.handle(), methods.channel.engine()])
}

/// Queues a fill of memory with a repeated value; `dst` and length are multiples of the element. For copy queues.
///
/// # Errors
/// As a submission.
pub(crate) fn fill(
    queue: &NvQueue,
    dst: &Location,
    value: u64,
    element: Element,
    count: u64,
) -> Result<Point, DeviceError> {
    let len_bytes = count.saturating_mul(element.len_bytes().into());
    queue.check_range(dst, len_bytes, "fill")?;
    queue.submit_on(&dst.memory, |methods, _| {
        let (mut at, mut left) = (dst.va(), count);
        let most = u64::from(MAX_COPY_BYTES / 2 / element.len_bytes());
        while left > 0 {
            let count = left.min(most);
            copy::Action::Fill { dst: GpuVa(at), value, element, count: count as u32 }.emit(&mut methods.list)?;
            (at, left) = (at + count * u64::from(element.len_bytes()), left - count);
        }
        Ok(())
    })
}

impl Methods {
    fn new(core: &Arc<Core>, group: &Arc<Group>, kind: QueueKind) -> Result<Self, DeviceError> {
        let (class, block_bytes) = match kind {
            QueueKind::Compute => (core.gpu.chip.compute_class, core.options.launch_bytes),
            QueueKind::Copy | QueueKind::CopyEngine(_) => (core.gpu.chip.copy_class, 4096),
        };
        let (push_bo, push_view) = core.shared_bo("push buffers", core.options.push_bytes)?;
        let (block_bo, block_view) = core.shared_bo("launches", block_bytes)?;
        let push_bytes = push_view.len_bytes().saturating_sub(WAKE_BYTES);
        let wake = wake_entry(&push_view, push_bytes)?;
        Ok(Self {
            channel: Channel::new(core, group, class)?,
            kind,
            copy_payload: core.gpu.chip.copy_payload,
            push: Kernargs::of(push_view.sub(0, push_bytes)?),
            push_view,
            blocks: Blocks::of(block_view),
            list: PushBuffer::new(),
            entries: SmallVec::new(),
            is_set_up: false,
            is_busy: false,
            is_open: false,
            local: Local::default(),
            in_ring: VecDeque::new(),
            done: 0,
            wake,
            woken_after: 0,
            buffers: vec![push_bo, block_bo],
        })
    }

    /// Requests an interrupt for when everything queued so far, including `value`, is complete; at most once for the
    /// same work. Returns whether nothing was queued after `value`.
    pub(super) fn ask_for_interrupt(&mut self, value: u64, submitted: u64) -> bool {
        if self.woken_after < value {
            self.channel.push(self.wake);
            self.channel.publish();
            self.woken_after = submitted;
        }
        self.woken_after == value
    }

    /// Appends entries for push buffers that lie elsewhere, after the list so far.
    ///
    /// # Errors
    /// `Wait` if no room becomes free in time.
    pub(super) fn splice(
        &mut self,
        context: &SubmitContext<'_, Core>,
        entries: &[[u32; 2]],
    ) -> Result<(), DeviceError> {
        if !self.list.words().is_empty() {
            self.place(context)?;
        }
        self.entries.extend_from_slice(entries);
        self.is_busy = true;
        Ok(())
    }

    /// Moves the list so far to the ring of push buffers if it has reached the length of a piece.
    #[inline]
    fn cut(&mut self, context: &SubmitContext<'_, Core>) -> Result<(), DeviceError> {
        if self.list.words().len() < PIECE_DWORDS { Ok(()) } else { self.place(context) }
    }

    #[inline]
    fn place(&mut self, context: &SubmitContext<'_, Core>) -> Result<(), DeviceError> {
        let words = self.list.words();
        let count = u32::try_from(words.len()).unwrap_or(u32::MAX);
        let room = u64::from(count).div_ceil(2).next_multiple_of(PUSH_ALIGN_WORDS);
        let timeout = context.core.options.submit_timeout;
        let room =
            self.push.take_waiting(room, context.timeline, context.value, timeout).map_err(submit_to_device_error)?;
        self.push.write_at(room, 0, bytemuck::cast_slice(words))?;
        self.entries.push(Entry::fetch(GpuVa(self.push.address(room)), count).emit()?);
        self.list.clear();
        Ok(())
    }

    /// Writes a signal with a timestamp, after all earlier work.
    #[inline]
    fn signal(&mut self, signal: &Signal, value: u64) -> Result<(), DeviceError> {
        let address = GpuVa(signal.va());
        match self.kind {
            QueueKind::Compute => {
                let release = host::Action::Release { address, value, wait_idle: true, timestamp: true };
                release.emit(&mut self.list)?;
                self.is_busy = false;
            }
            QueueKind::Copy | QueueKind::CopyEngine(_) => {
                let payload = self.copy_payload;
                copy::Action::Release { address, value, timestamp: true, payload }.emit(&mut self.list)?;
            }
        }
        Ok(())
    }

    /// Waits until the ring has room for `count` entries.
    #[inline]
    fn wait_for_slots(&mut self, context: &SubmitContext<'_, Core>, count: u64) -> Result<(), DeviceError> {
        let capacity = self.channel.capacity();
        if count > capacity {
            return Err(SubmitError::Unsupported { queue: "NV", what: "hold so long a list" }.into());
        }
        loop {
            let completed = context.timeline.completed();
            while let Some((_, put)) = self.in_ring.pop_front_if(|(value, _)| *value <= completed) {
                self.done = put;
            }
            if self.channel.put() - self.done + count <= capacity {
                return Ok(());
            }
            let Some((value, _)) = self.in_ring.front() else { return Ok(()) };
            context.timeline.wait(*value, context.core.options.submit_timeout)?;
        }
    }

    /// The decoded methods of the oldest incomplete submission.
    fn tail(&self, completed: u64) -> Vec<String> {
        let finished = self.in_ring.iter().take_while(|(value, _)| *value <= completed).last();
        let started = finished.map_or(self.done, |(_, at)| *at);
        let mut lines = Vec::new();
        for index in started..self.channel.put() {
            let Some(Entry::Fetch { va, len_dwords, .. }) = self.channel.entry(index) else { continue };
            let mut bytes = vec![0; len_dwords as usize * 4];
            let at = va.0.wrapping_sub(self.push_view.base().0);
            if self.push_view.read(at, &mut bytes).is_err() {
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

impl GpuProgram for LoadedKernel {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn entry(&self) -> u64 {
        self.image.0 + self.kernel.code_offset
    }

    fn private_bytes(&self) -> u32 {
        self.local_bytes()
    }
}

impl Encode for Methods {
    type Core = Core;
    type Program = LoadedKernel;
    type Watch = ChannelWatch;

    #[inline]
    fn begin(&mut self, core: &Core, submitted: u64) {
        self.list.clear();
        self.entries.clear();
        self.is_busy = false;
        if std::mem::take(&mut self.is_open) {
            // The last list was abandoned: the engine state that it would have set must be set again.
            core.note_code();
            self.local.forget();
        }
        self.push.forget_after(submitted);
        self.blocks.forget_after(submitted);
    }

    #[inline]
    fn holds_private(&self, bytes: u32) -> bool {
        bytes <= self.local.thread_bytes()
    }

    fn grow_private(&mut self, core: &Core, bytes: u32) -> Result<(), DeviceError> {
        self.local.grow(core, bytes)
    }

    #[inline]
    fn open(&mut self, context: &SubmitContext<'_, Core>) -> Result<(), DeviceError> {
        if self.kind.only_copies() && self.copy_payload == Payload::Word && u32::try_from(context.value).is_err() {
            let what = "number more than 2^32 - 1 submissions";
            return Err(SubmitError::Unsupported { queue: "copy", what }.into());
        }
        self.is_open = true;
        if self.is_set_up {
            return Ok(());
        }
        let chip = context.core.gpu.chip;
        let (subchannel, class) = match self.kind {
            QueueKind::Compute => (Subchannel::COMPUTE, chip.compute_class),
            QueueKind::Copy | QueueKind::CopyEngine(_) => (Subchannel::COPY, chip.copy_class),
        };
        host::Action::SetObject { subchannel, class }.emit(&mut self.list)?;
        if self.kind == QueueKind::Compute {
            compute::Action::SharedWindow(SHARED_WINDOW).emit(&mut self.list)?;
            compute::Action::LocalWindow(LOCAL_WINDOW).emit(&mut self.list)?;
        }
        Ok(())
    }

    fn wait(&mut self, signal: &Signal, value: u64) -> Result<bool, DeviceError> {
        let (address, until) = (GpuVa(signal.va()), host::Until::AtLeast);
        host::Action::Acquire { address, value, until, switch: true }.emit(&mut self.list)?;
        Ok(true)
    }

    #[inline]
    fn acquire(&mut self, core: &Core) -> Result<(), DeviceError> {
        if self.kind == QueueKind::Compute {
            self.local.emit(&mut self.list)?;
            invalidate(core.take_fresh_code()).emit(&mut self.list)?;
        }
        Ok(())
    }

    fn timestamp(&mut self, signal: &Signal) -> Result<(), DeviceError> {
        self.signal(signal, 1)
    }

    #[inline]
    fn exec(
        &mut self,
        context: &SubmitContext<'_, Core>,
        program: &LoadedKernel,
        args: &[Arg],
        geometry: &Geometry,
    ) -> Result<(), DeviceError> {
        let (core, chip) = (context.core, context.core.gpu.chip);
        let arguments = program.arguments(args, |_, _| {}).map_err(|what| core.cannot(what))?;
        let timeout = core.options.submit_timeout;
        let blocks = &mut self.blocks;
        let qmd = program.with_template(chip, geometry, &arguments, |template| {
            blocks.put(template, &arguments, context.timeline, context.value, timeout)
        });
        let qmd = qmd.map_err(|what| core.cannot(what))?.map_err(submit_to_device_error)?;
        // Waits for earlier work, unless this list has none running.
        if self.is_busy {
            compute::Action::WaitIdle.emit(&mut self.list)?;
            invalidate(false).emit(&mut self.list)?;
        }
        self.is_busy = true;
        compute::Action::Launch { qmd: GpuVa(qmd), pcas: chip.pcas }.emit(&mut self.list)?;
        self.cut(context)
    }

    /// Copies in pieces of at most the size that the engine supports.
    fn copy(
        &mut self,
        context: &SubmitContext<'_, Core>,
        dst: u64,
        src: u64,
        len_bytes: u64,
    ) -> Result<(), DeviceError> {
        let most = u64::from(MAX_COPY_BYTES / 2);
        let mut done = 0;
        while done < len_bytes {
            let len = (len_bytes - done).min(most);
            let (src, dst) = (GpuVa(src + done), GpuVa(dst + done));
            copy::Action::Copy { src, dst, len_bytes: len as u32, pipelined: false }.emit(&mut self.list)?;
            done += len;
        }
        self.cut(context)
    }

    #[inline]
    fn seal(&mut self, context: &SubmitContext<'_, Core>) -> Result<(), DeviceError> {
        self.signal(context.timeline.signal(), context.value)?;
        self.place(context)?;
        self.wait_for_slots(context, self.entries.len() as u64)
    }

    #[inline]
    fn push(&mut self, context: &SubmitContext<'_, Core>) -> Result<bool, DeviceError> {
        self.entries.iter().for_each(|entry| self.channel.push(*entry));
        self.channel.publish();
        self.in_ring.push_back((context.value, self.channel.put()));
        (self.is_set_up, self.is_open) = (true, false);
        Ok(true)
    }

    fn report(&self, timeline: &Timeline) -> Report {
        let (get, put) = self.channel.pointers();
        let (handle, token) = (self.channel.handle(), self.channel.token());
        let notes = vec![format!("channel {handle:#x} token {token:#x} GP_GET {get} GP_PUT {put}")];
        let (rptr, wptr) = (self.done, self.channel.put());
        Report { rptr, wptr, tail: self.tail(timeline.completed()), notes, ..Report::default() }
    }
}

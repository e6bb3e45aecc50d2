//! What runs before what.

use crate::objc::{Raw, Size, send};
use crate::seen::Seen;
use crate::work::{Below, Bench, EXACT, wait_until};
use doorbell_ioctl::port::objc::Id;
use hw_contact::Failure;
use std::time::{Duration, Instant};

/// `n` dependent steps of one thread: how long a kernel takes is `n`.
const SPIN: &str = "
kernel void spin(device uint* x [[buffer(0)]], constant uint& n [[buffer(1)]]) {
  uint v = x[0];
  for (uint i = 0; i < n; i++) v = v * 1664525u + 1013904223u;
  x[0] = v;
}";
/// `MTLResourceHazardTrackingModeUntracked`.
const UNTRACKED: u64 = 256;
const COMPLETED: u64 = 4;

/// Objects of this step.
struct Parts<'b> {
    raw: Raw,
    gpu: Id,
    pipeline: Id,
    event: Id,
    bench: &'b Bench,
}

impl Parts<'_> {
    fn queue(&self) -> Id {
        send!(self.raw, self.gpu, "newCommandQueueWithMaxCommandBufferCount:", 16 => u64; Id)
    }

    /// An uncommitted command buffer that runs `n` steps on its memory.
    fn spin(&self, queue: Id, memory: Id, n: u32) -> Id {
        let raw = self.raw;
        let buffer = send!(raw, queue, "commandBuffer"; Id);
        let encoder = send!(raw, buffer, "computeCommandEncoder"; Id);
        send!(raw, encoder, "setComputePipelineState:", self.pipeline => Id; ());
        send!(raw, encoder, "setBuffer:offset:atIndex:", memory => Id, 0 => u64, 0 => u64; ());
        let bytes = n.to_le_bytes();
        send!(raw, encoder, "setBytes:length:atIndex:", bytes.as_ptr() => *const u8, 4 => u64, 1 => u64; ());
        let (groups, threads) = (Size([1; 3]), Size([1; 3]));
        send!(raw, encoder, "dispatchThreadgroups:threadsPerThreadgroup:", groups => Size, threads => Size; ());
        send!(raw, encoder, "endEncoding"; ());
        buffer
    }

    fn wait(&self, buffer: Id, value: u64) {
        send!(self.raw, buffer, "encodeWaitForEvent:value:", self.event => Id, value => u64; ());
    }

    fn signal(&self, buffer: Id, value: u64) {
        send!(self.raw, buffer, "encodeSignalEvent:value:", self.event => Id, value => u64; ());
    }

    fn commit(&self, buffer: Id) {
        send!(self.raw, buffer, "commit"; ());
    }

    fn status(&self, buffer: Id) -> u64 {
        send!(self.raw, buffer, "status"; u64)
    }

    fn value(&self) -> u64 {
        send!(self.raw, self.event, "signaledValue"; u64)
    }

    fn signal_by_host(&self, value: u64) {
        send!(self.raw, self.event, "setSignaledValue:", value => u64; ());
    }

    fn ended(&self, buffer: Id) -> bool {
        wait_until(self.bench.patience(), || self.status(buffer) >= COMPLETED)
    }

    fn times(&self, buffer: Id) -> (f64, f64) {
        (send!(self.raw, buffer, "GPUStartTime"; f64), send!(self.raw, buffer, "GPUEndTime"; f64))
    }
}

pub fn order(bench: &Bench, seen: &mut Seen) -> Result<(), Failure> {
    let below = Below::open(bench)?;
    let (raw, gpu) = (below.raw, below.device);
    raw.pool(|| {
        let mut error = Id::NIL;
        let library = send!(raw, gpu, "newLibraryWithSource:options:error:",
            raw.string(&format!("{EXACT}{SPIN}")) => Id, Id::NIL => Id, &raw mut error => *mut Id; Id);
        let function = send!(raw, library, "newFunctionWithName:", raw.string("spin") => Id; Id);
        let pipeline = send!(raw, gpu, "newComputePipelineStateWithFunction:error:",
            function => Id, &raw mut error => *mut Id; Id);
        raw.release(&[library, function]);
        if pipeline.is_nil() {
            return Err(raw.error(error).map_or("no pipeline".into(), |(_, _, text)| Failure::from(text)));
        }
        let event = send!(raw, gpu, "newSharedEvent"; Id);
        let parts = Parts { raw, gpu, pipeline, event, bench };
        signals(&parts, seen);
        queues(&parts, seen);
        overlap(&parts, seen);
        never(&parts, seen);
        raw.release(&[pipeline, event]);
        Ok(())
    })
}

fn memory(parts: &Parts, options: u64) -> Id {
    send!(parts.raw, parts.gpu, "newBufferWithLength:options:", 64 => u64, options => u64; Id)
}

/// A wait that the host ends, a signal that the host sees, and how long before the state says so.
fn signals(parts: &Parts, seen: &mut Seen) {
    let (queue, data) = (parts.queue(), memory(parts, 0));
    let buffer = parts.raw_buffer_with(queue, |buffer| parts.wait(buffer, 1), data);
    parts.signal(buffer, 2);
    parts.commit(buffer);
    std::thread::sleep(Duration::from_millis(20));
    seen.is(
        "before the host's signal: event, completed",
        (parts.value(), parts.status(buffer) >= COMPLETED),
        (0, false),
    );
    parts.signal_by_host(1);
    let arrived = wait_until(parts.bench.patience(), || parts.value() >= 2);
    let at_signal = parts.status(buffer);
    let began = Instant::now();
    let ended = parts.ended(buffer);
    seen.is("after it: signalled, completed", (arrived, ended), (true, true));
    let late = began.elapsed();
    seen.note(format!("when the signal was seen the state was {at_signal}, and 4 after {late:.1?} more"));
    parts.signal_by_host(1);
    seen.is("the event after a lower value", parts.value(), 2);
    parts.raw.release(&[queue, data]);
}

impl Parts<'_> {
    /// A command buffer that begins with a wait, or something else.
    fn raw_buffer_with(&self, queue: Id, first: impl FnOnce(Id), memory: Id) -> Id {
        let raw = self.raw;
        let buffer = send!(raw, queue, "commandBuffer"; Id);
        first(buffer);
        let blit = send!(raw, buffer, "blitCommandEncoder"; Id);
        send!(raw, blit, "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:",
            memory => Id, 0 => u64, memory => Id, 32 => u64, 16 => u64; ());
        send!(raw, blit, "endEncoding"; ());
        buffer
    }
}

/// Two queues, the second committed first.
fn queues(parts: &Parts, seen: &mut Seen) {
    let (one, two, data) = (parts.queue(), parts.queue(), memory(parts, 0));
    let late = parts.raw_buffer_with(one, |buffer| parts.wait(buffer, 3), data);
    parts.signal(late, 4);
    parts.commit(late);
    let early = parts.raw_buffer_with(two, |_| {}, data);
    parts.signal(early, 3);
    parts.commit(early);
    let both = parts.ended(late) && parts.ended(early);
    seen.is("two queues in the order of the event: completed, value", (both, parts.value()), (true, 4));
    parts.raw.release(&[one, two, data]);
}

/// Whether two command buffers of one queue run at once when nothing orders them.
fn overlap(parts: &Parts, seen: &mut Seen) {
    let steps = if parts.bench.is_quick() { 20_000 } else { 5_000_000 };
    for (what, options) in [("tracked", 0), ("untracked", UNTRACKED)] {
        let (queue, one, two) = (parts.queue(), memory(parts, options), memory(parts, options));
        let (first, second) = (parts.spin(queue, one, steps), parts.spin(queue, two, steps));
        parts.commit(first);
        parts.commit(second);
        if !(parts.ended(first) && parts.ended(second)) {
            seen.holds(false, &format!("{what} buffers: not completed"), "expected both to end");
            continue;
        }
        let ((_, end), (start, _)) = (parts.times(first), parts.times(second));
        let reported = if start < end { "overlap" } else { "follow each other" };
        seen.note(format!(
            "command buffers with {what} memory {reported}: the second starts {:.1} us after the first's end",
            (start - end) * 1e6
        ));
        parts.raw.release(&[queue, one, two]);
    }
}

/// How long a command buffer may wait for an event that nobody signals.
fn never(parts: &Parts, seen: &mut Seen) {
    let (queue, data) = (parts.queue(), memory(parts, 0));
    let buffer = parts.raw_buffer_with(queue, |buffer| parts.wait(buffer, 1000), data);
    parts.commit(buffer);
    let began = Instant::now();
    let most = if parts.bench.is_quick() { Duration::from_millis(200) } else { parts.bench.patience() };
    let ended = wait_until(most, || parts.status(buffer) >= COMPLETED);
    let (after, status) = (began.elapsed(), parts.status(buffer));
    let error = parts.raw.error(send!(parts.raw, buffer, "error"; Id));
    let reported = if ended { "ended by itself" } else { "still waits" };
    seen.note(format!(
        "a wait for a signal that never comes {reported} after {after:.1?}: state {status}, error {error:?}"
    ));
    parts.signal_by_host(1000);
    seen.is("it ends when the host signals", parts.ended(buffer), true);
    parts.raw.release(&[queue, data]);
}

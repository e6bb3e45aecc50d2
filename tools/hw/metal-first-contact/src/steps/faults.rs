//! What ends a device, each in a process of its own; and a launch that a GPU drops.

use crate::objc::{Size, send};
use crate::seen::Seen;
use crate::work::{Below, Bench, wait_until};
use doorbell_ioctl::port::objc::Id;
use hw_contact::{Failure, run_until};

pub fn faults(bench: &Bench, seen: &mut Seen) -> Result<(), Failure> {
    let ended = run_until(bench.again("wild")?, bench.deadline())?;
    let said = ended.out.trim();
    seen.holds(said.contains("stopped"), &format!("a wild store: {said}"), "expected a report that the queue stopped");
    if bench.is_software() {
        seen.note("an endless loop: the software Metal would count 2^36 instructions first");
    } else {
        let ended = run_until(bench.again("endless")?, bench.deadline())?;
        let said = ended.out.trim();
        let is_told = said.contains("stopped") || said.contains("did not finish");
        seen.holds(is_told, &format!("an endless loop: {said}"), "expected a report of a stop or a time-out");
    }
    too_large(bench, seen)
}

/// A threadgroup above the pipeline's limit, past the device's own check: a GPU drops it without a sign.
fn too_large(bench: &Bench, seen: &mut Seen) -> Result<(), Failure> {
    if bench.is_software() {
        seen.note("a threadgroup too large: the software Metal ends the process, which its own tests see");
        return Ok(());
    }
    let below = Below::open(bench)?;
    let raw = below.raw;
    raw.pool(|| {
        let source = raw.string("kernel void k(device float* x [[buffer(0)]]) { x[0] = 1; }");
        let mut error = Id::NIL;
        let library = send!(raw, below.device, "newLibraryWithSource:options:error:",
            source => Id, Id::NIL => Id, &raw mut error => *mut Id; Id);
        let function = send!(raw, library, "newFunctionWithName:", raw.string("k") => Id; Id);
        let pipeline = send!(raw, below.device, "newComputePipelineStateWithFunction:error:",
            function => Id, &raw mut error => *mut Id; Id);
        let queue = send!(raw, below.device, "newCommandQueueWithMaxCommandBufferCount:", 4 => u64; Id);
        let memory = send!(raw, below.device, "newBufferWithLength:options:", 64 => u64, 0 => u64; Id);
        let buffer = send!(raw, queue, "commandBuffer"; Id);
        let encoder = send!(raw, buffer, "computeCommandEncoder"; Id);
        send!(raw, encoder, "setComputePipelineState:", pipeline => Id; ());
        send!(raw, encoder, "setBuffer:offset:atIndex:", memory => Id, 0 => u64, 0 => u64; ());
        let (groups, threads) = (Size([1; 3]), Size([4096, 1, 1]));
        send!(raw, encoder, "dispatchThreadgroups:threadsPerThreadgroup:", groups => Size, threads => Size; ());
        send!(raw, encoder, "endEncoding"; ());
        send!(raw, buffer, "commit"; ());
        let status = || send!(raw, buffer, "status"; u64);
        wait_until(bench.patience(), || status() >= 4);
        let value = raw.first_float(memory);
        seen.note(format!("4096 threads a threadgroup: status {}, the kernel stored {value}", status()));
        raw.release(&[library, function, pipeline, queue, memory]);
    });
    Ok(())
}

//! Encoders: dispatches and copies, checked when they are encoded.

use crate::buffer::Buffer;
use crate::command::{Bound, Command, CommandBuffer, Dispatch};
use crate::compile::Pipeline;
use crate::device::THREADGROUP_BYTES;
use crate::encode::{Range, Sel, Size};
use crate::foundation::Own;
use crate::indirect::{Execute, IndirectBuffer};
use crate::machine::{FaultKind, Machine};
use crate::object::{self, Body, Class, Held, Id};
use crate::send::Methods;
use doorbell_emu_msl::Memory;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Slots of a kernel.
const SLOTS: u64 = 31;
/// Most bytes that can be set without a buffer.
const SET_BYTES: u64 = 4 << 10;

/// An encoder of dispatches.
pub(crate) struct ComputeEncoder {
    buffer: Own,
    state: Mutex<Compute>,
}

#[derive(Default)]
struct Compute {
    ended: bool,
    pipeline: Option<Arc<Own>>,
    bound: Vec<Option<Bound>>,
    threadgroup: Vec<u64>,
    /// What indirect command buffers may name.
    resident: Vec<Arc<Own>>,
    /// Pipelines that were dispatched, which makes them resident.
    pipelines: Vec<Id>,
}

impl Body for ComputeEncoder {
    const CLASS: Class = Class::MTLComputeCommandEncoder;

    fn end(&self, machine: &Machine) {
        unended(machine, self.lock().ended, &self.buffer);
    }
}

impl ComputeEncoder {
    pub(crate) fn new(buffer: Id) -> Self {
        Self { buffer: Own::retain(buffer), state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Compute> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An encoder of copies.
pub(crate) struct BlitEncoder {
    buffer: Own,
    ended: Mutex<bool>,
}

impl Body for BlitEncoder {
    const CLASS: Class = Class::MTLBlitCommandEncoder;

    fn end(&self, machine: &Machine) {
        unended(machine, *self.lock(), &self.buffer);
    }
}

impl BlitEncoder {
    pub(crate) fn new(buffer: Id) -> Self {
        Self { buffer: Own::retain(buffer), ended: Mutex::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unended(machine: &Machine, ended: bool, buffer: &Own) {
    if !ended {
        machine.fault(FaultKind::UnendedEncoder, "an encoder was released without endEncoding");
        close(buffer);
    }
}

/// The command buffer has no open encoder any more.
fn close(buffer: &Own) {
    if let Some(buffer) = object::get::<CommandBuffer>(buffer.0) {
        buffer.lock().open = None;
    }
}

fn push(buffer: &Own, command: Command) {
    if let Some(buffer) = object::get::<CommandBuffer>(buffer.0) {
        buffer.lock().commands.push(command);
    }
}

pub(crate) fn methods(all: &mut Methods) {
    let class = Class::MTLComputeCommandEncoder;
    all.on(class, "setComputePipelineState:", set_pipeline as extern "C" fn(_, _, _));
    all.on(class, "setBuffer:offset:atIndex:", set_buffer as extern "C" fn(_, _, _, _, _));
    all.on(class, "setBytes:length:atIndex:", set_bytes as extern "C" fn(_, _, _, _, _));
    all.on(class, "setThreadgroupMemoryLength:atIndex:", set_threadgroup as extern "C" fn(_, _, _, _));
    all.on(class, "dispatchThreadgroups:threadsPerThreadgroup:", dispatch as extern "C" fn(_, _, _, _));
    all.on(class, "useResource:usage:", use_resource as extern "C" fn(_, _, _, _));
    all.on(class, "executeCommandsInBuffer:withRange:", execute as extern "C" fn(_, _, _, _));
    all.on(class, "endEncoding", end_compute as extern "C" fn(_, _));
    let class = Class::MTLBlitCommandEncoder;
    let copy_name = "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:";
    all.on(class, copy_name, copy as extern "C" fn(_, _, _, _, _, _, _));
    all.on(class, "fillBuffer:range:value:", fill as extern "C" fn(_, _, _, _, _));
    all.on(class, "endEncoding", end_blit as extern "C" fn(_, _));
}

/// An encoder that has not ended.
fn open(this: Id, what: &str) -> Option<Held<ComputeEncoder>> {
    let encoder = object::get::<ComputeEncoder>(this)?;
    let ended = encoder.lock().ended;
    if ended {
        encoder.machine().fault(FaultKind::AfterEnd, format!("{what} after endEncoding"));
        return None;
    }
    Some(encoder)
}

/// A buffer of the GPU that runs the command buffer; another is a fault.
fn buffer_of(machine: &Machine, what: &str, of: &Own, id: Id) -> Option<Held<Buffer>> {
    let buffer = object::argument::<Buffer>(machine, what, id)?;
    let gpu = object::get::<CommandBuffer>(of.0).map_or(0, |commands| commands.gpu());
    if buffer.gpu != gpu {
        let text = format!("{what} takes a buffer of GPU {gpu}, not of {}", buffer.gpu);
        machine.fault(FaultKind::OtherDevice, text);
        return None;
    }
    Some(buffer)
}

fn bind(encoder: &ComputeEncoder, machine: &Machine, slot: u64, bound: Option<Bound>) {
    let Some(at) = usize::try_from(slot).ok().filter(|_| slot < SLOTS) else {
        machine.fault(FaultKind::Slot, format!("slot {slot}, the last one is {}", SLOTS - 1));
        return;
    };
    let mut state = encoder.lock();
    if state.bound.len() <= at {
        state.bound.resize(at + 1, None);
    }
    state.bound[at] = bound;
}

extern "C" fn set_pipeline(this: Id, _: Sel, pipeline: Id) {
    let Some(encoder) = open(this, "setComputePipelineState:") else { return };
    if object::argument::<Pipeline>(encoder.machine(), "setComputePipelineState:", pipeline).is_some() {
        encoder.lock().pipeline = Some(Arc::new(Own::retain(pipeline)));
    }
}

extern "C" fn set_buffer(this: Id, _: Sel, buffer: Id, offset: u64, slot: u64) {
    let Some(encoder) = open(this, "setBuffer:") else { return };
    if buffer.is_nil() {
        return bind(&encoder, encoder.machine(), slot, None);
    }
    let Some(held) = buffer_of(encoder.machine(), "setBuffer:", &encoder.buffer, buffer) else { return };
    if !held.contains(offset, 0) {
        let text = format!("offset {offset} of a buffer of {} bytes", held.len_bytes());
        return encoder.machine().fault(FaultKind::Range, text);
    }
    let bound = Bound::Buffer(Arc::new(Own::retain(buffer)), offset);
    bind(&encoder, encoder.machine(), slot, Some(bound));
}

extern "C" fn set_bytes(this: Id, _: Sel, bytes: *const u8, len_bytes: u64, slot: u64) {
    let Some(encoder) = open(this, "setBytes:") else { return };
    if len_bytes > SET_BYTES || bytes.is_null() {
        let text = format!("setBytes: of {len_bytes} bytes, at most {SET_BYTES}");
        return encoder.machine().fault(FaultKind::Range, text);
    }
    // SAFETY: the message's arguments are bytes and their number.
    let bytes = unsafe { std::slice::from_raw_parts(bytes, len_bytes as usize) };
    bind(&encoder, encoder.machine(), slot, Some(Bound::Bytes(bytes.into())));
}

extern "C" fn set_threadgroup(this: Id, _: Sel, len_bytes: u64, slot: u64) {
    let Some(encoder) = open(this, "setThreadgroupMemoryLength:") else { return };
    let at = usize::try_from(slot).unwrap_or(usize::MAX);
    if !len_bytes.is_multiple_of(16) || len_bytes > THREADGROUP_BYTES || slot >= SLOTS {
        let text = format!("{len_bytes} bytes of threadgroup memory in slot {slot}");
        return encoder.machine().fault(FaultKind::Range, text);
    }
    let mut state = encoder.lock();
    if state.threadgroup.len() <= at {
        state.threadgroup.resize(at + 1, 0);
    }
    state.threadgroup[at] = len_bytes;
}

extern "C" fn dispatch(this: Id, _: Sel, groups: Size, threads: Size) {
    let Some(encoder) = open(this, "dispatchThreadgroups:") else { return };
    let machine = encoder.machine();
    let state = encoder.lock();
    let Some(pipeline) = state.pipeline.clone() else {
        return machine.fault(FaultKind::NoPipeline, "dispatchThreadgroups: without a pipeline");
    };
    let Some(held) = object::get::<Pipeline>(pipeline.0) else { return };
    drop(state);
    let mut state = encoder.lock();
    if !state.pipelines.contains(&pipeline.0) {
        state.pipelines.push(pipeline.0);
    }
    // A dispatch of nothing only makes the pipeline resident.
    if groups == Size([0; 3]) && threads == Size([0; 3]) {
        return;
    }
    for argument in held.kernel.arguments() {
        let slot = argument.slot as usize;
        if argument.kind == doorbell_emu_msl::ArgumentKind::Buffer && !matches!(state.bound.get(slot), Some(Some(_))) {
            let text = format!("slot {slot} of kernel {} has nothing bound", held.kernel.name());
            return machine.fault(FaultKind::Slot, text);
        }
    }
    let each = threads.0.iter().try_fold(1u64, |all, n| all.checked_mul(*n)).unwrap_or(u64::MAX);
    if each > held.limit || each == 0 {
        let text = format!("{each} threads of kernel {}, at most {}", held.kernel.name(), held.limit);
        return machine.fault(FaultKind::ThreadgroupTooLarge, text);
    }
    let small = |size: Size| size.0.map(|n| u32::try_from(n).unwrap_or(u32::MAX));
    let dispatch = Dispatch {
        pipeline,
        bound: state.bound.clone(),
        threadgroup: state.threadgroup.clone(),
        groups: small(groups),
        threads: small(threads),
    };
    push(&encoder.buffer, Command::Dispatch(dispatch));
}

/// Usage: 1 reads, 2 writes; 4 (samples) is for textures.
extern "C" fn use_resource(this: Id, _: Sel, resource: Id, usage: u64) {
    let Some(encoder) = open(this, "useResource:") else { return };
    if usage == 0 || usage > 3 {
        return encoder.machine().fault(FaultKind::WrongArgument, format!("useResource: with usage {usage}"));
    }
    if buffer_of(encoder.machine(), "useResource:", &encoder.buffer, resource).is_some() {
        encoder.lock().resident.push(Arc::new(Own::retain(resource)));
    }
}

extern "C" fn execute(this: Id, _: Sel, commands: Id, range: Range) {
    let Some(encoder) = open(this, "executeCommandsInBuffer:") else { return };
    let machine = encoder.machine();
    let Some(indirect) = object::argument::<IndirectBuffer>(machine, "executeCommandsInBuffer:", commands) else {
        return;
    };
    if range.location.checked_add(range.length).is_none_or(|end| end > indirect.len()) {
        let text = format!("commands {} and {} more of {}", range.location, range.length, indirect.len());
        return machine.fault(FaultKind::Range, text);
    }
    let state = encoder.lock();
    let (resident, pipelines) = (state.resident.clone(), state.pipelines.clone());
    drop(state);
    let indirect = Arc::new(Own::retain(commands));
    let range = range.location as usize..(range.location + range.length) as usize;
    push(&encoder.buffer, Command::Execute(Execute { indirect, range, resident, pipelines }));
}

extern "C" fn end_compute(this: Id, _: Sel) {
    let Some(encoder) = open(this, "endEncoding") else { return };
    encoder.lock().ended = true;
    close(&encoder.buffer);
}

/// As `open`.
fn open_blit(this: Id, what: &str) -> Option<Held<BlitEncoder>> {
    let encoder = object::get::<BlitEncoder>(this)?;
    let ended = *encoder.lock();
    if ended {
        encoder.machine().fault(FaultKind::AfterEnd, format!("{what} after endEncoding"));
        return None;
    }
    Some(encoder)
}

extern "C" fn copy(this: Id, _: Sel, from: Id, from_offset: u64, to: Id, to_offset: u64, len_bytes: u64) {
    let Some(encoder) = open_blit(this, "copyFromBuffer:") else { return };
    let machine = encoder.machine();
    let Some(source) = buffer_of(machine, "copyFromBuffer:", &encoder.buffer, from) else { return };
    let Some(target) = buffer_of(machine, "toBuffer:", &encoder.buffer, to) else { return };
    if !source.contains(from_offset, len_bytes) || !target.contains(to_offset, len_bytes) {
        let text = format!("a copy of {len_bytes} bytes from offset {from_offset} to {to_offset}");
        return machine.fault(FaultKind::Range, text);
    }
    if from == to && from_offset < to_offset + len_bytes && to_offset < from_offset + len_bytes {
        let text = format!("a copy of {len_bytes} bytes from offset {from_offset} to {to_offset} of the same buffer");
        return machine.fault(FaultKind::Overlap, text);
    }
    let (from, to) = (Own::retain(from), Own::retain(to));
    push(&encoder.buffer, Command::Copy { from, from_offset, to, to_offset, len_bytes });
}

extern "C" fn fill(this: Id, _: Sel, to: Id, range: Range, value: u8) {
    let Some(encoder) = open_blit(this, "fillBuffer:") else { return };
    let machine = encoder.machine();
    let Some(target) = buffer_of(machine, "fillBuffer:", &encoder.buffer, to) else { return };
    let Range { location: offset, length: len_bytes } = range;
    if !target.contains(offset, len_bytes) {
        return machine.fault(FaultKind::Range, format!("a fill of {len_bytes} bytes at offset {offset}"));
    }
    push(&encoder.buffer, Command::Fill { to: Own::retain(to), offset, len_bytes, value });
}

extern "C" fn end_blit(this: Id, _: Sel) {
    let Some(encoder) = open_blit(this, "endEncoding") else { return };
    *encoder.lock() = true;
    close(&encoder.buffer);
}

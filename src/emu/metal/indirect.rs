//! Indirect command buffers: commands that are encoded once, changed, and executed by encoders.
//!
//! As on a GPU, what they name is not kept alive and not resident by itself; their commands run at the same time unless
//! a barrier stands between. Before Apple9 a pipeline that no encoder has dispatched is not resident either. Left out:
//! commands that draw, inherited buffers and pipelines, commands that a kernel encodes.

use crate::buffer::Buffer;
use crate::command::{Bound, Dispatch};
use crate::compile::Pipeline;
use crate::device::Device;
use crate::encode::{Bool, Sel, Size};
use crate::foundation::Own;
use crate::machine::{FaultKind, Machine, Order};
use crate::object::{self, Body, Class, Held, Id};
use crate::send::Methods;
use doorbell_emu_msl::Memory;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Commands that dispatch threadgroups.
const CONCURRENT_DISPATCH: u64 = 32;
/// Buffer slots of a kernel.
const SLOTS: u64 = 31;
/// The first family on which pipelines are resident that only an indirect command buffer names.
const RESIDENT_PIPELINES: u32 = 9;

/// How an indirect command buffer is made: types, whether buffers and pipelines are inherited, buffers of a kernel.
#[derive(Default)]
struct Descriptor(Mutex<(u64, bool, bool, u64)>);

impl Body for Descriptor {
    const CLASS: Class = Class::MTLIndirectCommandBufferDescriptor;
}

impl Descriptor {
    fn with(this: Id, f: impl FnOnce(&mut (u64, bool, bool, u64))) {
        if let Some(descriptor) = object::get::<Descriptor>(this) {
            f(&mut descriptor.0.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

/// A command. Nothing that it names is kept alive.
#[derive(Clone, Default)]
struct Indirect {
    pipeline: Option<Id>,
    bound: Vec<Option<(Id, u64)>>,
    launch: Option<([u32; 3], [u32; 3])>,
    has_barrier: bool,
}

/// An indirect command buffer.
pub(crate) struct IndirectBuffer {
    commands: Mutex<Vec<Indirect>>,
    max_buffers: u64,
    /// Buffers or pipelines are the encoder's, which is not modelled.
    inherits: bool,
    /// Committed command buffers that execute it.
    in_flight: AtomicU64,
}

impl Body for IndirectBuffer {
    const CLASS: Class = Class::MTLIndirectCommandBuffer;
}

impl IndirectBuffer {
    fn lock(&self) -> MutexGuard<'_, Vec<Indirect>> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn len(&self) -> u64 {
        self.lock().len() as u64
    }
}

/// One of its commands.
struct IndirectCommand {
    of: Own,
    at: usize,
}

impl Body for IndirectCommand {
    const CLASS: Class = Class::MTLIndirectComputeCommand;
}

/// The execution of a range of commands by an encoder.
pub(crate) struct Execute {
    pub indirect: Arc<Own>,
    pub range: Range<usize>,
    pub resident: Vec<Arc<Own>>,
    /// Pipelines that the encoder has dispatched.
    pub pipelines: Vec<Id>,
}

impl Execute {
    /// Its command buffer was committed.
    pub(crate) fn begin(&self) {
        if let Some(indirect) = object::get::<IndirectBuffer>(self.indirect.0) {
            indirect.in_flight.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Its command buffer has ended.
    pub(crate) fn end(&self) {
        if let Some(indirect) = object::get::<IndirectBuffer>(self.indirect.0) {
            indirect.in_flight.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// The launches in an order in which they may run, or what a GPU would fault at.
    pub(crate) fn dispatches(&self, machine: &Machine) -> Result<Vec<Dispatch>, String> {
        let Some(indirect) = object::get::<IndirectBuffer>(self.indirect.0) else { return Ok(Vec::new()) };
        if indirect.inherits {
            let text = "an indirect command buffer that inherits, which is not modelled";
            machine.fault(FaultKind::Indirect, text);
            return Err(text.into());
        }
        let commands: Vec<Indirect> = indirect.lock()[self.range.clone()].to_vec();
        let mut all: Vec<Dispatch> = Vec::with_capacity(commands.len());
        let mut segment = 0;
        for (at, command) in commands.iter().enumerate() {
            if command.has_barrier {
                segment = all.len();
            }
            let Some((groups, threads)) = command.launch else { continue };
            let dispatch = self.dispatch(machine, at, command, (groups, threads))?;
            // What no barrier separates may run the other way round.
            let place = if machine.config.order == Order::Newest { segment } else { all.len() };
            all.insert(place, dispatch);
        }
        Ok(all)
    }

    fn dispatch(
        &self,
        machine: &Machine,
        at: usize,
        command: &Indirect,
        (groups, threads): ([u32; 3], [u32; 3]),
    ) -> Result<Dispatch, String> {
        let refused = |kind: FaultKind, what: String| {
            let text = format!("command {at} of an indirect command buffer {what}");
            machine.fault(kind, text.clone());
            text
        };
        let pipeline = command.pipeline.and_then(object::get::<Pipeline>);
        let id = command.pipeline.unwrap_or(Id::NIL);
        let pipeline = pipeline.ok_or_else(|| refused(FaultKind::Indirect, "has no living pipeline".into()))?;
        if machine.config.family < RESIDENT_PIPELINES && !self.pipelines.contains(&id) {
            let what = format!("launches {}, whose pipeline is not resident", pipeline.kernel.name());
            return Err(refused(FaultKind::NotResident, what));
        }
        let mut bound = Vec::with_capacity(command.bound.len());
        for slot in &command.bound {
            let Some((buffer, offset)) = slot else {
                bound.push(None);
                continue;
            };
            let Some(own) = self.resident.iter().find(|own| own.0 == *buffer) else {
                let what = format!("of {} reads buffer {:#x}, which is not resident", pipeline.kernel.name(), buffer.0);
                return Err(refused(FaultKind::NotResident, what));
            };
            bound.push(Some(Bound::Buffer(Arc::clone(own), *offset)));
        }
        for argument in pipeline.kernel.arguments() {
            let is_buffer = argument.kind == doorbell_emu_msl::ArgumentKind::Buffer;
            if is_buffer && !matches!(bound.get(argument.slot as usize), Some(Some(_))) {
                return Err(refused(FaultKind::Slot, format!("has nothing bound to slot {}", argument.slot)));
            }
        }
        Ok(Dispatch { pipeline: Arc::new(Own::retain(id)), bound, threadgroup: Vec::new(), groups, threads })
    }
}

pub(crate) fn methods(all: &mut Methods) {
    let descriptor = Class::MTLIndirectCommandBufferDescriptor;
    all.on_class(descriptor, "new", new_descriptor as extern "C" fn(_, _) -> _);
    all.on(descriptor, "setCommandTypes:", set_types as extern "C" fn(_, _, _));
    all.on(descriptor, "setInheritBuffers:", set_inherit_buffers as extern "C" fn(_, _, _));
    all.on(descriptor, "setInheritPipelineState:", set_inherit_pipeline as extern "C" fn(_, _, _));
    all.on(descriptor, "setMaxKernelBufferBindCount:", set_max_buffers as extern "C" fn(_, _, _));
    let make = "newIndirectCommandBufferWithDescriptor:maxCommandCount:options:";
    all.on(Class::MTLDevice, make, new_indirect as extern "C" fn(_, _, _, _, _) -> _);
    let at = command_at as extern "C" fn(_, _, _) -> _;
    all.on(Class::MTLIndirectCommandBuffer, "indirectComputeCommandAtIndex:", at);
    let command = Class::MTLIndirectComputeCommand;
    all.on(command, "setComputePipelineState:", set_pipeline as extern "C" fn(_, _, _));
    all.on(command, "setKernelBuffer:offset:atIndex:", set_buffer as extern "C" fn(_, _, _, _, _));
    let dispatch = "concurrentDispatchThreadgroups:threadsPerThreadgroup:";
    all.on(command, dispatch, set_launch as extern "C" fn(_, _, _, _));
    all.on(command, "setBarrier", set_barrier as extern "C" fn(_, _));
}

extern "C" fn new_descriptor(_: Id, _: Sel) -> Id {
    object::create(&Machine::of_thread(), Descriptor(Mutex::new((0, true, true, SLOTS))))
}

extern "C" fn set_types(this: Id, _: Sel, types: u64) {
    Descriptor::with(this, |d| d.0 = types);
}

extern "C" fn set_inherit_buffers(this: Id, _: Sel, inherit: Bool) {
    Descriptor::with(this, |d| d.1 = inherit.0 != 0);
}

extern "C" fn set_inherit_pipeline(this: Id, _: Sel, inherit: Bool) {
    Descriptor::with(this, |d| d.2 = inherit.0 != 0);
}

extern "C" fn set_max_buffers(this: Id, _: Sel, most: u64) {
    Descriptor::with(this, |d| d.3 = most);
}

extern "C" fn new_indirect(this: Id, _: Sel, descriptor: Id, most: u64, _options: u64) -> Id {
    let Some(device) = object::get::<Device>(this) else { return Id::NIL };
    let machine = device.machine();
    let what = "newIndirectCommandBufferWithDescriptor:";
    let Some(descriptor) = object::argument::<Descriptor>(machine, what, descriptor) else { return Id::NIL };
    if machine.knobs().nil_indirect {
        return Id::NIL;
    }
    let (types, buffers, pipelines, max_buffers) = *descriptor.0.lock().unwrap_or_else(PoisonError::into_inner);
    if types != CONCURRENT_DISPATCH || max_buffers > SLOTS || most == 0 {
        let text = format!("{what} of types {types}, {max_buffers} buffers and {most} commands");
        machine.fault(FaultKind::WrongArgument, text);
        return Id::NIL;
    }
    let commands = Mutex::new(vec![Indirect::default(); usize::try_from(most).unwrap_or(0)]);
    object::create(
        machine,
        IndirectBuffer { commands, max_buffers, inherits: buffers || pipelines, in_flight: AtomicU64::new(0) },
    )
}

extern "C" fn command_at(this: Id, _: Sel, at: u64) -> Id {
    let Some(indirect) = object::get::<IndirectBuffer>(this) else { return Id::NIL };
    let machine = indirect.machine();
    if at >= indirect.len() {
        machine.fault(FaultKind::Range, format!("command {at} of an indirect command buffer of {}", indirect.len()));
        return Id::NIL;
    }
    let command = IndirectCommand { of: Own::retain(this), at: usize::try_from(at).unwrap_or(0) };
    object::autorelease(object::create(machine, command))
}

/// Changes a command, if nothing executes it.
fn change(this: Id, what: &str, f: impl FnOnce(&mut Indirect, &Held<IndirectBuffer>)) {
    let Some(command) = object::get::<IndirectCommand>(this) else { return };
    let Some(indirect) = object::get::<IndirectBuffer>(command.of.0) else { return };
    if indirect.in_flight.load(Ordering::Acquire) > 0 {
        let text = format!("{what} while a command buffer executes it");
        return command.machine().fault(FaultKind::Indirect, text);
    }
    let mut changed = indirect.lock()[command.at].clone();
    f(&mut changed, &indirect);
    indirect.lock()[command.at] = changed;
}

extern "C" fn set_pipeline(this: Id, _: Sel, pipeline: Id) {
    change(this, "setComputePipelineState:", |command, indirect| {
        let machine = indirect.machine();
        let Some(held) = object::argument::<Pipeline>(machine, "setComputePipelineState:", pipeline) else { return };
        if !held.is_indirect {
            let text = format!("the pipeline of {} does not support indirect command buffers", held.kernel.name());
            return machine.fault(FaultKind::Indirect, text);
        }
        command.pipeline = Some(pipeline);
    });
}

extern "C" fn set_buffer(this: Id, _: Sel, buffer: Id, offset: u64, slot: u64) {
    change(this, "setKernelBuffer:", |command, indirect| {
        let machine = indirect.machine();
        let Some(held) = object::argument::<Buffer>(machine, "setKernelBuffer:", buffer) else { return };
        if !held.contains(offset, 0) || u32::try_from(offset).is_err() {
            return machine
                .fault(FaultKind::Range, format!("offset {offset} of a buffer of {} bytes", held.len_bytes()));
        }
        let Some(at) = usize::try_from(slot).ok().filter(|_| slot < indirect.max_buffers) else {
            return machine
                .fault(FaultKind::Slot, format!("slot {slot} of {} for indirect commands", indirect.max_buffers));
        };
        if command.bound.len() <= at {
            command.bound.resize(at + 1, None);
        }
        command.bound[at] = Some((buffer, offset));
    });
}

extern "C" fn set_launch(this: Id, _: Sel, groups: Size, threads: Size) {
    change(this, "concurrentDispatchThreadgroups:", |command, indirect| {
        let each = threads.0.iter().try_fold(1u64, |all, n| all.checked_mul(*n)).unwrap_or(u64::MAX);
        let most = command.pipeline.and_then(object::get::<Pipeline>).map_or(u64::MAX, |pipeline| pipeline.limit);
        if each > most || each == 0 {
            let text = format!("{each} threads of an indirect command, at most {most}");
            return indirect.machine().fault(FaultKind::ThreadgroupTooLarge, text);
        }
        let small = |size: Size| size.0.map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        command.launch = Some((small(groups), small(threads)));
    });
}

extern "C" fn set_barrier(this: Id, _: Sel) {
    change(this, "setBarrier", |command, _| command.has_barrier = true);
}

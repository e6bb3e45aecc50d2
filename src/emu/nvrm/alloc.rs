//! ALLOC, ALLOC_MEMORY, DUP_OBJECT, FREE: creation and destruction of RM's objects.
//!
//! Source: docs/nv.md 1.3, 2; `alloc_free.c`, `resource_list.h`, `kernel_channel.c`, `kernel_ctxshare.c`,
//! `vaspace_api.c` of the open kernel modules. The order of checks is RM's: class, client, parent, handle, then the
//! class's own.

use super::channel::{Channel, ENGINE_GR0, Group, Setup, copy_engine_index, copy_engine_type, runlist};
use super::dma::virtual_memory;
use super::memory::{Location, Memory, PAGE};
use super::object::{Body, Client, Object};
use super::space::VaSpace;
use super::state::State;
use super::{SoftNv, status};
use bytemuck::Pod;
use doorbell_ioctl::abi::chosen;
use doorbell_ioctl::abi::nvrm::{self, Status};
use doorbell_ioctl::port::{CpuPtr, read_process, write_process};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// Parents that a class accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parent {
    Client,
    Device,
    Subdevice,
    DeviceOrSubdevice,
    Group,
    DeviceOrGroup,
    Channel,
    Any,
}

/// What making an object of a class needs.
struct ClassRule {
    parent: Parent,
    /// Params may be absent.
    optional: bool,
    make: fn(&SoftNv, &mut Making<'_>) -> Result<Made, Status>,
}

/// An allocation in the middle of its checks.
pub(super) struct Making<'a> {
    client: &'a mut Client,
    /// Cards whose files this process has open.
    cards: Vec<usize>,
    parent: u32,
    handle: u32,
    class: u32,
    /// The class's params, as long as the newest release's; zeros where there are none.
    params: Vec<u8>,
    has_params: bool,
}

/// What came of it.
pub(super) struct Made {
    pub body: Body,
    pub needs: Vec<u32>,
}

impl Made {
    fn alone(body: Body) -> Self {
        Self { body, needs: Vec::new() }
    }
}

impl Making<'_> {
    pub(crate) fn params<T: Pod>(&self) -> T {
        // PANIC: the buffer is at least as long as every class's params.
        bytemuck::pod_read_unaligned(self.params.get(..size_of::<T>()).expect("long enough"))
    }

    pub(crate) fn store<T: Pod>(&mut self, params: &T) {
        let bytes = bytemuck::bytes_of(params);
        self.params[..bytes.len()].copy_from_slice(bytes);
    }

    fn parent(&self) -> Result<&Object, Status> {
        self.client.object(self.parent)
    }

    fn gpu(&self) -> Result<usize, Status> {
        self.parent()?.gpu().ok_or(status::INVALID_OBJECT_PARENT)
    }

    pub(crate) fn space(&self, handle: u32) -> Result<Arc<VaSpace>, Status> {
        match &self.client.object(handle)?.body {
            Body::Space(space) => Ok(Arc::clone(space)),
            _ => Err(status::INVALID_CLASS),
        }
    }

    fn memory(&self, handle: u32) -> Result<Arc<Memory>, Status> {
        match &self.client.object(handle)?.body {
            Body::Memory(memory) => Ok(Arc::clone(memory)),
            _ => Err(status::INVALID_OBJECT_HANDLE),
        }
    }
}

/// VA-space flags.
const SPACE_EXTERNALLY_OWNED: u32 = 0x8;
/// Of the 57 bits of addresses; the lowest page is reserved.
const SPACE_DEFAULT_BASE: u64 = PAGE;
/// Longest params of a class.
const MAX_PARAMS: usize = 512;
/// Instances of a device.
const SUBDEVICES: u32 = 8;
const USERD_BYTES: u64 = 512;
const NOTIFIER_RECORD_BYTES: u64 = 16;
const NOTIFIER_RECORDS: u64 = 3;
const MAX_GPFIFO_ENTRIES: u32 = 1 << 21;

fn rule(nv: &SoftNv, class: u32) -> Result<ClassRule, Status> {
    use Parent as P;
    let facts = nv.config.chip.facts();
    let rule = |parent, optional, make| Ok(ClassRule { parent, optional, make });
    match class {
        nvrm::NV01_DEVICE_0 => rule(P::Client, true, device),
        nvrm::NV20_SUBDEVICE_0 => rule(P::Device, true, subdevice),
        nvrm::NV01_MEMORY_LOCAL_USER => rule(P::DeviceOrSubdevice, false, vram),
        nvrm::NV01_MEMORY_SYSTEM => rule(P::Device, false, system_memory),
        nvrm::NV01_MEMORY_SYSTEM_OS_DESCRIPTOR => rule(P::Device, false, os_descriptor),
        nvrm::NV50_MEMORY_VIRTUAL => rule(P::Device, false, virtual_memory),
        nvrm::FERMI_VASPACE_A => rule(P::DeviceOrSubdevice, false, va_space),
        nvrm::KEPLER_CHANNEL_GROUP_A => rule(P::Device, false, group),
        nvrm::FERMI_CONTEXT_SHARE_A => rule(P::Group, false, context_share),
        nvrm::GT200_DEBUGGER => rule(P::Device, false, debugger),
        nvrm::NV01_EVENT_OS_EVENT => rule(P::Any, false, os_event),
        nvrm::NV_CONFIDENTIAL_COMPUTE if nv.config.chip.facts().sm_version >= 0x800 => {
            rule(P::Client, true, |_, _| Ok(Made::alone(Body::ConfidentialCompute)))
        }
        _ if facts.gpfifo_classes.contains(&class) => rule(P::DeviceOrGroup, false, channel),
        _ if facts.usermode_classes.contains(&class) => rule(P::Subdevice, true, usermode),
        _ if class == facts.compute_class || class == facts.copy_class => rule(P::Channel, true, engine_object),
        _ => Err(status::INVALID_CLASS),
    }
}

fn allows(parent: Parent, body: &Body) -> bool {
    match parent {
        Parent::Client => matches!(body, Body::Client),
        Parent::Device => matches!(body, Body::Device { .. }),
        Parent::Subdevice => matches!(body, Body::Subdevice { .. }),
        Parent::DeviceOrSubdevice => matches!(body, Body::Device { .. } | Body::Subdevice { .. }),
        Parent::Group => matches!(body, Body::Group(_)),
        Parent::DeviceOrGroup => matches!(body, Body::Device { .. } | Body::Group(_)),
        Parent::Channel => matches!(body, Body::Channel(_)),
        Parent::Any => true,
    }
}

/// An ALLOC, whichever of its two structs brought it.
pub(crate) struct Request {
    pub root: u32,
    pub parent: u32,
    pub handle: u32,
    pub class: u32,
    pub params: u64,
}

impl SoftNv {
    /// ALLOC: returns the new object's handle.
    pub(super) fn rm_alloc(&self, state: &mut State, file: u64, request: &Request) -> Result<u32, Status> {
        let Request { root, parent, handle, class, .. } = *request;
        if matches!(class, nvrm::NV01_ROOT | nvrm::NV01_ROOT_CLIENT) {
            if root != 0 && root != handle || parent != 0 && parent != root {
                return Err(status::INVALID_OBJECT_PARENT);
            }
            return state.clients.create(handle, file, class);
        }
        let rule = rule(self, class).inspect_err(|_| self.refused_class(class))?;
        let cards = state.open_cards(file);
        let client = state.clients.of(root, file, status::INVALID_OBJECT_HANDLE)?;
        let above = client.object(parent)?;
        if !allows(rule.parent, &above.body) {
            return Err(status::INVALID_OBJECT_PARENT);
        }
        if let Some(gpu) = above.gpu()
            && self.gpus[gpu].lost.load(Ordering::Relaxed)
        {
            return Err(status::GPU_IS_LOST);
        }
        let handle = client.free_handle(handle)?;
        if request.params == 0 && !rule.optional {
            return Err(status::INVALID_ARGUMENT);
        }
        let len = self.params_len(class);
        let mut making = Making {
            client,
            cards,
            parent,
            handle,
            class,
            params: vec![0; MAX_PARAMS],
            has_params: request.params != 0,
        };
        if request.params != 0 {
            read_process(CpuPtr(request.params), &mut making.params[..len]).map_err(|_| status::INVALID_ADDRESS)?;
        }
        let Made { body, needs } = (rule.make)(self, &mut making)?;
        let Making { client, params, .. } = making;
        if request.params != 0 && write_process(CpuPtr(request.params), &params[..len]).is_err() {
            self.end_body(&body, root, handle);
            return Err(status::INVALID_ADDRESS);
        }
        client.insert(handle, Object { parent, class, body, needs });
        Ok(handle)
    }

    /// Bytes of a class's params in this release.
    fn params_len(&self, class: u32) -> usize {
        let layout = chosen(nvrm::CLASSES, class).and_then(|choice| choice.layout);
        let is_moved = self.config.release.major >= nvrm::CHANNELS_MOVED;
        if is_moved && layout.is_some_and(|l| *l == nvrm::ChannelAlloc::LAYOUT) {
            return size_of::<nvrm::ChannelAllocV610>();
        }
        layout.map_or(0, |l| self.config.release.len_bytes(l.name, l.len_bytes) as usize).min(MAX_PARAMS)
    }

    fn refused_class(&self, class: u32) {
        match chosen(nvrm::CLASSES, class) {
            Some(choice) if self.config.chip.facts().classes().contains(&class) => {
                self.unmodelled(format!("class {} ({class:#06x})", choice.name));
            }
            Some(_) => {}
            None => self.unknown(format!("class {class:#06x}")),
        }
    }

    /// ALLOC_MEMORY: pinned memory, by the call that names it directly.
    pub(super) fn rm_alloc_memory(
        &self,
        state: &mut State,
        control: u64,
        args: &mut nvrm::AllocMemoryParams,
    ) -> Result<(), Status> {
        const NO_MAP: u32 = 1 << 30;
        if args.h_class != nvrm::NV01_MEMORY_SYSTEM_OS_DESCRIPTOR {
            self.unmodelled(format!("ALLOC_MEMORY of class {:#06x}", args.h_class));
            return Err(status::NOT_SUPPORTED);
        }
        if args.flags & NO_MAP == 0 {
            return Err(status::INVALID_FLAGS);
        }
        let client = state.clients.of(args.h_root, control, status::INVALID_OBJECT_HANDLE)?;
        let above = client.object(args.h_object_parent)?;
        let Body::Device { gpu } = above.body else { return Err(status::INVALID_OBJECT_PARENT) };
        let handle = client.free_handle(args.h_object_new)?;
        let memory = self.pin(gpu, args.p_memory, args.limit)?;
        args.h_object_new = handle;
        let object =
            Object { parent: args.h_object_parent, class: args.h_class, body: Body::Memory(memory), needs: Vec::new() };
        client.insert(handle, object);
        Ok(())
    }

    fn pin(&self, gpu: usize, at: u64, limit: u64) -> Result<Arc<Memory>, Status> {
        let len_bytes = limit.checked_add(1).ok_or(status::INVALID_LIMIT)?;
        let memory = Memory::pinned(gpu, &self.space, CpuPtr(at), len_bytes).inspect_err(|error| {
            if *error == status::INVALID_ADDRESS {
                self.unmodelled(format!("pinned memory at {at:#x} that is not mapped shared, in one piece"));
            }
        })?;
        Ok(Arc::new(memory))
    }

    /// DUP_OBJECT: another handle for memory, of any client of the process.
    pub(super) fn rm_dup(&self, state: &mut State, file: u64, args: &mut nvrm::RmDupObject) -> Result<(), Status> {
        let source = state.clients.any(args.h_client_src)?.object(args.h_object_src)?.clone();
        let client = state.clients.of(args.h_client, file, status::INVALID_OBJECT_HANDLE)?;
        let above = client.object(args.h_parent)?;
        if !matches!(source.body, Body::Memory(_) | Body::Space(_)) {
            self.unmodelled(format!("DUP_OBJECT of class {:#06x}", source.class));
            return Err(status::NOT_SUPPORTED);
        }
        if !matches!(above.body, Body::Device { .. } | Body::Subdevice { .. }) {
            return Err(status::INVALID_OBJECT_PARENT);
        }
        let handle = client.free_handle(args.h_object)?;
        client.insert(handle, Object { parent: args.h_parent, needs: Vec::new(), ..source });
        args.h_object = handle;
        Ok(())
    }

    /// FREE: the object with all below it and all that needs it. One that is not there is as good as freed.
    pub(super) fn rm_free(&self, state: &mut State, file: u64, root: u32, handle: u32) -> Result<(), Status> {
        let client = state.clients.of(root, file, status::INVALID_OBJECT_HANDLE)?;
        let Ok(removed) = client.remove(handle) else { return Ok(()) };
        if handle == root {
            state.clients.remove(root);
        }
        self.end_objects(state, root, removed);
        Ok(())
    }

    /// Frees a client, however it ends.
    pub(super) fn end_client(&self, state: &mut State, handle: u32) {
        if let Some(mut client) = state.clients.remove(handle) {
            let removed = client.remove(handle).unwrap_or_default();
            self.end_objects(state, handle, removed);
        }
    }

    fn end_objects(&self, state: &mut State, client: u32, removed: Vec<(u32, Object)>) {
        // Channels end first: they run nothing any more when what they use goes.
        let channels = removed.iter().filter(|(_, object)| matches!(object.body, Body::Channel(_)));
        channels.for_each(|(handle, object)| self.end_body(&object.body, client, *handle));
        for (handle, object) in &removed {
            state.mappings.retain(|_, m| (m.client, m.object) != (client, *handle));
            if let (Body::Memory(_), Ok(owner)) = (&object.body, state.clients.any(client)) {
                unmap_everywhere(owner, *handle);
            }
            if !matches!(object.body, Body::Channel(_)) {
                self.end_body(&object.body, client, *handle);
            }
            if let (Body::Engine, Some((_, parent))) = (&object.body, removed.iter().find(|(h, _)| *h == object.parent))
            {
                forget_class(parent, object.class);
            }
            if let (Body::Engine, Ok(parent)) =
                (&object.body, state.clients.any(client).and_then(|client| client.object(object.parent)))
            {
                forget_class(parent, object.class);
            }
        }
    }

    fn end_body(&self, body: &Body, client: u32, handle: u32) {
        match body {
            Body::Channel(channel) => self.gpus[channel.group.gpu].end(channel),
            Body::Event | Body::Subdevice { .. } => self.events.unlisten(client, handle),
            Body::Client => self.events.end_client(client),
            _ => {}
        }
    }
}

/// A memory's handle is freed: RM's own mappings by it are removed. UVM's stay: they keep the memory.
fn unmap_everywhere(client: &Client, memory: u32) {
    for (_, object) in client.objects() {
        if let Body::Virtual(range) = &object.body {
            range.forget(memory);
        }
    }
}

/// The channel's engine object is freed: SET_OBJECT may not name it any more.
fn forget_class(parent: &Object, class: u32) {
    if let Body::Channel(channel) = &parent.body {
        let mut classes = channel.classes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = classes.iter().position(|known| *known == class) {
            classes.remove(at);
        }
    }
}

fn device(nv: &SoftNv, making: &mut Making<'_>) -> Result<Made, Status> {
    let params: nvrm::DeviceAlloc = making.params();
    let gpu = params.device_id as usize;
    if gpu >= nv.gpus.len() {
        return Err(status::INVALID_CLASS);
    }
    if params.h_client_share != 0 && params.h_client_share != making.client.handle {
        return Err(status::INVALID_OBJECT_HANDLE);
    }
    if nv.gpus[gpu].lost.load(Ordering::Relaxed) {
        return Err(status::GPU_IS_LOST);
    }
    if !making.cards.contains(&gpu) {
        return Err(status::INSUFFICIENT_PERMISSIONS);
    }
    Ok(Made::alone(Body::Device { gpu }))
}

fn subdevice(_: &SoftNv, making: &mut Making<'_>) -> Result<Made, Status> {
    let params: nvrm::SubdeviceAlloc = making.params();
    let gpu = making.gpu()?;
    // A device of one GPU has it under every instance.
    if params.sub_device_id >= SUBDEVICES {
        return Err(status::INVALID_CLASS);
    }
    let instance = params.sub_device_id;
    let parent = making.parent;
    let is_it = |object: &Object| matches!(object.body, Body::Subdevice { instance: own, .. } if own == instance);
    if making.client.objects().any(|(_, object)| object.parent == parent && is_it(object)) {
        return Err(status::INSUFFICIENT_RESOURCES);
    }
    Ok(Made::alone(Body::Subdevice { gpu, instance }))
}

fn memory_made(making: &mut Making<'_>, memory: Memory) -> Result<Made, Status> {
    let mut params: nvrm::MemoryAlloc = making.params();
    (params.size, params.limit, params.offset) = (memory.len_bytes, memory.len_bytes - 1, 0);
    making.store(&params);
    Ok(Made::alone(Body::Memory(Arc::new(memory))))
}

fn vram(nv: &SoftNv, making: &mut Making<'_>) -> Result<Made, Status> {
    let (params, gpu) = (making.params(), making.gpu()?);
    let memory = Memory::vram(gpu, &params, &nv.gpus[gpu].vram_used, nv.config.vram_bytes)?;
    memory_made(making, memory)
}

fn system_memory(_: &SoftNv, making: &mut Making<'_>) -> Result<Made, Status> {
    let (params, gpu) = (making.params(), making.gpu()?);
    let memory = Memory::system(gpu, &params)?;
    memory_made(making, memory)
}

fn os_descriptor(nv: &SoftNv, making: &mut Making<'_>) -> Result<Made, Status> {
    const VIRTUAL_ADDRESS: u32 = 0;
    let (params, gpu): (nvrm::OsDescMemoryAlloc, usize) = (making.params(), making.gpu()?);
    if params.descriptor_type != VIRTUAL_ADDRESS {
        nv.unmodelled(format!("memory by descriptor type {}", params.descriptor_type));
        return Err(status::NOT_SUPPORTED);
    }
    Ok(Made::alone(Body::Memory(nv.pin(gpu, params.descriptor, params.limit)?)))
}

fn va_space(nv: &SoftNv, making: &mut Making<'_>) -> Result<Made, Status> {
    const GPU_NEW: u32 = 0;
    let mut params: nvrm::VaSpaceAlloc = making.params();
    let gpu = making.gpu()?;
    if params.index != GPU_NEW {
        nv.unmodelled(format!("an address space of index {}", params.index));
        return Err(status::NOT_SUPPORTED);
    }
    let end = 1_u64 << nv.config.chip.facts().va_bits;
    let base = if params.va_base == 0 { SPACE_DEFAULT_BASE } else { params.va_base };
    let len_bytes = if params.va_size == 0 { end - base } else { params.va_size };
    let limit = base.checked_add(len_bytes).ok_or(status::INVALID_ARGUMENT)? - 1;
    if base >= end {
        return Err(status::INVALID_ARGUMENT);
    }
    let limit = limit.min(end - 1);
    (params.va_base, params.va_size, params.big_page_size) = (base, limit - base + 1, 64 << 10);
    making.store(&params);
    let externally_owned = params.flags & SPACE_EXTERNALLY_OWNED != 0;
    Ok(Made::alone(Body::Space(Arc::new(VaSpace::new(gpu, externally_owned, base, limit)))))
}

/// Whether the card has an engine of this type.
fn check_engine(nv: &SoftNv, engine_type: u32) -> Result<(), Status> {
    let copies = nv.config.chip.facts().copy_engines;
    let is_copy = copy_engine_index(engine_type).is_some_and(|index| index < copies);
    if engine_type == ENGINE_GR0 || is_copy { Ok(()) } else { Err(status::INVALID_ARGUMENT) }
}

fn group(nv: &SoftNv, making: &mut Making<'_>) -> Result<Made, Status> {
    let params: nvrm::ChannelGroupAlloc = making.params();
    let gpu = making.gpu()?;
    check_engine(nv, params.engine_type)?;
    if nv.config.mig {
        return Err(status::INVALID_STATE);
    }
    let (space, needs) = match params.h_va_space {
        0 => (None, Vec::new()),
        handle => (Some(making.space(handle)?), vec![handle]),
    };
    Ok(Made { body: Body::Group(Arc::new(Group::new(gpu, params.engine_type, space))), needs })
}

fn context_share(_: &SoftNv, making: &mut Making<'_>) -> Result<Made, Status> {
    const FLAGS_KNOWN: u32 = 3;
    const SPECIFIED: u32 = 2;
    const SUBCONTEXTS: u32 = 64;
    let mut params: nvrm::CtxShareAlloc = making.params();
    let parent = making.parent;
    let space = making.space(params.h_va_space)?;
    let used: Vec<u32> = making
        .client
        .objects()
        .filter(|(_, object)| object.parent == parent)
        .filter_map(|(_, object)| match object.body {
            Body::ContextShare { subcontext, .. } => Some(subcontext),
            _ => None,
        })
        .collect();
    let kind = params.flags & FLAGS_KNOWN;
    // The first asynchronous subcontext is 1: 0 is the synchronous one's.
    let first = u32::from(kind != 0);
    let subcontext = match kind {
        SPECIFIED => params.subctx_id,
        _ => (first..SUBCONTEXTS).find(|id| !used.contains(id)).ok_or(status::INSUFFICIENT_RESOURCES)?,
    };
    if kind > SPECIFIED || subcontext >= SUBCONTEXTS || used.contains(&subcontext) {
        return Err(status::INVALID_ARGUMENT);
    }
    params.subctx_id = subcontext;
    making.store(&params);
    Ok(Made { body: Body::ContextShare { space, subcontext }, needs: vec![params.h_va_space] })
}

/// Where a channel's group and address space come from.
fn channel_home(
    nv: &SoftNv,
    making: &Making<'_>,
    params: &nvrm::ChannelAlloc,
) -> Result<(Arc<Group>, Arc<VaSpace>), Status> {
    if params.h_context_share != 0 && params.h_va_space != 0 {
        return Err(status::INVALID_ARGUMENT);
    }
    let group = match &making.parent()?.body {
        Body::Group(group) => Arc::clone(group),
        // A channel without a group gets one of its own.
        _ => {
            if params.h_context_share != 0 {
                return Err(status::INVALID_ARGUMENT);
            }
            let space = making.space(params.h_va_space)?;
            check_engine(nv, params.engine_type)?;
            let group = Group::new(making.gpu()?, params.engine_type, Some(Arc::clone(&space)));
            return Ok((Arc::new(group), space));
        }
    };
    if params.h_va_space != 0 || params.engine_type != 0 && params.engine_type != group.engine_type {
        return Err(status::INVALID_ARGUMENT);
    }
    let others = making.client.objects().filter(|(_, object)| object.parent == making.parent);
    let is_share = |h: &u32| making.client.object(*h).is_ok_and(|o| matches!(o.body, Body::ContextShare { .. }));
    let mut channels = others.filter(|(_, object)| matches!(object.body, Body::Channel(_)));
    // Either every channel of a group has a context share or none.
    if channels.any(|(_, object)| object.needs.iter().any(is_share) != (params.h_context_share != 0)) {
        return Err(status::INVALID_ARGUMENT);
    }
    if params.h_context_share == 0 {
        let space = group.space.clone().ok_or(status::INVALID_OBJECT)?;
        return Ok((group, space));
    }
    let share = making.client.object(params.h_context_share)?;
    let Body::ContextShare { space, .. } = &share.body else { return Err(status::INVALID_OBJECT_HANDLE) };
    if share.parent != making.parent {
        return Err(status::INVALID_OBJECT_PARENT);
    }
    Ok((group, Arc::clone(space)))
}

/// USERD: its view, and its location. RM does not look at the offset: what is not whole inside of the memory is a page
/// that nobody rings, and without a memory it is one of RM's own.
fn userd(
    making: &Making<'_>,
    params: &nvrm::ChannelAlloc,
) -> Result<(doorbell_ioctl::port::DeviceView, Location), Status> {
    let own = || doorbell_ioctl::port::SharedMemory::new(PAGE).and_then(|own| own.map()).map_err(|_| status::NO_MEMORY);
    let offset = params.userd_offset[0];
    if params.h_userd_memory[0] == 0 {
        return Ok((own()?, Location::Vram));
    }
    let object = making.client.object(params.h_userd_memory[0])?;
    let Body::Memory(memory) = &object.body else { return Err(status::OBJECT_NOT_FOUND) };
    match memory.view.sub(offset, USERD_BYTES) {
        Ok(view) if offset.is_multiple_of(USERD_BYTES) => Ok((view, memory.location)),
        _ => Ok((own()?, memory.location)),
    }
}

fn channel(nv: &SoftNv, making: &mut Making<'_>) -> Result<Made, Status> {
    let params: nvrm::ChannelAlloc = match nv.config.release.major {
        ..nvrm::CHANNELS_MOVED => making.params(),
        _ => making.params::<nvrm::ChannelAllocV610>().into(),
    };
    if nv.config.mig {
        return Err(status::INVALID_STATE);
    }
    if nv.config.compute_prohibited {
        return Err(status::STATE_IN_USE);
    }
    let (group, space) = channel_home(nv, making, &params)?;
    let entries = params.gp_fifo_entries;
    // Where the ring is, the host engine finds out.
    if !entries.is_power_of_two() || entries > MAX_GPFIFO_ENTRIES {
        return Err(status::INVALID_ARGUMENT);
    }
    let (userd, userd_location) = userd(making, &params)?;
    let ring_in_vram = match params.h_object_buffer {
        0 => space.vm.handle_at(params.gp_fifo_offset).is_some_and(Memory::is_vram_key),
        handle => making.memory(handle)?.location == Location::Vram,
    };
    // Hopper's hosts do not order USERD in system memory after a ring in VRAM.
    let is_hopper_on = nv.config.chip.facts().sm_version >= 0x900;
    if is_hopper_on && userd_location != Location::Vram && ring_in_vram {
        return Err(status::NOT_SUPPORTED);
    }
    let notifier = match params.h_object_error {
        0 => None,
        handle => {
            let view = making.memory(handle).map_err(|_| status::INVALID_STATE)?.view.clone();
            if view.len_bytes() < NOTIFIER_RECORD_BYTES * NOTIFIER_RECORDS {
                return Err(status::INVALID_ARGUMENT);
            }
            Some(view)
        }
    };
    let gpu = &nv.gpus[group.gpu];
    let id = gpu.free_channel_id().ok_or(status::INSUFFICIENT_RESOURCES)?;
    let engine_type = group.engine_type;
    let setup = Setup { id, engine_type, ring_va: params.gp_fifo_offset, entries, userd, space, notifier };
    // What is in USERD is of an earlier channel.
    let _inside = setup.userd.write_u64(doorbell_hcq::packet::nv::gpfifo::USERD_GP_GET, 0);
    let channel = Arc::new(Channel::new(setup, Arc::clone(&group)));
    group.channels.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&channel));
    gpu.start(&channel);
    // The memory of its USERD stays with it.
    let needs = [params.h_context_share, params.h_va_space, params.h_object_error];
    let needs = needs.into_iter().filter(|handle| *handle != 0).collect();
    Ok(Made { body: Body::Channel(channel), needs })
}

/// An object of a channel's engine. The first one puts the channel on its engine's runlist, whatever the group's engine
/// is; objects of another runlist are refused then.
fn engine_object(nv: &SoftNv, making: &mut Making<'_>) -> Result<Made, Status> {
    let Body::Channel(channel) = making.parent()?.body.clone() else { return Err(status::INVALID_OBJECT_PARENT) };
    let facts = nv.config.chip.facts();
    let engine_type = if making.class == facts.copy_class {
        let params: nvrm::CopyAlloc = making.params();
        let engine_type = match params.version {
            // Without params it is COPY0's.
            _ if !making.has_params => copy_engine_type(0),
            0 => copy_engine_type(params.engine_type),
            1 => params.engine_type,
            _ => return Err(status::INVALID_CLASS),
        };
        if copy_engine_index(engine_type).is_none_or(|index| index >= facts.copy_engines) {
            return Err(status::INVALID_CLASS);
        }
        engine_type
    } else {
        ENGINE_GR0
    };
    channel.place(runlist(engine_type)).map_err(|_| status::INVALID_STATE)?;
    channel.classes.lock().unwrap_or_else(PoisonError::into_inner).push(making.class);
    Ok(Made::alone(Body::Engine))
}

fn usermode(_: &SoftNv, making: &mut Making<'_>) -> Result<Made, Status> {
    let gpu = making.gpu()?;
    let has_choice = matches!(making.class, nvrm::HOPPER_USERMODE_A | nvrm::BLACKWELL_USERMODE_A);
    let params: nvrm::UsermodeAlloc = making.params();
    if has_choice && params.b_priv != 0 {
        return Err(status::INVALID_ARGUMENT);
    }
    Ok(Made::alone(Body::Usermode { gpu, bar1: has_choice && params.b_bar1_mapping != 0 }))
}

fn debugger(_: &SoftNv, making: &mut Making<'_>) -> Result<Made, Status> {
    let params: nvrm::DebuggerAlloc = making.params();
    let gpu = making.gpu()?;
    if params.h_app_client != making.client.handle {
        return Err(status::INVALID_CLIENT);
    }
    let object = making.client.object(params.h_class3d_object)?;
    if !matches!(object.body, Body::Engine) {
        return Err(status::INVALID_CLASS);
    }
    Ok(Made { body: Body::Debugger { gpu }, needs: vec![params.h_class3d_object] })
}

fn os_event(nv: &SoftNv, making: &mut Making<'_>) -> Result<Made, Status> {
    let params: nvrm::EventAlloc = making.params();
    let client = making.client.handle;
    if params.h_parent_client != 0 && params.h_parent_client != client {
        nv.unmodelled("an event of another client's object".to_owned());
        return Err(status::NOT_SUPPORTED);
    }
    let source = making.client.object(params.h_src_resource).map_err(|_| status::INVALID_OBJECT)?;
    let subdevice = match source.body {
        Body::Subdevice { gpu, .. } => Some(gpu),
        Body::Client | Body::Channel(_) | Body::Engine => None,
        _ => return Err(status::INVALID_OBJECT),
    };
    // RM looks only at the number, 32 bits of it.
    let os_event = nv.events.named(client, (params.data as u32).cast_signed())?;
    let is_nonstall = params.notify_index & nvrm::NV01_EVENT_NONSTALL_INTR != 0;
    let notifier = params.notify_index & nvrm::NV0005_NOTIFY_INDEX_INDEX;
    if is_nonstall && subdevice.is_none() {
        return Err(status::INVALID_ARGUMENT);
    }
    if is_nonstall && !has_interrupts(notifier) {
        return Err(status::NOT_SUPPORTED);
    }
    if let Some(gpu) = subdevice {
        nv.events.listen(super::event::Listener {
            client,
            object: making.handle,
            source: params.h_src_resource,
            gpu,
            notifier,
            is_nonstall,
            has_data: params.notify_index & nvrm::NV01_EVENT_WITHOUT_EVENT_DATA == 0,
            os_event,
        });
    }
    Ok(Made { body: Body::Event, needs: vec![params.h_src_resource] })
}

/// Notifiers of engines that this driver has: interrupts of their channels have a list each.
fn has_interrupts(notifier: u32) -> bool {
    const COPY_ENGINES: u32 = 10;
    let copy = nvrm::NV2080_NOTIFIERS_CE0..nvrm::NV2080_NOTIFIERS_CE0 + COPY_ENGINES;
    matches!(notifier, nvrm::NV2080_NOTIFIERS_GR0 | nvrm::NV2080_NOTIFIERS_FIFO_EVENT_MTHD) || copy.contains(&notifier)
}

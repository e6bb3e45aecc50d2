//! /dev/nvidia-uvm: the address space of the process on all its cards.
//!
//! Source: docs/nv.md 1.5; `uvm.c`, `uvm_va_space.c`, `uvm_map_external.c`, `uvm_user_channel.c` of the open kernel
//! modules, for checks, their order and codes. Left out (a named report): managed memory, migration, sparse ranges,
//! semaphore pools, dynamic parallelism, the tools' queues, faults that are serviced.

use super::channel::Channel;
use super::defect::Defect;
use super::memory::{BIG_PAGE, HUGE_PAGE, Location, Memory, PAGE};
use super::object::Body;
use super::space::VaSpace;
use super::state::{FileKind, State};
use super::{SoftNv, status, sysfs};
use crate::vm::{Mapping, Rights};
use bytemuck::Pod;
use doorbell_ioctl::abi::nvrm::Status;
use doorbell_ioctl::abi::{Desc, uvm, uvm_test};
use doorbell_ioctl::port::Errno;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A range of addresses, the same on all cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Range {
    /// For memory of RM.
    External { len_bytes: u64 },
    /// The context of a group's channels.
    Channel { len_bytes: u64 },
}

impl Range {
    fn len_bytes(self) -> u64 {
        match self {
            Self::External { len_bytes } | Self::Channel { len_bytes } => len_bytes,
        }
    }
}

/// A channel registered with UVM.
#[derive(Debug)]
struct Registered {
    client: u32,
    handle: u32,
    gpu: usize,
    channel: Arc<Channel>,
    /// Its context's window; 0 for a copy engine's.
    window: u64,
}

/// A file's address space.
#[derive(Debug, Default)]
pub(crate) struct UvmSpace {
    flags: u64,
    /// MM_INITIALIZE has come.
    mm: bool,
    /// Registered cards, and the address space of each that is registered.
    gpus: BTreeMap<usize, Option<Arc<VaSpace>>>,
    ranges: BTreeMap<u64, Range>,
    channels: Vec<Registered>,
    /// Pairs of cards that may map each other's memory, lower one first.
    peers: Vec<(usize, usize)>,
}

const FLAG_DISABLE_HMM: u64 = 1;
const FLAG_MULTI_PROCESS: u64 = 2;
/// The least that the graphics context of a channel needs: other runtimes reserve twice as much.
const CONTEXT_BYTES: u64 = 32 << 20;
const CONTEXT_ALIGN: u64 = 2 << 20;
const MAX_GPUS: u64 = 256;
const MAPPING_TYPES: u32 = 3;
const CACHING_TYPES: u32 = 2;

/// Runs a handler on the struct in `bytes`; its outcome is written into the struct as well.
fn with<T: Pod>(
    bytes: &mut [u8],
    status: fn(&mut T) -> &mut u32,
    handler: impl FnOnce(&mut T) -> Result<(), Status>,
) -> Result<i32, Errno> {
    let head = bytes.get_mut(..size_of::<T>()).ok_or(Errno::EFAULT)?;
    let mut args: T = bytemuck::pod_read_unaligned(head);
    let outcome = handler(&mut args);
    *status(&mut args) = outcome.err().map_or(0, |status| status.0);
    head.copy_from_slice(bytemuck::bytes_of(&args));
    Ok(0)
}

fn is_whole_pages(base: u64, len_bytes: u64, page: u64) -> bool {
    base.is_multiple_of(page)
        && len_bytes.is_multiple_of(page)
        && len_bytes > 0
        && base.checked_add(len_bytes).is_some()
        && base > 0
}

impl UvmSpace {
    /// Whether its tables fit together: ranges apart from each other, a range for each channel's context, cards for all
    /// that names one.
    pub(super) fn is_sound(&self) -> bool {
        let ends = self.ranges.iter().map(|(base, range)| (*base, base + range.len_bytes()));
        let apart = ends.clone().zip(ends.skip(1)).all(|((_, end), (next, _))| end <= next);
        let bound = |r: &Registered| self.gpus.get(&r.gpu).is_some_and(Option::is_some);
        let framed = |r: &Registered| matches!(self.ranges.get(&r.window), Some(Range::Channel { .. }));
        let channels = self.channels.iter().all(|r| bound(r) && (r.window == 0 || framed(r)));
        apart && channels && self.peers.iter().all(|(a, b)| self.gpus.contains_key(a) && self.gpus.contains_key(b))
    }

    /// The range around an address: first and last byte, and the number of its type.
    pub(super) fn range_at(&self, address: u64) -> Option<(u64, u64, u32)> {
        const EXTERNAL: u32 = 2;
        const CHANNEL: u32 = 3;
        let (base, range) = self.ranges.range(..=address).next_back()?;
        let last = base + range.len_bytes() - 1;
        let kind = if matches!(range, Range::External { .. }) { EXTERNAL } else { CHANNEL };
        (address <= last).then_some((*base, last, kind))
    }

    /// Whether a card is registered.
    pub(super) fn has(&self, gpu: usize) -> bool {
        self.gpus.contains_key(&gpu)
    }

    /// Whether any card is registered.
    pub(super) fn has_cards(&self) -> bool {
        !self.gpus.is_empty()
    }

    /// The card, if it is registered.
    pub(super) fn gpu(&self, nv: &SoftNv, uuid: &[u8; 16]) -> Result<usize, Status> {
        let gpu = nv.gpu_of_uuid(uuid).ok_or(status::INVALID_DEVICE)?;
        if self.gpus.contains_key(&gpu) { Ok(gpu) } else { Err(status::INVALID_DEVICE) }
    }

    /// The card's address space, if it is registered.
    fn space(&self, nv: &SoftNv, uuid: &[u8; 16]) -> Result<(usize, Arc<VaSpace>), Status> {
        let gpu = self.gpu(nv, uuid)?;
        let space = self.gpus.get(&gpu).cloned().flatten().ok_or(status::INVALID_DEVICE)?;
        Ok((gpu, space))
    }

    /// Adds a range where none is.
    fn add(&mut self, base: u64, range: Range) -> Result<(), Status> {
        let end = base.checked_add(range.len_bytes()).ok_or(status::INVALID_ADDRESS)?;
        let before = self.ranges.range(..end).next_back();
        if before.is_some_and(|(start, r)| start + r.len_bytes() > base) {
            return Err(status::UVM_ADDRESS_IN_USE);
        }
        self.ranges.insert(base, range);
        Ok(())
    }

    /// Adds a range for memory of RM.
    fn create_external(&mut self, base: u64, len_bytes: u64, page: u64) -> Result<(), Status> {
        if !is_whole_pages(base, len_bytes, page) {
            return Err(status::INVALID_ADDRESS);
        }
        self.add(base, Range::External { len_bytes })
    }

    /// The first free range of this length, whole huge pages, between two addresses.
    fn room(&self, first: u64, end: u64, len_bytes: u64) -> Option<u64> {
        let mut at = first.checked_next_multiple_of(CONTEXT_ALIGN)?;
        for (start, range) in &self.ranges {
            if start + range.len_bytes() <= at {
                continue;
            }
            if at + len_bytes <= *start {
                break;
            }
            at = (start + range.len_bytes()).checked_next_multiple_of(CONTEXT_ALIGN)?;
        }
        (at.checked_add(len_bytes)? <= end).then_some(at)
    }

    /// Whether a range was made exactly so.
    fn is_range(&self, base: u64, len_bytes: u64) -> Result<(), Status> {
        let made = self.ranges.get(&base).is_some_and(|range| range.len_bytes() == len_bytes);
        if made { Ok(()) } else { Err(status::INVALID_ADDRESS) }
    }

    /// The external range around `base` that holds all of it.
    fn external(&self, base: u64, len_bytes: u64) -> Result<(), Status> {
        let end = base.checked_add(len_bytes).ok_or(status::INVALID_ADDRESS)?;
        match self.ranges.range(..=base).next_back() {
            Some((start, Range::External { len_bytes: len })) if end <= start + len => Ok(()),
            _ => Err(status::INVALID_ADDRESS),
        }
    }

    pub(super) fn are_peers(&self, a: usize, b: usize) -> bool {
        self.peers.contains(&(a.min(b), a.max(b)))
    }

    /// Unregisters a card's address space: everything in it is unmapped, its channels are no longer bound.
    fn forget_space(&mut self, gpu: usize) {
        let Some(slot) = self.gpus.get_mut(&gpu) else { return };
        let Some(space) = slot.take() else { return };
        for registered in self.channels.iter().filter(|r| r.gpu == gpu) {
            registered.channel.bound.store(false, Ordering::Relaxed);
        }
        let windows: Vec<u64> = self.channels.iter().filter(|r| r.gpu == gpu).map(|r| r.window).collect();
        self.channels.retain(|r| r.gpu != gpu);
        self.ranges.retain(|base, range| !matches!(range, Range::Channel { .. }) || !windows.contains(base));
        for (base, range) in &self.ranges {
            space.vm.clear(*base, range.len_bytes());
        }
        space.registered.store(false, Ordering::Relaxed);
    }

    /// Frees everything.
    pub(crate) fn close(&mut self) {
        let gpus: Vec<usize> = self.gpus.keys().copied().collect();
        gpus.into_iter().for_each(|gpu| self.forget_space(gpu));
    }

    /// Ranges that are left.
    #[must_use]
    pub(crate) fn range_count(&self) -> usize {
        self.ranges.len()
    }

    fn release_channel(&mut self, client: u32, handle: u32) -> Result<(), Status> {
        let at = self.channels.iter().position(|r| (r.client, r.handle) == (client, handle));
        let gone = self.channels.remove(at.ok_or(status::INVALID_CHANNEL)?);
        gone.channel.bound.store(false, Ordering::Relaxed);
        if gone.window != 0 && !self.channels.iter().any(|r| r.window == gone.window) {
            self.ranges.remove(&gone.window);
        }
        Ok(())
    }
}

impl SoftNv {
    pub(super) fn gpu_of_uuid(&self, uuid: &[u8; 16]) -> Option<usize> {
        (0..self.gpus.len()).find(|gpu| sysfs::uuid(*gpu) == *uuid)
    }

    /// A call to a UVM file.
    pub(super) fn uvm_ioctl(&self, file: u64, kind: FileKind, request: u32, bytes: &mut [u8]) -> Result<i32, Errno> {
        let major = self.config.release.major;
        let valid = |d: &&&Desc| d.request == request && d.since <= major && d.until.is_none_or(|last| major <= last);
        let Some(desc) = uvm::TABLE.iter().find(valid) else {
            // Its tests are asked last.
            if let Some(desc) = uvm_test::form(request, major) {
                return self.uvm_test(file, kind, desc, bytes);
            }
            self.unknown(format!("UVM command {request:#x}"));
            return Err(if self.config.uvm_builtin_tests { Errno::EINVAL } else { Errno::ENOSYS });
        };
        if bytes.len() < desc.layout.len_bytes as usize {
            return Err(Errno::EFAULT);
        }
        let mut state = self.state();
        if let Some(refused) = self.refusal(&mut state, super::config::Call::Uvm(request)) {
            return set_status(desc, bytes, refused);
        }
        if request == uvm::INITIALIZE.desc.request {
            return with(
                bytes,
                |a: &mut uvm::Initialize| &mut a.rm_status,
                |a| initialize(&mut state, file, kind, a.flags),
            );
        }
        if request == uvm::MM_INITIALIZE.desc.request {
            return with(
                bytes,
                |a: &mut uvm::MmInitialize| &mut a.rm_status,
                |a| mm_initialize(&mut state, file, kind, a.uvm_fd),
            );
        }
        let Some(mut space) = state.spaces.remove(&file) else {
            return set_status(desc, bytes, status::ILLEGAL_ACTION);
        };
        let outcome = self.uvm_call(&mut state, &mut space, desc, bytes);
        state.spaces.insert(file, space);
        outcome
    }

    /// Calls to an address space.
    fn uvm_call(
        &self,
        state: &mut State,
        space: &mut UvmSpace,
        desc: &'static Desc,
        bytes: &mut [u8],
    ) -> Result<i32, Errno> {
        use doorbell_ioctl::abi::uvm as u;
        let is = |other: &Desc| std::ptr::eq(desc, other) || *desc == *other;
        match () {
            () if is(&u::REGISTER_GPU.desc) => {
                with(bytes, |a: &mut u::RegisterGpu| &mut a.rm_status, |a| self.register_gpu(space, a))
            }
            () if is(&u::UNREGISTER_GPU.desc) => with(
                bytes,
                |a: &mut u::UnregisterGpu| &mut a.rm_status,
                |a| {
                    let gpu = space.gpu(self, &a.gpu_uuid)?;
                    space.forget_space(gpu);
                    space.gpus.remove(&gpu);
                    space.peers.retain(|(low, high)| *low != gpu && *high != gpu);
                    Ok(())
                },
            ),
            () if is(&u::REGISTER_GPU_VASPACE.desc) => {
                with(bytes, |a: &mut u::RegisterGpuVaSpace| &mut a.rm_status, |a| self.register_space(state, space, a))
            }
            () if is(&u::UNREGISTER_GPU_VASPACE.desc) => with(
                bytes,
                |a: &mut u::UnregisterGpuVaSpace| &mut a.rm_status,
                |a| {
                    let (gpu, _) = space.space(self, &a.gpu_uuid)?;
                    space.forget_space(gpu);
                    Ok(())
                },
            ),
            () if is(&u::REGISTER_CHANNEL.desc) => {
                with(bytes, |a: &mut u::RegisterChannel| &mut a.rm_status, |a| self.register_channel(state, space, a))
            }
            () if is(&u::UNREGISTER_CHANNEL.desc) => with(
                bytes,
                |a: &mut u::UnregisterChannel| &mut a.rm_status,
                |a| space.release_channel(a.h_client, a.h_channel),
            ),
            () if is(&u::UNREGISTER_CHANNEL_V595.desc) => with(
                bytes,
                |a: &mut u::UnregisterChannelV595| &mut a.rm_status,
                |a| space.release_channel(a.h_client, a.h_channel),
            ),
            () => self.uvm_ranges(state, space, desc, bytes),
        }
    }

    /// Calls about ranges.
    fn uvm_ranges(
        &self,
        state: &mut State,
        space: &mut UvmSpace,
        desc: &'static Desc,
        bytes: &mut [u8],
    ) -> Result<i32, Errno> {
        use doorbell_ioctl::abi::uvm as u;
        let is = |other: &Desc| *desc == *other;
        match () {
            () if is(&u::CREATE_EXTERNAL_RANGE.desc) => with(
                bytes,
                |a: &mut u::CreateExternalRange| &mut a.rm_status,
                |a| space.create_external(a.base, a.length, self.config.page_bytes),
            ),
            () if is(&u::MAP_EXTERNAL_ALLOCATION.desc) => with(
                bytes,
                |a: &mut u::MapExternalAllocation| &mut a.rm_status,
                |a| {
                    let (base, len_bytes, offset, client, memory) =
                        (a.base, a.length, a.offset, a.h_client, a.h_memory);
                    let ask = MapAsk { base, len_bytes, offset, client, memory };
                    self.map_external(state, space, &ask, &a.per_gpu_attributes, a.gpu_attributes_count)
                },
            ),
            () if is(&u::MAP_EXTERNAL_ALLOCATION_V535.desc) => with(
                bytes,
                |a: &mut u::MapExternalAllocationV535| &mut a.rm_status,
                |a| {
                    let (base, len_bytes, offset, client, memory) =
                        (a.base, a.length, a.offset, a.h_client, a.h_memory);
                    let ask = MapAsk { base, len_bytes, offset, client, memory };
                    self.map_external(state, space, &ask, &a.per_gpu_attributes, a.gpu_attributes_count)
                },
            ),
            () if is(&u::UNMAP_EXTERNAL.desc) => {
                with(bytes, |a: &mut u::UnmapExternal| &mut a.rm_status, |a| self.unmap_external(space, a))
            }
            () if is(&u::FREE.desc) => {
                with(bytes, |a: &mut u::Free| &mut a.rm_status, |a| free(space, a.base, Some(a.length)))
            }
            () if is(&u::FREE_V595.desc) => {
                with(bytes, |a: &mut u::FreeV595| &mut a.rm_status, |a| free(space, a.base, None))
            }
            () if is(&u::VALIDATE_VA_RANGE.desc) => {
                with(bytes, |a: &mut u::ValidateVaRange| &mut a.rm_status, |a| space.is_range(a.base, a.length))
            }
            () => self.uvm_peers(space, desc, bytes),
        }
    }

    /// Calls about peers and facts.
    fn uvm_peers(&self, space: &mut UvmSpace, desc: &'static Desc, bytes: &mut [u8]) -> Result<i32, Errno> {
        use doorbell_ioctl::abi::uvm as u;
        let is = |other: &Desc| *desc == *other;
        match () {
            () if is(&u::ENABLE_PEER_ACCESS.desc) => {
                with(bytes, |a: &mut u::EnablePeerAccess| &mut a.rm_status, |a| self.enable_peers(space, a))
            }
            () if is(&u::DISABLE_PEER_ACCESS.desc) => {
                with(bytes, |a: &mut u::DisablePeerAccess| &mut a.rm_status, |a| self.disable_peers(space, a))
            }
            () if is(&u::PAGEABLE_MEM_ACCESS.desc) => with(
                bytes,
                |a: &mut u::PageableMemAccess| &mut a.rm_status,
                |a| {
                    a.pageable_mem_access = 0;
                    Ok(())
                },
            ),
            () if is(&u::PAGEABLE_MEM_ACCESS_ON_GPU.desc) => with(
                bytes,
                |a: &mut u::PageableMemAccessOnGpu| &mut a.rm_status,
                |a| {
                    a.pageable_mem_access = 0;
                    space.gpu(self, &a.gpu_uuid).map(|_| ())
                },
            ),
            () => {
                self.unmodelled(desc.name.to_owned());
                set_status(desc, bytes, status::NOT_SUPPORTED)
            }
        }
    }

    fn unmap_external(&self, space: &UvmSpace, args: &uvm::UnmapExternal) -> Result<(), Status> {
        if !is_whole_pages(args.base, args.length, self.config.page_bytes) {
            return Err(status::INVALID_ADDRESS);
        }
        space.external(args.base, args.length)?;
        let (_, own) = space.space(self, &args.gpu_uuid)?;
        if [args.base, args.base + args.length].iter().any(|at| is_inside_page(&own, *at)) {
            return Err(status::INVALID_ADDRESS);
        }
        if self.config.defect != Some(Defect::UnmapKeeps) {
            own.vm.clear(args.base, args.length);
        }
        Ok(())
    }

    fn enable_peers(&self, space: &mut UvmSpace, args: &uvm::EnablePeerAccess) -> Result<(), Status> {
        let (one, other) = (space.gpu(self, &args.gpu_uuid_a)?, space.gpu(self, &args.gpu_uuid_b)?);
        if one == other || space.are_peers(one, other) {
            return Err(status::INVALID_DEVICE);
        }
        if !self.config.peer_links {
            return Err(status::NOT_SUPPORTED);
        }
        space.peers.push((one.min(other), one.max(other)));
        Ok(())
    }

    fn disable_peers(&self, space: &mut UvmSpace, args: &uvm::DisablePeerAccess) -> Result<(), Status> {
        let (one, other) = (space.gpu(self, &args.gpu_uuid_a)?, space.gpu(self, &args.gpu_uuid_b)?);
        if !space.are_peers(one, other) {
            return Err(status::INVALID_DEVICE);
        }
        space.peers.retain(|pair| *pair != (one.min(other), one.max(other)));
        Ok(())
    }

    fn register_gpu(&self, space: &mut UvmSpace, args: &mut uvm::RegisterGpu) -> Result<(), Status> {
        let gpu = self.gpu_of_uuid(&args.gpu_uuid).ok_or(status::GPU_UUID_NOT_FOUND)?;
        if self.gpus[gpu].lost.load(Ordering::Relaxed) {
            return Err(status::GPU_IS_LOST);
        }
        if space.gpus.contains_key(&gpu) {
            return Err(status::INVALID_DEVICE);
        }
        space.gpus.insert(gpu, None);
        (args.numa_enabled, args.numa_node_id) = (0, -1);
        Ok(())
    }

    fn register_space(
        &self,
        state: &State,
        space: &mut UvmSpace,
        args: &uvm::RegisterGpuVaSpace,
    ) -> Result<(), Status> {
        let gpu = space.gpu(self, &args.gpu_uuid)?;
        if self.config.needs_uvm_mm && !space.mm {
            return Err(status::PAGE_TABLE_NOT_AVAIL);
        }
        let Body::Space(own) = &state.clients.any(args.h_client)?.object(args.h_va_space)?.body else {
            return Err(status::INVALID_OBJECT);
        };
        if own.gpu != gpu {
            return Err(status::INVALID_DEVICE);
        }
        if !own.externally_owned {
            return Err(status::INVALID_FLAGS);
        }
        if space.gpus.get(&gpu).is_some_and(Option::is_some) || own.registered.swap(true, Ordering::Relaxed) {
            return Err(status::INVALID_DEVICE);
        }
        space.gpus.insert(gpu, Some(Arc::clone(own)));
        Ok(())
    }

    fn register_channel(&self, state: &State, space: &mut UvmSpace, args: &uvm::RegisterChannel) -> Result<(), Status> {
        let (gpu, own) = space.space(self, &args.gpu_uuid)?;
        let Body::Channel(channel) = &state.clients.any(args.h_client)?.object(args.h_channel)?.body else {
            return Err(status::INVALID_OBJECT_HANDLE);
        };
        if !Arc::ptr_eq(&channel.setup.space, &own) {
            return Err(status::INVALID_CHANNEL);
        }
        if space.channels.iter().any(|r| (r.client, r.handle) == (args.h_client, args.h_channel)) {
            return Err(status::INVALID_CHANNEL);
        }
        // UVM takes each channel of the graphics engine's runlist for one of the graphics engine.
        let window = match channel.runlist().ok_or(status::INVALID_STATE)? {
            0 => self.register_context(space, channel, args)?,
            _ => 0,
        };
        let (client, handle) = (args.h_client, args.h_channel);
        space.channels.push(Registered { client, handle, gpu, channel: Arc::clone(channel), window });
        channel.bound.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The window of a graphics channel's context; a group's channels share the first one's.
    fn register_context(
        &self,
        space: &mut UvmSpace,
        channel: &Arc<Channel>,
        args: &uvm::RegisterChannel,
    ) -> Result<u64, Status> {
        let members = channel.group.members();
        let compute = self.config.chip.facts().compute_class;
        let computes = |c: &Arc<Channel>| c.classes.lock().is_ok_and(|classes| classes.contains(&compute));
        // Without an object of the engine there is no context yet; an object of a copy class makes none.
        if !members.iter().any(computes) {
            return Err(status::INVALID_OBJECT);
        }
        if !is_whole_pages(args.base, args.length, self.config.page_bytes) {
            return Err(status::INVALID_ADDRESS);
        }
        if args.base + args.length > self.config.chip.facts().channel_va_limit {
            return Err(status::OUT_OF_RANGE);
        }
        let shared = space.channels.iter().find(|r| r.window != 0 && Arc::ptr_eq(&r.channel.group, &channel.group));
        if let Some(first) = shared {
            return Ok(first.window);
        }
        // What is in the window already is passed over.
        let end = args.base + args.length;
        let base = space.room(args.base, end, CONTEXT_BYTES).ok_or(status::INVALID_ADDRESS)?;
        space.add(base, Range::Channel { len_bytes: CONTEXT_BYTES })?;
        Ok(base)
    }

    fn map_external(
        &self,
        state: &State,
        space: &UvmSpace,
        ask: &MapAsk,
        attributes: &[uvm::GpuMappingAttributes],
        count: u64,
    ) -> Result<(), Status> {
        if !is_whole_pages(ask.base, ask.len_bytes, self.config.page_bytes) {
            return Err(status::INVALID_ADDRESS);
        }
        if count == 0 || count > MAX_GPUS.min(attributes.len() as u64) {
            return Err(status::INVALID_ARGUMENT);
        }
        space.external(ask.base, ask.len_bytes)?;
        for one in &attributes[..count as usize] {
            let odd = [one.gpu_format_type, one.gpu_element_bits, one.gpu_compression_type] != [0; 3];
            if one.gpu_mapping_type > MAPPING_TYPES || one.gpu_caching_type > CACHING_TYPES {
                return Err(status::INVALID_ARGUMENT);
            }
            if odd {
                self.unmodelled("a mapping with format or compression".to_owned());
                return Err(status::INVALID_ARGUMENT);
            }
            let (gpu, own) = space.space(self, &one.gpu_uuid)?;
            if ask.base + ask.len_bytes > 1 << self.config.chip.facts().va_bits {
                return Err(status::OUT_OF_RANGE);
            }
            // The old mapping is gone even if the new mapping fails.
            own.vm.clear(ask.base, ask.len_bytes);
            let Body::Memory(memory) = &state.clients.any(ask.client)?.object(ask.memory)?.body else {
                return Err(status::INVALID_OBJECT_HANDLE);
            };
            let all = self.config.defect == Some(Defect::RightsIgnored);
            let kind = if all { uvm::MAPPING_READ_WRITE_ATOMIC } else { one.gpu_mapping_type };
            map_one(space, gpu, &own, memory, ask, kind)?;
        }
        Ok(())
    }
}

/// A requested mapping.
struct MapAsk {
    base: u64,
    len_bytes: u64,
    offset: u64,
    client: u32,
    memory: u32,
}

/// Maps memory for one card.
fn map_one(
    space: &UvmSpace,
    gpu: usize,
    own: &VaSpace,
    memory: &Memory,
    ask: &MapAsk,
    kind: u32,
) -> Result<(), Status> {
    if !space.gpus.contains_key(&memory.gpu) {
        return Err(status::INVALID_DEVICE);
    }
    if memory.location == Location::Vram && memory.gpu != gpu && !space.are_peers(memory.gpu, gpu) {
        return Err(status::INVALID_DEVICE);
    }
    if !ask.offset.is_multiple_of(PAGE) {
        return Err(status::INVALID_ADDRESS);
    }
    let view = memory.view.sub(ask.offset, ask.len_bytes).map_err(|_| status::INVALID_OFFSET)?;
    let write = kind != uvm::MAPPING_READ_ONLY && !memory.read_only;
    let rights = Rights { write, atomic: write && kind != uvm::MAPPING_READ_WRITE, execute: true };
    let mapping = Mapping { view, rights, handle: memory.key, queue_refs: 0, revoked: false };
    if own.vm.map(ask.base, mapping) { Ok(()) } else { Err(status::UVM_ADDRESS_IN_USE) }
}

/// Whether an address is in the middle of a page that a mapping uses: VRAM is mapped in the largest that fit.
fn is_inside_page(own: &VaSpace, at: u64) -> bool {
    let Some((start, len_bytes)) = own.vm.extent(at) else { return false };
    let is_vram = own.vm.handle_at(at).is_some_and(Memory::is_vram_key);
    let fits = |page: &u64| start.is_multiple_of(*page) && len_bytes.is_multiple_of(*page);
    let page = [HUGE_PAGE, BIG_PAGE].into_iter().filter(|_| is_vram).find(fits).unwrap_or(PAGE);
    !at.is_multiple_of(page)
}

fn initialize(state: &mut State, file: u64, kind: FileKind, flags: u64) -> Result<(), Status> {
    match kind {
        FileKind::Uvm if flags & !(FLAG_DISABLE_HMM | FLAG_MULTI_PROCESS) != 0 => Err(status::INVALID_ARGUMENT),
        FileKind::Uvm => {
            state.set_kind(file, FileKind::UvmSpace);
            state.spaces.insert(file, UvmSpace { flags, ..UvmSpace::default() });
            Ok(())
        }
        FileKind::UvmSpace if state.spaces.get(&file).is_some_and(|space| space.flags == flags) => Ok(()),
        _ => Err(status::INVALID_ARGUMENT),
    }
}

fn mm_initialize(state: &mut State, file: u64, kind: FileKind, fd: i32) -> Result<(), Status> {
    let first = state.file(fd).filter(|open| open.kind == FileKind::UvmSpace).map(|open| open.file);
    let first = first.ok_or(status::INVALID_ARGUMENT)?;
    if kind != FileKind::Uvm {
        return Err(status::INVALID_ARGUMENT);
    }
    let space = state.spaces.get_mut(&first).ok_or(status::INVALID_ARGUMENT)?;
    if space.mm {
        return Err(status::INVALID_STATE);
    }
    space.mm = true;
    state.set_kind(file, FileKind::UvmMm);
    Ok(())
}

/// Frees a range that starts exactly there.
fn free(space: &mut UvmSpace, base: u64, len_bytes: Option<u64>) -> Result<(), Status> {
    match space.ranges.get(&base) {
        Some(Range::External { len_bytes: len }) if len_bytes.is_none_or(|asked| asked == *len) => {
            let len = *len;
            space.ranges.remove(&base);
            for own in space.gpus.values().flatten() {
                own.vm.clear(base, len);
            }
            Ok(())
        }
        _ => Err(status::INVALID_ADDRESS),
    }
}

/// Puts a status where the call's struct has it.
pub(super) fn set_status(desc: &Desc, bytes: &mut [u8], refused: Status) -> Result<i32, Errno> {
    let field = desc.layout.field("rm_status").ok_or(Errno::EINVAL)?;
    field.write(bytes, |_| refused.0.into());
    Ok(0)
}

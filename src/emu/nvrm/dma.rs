//! Address spaces that RM fills itself: ranges of class NV50_MEMORY_VIRTUAL, and MAP_MEMORY_DMA and UNMAP_MEMORY_DMA on
//! them.
//!
//! Source: docs/nv.md 2.4; `virtual_mem.c`, `standard_mem.c`, `gpu_vaspace.c`, `dma.c`, `virt_mem_allocator_gm107.c`,
//! `rs_server.c` of the open kernel modules 595.45, for checks, their order and codes. A fixed address is in `offset`:
//! `rangeLo` and `rangeHi` bound a search, and only with their flag. Left out (a named report): the device's default
//! space, sparse and externally managed ranges, memory of another card, kinds that a mapping overrides.

use super::SoftNv;
use super::alloc::{Made, Making};
use super::memory::{BIG_PAGE, FLAG_FIXED_ADDRESS, FLAG_VIRTUAL, HUGE_PAGE, Location, Memory, PAGE};
use super::object::{Body, Object};
use super::space::VaSpace;
use super::state::State;
use super::status;
use crate::vm::{Mapping, Rights};
use doorbell_ioctl::abi::nvrm::{self, MemoryAlloc, Status};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// NVOS32 flags.
const FLAG_ALIGNMENT_FORCE: u32 = 0x100;
const FLAG_USE_BEGIN_END: u32 = 0x2_0000;
const FLAG_EXTERNALLY_MANAGED: u32 = 0x40_0000;
const FLAG_SPARSE: u32 = 0x400_0000;
/// Owners that no client is: RM's own begin here.
const OWNERS_OF_RM: std::ops::RangeInclusive<u32> = 0xdeaf_0000..=0xdeaf_0003;
/// NVOS46 flags: ACCESS 1:0, PAGE_SIZE 11:8, DMA_OFFSET_FIXED, P2P_ENABLE 21:20.
const ACCESS: u32 = 3;
const ACCESS_READ_ONLY: u32 = 1;
const OFFSET_FIXED: u32 = 1 << 15;
const P2P: u32 = 3 << 20;

/// What MAP_MEMORY_DMA has put at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Placed {
    len_bytes: u64,
    /// Handles that it was made with: of the memory, and of the device.
    memory: u32,
    device: u32,
}

/// Addresses that MAP_MEMORY_DMA fills; its mappings are freed with them.
#[derive(Debug)]
pub(crate) struct VirtualRange {
    pub space: Arc<VaSpace>,
    va: u64,
    len_bytes: u64,
    /// Of the largest pages that it has tables for.
    page_bytes: u64,
    placed: Mutex<BTreeMap<u64, Placed>>,
}

/// Pages of a range: the largest that it is made for, by NVOS32's ATTR 24:23 and ATTR2 21:20.
fn range_page(params: &MemoryAlloc) -> u64 {
    const HUGE_512M: u64 = 512 << 20;
    match (params.attr >> 23 & 3, params.attr2 >> 20 & 3) {
        (1, _) => PAGE,
        (3, 2) => HUGE_512M,
        (3, _) => HUGE_PAGE,
        // The driver's choice: either of the two small ones.
        _ => BIG_PAGE,
    }
}

impl VirtualRange {
    /// Reserves addresses of a space as an allocation requests.
    ///
    /// # Errors
    /// `INSUFFICIENT_RESOURCES`, whatever is wrong with the addresses, and for a space that UVM fills.
    fn take(space: Arc<VaSpace>, params: &MemoryAlloc) -> Result<Self, Status> {
        let refused = status::INSUFFICIENT_RESOURCES;
        let page_bytes = range_page(params);
        let len_bytes = params.size.checked_next_multiple_of(page_bytes).ok_or(refused)?;
        let least = if params.flags & FLAG_ALIGNMENT_FORCE == 0 { page_bytes.max(BIG_PAGE) } else { PAGE };
        let align = params.alignment.max(least);
        let (first, last) = match params.flags {
            flags if flags & FLAG_FIXED_ADDRESS != 0 => {
                (params.offset, params.offset.checked_add(len_bytes - 1).ok_or(refused)?)
            }
            flags if flags & FLAG_USE_BEGIN_END != 0 => (params.range_lo, params.range_hi),
            _ => (space.base, space.limit),
        };
        let (first, last) = (first.max(space.base), last.min(space.limit));
        if space.externally_owned || !align.is_power_of_two() {
            return Err(refused);
        }
        let va = space.take(len_bytes, align, first, last).ok_or(refused)?;
        Ok(Self { space, va, len_bytes, page_bytes, placed: Mutex::default() })
    }

    fn placed(&self) -> MutexGuard<'_, BTreeMap<u64, Placed>> {
        self.placed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes everything between two addresses; mappings that reach beyond them keep their other parts.
    fn cut(&self, from: u64, to: u64, device: u32) {
        let mut placed = self.placed();
        let hit = |(at, one): &(&u64, &Placed)| **at + one.len_bytes > from && one.device == device;
        let touched: Vec<(u64, Placed)> = placed.range(..to).filter(hit).map(|(at, one)| (*at, *one)).collect();
        for (at, one) in touched {
            let end = at + one.len_bytes;
            placed.remove(&at);
            if at < from {
                placed.insert(at, Placed { len_bytes: from - at, ..one });
            }
            if to < end {
                placed.insert(to, Placed { len_bytes: end - to, ..one });
            }
            let (start, stop) = (at.max(from), end.min(to));
            self.space.vm.clear(start, stop - start);
        }
    }

    /// A memory's handle is freed: its mappings are removed.
    pub(crate) fn forget(&self, memory: u32) {
        self.placed().retain(|at, one| {
            let stays = one.memory != memory;
            if !stays {
                self.space.vm.clear(*at, one.len_bytes);
            }
            stays
        });
    }
}

impl Drop for VirtualRange {
    fn drop(&mut self) {
        self.space.vm.clear(self.va, self.len_bytes);
        self.space.give_back(self.va);
    }
}

/// Makes an object of class NV50_MEMORY_VIRTUAL.
pub(crate) fn virtual_memory(nv: &SoftNv, making: &mut Making<'_>) -> Result<Made, Status> {
    let mut params: MemoryAlloc = making.params();
    let ranged = params.range_lo != 0 || params.range_hi != 0;
    if params.internalflags != 0 || params.size == 0 {
        return Err(status::INVALID_ARGUMENT);
    }
    if matches!(params.owner, 0 | u32::MAX) || OWNERS_OF_RM.contains(&params.owner) {
        return Err(status::INVALID_OWNER);
    }
    if params.flags & FLAG_USE_BEGIN_END == 0 && ranged || params.flags & FLAG_VIRTUAL == 0 {
        return Err(status::INVALID_ARGUMENT);
    }
    if params.h_va_space == 0 || params.flags & (FLAG_SPARSE | FLAG_EXTERNALLY_MANAGED) != 0 {
        nv.unmodelled("a range of the device's own space, or one that is sparse or managed from outside".to_owned());
        return Err(status::NOT_SUPPORTED);
    }
    let range = VirtualRange::take(making.space(params.h_va_space)?, &params)?;
    (params.offset, params.size, params.limit) = (range.va, range.len_bytes, range.len_bytes - 1);
    making.store(&params);
    Ok(Made { body: Body::Virtual(Arc::new(range)), needs: vec![params.h_va_space] })
}

/// Size of the pages that memory is mapped with.
fn page_of(flags: u32, va: u64, range: &VirtualRange, memory: &Memory) -> Result<u64, Status> {
    let wanted = match flags >> 8 & 0xf {
        0 | 3 if va.is_multiple_of(memory.page_bytes) => memory.page_bytes,
        0 | 3 => range.page_bytes,
        1 => PAGE,
        2 => BIG_PAGE,
        4 => HUGE_PAGE,
        5 => 512 << 20,
        _ => return Err(status::INVALID_ARGUMENT),
    };
    Ok(wanted.min(memory.page_bytes))
}

impl VirtualRange {
    /// Maps memory at an address; returns the address of its first byte.
    fn map(&self, memory: &Memory, args: &nvrm::RmMapMemoryDma) -> Result<u64, Status> {
        let base = if args.flags & OFFSET_FIXED != 0 { 0 } else { self.va };
        let asked = base.checked_add(args.dma_offset).ok_or(status::INVALID_OFFSET)?;
        if asked < self.va || asked >= self.va + self.len_bytes {
            return Err(status::INVALID_OFFSET);
        }
        let page = page_of(args.flags, asked, self, memory)?;
        // Whole pages are mapped, whatever part of them is meant.
        let inside = args.offset % page;
        let va = asked - asked % page;
        if asked != va && asked - va != inside {
            return Err(status::INVALID_OFFSET);
        }
        let len_bytes = (inside + args.length).next_multiple_of(page);
        if va < self.va || va + len_bytes > self.va + self.len_bytes {
            return Err(status::INVALID_ARGUMENT);
        }
        let view = memory.view.sub(args.offset - inside, len_bytes).map_err(|_| status::INVALID_LIMIT)?;
        let write = args.flags & ACCESS != ACCESS_READ_ONLY;
        let rights = Rights { write, atomic: write, execute: true };
        let mut placed = self.placed();
        if !self.space.vm.map(va, Mapping { view, rights, handle: memory.key, queue_refs: 0, revoked: false }) {
            return Err(status::INVALID_ARGUMENT);
        }
        placed.insert(
            va + inside,
            Placed { len_bytes: len_bytes - inside, memory: args.h_memory, device: args.h_device },
        );
        Ok(va + inside)
    }
}

impl SoftNv {
    /// MAP_MEMORY_DMA: memory into a range of an address space that RM fills.
    pub(super) fn rm_map_dma(
        &self,
        state: &mut State,
        file: u64,
        args: &mut nvrm::RmMapMemoryDma,
    ) -> Result<(), Status> {
        if args.length == 0 {
            return Err(status::INVALID_LIMIT);
        }
        let client = state.clients.of(args.h_client, file, status::INVALID_OBJECT_HANDLE)?;
        let (mapper, mappable) = (client.object(args.h_dma)?, client.object(args.h_memory)?);
        let by_subdevice = is_subdevice(client.object(args.h_device)?)?;
        let Body::Memory(memory) = &mappable.body else { return Err(status::INVALID_OBJECT_HANDLE) };
        let end = args.offset.checked_add(args.length).ok_or(status::INVALID_LIMIT)?;
        if end > memory.len_bytes {
            return Err(status::INVALID_LIMIT);
        }
        if memory.read_only && args.flags & ACCESS != ACCESS_READ_ONLY {
            return Err(status::INVALID_ARGUMENT);
        }
        let Body::Virtual(range) = &mapper.body else { return Err(status::INVALID_OBJECT_HANDLE) };
        if by_subdevice {
            return Err(status::NOT_SUPPORTED);
        }
        let is_peers = memory.location == Location::Vram && memory.gpu != range.space.gpu;
        if is_peers || args.flags & P2P != 0 || args.kind_override != 0 {
            self.unmodelled("MAP_MEMORY_DMA of another card's memory, or with another kind".to_owned());
            return Err(status::NOT_SUPPORTED);
        }
        args.dma_offset = range.map(memory, args)?;
        Ok(())
    }

    /// UNMAP_MEMORY_DMA: the mapping that begins there, or with a size all between two addresses.
    pub(super) fn rm_unmap_dma(
        &self,
        state: &mut State,
        file: u64,
        args: &nvrm::RmUnmapMemoryDma,
    ) -> Result<(), Status> {
        let client = state.clients.of(args.h_client, file, status::INVALID_OBJECT_HANDLE)?;
        let mapper = client.object(args.h_dma)?;
        if is_subdevice(client.object(args.h_device)?)? {
            return Err(status::NOT_SUPPORTED);
        }
        let end = args.dma_offset.checked_add(args.size).ok_or(status::INVALID_ARGUMENT)?;
        match &mapper.body {
            Body::Virtual(range) if args.size == 0 => {
                let found = range.placed().get(&args.dma_offset).filter(|one| one.device == args.h_device).copied();
                let one = found.ok_or(status::OBJECT_NOT_FOUND)?;
                range.cut(args.dma_offset, args.dma_offset + one.len_bytes, args.h_device);
                Ok(())
            }
            // An empty range is no error.
            Body::Virtual(range) => {
                range.cut(args.dma_offset, end, args.h_device);
                Ok(())
            }
            _ if args.size == 0 => Err(status::OBJECT_NOT_FOUND),
            _ => Ok(()),
        }
    }
}

/// Whether a mapping's context is a subdevice, and not a device.
fn is_subdevice(context: &Object) -> Result<bool, Status> {
    match context.body {
        Body::Device { .. } => Ok(false),
        Body::Subdevice { .. } => Ok(true),
        _ => Err(status::INVALID_OBJECT),
    }
}

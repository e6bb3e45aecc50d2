//! Buffers: ALLOC, MAP, UNMAP, FREE, and dma-buf.
//!
//! Source: docs/amd.md 1.4, 7.4; `kfd_chardev.c` and `amdgpu_amdkfd_gpuvm.c` for error numbers and their order.
//! Left out: SVM ranges, GTT limits, fragments, evictions under pressure, user memory that was not mapped shared
//! through the port.

use super::caching::{self, Home};
use super::defect::Defect;
use super::driver::{Device, State, bound, device_index};
use super::vm::{Mapping, Rights, UnmapError};
use super::{SoftKfd, report::ReportKind};
use doorbell_ioctl::abi::kfd::{
    ALLOC_MEM_FLAGS_AQL_QUEUE_MEM, ALLOC_MEM_FLAGS_DOORBELL, ALLOC_MEM_FLAGS_EXECUTABLE, ALLOC_MEM_FLAGS_GTT,
    ALLOC_MEM_FLAGS_MMIO_REMAP, ALLOC_MEM_FLAGS_PUBLIC, ALLOC_MEM_FLAGS_USERPTR, ALLOC_MEM_FLAGS_VRAM,
    ALLOC_MEM_FLAGS_WRITABLE, AllocMemoryOfGpu, ExportDmabuf, GetDmabufInfo, ImportDmabuf, MMAP_TYPE_MMIO,
    MMAP_TYPE_SHIFT, MapMemoryToGpu,
};
use doorbell_ioctl::port::{CpuPtr, DeviceView, Errno, SharedMemory, read_process};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// First address of the window that buffers may lie in, and the last.
pub(crate) const GPUVM_BASE: u64 = 0x4000;
pub(crate) const GPUVM_LIMIT: u64 = 0x7fff_ffff_ffff;
/// Of EXPORT_DMABUF's flags: those of open(2).
const O_CLOEXEC: u32 = 0o2_000_000;
/// mmap offsets of the render node start here.
const FIRST_MMAP_OFFSET: u64 = 0x1_0000_0000;

/// The memory of a buffer.
#[derive(Clone, Debug)]
pub(crate) enum Backing {
    Shared(Arc<SharedMemory>),
    /// The process's own pages, mapped a second time.
    User(CpuPtr),
}

/// A buffer.
#[derive(Clone, Debug)]
pub(crate) struct Bo {
    pub va: u64,
    pub len_bytes: u64,
    pub flags: u32,
    pub mmap_offset: u64,
    pub backing: Backing,
    /// The driver's own mapping.
    pub view: DeviceView,
    /// Card whose VRAM it uses.
    pub vram_of: Option<usize>,
    /// Cards that have it mapped.
    pub mapped: Vec<usize>,
}

/// The card's id in a handle or mmap offset.
#[must_use]
pub(crate) fn handle_gpu(handle: u64) -> u32 {
    (handle >> 32) as u32
}

fn handle_index(handle: u64) -> u32 {
    handle as u32
}

/// The gpu id's bits 61:46 of an mmap offset of the kfd file.
#[must_use]
pub(crate) fn mmap_gpu_bits(gpu_id: u32) -> u64 {
    u64::from(gpu_id & 0xffff) << 46
}

impl Device {
    /// The buffer of a handle of this device.
    pub(crate) fn bo(&self, handle: u64) -> Option<&Bo> {
        self.bos.get(&handle_index(handle))
    }

    /// Gives a buffer the lowest free index, as the kernel's idr does.
    fn insert(&mut self, gpu_id: u32, bo: Bo) -> u64 {
        let index = (0..).find(|index| !self.bos.contains_key(index)).unwrap_or(u32::MAX);
        if bo.vram_of.is_some() {
            self.vram_used.fetch_add(bo.len_bytes, Ordering::Relaxed);
        }
        self.bos.insert(index, bo);
        u64::from(gpu_id) << 32 | u64::from(index)
    }
}

/// Refuses ranges that are not whole pages of the window.
fn check_range(va: u64, len_bytes: u64, page: u64) -> Result<(), Errno> {
    let end = va.checked_add(len_bytes).ok_or(Errno::EINVAL)?;
    let whole = va.is_multiple_of(page) && len_bytes.is_multiple_of(page) && len_bytes > 0;
    if whole && va >= GPUVM_BASE && end - 1 <= GPUVM_LIMIT { Ok(()) } else { Err(Errno::EINVAL) }
}

impl SoftKfd {
    pub(super) fn alloc(&self, state: &mut State, args: &mut AllocMemoryOfGpu) -> Result<(), Errno> {
        if args.size == 0 {
            return Err(Errno::EINVAL);
        }
        let index = device_index(self, args.gpu_id).ok_or(Errno::EINVAL)?;
        let (vram, public) = (args.flags & ALLOC_MEM_FLAGS_VRAM != 0, args.flags & ALLOC_MEM_FLAGS_PUBLIC != 0);
        if vram && public && self.config.small_bar {
            return Err(Errno::EINVAL);
        }
        bound(state, index, Errno::ENODEV)?;
        if args.flags & ALLOC_MEM_FLAGS_AQL_QUEUE_MEM != 0 {
            return Err(Errno::EINVAL);
        }
        check_range(args.va_addr, args.size, self.config.page_bytes)?;
        let (backing, view) = self.backing(state, index, args)?;
        let mmap_offset = match &backing {
            Backing::User(at) => at.0,
            Backing::Shared(_) if args.flags & ALLOC_MEM_FLAGS_MMIO_REMAP != 0 => {
                MMAP_TYPE_MMIO << MMAP_TYPE_SHIFT | mmap_gpu_bits(args.gpu_id)
            }
            Backing::Shared(_) => FIRST_MMAP_OFFSET + self.machine.take_mmap_offset(args.size),
        };
        let bo = Bo {
            va: args.va_addr,
            len_bytes: args.size,
            flags: args.flags,
            mmap_offset,
            backing,
            view,
            vram_of: vram.then_some(index),
            mapped: Vec::new(),
        };
        args.mmap_offset = mmap_offset;
        args.handle = state.devices[index].insert(args.gpu_id, bo);
        Ok(())
    }

    fn backing(&self, state: &State, index: usize, args: &AllocMemoryOfGpu) -> Result<(Backing, DeviceView), Errno> {
        let shared = |memory: Arc<SharedMemory>| {
            let view = memory.map()?;
            Ok((Backing::Shared(memory), view))
        };
        let flag = |bit| args.flags & bit != 0;
        if flag(ALLOC_MEM_FLAGS_VRAM) {
            if state.devices[index].vram_used.load(Ordering::Relaxed) + args.size > self.config.vram_bytes {
                return Err(Errno::ENOMEM);
            }
            return shared(Arc::new(SharedMemory::new(args.size)?));
        }
        if flag(ALLOC_MEM_FLAGS_GTT) {
            return shared(Arc::new(SharedMemory::new(args.size)?));
        }
        if flag(ALLOC_MEM_FLAGS_USERPTR) {
            let at = CpuPtr(args.mmap_offset);
            if at.0 == 0 || !at.0.is_multiple_of(self.config.page_bytes) {
                return Err(Errno::EINVAL);
            }
            let view = self.space.alias(at, args.size).inspect_err(|_| {
                let text = format!("USERPTR at {:#x}: only memory that is mapped shared, in one piece", at.0);
                self.gpus[index].report(ReportKind::Unmodelled, None, text);
            })?;
            return Ok((Backing::User(at), view));
        }
        if flag(ALLOC_MEM_FLAGS_DOORBELL) {
            if args.size != self.config.doorbell_slice() {
                return Err(Errno::EINVAL);
            }
            return shared(Arc::clone(&state.devices[index].doorbells));
        }
        if flag(ALLOC_MEM_FLAGS_MMIO_REMAP) {
            if args.size != self.config.page_bytes {
                return Err(Errno::EINVAL);
            }
            return shared(Arc::clone(&state.devices[index].mmio));
        }
        Err(Errno::EINVAL)
    }

    pub(super) fn free(&self, state: &mut State, handle: u64) -> Result<(), Errno> {
        let index = device_index(self, handle_gpu(handle)).ok_or(Errno::EINVAL)?;
        if self.events.is_page(handle) {
            return Err(Errno::EPERM);
        }
        let device = &mut state.devices[index];
        let bo = device.bo(handle).ok_or(Errno::EINVAL)?;
        if !bo.mapped.is_empty() {
            return Err(Errno::EBUSY);
        }
        if bo.vram_of.is_some() {
            device.vram_used.fetch_sub(bo.len_bytes, Ordering::Relaxed);
        }
        device.bos.remove(&handle_index(handle));
        Ok(())
    }

    /// MAP and UNMAP: card by card, counting those that are done.
    pub(super) fn map(&self, state: &mut State, args: &mut MapMemoryToGpu, map: bool) -> Result<(), Errno> {
        if args.n_devices == 0 || args.n_success > args.n_devices {
            return Err(Errno::EINVAL);
        }
        const MOST: u32 = 1 << 16;
        if args.n_devices > MOST {
            return Err(Errno::ENOMEM);
        }
        let mut bytes = vec![0; args.n_devices as usize * 4];
        read_process(CpuPtr(args.device_ids_array_ptr), &mut bytes)?;
        let ids: Vec<u32> = bytes.as_chunks::<4>().0.iter().map(|b| u32::from_ne_bytes(*b)).collect();
        let home = device_index(self, handle_gpu(args.handle)).ok_or(Errno::EINVAL)?;
        bound(state, home, Errno::EINVAL)?;
        // The kernel's choice of error for an unknown handle.
        state.devices[home].bo(args.handle).ok_or(Errno::ENOMEM)?;
        for &id in &ids[args.n_success as usize..] {
            let peer = device_index(self, id).ok_or(Errno::EINVAL)?;
            bound(state, peer, Errno::ENODEV)?;
            if map {
                self.map_on(state, home, peer, args.handle)?
            } else {
                self.unmap_on(state, home, peer, args.handle)?
            }
            args.n_success += 1;
        }
        Ok(())
    }

    fn map_on(&self, state: &mut State, home: usize, peer: usize, handle: u64) -> Result<(), Errno> {
        let bo = state.devices[home].bos.get_mut(&handle_index(handle)).ok_or(Errno::ENOMEM)?;
        if bo.mapped.contains(&peer) {
            return Ok(());
        }
        if bo.vram_of.is_some_and(|owner| owner != peer) && !self.config.peer_links {
            return Err(Errno::EINVAL);
        }
        let all = self.config.defect == Some(Defect::RightsIgnored);
        let write = all || bo.flags & ALLOC_MEM_FLAGS_WRITABLE != 0;
        let execute = all || bo.flags & ALLOC_MEM_FLAGS_EXECUTABLE != 0;
        let rights = Rights { write, atomic: write, execute };
        let mapping = Mapping { view: bo.view.clone(), rights, handle, queue_refs: 0, revoked: false };
        let home = match bo.vram_of {
            Some(owner) if owner == peer => Home::Card,
            _ if bo.flags & ALLOC_MEM_FLAGS_VRAM != 0 => Home::Peer,
            _ => Home::Host,
        };
        self.gpus[peer].policies.set(handle, caching::policy(self.config.chip, home, bo.flags));
        if !self.gpus[peer].vm.map(bo.va, mapping) {
            return Err(Errno::EINVAL);
        }
        bo.mapped.push(peer);
        Ok(())
    }

    fn unmap_on(&self, state: &mut State, home: usize, peer: usize, handle: u64) -> Result<(), Errno> {
        let bo = state.devices[home].bos.get_mut(&handle_index(handle)).ok_or(Errno::ENOMEM)?;
        if self.config.defect == Some(Defect::UnmapKeeps) && bo.mapped.contains(&peer) {
            bo.mapped.retain(|gpu| *gpu != peer);
            return Ok(());
        }
        match self.gpus[peer].vm.unmap(bo.va, handle) {
            Ok(()) => {
                bo.mapped.retain(|gpu| *gpu != peer);
                self.gpus[peer].shadow.forget(bo.va, bo.len_bytes);
                self.gpus[peer].policies.forget(handle);
                Ok(())
            }
            Err(UnmapError::InUse) => Err(Errno::EBUSY),
            Err(UnmapError::NotMapped) => Err(Errno::EINVAL),
        }
    }

    pub(super) fn export_dmabuf(&self, state: &mut State, args: &mut ExportDmabuf) -> Result<(), Errno> {
        let index = device_index(self, handle_gpu(args.handle)).ok_or(Errno::EINVAL)?;
        let bo = state.devices[index].bo(args.handle).ok_or(Errno::EINVAL)?.clone();
        if matches!(bo.backing, Backing::User(_)) {
            return Err(Errno::EINVAL);
        }
        let fd = state.open_dmabuf(bo, index, args.flags & O_CLOEXEC != 0);
        args.dmabuf_fd = u32::try_from(fd).map_err(|_| Errno::EMFILE)?;
        Ok(())
    }

    pub(super) fn import_dmabuf(&self, state: &mut State, args: &mut ImportDmabuf) -> Result<(), Errno> {
        let (bo, _) = state.dmabuf(args.dmabuf_fd).ok_or(Errno::EINVAL)?;
        let index = device_index(self, args.gpu_id).ok_or(Errno::EINVAL)?;
        bound(state, index, Errno::ENODEV)?;
        check_range(args.va_addr, bo.len_bytes, self.config.page_bytes)?;
        if bo.vram_of.is_some_and(|owner| owner != index) && !self.config.peer_links {
            return Err(Errno::EINVAL);
        }
        let rights = ALLOC_MEM_FLAGS_WRITABLE | ALLOC_MEM_FLAGS_EXECUTABLE;
        // The pages are counted where they were allocated.
        let bo = Bo { va: args.va_addr, flags: bo.flags | rights, vram_of: None, mapped: Vec::new(), ..bo };
        args.handle = state.devices[index].insert(args.gpu_id, bo);
        Ok(())
    }

    pub(super) fn dmabuf_info(&self, state: &State, args: &mut GetDmabufInfo) -> Result<(), Errno> {
        let (bo, owner) = state.dmabuf(args.dmabuf_fd).ok_or(Errno::EINVAL)?;
        args.size = bo.len_bytes;
        args.metadata_size = 0;
        args.gpu_id = self.gpus[owner].gpu_id;
        args.flags = bo.flags & (ALLOC_MEM_FLAGS_VRAM | ALLOC_MEM_FLAGS_GTT | ALLOC_MEM_FLAGS_PUBLIC);
        Ok(())
    }

    /// The process unmapped a range: user memory in it is no longer accessible to the cards.
    pub(super) fn revoke_user_memory(&self, state: &State, at: CpuPtr, len_bytes: u64) {
        for (index, device) in state.devices.iter().enumerate() {
            for (id, bo) in &device.bos {
                let Backing::User(base) = bo.backing else { continue };
                let overlaps = base.0 < at.0.saturating_add(len_bytes) && at.0 < base.0 + bo.len_bytes;
                if overlaps {
                    let handle = u64::from(self.gpus[index].gpu_id) << 32 | u64::from(*id);
                    bo.mapped.iter().for_each(|gpu| self.gpus[*gpu].vm.revoke(handle));
                }
            }
        }
    }
}

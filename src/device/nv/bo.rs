//! Buffers: address range, memory object, GPU mapping, host mapping; and freeing these in the right order.
//!
//! Layer: above `gpu` and `paging`; rings, push buffers, signals, tensors and code all lie in buffers.
//! Source: docs/nv.md 1.3 to 1.5, 2.1.
//! The GPU address equals the CPU address: the range is reserved first, so that nothing else in the process can use it.
//! Existing memory of the caller keeps its CPU address; its GPU address is a range reserved for it.
//! A peer maps a buffer at the same address when a copy first uses it. Left out: dma-buf, 512 MiB pages.

use super::driver::{Handle, MappedMemory, Outcome, RmError};
use super::gpu::{CpuMap, Gpu, MapFile};
use super::paging::Mapping;
use doorbell_hcq::memory::View;
use doorbell_ioctl::abi::nvrm;
use doorbell_ioctl::port::{CallError, Errno, Mapped};
use std::sync::Arc;

/// Page size of VRAM buffers that have at least this size; their addresses are aligned to it.
pub(crate) const HUGE_PAGE: u64 = 2 << 20;

/// NVOS32_ALLOC_FLAGS: IGNORE_BANK_PLACEMENT, ALIGNMENT_FORCE, MEMORY_HANDLE_PROVIDED, MAP_NOT_REQUIRED.
const FLAGS: u32 = 0x1 | 0x100 | 0x4000 | 0x8000;
const FLAGS_PERSISTENT_VIDMEM: u32 = 0x1_0000;
/// NVOS32_ATTR: PAGE_SIZE 24:23, LOCATION 26:25, PHYSICALITY 28:27, COHERENCY 31:29.
const ATTR_PAGE_SIZE_HUGE: u32 = 3 << 23;
const ATTR_LOCATION_PCI: u32 = 1 << 25;
const ATTR_PHYSICALITY_CONTIGUOUS: u32 = 2 << 27;
const ATTR_PHYSICALITY_ALLOW_NONCONTIGUOUS: u32 = 3 << 27;
/// NVOS32_ATTR2: ZBC 1:0, GPU_CACHEABLE 3:2, PAGE_SIZE_HUGE 21:20.
const ATTR2_ZBC_PREFER_NO: u32 = 1;
const ATTR2_GPU_CACHEABLE: u32 = 1 << 2;
const ATTR2_GPU_UNCACHED: u32 = 2 << 2;
const ATTR2_PAGE_SIZE_2M: u32 = 1 << 20;
/// NVOS32_TYPE.
const TYPE_IMAGE: u32 = 0;
const TYPE_NOTIFIER: u32 = 13;
const FORMAT: u32 = 6;
/// NVOS02_FLAGS: PHYSICALITY noncontiguous, COHERENCY cached, MAPPING none.
const USER_MEMORY_FLAGS: u32 = 1 << 4 | 1 << 12 | 1 << 30;

/// Where a buffer is allocated and whether the host maps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Memory of this process, pinned: push buffers, signals, constant banks, staging, and memory that users share with
    /// the GPU.
    Host,
    /// System memory of the driver, uncached: error notifiers.
    System,
    /// Memory of the GPU, not mapped by the host: tensors, code, local memory.
    Vram,
    /// Contiguous memory of the GPU, mapped for the host through BAR1, write-combined: rings and USERD.
    VramMapped,
}

/// A buffer, freed on drop.
#[derive(Debug)]
pub struct Bo {
    gpu: Arc<Gpu>,
    memory: Handle,
    va: u64,
    len_bytes: u64,
    range: Option<Arc<Mapped>>,
    map: Option<CpuMap>,
    is_mapped: bool,
    /// The caller's memory, if the buffer wraps it.
    wrapped: Option<View>,
    /// The mapping in the GPU's page table, until it is unmapped.
    mapping: Option<Mapping>,
}

fn errno(call: &str, errno: Errno) -> RmError {
    RmError { call: call.into(), outcome: Outcome::Errno(errno) }
}

impl Bo {
    /// Allocates memory and maps it in the GPU's page table; the size is rounded up to whole pages.
    ///
    /// # Errors
    /// The driver's; `ENOMEM` when memory or address space is exhausted.
    pub fn new(gpu: &Arc<Gpu>, len_bytes: u64, placement: Placement) -> Result<Self, RmError> {
        let is_vram = matches!(placement, Placement::Vram | Placement::VramMapped);
        let align = if is_vram && len_bytes >= HUGE_PAGE { HUGE_PAGE } else { gpu.driver.page_bytes() };
        let (mut bo, range) = Self::at_reserved(gpu, len_bytes, align)?;
        let (va, len_bytes) = (bo.va, bo.len_bytes);
        bo.is_mapped = placement != Placement::Vram;
        match placement {
            Placement::Host => {
                let range = range.back_shared().map_err(|e| errno("mmap", e))?;
                bo.range = Some(Arc::new(range));
                bo.memory = pin(gpu, va, len_bytes)?;
            }
            Placement::Vram => {
                bo.range = Some(Arc::new(range));
                bo.memory = allocate(gpu, len_bytes, align, placement)?;
            }
            Placement::System | Placement::VramMapped => {
                bo.memory = allocate(gpu, len_bytes, align, placement)?;
                let through = if is_vram { MapFile::Card } else { MapFile::Ctl };
                bo.map = Some(CpuMap::new(gpu, bo.memory, len_bytes, through, Some(range))?);
            }
        }
        bo.put(align, is_vram)?;
        Ok(bo)
    }

    /// Wraps existing memory of this process, writable and from a page on: pins its pages and maps them all in the
    /// GPU's page table.
    ///
    /// # Errors
    /// The driver's, for pages that it cannot pin.
    pub fn wrap(gpu: &Arc<Gpu>, host: View) -> Result<Self, RmError> {
        let (at, page) = (host.base().0, gpu.driver.page_bytes());
        let (mut bo, range) = Self::at_reserved(gpu, host.len_bytes(), page)?;
        bo.range = Some(Arc::new(range));
        bo.memory = pin(gpu, at, bo.len_bytes)?;
        bo.wrapped = Some(host);
        bo.put(page, false)?;
        Ok(bo)
    }

    /// A buffer with a reserved address range and no memory yet.
    fn at_reserved(gpu: &Arc<Gpu>, len_bytes: u64, align: u64) -> Result<(Self, Mapped), RmError> {
        let len_bytes = len_bytes.max(1).checked_next_multiple_of(align).ok_or(errno("reserve", Errno::ENOMEM))?;
        let range = gpu.driver.reserve(len_bytes, align).map_err(|e| errno("reserve", e))?;
        let bo = Self {
            gpu: Arc::clone(gpu),
            memory: 0,
            va: range.base().0,
            len_bytes,
            range: None,
            map: None,
            is_mapped: false,
            wrapped: None,
            mapping: None,
        };
        Ok((bo, range))
    }

    /// Maps the memory object in the GPU's page table, and records it so that peers can map it.
    fn put(&mut self, align: u64, is_vram: bool) -> Result<(), RmError> {
        let (gpu, memory) = (&self.gpu, self.memory);
        self.mapping = Some(Mapping::put(gpu, self.va, self.len_bytes, align, memory)?);
        let gpus = if gpu.uses_uvm() { vec![gpu.uuid] } else { Vec::new() };
        gpu.driver.note_memory(self.va, self.len_bytes, MappedMemory { memory, is_vram, gpus });
        Ok(())
    }

    #[must_use]
    pub fn va(&self) -> u64 {
        self.va
    }

    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// RM's handle of the memory.
    #[must_use]
    pub fn memory(&self) -> Handle {
        self.memory
    }

    /// The host's view of a host-mapped buffer. It keeps the address range, not the buffer: after the buffer is freed,
    /// accesses reach memory that no device uses any more.
    ///
    /// # Errors
    /// `EACCES` for a buffer in VRAM.
    pub fn view(&self) -> Result<View, CallError> {
        let refused = |errno| CallError { name: "mmap", errno };
        if let Some(host) = &self.wrapped {
            return Ok(host.clone());
        }
        let mapped = match &self.map {
            Some(map) => &map.mapped,
            None => self.range.as_ref().filter(|_| self.is_mapped).ok_or(refused(Errno::EACCES))?,
        };
        Ok(View::of_device(&mapped.view().map_err(refused)?))
    }

    /// Unmaps the buffer from the GPU and the host, then frees its memory.
    fn free(&mut self) -> Result<(), RmError> {
        let gpu = Arc::clone(&self.gpu);
        let driver = &gpu.driver;
        let out = self.mapping.take().map_or(Ok(()), |place| place.unmap(&gpu, self.va, self.len_bytes));
        let unmapped = self.map.take().map_or(Ok(()), |map| map.unmap(driver, gpu.device));
        let freed = if self.memory == 0 { Ok(()) } else { driver.free(gpu.device, self.memory) };
        (self.range, self.wrapped) = (None, None);
        driver.forget(self.va);
        out.and(unmapped).and(freed)
    }
}

impl Drop for Bo {
    fn drop(&mut self) {
        if let Err(e) = self.free() {
            log::warn!("buffer at {:#x} was not freed: {e}", self.va);
        }
    }
}

impl crate::gpu::pool::Buffer for Bo {
    fn va(&self) -> u64 {
        Self::va(self)
    }

    fn len_bytes(&self) -> u64 {
        Self::len_bytes(self)
    }
}

/// Allocates memory through the driver: VRAM or system memory.
fn allocate(gpu: &Gpu, len_bytes: u64, align: u64, placement: Placement) -> Result<Handle, RmError> {
    let is_huge = align == HUGE_PAGE;
    let physicality = match placement {
        Placement::VramMapped => ATTR_PHYSICALITY_CONTIGUOUS,
        _ => ATTR_PHYSICALITY_ALLOW_NONCONTIGUOUS,
    };
    let system = placement == Placement::System;
    let mut params = nvrm::MemoryAlloc {
        owner: gpu.driver.client(),
        kind: if system { TYPE_NOTIFIER } else { TYPE_IMAGE },
        flags: FLAGS | if system { 0 } else { FLAGS_PERSISTENT_VIDMEM },
        attr: physicality | if is_huge { ATTR_PAGE_SIZE_HUGE } else { 0 } | if system { ATTR_LOCATION_PCI } else { 0 },
        attr2: ATTR2_ZBC_PREFER_NO
            | if system { ATTR2_GPU_UNCACHED } else { ATTR2_GPU_CACHEABLE }
            | if is_huge { ATTR2_PAGE_SIZE_2M } else { 0 },
        format: FORMAT,
        size: len_bytes,
        alignment: align,
        limit: len_bytes - 1,
        ..Default::default()
    };
    let class = if system { nvrm::NV01_MEMORY_SYSTEM } else { nvrm::NV01_MEMORY_LOCAL_USER };
    gpu.driver.alloc(gpu.device, class, Some(&mut params))
}

/// Makes a memory object of this process's pages, starting at `at`; they stay pinned until the object is freed.
fn pin(gpu: &Gpu, at: u64, len_bytes: u64) -> Result<Handle, RmError> {
    let handle = gpu.driver.own_handle();
    let params = nvrm::AllocMemoryParams {
        h_root: gpu.driver.client(),
        h_object_parent: gpu.device,
        h_object_new: handle,
        h_class: nvrm::NV01_MEMORY_SYSTEM_OS_DESCRIPTOR,
        flags: USER_MEMORY_FLAGS,
        p_memory: at,
        limit: len_bytes - 1,
        ..Default::default()
    };
    let mut args = nvrm::RmAllocMemory { params, fd: -1, ..Default::default() };
    let on = "NV01_MEMORY_SYSTEM_OS_DESCRIPTOR";
    gpu.driver.call(gpu.file(), &nvrm::ALLOC_MEMORY, &mut args, on, |a| a.params.status)?;
    Ok(handle)
}

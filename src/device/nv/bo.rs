//! Buffers: addresses, memory behind them, their place in the GPU's page table, the host's mapping; and freeing in the right order.
//!
//! Place in the arrows: above `gpu` and `paging`; rings, push buffers, signals, tensors and code all lie in these. Source: nv.md 1.3 to 1.5, 2.1.
//! The GPU address is the CPU address: the range is reserved first, so that nothing else of the process ever lies there. Memory that the caller has
//! already stays where it is, and the GPU sees it in a range that was reserved for it.
//! Peers map a buffer at the same address when a copy first names it. Left out: dma-buf, 512 MiB pages.

use super::driver::{Handle, Outcome, Placed, RmError};
use super::gpu::{CpuMap, Gpu, MapFile};
use super::paging::InTable;
use doorbell_hcq::memory::View;
use doorbell_ioctl::abi::nvrm;
use doorbell_ioctl::port::{CallError, Errno, Mapped};
use std::sync::Arc;

const PAGE: u64 = 4096;
/// VRAM from this size on has pages of this size, in GPU and address alike.
pub const HUGE_PAGE: u64 = 2 << 20;

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

/// Where a buffer lies and who sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Memory of this process, pinned: push buffers, signals, constant banks, staging, and what users share with the GPU.
    Host,
    /// System memory of the driver, uncached: error notifiers.
    System,
    /// Memory of the GPU, not mapped by the host: tensors, code, local memory.
    Vram,
    /// Memory of the GPU in one piece that the host sees through BAR1, write-combined: rings and USERD.
    VramMapped,
}

/// A buffer that frees itself.
#[derive(Debug)]
pub struct Bo {
    gpu: Arc<Gpu>,
    memory: Handle,
    va: u64,
    len_bytes: u64,
    range: Option<Arc<Mapped>>,
    map: Option<CpuMap>,
    is_mapped: bool,
    /// Memory that was the caller's before.
    wrapped: Option<View>,
    /// Until it is taken out.
    in_table: Option<InTable>,
}

fn errno(call: &str, errno: Errno) -> RmError {
    RmError { call: call.into(), outcome: Outcome::Errno(errno) }
}

impl Bo {
    /// Memory for a GPU, in its page table; a multiple of pages.
    ///
    /// # Errors
    /// The driver's; `ENOMEM` when memory or addresses are used up.
    pub fn new(gpu: &Arc<Gpu>, len_bytes: u64, placement: Placement) -> Result<Self, RmError> {
        let is_vram = matches!(placement, Placement::Vram | Placement::VramMapped);
        let align = if is_vram && len_bytes >= HUGE_PAGE { HUGE_PAGE } else { PAGE };
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

    /// Memory that this process has already, pinned where it is and in the GPU's page table from its first page to its last. It starts on a page of 4 KiB.
    ///
    /// # Errors
    /// The driver's: pages that it cannot pin. `EACCES` for memory that may not be written, `EINVAL` for none or one that starts within a page.
    pub fn wrap(gpu: &Arc<Gpu>, host: View) -> Result<Self, RmError> {
        let at = host.base().0;
        if !host.is_writable() {
            return Err(errno("pin", Errno::EACCES));
        }
        if host.is_empty() || !at.is_multiple_of(PAGE) {
            return Err(errno("pin", Errno::EINVAL));
        }
        let (mut bo, range) = Self::at_reserved(gpu, host.len_bytes(), PAGE)?;
        bo.range = Some(Arc::new(range));
        bo.memory = pin(gpu, at, bo.len_bytes)?;
        bo.wrapped = Some(host);
        bo.put(PAGE, false)?;
        Ok(bo)
    }

    /// Addresses with nothing behind them yet.
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
            in_table: None,
        };
        Ok((bo, range))
    }

    /// The memory object at its addresses in the GPU's page table, where peers find it.
    fn put(&mut self, align: u64, is_vram: bool) -> Result<(), RmError> {
        let (gpu, memory) = (&self.gpu, self.memory);
        self.in_table = Some(InTable::put(gpu, self.va, self.len_bytes, align, memory)?);
        let gpus = if gpu.uses_uvm() { vec![gpu.uuid] } else { Vec::new() };
        gpu.driver.note_memory(self.va, self.len_bytes, Placed { memory, is_vram, gpus });
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

    /// The host's view, for buffers that it has mapped. It keeps the addresses, not the buffer: an access after the buffer's end reads
    /// memory that no device looks at any more.
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

    /// Out of the GPU's page table, off the host's, back to the driver.
    fn free(&mut self) -> Result<(), RmError> {
        let gpu = Arc::clone(&self.gpu);
        let driver = &gpu.driver;
        let out = self.in_table.take().map_or(Ok(()), |place| place.take_out(&gpu, self.va, self.len_bytes));
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

impl crate::pool::Buffer for Bo {
    fn va(&self) -> u64 {
        Self::va(self)
    }

    fn len_bytes(&self) -> u64 {
        Self::len_bytes(self)
    }
}

/// Memory of the driver: the GPU's, or the system's.
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

/// Memory of this process, from a page on, as an object of the driver; its pages stay where they are until it is freed.
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

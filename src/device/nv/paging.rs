//! Page tables: mapping and unmapping memory, through UVM or, if that is missing or refuses, through RM alone.
//!
//! Layer: above `driver` and `gpu`, below `bo`. Source: docs/nv.md 1.5, 2.1, 2.4; `virtual_mem.c`,
//! `gpu_vaspace.c` of the open kernel modules.
//! With RM alone: a range of class NV50_MEMORY_VIRTUAL is allocated at the buffer's address and mapped by
//! MAP_MEMORY_DMA; freeing the range removes the mapping.
//! The page size is always given explicitly: the driver's default may round a buffer up to pages that extend beyond its
//! range.
//! Left out: peer memory with RM alone (NV50_P2P objects), mapping parts of a buffer.

use super::bo::HUGE_PAGE;
use super::driver::{Driver, Handle, RmError, Uuid};
use super::gpu::Gpu;
use bytemuck::Zeroable;
use doorbell_ioctl::abi::{nvrm, uvm};

/// NVOS32_ALLOC_FLAGS of a range: FIXED_ADDRESS_ALLOCATE, ALIGNMENT_FORCE (to its pages, not to the larger ones of
/// compressed memory), MAP_NOT_REQUIRED, VIRTUAL.
const RANGE_FLAGS: u32 = 0x10 | 0x100 | 0x8000 | 0x8_0000;
/// NVOS32_ATTR 24:23, NVOS32_ATTR2 21:20.
const ATTR_PAGE_SIZE_4K: u32 = 1 << 23;
const ATTR_PAGE_SIZE_HUGE: u32 = 3 << 23;
const ATTR2_PAGE_SIZE_2M: u32 = 1 << 20;
/// NVOS46_FLAGS: CACHE_SNOOP, PAGE_SIZE 11:8, DMA_OFFSET_FIXED. Without snooping, the GPU's reads of system memory
/// bypass the host's caches.
const MAP_SNOOPED: u32 = 1 << 4;
const MAP_PAGE_SIZE_4K: u32 = 1 << 8;
const MAP_PAGE_SIZE_HUGE: u32 = 4 << 8;
const MAP_FIXED: u32 = 1 << 15;

/// Who manages the page tables, for all GPUs of a connection or for one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageTables {
    /// UVM; RM alone if nvidia-uvm is missing or refuses a step of bring-up.
    #[default]
    UvmOrRm,
    /// RM alone. Other GPUs then cannot access this GPU's buffers.
    Rm,
}

/// How a buffer is mapped in a GPU's page table.
#[derive(Debug)]
pub(crate) enum Mapping {
    /// By a UVM range.
    Uvm,
    /// By this RM range.
    Rm(Handle),
}

impl Mapping {
    /// Maps a whole memory object in the GPU's page table. Address and length are multiples of `page`, which is a
    /// page of the host or 2 MiB.
    ///
    /// # Errors
    /// The driver's; everything is released then.
    pub(crate) fn put(gpu: &Gpu, va: u64, len_bytes: u64, page: u64, memory: Handle) -> Result<Self, RmError> {
        let driver = &gpu.driver;
        if !gpu.uses_uvm() {
            return put_by_rm(gpu, va, len_bytes, page, memory);
        }
        let mut range = uvm::CreateExternalRange { base: va, length: len_bytes, ..Default::default() };
        driver.uvm(&uvm::CREATE_EXTERNAL_RANGE, &mut range, |a| a.rm_status)?;
        match map_by_uvm(driver, va, len_bytes, memory, gpu.uuid) {
            Ok(()) => Ok(Self::Uvm),
            Err(error) => {
                // The error of the mapping is the one to report.
                let _freed = free_by_uvm(driver, va, len_bytes);
                Err(error)
            }
        }
    }

    /// Unmaps it from all page tables.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn unmap(self, gpu: &Gpu, va: u64, len_bytes: u64) -> Result<(), RmError> {
        match self {
            Self::Uvm => free_by_uvm(&gpu.driver, va, len_bytes),
            Self::Rm(range) => gpu.driver.free(gpu.device, range),
        }
    }
}

fn put_by_rm(gpu: &Gpu, va: u64, len_bytes: u64, page: u64, memory: Handle) -> Result<Mapping, RmError> {
    let driver = &gpu.driver;
    let is_huge = page == HUGE_PAGE;
    let mut params = nvrm::MemoryAlloc {
        owner: driver.client(),
        flags: RANGE_FLAGS,
        attr: if is_huge { ATTR_PAGE_SIZE_HUGE } else { ATTR_PAGE_SIZE_4K },
        attr2: if is_huge { ATTR2_PAGE_SIZE_2M } else { 0 },
        size: len_bytes,
        alignment: page,
        // The fixed address.
        offset: va,
        h_va_space: gpu.vaspace,
        ..Default::default()
    };
    let range = driver.alloc(gpu.device, nvrm::NV50_MEMORY_VIRTUAL, Some(&mut params))?;
    let mapped =
        map_by_rm(gpu, range, va, len_bytes, if is_huge { MAP_PAGE_SIZE_HUGE } else { MAP_PAGE_SIZE_4K }, memory);
    if let Err(error) = mapped {
        let _freed = driver.free(gpu.device, range);
        return Err(error);
    }
    Ok(Mapping::Rm(range))
}

fn map_by_rm(gpu: &Gpu, range: Handle, va: u64, length: u64, page: u32, h_memory: Handle) -> Result<(), RmError> {
    let driver = &gpu.driver;
    let (h_client, h_device, flags) = (driver.client(), gpu.device, MAP_FIXED | MAP_SNOOPED | page);
    let on = format!("{h_memory:#x} at {va:#x}");
    if driver.release().major < 580 {
        let mut args = nvrm::RmMapMemoryDmaV535 {
            h_client,
            h_device,
            h_dma: range,
            h_memory,
            length,
            flags,
            dma_offset: va,
            ..Default::default()
        };
        return driver.call(driver.ctl(), &nvrm::MAP_MEMORY_DMA_V535, &mut args, &on, |a| a.status);
    }
    let mut args = nvrm::RmMapMemoryDma {
        h_client,
        h_device,
        h_dma: range,
        h_memory,
        length,
        flags,
        dma_offset: va,
        ..Default::default()
    };
    driver.call(driver.ctl(), &nvrm::MAP_MEMORY_DMA, &mut args, &on, |a| a.status)
}

/// Maps a memory object in a GPU's page table, at an existing UVM range.
///
/// # Errors
/// The driver's.
pub(crate) fn map_by_uvm(
    driver: &Driver,
    base: u64,
    length: u64,
    memory: Handle,
    gpu_uuid: Uuid,
) -> Result<(), RmError> {
    let gpu_mapping_type = uvm::MAPPING_READ_WRITE_ATOMIC;
    let attributes = uvm::GpuMappingAttributes { gpu_uuid, gpu_mapping_type, ..Default::default() };
    if driver.release().major < 550 {
        let mut args: Box<uvm::MapExternalAllocationV535> = Box::new(Zeroable::zeroed());
        (args.base, args.length, args.gpu_attributes_count) = (base, length, 1);
        args.per_gpu_attributes[0] = attributes;
        (args.rm_ctrl_fd, args.h_client, args.h_memory) = (driver.ctl().0, driver.client(), memory);
        return driver.uvm(&uvm::MAP_EXTERNAL_ALLOCATION_V535, &mut *args, |a| a.rm_status);
    }
    let mut args: Box<uvm::MapExternalAllocation> = Box::new(Zeroable::zeroed());
    (args.base, args.length, args.gpu_attributes_count) = (base, length, 1);
    args.per_gpu_attributes[0] = attributes;
    (args.rm_ctrl_fd, args.h_client, args.h_memory) = (driver.ctl().0, driver.client(), memory);
    driver.uvm(&uvm::MAP_EXTERNAL_ALLOCATION, &mut *args, |a| a.rm_status)
}

/// Unmaps a range from all page tables.
fn free_by_uvm(driver: &Driver, base: u64, length: u64) -> Result<(), RmError> {
    if driver.release().major >= 595 {
        return driver.uvm(&uvm::FREE_V595, &mut uvm::FreeV595 { base, ..Default::default() }, |a| a.rm_status);
    }
    driver.uvm(&uvm::FREE, &mut uvm::Free { base, length, ..Default::default() }, |a| a.rm_status)
}

//! Page tables: memory put in at an address and taken out again, by UVM or, where it is missing or refuses, by RM alone.
//!
//! Place in the arrows: above `driver` and `gpu`, below `bo`. Source: nv.md 1.5, 2.1, 2.4; `virtual_mem.c`, `gpu_vaspace.c` of the open kernel modules.
//! RM's way: a range of class NV50_MEMORY_VIRTUAL at the buffer's own address, filled by MAP_MEMORY_DMA; freeing the range takes the mapping with it.
//! The page size is always named: the driver's own choice may round a buffer up to pages that reach beyond its range.
//! Left out: memory of a peer by RM (NV50_P2P objects), mappings of parts.

use super::bo::HUGE_PAGE;
use super::driver::{Driver, Handle, RmError, Uuid};
use super::gpu::Gpu;
use bytemuck::Zeroable;
use doorbell_ioctl::abi::{nvrm, uvm};

const PAGE: u64 = 4096;
/// NVOS32_ALLOC_FLAGS of a range: FIXED_ADDRESS_ALLOCATE, ALIGNMENT_FORCE (to its pages, not to the larger ones of compressed memory),
/// MAP_NOT_REQUIRED, VIRTUAL.
const RANGE_FLAGS: u32 = 0x10 | 0x100 | 0x8000 | 0x8_0000;
/// NVOS32_ATTR 24:23, NVOS32_ATTR2 21:20.
const ATTR_PAGE_SIZE_4K: u32 = 1 << 23;
const ATTR_PAGE_SIZE_HUGE: u32 = 3 << 23;
const ATTR2_PAGE_SIZE_2M: u32 = 1 << 20;
/// NVOS46_FLAGS: CACHE_SNOOP, PAGE_SIZE 11:8, DMA_OFFSET_FIXED. Without snooping the GPU reads system memory past the host's caches.
const MAP_SNOOPED: u32 = 1 << 4;
const MAP_PAGE_SIZE_4K: u32 = 1 << 8;
const MAP_PAGE_SIZE_HUGE: u32 = 4 << 8;
const MAP_FIXED: u32 = 1 << 15;

/// Who fills page tables, of a connection's GPUs or of one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageTables {
    /// UVM; RM alone where nvidia-uvm is missing or refuses a step of bring-up.
    #[default]
    UvmOrRm,
    /// RM alone. Buffers of one GPU are then not seen by another.
    Rm,
}

/// A buffer in a GPU's page table.
#[derive(Debug)]
pub enum InTable {
    /// By a range of UVM.
    Uvm,
    /// By this range of RM.
    Rm(Handle),
}

impl InTable {
    /// Puts all of a memory object into the GPU's page table. Addresses and length are multiples of `page`, which is 4 KiB or 2 MiB.
    ///
    /// # Errors
    /// The driver's; nothing is left behind then.
    pub fn put(gpu: &Gpu, va: u64, len_bytes: u64, page: u64, memory: Handle) -> Result<Self, RmError> {
        let driver = &gpu.driver;
        if !gpu.uses_uvm() {
            return put_by_rm(gpu, va, len_bytes, page, memory);
        }
        let mut range = uvm::CreateExternalRange { base: va, length: len_bytes, ..Default::default() };
        driver.uvm(&uvm::CREATE_EXTERNAL_RANGE, &mut range, |a| a.rm_status)?;
        match map_by_uvm(driver, va, len_bytes, memory, gpu.uuid) {
            Ok(()) => Ok(Self::Uvm),
            Err(error) => {
                // The mapping's refusal is what is told.
                let _freed = free_by_uvm(driver, va, len_bytes);
                Err(error)
            }
        }
    }

    /// Takes it out of all page tables.
    ///
    /// # Errors
    /// The driver's.
    pub fn take_out(self, gpu: &Gpu, va: u64, len_bytes: u64) -> Result<(), RmError> {
        match self {
            Self::Uvm => free_by_uvm(&gpu.driver, va, len_bytes),
            Self::Rm(range) => gpu.driver.free(gpu.device, range),
        }
    }
}

fn put_by_rm(gpu: &Gpu, va: u64, len_bytes: u64, page: u64, memory: Handle) -> Result<InTable, RmError> {
    let driver = &gpu.driver;
    let is_huge = page == HUGE_PAGE;
    let mut params = nvrm::MemoryAlloc {
        owner: driver.client(),
        flags: RANGE_FLAGS,
        attr: if is_huge { ATTR_PAGE_SIZE_HUGE } else { ATTR_PAGE_SIZE_4K },
        attr2: if is_huge { ATTR2_PAGE_SIZE_2M } else { 0 },
        size: len_bytes,
        alignment: page.max(PAGE),
        // Where it is to lie.
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
    Ok(InTable::Rm(range))
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

/// Puts a memory object into a GPU's page table, at a range that UVM knows.
///
/// # Errors
/// The driver's.
pub fn map_by_uvm(driver: &Driver, base: u64, length: u64, memory: Handle, gpu_uuid: Uuid) -> Result<(), RmError> {
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

/// Takes a range out of all page tables.
fn free_by_uvm(driver: &Driver, base: u64, length: u64) -> Result<(), RmError> {
    if driver.release().major >= 595 {
        return driver.uvm(&uvm::FREE_V595, &mut uvm::FreeV595 { base, ..Default::default() }, |a| a.rm_status);
    }
    driver.uvm(&uvm::FREE, &mut uvm::Free { base, length, ..Default::default() }, |a| a.rm_status)
}

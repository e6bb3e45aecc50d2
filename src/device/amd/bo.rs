//! Buffers of the driver: address range, memory, GPU mappings, host mapping; and freeing these in the right order.
//!
//! Layer: above `driver`; rings, signals, kernargs, tensors and code all lie in buffers. Source:
//! docs/amd.md 1.4 (flag table).
//! The GPU address equals the CPU address: the range is reserved first, so that nothing else in the process can use it.
//! Existing memory of the caller keeps its CPU address; its GPU address is a range reserved for it, so that the same
//! memory can be wrapped twice.
//! Left out: SVM ranges, dma-buf, VRAM through the BAR (copies go through the copy engine).

use super::driver::Driver;
use doorbell_hcq::memory::View;
use doorbell_ioctl::abi::kfd;
use doorbell_ioctl::port::{CallError, Errno, Fd, MapRequest, Mapped};
use std::sync::{Arc, Mutex, PoisonError};

/// VRAM buffers of at least this size are aligned to it, for the GPU's large pages.
const LARGE_PAGE: u64 = 2 << 20;

/// Where a buffer is allocated and whether the host maps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Uncached system memory: rings, pointers, signals, kernargs, command buffers, staging.
    Host,
    /// Memory of the device, not mapped by the host: tensors, code, scratch, save areas.
    Vram,
    /// Pages of this process, shared and anonymous, which the driver pins.
    Pinned,
}

impl Placement {
    fn flags(self) -> u32 {
        let all = kfd::ALLOC_MEM_FLAGS_WRITABLE | kfd::ALLOC_MEM_FLAGS_EXECUTABLE | kfd::ALLOC_MEM_FLAGS_NO_SUBSTITUTE;
        let uncached = kfd::ALLOC_MEM_FLAGS_PUBLIC | kfd::ALLOC_MEM_FLAGS_COHERENT | kfd::ALLOC_MEM_FLAGS_UNCACHED;
        match self {
            Self::Host => all | uncached | kfd::ALLOC_MEM_FLAGS_GTT,
            Self::Vram => all | kfd::ALLOC_MEM_FLAGS_VRAM,
            Self::Pinned => all | uncached | kfd::ALLOC_MEM_FLAGS_USERPTR,
        }
    }
}

/// The GPUs that have a buffer mapped in their page tables.
pub(crate) type Gpus = Arc<Mutex<Vec<u32>>>;

/// Maps a buffer in a GPU's page table, if it is not mapped yet.
///
/// # Errors
/// The driver's.
pub(crate) fn map_to(driver: &Driver, handle: u64, gpus: &Gpus, gpu_id: u32) -> Result<(), CallError> {
    let mut gpus = gpus.lock().unwrap_or_else(PoisonError::into_inner);
    if gpus.contains(&gpu_id) {
        return Ok(());
    }
    let ids = [gpu_id];
    let mut args = kfd::MapMemoryToGpu {
        handle,
        device_ids_array_ptr: ids.as_ptr().expose_provenance() as u64,
        n_devices: 1,
        n_success: 0,
    };
    driver.call(&kfd::MAP_MEMORY_TO_GPU, &mut args)?;
    gpus.push(gpu_id);
    Ok(())
}

/// A buffer without a reference to its driver; its owner must call [`Buffer::free`].
#[derive(Debug)]
pub(crate) struct Buffer {
    handle: u64,
    len_bytes: u64,
    gpus: Gpus,
    range: Arc<Mapped>,
    is_mapped: bool,
    /// The caller's memory, if the buffer wraps it.
    wrapped: Option<View>,
}

impl Buffer {
    /// Allocates memory and maps it in the page table of `gpu_id`; the size is rounded up to whole pages. `render` is
    /// the device's render node.
    ///
    /// # Errors
    /// The driver's; `ENOMEM` when memory or address space is exhausted.
    pub(crate) fn new(
        driver: &Driver,
        gpu_id: u32,
        render: Fd,
        len_bytes: u64,
        placement: Placement,
    ) -> Result<Self, CallError> {
        let name = kfd::ALLOC_MEMORY_OF_GPU.desc.name;
        let refused = |errno| CallError { name, errno };
        let (port, page) = (driver.port(), driver.page_bytes());
        let len_bytes = len_bytes.max(1).checked_next_multiple_of(page).ok_or(refused(Errno::ENOMEM))?;
        let align = if placement == Placement::Vram && len_bytes >= LARGE_PAGE { LARGE_PAGE } else { page };
        let range = match placement {
            Placement::Pinned => Mapped::new(port, &MapRequest::anonymous_shared(len_bytes)),
            _ => Mapped::reserve(port, len_bytes, align),
        };
        let range = range.map_err(refused)?;
        let mut args = kfd::AllocMemoryOfGpu {
            va_addr: range.base().0,
            size: len_bytes,
            gpu_id,
            flags: placement.flags(),
            mmap_offset: if placement == Placement::Pinned { range.base().0 } else { 0 },
            ..Default::default()
        };
        driver.call(&kfd::ALLOC_MEMORY_OF_GPU, &mut args)?;
        let is_mapped = placement != Placement::Vram;
        let range = match placement {
            Placement::Host => range.back(render, args.mmap_offset),
            Placement::Vram | Placement::Pinned => Ok(range),
        };
        let range = match range {
            Ok(range) => Arc::new(range),
            Err(errno) => {
                let _first_error_counts = free_handle(driver, args.handle);
                return Err(refused(errno));
            }
        };
        let (handle, gpus) = (args.handle, Gpus::default());
        Self { handle, len_bytes, gpus, range, is_mapped, wrapped: None }.mapped(driver, gpu_id)
    }

    /// Wraps existing memory of this process, writable and from a page on: the driver follows its pages and maps them
    /// in the page table of `gpu_id`, at an address of the buffer's own.
    ///
    /// # Errors
    /// The driver's, for pages that it cannot reach.
    pub(crate) fn wrap(driver: &Driver, gpu_id: u32, host: View) -> Result<Self, CallError> {
        let name = kfd::ALLOC_MEMORY_OF_GPU.desc.name;
        let refused = |errno| CallError { name, errno };
        let page = driver.page_bytes();
        let len_bytes = host.len_bytes().checked_next_multiple_of(page).ok_or(refused(Errno::ENOMEM))?;
        let range = Mapped::reserve(driver.port(), len_bytes, page).map_err(refused)?;
        let mut args = kfd::AllocMemoryOfGpu {
            va_addr: range.base().0,
            size: len_bytes,
            gpu_id,
            flags: Placement::Pinned.flags(),
            mmap_offset: host.base().0,
            ..Default::default()
        };
        driver.call(&kfd::ALLOC_MEMORY_OF_GPU, &mut args)?;
        let (handle, gpus, range) = (args.handle, Gpus::default(), Arc::new(range));
        Self { handle, len_bytes, gpus, range, is_mapped: false, wrapped: Some(host) }.mapped(driver, gpu_id)
    }

    /// The buffer, known to the connection and mapped for a GPU; freed if that fails.
    fn mapped(self, driver: &Driver, gpu_id: u32) -> Result<Self, CallError> {
        driver.note_buffer(self.va(), self.len_bytes, self.handle, &self.gpus);
        match self.map_to(driver, gpu_id) {
            Ok(()) => Ok(self),
            Err(error) => {
                let _first_error_counts = self.free(driver);
                Err(error)
            }
        }
    }

    /// Maps the buffer in a GPU's page table, if it is not mapped yet.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn map_to(&self, driver: &Driver, gpu_id: u32) -> Result<(), CallError> {
        map_to(driver, self.handle, &self.gpus, gpu_id)
    }

    #[must_use]
    pub(crate) fn handle(&self) -> u64 {
        self.handle
    }

    /// The address for the GPU and, if it is mapped there, for the host.
    #[must_use]
    pub(crate) fn va(&self) -> u64 {
        self.range.base().0
    }

    #[must_use]
    pub(crate) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Unmaps the buffer from all GPUs, frees its memory, then its address range.
    ///
    /// # Errors
    /// The driver's first one; the rest is freed nevertheless.
    pub(crate) fn free(self, driver: &Driver) -> Result<(), CallError> {
        let gpus = std::mem::take(&mut *self.gpus.lock().unwrap_or_else(PoisonError::into_inner));
        let mut unmapped = Ok(());
        if !gpus.is_empty() {
            let mut args = kfd::UnmapMemoryFromGpu {
                handle: self.handle,
                device_ids_array_ptr: gpus.as_ptr().expose_provenance() as u64,
                n_devices: u32::try_from(gpus.len()).unwrap_or(0),
                n_success: 0,
            };
            unmapped = driver.call(&kfd::UNMAP_MEMORY_FROM_GPU, &mut args);
        }
        let freed = free_handle(driver, self.handle);
        driver.forget_buffer(self.range.base().0);
        unmapped.and(freed)
    }
}

fn free_handle(driver: &Driver, handle: u64) -> Result<(), CallError> {
    driver.call(&kfd::FREE_MEMORY_OF_GPU, &mut kfd::FreeMemoryOfGpu { handle })
}

/// A buffer, freed on drop.
#[derive(Debug)]
pub struct Bo {
    driver: Arc<Driver>,
    // None only while dropping.
    buffer: Option<Buffer>,
}

impl Bo {
    /// Allocates memory and maps it in the page table of `gpu_id`; the size is rounded up to whole pages. `render` is
    /// the device's render node.
    ///
    /// # Errors
    /// The driver's; `ENOMEM` when memory or address space is exhausted.
    pub fn new(
        driver: &Arc<Driver>,
        gpu_id: u32,
        render: Fd,
        len_bytes: u64,
        placement: Placement,
    ) -> Result<Self, CallError> {
        let buffer = Buffer::new(driver, gpu_id, render, len_bytes, placement)?;
        Ok(Self { driver: Arc::clone(driver), buffer: Some(buffer) })
    }

    /// Wraps existing memory of this process ([`Buffer::wrap`]).
    ///
    /// # Errors
    /// The driver's, for pages that it cannot reach.
    pub fn wrap(driver: &Arc<Driver>, gpu_id: u32, host: View) -> Result<Self, CallError> {
        Ok(Self { driver: Arc::clone(driver), buffer: Some(Buffer::wrap(driver, gpu_id, host)?) })
    }

    #[must_use]
    pub fn va(&self) -> u64 {
        self.buffer.as_ref().map_or(0, Buffer::va)
    }

    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.buffer.as_ref().map_or(0, Buffer::len_bytes)
    }

    /// The host's view of a host-mapped buffer. It keeps the address range, not the buffer: after the buffer is freed,
    /// accesses reach memory that no device uses any more.
    ///
    /// # Errors
    /// `EACCES` for a buffer in VRAM.
    pub fn view(&self) -> Result<View, CallError> {
        let refused = CallError { name: "mmap", errno: Errno::EACCES };
        if let Some(host) = self.buffer.as_ref().and_then(|b| b.wrapped.as_ref()) {
            return Ok(host.clone());
        }
        let buffer = self.buffer.as_ref().filter(|b| b.is_mapped).ok_or(refused)?;
        let view = buffer.range.view().map_err(|errno| CallError { name: "mmap", errno })?;
        Ok(View::of_device(&view))
    }
}

impl Drop for Bo {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            let va = buffer.va();
            if let Err(e) = buffer.free(&self.driver) {
                log::warn!("buffer at {va:#x} was not freed: {e}");
            }
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

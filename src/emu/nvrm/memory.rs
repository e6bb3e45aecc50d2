//! Memory of RM: VRAM, system memory of the driver, pinned memory of the process.
//!
//! Source: docs/nv.md 1.3, 2.1. An object's pages live as long as they are mapped: UVM holds its own reference to what
//! it maps. Left out: physical addresses, compression, kinds other than pitch, protected memory, NUMA.

use super::status;
use doorbell_ioctl::abi::nvrm::{MemoryAlloc, Status};
use doorbell_ioctl::port::{AddressSpace, CpuPtr, DeviceView, SharedMemory};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The smallest pages of a card.
pub(crate) const PAGE: u64 = 4096;
pub(crate) const BIG_PAGE: u64 = 64 << 10;
pub(crate) const HUGE_PAGE: u64 = 2 << 20;

/// Where the bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// On the card.
    Vram,
    /// The driver's.
    System,
    /// The process's, pinned.
    User,
}

/// Bytes taken from something that has only so many; given back on drop.
#[derive(Debug)]
pub(crate) struct Charge {
    used: Arc<AtomicU64>,
    bytes: u64,
}

impl Charge {
    /// Allocates `bytes` if no more than `limit` are in use then.
    pub(crate) fn take(used: &Arc<AtomicU64>, bytes: u64, limit: u64) -> Option<Self> {
        let fits = |now: u64| now.checked_add(bytes).filter(|sum| *sum <= limit);
        used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some(Self { used: Arc::clone(used), bytes })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A memory object's pages.
#[derive(Debug)]
pub(crate) struct Memory {
    /// The card that owns it, or that it was allocated below.
    pub gpu: usize,
    pub location: Location,
    pub len_bytes: u64,
    /// Of its physical pages.
    pub page_bytes: u64,
    /// No GPU may write it.
    pub read_only: bool,
    /// For the processor; pinned memory is mapped already.
    pub shared: Option<SharedMemory>,
    /// The driver's own mapping.
    pub view: DeviceView,
    /// Its own number, whatever its handles are.
    pub key: u64,
    _charge: Option<Charge>,
}

/// Of NV_MEMORY_ALLOCATION_PARAMS.
const ATTR_LOCATION: u32 = 3 << 25;
const ATTR_LOCATION_PCI: u32 = 1 << 25;
const ATTR_PAGE_SIZE_SHIFT: u32 = 23;
const ATTR2_USER_READ_ONLY: u32 = 1 << 22;
pub(crate) const FLAG_VIRTUAL: u32 = 0x8_0000;
pub(crate) const FLAG_FIXED_ADDRESS: u32 = 0x10;

/// What of an allocation's params is wrong for any memory.
fn check_request(params: &MemoryAlloc) -> Result<(), Status> {
    if params.size == 0 {
        return Err(status::INVALID_ARGUMENT);
    }
    if params.alignment != 0 && !params.alignment.is_power_of_two() {
        return Err(status::INVALID_ARGUMENT);
    }
    Ok(())
}

/// A number that no other memory has; odd for VRAM.
fn next_key(location: Location) -> u64 {
    static KEYS: AtomicU64 = AtomicU64::new(1);
    KEYS.fetch_add(1, Ordering::Relaxed) << 1 | u64::from(location == Location::Vram)
}

impl Memory {
    fn driver_made(
        gpu: usize,
        location: Location,
        params: &MemoryAlloc,
        page_bytes: u64,
        charge: Option<Charge>,
    ) -> Result<Self, Status> {
        let len_bytes = params.size.checked_next_multiple_of(page_bytes).ok_or(status::NO_MEMORY)?;
        let shared = SharedMemory::new(len_bytes).map_err(|_| status::NO_MEMORY)?;
        let view = shared.map().map_err(|_| status::NO_MEMORY)?;
        let read_only = params.attr2 & ATTR2_USER_READ_ONLY != 0;
        let shared = Some(shared);
        let key = next_key(location);
        Ok(Self { gpu, location, len_bytes, page_bytes, read_only, shared, view, key, _charge: charge })
    }

    /// Class NV01_MEMORY_LOCAL_USER. `used` of at most `limit` bytes of the card's VRAM are in use.
    ///
    /// # Errors
    /// A status: bad sizes and flags, no memory left.
    pub(crate) fn vram(gpu: usize, params: &MemoryAlloc, used: &Arc<AtomicU64>, limit: u64) -> Result<Self, Status> {
        check_request(params)?;
        if params.attr & ATTR_LOCATION != 0 {
            return Err(status::INVALID_ARGUMENT);
        }
        let page_bytes = match params.attr >> ATTR_PAGE_SIZE_SHIFT & 3 {
            1 => PAGE,
            2 => BIG_PAGE,
            3 => HUGE_PAGE,
            // The driver's choice: large pages for what fills one.
            _ if params.size >= HUGE_PAGE => HUGE_PAGE,
            _ if params.size >= BIG_PAGE => BIG_PAGE,
            _ => PAGE,
        };
        let bytes = params.size.checked_next_multiple_of(page_bytes).ok_or(status::NO_MEMORY)?;
        let charge = Charge::take(used, bytes, limit).ok_or(status::NO_MEMORY)?;
        Self::driver_made(gpu, Location::Vram, params, page_bytes, Some(charge))
    }

    /// Class NV01_MEMORY_SYSTEM.
    ///
    /// # Errors
    /// As for VRAM.
    pub(crate) fn system(gpu: usize, params: &MemoryAlloc) -> Result<Self, Status> {
        check_request(params)?;
        if params.attr & ATTR_LOCATION != ATTR_LOCATION_PCI {
            return Err(status::INVALID_ARGUMENT);
        }
        Self::driver_made(gpu, Location::System, params, PAGE, None)
    }

    /// Class NV01_MEMORY_SYSTEM_OS_DESCRIPTOR: `len_bytes` of the process's memory at `at`, whole pages of the host.
    ///
    /// # Errors
    /// A status: memory that is not there, or that this driver cannot share.
    pub(crate) fn pinned(gpu: usize, space: &AddressSpace, at: CpuPtr, len_bytes: u64) -> Result<Self, Status> {
        let page = space.page_bytes();
        if !at.0.is_multiple_of(page) {
            return Err(status::NOT_SUPPORTED);
        }
        if len_bytes == 0 {
            return Err(status::INVALID_ARGUMENT);
        }
        let len_bytes = len_bytes.checked_next_multiple_of(page).ok_or(status::INVALID_LIMIT)?;
        let view = space.alias(at, len_bytes).map_err(|_| status::INVALID_ADDRESS)?;
        let location = Location::User;
        Ok(Self {
            gpu,
            location,
            len_bytes,
            page_bytes: PAGE,
            read_only: false,
            shared: None,
            view,
            key: next_key(location),
            _charge: None,
        })
    }

    /// Whether the number is one of VRAM.
    #[must_use]
    pub(crate) fn is_vram_key(key: u64) -> bool {
        key & 1 == 1
    }
}

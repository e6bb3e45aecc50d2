//! Mappings made through a port: owners that unmap on drop, their views, and doorbells.
//!
//! Layer: `device` maps with it; a view keeps its mapping, the mapping keeps its port.

use super::{CpuPtr, DeviceView, Errno, Fd, MapRequest, Mapping, Port, Prot, ViewError};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Stores before it are visible to a device before stores after it, including those in a write-combining buffer (a ring
/// or a pointer in the device's own memory), which a release does not drain. Loads are not ordered.
///
/// On AArch64 a fence of Rust orders memory among processors (`dmb ish`) and not towards a device; `dsb st` does both,
/// and drains. Source: Linux, arch/arm64 `wmb`; rdma-core, util/udma_barrier.h `mmio_flush_writes`.
#[inline]
pub fn drain_stores() {
    // ORDER: for threads that play a device, and for the compiler; on x86-64 no instruction.
    fence(Ordering::Release);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fence(Ordering::SeqCst);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction is part of x86-64 itself, and touches no memory.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the instruction changes no register and no memory.
    unsafe {
        core::arch::asm!("dsb st", options(nostack, preserves_flags));
    }
}

/// Loads after it see what a device stored before the value that a load before it has seen: to be used between a
/// signal and what it is a signal of.
///
/// Source: Linux, arch/arm64 `dma_rmb`; rdma-core, util/udma_barrier.h `udma_from_device_barrier`. Other machines
/// order a device's stores as those of a thread.
#[inline]
pub fn see_device_stores() {
    // ORDER: acquire, for threads that play a device.
    fence(Ordering::Acquire);
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the instruction changes no register and no memory.
    unsafe {
        core::arch::asm!("dmb oshld", options(nostack, preserves_flags));
    }
}

/// A range mapped through a port; unmapped on drop.
#[derive(Debug)]
pub struct Mapped {
    port: Arc<dyn Port>,
    base: CpuPtr,
    len_bytes: u64,
    prot: Prot,
}

impl Mapped {
    /// Maps.
    ///
    /// # Errors
    /// The port's; `EINVAL` for a fixed address: that is [`Mapped::back`]'s business.
    pub fn new(port: &Arc<dyn Port>, request: &MapRequest) -> Result<Self, Errno> {
        if request.addr.is_some() {
            return Err(Errno::EINVAL);
        }
        let base = port.mmap(request)?;
        Ok(Self { port: Arc::clone(port), base, len_bytes: request.len_bytes, prot: request.prot })
    }

    /// Addresses without memory, aligned to `align` (a power of two) and to a page.
    ///
    /// # Errors
    /// The port's.
    pub fn reserve(port: &Arc<dyn Port>, len_bytes: u64, align: u64) -> Result<Self, Errno> {
        let slack = if align > port.page_bytes() { align } else { 0 };
        let total = len_bytes.checked_add(slack).ok_or(Errno::ENOMEM)?;
        let mut kept = Self::new(port, &MapRequest::reserve(total))?;
        if slack == 0 {
            return Ok(kept);
        }
        let start = kept.base;
        let base = CpuPtr(start.0.next_multiple_of(align));
        let (head, tail) = (base.0 - start.0, start.0 + total - base.0 - len_bytes);
        (kept.base, kept.len_bytes) = (base, len_bytes);
        if head > 0 {
            port.munmap(start, head)?;
        }
        if tail > 0 {
            port.munmap(base.offset(len_bytes), tail)?;
        }
        Ok(kept)
    }

    /// Addresses without memory at exactly `at`, a multiple of a page; `None` where the process has another mapping.
    ///
    /// # Errors
    /// The port's.
    pub fn reserve_at(port: &Arc<dyn Port>, at: CpuPtr, len_bytes: u64) -> Result<Option<Self>, Errno> {
        // Without FIXED the kernel uses the address only if it is free.
        let request = MapRequest { addr: Some(at), ..MapRequest::reserve(len_bytes) };
        let base = port.mmap(&request)?;
        let got = Self { port: Arc::clone(port), base, len_bytes, prot: request.prot };
        Ok((base == at).then_some(got))
    }

    /// Maps zeroed memory that a driver can pin over the whole reservation.
    ///
    /// # Errors
    /// The port's; the reservation is then given back.
    pub fn back_shared(mut self) -> Result<Self, Errno> {
        let request = MapRequest::anonymous_shared(self.len_bytes).at(self.base);
        if self.port.mmap(&request)? != self.base {
            return Err(Errno::EINVAL);
        }
        self.prot = request.prot;
        Ok(self)
    }

    /// Maps a part of a file over the whole reservation.
    ///
    /// # Errors
    /// The port's; the reservation is then given back.
    pub fn back(mut self, fd: Fd, offset: u64) -> Result<Self, Errno> {
        let request = MapRequest::file(fd, offset, self.len_bytes).at(self.base);
        let base = self.port.mmap(&request)?;
        if base != self.base {
            return Err(Errno::EINVAL);
        }
        self.prot = request.prot;
        Ok(self)
    }

    #[must_use]
    pub fn base(&self) -> CpuPtr {
        self.base
    }

    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// A view of the whole range.
    ///
    /// # Errors
    /// `EACCES` for a range that is not readable and writable.
    pub fn view(self: &Arc<Self>) -> Result<DeviceView, Errno> {
        if !self.prot.contains(Prot::RW) {
            return Err(Errno::EACCES);
        }
        let owner = Arc::clone(self);
        // SAFETY: the port promises a real mapping with these rights until `munmap`, which only our drop calls, and the
        // owner keeps us; no Rust reference points into memory shared with a device.
        Ok(unsafe { DeviceView::from_raw(self.base, self.len_bytes, owner) })
    }

    /// Unmaps, and returns the port's answer.
    ///
    /// # Errors
    /// The port's.
    pub fn unmap(self) -> Result<(), Errno> {
        let result = self.port.munmap(self.base, self.len_bytes);
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: `this` is not used again and its drop does not run: the handle is taken out once.
        drop(unsafe { std::ptr::read(&raw const this.port) });
        result
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // In a drop there is no caller to report to; a range that cannot be unmapped stays reserved, which is harmless.
        let _stays_mapped = self.port.munmap(self.base, self.len_bytes);
    }
}

impl DeviceView {
    /// The whole of an anonymous mapping, which must be writable; a read-only file mapping gives an empty view.
    #[must_use]
    pub fn of(mapping: &Arc<Mapping>) -> Self {
        let len_bytes = if mapping.is_writable() { mapping.len_bytes() } else { 0 };
        let owner = Arc::clone(mapping);
        // SAFETY: the mapping is readable and writable, the owner keeps it, and it hands out no references.
        unsafe { Self::from_raw(mapping.base(), len_bytes, owner) }
    }
}

/// A doorbell: a word, of 64 bits unless it was made by [`Doorbell::of_u32`], whose store notifies the device of new
/// packets in its ring.
#[derive(Clone, Debug)]
pub struct Doorbell {
    view: DeviceView,
    port: Arc<dyn Port>,
}

impl Doorbell {
    /// The doorbell at `offset` of a mapped doorbell page.
    ///
    /// # Errors
    /// `Range`, `Alignment`.
    pub fn new(page: &DeviceView, offset: u64, port: &Arc<dyn Port>) -> Result<Self, ViewError> {
        let view = page.sub(offset, 8)?;
        if view.base().0 % 8 != 0 {
            return Err(ViewError::Alignment { offset, align: 8 });
        }
        Ok(Self { view, port: Arc::clone(port) })
    }

    /// A doorbell of 32 bits: its upper neighbour is another register.
    ///
    /// # Errors
    /// As [`Doorbell::new`].
    pub fn of_u32(page: &DeviceView, offset: u64, port: &Arc<dyn Port>) -> Result<Self, ViewError> {
        let view = page.sub(offset, 4)?;
        if view.base().0 % 4 != 0 {
            return Err(ViewError::Alignment { offset, align: 4 });
        }
        Ok(Self { view, port: Arc::clone(port) })
    }

    /// Where it is.
    #[must_use]
    pub fn at(&self) -> CpuPtr {
        self.view.base()
    }

    /// Rings; a doorbell of 32 bits takes the lower half of `value`.
    pub fn ring(&self, value: u64) {
        // ORDER: packets and write pointer are visible to the device before the doorbell's store.
        drain_stores();
        // The offset was checked when the doorbell was made.
        let _checked = match self.view.len_bytes() {
            8 => self.view.store_volatile_u64(0, value),
            _ => self.view.store_volatile_u32(0, value as u32),
        };
        self.port.doorbell(self.view.base(), value);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::port::{LinuxPort, OpenFlags, PollFd};
    use std::sync::Mutex;

    /// Records doorbells, with the value of the doorbell's word at that time.
    #[derive(Debug)]
    struct Listener {
        inner: Arc<LinuxPort>,
        rung: Mutex<Vec<(CpuPtr, u64, u64)>>,
    }

    impl Port for Listener {
        fn open(&self, path: &str, flags: OpenFlags) -> Result<Fd, Errno> {
            self.inner.open(path, flags)
        }
        fn close(&self, fd: Fd) -> Result<(), Errno> {
            self.inner.close(fd)
        }
        fn ioctl(&self, fd: Fd, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
            self.inner.ioctl(fd, request, arg)
        }
        fn mmap(&self, map: &MapRequest) -> Result<CpuPtr, Errno> {
            self.inner.mmap(map)
        }
        fn munmap(&self, addr: CpuPtr, len_bytes: u64) -> Result<(), Errno> {
            self.inner.munmap(addr, len_bytes)
        }
        fn poll(&self, fds: &mut [PollFd], timeout_ms: i32) -> Result<usize, Errno> {
            self.inner.poll(fds, timeout_ms)
        }
        fn read_file(&self, path: &str) -> Result<Vec<u8>, Errno> {
            self.inner.read_file(path)
        }
        fn read_dir(&self, path: &str) -> Result<Vec<String>, Errno> {
            self.inner.read_dir(path)
        }
        fn doorbell(&self, at: CpuPtr, value: u64) {
            let mut word = [0; 8];
            crate::port::read_process(at, &mut word).unwrap();
            self.rung.lock().unwrap().push((at, value, u64::from_le_bytes(word)));
        }
    }

    #[test]
    fn doorbell_stores_its_word_and_then_tells_the_port() {
        let listener = Arc::new(Listener { inner: LinuxPort::new(), rung: Mutex::default() });
        let port: Arc<dyn Port> = Arc::clone(&listener) as _;
        let page = Arc::new(Mapped::new(&port, &MapRequest::anonymous_shared(8192)).unwrap());
        let bell = Doorbell::new(&page.view().unwrap(), 24, &port).unwrap();
        bell.ring(5);
        bell.ring(5);
        let at = page.base().offset(24);
        assert_eq!(*listener.rung.lock().unwrap(), [(at, 5, 5), (at, 5, 5)]);
    }

    #[test]
    fn doorbell_of_32_bits_leaves_its_neighbour_alone() {
        let port: Arc<dyn Port> = LinuxPort::new();
        let page = Arc::new(Mapped::new(&port, &MapRequest::anonymous_shared(4096)).unwrap()).view().unwrap();
        page.write_u64(0x90, u64::MAX).unwrap();
        Doorbell::of_u32(&page, 0x90, &port).unwrap().ring(0x1_0000_0005);
        assert_eq!((page.read_u32(0x90).unwrap(), page.read_u32(0x94).unwrap()), (5, u32::MAX));
    }

    #[test]
    fn reservation_at_a_place_that_is_taken_is_none() {
        let port: Arc<dyn Port> = LinuxPort::new();
        // The free addresses differ: a sanitizer reserves terabytes.
        let places = (0..100).map(|n| CpuPtr(0x30_0000_0000 + (n << 40)));
        let free = |at| Some((at, Mapped::reserve_at(&port, at, 8192).unwrap()?));
        let (at, first) = places.into_iter().find_map(free).unwrap();
        assert!(Mapped::reserve_at(&port, at.offset(4096), 4096).unwrap().is_none());
        let view = Arc::new(first.back_shared().unwrap()).view().unwrap();
        view.write_u32(4096, 7).unwrap();
        assert_eq!((view.base(), view.read_u32(4096).unwrap()), (at, 7));
    }

    #[test]
    fn doorbell_outside_its_page_or_misaligned_is_refused() {
        let port: Arc<dyn Port> = LinuxPort::new();
        let page = Arc::new(Mapped::new(&port, &MapRequest::anonymous_shared(4096)).unwrap()).view().unwrap();
        assert!(matches!(Doorbell::new(&page, 4096, &port), Err(ViewError::Range { .. })));
        assert!(matches!(Doorbell::new(&page, 4, &port), Err(ViewError::Alignment { .. })));
    }
}

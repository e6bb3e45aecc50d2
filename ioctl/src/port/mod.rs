//! The interface to drivers ([`Port`], with the running kernel as [`LinuxPort`]), and memory of this process: mappings
//! and views of them.
//!
//! Layer: lowest; used by `hcq::memory`, the devices and the software GPUs. Nothing else makes
//! a system call, but for the clock of `emu::metal`. Two halves: `map`, `code` are the CPU and disk devices' own
//! memory; `driver` and the modules after it are a driver's traffic. A software driver is made of `AddressSpace` (where
//! clients map), `SharedMemory` (memory that it maps there and reads itself), `read_process`/`write_process` (embedded
//! pointers). Source: mmap(2), mprotect(2), madvise(2) of Linux; `map` and `code` also work on macOS, the driver half
//! is Linux only.

mod call;
mod code;
mod driver;
mod errno;
#[cfg(target_os = "linux")]
mod linux;
mod map;
mod mapped;
#[cfg(feature = "metal")]
pub mod objc;
#[cfg(target_os = "linux")]
mod other;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod space;
mod tiles;
mod view;

pub use call::{CallError, call};
pub use code::{CodeMapping, CodeWriter, Protection};
pub use driver::{Fd, KERNEL_LOG, MapFlags, MapRequest, OpenFlags, PollEvents, PollFd, Port, Prot};
pub use errno::Errno;
#[cfg(target_os = "linux")]
pub use linux::LinuxPort;
pub use map::{FileAccess, HUGE_PAGE_BYTES, Mapping, machine_memory_bytes, page_bytes};
pub use mapped::{Doorbell, Mapped, drain_stores, see_device_stores};
#[cfg(target_os = "linux")]
pub use other::{Forked, Signal, let_signals_interrupt, send_signal};
#[cfg(target_os = "linux")]
pub use process::{read_process, write_process};
#[cfg(target_os = "linux")]
pub use space::{AddressSpace, Backing, SharedMemory};
pub use tiles::request_tiles;
pub use view::{DeviceView, ViewError};

/// An address in this process. Only this module turns one into a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CpuPtr(pub u64);

impl CpuPtr {
    /// The address as a raw pointer; making one is harmless, following it is the caller's `unsafe`.
    #[must_use]
    #[inline]
    pub fn as_ptr<T>(self) -> *mut T {
        std::ptr::with_exposed_provenance_mut(usize::try_from(self.0).unwrap_or(0))
    }

    /// The address `bytes` further on; wraps around at the end of the address space, where nothing is mapped.
    #[must_use]
    #[inline]
    pub fn offset(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

/// What the kernel refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    #[error("map of {len_bytes} bytes ({what}): {source}")]
    Map { what: &'static str, len_bytes: u64, source: std::io::Error },
    #[error("protect {len_bytes} bytes at offset {offset} of a code mapping: {source}")]
    Protect { offset: u64, len_bytes: u64, source: std::io::Error },
    #[error("range of {len_bytes} bytes at offset {offset} leaves the code mapping of {size_bytes} bytes")]
    Range { offset: u64, len_bytes: u64, size_bytes: u64 },
    #[error("code range at offset {offset} is not aligned to a page of {page_bytes} bytes")]
    Alignment { offset: u64, page_bytes: u64 },
}

/// Nanoseconds of the monotonic clock: the clock of every timestamp in host memory.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid timespec to write to; CLOCK_MONOTONIC exists on every POSIX system.
    let rc = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    if rc != 0 {
        return 0;
    }
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

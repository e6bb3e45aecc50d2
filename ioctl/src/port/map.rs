//! Data mappings: anonymous memory with a chosen alignment, and files.

use super::{CpuPtr, PortError};
use memmap2::{MmapMut, MmapOptions, MmapRaw};
use std::fs::File;

/// Size of a transparent huge page on x86-64 Linux.
pub const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// Page size of the running kernel, in bytes.
#[must_use]
pub fn page_bytes() -> u64 {
    // SAFETY: sysconf has no preconditions; _SC_PAGESIZE is a valid name on every POSIX system.
    let n = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(n).unwrap_or(4096)
}

/// What may be done with a mapped file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAccess {
    Read,
    /// Stores reach the file.
    ReadWrite,
}

/// A mapping of this process, unmapped on drop. It exposes its address only: access to the memory goes through
/// `hcq::memory`.
#[derive(Debug)]
pub struct Mapping {
    map: MmapRaw,
    skip: u64,
    len_bytes: u64,
    writable: bool,
}

impl Mapping {
    /// Zeroed private memory of at least one byte, aligned to `align` (a power of two). From [`HUGE_PAGE_BYTES`] on,
    /// the kernel is asked for huge pages, so that the first touch runs at 8 GB/s instead of 3.
    ///
    /// # Errors
    /// `Map` when the kernel gives no memory.
    pub fn anonymous(len_bytes: u64, align: u64) -> Result<Self, PortError> {
        let page = page_bytes();
        let slack = if align > page { align } else { 0 };
        let total = len_bytes.max(1).checked_add(slack).and_then(|n| usize::try_from(n).ok());
        let fail = |source| PortError::Map { what: "anonymous", len_bytes, source };
        let total = total.ok_or_else(|| fail(std::io::ErrorKind::OutOfMemory.into()))?;
        let map = MmapMut::map_anon(total).map_err(fail)?;
        let map = MmapRaw::from(map);
        #[cfg(target_os = "linux")]
        if len_bytes >= HUGE_PAGE_BYTES {
            // A kernel without huge pages refuses the advice; the memory works all the same.
            let _refused = map.advise(memmap2::Advice::HugePage);
        }
        let base = map.as_mut_ptr().expose_provenance() as u64;
        let skip = if slack > 0 { base.next_multiple_of(align) - base } else { 0 };
        Ok(Self { map, skip, len_bytes, writable: true })
    }

    /// The first `len_bytes` of `file`, shared with it.
    ///
    /// # Errors
    /// `Map` when the kernel refuses, for instance because `file` was not opened for writing.
    pub fn file(file: &File, len_bytes: u64, access: FileAccess) -> Result<Self, PortError> {
        let fail = |source| PortError::Map { what: "file", len_bytes, source };
        let len = usize::try_from(len_bytes).map_err(|_| fail(std::io::ErrorKind::OutOfMemory.into()))?;
        let mut options = MmapOptions::new();
        options.len(len);
        let map = match access {
            FileAccess::Read => options.map_raw_read_only(file),
            FileAccess::ReadWrite => options.map_raw(file),
        };
        let map = map.map_err(fail)?;
        let _exposed = map.as_mut_ptr().expose_provenance();
        Ok(Self { map, skip: 0, len_bytes, writable: access == FileAccess::ReadWrite })
    }

    /// Address of the first byte.
    #[must_use]
    pub fn base(&self) -> CpuPtr {
        CpuPtr(self.map.as_mut_ptr().expose_provenance() as u64 + self.skip)
    }

    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Whether stores are allowed.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Writes a shared file mapping back to its file.
    ///
    /// # Errors
    /// `Map` with the kernel's error of msync(2).
    pub fn flush(&self) -> Result<(), PortError> {
        self.map.flush().map_err(|source| PortError::Map { what: "flush", len_bytes: self.len_bytes, source })
    }
}

/// Memory of the machine in bytes, without opening a file; 0 if the system does not say.
#[must_use]
#[cfg(target_os = "linux")]
pub fn machine_memory_bytes() -> u64 {
    // SAFETY: all fields are numbers, for which zeros are values.
    let mut info: libc::sysinfo = unsafe { std::mem::zeroed() };
    // SAFETY: the struct is writable for the call.
    if unsafe { libc::sysinfo(&raw mut info) } != 0 {
        return 0;
    }
    // A c_ulong: 32 bits on some machines.
    #[allow(clippy::useless_conversion)]
    let pages = u64::from(info.totalram);
    pages.saturating_mul(u64::from(info.mem_unit))
}

/// Memory of the machine in bytes; 0: this system does not say.
#[must_use]
#[cfg(not(target_os = "linux"))]
pub fn machine_memory_bytes() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_memory_has_the_asked_alignment() {
        let m = Mapping::anonymous(3 << 20, HUGE_PAGE_BYTES).unwrap();
        assert_eq!(m.base().0 % HUGE_PAGE_BYTES, 0);
        assert_eq!(m.len_bytes(), 3 << 20);
    }

    #[test]
    fn anonymous_memory_beyond_the_address_space_is_an_error() {
        assert!(matches!(Mapping::anonymous(1 << 60, 4096), Err(PortError::Map { .. })));
    }

    #[test]
    fn page_size_is_a_power_of_two() {
        assert!(page_bytes().is_power_of_two());
    }
}

//! Executable memory, strictly W^X: a mapping is filled while it is writable and then sealed; no page is ever both.
//!
//! Code made for a fixed address in the lowest 2 GiB (`gcc -fno-pie`) holds addresses of 32 bits: [`CodeWriter::low`]
//! maps it there (`MAP_32BIT`, mmap(2); x86-64 Linux only).

use super::{CpuPtr, PortError, page_bytes};
use std::io;
use std::ops::Range;
use std::ptr::NonNull;

/// mmap's flag for the lowest 2 GiB, if the platform has one.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
const LOW: Option<libc::c_int> = Some(libc::MAP_32BIT);
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
const LOW: Option<libc::c_int> = None;

/// Private pages of this process, unmapped on drop.
#[derive(Debug)]
struct Pages {
    start: NonNull<u8>,
    len_bytes: usize,
}

// SAFETY: the pages are owned by this value alone and are bound to no thread.
unsafe impl Send for Pages {}
// SAFETY: a shared handle only reads their address and length; writing takes an exclusive one.
unsafe impl Sync for Pages {}

impl Pages {
    /// Zeroed, readable and writable pages; `flags` are mmap's flags besides private and anonymous.
    fn map(len_bytes: usize, flags: libc::c_int) -> io::Result<Pages> {
        let bits = libc::PROT_READ | libc::PROT_WRITE;
        let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: the kernel chooses the address, so no other mapping is touched.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len_bytes, bits, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Pages { start, len_bytes })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own and whole; an error would mean that it was none, and changes nothing.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len_bytes) };
    }
}

/// What a sealed range of pages allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    ReadExec,
    Read,
    /// Data of a program (`.data`, `.bss`); never executable.
    ReadWrite,
}

/// Fresh pages that can be written and not executed.
#[derive(Debug)]
pub struct CodeWriter {
    map: Pages,
}

/// Sealed pages, unmapped on drop.
#[derive(Debug)]
pub struct CodeMapping {
    map: Pages,
}

impl CodeWriter {
    /// Zeroed pages for `len_bytes` of code and data.
    ///
    /// # Errors
    /// `Map` when the kernel has no memory.
    pub fn new(len_bytes: u64) -> Result<Self, PortError> {
        Self::mapped("code", len_bytes, 0)
    }

    /// As [`CodeWriter::new`], below 2 GiB.
    ///
    /// # Errors
    /// `Map` when there is no such memory left, or the system cannot map it.
    pub fn low(len_bytes: u64) -> Result<Self, PortError> {
        let what = "code below 2 GiB";
        match LOW {
            Some(flags) => Self::mapped(what, len_bytes, flags),
            None => Err(PortError::Map { what, len_bytes, source: io::ErrorKind::Unsupported.into() }),
        }
    }

    fn mapped(what: &'static str, len_bytes: u64, flags: libc::c_int) -> Result<Self, PortError> {
        let fail = |source| PortError::Map { what, len_bytes, source };
        let len = usize::try_from(len_bytes.max(1).next_multiple_of(page_bytes()))
            .map_err(|_| fail(io::ErrorKind::OutOfMemory.into()))?;
        Ok(Self { map: Pages::map(len, flags).map_err(fail)? })
    }

    /// Address that the code will run at: it does not move when sealed.
    #[must_use]
    pub fn base(&self) -> CpuPtr {
        CpuPtr(self.map.start.as_ptr().expose_provenance() as u64)
    }

    /// The pages' bytes, to be filled.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the pages are mapped writable and zeroed until `seal` consumes the writer, and this borrow is
        // exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.map.start.as_ptr(), self.map.len_bytes) }
    }

    /// Removes the right to write, then gives each range (page-aligned start, bytes from the base) its protection;
    /// pages in no range become read-only.
    ///
    /// # Errors
    /// `Range` and `Alignment` for a bad range, `Protect` when the kernel refuses.
    pub fn seal(self, ranges: &[(Range<u64>, Protection)]) -> Result<CodeMapping, PortError> {
        let size_bytes = self.map.len_bytes as u64;
        let page = page_bytes();
        for (range, _) in ranges {
            let (offset, len_bytes) = (range.start, range.end.saturating_sub(range.start));
            if range.start > range.end || range.end > size_bytes {
                return Err(PortError::Range { offset, len_bytes, size_bytes });
            }
            if offset % page != 0 {
                return Err(PortError::Alignment { offset, page_bytes: page });
            }
        }
        let base = self.map.start.as_ptr().cast_const();
        protect(base, 0..size_bytes, libc::PROT_READ)?;
        for (range, protection) in ranges {
            let bits = match protection {
                Protection::ReadExec => libc::PROT_READ | libc::PROT_EXEC,
                Protection::Read => libc::PROT_READ,
                Protection::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
            };
            let end = range.end.next_multiple_of(page);
            protect(base, range.start..end, bits)?;
        }
        Ok(CodeMapping { map: self.map })
    }
}

/// mprotect of a range inside one mapping; the callers above have checked it.
fn protect(base: *const u8, range: Range<u64>, bits: libc::c_int) -> Result<(), PortError> {
    let (offset, len_bytes) = (range.start, range.end - range.start);
    if len_bytes == 0 {
        return Ok(());
    }
    let start = base.wrapping_add(offset as usize).cast_mut().cast::<libc::c_void>();
    // SAFETY: the range lies in a live mapping that the caller owns (checked in `seal`), and no Rust reference into it
    // exists: `bytes_mut` borrows the writer, which `seal` has consumed.
    let rc = unsafe { libc::mprotect(start, len_bytes as usize, bits) };
    if rc == 0 {
        return Ok(());
    }
    Err(PortError::Protect { offset, len_bytes, source: std::io::Error::last_os_error() })
}

impl CodeMapping {
    #[must_use]
    pub fn base(&self) -> CpuPtr {
        CpuPtr(self.map.start.as_ptr().expose_provenance() as u64)
    }

    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.map.len_bytes as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protection bits of the mapping that holds `addr`, as /proc/self/maps prints them.
    #[cfg(target_os = "linux")]
    fn bits_at(addr: u64) -> String {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let hit = maps.lines().find(|line| {
            let (range, _) = line.split_once(' ').unwrap();
            let (a, b) = range.split_once('-').unwrap();
            (u64::from_str_radix(a, 16).unwrap()..u64::from_str_radix(b, 16).unwrap()).contains(&addr)
        });
        hit.unwrap().split(' ').nth(1).unwrap()[..3].to_string()
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn sealed_code_is_executable_and_not_writable() {
        let page = page_bytes();
        let mut w = CodeWriter::new(3 * page).unwrap();
        w.bytes_mut()[0] = 0xc3;
        let base = w.base().0;
        assert_eq!(bits_at(base), "rw-");
        let ranges = [(0..page, Protection::ReadExec), (2 * page..2 * page + 8, Protection::ReadWrite)];
        let code = w.seal(&ranges).unwrap();
        assert_eq!(code.base().0, base);
        assert_eq!(
            (bits_at(base), bits_at(base + page), bits_at(base + 2 * page)),
            ("r-x".into(), "r--".into(), "rw-".into())
        );
    }

    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    #[test]
    fn low_code_ends_below_two_gib_and_what_does_not_fit_there_is_refused() {
        let w = CodeWriter::low(5 * page_bytes()).unwrap();
        assert!(w.base().0 + 5 * page_bytes() <= 1 << 31);
        let code = w.seal(&[(0..page_bytes(), Protection::ReadExec)]).unwrap();
        assert_eq!(bits_at(code.base().0), "r-x");
        let error = CodeWriter::low(1 << 31).unwrap_err().to_string();
        assert!(error.contains("code below 2 GiB"), "{error}");
    }

    #[test]
    fn range_beyond_the_mapping_is_refused() {
        let w = CodeWriter::new(10).unwrap();
        let end = page_bytes() + 1;
        assert!(matches!(w.seal(&[(0..end, Protection::Read)]), Err(PortError::Range { .. })));
    }

    #[test]
    fn range_inside_a_page_is_refused() {
        let w = CodeWriter::new(10).unwrap();
        assert!(matches!(w.seal(&[(8..9, Protection::Read)]), Err(PortError::Alignment { .. })));
    }
}

//! Places a linked image in memory of this process and calls its entry points: what a device's loader does, for tests.

use doorbell::elf::{Image, Perm};
use std::ffi::c_void;

/// Which part of the address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    Anywhere,
    Low2Gib,
}

/// Fresh zeroed pages, readable and writable.
fn map(len_bytes: usize, place: Where) -> *mut c_void {
    let low = if place == Where::Low2Gib { libc::MAP_32BIT } else { 0 };
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | low);
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches no memory of ours.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), len_bytes, protection, flags, -1, 0) };
    assert_ne!(base, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    base
}

/// A few words of host data at a chosen place; far means far from any mapping of code.
pub struct Words {
    base: *mut c_void,
}

impl Words {
    const LEN_BYTES: usize = 4096;

    /// Copies `words` into pages of their own.
    pub fn new(place: Where, words: &[u64]) -> Self {
        let base = map(Self::LEN_BYTES, place);
        assert!(size_of_val(words) <= Self::LEN_BYTES);
        // SAFETY: the mapping is writable and at least as long as `words`.
        unsafe { std::ptr::copy_nonoverlapping(words.as_ptr(), base.cast(), words.len()) };
        Self { base }
    }

    /// Where they are.
    pub fn address(&self) -> u64 {
        self.base.addr() as u64
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new` with this size, and no code that uses it runs any more.
        unsafe { libc::munmap(self.base, Self::LEN_BYTES) };
    }
}

/// An image at its address; the memory lives as long as this does.
pub struct Placed {
    base: *mut c_void,
    image: Image,
}

impl Placed {
    /// Maps, relocates, copies, and gives each segment its permission.
    pub fn new(image: Image, place: Where, resolve: &dyn Fn(&str) -> Option<u64>) -> Self {
        let base = map(image.size(), place);
        let bytes = image.relocated(base.addr() as u64, resolve).unwrap();
        // SAFETY: the mapping is `image.size()` bytes and writable, `bytes` has that length, and they do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), base.cast(), bytes.len()) };
        for segment in image.segments() {
            let protection = match segment.perm {
                Perm::Rx => libc::PROT_READ | libc::PROT_EXEC,
                Perm::R => libc::PROT_READ,
                Perm::Rw => libc::PROT_READ | libc::PROT_WRITE,
            };
            let start = base.wrapping_byte_add(segment.range.start);
            // SAFETY: the segment's pages lie in the mapping made above, and nothing refers to them yet.
            assert_eq!(unsafe { libc::mprotect(start, segment.range.len(), protection) }, 0);
        }
        Self { base, image }
    }

    /// Calls an entry point with the project's kernel ABI.
    ///
    /// # Safety
    /// The code at `name` must follow the kernel ABI and touch only memory that `args` give it.
    pub unsafe fn call(&self, name: &str, args: &[u64], tid: u64) {
        let entry = self.base.wrapping_byte_add(self.image.entry(name).unwrap());
        // SAFETY: the caller promises that a function of this type is there; the segment is executable.
        let kernel = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(*const u64, u64)>(entry) };
        kernel(args.as_ptr(), tid);
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new` with this size, and calls into it have returned.
        unsafe { libc::munmap(self.base, self.image.size()) };
    }
}

//! Memory that a device may write concurrently: a bounds-checked view with volatile words and bulk copies, never a
//! slice.
//!
//! Layer: lowest of `hcq`; `device` makes views of its allocations, signals and rings lie in them.
//! Single words are atomic: a device sees one aligned load or store. Bulk copies are plain: the caller must order them
//! with the device by a timeline, as with any DMA engine. An unordered copy may read torn data, but never through a
//! Rust reference.

use doorbell_ioctl::port::{CpuPtr, DeviceView, FileAccess, Mapping, PortError};
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// An access outside a memory, or memory that cannot be mapped.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum MemError {
    #[error("access of {len_bytes} bytes at offset {offset} exceeds the memory of {size_bytes} bytes")]
    Range { offset: u64, len_bytes: u64, size_bytes: u64 },
    #[error("word at offset {offset} is not aligned to {align} bytes")]
    Alignment { offset: u64, align: u64 },
    #[error("store of {len_bytes} bytes at offset {offset} into read-only memory")]
    ReadOnly { offset: u64, len_bytes: u64 },
    #[error(transparent)]
    Port(#[from] PortError),
    /// A driver refused to allocate memory.
    #[error("{0}")]
    Driver(String),
}

/// The text of `Display`: what `?` out of `main` prints.
impl std::fmt::Debug for MemError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// A range of host-addressable memory, which keeps its owner alive. Clones refer to the same bytes.
#[derive(Clone)]
pub struct View {
    base: CpuPtr,
    len_bytes: u64,
    writable: bool,
    // Invariant: base..base+len_bytes stays mapped while this lives.
    owner: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "View({:#x}, {} bytes)", self.base.0, self.len_bytes)
    }
}

impl View {
    /// The whole of a mapping.
    #[must_use]
    pub fn of(mapping: Arc<Mapping>) -> Self {
        let (base, len_bytes, writable) = (mapping.base(), mapping.len_bytes(), mapping.is_writable());
        Self { base, len_bytes, writable, owner: mapping }
    }

    /// Memory that was mapped through a driver's port.
    #[must_use]
    pub fn of_device(view: &DeviceView) -> Self {
        Self { base: view.base(), len_bytes: view.len_bytes(), writable: true, owner: Arc::clone(view.owner()) }
    }

    /// New zeroed memory, aligned to `align` bytes (a power of two).
    ///
    /// # Errors
    /// `Port` if the kernel refuses.
    pub fn anonymous(len_bytes: u64, align: u64) -> Result<Self, MemError> {
        Ok(Self::of(Arc::new(Mapping::anonymous(len_bytes, align)?)))
    }

    /// The first `len_bytes` of a file.
    ///
    /// # Errors
    /// `Port` if the kernel refuses the mapping.
    pub fn file(file: &std::fs::File, len_bytes: u64, access: FileAccess) -> Result<Self, MemError> {
        Ok(Self::of(Arc::new(Mapping::file(file, len_bytes, access)?)))
    }

    /// Memory of someone else's, at an address of this process.
    ///
    /// # Safety
    /// The bytes stay mapped, and writable if `writable`, while the view and its clones and parts exist, and are used
    /// through them only, or in an order that the user of the view knows.
    #[must_use]
    pub unsafe fn borrowed(base: CpuPtr, len_bytes: u64, writable: bool) -> Self {
        Self { base, len_bytes, writable, owner: Arc::new(()) }
    }

    /// A part of this memory, offset and length in bytes.
    ///
    /// # Errors
    /// `Range` if the part exceeds this view.
    pub fn sub(&self, offset: u64, len_bytes: u64) -> Result<Self, MemError> {
        let base = self.check(offset, len_bytes)?;
        Ok(Self { base, len_bytes, writable: self.writable, owner: Arc::clone(&self.owner) })
    }

    /// Address of the first byte in this process.
    #[must_use]
    pub fn base(&self) -> CpuPtr {
        self.base
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

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    fn check(&self, offset: u64, len_bytes: u64) -> Result<CpuPtr, MemError> {
        match offset.checked_add(len_bytes) {
            Some(end) if end <= self.len_bytes => Ok(self.base.offset(offset)),
            _ => Err(MemError::Range { offset, len_bytes, size_bytes: self.len_bytes }),
        }
    }

    /// As `check`, for a store.
    fn check_store(&self, offset: u64, len_bytes: u64) -> Result<CpuPtr, MemError> {
        let at = self.check(offset, len_bytes)?;
        if self.writable { Ok(at) } else { Err(MemError::ReadOnly { offset, len_bytes }) }
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    /// `Range`, `ReadOnly`.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), MemError> {
        let dst = self.check_store(offset, bytes.len() as u64)?;
        // SAFETY: the range was checked against the view, whose owner keeps it mapped and writable; `bytes` is Rust
        // memory, which never overlaps a view's (views hand out no references).
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), dst.as_ptr::<u8>(), bytes.len()) };
        Ok(())
    }

    /// Copies from `offset` into `bytes`.
    ///
    /// # Errors
    /// `Range`.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), MemError> {
        let src = self.check(offset, bytes.len() as u64)?;
        // SAFETY: the range was checked against the view, whose owner keeps it mapped; `bytes` is Rust memory outside
        // it.
        unsafe { std::ptr::copy_nonoverlapping(src.as_ptr::<u8>(), bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    /// Copies `len_bytes` from `src` at `src_offset` to `offset`; the ranges may overlap.
    ///
    /// # Errors
    /// `Range`, `ReadOnly`.
    pub fn write_from(&self, offset: u64, src: &View, src_offset: u64, len_bytes: u64) -> Result<(), MemError> {
        let to = self.check_store(offset, len_bytes)?;
        let from = src.check(src_offset, len_bytes)?;
        // SAFETY: both ranges were checked against views whose owners keep them mapped; `copy` allows overlap.
        unsafe { std::ptr::copy(from.as_ptr::<u8>(), to.as_ptr::<u8>(), len_bytes as usize) };
        Ok(())
    }

    /// The aligned 64-bit word at `offset`.
    ///
    /// # Errors
    /// `Range`, `Alignment`; `ReadOnly` because a word may be stored to.
    pub fn word64(&self, offset: u64) -> Result<Word64, MemError> {
        let at = self.check_store(offset, 8)?;
        if at.0 % 8 != 0 {
            return Err(MemError::Alignment { offset, align: 8 });
        }
        Ok(Word64 { at, _owner: Arc::clone(&self.owner) })
    }

    /// This memory as `len_bytes / 4` dwords.
    ///
    /// # Errors
    /// `Alignment`, `ReadOnly`.
    pub fn dwords(&self) -> Result<Dwords, MemError> {
        let at = self.check_store(0, self.len_bytes)?;
        if at.0 % 4 != 0 {
            return Err(MemError::Alignment { offset: 0, align: 4 });
        }
        Ok(Dwords { at, count: self.len_bytes / 4, _owner: Arc::clone(&self.owner) })
    }
}

/// One aligned 64-bit word of a view, checked once; every access is a single atomic load or store.
#[derive(Clone)]
pub struct Word64 {
    at: CpuPtr,
    _owner: Arc<dyn Any + Send + Sync>,
}

impl Word64 {
    /// Address of the word.
    #[must_use]
    pub fn at(&self) -> CpuPtr {
        self.at
    }

    /// The word as an atomic, borrowed from this handle.
    #[must_use]
    #[inline]
    pub fn atomic(&self) -> &AtomicU64 {
        // SAFETY: the address was checked to lie aligned in a writable view, which `_owner` keeps mapped as long as the
        // returned borrow; words are only ever accessed atomically from this side.
        unsafe { AtomicU64::from_ptr(self.at.as_ptr::<u64>()) }
    }
}

impl fmt::Debug for Word64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Word64({:#x})", self.at.0)
    }
}

/// A view as an array of atomic dwords: rings and command buffers.
pub struct Dwords {
    at: CpuPtr,
    count: u64,
    _owner: Arc<dyn Any + Send + Sync>,
}

impl Dwords {
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Dword `index`, borrowed; `None` past the end.
    #[must_use]
    #[inline]
    pub fn get(&self, index: u64) -> Option<&AtomicU32> {
        if index >= self.count {
            return None;
        }
        let at = self.at.offset(index * 4);
        // SAFETY: `index` was checked against the count of an aligned writable view that `_owner` keeps mapped; dwords
        // are only ever accessed atomically from this side.
        Some(unsafe { AtomicU32::from_ptr(at.as_ptr::<u32>()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn access_past_the_end_is_an_error_and_moves_nothing() {
        let v = View::anonymous(16, 64).unwrap();
        assert!(matches!(v.write(15, &[1, 2]), Err(MemError::Range { offset: 15, len_bytes: 2, size_bytes: 16 })));
        assert!(v.read(u64::MAX, &mut [0]).is_err());
        assert!(v.sub(8, 9).is_err());
        assert!(v.word64(9).is_err());
        let mut all = [9; 16];
        v.read(0, &mut all).unwrap();
        assert_eq!(all, [0; 16]);
    }

    #[test]
    fn word_at_an_odd_offset_is_refused() {
        let v = View::anonymous(64, 64).unwrap();
        assert!(matches!(v.word64(4), Err(MemError::Alignment { offset: 4, align: 8 })));
    }

    #[test]
    fn words_and_bytes_see_the_same_memory() {
        let v = View::anonymous(64, 64).unwrap();
        let part = v.sub(8, 8).unwrap();
        part.word64(0).unwrap().atomic().store(0x0102_0304_0506_0708, Ordering::Relaxed);
        let mut b = [0; 8];
        v.read(8, &mut b).unwrap();
        assert_eq!(b, [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(v.dwords().unwrap().get(3).unwrap().load(Ordering::Relaxed), 0x0102_0304);
        assert!(v.dwords().unwrap().get(16).is_none());
    }

    #[test]
    fn overlapping_copy_keeps_the_source_order() {
        let v = View::anonymous(8, 8).unwrap();
        v.write(0, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        v.write_from(2, &v.clone(), 0, 6).unwrap();
        let mut b = [0; 8];
        v.read(0, &mut b).unwrap();
        assert_eq!(b, [1, 2, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn view_outlives_the_handle_it_came_from() {
        let part = View::anonymous(4096, 4096).unwrap().sub(4088, 8).unwrap();
        part.write(0, &[7; 8]).unwrap();
        assert_eq!(part.word64(0).unwrap().atomic().load(Ordering::Relaxed), 0x0707_0707_0707_0707);
    }
}

//! Memory that a device or another thread may write at any time: bounds-checked words and bulk copies, never a slice.
//!
//! Layer: software GPUs access their clients' memory through it; `hcq::memory` builds its views on it.
//! Words are single aligned accesses, as a device's bus makes them. They are atomics rather than volatile accesses,
//! because two threads may touch one word. Bulk copies are plain: concurrent with a writer they read torn data, which
//! no Rust reference ever sees.

use super::CpuPtr;
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// An access that the view refuses; nothing was read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    #[error("access of {len_bytes} bytes at offset {offset:#x} leaves the view of {size_bytes:#x} bytes")]
    Range { offset: u64, len_bytes: u64, size_bytes: u64 },
    #[error("word at offset {offset:#x} is not aligned to {align} bytes")]
    Alignment { offset: u64, align: u64 },
}

/// A range of mapped, readable and writable memory, kept mapped by its owner. Clones are views of the same bytes.
#[derive(Clone)]
pub struct DeviceView {
    base: CpuPtr,
    len_bytes: u64,
    // Invariant: base..base+len_bytes stays mapped readable and writable while this lives.
    owner: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for DeviceView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceView({:#x}, {:#x} bytes)", self.base.0, self.len_bytes)
    }
}

/// Word accesses of one width.
macro_rules! words {
    ($($load:ident $store:ident $cas:ident $update:ident $int:ty, $atomic:ty;)*) => {
        impl DeviceView {
            $(
                /// The aligned word at `offset`.
                ///
                /// # Errors
                /// `Range`, `Alignment`.
                #[inline]
                pub fn $load(&self, offset: u64) -> Result<$int, ViewError> {
                    let at = self.word(offset, size_of::<$int>() as u64)?;
                    // SAFETY: `word` checked range and alignment; the owner keeps the memory mapped; words are only
                    // accessed atomically.
                    Ok(unsafe { <$atomic>::from_ptr(at.as_ptr::<$int>()) }.load(Ordering::Relaxed))
                }

                /// Stores the aligned word at `offset`.
                ///
                /// # Errors
                /// `Range`, `Alignment`.
                #[inline]
                pub fn $store(&self, offset: u64, value: $int) -> Result<(), ViewError> {
                    let at = self.word(offset, size_of::<$int>() as u64)?;
                    // SAFETY: as for the load; the memory is writable.
                    unsafe { <$atomic>::from_ptr(at.as_ptr::<$int>()) }.store(value, Ordering::Relaxed);
                    Ok(())
                }

                /// Stores `new` if the word is `current`; returns the old word: equal to `current` if it was stored.
                ///
                /// # Errors
                /// `Range`, `Alignment`.
                #[inline]
                pub fn $cas(&self, offset: u64, current: $int, new: $int) -> Result<$int, ViewError> {
                    let at = self.word(offset, size_of::<$int>() as u64)?;
                    // SAFETY: as for the store.
                    let word = unsafe { <$atomic>::from_ptr(at.as_ptr::<$int>()) };
                    // ORDER: full, so that an emulated atomic orders the accesses around it.
                    Ok(word.compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst).unwrap_or_else(|found| found))
                }

                /// Replaces the word by `change` of it, atomically; returns the old word. `change` may be called again
                /// when another thread was faster.
                ///
                /// # Errors
                /// `Range`, `Alignment`.
                #[inline]
                pub fn $update(&self, offset: u64, mut change: impl FnMut($int) -> $int) -> Result<$int, ViewError> {
                    let at = self.word(offset, size_of::<$int>() as u64)?;
                    // SAFETY: as for the store.
                    let word = unsafe { <$atomic>::from_ptr(at.as_ptr::<$int>()) };
                    // ORDER: full, as for the exchange.
                    let old = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| Some(change(old)));
                    Ok(old.unwrap_or_else(|old| old))
                }
            )*
        }
    };
}

words! {
    read_u8 write_u8 compare_exchange_u8 fetch_update_u8 u8, AtomicU8;
    read_u16 write_u16 compare_exchange_u16 fetch_update_u16 u16, AtomicU16;
    read_u32 write_u32 compare_exchange_u32 fetch_update_u32 u32, AtomicU32;
    read_u64 write_u64 compare_exchange_u64 fetch_update_u64 u64, AtomicU64;
}

impl DeviceView {
    /// A view of `len_bytes` at `base`, kept mapped by `owner`.
    ///
    /// # Safety
    /// - The range is mapped readable and writable, and stays so while `owner` lives.
    /// - No Rust reference points into it.
    #[must_use]
    pub unsafe fn from_raw(base: CpuPtr, len_bytes: u64, owner: Arc<dyn Any + Send + Sync>) -> Self {
        Self { base, len_bytes, owner }
    }

    /// Host memory of its own that holds these bytes.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let words: Box<[AtomicU64]> = (0..bytes.len().div_ceil(8)).map(|_| AtomicU64::new(0)).collect();
        let owner = Arc::new(words);
        let base = CpuPtr(owner.as_ptr().expose_provenance() as u64);
        // SAFETY: the words are readable and writable, `owner` keeps them, and nobody refers to them but through views.
        let view = unsafe { Self::from_raw(base, bytes.len() as u64, owner) };
        // It has room for them.
        let _ = view.copy_from_slice(0, bytes);
        view
    }

    /// A copy of all its bytes.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.len_bytes).unwrap_or(0)];
        // The range is the view's own.
        let _ = self.copy_to_slice(0, &mut bytes);
        bytes
    }

    /// Address of the first byte in this process.
    #[must_use]
    #[inline]
    pub fn base(&self) -> CpuPtr {
        self.base
    }

    #[must_use]
    #[inline]
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    /// The owner that keeps the range mapped.
    #[must_use]
    #[inline]
    pub fn owner(&self) -> &Arc<dyn Any + Send + Sync> {
        &self.owner
    }

    /// A part of this view.
    ///
    /// # Errors
    /// `Range` when the part leaves it.
    #[inline]
    pub fn sub(&self, offset: u64, len_bytes: u64) -> Result<Self, ViewError> {
        let base = self.range(offset, len_bytes)?;
        Ok(Self { base, len_bytes, owner: Arc::clone(&self.owner) })
    }

    #[inline]
    fn range(&self, offset: u64, len_bytes: u64) -> Result<CpuPtr, ViewError> {
        match offset.checked_add(len_bytes) {
            Some(end) if end <= self.len_bytes => Ok(self.base.offset(offset)),
            _ => Err(ViewError::Range { offset, len_bytes, size_bytes: self.len_bytes }),
        }
    }

    #[inline]
    fn word(&self, offset: u64, align: u64) -> Result<CpuPtr, ViewError> {
        let at = self.range(offset, align)?;
        if at.0 % align == 0 { Ok(at) } else { Err(ViewError::Alignment { offset, align }) }
    }

    /// The 64-bit word at `offset`, with everything that its writer did before it.
    ///
    /// # Errors
    /// `Range`, `Alignment`.
    #[inline]
    pub fn load_acquire_u64(&self, offset: u64) -> Result<u64, ViewError> {
        let value = self.read_u64(offset)?;
        // ORDER: acquire, pairs with the writer's release.
        std::sync::atomic::fence(Ordering::Acquire);
        Ok(value)
    }

    /// Stores the 64-bit word at `offset` after everything that this thread did before.
    ///
    /// # Errors
    /// `Range`, `Alignment`.
    #[inline]
    pub fn store_release_u64(&self, offset: u64, value: u64) -> Result<(), ViewError> {
        // ORDER: release, pairs with the reader's acquire.
        std::sync::atomic::fence(Ordering::Release);
        self.write_u64(offset, value)
    }

    /// Stores the 32-bit word at `offset` after everything that this thread did before.
    ///
    /// # Errors
    /// `Range`, `Alignment`.
    #[inline]
    pub fn store_release_u32(&self, offset: u64, value: u32) -> Result<(), ViewError> {
        // ORDER: release, pairs with the reader's acquire.
        std::sync::atomic::fence(Ordering::Release);
        self.write_u32(offset, value)
    }

    /// Writes the 64-bit word at `offset` like a doorbell: one store that the compiler neither moves nor merges.
    ///
    /// # Errors
    /// `Range`, `Alignment`.
    #[inline]
    pub(super) fn store_volatile_u64(&self, offset: u64, value: u64) -> Result<(), ViewError> {
        let at = self.word(offset, 8)?;
        // SAFETY: `word` checked range and alignment; the owner keeps the memory mapped and writable.
        unsafe { std::ptr::write_volatile(at.as_ptr::<u64>(), value) };
        Ok(())
    }

    /// As [`Self::store_volatile_u64`], for doorbells of 32 bits.
    ///
    /// # Errors
    /// `Range`, `Alignment`.
    #[inline]
    pub(super) fn store_volatile_u32(&self, offset: u64, value: u32) -> Result<(), ViewError> {
        let at = self.word(offset, 4)?;
        // SAFETY: `word` checked range and alignment; the owner keeps the memory mapped and writable.
        unsafe { std::ptr::write_volatile(at.as_ptr::<u32>(), value) };
        Ok(())
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    /// `Range`.
    #[inline]
    pub fn copy_from_slice(&self, offset: u64, bytes: &[u8]) -> Result<(), ViewError> {
        let dst = self.range(offset, bytes.len() as u64)?;
        // SAFETY: the range was checked; `bytes` is Rust memory, which no view's range overlaps.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), dst.as_ptr::<u8>(), bytes.len()) };
        Ok(())
    }

    /// Copies from `offset` into `bytes`.
    ///
    /// # Errors
    /// `Range`.
    #[inline]
    pub fn copy_to_slice(&self, offset: u64, bytes: &mut [u8]) -> Result<(), ViewError> {
        let src = self.range(offset, bytes.len() as u64)?;
        // SAFETY: the range was checked; `bytes` is Rust memory, which no view's range overlaps.
        unsafe { std::ptr::copy_nonoverlapping(src.as_ptr::<u8>(), bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    /// Sets `len_bytes` from `offset` to `byte`.
    ///
    /// # Errors
    /// `Range`.
    pub fn fill(&self, offset: u64, len_bytes: u64, byte: u8) -> Result<(), ViewError> {
        let at = self.range(offset, len_bytes)?;
        let count = usize::try_from(len_bytes).unwrap_or(0);
        // SAFETY: the range was checked; the owner keeps the memory mapped and writable.
        unsafe { std::ptr::write_bytes(at.as_ptr::<u8>(), byte, count) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::Mapping;

    fn view(len_bytes: u64) -> DeviceView {
        DeviceView::of(&Arc::new(Mapping::anonymous(len_bytes, 4096).unwrap()))
    }

    #[test]
    fn access_past_the_end_is_an_error_and_moves_nothing() {
        let v = view(16);
        assert_eq!(v.read_u32(13), Err(ViewError::Range { offset: 13, len_bytes: 4, size_bytes: 16 }));
        assert!(v.copy_from_slice(15, &[1, 2]).is_err());
        assert!(v.fill(u64::MAX, 2, 9).is_err());
        assert!(v.sub(8, 9).is_err());
        let mut all = [1; 16];
        v.copy_to_slice(0, &mut all).unwrap();
        assert_eq!(all, [0; 16]);
    }

    #[test]
    fn misaligned_word_is_refused_by_its_address() {
        let v = view(64).sub(4, 32).unwrap();
        assert_eq!(v.read_u64(0), Err(ViewError::Alignment { offset: 0, align: 8 }));
        assert_eq!(v.read_u64(4), Ok(0));
        assert_eq!(v.write_u16(1, 3), Err(ViewError::Alignment { offset: 1, align: 2 }));
    }

    #[test]
    fn words_and_bytes_see_the_same_memory() {
        let v = view(64);
        v.write_u64(8, 0x0102_0304_0506_0708).unwrap();
        let mut bytes = [0; 8];
        v.copy_to_slice(8, &mut bytes).unwrap();
        assert_eq!(bytes, [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!((v.read_u8(15), v.read_u16(14), v.read_u32(12)), (Ok(1), Ok(0x0102), Ok(0x0102_0304)));
    }

    #[test]
    fn atomics_give_the_former_word() {
        let v = view(8);
        assert_eq!(v.fetch_update_u32(0, |x| x + 5), Ok(0));
        assert_eq!(v.compare_exchange_u32(0, 4, 9), Ok(5));
        assert_eq!(v.compare_exchange_u32(0, 5, 9), Ok(5));
        assert_eq!(v.read_u64(0), Ok(9));
    }

    #[test]
    fn updates_of_two_threads_do_not_get_lost() {
        let v = view(8);
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| (0..10_000).for_each(|_| assert!(v.fetch_update_u64(0, |x| x + 1).is_ok())));
            }
        });
        assert_eq!(v.read_u64(0), Ok(20_000));
    }

    #[test]
    fn a_view_of_bytes_has_exactly_these() {
        let v = DeviceView::of_bytes(&[1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(v.clone().to_vec(), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!((v.read_u32(4), v.read_u8(8)), (Ok(0x0807_0605), Ok(9)));
        assert!(v.read_u8(9).is_err() && DeviceView::of_bytes(&[]).is_empty());
    }

    #[test]
    fn view_outlives_the_handle_it_came_from() {
        let part = view(8192).sub(8184, 8).unwrap();
        part.fill(0, 8, 7).unwrap();
        assert_eq!(part.read_u64(0), Ok(0x0707_0707_0707_0707));
    }
}

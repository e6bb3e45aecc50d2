//! A card's page table for the process: which addresses map to which memory, with access rights.
//!
//! Place in the arrows: shared by the drivers `kfd` and `nvrm`; the driver maps and unmaps, queues and compute units
//! translate. Left out: page sizes, cache policies, windows of shared and private memory (the compute units handle
//! them).

use doorbell_ioctl::port::{DeviceView, ViewError};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    /// Reading and writing in one.
    Atomic,
    /// Of instructions.
    Fetch,
}

/// An access that the page table refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{access:?} of {va:#x}: {}", if *.mapped { "the mapping does not allow it" } else { "no mapping" })]
pub struct VmFault {
    pub va: u64,
    pub access: Access,
    /// There is a mapping, without that right.
    pub mapped: bool,
}

/// What a mapping allows; reading always.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    pub write: bool,
    pub atomic: bool,
    pub execute: bool,
}

/// One mapped buffer.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// Memory from the mapping's first byte on.
    pub view: DeviceView,
    pub rights: Rights,
    /// The buffer's handle.
    pub handle: u64,
    /// Queues that use it: it must not be unmapped before they are destroyed.
    pub queue_refs: u32,
    /// Its pages are gone (user memory that was unmapped): accesses fault.
    pub revoked: bool,
}

/// The range around an address.
#[derive(Clone, Debug)]
pub struct Range {
    pub va_start: u64,
    pub view: DeviceView,
}

/// Mappings by their first address.
#[derive(Default)]
pub struct Vm {
    mappings: RwLock<BTreeMap<u64, Mapping>>,
    epoch: AtomicU64,
}

impl fmt::Debug for Vm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Vm({} mappings)", self.read().len())
    }
}

/// Why the driver cannot unmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnmapError {
    NotMapped,
    InUse,
}

impl Vm {
    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<u64, Mapping>> {
        self.mappings.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the table, and the epoch with it.
    fn change<T>(&self, change: impl FnOnce(&mut BTreeMap<u64, Mapping>) -> T) -> T {
        let mut mappings = self.mappings.write().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut mappings);
        self.epoch.fetch_add(1, Ordering::Release);
        result
    }

    /// Changes whenever a mapping does.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Maps; false when the range overlaps another mapping.
    pub fn map(&self, va: u64, mapping: Mapping) -> bool {
        let end = va.saturating_add(mapping.view.len_bytes());
        self.change(|mappings| {
            let before = mappings.range(..end).next_back();
            if before.is_some_and(|(start, m)| start + m.view.len_bytes() > va) {
                return false;
            }
            mappings.insert(va, mapping);
            true
        })
    }

    /// Unmaps the buffer that is mapped at `va`.
    ///
    /// # Errors
    /// `NotMapped`, `InUse` while a queue needs it.
    pub fn unmap(&self, va: u64, handle: u64) -> Result<(), UnmapError> {
        self.change(|mappings| match mappings.get(&va) {
            Some(m) if m.handle == handle && m.queue_refs > 0 => Err(UnmapError::InUse),
            Some(m) if m.handle == handle => {
                mappings.remove(&va);
                Ok(())
            }
            _ => Err(UnmapError::NotMapped),
        })
    }

    /// Removes everything from a range; mappings that reach beyond it keep their other parts.
    pub fn clear(&self, va: u64, len_bytes: u64) {
        let end = va.saturating_add(len_bytes);
        self.change(|mappings| {
            let hit = |(start, m): (&u64, &Mapping)| (start + m.view.len_bytes() > va).then_some(*start);
            let touched: Vec<u64> = mappings.range(..end).rev().map_while(hit).collect();
            for start in touched {
                let Some(m) = mappings.remove(&start) else { continue };
                let len = m.view.len_bytes();
                let mut keep = |from: u64, to: u64| {
                    if from < to
                        && let Ok(view) = m.view.sub(from - start, to - from)
                    {
                        mappings.insert(from, Mapping { view, ..m.clone() });
                    }
                };
                keep(start, va.max(start).min(start + len));
                keep(end.max(start), start + len);
            }
        });
    }

    /// Start and length of the last mapping that lies in the range, or reaches into it.
    #[must_use]
    pub fn last_in(&self, va: u64, len_bytes: u64) -> Option<(u64, u64)> {
        let mappings = self.read();
        let (start, m) = mappings.range(..va.saturating_add(len_bytes)).next_back()?;
        (start + m.view.len_bytes() > va).then_some((*start, m.view.len_bytes()))
    }

    /// Whether any mapping lies in the range.
    #[must_use]
    pub fn is_used(&self, va: u64, len_bytes: u64) -> bool {
        self.last_in(va, len_bytes).is_some()
    }

    /// Removes the pages of the mapping of `handle`; it stays in the table.
    pub fn revoke(&self, handle: u64) {
        self.change(|mappings| mappings.values_mut().filter(|m| m.handle == handle).for_each(|m| m.revoked = true));
    }

    /// Start and length of the mapping around `va`.
    #[must_use]
    pub fn extent(&self, va: u64) -> Option<(u64, u64)> {
        let mappings = self.read();
        let (start, m) = mappings.range(..=va).next_back()?;
        (va - start < m.view.len_bytes()).then_some((*start, m.view.len_bytes()))
    }

    /// The handle of the mapping around `va`.
    #[must_use]
    pub fn handle_at(&self, va: u64) -> Option<u64> {
        let mappings = self.read();
        let (start, m) = mappings.range(..=va).next_back()?;
        (va - start < m.view.len_bytes()).then_some(m.handle)
    }

    /// Pins (or unpins) the mappings at these first addresses for a queue.
    pub fn pin(&self, starts: &[u64], pin: bool) {
        self.change(|mappings| {
            for start in starts {
                if let Some(m) = mappings.get_mut(start) {
                    m.queue_refs = if pin { m.queue_refs + 1 } else { m.queue_refs.saturating_sub(1) };
                }
            }
        });
    }

    /// The range around `va`, if it allows the access.
    ///
    /// # Errors
    /// `VmFault` with the address.
    pub fn translate(&self, va: u64, access: Access) -> Result<Range, VmFault> {
        let mappings = self.read();
        find(&mappings, va, access).map(|(va_start, view)| Range { va_start, view: view.clone() })
    }

    /// Accesses an aligned word that lies in one mapping, by view and offset in it.
    fn word<T>(
        &self,
        va: u64,
        access: Access,
        act: impl FnOnce(&DeviceView, u64) -> Result<T, ViewError>,
    ) -> Result<T, VmFault> {
        let mappings = self.read();
        let (start, view) = find(&mappings, va, access)?;
        act(view, va - start).map_err(|_| unreachable_word(va, access))
    }

    /// The aligned dword at `va`.
    ///
    /// # Errors
    /// `VmFault`.
    pub fn read_u32(&self, va: u64) -> Result<u32, VmFault> {
        self.word(va, Access::Read, DeviceView::read_u32)
    }

    /// The aligned quadword at `va`, with all that its writer did before.
    ///
    /// # Errors
    /// `VmFault`.
    pub fn read_u64(&self, va: u64) -> Result<u64, VmFault> {
        self.word(va, Access::Read, DeviceView::load_acquire_u64)
    }

    /// Stores a dword, after all stores before it.
    ///
    /// # Errors
    /// `VmFault`.
    pub fn write_u32(&self, va: u64, value: u32) -> Result<(), VmFault> {
        self.word(va, Access::Write, |view, at| view.store_release_u32(at, value))
    }

    /// Stores a quadword, after all stores before it.
    ///
    /// # Errors
    /// `VmFault`.
    pub fn write_u64(&self, va: u64, value: u64) -> Result<(), VmFault> {
        self.word(va, Access::Write, |view, at| view.store_release_u64(at, value))
    }

    /// Replaces a dword atomically; returns the old one.
    ///
    /// # Errors
    /// `VmFault`.
    pub fn update_u32(&self, va: u64, change: impl FnMut(u32) -> u32) -> Result<u32, VmFault> {
        self.word(va, Access::Atomic, |view, at| view.fetch_update_u32(at, change))
    }

    /// Replaces a quadword atomically; returns the old one.
    ///
    /// # Errors
    /// `VmFault`.
    pub fn update_u64(&self, va: u64, change: impl FnMut(u64) -> u64) -> Result<u64, VmFault> {
        self.word(va, Access::Atomic, |view, at| view.fetch_update_u64(at, change))
    }

    /// Walks the ranges under `len_bytes` at `va`: view, offset in it, offset from `va`, bytes.
    fn pieces(
        &self,
        va: u64,
        len_bytes: u64,
        access: Access,
        mut piece: impl FnMut(&DeviceView, u64, u64, u64) -> Result<(), ViewError>,
    ) -> Result<(), VmFault> {
        let mappings = self.read();
        let mut done = 0;
        while done < len_bytes {
            let at = va.wrapping_add(done);
            let (start, view) = find(&mappings, at, access)?;
            let offset = at - start;
            let bytes = (view.len_bytes() - offset).min(len_bytes - done);
            piece(view, offset, done, bytes).map_err(|_| unreachable_word(at, access))?;
            done += bytes;
        }
        Ok(())
    }

    /// Fills `bytes` from `va` on.
    ///
    /// # Errors
    /// `VmFault` at the first byte that cannot be read; bytes before it are filled.
    pub fn read_bytes(&self, va: u64, bytes: &mut [u8]) -> Result<(), VmFault> {
        let len = bytes.len() as u64;
        self.pieces(va, len, Access::Read, |view, offset, done, count| {
            let (from, to) = (done as usize, (done + count) as usize);
            view.copy_to_slice(offset, &mut bytes[from..to])
        })
    }

    /// `count` dwords from `va` on.
    ///
    /// # Errors
    /// `VmFault`.
    pub fn read_dwords(&self, va: u64, count: usize) -> Result<Vec<u32>, VmFault> {
        let mut bytes = vec![0; count * 4];
        self.read_bytes(va, &mut bytes)?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|c| u32::from_le_bytes(*c)).collect())
    }

    /// Stores `bytes` from `va` on.
    ///
    /// # Errors
    /// `VmFault` at the first byte that cannot be written; bytes before it are stored.
    pub fn write_bytes(&self, va: u64, bytes: &[u8]) -> Result<(), VmFault> {
        let len = bytes.len() as u64;
        self.pieces(va, len, Access::Write, |view, offset, done, count| {
            let (from, to) = (done as usize, (done + count) as usize);
            view.copy_from_slice(offset, &bytes[from..to])
        })
    }

    /// Repeats a pattern over `len_bytes` from `va` on.
    ///
    /// # Errors
    /// `VmFault` at the first byte that cannot be written; bytes before it are stored.
    pub fn fill(&self, va: u64, pattern: &[u8], len_bytes: u64) -> Result<(), VmFault> {
        // A multiple of every pattern's length.
        const PIECE: u64 = 1 << 16;
        let piece: Vec<u8> = pattern.iter().copied().cycle().take(PIECE.min(len_bytes) as usize).collect();
        let mut done = 0;
        while done < len_bytes {
            let count = PIECE.min(len_bytes - done);
            self.write_bytes(va.wrapping_add(done), &piece[..count as usize])?;
            done += count;
        }
        Ok(())
    }

    /// Copies bytes; overlapping ranges are copied from the front, piece by piece.
    ///
    /// # Errors
    /// `VmFault` of the read or the write.
    pub fn copy(&self, dst: u64, src: u64, len_bytes: u64) -> Result<(), VmFault> {
        const PIECE: u64 = 1 << 20;
        let mut buffer = vec![0; PIECE.min(len_bytes) as usize];
        let mut done = 0;
        while done < len_bytes {
            let count = PIECE.min(len_bytes - done);
            let piece = &mut buffer[..count as usize];
            self.read_bytes(src.wrapping_add(done), piece)?;
            self.write_bytes(dst.wrapping_add(done), piece)?;
            done += count;
        }
        Ok(())
    }
}

/// The mapping around `va`, if it allows the access: its first address and its memory.
fn find(mappings: &BTreeMap<u64, Mapping>, va: u64, access: Access) -> Result<(u64, &DeviceView), VmFault> {
    let hit = mappings.range(..=va).next_back().filter(|(start, m)| va - *start < m.view.len_bytes() && !m.revoked);
    let Some((start, m)) = hit else { return Err(VmFault { va, access, mapped: false }) };
    let allowed = match access {
        Access::Read => true,
        Access::Write => m.rights.write,
        Access::Atomic => m.rights.write && m.rights.atomic,
        Access::Fetch => m.rights.execute,
    };
    if allowed { Ok((*start, &m.view)) } else { Err(VmFault { va, access, mapped: true }) }
}

/// A word that is not aligned, or that runs over its mapping's end.
fn unreachable_word(va: u64, access: Access) -> VmFault {
    VmFault { va, access, mapped: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorbell_ioctl::port::SharedMemory;

    const RW: Rights = Rights { write: true, atomic: true, execute: false };

    fn mapping(bytes: u64, rights: Rights) -> Mapping {
        let view = SharedMemory::new(bytes).unwrap().map().unwrap();
        Mapping { view, rights, handle: 1, queue_refs: 0, revoked: false }
    }

    #[test]
    fn rights_are_checked_by_access() {
        let vm = Vm::default();
        assert!(vm.map(0x10_0000, mapping(0x1000, Rights { write: false, atomic: false, execute: true })));
        assert_eq!(vm.read_u32(0x10_0000), Ok(0));
        let refused = VmFault { va: 0x10_0004, access: Access::Write, mapped: true };
        assert_eq!(vm.write_u32(0x10_0004, 1), Err(refused));
        assert_eq!(refused.to_string(), "Write of 0x100004: the mapping does not allow it");
        assert!(vm.translate(0x10_0000, Access::Fetch).is_ok());
        let unmapped = VmFault { va: 0x10_1000, access: Access::Read, mapped: false };
        assert_eq!(vm.read_u32(0x10_1000), Err(unmapped));
    }

    #[test]
    fn overlaps_are_refused_and_neighbours_are_not() {
        let vm = Vm::default();
        assert!(vm.map(0x10_0000, mapping(0x2000, RW)));
        assert!(!vm.map(0x10_1000, mapping(0x1000, RW)));
        assert!(!vm.map(0xf_f000, mapping(0x2000, RW)));
        assert!(vm.map(0x10_2000, mapping(0x1000, RW)));
        assert_eq!(vm.extent(0x10_1fff), Some((0x10_0000, 0x2000)));
    }

    #[test]
    fn copies_go_over_the_border_of_two_mappings() {
        let vm = Vm::default();
        assert!(vm.map(0x10_0000, mapping(0x1000, RW)) && vm.map(0x10_1000, mapping(0x1000, RW)));
        vm.write_bytes(0x10_0ffe, &[1, 2, 3, 4]).unwrap();
        vm.copy(0x10_0100, 0x10_0ffe, 4).unwrap();
        assert_eq!(vm.read_u32(0x10_0100), Ok(0x0403_0201));
        assert!(vm.copy(0x10_1ffe, 0x10_0000, 4).is_err());
    }

    #[test]
    fn clearing_a_part_leaves_the_rest_where_it_was() {
        let vm = Vm::default();
        assert!(vm.map(0x10_0000, mapping(0x4000, RW)));
        vm.write_u32(0x10_3000, 7).unwrap();
        vm.clear(0x10_1000, 0x1000);
        assert!(vm.read_u32(0x10_0ffc).is_ok() && vm.read_u32(0x10_1000).is_err());
        assert_eq!(vm.read_u32(0x10_3000), Ok(7));
        assert!(!vm.is_used(0x10_1000, 0x1000) && vm.is_used(0x10_1000, 0x1001));
        assert!(vm.map(0x10_1000, mapping(0x1000, RW)));
        vm.clear(0xf_0000, 0x20_0000);
        assert!(!vm.is_used(0, u64::MAX));
    }

    #[test]
    fn atomics_need_their_own_right() {
        let vm = Vm::default();
        assert!(vm.map(0x10_0000, mapping(0x1000, Rights { write: true, atomic: false, execute: false })));
        assert_eq!(vm.write_u32(0x10_0000, 1), Ok(()));
        let refused = VmFault { va: 0x10_0000, access: Access::Atomic, mapped: true };
        assert_eq!(vm.update_u32(0x10_0000, |n| n + 1), Err(refused));
    }

    #[test]
    fn a_pinned_mapping_stays() {
        let vm = Vm::default();
        vm.map(0x10_0000, mapping(0x1000, RW));
        vm.pin(&[0x10_0000], true);
        assert_eq!(vm.unmap(0x10_0000, 1), Err(UnmapError::InUse));
        vm.pin(&[0x10_0000], false);
        let epoch = vm.epoch();
        assert_eq!(vm.unmap(0x10_0000, 1), Ok(()));
        assert!(vm.epoch() > epoch);
        assert_eq!(vm.unmap(0x10_0000, 1), Err(UnmapError::NotMapped));
    }
}

//! The part of this process's address space that one port has mapped: it maps and unmaps there and nowhere else.
//!
//! Layer: the Linux port and the software drivers have one each; it makes `mmap` at a fixed address safe
//! to offer. Source: mmap(2), munmap(2), mremap(2), memfd_create(2) of Linux.

use super::{CpuPtr, DeviceView, Errno, MapFlags, MapRequest, Prot, page_bytes};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// Memory that can be mapped many times: what a software driver uses for a device's buffer.
#[derive(Debug)]
pub struct SharedMemory {
    file: OwnedFd,
    len_bytes: u64,
}

impl SharedMemory {
    /// Zeroed memory of a page multiple that holds `len_bytes`; pages are allocated at the first access.
    ///
    /// # Errors
    /// `ENOMEM`, `EMFILE`, `EINVAL`.
    pub fn new(len_bytes: u64) -> Result<Self, Errno> {
        let len_bytes = len_bytes.max(1).checked_next_multiple_of(page_bytes()).ok_or(Errno::ENOMEM)?;
        // SAFETY: the name is a C string; the call has no other precondition.
        let fd = unsafe { libc::memfd_create(c"doorbell".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(Errno::last());
        }
        // SAFETY: a file descriptor that the kernel has just returned, owned by no other value.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        let len = libc::off_t::try_from(len_bytes).map_err(|_| Errno::EFBIG)?;
        // SAFETY: the descriptor is open; ftruncate takes any length.
        if unsafe { libc::ftruncate(file.as_raw_fd(), len) } != 0 {
            return Err(Errno::last());
        }
        Ok(Self { file, len_bytes })
    }

    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    /// Maps all of it somewhere, for the driver's own use; the view keeps the mapping.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn map(&self) -> Result<DeviceView, Errno> {
        self.map_part(0, self.len_bytes)
    }

    /// As [`SharedMemory::map`], of whole pages in it.
    fn map_part(&self, offset: u64, len_bytes: u64) -> Result<DeviceView, Errno> {
        let request = MapRequest { flags: MapFlags::SHARED, ..MapRequest::anonymous_shared(len_bytes) };
        Owned::view(map_raw(&request, self.file.as_raw_fd(), offset)?, len_bytes)
    }
}

/// A second mapping of whole pages that are mapped shared at `addr`: one anonymous shared mapping, or one of a file.
fn alias_shared(addr: CpuPtr, len_bytes: u64) -> Result<DeviceView, Errno> {
    // One file's pages in order from `addr` on: a range over two mappings would alias the first one's pages beyond its
    // end.
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(|e| Errno::of(&e))?;
    let is_whole = |line: &str| shared_range(line).is_some_and(|(a, b)| a <= addr.0 && addr.0 + len_bytes <= b);
    if addr.0.checked_add(len_bytes).is_none() || !maps.lines().any(is_whole) {
        return Err(Errno::EFAULT);
    }
    let len = usize::try_from(len_bytes).map_err(|_| Errno::EINVAL)?;
    // SAFETY: with an old size of 0 mremap leaves the old mapping as it is and makes a new one of the same pages at a
    // free address; it fails for a range that is not mapped shared. The new mapping is owned by the view made below.
    let at = unsafe { libc::mremap(addr.as_ptr::<libc::c_void>(), 0, len, libc::MREMAP_MAYMOVE) };
    if at == libc::MAP_FAILED {
        return Err(Errno::last());
    }
    Owned::view(CpuPtr(at.expose_provenance() as u64), len_bytes)
}

/// Start and end of a line of /proc/self/maps that is shared, readable and writable.
fn shared_range(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split(' ');
    let (a, b) = words.next()?.split_once('-')?;
    let rights = words.next()?;
    if !rights.starts_with("rw") || !rights.ends_with('s') {
        return None;
    }
    Some((u64::from_str_radix(a, 16).ok()?, u64::from_str_radix(b, 16).ok()?))
}

/// A mapping that is in no [`AddressSpace`].
struct Owned {
    base: CpuPtr,
    len_bytes: u64,
}

impl Owned {
    fn view(base: CpuPtr, len_bytes: u64) -> Result<DeviceView, Errno> {
        let owner = Arc::new(Self { base, len_bytes });
        // SAFETY: the caller has just mapped the range readable and writable; only the owner unmaps it.
        Ok(unsafe { DeviceView::from_raw(base, len_bytes, owner) })
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let _stays_mapped = unmap_raw(self.base, self.len_bytes);
    }
}

fn map_raw(request: &MapRequest, fd: i32, offset: u64) -> Result<CpuPtr, Errno> {
    let len = usize::try_from(request.len_bytes).map_err(|_| Errno::ENOMEM)?;
    // The kernel reads the offset as unsigned; drivers use its top bits.
    let offset = offset.cast_signed();
    let mut prot = libc::PROT_NONE;
    for (ours, theirs) in
        [(Prot::READ, libc::PROT_READ), (Prot::WRITE, libc::PROT_WRITE), (Prot::EXEC, libc::PROT_EXEC)]
    {
        prot |= if request.prot.contains(ours) { theirs } else { 0 };
    }
    let mut flags = 0;
    for (ours, theirs) in [
        (MapFlags::SHARED, libc::MAP_SHARED),
        (MapFlags::PRIVATE, libc::MAP_PRIVATE),
        (MapFlags::ANONYMOUS, libc::MAP_ANONYMOUS),
        (MapFlags::NORESERVE, libc::MAP_NORESERVE),
        (MapFlags::FIXED, libc::MAP_FIXED),
    ] {
        flags |= if request.flags.contains(ours) { theirs } else { 0 };
    }
    let at = request.addr.map_or(std::ptr::null_mut(), CpuPtr::as_ptr::<libc::c_void>);
    // SAFETY: without MAP_FIXED the kernel picks free addresses; with it, `AddressSpace` has just reserved the range or
    // checked that it was mapped by the same space, and by the port's contract no view uses it any more.
    let got = unsafe { libc::mmap(at, len, prot, flags, fd, offset) };
    if got == libc::MAP_FAILED { Err(Errno::last()) } else { Ok(CpuPtr(got.expose_provenance() as u64)) }
}

fn unmap_raw(base: CpuPtr, len_bytes: u64) -> Result<(), Errno> {
    let len = usize::try_from(len_bytes).map_err(|_| Errno::EINVAL)?;
    // SAFETY: the callers own the range: a mapping of `Owned`, or one that `AddressSpace` has in its table.
    if unsafe { libc::munmap(base.as_ptr::<libc::c_void>(), len) } == 0 { Ok(()) } else { Err(Errno::last()) }
}

/// The memory of a mapping.
#[derive(Clone, Copy, Debug)]
pub enum Backing<'a> {
    /// Zeroed memory, or nothing (a reservation).
    Anonymous,
    /// A part of shared memory from this offset on.
    Shared(&'a SharedMemory, u64),
    /// An open file of the kernel, and the offset.
    File(i32, u64),
}

/// A range mapped here, and the memory there where a driver has to know it, from an offset on.
#[derive(Clone, Debug)]
struct Piece {
    len_bytes: u64,
    memory: Option<Arc<SharedMemory>>,
    offset: u64,
}

/// Ranges mapped here, by their start.
#[derive(Debug)]
pub struct AddressSpace {
    ranges: Mutex<BTreeMap<u64, Piece>>,
    page_bytes: u64,
    /// Whether anonymous shared memory is that of a file, which can be mapped a second time.
    keeps_files: bool,
}

impl Default for AddressSpace {
    fn default() -> Self {
        Self::new()
    }
}

impl AddressSpace {
    #[must_use]
    pub fn new() -> Self {
        Self { ranges: Mutex::default(), page_bytes: page_bytes(), keeps_files: false }
    }

    /// The space of a software driver, which can pin what its clients map, on a machine with pages of `page_bytes`: a
    /// power of two, at least the system's.
    #[must_use]
    pub fn of_driver(page_bytes: u64) -> Self {
        Self { page_bytes: page_bytes.max(super::page_bytes()), keeps_files: true, ..Self::new() }
    }

    /// Bytes of a page.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// Maps; `request.fd` and `request.offset` are ignored, `backing` gives the memory.
    ///
    /// # Errors
    /// `EINVAL` for a length of zero, a range outside the shared memory, a fixed address that this space has not
    /// mapped; else the kernel's.
    pub fn map(&self, request: &MapRequest, backing: Backing<'_>) -> Result<CpuPtr, Errno> {
        let page = self.page_bytes;
        let len_bytes = request.len_bytes.checked_next_multiple_of(page).ok_or(Errno::ENOMEM)?;
        let fixed = request.flags.contains(MapFlags::FIXED);
        if len_bytes == 0 || fixed && request.addr.is_none() {
            return Err(Errno::EINVAL);
        }
        let (fd, offset, anonymous) = match backing {
            Backing::Anonymous => (-1, 0, true),
            Backing::Shared(memory, offset) => {
                let end = offset.checked_add(len_bytes).ok_or(Errno::EINVAL)?;
                if !offset.is_multiple_of(page) || end > memory.len_bytes {
                    return Err(Errno::EINVAL);
                }
                (memory.file.as_raw_fd(), offset, false)
            }
            Backing::File(fd, offset) => (fd, offset, false),
        };
        if anonymous != request.flags.contains(MapFlags::ANONYMOUS) {
            return Err(Errno::EINVAL);
        }
        let mut request = MapRequest { len_bytes, ..*request };
        let is_pinnable = request.flags.contains(MapFlags::SHARED) && request.prot.contains(Prot::RW);
        let memory = (self.keeps_files && anonymous && is_pinnable).then(|| SharedMemory::new(len_bytes));
        let memory = memory.transpose()?.map(Arc::new);
        let fd = memory.as_ref().map_or(fd, |memory| memory.file.as_raw_fd());
        if memory.is_some() {
            request.flags.remove(MapFlags::ANONYMOUS);
        }
        let mut ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(addr) = request.addr
            && fixed
            && (!addr.0.is_multiple_of(page) || !covers(&ranges, addr.0, len_bytes))
        {
            return Err(Errno::EINVAL);
        }
        let at = self.place(&request, fd, offset)?;
        if fixed {
            cut(&mut ranges, at.0, len_bytes);
        }
        ranges.insert(at.0, Piece { len_bytes, memory, offset: 0 });
        Ok(at)
    }

    /// Maps at a multiple of a page, which may be larger than the system's.
    fn place(&self, request: &MapRequest, fd: i32, offset: u64) -> Result<CpuPtr, Errno> {
        let at = map_raw(request, fd, offset)?;
        if at.0.is_multiple_of(self.page_bytes) {
            return Ok(at);
        }
        unmap_raw(at, request.len_bytes)?;
        let room_bytes = request.len_bytes.checked_add(self.page_bytes).ok_or(Errno::ENOMEM)?;
        let room = map_raw(&MapRequest::reserve(room_bytes), -1, 0)?;
        let place = CpuPtr(room.0.next_multiple_of(self.page_bytes));
        let at = map_raw(&request.at(place), fd, offset)?;
        let end = at.offset(request.len_bytes);
        for (from, to) in [(room, at), (end, room.offset(room_bytes))] {
            if from.0 < to.0 {
                unmap_raw(from, to.0 - from.0)?;
            }
        }
        Ok(at)
    }

    /// A second mapping of shared memory that is mapped at `addr` in one piece: how a driver pins user memory. It stays
    /// valid when the first is unmapped. What another space has mapped takes `mremap` of the real kernel.
    ///
    /// # Errors
    /// `EFAULT` where nothing is mapped shared, readable and writable in one piece, `EINVAL` for ranges that are not
    /// whole pages.
    pub fn alias(&self, addr: CpuPtr, len_bytes: u64) -> Result<DeviceView, Errno> {
        let page = self.page_bytes;
        if !addr.0.is_multiple_of(page) || len_bytes == 0 || !len_bytes.is_multiple_of(page) {
            return Err(Errno::EINVAL);
        }
        let own = {
            let ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
            ranges.range(..=addr.0).next_back().and_then(|(start, piece)| {
                let offset = addr.0 - start;
                let is_inside = offset.checked_add(len_bytes).is_some_and(|end| end <= piece.len_bytes);
                piece.memory.clone().filter(|_| is_inside).map(|memory| (memory, piece.offset + offset))
            })
        };
        match own {
            Some((memory, offset)) => memory.map_part(offset, len_bytes),
            None => alias_shared(addr, len_bytes),
        }
    }

    /// Unmaps a range that is covered by this space's mappings.
    ///
    /// # Errors
    /// `EINVAL` for any other range.
    pub fn unmap(&self, addr: CpuPtr, len_bytes: u64) -> Result<(), Errno> {
        let page = self.page_bytes;
        let len_bytes = len_bytes.checked_next_multiple_of(page).ok_or(Errno::EINVAL)?;
        let mut ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        if len_bytes == 0 || !addr.0.is_multiple_of(page) || !covers(&ranges, addr.0, len_bytes) {
            return Err(Errno::EINVAL);
        }
        unmap_raw(addr, len_bytes)?;
        cut(&mut ranges, addr.0, len_bytes);
        Ok(())
    }

    /// Whether the whole range is mapped here.
    #[must_use]
    pub fn contains(&self, addr: CpuPtr, len_bytes: u64) -> bool {
        covers(&self.ranges.lock().unwrap_or_else(PoisonError::into_inner), addr.0, len_bytes)
    }

    /// Bytes mapped here, reservations included: zero after a clean tear-down.
    #[must_use]
    pub fn mapped_bytes(&self) -> u64 {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner).values().map(|piece| piece.len_bytes).sum()
    }
}

/// Whether `start..start+len` is covered by the union of the ranges.
fn covers(ranges: &BTreeMap<u64, Piece>, start: u64, len_bytes: u64) -> bool {
    let Some(end) = start.checked_add(len_bytes) else { return false };
    let mut at = start;
    while at < end {
        match ranges.range(..=at).next_back() {
            Some((from, piece)) if from + piece.len_bytes > at => at = from + piece.len_bytes,
            _ => return false,
        }
    }
    true
}

/// Removes a covered range from the table.
fn cut(ranges: &mut BTreeMap<u64, Piece>, start: u64, len_bytes: u64) {
    let end = start + len_bytes;
    let hit = |(from, piece): (&u64, &Piece)| (from + piece.len_bytes > start).then_some(*from);
    let touched: Vec<u64> = ranges.range(..end).filter_map(hit).collect();
    for from in touched {
        let Some(piece) = ranges.remove(&from) else { continue };
        let to = from + piece.len_bytes;
        if from < start {
            ranges.insert(from, Piece { len_bytes: start - from, ..piece.clone() });
        }
        if to > end {
            ranges.insert(end, Piece { len_bytes: to - end, offset: piece.offset + (end - from), ..piece });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reserve(space: &AddressSpace, pages: u64) -> CpuPtr {
        space.map(&MapRequest::reserve(pages * page_bytes()), Backing::Anonymous).unwrap()
    }

    /// A shared mapping at `at`.
    fn fixed(at: CpuPtr, pages: u64) -> MapRequest {
        MapRequest { flags: MapFlags::SHARED, ..MapRequest::anonymous_shared(pages * page_bytes()) }.at(at)
    }

    #[test]
    fn shared_memory_is_seen_at_the_fixed_place_and_by_the_driver() {
        let (space, page) = (AddressSpace::new(), page_bytes());
        let memory = SharedMemory::new(2 * page).unwrap();
        let driver = memory.map().unwrap();
        let at = reserve(&space, 4).offset(page);
        assert_eq!(space.map(&fixed(at, 2), Backing::Shared(&memory, 0)).unwrap(), at);
        driver.write_u64(page + 8, 77).unwrap();
        let mut seen = [0; 8];
        super::super::read_process(at.offset(page + 8), &mut seen).unwrap();
        assert_eq!(u64::from_le_bytes(seen), 77);
    }

    #[test]
    fn fixed_place_outside_the_space_is_refused() {
        let (space, page) = (AddressSpace::new(), page_bytes());
        let memory = SharedMemory::new(page).unwrap();
        let at = reserve(&space, 1);
        let beyond = fixed(at.offset(page), 1);
        assert_eq!(space.map(&beyond, Backing::Shared(&memory, 0)), Err(Errno::EINVAL));
        let here = &raw const page as u64 / page * page;
        assert_eq!(space.map(&fixed(CpuPtr(here), 1), Backing::Shared(&memory, 0)), Err(Errno::EINVAL));
    }

    #[test]
    fn range_beyond_the_shared_memory_is_refused() {
        let (space, page) = (AddressSpace::new(), page_bytes());
        let memory = SharedMemory::new(page).unwrap();
        let at = reserve(&space, 2);
        assert_eq!(space.map(&fixed(at, 2), Backing::Shared(&memory, 0)), Err(Errno::EINVAL));
        assert_eq!(space.map(&fixed(at, 1), Backing::Shared(&memory, page)), Err(Errno::EINVAL));
    }

    #[test]
    fn unmapping_a_part_leaves_the_rest_and_foreign_ranges_are_refused() {
        let (space, page) = (AddressSpace::new(), page_bytes());
        let at = reserve(&space, 4);
        space.unmap(at.offset(page), page).unwrap();
        assert!(
            space.contains(at, page) && !space.contains(at, 2 * page) && space.contains(at.offset(2 * page), 2 * page)
        );
        assert_eq!(space.unmap(at, 4 * page), Err(Errno::EINVAL));
        space.unmap(at, page).unwrap();
        space.unmap(at.offset(2 * page), 2 * page).unwrap();
        assert_eq!(space.mapped_bytes(), 0);
    }

    #[test]
    fn alias_of_shared_pages_survives_the_first_mapping() {
        let (space, page) = (AddressSpace::new(), page_bytes());
        let at = space.map(&MapRequest::anonymous_shared(page), Backing::Anonymous).unwrap();
        super::super::write_process(at, &[9; 16]).unwrap();
        let alias = space.alias(at, page).unwrap();
        assert_ne!(alias.base(), at);
        space.unmap(at, page).unwrap();
        assert_eq!(alias.read_u32(12), Ok(0x0909_0909));
    }

    #[test]
    fn a_driver_pins_a_part_of_what_its_client_has_mapped() {
        let (space, page) = (AddressSpace::of_driver(page_bytes()), page_bytes());
        let at = reserve(&space, 6);
        space.map(&MapRequest::anonymous_shared(4 * page).at(at.offset(page)), Backing::Anonymous).unwrap();
        // What is left of the mapping begins within its memory.
        space.unmap(at.offset(page), page).unwrap();
        super::super::write_process(at.offset(3 * page), &[7; 16]).unwrap();
        let alias = space.alias(at.offset(3 * page), 2 * page).unwrap();
        assert_eq!(alias.read_u32(12), Ok(0x0707_0707));
        alias.write_u32(page, 5).unwrap();
        let mut seen = [0; 4];
        super::super::read_process(at.offset(4 * page), &mut seen).unwrap();
        assert_eq!(u32::from_le_bytes(seen), 5);
        assert_eq!(space.alias(at.offset(4 * page), 2 * page).unwrap_err(), Errno::EFAULT);
        assert_eq!(space.alias(at.offset(page), page).unwrap_err(), Errno::EFAULT);
        space.unmap(at.offset(2 * page), 4 * page).unwrap();
        space.unmap(at, page).unwrap();
        assert_eq!(space.mapped_bytes(), 0);
    }

    #[test]
    fn a_space_of_large_pages_takes_and_gives_whole_ones() {
        for large in [16 << 10, 64 << 10].map(|n: u64| n.max(page_bytes())) {
            let space = AddressSpace::of_driver(large);
            let memory = SharedMemory::new(2 * large).unwrap();
            let all = MapRequest { flags: MapFlags::SHARED, ..MapRequest::anonymous_shared(2 * large) };
            let places: Vec<CpuPtr> = (0..20)
                .map(|n| match n % 3 {
                    0 => space.map(&MapRequest::reserve(large + 1), Backing::Anonymous).unwrap(),
                    1 => space.map(&MapRequest::anonymous_shared(page_bytes()), Backing::Anonymous).unwrap(),
                    _ => space.map(&all, Backing::Shared(&memory, 0)).unwrap(),
                })
                .collect();
            assert!(places.iter().all(|at| at.0.is_multiple_of(large)));
            if large > page_bytes() {
                let half = large / 2;
                assert_eq!(space.unmap(places[0].offset(half), half), Err(Errno::EINVAL));
                assert_eq!(space.alias(places[1].offset(half), half).unwrap_err(), Errno::EINVAL);
                assert_eq!(space.map(&all, Backing::Shared(&memory, half)), Err(Errno::EINVAL));
            }
            for (n, at) in places.iter().enumerate() {
                space.unmap(*at, if n % 3 == 1 { large } else { 2 * large }).unwrap();
            }
            assert_eq!(space.mapped_bytes(), 0);
        }
    }

    #[test]
    fn alias_of_private_or_unmapped_memory_is_refused() {
        let (space, page) = (AddressSpace::new(), page_bytes());
        let at = reserve(&space, 1);
        assert_eq!(space.alias(at, page).unwrap_err(), Errno::EFAULT);
        space.unmap(at, page).unwrap();
        assert_eq!(space.alias(at, page).unwrap_err(), Errno::EFAULT);
        assert_eq!(space.alias(at.offset(1), page).unwrap_err(), Errno::EINVAL);
    }

    #[test]
    fn alias_beyond_the_end_of_its_mapping_is_refused() {
        let (space, page) = (AddressSpace::new(), page_bytes());
        let at = reserve(&space, 2);
        space.map(&MapRequest::anonymous_shared(page).at(at), Backing::Anonymous).unwrap();
        space.map(&MapRequest::anonymous_shared(page).at(at.offset(page)), Backing::Anonymous).unwrap();
        assert_eq!(space.alias(at, 2 * page).unwrap_err(), Errno::EFAULT);
        assert_eq!(space.alias(at, page).unwrap().len_bytes(), page);
    }
}

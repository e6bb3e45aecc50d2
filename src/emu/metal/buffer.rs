//! Buffers: pages of the host that kernels and the host share.

use crate::encode::Sel;
use crate::machine::{FaultKind, Machine};
use crate::object::{self, Body, Class, Id};
use crate::send::Methods;
use doorbell_emu_msl::{Memory, Width};
use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// A page of Apple's chips.
const PAGE_BYTES: usize = 16 << 10;
/// What new memory holds: nothing is promised, and zeros would hide that a program relies on them.
const FRESH: u8 = 0xaa;

/// A buffer.
pub(crate) struct Buffer {
    at: NonNull<u8>,
    /// `None`: the memory is the program's.
    layout: Option<Layout>,
    len_bytes: u64,
    /// The framework orders command buffers that use it.
    pub is_tracked: bool,
    /// The host has no address of it.
    pub is_private: bool,
    /// The GPU whose buffer it is.
    pub gpu: u32,
}

/// How a buffer is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub is_tracked: bool,
    pub is_private: bool,
}

impl Options {
    /// `MTLResourceOptions`: cache mode in the low four bits, storage mode in the next, hazard tracking in those after.
    /// `None` for what is not modelled: managed and memoryless storage.
    pub(crate) fn of(bits: u64) -> Option<Self> {
        let (storage, tracking) = ((bits >> 4) & 15, (bits >> 8) & 3);
        let is_private = match storage {
            0 => false,
            2 => true,
            _ => return None,
        };
        Some(Self { is_tracked: tracking != 1, is_private })
    }
}

// SAFETY: the memory belongs to the buffer until it is dropped, or the program keeps it for as long; all accesses of
// this file are atomic or, for copies between buffers, ordered by the queue as on a GPU.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Body for Buffer {
    const CLASS: Class = Class::MTLBuffer;

    fn end(&self, machine: &Machine) {
        if self.layout.is_some() {
            machine.allocated.fetch_sub(self.len_bytes, Ordering::Relaxed);
        }
    }
}

impl Buffer {
    /// A new buffer; `None` without memory for it.
    pub(crate) fn new(len_bytes: u64, options: Options, gpu: u32) -> Option<Self> {
        let Options { is_tracked, is_private } = options;
        let bytes = usize::try_from(len_bytes).ok().filter(|n| *n > 0)?;
        let layout = Layout::from_size_align(bytes.next_multiple_of(8), PAGE_BYTES).ok()?;
        // SAFETY: the layout is not empty.
        let at = NonNull::new(unsafe { std::alloc::alloc(layout) })?;
        // SAFETY: the bytes were just allocated.
        unsafe { at.as_ptr().write_bytes(FRESH, layout.size()) };
        Some(Self { at, layout: Some(layout), len_bytes, is_tracked, is_private, gpu })
    }

    /// Memory of the program; `None` for what is not whole pages.
    pub(crate) fn in_place(at: *mut u8, len_bytes: u64, options: Options, gpu: u32) -> Option<Self> {
        let Options { is_tracked, is_private } = options;
        let page = PAGE_BYTES as u64;
        let is_whole = at.addr().is_multiple_of(PAGE_BYTES) && len_bytes > 0 && len_bytes.is_multiple_of(page);
        Some(Self { at: NonNull::new(at).filter(|_| is_whole)?, layout: None, len_bytes, is_tracked, is_private, gpu })
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.at.as_ptr()
    }

    pub(crate) fn contains(&self, offset: u64, len_bytes: u64) -> bool {
        offset.checked_add(len_bytes).is_some_and(|end| end <= self.len_bytes)
    }

    /// Copies between buffers; the caller has checked both ranges.
    pub(crate) fn copy_from(&self, offset: u64, from: &Buffer, from_offset: u64, len_bytes: u64) {
        if !self.contains(offset, len_bytes) || !from.contains(from_offset, len_bytes) {
            return;
        }
        // SAFETY: both ranges are inside, and `copy` allows that they overlap.
        unsafe {
            std::ptr::copy(from.base().add(from_offset as usize), self.base().add(offset as usize), len_bytes as usize);
        }
    }

    pub(crate) fn fill(&self, offset: u64, len_bytes: u64, value: u8) {
        if self.contains(offset, len_bytes) {
            // SAFETY: the range is inside.
            unsafe { self.base().add(offset as usize).write_bytes(value, len_bytes as usize) };
        }
    }

    /// Where an aligned access goes, if it is inside.
    #[inline]
    fn place(&self, offset: u64, bytes: u64) -> Option<*mut u8> {
        let inside = offset.is_multiple_of(bytes) && self.contains(offset, bytes);
        // SAFETY: the address is inside.
        inside.then(|| unsafe { self.base().add(offset as usize) })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(layout) = self.layout {
            // SAFETY: allocated with this layout; nobody has a view any more, as views keep the object alive.
            unsafe { std::alloc::dealloc(self.at.as_ptr(), layout) };
        }
    }
}

impl Memory for Buffer {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    #[inline]
    fn read(&self, offset: u64, width: Width) -> u32 {
        let Some(at) = self.place(offset, width.bytes()) else { return 0 };
        // SAFETY: `place` checked range and alignment; the buffer owns the memory.
        unsafe {
            match width {
                Width::Byte => AtomicU8::from_ptr(at).load(Ordering::Relaxed).into(),
                Width::Short => AtomicU16::from_ptr(at.cast()).load(Ordering::Relaxed).into(),
                Width::Word => AtomicU32::from_ptr(at.cast()).load(Ordering::Relaxed),
            }
        }
    }

    #[inline]
    fn write(&self, offset: u64, width: Width, value: u32) {
        let Some(at) = self.place(offset, width.bytes()) else { return };
        // SAFETY: as for `read`.
        unsafe {
            match width {
                Width::Byte => AtomicU8::from_ptr(at).store(value as u8, Ordering::Relaxed),
                Width::Short => AtomicU16::from_ptr(at.cast()).store(value as u16, Ordering::Relaxed),
                Width::Word => AtomicU32::from_ptr(at.cast()).store(value, Ordering::Relaxed),
            }
        }
    }

    fn update_u32(&self, offset: u64, f: &mut dyn FnMut(u32) -> u32) -> u32 {
        let Some(at) = self.place(offset, 4) else { return 0 };
        // SAFETY: as for `read`.
        let word = unsafe { AtomicU32::from_ptr(at.cast()) };
        word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| Some(f(old))).unwrap_or_else(|old| old)
    }

    fn update_u64(&self, offset: u64, f: &mut dyn FnMut(u64) -> u64) -> u64 {
        let Some(at) = self.place(offset, 8) else { return 0 };
        // SAFETY: as for `read`.
        let word = unsafe { AtomicU64::from_ptr(at.cast()) };
        word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| Some(f(old))).unwrap_or_else(|old| old)
    }
}

pub(crate) fn methods(all: &mut Methods) {
    all.on(Class::MTLBuffer, "contents", contents as extern "C" fn(_, _) -> _);
    all.on(Class::MTLBuffer, "length", length as extern "C" fn(_, _) -> _);
}

/// NULL for private storage, and a mistake to ask for: what follows is an access at a null pointer.
extern "C" fn contents(this: Id, _: Sel) -> *mut u8 {
    let Some(buffer) = object::get::<Buffer>(this) else { return std::ptr::null_mut() };
    if buffer.is_private {
        buffer.machine().fault(FaultKind::Private, "contents of a buffer of private storage");
        return std::ptr::null_mut();
    }
    buffer.base()
}

extern "C" fn length(this: Id, _: Sel) -> u64 {
    object::get::<Buffer>(this).map_or(0, |b| b.len_bytes)
}

//! Memory of our own. The program may be in the middle of libc's malloc (or of one of its own) when one of its signal
//! handlers makes a call that is traced: our code must not call malloc then. Used only inside
//! [`own::work`](crate::own::work), where no handler runs, and at the start.
//!
//! Source: mmap(2). Sizes are powers of two from 16 bytes on; freed pieces are used again for the same size. From 64
//! KiB on each has a mapping.

use crate::own::Lock;
use std::alloc::{GlobalAlloc, Layout};
use std::ptr::null_mut;

/// Pieces from here on are mapped one by one.
const LARGE_BYTES: usize = 64 << 10;
/// What is mapped for smaller ones at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// Sizes from 16 bytes to half of `LARGE_BYTES`.
const SIZES: usize = 12;
const PAGE_BYTES: usize = 4096;

/// Addresses: the first free piece of each size (each holds the next one's), and what is left of the newest chunk.
pub struct Pieces {
    free: [usize; SIZES],
    next: usize,
    left: usize,
}

/// Held over forks, like the recorder's lock.
pub static PIECES: Lock<Pieces> = Lock::new(Pieces { free: [0; SIZES], next: 0, left: 0 });

struct Arena;

#[global_allocator]
static ARENA: Arena = Arena;

/// The power of two that holds a piece, at its alignment.
fn size_of_piece(layout: Layout) -> usize {
    layout.size().max(layout.align()).max(16).next_power_of_two()
}

fn index(size: usize) -> usize {
    size.trailing_zeros() as usize - 4
}

/// Fresh zeroed pages, by a bare system call: libc's mmap is ours, and its malloc the program's. 0 when there are none.
fn pages(len: usize) -> usize {
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new private mapping anywhere touches nothing that exists.
    let at = unsafe { libc::syscall(libc::SYS_mmap, 0, len, prot, flags, -1, 0) };
    usize::try_from(at).unwrap_or(0)
}

impl Pieces {
    fn take(&mut self, size: usize) -> usize {
        let first = self.free[index(size)];
        if first != 0 {
            // SAFETY: a free piece of ours, of at least 16 bytes, that holds the next one's address.
            self.free[index(size)] = unsafe { std::ptr::with_exposed_provenance::<usize>(first).read() };
            return first;
        }
        // Pieces lie at multiples of their size up to a page's.
        let skip = self.next.next_multiple_of(size.min(PAGE_BYTES)) - self.next;
        if self.left < skip + size {
            let chunk = pages(CHUNK_BYTES);
            if chunk == 0 {
                return 0;
            }
            (self.next, self.left) = (chunk + size, CHUNK_BYTES - size);
            return chunk;
        }
        let at = self.next + skip;
        (self.next, self.left) = (at + size, self.left - skip - size);
        at
    }

    fn give(&mut self, at: usize, size: usize) {
        // SAFETY: a piece that its owner has just given up, of at least 16 bytes and aligned to 16.
        unsafe { std::ptr::with_exposed_provenance_mut::<usize>(at).write(self.free[index(size)]) };
        self.free[index(size)] = at;
    }
}

// SAFETY: each piece is given to one owner until it comes back, has its size and is aligned to it up to a page; larger
// alignments get nothing.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let size = size_of_piece(layout);
        if layout.align() > PAGE_BYTES {
            return null_mut();
        }
        let at = if size >= LARGE_BYTES { pages(size) } else { PIECES.with(|pieces| pieces.take(size)) };
        std::ptr::with_exposed_provenance_mut(at)
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        let (size, at) = (size_of_piece(layout), at.expose_provenance());
        if size >= LARGE_BYTES {
            // SAFETY: exactly the mapping that `alloc` has made for this piece.
            unsafe { libc::syscall(libc::SYS_munmap, at, size) };
        } else {
            PIECES.with(|pieces| pieces.give(at, size));
        }
    }
}

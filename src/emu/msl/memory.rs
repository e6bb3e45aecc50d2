//! Memory that kernels work on: the host's own, or what a device shares.

use std::sync::atomic::{AtomicU32, Ordering};

/// How many bytes an access has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 1 byte.
    Byte,
    /// 2 bytes.
    Short,
    /// 4 bytes.
    Word,
}

impl Width {
    /// 1, 2 or 4.
    #[must_use]
    pub fn bytes(self) -> u64 {
        match self {
            Self::Byte => 1,
            Self::Short => 2,
            Self::Word => 4,
        }
    }
}

/// Memory that other threads may use at the same time, so never a slice. Offsets are in bytes, multiples of the width,
/// and inside: a kernel's accesses are checked before. An implementation answers what is outside with zeros rather
/// than panic.
pub trait Memory: Sync {
    /// Its size in bytes.
    fn len_bytes(&self) -> u64;

    /// The value at an offset, extended with zeros.
    fn read(&self, offset: u64, width: Width) -> u32;

    /// Stores the low bytes of a value; other bytes are not touched, not even for a moment.
    fn write(&self, offset: u64, width: Width, value: u32);

    /// Replaces an aligned word by `f` of it, atomically; returns the old one. `f` may be called more than once.
    fn update_u32(&self, offset: u64, f: &mut dyn FnMut(u32) -> u32) -> u32;

    /// As `update_u32`, for an aligned word of 64 bits.
    fn update_u64(&self, offset: u64, f: &mut dyn FnMut(u64) -> u64) -> u64;

    /// Reads for each lane whose bit is set; other lanes of `out` keep their values.
    fn gather(&self, lanes: u32, offsets: &[u64; 32], width: Width, out: &mut [u32; 32]) {
        for lane in ones(lanes) {
            out[lane] = self.read(offsets[lane], width);
        }
    }

    /// Writes for each lane whose bit is set, lower lanes first.
    fn scatter(&self, lanes: u32, offsets: &[u64; 32], width: Width, values: &[u32; 32]) {
        for lane in ones(lanes) {
            self.write(offsets[lane], width, values[lane]);
        }
    }
}

/// Numbers of the bits that are set.
#[inline]
pub(crate) fn ones(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros() as usize;
        (mask != 0).then(|| {
            mask &= mask - 1;
            bit
        })
    })
}

/// Memory of the host for kernels: bytes in words that threads may share.
pub struct Buffer {
    words: Box<[AtomicU32]>,
    len_bytes: u64,
}

impl Buffer {
    /// A copy of bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        let word = |part: &[u8]| {
            let mut raw = [0; 4];
            raw[..part.len()].copy_from_slice(part);
            AtomicU32::new(u32::from_le_bytes(raw))
        };
        Self { words: bytes.chunks(4).map(word).collect(), len_bytes: bytes.len() as u64 }
    }

    /// Zeros.
    #[must_use]
    pub fn zeroed(len_bytes: usize) -> Self {
        Self { words: (0..len_bytes.div_ceil(4)).map(|_| AtomicU32::new(0)).collect(), len_bytes: len_bytes as u64 }
    }

    /// Numbers of 32 bits.
    #[must_use]
    pub fn of_f32(values: &[f32]) -> Self {
        Self::new(&values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>())
    }

    /// Numbers of 32 bits.
    #[must_use]
    pub fn of_u32(values: &[u32]) -> Self {
        Self::new(&values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>())
    }

    /// What is in it now.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.words.iter().flat_map(|w| w.load(Ordering::Relaxed).to_le_bytes()).collect();
        bytes.truncate(self.len_bytes as usize);
        bytes
    }

    /// What is in it now, as numbers of 32 bits.
    #[must_use]
    pub fn to_f32(&self) -> Vec<f32> {
        self.words.iter().map(|w| f32::from_bits(w.load(Ordering::Relaxed))).collect()
    }

    /// What is in it now, as numbers of 32 bits.
    #[must_use]
    pub fn to_u32(&self) -> Vec<u32> {
        self.words.iter().map(|w| w.load(Ordering::Relaxed)).collect()
    }
}

impl Words for Buffer {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    #[inline]
    fn word(&self, index: u64) -> Option<&AtomicU32> {
        self.words.get(index as usize)
    }
}

/// Memory as words that threads share: all that a `Memory` needs.
pub trait Words: Sync {
    /// Its size in bytes.
    fn len_bytes(&self) -> u64;

    /// The word of a number; the last one may be partly outside.
    fn word(&self, index: u64) -> Option<&AtomicU32>;
}

impl<T: Words> Memory for T {
    fn len_bytes(&self) -> u64 {
        Words::len_bytes(self)
    }

    #[inline]
    fn read(&self, offset: u64, width: Width) -> u32 {
        let word = self.word(offset >> 2).map_or(0, |w| w.load(Ordering::Relaxed)) >> (8 * (offset & 3));
        match width {
            Width::Byte => word & 0xff,
            Width::Short => word & 0xffff,
            Width::Word => word,
        }
    }

    #[inline]
    fn write(&self, offset: u64, width: Width, value: u32) {
        let Some(word) = self.word(offset >> 2) else { return };
        let mask = match width {
            Width::Byte => 0xff,
            Width::Short => 0xffff,
            Width::Word => {
                word.store(value, Ordering::Relaxed);
                return;
            }
        };
        let by = 8 * (offset & 3) as u32;
        let put = |old: u32| Some((old & !(mask << by)) | ((value & mask) << by));
        // ORDER: bytes of one word may be written by several threads; each replaces only its own.
        let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, put);
    }

    fn update_u32(&self, offset: u64, f: &mut dyn FnMut(u32) -> u32) -> u32 {
        let Some(word) = self.word(offset >> 2) else { return 0 };
        let old = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| Some(f(old)));
        old.unwrap_or_else(|old| old)
    }

    fn update_u64(&self, offset: u64, f: &mut dyn FnMut(u64) -> u64) -> u64 {
        // Two words that no single instruction covers: kernels' 64-bit atomics take turns.
        static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let old = u64::from(self.read(offset, Width::Word)) | u64::from(self.read(offset + 4, Width::Word)) << 32;
        let new = f(old);
        self.write(offset, Width::Word, new as u32);
        self.write(offset + 4, Width::Word, (new >> 32) as u32);
        old
    }

    fn gather(&self, lanes: u32, offsets: &[u64; 32], width: Width, out: &mut [u32; 32]) {
        if width == Width::Word && lanes == u32::MAX {
            for (out, offset) in out.iter_mut().zip(offsets) {
                *out = self.word(*offset >> 2).map_or(0, |w| w.load(Ordering::Relaxed));
            }
            return;
        }
        for lane in ones(lanes) {
            out[lane] = self.read(offsets[lane], width);
        }
    }
}

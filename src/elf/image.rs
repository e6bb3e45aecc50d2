//! The linked program: bytes for consecutive page-aligned segments, and the fields that need the base address.
//!
//! Distances inside the image are already in the bytes. What remains per load is a list of fixups: absolute addresses
//! of the image's own positions (jump tables, GOT slots) and addresses that only the loader's resolver knows.

use std::collections::BTreeMap;
use std::ops::Range;

use super::error::ElfError;
use super::num::{index, wide};

/// The smallest pages of the supported hosts (AArch64 also has pages of 16 and 64 KiB).
pub const PAGE_BYTES: u64 = 4096;
/// Largest image: any two offsets in it must be within a signed 32-bit distance, with room to spare.
pub(crate) const MAX_IMAGE_BYTES: u64 = 1 << 30;

/// What a segment's memory may be used for once it is filled; never write and execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Perm {
    /// Code: read and execute.
    Rx,
    /// Constants and the GOT: read.
    R,
    /// Data: read and write.
    Rw,
}

/// Consecutive pages of the image with one permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Bytes from the image's start; both ends are multiples of the image's pages, and the segments tile the image.
    pub range: Range<usize>,
    /// The rights that the loader gives these pages.
    pub perm: Perm,
}

/// What a fixup points at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    /// An offset in the image.
    Image(u64),
    /// A fixed address.
    Absolute(u64),
    /// An index into the image's external names.
    External(usize),
}

/// The shape of the field that a fixup fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// 64 bits; sums wrap.
    Word64,
    /// 32 bits that are zero-extended.
    Unsigned32,
    /// 32 bits that are sign-extended.
    Signed32,
}

/// A field that waits for the base address or the resolver: anchor + addend (- its own address if `pc_relative`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fixup {
    pub at: u64,
    pub field: Field,
    pub pc_relative: bool,
    pub anchor: Anchor,
    pub addend: i64,
    /// Vendor name of the relocation, for messages.
    pub kind: &'static str,
}

/// A name that the resolver has to know; a weak one may stay unresolved and is then 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct External {
    pub name: String,
    pub weak: bool,
}

/// A linked program that can be placed at any page-aligned address (or below 2 GiB, see [`Image::needs_low_2gib`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The image without its tail of zeros.
    pub(super) bytes: Vec<u8>,
    pub(super) size_bytes: u64,
    /// The pages that segments are made of.
    pub(super) page_bytes: u64,
    pub(super) segments: Vec<Segment>,
    pub(super) fixups: Vec<Fixup>,
    pub(super) externals: Vec<External>,
    /// Global functions and their offsets.
    pub(super) entries: BTreeMap<String, u64>,
}

impl Image {
    /// Bytes of memory that the image needs: whole pages.
    pub fn size(&self) -> usize {
        index(self.size_bytes)
    }

    /// The base address must be a multiple of this many bytes.
    pub fn align(&self) -> usize {
        index(self.page_bytes)
    }

    /// The segments in address order; they tile `0..size()` without gaps.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The offset of the global function `name` from the image's start.
    pub fn entry(&self, name: &str) -> Option<usize> {
        self.entries.get(name).copied().map(index)
    }

    /// All global functions with their offsets, by name.
    pub fn entries(&self) -> impl Iterator<Item = (&str, usize)> {
        self.entries.iter().map(|(name, &offset)| (name.as_str(), index(offset)))
    }

    /// The names that the resolver will be called with.
    pub fn undefined(&self) -> impl Iterator<Item = &str> {
        self.externals.iter().map(|external| external.name.as_str())
    }

    /// Whether the code contains its own addresses in 32-bit fields (`gcc -fno-pie`): then the image must be below 2
    /// GiB.
    pub fn needs_low_2gib(&self) -> bool {
        let narrow = |f: &Fixup| f.field != Field::Word64 && !f.pc_relative && matches!(f.anchor, Anchor::Image(_));
        self.fixups.iter().any(narrow)
    }

    /// The image's memory, `size()` bytes, for execution at `base`. `resolve` returns the address of an undefined
    /// symbol.
    ///
    /// # Errors
    /// A symbol that `resolve` does not know, a value that does not fit its field, a base that is not page-aligned.
    pub fn relocated(&self, base: u64, resolve: &dyn Fn(&str) -> Option<u64>) -> Result<Vec<u8>, ElfError> {
        let mut out = vec![0; self.size()];
        self.relocate_into(&mut out, base, resolve)?;
        Ok(out)
    }

    /// As [`Image::relocated`], into memory that the caller has mapped; `out` must be `size()` bytes.
    ///
    /// # Errors
    /// As [`Image::relocated`], and a buffer of another size.
    pub fn relocate_into(
        &self,
        out: &mut [u8],
        base: u64,
        resolve: &dyn Fn(&str) -> Option<u64>,
    ) -> Result<(), ElfError> {
        let Self { size_bytes, page_bytes: align_bytes, .. } = *self;
        if wide(out.len()) != size_bytes {
            return Err(ElfError::BadBuffer { found_bytes: wide(out.len()), size_bytes });
        }
        if !base.is_multiple_of(align_bytes) || base.checked_add(size_bytes).is_none() {
            return Err(ElfError::BadBase { base, size_bytes, align_bytes });
        }
        let addresses = self.resolve_externals(resolve)?;
        let (head, tail) = out.split_at_mut(self.bytes.len()); // PANIC: `bytes` is never longer than the image
        head.copy_from_slice(&self.bytes);
        tail.fill(0);
        for fixup in &self.fixups {
            let target = match fixup.anchor {
                Anchor::Image(offset) => i128::from(base) + i128::from(offset),
                Anchor::Absolute(address) => i128::from(address),
                Anchor::External(slot) => i128::from(addresses[slot]), // PANIC: made together with the externals
            };
            let origin = if fixup.pc_relative { i128::from(base) + i128::from(fixup.at) } else { 0 };
            let value = target + i128::from(fixup.addend) - origin;
            if !store(out, fixup.at, fixup.field, value) {
                return Err(self.overflow(fixup, value));
            }
        }
        Ok(())
    }

    fn resolve_externals(&self, resolve: &dyn Fn(&str) -> Option<u64>) -> Result<Vec<u64>, ElfError> {
        let find = |external: &External| match resolve(&external.name) {
            Some(address) => Ok(address),
            None if external.weak => Ok(0),
            None => Err(ElfError::Undefined { name: external.name.clone() }),
        };
        self.externals.iter().map(find).collect()
    }

    fn overflow(&self, fixup: &Fixup, value: i128) -> ElfError {
        let symbol = match fixup.anchor {
            Anchor::Image(offset) => format!("image offset {offset:#x}"),
            Anchor::Absolute(address) => format!("address {address:#x}"),
            Anchor::External(slot) => self.externals.get(slot).map_or_else(String::new, |e| e.name.clone()),
        };
        ElfError::Overflow { kind: fixup.kind, symbol, at: fixup.at, value }
    }
}

/// Writes `value` into the field at `at`; false if it does not fit the field or the field does not fit the bytes.
pub(super) fn store(bytes: &mut [u8], at: u64, field: Field, value: i128) -> bool {
    let raw = value.to_le_bytes();
    let (width, fits) = match field {
        Field::Word64 => (8, true),
        Field::Unsigned32 => (4, u32::try_from(value).is_ok()),
        Field::Signed32 => (4, i32::try_from(value).is_ok()),
    };
    let place = index(at).checked_add(width).and_then(|end| bytes.get_mut(index(at)..end));
    match place {
        Some(place) if fits => {
            place.copy_from_slice(&raw[..width]); // PANIC: both are `width` long, at most 8 of 16
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_takes_the_limits_of_a_field_and_refuses_one_beyond() {
        let limits = [
            (Field::Unsigned32, 0, i128::from(u32::MAX)),
            (Field::Signed32, i128::from(i32::MIN), i128::from(i32::MAX)),
        ];
        for (field, smallest, largest) in limits {
            let mut bytes = [0; 4];
            assert!(store(&mut bytes, 0, field, smallest) && store(&mut bytes, 0, field, largest), "{field:?}");
            assert_eq!(bytes, largest.to_le_bytes()[..4]);
            assert!(
                !store(&mut bytes, 0, field, smallest - 1) && !store(&mut bytes, 0, field, largest + 1),
                "{field:?}"
            );
        }
    }

    #[test]
    fn store_wraps_64_bits_and_refuses_a_field_beyond_the_bytes() {
        let mut bytes = [0; 9];
        assert!(store(&mut bytes, 1, Field::Word64, -2));
        assert_eq!(bytes, [0, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        assert!(!store(&mut bytes, 2, Field::Word64, 0));
        assert!(!store(&mut bytes, u64::MAX, Field::Signed32, 0));
    }
}

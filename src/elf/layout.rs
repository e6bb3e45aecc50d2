//! Which sections of a file are loaded, and their offsets in the image.
//!
//! The image is code, constants and data, each a segment of whole pages, in this order: `.text*` and the stubs;
//! `.rodata*` and the GOT; `.data*`, then the zeros (`.bss*` and common symbols), which have no bytes in the image's
//! file part.

use super::abi::*;
use super::error::ElfError;
use super::image::{MAX_IMAGE_BYTES, PAGE_BYTES, Perm, Segment};
use super::num::{align_up, index};
use super::parse::{ElfFile, FileSection, Place};
use super::x86_64::{SHT_X86_64_UNWIND, STUB_BYTES};

/// Bytes of a GOT slot: one address.
pub(super) const SLOT_BYTES: u64 = 8;

/// What a loaded section is, in the order of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Text,
    Rodata,
    Data,
    Bss,
}

/// Offsets from the start of the image.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// By section index; `None` for what is not loaded.
    pub section_at: Vec<Option<u64>>,
    /// By symbol index; `None` for all but common symbols.
    pub common_at: Vec<Option<u64>>,
    pub stubs_at: u64,
    pub got_at: u64,
    /// Where the zeros begin: nothing beyond has bytes in the file.
    pub filled_bytes: u64,
    pub size_bytes: u64,
    pub segments: Vec<Segment>,
}

/// What a section is, or `None` when it is not loaded (debug information, notes, unwinding tables).
///
/// # Errors
/// A section that the program needs in memory and that this loader cannot provide.
pub(super) fn classify(section: &FileSection) -> Result<Option<Class>, ElfError> {
    let Shdr { sh_type, sh_flags, .. } = section.header;
    let has = |flag| sh_flags & flag != 0;
    let refuse = |why| {
        let (name, offset) = (section.name.to_owned(), section.header_offset);
        Err(ElfError::UnsupportedSection { name, offset, why })
    };
    if !has(SHF_ALLOC) || matches!(sh_type, SHT_NULL | SHT_NOTE | SHT_X86_64_UNWIND) || section.name == ".eh_frame" {
        return Ok(None);
    }
    if has(SHF_TLS) {
        return refuse("thread-local storage");
    }
    if has(SHF_COMPRESSED) {
        return refuse("compressed contents");
    }
    match (sh_type, has(SHF_EXECINSTR), has(SHF_WRITE)) {
        (SHT_PROGBITS | SHT_NOBITS, true, true) => refuse("both writable and executable"),
        (SHT_NOBITS, true, false) => refuse("executable without contents"),
        (SHT_PROGBITS, true, false) => Ok(Some(Class::Text)),
        (SHT_PROGBITS, false, false) => Ok(Some(Class::Rodata)),
        (SHT_PROGBITS, false, true) => Ok(Some(Class::Data)),
        (SHT_NOBITS, false, _) => Ok(Some(Class::Bss)),
        _ => refuse("a section type that would need the system's loader (constructors, dynamic linking)"),
    }
}

/// Places every loaded section, `stubs` stubs and `slots` GOT slots.
///
/// # Errors
/// A section that cannot be loaded, a bad alignment, an image beyond [`MAX_IMAGE_BYTES`], nothing to load.
pub(super) fn place(
    file: &ElfFile,
    classes: &[Option<Class>],
    stubs: u64,
    slots: u64,
    page_bytes: u64,
) -> Result<Layout, ElfError> {
    let mut cursor = Cursor { at: 0 };
    let mut layout = Layout { section_at: vec![None; file.sections().len()], ..Layout::default() };
    let mut sections = |cursor: &mut Cursor, class| -> Result<(), ElfError> {
        for ((section, own), at) in file.sections().iter().zip(classes).zip(&mut layout.section_at) {
            if *own == Some(class) {
                let Shdr { sh_size, sh_addralign, .. } = section.header;
                *at = Some(cursor.take(sh_size, sh_addralign, section.header_offset)?);
            }
        }
        Ok(())
    };
    sections(&mut cursor, Class::Text)?;
    layout.stubs_at = cursor.take(stubs.saturating_mul(STUB_BYTES), STUB_BYTES, 0)?;
    let text_end = cursor.next_page(page_bytes)?;
    sections(&mut cursor, Class::Rodata)?;
    layout.got_at = cursor.take(slots.saturating_mul(SLOT_BYTES), SLOT_BYTES, 0)?;
    let rodata_end = cursor.next_page(page_bytes)?;
    sections(&mut cursor, Class::Data)?;
    layout.filled_bytes = cursor.at;
    sections(&mut cursor, Class::Bss)?;
    layout.common_at = place_common(file, &mut cursor)?;
    layout.size_bytes = cursor.next_page(page_bytes)?;
    if layout.size_bytes == 0 {
        return Err(ElfError::NothingToLoad { file_bytes: file.file_bytes() });
    }
    let ends = [(0, text_end, Perm::Rx), (text_end, rodata_end, Perm::R), (rodata_end, layout.size_bytes, Perm::Rw)];
    let used = ends.iter().filter(|(start, end, _)| start < end);
    layout.segments = used.map(|&(start, end, perm)| Segment { range: index(start)..index(end), perm }).collect();
    Ok(layout)
}

fn place_common(file: &ElfFile, cursor: &mut Cursor) -> Result<Vec<Option<u64>>, ElfError> {
    let mut out = vec![None; file.symbols().len()];
    for (symbol, at) in file.symbols().iter().zip(&mut out) {
        if symbol.place == Place::Common {
            *at = Some(cursor.take(symbol.sym.st_size, symbol.sym.st_value, symbol.offset)?);
        }
    }
    Ok(out)
}

/// The first free byte of the image.
struct Cursor {
    at: u64,
}

impl Cursor {
    /// Reserves `len_bytes` at an alignment that is at `offset` in the file (0 and 1: none).
    fn take(&mut self, len_bytes: u64, align_bytes: u64, offset: u64) -> Result<u64, ElfError> {
        let align_bytes = align_bytes.max(1);
        if !align_bytes.is_power_of_two() || align_bytes > PAGE_BYTES {
            return Err(ElfError::BadAlign { offset, align_bytes, max_bytes: PAGE_BYTES });
        }
        let start = align_up(self.at, align_bytes);
        let end = start.and_then(|start| start.checked_add(len_bytes)).unwrap_or(u64::MAX);
        if end > MAX_IMAGE_BYTES {
            return Err(ElfError::ImageTooBig { need_bytes: end, max_bytes: MAX_IMAGE_BYTES });
        }
        self.at = end;
        Ok(end - len_bytes)
    }

    fn next_page(&mut self, page_bytes: u64) -> Result<u64, ElfError> {
        self.at = align_up(self.at, page_bytes).unwrap_or(u64::MAX);
        self.take(0, 1, 0)
    }
}

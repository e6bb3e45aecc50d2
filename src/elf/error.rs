//! Errors of an object, in one line each: the thing, the offset in the file, the limit it broke.

use thiserror::Error;

/// Why an object cannot be written, read, linked or relocated. Offsets are bytes from the start of the ELF file.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ElfError {
    /// A structure or section reaches beyond the end of the file.
    #[error("ELF: {what} at offset {offset:#x} needs {need_bytes} bytes, the file has {file_bytes}")]
    Truncated { what: &'static str, offset: u64, need_bytes: u64, file_bytes: u64 },
    /// A header field has a value that is not the one this loader reads.
    #[error("ELF: {what} at offset {offset:#x} is {found:#x}, not {expected}")]
    BadField { what: &'static str, offset: u64, found: u64, expected: &'static str },
    /// An index points beyond its table.
    #[error("ELF: {what} at offset {offset:#x} is {index}, the table has {count} entries")]
    BadIndex { what: &'static str, offset: u64, index: u64, count: u64 },
    /// A name is outside its string table, lacks its terminator or is not UTF-8.
    #[error("ELF: {what} at offset {offset:#x} is not a terminated UTF-8 string inside its table")]
    BadString { what: &'static str, offset: u64 },
    /// An offset or range reaches outside the section it belongs to.
    #[error("ELF: {what} at offset {offset:#x} reaches to {end:#x}, its section ends at {limit:#x}")]
    OutOfSection { what: &'static str, offset: u64, end: u64, limit: u64 },
    /// Sections share bytes of the file, which ELF forbids; refusing them bounds the work and memory by the file's
    /// size.
    #[error("ELF: sections up to the header at offset {offset:#x} hold {total_bytes} bytes, the file has {file_bytes}")]
    Overlap { offset: u64, total_bytes: u64, file_bytes: u64 },
    /// An alignment is not a power of two, or larger than a page.
    #[error("ELF: alignment {align_bytes} at offset {offset:#x} is not a power of two up to {max_bytes}")]
    BadAlign { offset: u64, align_bytes: u64, max_bytes: u64 },
    /// A section that cannot be left out and is not supported.
    #[error("ELF: section {name} at offset {offset:#x}: {why}")]
    UnsupportedSection { name: String, offset: u64, why: &'static str },
    /// A symbol of a kind that is not supported, or defined in a section that is not loaded.
    #[error("ELF: symbol {name} at offset {offset:#x}: {why}")]
    UnsupportedSymbol { name: String, offset: u64, why: &'static str },
    /// A relocation type that this loader does not apply.
    #[error("ELF: relocation type {kind} against {symbol} at offset {offset:#x} is not supported")]
    UnsupportedRelocation { kind: u32, symbol: String, offset: u64 },
    /// The placed sections would need more address space than one image may have.
    #[error("ELF: the image would need {need_bytes} bytes, the limit is {max_bytes}")]
    ImageTooBig { need_bytes: u64, max_bytes: u64 },
    /// The file has no section to load.
    #[error("ELF: no section to load in a file of {file_bytes} bytes")]
    NothingToLoad { file_bytes: u64 },
    /// The resolver does not know a symbol that the object needs.
    #[error("ELF: undefined symbol {name}")]
    Undefined { name: String },
    /// A relocated value does not fit its field.
    #[error("ELF: {kind} at image offset {at:#x} against {symbol}: value {value:#x} does not fit its field")]
    Overflow { kind: &'static str, symbol: String, at: u64, value: i128 },
    /// The base address is not aligned as the image demands, or the image would wrap around the address space.
    #[error("ELF: base address {base:#x} does not suit an image of {size_bytes} bytes aligned to {align_bytes}")]
    BadBase { base: u64, size_bytes: u64, align_bytes: u64 },
    /// The caller's buffer does not have the image's size.
    #[error("ELF: a buffer of {found_bytes} bytes for an image of {size_bytes}")]
    BadBuffer { found_bytes: u64, size_bytes: u64 },
    /// A record of a GPU's attribute section that cannot be read, or has impossible values.
    #[error("ELF: attribute {id:#04x} at offset {offset:#x}: {why}")]
    BadAttribute { id: u8, offset: u64, why: &'static str },
    /// An `Object` to be written contradicts itself.
    #[error("object: {what} {index}: {why}")]
    BadObject { what: &'static str, index: usize, why: &'static str },
}

/// The text of `Display`: what `?` out of `main` prints.
impl std::fmt::Debug for ElfError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

//! Errors of an object, in one line each: the thing, the offset in the file, the limit it broke.

use thiserror::Error;

/// Why an object cannot be written, read, linked or relocated. Offsets are bytes from the start of the ELF file.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ElfError {
    /// A structure or section reaches beyond the end of the file.
    #[error("ELF: {what} at offset {offset:#x} needs {need_bytes} bytes, the file has {file_bytes}")]
    Truncated {
        /// Name of the structure or section.
        what: &'static str,
        /// Where it begins.
        offset: u64,
        /// Its length.
        need_bytes: u64,
        /// Length of the file.
        file_bytes: u64,
    },
    /// A header field has a value that is not the one this loader reads.
    #[error("ELF: {what} at offset {offset:#x} is {found:#x}, not {expected}")]
    BadField {
        /// The field: its name in the specification, or what it belongs to.
        what: &'static str,
        /// Of the field, or of the header or table entry that has it.
        offset: u64,
        /// Its value in the file; all ones where the file's metadata ends before it.
        found: u64,
        /// What would be read, in words.
        expected: &'static str,
    },
    /// An index points beyond its table.
    #[error("ELF: {what} at offset {offset:#x} is {index}, the table has {count} entries")]
    BadIndex {
        /// Name of the field with the index.
        what: &'static str,
        /// Of that field, or of the header or table entry that has it.
        offset: u64,
        /// Its value in the file.
        index: u64,
        /// Entries of the table: the index must be less.
        count: u64,
    },
    /// A name is outside its string table, lacks its terminator or is not UTF-8.
    #[error("ELF: {what} at offset {offset:#x} is not a terminated UTF-8 string inside its table")]
    BadString {
        /// Name of the field that refers to the string.
        what: &'static str,
        /// Of the header or table entry that has that field.
        offset: u64,
    },
    /// An offset or range reaches outside the section it belongs to.
    #[error("ELF: {what} at offset {offset:#x} reaches to {end:#x}, its section ends at {limit:#x}")]
    OutOfSection {
        /// What reaches outside: a field, a symbol, a kernel or one of its arguments.
        what: &'static str,
        /// Of the table entry that places it; of a segment its place in the image.
        offset: u64,
        /// How far it reaches, from the start of its section, image or argument segment.
        end: u64,
        /// Bytes of that section, image or argument segment.
        limit: u64,
    },
    /// Sections share bytes of the file, which ELF forbids; refusing them bounds the work and memory by the file's
    /// size.
    #[error("ELF: sections up to the header at offset {offset:#x} hold {total_bytes} bytes, the file has {file_bytes}")]
    Overlap {
        /// Of the section header at which the sum becomes too large.
        offset: u64,
        /// Contents of all sections up to that one, together.
        total_bytes: u64,
        /// Length of the file.
        file_bytes: u64,
    },
    /// An alignment is not a power of two, or larger than a page.
    #[error("ELF: alignment {align_bytes} at offset {offset:#x} is not a power of two up to {max_bytes}")]
    BadAlign {
        /// Of the section header or the symbol that demands it.
        offset: u64,
        /// The alignment that it demands.
        align_bytes: u64,
        /// Largest alignment that a loader gives: a page.
        max_bytes: u64,
    },
    /// A section that cannot be left out and is not supported.
    #[error("ELF: section {name} at offset {offset:#x}: {why}")]
    UnsupportedSection {
        /// Its name in the file.
        name: String,
        /// Of its header.
        offset: u64,
        /// What is not supported of it.
        why: &'static str,
    },
    /// A symbol of a kind that is not supported, or defined in a section that is not loaded.
    #[error("ELF: symbol {name} at offset {offset:#x}: {why}")]
    UnsupportedSymbol {
        /// Its name, or its section's if it has none of its own.
        name: String,
        /// Of its entry in the symbol table.
        offset: u64,
        /// What is not supported of it.
        why: &'static str,
    },
    /// A relocation type that this loader does not apply.
    #[error("ELF: relocation type {kind} against {symbol} at offset {offset:#x} is not supported")]
    UnsupportedRelocation {
        /// The machine's number of the type (`r_type`).
        kind: u32,
        /// Name of the symbol; in an AMD code object its place in the image.
        symbol: String,
        /// Of its entry in the relocation table.
        offset: u64,
    },
    /// The placed sections would need more address space than one image may have.
    #[error("ELF: the image would need {need_bytes} bytes, the limit is {max_bytes}")]
    ImageTooBig {
        /// What it would need at least; all ones where that is not known.
        need_bytes: u64,
        /// The limit: 1 GiB.
        max_bytes: u64,
    },
    /// The file has no section to load.
    #[error("ELF: no section to load in a file of {file_bytes} bytes")]
    NothingToLoad {
        /// Length of the file.
        file_bytes: u64,
    },
    /// The resolver does not know a symbol that the object needs.
    #[error("ELF: undefined symbol {name}")]
    Undefined {
        /// Its name, as the resolver was asked for it.
        name: String,
    },
    /// A relocated value does not fit its field.
    #[error("ELF: {kind} at image offset {at:#x} against {symbol}: value {value:#x} does not fit its field")]
    Overflow {
        /// The specification's name of the relocation type.
        kind: &'static str,
        /// Name of the symbol, or its place in the image.
        symbol: String,
        /// Of the field, from the image's start.
        at: u64,
        /// The value, in the field's unit (`R_AMDGPU_REL16`: dwords).
        value: i128,
    },
    /// The base address is not aligned as the image demands, or the image would wrap around the address space.
    #[error("ELF: base address {base:#x} does not suit an image of {size_bytes} bytes aligned to {align_bytes}")]
    BadBase {
        /// Where the image was to be placed, in the address space of its device.
        base: u64,
        /// Bytes of the image.
        size_bytes: u64,
        /// What the address must be a multiple of.
        align_bytes: u64,
    },
    /// The caller's buffer does not have the image's size.
    #[error("ELF: a buffer of {found_bytes} bytes for an image of {size_bytes}")]
    BadBuffer {
        /// Length of the buffer.
        found_bytes: u64,
        /// Bytes of the image.
        size_bytes: u64,
    },
    /// A record of a GPU's attribute section that cannot be read, or has impossible values.
    #[error("ELF: attribute {id:#04x} at offset {offset:#x}: {why}")]
    BadAttribute {
        /// Number of the attribute (`EIATTR_*`); 0 where less than a record is left.
        id: u8,
        /// Of the record.
        offset: u64,
        /// What is wrong with it.
        why: &'static str,
    },
    /// An `Object` to be written contradicts itself.
    #[error("object: {what} {index}: {why}")]
    BadObject {
        /// What contradicts itself: a symbol, a relocation, a kernel, a variable, or the like.
        what: &'static str,
        /// Its place in its list; of a chip its number, of what is too long the count.
        index: usize,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// The text of `Display`: what `?` out of `main` prints.
impl std::fmt::Debug for ElfError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

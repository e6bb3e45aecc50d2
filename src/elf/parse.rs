//! Reads an ELF64 file (relocatable, or any for inspection): sections, symbols, relocations, each with every offset,
//! length and index checked.
//!
//! Models the file as it is; what is loaded and where is decided by `layout` and `link`. Borrows from the file's bytes
//! and copies only the tables. No input makes it panic or read outside: all access goes through `bytes_at`, which is
//! checked.
//!
//! Source: System V ABI, generic chapter «Object Files». Left out: program headers, hash tables, versions, groups (a
//! relocatable file's COMDAT groups are loaded as plain sections).

use super::abi::*;
use super::error::ElfError;
use super::num::{index, wide};
use super::object::Machine;
use super::x86_64;

/// No name that a compiler makes is longer; bounds the work that a file with overlapping names can cause.
pub(crate) const MAX_NAME_BYTES: usize = 1 << 16;

/// A section and the offset of its header in the file.
#[derive(Clone, Copy, Debug)]
pub struct FileSection<'a> {
    /// From the section of section names; empty for the null section.
    pub name: &'a str,
    /// The header as it is in the file.
    pub header: Shdr,
    /// File offset of the header.
    pub header_offset: u64,
}

/// Where a symbol is defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Elsewhere.
    Undefined,
    /// In the section with this index, which exists.
    Section(usize),
    /// Nowhere: the value is the address.
    Absolute,
    /// In memory that the linker has to provide: the value is the alignment.
    Common,
}

/// A symbol and its offset in the file.
#[derive(Clone, Copy, Debug)]
pub struct FileSymbol<'a> {
    /// From the linked string table; empty when the symbol has none.
    pub name: &'a str,
    /// The table's entry as it is in the file.
    pub sym: Sym,
    /// Its section, with indices of more than 16 bits looked up.
    pub place: Place,
    /// File offset of the table's entry.
    pub offset: u64,
}

impl FileSymbol<'_> {
    /// `STB_*`.
    pub fn binding(&self) -> u8 {
        self.sym.st_info >> 4
    }

    /// `STT_*`.
    pub fn kind(&self) -> u8 {
        self.sym.st_info & 15
    }
}

/// A parsed relocatable file.
#[derive(Debug)]
pub struct ElfFile<'a> {
    bytes: &'a [u8],
    machine: Machine,
    e_type: u16,
    sections: Vec<FileSection<'a>>,
    symtab: Option<usize>,
    symbols: Vec<FileSymbol<'a>>,
}

impl<'a> ElfFile<'a> {
    /// Checks the header, reads all section headers and the symbol table.
    ///
    /// # Errors
    /// Whatever is not a complete, consistent ELF64 relocatable file for a known machine.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ElfError> {
        let (header, machine) = parse_header(bytes, &[(ET_REL, Machine::HOST)])?;
        Self::with_symbols(bytes, &header, machine, SHT_SYMTAB)
    }

    /// As [`ElfFile::parse`] for inspection: relocatable or not, for any known machine. Symbols of a file that is not
    /// relocatable are its dynamic ones, if it has such.
    ///
    /// # Errors
    /// As [`ElfFile::parse`].
    pub fn parse_any(bytes: &'a [u8]) -> Result<Self, ElfError> {
        const KINDS: &[(u16, Machine)] = &[
            (ET_REL, Machine::X86_64),
            (ET_EXEC, Machine::X86_64),
            (ET_DYN, Machine::X86_64),
            (ET_REL, Machine::Aarch64),
            (ET_REL, Machine::Amdgpu),
            (ET_DYN, Machine::Amdgpu),
            (ET_EXEC, Machine::Cuda),
        ];
        let (header, machine) = parse_header(bytes, KINDS)?;
        // A cubin is linked, and keeps its one symbol table.
        let whole = header.e_type == ET_REL || machine == Machine::Cuda;
        let kind = if whole { SHT_SYMTAB } else { SHT_DYNSYM };
        Self::with_symbols(bytes, &header, machine, kind)
    }

    fn with_symbols(bytes: &'a [u8], header: &Ehdr, machine: Machine, kind: u32) -> Result<Self, ElfError> {
        let sections = parse_sections(bytes, header)?;
        let e_type = header.e_type;
        let mut file = Self { bytes, machine, e_type, sections, symtab: None, symbols: Vec::new() };
        file.find_symtab(kind)?;
        file.symbols = file.parse_symbols()?;
        Ok(file)
    }

    /// The instruction set.
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// The bytes of the file header.
    ///
    /// # Errors
    /// None: a parsed file has them.
    pub(super) fn header(&self) -> Result<&'a [u8; EHDR_BYTES], ElfError> {
        array_at(self.bytes, "file header", 0)
    }

    /// Whether it is a relocatable file.
    pub fn is_relocatable(&self) -> bool {
        self.e_type == ET_REL
    }

    /// Bytes of the whole file.
    pub fn file_bytes(&self) -> u64 {
        wide(self.bytes.len())
    }

    /// All sections, the null section included.
    pub fn sections(&self) -> &[FileSection<'a>] {
        &self.sections
    }

    /// All symbols, the null symbol included.
    pub fn symbols(&self) -> &[FileSymbol<'a>] {
        &self.symbols
    }

    /// The contents of a section; empty for `SHT_NOBITS`.
    ///
    /// # Errors
    /// The contents lie outside the file.
    pub fn contents(&self, section: &FileSection<'a>) -> Result<&'a [u8], ElfError> {
        contents(self.bytes, &section.header)
    }

    /// The relocations of a `SHT_RELA` section, each with its offset in the file; symbol indices are checked.
    ///
    /// # Errors
    /// A table of wrong entry size, of another symbol table, or with an index beyond it.
    pub fn relocations(&self, section: &FileSection<'a>) -> Result<Vec<(u64, Rela)>, ElfError> {
        let header = &section.header;
        if self.symtab != Some(index(u64::from(header.sh_link))) {
            let found = u64::from(header.sh_link);
            let offset = section.header_offset;
            return Err(ElfError::BadField { what: "rela sh_link", offset, found, expected: "the symbol table" });
        }
        let rows = table::<RELA_BYTES>(self.bytes, section, "rela sh_entsize")?;
        let mut out = Vec::with_capacity(rows.len());
        for (i, raw) in rows.iter().enumerate() {
            let offset = header.sh_offset + wide(i * RELA_BYTES); // PANIC: inside the file, checked by `table`
            let rela = Rela::parse(raw);
            check_index("r_sym", offset, u64::from(rela.r_sym), self.symbols.len())?;
            out.push((offset, rela));
        }
        Ok(out)
    }

    fn find_symtab(&mut self, kind: u32) -> Result<(), ElfError> {
        for (i, section) in self.sections.iter().enumerate() {
            let second = self.machine == Machine::Cuda && is_second_code(section.name);
            if section.header.sh_type != kind || second {
                continue;
            }
            if self.symtab.is_some() {
                let (offset, found) = (section.header_offset, u64::from(kind));
                return Err(ElfError::BadField { what: "sh_type", offset, found, expected: "the only symbol table" });
            }
            self.symtab = Some(i);
        }
        Ok(())
    }

    fn parse_symbols(&self) -> Result<Vec<FileSymbol<'a>>, ElfError> {
        let Some(symtab) = self.symtab.and_then(|i| self.sections.get(i)) else { return Ok(Vec::new()) };
        let link = u64::from(symtab.header.sh_link);
        let strings = check_index("symtab sh_link", symtab.header_offset, link, self.sections.len())?;
        // PANIC: `strings` was checked on the line above.
        let strings = contents(self.bytes, &self.sections[strings].header)?;
        let wide_indices = self.wide_section_indices()?;
        let rows = table::<SYM_BYTES>(self.bytes, symtab, "symtab sh_entsize")?;
        let mut out = Vec::with_capacity(rows.len());
        for (i, raw) in rows.iter().enumerate() {
            let offset = symtab.header.sh_offset + wide(i * SYM_BYTES); // PANIC: inside the file, checked by `table`
            let sym = Sym::parse(raw);
            let name = string(strings, u64::from(sym.st_name), "st_name", offset)?;
            let place = self.place_of(&sym, offset, wide_indices.get(i).map(|raw| u32::from_le_bytes(*raw)))?;
            out.push(FileSymbol { name, sym, place, offset });
        }
        Ok(out)
    }

    /// `SHT_SYMTAB_SHNDX`: section indices of symbols in files of more than 65,279 sections.
    fn wide_section_indices(&self) -> Result<&'a [[u8; 4]], ElfError> {
        match self.sections.iter().find(|section| section.header.sh_type == SHT_SYMTAB_SHNDX) {
            Some(section) => table::<4>(self.bytes, section, "symtab_shndx sh_entsize"),
            None => Ok(&[]),
        }
    }

    fn place_of(&self, sym: &Sym, offset: u64, wide_index: Option<u32>) -> Result<Place, ElfError> {
        let count = self.sections.len();
        match sym.st_shndx {
            SHN_UNDEF => Ok(Place::Undefined),
            SHN_ABS => Ok(Place::Absolute),
            SHN_COMMON => Ok(Place::Common),
            SHN_XINDEX => {
                let wide_index = u64::from(wide_index.unwrap_or(u32::MAX));
                Ok(Place::Section(check_index("symtab_shndx entry", offset, wide_index, count)?))
            }
            reserved if reserved >= SHN_LORESERVE => {
                let found = u64::from(reserved);
                Err(ElfError::BadField { what: "st_shndx", offset, found, expected: "a known reserved index" })
            }
            plain => Ok(Place::Section(check_index("st_shndx", offset, u64::from(plain), count)?)),
        }
    }
}

/// The header, if the file is of one of these kinds.
fn parse_header(bytes: &[u8], kinds: &[(u16, Machine)]) -> Result<(Ehdr, Machine), ElfError> {
    let raw: &[u8; EHDR_BYTES] = array_at(bytes, "file header", 0)?;
    let check = |what, offset: usize, found: u64, want: u64, expected| {
        if found == want { Ok(()) } else { Err(ElfError::BadField { what, offset: wide(offset), found, expected }) }
    };
    // PANIC: constant offsets in the 64-byte header.
    let magic = u32::from_be_bytes([raw[0], raw[1], raw[2], raw[3]]);
    check("e_ident magic", 0, u64::from(magic), u64::from(u32::from_be_bytes(ELFMAG)), "7f 45 4c 46")?;
    check("EI_CLASS", 4, u64::from(raw[4]), u64::from(ELFCLASS64), "ELFCLASS64")?;
    check("EI_DATA", 5, u64::from(raw[5]), u64::from(ELFDATA2LSB), "ELFDATA2LSB")?;
    check("EI_VERSION", 6, u64::from(raw[6]), u64::from(EV_CURRENT), "EV_CURRENT")?;
    let header = Ehdr::parse(raw);
    let found = u64::from(header.e_type);
    if !kinds.iter().any(|k| k.0 == header.e_type) {
        return Err(ElfError::BadField { what: "e_type", offset: 16, found, expected: "ET_REL (a relocatable file)" });
    }
    let number = |machine| match machine {
        Machine::X86_64 => x86_64::EM_X86_64,
        Machine::Aarch64 => EM_AARCH64,
        Machine::Amdgpu => EM_AMDGPU,
        Machine::Cuda => EM_CUDA,
    };
    let Some(kind) = kinds.iter().find(|k| k.0 == header.e_type && number(k.1) == header.e_machine) else {
        let found = u64::from(header.e_machine);
        let expected = if kinds.iter().any(|k| k.1 == Machine::X86_64) { "EM_X86_64" } else { "EM_AARCH64" };
        return Err(ElfError::BadField { what: "e_machine", offset: 18, found, expected });
    };
    check("e_shentsize", 58, u64::from(header.e_shentsize), wide(SHDR_BYTES), "64")?;
    Ok((header, kind.1))
}

fn parse_sections<'a>(bytes: &'a [u8], header: &Ehdr) -> Result<Vec<FileSection<'a>>, ElfError> {
    let first = Shdr::parse(array_at(bytes, "section header 0", header.e_shoff)?);
    let count = if header.e_shnum == 0 { first.sh_size } else { u64::from(header.e_shnum) };
    let need = count.saturating_mul(wide(SHDR_BYTES));
    let (rows, _) = bytes_at(bytes, "section headers", header.e_shoff, need)?.as_chunks::<SHDR_BYTES>();
    let names = if header.e_shstrndx == SHN_XINDEX { first.sh_link } else { u32::from(header.e_shstrndx) };
    let names = check_index("e_shstrndx", 62, u64::from(names), rows.len())?;
    let names = contents(bytes, &Shdr::parse(&rows[names]))?; // PANIC: checked on the line above
    let (file_bytes, mut total_bytes) = (wide(bytes.len()), 0u64);
    let is_cuda = header.e_machine == EM_CUDA;
    let mut out = Vec::with_capacity(rows.len());
    for (i, raw) in rows.iter().enumerate() {
        let header_offset = header.e_shoff + wide(i * SHDR_BYTES); // PANIC: inside the file, checked by `bytes_at`
        let header = Shdr::parse(raw);
        let name = string(names, u64::from(header.sh_name), "sh_name", header_offset)?;
        let len_bytes = wide(contents(bytes, &header)?.len());
        if !is_cuda || !is_second_code(name) {
            total_bytes = total_bytes.saturating_add(len_bytes);
        }
        if total_bytes > file_bytes {
            return Err(ElfError::Overlap { offset: header_offset, total_bytes, file_bytes });
        }
        out.push(FileSection { name, header, header_offset });
    }
    Ok(out)
}

/// Whether a cubin's section describes the code in its second encoding (`.nv.merc.*`, from sm_100 on). These share
/// bytes of the file with each other and with other sections; nothing here reads their contents, so they are not
/// counted.
pub(super) fn is_second_code(name: &str) -> bool {
    name.starts_with(".nv.merc.") || name.starts_with(".nv.capmerc.")
}

/// The bytes of a section that are in the file.
fn contents<'a>(bytes: &'a [u8], header: &Shdr) -> Result<&'a [u8], ElfError> {
    match header.sh_type {
        SHT_NULL | SHT_NOBITS => Ok(&[]),
        _ => bytes_at(bytes, "section contents", header.sh_offset, header.sh_size),
    }
}

/// The entries of a table section whose entry size must be `N`.
fn table<'a, const N: usize>(
    bytes: &'a [u8],
    section: &FileSection<'a>,
    what: &'static str,
) -> Result<&'a [[u8; N]], ElfError> {
    let (rows, rest) = contents(bytes, &section.header)?.as_chunks::<N>();
    if section.header.sh_entsize != wide(N) || !rest.is_empty() {
        let (offset, found) = (section.header_offset, section.header.sh_entsize);
        return Err(ElfError::BadField { what, offset, found, expected: "the entry size, dividing sh_size" });
    }
    Ok(rows)
}

/// `len` bytes of the file at `offset`.
pub(super) fn bytes_at<'a>(bytes: &'a [u8], what: &'static str, offset: u64, len: u64) -> Result<&'a [u8], ElfError> {
    let truncated = ElfError::Truncated { what, offset, need_bytes: len, file_bytes: wide(bytes.len()) };
    let end = offset.checked_add(len).ok_or_else(|| truncated.clone())?;
    bytes.get(index(offset)..index(end)).ok_or(truncated)
}

pub(super) fn array_at<'a, const N: usize>(
    bytes: &'a [u8],
    what: &'static str,
    offset: u64,
) -> Result<&'a [u8; N], ElfError> {
    let found = bytes_at(bytes, what, offset, wide(N))?.first_chunk();
    found.ok_or(ElfError::Truncated { what, offset, need_bytes: wide(N), file_bytes: wide(bytes.len()) })
}

fn check_index(what: &'static str, offset: u64, found: u64, count: usize) -> Result<usize, ElfError> {
    let slot = index(found);
    if slot < count { Ok(slot) } else { Err(ElfError::BadIndex { what, offset, index: found, count: wide(count) }) }
}

/// The NUL-terminated name at `at` in a string table; `what` and `offset` name the reference to it.
fn string<'a>(table: &'a [u8], at: u64, what: &'static str, offset: u64) -> Result<&'a str, ElfError> {
    if at == 0 && table.is_empty() {
        return Ok(""); // a file without names need not have a table
    }
    let bad = ElfError::BadString { what, offset };
    let tail = table.get(index(at)..).ok_or_else(|| bad.clone())?;
    let tail = tail.get(..MAX_NAME_BYTES).unwrap_or(tail);
    let end = tail.iter().position(|&byte| byte == 0).ok_or_else(|| bad.clone())?;
    std::str::from_utf8(&tail[..end]).map_err(|_| bad) // PANIC: `end` is a position in `tail`
}

//! [`Object`] → relocatable ELF64 file, as `as` would make it.
//!
//! Sections in file order: `.text`, `.rodata`, `.bss`, `.rela.text`, `.rela.rodata` (if needed), `.symtab`, `.strtab`,
//! `.shstrtab`, `.note.GNU-stack` (no executable stack). Symbols: null, the three sections, local names, global names.

use super::abi::*;
use super::error::ElfError;
use super::image::MAX_IMAGE_BYTES;
use super::num::{align_up, wide};
use super::object::{Machine, Object, Relocation, Section, Symbol, Target};
use super::x86_64;

/// Alignment of the loaded sections: the widest vector of the machine.
const SECTION_ALIGN: u64 = 64;
/// The loaded sections, in the order of their headers.
const LOADED: [Section; 3] = [Section::Text, Section::Rodata, Section::Bss];

/// Writes a relocatable file; of a GPU's kernel a loadable code object.
///
/// # Errors
/// A symbol or relocation that points outside its section or table, a name that ELF cannot hold, a file beyond
/// 1 GiB.
pub fn write(object: &Object) -> Result<Vec<u8>, ElfError> {
    if object.machine == Machine::Amdgpu {
        return super::amdgpu::write_object(object);
    }
    check_symbols(object)?;
    let symbols = SymbolTable::new(object);
    let mut file = File::new();
    let flags = |extra| SHF_ALLOC | extra;
    file.section(".text", SHT_PROGBITS, flags(SHF_EXECINSTR), &object.text).header.sh_addralign = SECTION_ALIGN;
    file.section(".rodata", SHT_PROGBITS, flags(0), &object.rodata).header.sh_addralign = SECTION_ALIGN;
    let bss = &mut file.section(".bss", SHT_NOBITS, flags(SHF_WRITE), &[]).header;
    (bss.sh_addralign, bss.sh_size) = (SECTION_ALIGN, object.bss_len);

    let mut tables = vec![(".rela.text", 1, relocations(object, Section::Text, &symbols)?)];
    let rodata = relocations(object, Section::Rodata, &symbols)?;
    if !rodata.is_empty() {
        tables.push((".rela.rodata", 2, rodata));
    }
    let symtab_index = 4 + u32::from(tables.len() == 2) + 1; // null and three loaded sections come before the tables
    for (name, target, bytes) in &tables {
        let header = &mut file.section(name, SHT_RELA, SHF_INFO_LINK, bytes).header;
        (header.sh_link, header.sh_info) = (symtab_index, *target);
        (header.sh_addralign, header.sh_entsize) = (8, wide(RELA_BYTES));
    }
    let header = &mut file.section(".symtab", SHT_SYMTAB, 0, &symbols.bytes).header;
    (header.sh_link, header.sh_info) = (symtab_index + 1, symbols.first_global);
    (header.sh_addralign, header.sh_entsize) = (8, wide(SYM_BYTES));
    file.section(".strtab", SHT_STRTAB, 0, &symbols.names.bytes);
    file.section(".note.GNU-stack", SHT_PROGBITS, 0, &[]);
    let bytes = file.finish(if object.machine == Machine::Aarch64 { EM_AARCH64 } else { x86_64::EM_X86_64 });
    let need_bytes = wide(bytes.len());
    if need_bytes > MAX_IMAGE_BYTES {
        return Err(ElfError::ImageTooBig { need_bytes, max_bytes: MAX_IMAGE_BYTES });
    }
    Ok(bytes)
}

/// A string table under construction: the empty name first, as ELF demands.
struct Strings {
    bytes: Vec<u8>,
}

impl Strings {
    fn new() -> Self {
        Self { bytes: vec![0] }
    }

    fn add(&mut self, name: &str) -> u32 {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        u32_of(at)
    }
}

/// Counts and offsets inside the file; one that does not fit belongs to a file that [`write`] refuses at its end.
fn u32_of(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

struct SymbolTable {
    bytes: Vec<u8>,
    names: Strings,
    /// Index in the file of each of the object's symbols.
    file_index: Vec<u32>,
    first_global: u32,
}

impl SymbolTable {
    fn new(object: &Object) -> Self {
        let mut out = Self { bytes: Vec::new(), names: Strings::new(), file_index: Vec::new(), first_global: 0 };
        Sym::default().emit(&mut out.bytes);
        for st_shndx in LOADED.map(section_index) {
            Sym { st_info: STB_LOCAL << 4 | STT_SECTION, st_shndx, ..Sym::default() }.emit(&mut out.bytes);
        }
        out.file_index = vec![0; object.symbols.len()];
        for global in [false, true] {
            if global {
                out.first_global = out.count();
            }
            for (i, symbol) in object.symbols.iter().enumerate().filter(|(_, symbol)| symbol.global == global) {
                out.file_index[i] = out.count(); // PANIC: made with an entry a symbol
                out.push(symbol);
            }
        }
        out
    }

    fn count(&self) -> u32 {
        u32_of(self.bytes.len() / SYM_BYTES)
    }

    fn push(&mut self, symbol: &Symbol) {
        let binding = if symbol.global { STB_GLOBAL } else { STB_LOCAL };
        let kind = match (symbol.func, symbol.section) {
            (_, None) => STT_NOTYPE,
            (true, _) => STT_FUNC,
            (false, _) => STT_OBJECT,
        };
        let st_shndx = symbol.section.map_or(SHN_UNDEF, section_index);
        let st_name = self.names.add(&symbol.name);
        let (st_info, st_value, st_size) = (binding << 4 | kind, symbol.offset_bytes, symbol.size_bytes);
        Sym { st_name, st_info, st_other: 0, st_shndx, st_value, st_size }.emit(&mut self.bytes);
    }
}

/// The header index of a loaded section; also the index of its section symbol.
fn section_index(section: Section) -> u16 {
    match section {
        Section::Text => 1,
        Section::Rodata => 2,
        Section::Bss => 3,
    }
}

fn check_symbols(object: &Object) -> Result<(), ElfError> {
    for (index, symbol) in object.symbols.iter().enumerate() {
        let bad = |why| Err(ElfError::BadObject { what: "symbol", index, why });
        if symbol.name.is_empty() || symbol.name.contains('\0') {
            return bad("its name is empty or holds a NUL byte");
        }
        match symbol.section {
            None if !symbol.global => return bad("undefined, but not global"),
            None if symbol.offset_bytes != 0 => return bad("undefined, but with an offset"),
            None => {}
            Some(section) => {
                let end = symbol.offset_bytes.checked_add(symbol.size_bytes);
                if end.is_none_or(|end| end > object.section_len(section)) {
                    return bad("it reaches beyond its section");
                }
            }
        }
    }
    Ok(())
}

/// The relocation table of one section.
fn relocations(object: &Object, section: Section, symbols: &SymbolTable) -> Result<Vec<u8>, ElfError> {
    let mut out = Vec::new();
    for (index, relocation) in object.relocations.iter().enumerate() {
        if relocation.section == section || relocation.section == Section::Bss {
            rela(object, index, relocation, symbols)?.emit(&mut out);
        }
    }
    Ok(out)
}

fn rela(object: &Object, index: usize, relocation: &Relocation, symbols: &SymbolTable) -> Result<Rela, ElfError> {
    let bad = |why| ElfError::BadObject { what: "relocation", index, why };
    if relocation.section == Section::Bss {
        return Err(bad("in a section without contents"));
    }
    let row = Some(relocation.kind).filter(|_| object.machine == Machine::X86_64).and_then(x86_64::by_kind);
    let row = row.ok_or_else(|| bad("of a kind that the machine lacks"))?;
    let end = relocation.offset_bytes.checked_add(x86_64::field_bytes(relocation.kind));
    if end.is_none_or(|end| end > object.section_len(relocation.section)) {
        return Err(bad("its field reaches beyond its section"));
    }
    let r_sym = match relocation.target {
        Target::Section(section) => u32::from(section_index(section)),
        Target::Symbol(symbol) => {
            *symbols.file_index.get(symbol).ok_or_else(|| bad("against a symbol that is not there"))?
        }
    };
    Ok(Rela { r_offset: relocation.offset_bytes, r_sym, r_type: row.number, r_addend: relocation.addend })
}

/// One section of the file under construction.
struct Piece {
    name: &'static str,
    header: Shdr,
}

/// The file under construction: header space, contents so far, headers so far.
struct File {
    bytes: Vec<u8>,
    pieces: Vec<Piece>,
}

impl File {
    fn new() -> Self {
        Self { bytes: vec![0; EHDR_BYTES], pieces: vec![Piece { name: "", header: Shdr::default() }] }
    }

    /// Appends a section with its contents; alignment and links are the caller's to set.
    fn section(&mut self, name: &'static str, sh_type: u32, sh_flags: u64, contents: &[u8]) -> &mut Piece {
        self.pad_to(SECTION_ALIGN);
        let (sh_offset, sh_size) = (wide(self.bytes.len()), wide(contents.len()));
        self.bytes.extend_from_slice(contents);
        let header = Shdr { sh_type, sh_flags, sh_offset, sh_size, sh_addralign: 1, ..Shdr::default() };
        self.pieces.push(Piece { name, header });
        self.pieces.last_mut().expect("just pushed") // PANIC: pushed on the line above
    }

    fn pad_to(&mut self, align: u64) {
        let end = align_up(wide(self.bytes.len()), align).unwrap_or(u64::MAX);
        self.bytes.resize(super::num::index(end), 0);
    }

    /// Adds the names and headers of the sections and the file header.
    fn finish(mut self, e_machine: u16) -> Vec<u8> {
        let mut names = Strings::new();
        self.section(".shstrtab", SHT_STRTAB, 0, &[]);
        for piece in &mut self.pieces[1..] {
            piece.header.sh_name = names.add(piece.name);
        }
        let last = self.pieces.len() - 1;
        self.pieces[last].header.sh_size = wide(names.bytes.len());
        self.bytes.extend_from_slice(&names.bytes);
        self.pad_to(8);
        let header = Ehdr {
            e_type: ET_REL,
            e_machine,
            e_shoff: wide(self.bytes.len()),
            e_shentsize: 64,
            e_shnum: u16::try_from(self.pieces.len()).unwrap_or(u16::MAX), // ten at most
            e_shstrndx: u16::try_from(last).unwrap_or(u16::MAX),
        };
        for piece in &self.pieces {
            piece.header.emit(&mut self.bytes);
        }
        let mut head = Vec::with_capacity(EHDR_BYTES);
        header.emit(&mut head);
        self.bytes[..EHDR_BYTES].copy_from_slice(&head); // PANIC: both are EHDR_BYTES long, see `Ehdr::emit`
        self.bytes
    }
}

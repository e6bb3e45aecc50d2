//! ELF64 definitions: constants, the four structures of a relocatable file and a loaded one's program headers, each
//! with `emit` and `parse`.
//!
//! Source: System V ABI, generic chapter «Object Files» (ELF-64, little-endian). Names are the specification's.

/// Bytes 0 to 3 of `e_ident`: the magic number.
pub const ELFMAG: [u8; 4] = *b"\x7fELF";
/// `EI_CLASS`, byte 4 of `e_ident`: 64-bit structures.
pub const ELFCLASS64: u8 = 2;
/// `EI_DATA`, byte 5 of `e_ident`: little-endian.
pub const ELFDATA2LSB: u8 = 1;
/// `EI_VERSION`, byte 6 of `e_ident`, and `e_version`: the only version of the format.
pub const EV_CURRENT: u8 = 1;
/// `e_type`: a relocatable file (`.o`).
pub const ET_REL: u16 = 1;
/// `e_type`: an executable; cubins are of this type.
pub const ET_EXEC: u16 = 2;
/// `e_type`: a shared object; linked AMDGPU code objects are of this type.
pub const ET_DYN: u16 = 3;
/// 64-bit Arm.
pub const EM_AARCH64: u16 = 183;
/// AMD's GPUs.
pub const EM_AMDGPU: u16 = 224;
/// NVIDIA's GPUs.
pub const EM_CUDA: u16 = 190;

/// Section index of undefined symbols; as a link: no section.
pub const SHN_UNDEF: u16 = 0;
/// First of the reserved indices: from here on an index names no section header.
pub const SHN_LORESERVE: u16 = 0xff00;
/// The symbol's value is absolute: placing the file does not change it.
pub const SHN_ABS: u16 = 0xfff1;
/// A common symbol: the linker provides its memory.
pub const SHN_COMMON: u16 = 0xfff2;
/// The index is too large for 16 bits and is elsewhere: a symbol's in [`SHT_SYMTAB_SHNDX`].
pub const SHN_XINDEX: u16 = 0xffff;

/// A header without a section: the first in the table of section headers.
pub const SHT_NULL: u32 = 0;
/// Code or data with bytes in the file.
pub const SHT_PROGBITS: u32 = 1;
/// All symbols of the file, for linkers.
pub const SHT_SYMTAB: u32 = 2;
/// A string table: NUL-terminated names, the first one empty.
pub const SHT_STRTAB: u32 = 3;
/// Relocations with explicit addends ([`Rela`]).
pub const SHT_RELA: u32 = 4;
/// Notes: owner, type and description each.
pub const SHT_NOTE: u32 = 7;
/// Zeros (`.bss`): memory without bytes in the file.
pub const SHT_NOBITS: u32 = 8;
/// Relocations of 16 bytes whose addends are in the fields they change.
pub const SHT_REL: u32 = 9;
/// The symbols that dynamic linking needs.
pub const SHT_DYNSYM: u32 = 11;
/// 32-bit section indices, one a symbol, for symbols with [`SHN_XINDEX`].
pub const SHT_SYMTAB_SHNDX: u32 = 18;

/// Writable while the program runs.
pub const SHF_WRITE: u64 = 0x1;
/// Has a place in memory while the program runs.
pub const SHF_ALLOC: u64 = 0x2;
/// Holds machine code.
pub const SHF_EXECINSTR: u64 = 0x4;
/// `sh_info` is a section index.
pub const SHF_INFO_LINK: u64 = 0x40;
/// Thread-local storage.
pub const SHF_TLS: u64 = 0x400;
/// The contents are compressed, behind a header that says how.
pub const SHF_COMPRESSED: u64 = 0x800;

/// Binding: not visible outside the file.
pub const STB_LOCAL: u8 = 0;
/// Binding: visible to all files that are linked together.
pub const STB_GLOBAL: u8 = 1;
/// Binding: global, yields to another definition; undefined it may stay unresolved and is then 0.
pub const STB_WEAK: u8 = 2;

/// Type: not given, as of undefined symbols.
pub const STT_NOTYPE: u8 = 0;
/// Type: data.
pub const STT_OBJECT: u8 = 1;
/// Type: code.
pub const STT_FUNC: u8 = 2;
/// Type: stands for its section, so that relocations can refer to it.
pub const STT_SECTION: u8 = 3;
/// Type: its name is that of the source file.
pub const STT_FILE: u8 = 4;
/// Type: thread-local data.
pub const STT_TLS: u8 = 6;
/// Type: an indirect function, whose code returns the address to call (GNU's extension).
pub const STT_GNU_IFUNC: u8 = 10;

/// Bytes of a file header (`Elf64_Ehdr`).
pub const EHDR_BYTES: usize = 64;
/// Bytes of a section header (`Elf64_Shdr`).
pub const SHDR_BYTES: usize = 64;
/// Bytes of a symbol (`Elf64_Sym`).
pub const SYM_BYTES: usize = 24;
/// Bytes of a relocation with addend (`Elf64_Rela`).
pub const RELA_BYTES: usize = 24;
/// Bytes of a program header (`Elf64_Phdr`).
pub const PHDR_BYTES: usize = 56;

/// A segment to be loaded.
pub const PT_LOAD: u32 = 1;
/// The dynamic section.
pub const PT_DYNAMIC: u32 = 2;
/// Notes.
pub const PT_NOTE: u32 = 4;
/// The program headers themselves.
pub const PT_PHDR: u32 = 6;
/// The segment may be executed.
pub const PF_X: u32 = 1;
/// The segment may be written.
pub const PF_W: u32 = 2;
/// The segment may be read.
pub const PF_R: u32 = 4;

// PANIC: the three readers below are called with constant offsets inside the fixed-size arrays of this file only.
fn le16(raw: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([raw[at], raw[at + 1]])
}

fn le32(raw: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]])
}

fn le64(raw: &[u8], at: usize) -> u64 {
    u64::from(le32(raw, at)) | u64::from(le32(raw, at + 4)) << 32
}

/// The file header, without the fields that a relocatable file leaves zero (entry, program headers, flags).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ehdr {
    /// Kind of file, `ET_*`.
    pub e_type: u16,
    /// Instruction set, `EM_*`.
    pub e_machine: u16,
    /// File offset of the section headers.
    pub e_shoff: u64,
    /// Bytes of one section header: 64.
    pub e_shentsize: u16,
    /// Number of section headers; 0 with a table means: see section 0's `sh_size`.
    pub e_shnum: u16,
    /// Section of section names; `SHN_XINDEX` means: see section 0's `sh_link`.
    pub e_shstrndx: u16,
}

impl Ehdr {
    /// Appends the 64 bytes of a little-endian header: entry, program headers, flags and OS ABI are zero.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&ELFMAG);
        out.extend_from_slice(&[ELFCLASS64, ELFDATA2LSB, EV_CURRENT]);
        out.extend_from_slice(&[0; 9]); // OS ABI: System V; its version; padding
        out.extend_from_slice(&self.e_type.to_le_bytes());
        out.extend_from_slice(&self.e_machine.to_le_bytes());
        out.extend_from_slice(&u32::from(EV_CURRENT).to_le_bytes());
        out.extend_from_slice(&[0; 16]); // e_entry, e_phoff
        out.extend_from_slice(&self.e_shoff.to_le_bytes());
        out.extend_from_slice(&[0; 4]); // e_flags
        out.extend_from_slice(&64u16.to_le_bytes()); // e_ehsize
        out.extend_from_slice(&[0; 4]); // e_phentsize, e_phnum
        out.extend_from_slice(&self.e_shentsize.to_le_bytes());
        out.extend_from_slice(&self.e_shnum.to_le_bytes());
        out.extend_from_slice(&self.e_shstrndx.to_le_bytes());
    }

    /// Reads the 64 bytes, unchecked: magic, class and byte order are the caller's to compare.
    pub fn parse(raw: &[u8; EHDR_BYTES]) -> Self {
        Self {
            e_type: le16(raw, 16),
            e_machine: le16(raw, 18),
            e_shoff: le64(raw, 40),
            e_shentsize: le16(raw, 58),
            e_shnum: le16(raw, 60),
            e_shstrndx: le16(raw, 62),
        }
    }
}

/// A section header. `sh_addr` is zero in a relocatable file and not kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shdr {
    /// Name: offset in the section of section names.
    pub sh_name: u32,
    /// Kind of contents, `SHT_*`.
    pub sh_type: u32,
    /// `SHF_*` bits.
    pub sh_flags: u64,
    /// File offset of the contents.
    pub sh_offset: u64,
    /// Bytes of the contents, in memory if the type is `SHT_NOBITS`.
    pub sh_size: u64,
    /// Section index: a symbol table's strings, the symbols of relocations.
    pub sh_link: u32,
    /// Of relocations the section they change, of a symbol table the first symbol that is not local.
    pub sh_info: u32,
    /// 0 and 1 mean: none.
    pub sh_addralign: u64,
    /// Bytes of an entry, for tables.
    pub sh_entsize: u64,
}

impl Shdr {
    /// Appends the 64 bytes; `sh_addr` is zero.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.sh_name.to_le_bytes());
        out.extend_from_slice(&self.sh_type.to_le_bytes());
        out.extend_from_slice(&self.sh_flags.to_le_bytes());
        out.extend_from_slice(&[0; 8]); // sh_addr
        out.extend_from_slice(&self.sh_offset.to_le_bytes());
        out.extend_from_slice(&self.sh_size.to_le_bytes());
        out.extend_from_slice(&self.sh_link.to_le_bytes());
        out.extend_from_slice(&self.sh_info.to_le_bytes());
        out.extend_from_slice(&self.sh_addralign.to_le_bytes());
        out.extend_from_slice(&self.sh_entsize.to_le_bytes());
    }

    /// Reads the 64 bytes; every value is taken as it is.
    pub fn parse(raw: &[u8; SHDR_BYTES]) -> Self {
        Self {
            sh_name: le32(raw, 0),
            sh_type: le32(raw, 4),
            sh_flags: le64(raw, 8),
            sh_offset: le64(raw, 24),
            sh_size: le64(raw, 32),
            sh_link: le32(raw, 40),
            sh_info: le32(raw, 44),
            sh_addralign: le64(raw, 48),
            sh_entsize: le64(raw, 56),
        }
    }
}

/// A symbol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sym {
    /// Name: offset in the linked string table.
    pub st_name: u32,
    /// Binding (upper four bits) and type (lower four).
    pub st_info: u8,
    /// Visibility.
    pub st_other: u8,
    /// Section that defines it, or one of the reserved `SHN_*`.
    pub st_shndx: u16,
    /// Offset in the section; alignment for `SHN_COMMON`.
    pub st_value: u64,
    /// Bytes that it covers; 0 when unknown.
    pub st_size: u64,
}

impl Sym {
    /// Appends the 24 bytes.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.st_name.to_le_bytes());
        out.extend_from_slice(&[self.st_info, self.st_other]);
        out.extend_from_slice(&self.st_shndx.to_le_bytes());
        out.extend_from_slice(&self.st_value.to_le_bytes());
        out.extend_from_slice(&self.st_size.to_le_bytes());
    }

    /// Reads the 24 bytes; every value is taken as it is.
    pub fn parse(raw: &[u8; SYM_BYTES]) -> Self {
        Self {
            st_name: le32(raw, 0),
            st_info: raw[4],
            st_other: raw[5],
            st_shndx: le16(raw, 6),
            st_value: le64(raw, 8),
            st_size: le64(raw, 16),
        }
    }
}

/// A relocation with explicit addend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rela {
    /// Offset of the field in the section that `sh_info` names.
    pub r_offset: u64,
    /// Index of the symbol, 0 for none: upper half of `r_info`.
    pub r_sym: u32,
    /// The machine's relocation type: lower half of `r_info`.
    pub r_type: u32,
    /// Bytes added to the symbol's address.
    pub r_addend: i64,
}

impl Rela {
    /// Appends the 24 bytes.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.r_offset.to_le_bytes());
        out.extend_from_slice(&self.r_type.to_le_bytes()); // r_info, low word
        out.extend_from_slice(&self.r_sym.to_le_bytes()); // r_info, high word
        out.extend_from_slice(&self.r_addend.to_le_bytes());
    }

    /// Reads the 24 bytes; every value is taken as it is.
    pub fn parse(raw: &[u8; RELA_BYTES]) -> Self {
        Self {
            r_offset: le64(raw, 0),
            r_type: le32(raw, 8),
            r_sym: le32(raw, 12),
            r_addend: i64::from_le_bytes(le64(raw, 16).to_le_bytes()),
        }
    }
}

/// A program header; physical addresses are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phdr {
    /// What the segment is, `PT_*`.
    pub p_type: u32,
    /// `PF_*` bits.
    pub p_flags: u32,
    /// File offset of the contents.
    pub p_offset: u64,
    /// Address in memory; in a GPU's linked object the offset from the image's start.
    pub p_vaddr: u64,
    /// Bytes in the file.
    pub p_filesz: u64,
    /// Bytes in memory: zeros follow those of the file.
    pub p_memsz: u64,
    /// Alignment in file and memory; 0 and 1 mean: none.
    pub p_align: u64,
}

impl Phdr {
    /// Appends the 56 bytes; the physical address is the virtual one.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.p_type.to_le_bytes());
        out.extend_from_slice(&self.p_flags.to_le_bytes());
        for word in [self.p_offset, self.p_vaddr, self.p_vaddr, self.p_filesz, self.p_memsz, self.p_align] {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }

    /// Reads the 56 bytes; every value is taken as it is.
    pub fn parse(raw: &[u8; PHDR_BYTES]) -> Self {
        let [p_offset, p_vaddr, p_filesz, p_memsz, p_align] = [8, 16, 32, 40, 48].map(|at| le64(raw, at));
        Self { p_type: le32(raw, 0), p_flags: le32(raw, 4), p_offset, p_vaddr, p_filesz, p_memsz, p_align }
    }
}

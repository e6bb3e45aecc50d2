//! ELF64 definitions: constants, the four structures of a relocatable file and a loaded one's program headers, each
//! with `emit` and `parse`.
//!
//! Source: System V ABI, generic chapter «Object Files» (ELF-64, little-endian). Names are the specification's.

pub const ELFMAG: [u8; 4] = *b"\x7fELF";
pub const ELFCLASS64: u8 = 2;
pub const ELFDATA2LSB: u8 = 1;
pub const EV_CURRENT: u8 = 1;
pub const ET_REL: u16 = 1;
pub const ET_EXEC: u16 = 2;
pub const ET_DYN: u16 = 3;
/// 64-bit Arm.
pub const EM_AARCH64: u16 = 183;
/// AMD's GPUs.
pub const EM_AMDGPU: u16 = 224;
/// NVIDIA's GPUs.
pub const EM_CUDA: u16 = 190;

pub const SHN_UNDEF: u16 = 0;
pub const SHN_LORESERVE: u16 = 0xff00;
pub const SHN_ABS: u16 = 0xfff1;
pub const SHN_COMMON: u16 = 0xfff2;
pub const SHN_XINDEX: u16 = 0xffff;

pub const SHT_NULL: u32 = 0;
pub const SHT_PROGBITS: u32 = 1;
pub const SHT_SYMTAB: u32 = 2;
pub const SHT_STRTAB: u32 = 3;
pub const SHT_RELA: u32 = 4;
pub const SHT_NOTE: u32 = 7;
pub const SHT_NOBITS: u32 = 8;
pub const SHT_REL: u32 = 9;
pub const SHT_DYNSYM: u32 = 11;
pub const SHT_SYMTAB_SHNDX: u32 = 18;

pub const SHF_WRITE: u64 = 0x1;
pub const SHF_ALLOC: u64 = 0x2;
pub const SHF_EXECINSTR: u64 = 0x4;
pub const SHF_INFO_LINK: u64 = 0x40;
pub const SHF_TLS: u64 = 0x400;
pub const SHF_COMPRESSED: u64 = 0x800;

pub const STB_LOCAL: u8 = 0;
pub const STB_GLOBAL: u8 = 1;
pub const STB_WEAK: u8 = 2;

pub const STT_NOTYPE: u8 = 0;
pub const STT_OBJECT: u8 = 1;
pub const STT_FUNC: u8 = 2;
pub const STT_SECTION: u8 = 3;
pub const STT_FILE: u8 = 4;
pub const STT_TLS: u8 = 6;
pub const STT_GNU_IFUNC: u8 = 10;

pub const EHDR_BYTES: usize = 64;
pub const SHDR_BYTES: usize = 64;
pub const SYM_BYTES: usize = 24;
pub const RELA_BYTES: usize = 24;
pub const PHDR_BYTES: usize = 56;

pub const PT_LOAD: u32 = 1;
pub const PT_DYNAMIC: u32 = 2;
pub const PT_NOTE: u32 = 4;
pub const PT_PHDR: u32 = 6;
pub const PF_X: u32 = 1;
pub const PF_W: u32 = 2;
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
    pub e_type: u16,
    pub e_machine: u16,
    /// File offset of the section headers.
    pub e_shoff: u64,
    pub e_shentsize: u16,
    /// Number of section headers; 0 with a table means: see section 0's `sh_size`.
    pub e_shnum: u16,
    /// Section of section names; `SHN_XINDEX` means: see section 0's `sh_link`.
    pub e_shstrndx: u16,
}

impl Ehdr {
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
    pub sh_type: u32,
    pub sh_flags: u64,
    /// File offset of the contents.
    pub sh_offset: u64,
    /// Bytes of the contents, in memory if the type is `SHT_NOBITS`.
    pub sh_size: u64,
    pub sh_link: u32,
    pub sh_info: u32,
    /// 0 and 1 mean: none.
    pub sh_addralign: u64,
    /// Bytes of an entry, for tables.
    pub sh_entsize: u64,
}

impl Shdr {
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
    pub st_shndx: u16,
    /// Offset in the section; alignment for `SHN_COMMON`.
    pub st_value: u64,
    pub st_size: u64,
}

impl Sym {
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.st_name.to_le_bytes());
        out.extend_from_slice(&[self.st_info, self.st_other]);
        out.extend_from_slice(&self.st_shndx.to_le_bytes());
        out.extend_from_slice(&self.st_value.to_le_bytes());
        out.extend_from_slice(&self.st_size.to_le_bytes());
    }

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
    pub r_sym: u32,
    pub r_type: u32,
    pub r_addend: i64,
}

impl Rela {
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.r_offset.to_le_bytes());
        out.extend_from_slice(&self.r_type.to_le_bytes()); // r_info, low word
        out.extend_from_slice(&self.r_sym.to_le_bytes()); // r_info, high word
        out.extend_from_slice(&self.r_addend.to_le_bytes());
    }

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
    pub p_type: u32,
    pub p_flags: u32,
    pub p_offset: u64,
    pub p_vaddr: u64,
    pub p_filesz: u64,
    pub p_memsz: u64,
    pub p_align: u64,
}

impl Phdr {
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.p_type.to_le_bytes());
        out.extend_from_slice(&self.p_flags.to_le_bytes());
        for word in [self.p_offset, self.p_vaddr, self.p_vaddr, self.p_filesz, self.p_memsz, self.p_align] {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }

    pub fn parse(raw: &[u8; PHDR_BYTES]) -> Self {
        let [p_offset, p_vaddr, p_filesz, p_memsz, p_align] = [8, 16, 32, 40, 48].map(|at| le64(raw, at));
        Self { p_type: le32(raw, 0), p_flags: le32(raw, 4), p_offset, p_vaddr, p_filesz, p_memsz, p_align }
    }
}

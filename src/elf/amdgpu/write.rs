//! Kernels → a loadable code object (ET_DYN), laid out as lld does it: notes, symbols and descriptors in a read-only
//! segment, code in an executable one on the next page, the dynamic section in a writable one.

use super::chip::Chip;
use super::descriptor::{DESCRIPTOR_BYTES, KernelDescriptor};
use super::file::*;
use super::metadata::{Arg, NT_AMDGPU_METADATA, metadata};
use crate::abi::*;
use crate::error::ElfError;
use crate::num::wide;
use crate::object::Object;

/// One kernel to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelCode {
    /// Symbol of the code; that of the descriptor has `.kd` added.
    pub name: String,
    /// Machine code; position-independent.
    pub code: Vec<u8>,
    /// The entry offset is filled in by [`write()`].
    pub descriptor: KernelDescriptor,
    /// Arguments, for the note; an empty list means unknown to a reader if the descriptor has bytes for them.
    pub args: Vec<Arg>,
    /// Scalar registers of a wave, for the note.
    pub sgprs: u32,
    /// Vector registers of a lane, for the note (gfx942: architectural ones).
    pub vgprs: u32,
    /// Accumulation registers of a lane, for the note of gfx942.
    pub acc_vgprs: u32,
    /// Most work-items of a workgroup.
    pub max_workgroup: u32,
}

const PAGE: u64 = 4096;
const ENTRY_ALIGN: u64 = 256;
/// s_code_end, and s_nop on gfx942: what instruction prefetch may run into.
const PADDING: [(u32, usize, usize); 2] = [(0xbf9f_0000, 128, 384), (0xbf80_0000, 64, 1024)];

/// Writes a code object of version 5.
///
/// # Errors
/// A name that is empty, contains a NUL byte or occurs twice, or a kernel without code.
pub fn write(gpu: Chip, kernels: &[KernelCode]) -> Result<Vec<u8>, ElfError> {
    written(gpu, kernels).map(|w| w.file)
}

/// As [`write`], with the layout.
pub(super) fn written(gpu: Chip, kernels: &[KernelCode]) -> Result<Written, ElfError> {
    for (index, k) in kernels.iter().enumerate() {
        let bad = |why| Err(ElfError::BadObject { what: "kernel", index, why });
        if k.name.is_empty() || k.name.contains('\0') {
            return bad("its name is empty or holds a NUL byte");
        }
        if kernels[..index].iter().any(|other| other.name == k.name) {
            return bad("its name is taken");
        }
        if k.code.is_empty() || k.code.len() % 4 != 0 {
            return bad("its code is empty or no whole number of dwords");
        }
    }
    Ok(Writer::new(gpu, kernels).file())
}

/// The code object of one kernel that `isa` made.
///
/// # Errors
/// As [`kernel_code`] and [`write`].
pub(crate) fn write_object(object: &Object) -> Result<Vec<u8>, ElfError> {
    let (gpu, code) = kernel_code(object)?;
    write(gpu, &[code])
}

/// The kernel that `isa` made, and its chip.
///
/// # Errors
/// An object without kernel or name.
pub(super) fn kernel_code(object: &Object) -> Result<(Chip, KernelCode), ElfError> {
    let (Some(kernel), Some(symbol)) = (&object.kernel, object.symbols.first()) else {
        return Err(ElfError::BadObject { what: "kernel", index: 0, why: "it has no description or no name" });
    };
    let spec = &kernel.spec;
    let code = KernelCode {
        name: symbol.name.clone(),
        code: object.text.clone(),
        descriptor: spec.descriptor(),
        args: kernel.args.clone(),
        sgprs: spec.sgprs,
        vgprs: spec.vgprs,
        acc_vgprs: spec.acc_vgprs,
        max_workgroup: kernel.max_workgroup,
    };
    Ok((spec.gpu, code))
}

/// A file, and what a reader would find in it.
pub(super) struct Written {
    pub file: Vec<u8>,
    /// The read-only segment, that of the code, the writable one.
    pub loads: [Phdr; 3],
    /// Address of the first kernel's descriptor.
    pub descriptor_at: u64,
    /// Address of the first kernel's code.
    pub code_at: u64,
}

struct Part {
    name: &'static str,
    header: Shdr,
    address: u64,
}

struct Writer<'a> {
    gpu: Chip,
    kernels: &'a [KernelCode],
    out: Vec<u8>,
    parts: Vec<Part>,
    text: Vec<u8>,
    /// Code of each kernel in `text`.
    entries: Vec<u64>,
}

const PHDRS: usize = 5;

/// A loaded segment.
fn load(p_flags: u32, p_offset: u64, p_vaddr: u64, len: u64) -> Phdr {
    Phdr { p_type: PT_LOAD, p_flags, p_offset, p_vaddr, p_filesz: len, p_memsz: len, p_align: PAGE }
}

impl<'a> Writer<'a> {
    fn new(gpu: Chip, kernels: &'a [KernelCode]) -> Self {
        let (fill, align, extra) = PADDING[usize::from(gpu.is_gfx9())]; // PANIC: two entries
        let (mut text, mut entries) = (Vec::new(), Vec::new());
        let pad = |text: &mut Vec<u8>, to: usize| {
            while text.len() < to {
                text.extend_from_slice(&fill.to_le_bytes());
            }
        };
        for kernel in kernels {
            let start = text.len().next_multiple_of(256);
            pad(&mut text, start);
            entries.push(wide(text.len()));
            text.extend_from_slice(&kernel.code);
        }
        let end = text.len().next_multiple_of(align) + extra;
        pad(&mut text, end);
        let out = vec![0; EHDR_BYTES + PHDRS * PHDR_BYTES];
        Self { gpu, kernels, out, parts: Vec::new(), text, entries }
    }

    /// Appends a section's bytes; `shift` is the difference of its address and its file offset.
    fn part(&mut self, name: &'static str, header: Shdr, shift: u64, bytes: &[u8]) -> u64 {
        let align = usize::try_from(header.sh_addralign.max(1)).unwrap_or(1);
        self.out.resize(self.out.len().next_multiple_of(align), 0);
        let sh_offset = wide(self.out.len());
        let header = Shdr { sh_offset, sh_size: wide(bytes.len()), ..header };
        self.parts.push(Part { name, header, address: sh_offset + shift });
        self.out.extend_from_slice(bytes);
        sh_offset + shift
    }

    fn file(mut self) -> Written {
        let note = self.note();
        let read = Shdr { sh_type: SHT_NOTE, sh_flags: SHF_ALLOC, sh_addralign: 4, ..Shdr::default() };
        self.part(".note", read, 0, &note);
        // Symbols need the addresses of what follows them: their sizes are known before.
        let count = 1 + 2 * self.kernels.len();
        let strings = self.strings();
        let hash = hash_table(&self.names(), count);
        let here = wide(self.out.len()).next_multiple_of(8);
        let hash_at = here + wide(count * SYM_BYTES);
        let strings_at = hash_at + wide(hash.len());
        let rodata_at = (strings_at + wide(strings.len())).next_multiple_of(64);
        let rodata_end = rodata_at + wide(self.kernels.len() * DESCRIPTOR_BYTES);
        let text_offset = rodata_end.next_multiple_of(ENTRY_ALIGN);
        let text_at = text_offset + PAGE;
        let symbols = self.symbols(rodata_at, text_at);
        let table = Shdr { sh_flags: SHF_ALLOC, ..Shdr::default() };
        let syms =
            Shdr { sh_type: SHT_DYNSYM, sh_link: 4, sh_info: 1, sh_addralign: 8, sh_entsize: wide(SYM_BYTES), ..table };
        self.part(".dynsym", syms, 0, &symbols);
        self.part(".hash", Shdr { sh_type: SHT_HASH, sh_link: 2, sh_addralign: 4, sh_entsize: 4, ..table }, 0, &hash);
        self.part(".dynstr", Shdr { sh_type: SHT_STRTAB, sh_addralign: 1, ..table }, 0, &strings);
        let descriptors = self.descriptors(rodata_at, text_at);
        self.part(".rodata", Shdr { sh_type: SHT_PROGBITS, sh_addralign: 64, ..table }, 0, &descriptors);
        let first_end = wide(self.out.len());
        let code =
            Shdr { sh_type: SHT_PROGBITS, sh_flags: SHF_ALLOC | SHF_EXECINSTR, sh_addralign: ENTRY_ALIGN, ..table };
        let text = std::mem::take(&mut self.text);
        self.part(".text", code, PAGE, &text);
        let sizes = (wide(count * SYM_BYTES), wide(strings.len()));
        let dynamic = dynamic_section(here, hash_at, strings_at, sizes.1);
        let link = Shdr {
            sh_type: SHT_DYNAMIC,
            sh_flags: SHF_ALLOC | SHF_WRITE,
            sh_link: 4,
            sh_addralign: 8,
            sh_entsize: 16,
            ..table
        };
        let dynamic_at = self.part(".dynamic", link, 2 * PAGE, &dynamic);
        let loads = [
            load(PF_R, 0, 0, first_end),
            load(PF_R | PF_X, text_offset, text_at, wide(text.len())),
            load(PF_R | PF_W, dynamic_at - 2 * PAGE, dynamic_at, wide(dynamic.len())),
        ];
        self.program_headers(&loads, wide(note.len()));
        self.section_headers();
        Written { file: self.out, loads, descriptor_at: rodata_at, code_at: text_at }
    }

    fn note(&self) -> Vec<u8> {
        let body = metadata(self.gpu, self.kernels);
        let mut note = Vec::new();
        for word in [7, u32::try_from(body.len()).unwrap_or(u32::MAX), NT_AMDGPU_METADATA] {
            note.extend_from_slice(&word.to_le_bytes());
        }
        note.extend_from_slice(b"AMDGPU\0\0");
        note.extend_from_slice(&body);
        note.resize(note.len().next_multiple_of(4), 0);
        note
    }

    fn names(&self) -> Vec<String> {
        self.kernels.iter().flat_map(|k| [k.name.clone(), format!("{}.kd", k.name)]).collect()
    }

    fn strings(&self) -> Vec<u8> {
        let mut all = vec![0];
        for name in self.names() {
            all.extend_from_slice(name.as_bytes());
            all.push(0);
        }
        all
    }

    fn symbols(&self, rodata_at: u64, text_at: u64) -> Vec<u8> {
        const PROTECTED: u8 = 3;
        let mut out = Vec::new();
        Sym::default().emit(&mut out);
        let mut name = 1u32;
        for (i, kernel) in self.kernels.iter().enumerate() {
            let mut symbol = |st_value, st_size, kind: u8, st_shndx, len: usize| {
                let sym = Sym {
                    st_name: name,
                    st_info: STB_GLOBAL << 4 | kind,
                    st_other: PROTECTED,
                    st_shndx,
                    st_value,
                    st_size,
                };
                sym.emit(&mut out);
                name += u32::try_from(len + 1).unwrap_or_default();
            };
            // PANIC: one entry a kernel
            symbol(text_at + self.entries[i], wide(kernel.code.len()), STT_FUNC, 6, kernel.name.len());
            let at = rodata_at + wide(i * DESCRIPTOR_BYTES);
            symbol(at, wide(DESCRIPTOR_BYTES), STT_OBJECT, 5, kernel.name.len() + 3);
        }
        out
    }

    fn descriptors(&self, rodata_at: u64, text_at: u64) -> Vec<u8> {
        let mut out = Vec::new();
        for (i, kernel) in self.kernels.iter().enumerate() {
            let here = rodata_at + wide(i * DESCRIPTOR_BYTES);
            let entry = text_at + self.entries[i]; // PANIC: one entry a kernel
            let entry_offset_bytes = entry.wrapping_sub(here).cast_signed();
            out.extend_from_slice(&KernelDescriptor { entry_offset_bytes, ..kernel.descriptor }.emit());
        }
        out
    }

    fn program_headers(&mut self, loads: &[Phdr; 3], note_len: u64) {
        let note_at = wide(EHDR_BYTES + PHDRS * PHDR_BYTES);
        let [first, code, data] = *loads;
        let note = Phdr { p_type: PT_NOTE, p_align: 4, ..load(PF_R, note_at, note_at, note_len) };
        let headers = [first, code, data, Phdr { p_type: PT_DYNAMIC, p_align: 8, ..data }, note];
        let mut raw = Vec::new();
        for header in headers {
            header.emit(&mut raw);
        }
        self.out[EHDR_BYTES..EHDR_BYTES + raw.len()].copy_from_slice(&raw); // PANIC: reserved at the start
    }

    fn section_headers(&mut self) {
        let mut names = vec![0];
        let mut rows = vec![(0u32, Shdr::default(), 0u64)];
        let strings = Shdr { sh_type: SHT_STRTAB, sh_addralign: 1, ..Shdr::default() };
        let parts = std::mem::take(&mut self.parts);
        for (name, header, address) in
            parts.iter().map(|p| (p.name, p.header, p.address)).chain([(".shstrtab", strings, 0)])
        {
            rows.push((u32::try_from(names.len()).unwrap_or_default(), header, address));
            names.extend_from_slice(name.as_bytes());
            names.push(0);
        }
        let last = rows.len() - 1;
        // PANIC: not empty
        rows[last].1 = Shdr { sh_offset: wide(self.out.len()), sh_size: wide(names.len()), ..strings };
        self.out.extend_from_slice(&names);
        self.out.resize(self.out.len().next_multiple_of(8), 0);
        let e_shoff = wide(self.out.len());
        for (sh_name, header, address) in &rows {
            let at = self.out.len();
            Shdr { sh_name: *sh_name, ..*header }.emit(&mut self.out);
            self.out[at + 16..at + 24].copy_from_slice(&address.to_le_bytes()); // PANIC: just written; sh_addr
        }
        let header = Ehdr {
            e_type: ET_DYN,
            e_machine: EM_AMDGPU,
            e_shoff,
            e_shentsize: 64,
            e_shnum: u16::try_from(rows.len()).unwrap_or_default(),
            e_shstrndx: u16::try_from(last).unwrap_or_default(),
        };
        let mut raw = Vec::new();
        header.emit(&mut raw);
        raw[7] = ELFOSABI_AMDGPU_HSA; // PANIC: constant places of a 64-byte header
        raw[8] = ELFABIVERSION_V5;
        raw[32..40].copy_from_slice(&wide(EHDR_BYTES).to_le_bytes());
        raw[48..52].copy_from_slice(&self.gpu.flags().to_le_bytes());
        raw[54..56].copy_from_slice(&56u16.to_le_bytes());
        raw[56..58].copy_from_slice(&5u16.to_le_bytes());
        self.out[..EHDR_BYTES].copy_from_slice(&raw);
    }
}

/// A SysV hash table with one bucket a symbol.
fn hash_table(names: &[String], count: usize) -> Vec<u8> {
    let buckets = names.len().max(1);
    let (mut heads, mut chain) = (vec![0u32; buckets], vec![0u32; count]);
    for (i, name) in names.iter().enumerate() {
        let hash = name.bytes().fold(0u32, |h, b| {
            let h = (h << 4).wrapping_add(u32::from(b));
            let high = h & 0xf000_0000;
            (h ^ high >> 24) & !high
        });
        let bucket = usize::try_from(hash).unwrap_or_default() % buckets;
        chain[i + 1] = heads[bucket]; // PANIC: one place a symbol
        heads[bucket] = u32::try_from(i + 1).unwrap_or_default();
    }
    let sizes = [buckets, count].map(|n| u32::try_from(n).unwrap_or_default());
    sizes.iter().chain(&heads).chain(&chain).flat_map(|w| w.to_le_bytes()).collect()
}

fn dynamic_section(symbols: u64, hash: u64, strings: u64, strings_len: u64) -> Vec<u8> {
    const DT_HASH: u64 = 4;
    const DT_STRTAB: u64 = 5;
    const DT_SYMTAB: u64 = 6;
    const DT_STRSZ: u64 = 10;
    const DT_SYMENT: u64 = 11;
    let pairs = [
        (DT_SYMTAB, symbols),
        (DT_SYMENT, wide(SYM_BYTES)),
        (DT_STRTAB, strings),
        (DT_STRSZ, strings_len),
        (DT_HASH, hash),
        (0, 0),
    ];
    pairs.iter().flat_map(|(tag, value)| [tag.to_le_bytes(), value.to_le_bytes()]).flatten().collect()
}

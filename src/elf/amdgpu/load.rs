//! A code object → the bytes for the GPU: segments, kernels, relocations.
//!
//! In linked objects (ET_DYN) program headers give the layout; of relocatable ones the sections are placed one after
//! the other, each group of equal permission on pages of its own. Source: AMDGPUUsage «Relocation Records», «Code
//! Object Loading».

use super::arguments::{self, Noted};
use super::chip::Chip;
use super::descriptor::{DESCRIPTOR_BYTES, KernelDescriptor};
use super::file::*;
use super::metadata::{Arg, ArgKind};
use super::write::{kernel_code, written};
use crate::abi::*;
use crate::error::ElfError;
use crate::image::MAX_IMAGE_BYTES;
use crate::num::{align_up, index, wide};
use crate::object::{Machine, Object};
use crate::parse::{ElfFile, FileSection, Place, array_at, bytes_at};
use doorbell_sort as sort;
use std::collections::HashMap;

/// Instruction prefetch may run so far past the last instruction.
const PREFETCH_BYTES: u64 = 1024;
const PAGE: u64 = 4096;

/// Part of the image with one permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadSegment {
    /// Bytes from the image's start.
    pub start: u64,
    /// Bytes in memory; those that the file lacks are zero.
    pub len_bytes: u64,
    /// Data that kernels may write.
    pub writable: bool,
    /// Code.
    pub executable: bool,
}

/// A kernel of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Name of its descriptor's symbol, without `.kd`.
    pub name: String,
    /// As in the file; of its three sizes each is the larger one of descriptor and metadata.
    pub descriptor: KernelDescriptor,
    /// Offset of the descriptor from the image's start.
    pub descriptor_offset: u64,
    /// Offset of the first instruction.
    pub entry_offset: u64,
    /// Bytes of its code; 0 when the object does not specify it.
    pub code_bytes: u64,
    /// Its arguments, in the order of their offsets, without the hidden ones; none when the object does not specify
    /// them.
    pub args: Option<Vec<Arg>>,
    /// Where descriptor and metadata say different things, and which of them is used.
    pub remarks: Vec<String>,
}

/// A 64- or 32-bit field that waits for the address: base + addend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fixup {
    at: u64,
    kind: u32,
    value: u64,
}

/// A code object that has been checked and can be placed anywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeObject {
    /// The chip that `e_flags` names, if it is one of ours; else the flags' low byte.
    pub gpu: Result<Chip, u32>,
    /// In the order of the program headers; of a relocatable file constants, code, data.
    pub segments: Vec<LoadSegment>,
    /// By name.
    pub kernels: Vec<Kernel>,
    /// All functions with their offsets from the image's start, kernels among them, by offset.
    pub functions: Vec<(String, u64)>,
    bytes: Vec<u8>,
    fixups: Vec<Fixup>,
}

mod reloc {
    pub(crate) const NONE: u32 = 0;
    pub(crate) const ABS32_LO: u32 = 1;
    pub(crate) const ABS32_HI: u32 = 2;
    pub(crate) const ABS64: u32 = 3;
    pub(crate) const REL32: u32 = 4;
    pub(crate) const REL64: u32 = 5;
    pub(crate) const ABS32: u32 = 6;
    pub(crate) const REL32_LO: u32 = 10;
    pub(crate) const REL32_HI: u32 = 11;
    pub(crate) const RELATIVE64: u32 = 13;
    pub(crate) const REL16: u32 = 14;
}

/// Completes the descriptor from the metadata, and says where they contradict each other: what one of them leaves out
/// (0) the other gives; of two sizes the larger holds.
fn complete(d: &mut KernelDescriptor, noted: &Noted) -> Vec<String> {
    let end = |a: &Arg| a.offset_bytes.saturating_add(a.size_bytes);
    let args = noted.args.iter().flatten().map(end).max();
    // A note without a size has one by its arguments.
    let kernarg = noted.kernarg_bytes.filter(|n| *n != 0).or(args);
    let sizes = [
        ("kernarg size", &mut d.kernarg_bytes, kernarg),
        ("group segment", &mut d.group_segment_bytes, noted.group_segment_bytes),
        ("private segment", &mut d.private_segment_bytes, noted.private_segment_bytes),
    ];
    let mut remarks = Vec::new();
    for (what, own, noted) in sizes {
        let Some(noted) = noted.filter(|n| n != own) else { continue };
        // A note that leaves it out (0) says nothing.
        if noted != 0 {
            let most = noted.max(*own);
            remarks.push(format!("{what}: {own} bytes in the descriptor, {noted} in the metadata, {most} are used"));
            *own = most;
        }
    }
    remarks
}

/// The arguments that a caller passes, if the metadata has any that the descriptor knows.
fn passed(mut args: Vec<Arg>, d: &KernelDescriptor, offset: u64) -> Result<Option<Vec<Arg>>, ElfError> {
    if args.is_empty() && d.kernarg_bytes != 0 {
        return Ok(None);
    }
    sort::by_key(&mut args, |arg| arg.offset_bytes);
    let mut end = 0u64;
    for arg in &args {
        let (at, next) = (u64::from(arg.offset_bytes), u64::from(arg.offset_bytes) + u64::from(arg.size_bytes));
        if at < end || next > u64::from(d.kernarg_bytes) {
            return Err(outside("kernel argument", offset, next, index(d.kernarg_bytes.into())));
        }
        end = next;
    }
    args.retain(|arg| arg.kind != ArgKind::Hidden);
    Ok(Some(args))
}

/// Where a kernel is in the image, and how long its code is.
struct Places {
    descriptor_offset: u64,
    entry_offset: u64,
    code_bytes: u64,
}

/// A kernel by its descriptor and its metadata. `offset` is where the file names it.
fn kernel(
    name: String,
    mut descriptor: KernelDescriptor,
    places: Places,
    noted: Noted,
    offset: u64,
) -> Result<Kernel, ElfError> {
    let remarks = complete(&mut descriptor, &noted);
    let args = noted.args.map(|all| passed(all, &descriptor, offset)).transpose()?.flatten();
    let Places { descriptor_offset, entry_offset, code_bytes } = places;
    Ok(Kernel { name, descriptor, descriptor_offset, entry_offset, code_bytes, args, remarks })
}

/// Whether the bytes begin like an ELF file for AMD's GPUs.
#[must_use]
pub fn is_amdgpu(bytes: &[u8]) -> bool {
    bytes.starts_with(&ELFMAG) && bytes.get(18..20) == Some(&EM_AMDGPU.to_le_bytes())
}

impl CodeObject {
    /// Checks the file and lays it out.
    ///
    /// # Errors
    /// A malformed file, one for another machine, a relocation that this loader does not apply, a kernel whose
    /// descriptor or entry is outside.
    pub fn parse(bytes: &[u8]) -> Result<CodeObject, ElfError> {
        let file = ElfFile::parse_any(bytes)?;
        if file.machine() != Machine::Amdgpu {
            let found = u64::from(crate::x86_64::EM_X86_64);
            return Err(ElfError::BadField { what: "e_machine", offset: 18, found, expected: "EM_AMDGPU" });
        }
        let header: &[u8; EHDR_BYTES] = array_at(bytes, "file header", 0)?;
        let flags = u32_at(header, 48);
        let gpu = Chip::from_flags(flags).ok_or(flags & 0xff);
        let mut object = if file.is_relocatable() { Self::link(&file)? } else { Self::linked(bytes, header, &file)? };
        object.gpu = gpu;
        sort::by(&mut object.kernels, |a, b| a.name.cmp(&b.name));
        Ok(object)
    }

    /// The code object of one kernel that `isa` made: what [`CodeObject::parse`] reads in the file that
    /// [`write`](crate::write) makes of it. The file is made, since its headers and note are part of the image, but not
    /// read.
    ///
    /// # Errors
    /// An object without kernel, name or code; arguments that overlap or lie beyond the kernel's argument segment.
    pub fn of_object(object: &Object) -> Result<CodeObject, ElfError> {
        let (chip, code) = kernel_code(object)?;
        let written = written(chip, std::slice::from_ref(&code))?;
        let mut own = Self::empty();
        own.gpu = Ok(chip);
        own.load(&written.loads, &written.file, 0)?;
        let entry_offset_bytes = written.code_at.wrapping_sub(written.descriptor_at).cast_signed();
        let descriptor = KernelDescriptor { entry_offset_bytes, ..code.descriptor };
        let noted = Noted {
            kernarg_bytes: Some(descriptor.kernarg_bytes),
            group_segment_bytes: Some(descriptor.group_segment_bytes),
            private_segment_bytes: Some(descriptor.private_segment_bytes),
            args: Some(code.args),
        };
        let places = Places {
            descriptor_offset: written.descriptor_at,
            entry_offset: written.code_at,
            code_bytes: wide(code.code.len()),
        };
        own.functions.push((code.name.clone(), written.code_at));
        own.kernels.push(kernel(code.name, descriptor, places, noted, written.descriptor_at)?);
        Ok(own)
    }

    fn empty() -> CodeObject {
        CodeObject {
            gpu: Err(0),
            segments: Vec::new(),
            kernels: Vec::new(),
            functions: Vec::new(),
            bytes: Vec::new(),
            fixups: Vec::new(),
        }
    }

    /// A linked object: segments according to the program headers.
    fn linked(bytes: &[u8], header: &[u8; EHDR_BYTES], file: &ElfFile) -> Result<CodeObject, ElfError> {
        let (at, count) = (u64_at(header, 32), u64::from(u32_at(header, 56) & 0xffff));
        let rows = bytes_at(bytes, "program headers", at, count * wide(PHDR_BYTES))?;
        let (rows, _) = rows.as_chunks::<PHDR_BYTES>();
        let loads: Vec<Phdr> = rows.iter().map(Phdr::parse).filter(|p| p.p_type == PT_LOAD).collect();
        let mut object = Self::empty();
        object.load(&loads, bytes, at)?;
        let symbols: Vec<u64> = file.symbols().iter().map(|s| s.sym.st_value).collect();
        for section in file.sections().iter().filter(|s| s.header.sh_type == SHT_RELA) {
            for (offset, rela) in raw_relocations(file, section)? {
                let value = match symbols.get(index(u64::from(rela.r_sym))) {
                    Some(value) => *value,
                    None if rela.r_sym == 0 => 0,
                    None => {
                        let (index, count) = (u64::from(rela.r_sym), wide(symbols.len()));
                        return Err(ElfError::BadIndex { what: "r_sym", offset, index, count });
                    }
                };
                object.relocate(offset, rela.r_offset, &rela, value)?;
            }
        }
        object.find_kernels(file, |_, value| Some(value))?;
        Ok(object)
    }

    /// Lays out the segments of a file, whose headers are at `at`.
    fn load(&mut self, loads: &[Phdr], file: &[u8], at: u64) -> Result<(), ElfError> {
        let need = loads.iter().map(|load| load.p_vaddr.saturating_add(load.p_memsz)).max().unwrap_or(0);
        self.reserve(need, wide(file.len()))?;
        for load in loads {
            if load.p_filesz > load.p_memsz {
                return Err(outside("p_filesz", at, load.p_filesz, index(load.p_memsz)));
            }
            let from = bytes_at(file, "segment", load.p_offset, load.p_filesz)?;
            self.copy(load.p_vaddr, from)?;
            self.segments.push(LoadSegment {
                start: load.p_vaddr,
                len_bytes: load.p_memsz,
                writable: load.p_flags & PF_W != 0,
                executable: load.p_flags & PF_X != 0,
            });
        }
        Ok(())
    }

    /// A relocatable object: sections one after the other.
    fn link(file: &ElfFile) -> Result<CodeObject, ElfError> {
        let mut object = Self::empty();
        let mut places = vec![None; file.sections().len()];
        let mut end = 0u64;
        let too_big = || ElfError::ImageTooBig { need_bytes: u64::MAX, max_bytes: MAX_IMAGE_BYTES };
        for wanted in [0, SHF_EXECINSTR, SHF_WRITE] {
            end = align_up(end, PAGE).ok_or_else(too_big)?;
            let start = end;
            for (i, section) in file.sections().iter().enumerate() {
                let h = &section.header;
                if h.sh_flags & SHF_ALLOC == 0 || h.sh_flags & (SHF_EXECINSTR | SHF_WRITE) != wanted {
                    continue;
                }
                let align_bytes = h.sh_addralign.max(1);
                if !align_bytes.is_power_of_two() || align_bytes > PAGE {
                    return Err(ElfError::BadAlign { offset: section.header_offset, align_bytes, max_bytes: PAGE });
                }
                let at = align_up(end, align_bytes).ok_or_else(too_big)?;
                places[i] = Some(at); // PANIC: one place a section
                end = at.checked_add(h.sh_size).filter(|e| *e <= MAX_IMAGE_BYTES).ok_or_else(too_big)?;
            }
            if end > start {
                let (writable, executable) = (wanted == SHF_WRITE, wanted == SHF_EXECINSTR);
                object.segments.push(LoadSegment { start, len_bytes: end - start, writable, executable });
            }
        }
        object.reserve(end, file.file_bytes())?;
        for (section, place) in file.sections().iter().zip(&places) {
            if let Some(at) = place {
                object.copy(*at, file.contents(section)?)?;
            }
        }
        let address = |place: Place, value: u64| match place {
            Place::Section(i) => places.get(i).copied().flatten()?.checked_add(value),
            _ => None,
        };
        for table in file.sections().iter().filter(|s| s.header.sh_type == SHT_RELA) {
            let Some(base) = places.get(index(u64::from(table.header.sh_info))).copied().flatten() else { continue };
            for (offset, rela) in file.relocations(table)? {
                let symbol = &file.symbols()[index(u64::from(rela.r_sym))]; // PANIC: checked by `relocations`
                let value = address(symbol.place, symbol.sym.st_value);
                let value = value.ok_or_else(|| ElfError::Undefined { name: symbol.name.to_owned() })?;
                let at = base.checked_add(rela.r_offset).ok_or_else(too_big)?;
                object.relocate(offset, at, &rela, value)?;
            }
        }
        object.find_kernels(file, address)?;
        Ok(object)
    }

    fn reserve(&mut self, need_bytes: u64, file_bytes: u64) -> Result<(), ElfError> {
        if need_bytes == 0 {
            return Err(ElfError::NothingToLoad { file_bytes });
        }
        let padded =
            need_bytes.checked_add(PREFETCH_BYTES).and_then(|n| align_up(n, PAGE)).filter(|n| *n <= MAX_IMAGE_BYTES);
        let Some(padded) = padded else {
            return Err(ElfError::ImageTooBig { need_bytes, max_bytes: MAX_IMAGE_BYTES });
        };
        self.bytes = vec![0; index(padded)];
        Ok(())
    }

    fn copy(&mut self, at: u64, from: &[u8]) -> Result<(), ElfError> {
        let (limit, end) = (self.bytes.len(), at.saturating_add(wide(from.len())));
        let place = self.bytes.get_mut(index(at)..index(end)).ok_or_else(|| outside("segment", at, end, limit))?;
        place.copy_from_slice(from);
        Ok(())
    }

    /// Applies a relocation whose value does not depend on the base, keeps others for [`CodeObject::image`]. `s` is the
    /// symbol's address.
    fn relocate(&mut self, offset: u64, at: u64, rela: &Rela, s: u64) -> Result<(), ElfError> {
        let value = s.wrapping_add(rela.r_addend.cast_unsigned());
        let distance = value.wrapping_sub(at);
        match rela.r_type {
            reloc::NONE => Ok(()),
            reloc::REL64 => self.store(offset, at, &distance.to_le_bytes()),
            reloc::REL32 | reloc::REL32_LO => self.store(offset, at, &distance.to_le_bytes()[..4]),
            reloc::REL32_HI => self.store(offset, at, &distance.to_le_bytes()[4..]),
            reloc::REL16 => {
                let dwords = distance.cast_signed().wrapping_sub(4) / 4;
                let at_field = i16::try_from(dwords).map_err(|_| ElfError::Overflow {
                    kind: "R_AMDGPU_REL16",
                    symbol: format!("image offset {s:#x}"),
                    at,
                    value: i128::from(dwords),
                })?;
                self.store(offset, at, &at_field.to_le_bytes())
            }
            reloc::RELATIVE64 | reloc::ABS64 | reloc::ABS32_LO | reloc::ABS32_HI | reloc::ABS32 => {
                let width = if matches!(rela.r_type, reloc::RELATIVE64 | reloc::ABS64) { 8 } else { 4 };
                let value = if rela.r_type == reloc::RELATIVE64 { rela.r_addend.cast_unsigned() } else { value };
                self.store(offset, at, &[0; 8][..width])?;
                self.fixups.push(Fixup { at, kind: rela.r_type, value });
                Ok(())
            }
            kind => Err(ElfError::UnsupportedRelocation { kind, symbol: format!("image offset {s:#x}"), offset }),
        }
    }

    fn store(&mut self, offset: u64, at: u64, from: &[u8]) -> Result<(), ElfError> {
        let limit = self.bytes.len();
        let end = at.saturating_add(wide(from.len()));
        let place = self.bytes.get_mut(index(at)..index(end));
        place.ok_or_else(|| outside("relocated field", offset, end, limit))?.copy_from_slice(from);
        Ok(())
    }

    fn find_kernels(&mut self, file: &ElfFile, address: impl Fn(Place, u64) -> Option<u64>) -> Result<(), ElfError> {
        // A file of many names would otherwise cost their square.
        let mut functions: HashMap<&str, u64> = HashMap::new();
        for symbol in file.symbols().iter().filter(|s| s.kind() == STT_FUNC) {
            functions.entry(symbol.name).or_insert(symbol.sym.st_size);
            if symbol.place != Place::Undefined
                && let Some(at) = address(symbol.place, symbol.sym.st_value)
            {
                self.functions.push((symbol.name.to_owned(), at));
            }
        }
        sort::by(&mut self.functions, |a, b| (a.1, &a.0).cmp(&(b.1, &b.0)));
        let mut arguments = arguments::read(file)?;
        for symbol in file.symbols() {
            let Some(name) = symbol.name.strip_suffix(".kd") else { continue };
            let place =
                if symbol.place == Place::Undefined { None } else { address(symbol.place, symbol.sym.st_value) };
            let Some(descriptor_offset) = place else { continue };
            let end = descriptor_offset.saturating_add(wide(DESCRIPTOR_BYTES));
            let raw = self.bytes.get(index(descriptor_offset)..index(end)).and_then(|b| b.first_chunk());
            let raw = raw.ok_or_else(|| outside("kernel descriptor", symbol.offset, end, self.bytes.len()))?;
            let descriptor = KernelDescriptor::parse(raw);
            let entry = descriptor_offset.checked_add_signed(descriptor.entry_offset_bytes);
            let entry = entry.filter(|e| *e < wide(self.bytes.len()));
            let Some(entry_offset) = entry else {
                let end = descriptor_offset.wrapping_add_signed(descriptor.entry_offset_bytes);
                return Err(outside("kernel entry", symbol.offset, end, self.bytes.len()));
            };
            let code_bytes = functions.get(name).copied().unwrap_or(0);
            let noted = arguments.remove(symbol.name).unwrap_or_default();
            let places = Places { descriptor_offset, entry_offset, code_bytes };
            self.kernels.push(kernel(name.to_owned(), descriptor, places, noted, symbol.offset)?);
        }
        Ok(())
    }

    /// The kernel of that name.
    #[must_use]
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|k| k.name == name)
    }

    /// Bytes of memory that the image needs, padding for instruction prefetch included; a multiple of a page.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes before relocation: offsets in them are those of segments and kernels.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The code of a kernel: to the next kernel's entry at most, if the object does not specify its size.
    #[must_use]
    pub fn code(&self, kernel: &Kernel) -> &[u8] {
        let end = self.segments.iter().find(|s| (s.start..s.start + s.len_bytes).contains(&kernel.entry_offset));
        let end = end.map_or(kernel.entry_offset, |s| s.start + s.len_bytes);
        let next = self.kernels.iter().map(|k| k.entry_offset).filter(|e| *e > kernel.entry_offset).min();
        let end = match kernel.code_bytes {
            0 => next.map_or(end, |n| n.min(end)),
            n => end.min(kernel.entry_offset.saturating_add(n)),
        };
        self.bytes.get(index(kernel.entry_offset)..index(end)).unwrap_or_default()
    }

    /// The image's memory, `size()` bytes, for execution at `base` of the GPU's address space.
    ///
    /// # Errors
    /// A base that is no multiple of a page.
    pub fn image(&self, base: u64) -> Result<Vec<u8>, ElfError> {
        let size_bytes = wide(self.bytes.len());
        if !base.is_multiple_of(PAGE) || base.checked_add(size_bytes).is_none() {
            return Err(ElfError::BadBase { base, size_bytes, align_bytes: PAGE });
        }
        let mut out = self.bytes.clone();
        for fixup in &self.fixups {
            let value = base.wrapping_add(fixup.value).to_le_bytes();
            let part = match fixup.kind {
                reloc::RELATIVE64 | reloc::ABS64 => &value[..],
                reloc::ABS32_HI => &value[4..],
                _ => &value[..4],
            };
            let at = index(fixup.at);
            out[at..at + part.len()].copy_from_slice(part); // PANIC: `relocate` has written there
        }
        Ok(out)
    }
}

/// The rows of a relocation table, whatever symbol table it belongs to.
fn raw_relocations(file: &ElfFile, section: &FileSection) -> Result<Vec<(u64, Rela)>, ElfError> {
    let (rows, rest) = file.contents(section)?.as_chunks::<RELA_BYTES>();
    if !rest.is_empty() {
        let (offset, found) = (section.header_offset, section.header.sh_size);
        return Err(ElfError::BadField { what: "rela sh_size", offset, found, expected: "a multiple of 24" });
    }
    let at = section.header.sh_offset;
    Ok(rows.iter().enumerate().map(|(i, raw)| (at.saturating_add(wide(i * RELA_BYTES)), Rela::parse(raw))).collect())
}

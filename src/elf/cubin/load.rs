//! A cubin → one image, its kernels and their constant banks.

use super::info::{Attribute, id};
use crate::abi::*;
use crate::error::ElfError;
use crate::image::MAX_IMAGE_BYTES;
use crate::num::{align_up, index, wide};
use crate::object::Machine;
use crate::parse::{ElfFile, FileSection, Place, is_second_code};
use doorbell_sort as sort;
use std::collections::HashMap;

/// Alignment of code in the image; the hardware requires it of a program's address.
pub(super) const CODE_ALIGN: u64 = 128;
/// Alignment of constant banks: the largest that any chip requires.
const BANK_ALIGN: u64 = 256;
/// Mapped memory after the image: instructions are prefetched.
pub(super) const PREFETCH_BYTES: u64 = 4096;
/// What bases are multiples of.
pub(super) const PAGE: u64 = 4096;
/// `st_other` of a symbol that can be launched.
pub(super) const STO_ENTRY: u8 = 0x10;
/// A constant bank's size at most.
const MAX_BANK_BYTES: u64 = 1 << 16;

mod reloc {
    /// 64 bits: the address.
    pub(crate) const ABS64: u32 = 2;
    /// 64 bits: the generic address, which for global memory is the address.
    pub(crate) const GENERIC64: u32 = 4;
    /// The low or the high half in the immediate of an instruction, its second word.
    pub(crate) const ABS32_LO: u32 = 0x38;
    pub(crate) const ABS32_HI: u32 = 0x39;
}

/// A constant bank with contents, to be bound at a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bank {
    /// 2 (a kernel's own), 3 (`__constant__`) or 4 (addresses).
    pub number: u32,
    /// From the image's start; a multiple of 256.
    pub offset: u64,
    /// As bound: rounded up to 16.
    pub len_bytes: u32,
}

/// A parameter of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Param {
    /// From the parameters' start.
    pub offset: u32,
    /// Its own size; padding may follow.
    pub len_bytes: u32,
}

/// A kernel and what a launch of it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Symbol of the code, as the compiler mangled it.
    pub name: String,
    /// Of the first instruction, from the image's start; a multiple of 128.
    pub code_offset: u64,
    /// Bytes of code that its symbol covers.
    pub code_bytes: u64,
    /// Registers a thread, the hidden ones included.
    pub registers: u32,
    /// Named barriers of a CTA; 16 where the code computes their numbers.
    pub barriers: u32,
    /// Size of `.nv.shared.KERNEL`: from sm_90 on with the reserved KiB.
    pub shared_bytes: u32,
    /// Stack a thread; `None` where it has no bound (recursion, calls by pointer).
    pub stack_bytes: Option<u32>,
    /// Where parameters begin in constant bank 0.
    pub param_base: u32,
    /// Bytes of constant bank 0 up to the parameters' end.
    pub bank0_bytes: u32,
    /// By offset.
    pub params: Vec<Param>,
    /// Threads that a CTA must have (`.reqntid`).
    pub required_block: Option<[u32; 3]>,
    /// Threads that a CTA may have at most (`.maxntid`): the product of the three.
    pub max_block: Option<[u32; 3]>,
    /// CTAs of a cluster, where the kernel declares them (`.reqnctapercluster`).
    pub cluster: Option<[u32; 3]>,
    /// There must be clusters, of a size that the launch or the kernel gives (`.explicitcluster`).
    pub wants_cluster: bool,
    /// CTAs that a cluster may have at most (`.maxclusterrank`).
    pub max_cluster: Option<u32>,
    /// Its own bank 2, and the file's banks 3 and 4.
    pub banks: Vec<Bank>,
}

/// A 64- or 32-bit field that waits for the image's address, or for the address of what is defined elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fixup {
    at: u64,
    kind: u32,
    pub(super) value: u64,
    /// Which of the undefined names the value counts from; `None`: the image.
    pub(super) from: Option<usize>,
}

/// A cubin that has been checked and can be placed anywhere.
#[derive(Clone, Debug)]
pub struct Cubin {
    /// Compute capability: 90 of sm_90 and sm_90a.
    pub sm: u32,
    /// By name.
    pub kernels: Vec<Kernel>,
    pub(super) bytes: Vec<u8>,
    pub(super) fixups: Vec<Fixup>,
    /// Names that something in the file refers to and that the runtime has to provide.
    pub(super) undefined: Vec<String>,
    /// Why the file can be read and not be loaded.
    unsupported: Option<ElfError>,
}

/// Whether the bytes begin like a cubin.
#[must_use]
pub fn is_cubin(bytes: &[u8]) -> bool {
    bytes.starts_with(&ELFMAG) && bytes.get(18..20) == Some(&EM_CUDA.to_le_bytes())
}

/// A file's sections, each with its offset in the image where it has one.
struct Placed<'f, 'a> {
    file: &'f ElfFile<'a>,
    places: Vec<Option<u64>>,
}

impl Placed<'_, '_> {
    fn place(&self, name: &str) -> Option<(u64, &FileSection<'_>)> {
        let at = self.file.sections().iter().position(|s| s.name == name)?;
        Some((self.places[at]?, &self.file.sections()[at])) // PANIC: one place a section
    }

    /// Bytes of a section, at most `max`; 0 where there is no such section.
    fn size(&self, name: &str, max: u64) -> Result<u32, ElfError> {
        let Some(section) = self.file.sections().iter().find(|s| s.name == name) else { return Ok(0) };
        if section.header.sh_size > max {
            let (name, offset) = (name.to_owned(), section.header_offset);
            return Err(ElfError::UnsupportedSection { name, offset, why: "it is larger than any chip has" });
        }
        Ok(section.header.sh_size as u32)
    }

    /// The attributes of a section; none where there is no such section.
    fn attributes(&self, name: &str) -> Result<Vec<Attribute<'_>>, ElfError> {
        match self.file.sections().iter().find(|s| s.name == name) {
            Some(s) => Attribute::parse_all(self.file.contents(s)?, s.header.sh_offset),
            None => Ok(Vec::new()),
        }
    }
}

impl Cubin {
    /// Checks the file and lays it out.
    ///
    /// # Errors
    /// A malformed file, one for another machine or not linked, an attribute that cannot be read, a kernel without
    /// code. Names that are not defined and relocations that this loader does not know are errors of [`Cubin::image`].
    pub fn parse(bytes: &[u8]) -> Result<Cubin, ElfError> {
        let file = ElfFile::parse_any(bytes)?;
        let header = file.header()?;
        if file.machine() != Machine::Cuda {
            let found = u64::from(u16::from_le_bytes([header[18], header[19]]));
            return Err(ElfError::BadField { what: "e_machine", offset: 18, found, expected: "EM_CUDA" });
        }
        let flags = u32::from_le_bytes([header[48], header[49], header[50], header[51]]);
        let sm = match header[7] {
            0x41 => flags >> 8 & 0xff,
            0x33 => flags & 0xff,
            found => {
                let expected = "0x33 or 0x41 (cubin versions 7 and 8)";
                return Err(ElfError::BadField { what: "EI_OSABI", offset: 7, found: found.into(), expected });
            }
        };
        let (places, bytes) = lay_out(&file)?;
        let placed = Placed { file: &file, places };
        let mut cubin =
            Cubin { sm, kernels: Vec::new(), bytes, fixups: Vec::new(), undefined: Vec::new(), unsupported: None };
        cubin.relocate(&placed)?;
        cubin.find_kernels(&placed)?;
        sort::by(&mut cubin.kernels, |a, b| a.name.cmp(&b.name));
        Ok(cubin)
    }

    fn relocate(&mut self, placed: &Placed) -> Result<(), ElfError> {
        let mut names = HashMap::new();
        for table in placed.file.sections() {
            let entry = match table.header.sh_type {
                SHT_RELA => 24,
                SHT_REL => 16,
                _ => continue,
            };
            // Tables of sections that are not loaded are for debuggers.
            if is_second_code(table.name) {
                continue;
            }
            let Some(base) = placed.places.get(index(table.header.sh_info.into())).copied().flatten() else { continue };
            let rows = placed.file.contents(table)?;
            if rows.len() % entry != 0 {
                let (offset, found) = (table.header_offset, table.header.sh_size);
                return Err(ElfError::BadField {
                    what: "relocations' sh_size",
                    offset,
                    found,
                    expected: "whole entries",
                });
            }
            for (n, raw) in rows.chunks_exact(entry).enumerate() {
                let offset = table.header.sh_offset.saturating_add(wide(n * entry));
                let mut whole = [0u8; RELA_BYTES];
                whole[..entry].copy_from_slice(raw); // PANIC: an entry is 16 or 24 bytes
                let rela = Rela::parse(&whole);
                self.relocation(placed, &mut names, (base, entry == 16), offset, &rela)?;
            }
        }
        Ok(())
    }

    /// `place` is the section's offset, and whether the addend is in the field; `names` has the numbers of undefined
    /// names.
    fn relocation<'n>(
        &mut self,
        placed: &Placed<'_, 'n>,
        names: &mut HashMap<&'n str, usize>,
        place: (u64, bool),
        offset: u64,
        rela: &Rela,
    ) -> Result<(), ElfError> {
        let (base, in_place) = place;
        let symbols = placed.file.symbols();
        let Some(symbol) = symbols.get(index(rela.r_sym.into())) else {
            let (index, count) = (u64::from(rela.r_sym), wide(symbols.len()));
            return Err(ElfError::BadIndex { what: "r_sym", offset, index, count });
        };
        let value = match symbol.place {
            Place::Section(s) => placed.places.get(s).copied().flatten(),
            _ => None,
        };
        let from = value.is_none().then(|| {
            *names.entry(symbol.name).or_insert_with(|| {
                self.undefined.push(symbol.name.to_owned());
                self.undefined.len() - 1
            })
        });
        let value = value.map_or(0, |place| place.wrapping_add(symbol.sym.st_value));
        let (skip, width) = match rela.r_type {
            reloc::ABS64 | reloc::GENERIC64 => (0, 8),
            reloc::ABS32_LO | reloc::ABS32_HI => (4, 4),
            kind => {
                let error = ElfError::UnsupportedRelocation { kind, symbol: symbol.name.to_owned(), offset };
                self.unsupported.get_or_insert(error);
                return Ok(());
            }
        };
        let at = base.saturating_add(rela.r_offset).saturating_add(skip);
        let limit = wide(self.bytes.len());
        let end = at.saturating_add(width);
        let outside = ElfError::OutOfSection { what: "relocated field", offset, end, limit };
        let field = self.bytes.get(index(at)..index(end)).ok_or(outside)?;
        let addend = match field.first_chunk::<8>() {
            Some(inside) if in_place => u64::from_le_bytes(*inside),
            _ => rela.r_addend.cast_unsigned(),
        };
        self.fixups.push(Fixup { at, kind: rela.r_type, value: value.wrapping_add(addend), from });
        Ok(())
    }

    fn find_kernels(&mut self, placed: &Placed) -> Result<(), ElfError> {
        let shared = placed.attributes(".nv.info")?;
        for (number, symbol) in placed.file.symbols().iter().enumerate() {
            if symbol.kind() != STT_FUNC || symbol.sym.st_other & STO_ENTRY == 0 {
                continue;
            }
            let text = match symbol.place {
                Place::Section(s) => placed.file.sections().get(s).zip(placed.places.get(s).copied().flatten()),
                _ => None,
            };
            let no_code = || ElfError::UnsupportedSymbol {
                name: symbol.name.to_owned(),
                offset: symbol.offset,
                why: "a kernel without code",
            };
            let (text, start) = text.ok_or_else(no_code)?;
            let end = symbol.sym.st_value.checked_add(symbol.sym.st_size).filter(|e| *e <= text.header.sh_size);
            if end.is_none() || !symbol.sym.st_value.is_multiple_of(CODE_ALIGN) {
                let (end, limit) = (symbol.sym.st_value.saturating_add(symbol.sym.st_size), text.header.sh_size);
                return Err(ElfError::OutOfSection { what: "kernel", offset: symbol.offset, end, limit });
            }
            let mut kernel = Kernel {
                name: symbol.name.to_owned(),
                code_offset: start + symbol.sym.st_value,
                code_bytes: symbol.sym.st_size,
                // Before sm_90 the section's own fields have them, too.
                registers: text.header.sh_info >> 24,
                barriers: (text.header.sh_flags >> 20 & 0x7f) as u32,
                shared_bytes: 0,
                stack_bytes: Some(0),
                param_base: 0,
                bank0_bytes: 0,
                params: Vec::new(),
                required_block: None,
                max_block: None,
                cluster: None,
                wants_cluster: false,
                max_cluster: None,
                banks: Vec::new(),
            };
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            kernel.shared_attributes(&shared, number)?;
            kernel.own_attributes(&placed.attributes(&format!(".nv.info.{}", symbol.name))?)?;
            kernel.sections(placed)?;
            self.kernels.push(kernel);
        }
        Ok(())
    }

    /// The kernel of that name.
    #[must_use]
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|k| k.name == name)
    }

    /// Bytes of memory that the image needs, the tail for instruction prefetch included; a multiple of a page.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The code of a kernel, before relocation.
    #[must_use]
    pub fn code(&self, kernel: &Kernel) -> &[u8] {
        let end = kernel.code_offset.saturating_add(kernel.code_bytes);
        self.bytes.get(index(kernel.code_offset)..index(end)).unwrap_or_default()
    }

    /// Names that the runtime has to provide: `vprintf`, `__assertfail`, `malloc`, `free`.
    #[must_use]
    pub fn undefined(&self) -> &[String] {
        &self.undefined
    }

    /// The image's memory, `size()` bytes, for `base` of the GPU's address space.
    ///
    /// # Errors
    /// A base that is no multiple of a page, a name that is not defined, a relocation that this loader does not know.
    pub fn image(&self, base: u64) -> Result<Vec<u8>, ElfError> {
        self.image_with(base, &|_| None)
    }

    /// As [`Cubin::image`]; `resolve` returns the address of a name that is not defined in the file.
    ///
    /// # Errors
    /// As [`Cubin::image`], with names that `resolve` does not know.
    pub fn image_with(&self, base: u64, resolve: &dyn Fn(&str) -> Option<u64>) -> Result<Vec<u8>, ElfError> {
        if let Some(error) = &self.unsupported {
            return Err(error.clone());
        }
        let found = |name: &String| resolve(name).ok_or_else(|| ElfError::Undefined { name: name.clone() });
        let found = self.undefined.iter().map(found).collect::<Result<Vec<u64>, _>>()?;
        let size_bytes = wide(self.bytes.len());
        if !base.is_multiple_of(PAGE) || base.checked_add(size_bytes).is_none() {
            return Err(ElfError::BadBase { base, size_bytes, align_bytes: PAGE });
        }
        let mut out = self.bytes.clone();
        for fixup in &self.fixups {
            let start = fixup.from.map_or(base, |name| found[name]); // PANIC: made together with the names
            let value = start.wrapping_add(fixup.value).to_le_bytes();
            let part = match fixup.kind {
                reloc::ABS32_LO => &value[..4],
                reloc::ABS32_HI => &value[4..],
                _ => &value[..],
            };
            let at = index(fixup.at);
            out[at..at + part.len()].copy_from_slice(part); // PANIC: `relocation` has looked at the field
        }
        Ok(out)
    }
}

impl Kernel {
    /// Attributes of the whole file, each about one symbol.
    fn shared_attributes(&mut self, all: &[Attribute], symbol: u32) -> Result<(), ElfError> {
        let (mut frame, mut stack) = (None, None);
        for a in all {
            if !matches!(a.id, id::REGCOUNT | id::FRAME_SIZE | id::MIN_STACK_SIZE) {
                continue;
            }
            let [about, value] = a.words()?;
            if about != symbol {
                continue;
            }
            match a.id {
                id::REGCOUNT => self.registers = value,
                id::FRAME_SIZE => frame = Some(value),
                _ => stack = Some(value),
            }
        }
        // All ones: the calls below have no bound that the compiler knows.
        self.stack_bytes = match stack.or(frame).unwrap_or(0) {
            u32::MAX => None,
            bytes => Some(bytes),
        };
        Ok(())
    }

    fn own_attributes(&mut self, all: &[Attribute]) -> Result<(), ElfError> {
        for a in all {
            match a.id {
                id::NUM_BARRIERS => self.barriers = a.number()?,
                id::PARAM_CBANK => {
                    let [_, place] = a.words()?;
                    self.param_base = place & 0xffff;
                    self.bank0_bytes = self.param_base + (place >> 16);
                }
                id::REQNTID => self.required_block = Some(a.words()?),
                id::MAX_THREADS => self.max_block = Some(a.words()?),
                id::CTA_PER_CLUSTER => self.cluster = Some(a.words()?),
                id::EXPLICIT_CLUSTER => self.wants_cluster = true,
                id::MAX_CLUSTER_RANK => self.max_cluster = a.words().map(|[most]| Some(most))?,
                id::KPARAM_INFO => {
                    let [_, place, size] = a.words()?;
                    self.params.push(Param { offset: place >> 16, len_bytes: size >> 18 });
                }
                id::KPARAM_INFO_V2 => {
                    let [_, place, len_bytes] = a.words()?;
                    self.params.push(Param { offset: place >> 16, len_bytes });
                }
                _ => {}
            }
        }
        self.params.sort_unstable();
        Ok(())
    }

    fn sections(&mut self, placed: &Placed) -> Result<(), ElfError> {
        self.shared_bytes = placed.size(&format!(".nv.shared.{}", self.name), 1 << 20)?;
        // The template's size is the base and the parameters; a kernel without parameters has no attribute with the
        // base.
        let template = placed.size(&format!(".nv.constant0.{}", self.name), MAX_BANK_BYTES)?;
        self.bank0_bytes = self.bank0_bytes.max(template);
        if self.param_base == 0 {
            self.param_base = template;
        }
        for number in [2, 3, 4] {
            let own = format!(".nv.constant{number}.{}", self.name);
            let of_file = format!(".nv.constant{number}");
            let Some((offset, section)) = placed.place(&own).or_else(|| placed.place(&of_file)) else { continue };
            let len = align_up(section.header.sh_size, 16).filter(|n| *n <= MAX_BANK_BYTES);
            let Some(len) = len else {
                let (name, offset) = (section.name.to_owned(), section.header_offset);
                return Err(ElfError::UnsupportedSection { name, offset, why: "a constant bank has 64 KiB at most" });
            };
            self.banks.push(Bank { number, offset, len_bytes: len as u32 });
        }
        Ok(())
    }

    /// Shared memory of a launch, with `dynamic_bytes` after what the kernel declares; in multiples of 128, as the QMD
    /// requires.
    #[must_use]
    pub fn launch_shared_bytes(&self, sm: u32, dynamic_bytes: u32) -> u64 {
        // From sm_90 on the reserved KiB is in the address space, and in the section if there is one; on sm_80 to sm_89
        // it is separate.
        let own = u64::from(self.shared_bytes);
        let all = match sm {
            90.. => own.max(0x400) + u64::from(dynamic_bytes),
            80.. => own + u64::from(dynamic_bytes) + 0x400,
            _ => own + u64::from(dynamic_bytes),
        };
        all.next_multiple_of(128)
    }
}

/// Offsets for the sections that are loaded, and the image with the contents from the file.
fn lay_out(file: &ElfFile) -> Result<(Vec<Option<u64>>, Vec<u8>), ElfError> {
    let too_big = |need_bytes| ElfError::ImageTooBig { need_bytes, max_bytes: MAX_IMAGE_BYTES };
    let (mut places, mut end) = (vec![None; file.sections().len()], 0u64);
    for (place, section) in places.iter_mut().zip(file.sections()) {
        let h = &section.header;
        let is_bank = section.name.starts_with(".nv.constant");
        // Bank 0 is made for each launch; shared memory is the SM's.
        let skip = section.name.starts_with(".nv.constant0.") || section.name.starts_with(".nv.shared.");
        let skip = skip || is_second_code(section.name);
        if h.sh_flags & SHF_ALLOC == 0 || skip || !matches!(h.sh_type, SHT_PROGBITS | SHT_NOBITS) {
            continue;
        }
        let align_bytes = h.sh_addralign.max(if is_bank { BANK_ALIGN } else { CODE_ALIGN });
        if !align_bytes.is_power_of_two() || align_bytes > PAGE {
            return Err(ElfError::BadAlign { offset: section.header_offset, align_bytes, max_bytes: PAGE });
        }
        let at = align_up(end, align_bytes).ok_or_else(|| too_big(u64::MAX))?;
        *place = Some(at);
        end = at.saturating_add(h.sh_size);
        if end > MAX_IMAGE_BYTES {
            return Err(too_big(end));
        }
    }
    let padded = align_up(end + PREFETCH_BYTES, PAGE).ok_or_else(|| too_big(end))?;
    let mut bytes = vec![0; index(padded)];
    for (place, section) in places.iter().zip(file.sections()) {
        if let Some(at) = place {
            let from = file.contents(section)?;
            // PANIC: the offsets are consecutive up to `end`
            bytes[index(*at)..index(*at) + from.len()].copy_from_slice(from);
        }
    }
    Ok((places, bytes))
}

//! Kernels and data → a cubin of container version 8, laid out as ptxas 13.5 does it; the same input gives the same
//! bytes.
//!
//! Sections in file order: names, strings, symbols, notes, attributes, call graph, relocations, constant banks, code,
//! data; then the section headers and the program headers. Not written: `.debug_frame`, and the `.nv.merc.*` copies
//! that ptxas adds from sm_100 on.

use super::emit;
use super::load::STO_ENTRY;
use super::new::{Arch, NewKernel, NewModule, Relocation, RelocationKind, Space};
use crate::abi::*;
use crate::error::ElfError;
use crate::num::{align_up, index, wide};

const SHT_CUDA_INFO: u32 = 0x7000_0000;
const SHT_CUDA_CALLGRAPH: u32 = 0x7000_0001;
const SHT_CUDA_REL_ACTION: u32 = 0x7000_000b;
const SHT_CUDA_COMPAT: u32 = 0x7000_0086;
/// Of the notes about chip and toolkit.
const SHF_CUDA_CHIP: u64 = 0x0100_0000;
const SHF_CUDA_TOOLKIT: u64 = 0x0200_0000;
/// `st_other` of the reserved shared memory's alias.
const STO_RESERVED: u8 = 0xa0;
const ALIAS: &str = "__nv_reservedSMEM_offset_0_alias";
const RESERVED: &str = ".nv.reservedSmem.offset0";

/// Writes a file of kernels without data.
///
/// # Errors
/// As [`write_module`].
pub fn write(arch: Arch, kernels: &[NewKernel]) -> Result<Vec<u8>, ElfError> {
    write_module(arch, &NewModule { kernels: kernels.to_vec(), ..NewModule::default() })
}

/// Writes a file.
///
/// # Errors
/// A chip whose files are not known; a kernel, a variable or an address that contradicts itself: its number and why.
pub fn write_module(arch: Arch, module: &NewModule) -> Result<Vec<u8>, ElfError> {
    module.check(arch)?;
    let plan = Plan::new(arch, module);
    plan.file()
}

/// A section by its content; kernels by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Null,
    Names,
    Strings,
    Symbols,
    Toolkit,
    Chip,
    Info,
    Compatibility,
    KernelInfo(usize),
    CallGraph,
    RelAction,
    CodeRelocations(usize),
    BankRelocations,
    ConstantRelocations,
    DataRelocations,
    /// Banks 4 and 3, and a kernel's 2 and 0.
    Addresses,
    Constants,
    Literals(usize),
    Template(usize),
    Code(usize),
    Initialised,
    Reserved,
    Zero,
    Shared(usize),
}

struct Plan<'a> {
    arch: Arch,
    module: &'a NewModule,
    roles: Vec<Role>,
    /// The section of the first kernel's code; the others' follow.
    code: usize,
    /// With the names of those that are no sections.
    symbols: Vec<(&'a str, Sym)>,
    /// The symbols' names.
    strings: Vec<u8>,
    first_global: usize,
    /// Symbol of each kernel, and of its constant bank 0.
    kernels: Vec<u32>,
    banks: Vec<u32>,
}

/// Counts of a file that the checks have kept small.
fn u32_of(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

impl<'a> Plan<'a> {
    fn new(arch: Arch, module: &'a NewModule) -> Self {
        let roles = roles(arch, module);
        let mut plan = Self {
            arch,
            module,
            code: roles.iter().position(|r| *r == Role::Code(0)).unwrap_or(0),
            roles,
            symbols: Vec::with_capacity(4 * module.kernels.len() + module.variables.len() + 8),
            strings: Vec::with_capacity(512),
            first_global: 0,
            kernels: Vec::with_capacity(module.kernels.len()),
            banks: Vec::with_capacity(module.kernels.len()),
        };
        plan.name_symbols();
        plan
    }

    /// The section's number; 0, which is no section, where there is none.
    fn section(&self, role: Role) -> usize {
        match role {
            Role::Code(kernel) => self.code + kernel,
            _ => self.roles.iter().position(|r| *r == role).unwrap_or(0),
        }
    }

    fn symbol(&mut self, name: &'a str, info: (u8, u8, u8), section: usize, place: (u64, u64)) -> u32 {
        let st_name = u32_of(self.strings.len());
        self.strings.extend_from_slice(name.as_bytes());
        self.strings.push(0);
        self.add(name, Sym { st_name, ..symbol(info, section, place) })
    }

    fn add(&mut self, name: &'a str, sym: Sym) -> u32 {
        self.symbols.push((name, sym));
        u32_of(self.symbols.len() - 1)
    }

    /// The symbol of a section of that number.
    fn section_symbol(&mut self, role: Role, section: usize) {
        let st_name = u32_of(self.strings.len());
        let mut strings = std::mem::take(&mut self.strings);
        self.name(role, &mut strings);
        self.strings = strings;
        let sym = Sym { st_name, ..symbol((STB_LOCAL, STT_SECTION, 0), section, (0, 0)) };
        let number = self.add("", sym);
        if matches!(role, Role::Template(_)) {
            self.banks.push(number);
        }
    }

    /// Local symbols first: sections, variables, functions; then kernels.
    fn name_symbols(&mut self) {
        let module = self.module;
        self.symbol("", (STB_LOCAL, STT_NOTYPE, 0), 0, (0, 0));
        for section in 0..self.roles.len() {
            let role = self.roles[section];
            let of_section = matches!(
                role,
                Role::Code(_)
                    | Role::Template(_)
                    | Role::Literals(_)
                    | Role::Shared(_)
                    | Role::Addresses
                    | Role::Constants
                    | Role::Initialised
                    | Role::Zero
            );
            if of_section {
                self.section_symbol(role, section);
            }
        }
        for v in &module.variables {
            let place = (u64::from(v.offset), u64::from(v.len_bytes));
            let section = self.section(section_of(v.space));
            self.symbol(&v.name, (STB_LOCAL, STT_OBJECT, 0), section, place);
        }
        for (i, k) in module.kernels.iter().enumerate() {
            for (name, offset, len) in &k.functions {
                let place = (u64::from(*offset), u64::from(*len));
                self.symbol(name, (STB_LOCAL, STT_FUNC, 0), self.code + i, place);
            }
        }
        self.first_global = self.symbols.len();
        let reserved = self.section(Role::Reserved);
        if reserved != 0 {
            let at = self.reserved_bytes();
            self.symbol(RESERVED, (STB_WEAK, STT_OBJECT, 0), 0, (at, 4));
            self.symbol(ALIAS, (STB_WEAK, STT_NOTYPE, STO_RESERVED), reserved, (at, 0));
        }
        for (i, k) in module.kernels.iter().enumerate() {
            let place = (0, wide(k.code.len()));
            let symbol = self.symbol(&k.name, (STB_GLOBAL, STT_FUNC, STO_ENTRY), self.code + i, place);
            self.kernels.push(symbol);
        }
    }

    /// Of the system's part of shared memory, in the file's words.
    fn reserved_bytes(&self) -> u64 {
        if self.arch.sm >= 100 { 0x40 } else { 0 }
    }

    /// A kernel's name, an empty one for a number beyond them.
    fn kernel(&self, i: usize) -> &str {
        self.module.kernels.get(i).map_or("", |k| &k.name)
    }

    /// Appends a section's name and a terminating zero.
    fn name(&self, role: Role, out: &mut Vec<u8>) {
        let old = self.arch.sm < 90;
        let (stem, kernel) = match role {
            Role::Null => ("", None),
            Role::Names => (".shstrtab", None),
            Role::Strings => (".strtab", None),
            Role::Symbols => (".symtab", None),
            Role::Toolkit => (".note.nv.tkinfo", None),
            Role::Chip => (".note.nv.cuinfo", None),
            Role::Info => (".nv.info", None),
            Role::Compatibility => (".nv.compat", None),
            Role::KernelInfo(i) => (".nv.info.", Some(i)),
            Role::CallGraph => (".nv.callgraph", None),
            Role::RelAction => (".nv.rel.action", None),
            Role::CodeRelocations(i) => (".rela.text.", Some(i)),
            Role::BankRelocations => (if old { ".rel.nv.constant4" } else { ".rela.nv.constant4" }, None),
            Role::ConstantRelocations => (if old { ".rel.nv.constant3" } else { ".rela.nv.constant3" }, None),
            Role::DataRelocations => (if old { ".rel.nv.global.init" } else { ".rela.nv.global.init" }, None),
            Role::Addresses => (".nv.constant4", None),
            Role::Constants => (".nv.constant3", None),
            Role::Literals(i) => (".nv.constant2.", Some(i)),
            Role::Template(i) => (".nv.constant0.", Some(i)),
            Role::Code(i) => (".text.", Some(i)),
            Role::Initialised => (".nv.global.init", None),
            Role::Reserved => (".nv.shared.reserved.0", None),
            Role::Zero => (".nv.global", None),
            Role::Shared(i) => (".nv.shared.", Some(i)),
        };
        out.extend_from_slice(stem.as_bytes());
        out.extend_from_slice(kernel.map_or("", |i| self.kernel(i)).as_bytes());
        out.push(0);
    }

    /// Appends a section, for the names that one; its header lacks its own name.
    fn part(&self, role: Role, names: &[u8], out: &mut Vec<u8>) -> Shdr {
        let (sh_type, sh_flags, sh_addralign) = self.kind(role);
        let mut header = Shdr { sh_type, sh_flags, sh_addralign, ..Shdr::default() };
        let to = |role| u32_of(self.section(role));
        (header.sh_link, header.sh_info) = match role {
            Role::Symbols => (to(Role::Strings), u32_of(self.first_global)),
            Role::Info | Role::CallGraph => (to(Role::Symbols), 0),
            Role::Chip if self.arch.sm >= 90 => (to(Role::Toolkit), to(Role::Compatibility)),
            Role::Chip => (to(Role::Toolkit), 0),
            Role::KernelInfo(i) | Role::CodeRelocations(i) => (to(Role::Symbols), to(Role::Code(i))),
            Role::BankRelocations => (to(Role::Symbols), to(Role::Addresses)),
            Role::ConstantRelocations => (to(Role::Symbols), to(Role::Constants)),
            Role::DataRelocations => (to(Role::Symbols), to(Role::Initialised)),
            Role::Template(i) | Role::Shared(i) | Role::Literals(i) => (0, to(Role::Code(i))),
            Role::Code(i) => (to(Role::Symbols), self.code_info(i)),
            _ => (0, 0),
        };
        header.sh_entsize = match role {
            Role::Symbols => wide(SYM_BYTES),
            Role::CallGraph | Role::RelAction => 8,
            Role::CodeRelocations(_) => wide(RELA_BYTES),
            Role::BankRelocations | Role::ConstantRelocations | Role::DataRelocations => self.entry_bytes(),
            _ => 0,
        };
        pad(out, sh_addralign);
        header.sh_offset = wide(out.len());
        match role {
            Role::Names => out.extend_from_slice(names),
            _ => self.contents(role, out),
        }
        header.sh_size = match role {
            Role::Reserved => self.reserved_bytes(),
            Role::Zero => self.span(Space::Zero),
            Role::Shared(i) => self.module.kernels.get(i).map_or(0, |k| u64::from(k.shared_bytes)),
            _ => wide(out.len()) - header.sh_offset,
        };
        header
    }

    /// Type, flags, alignment.
    fn kind(&self, role: Role) -> (u32, u64, u64) {
        const LOADED: u64 = SHF_ALLOC | SHF_INFO_LINK;
        let data = |space| self.align(space);
        let relocations = if self.arch.sm < 90 { SHT_REL } else { SHT_RELA };
        match role {
            Role::Null => (SHT_NULL, 0, 0),
            Role::Names | Role::Strings => (SHT_STRTAB, 0, 1),
            Role::Symbols => (SHT_SYMTAB, 0, 8),
            Role::Toolkit => (SHT_NOTE, SHF_CUDA_TOOLKIT, 4),
            Role::Chip if self.arch.sm < 90 => (SHT_NOTE, SHF_CUDA_CHIP, 4),
            Role::Chip => (SHT_NOTE, SHF_CUDA_CHIP | SHF_INFO_LINK, 4),
            Role::Info => (SHT_CUDA_INFO, 0, 4),
            Role::Compatibility => (SHT_CUDA_COMPAT, 0, 4),
            Role::KernelInfo(_) => (SHT_CUDA_INFO, SHF_INFO_LINK, 4),
            Role::CallGraph => (SHT_CUDA_CALLGRAPH, 0, 4),
            Role::RelAction => (SHT_CUDA_REL_ACTION, 0, 8),
            Role::CodeRelocations(_) => (SHT_RELA, SHF_INFO_LINK, 8),
            Role::BankRelocations | Role::ConstantRelocations | Role::DataRelocations => {
                (relocations, SHF_INFO_LINK, 8)
            }
            Role::Addresses => (SHT_PROGBITS, SHF_ALLOC, 8),
            Role::Constants => (SHT_PROGBITS, SHF_ALLOC, data(Space::Constant)),
            Role::Literals(_) => (SHT_PROGBITS, LOADED, 8),
            Role::Template(_) => (SHT_PROGBITS, LOADED, 4),
            Role::Code(_) => (SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, 128),
            Role::Initialised => (SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, data(Space::Initialised)),
            Role::Reserved => (SHT_NOBITS, SHF_ALLOC | SHF_WRITE, 1),
            Role::Zero => (SHT_NOBITS, SHF_ALLOC | SHF_WRITE, data(Space::Zero)),
            Role::Shared(i) => {
                let align = self.module.kernels.get(i).map_or(0, |k| k.shared_align);
                (SHT_NOBITS, LOADED | SHF_WRITE, if align == 0 { 16 } else { u64::from(align) })
            }
        }
    }

    /// Symbol of the kernel; before sm_90 with its registers.
    fn code_info(&self, i: usize) -> u32 {
        let symbol = self.kernels.get(i).copied().unwrap_or(0);
        match self.module.kernels.get(i) {
            Some(k) if self.arch.sm < 90 => symbol & 0xff_ffff | k.registers << 24,
            _ => symbol,
        }
    }

    fn entry_bytes(&self) -> u64 {
        if self.arch.sm < 90 { 16 } else { wide(RELA_BYTES) }
    }

    /// Appends a section's content.
    fn contents(&self, role: Role, out: &mut Vec<u8>) {
        let kernel = |i: usize| self.module.kernels.get(i);
        let mut copy = |bytes: Option<&[u8]>| out.extend_from_slice(bytes.unwrap_or_default());
        match role {
            Role::Symbols => self.symbols.iter().for_each(|(_, sym)| sym.emit(out)),
            Role::Strings => copy(Some(&self.strings)),
            Role::Toolkit => emit::tkinfo(out, self.arch),
            Role::Chip => emit::cuinfo(out, self.arch),
            Role::Info => emit::of_module(out, self.module, &self.kernels),
            Role::Compatibility => emit::compatibility(out, self.arch),
            Role::KernelInfo(i) => {
                if let Some(k) = kernel(i) {
                    emit::of_kernel(out, self.arch, k, self.bank_symbol(i));
                }
            }
            Role::CallGraph => emit::callgraph(out),
            Role::RelAction => copy(Some(&emit::REL_ACTION)),
            Role::CodeRelocations(i) => {
                if let Some(k) = kernel(i) {
                    self.relocations(&k.relocations, 0, false, out);
                }
            }
            Role::BankRelocations => self.relocations(&self.slots(), 0, self.arch.sm < 90, out),
            Role::ConstantRelocations => self.variable_relocations(Space::Constant, out),
            Role::DataRelocations => self.variable_relocations(Space::Initialised, out),
            Role::Addresses => {
                copy(Some(&self.with_addends(vec![0; 8 * self.module.addresses.len()], &self.slots(), 0)));
            }
            Role::Constants => copy(Some(&self.data(Space::Constant))),
            Role::Initialised => copy(Some(&self.data(Space::Initialised))),
            Role::Literals(i) => copy(kernel(i).map(|k| &*k.constants)),
            Role::Template(i) => {
                let len = kernel(i).map_or(0, emit::param_bytes) + self.arch.param_base();
                out.resize(out.len() + index(len.into()), 0);
            }
            Role::Code(i) => copy(kernel(i).map(|k| &*k.code)),
            Role::Null | Role::Names | Role::Reserved | Role::Zero | Role::Shared(_) => {}
        }
    }

    /// Templates come in the kernels' order.
    fn bank_symbol(&self, i: usize) -> u32 {
        self.banks.get(i).copied().unwrap_or(0)
    }

    /// The slots of bank 4 as relocations.
    fn slots(&self) -> Vec<Relocation> {
        let slot = |(i, (symbol, addend)): (u32, &(String, i64))| Relocation {
            offset: 8 * i,
            kind: RelocationKind::Address,
            symbol: symbol.clone(),
            addend: *addend,
        };
        (0u32..).zip(&self.module.addresses).map(slot).collect()
    }

    /// `in_place`: the addend is in the field.
    fn relocations(&self, all: &[Relocation], base: u32, in_place: bool, out: &mut Vec<u8>) {
        for r in all {
            let named = |s: &(&str, Sym)| s.0 == r.symbol && s.1.st_info & 15 != STT_SECTION;
            let symbol = self.symbols.iter().position(named).unwrap_or(0);
            let rela = Rela {
                r_offset: u64::from(base) + u64::from(r.offset),
                r_sym: u32_of(symbol),
                r_type: r.kind.number(),
                r_addend: r.addend,
            };
            let start = out.len();
            rela.emit(out);
            if in_place {
                out.truncate(start + 16);
            }
        }
    }

    fn variable_relocations(&self, space: Space, out: &mut Vec<u8>) {
        let of_space = self.module.variables.iter().filter(|v| v.space == space);
        of_space.for_each(|v| self.relocations(&v.relocations, v.offset, self.arch.sm < 90, out));
    }

    /// Bytes with the addends of chips that store them there.
    fn with_addends(&self, mut bytes: Vec<u8>, all: &[Relocation], base: u32) -> Vec<u8> {
        for r in all.iter().filter(|_| self.arch.sm < 90) {
            let at = index(u64::from(base) + u64::from(r.offset));
            if let Some(field) = bytes.get_mut(at..at.saturating_add(8)) {
                field.copy_from_slice(&r.addend.to_le_bytes());
            }
        }
        bytes
    }

    /// The values of a space, each at its offset.
    fn data(&self, space: Space) -> Vec<u8> {
        let mut out = vec![0; index(self.span(space))];
        for v in self.module.variables.iter().filter(|v| v.space == space) {
            let at = index(v.offset.into());
            if let Some(place) = out.get_mut(at..at.saturating_add(v.bytes.len())) {
                place.copy_from_slice(&v.bytes);
            }
            out = self.with_addends(out, &v.relocations, v.offset);
        }
        out
    }

    /// Bytes up to the end of a space's last variable.
    fn span(&self, space: Space) -> u64 {
        let ends = self.module.variables.iter().filter(|v| v.space == space);
        ends.map(|v| u64::from(v.offset) + u64::from(v.len_bytes)).max().unwrap_or(0)
    }

    fn align(&self, space: Space) -> u64 {
        self.module.variables.iter().filter(|v| v.space == space).map(|v| u64::from(v.align)).max().unwrap_or(1)
    }

    fn file(&self) -> Result<Vec<u8>, ElfError> {
        let mut names = Vec::with_capacity(512);
        let mut named = |role: &Role| {
            let at = u32_of(names.len());
            self.name(*role, &mut names);
            at
        };
        let places: Vec<u32> = self.roles.iter().map(&mut named).collect();
        let too_many =
            ElfError::BadObject { what: "file", index: places.len(), why: "it has more than 65,279 sections" };
        let e_shnum = u16::try_from(places.len()).ok().filter(|n| *n < SHN_LORESERVE).ok_or(too_many)?;
        // In addition to code there are tables and headers of a few hundred bytes a section.
        let code: usize = self.module.kernels.iter().map(|k| k.code.len() + 2048).sum();
        let mut out = Vec::with_capacity(code + names.len() + self.strings.len() + 2048);
        out.resize(EHDR_BYTES, 0);
        let mut parts = Vec::with_capacity(places.len());
        parts.push(Shdr::default());
        for (role, sh_name) in self.roles.iter().zip(&places).skip(1) {
            parts.push(Shdr { sh_name: *sh_name, ..self.part(*role, &names, &mut out) });
        }
        pad(&mut out, 8);
        let e_shoff = wide(out.len());
        for part in &parts {
            part.emit(&mut out);
        }
        let e_phoff = wide(out.len());
        let segments = self.segments(&parts, e_phoff);
        for segment in &segments {
            segment.emit(&mut out);
        }
        let mut head = Vec::with_capacity(EHDR_BYTES);
        let e_shstrndx = u16::try_from(self.section(Role::Names)).unwrap_or_default();
        Ehdr { e_type: ET_EXEC, e_machine: EM_CUDA, e_shoff, e_shentsize: 64, e_shnum, e_shstrndx }.emit(&mut head);
        // PANIC: constant offsets in a 64-byte header: OS ABI, its version, e_phoff, e_flags, e_phentsize, e_phnum
        head[7] = 0x41;
        head[8] = 8;
        head[32..40].copy_from_slice(&e_phoff.to_le_bytes());
        let low = if self.arch.sm < 100 { 4 } else { 2 };
        head[48..52].copy_from_slice(&(0x0600_0000 | self.arch.sm << 8 | low).to_le_bytes());
        head[54..56].copy_from_slice(&56u16.to_le_bytes());
        head[56..58].copy_from_slice(&u16::try_from(segments.len()).unwrap_or_default().to_le_bytes());
        out[..EHDR_BYTES].copy_from_slice(&head); // PANIC: both are EHDR_BYTES long, see `Ehdr::emit`
        Ok(out)
    }

    /// The headers themselves, and the runs of loaded sections of the same rights. Before sm_90 constants and code are
    /// one.
    fn segments(&self, parts: &[Shdr], e_phoff: u64) -> Vec<Phdr> {
        let old = self.arch.sm < 90;
        let mut runs: Vec<Phdr> = Vec::with_capacity(8);
        for h in parts.iter().filter(|h| h.sh_flags & SHF_ALLOC != 0 && h.sh_size > 0) {
            let mut p_flags = PF_R;
            if h.sh_flags & SHF_WRITE != 0 {
                p_flags |= PF_W;
            } else if old || h.sh_flags & SHF_EXECINSTR != 0 {
                p_flags |= PF_X;
            }
            let in_file = if h.sh_type == SHT_NOBITS { 0 } else { h.sh_size };
            match runs.last_mut().filter(|run| run.p_flags == p_flags) {
                Some(run) => {
                    let end = h.sh_offset + h.sh_size;
                    run.p_memsz = if in_file == 0 { run.p_memsz + h.sh_size } else { end - run.p_offset };
                    run.p_filesz = if in_file == 0 { run.p_filesz } else { end - run.p_offset };
                }
                None => runs.push(Phdr {
                    p_type: PT_LOAD,
                    p_flags,
                    p_offset: h.sh_offset,
                    p_vaddr: 0,
                    p_filesz: in_file,
                    p_memsz: h.sh_size,
                    p_align: 8,
                }),
            }
        }
        let bytes = wide((runs.len() + 2) * PHDR_BYTES);
        let own = Phdr {
            p_type: PT_PHDR,
            p_flags: if old { PF_R | PF_X } else { PF_R },
            p_offset: e_phoff,
            p_vaddr: 0,
            p_filesz: bytes,
            p_memsz: bytes,
            p_align: 8,
        };
        let loaded = Phdr { p_type: PT_LOAD, ..own };
        runs.insert(0, own);
        runs.insert(if old { runs.len() } else { 1 }, loaded);
        runs
    }
}

fn symbol((binding, kind, st_other): (u8, u8, u8), section: usize, (st_value, st_size): (u64, u64)) -> Sym {
    let st_shndx = u16::try_from(section).unwrap_or(SHN_UNDEF);
    Sym { st_name: 0, st_info: binding << 4 | kind, st_other, st_shndx, st_value, st_size }
}

fn pad(out: &mut Vec<u8>, align: u64) {
    let end = align_up(wide(out.len()), align.max(1)).unwrap_or(u64::MAX);
    out.resize(index(end), 0);
}

fn section_of(space: Space) -> Role {
    match space {
        Space::Constant => Role::Constants,
        Space::Initialised => Role::Initialised,
        Space::Zero => Role::Zero,
    }
}

/// The sections of a file, in their order.
fn roles(arch: Arch, module: &NewModule) -> Vec<Role> {
    let kernels = &module.kernels;
    let has = |space| module.variables.iter().any(|v| v.space == space);
    let moves = |space| module.variables.iter().any(|v| v.space == space && !v.relocations.is_empty());
    let mut all = Vec::with_capacity(20 + 4 * kernels.len());
    all.extend([Role::Null, Role::Names, Role::Strings, Role::Symbols, Role::Toolkit, Role::Chip, Role::Info]);
    let old = arch.sm < 90;
    let one = |all: &mut Vec<Role>, on: bool, role: Role| all.extend(on.then_some(role));
    let each = |all: &mut Vec<Role>, pick: fn(&NewKernel) -> bool, role: fn(usize) -> Role| {
        all.extend(kernels.iter().enumerate().filter(|(_, k)| pick(k)).map(|(i, _)| role(i)));
    };
    one(&mut all, !old, Role::Compatibility);
    each(&mut all, |_| true, Role::KernelInfo);
    one(&mut all, true, Role::CallGraph);
    one(&mut all, old, Role::RelAction);
    each(&mut all, |k| !k.relocations.is_empty(), Role::CodeRelocations);
    one(&mut all, !module.addresses.is_empty(), Role::BankRelocations);
    one(&mut all, moves(Space::Constant), Role::ConstantRelocations);
    one(&mut all, moves(Space::Initialised), Role::DataRelocations);
    one(&mut all, !module.addresses.is_empty(), Role::Addresses);
    one(&mut all, has(Space::Constant), Role::Constants);
    each(&mut all, |k| !k.constants.is_empty(), Role::Literals);
    if old {
        each(&mut all, |_| true, Role::Template);
    }
    each(&mut all, |_| true, Role::Code);
    one(&mut all, has(Space::Initialised), Role::Initialised);
    one(&mut all, !old && kernels.iter().any(|k| k.shared_bytes > 0), Role::Reserved);
    one(&mut all, has(Space::Zero), Role::Zero);
    each(&mut all, |k| k.shared_bytes > 0, Role::Shared);
    if !old {
        each(&mut all, |_| true, Role::Template);
    }
    all
}

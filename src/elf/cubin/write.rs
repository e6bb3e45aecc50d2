//! Kernels and data → a cubin of container version 8, laid out as ptxas 13.5 does it; the same input gives the same bytes.
//!
//! Sections in file order: names, strings, symbols, notes, attributes, call graph, relocations, constant banks, code, data; then the section headers and
//! the program headers. Not written: `.debug_frame`, and the `.nv.merc.*` copies that ptxas adds from sm_100 on.

use super::emit;
use super::load::STO_ENTRY;
use super::new::{Arch, NewKernel, NewModule, Relocation, RelocationKind, Space};
use crate::elf::abi::*;
use crate::elf::error::ElfError;
use crate::elf::num::{align_up, index, wide};
use hashbrown::HashMap;

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

/// A section by what it holds; kernels by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// A name in two parts.
type Name<'a> = (&'static str, &'a str);

struct Plan<'a> {
    arch: Arch,
    module: &'a NewModule,
    roles: Vec<Role>,
    /// Each section's number.
    numbers: HashMap<Role, usize>,
    symbols: Vec<(Name<'a>, Sym)>,
    /// The strings of the symbols' names, and where each begins.
    strings: (Vec<u8>, Vec<u32>),
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
            numbers: roles.iter().enumerate().map(|(number, role)| (*role, number)).collect(),
            roles,
            symbols: Vec::new(),
            strings: (Vec::new(), Vec::new()),
            first_global: 0,
            kernels: Vec::new(),
            banks: Vec::new(),
        };
        plan.name_symbols();
        plan.strings = plan.named();
        plan
    }

    /// The section's number; 0, which is no section, where there is none.
    fn section(&self, role: Role) -> usize {
        self.numbers.get(&role).copied().unwrap_or(0)
    }

    fn symbol(&mut self, name: Name<'a>, info: (u8, u8, u8), role: Role, place: (u64, u64)) -> u32 {
        let (binding, kind, st_other) = info;
        let st_shndx = u16::try_from(self.section(role)).unwrap_or(SHN_UNDEF);
        let (st_value, st_size) = place;
        let sym = Sym { st_name: 0, st_info: binding << 4 | kind, st_other, st_shndx, st_value, st_size };
        self.symbols.push((name, sym));
        u32_of(self.symbols.len() - 1)
    }

    /// Local symbols first: sections, variables, functions; then kernels.
    fn name_symbols(&mut self) {
        let module = self.module;
        self.symbol(("", ""), (STB_LOCAL, STT_NOTYPE, 0), Role::Null, (0, 0));
        for role in self.roles.clone() {
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
                let name = self.name(role);
                let symbol = self.symbol(name, (STB_LOCAL, STT_SECTION, 0), role, (0, 0));
                if matches!(role, Role::Template(_)) {
                    self.banks.push(symbol);
                }
            }
        }
        for v in &module.variables {
            let place = (u64::from(v.offset), u64::from(v.len_bytes));
            self.symbol(("", &v.name), (STB_LOCAL, STT_OBJECT, 0), section_of(v.space), place);
        }
        for (i, k) in module.kernels.iter().enumerate() {
            for (name, offset, len) in &k.functions {
                let place = (u64::from(*offset), u64::from(*len));
                self.symbol(("", name), (STB_LOCAL, STT_FUNC, 0), Role::Code(i), place);
            }
        }
        self.first_global = self.symbols.len();
        if self.roles.contains(&Role::Reserved) {
            let at = self.reserved_bytes();
            self.symbol((RESERVED, ""), (STB_WEAK, STT_OBJECT, 0), Role::Null, (at, 4));
            self.symbol((ALIAS, ""), (STB_WEAK, STT_NOTYPE, STO_RESERVED), Role::Reserved, (at, 0));
        }
        for (i, k) in module.kernels.iter().enumerate() {
            let place = (0, wide(k.code.len()));
            let symbol = self.symbol(("", &k.name), (STB_GLOBAL, STT_FUNC, STO_ENTRY), Role::Code(i), place);
            self.kernels.push(symbol);
        }
    }

    /// Of the system's part of shared memory, in the file's words.
    fn reserved_bytes(&self) -> u64 {
        if self.arch.sm >= 100 { 0x40 } else { 0 }
    }

    /// A kernel's name, an empty one for a number beyond them.
    fn kernel(&self, i: usize) -> &'a str {
        self.module.kernels.get(i).map_or("", |k| &k.name)
    }

    fn name(&self, role: Role) -> Name<'a> {
        let old = self.arch.sm < 90;
        let relocations = |before, since| (if old { before } else { since }, "");
        match role {
            Role::Null => ("", ""),
            Role::Names => (".shstrtab", ""),
            Role::Strings => (".strtab", ""),
            Role::Symbols => (".symtab", ""),
            Role::Toolkit => (".note.nv.tkinfo", ""),
            Role::Chip => (".note.nv.cuinfo", ""),
            Role::Info => (".nv.info", ""),
            Role::Compatibility => (".nv.compat", ""),
            Role::KernelInfo(i) => (".nv.info.", self.kernel(i)),
            Role::CallGraph => (".nv.callgraph", ""),
            Role::RelAction => (".nv.rel.action", ""),
            Role::CodeRelocations(i) => (".rela.text.", self.kernel(i)),
            Role::BankRelocations => relocations(".rel.nv.constant4", ".rela.nv.constant4"),
            Role::ConstantRelocations => relocations(".rel.nv.constant3", ".rela.nv.constant3"),
            Role::DataRelocations => relocations(".rel.nv.global.init", ".rela.nv.global.init"),
            Role::Addresses => (".nv.constant4", ""),
            Role::Constants => (".nv.constant3", ""),
            Role::Literals(i) => (".nv.constant2.", self.kernel(i)),
            Role::Template(i) => (".nv.constant0.", self.kernel(i)),
            Role::Code(i) => (".text.", self.kernel(i)),
            Role::Initialised => (".nv.global.init", ""),
            Role::Reserved => (".nv.shared.reserved.0", ""),
            Role::Zero => (".nv.global", ""),
            Role::Shared(i) => (".nv.shared.", self.kernel(i)),
        }
    }

    /// A section's header; its name, its file offset and most lengths come later.
    fn header(&self, role: Role) -> Shdr {
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
        header.sh_size = match role {
            Role::Reserved => self.reserved_bytes(),
            Role::Zero => self.span(Space::Zero),
            Role::Shared(i) => self.module.kernels.get(i).map_or(0, |k| u64::from(k.shared_bytes)),
            _ => 0,
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

    /// Appends a section's contents, of all but the names.
    fn contents(&self, role: Role, out: &mut Vec<u8>) {
        let kernel = |i: usize| self.module.kernels.get(i);
        let made = match role {
            Role::Symbols => return self.symbol_table(out),
            Role::Strings => return out.extend_from_slice(&self.strings.0),
            Role::Literals(i) => return kernel(i).into_iter().for_each(|k| out.extend_from_slice(&k.constants)),
            Role::Code(i) => return kernel(i).into_iter().for_each(|k| out.extend_from_slice(&k.code)),
            Role::Template(i) => {
                let len = kernel(i).map_or(0, emit::param_bytes) + self.arch.param_base();
                return out.resize(out.len() + index(len.into()), 0);
            }
            Role::KernelInfo(i) => {
                return kernel(i).into_iter().for_each(|k| emit::of_kernel(out, self.arch, k, self.bank_symbol(i)));
            }
            Role::Toolkit => emit::tkinfo(self.arch),
            Role::Chip => emit::cuinfo(self.arch),
            Role::Info => emit::of_module(self.module, &self.kernels),
            Role::Compatibility => emit::compatibility(self.arch),
            Role::CallGraph => emit::callgraph(),
            Role::RelAction => emit::REL_ACTION.to_vec(),
            Role::CodeRelocations(i) => {
                kernel(i).map(|k| self.relocations(&k.relocations, 0, false)).unwrap_or_default()
            }
            Role::BankRelocations => self.relocations(&self.slots(), 0, self.arch.sm < 90),
            Role::ConstantRelocations => self.variable_relocations(Space::Constant),
            Role::DataRelocations => self.variable_relocations(Space::Initialised),
            Role::Addresses => self.with_addends(vec![0; 8 * self.module.addresses.len()], &self.slots(), 0),
            Role::Constants => self.data(Space::Constant),
            Role::Initialised => self.data(Space::Initialised),
            Role::Null | Role::Names | Role::Reserved | Role::Zero | Role::Shared(_) => return,
        };
        out.extend_from_slice(&made);
    }

    /// Templates come in the kernels' order.
    fn bank_symbol(&self, i: usize) -> u32 {
        self.banks.get(i).copied().unwrap_or(0)
    }

    fn named(&self) -> (Vec<u8>, Vec<u32>) {
        let (mut bytes, mut places) = (vec![0], Vec::new());
        for ((stem, name), _) in &self.symbols {
            let there = !stem.is_empty() || !name.is_empty();
            places.push(if there { u32_of(bytes.len()) } else { 0 });
            if there {
                bytes.extend_from_slice(stem.as_bytes());
                bytes.extend_from_slice(name.as_bytes());
                bytes.push(0);
            }
        }
        (bytes, places)
    }

    fn symbol_table(&self, out: &mut Vec<u8>) {
        for ((_, sym), st_name) in self.symbols.iter().zip(&self.strings.1) {
            Sym { st_name: *st_name, ..*sym }.emit(out);
        }
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
    fn relocations(&self, all: &[Relocation], base: u32, in_place: bool) -> Vec<u8> {
        let mut out = Vec::new();
        for r in all {
            // Only sections' names have two parts that say something.
            let same = |(stem, name): Name| if stem.is_empty() { name == r.symbol } else { stem == r.symbol };
            let named = |s: &(Name, Sym)| same(s.0) && s.1.st_info & 15 != STT_SECTION;
            let symbol = self.symbols.iter().position(named).unwrap_or(0);
            let rela = Rela {
                r_offset: u64::from(base) + u64::from(r.offset),
                r_sym: u32_of(symbol),
                r_type: r.kind.number(),
                r_addend: r.addend,
            };
            let start = out.len();
            rela.emit(&mut out);
            if in_place {
                out.truncate(start + 16);
            }
        }
        out
    }

    fn variable_relocations(&self, space: Space) -> Vec<u8> {
        let of_space = self.module.variables.iter().filter(|v| v.space == space);
        of_space.flat_map(|v| self.relocations(&v.relocations, v.offset, self.arch.sm < 90)).collect()
    }

    /// Bytes with the addends of chips that keep them there.
    fn with_addends(&self, mut bytes: Vec<u8>, all: &[Relocation], base: u32) -> Vec<u8> {
        for r in all.iter().filter(|_| self.arch.sm < 90) {
            let at = index(u64::from(base) + u64::from(r.offset));
            if let Some(field) = bytes.get_mut(at..at.saturating_add(8)) {
                field.copy_from_slice(&r.addend.to_le_bytes());
            }
        }
        bytes
    }

    /// The values of a space, each at its place.
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
        let mut headers: Vec<Shdr> = self.roles.iter().map(|r| self.header(*r)).collect();
        let mut names = Vec::with_capacity(32 * headers.len());
        names.push(0);
        for (header, role) in headers.iter_mut().zip(&self.roles).skip(1) {
            header.sh_name = u32_of(names.len());
            let (stem, name) = self.name(*role);
            names.extend_from_slice(stem.as_bytes());
            names.extend_from_slice(name.as_bytes());
            names.push(0);
        }
        let too_many =
            ElfError::BadObject { what: "file", index: headers.len(), why: "it has more than 65,279 sections" };
        let e_shnum = u16::try_from(headers.len()).ok().filter(|n| *n < SHN_LORESERVE).ok_or(too_many)?;
        let code: usize = self.module.kernels.iter().map(|k| k.code.len() + 4096).sum();
        let mut out = Vec::with_capacity(code + names.len());
        out.resize(EHDR_BYTES, 0);
        for (header, role) in headers.iter_mut().zip(&self.roles).skip(1) {
            pad(&mut out, header.sh_addralign);
            header.sh_offset = wide(out.len());
            match role {
                Role::Names => out.extend_from_slice(&names),
                _ => self.contents(*role, &mut out),
            }
            if header.sh_type != SHT_NOBITS {
                header.sh_size = wide(out.len()) - header.sh_offset;
            }
        }
        pad(&mut out, 8);
        let e_shoff = wide(out.len());
        headers.iter().for_each(|h| h.emit(&mut out));
        let e_phoff = wide(out.len());
        let segments = self.segments(&headers, e_phoff);
        for segment in &segments {
            segment.emit(&mut out);
        }
        let mut head = Vec::with_capacity(EHDR_BYTES);
        let e_shstrndx = u16::try_from(self.section(Role::Names)).unwrap_or_default();
        Ehdr { e_type: ET_EXEC, e_machine: EM_CUDA, e_shoff, e_shentsize: 64, e_shnum, e_shstrndx }.emit(&mut head);
        head[7] = 0x41; // PANIC: constant places of a 64-byte header: OS ABI, its version, e_phoff, e_flags, e_phentsize, e_phnum
        head[8] = 8;
        head[32..40].copy_from_slice(&e_phoff.to_le_bytes());
        let low = if self.arch.sm < 100 { 4 } else { 2 };
        head[48..52].copy_from_slice(&(0x0600_0000 | self.arch.sm << 8 | low).to_le_bytes());
        head[54..56].copy_from_slice(&56u16.to_le_bytes());
        head[56..58].copy_from_slice(&u16::try_from(segments.len()).unwrap_or_default().to_le_bytes());
        out[..EHDR_BYTES].copy_from_slice(&head); // PANIC: both are EHDR_BYTES long, see `Ehdr::emit`
        Ok(out)
    }

    /// The headers themselves, and the runs of loaded sections of the same rights. Before sm_90 constants and code are one.
    fn segments(&self, headers: &[Shdr], e_phoff: u64) -> Vec<Phdr> {
        let old = self.arch.sm < 90;
        let mut runs: Vec<Phdr> = Vec::new();
        for h in headers.iter().filter(|h| h.sh_flags & SHF_ALLOC != 0 && h.sh_size > 0) {
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
        if old { [vec![own], runs, vec![loaded]].concat() } else { [vec![own, loaded], runs].concat() }
    }
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
    let kernels = 0..module.kernels.len();
    let has = |space| module.variables.iter().any(|v| v.space == space);
    let moves = |space| module.variables.iter().any(|v| v.space == space && !v.relocations.is_empty());
    let of = |pick: &dyn Fn(&NewKernel) -> bool, role: fn(usize) -> Role| {
        let chosen = module.kernels.iter().enumerate().filter(|(_, k)| pick(k));
        chosen.map(|(i, _)| role(i)).collect::<Vec<_>>()
    };
    let mut all = vec![Role::Null, Role::Names, Role::Strings, Role::Symbols, Role::Toolkit, Role::Chip, Role::Info];
    let mut add = |on: bool, role: &[Role]| all.extend(role.iter().filter(|_| on));
    let old = arch.sm < 90;
    let shared = of(&|k| k.shared_bytes > 0, Role::Shared);
    let templates: Vec<Role> = kernels.clone().map(Role::Template).collect();
    add(!old, &[Role::Compatibility]);
    add(true, &kernels.clone().map(Role::KernelInfo).collect::<Vec<_>>());
    add(true, &[Role::CallGraph]);
    add(old, &[Role::RelAction]);
    add(true, &of(&|k| !k.relocations.is_empty(), Role::CodeRelocations));
    add(!module.addresses.is_empty(), &[Role::BankRelocations]);
    add(moves(Space::Constant), &[Role::ConstantRelocations]);
    add(moves(Space::Initialised), &[Role::DataRelocations]);
    add(!module.addresses.is_empty(), &[Role::Addresses]);
    add(has(Space::Constant), &[Role::Constants]);
    add(true, &of(&|k| !k.constants.is_empty(), Role::Literals));
    add(old, &templates);
    add(true, &kernels.map(Role::Code).collect::<Vec<_>>());
    add(has(Space::Initialised), &[Role::Initialised]);
    add(!old && !shared.is_empty(), &[Role::Reserved]);
    add(has(Space::Zero), &[Role::Zero]);
    add(true, &shared);
    add(!old, &templates);
    all
}

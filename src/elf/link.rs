//! Relocatable file → [`Image`]: places the sections, builds the GOT and the stubs, applies every distance that the
//! base address does not change, and keeps the rest as fixups.
//!
//! A call of an undefined function goes through a stub in the image (`jmp *slot`), so the function may be anywhere in
//! the address space; its address is in a GOT slot. Source: AMD64 supplement, relocation formulas of table 4.9.

use std::collections::BTreeMap;

use super::abi::*;
use super::error::ElfError;
use super::image::{Anchor, External, Field, Fixup, Image, PAGE_BYTES, store};
use super::layout::{Class, Layout, SLOT_BYTES, classify, place};
use super::num::{index, wide};
use super::object::{Machine, Object, RelocKind};
use super::parse::{ElfFile, FileSection, FileSymbol, Place};
use super::x86_64::{self, INT3, Row, STUB, STUB_BYTES, STUB_FIELD};

/// Links one relocatable ELF64 file, ours or a compiler's, for a host with the smallest pages.
///
/// # Errors
/// A malformed file, or one that needs what this loader does not provide.
pub fn link(elf_bytes: &[u8]) -> Result<Image, ElfError> {
    link_in_pages(elf_bytes, PAGE_BYTES)
}

/// As [`link`], for a host with pages of so many bytes, a power of two of at least [`PAGE_BYTES`].
///
/// # Errors
/// As [`link`].
pub fn link_in_pages(elf_bytes: &[u8], page_bytes: u64) -> Result<Image, ElfError> {
    let file = ElfFile::parse(elf_bytes)?;
    let classes = file.sections().iter().map(classify).collect::<Result<Vec<_>, _>>()?;
    let requests = collect_requests(&file, &classes)?;
    let tables = Tables::for_requests(&file, &requests);
    let layout = place(&file, &classes, wide(tables.stub_owners.len()), wide(tables.slot_owners.len()), page_bytes)?;
    let mut linker = Linker { file: &file, tables, layout, bytes: Vec::new(), fixups: Vec::new() };
    linker.fill(&classes)?;
    linker.fill_tables()?;
    for request in &requests {
        linker.apply(request)?;
    }
    let entries = linker.entries(&classes)?;
    let Linker { tables, layout, bytes, fixups, .. } = linker;
    let Layout { size_bytes, segments, .. } = layout;
    Ok(Image { bytes, size_bytes, page_bytes, segments, fixups, externals: tables.externals, entries })
}

/// Links the output of `isa` for a host with such pages (as [`link_in_pages`]); through its ELF file only where it
/// refers to symbols outside itself.
///
/// # Errors
/// An object that contradicts itself, see [`write`](super::write), and what [`link`] refuses.
pub fn link_object(object: &Object, page_bytes: u64) -> Result<Image, ElfError> {
    super::direct::link(object, page_bytes).map_or_else(|| link_in_pages(&super::write(object)?, page_bytes), Ok)
}

/// One relocation of a loaded section, checked.
struct Request {
    section: usize,
    /// Bytes from the section's start.
    offset: u64,
    row: &'static Row,
    symbol: usize,
    addend: i64,
    /// A branch to a name that is defined elsewhere.
    wants_stub: bool,
}

/// All relocations of the sections that are loaded.
fn collect_requests(file: &ElfFile, classes: &[Option<Class>]) -> Result<Vec<Request>, ElfError> {
    let mut out = Vec::new();
    for table in file.sections() {
        let Shdr { sh_type, sh_info, .. } = table.header;
        if !matches!(sh_type, SHT_RELA | SHT_REL) {
            continue;
        }
        let section = index(u64::from(sh_info));
        let (Some(target), Some(class)) = (file.sections().get(section), classes.get(section)) else {
            let (offset, index, count) = (table.header_offset, u64::from(sh_info), wide(classes.len()));
            return Err(ElfError::BadIndex { what: "rela sh_info", offset, index, count });
        };
        match class {
            None => continue,
            Some(Class::Bss) => return Err(refuse(table, "relocations of a section without contents")),
            Some(_) if sh_type == SHT_REL => return Err(refuse(table, "relocations without addends")),
            Some(_) => {}
        }
        let contents = file.contents(target)?;
        for (at, rela) in file.relocations(table)? {
            out.push(request(file, section, contents, at, &rela)?);
        }
    }
    Ok(out)
}

fn refuse(section: &FileSection, why: &'static str) -> ElfError {
    ElfError::UnsupportedSection { name: section.name.to_owned(), offset: section.header_offset, why }
}

fn request(file: &ElfFile, section: usize, contents: &[u8], at: u64, rela: &Rela) -> Result<Request, ElfError> {
    let symbol = index(u64::from(rela.r_sym));
    let target = &file.symbols()[symbol]; // PANIC: `ElfFile::relocations` has checked the index
    let unsupported =
        || ElfError::UnsupportedRelocation { kind: rela.r_type, symbol: target.name.to_owned(), offset: at };
    let row = Some(rela.r_type).filter(|_| file.machine() == Machine::X86_64).and_then(x86_64::by_number);
    let row = row.ok_or_else(unsupported)?;
    let (end, limit) = (rela.r_offset.saturating_add(x86_64::field_bytes(row.kind)), wide(contents.len()));
    if end > limit {
        return Err(ElfError::OutOfSection { what: "relocated field", offset: at, end, limit });
    }
    let branch = match row.kind {
        RelocKind::Plt32 | RelocKind::PltOff64 => true,
        RelocKind::Pc32 => x86_64::is_branch(contents, index(rela.r_offset)),
        _ => false,
    };
    let wants_stub = branch && symbol != 0 && target.place == Place::Undefined;
    Ok(Request { section, offset: rela.r_offset, row, symbol, addend: rela.r_addend, wants_stub })
}

/// Owners of GOT slots, stubs and external names; all by symbol index.
#[derive(Default)]
struct Tables {
    slot_owners: Vec<usize>,
    stub_owners: Vec<usize>,
    externals: Vec<External>,
    /// By symbol: its slot, its stub, its index among the externals.
    slots: Vec<Option<usize>>,
    stubs: Vec<Option<usize>>,
    names: Vec<Option<usize>>,
}

impl Tables {
    fn for_requests(file: &ElfFile, requests: &[Request]) -> Self {
        let none = vec![None; file.symbols().len()];
        let mut out = Self { slots: none.clone(), stubs: none.clone(), names: none, ..Self::default() };
        for request in requests {
            use RelocKind as K;
            let symbol = request.symbol;
            let got = matches!(request.row.kind, K::GotPc32 | K::GotPc32Relax | K::GotPc32RexRelax | K::Got64);
            // PANIC: the three lists have an entry a symbol, and `request` has checked the symbol's index.
            if (got || request.wants_stub) && out.slots[symbol].is_none() {
                out.slots[symbol] = Some(out.slot_owners.len());
                out.slot_owners.push(symbol);
            }
            if request.wants_stub && out.stubs[symbol].is_none() {
                out.stubs[symbol] = Some(out.stub_owners.len());
                out.stub_owners.push(symbol);
            }
            let target = &file.symbols()[symbol];
            let own_table = matches!(request.row.kind, K::None | K::GotBasePc32 | K::GotBasePc64);
            if symbol != 0 && target.place == Place::Undefined && !own_table && out.names[symbol].is_none() {
                out.names[symbol] = Some(out.externals.len());
                out.externals.push(External { name: target.name.to_owned(), weak: target.binding() == STB_WEAK });
            }
        }
        out
    }
}

struct Linker<'f, 'a> {
    file: &'f ElfFile<'a>,
    tables: Tables,
    layout: Layout,
    bytes: Vec<u8>,
    fixups: Vec<Fixup>,
}

impl Linker<'_, '_> {
    /// Copies the sections; the gaps in the code are filled with breakpoints.
    fn fill(&mut self, classes: &[Option<Class>]) -> Result<(), ElfError> {
        self.bytes = vec![0; index(self.layout.filled_bytes)];
        if classes.contains(&Some(Class::Text)) {
            let stubs_end = self.layout.stubs_at + wide(self.tables.stub_owners.len()) * STUB_BYTES;
            if let Some(code) = self.bytes.get_mut(..index(stubs_end)) {
                code.fill(INT3);
            }
        }
        for (section, at) in self.file.sections().iter().zip(&self.layout.section_at) {
            let contents = self.file.contents(section)?;
            if let (Some(at), false) = (at, contents.is_empty()) {
                // PANIC: `place` has reserved the section's size there, and only sections without contents lie beyond.
                self.bytes[index(*at)..][..contents.len()].copy_from_slice(contents);
            }
        }
        Ok(())
    }

    /// GOT slots hold their symbol's address, stubs jump to where their symbol's slot points.
    fn fill_tables(&mut self) -> Result<(), ElfError> {
        for (slot, &symbol) in self.tables.slot_owners.iter().enumerate() {
            let (at, anchor) = (self.layout.got_at + wide(slot) * SLOT_BYTES, self.anchor(symbol)?);
            let (field, kind) = (Field::Word64, "GOT slot");
            self.fixups.push(Fixup { at, field, pc_relative: false, anchor, addend: 0, kind });
        }
        for (stub, &symbol) in self.tables.stub_owners.iter().enumerate() {
            let at = self.layout.stubs_at + wide(stub) * STUB_BYTES;
            let field_at = at + STUB_FIELD;
            let distance = i128::from(self.slot_at(symbol)) - i128::from(field_at + 4);
            // PANIC: `place` has reserved the stubs; images are far below 2 GiB, so the distance fits its field.
            self.bytes[index(at)..][..STUB.len()].copy_from_slice(&STUB);
            assert!(store(&mut self.bytes, field_at, Field::Signed32, distance), "stub {stub} at {at:#x} out of reach");
        }
        Ok(())
    }

    /// The GOT slot of a symbol that has one.
    fn slot_at(&self, symbol: usize) -> u64 {
        let slot = self.tables.slots.get(symbol).copied().flatten();
        // PANIC: `Tables::for_requests` gave a slot to every symbol that a GOT relocation or a stub refers to.
        self.layout.got_at + wide(slot.expect("symbol without GOT slot")) * SLOT_BYTES
    }

    /// Where a symbol is.
    fn anchor(&self, symbol: usize) -> Result<Anchor, ElfError> {
        let target = &self.file.symbols()[symbol]; // PANIC: symbol indices are checked when they are read
        let unsupported =
            |why| ElfError::UnsupportedSymbol { name: name_of(self.file, target), offset: target.offset, why };
        match target.kind() {
            STT_TLS => return Err(unsupported("thread-local storage")),
            STT_GNU_IFUNC => return Err(unsupported("indirect function")),
            _ => {}
        }
        match target.place {
            Place::Undefined => Ok(match self.tables.names.get(symbol).copied().flatten() {
                Some(external) => Anchor::External(external),
                None => Anchor::Absolute(0), // symbol 0: the relocation has no symbol
            }),
            Place::Absolute => Ok(Anchor::Absolute(target.sym.st_value)),
            Place::Common => {
                let at = self.layout.common_at.get(symbol).copied().flatten();
                at.map(Anchor::Image).ok_or_else(|| unsupported("common symbol without a place"))
            }
            Place::Section(section) => {
                let limit = self.file.sections().get(section).map_or(0, |section| section.header.sh_size);
                if target.sym.st_value > limit {
                    let (offset, end) = (target.offset, target.sym.st_value);
                    return Err(ElfError::OutOfSection { what: "symbol", offset, end, limit });
                }
                let at = self.layout.section_at.get(section).copied().flatten();
                let at = at.ok_or_else(|| unsupported("its section is not loaded"))?;
                Ok(Anchor::Image(at + target.sym.st_value))
            }
        }
    }

    /// Applies one relocation, or keeps it as a fixup when it depends on the base or on an external.
    fn apply(&mut self, request: &Request) -> Result<(), ElfError> {
        use RelocKind as K;
        let at = self.layout.section_at.get(request.section).copied().flatten().unwrap_or(0) + request.offset;
        let got = self.layout.got_at;
        match request.row.kind {
            K::None => Ok(()),
            K::Abs64 => self.absolute(request, at, Field::Word64),
            K::Abs32 => self.absolute(request, at, Field::Unsigned32),
            K::Abs32Signed => self.absolute(request, at, Field::Signed32),
            K::Pc64 => self.distance(request, at, Field::Word64, at),
            K::Pc32 | K::Plt32 => self.distance(request, at, Field::Signed32, at),
            K::GotOff64 | K::PltOff64 => self.distance(request, at, Field::Word64, got),
            K::GotPc32 | K::GotPc32Relax | K::GotPc32RexRelax => {
                self.constant(request, at, Field::Signed32, (self.slot_at(request.symbol), at))
            }
            K::Got64 => self.constant(request, at, Field::Word64, (self.slot_at(request.symbol), got)),
            K::GotBasePc32 => self.constant(request, at, Field::Signed32, (got, at)),
            K::GotBasePc64 => self.constant(request, at, Field::Word64, (got, at)),
        }
    }

    /// S + A: known when the base is.
    fn absolute(&mut self, request: &Request, at: u64, field: Field) -> Result<(), ElfError> {
        let (anchor, addend, kind) = (self.anchor(request.symbol)?, request.addend, request.row.name);
        self.fixups.push(Fixup { at, field, pc_relative: false, anchor, addend, kind });
        Ok(())
    }

    /// S + A - origin, where S may be the symbol's stub.
    fn distance(&mut self, request: &Request, at: u64, field: Field, origin: u64) -> Result<(), ElfError> {
        let stub = self.tables.stubs.get(request.symbol).copied().flatten().filter(|_| request.wants_stub);
        let anchor = match stub {
            Some(stub) => Anchor::Image(self.layout.stubs_at + wide(stub) * STUB_BYTES),
            None => self.anchor(request.symbol)?,
        };
        match anchor {
            Anchor::Image(target) => self.constant(request, at, field, (target, origin)),
            anchor if origin == at => {
                let (addend, kind) = (request.addend, request.row.name);
                self.fixups.push(Fixup { at, field, pc_relative: true, anchor, addend, kind });
                Ok(())
            }
            _ => Err(self.unsupported(request, "an address outside the image, relative to its GOT")),
        }
    }

    /// to + A - from, both in the image: the base address does not matter.
    fn constant(&mut self, request: &Request, at: u64, field: Field, (to, from): (u64, u64)) -> Result<(), ElfError> {
        let value = i128::from(to) + i128::from(request.addend) - i128::from(from);
        if store(&mut self.bytes, at, field, value) {
            return Ok(());
        }
        let symbol = name_of(self.file, &self.file.symbols()[request.symbol]); // PANIC: checked when it was read
        Err(ElfError::Overflow { kind: request.row.name, symbol, at, value })
    }

    fn unsupported(&self, request: &Request, why: &'static str) -> ElfError {
        let target = &self.file.symbols()[request.symbol]; // PANIC: checked when it was read
        ElfError::UnsupportedSymbol { name: name_of(self.file, target), offset: target.offset, why }
    }

    /// The global names in code.
    fn entries(&self, classes: &[Option<Class>]) -> Result<BTreeMap<String, u64>, ElfError> {
        let mut out = BTreeMap::new();
        for (i, symbol) in self.file.symbols().iter().enumerate() {
            let Place::Section(section) = symbol.place else { continue };
            let in_code = classes.get(section) == Some(&Some(Class::Text));
            let is_function = matches!(symbol.kind(), STT_FUNC | STT_NOTYPE);
            if !in_code || !is_function || symbol.binding() == STB_LOCAL || symbol.name.is_empty() {
                continue;
            }
            let limit = self.file.sections().get(section).map_or(0, |section| section.header.sh_size);
            match self.anchor(i)? {
                Anchor::Image(at) if symbol.sym.st_value < limit => out.insert(symbol.name.to_owned(), at),
                _ => continue, // a label at the very end of the code is a mark, not a function
            };
        }
        Ok(out)
    }
}

/// A symbol's name, or its section's for a section symbol.
fn name_of(file: &ElfFile, symbol: &FileSymbol) -> String {
    match symbol.place {
        Place::Section(section) if symbol.kind() == STT_SECTION => {
            file.sections().get(section).map_or_else(String::new, |section| section.name.to_owned())
        }
        _ => symbol.name.to_owned(),
    }
}

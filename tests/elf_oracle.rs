//! Independent tools against our reader and linker: the `object` crate on both sides, GNU as and ld.

use doorbell::elf::abi::{SHT_NOBITS, SHT_NULL, SHT_RELA, STB_GLOBAL, STB_WEAK};
use doorbell::elf::parse::{ElfFile, Place};
use doorbell::elf::{self, ElfError};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
use std::path::{Path, PathBuf};
use std::process::Command;

fn tool(program: &str, args: &[&str], dir: &Path) {
    let run = Command::new(program).args(args).current_dir(dir).output().unwrap();
    assert!(run.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&run.stderr));
}

/// The object file that the system's tools make of a source.
fn built(program: &str, flags: &[&str], suffix: &str, source: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let input = format!("input.{suffix}");
    std::fs::write(dir.path().join(&input), source).unwrap();
    tool(program, &[flags, &["-o", "out.o", &input]].concat(), dir.path());
    let path = dir.path().join("out.o");
    (dir, path)
}

fn assembled(source: &str) -> Vec<u8> {
    let (_dir, path) = built("as", &["--64"], "s", source);
    std::fs::read(path).unwrap()
}

/// Every section, symbol and relocation, as both readers see it.
fn compare_readers(bytes: &[u8]) {
    let ours = ElfFile::parse(bytes).unwrap();
    let theirs = object::File::parse(bytes).unwrap();
    let their_sections: Vec<_> = theirs.sections().collect();
    let our_sections: Vec<_> = ours.sections().iter().filter(|s| s.header.sh_type != SHT_NULL).collect();
    assert_eq!(our_sections.len(), their_sections.len());
    for (a, b) in our_sections.iter().zip(&their_sections) {
        assert_eq!((a.name, a.header.sh_size), (b.name().unwrap(), b.size()));
        assert_eq!(a.header.sh_addralign.max(1), b.align().max(1), "{}", a.name);
        if a.header.sh_type != SHT_NOBITS {
            assert_eq!(ours.contents(a).unwrap(), b.data().unwrap(), "{}", a.name);
        }
    }
    let their_symbols: Vec<_> = theirs.symbols().collect();
    assert_eq!(ours.symbols().len() - 1, their_symbols.len()); // the null symbol
    for (a, b) in ours.symbols()[1..].iter().zip(&their_symbols) {
        assert_eq!((a.name, a.sym.st_size), (b.name().unwrap_or(""), b.size()));
        assert_eq!(a.place == Place::Undefined, b.is_undefined(), "{}", a.name);
        assert_eq!(a.place == Place::Common, b.is_common(), "{}", a.name);
        assert_eq!(matches!(a.binding(), STB_GLOBAL | STB_WEAK), b.is_global(), "{}", a.name);
        assert_eq!(a.binding() == STB_WEAK, b.is_weak(), "{}", a.name);
        if let Place::Section(section) = a.place {
            assert_eq!((Some(section), a.sym.st_value), (b.section_index().map(|i| i.0), b.address()), "{}", a.name);
        }
    }
    for table in ours.sections().iter().filter(|section| section.header.sh_type == SHT_RELA) {
        let target = theirs.section_by_index(object::SectionIndex(table.header.sh_info as usize)).unwrap();
        let ours = ours.relocations(table).unwrap();
        let ours: Vec<_> = ours.iter().map(|(_, r)| (r.r_offset, r.r_type, r.r_sym as usize, r.r_addend)).collect();
        let flat = |(at, r): (u64, object::Relocation)| {
            let object::RelocationFlags::Elf { r_type } = r.flags() else { panic!("not ELF") };
            let object::RelocationTarget::Symbol(symbol) = r.target() else { panic!("no symbol") };
            (at, r_type, symbol.0, r.addend())
        };
        assert_eq!(ours, target.relocations().map(flat).collect::<Vec<_>>(), "{}", table.name);
    }
}

#[test]
fn our_reader_and_the_object_crate_see_the_same_in_compiled_files() {
    let source = include_str!("elf_run/kernels.c");
    for flags in [
        &["-c", "-O2"][..],
        &["-c", "-O0", "-g", "-fcommon"],
        &["-c", "-O2", "-fPIC", "-ffunction-sections", "-fdata-sections"],
    ] {
        let (_dir, path) = built("gcc", flags, "c", source);
        compare_readers(&std::fs::read(path).unwrap());
    }
}

#[test]
fn our_reader_and_the_object_crate_see_the_same_in_our_files() {
    let mut object = elf::Object::new(elf::Machine::X86_64);
    object.text = vec![0xe8, 0, 0, 0, 0, 0xc3];
    object.rodata = vec![1; 40];
    object.bss_len = 9;
    object.define_function("kernel", 0, 6);
    let target = elf::Target::Symbol(object.declare_external("outside"));
    let (section, kind) = (elf::Section::Text, elf::RelocKind::Plt32);
    object.relocations.push(elf::Relocation { section, offset_bytes: 1, kind, target, addend: -4 });
    compare_readers(&elf::write(&object).unwrap());
}

#[test]
fn file_written_by_the_object_crate_is_linked() {
    use object::write::{Object, Relocation, Symbol, SymbolSection};
    let mut file = Object::new(object::BinaryFormat::Elf, object::Architecture::X86_64, object::Endianness::Little);
    let text = file.section_id(object::write::StandardSection::Text);
    let data = file.section_id(object::write::StandardSection::Data);
    let symbol = |name: &[u8], section, kind, value| Symbol {
        name: name.to_vec(),
        value,
        size: 8,
        kind,
        scope: object::SymbolScope::Dynamic,
        weak: false,
        section,
        flags: object::SymbolFlags::None,
    };
    file.append_section_data(text, &[0x90; 32], 16);
    file.append_section_data(data, &[5; 16], 8);
    file.add_symbol(symbol(b"entry", SymbolSection::Section(text), object::SymbolKind::Text, 16));
    let words = file.add_symbol(symbol(b"words", SymbolSection::Section(data), object::SymbolKind::Data, 8));
    let outside = file.add_symbol(symbol(b"outside", SymbolSection::Undefined, object::SymbolKind::Unknown, 0));
    for (section, offset, symbol, addend, r_type) in [
        (text, 4, words, -4, object::elf::R_X86_64_PC32),
        (text, 8, outside, 2, object::elf::R_X86_64_64),
        (data, 0, words, 1, object::elf::R_X86_64_64),
    ] {
        let flags = object::RelocationFlags::Elf { r_type };
        file.add_relocation(section, Relocation { offset, symbol, addend, flags }).unwrap();
    }
    let bytes = file.write().unwrap();
    compare_readers(&bytes);
    let image = elf::link(&bytes).unwrap();
    let memory = image.relocated(0x40_0000, &|name| (name == "outside").then_some(0x1_0000_0000)).unwrap();
    assert_eq!(image.entry("entry"), Some(16));
    assert_eq!(memory[4..8], (4096 + 8 - 4 - 4i32).to_le_bytes());
    assert_eq!(memory[8..16], 0x1_0000_0002u64.to_le_bytes());
    assert_eq!(memory[4096..4104], (0x40_0000 + 4096 + 8 + 1u64).to_le_bytes());
}

/// All relocations between places of one file; GNU ld with the same section addresses must make the same bytes.
#[test]
fn gnu_ld_makes_the_same_bytes_at_the_same_addresses() {
    let bytes_of = "
        .text
        .globl _start
        .type _start, @function
_start: call near
        lea table+8(%rip), %rax
        mov $table, %edi            # R_X86_64_32
        mov table(,%rcx,8), %rdx    # R_X86_64_32S
        movabs $value, %rsi         # R_X86_64_64
        cmpl $7, zeros+4(%rip)      # a distance with an immediate behind it
        jmp near@PLT
near:   ret
        .section .rodata
        .balign 64
table:  .quad near, value+3
        .quad near - .              # R_X86_64_PC64
        .long near - table          # R_X86_64_PC32
        .long zeros
        .data
        .balign 8
value:  .quad table, zeros + 16, absolute
        .set absolute, 0x1234
        .bss
        .balign 16
zeros:  .skip 64
";
    let (dir, path) = built("as", &["--64"], "s", bytes_of);
    let base = 0x40_0000u64;
    let starts = [".text", ".rodata", ".data", ".bss"].iter().zip([0u64, 4096, 8192, 8192 + 32]);
    let starts: Vec<_> = starts.map(|(name, at)| format!("--section-start={name}={:#x}", base + at)).collect();
    let args = [&["-o", "linked", "out.o"][..], &starts.iter().map(String::as_str).collect::<Vec<_>>()].concat();
    tool("ld", &args, dir.path());
    let linked = std::fs::read(dir.path().join("linked")).unwrap();
    let linked = object::File::parse(&*linked).unwrap();
    let image = elf::link(&std::fs::read(path).unwrap()).unwrap();
    assert!(image.needs_low_2gib());
    let memory = image.relocated(base, &|_| None).unwrap();
    for name in [".text", ".rodata", ".data"] {
        let section = linked.section_by_name(name).unwrap();
        let at = usize::try_from(section.address() - base).unwrap();
        assert_eq!(memory[at..at + section.data().unwrap().len()], *section.data().unwrap(), "{name}");
    }
    assert_eq!(linked.section_by_name(".bss").unwrap().address(), base + 8192 + 32);
}

/// More sections than a 16-bit index can name: the counts move to section 0 and the symbols' indices to a table.
#[test]
fn more_than_65279_sections_are_linked() {
    let count = 66_000;
    let section =
        |i| format!(".section .text.f{i},\"ax\",@progbits\n.globl f{i}\nf{i}: mov $f{},%eax\nret\n", (i + 1) % count);
    let bytes = assembled(&(0..count).map(section).collect::<String>());
    compare_readers(&bytes);
    let image = elf::link(&bytes).unwrap();
    assert_eq!(image.entries().count(), count);
    let memory = image.relocated(0x1000, &|_| None).unwrap();
    for i in [0, 65_279, 65_280, count - 1] {
        let (own, next) =
            (image.entry(&format!("f{i}")).unwrap(), image.entry(&format!("f{}", (i + 1) % count)).unwrap());
        assert_eq!(memory[own..own + 5], [&[0xb8][..], &u32::try_from(0x1000 + next).unwrap().to_le_bytes()].concat());
    }
}

#[test]
fn what_the_loader_does_not_provide_is_a_named_error() {
    let error = |source: &str| elf::link(&assembled(source)).unwrap_err().to_string();
    let cases = [
        (".section .tdata,\"awT\",@progbits\n.long 1", "section .tdata", "thread-local storage"),
        (".section .init_array,\"aw\",@init_array\n.quad 0", "section .init_array", "constructors"),
        (".section .odd,\"awx\",@progbits\nnop", "section .odd", "both writable and executable"),
        (".data\n.balign 8192\n.long 1", "alignment 8192", "up to 4096"),
        (".bss\n.skip 0x40000001", "the image would need 1073741825 bytes", "the limit is 1073741824"),
        (".text\n.type f,@gnu_indirect_function\n.globl f\nf: ret\ncall f", "symbol f", "indirect function"),
        (".text\nmov %fs:x@tpoff, %eax", "relocation type 23 against x", "not supported"),
        (".text\n.byte x", "relocation type 14 against x", "not supported"),
        (
            ".section .eh_frame,\"a\",@progbits\nx: .long 1\n.text\n.quad x",
            "symbol .eh_frame",
            "its section is not loaded",
        ),
        (".text\njmp x + 0x7fffffff\n.bss\n.skip 4\nx: .long 0", "R_X86_64_PC32", "does not fit"),
        ("", "no section to load", "bytes"),
    ];
    for (source, first, second) in cases {
        let message = error(source);
        assert!(message.contains(first) && message.contains(second), "{source}\n{message}");
    }
}

#[test]
fn files_of_another_kind_are_refused_by_the_field_that_says_so() {
    let mut executable = assembled("nop");
    executable[16] = 2; // ET_EXEC
    assert!(matches!(elf::link(&executable), Err(ElfError::BadField { what: "e_type", offset: 16, found: 2, .. })));
    let mut foreign = assembled("nop");
    foreign[18] = 183; // EM_AARCH64
    assert!(matches!(elf::link(&foreign), Err(ElfError::BadField { what: "e_machine", offset: 18, found: 183, .. })));
    let mut narrow = assembled("nop");
    narrow[4] = 1; // ELFCLASS32
    assert!(matches!(elf::link(&narrow), Err(ElfError::BadField { what: "EI_CLASS", offset: 4, .. })));
    assert!(matches!(elf::link(b"MZ"), Err(ElfError::Truncated { what: "file header", offset: 0, .. })));
}

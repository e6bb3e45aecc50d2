//! The object writer against independent readers: binutils' readelf and objdump, the `object` crate, and our own
//! parser.

use doorbell::elf::{self, ElfError, Machine, Object, RelocKind, Relocation, Section, Symbol, Target};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
use std::process::Command;

/// A function that calls an external and loads a constant, a local data symbol, 256 bytes of zeros, a jump table.
fn sample() -> Object {
    let mut object = Object::new(Machine::X86_64);
    object.text = vec![
        0xe8, 0, 0, 0, 0, // call external
        0xc5, 0xfc, 0x10, 0x05, 0, 0, 0, 0,    // vmovups constant(%rip), %ymm0
        0xc3, // ret
    ];
    object.rodata = vec![0; 48];
    object.rodata[..4].copy_from_slice(&1.5f32.to_le_bytes());
    object.bss_len = 256;
    object.define_function("kernel", 0, 14);
    let external = object.declare_external("expf");
    object.symbols.push(Symbol {
        name: "counter".into(),
        section: Some(Section::Bss),
        offset_bytes: 64,
        size_bytes: 8,
        global: false,
        func: false,
    });
    let mut reloc = |section, offset_bytes, kind, target, addend| {
        object.relocations.push(Relocation { section, offset_bytes, kind, target, addend });
    };
    reloc(Section::Text, 1, RelocKind::Plt32, Target::Symbol(external), -4);
    reloc(Section::Text, 9, RelocKind::Pc32, Target::Section(Section::Rodata), -4);
    reloc(Section::Rodata, 32, RelocKind::Abs64, Target::Symbol(0), 13);
    reloc(Section::Rodata, 40, RelocKind::Abs64, Target::Symbol(2), 0);
    object
}

/// Runs a binutils program over the bytes; its absence is a failure, as `as` and `cc` are needed to build at all.
fn binutils(program: &str, args: &[&str], bytes: &[u8]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sample.o");
    std::fs::write(&path, bytes).unwrap();
    let out = Command::new(program).args(args).arg(&path).output().unwrap();
    let (text, complaints) = (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap());
    assert!(out.status.success() && complaints.is_empty(), "{program}: {complaints}");
    text
}

/// The words of the first line that contains all of `marks`.
fn line<'a>(text: &'a str, marks: &[&str]) -> Vec<&'a str> {
    let found = text.lines().find(|line| marks.iter().all(|mark| line.split_whitespace().any(|word| word == *mark)));
    found.unwrap_or_else(|| panic!("no line with {marks:?} in\n{text}")).split_whitespace().collect()
}

#[test]
fn readelf_agrees_on_header_sections_symbols_and_relocations() {
    let text = binutils("readelf", &["-a", "-W"], &elf::write(&sample()).unwrap());
    assert!(text.contains("REL (Relocatable file)") && text.contains("Advanced Micro Devices X86-64"), "{text}");
    assert!(!text.contains("Warning") && !text.contains("Error"), "{text}");
    // columns after the name: type, address, offset, size, entry size, flags, ...
    let section =
        |name| line(&text, &[name, "0000000000000000"]).into_iter().skip_while(|w| *w != name).collect::<Vec<_>>();
    assert_eq!(section(".text")[1..], ["PROGBITS", "0000000000000000", "000040", "00000e", "00", "AX", "0", "0", "64"]);
    let rodata = section(".rodata");
    assert_eq!((rodata[1], rodata[4], rodata[6], rodata[9]), ("PROGBITS", "000030", "A", "64"));
    let bss = section(".bss");
    assert_eq!((bss[1], bss[4], bss[6], bss[9]), ("NOBITS", "000100", "WA", "64"));
    assert_eq!(section(".rela.text")[1], "RELA");
    assert_eq!(section(".note.GNU-stack")[4], "000000");
    assert_eq!(
        line(&text, &["kernel", "FUNC"])[1..],
        ["0000000000000000", "14", "FUNC", "GLOBAL", "DEFAULT", "1", "kernel"]
    );
    assert_eq!(
        line(&text, &["counter", "OBJECT"])[1..],
        ["0000000000000040", "8", "OBJECT", "LOCAL", "DEFAULT", "3", "counter"]
    );
    assert_eq!(line(&text, &["expf", "UND"])[3..], ["NOTYPE", "GLOBAL", "DEFAULT", "UND", "expf"]);
    let rela = |kind, name| line(&text, &[kind, name]);
    assert_eq!(rela("R_X86_64_PLT32", "expf")[0], "0000000000000001");
    assert_eq!(rela("R_X86_64_PLT32", "expf")[4..], ["expf", "-", "4"]);
    assert_eq!(rela("R_X86_64_PC32", ".rodata")[4..], [".rodata", "-", "4"]);
    assert_eq!(rela("R_X86_64_64", "kernel")[4..], ["kernel", "+", "d"]);
    assert_eq!(rela("R_X86_64_64", "counter")[4..], ["counter", "+", "0"]);
}

#[test]
fn objdump_disassembles_the_code_with_its_relocations() {
    let text = binutils("objdump", &["-d", "-r", "-w"], &elf::write(&sample()).unwrap());
    assert!(text.contains("file format elf64-x86-64"), "{text}");
    assert!(text.contains("0000000000000000 <kernel>:"), "{text}");
    let call = text.lines().find(|line| line.contains("call")).unwrap();
    assert!(call.contains("1: R_X86_64_PLT32\texpf-0x4"), "{call}");
    let load = text.lines().find(|line| line.contains("vmovups")).unwrap();
    assert!(load.contains("(%rip),%ymm0") && load.contains("9: R_X86_64_PC32\t.rodata-0x4"), "{load}");
    assert!(text.lines().last().unwrap().contains("ret"), "{text}");
}

#[test]
fn object_crate_reads_what_was_written() {
    let sample = sample();
    let bytes = elf::write(&sample).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    assert_eq!(file.section_by_name(".text").unwrap().data().unwrap(), sample.text);
    assert_eq!(file.section_by_name(".rodata").unwrap().data().unwrap(), sample.rodata);
    assert_eq!(file.section_by_name(".bss").unwrap().size(), 256);
    let kernel = file.symbol_by_name("kernel").unwrap();
    assert!(kernel.is_global() && kernel.is_definition() && kernel.kind() == object::SymbolKind::Text);
    assert!(file.symbol_by_name("expf").unwrap().is_undefined());
    let seen: Vec<_> = file.section_by_name(".text").unwrap().relocations().map(|(at, r)| (at, r.addend())).collect();
    assert_eq!(seen, [(1, -4), (9, -4)]);
    assert_eq!(file.section_by_name(".rodata").unwrap().relocations().count(), 2);
}

#[test]
fn linked_sample_has_distances_stub_and_addresses_in_place() {
    let image = elf::link_object(&sample(), elf::PAGE_BYTES).unwrap();
    let perms: Vec<_> = image.segments().iter().map(|s| (s.range.clone(), s.perm)).collect();
    assert_eq!(perms, [(0..4096, elf::Perm::Rx), (4096..8192, elf::Perm::R), (8192..12288, elf::Perm::Rw)]);
    assert_eq!(image.entry("kernel"), Some(0));
    assert_eq!(image.entry("counter"), None);
    assert_eq!(image.undefined().collect::<Vec<_>>(), ["expf"]);
    let base = 0x7f00_0000_0000;
    let memory = image.relocated(base, &|name| (name == "expf").then_some(0x1234_5678_9abc)).unwrap();
    assert_eq!(memory.len(), image.size());
    let word = |at: usize| i32::from_le_bytes(memory[at..at + 4].try_into().unwrap());
    let long = |at: usize| u64::from_le_bytes(memory[at..at + 8].try_into().unwrap());
    let stub = 5 + usize::try_from(word(1)).unwrap(); // the call's next instruction is at 5
    assert_eq!(memory[stub..stub + 2], [0xff, 0x25]); // jmp *slot(%rip)
    let slot = stub + 6 + usize::try_from(word(stub + 2)).unwrap();
    assert_eq!(long(slot), 0x1234_5678_9abc);
    assert_eq!(word(9), 4096 - 13); // .rodata - address after the load
    assert_eq!(long(4096 + 32), base + 13);
    assert_eq!(long(4096 + 40), base + 8192 + 64);
    assert_eq!(memory[14], 0xcc); // the code's end is fenced by breakpoints
}

#[test]
fn undefined_symbol_is_named() {
    let error = elf::link_object(&sample(), elf::PAGE_BYTES).unwrap().relocated(0, &|_| None).unwrap_err();
    assert_eq!(error, ElfError::Undefined { name: "expf".into() });
    assert_eq!(error.to_string(), "ELF: undefined symbol expf");
}

#[test]
fn base_that_is_not_page_aligned_or_wraps_is_refused() {
    let image = elf::link_object(&sample(), elf::PAGE_BYTES).unwrap();
    assert!(matches!(image.relocated(0x1008, &|_| Some(0)), Err(ElfError::BadBase { base: 0x1008, .. })));
    assert!(matches!(image.relocated(u64::MAX - 0xfff, &|_| Some(0)), Err(ElfError::BadBase { .. })));
}

#[test]
fn objects_that_contradict_themselves_are_refused() {
    let refused = |change: &dyn Fn(&mut Object)| {
        let mut object = sample();
        change(&mut object);
        elf::write(&object).unwrap_err().to_string()
    };
    type Change<'a> = &'a dyn Fn(&mut Object);
    let cases: [(Change, &str); 7] = [
        (&|o| o.symbols[0].size_bytes = 15, "object: symbol 0: it reaches beyond its section"),
        (&|o| o.symbols[0].offset_bytes = u64::MAX, "object: symbol 0: it reaches beyond its section"),
        (&|o| o.symbols[1].global = false, "object: symbol 1: undefined, but not global"),
        (&|o| o.symbols[2].name.push('\0'), "object: symbol 2: its name is empty or holds a NUL byte"),
        (&|o| o.relocations[0].offset_bytes = 11, "object: relocation 0: its field reaches beyond its section"),
        (&|o| o.relocations[3].section = Section::Bss, "object: relocation 3: in a section without contents"),
        (&|o| o.relocations[2].target = Target::Symbol(3), "object: relocation 2: against a symbol that is not there"),
    ];
    for (change, message) in cases {
        assert_eq!(refused(change), message);
    }
}

/// The system's linker takes our file and its program runs: the strongest reader of all.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[test]
fn written_object_runs_in_a_program_that_the_system_links() {
    let mut object = Object::new(Machine::X86_64);
    object.text = vec![
        0x48, 0x8b, 0x07, // mov (%rdi), %rax
        0x48, 0x03, 0x35, 0, 0, 0, 0, // add constant(%rip), %rsi
        0x48, 0x01, 0x35, 0, 0, 0, 0, // add %rsi, counter(%rip)
        0x48, 0x8b, 0x35, 0, 0, 0, 0, // mov counter(%rip), %rsi
        0x48, 0x89, 0x30, // mov %rsi, (%rax)
        0x48, 0x8b, 0x15, 0, 0, 0, 0, // mov pointer(%rip), %rdx
        0x48, 0x89, 0x50, 0x08, // mov %rdx, 8(%rax)
        0x48, 0x89, 0xc7, // mov %rax, %rdi
        0xe9, 0, 0, 0, 0, // jmp host
    ];
    object.rodata = [100u64.to_le_bytes(), [0; 8]].concat();
    object.bss_len = 16;
    let kernel = object.define_function("kernel", 0, 46);
    let host = object.declare_external("host");
    let relocations = [
        (Section::Text, 6, RelocKind::Pc32, Target::Section(Section::Rodata), -4),
        (Section::Text, 13, RelocKind::Pc32, Target::Section(Section::Bss), 8 - 4),
        (Section::Text, 20, RelocKind::Pc32, Target::Section(Section::Bss), 8 - 4),
        (Section::Text, 30, RelocKind::Pc32, Target::Section(Section::Rodata), 8 - 4),
        (Section::Text, 42, RelocKind::Plt32, Target::Symbol(host), -4),
        (Section::Rodata, 8, RelocKind::Abs64, Target::Symbol(kernel), 0),
    ];
    for (section, offset_bytes, kind, target, addend) in relocations {
        object.relocations.push(Relocation { section, offset_bytes, kind, target, addend });
    }
    let main = "#include <stdio.h>
        void kernel(const unsigned long *args, unsigned long tid);
        void host(unsigned long *out) { *out += 5000; }
        int main(void) { unsigned long out[2], args[1] = {(unsigned long)out};
          for (unsigned long tid = 1; tid < 4; tid++) { kernel(args, tid);
            printf(\"%lu %d \", out[0], out[1] == (unsigned long)kernel); } return 0; }";
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("kernel.o"), elf::write(&object).unwrap()).unwrap();
    std::fs::write(dir.path().join("main.c"), main).unwrap();
    let flags = ["-no-pie", "-Wl,--fatal-warnings", "main.c", "kernel.o", "-o", "main"];
    let linked = Command::new("gcc").args(flags).current_dir(dir.path()).output().unwrap();
    assert!(linked.status.success() && linked.stderr.is_empty(), "{}", String::from_utf8_lossy(&linked.stderr));
    let run = Command::new(dir.path().join("main")).output().unwrap();
    assert_eq!(String::from_utf8(run.stdout).unwrap(), "5101 1 5203 1 5306 1 ");
}

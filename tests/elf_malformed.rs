//! Damaged and random files: the linker gives an error or a consistent image, and never panics.
//!
//! Reading outside cannot happen silently: the room forbids `unsafe`, so it would be a panic.

use doorbell::elf::{self, ElfError, Image, Machine, Object, Perm, RelocKind, Relocation, Section, Symbol, Target};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::process::Command;

/// A small object of ours with every kind of section, symbol and target.
fn ours() -> Vec<u8> {
    let mut object = Object::new(Machine::X86_64);
    object.text = vec![0x90; 40];
    object.rodata = vec![7; 24];
    object.bss_len = 32;
    object.define_function("kernel", 0, 40);
    let external = object.declare_external("expf");
    let (section, offset_bytes, size_bytes) = (Some(Section::Bss), 8, 8);
    object.symbols.push(Symbol { name: "state".into(), section, offset_bytes, size_bytes, global: false, func: false });
    let targets = [Target::Symbol(0), Target::Symbol(external), Target::Symbol(2), Target::Section(Section::Rodata)];
    let kinds = [RelocKind::Plt32, RelocKind::GotPc32, RelocKind::Abs64, RelocKind::Pc32];
    for (i, (target, kind)) in targets.into_iter().cycle().zip(kinds).enumerate() {
        let (section, offset_bytes, addend) = (Section::Text, 8 * i as u64, -4);
        object.relocations.push(Relocation { section, offset_bytes, kind, target, addend });
    }
    let (section, kind, target) = (Section::Rodata, RelocKind::Abs64, Target::Symbol(external));
    object.relocations.push(Relocation { section, offset_bytes: 8, kind, target, addend: 0 });
    elf::write(&object).unwrap()
}

/// A small object of the C compiler: common and weak symbols, data with pointers, strings, unwinding tables.
fn compiled() -> Vec<u8> {
    let source = "extern int outside(const char *); extern int weak(void) __attribute__((weak)); int common[9];
        static int state = 3; int *pointer = &state; static int zeros[8];
        int f(int x) { switch (x) { case 0: return state; case 1: return outside(\"text\"); case 2: return 7 * state;
        case 3: return common[x]; case 4: return zeros[state++]; case 5: return weak ? weak() : 1; } return x; }
        void kernel(const unsigned long *args, unsigned long tid) { *(int *)args[0] = f((int)tid); }";
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (dir.path().join("a.c"), dir.path().join("a.o"));
    std::fs::write(&input, source).unwrap();
    let flags = ["-c", "-O1", "-fPIC", "-fcommon", "-fno-ident"];
    let run = Command::new("gcc").args(flags).arg(&input).arg("-o").arg(&output).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    std::fs::read(&output).unwrap()
}

/// What must hold for an image that the linker hands out, whatever file it came from.
fn check(image: &Image) {
    let mut end = 0;
    for segment in image.segments() {
        assert_eq!(segment.range.start, end);
        assert!(segment.range.end > end && segment.range.end.is_multiple_of(image.align()));
        end = segment.range.end;
    }
    assert_eq!(end, image.size());
    for (name, at) in image.entries() {
        let segment = image.segments().iter().find(|segment| segment.range.contains(&at));
        assert_eq!(segment.map(|segment| segment.perm), Some(Perm::Rx), "{name} at {at:#x}");
    }
    if image.size() <= 1 << 20 {
        for base in [0x10_0000, 0x7fff_1234_5000] {
            match image.relocated(base, &|name| (!name.is_empty()).then_some(0x5555_0000)) {
                Ok(memory) => assert_eq!(memory.len(), image.size()),
                Err(ElfError::Overflow { .. } | ElfError::Undefined { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
    }
}

/// A thousand headers that all show the same bytes would make a small file cost a thousand times its size.
#[test]
fn sections_that_share_their_bytes_are_refused() {
    let sample = ours();
    let headers = elf::parse::ElfFile::parse(&sample).unwrap().sections()[0].header_offset as usize;
    let mut file = sample.clone();
    for _ in 0..100 {
        file.extend_from_within(headers + 64..headers + 128); // .text
    }
    let count = u16::try_from((file.len() - headers) / 64).unwrap();
    file[60..62].copy_from_slice(&count.to_le_bytes()); // e_shnum
    assert!(elf::link(&file).is_ok()); // 100 x 40 bytes of code still fit into a file of 100 x 64 bytes of headers
    let text = headers + 64;
    let len = file.len() as u64;
    for (field, value) in [(24, 0), (32, len)] {
        // sh_offset, sh_size: the whole file
        file[text + field..text + field + 8].copy_from_slice(&u64::to_le_bytes(value));
    }
    assert!(matches!(elf::link(&file), Err(ElfError::Overlap { .. })));
}

#[test]
fn every_truncation_of_a_sample_is_an_error() {
    for sample in [ours(), compiled()] {
        check(&elf::link(&sample).unwrap());
        for len in 0..sample.len() {
            let error = elf::link(&sample[..len]).unwrap_err();
            assert!(matches!(error, ElfError::Truncated { .. }), "{len} of {} bytes: {error}", sample.len());
        }
    }
}

/// A sequence of numbers that looks random (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// Places in the file where a change means something: the header, the section headers, symbols and relocations.
fn tables(sample: &[u8]) -> Vec<std::ops::Range<usize>> {
    let file = elf::parse::ElfFile::parse(sample).unwrap();
    let sections = file.sections();
    let headers = sections[0].header_offset as usize;
    let range = |h: &elf::abi::Shdr| h.sh_offset as usize..(h.sh_offset + h.sh_size) as usize;
    let kinds = [elf::abi::SHT_SYMTAB, elf::abi::SHT_RELA];
    let mut out: Vec<_> =
        sections.iter().filter(|s| kinds.contains(&s.header.sh_type)).map(|s| range(&s.header)).collect();
    out.extend([0..64, headers..headers + 64 * sections.len()]);
    out.retain(|range| !range.is_empty());
    out
}

/// Changes a few fields, mostly inside the tables, mostly to values at the edge of something.
fn mutate(file: &mut Vec<u8>, tables: &[std::ops::Range<usize>], random: &mut Random) {
    for _ in 0..1 + random.below(3) {
        let at = match random.below(8) {
            0 => random.below(file.len()),
            _ => {
                let table = &tables[random.below(tables.len())];
                let at = table.start + random.below(table.len());
                if random.below(4) == 0 { at } else { at & !3 } // fields are mostly aligned
            }
        };
        let value = match random.below(6) {
            0 => random.next(),
            1 => random.next() % 64,
            2 => u64::MAX - random.next() % 64,
            3 => 1 << random.below(64),
            4 => file.len() as u64 - random.next() % 64,
            _ => u64::from(file[at]) ^ 1 << random.below(8),
        };
        let width = [1, 1, 2, 4, 8][random.below(5)].min(file.len() - at);
        file[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
    }
    if random.below(64) == 0 {
        file.truncate(random.below(file.len()));
    }
}

/// Names the failed case when the test aborts in the middle of it.
struct Case(u64);

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed in mutated file {} (its number is its seed)", self.0);
        }
    }
}

/// The name of an error's kind; the others are not required.
fn kind(error: &elf::ElfError) -> &'static str {
    use elf::ElfError as E;
    match error {
        E::Truncated { .. } => "Truncated",
        E::BadField { .. } => "BadField",
        E::BadIndex { .. } => "BadIndex",
        E::BadString { .. } => "BadString",
        E::OutOfSection { .. } => "OutOfSection",
        E::BadAlign { .. } => "BadAlign",
        E::UnsupportedSection { .. } => "UnsupportedSection",
        E::UnsupportedSymbol { .. } => "UnsupportedSymbol",
        E::UnsupportedRelocation { .. } => "UnsupportedRelocation",
        E::ImageTooBig { .. } => "ImageTooBig",
        E::Overflow { .. } => "Overflow",
        _ => "another",
    }
}

#[test]
fn a_million_mutated_files_give_an_error_or_a_consistent_image() {
    let samples = [ours(), compiled()].map(|sample| (tables(&sample), sample));
    let (mut images, mut kinds) = (0u32, BTreeSet::new());
    let mut file = Vec::new();
    for seed in 0..1_000_000 {
        let case = Case(seed);
        let mut random = Random(seed);
        let (tables, sample) = &samples[(seed % 2) as usize];
        file.clone_from(sample);
        mutate(&mut file, tables, &mut random);
        match elf::link(&file) {
            Ok(image) => {
                images += 1;
                check(&image);
            }
            Err(error) => {
                kinds.insert(kind(&error));
            }
        }
        drop(case);
    }
    println!("{images} images; errors seen: {kinds:?}");
    // The damage reaches every stage: a test that only ever breaks the header would prove little.
    assert!((100_000..900_000).contains(&images), "{images}");
    for kind in [
        "Truncated",
        "BadField",
        "BadIndex",
        "BadString",
        "OutOfSection",
        "BadAlign",
        "UnsupportedSection",
        "UnsupportedSymbol",
        "UnsupportedRelocation",
        "ImageTooBig",
        "Overflow",
    ] {
        assert!(kinds.contains(kind), "no {kind} among {kinds:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        prop_assert!(elf::link(&bytes).is_err());
    }

    #[test]
    fn random_bytes_behind_a_right_header_do_not_panic(
        tail in proptest::collection::vec(any::<u8>(), 0..2048),
        count in 0u16..40,
        names in 0u16..40,
        table_offset in 0u64..2112,
    ) {
        let mut file = Vec::new();
        let (e_type, e_machine, e_shoff, e_shentsize) = (elf::abi::ET_REL, 62, table_offset, 64);
        elf::abi::Ehdr { e_type, e_machine, e_shoff, e_shentsize, e_shnum: count, e_shstrndx: names }.emit(&mut file);
        file.extend(tail);
        if let Ok(image) = elf::link(&file) {
            check(&image);
        }
    }
}

//! Cubins made by ptxas, versions 12.9 and 13, for four chips: what the loader reads of them against what ptxas
//! reported when it made them, against the `object` crate, and damaged in every way.
//!
//! `tests/data/cubin/module.ptx` is the source; `ptxas -v -arch=sm_90` printed the registers, barriers, stacks and
//! bytes below.

use doorbell::elf::ElfError;
use doorbell::elf::cubin::{Cubin, Functions, Param, is_cubin};
use object::{Object, ObjectSection, ObjectSymbol};

struct Made {
    file: &'static str,
    bytes: &'static [u8],
    sm: u32,
    /// Registers of `empty`, `k`, `stack`.
    registers: [u32; 3],
    param_base: u32,
    /// Size of k's `.nv.shared` section.
    shared_bytes: u32,
}

macro_rules! made {
    ($name:literal, $sm:literal, $registers:expr, $base:literal, $shared:literal) => {
        Made {
            file: $name,
            bytes: include_bytes!(concat!("data/cubin/", $name)),
            sm: $sm,
            registers: $registers,
            param_base: $base,
            shared_bytes: $shared,
        }
    };
}

const ALL: &[Made] = &[
    made!("module_sm75.cubin", 75, [4, 8, 10], 0x160, 512),
    made!("module_sm80.cubin", 80, [4, 16, 10], 0x160, 512),
    made!("module_sm90.cubin", 90, [4, 16, 12], 0x210, 0x600),
    made!("module_sm90_v7.cubin", 90, [4, 16, 12], 0x210, 0x600),
    made!("module_sm120.cubin", 120, [4, 16, 12], 0x380, 0x600),
];

#[test]
fn kernels_are_what_ptxas_said_of_them() {
    for made in ALL {
        assert!(is_cubin(made.bytes));
        let cubin = Cubin::parse(made.bytes).unwrap_or_else(|e| panic!("{}: {e}", made.file));
        assert_eq!(cubin.sm, made.sm, "{}", made.file);
        let names: Vec<&str> = cubin.kernels.iter().map(|k| k.name.as_str()).collect();
        assert_eq!(names, ["empty", "k", "stack"], "{}", made.file);
        for (kernel, registers) in cubin.kernels.iter().zip(made.registers) {
            assert_eq!(kernel.registers, registers, "{} {}", made.file, kernel.name);
            assert_eq!(kernel.param_base, made.param_base, "{} {}", made.file, kernel.name);
            assert_eq!(kernel.barriers, u32::from(kernel.name == "k"), "{} {}", made.file, kernel.name);
            assert_eq!(kernel.stack_bytes, Some(if kernel.name == "stack" { 256 } else { 0 }), "{}", made.file);
            assert!(kernel.code_offset.is_multiple_of(128) && kernel.code_bytes > 0);
        }
        let k = cubin.kernel("k").unwrap();
        assert_eq!(k.params, [Param { offset: 0, len_bytes: 8 }, Param { offset: 8, len_bytes: 4 }], "{}", made.file);
        assert_eq!((k.required_block, k.cluster), (Some([64, 1, 1]), None), "{}", made.file);
        assert_eq!(k.shared_bytes, made.shared_bytes, "{}", made.file);
        assert_eq!(k.bank0_bytes, made.param_base + 12, "{}", made.file);
        let stack = cubin.kernel("stack").unwrap();
        let sizes: Vec<(u32, u32)> = stack.params.iter().map(|p| (p.offset, p.len_bytes)).collect();
        assert_eq!(sizes, [(0, 8), (8, 24), (32, 2)], "{}", made.file);
    }
}

#[test]
fn code_and_constants_lie_in_the_image_as_the_object_crate_reads_them() {
    for made in ALL {
        let cubin = Cubin::parse(made.bytes).unwrap();
        let image = cubin.image(0x20_0000_0000).unwrap();
        let witness = object::File::parse(made.bytes).unwrap();
        for kernel in &cubin.kernels {
            let section = witness.section_by_name(&format!(".text.{}", kernel.name)).unwrap();
            let at = kernel.code_offset as usize;
            let code = &image[at..at + kernel.code_bytes as usize];
            assert_eq!(code, &section.data().unwrap()[..code.len()], "{} {}", made.file, kernel.name);
            assert_eq!(code, cubin.code(kernel));
            let symbol = witness.symbol_by_name(&kernel.name).unwrap();
            assert_eq!(symbol.size(), kernel.code_bytes);
        }
        let k = cubin.kernel("k").unwrap();
        let bank = k.banks.iter().find(|b| b.number == 3).expect("__constant__");
        let floats = witness.section_by_name(".nv.constant3").unwrap();
        assert_eq!(&image[bank.offset as usize..][..8], floats.data().unwrap());
        assert!(image[image.len() - 4096..].iter().all(|b| *b == 0), "a tail for prefetch");
    }
}

#[test]
fn addresses_of_data_are_those_of_the_image() {
    const BASE: u64 = 0x20_1234_5000;
    for made in ALL {
        let cubin = Cubin::parse(made.bytes).unwrap();
        let image = cubin.image(BASE).unwrap();
        let word = |at: u64| u64::from_le_bytes(image[at as usize..at as usize + 8].try_into().unwrap());
        let k = cubin.kernel("k").unwrap();
        let bank = k.banks.iter().find(|b| b.number == 4).expect("addresses");
        // Its slots hold the addresses of table, ptrs and buf, in the order in which the code came upon them.
        let slots: Vec<u64> = (0..3).map(|n| word(bank.offset + 8 * n)).collect();
        assert!(slots.iter().all(|a| (BASE..BASE + image.len() as u64).contains(a)), "{}: {slots:x?}", made.file);
        let table = [1u32, 2, 3, 4].map(u32::to_le_bytes).concat();
        let at = |address: u64| (address - BASE) as usize;
        let found = slots.iter().find(|a| image[at(**a)..].starts_with(&table)).expect("the table");
        // ptrs = {table, generic(table)}: one address twice.
        let is_ptrs = |a: &&u64| word(**a - BASE) == *found && word(**a - BASE + 8) == *found;
        assert!(slots.iter().any(|a| is_ptrs(&a)), "{}", made.file);
        let moved = cubin.image(BASE + 0x1000).unwrap();
        assert_ne!(moved, image);
    }
}

#[test]
fn more_shared_memory_than_a_chip_has_is_refused_at_the_sections_header() {
    for made in ALL {
        let witness = object::read::elf::ElfFile64::<object::Endianness>::parse(made.bytes).unwrap();
        let index = witness.section_by_name(".nv.shared.k").unwrap().index().0;
        let header = witness.elf_header().e_shoff.get(object::Endianness::Little) as usize + 64 * index;
        let mut bytes = made.bytes.to_vec();
        // sh_size
        bytes[header + 32..header + 40].copy_from_slice(&(2u64 << 20).to_le_bytes());
        let error = Cubin::parse(&bytes).unwrap_err();
        let want = format!("ELF: section .nv.shared.k at offset {header:#x}: it is larger than any chip has");
        assert_eq!(error.to_string(), want, "{}", made.file);
    }
}

#[test]
fn shared_memory_of_a_launch_follows_the_chips_rules() {
    for made in ALL {
        let cubin = Cubin::parse(made.bytes).unwrap();
        let bytes = |name: &str, dynamic| cubin.kernel(name).unwrap().launch_shared_bytes(cubin.sm, dynamic);
        let want = match made.sm {
            75 => (0, 512, 640),
            80 => (0x400, 512 + 0x400, 640 + 0x400),
            _ => (0x400, 0x600, 0x680),
        };
        assert_eq!((bytes("empty", 0), bytes("k", 0), bytes("k", 100)), want, "{}", made.file);
    }
}

#[test]
fn other_files_and_bases_are_refused_with_the_reason() {
    let good = ALL[2].bytes;
    let elf = |edit: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.to_vec();
        edit(&mut bytes);
        Cubin::parse(&bytes).unwrap_err().to_string()
    };
    assert!(elf(&|b| b[7] = 0).contains("EI_OSABI at offset 0x7 is 0x0, not 0x33 or 0x41"));
    assert!(elf(&|b| b[18] = 62).contains("e_machine"));
    assert!(elf(&|b| b[16] = 1).contains("e_"), "relocatable");
    assert!(Cubin::parse(b"not an object").is_err());
    let cubin = Cubin::parse(good).unwrap();
    assert!(matches!(cubin.image(0x1234), Err(ElfError::BadBase { base: 0x1234, .. })));
}

/// Offset in the file of the header of the section of that name, or of its symbol of that name.
fn header_of(bytes: &[u8], section: &str) -> usize {
    let file = object::read::elf::ElfFile64::<object::LittleEndian>::parse(bytes).unwrap();
    let index = file.section_by_name(section).unwrap_or_else(|| panic!("{section}")).index().0;
    u64::from_le_bytes(*bytes[40..].first_chunk().unwrap()) as usize + 64 * index
}

#[test]
fn a_name_that_the_runtime_provides_is_listed_and_gets_its_address() {
    const BASE: u64 = 0x20_1234_5000;
    let mut bytes = ALL[2].bytes.to_vec();
    let file = object::read::elf::ElfFile64::<object::LittleEndian>::parse(ALL[2].bytes).unwrap();
    let table = file.symbols().find(|s| s.name() == Ok("table")).expect("the variable").index().0;
    let start = u64::from_le_bytes(*bytes[header_of(&bytes, ".symtab") + 24..].first_chunk().unwrap()) as usize;
    bytes[start + 24 * table + 6..][..2].copy_from_slice(&[0, 0]); // st_shndx
    bytes[start + 24 * table + 8..][..8].copy_from_slice(&[0; 8]); // st_value
    let cubin = Cubin::parse(&bytes).unwrap();
    assert_eq!(cubin.undefined(), ["table"]);
    assert_eq!(cubin.image(BASE).unwrap_err().to_string(), "ELF: undefined symbol table");
    let image = cubin.image_with(BASE, &|name| (name == "table").then_some(0x7654_3210_aa00)).unwrap();
    let bank = cubin.kernel("k").unwrap().banks.iter().find(|b| b.number == 4).expect("addresses").offset as usize;
    let slots: Vec<u64> = image[bank..bank + 24].as_chunks::<8>().0.iter().map(|w| u64::from_le_bytes(*w)).collect();
    assert!(slots.contains(&0x7654_3210_aa00), "{slots:x?}");
    // The same from code after the image.
    let code = vec![0xab; 40];
    let entries = vec![("other".to_owned(), 0), ("table".to_owned(), 16)];
    let functions = Functions { code, entries, registers: 40, stack_bytes: 96 };
    let (mut linked, before) = (cubin.clone(), cubin.kernel("k").unwrap());
    linked.supply(&functions).unwrap();
    assert!(linked.undefined().is_empty());
    let (image, kernel) = (linked.image(BASE).unwrap(), linked.kernel("k").unwrap());
    let at = cubin.size();
    assert_eq!(image[at..at + 40], [0xab; 40]);
    assert!(image.len() >= at + 40 + 4096 && image.len().is_multiple_of(4096), "what is fetched ahead is there");
    let slots: Vec<u64> = image[bank..bank + 24].as_chunks::<8>().0.iter().map(|w| u64::from_le_bytes(*w)).collect();
    assert!(slots.contains(&(BASE + at as u64 + 16)), "{slots:x?}");
    assert_eq!(kernel.registers, before.registers.max(40));
    assert_eq!(kernel.stack_bytes, before.stack_bytes.map(|own| own + 96));
    let mut unchanged = cubin.clone();
    unchanged.supply(&Functions { entries: vec![("other".to_owned(), 0)], ..functions }).unwrap();
    assert_eq!((unchanged.size(), unchanged.undefined()), (cubin.size(), cubin.undefined()));
}

#[test]
fn sections_of_the_second_encoding_may_share_bytes_and_no_others() {
    let good = ALL[4].bytes;
    let over = |section: &str| {
        let mut bytes = good.to_vec();
        let header = header_of(&bytes, section);
        bytes[header + 24..][..8].copy_from_slice(&0u64.to_le_bytes()); // sh_offset
        bytes[header + 32..][..8].copy_from_slice(&(good.len() as u64).to_le_bytes()); // sh_size
        Cubin::parse(&bytes).map(|c| c.kernels.len())
    };
    let all = object::read::elf::ElfFile64::<object::LittleEndian>::parse(good).unwrap();
    let second: Vec<&str> =
        all.sections().filter_map(|s| s.name().ok()).filter(|n| n.starts_with(".nv.merc.")).collect();
    assert!(!second.is_empty());
    second.iter().for_each(|name| assert_eq!(over(name), Ok(3), "{name}"));
    assert!(matches!(over(".nv.callgraph"), Err(ElfError::Overlap { .. })));
}

#[test]
fn every_truncation_is_an_error_or_the_whole() {
    let good = ALL[0].bytes;
    for len in 0..good.len() {
        if let Ok(cubin) = Cubin::parse(&good[..len]) {
            assert_eq!(cubin.kernels.len(), 3, "{len}");
        }
    }
}

#[test]
fn ten_thousand_damaged_files_are_loaded_or_refused() {
    let mut state = 0x6375_6269_6e00_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    let (mut loaded, mut refused) = (0, 0);
    for made in ALL {
        for _ in 0..2000 {
            let mut bytes = made.bytes.to_vec();
            for _ in 0..1 + next() % 4 {
                let at = next() % bytes.len();
                bytes[at] = if next() % 2 == 0 { next() as u8 } else { bytes[at] ^ 1 << (next() % 8) };
            }
            match Cubin::parse(&bytes) {
                Ok(cubin) => {
                    loaded += 1;
                    // A name that is not defined any more is an error here.
                    let Ok(image) = cubin.image(0x1000) else { continue };
                    assert!(cubin.kernels.iter().all(|k| cubin.code(k).len() <= image.len()));
                }
                Err(e) => {
                    refused += 1;
                    assert!(!e.to_string().is_empty());
                }
            }
        }
    }
    assert!(loaded > 1000 && refused > 1000, "{loaded} {refused}");
}

//! Cubins that we write: the file of ptxas taken apart and written again has the same sections, nvdisasm reads the same
//! code from both, the `object` crate finds what was asked for, our own reader gives the facts back.

use doorbell::elf::abi::{STT_FUNC, STT_OBJECT};
use doorbell::elf::cubin::{
    Arch, Attribute, Cubin, Kernel, NewKernel, NewModule, Param, Relocation, RelocationKind, Space, Value, Variable,
    write, write_module,
};
use doorbell::elf::parse::{ElfFile, Place};
use object::{Object, ObjectSection, ObjectSymbol};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// What `cargo xtask setup` puts into target/nvidia.
fn tool(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/nvidia/nvidia/cu13/bin").join(name);
    assert!(path.exists(), "{} is missing (cargo xtask setup installs it)", path.display());
    path
}

/// `tests/data/cubin/module.ptx` (kernels empty, stack, k; variables of all spaces) compiled for a chip, once.
fn of_ptxas(arch: &'static str) -> Vec<u8> {
    static MADE: Mutex<BTreeMap<&str, Vec<u8>>> = Mutex::new(BTreeMap::new());
    MADE.lock().unwrap_or_else(PoisonError::into_inner).entry(arch).or_insert_with(|| compile(arch)).clone()
}

fn compile(arch: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let cubin = folder.path().join("a.cubin");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cubin/module.ptx");
    let out = Command::new(tool("ptxas")).arg(format!("-arch={arch}")).arg("-o").args([&cubin, &source]).output();
    let out = out.unwrap();
    assert!(out.status.success(), "ptxas: {}", String::from_utf8_lossy(&out.stderr));
    std::fs::read(&cubin).unwrap()
}

/// Instructions with their addresses by kernel, as nvdisasm prints them.
fn disassembled(cubin: &[u8]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.cubin");
    std::fs::write(&file, cubin).unwrap();
    let out = Command::new(tool("nvdisasm")).args(["-c", "-ndf", "-hex"]).arg(&file).output().unwrap();
    assert!(out.status.success() && out.stderr.is_empty(), "nvdisasm: {}", String::from_utf8_lossy(&out.stderr));
    let is_code = |l: &&str| l.trim_start().starts_with("/*") || l.ends_with(':') && l.starts_with(".text");
    String::from_utf8(out.stdout).unwrap().lines().filter(is_code).map(|l| l.trim().to_owned()).collect()
}

fn contents<'a>(file: &ElfFile<'a>, name: &str) -> Option<&'a [u8]> {
    let section = file.sections().iter().find(|s| s.name == name)?;
    Some(file.contents(section).unwrap())
}

/// A kernel of a file as what is to be written.
fn kernel(file: &ElfFile, cubin: &Cubin, k: &Kernel) -> NewKernel {
    let info = Attribute::parse_all(contents(file, &format!(".nv.info.{}", k.name)).unwrap(), 0).unwrap();
    let exits = info.iter().find(|a| a.id == 0x1c).map_or(Vec::new(), |a| match a.value {
        Value::Bytes(b) => b.chunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().unwrap())).collect(),
        other => panic!("{other:?}"),
    });
    NewKernel {
        name: k.name.clone(),
        code: cubin.code(k).to_vec(),
        registers: k.registers,
        barriers: k.barriers,
        frame_bytes: k.stack_bytes.unwrap(),
        shared_bytes: k.shared_bytes,
        parameters: k.params.clone(),
        exit_offsets: exits,
        required_block: k.required_block,
        ..NewKernel::default()
    }
}

/// The module of a file of ptxas: its kernels in the order of its sections, its variables, its addresses.
fn module(bytes: &[u8]) -> NewModule {
    let (file, cubin) = (ElfFile::parse_any(bytes).unwrap(), Cubin::parse(bytes).unwrap());
    let name_of = |s: &doorbell::elf::parse::FileSection| s.name.to_owned();
    let names = file.sections().iter().filter_map(|s| s.name.strip_prefix(".text."));
    let kernels = names.map(|n| kernel(&file, &cubin, cubin.kernel(n).unwrap())).collect();
    let mut variables: Vec<Variable> = Vec::new();
    for s in file.symbols().iter().filter(|s| s.kind() == STT_OBJECT) {
        let Place::Section(at) = s.place else { continue };
        let section = &file.sections()[at];
        let space = match name_of(section).as_str() {
            ".nv.constant3" => Space::Constant,
            ".nv.global.init" => Space::Initialised,
            ".nv.global" => Space::Zero,
            other => panic!("{other}"),
        };
        let (offset, len) = (s.sym.st_value as usize, s.sym.st_size as usize);
        let bytes =
            if space == Space::Zero { vec![] } else { file.contents(section).unwrap()[offset..][..len].to_vec() };
        variables.push(Variable {
            name: s.name.to_owned(),
            space,
            offset: offset as u32,
            align: section.header.sh_addralign as u32,
            len_bytes: len as u32,
            bytes,
            relocations: vec![],
        });
    }
    let mut addresses = vec![(String::new(), 0); contents(&file, ".nv.constant4").unwrap().len() / 8];
    for table in
        file.sections().iter().filter(|s| s.name.ends_with(".nv.constant4") || s.name.ends_with(".global.init"))
    {
        let entry = match table.header.sh_type {
            4 => 24,
            9 => 16,
            _ => continue,
        };
        for raw in file.contents(table).unwrap().chunks_exact(entry) {
            let word = |at: usize| u64::from_le_bytes(raw[at..at + 8].try_into().unwrap());
            let symbol = file.symbols()[(word(8) >> 32) as usize].name.to_owned();
            let (offset, kind) = (word(0) as u32, word(8) as u32);
            if table.name.ends_with("4") {
                addresses[offset as usize / 8] = (symbol, 0);
                continue;
            }
            let kind = if kind == 2 { RelocationKind::Address } else { RelocationKind::Generic };
            let holder = variables
                .iter_mut()
                .find(|v| v.space == Space::Initialised && (v.offset..v.offset + v.len_bytes).contains(&offset));
            let holder = holder.unwrap();
            let offset = offset - holder.offset;
            holder.relocations.push(Relocation { offset, kind, symbol, addend: 0 });
        }
    }
    NewModule { kernels, variables, addresses }
}

const CHIPS: [&str; 7] = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_120"];

/// Attributes without the numbers of symbols, which are the file's own business.
fn attributes(file: &ElfFile, section: &str) -> Vec<(u8, String)> {
    let all = Attribute::parse_all(contents(file, section).unwrap(), 0).unwrap();
    let value = |a: &Attribute| match (a.id, a.value) {
        (0x0a | 0x2f | 0x11 | 0x12, Value::Bytes(b)) => format!("{:?}", &b[4..]),
        (_, v) => format!("{v:?}"),
    };
    all.iter().map(|a| (a.id, value(a))).collect()
}

#[test]
fn a_file_of_ptxas_written_anew_has_the_same_sections() {
    for chip in CHIPS {
        let theirs = of_ptxas(chip);
        let ours = write_module(Arch::parse(chip).unwrap(), &module(&theirs)).unwrap();
        assert_eq!(ours[..20], theirs[..20], "{chip}: identification");
        assert_eq!(ours[48..52], theirs[48..52], "{chip}: e_flags");
        let (a, b) = (ElfFile::parse_any(&ours).unwrap(), ElfFile::parse_any(&theirs).unwrap());
        // Not written: frames for debuggers, an empty table of relocations, the copies of sm_100 on.
        let left_out = |n: &str| {
            n.contains("debug_frame")
                || n.starts_with(".nv.merc")
                || n.starts_with(".nv.capmerc")
                || n == ".rela.text.k"
        };
        let names = |f: &ElfFile| -> Vec<String> {
            f.sections().iter().map(|s| s.name.to_owned()).filter(|n| !left_out(n)).collect()
        };
        assert_eq!(names(&a), names(&b), "{chip}");
        for theirs in b.sections().iter().filter(|s| !left_out(s.name)) {
            let ours = a.sections().iter().find(|s| s.name == theirs.name).unwrap();
            let (o, t) = (&ours.header, &theirs.header);
            assert_eq!((o.sh_type, o.sh_flags), (t.sh_type, t.sh_flags), "{chip} {}", ours.name);
            assert_eq!((o.sh_addralign, o.sh_entsize), (t.sh_addralign, t.sh_entsize), "{chip} {}", ours.name);
            let linked = |f: &ElfFile, n: u32| f.sections()[n as usize].name.to_owned();
            assert_eq!(linked(&a, o.sh_link), linked(&b, t.sh_link), "{chip} {}", ours.name);
            let own = [".shstrtab", ".strtab", ".symtab", ".note.nv.tkinfo"].contains(&ours.name);
            let moved = ours.name.starts_with(".nv.info") || ours.name.starts_with(".rel");
            if ours.name.starts_with(".nv.info") {
                assert_eq!(attributes(&a, ours.name), attributes(&b, ours.name), "{chip} {}", ours.name);
            } else if !own && !moved {
                assert_eq!(o.sh_size, t.sh_size, "{chip} {}", ours.name);
                let (mut x, mut y) = (a.contents(ours).unwrap().to_vec(), b.contents(theirs).unwrap().to_vec());
                if ours.name == ".note.nv.cuinfo" {
                    // Theirs names the PTX text's target, sm_75 here.
                    (x[26], y[26]) = (0, 0);
                }
                assert_eq!(x, y, "{chip} {}", ours.name);
            }
            if moved {
                assert_eq!(o.sh_size, t.sh_size, "{chip} {}", ours.name);
            }
            if ours.name.starts_with(".text") {
                assert_eq!(o.sh_info >> 24, t.sh_info >> 24, "{chip} {}: registers", ours.name);
            }
        }
    }
}

#[test]
fn our_reader_gives_back_the_facts_and_the_same_image_of_both_files() {
    for chip in CHIPS {
        let theirs = of_ptxas(chip);
        let made = module(&theirs);
        let ours = Cubin::parse(&write_module(Arch::parse(chip).unwrap(), &made).unwrap()).unwrap();
        let theirs = Cubin::parse(&theirs).unwrap();
        assert_eq!(ours.sm, theirs.sm);
        assert_eq!(ours.kernels, theirs.kernels, "{chip}");
        assert_eq!(ours.image(0x20_0000_0000).unwrap(), theirs.image(0x20_0000_0000).unwrap(), "{chip}");
    }
}

#[test]
fn nvdisasm_reads_the_same_code_with_the_kernels_names() {
    for chip in CHIPS {
        let theirs = of_ptxas(chip);
        let ours = write_module(Arch::parse(chip).unwrap(), &module(&theirs)).unwrap();
        let (a, b) = (disassembled(&ours), disassembled(&theirs));
        assert!(a.len() > 50, "{chip}: {} lines", a.len());
        assert_eq!(a, b, "{chip}");
        for name in ["empty", "stack", "k"] {
            assert!(a.contains(&format!(".text.{name}:")), "{chip}: {name}");
        }
    }
}

/// NOP and EXIT of sm_75 to sm_120.
const NOP: u128 = 0x000f_c000_0000_0000_0000_0000_0000_7918;
const EXIT: u128 = 0x000f_ea00_0380_0000_0000_0000_0000_794d;

fn code(words: &[u128]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

fn small(name: &str) -> NewKernel {
    let parameters = vec![Param { offset: 0, len_bytes: 8 }, Param { offset: 8, len_bytes: 2 }];
    NewKernel {
        name: name.into(),
        code: code(&[NOP, EXIT]),
        registers: 24,
        parameters,
        exit_offsets: vec![16],
        ..NewKernel::default()
    }
}

#[test]
fn the_object_crate_finds_sections_symbols_and_bytes() {
    let mut first = small("first");
    first.functions = vec![("first_helper".into(), 16, 16)];
    first.constants = vec![7; 24];
    let kernels = [first, small("second")];
    let bytes = write(Arch { sm: 90, specific: true }, &kernels).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    assert_eq!(file.format(), object::BinaryFormat::Elf);
    for k in &kernels {
        let text = file.section_by_name(&format!(".text.{}", k.name)).unwrap();
        assert_eq!((text.data().unwrap(), text.align()), (&*k.code, 128));
        let symbol = file.symbol_by_name(&k.name).unwrap();
        assert!(symbol.is_global() && symbol.kind() == object::SymbolKind::Text);
        assert_eq!((symbol.size(), symbol.section_index()), (32, Some(text.index())));
        let bank0 = file.section_by_name(&format!(".nv.constant0.{}", k.name)).unwrap();
        assert_eq!((bank0.size(), bank0.data().unwrap().iter().any(|b| *b != 0)), (0x21a, false));
    }
    assert_eq!(file.section_by_name(".nv.constant2.first").unwrap().data().unwrap(), [7; 24]);
    let helper = file.symbol_by_name("first_helper").unwrap();
    assert_eq!((helper.address(), helper.size(), helper.is_local()), (16, 16, true));
    assert_eq!(file.symbols().filter(|s| s.kind() == object::SymbolKind::Text && s.is_global()).count(), 2);
}

#[test]
fn kernels_of_all_shapes_are_read_back_as_asked_for() {
    for chip in CHIPS {
        let arch = Arch::parse(chip).unwrap();
        let shared = arch.reserved_shared_bytes();
        let large = Param { offset: 16, len_bytes: 6000 };
        let kernels = [
            NewKernel { name: "bare".into(), code: code(&[EXIT]), registers: 4, ..NewKernel::default() },
            NewKernel {
                barriers: 16,
                shared_bytes: shared + 48 * 1024,
                shared_align: 128,
                frame_bytes: 72,
                required_block: Some([128, 2, 1]),
                cluster: Some([2, 1, 1]),
                max_cluster: Some(4),
                wants_cluster: true,
                ..small("rich")
            },
            NewKernel { unbounded_stack: true, max_block: Some([1024, 1, 1]), ..small("recursive") },
            NewKernel { parameters: vec![Param { offset: 0, len_bytes: 16 }, large], ..small("wide") },
        ];
        let cubin = Cubin::parse(&write(arch, &kernels).unwrap()).unwrap();
        assert_eq!(cubin.sm, arch.sm);
        for k in &kernels {
            let read = cubin.kernel(&k.name).unwrap();
            assert_eq!((cubin.code(read), read.registers, read.barriers), (&*k.code, k.registers, k.barriers));
            assert_eq!((&read.params, read.param_base), (&k.parameters, arch.param_base()), "{chip} {}", k.name);
            assert_eq!(read.stack_bytes, (!k.unbounded_stack).then_some(k.frame_bytes), "{chip} {}", k.name);
            assert_eq!((read.shared_bytes, read.required_block), (k.shared_bytes, k.required_block));
            assert_eq!((read.max_block, read.cluster), (k.max_block, k.cluster), "{chip} {}", k.name);
            let asked = (read.max_cluster, read.wants_cluster);
            assert_eq!(asked, (k.max_cluster, k.wants_cluster), "{chip} {}", k.name);
        }
        let disassembly = disassembled(&write(arch, &kernels).unwrap());
        assert_eq!(disassembly.iter().filter(|l| l.contains("EXIT")).count(), 4, "{chip}: {disassembly:#?}");
    }
}

#[test]
fn addresses_of_variables_stand_in_banks_data_and_code_once_loaded() {
    for chip in ["sm_80", "sm_90"] {
        let arch = Arch::parse(chip).unwrap();
        let variable = |name: &str, space, offset, bytes: Vec<u8>, relocations| Variable {
            name: name.into(),
            space,
            offset,
            align: 8,
            len_bytes: if bytes.is_empty() { 32 } else { bytes.len() as u32 },
            bytes,
            relocations,
        };
        let to = |symbol: &str, offset, kind, addend| Relocation { offset, kind, symbol: symbol.into(), addend };
        let mut kernel = small("k");
        kernel.relocations = vec![to("zero", 0, RelocationKind::Low, 4), to("zero", 16, RelocationKind::High, 4)];
        let module = NewModule {
            kernels: vec![kernel],
            variables: vec![
                variable("table", Space::Initialised, 8, vec![9; 16], vec![]),
                variable(
                    "pointer",
                    Space::Initialised,
                    24,
                    vec![0; 8],
                    vec![to("table", 0, RelocationKind::Generic, 12)],
                ),
                variable("zero", Space::Zero, 16, vec![], vec![]),
                variable("fixed", Space::Constant, 8, vec![5; 8], vec![]),
            ],
            addresses: vec![("zero".into(), 0), ("table".into(), 8)],
        };
        let cubin = Cubin::parse(&write_module(arch, &module).unwrap()).unwrap();
        let base = 0x0012_3456_7000;
        let image = cubin.image(base).unwrap();
        let word = |at: u64| u64::from_le_bytes(image[at as usize..][..8].try_into().unwrap());
        let k = cubin.kernel("k").unwrap();
        let bank = |n| k.banks.iter().find(|b| b.number == n).unwrap();
        let (zero, table) = (word(bank(4).offset), word(bank(4).offset + 8) - 8);
        assert!(image[(table - base) as usize..][..16].iter().all(|b| *b == 9), "{chip}");
        assert!(image[(zero - base) as usize..][..32].iter().all(|b| *b == 0), "{chip}");
        assert_eq!(word(table - base + 16), table + 12, "{chip}");
        assert_eq!(image[bank(3).offset as usize..][..16], [[0; 8], [5; 8]].concat(), "{chip}");
        let low = word(k.code_offset) >> 32;
        let high = word(k.code_offset + 16) >> 32;
        assert_eq!(high << 32 | low, zero + 4, "{chip}");
    }
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let made = module(&of_ptxas("sm_90a"));
    let arch = Arch::parse("sm_90a").unwrap();
    assert_eq!(write_module(arch, &made).unwrap(), write_module(arch, &made).unwrap());
    assert_eq!(
        ElfFile::parse_any(&write_module(arch, &made).unwrap())
            .unwrap()
            .symbols()
            .iter()
            .filter(|s| s.kind() == STT_FUNC)
            .count(),
        3
    );
}

#[test]
fn what_contradicts_itself_is_refused_with_the_reason() {
    let sm_90 = Arch { sm: 90, specific: false };
    let why = |edit: &dyn Fn(&mut NewModule)| {
        let mut made = NewModule { kernels: vec![small("k")], ..NewModule::default() };
        edit(&mut made);
        write_module(sm_90, &made).unwrap_err().to_string()
    };
    assert_eq!(why(&|m| m.kernels[0].name.clear()), "object: kernel 0: its name is empty or holds a NUL byte");
    assert!(why(&|m| m.kernels.push(small("k"))).contains("name 0: it is taken"));
    assert!(why(&|m| m.kernels[0].code.truncate(17)).contains("no whole number of instructions"));
    assert!(why(&|m| m.kernels[0].registers = 0).contains("registers"));
    assert!(why(&|m| m.kernels[0].barriers = 17).contains("barriers"));
    assert!(why(&|m| m.kernels[0].shared_bytes = 0x3ff).contains("lacks the reserved bytes"));
    assert!(why(&|m| m.kernels[0].exit_offsets = vec![32]).contains("EXIT"));
    assert!(why(&|m| m.addresses.push(("nothing".into(), 0))).contains("address 0"));
    let zero = |offset| Variable {
        name: format!("v{offset}"),
        space: Space::Zero,
        offset,
        align: 4,
        len_bytes: 8,
        bytes: vec![],
        relocations: vec![],
    };
    assert!(why(&|m| m.variables = vec![zero(0), zero(4)]).contains("variable 1: it overlaps"));
    let unknown = Relocation { offset: 0, kind: RelocationKind::Low, symbol: "nothing".into(), addend: 0 };
    assert!(why(&|m| m.kernels[0].relocations = vec![unknown.clone()]).contains("unknown"));
    assert!(write(Arch { sm: 61, specific: false }, &[small("k")]).is_err());
    assert_eq!((Arch::parse("sm_80a"), Arch::parse("sm_61"), Arch::parse("90")), (None, None, None));
}

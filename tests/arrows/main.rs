//! The rules of the architecture: this test reads the sources and fails when a room uses what it may not use, when
//! `unsafe` leaves its few files, when a file grows past its idea, or when a stand-in is left behind.
//!
//! The rules are the tables below; the reasons are in `docs/architecture.md`. Items under `#[cfg(test)]` may look up.

mod lexer;
mod pages;
mod panics;
mod paths;

use lexer::{Kind, Token};
use std::path::{Path, PathBuf};

/// Which rooms a room may use, as path prefixes from the crate's root; its own is always allowed.
const ARROWS: &[(&str, &[&str])] = &[
    ("uop", &[]),
    ("tensor", &["uop", "default_device"]),
    ("default_device", &["device", "isa", "elf::cubin"]),
    ("nn", &["tensor", "uop", "engine::Error"]),
    ("mpi", &["tensor", "uop", "engine::Error"]),
    ("schedule", &["uop"]),
    ("codegen", &["uop"]),
    ("isa", ISA),
    ("elf", &[]),
    ("hcq", &["ioctl"]),
    ("device", &["hcq", "elf", "ioctl"]),
    ("package", &[]),
    ("runtime", &["package", "device", "hcq", "ioctl::port"]),
    ("emu", &["ioctl", "uop", "hcq::packet", "hcq::bits", "isa::nvidia::sass"]),
    ("drivertest", &["ioctl", "emu"]),
    ("kernels-asm", &[]),
    ("explorer", &[]),
    (
        "engine",
        &[
            "tensor",
            "schedule",
            "codegen",
            "isa",
            "elf",
            "hcq",
            "device",
            "uop",
            "emu",
            "explorer",
            "default_device",
            "package",
            "runtime",
        ],
    ),
];

/// Of `elf`, only the object file that an instruction set fills in, and what describes a GPU's kernel in it.
const ISA: &[&str] = &[
    "codegen",
    "uop",
    "elf::object",
    "elf::GpuKernel",
    "elf::amdgpu",
    "elf::cubin",
    "elf::Object",
    "elf::Machine",
    "elf::Section",
    "elf::Symbol",
    "elf::Target",
    "elf::RelocKind",
    "elf::Relocation",
];

/// Lists in order: used by all, using nothing.
const FLOOR: &[&str] = &["sort"];

/// The top: may use everything, no room may use them.
const ROOF: &[&str] = &["", "bench", "capi", "cli"];

/// Rooms whose head says `#![forbid(unsafe_code)]`.
const FORBID_UNSAFE: &[&str] = &[
    "uop",
    "tensor",
    "schedule",
    "codegen",
    "isa",
    "isa/amdgpu",
    "isa/nvidia",
    "isa/aarch64",
    "isa/x86_64",
    "elf",
    "emu",
    "emu/msl",
    "emu/units",
    "explorer",
    "drivertest",
    "nn",
    "mpi",
    "package",
    "runtime",
    "sort",
    "bench",
];

/// The only files (or folders) with the keyword `unsafe`.
const UNSAFE_ALLOWED: &[&str] = &[
    "ioctl/src/port",
    "src/hcq/memory.rs",
    "src/device/cpu/exec.rs",
    "src/device/metal",
    "src/emu/metal",
    "src/capi",
    "tools/preload/src",
    "tools/hw/metal-first-contact/src/objc.rs",
    "tools/hw/nv-check/src/cuda.rs",
];

/// Longest file; tables and generated or golden files are named so and may be longer.
const MAX_LINES: usize = 800;

/// A broken rule, as `file:line: what`.
fn arrow_faults(file: &str, source: &str) -> Vec<String> {
    arrow_faults_with(file, source, &[])
}

/// As `arrow_faults`, knowing which room each exported macro belongs to.
fn arrow_faults_with(file: &str, source: &str, macros: &[(String, String)]) -> Vec<String> {
    let module = paths::module_of(file);
    let room = module.first().map_or("", String::as_str);
    if ROOF.contains(&room) {
        return Vec::new();
    }
    let allowed = match ARROWS.iter().find(|(name, _)| *name == room) {
        Some((_, allowed)) => *allowed,
        None if FLOOR.contains(&room) => &[],
        None => return vec![format!("{file}:1: room `{room}` is not in the table of arrows")],
    };
    let kept = paths::without_tests(&lexer::tokens(source));
    let fault = |used: paths::Used| {
        let mut path = used.path.join("::");
        if let Some((_, home)) = macros.iter().find(|(name, _)| *name == path) {
            path = home.clone();
        }
        let own = within(&path, room) || FLOOR.iter().any(|floor| within(&path, floor) && !FLOOR.contains(&room));
        let ok = own || allowed.iter().any(|prefix| within(&path, prefix));
        (!ok).then(|| format!("{file}:{}: {room} must not use `{path}`", used.line))
    };
    paths::used(&module, &kept).into_iter().filter_map(fault).collect()
}

/// True when `path` is `prefix` or below it.
fn within(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn unsafe_faults(file: &str, tokens: &[Token]) -> Vec<String> {
    if UNSAFE_ALLOWED.iter().any(|allowed| file.starts_with(allowed)) {
        return Vec::new();
    }
    let lines = tokens.iter().filter(|t| t.is("unsafe")).map(|t| t.line);
    lines.map(|line| format!("{file}:{line}: `unsafe` outside {}", UNSAFE_ALLOWED.join(", "))).collect()
}

/// `todo!`, `unimplemented!` and `#[ignore]`: what is not there yet is an error value or not offered at all.
fn stand_in_faults(file: &str, tokens: &[Token]) -> Vec<String> {
    let stand_in = |pair: &[Token]| match pair {
        [name, bang] if bang.sign('!') && (name.is("todo") || name.is("unimplemented")) => Some(name.line),
        [bracket, name] if bracket.sign('[') && name.is("ignore") => Some(name.line),
        _ => None,
    };
    tokens
        .windows(2)
        .filter_map(stand_in)
        .map(|line| format!("{file}:{line}: a stand-in is left in the code"))
        .collect()
}

fn length_faults(file: &str, source: &str) -> Vec<String> {
    let lines = source.lines().count();
    let may_be_long = ["table", "generated", "golden"].iter().any(|word| file.contains(word));
    if lines <= MAX_LINES || may_be_long {
        return Vec::new();
    }
    vec![format!(
        "{file}: {lines} lines, at most {MAX_LINES} (tables, generated and golden files say so in their name)"
    )]
}

/// A room that has code must forbid `unsafe` at its head.
fn forbid_faults(room: &str, tokens: &[Token]) -> Vec<String> {
    let says = |w: &[Token]| w[0].is("forbid") && w[1].sign('(') && w[2].is("unsafe_code");
    if tokens.is_empty() || tokens.windows(3).any(says) {
        return Vec::new();
    }
    vec![format!("src/{room}/lib.rs: no #![forbid(unsafe_code)] at its head")]
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The Rust files below a folder of the clone, as paths from its root with their text.
fn sources(folder: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut open = vec![root().join(folder)];
    while let Some(dir) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&dir) else { continue };
        for path in entries.map(|entry| entry.expect("a readable folder").path()) {
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&path).expect("a readable source file");
                found.push((name_of(&path), text));
            }
        }
    }
    found.sort();
    found
}

fn name_of(path: &Path) -> String {
    path.strip_prefix(root()).expect("a path below the root").to_string_lossy().replace('\\', "/")
}

fn assert_no_faults(faults: &[String]) {
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// The library's files; a test module in a file of its own is left out like an inline one.
fn library() -> Vec<(String, String)> {
    let files = [sources("src"), sources("kernels-asm")].concat();
    assert!(files.iter().any(|(name, _)| name == "src/lib.rs"), "the sources were not found");
    let module = paths::module_of;
    let mut tests = Vec::new();
    for (file, text) in &files {
        let children = paths::test_modules(&lexer::tokens(text)).into_iter();
        tests.extend(children.map(|name| [module(file), vec![name]].concat()));
    }
    files.into_iter().filter(|(file, _)| !tests.iter().any(|test| module(file).starts_with(test))).collect()
}

#[test]
fn arrows_of_the_sources_point_the_right_way() {
    let files = library();
    let room = |file: &str| paths::module_of(file).first().cloned().unwrap_or_default();
    let of_file = |(file, text): &(String, String)| {
        paths::macros(&lexer::tokens(text)).into_iter().map(|name| (name, room(file))).collect::<Vec<_>>()
    };
    let macros: Vec<(String, String)> = files.iter().flat_map(of_file).collect();
    let faults = files.iter().flat_map(|(file, text)| arrow_faults_with(file, text, &macros));
    assert_no_faults(&faults.collect::<Vec<_>>());
}

#[test]
fn unsafe_stays_in_its_files() {
    let files =
        [sources("src"), sources("ioctl/src"), sources("kernels-asm"), sources("tools"), sources("examples")].concat();
    let faults: Vec<String> = files.iter().flat_map(|(file, text)| unsafe_faults(file, &lexer::tokens(text))).collect();
    assert_no_faults(&faults);
}

#[test]
fn library_code_says_why_it_cannot_panic() {
    let files = [library(), sources("ioctl/src")].concat();
    let edge = |file: &str| file.starts_with("src/cli") || file.starts_with("src/bench/tests");
    let faults = files.iter().filter(|(file, _)| !edge(file)).flat_map(|(file, text)| panics::panic_faults(file, text));
    assert_no_faults(&faults.collect::<Vec<_>>());
}

#[test]
fn rooms_without_unsafe_forbid_it() {
    let head = |room: &&str| {
        let head = ["lib.rs", "mod.rs"].map(|name| std::fs::read_to_string(root().join("src").join(room).join(name)));
        let text = head.into_iter().find_map(Result::ok).expect("the room's lib.rs or mod.rs");
        forbid_faults(room, &lexer::tokens(&text))
    };
    assert_no_faults(&FORBID_UNSAFE.iter().flat_map(head).collect::<Vec<_>>());
}

#[test]
fn files_are_short_and_without_stand_ins() {
    let files: Vec<_> = ["src", "ioctl", "kernels-asm", "tests", "tools", "examples", "benches"]
        .iter()
        .flat_map(|f| sources(f))
        .collect();
    let faults = |(file, text): &(String, String)| {
        [length_faults(file, text), stand_in_faults(file, &lexer::tokens(text))].concat()
    };
    assert_no_faults(&files.iter().flat_map(faults).collect::<Vec<_>>());
}

#[test]
fn an_arrow_upwards_is_caught_in_a_use_line() {
    let faults = arrow_faults("src/schedule/fuse.rs", "use crate::uop::UOp;\nuse crate::{device::Device, uop::Op};\n");
    assert_eq!(faults, ["src/schedule/fuse.rs:2: schedule must not use `device::Device`"]);
}

#[test]
fn an_arrow_upwards_is_caught_inside_a_function_body() {
    let faults = arrow_faults("src/codegen/lib.rs", "fn f() {\n    let t = doorbell_device::Device::new();\n}\n");
    assert_eq!(faults, ["src/codegen/lib.rs:2: codegen must not use `device::Device::new`"]);
}

#[test]
fn an_arrow_upwards_is_caught_through_super() {
    let faults = arrow_faults("src/schedule/load.rs", "use super::super::engine::Jit;");
    assert_eq!(faults, ["src/schedule/load.rs:1: schedule must not use `engine::Jit`"]);
}

#[test]
fn a_glob_or_a_renamed_root_is_caught() {
    assert_eq!(arrow_faults("src/nn/a.rs", "use crate::*;"), ["src/nn/a.rs:1: nn must not use `*`"]);
    assert_eq!(arrow_faults("src/nn/a.rs", "use crate as c;"), ["src/nn/a.rs:1: nn must not use ``"]);
}

#[test]
fn an_exported_macro_belongs_to_the_room_that_defines_it() {
    let macros = [("module".to_owned(), "nn".to_owned())];
    assert_no_faults(&arrow_faults_with("src/nn/layers.rs", "use crate::module;", &macros));
    let faults = arrow_faults_with("src/schedule/a.rs", "use crate::module;", &macros);
    assert_eq!(faults, ["src/schedule/a.rs:1: schedule must not use `nn`"]);
}

#[test]
fn a_part_of_a_room_may_be_allowed_alone() {
    assert_no_faults(&arrow_faults(
        "src/isa/x86_64/emit.rs",
        "use doorbell_elf::object::Object; use doorbell_elf::Object;",
    ));
    let faults = arrow_faults("src/isa/x86_64/emit.rs", "use doorbell_elf::load::Image;");
    assert_eq!(faults, ["src/isa/x86_64/emit.rs:1: isa must not use `elf::load::Image`"]);
}

#[test]
fn the_kernel_interface_is_for_hcq_and_device_only() {
    assert_no_faults(&arrow_faults("src/hcq/memory.rs", "use doorbell_ioctl::port::Port;"));
    let faults = arrow_faults("src/engine/mod.rs", "fn f() { doorbell_ioctl::port::open() }");
    assert_eq!(faults, ["src/engine/mod.rs:1: engine must not use `ioctl::port::open`"]);
}

#[test]
fn a_room_that_is_not_in_the_table_is_named() {
    let faults = arrow_faults("src/attic/mod.rs", "");
    assert_eq!(faults, ["src/attic/mod.rs:1: room `attic` is not in the table of arrows"]);
}

#[test]
fn the_floor_uses_nothing_and_all_may_use_it() {
    assert_no_faults(&arrow_faults("src/elf/read.rs", "use doorbell_sort as sort;"));
    assert_eq!(
        arrow_faults("src/sort/lib.rs", "use doorbell_uop::UOp;"),
        ["src/sort/lib.rs:1: sort must not use `uop::UOp`"]
    );
}

#[test]
fn tests_of_a_room_may_look_up() {
    assert_no_faults(&arrow_faults("src/schedule/mod.rs", "#[cfg(test)]\nmod tests { use crate::tensor::Tensor; }"));
}

#[test]
fn unsafe_in_another_file_is_caught_and_in_words_or_text_is_not() {
    let tokens = lexer::tokens("#![forbid(unsafe_code)]\n// unsafe\nfn f() { g(\"unsafe\") }\nunsafe fn h() {}\n");
    let faults = unsafe_faults("src/engine/run.rs", &tokens);
    assert_eq!(faults.len(), 1);
    assert!(faults[0].starts_with("src/engine/run.rs:4: "), "{}", faults[0]);
    assert_no_faults(&unsafe_faults("src/device/cpu/exec.rs", &tokens));
}

#[test]
fn stand_ins_are_caught_and_text_about_them_is_not() {
    let tokens = lexer::tokens(
        "// todo!()\nfn f() { todo!() }\n#[ignore = \"slow\"]\nfn g() { unimplemented!(\"x\"); say(\"todo!\") }",
    );
    let lines: Vec<String> = stand_in_faults("a.rs", &tokens);
    let expected = ["a.rs:2", "a.rs:3", "a.rs:4"].map(|at| format!("{at}: a stand-in is left in the code"));
    assert_eq!(lines, expected);
}

#[test]
fn a_long_file_is_caught_unless_it_is_a_table() {
    let long = "x\n".repeat(MAX_LINES + 1);
    assert_eq!(length_faults("src/isa/encode.rs", &long).len(), 1);
    assert_eq!(length_faults("src/isa/encode_table.rs", &long).len(), 0);
    assert_eq!(length_faults("src/isa/encode.rs", &long[2..]).len(), 0);
}

#[test]
fn a_room_with_code_that_does_not_forbid_unsafe_is_caught() {
    assert_eq!(forbid_faults("uop", &lexer::tokens("//! Head.\npub mod node;")).len(), 1);
    assert_no_faults(&forbid_faults("uop", &lexer::tokens("//! Head.\n#![forbid(unsafe_code)]\npub mod node;")));
    assert_no_faults(&forbid_faults("uop", &lexer::tokens("//! An empty room.\n")));
}

#[test]
fn lifetimes_and_signs_do_not_confuse_the_reader() {
    let tokens = lexer::tokens("fn f<'a>(x: &'a u8) -> u8 { b'{' }");
    assert!(tokens.iter().filter(|t| t.kind == Kind::Sign('{')).count() == 1);
}

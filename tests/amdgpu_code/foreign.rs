//! The checker on code of another compiler: clang's kernels respect waits and hazards, so it must find nothing in them.

use doorbell::isa::amdgpu::{CheckError, Chip, DecodeError, Target, check};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use std::path::Path;
use std::process::Command;

/// Code of each kernel in an object that clang made of a C file.
fn kernels(chip: Chip, source: &Path) -> Vec<(String, Vec<u8>)> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kernels.co");
    let clang = "/usr/lib/llvm-19/bin/clang";
    let out = Command::new(clang)
        .args(["-target", "amdgcn-amd-amdhsa", "-nogpulib", "-fno-math-errno", "-ffp-contract=off", "-w", "-O2"])
        .arg(format!("-mcpu={}", chip.name()))
        .args(["--ld-path=/usr/lib/llvm-19/bin/ld.lld", "-o"])
        .args([file.as_path(), source])
        .output();
    let out = out.unwrap_or_else(|e| panic!("{clang}: {e} (cargo xtask setup installs it)"));
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let bytes = std::fs::read(file).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let text = elf.section_by_name(".text").unwrap();
    let code = |address: u64| text.data().unwrap()[(address - text.address()) as usize..].to_vec();
    let functions = elf.symbols().filter(|s| s.kind() == SymbolKind::Text && s.is_definition());
    functions.map(|s| (s.name().unwrap().to_owned(), code(s.address()))).collect()
}

/// Forms of gfx942 that the decoder leaves out: sub-dword addressing with a scalar second source or a comparison into
/// SGPRs, and scalar loads whose offset is a register and a written zero.
fn form(word: u32) -> &'static str {
    match word {
        _ if word >> 31 == 0 && word & 0x1ff == 0xf9 => "SDWA",
        _ if word >> 26 == 0x30 && word >> 14 & 1 == 1 && word >> 17 & 1 == 1 => "SMEM with two offsets",
        _ => "unknown",
    }
}

/// The kernels in which clang 19 uses them, each with the first.
#[rustfmt::skip]
const LEFT_OUT: &[(&str, &str, &str)] = &[
    ("flow.c", "insertion_sort", "SDWA"),
    ("groups.c", "constant_table", "SMEM with two offsets"),
    ("lanes.c", "float_parts", "SDWA"),
    ("matrix.c", "f32_16x16x16_f16", "SDWA"),
    ("matrix.c", "f32_16x16x16_bf16", "SDWA"),
    ("matrix.c", "f32_32x32x8_f16", "SDWA"),
    ("matrix.c", "f32_16x16x4_f32", "SDWA"),
    ("matrix.c", "f32_32x32x2_f32", "SDWA"),
    ("matrix.c", "i32_16x16x32_i8", "SDWA"),
    ("matrix.c", "f64_16x16x4_f64", "SDWA"),
    ("matrix.c", "f32_16x16x8_xf32", "SDWA"),
];

#[test]
fn nothing_is_found_in_the_kernels_of_clang() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/emu_amdgpu/kernels");
    for chip in Chip::ALL {
        let (mut checked, mut refused, mut scalars, mut unread) = (0, 0, 0, vec![]);
        for source in ["floats.c", "integers.c", "flow.c", "groups.c", "lanes.c", "matrix.c"] {
            for (name, code) in kernels(chip, &folder.join(source)) {
                match check(Target::of(chip), &code) {
                    Ok(()) => checked += 1,
                    Err(CheckError::Jump { .. }) => refused += 1,
                    Err(CheckError::Decode { offset, error: DecodeError::Unknown { word, .. } }) => {
                        assert_eq!(code[offset as usize..][..4], word.to_le_bytes(), "{name}");
                        unread.push((source, name, form(word)));
                    }
                    // LLVM 19 does not know of gfx1201's scalar hazard yet.
                    Err(CheckError::TooEarly { rule, .. })
                        if chip == Chip::Gfx1201 && rule.starts_with("a scalar register that the vector unit") =>
                    {
                        scalars += 1;
                    }
                    Err(e) => panic!("{name} of {source} on {}: {e}", chip.name()),
                }
            }
        }
        let unread: Vec<(&str, &str, &str)> = unread.iter().map(|(s, n, f)| (*s, n.as_str(), *f)).collect();
        assert_eq!(unread, if chip == Chip::Gfx942 { LEFT_OUT } else { &[] }, "{}", chip.name());
        let refused = refused + unread.len();
        eprintln!("{}: {checked} kernels right, {refused} not read, {scalars} with scalar hazards", chip.name());
        assert!(checked + scalars >= 40, "{}: {checked} and {scalars}", chip.name());
    }
}

//! The checker on code that nobody here wrote: clang's kernels keep waits and hazards, so it must find nothing in them.

use doorbell::isa::amdgpu::{CheckError, Chip, Target, check};
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

#[test]
fn nothing_is_found_in_the_kernels_of_clang() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/emu_amdgpu/kernels");
    for chip in Chip::ALL {
        let (mut checked, mut refused, mut scalars) = (0, 0, 0);
        for source in ["floats.c", "integers.c", "flow.c", "groups.c", "lanes.c", "matrix.c"] {
            for (name, code) in kernels(chip, &folder.join(source)) {
                match check(Target::of(chip), &code) {
                    Ok(()) => checked += 1,
                    Err(CheckError::Jump { .. }) => refused += 1,
                    // SDWA, and scalar loads from a register's offset plus a written zero: the decoder leaves them out.
                    Err(CheckError::Decode { .. }) if chip == Chip::Gfx942 => refused += 1,
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
        eprintln!("{}: {checked} kernels right, {refused} not read, {scalars} with scalar hazards", chip.name());
        assert!(checked + scalars >= 40, "{}: {checked} and {scalars}", chip.name());
    }
}

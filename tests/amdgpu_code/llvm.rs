//! LLVM reads our code objects, and its disassembler prints our text of every generated kernel.

use super::machine::chips;
use crate::codegen_kernels::kernels;
use doorbell::codegen::{self, OptChoice};
use doorbell::isa::amdgpu::{Amdgpu, Chip};
use std::process::Command;

/// Standard output of a tool of LLVM 19 on a file.
fn llvm(tool: &str, args: &[&str], file: &std::path::Path) -> String {
    let path = format!("/usr/lib/llvm-19/bin/{tool}");
    let out = Command::new(&path).args(args).arg(file).output();
    let out = out.unwrap_or_else(|e| panic!("{path}: {e} (cargo xtask setup installs it)"));
    assert!(out.status.success(), "{path}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("text")
}

#[test]
fn llvm_prints_our_text_of_every_kernel_and_reads_its_descriptor() {
    for chip in chips() {
        for (name, ast) in kernels() {
            for choice in [OptChoice::None, OptChoice::Heuristic] {
                let isa = Amdgpu::new(chip);
                let program = codegen::compile(&ast, isa.target(), &choice, false).unwrap();
                same_text(chip, &isa, name, &program);
            }
        }
    }
}

fn same_text(chip: Chip, isa: &Amdgpu, name: &str, program: &codegen::Program) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kernel.o");
    let object = isa.object(program).unwrap_or_else(|e| panic!("{name}: {e}"));
    std::fs::write(&file, doorbell::elf::write(&object).unwrap()).unwrap();
    let ours: Vec<String> = isa.disassemble(&object).unwrap().lines().map(|l| after(l, ":").to_owned()).collect();
    let listing = llvm("llvm-objdump", &["-d", &format!("--mcpu={}", chip.name())], &file);
    let theirs: Vec<&str> = listing
        .lines()
        .filter(|l| l.starts_with('\t') && !l.contains("s_code_end"))
        .map(|l| l.split("//").next().unwrap_or_default().trim())
        .collect();
    // What the object is padded with comes after the kernel's end.
    assert_eq!(ours, theirs[..ours.len().min(theirs.len())], "{name} on {}", chip.name());
    assert!(theirs[ours.len()..].iter().all(|l| l.starts_with("s_nop")), "{name} on {}", chip.name());
    let symbols = llvm("llvm-readelf", &["-s"], &file);
    assert!(symbols.contains(&format!("{}.kd", program.name)), "{name}: {symbols}");
}

fn after<'a>(line: &'a str, mark: &str) -> &'a str {
    line.split_once(mark).map_or(line, |l| l.1).trim()
}

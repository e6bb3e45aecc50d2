//! Assembles `x86_64/*.s` into object files under `OUT_DIR`, for `lib.rs` to include as bytes.
//!
//! They are not linked into the library: its own loader places them, as it does with generated code. Other hosts than
//! x86-64 Linux get an empty list; there is nothing to assemble then.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

const SOURCES: &str = "x86_64";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={SOURCES}");
    println!("cargo::rustc-check-cfg=cfg(kernels_asm)");
    let target = |name: &str| env::var(name).unwrap_or_default();
    if (target("CARGO_CFG_TARGET_ARCH").as_str(), target("CARGO_CFG_TARGET_OS").as_str()) == ("x86_64", "linux") {
        if let Err(error) = assemble() {
            println!("cargo::error=assembling {SOURCES}: {error}");
        }
        println!("cargo::rustc-cfg=kernels_asm");
    }
}

/// Makes `OUT_DIR/<name>.o` of every `<name>.s`: rustc's own assembler reads them, so that no other one is needed.
fn assemble() -> Result<(), Box<dyn std::error::Error>> {
    let (out_dir, rustc) = (PathBuf::from(env::var("OUT_DIR")?), env::var("RUSTC")?);
    for entry in fs::read_dir(SOURCES)? {
        let source = entry?.path();
        if source.extension().is_none_or(|extension| extension != "s") {
            continue;
        }
        let source = fs::canonicalize(source)?;
        let object = out_dir.join(source.file_name().ok_or("a source without a name")?).with_extension("o");
        let wrapper = object.with_extension("rs");
        fs::write(&wrapper, format!("#![no_std]\ncore::arch::global_asm!(include_str!({source:?}), options(raw));\n"))?;
        let mut command = Command::new(&rustc);
        command.args(["--edition=2024", "--crate-type=lib", "--emit=obj", "-Ccodegen-units=1", "--target"]);
        let status = command.arg(env::var("TARGET")?).arg("-o").arg(&object).arg(&wrapper).status()?;
        if !status.success() {
            return Err(format!("{}: {status}", source.display()).into());
        }
    }
    Ok(())
}

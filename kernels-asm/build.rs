//! Assembles `x86_64/*.s` into object files under `OUT_DIR`, for `lib.rs` to include as bytes.
//!
//! They are not linked into the library: its own loader places them, as it does with generated code. Other hosts than
//! x86-64 Linux get an empty list; there is nothing to assemble then.

use std::path::{Path, PathBuf};
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

/// Makes `OUT_DIR/<name>.o` of every `<name>.s`.
fn assemble() -> Result<(), Box<dyn std::error::Error>> {
    let out_dir = PathBuf::from(env::var("OUT_DIR")?);
    for entry in fs::read_dir(SOURCES)? {
        let source = entry?.path();
        if source.extension().is_none_or(|extension| extension != "s") {
            continue;
        }
        let objects = cc::Build::new().file(&source).debug(false).try_compile_intermediates()?;
        let name = source.file_stem().map(Path::new).ok_or("a source without a name")?;
        for object in objects {
            fs::copy(object, out_dir.join(name).with_extension("o"))?;
        }
    }
    Ok(())
}

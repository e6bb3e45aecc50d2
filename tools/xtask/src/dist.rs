//! What is shipped: the program for each C library, linked statically and stripped, with the licence and checksums.

use crate::run::{Failure, answers, program, root};
use crate::size::target_folder;
use std::path::Path;
use std::process::Command;

const STEP: &str = "dist";

/// Targets, and what rustc is told so that nothing is loaded at run time and the program has a fixed address.
const TARGETS: &[(&str, &str)] = &[
    ("x86_64-unknown-linux-gnu", "-Ctarget-feature=+crt-static -Crelocation-model=static"),
    ("x86_64-unknown-linux-musl", "-Crelocation-model=static"),
];

/// Fills `target/dist/files`.
///
/// # Errors
/// Not started: a target's standard library is not installed (`rustup target add`). Failed: the build.
pub fn make() -> Result<(), Failure> {
    let files = target_folder().join("dist/files");
    let io = |e: std::io::Error| Failure::NotStarted { step: STEP.to_owned(), reason: e.to_string() };
    std::fs::create_dir_all(&files).map_err(io)?;
    std::fs::copy(root().join("LICENSE"), files.join("LICENSE")).map_err(io)?;
    let mut missing = Vec::new();
    for (target, flags) in TARGETS {
        if !is_installed(target) {
            missing.push(*target);
            continue;
        }
        let build = "cargo build --quiet --profile dist --package doorbell-cli --features emu,mimalloc --target";
        let flags = format!("RUSTFLAGS={flags}");
        let words: Vec<String> =
            ["env", &flags].into_iter().chain(build.split(' ')).chain([*target]).map(str::to_owned).collect();
        program(STEP, &words)?;
        let to = files.join(format!("doorbell-{target}"));
        let bytes = std::fs::copy(target_folder().join(target).join("dist/doorbell"), &to).map_err(io)?;
        println!("   {}: {bytes} bytes", to.display());
        // What was linked wrongly does not start.
        program(STEP, &[to.to_string_lossy().into_owned(), "devices".to_owned()])?;
    }
    checksums(&files)?;
    if missing.is_empty() {
        return Ok(());
    }
    let reason = format!("no standard library of {0}; install it by: rustup target add {0}", missing.join(" "));
    Err(Failure::NotStarted { step: STEP.to_owned(), reason })
}

/// Whether rustc has the target's standard library.
fn is_installed(target: &str) -> bool {
    let out = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output();
    out.is_ok_and(|out| Path::new(String::from_utf8_lossy(&out.stdout).trim()).is_dir())
}

/// `SHA256SUMS`, as `sha256sum -c` reads it.
fn checksums(files: &Path) -> Result<(), Failure> {
    let missing = |reason: String| Failure::NotStarted { step: STEP.to_owned(), reason };
    if !answers(&["sha256sum", "--version"]) {
        return Err(missing("sha256sum is missing".to_owned()));
    }
    let io = |e: std::io::Error| missing(e.to_string());
    let names = std::fs::read_dir(files).map_err(io)?.filter_map(|e| e.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|n| n != "SHA256SUMS").collect();
    names.sort();
    let out = Command::new("sha256sum").current_dir(files).args(&names).output().map_err(io)?;
    std::fs::write(files.join("SHA256SUMS"), out.stdout).map_err(io)
}

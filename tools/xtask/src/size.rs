//! The size of what users install, with each set of features: the program as it is shipped (profile `dist`), the
//! program of the CPU alone (profile `small-program`) and a C program with the runtime (profile `small`).

use crate::run::{Failure, program, root};
use crate::setup;
use std::path::PathBuf;

/// A set of features and the most bytes of its program. The budgets of docs/architecture.md, section 5.
struct Row {
    what: What,
    features: &'static str,
    most_bytes: u64,
}

/// What has that size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// The program `doorbell`.
    Program,
    /// The same in the profile `small-program`.
    SmallProgram,
    /// A C program that runs a package, linked statically: libdoorbell without a compiler.
    Runtime,
    /// The same with a standard library that is built for size.
    RuntimeAndStd,
}

const fn row(what: What, features: &'static str, most_bytes: u64) -> Row {
    Row { what, features, most_bytes }
}

const ROWS: &[Row] = &[
    row(What::SmallProgram, "cpu", 4_500_000),
    row(What::Program, "cpu,amd,nv,metal,emu,bench,mimalloc", 16_000_000),
    row(What::Runtime, "runtime,cpu", 1_000_000),
    row(What::Runtime, "runtime,cpu,amd,nv", 1_800_000),
    row(What::RuntimeAndStd, "runtime,cpu", 1_000_000),
    row(What::RuntimeAndStd, "runtime,cpu,amd,nv", 1_600_000),
];

/// Where cargo puts what it builds.
pub fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Builds what is shipped with each set of features and compares its size with the budget.
///
/// # Errors
/// It does not build, or it is too large; all sizes are printed before.
pub fn check() -> Result<(), Failure> {
    let mut result = Ok(());
    for row in ROWS {
        let bytes = match row.what {
            What::Program => program_bytes("dist", row.features),
            What::SmallProgram => program_bytes("small-program", row.features),
            What::Runtime => runtime_bytes(&[row.features]),
            What::RuntimeAndStd => {
                setup::rust_source(STEP)?;
                runtime_bytes(&[row.features, "--build-std"])
            }
        }?;
        println!("   {:?} {}: {bytes} bytes, at most {}", row.what, row.features, row.most_bytes);
        result = result.and(verdict(row, bytes));
    }
    result
}

const STEP: &str = "size";

fn program_bytes(profile: &str, features: &str) -> Result<u64, Failure> {
    let build =
        format!("cargo build --quiet --profile {profile} --package doorbell-cli --no-default-features --features");
    let words: Vec<String> = build.split(' ').chain([features]).map(str::to_owned).collect();
    program(STEP, &words)?;
    let not_there = |e: std::io::Error| Failure::NotStarted { step: STEP.to_owned(), reason: e.to_string() };
    Ok(std::fs::metadata(target_folder().join(profile).join("doorbell")).map_err(not_there)?.len())
}

fn runtime_bytes(options: &[&str]) -> Result<u64, Failure> {
    let failed = |reason: String| Failure::NotStarted { step: STEP.to_owned(), reason };
    let script = std::process::Command::new("sh").arg("tools/capi/size.sh").args(options).current_dir(root()).output();
    let output = script.map_err(|e| failed(e.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.trim().parse().map_err(|_| failed(String::from_utf8_lossy(&output.stderr).into_owned()))
}

fn verdict(row: &Row, bytes: u64) -> Result<(), Failure> {
    if bytes <= row.most_bytes {
        return Ok(());
    }
    let status = format!("{}: {bytes} bytes, more than {}", row.features, row.most_bytes);
    Err(Failure::Failed { step: "size".to_owned(), status })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_beyond_the_budget_fails_and_names_both_numbers() {
        let row = row(What::Program, "cpu", 12);
        assert_eq!(verdict(&row, 12), Ok(()));
        let failure = verdict(&row, 13).unwrap_err();
        assert_eq!(failure.to_string(), "size failed (cpu: 13 bytes, more than 12)");
    }
}

//! The size of what users install: the release binary without its symbols, with every device and emulator in it.

use crate::run::{Failure, program, root};
use std::path::PathBuf;

/// The budget of docs/architecture.md, section 5.
pub const MOST_BYTES: u64 = 12_000_000;

/// Strips a copy of the release binary and compares its size with the budget.
///
/// # Errors
/// There is no binary, it cannot be stripped, or it is too large.
pub fn check() -> Result<(), Failure> {
    let step = "size";
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let (binary, stripped) = (target.join("release/doorbell"), target.join("release/doorbell.stripped"));
    let words = ["strip", "-o", &stripped.to_string_lossy(), &binary.to_string_lossy()].map(str::to_owned);
    program(step, &words)?;
    let not_there = |e: std::io::Error| Failure::NotStarted { step: step.to_owned(), reason: e.to_string() };
    let bytes = std::fs::metadata(&stripped).map_err(not_there)?.len();
    println!("   {bytes} bytes, at most {MOST_BYTES}");
    verdict(step, bytes)
}

fn verdict(step: &str, bytes: u64) -> Result<(), Failure> {
    if bytes <= MOST_BYTES {
        return Ok(());
    }
    Err(Failure::Failed { step: step.to_owned(), status: format!("{bytes} bytes, more than {MOST_BYTES}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_beyond_the_budget_fails_and_names_both_numbers() {
        assert_eq!(verdict("size", MOST_BYTES), Ok(()));
        let failure = verdict("size", MOST_BYTES + 1).unwrap_err();
        assert_eq!(failure.to_string(), "size failed (12000001 bytes, more than 12000000)");
    }
}

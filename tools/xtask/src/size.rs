//! The size of what users install: the program as it is shipped (profile `dist`), with each set of features.

use crate::run::{Failure, program, root};
use std::path::PathBuf;

/// A set of features and the most bytes of its program. The budgets of docs/architecture.md, section 5.
struct Row {
    features: &'static str,
    most_bytes: u64,
}

const ROWS: &[Row] = &[
    Row { features: "cpu", most_bytes: 4_500_000 },
    Row { features: "cpu,amd,nv,metal,emu,mimalloc", most_bytes: 16_000_000 },
];

/// Where cargo puts what it builds.
pub fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Builds the program with each set of features and compares its size with the budget.
///
/// # Errors
/// It does not build, or it is too large; all sizes are printed before.
pub fn check() -> Result<(), Failure> {
    let step = "size";
    let mut result = Ok(());
    for row in ROWS {
        let build = "cargo build --quiet --profile dist --package doorbell-cli --no-default-features --features";
        let words: Vec<String> = build.split(' ').chain([row.features]).map(str::to_owned).collect();
        program(step, &words)?;
        let not_there = |e: std::io::Error| Failure::NotStarted { step: step.to_owned(), reason: e.to_string() };
        let bytes = std::fs::metadata(target_folder().join("dist/doorbell")).map_err(not_there)?.len();
        println!("   {}: {bytes} bytes, at most {}", row.features, row.most_bytes);
        result = result.and(verdict(row, bytes));
    }
    result
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
        let row = Row { features: "cpu", most_bytes: 12 };
        assert_eq!(verdict(&row, 12), Ok(()));
        let failure = verdict(&row, 13).unwrap_err();
        assert_eq!(failure.to_string(), "size failed (cpu: 13 bytes, more than 12)");
    }
}

//! `cargo xtask fuzz [--cases N] [TARGET...]`: coverage-guided fuzzing with cargo-fuzz, each target from its committed
//! corpus.
//!
//! Findings go to `target/fuzz-corpus/TARGET`; the committed corpus is only read. The switches of libFuzzer's build are
//! unstable ones, which RUSTC_BOOTSTRAP permits. Without a sanitizer: the rooms that read untrusted bytes forbid
//! `unsafe`.

use crate::run::{Failure, Step, answers, call, program, root, start};

/// Cases of a target by default.
const CASES: u64 = 1_000_000;

/// The targets: the manifest's binaries but the one that writes seeds.
fn targets() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap_or_default();
    let names = text.split("[[bin]]").skip(1).filter_map(|part| part.split("name = \"").nth(1)?.split('"').next());
    names.filter(|name| *name != "seed").map(str::to_owned).collect()
}

/// The steps for these arguments.
pub fn steps(rest: &[String]) -> Vec<Step> {
    let (mut cases, mut wanted, mut words) = (CASES, Vec::new(), rest.iter());
    while let Some(word) = words.next() {
        match word.as_str() {
            "--cases" => cases = words.next().and_then(|n| n.parse().ok()).unwrap_or(CASES),
            target => wanted.push(target.to_owned()),
        }
    }
    let known = targets();
    if wanted.is_empty() {
        wanted.clone_from(&known);
    }
    let mut steps = vec![call("cargo-fuzz", install)];
    for target in wanted {
        let own = format!("target/fuzz-corpus/{target}");
        steps.push(start("corpus", &format!("mkdir -p {own}")));
        // A case that takes 20 seconds, or 2 GB, is a finding too.
        let limits =
            format!("-runs={cases} -max_len=16384 -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0");
        let run = format!(
            "env RUSTC_BOOTSTRAP=1 cargo fuzz run --sanitizer none {target} {own} fuzz/corpus/{target} -- {limits}"
        );
        steps.push(start("fuzz", &run));
    }
    steps
}

/// cargo-fuzz, if it is missing.
fn install() -> Result<(), Failure> {
    if answers(&["cargo", "fuzz", "--version"]) {
        return Ok(());
    }
    program("cargo-fuzz", &["cargo", "install", "cargo-fuzz", "--locked"].map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Action;

    fn commands(rest: &[&str]) -> Vec<String> {
        let rest: Vec<String> = rest.iter().map(|w| (*w).to_owned()).collect();
        let words = |s: Step| if let Action::Start(words) = s.action { Some(words.join(" ")) } else { None };
        steps(&rest).into_iter().filter_map(words).collect()
    }

    #[test]
    fn all_targets_run_a_million_cases_unless_told_otherwise() {
        let all = commands(&[]);
        assert!(
            all.len() >= 2 * 8 && all.iter().filter(|c| c.contains("-runs=1000000")).count() == all.len() / 2,
            "{all:?}"
        );
        let one = commands(&["--cases", "5", "pm4"]);
        assert_eq!(one.len(), 2);
        assert!(one[1].contains("none pm4 target/fuzz-corpus/pm4 fuzz/corpus/pm4 -- -runs=5 "), "{one:?}");
    }
}

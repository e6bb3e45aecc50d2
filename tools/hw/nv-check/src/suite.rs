//! The tensor tests as programs of their own: built and collected where the source is, run where the card is.

use crate::Args;
use hw_contact::{Failure, fail, run_until};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// Tests whose tensors are where `DEV` says: those of `cargo xtask suite`.
pub const SUITE: &[&str] = &["ops_device", "device_ops", "jit", "jit_edges", "realize", "tensor", "random_graphs"];
/// A test that reads the source, which is not where the card is.
const NEEDS_SOURCE: &[&str] = &["every_method_that_builds_tracks_its_caller"];
/// Random programs: each takes longer on a device than on the CPU.
const RANDOM_GRAPHS: &str = "200";

/// Builds the programs and copies them, and this one, into a folder.
pub fn pack(dir: &Path) -> ExitCode {
    match gather(dir) {
        Ok(count) => {
            println!("{count} programs in {}", dir.display());
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("nv-check: {}", failure.what);
            ExitCode::FAILURE
        }
    }
}

fn gather(dir: &Path) -> Result<usize, Failure> {
    let tests = dir.join("tests");
    fs::create_dir_all(&tests).map_err(fail)?;
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "--profile", "bench", "-p", "doorbell", "--no-run", "--message-format=json"]);
    SUITE.iter().for_each(|name| {
        cargo.args(["--test", name]);
    });
    let out = cargo.stderr(Stdio::inherit()).output().map_err(|e| format!("cargo: {e}"))?;
    if !out.status.success() {
        return Err(format!("cargo test --no-run: {}", out.status).into());
    }
    let made = String::from_utf8_lossy(&out.stdout);
    let programs: Vec<(String, PathBuf)> = made.lines().filter_map(program_of).collect();
    let mut names = Vec::new();
    for (name, path) in programs.iter().filter(|(name, _)| SUITE.contains(&name.as_str())) {
        let to = tests.join(name);
        fs::copy(path, &to).map_err(|e| format!("{}: {e}", to.display()))?;
        // Symbols are most of a program; without `strip` it is only larger.
        let _larger = Command::new("strip").arg(&to).status();
        names.push(name.as_str());
    }
    let absent: Vec<&str> = SUITE.iter().filter(|name| !names.contains(name)).copied().collect();
    if !absent.is_empty() {
        return Err(format!("cargo has not made {}", absent.join(", ")).into());
    }
    let mut count = names.len();
    let own = std::env::current_exe().map_err(fail)?;
    for beside in [own.clone(), own.with_file_name("nv-first-contact"), own.with_file_name("doorbell")] {
        if let (true, Some(name)) = (beside.exists(), beside.file_name()) {
            fs::copy(&beside, dir.join(name)).map_err(fail)?;
            count += 1;
        }
    }
    Ok(count)
}

/// Name and path of a program in a line of cargo's messages.
fn program_of(line: &str) -> Option<(String, PathBuf)> {
    let message: Value = serde_json::from_str(line).ok()?;
    Some((message["target"]["name"].as_str()?.into(), message["executable"].as_str()?.into()))
}

/// The folder of test programs.
pub fn folder(args: &Args) -> Option<PathBuf> {
    let beside = || Some(std::env::current_exe().ok()?.with_file_name("tests")).filter(|dir| dir.is_dir());
    args.tests.clone().or_else(beside)
}

/// Runs the programs one after another until the deadline.
///
/// # Errors
/// The folder has none of them.
pub fn run(dir: &Path, args: &Args, deadline: Instant) -> Result<Vec<Value>, Failure> {
    if !SUITE.iter().any(|name| dir.join(name).exists()) {
        return Err(format!("{} has no test programs: nv-check --pack makes them", dir.display()).into());
    }
    let absent = |name: &str| json!({"program": name, "ok": false, "why": "not in the folder"});
    let result = |name: &&str| match dir.join(name) {
        path if path.exists() => one(&path, name, args, deadline),
        _ => absent(name),
    };
    Ok(SUITE.iter().map(result).collect())
}

fn one(path: &Path, name: &str, args: &Args, deadline: Instant) -> Value {
    let began = Instant::now();
    if began >= deadline {
        return json!({"program": name, "ok": false, "why": "no time left"});
    }
    match output(path, args, deadline) {
        Ok((is_ok, text)) => {
            let [passed, failed] = counts(&text);
            let failures: Vec<&str> =
                text.lines().filter_map(|l| l.strip_prefix("test ")?.strip_suffix(" ... FAILED")).collect();
            let is_ok = is_ok && failed == 0 && passed > 0;
            let tail: Vec<&str> = if is_ok { vec![] } else { text.lines().rev().take(30).collect() };
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            json!({"program": name, "ok": is_ok, "passed": passed, "failed": failed, "seconds": began.elapsed().as_secs_f64(),
                "failures": failures, "tail": tail})
        }
        Err(why) => json!({"program": name, "ok": false, "why": why.what, "seconds": began.elapsed().as_secs_f64()}),
    }
}

/// A program's end and its output.
fn output(path: &Path, args: &Args, deadline: Instant) -> Result<(bool, String), Failure> {
    let mut command = Command::new(path);
    NEEDS_SOURCE.iter().for_each(|test| {
        command.args(["--skip", test]);
    });
    command.env("DEV", &args.device).env("RANDOM_GRAPHS", RANDOM_GRAPHS);
    if args.any_driver {
        command.env("NV_ANY_DRIVER", "1");
    }
    if args.bar1_doorbell {
        command.env("NV_BAR1_DOORBELL", "1");
    }
    if args.rm_only {
        command.env("NV_RM_ONLY", "1");
    }
    if let Some(ptxas) = &args.ptxas {
        command.env("PTXAS", ptxas);
    }
    let ended = run_until(command, deadline)?;
    Ok((ended.status.success(), ended.out))
}

/// Passed and failed, from the harness's line: `test result: ok. 12 passed; 0 failed; ...`.
fn counts(text: &str) -> [u64; 2] {
    let line = text.lines().rev().find(|l| l.starts_with("test result:")).unwrap_or_default();
    ["passed", "failed"].map(|word| {
        let parts = line.split([';', '.']).find_map(|part| part.trim().strip_suffix(word));
        parts.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suite_is_that_of_xtask() {
        let tasks = include_str!("../../../xtask/src/tasks.rs");
        let list: Vec<String> = SUITE.iter().map(|name| format!("\"{name}\"")).collect();
        assert!(tasks.contains(&format!("const SUITE: &[&str] = &[{}];", list.join(", "))));
    }

    #[test]
    fn counts_and_programs_are_read_from_what_cargo_and_the_harness_say() {
        let text =
            "running 3 tests\ntest a ... ok\ntest b ... FAILED\n\ntest result: FAILED. 2 passed; 1 failed; 0 ignored\n";
        assert_eq!(counts(text), [2, 1]);
        assert_eq!(counts("nothing"), [0, 0]);
        let line = r#"{"reason":"compiler-artifact","target":{"name":"jit"},"executable":"/t/jit-12"}"#;
        assert_eq!(program_of(line), Some(("jit".into(), "/t/jit-12".into())));
        assert_eq!(program_of(r#"{"target":{"name":"doorbell"},"executable":null}"#), None);
    }
}

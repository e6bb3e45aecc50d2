//! The run on the software Metal, and its possible ends: a difference, no device, wrong usage.

use serde_json::Value;
use std::process::Command;

/// Runs the program; returns its exit code and its JSON.
fn go(args: &[&str]) -> (i32, Value) {
    let out = Command::new(env!("CARGO_BIN_EXE_metal-first-contact")).args(args).arg("--json").output().unwrap();
    let (text, said) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    println!("{said}");
    let last = text.lines().last().unwrap_or_else(|| panic!("{said}"));
    (out.status.code().unwrap(), serde_json::from_str(last).unwrap())
}

fn step<'v>(told: &'v Value, name: &str) -> &'v Value {
    told["steps"].as_array().unwrap().iter().find(|s| s["step"] == name).unwrap_or_else(|| panic!("{name}: {told:#}"))
}

#[test]
fn the_software_metal_goes_all_steps_and_nothing_differs() {
    let (code, told) = go(&["--device", "METAL:emu"]);
    assert_eq!((code, told["bad"].as_array().map(Vec::len)), (0, Some(0)), "{told:#}");
    assert_eq!(told["of"], 15);
    let verdicts: Vec<(&str, &str)> = told["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| (s["step"].as_str().unwrap(), s["verdict"].as_str().unwrap()))
        .collect();
    assert_eq!(verdicts.len(), 15);
    let is_as_expected = |(name, verdict): &(&str, &str)| *verdict == if *name == "system" { "measured" } else { "ok" };
    assert!(verdicts.iter().all(is_as_expected), "{verdicts:?}");
    let notes = step(&told, "abi")["notes"].to_string();
    assert!(notes.contains("rows are the same"), "{notes}");
    let notes = step(&told, "faults")["notes"].to_string();
    assert!(notes.contains("kIOGPUCommandBufferCallbackErrorPageFault"), "{notes}");
}

#[test]
fn a_difference_is_reported_with_both_sides_and_a_vital_one_ends_the_run() {
    let (code, told) = go(&["--device", "METAL:emu", "--pretend", "abi"]);
    assert_eq!((code, told["bad"][0].as_str()), (1, Some("abi")));
    assert_eq!(told["steps"].as_array().map(Vec::len), Some(2), "the run ends there");
    let notes = step(&told, "abi")["notes"].to_string();
    assert!(notes.contains(r#"DIFFERS: -[MTLBuffer length]: \"Q@:\", expected \"v@:\""#), "{notes}");
    let (code, told) = go(&["--device", "METAL:emu", "--pretend", "lanes", "--until", "lanes"]);
    assert_eq!((code, told["bad"][0].as_str()), (1, Some("lanes")));
    let notes = step(&told, "lanes")["notes"].to_string();
    assert!(notes.contains("expected (64, 64)"), "{notes}");
}

#[test]
fn steps_can_be_left_out() {
    let (code, told) = go(&["--device", "METAL:emu=apple9", "--until", "math", "--skip", "runtime", "--skip", "layer"]);
    assert_eq!(code, 0);
    let names: Vec<_> = told["steps"].as_array().unwrap().iter().map(|s| s["step"].as_str().unwrap()).collect();
    assert_eq!(names, ["system", "abi", "device", "compile", "version", "math"]);
}

#[test]
fn a_machine_without_metal_is_told_so() {
    if cfg!(target_os = "macos") {
        println!("SKIP: this system has Metal");
        return;
    }
    let (code, told) = go(&[]);
    assert_eq!((code, told["steps"].as_array().map(Vec::len)), (2, Some(2)), "{told:#}");
    assert_eq!(step(&told, "abi")["notes"][0], "this system has no Metal");
}

#[test]
fn wrong_arguments_are_told_before_anything_is_opened() {
    for args in [&["--until", "moon"][..], &["--device", "CPU"], &["--device", "METAL:emu=apple3"], &["--pretend", "x"]]
    {
        let out = Command::new(env!("CARGO_BIN_EXE_metal-first-contact")).args(args).output().unwrap();
        assert_eq!(out.status.code(), Some(3), "{args:?}");
    }
}

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

fn step<'v>(reported: &'v Value, name: &str) -> &'v Value {
    reported["steps"]
        .as_array()
        .unwrap()
        .iter()
        .find(|s| s["step"] == name)
        .unwrap_or_else(|| panic!("{name}: {reported:#}"))
}

#[test]
fn the_software_metal_goes_all_steps_and_nothing_differs() {
    let (code, reported) = go(&["--device", "METAL:emu"]);
    assert_eq!((code, reported["bad"].as_array().map(Vec::len)), (0, Some(0)), "{reported:#}");
    assert_eq!(reported["of"], 15);
    let verdicts: Vec<(&str, &str)> = reported["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| (s["step"].as_str().unwrap(), s["verdict"].as_str().unwrap()))
        .collect();
    assert_eq!(verdicts.len(), 15);
    let is_as_expected = |(name, verdict): &(&str, &str)| *verdict == if *name == "system" { "measured" } else { "ok" };
    assert!(verdicts.iter().all(is_as_expected), "{verdicts:?}");
    let notes = step(&reported, "abi")["notes"].to_string();
    assert!(notes.contains("rows are the same"), "{notes}");
    let notes = step(&reported, "faults")["notes"].to_string();
    assert!(notes.contains("kIOGPUCommandBufferCallbackErrorPageFault"), "{notes}");
}

#[test]
fn a_difference_is_reported_with_both_sides_and_a_vital_one_ends_the_run() {
    let (code, reported) = go(&["--device", "METAL:emu", "--pretend", "abi"]);
    assert_eq!((code, reported["bad"][0].as_str()), (1, Some("abi")));
    assert_eq!(reported["steps"].as_array().map(Vec::len), Some(2), "the run ends there");
    let notes = step(&reported, "abi")["notes"].to_string();
    assert!(notes.contains(r#"DIFFERS: -[MTLBuffer length]: \"Q@:\", expected \"v@:\""#), "{notes}");
    let (code, reported) = go(&["--device", "METAL:emu", "--pretend", "lanes", "--until", "lanes"]);
    assert_eq!((code, reported["bad"][0].as_str()), (1, Some("lanes")));
    let notes = step(&reported, "lanes")["notes"].to_string();
    assert!(notes.contains("expected (64, 64)"), "{notes}");
}

#[test]
fn steps_can_be_left_out() {
    let (code, reported) =
        go(&["--device", "METAL:emu=apple9", "--until", "math", "--skip", "runtime", "--skip", "layer"]);
    assert_eq!(code, 0);
    let names: Vec<_> = reported["steps"].as_array().unwrap().iter().map(|s| s["step"].as_str().unwrap()).collect();
    assert_eq!(names, ["system", "abi", "device", "compile", "version", "math"]);
}

#[test]
fn a_machine_without_metal_is_told_so() {
    if cfg!(target_os = "macos") {
        println!("SKIP: this system has Metal");
        return;
    }
    let (code, reported) = go(&[]);
    assert_eq!((code, reported["steps"].as_array().map(Vec::len)), (2, Some(2)), "{reported:#}");
    assert_eq!(step(&reported, "abi")["notes"][0], "this system has no Metal");
}

#[test]
fn wrong_arguments_are_told_before_anything_is_opened() {
    for args in [&["--until", "moon"][..], &["--device", "CPU"], &["--device", "METAL:emu=apple3"], &["--pretend", "x"]]
    {
        let out = Command::new(env!("CARGO_BIN_EXE_metal-first-contact")).args(args).output().unwrap();
        assert_eq!(out.status.code(), Some(3), "{args:?}");
    }
}

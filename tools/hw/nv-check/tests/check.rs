//! The whole check on the software GPU: its output, its exit codes, and that wrong results are noticed.
#![cfg(target_os = "linux")]

use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

fn check(dir: &Path, args: &[&str]) -> (Option<i32>, Value) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nv-check"));
    let out = command.current_dir(dir).args(args).arg("--json").output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    println!("{}", String::from_utf8_lossy(&out.stderr));
    let last = text.lines().last().unwrap_or("null");
    (out.status.code(), serde_json::from_str(last).unwrap())
}

/// A test program of a kind: it prints its arguments, and passes or fails.
fn program(dir: &Path, name: &str, script: &str) {
    let path = dir.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn software_gpu_is_checked_and_measured_with_driver_chip_and_clocks() {
    let dir = tempfile::tempdir().unwrap();
    let (code, reported) = check(dir.path(), &["--device", "NV:emu=sm_90", "--out", "result.json", "--skip", "tests"]);
    assert_eq!(code, Some(0), "{reported:#}");
    assert_eq!(
        (reported["machine"]["chip"].as_str(), reported["machine"]["driver"].as_str()),
        (Some("sm_90"), Some("580.159.04"))
    );
    assert_eq!(reported["machine"]["state"]["temperature_c"].as_i64(), Some(42));
    assert!(reported["copies"]["copies"].as_u64().unwrap() > 60, "{reported:#}");
    let positive = [
        "launch_latency_us",
        "launch_rate_per_s",
        "list_us_per_kernel",
        "graph_us_per_kernel",
        "h2d_pinned_gb_s",
        "d2h_pinned_gb_s",
        "d2d_gb_s",
        "h2d_pageable_gb_s",
        "d2h_pageable_gb_s",
    ];
    for key in positive {
        assert!(reported["doorbell"][key].as_f64().is_some_and(|v| v > 0.0), "{key}: {reported:#}");
    }
    assert!(reported["first_kernel"]["open_to_first_kernel_ms"].as_f64().unwrap() > 0.0);
    assert_eq!(reported["cuda"]["error"].as_str(), Some("CUDA sees no software GPU"));
    assert!(reported["tests"].is_null(), "{reported:#}");
    let kept: Value = serde_json::from_str(&std::fs::read_to_string(dir.path().join("result.json")).unwrap()).unwrap();
    assert_eq!(kept, reported);
}

#[test]
fn test_programs_get_the_device_and_a_failing_one_fails_the_check() {
    let dir = tempfile::tempdir().unwrap();
    let fine = "test $DEV = NV:emu=sm_90 && echo 'test result: ok. 3 passed; 0 failed; 0 ignored'";
    const SUITE: [&str; 7] = ["ops_device", "device_ops", "jit", "jit_edges", "realize", "tensor", "random_graphs"];
    SUITE[1..].iter().for_each(|name| program(dir.path(), name, fine));
    let args = ["--device", "NV:emu=sm_90", "--skip", "copies", "--skip", "bench", "--skip", "cuda", "--tests", "."];
    let (code, reported) = check(dir.path(), &args);
    let absent = &reported["tests"]["programs"][0];
    assert_eq!((code, absent["why"].as_str()), (Some(1), Some("not in the folder")), "{reported:#}");
    program(dir.path(), SUITE[0], fine);
    let (code, reported) = check(dir.path(), &args);
    assert_eq!((code, reported["tests"]["programs"][2]["passed"].as_u64()), (Some(0), Some(3)), "{reported:#}");
    program(
        dir.path(),
        "tensor",
        "echo 'test softmax ... FAILED'; echo 'test result: FAILED. 1 passed; 1 failed; 0 ignored'; exit 101",
    );
    let (code, reported) = check(dir.path(), &args);
    let tensor = &reported["tests"]["programs"][5];
    assert_eq!(
        (code, tensor["failures"][0].as_str(), tensor["failed"].as_u64()),
        (Some(1), Some("softmax"), Some(1)),
        "{reported:#}"
    );
    program(dir.path(), "tensor", "sleep 100");
    let (code, reported) = check(dir.path(), &[&args[..], &["--minutes", "0.1"]].concat());
    assert_eq!(
        (code, reported["tests"]["programs"][5]["why"].as_str()),
        (Some(1), Some("it was cut off at the deadline")),
        "{reported:#}"
    );
}

#[test]
fn devices_and_parts_that_are_none_are_told_by_their_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(check(dir.path(), &["--device", "CPU"]).0, Some(3));
    assert_eq!(check(dir.path(), &["--skip", "lunch"]).0, Some(3));
    assert_eq!(check(dir.path(), &["--minutes", "inf"]).0, Some(3));
    let bare = ["--device", "NV:emu=sm_90", "--skip", "copies", "--skip", "bench", "--skip", "cuda"];
    let (code, reported) = check(dir.path(), &bare);
    let why = reported["tests"]["error"].as_str().unwrap_or_default();
    assert!(code == Some(1) && why.contains("no folder of test programs"), "{reported:#}");
    if !Path::new("/dev/nvidiactl").exists() {
        let (code, reported) = check(dir.path(), &[]);
        assert!(
            code == Some(2) && reported["error"].as_str().is_some_and(|e| e.contains("no nvidia driver")),
            "{reported:#}"
        );
    }
}

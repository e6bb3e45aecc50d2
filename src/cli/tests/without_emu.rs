//! A program without software GPUs says how it is built with them.
#![cfg(not(feature = "emu"))]

use std::process::Command;

/// Exit code and standard error of the program.
fn doorbell(args: &[&str]) -> (Option<i32>, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_doorbell")).args(args).output().expect("the program starts");
    (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
}

#[test]
fn driver_tests_name_the_feature() {
    for args in [&["drivertest"][..], &["drivertest", "run", "--fault", "nv.call", "nv.channel.*"]] {
        let (code, text) = doorbell(args);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains("--features amd,nv,emu"), "{text}");
    }
}

#[cfg(feature = "nv")]
#[test]
fn software_gpus_name_the_feature() {
    let (code, text) = doorbell(&["--device", "NV:emu=sm_90", "train"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("NV:emu=sm_90") && text.contains("--features emu"), "{text}");
}

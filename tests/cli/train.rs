//! `doorbell train`: its result, its files, and being interrupted.

use super::{code, doorbell, err, json, run, temp};
use doorbell::nn::state;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const KEYS: &[&str] = &[
    "device",
    "arch",
    "seconds",
    "epochs",
    "steps",
    "step_ms_median",
    "kernels_per_step",
    "test_accuracy",
    "loss",
    "seed",
    "interrupted",
    "weights",
    "curve",
];

#[test]
fn an_epoch_learns_and_leaves_weights_and_a_curve() {
    let t = temp();
    let o = run(t.path(), &["train", "--epochs", "1", "--out", "deep/er", "--json"]);
    assert_eq!(code(&o), 0, "{}", err(&o));
    let v = json(&o, KEYS);
    assert_eq!(
        (v["epochs"].as_u64(), v["interrupted"].as_bool(), v["device"].as_str()),
        (Some(1), Some(false), Some("CPU"))
    );
    assert!(v["test_accuracy"].as_f64().unwrap() > 0.7, "{v}");
    let weights = state::load(&t.path().join("deep/er/digits.safetensors")).unwrap();
    assert!(weights.contains_key("conv1.weight") && weights.contains_key("linear.weight"), "{:?}", weights.keys());
    let svg = std::fs::read_to_string(t.path().join("deep/er/digits.svg")).unwrap();
    assert!(svg.starts_with("<svg") || svg.starts_with("<?xml"), "{svg}");
}

#[test]
fn equal_seeds_give_equal_weights_and_others_do_not() {
    let t = temp();
    let train = |out: &str, seed: &str| {
        let o = run(t.path(), &["train", "--epochs", "1", "--batch", "256", "--out", out, "--seed", seed]);
        assert_eq!(code(&o), 0, "{}", err(&o));
        std::fs::read(t.path().join(out).join("digits.safetensors")).unwrap()
    };
    let (a, b, c) = (train("a", "5"), train("b", "5"), train("c", "6"));
    assert!(a == b, "equal seeds");
    assert!(a != c, "other seeds");
}

#[test]
fn an_interrupt_leaves_what_was_learnt_and_exits_with_1() {
    let t = temp();
    let mut child = doorbell(t.path(), &["train", "--epochs", "10000", "--batch", "256", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let weights = t.path().join("digits.safetensors");
    let began = Instant::now();
    while !weights.exists() && began.elapsed() < Duration::from_secs(300) {
        if let Some(status) = child.try_wait().unwrap() {
            panic!("ended by itself: {status}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    if !killed.is_ok_and(|s| s.success()) {
        let _ = child.kill();
        panic!("no kill command: {:?}", child.wait());
    }
    let o = child.wait_with_output().unwrap();
    assert_eq!(code(&o), 1, "{}", err(&o));
    assert_eq!(json(&o, KEYS)["interrupted"], true);
    assert!(err(&o).contains("interrupted"), "{}", err(&o));
    assert!(!state::load(&weights).unwrap().is_empty());
    let left: Vec<_> = std::fs::read_dir(t.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "weights and curve, no halves: {left:?}");
}

#[test]
fn null_trains_nothing_but_says_so() {
    let t = temp();
    let o = run(t.path(), &["train", "--epochs", "1", "--device", "NULL", "--json"]);
    // It compiles and computes nothing, so there is no loss to read.
    assert!(code(&o) == 1 || code(&o) == 2, "exit code {}: {}", code(&o), err(&o));
    assert!(err(&o).contains("NULL"), "{}", err(&o));
}

#[test]
fn a_place_that_cannot_be_written_is_2_before_training() {
    let t = temp();
    std::fs::write(t.path().join("file"), "x").unwrap();
    let o = run(t.path(), &["train", "--out", "file/below"]);
    assert_eq!(code(&o), 2, "{}", err(&o));
}

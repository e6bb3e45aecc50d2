//! `doorbell train`: its result, its files, and being interrupted.

use super::{code, doorbell, err, json, run, temp};
use doorbell::nn::state;
use std::path::Path;
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

/// MNIST's four files: pictures of 8x8 bytes, each digit a bright column of its own in noise.
fn write_pictures(dir: &Path, sets: [(&str, u32); 2]) {
    let mut state = 1u32;
    let mut noise = || {
        state = state.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f);
        (state >> 26) as u8
    };
    for (set, rows) in sets {
        let header = |magic: u32, sizes: &[u32]| -> Vec<u8> {
            std::iter::once(&magic).chain(sizes).flat_map(|n| n.to_be_bytes()).collect()
        };
        let (mut images, mut labels) = (header(0x803, &[rows, 8, 8]), header(0x801, &[rows]));
        for row in 0..rows {
            let digit = row * 7 % 10;
            images.extend((0..64).map(|at| noise() + if at % 10 == digit { 180 } else { 0 }));
            labels.push(digit as u8);
        }
        std::fs::write(dir.join(format!("{set}-images-idx3-ubyte")), images).unwrap();
        std::fs::write(dir.join(format!("{set}-labels-idx1-ubyte")), labels).unwrap();
    }
}

/// The same machine code as on a Hopper card, executed: the losses of two epochs and every weight agree with the CPU's.
#[test]
fn losses_and_weights_on_a_software_gpu_are_those_of_the_cpu() {
    let t = temp();
    write_pictures(t.path(), [("train", 24), ("t10k", 10)]);
    let train = |device: &str, epochs: &str| {
        let fixed = ["train", "--mnist", ".", "--batch", "8", "--json", "--epochs", epochs, "--device", device];
        let out = format!("{}{epochs}", device.replace(':', "_"));
        let _none_at_first = std::fs::remove_dir_all(t.path().join(&out));
        let o = run(t.path(), &[&fixed[..], &["--out", &out]].concat());
        assert_eq!(code(&o), 0, "{device}: {}", err(&o));
        let v = json(&o, KEYS);
        assert_eq!(
            (v["device"].as_str(), v["steps"].as_u64()),
            (Some(device), Some(3 * epochs.parse::<u64>().unwrap()))
        );
        (v["loss"].as_f64().unwrap(), state::load(&t.path().join(out).join("mnist.safetensors")).unwrap())
    };
    for (epochs, device) in [("1", "NV:emu=sm_90"), ("2", "NV:emu=sm_90"), ("1", "METAL:emu")] {
        let ((cpu, weights), (gpu, theirs)) = (train("CPU", epochs), train(device, epochs));
        assert!((cpu - gpu).abs() < 1e-3, "{device}, {epochs}: {cpu} and {gpu}");
        assert!(cpu > 0.5, "{cpu}: there is something to learn still");
        assert_eq!(weights.len(), theirs.len());
        for (name, ours) in &weights {
            let [ours, theirs] = [ours, &theirs[name]].map(|w| w.to_vec::<f32>().unwrap());
            let apart = ours.iter().zip(&theirs).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
            assert!(ours.len() == theirs.len() && apart < 1e-3, "{name} after {epochs} on {device}: {apart}");
        }
    }
}

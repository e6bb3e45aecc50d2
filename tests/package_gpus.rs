//! Packages on software GPUs: what the GPU recorded, its package computes bit for bit; one file has code for several
//! machines.
#![cfg(all(target_os = "linux", feature = "cpu", feature = "emu"))]

use doorbell::engine::{PackageOptions, Packaged};
use doorbell::runtime::PackageFile;
use doorbell::tensor::prelude::*;
use doorbell::{Jit, Options, Session};
use std::collections::BTreeMap;

type Named = BTreeMap<&'static str, Tensor>;

fn numbers(n: usize, seed: u32) -> Vec<f32> {
    (0..n as u32).map(|i| (i.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 16) as f32 / 65536.0 - 0.5).collect()
}

fn input(shape: &[usize], seed: u32) -> Tensor {
    Tensor::from_slice(&numbers(shape.iter().product(), seed), shape)
}

/// Two layers with weights inside, softmax, and a second result in the middle.
fn classifier() -> impl FnMut(&Named) -> Named {
    let (w1, w2, b) = (input(&[12, 16], 1), input(&[16, 5], 2), input(&[16], 3));
    Tensor::realize_all(&[&w1, &w2, &b]).unwrap();
    move |x: &Named| {
        let hidden = (x["x"].matmul(&w1) + &b).relu();
        Named::from([("p", hidden.matmul(&w2).softmax(-1)), ("largest", hidden.max(1))])
    }
}

fn classifier_input(seed: u32) -> Named {
    Named::from([("x", input(&[4, 12], seed))])
}

fn recorded<F: FnMut(&Named) -> Named>(f: F, x: &Named) -> Jit<F, Named, Named> {
    let mut jit = Jit::new(f);
    jit.call(x).unwrap();
    jit.call(x).unwrap();
    jit
}

fn bytes(out: &Tensor) -> Vec<u8> {
    out.to_bytes().unwrap()
}

/// Saves what the session's device recorded, and compares the package with it on three inputs.
fn same_as_recorded(device: &str) {
    let s = Session::open(Options { device: device.into(), ..Options::default() }).unwrap();
    let _in_it = s.enter();
    let mut jit = recorded(classifier(), &classifier_input(7));
    let file = PackageFile::from_bytes(&jit.package(&PackageOptions::default()).unwrap().package).unwrap();
    let mut package = Packaged::on(device, &file).unwrap();
    for seed in [7, 8, 9] {
        let x = classifier_input(seed);
        let want = jit.call(&x).unwrap();
        let have = package.call(&[("x", &x["x"])]).unwrap();
        for (name, t) in have {
            assert_eq!(bytes(&t), bytes(&want[name.as_str()]), "{name} on {device}");
        }
    }
}

#[cfg(feature = "amd")]
#[test]
fn package_computes_what_the_recording_does_on_amd() {
    same_as_recorded("AMD:emu=gfx1100");
}

#[cfg(feature = "nv")]
#[test]
fn package_computes_what_the_recording_does_on_nvidia() {
    same_as_recorded("NV:emu=sm_90");
}

#[cfg(feature = "metal")]
#[test]
fn package_computes_what_the_recording_does_on_metal() {
    same_as_recorded("METAL:emu");
}

/// Recorded on the CPU, compiled for a CPU and two GPUs: each runs it from the one file, as if it had recorded it.
#[cfg(all(feature = "amd", feature = "nv"))]
#[test]
fn one_file_has_code_for_several_targets() {
    let x = classifier_input(7);
    let targets = ["x86_64-avx2", "gfx1100", "sm_90"].map(String::from).to_vec();
    let on = |device: &str| Session::open(Options { device: device.into(), ..Options::default() }).unwrap();
    let file = {
        let s = on("CPU");
        let _in_it = s.enter();
        let jit = recorded(classifier(), &x);
        jit.package(&PackageOptions { targets: targets.clone(), ..PackageOptions::default() }).unwrap()
    };
    let file = PackageFile::from_bytes(&file.package).unwrap();
    assert_eq!(file.package().contents.archs(), targets.join(", "));
    for (device, arch) in [("CPU", "x86_64-avx2"), ("AMD:emu=gfx1100", "gfx1100"), ("NV:emu=sm_90", "sm_90")] {
        let s = on(device);
        let _in_it = s.enter();
        let mut package = Packaged::on(device, &file).unwrap();
        assert_eq!(package.program().arch(), arch);
        let x = classifier_input(7);
        let have = package.call(&[("x", &x["x"])]).unwrap();
        if device == "CPU" {
            continue; // another level of the instruction set than the recording's
        }
        let want = recorded(classifier(), &x).call(&x).unwrap();
        for (name, t) in have {
            assert_eq!(bytes(&t), bytes(&want[name.as_str()]), "{name} on {device}");
        }
    }
}

//! On software GPUs: what the GPU recorded, its package computes bit for bit; one file has code for several machines.

use super::*;

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

/// A level of every CPU like this machine's.
#[cfg(all(feature = "amd", feature = "nv"))]
const CPU: &str = if cfg!(target_arch = "aarch64") { "aarch64-neon" } else { "x86_64-avx2" };

/// Recorded on the CPU, compiled for a CPU and two GPUs: each runs it from the one file, as if it had recorded it.
#[cfg(all(feature = "amd", feature = "nv"))]
#[test]
fn one_file_has_code_for_several_targets() {
    let x = classifier_input(7);
    let targets = [CPU, "gfx1100", "sm_90"].map(String::from).to_vec();
    let on = |device: &str| Session::open(Options { device: device.into(), ..Options::default() }).unwrap();
    let file = {
        let s = on("CPU");
        let _in_it = s.enter();
        let jit = recorded(classifier(), &x);
        jit.package(&PackageOptions { targets: targets.clone(), ..PackageOptions::default() }).unwrap()
    };
    let file = PackageFile::from_bytes(&file.package).unwrap();
    assert_eq!(file.package().contents.archs(), targets.join(", "));
    for (device, arch) in [("CPU", CPU), ("AMD:emu=gfx1100", "gfx1100"), ("NV:emu=sm_90", "sm_90")] {
        let s = on(device);
        let _in_it = s.enter();
        let mut package = Packaged::on(device, &file).unwrap();
        assert_eq!(package.program().arch(), arch);
        let x = classifier_input(7);
        let have = package.call(&[("x", &x["x"])]).unwrap();
        if device == "CPU" {
            continue; // perhaps another level of the instruction set than the recording's
        }
        let want = recorded(classifier(), &x).call(&x).unwrap();
        for (name, t) in have {
            assert_eq!(bytes(&t), bytes(&want[name.as_str()]), "{name} on {device}");
        }
    }
}

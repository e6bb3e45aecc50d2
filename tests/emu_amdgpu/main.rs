//! The emulator tested with code of another compiler: kernels that clang compiles for each chip, run in the emulator
//! and compared with the same source compiled by gcc for the host.

mod caches;
mod decode;
mod halves;
mod harness;
mod lanes;
mod matrix;
mod ops;
mod strict;
mod translated;

use doorbell::emu::amdgpu::{Chip, Strict};
use harness::{CLANG, Launch, Loaded, SIZE, compile_by, folder, inputs, launch, on_host, scratch};

/// Kernels of one file on one chip at the given optimisations, bit for bit as the host.
fn agrees(file: &str, chip: Chip, levels: &[&str]) {
    agrees_by("19", CLANG, file, chip, levels);
}

/// As `agrees`, compiled by clang of that version and held to those rules.
fn agrees_by(version: &str, strict: Strict, file: &str, chip: Chip, levels: &[&str]) {
    let source = folder().join(file);
    let (groups, out_words) = (3, 16 * 1024);
    let n = groups * SIZE - 5;
    let input = inputs(4096, 0x5eed_0001);
    let expected = on_host(&source, &input, groups, out_words, n);
    let dir = scratch(&format!("{file}-{chip:?}"));
    let mut wrong = Vec::new();
    for level in levels {
        let flags: Vec<&str> = level.split(' ').collect();
        let loaded = Loaded::new(chip, &compile_by(version, chip, &source, &flags, &dir));
        assert_eq!(loaded.names().len(), expected.len());
        for (name, want) in &expected {
            let l = Launch { kernel: name, input: &input, out_words, groups, local: SIZE, n, strict };
            match launch(&loaded, &l) {
                Err(fault) => wrong.push(format!("{name} {level}: {fault}")),
                Ok((got, _)) => {
                    if let Some(at) = (0..want.len()).find(|i| want[*i] != got[*i]) {
                        wrong
                            .push(format!("{name} {level}: word {at} is {:#x}, the host has {:#x}", got[at], want[at]));
                    }
                }
            }
        }
    }
    std::fs::remove_dir_all(dir).unwrap();
    assert!(wrong.is_empty(), "{chip:?}, {} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

macro_rules! kernels {
    ($($name:ident: $file:literal, $chip:ident, $levels:expr;)*) => {
        $(#[test]
        fn $name() {
            agrees($file, Chip::$chip, &$levels);
        })*
    };
}

kernels! {
    integers_agree_with_the_host_on_gfx1100: "integers.c", Gfx1100, ["-O0", "-O2", "-O3", "-O2 -mwavefrontsize64"];
    control_flow_agrees_with_the_host_on_gfx1100: "flow.c", Gfx1100, ["-O0", "-O2", "-O3", "-O2 -mwavefrontsize64"];
    floats_agree_with_the_host_on_gfx1100: "floats.c", Gfx1100, ["-O0", "-O2", "-O2 -mwavefrontsize64"];
    groups_agree_with_the_host_on_gfx1100: "groups.c", Gfx1100, ["-O0", "-O2", "-O2 -mwavefrontsize64"];
    integers_agree_with_the_host_on_gfx942: "integers.c", Gfx942, ["-O0", "-O2"];
    control_flow_agrees_with_the_host_on_gfx942: "flow.c", Gfx942, ["-O0", "-O2"];
    floats_agree_with_the_host_on_gfx942: "floats.c", Gfx942, ["-O0", "-O2"];
    groups_agree_with_the_host_on_gfx942: "groups.c", Gfx942, ["-O0", "-O2"];
    integers_agree_with_the_host_on_gfx1201: "integers.c", Gfx1201, ["-O0", "-O2"];
    control_flow_agrees_with_the_host_on_gfx1201: "flow.c", Gfx1201, ["-O0", "-O2"];
    floats_agree_with_the_host_on_gfx1201: "floats.c", Gfx1201, ["-O0", "-O2"];
    groups_agree_with_the_host_on_gfx1201: "groups.c", Gfx1201, ["-O0", "-O2"];
}

/// All kernels as clang 22 compiles them at every level: True16 on gfx1100, dispatch packet and id at -O0.
fn clang_22(chip: Chip) {
    let strict = Strict::on();
    for file in ["integers.c", "flow.c", "floats.c", "groups.c", "shorts.c"] {
        agrees_by("22", strict, file, chip, &["-O0", "-O1", "-O2", "-O3"]);
    }
}

#[test]
fn code_of_clang_22_agrees_with_the_host_on_gfx1100() {
    clang_22(Chip::Gfx1100);
}

#[test]
fn code_of_clang_22_agrees_with_the_host_on_gfx942() {
    clang_22(Chip::Gfx942);
}

#[test]
fn code_of_clang_22_agrees_with_the_host_on_gfx1201() {
    clang_22(Chip::Gfx1201);
}

/// gfx1201 with halves of registers, which clang does not use there unless told.
#[test]
fn halves_of_clang_22_agree_with_the_host_on_gfx1201() {
    let flags = "-Xclang -target-feature -Xclang +real-true16";
    let levels = ["-O1", "-O3"].map(|l| format!("{l} {flags}"));
    let levels: Vec<&str> = levels.iter().map(String::as_str).collect();
    for file in ["integers.c", "floats.c", "shorts.c"] {
        agrees_by("22", Strict::on(), file, Chip::Gfx1201, &levels);
    }
}

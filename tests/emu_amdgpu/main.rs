//! The emulator tested with code of another compiler: kernels that clang compiles for each chip, run in the emulator
//! and compared with the same source compiled by gcc for the host.

mod caches;
mod decode;
mod harness;
mod lanes;
mod matrix;
mod ops;
mod strict;

use doorbell::emu::amdgpu::Chip;
use harness::{CLANG, Launch, Loaded, SIZE, compile, folder, inputs, launch, on_host, scratch};

/// Kernels of one file on one chip at the given optimisations, bit for bit as the host.
fn agrees(file: &str, chip: Chip, levels: &[&str]) {
    let source = folder().join(file);
    let (groups, out_words) = (3, 16 * 1024);
    let n = groups * SIZE - 5;
    let input = inputs(4096, 0x5eed_0001);
    let expected = on_host(&source, &input, groups, out_words, n);
    let dir = scratch(&format!("{file}-{chip:?}"));
    let mut wrong = Vec::new();
    for level in levels {
        let flags: Vec<&str> = level.split(' ').collect();
        let loaded = Loaded::new(chip, &compile(chip, &source, &flags, &dir));
        assert_eq!(loaded.names().len(), expected.len());
        for (name, want) in &expected {
            let strict = CLANG;
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

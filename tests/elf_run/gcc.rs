//! Objects made by a C compiler, linked by us and executed, against the same source linked and run by the system.

use crate::memory::{Placed, Where, Words};
use doorbell::elf::{self, ElfError};
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/elf_run/kernels.c");

fn gcc(args: &[&str], out: &Path) {
    let run = Command::new("gcc").args(args).args(["-ffp-contract=off", SOURCE, "-o"]).arg(out).output().unwrap();
    assert!(run.status.success(), "gcc {args:?}: {}", String::from_utf8_lossy(&run.stderr));
}

fn compile(flags: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kernels.o");
    gcc(&[&["-c"][..], &flags.split_whitespace().collect::<Vec<_>>()].concat(), &path);
    std::fs::read(&path).unwrap()
}

/// 9 calls of 20 results: what the source computes when the system's linker and loader place it.
static NATIVE: LazyLock<Vec<u64>> = LazyLock::new(|| {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("native");
    gcc(&["-O1", "-DNATIVE"], &path);
    let run = Command::new(&path).output().unwrap();
    String::from_utf8(run.stdout).unwrap().lines().map(|line| line.parse().unwrap()).collect()
});

extern "C" fn host_scale(x: f64, n: u64) -> f64 {
    x * 1000.0 + n as f64
}

/// Links, places and runs the kernel as `main` in the source does.
fn run(object: &[u8], place: Where) -> Vec<u64> {
    let image = elf::link(object).unwrap();
    let host_words = Words::new(place, &[10, 20, 30, 40]);
    let resolve = |name: &str| match name {
        "host_scale" => Some((host_scale as *const ()).addr() as u64),
        "host_words" => Some(host_words.address()),
        _ => None,
    };
    let placed = Placed::new(image, place, &resolve);
    let input: Vec<f32> = (0..24u8).map(|i| f32::from(i) * 0.25 - 2.0).collect();
    let mut results = Vec::new();
    for tid in 0..9 {
        let mut out = [0u64; 20];
        let args = [out.as_mut_ptr().addr() as u64, input.as_ptr().addr() as u64, 24];
        // SAFETY: the kernel of the source follows the ABI, writes 20 results and reads 24 floats.
        unsafe { placed.call("kernel", &args, tid) };
        results.extend(out);
    }
    results
}

#[test]
fn native_program_gives_all_results() {
    assert_eq!(NATIVE.len(), 180);
}

/// Position-independent code, anywhere in the address space, with externals beyond the reach of 32-bit distances.
#[test]
fn position_independent_objects_run_far_from_their_externals() {
    for flags in [
        "-O2 -fPIC",
        "-O0 -fPIC",
        "-O3 -fPIC -mavx2 -mfma -ffp-contract=off",
        "-O2 -fPIC -fno-plt",
        "-O2 -fPIC -fcommon",
        "-O2 -fPIC -ffunction-sections -fdata-sections",
        "-O2 -fPIC -fvisibility=hidden -g",
        "-O2 -fPIC -mcmodel=large",
        "-O2 -fno-pie -mcmodel=large",
        "-O0 -fno-pie -mcmodel=large -fcommon",
        "-Os -fPIC -fno-jump-tables -fno-asynchronous-unwind-tables",
        "-O2 -fPIC -Wa,-mrelax-relocations=no",
        "-O2 -fPIC -fcf-protection=full",
    ] {
        assert_eq!(run(&compile(flags), Where::Anywhere), *NATIVE, "gcc {flags}");
    }
}

/// Code that holds 32-bit addresses, or distances to the host's data, runs in the low 2 GiB together with that data.
#[test]
fn position_dependent_objects_run_in_low_memory() {
    for flags in
        ["-O2", "-O0", "-O2 -fno-pie", "-O0 -fno-pie", "-O3 -fno-pie -fcommon", "-O2 -fno-pie -ffunction-sections"]
    {
        assert_eq!(run(&compile(flags), Where::Low2Gib), *NATIVE, "gcc {flags}");
    }
}

#[test]
fn needs_low_2gib_tells_code_with_32_bit_addresses() {
    assert!(elf::link(&compile("-O2 -fno-pie")).unwrap().needs_low_2gib());
    assert!(!elf::link(&compile("-O2 -fPIC")).unwrap().needs_low_2gib());
    let error = elf::link(&compile("-O2 -fno-pie")).unwrap().relocated(1 << 40, &|_| Some(4096)).unwrap_err();
    assert!(matches!(error, ElfError::Overflow { kind: "R_X86_64_32" | "R_X86_64_32S", .. }), "{error}");
}

#[test]
fn data_out_of_reach_of_its_distance_is_a_named_overflow() {
    let image = elf::link(&compile("-O2 -fpie")).unwrap();
    let error = image.relocated(1 << 40, &|_| Some(4096)).unwrap_err();
    match error {
        ElfError::Overflow { kind: "R_X86_64_PC32", symbol, .. } => assert_eq!(symbol, "host_words"),
        other => panic!("{other}"),
    }
}

#[test]
fn entries_are_the_global_functions_and_undefined_are_the_externals() {
    let image = elf::link(&compile("-O2 -fPIC")).unwrap();
    let entries: Vec<_> = image.entries().map(|(name, _)| name).collect();
    assert_eq!(entries, ["dispatch", "fib", "kernel", "mix"]);
    let mut undefined: Vec<_> = image.undefined().collect();
    undefined.sort_unstable();
    assert_eq!(undefined, ["host_scale", "host_words", "maybe"]);
    let error = image.relocated(0, &|name| (name != "host_words").then_some(0)).unwrap_err();
    assert_eq!(error, ElfError::Undefined { name: "host_words".into() });
}

//! The library on AArch64: built for it with musl's libc on this machine, and run by an emulator of its user mode.
//!
//! Place: the steps of `cargo xtask aarch64`. What a CPU of the host computes is compared with what it computes there.

use crate::run::{Failure, Step, call, output, program, root, start};
use crate::setup::{self, AARCH64};
use std::path::PathBuf;

const STEP: &str = "aarch64";
/// Where cargo builds for that target: a folder of its own, since its environment is not that of other builds.
const FOLDER: &str = "target/aarch64";
/// What every run tests there: kernels, the CPU device, and Tensors on it.
const QUICK: &[&str] = &["run", "device_cpu", "jit", "realize", "tensor", "package"];
/// Those that take many minutes in the emulator: `cargo xtask aarch64 all`.
const SLOW: &[&str] = &["ops_device", "device_ops", "jit_edges", "random_graphs", "device_amd", "device_nv"];
const PROGRAM: &str = "mlp";
/// The program's input of 16 x 64 numbers, as a file of safetensors has it.
const INPUT: &str = r#"{"x":{"dtype":"F32","shape":[16,64],"data_offsets":[0,4096]}}"#;

/// The steps; `all` adds the slow tests.
pub fn steps(rest: &[String]) -> Vec<Step> {
    let list = |tests: &[&str]| tests.iter().map(|t| format!(" --test {t}")).collect::<String>();
    let is_all = rest.iter().any(|word| word == "all");
    let more = if is_all { list(SLOW) } else { String::new() };
    let cargo = |what: &str| start(STEP, &format!("{} cargo {what} --quiet {}", environment(), packages()));
    let mut steps = vec![
        call(STEP, setup::aarch64_library),
        // One build of all, so that tests, program and libdoorbell share their crates.
        cargo(&format!("build --lib --bin doorbell{}{more}", list(QUICK))),
        cargo(&format!("test{}", list(QUICK))),
        call(STEP, package),
        call(STEP, c_program),
        call(STEP, training),
        call(STEP, software_gpus),
        // Built by itself: the message path needs little of what the rest has.
        start(STEP, &format!("{} cargo test --quiet {MESSAGES}", environment())),
    ];
    if is_all {
        steps.push(cargo(&format!("test{more}")));
    }
    steps
}

/// What cargo needs to know to build for AArch64 without a linker or a C library of it, and to run what it built.
fn environment() -> String {
    let target = "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL";
    format!(
        "env CARGO_TARGET_DIR={FOLDER} {target}_LINKER=rust-lld {target}_RUSTFLAGS=-Clink-self-contained=yes \
         {target}_RUNNER=qemu-aarch64-static RANDOM_GRAPHS=100"
    )
}

/// What is built: always the same packages with the same features.
fn packages() -> String {
    format!(
        "--profile emulated --target {AARCH64} --package doorbell --package doorbell-cli --package doorbell-capi \
         --package doorbell-aarch64 --no-default-features --features cpu,amd,nv,emu,datasets"
    )
}

/// The entry of Metal's messages is assembly for each processor: it is sent everything by value that the framework
/// takes, and the device works through it.
const MESSAGES: &str = "--profile emulated --target aarch64-unknown-linux-musl --package doorbell-emu-metal --lib";

/// A machine that runs the program.
#[derive(Clone, Copy)]
enum Host {
    Here,
    Aarch64,
}

impl Host {
    /// The words that start the program there; here, cargo builds it first.
    fn words(self, args: &str) -> Vec<String> {
        let run = match self {
            Self::Here => "cargo run --quiet --package doorbell-cli --no-default-features --features cpu --".to_owned(),
            Self::Aarch64 => format!("qemu-aarch64-static {FOLDER}/{AARCH64}/emulated/doorbell"),
        };
        format!("{run} {args}").split_whitespace().map(str::to_owned).collect()
    }

    fn run(self, args: &str) -> Result<(), Failure> {
        program(STEP, &self.words(args))
    }
}

fn words(first: &str, last: &str) -> Vec<String> {
    first.split_whitespace().chain(last.split_whitespace()).map(str::to_owned).collect()
}

fn failed(why: String) -> Failure {
    Failure::Failed { step: STEP.to_owned(), status: why }
}

fn path(name: &str) -> PathBuf {
    root().join(FOLDER).join(name)
}

fn read(name: &str) -> Result<Vec<u8>, Failure> {
    std::fs::read(path(name)).map_err(|e| failed(format!("{FOLDER}/{name}: {e}")))
}

/// A package that is compiled here computes there what it computes here.
fn package() -> Result<(), Failure> {
    // Those of src/capi/examples/run.c.
    let numbers = (0..1024u16).flat_map(|i| (f32::from(i % 7) / 8.0).to_le_bytes());
    let head = (INPUT.len() as u64).to_le_bytes();
    let file: Vec<u8> = head.into_iter().chain(INPUT.bytes()).chain(numbers).collect();
    std::fs::write(path("in.safetensors"), file).map_err(|e| failed(format!("{FOLDER}/in.safetensors: {e}")))?;
    Host::Here.run(&format!("compile {PROGRAM} --target x86_64-avx2,aarch64-neon -o {FOLDER}/both.dbp"))?;
    for (host, name) in [(Host::Here, "here"), (Host::Aarch64, "there")] {
        let files = format!("--inputs {FOLDER}/in.safetensors --outputs {FOLDER}/{name}.safetensors");
        host.run(&format!("run {FOLDER}/both.dbp {files}"))?;
    }
    let worst = distance(&read("here.safetensors")?, &read("there.safetensors")?).map_err(failed)?;
    println!("   {PROGRAM}: values of both differ by {worst:e} of the largest at most");
    if worst < 1e-5 { Ok(()) } else { Err(failed(format!("the results differ by {worst:e}"))) }
}

/// The largest difference of two files of F32 with the same Tensors, as a share of the largest value.
fn distance(a: &[u8], b: &[u8]) -> Result<f64, String> {
    let parts = |file: &[u8]| {
        let (len, rest) = file.split_first_chunk::<8>().ok_or("no length of the header")?;
        let len = usize::try_from(u64::from_le_bytes(*len)).map_err(|e| e.to_string())?;
        let (head, data) = rest.split_at_checked(len).ok_or("the header is cut")?;
        let numbers = data.as_chunks::<4>().0.iter().map(|c| f64::from(f32::from_le_bytes(*c))).collect::<Vec<f64>>();
        Ok::<_, String>((head.to_vec(), numbers))
    };
    let ((head, a), (other, b)) = (parts(a)?, parts(b)?);
    if head != other || a.len() != b.len() || a.is_empty() {
        return Err("the files have other Tensors".to_owned());
    }
    let larger = |x: f64, y: f64| if x >= y || x.is_nan() { x } else { y };
    let most = |numbers: &mut dyn Iterator<Item = f64>| numbers.fold(0.0, larger);
    let largest = most(&mut a.iter().map(|x| x.abs()));
    Ok(most(&mut a.iter().zip(&b).map(|(x, y)| (x - y).abs())) / largest)
}

/// A C program with libdoorbell prints there what this machine computes from the package. There is no C compiler with a
/// library for AArch64: clang and lld link what Rust's standard library brings, musl's libc, with the headers of this
/// machine's musl, whose declarations are those of any processor with 64 bits.
fn c_program() -> Result<(), Failure> {
    let own = output(STEP, &words("rustc --print target-libdir --target", AARCH64))?;
    let own = format!("{}/self-contained", own.trim());
    let source = "src/capi/examples/run.c";
    let object = format!("{FOLDER}/run.o");
    let headers = "-nostdinc -isystem /usr/include/x86_64-linux-musl -Isrc/capi";
    program(STEP, &words(&format!("clang-19 --target=aarch64-linux-musl {headers} -O1 -c {source} -o"), &object))?;
    let library = format!("{FOLDER}/{AARCH64}/emulated/libdoorbell.a");
    let (first, last) = ("crt1.o crti.o crtbegin.o", "libunwind.a libc.a crtend.o crtn.o");
    let of_rust = |names: &str| names.split(' ').map(|name| format!(" {own}/{name}")).collect::<String>();
    let link = format!("ld.lld-19 -static --gc-sections -o {FOLDER}/run{} {object} {library}", of_rust(first));
    program(STEP, &words(&link, &of_rust(last)))?;
    let there = output(STEP, &words(&format!("qemu-aarch64-static {FOLDER}/run"), &format!("{FOLDER}/both.dbp")))?;
    print!("{there}");
    let here = read("here.safetensors")?;
    // A line is a Tensor's name with its first numbers, to six digits after the point.
    let differs = |line: &&str| {
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        let printed: Vec<f64> = rest.split(' ').filter_map(|word| word.parse().ok()).collect();
        let computed = tensor(&here, name).unwrap_or_default();
        let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 2e-6;
        printed.is_empty() || printed.len() > computed.len() || !printed.iter().zip(&computed).all(near)
    };
    match there.lines().find(differs) {
        None if there.lines().count() == 3 => Ok(()),
        found => Err(failed(format!("libdoorbell computes other values: {found:?} of {there}"))),
    }
}

/// The numbers of a Tensor of F32 in a file of safetensors.
fn tensor(file: &[u8], name: &str) -> Option<Vec<f64>> {
    let (len, rest) = file.split_first_chunk::<8>()?;
    let (head, data) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
    let own = std::str::from_utf8(head).ok()?.split(&format!("\"{name}\":")).nth(1)?;
    let (first, last) = own.split("\"data_offsets\":[").nth(1)?.split(']').next()?.split_once(',')?;
    let bytes = data.get(first.trim().parse().ok()?..last.trim().parse().ok()?)?;
    Some(bytes.as_chunks::<4>().0.iter().map(|c| f64::from(f32::from_le_bytes(*c))).collect())
}

/// An epoch of training there ends with the loss that it ends with here.
fn training() -> Result<(), Failure> {
    let mut losses = Vec::new();
    for (host, name) in [(Host::Here, "here"), (Host::Aarch64, "there")] {
        let text = output(STEP, &host.words(&format!("--json train --epochs 1 --out {FOLDER}/{name}")))?;
        let loss =
            text.split("\"loss\":").nth(1).and_then(|rest| rest.split([',', '}']).next()?.trim().parse::<f64>().ok());
        losses.push(loss.ok_or_else(|| failed(format!("no loss in {text}")))?);
    }
    println!("   loss of an epoch: {} here, {} there", losses[0], losses[1]);
    let near = (losses[0] - losses[1]).abs() <= 1e-3 * losses[0].abs();
    if near { Ok(()) } else { Err(failed(format!("an epoch ends with losses of {losses:?}"))) }
}

/// The devices of AMD and NVIDIA and their software drivers and cards run there.
fn software_gpus() -> Result<(), Failure> {
    let targets = "gfx1100,sm_90,aarch64-neon";
    Host::Aarch64.run(&format!("compile {PROGRAM} --target {targets} -o {FOLDER}/gpus.dbp"))?;
    let files = |name: &str| format!("--inputs {FOLDER}/in.safetensors --outputs {FOLDER}/{name}.safetensors");
    for device in ["AMD:emu=gfx1100", "NV:emu=sm_90"] {
        Host::Aarch64.run(&format!("run {FOLDER}/gpus.dbp --device {device} {}", files("gpu")))?;
        let worst = distance(&read("here.safetensors")?, &read("gpu.safetensors")?).map_err(failed)?;
        println!("   {PROGRAM} on {device}: values differ by {worst:e} of the largest at most");
        if worst.is_nan() || worst >= 1e-5 {
            return Err(failed(format!("results of {device} differ by {worst:e}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(head: &str, numbers: &[f32]) -> Vec<u8> {
        let data = numbers.iter().flat_map(|n| n.to_le_bytes());
        (head.len() as u64).to_le_bytes().into_iter().chain(head.bytes()).chain(data).collect()
    }

    #[test]
    fn a_tensor_is_found_by_its_name() {
        let head = r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"data_offsets":[4,12]}}"#;
        let file = file(head, &[1.0, 2.0, -3.0]);
        assert_eq!(tensor(&file, "b"), Some(vec![2.0, -3.0]));
        assert_eq!((tensor(&file, "c"), tensor(&file[..20], "a")), (None, None));
    }

    #[test]
    fn files_of_the_same_tensors_are_as_far_apart_as_their_numbers() {
        let near = distance(&file("{}", &[1.0, -4.0]), &file("{}", &[1.0, -5.0]));
        assert_eq!(near, Ok(0.25));
        assert!(distance(&file("{}", &[1.0]), &file("{}", &[f32::NAN])).unwrap().is_nan());
        assert!(distance(&file("{}", &[1.0]), &file("{ }", &[1.0])).is_err());
        assert!(distance(&file("{}", &[1.0]), &[1, 2]).is_err());
    }
}

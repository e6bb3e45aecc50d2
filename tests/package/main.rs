//! Packages: what a recording computes, its package computes bit for bit, on the CPU and on software GPUs; the same
//! program gives the same bytes; a damaged file is refused by name.
#![cfg(feature = "cpu")]

#[cfg(all(target_os = "linux", feature = "emu"))]
mod gpus;

use doorbell::device::Device;
use doorbell::device::null::NullDevice;
use doorbell::engine::{Error, PackageOptions, Packaged, session};
use doorbell::hcq::memory::View;
use doorbell::package::{BlockKind, Package, PackageError};
use doorbell::runtime::{Limits, PackageFile, Program, RunError};
use doorbell::tensor::prelude::*;
use doorbell::uop::UOp;
use doorbell::{Jit, Options, Session};
use doorbell_ioctl::port::FileAccess;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

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

#[test]
fn package_computes_what_the_recording_does_on_the_cpu() {
    same_as_recorded("CPU");
}

#[test]
fn the_same_program_gives_the_same_bytes() {
    let make = || {
        let targets = vec!["x86_64-avx2".into(), "x86_64-avx512".into()];
        let jit = recorded(classifier(), &classifier_input(7));
        jit.package(&PackageOptions { targets, threads: 4, ..PackageOptions::default() }).unwrap().package
    };
    assert_eq!(make(), make());
}

#[test]
fn state_goes_along_and_is_kept_from_run_to_run() {
    let counter = Tensor::new([10.0f32, 20.0]);
    counter.realize().unwrap();
    let inside = counter.clone();
    let mut f = Jit::new(move |x: &Tensor| {
        inside.assign(&(&inside + x));
        &inside * 1.0
    });
    let one = Tensor::new([1.0f32, 2.0]);
    for _ in 0..3 {
        f.call(&one).unwrap();
    }
    let file = PackageFile::from_bytes(&f.package(&PackageOptions::default()).unwrap().package).unwrap();
    assert!(file.package().contents.blocks.iter().any(|b| b.kind == BlockKind::State));
    let mut package = Packaged::on("CPU", &file).unwrap();
    for k in 4..7 {
        let out = package.call(&[("input", &one)]).unwrap();
        assert_eq!(out[0].1.to_vec::<f32>().unwrap(), [10.0 + k as f32, 20.0 + 2.0 * k as f32], "run {k}");
    }
    package.program().reset().unwrap();
    assert_eq!(package.call(&[("input", &one)]).unwrap()[0].1.to_vec::<f32>().unwrap(), [14.0, 28.0]);
    // The program's own counter has not moved.
    assert_eq!(counter.to_vec::<f32>().unwrap(), [13.0, 26.0]);
}

#[test]
fn what_was_pruned_is_a_constant() {
    let w = Tensor::new([1.0f32, 4.0, 9.0]);
    w.realize().unwrap();
    let mut f = Jit::new(move |x: &Tensor| x * w.sqrt().contiguous()).prune();
    let x = Tensor::new([1.0f32, 1.0, 1.0]);
    f.call(&x).unwrap();
    f.call(&x).unwrap();
    assert_eq!(f.kernels(), Some(1));
    let file = PackageFile::from_bytes(&f.package(&PackageOptions::default()).unwrap().package).unwrap();
    let out = Packaged::on("CPU", &file).unwrap().call(&[("input", &x)]).unwrap();
    assert_eq!(out[0].1.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0]);
}

#[test]
fn a_variable_may_have_another_value_at_each_run() {
    let n = UOp::var("n", 1, 8);
    let all = input(&[8, 3], 1);
    let mut f = Jit::new(|x: &Tensor| x.sum(0));
    let of = |k: i64| all.narrow(0, 0, n.bind(k)).contiguous();
    for k in [3, 4] {
        f.call(&of(k)).unwrap();
    }
    let file = PackageFile::from_bytes(&f.package(&PackageOptions::default()).unwrap().package).unwrap();
    let mut package = Packaged::on("CPU", &file).unwrap();
    for k in [1, 5, 8] {
        package.set("n", k).unwrap();
        let x = all.narrow(0, 0, k).contiguous();
        let out = package.call(&[("input", &x)]).unwrap();
        assert_eq!(bytes(&out[0].1), bytes(&f.call(&of(k)).unwrap()), "n = {k}");
    }
    let error = package.set("n", 9).unwrap_err().to_string();
    assert_eq!(error, "variable n is 9, it must be 1 to 8");
}

#[test]
fn results_that_are_inputs_or_no_dense_memory_are_told_apart() {
    let mut same = Jit::new(|x: &Tensor| (x.clone(), x + 1.0));
    let mut turned = Jit::new(|x: &Tensor| (x + 1.0).contiguous().permute([1, 0]));
    let x = input(&[2, 3], 1);
    for _ in 0..2 {
        same.call(&x).unwrap();
        turned.call(&x).unwrap();
    }
    let file = PackageFile::from_bytes(&same.package(&PackageOptions::default()).unwrap().package).unwrap();
    let out = Packaged::on("CPU", &file).unwrap().call(&[("input", &x)]).unwrap();
    assert_eq!(bytes(&out[0].1), bytes(&x));
    let error = turned.package(&PackageOptions::default()).unwrap_err().to_string();
    assert!(error.starts_with("jit: output output is a view of memory that is not dense"), "{error}");
    let never = Jit::new(|x: &Tensor| x + 1.0).package(&PackageOptions::default()).unwrap_err().to_string();
    assert_eq!(never, "jit: nothing is recorded yet: save after the second call");
}

#[test]
fn inputs_and_limits_are_checked_before_anything_runs() {
    let jit = recorded(classifier(), &classifier_input(7));
    let file = PackageFile::from_bytes(&jit.package(&PackageOptions::default()).unwrap().package).unwrap();
    let device = session().unwrap().device("CPU").unwrap().device.clone();
    let limits = Limits { memory_bytes: Some(64), ..Limits::default() };
    let needed = file.package().contents.arena_bytes;
    assert!(
        matches!(Program::load(&device, &file, &limits), Err(RunError::Limit { needed: n, limit: 64 }) if n >= needed)
    );
    let mut p = Program::load(&device, &file, &Limits::default()).unwrap();
    assert_eq!(p.run().unwrap_err().to_string(), "input x has no value");
    let x = p.input("x").unwrap();
    assert_eq!(p.write_input(x, &[0; 5]).unwrap_err().to_string(), "input x has 192 bytes, 5 were given");
    assert_eq!(p.input("y").unwrap_err().to_string(), "no input is called \"y\", there are x");
    let gpu: Arc<dyn Device> = Arc::new(NullDevice::open("NULL", "gfx1100", 1).unwrap());
    let error = Program::load(&gpu, &file, &Limits::default()).unwrap_err();
    assert!(matches!(error, RunError::NoTarget { arch, .. } if arch == "gfx1100"));
}

#[test]
fn constants_may_be_a_file_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.dbp");
    let jit = recorded(classifier(), &classifier_input(7));
    let options = PackageOptions { data_file: Some("c.data".into()), ..PackageOptions::default() };
    jit.package(&options).unwrap().write(&path).unwrap();
    let x = classifier_input(8);
    let have = Packaged::open(&path).unwrap().call(&[("x", &x["x"])]).unwrap();
    let inside = PackageFile::from_bytes(&jit.package(&PackageOptions::default()).unwrap().package).unwrap();
    let want = Packaged::on("CPU", &inside).unwrap().call(&[("x", &x["x"])]).unwrap();
    assert!(have.iter().zip(&want).all(|(a, b)| bytes(&a.1) == bytes(&b.1)));
    let mut data = std::fs::read(dir.path().join("c.data")).unwrap();
    data[3] ^= 1;
    std::fs::write(dir.path().join("c.data"), &data).unwrap();
    let error = Packaged::open(&path).unwrap_err().to_string();
    assert_eq!(error, format!("the file of constants c.data is damaged (bytes 0 to {})", data.len()));
}

/// The constants are in a mapped file, which must not go away before the run is done.
#[test]
fn a_program_may_be_dropped_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.dbp");
    let w = input(&[384, 384], 1);
    w.realize().unwrap();
    let mut f = Jit::new(move |x: &Tensor| x.matmul(&w).matmul(&w));
    let x = input(&[384, 384], 2);
    f.call(&x).unwrap();
    let want = bytes(&f.call(&x).unwrap());
    f.save(&path).unwrap();
    for _ in 0..20 {
        let out = Packaged::open(&path).unwrap().call(&[("input", &x)]).unwrap();
        // Other memory, where the constants were.
        let noise = tempfile::tempfile().unwrap();
        noise.set_len(2 << 20).unwrap();
        let other = View::file(&noise, 2 << 20, FileAccess::Read).unwrap();
        assert_eq!(bytes(&out[0].1), want);
        drop(other);
    }
}

/// `small.dbp` was written by `make.py` beside it, which knows the description of the format and not this code.
#[test]
fn a_file_of_another_writer_is_read_and_written_back() {
    let bytes = include_bytes!("../data/package/small.dbp");
    let p = Package::parse(bytes).unwrap();
    let c = &p.contents;
    assert_eq!((c.name.as_str(), c.archs().as_str(), c.peak_bytes()), ("small", "gfx1100", 192 + 64 + 64));
    assert_eq!(c.outputs[0].shape[0].value(|_| Some(3)), Some(6));
    assert_eq!(c.targets[0].kernels[0].code, b"code");
    let constants = &bytes[p.data.start as usize..p.data.end as usize];
    assert_eq!(constants[4..8], 1f32.to_le_bytes());
    assert_eq!(doorbell::package::write(c, constants).unwrap(), bytes);
}

/// A package of some size, to be damaged.
static FILE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let options = PackageOptions { targets: vec!["x86_64-avx2".into()], ..PackageOptions::default() };
    recorded(classifier(), &classifier_input(7)).package(&options).unwrap().package
});

#[test]
fn a_file_cut_anywhere_or_of_another_kind_is_refused() {
    for len in (0..FILE.len()).step_by(7) {
        assert!(Package::parse(&FILE[..len]).is_err(), "{len} bytes");
    }
    let foreign = Package::parse(b"\x7fELF and so on").unwrap_err();
    assert!(matches!(foreign, PackageError::Foreign { .. }), "{foreign}");
    let mut longer = FILE.clone();
    longer.push(0);
    let (have, want) = (longer.len() as u64, FILE.len() as u64);
    assert_eq!(Package::parse(&longer), Err(PackageError::Length { have, want }));
    let missing = Packaged::open(std::path::Path::new("/nowhere/at/all.dbp")).unwrap_err();
    assert!(matches!(missing, Error::Run(RunError::File { .. })), "{missing}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    /// Any change of any bits is found, and said where.
    #[test]
    fn a_damaged_byte_is_found(at in 0usize..1 << 30, flip in 1u8..=255) {
        let mut damaged = FILE.clone();
        let at = at % damaged.len();
        damaged[at] ^= flip;
        let error = Package::parse(&damaged).unwrap_err();
        let at = at as u64;
        let is_there = match &error {
            PackageError::Foreign { .. } => at < 8,
            PackageError::Damaged { from, to, .. } => (*from..*to).contains(&at),
            PackageError::Invalid { at: there, .. } => *there == at,
            _ => false,
        };
        prop_assert!(is_there, "byte {at}: {error}");
    }
}

//! `cargo xtask corpus`: other people's GPU code, from wheels of PyPI, through our assembler, disassemblers and
//! readers.
//!
//! The wheels are installed in `target/corpus`; what is taken out of them stays there and is never committed. The
//! checks are those of `tools/corpus`. `corpus sample` takes small wheels (46 MB) and 40 files of each kind by a seed,
//! and writes no table.

use crate::run::{Failure, Step, call, program, root, start};
use crate::setup;
use crate::tasks::WORKSPACE;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// A package, its version, and the files in it that hold GPU code: libraries, or a folder of objects.
type Wheel = (&'static str, &'static str, &'static [&'static str]);

/// Versions are fixed: a table of another day is then about our code and not about theirs.
const NVIDIA: [Wheel; 4] = [
    ("nvidia-cusparse", "12.9.4.2", &["nvidia/cu13/lib/libcusparse.so.12"]),
    ("nvidia-cublas", "13.10.0.20", &["nvidia/cu13/lib/libcublas.so.13", "nvidia/cu13/lib/libcublasLt.so.13"]),
    ("nvidia-cusolver", "12.4.1.2", &["nvidia/cu13/lib/libcusolver.so.12"]),
    ("torch", "2.15.0", &["torch/lib/libtorch_cuda.so", "torch/lib/libtorch_cuda_linalg.so"]),
];
/// Of the sample: cubins of every chip in the first, PTX in the second.
const SMALL: [Wheel; 2] = [
    ("nvidia-nvjpeg", "13.3.2.43", &["nvidia/cu13/lib/libnvjpeg.so.13"]),
    ("nvidia-nvtiff-cu13", "0.8.0.82", &["nvidia/nvtiff/lib/libnvtiff.so.0"]),
];
const AMD: Wheel = ("amd-aiter", "0.1.7.post2.dev18", &["aiter_meta/hsa/gfx942"]);
/// Takes PTX and cubins out of a library.
const CUOBJDUMP: Wheel = ("nvidia-cuda-cuobjdump", "13.5.37", &["nvidia/cu13/bin/cuobjdump"]);

/// Chips that PTX is assembled for, and whose cubins are read: those of sm_90a are among sm_90's.
const PTX_CHIPS: [&str; 5] = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_120"];
const CUBIN_CHIPS: [&str; 5] = PTX_CHIPS;
/// Cubins of a library and chip that are listed and assembled again: with all of them a run would take hours. Of the
/// others each word is read.
const CUBINS: &str = "60";

/// Kernels of a chip that are run.
const RUN: &str = "200";

/// nvdisasm reads one kernel of so many.
const NVDISASM_ONE_OF: &str = "10";

/// All of it, or a sample.
pub fn steps(rest: &[String]) -> Vec<Step> {
    let tools = || call("setup", setup::nvidia_tools);
    match rest.first() {
        Some(_) => vec![
            // With the whole workspace's features, so that the tests' build serves it.
            start("build", &format!("cargo build --quiet {WORKSPACE} --bin corpus --bin doorbell")),
            call("wheels", sample_wheels),
            call("sample", sample),
            call("numpy", setup::python_environment),
            call("aiter", aiter),
        ],
        None => vec![
            start("build", "cargo build --quiet --profile bench --package corpus"),
            tools(),
            call("wheels", all_wheels),
            call("numpy", setup::python_environment),
            call("checks", checks),
        ],
    }
}

/// All checks, whatever the ones before have found: the table is then whole.
fn checks() -> Result<(), Failure> {
    type Check = fn() -> Result<(), Failure>;
    let checks: [(&str, Check); 5] =
        [("ptx", ptx), ("run", run), ("cubins", cubins), ("objects", objects), ("aiter", aiter_all)];
    all(checks.map(|(name, check)| {
        let begin = Instant::now();
        let result = check();
        println!("   {name}: {} s", begin.elapsed().as_secs());
        result
    }))
}

/// The first failure of several checks.
fn all(results: impl IntoIterator<Item = Result<(), Failure>>) -> Result<(), Failure> {
    let failures: Vec<Failure> = results.into_iter().filter_map(Result::err).collect();
    failures.into_iter().next().map_or(Ok(()), Err)
}

fn folder() -> PathBuf {
    root().join("target/corpus")
}

fn all_wheels() -> Result<(), Failure> {
    NVIDIA.iter().chain([&AMD, &CUOBJDUMP]).try_for_each(install)
}

fn sample_wheels() -> Result<(), Failure> {
    [&SMALL[0], &SMALL[1], &AMD, &CUOBJDUMP].into_iter().try_for_each(install)
}

/// Installs a wheel in a folder of its own, once.
fn install((package, version, files): &Wheel) -> Result<(), Failure> {
    let to = folder().join(package);
    let wheel = to.join(format!("{}-{version}.dist-info", package.replace('-', "_")));
    if wheel.exists() && files.iter().all(|file| to.join(file).exists()) {
        println!("   {package} {version}: present");
        return Ok(());
    }
    let python = setup::virtual_environment("wheels")?;
    let to = to.to_string_lossy().into_owned();
    let wanted = format!("{package}=={version}");
    let words =
        [&*python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--upgrade", "--target"];
    program("wheels", &words.into_iter().chain([&*to, &*wanted]).map(str::to_owned).collect::<Vec<_>>())
}

fn failed(step: &str, status: impl std::fmt::Display) -> Failure {
    Failure::Failed { step: step.to_owned(), status: status.to_string() }
}

/// Has cuobjdump put what the words name into a folder, once.
fn extract(library: &Path, into: &Path, words: &[&str]) -> Result<(), Failure> {
    if into.exists() {
        return Ok(());
    }
    // A folder that is there is a whole one.
    let part = into.with_extension("part");
    let _ = std::fs::remove_dir_all(&part);
    std::fs::create_dir_all(&part).map_err(|e| failed("extract", e))?;
    let tool = folder().join(CUOBJDUMP.0).join(CUOBJDUMP.2[0]);
    let out = Command::new(&tool).args(words).arg(library).current_dir(&part).output();
    out.map_err(|e| failed("extract", format!("{}: {e}", tool.display())))?;
    std::fs::rename(&part, into).map_err(|e| failed("extract", e))
}

fn libraries() -> impl Iterator<Item = PathBuf> {
    NVIDIA.iter().flat_map(|(package, _, files)| files.iter().map(move |file| folder().join(package).join(file)))
}

fn name(library: &Path) -> String {
    library.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Runs the optimised tool.
fn check(words: &[&str]) -> Result<(), Failure> {
    run_tool("target/release/corpus", words)
}

fn run_tool(path: &str, words: &[&str]) -> Result<(), Failure> {
    let tool = root().join(path).to_string_lossy().into_owned();
    program("corpus", &[&*tool].iter().chain(words).map(|w| (*w).to_owned()).collect::<Vec<_>>())
}

/// The table of today.
fn table() -> String {
    let date = Command::new("date").args(["-u", "+%F"]).output();
    let date = date.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default();
    root().join(format!("bench/results/corpus-{date}.tsv")).to_string_lossy().into_owned()
}

/// The libraries' PTX, taken out of them once: its folder.
fn texts() -> Result<String, Failure> {
    let texts = folder().join("ptx");
    for library in libraries() {
        extract(&library, &texts.join(name(&library)), &["-xptx", "all"])?;
    }
    Ok(texts.to_string_lossy().into_owned())
}

/// One of NVIDIA's tools.
fn nvidia(tool: &str) -> String {
    root().join("target/nvidia/nvidia/cu13/bin").join(tool).to_string_lossy().into_owned()
}

fn ptx() -> Result<(), Failure> {
    let (texts, nvdisasm, ptxas, table) = (texts()?, nvidia("nvdisasm"), nvidia("ptxas"), table());
    let one_of = ["--ptxas", &ptxas, "--nvdisasm", &nvdisasm, "--nvdisasm-one-of", NVDISASM_ONE_OF];
    let on = |chip: &str| check(&[&["ptx", chip, "--out", &table][..], &one_of, &[&texts]].concat());
    all(PTX_CHIPS.map(on))
}

/// Kernels of the texts on the software GPU, by ptxas's code and ours.
fn run() -> Result<(), Failure> {
    let (texts, ptxas, table) = (texts()?, nvidia("ptxas"), table());
    let on = |chip: &str| check(&["run", chip, "--ptxas", &ptxas, "--kernels", RUN, "--out", &table, &texts]);
    all(PTX_CHIPS.map(on))
}

fn cubins() -> Result<(), Failure> {
    let (nvdisasm, table) = (nvidia("nvdisasm"), table());
    let common = ["cubin", "--sample", CUBINS, "--nvdisasm", &nvdisasm, "--nvdisasm-one-of", NVDISASM_ONE_OF];
    let mut found = Ok(());
    for library in libraries() {
        for chip in CUBIN_CHIPS {
            let into = folder().join("cubins");
            let _ = std::fs::remove_dir_all(&into);
            extract(&library, &into, &["-xelf", "all", "-arch", chip])?;
            found = found.and(check(&[&common[..], &["--out", &table, &into.to_string_lossy()]].concat()));
        }
    }
    // They are many gigabytes.
    std::fs::remove_dir_all(folder().join("cubins")).map_err(|e| failed("cubins", e))?;
    found
}

/// AMD's objects.
fn co() -> String {
    folder().join(AMD.0).join(AMD.2[0]).to_string_lossy().into_owned()
}

fn objects() -> Result<(), Failure> {
    check(&["object", "--out", &table(), &co()])
}

/// Builds the program that `aiter` starts, as tests build it.
fn aiter_all() -> Result<(), Failure> {
    let words = format!("cargo build --quiet {WORKSPACE} --bin doorbell");
    let words = words.split(' ').map(str::to_owned);
    program("build", &words.collect::<Vec<_>>())?;
    aiter()
}

/// Kernels of AMD's objects on the software GPU, beside numpy.
fn aiter() -> Result<(), Failure> {
    let python = root().join("target/venv/bin/python").to_string_lossy().into_owned();
    let (script, doorbell) = (root().join("tools/corpus/aiter.py"), root().join("target/debug/doorbell"));
    let words = [python, script.to_string_lossy().into_owned(), doorbell.to_string_lossy().into_owned(), co()];
    program("aiter", &words)
}

fn sample() -> Result<(), Failure> {
    let sampled = |words: &[&str]| run_tool("target/debug/corpus", words);
    let [cubins, texts] = SMALL.map(|(package, _, files)| folder().join(package).join(files[0]));
    let into = folder().join("small");
    for chip in CUBIN_CHIPS {
        extract(&cubins, &into.join(chip), &["-xelf", "all", "-arch", chip])?;
    }
    sampled(&["cubin", "--sample", "40", &into.to_string_lossy()])?;
    let into = folder().join("ptx").join(name(&texts));
    extract(&texts, &into, &["-xptx", "all"])?;
    sampled(&["ptx", "sm_120", &into.to_string_lossy()])?;
    sampled(&["object", "--sample", "40", &co()])
}

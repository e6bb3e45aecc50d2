//! PTX to a cubin by our assembler, for kernels of the renderer and those of kernels-asm/ptx: time a step and an
//! instruction, and of ptxas where it is installed (target/nvidia). Budgets: 1,000,000 instructions/s, a twentieth of
//! ptxas's time. Run with `cargo bench --bench asm_ptx`.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use doorbell::codegen::{self, OptChoice};
use doorbell::elf::cubin::Arch;
use doorbell::isa::ptx::{Buffers, Chip, render};
use doorbell::isa::sass::compile::{Phase, assemble, assemble_watched, kernels as machine_code};
use std::collections::HashSet;
use std::hint::black_box;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The allocator of the binary, as in the other benchmarks.
#[cfg(target_arch = "x86_64")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

// The tests use the rest of these kernels.
#[allow(dead_code)]
#[path = "../tests/codegen_kernels/mod.rs"]
mod kernels;

#[path = "../tests/ops_numpy/kernels.rs"]
mod graphs;
// With tests of its own, which a benchmark does not run.
#[allow(dead_code, unused_imports)]
#[path = "../tests/ops_numpy/reader.rs"]
mod reader;
#[path = "../tests/ops_numpy/tensors.rs"]
mod tensors;

const SM90: Arch = Arch { sm: 90, specific: true };

/// Names and texts.
fn texts() -> Vec<(String, String)> {
    let chip = Chip::parse("sm_90a").expect("the chip");
    let mut graphs = kernels::kernels();
    graphs.extend([
        ("add 1Mi", kernels::add(1 << 20)),
        ("row sum 1024x1024", kernels::row_sum(1024, 1024)),
        ("softmax 1024x1000", kernels::softmax(1024, 1000)),
        ("matmul 1024", kernels::matmul(1024, 1024, 1024)),
        ("conv 16x28x28", kernels::conv(16, 28, 28)),
    ]);
    let mut all = vec![];
    for (name, ast) in graphs {
        for (choice, how) in [(OptChoice::None, "plain"), (OptChoice::Heuristic, "optimised")] {
            let p = codegen::compile(&ast, &chip.target(), &choice, false).unwrap_or_else(|e| panic!("{name}: {e}"));
            let module = render(&p, chip, Buffers::Anywhere).unwrap_or_else(|e| panic!("{name}: {e}"));
            all.push((format!("{name}, {how}"), module.to_string()));
        }
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels-asm/ptx");
    for entry in std::fs::read_dir(folder).expect("kernels-asm/ptx") {
        let path = entry.expect("an entry").path();
        all.push((path.display().to_string(), std::fs::read_to_string(&path).expect("a text")));
    }
    all
}

/// Tensor kernels of every op and type, plain and optimised, and the collected samples: those whose code the tests
/// compare with ptxas's.
fn kernel_set() -> Vec<(String, String)> {
    let chip = Chip::parse("sm_90a").expect("the chip");
    let (mut all, mut seen) = (vec![], HashSet::new());
    for (name, ast) in graphs::GROUPS.iter().flat_map(|g| graphs::graphs(g)) {
        for choice in [OptChoice::None, OptChoice::Heuristic] {
            let p = codegen::compile(&ast, &chip.target(), &choice, false).unwrap_or_else(|e| panic!("{name}: {e}"));
            let text = render(&p, chip, Buffers::Anywhere).unwrap_or_else(|e| panic!("{name}: {e}")).to_string();
            if seen.insert(text.replace(&*p.name, "k")) {
                all.push((name.clone(), text));
            }
        }
    }
    let (mut samples, packed) = (String::new(), &include_bytes!("../tests/data/ptx/samples.ptx.gz")[..]);
    flate2::read::GzDecoder::new(packed).read_to_string(&mut samples).expect("the samples");
    for file in samples.split("//// ").skip(1) {
        let (name, text) = file.split_once('\n').expect("a name");
        let mut parts = text.split(".visible .entry");
        let head = parts.next().expect("a head");
        let texts = parts.map(|p| (name.to_owned(), format!("{head}.visible .entry{p}")));
        all.extend(texts.filter(|(_, t)| assemble(t, SM90).is_ok()));
    }
    all
}

/// Seconds of the fastest of five rounds over all texts.
fn fastest(texts: &[(String, String)]) -> f64 {
    let round = |_| {
        let began = Instant::now();
        texts.iter().for_each(|(_, t)| drop(black_box(assemble(t, SM90))));
        began.elapsed().as_secs_f64()
    };
    (0..5).map(round).fold(f64::MAX, f64::min)
}

/// PTX instructions of the texts, and words that they become.
fn sizes(texts: &[(String, String)]) -> (u64, usize) {
    let made = texts.iter().flat_map(|(name, t)| machine_code(t).unwrap_or_else(|e| panic!("{name}: {e}")));
    made.fold((0, 0), |(n, words), k| (n + u64::from(k.source_instructions), words + k.words.len()))
}

/// Rounds over all texts that are timed.
const ROUNDS: u32 = 50;

fn phases(texts: &[(String, String)], instructions: u64, words: usize) {
    let mut spent = [Duration::ZERO; Phase::ALL.len()];
    for _ in 0..ROUNDS {
        for (_, text) in texts {
            let mut last = Instant::now();
            let mut done = |p: Phase| {
                let now = Instant::now();
                spent[p as usize] += now - last;
                last = now;
            };
            black_box(assemble_watched(text, SM90, &mut done)).ok();
        }
    }
    let each = |d: Duration| d.as_nanos() as f64 / f64::from(ROUNDS) / instructions as f64;
    for p in Phase::ALL {
        println!("{:<12} {:6.1} ns an instruction", format!("{p:?}"), each(spent[p as usize]));
    }
    let all = each(spent.iter().sum());
    let made = words as f64 / instructions as f64;
    println!(
        "{:<12} {all:6.1} ns an instruction: {:.2} M PTX instructions/s, {:.2} M machine instructions/s",
        "all",
        1000.0 / all,
        1000.0 * made / all
    );
}

/// All cores take one text after the other, as the engine has them compile kernels.
fn on_all_cores(texts: &[(String, String)], instructions: u64) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, all) = (AtomicUsize::new(0), texts.len() * ROUNDS as usize);
    let work = || {
        while let Some(n) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|n| *n < all) {
            black_box(assemble(&texts[n % texts.len()].1, SM90)).ok();
        }
    };
    let began = Instant::now();
    std::thread::scope(|s| (0..cores).for_each(|_| drop(s.spawn(work))));
    let rate = (instructions * u64::from(ROUNDS)) as f64 / began.elapsed().as_secs_f64() / 1e6;
    println!("{cores} cores: {rate:.2} M PTX instructions/s");
}

/// Wall time of ptxas over the texts, a process each, and ours.
fn beside_ptxas(texts: &[(String, String)]) {
    let ptxas: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/nvidia/nvidia/cu13/bin/ptxas");
    if !ptxas.exists() {
        println!("ptxas is not installed (cargo xtask setup)");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (source, cubin) = (folder.path().join("a.ptx"), folder.path().join("a.cubin"));
    let (mut ours, mut theirs) = (Duration::ZERO, Duration::ZERO);
    for (_, text) in texts {
        std::fs::write(&source, text).expect("the source written");
        let began = Instant::now();
        Command::new(&ptxas).args(["-arch=sm_90a", "-O3", "-o"]).args([&cubin, &source]).status().expect("ptxas runs");
        theirs += began.elapsed();
        let began = Instant::now();
        black_box(assemble(text, SM90)).ok();
        ours += began.elapsed();
    }
    let times = theirs.as_secs_f64() / ours.as_secs_f64();
    println!("{} texts: ours {ours:.2?}, ptxas {theirs:.2?}: {times:.0} times ours", texts.len());
}

fn bench(c: &mut Criterion) {
    let texts = texts();
    let (instructions, words) = sizes(&texts);
    println!("{} texts, {instructions} PTX instructions, {words} machine instructions", texts.len());
    phases(&texts, instructions, words);
    on_all_cores(&texts, instructions);
    beside_ptxas(&texts);
    let set = kernel_set();
    let ((read, made), seconds) = (sizes(&set), fastest(&set));
    let rate = |n: f64| n / seconds / 1e6;
    println!(
        "kernel set: {} texts, {read} PTX instructions, {made} machine instructions: {:.2} M PTX instructions/s, {:.2} M machine instructions/s",
        set.len(),
        rate(read as f64),
        rate(made as f64)
    );
    let mut group = c.benchmark_group("assemble");
    group.throughput(Throughput::Elements(instructions));
    group.bench_function("all texts", |b| {
        b.iter(|| texts.iter().filter_map(|(_, t)| assemble(t, SM90).ok()).map(|c| c.len()).sum::<usize>());
    });
    group.finish();
}

criterion_group! { name = all; config = Criterion::default().sample_size(20).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(2)); targets = bench }
criterion_main!(all);

//! Other people's GPU code: reads, assembles and prints what ships in real libraries, and writes one table.
//!
//! ```text
//! corpus ptx CHIP FILE...        PTX: our assembler takes it, our checker finds no hazard, nvdisasm reads it
//! corpus run CHIP --ptxas PROGRAM FILE...   PTX: 200 kernels leave the same memory by ptxas's code and ours
//! corpus cubin FILE...           cubins: no unknown word, and the listing assembles to the same bytes
//! corpus object FILE...          AMD's objects: no `.long` in the listing, and it assembles to the same bytes
//! ```
//!
//! Place: a tool outside the library. `cargo xtask corpus` fetches the files and calls it. A folder stands for all
//! files in it. With `--sample N` (and `--seed S`) N files of them are taken; with `--out FILE` the table is added to
//! that file. `run` goes on until `--kernels N` have run, of those with `--name PART` in their names. Exit codes: 0
//! everything holds, 1 something does not, 3 wrong usage.
#![forbid(unsafe_code)]

// The launch of the tests of SASS names what it uses as they do.
extern crate self as doorbell;
use doorbell_elf as elf;
use doorbell_emu as emu;

mod args;
#[path = "../../../tests/emu_sass/bank.rs"]
mod bank;
mod cubins;
#[allow(dead_code)] // What the tests of SASS use besides.
#[path = "../../../tests/sass/machine.rs"]
mod machine;
mod objects;
mod params;
mod report;
mod runs;
mod texts;

use report::Report;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let args = match args::Args::parse(&words) {
        Ok(args) => args,
        Err(wrong) => {
            eprintln!("corpus: {wrong}");
            return ExitCode::from(3);
        }
    };
    let all = |f: &(dyn Fn(&Path, &mut Report) + Sync)| each(&args.files, f);
    let report = match (&args.kind, &args.ptxas) {
        (args::Kind::Ptx(chip), _) => all(&|path, report| texts::check(path, *chip, &args, report)),
        (args::Kind::Run(chip), Some(ptxas)) => runs::check(&args.files, *chip, ptxas, &args.wanted),
        (args::Kind::Run(_), None) => unreachable!("the command line is refused without it"),
        (args::Kind::Cubin, _) => all(&|path, report| cubins::check(path, args.nvdisasm.as_ref(), report)),
        (args::Kind::Object, _) => all(&|path, report| objects::check(path, report)),
    };
    print!("{}", report.text(&args.kind.to_string()));
    if let Some(out) = &args.out
        && let Err(e) = report.append(out, &args.kind.to_string())
    {
        eprintln!("corpus: {}: {e}", out.display());
        return ExitCode::FAILURE;
    }
    if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Calls `f` with every file, on all processors.
fn each(files: &[std::path::PathBuf], f: &(dyn Fn(&Path, &mut Report) + Sync)) -> Report {
    let (next, all) = (AtomicUsize::new(0), Mutex::new(Report::default()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let work = || {
                let mut report = Report::default();
                while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    report.files += 1;
                    f(path, &mut report);
                }
                if let Ok(mut all) = all.lock() {
                    all.add(report);
                }
            };
            // Recursive descent in the parser and walks over long functions.
            let started = std::thread::Builder::new().stack_size(64 << 20).spawn_scoped(scope, work);
            started.map(drop).unwrap_or_else(|e| eprintln!("corpus: no thread: {e}"));
        }
    });
    all.into_inner().unwrap_or_default()
}

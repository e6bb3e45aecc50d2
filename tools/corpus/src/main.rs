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
//! files in it. With `--sample N` (and `--seed S`) N files of them are taken, and of other cubins the words alone are
//! read; with `--out FILE` the table is added to that file. `run` goes on until `--kernels N` have run, of those with
//! `--name PART` in their names, and writes those that differ to `--keep FOLDER`. Exit codes: 0 everything holds, 1
//! something does not, 3 wrong usage.
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
mod modules;
mod nvdisasm;
mod objects;
mod params;
mod report;
mod runs;
mod texts;
mod work;

use report::Report;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let args = match args::Args::parse(&words) {
        Ok(args) => args,
        Err(wrong) => {
            eprintln!("corpus: {wrong}");
            return ExitCode::from(3);
        }
    };
    let all = |f: &(dyn Fn(&Path, &mut Report) + Sync)| each_file(&args.files, f);
    let mut report = match (&args.kind, &args.ptxas) {
        (args::Kind::Ptx(chip), _) => all(&|path, report| texts::check(path, *chip, &args, report)),
        (args::Kind::Run(chip), Some(ptxas)) => runs::check(&args.files, *chip, ptxas, &args.wanted),
        (args::Kind::Run(_), None) => unreachable!("the command line is refused without it"),
        (args::Kind::Cubin, _) => all(&|path, report| cubins::check(path, args.nvdisasm.as_ref(), report)),
        (args::Kind::Object, _) => all(&|path, report| objects::check(path, report)),
    };
    if args.kind == args::Kind::Cubin {
        report.add(each_file(&args.rest, &|path, report| cubins::words(path, report)));
    }
    if let Some(nvdisasm) = &args.nvdisasm {
        report.add(nvdisasm.read());
    }
    print!("{}", report.text(&args.kind.to_string()));
    if let Some(out) = &args.out
        && let Err(e) = report.append(out, &args.kind.to_string())
    {
        eprintln!("corpus: {}: {e}", out.display());
        return ExitCode::FAILURE;
    }
    if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Calls `f` with every file, the largest first: the processors then end at about the same time.
fn each_file(files: &[PathBuf], f: &(dyn Fn(&Path, &mut Report) + Sync)) -> Report {
    let mut files = files.to_vec();
    files.sort_by_cached_key(|file| std::cmp::Reverse(std::fs::metadata(file).map_or(0, |m| m.len())));
    work::each(&files, &|path, report| {
        report.files += 1;
        f(path, report);
    })
}

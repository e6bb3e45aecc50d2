//! Kernels of PTX on the software multiprocessor, in strict mode: ptxas's code and ours leave the same memory.
//!
//! What a kernel wants to be called with is not known. A word of its parameters that is used as an address is that of a
//! buffer, every other is a small number; the buffers have small numbers in four forms. Kernels that both codes leave
//! with a fault (an address out of a number, a wait for nobody) or without a store say nothing and are not counted.

use crate::args::Wanted;
use crate::machine::{Case, launch_with};
use crate::modules::{Module, full_name};
use crate::params;
use crate::report::Report;
use crate::work;
use doorbell_elf::cubin::Cubin;
use doorbell_emu::sass::Options;
use doorbell_ptx::sass::{SmArch, compile};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A buffer: its kernel gets the address of the middle.
const BUFFER_BYTES: usize = 1 << 18;
const FIRST_BUFFER: u64 = 0x20_0000_0000;
/// Most of them: a kernel with more addresses gets one twice, and its loads that are said to be of constant memory may
/// then be of memory that it stores to.
const BUFFERS: u64 = 32;
/// Between the first bytes of two buffers.
const APART: u64 = 1 << 32;
/// Of all warps of a launch.
const INSTRUCTIONS: u64 = 400_000;
const DYNAMIC_SHARED_BYTES: u32 = 16 << 10;

const REFUSED: &str = "kernels that ptxas refuses for the chip";

/// A kernel in a file.
#[derive(Clone, Debug)]
struct Kernel {
    file: PathBuf,
    name: String,
}

/// What one kernel came to.
enum Outcome {
    /// The same memory; instructions of our code and of ptxas's.
    Same([usize; 2]),
    /// Nothing to compare, and why.
    Nothing(&'static str),
    Differs(&'static str, String),
}

/// Runs kernels of the files in an order by chance, by code of `ptxas` and of ours, until so many have left the same.
pub fn check(files: &[PathBuf], chip: SmArch, ptxas: &Path, wanted: &Wanted) -> Report {
    let all = files.iter().flat_map(|f| kernels_of(f)).filter(|k| k.name.contains(&*wanted.name));
    let kernels = shuffled(all.collect(), wanted.seed);
    let (next, same, report) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Report::default()));
    work::threads(&|| {
        while same.load(Ordering::Relaxed) < wanted.kernels {
            let Some(kernel) = kernels.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            let outcome = run(kernel, chip, ptxas, wanted);
            let Ok(mut report) = report.lock() else { break };
            report.count("kernels tried", 1);
            match outcome {
                Outcome::Same([ours, theirs]) => {
                    same.fetch_add(1, Ordering::Relaxed);
                    report.count("kernels that left the same", 1);
                    report.count("instructions of them", ours);
                    report.count("instructions of them by ptxas", theirs);
                }
                Outcome::Nothing(why) => report.count(why, 1),
                Outcome::Differs(what, text) => {
                    report.fault(&kernel.file, what, &format!("{text} in {}", kernel.name));
                }
            }
        }
    });
    let mut report = report.into_inner().unwrap_or_default();
    report.files = files.len();
    report
}

fn kernels_of(file: &Path) -> Vec<Kernel> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    Module::of(&text).names().map(|name| Kernel { file: file.to_owned(), name: name.to_owned() }).collect()
}

/// Fisher and Yates's, by a generator of the seed.
fn shuffled(mut kernels: Vec<Kernel>, seed: u64) -> Vec<Kernel> {
    let mut state = seed;
    for i in (1..kernels.len()).rev() {
        state = crate::args::next(state);
        kernels.swap(i, (state >> 33) as usize % (i + 1));
    }
    kernels
}

/// The text with each product and sum rounded: joined ones have one rounding, and which are joined is the assembler's
/// choice.
fn rounded(text: &str) -> String {
    let mut text = text.to_owned();
    for op in ["add", "sub", "mul"] {
        for ty in ["f32", "f64", "f16", "f16x2", "f32x2", "ftz.f32", "ftz.f16", "ftz.f16x2", "ftz.f32x2"] {
            text = text.replace(&format!("{op}.{ty} "), &format!("{op}.rn.{ty} "));
        }
    }
    text
}

/// The text with registers that start as zeros: what a kernel reads unwritten is then the same by both codes.
fn zeroed(text: &str) -> String {
    let (mut out, mut zeros, mut inside) = (String::new(), String::new(), false);
    for line in text.lines() {
        inside |= line == "{";
        let directive = line.starts_with(['.', '{']) || line.is_empty();
        if inside && let Some((ty, names)) = line.strip_prefix(".reg .").and_then(|l| l.split_once(' ')) {
            let zero = match ty {
                "f32" => "0f00000000",
                "f64" => "0d0000000000000000",
                _ => "0",
            };
            for name in names.trim_end_matches(';').split(", ") {
                let (name, count) = name.split_once('<').unwrap_or((name, ""));
                let count: Option<u32> = count.trim_end_matches('>').parse().ok();
                let all = count.map_or(vec![name.to_owned()], |n| (0..n).map(|k| format!("{name}{k}")).collect());
                zeros.extend(all.iter().map(|name| format!("mov.{ty} {name}, {zero};\n")));
            }
        } else if inside && !directive {
            out.push_str(&std::mem::take(&mut zeros));
            inside = false;
        }
        out.push_str(line);
        out.push('\n');
    }
    out
}

fn run(kernel: &Kernel, chip: SmArch, ptxas: &Path, wanted: &Wanted) -> Outcome {
    let Ok(text) = std::fs::read_to_string(&kernel.file) else { return Outcome::Nothing("unread files") };
    let text = rounded(&Module::of(&text).alone(&kernel.name, chip));
    if text.contains("cluster") {
        return Outcome::Nothing("kernels for clusters, not run");
    }
    let zeros = zeroed(&text);
    let (outcome, text) = match run_text(&text, &kernel.name, chip, ptxas, wanted.seed) {
        Outcome::Differs(what, why) => match run_text(&zeros, &kernel.name, chip, ptxas, wanted.seed) {
            Outcome::Nothing(REFUSED) => (Outcome::Differs(what, why), &text),
            outcome => (outcome, &zeros),
        },
        outcome => (outcome, &text),
    };
    match (outcome, &wanted.keep) {
        (Outcome::Differs(what, why), Some(folder)) => match keep(folder, text, &kernel.name, chip, ptxas) {
            Ok(()) => Outcome::Differs(what, why),
            Err(e) => Outcome::Differs(what, format!("{why} (not kept: {e})")),
        },
        (outcome, _) => outcome,
    }
}

/// Writes a text and both codes of it.
fn keep(folder: &Path, text: &str, name: &str, chip: SmArch, ptxas: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|e| e.to_string())?;
    let name: String = name.chars().take(200).collect();
    let write = |end: &str, bytes: &[u8]| {
        std::fs::write(folder.join(format!("{name}.{end}")), bytes).map_err(|e| e.to_string())
    };
    write("ptx", text.as_bytes())?;
    write("ptxas.cubin", &assembled(ptxas, text, chip)?)?;
    write("ours.cubin", &compile::assemble(text, chip.arch()).map_err(|e| e.to_string())?)
}

fn run_text(text: &str, name: &str, chip: SmArch, ptxas: &Path, seed: u64) -> Outcome {
    let theirs = match assembled(ptxas, text, chip) {
        Ok(cubin) => cubin,
        Err(_) => return Outcome::Nothing(REFUSED),
    };
    let ours = match compile::assemble(text, chip.arch()) {
        Ok(cubin) => cubin,
        Err(e) => return Outcome::Differs("refused", e.to_string()),
    };
    if Cubin::parse(&ours).is_ok_and(|c| !c.undefined().is_empty()) {
        return Outcome::Nothing("kernels with names that a launch supplies, not run");
    }
    let block = params::block(text).unwrap_or([128, 1, 1]);
    let mut why = "kernels that store nothing";
    for attempt in 0..4 {
        let used = Cell::new(1);
        let address = |n: u64| {
            used.set(used.get().max(n + 1));
            address(n)
        };
        let Some(bytes) = params::bytes(text, name, attempt, seed, &address) else {
            return Outcome::Nothing("kernels with unread parameters");
        };
        let buffers: Vec<(u64, Vec<u8>)> =
            (0..used.get().min(BUFFERS)).map(|n| (FIRST_BUFFER + n * APART, contents(attempt, n))).collect();
        match both([&ours, &theirs], name, &buffers, (bytes.clone(), [2, 1, 1], block)) {
            Outcome::Nothing(reason) => why = reason,
            Outcome::Differs(what, text) => {
                // Two warps that write one place leave what the last one wrote, and which is last is the code's matter.
                let alone = both([&ours, &theirs], name, &buffers, (bytes, [1; 3], [32.min(block[0]), 1, 1]));
                match alone {
                    Outcome::Differs(..) => return Outcome::Differs(what, text),
                    _ => why = "kernels that leave the same by one warp only",
                }
            }
            Outcome::Same(n) => return Outcome::Same(n),
        }
    }
    Outcome::Nothing(why)
}

/// The `n`th address among a kernel's parameters.
fn address(n: u64) -> u64 {
    FIRST_BUFFER + n % BUFFERS * APART + BUFFER_BYTES as u64 / 2
}

/// What a buffer holds: numbers of 32 bits up to 12, f32 or f64 between 0.5 and 2, zeros.
fn contents(attempt: u64, buffer: u64) -> Vec<u8> {
    let mut state = buffer + 1;
    let mut draw = || {
        state = crate::args::next(state);
        (state >> 40) as u32
    };
    let words = 0..BUFFER_BYTES / 8;
    match attempt {
        0 => words.flat_map(|_| [draw() % 13, draw() % 13]).flat_map(u32::to_le_bytes).collect(),
        1 => words
            .flat_map(|_| [draw(), draw()].map(|d| 0.5 + (d % 3000) as f32 / 2000.0))
            .flat_map(f32::to_le_bytes)
            .collect(),
        2 => words.map(|_| 0.5 + f64::from(draw() % 3000) / 2000.0).flat_map(f64::to_le_bytes).collect(),
        _ => vec![0; BUFFER_BYTES],
    }
}

type Shape = (Vec<u8>, [u32; 3], [u32; 3]);

/// Runs both codes.
fn both(codes: [&[u8]; 2], name: &str, buffers: &[(u64, Vec<u8>)], (params, grid, block): Shape) -> Outcome {
    let run_with = |cubin: &[u8], options: Options, dynamic_bytes: u32| {
        let case = Case { grid, block, params: params.clone(), buffers, dynamic_bytes };
        let options = Options { max_instructions: INSTRUCTIONS, ..options };
        let left = launch_with(cubin, name, (&case, 1), options);
        left.map(|(memory, _)| memory).map_err(|e| e.trim_start_matches(name).trim_start_matches(": ").to_owned())
    };
    let run = |cubin: &[u8], options: Options| run_with(cubin, options, DYNAMIC_SHARED_BYTES);
    let beyond = |e: &str| e.contains("at shared address") && e.contains("are beyond");
    let [mut ours, mut theirs] = codes.map(|cubin| run(cubin, Options::default()));
    // A load from shared memory that was moved before a branch may find what nobody wrote, and then nobody uses it.
    let unwritten = |r: &Result<_, String>| r.as_ref().is_err_and(|e| e.starts_with("shared byte"));
    if unwritten(&ours) != unwritten(&theirs) {
        [ours, theirs] = codes.map(|cubin| run(cubin, Options::fast()));
    }
    // ptxas keeps conditions in bits of a register that it has not written, and reads no other bits of it.
    if !unwritten(&theirs) && theirs.as_ref().is_err_and(|e| e.contains("nobody wrote it")) {
        theirs = run(codes[1], Options::fast());
    }
    match (ours, theirs) {
        (Err(_), Err(_)) => Outcome::Nothing("kernels that end in a fault by both codes"),
        // One of the two is the first to come to the limit.
        (Err(e), Ok(_)) | (Ok(_), Err(e)) if e.contains("no end after") => Outcome::Nothing("kernels without an end"),
        // A load whose value nothing uses, or whose use comes after the end of a thread, may be left out or come later.
        (Err(e), Ok(_)) | (Ok(_), Err(e)) if e.contains("not mapped") => {
            Outcome::Nothing("kernels that end in a fault by one code's loads")
        }
        // An access beyond its array is one beyond all of shared memory or not, by where the arrays lie.
        (Ok(_), Err(e)) if beyond(&e) => Outcome::Nothing("kernels that leave shared memory by one code"),
        (Err(e), Ok(_)) if beyond(&e) && run_with(codes[1], Options::default(), 0).is_err_and(|e| beyond(&e)) => {
            Outcome::Nothing("kernels that leave shared memory by one code")
        }
        (Err(e), Ok(_)) => Outcome::Differs("ours stops", e),
        (Ok(_), Err(e)) if e.contains("has no form") => {
            Outcome::Nothing("kernels whose code by ptxas has words that the table lacks")
        }
        (Ok(_), Err(e)) if e.contains("is not modelled") => {
            Outcome::Nothing("kernels whose code by ptxas the software GPU does not model")
        }
        (Ok(_), Err(e)) => Outcome::Differs("ptxas's stops", e),
        (Ok(ours), Ok(theirs)) if ours.iter().zip(&theirs).all(|(a, b)| identical(a, b)) => {
            let stored = buffers.iter().zip(&ours).any(|(before, after)| before.1 != *after);
            let length = |cubin: &[u8]| Some(instructions(&Cubin::parse(cubin).ok()?, name));
            let lengths = codes.map(|c| length(c).unwrap_or_default());
            if stored { Outcome::Same(lengths) } else { Outcome::Nothing("kernels that store nothing") }
        }
        (Ok(ours), Ok(theirs)) => {
            let differs = |(n, (a, b)): (usize, (&Vec<u8>, &Vec<u8>))| {
                let at = 8 * a.chunks(8).zip(b.chunks(8)).position(|(a, b)| !identical(a, b))?;
                Some(format!("buffer {n} byte {at:#x}: ours {:x?}, ptxas's {:x?}", &a[at..at + 8], &b[at..at + 8]))
            };
            let text = ours.iter().zip(&theirs).enumerate().find_map(differs).unwrap_or_default();
            Outcome::Differs("memory", text)
        }
    }
}

/// Whether the bytes are the same but for which numbers that are none they hold, in any format.
fn identical(a: &[u8], b: &[u8]) -> bool {
    a == b || a.chunks(8).zip(b.chunks(8)).all(|(a, b)| a == b || is_nan(a) && is_nan(b) || halves(a, b))
}

/// The same of 8 bytes that hold smaller numbers.
fn halves(a: &[u8], b: &[u8]) -> bool {
    let same = |size: usize| a.chunks(size).zip(b.chunks(size)).all(|(a, b)| a == b || is_nan(a) && is_nan(b));
    same(4) || same(2)
}

/// Of f64, f32 or f16 by the length.
fn is_nan(bytes: &[u8]) -> bool {
    let bits = bytes.iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b));
    match bytes.len() {
        8 => f64::from_bits(bits).is_nan(),
        4 => f32::from_bits(bits as u32).is_nan(),
        _ => bits & 0x7fff > 0x7c00,
    }
}

/// Instructions of a file's code, without what fills it up at the end.
fn instructions(cubin: &Cubin, name: &str) -> usize {
    let code = cubin.kernel(name).map_or(&[][..], |k| cubin.code(k));
    let words = code.as_chunks::<16>().0;
    let fills = |w: &&[u8; 16]| w[..2] == [0x18, 0x79] || w[..2] == [0x47, 0x79];
    words.len() - words.iter().rev().take_while(fills).count()
}

/// A text's cubin by ptxas.
pub fn assembled(ptxas: &Path, text: &str, chip: SmArch) -> Result<Vec<u8>, String> {
    let file = std::env::temp_dir().join(format!("corpus-{}-{:?}", std::process::id(), std::thread::current().id()));
    let (source, cubin) = (file.with_extension("ptx"), file.with_extension("cubin"));
    std::fs::write(&source, text).map_err(|e| e.to_string())?;
    let arch = format!("-arch={}", full_name(chip));
    let out = Command::new(ptxas).arg(arch).arg("-o").args([&cubin, &source]).output().map_err(|e| e.to_string());
    let bytes = std::fs::read(&cubin).map_err(|e| e.to_string());
    let _ = (std::fs::remove_file(&source), std::fs::remove_file(&cubin));
    let out = out?;
    if out.status.success() { bytes } else { Err(String::from_utf8_lossy(&out.stderr).trim().to_owned()) }
}

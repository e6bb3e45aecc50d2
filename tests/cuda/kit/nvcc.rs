//! The kernels compiled: by nvcc to PTX and by ptxas to cubins, once a test process, all files side by side.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

/// The files in `tests/cuda/kernels`.
pub const FILES: [&str; 7] = ["sort", "reduce", "memory", "control", "integer", "float", "half"];

/// How much is optimised, by the compiler to PTX and by ptxas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    O0,
    O3,
}

impl Level {
    pub const ALL: [Level; 2] = [Level::O0, Level::O3];

    pub const fn flag(self) -> &'static str {
        match self {
            Level::O0 => "-O0",
            Level::O3 => "-O3",
        }
    }
}

/// What a file became.
pub struct Compiled {
    pub file: &'static str,
    pub level: Level,
    pub ptx: String,
    pub cubin: Vec<u8>,
}

/// The folder that `cargo xtask setup` fills.
pub fn toolkit() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/nvidia/nvidia/cu13")
}

fn tool(name: &str) -> PathBuf {
    let path = toolkit().join("bin").join(name);
    assert!(path.exists(), "{} is missing (cargo xtask setup installs it)", path.display());
    path
}

fn run(command: &mut Command) {
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{command:?}: {said}");
}

/// PTX of a source for a chip.
fn ptx(source: &Path, arch: &str, level: Level, to: &Path) {
    let mut command = Command::new(tool("nvcc"));
    // What the code means does not depend on the host's compiler; nvcc wants one for its headers.
    command.args(["-ptx", "-std=c++17", "-w", "-allow-unsupported-compiler"]).arg(format!("-arch={arch}"));
    if level == Level::O0 {
        command.args(["-Xcicc", "-O0"]);
    }
    run(command.arg("-o").arg(to).arg(source));
}

/// A PTX text assembled by ptxas for sm_90a.
pub fn assemble(text: &str, level: Level) -> Vec<u8> {
    assemble_for(text, "sm_90a", level)
}

/// The same for a chip.
pub fn assemble_for(text: &str, arch: &str, level: Level) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (source, cubin) = (folder.path().join("a.ptx"), folder.path().join("a.cubin"));
    std::fs::write(&source, text).expect("the source written");
    let arch = format!("-arch={arch}");
    run(Command::new(tool("ptxas")).args([arch.as_str(), level.flag(), "-o"]).args([&cubin, &source]));
    std::fs::read(&cubin).expect("the cubin")
}

/// PTX of a file of the folder.
fn text_of(file: &str, arch: &str, level: Level) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let to = folder.path().join("a.ptx");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cuda/kernels").join(file).with_extension("cu");
    ptx(&source, arch, level, &to);
    std::fs::read_to_string(&to).expect("the text")
}

fn compile(file: &'static str, level: Level) -> Compiled {
    let ptx = text_of(file, "sm_90a", level);
    let cubin = assemble(&ptx, level);
    Compiled { file, level, ptx, cubin }
}

/// Each job's result, made side by side; the last jobs are begun first.
fn side_by_side<J: Send, T: Send>(jobs: Vec<J>, make: impl Fn(J) -> T + Sync) -> Vec<T> {
    let (jobs, done) = (Mutex::new(jobs), Mutex::new(Vec::new()));
    let workers = std::thread::available_parallelism().map_or(2, usize::from).min(8);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let Some(job) = jobs.lock().expect("no worker panics with it").pop() else { break };
                    let one = make(job);
                    done.lock().expect("no worker panics with it").push(one);
                }
            });
        }
    });
    done.into_inner().expect("no worker panics with it")
}

/// All files as optimised PTX that sm_80 and every later chip can have, by their names; made at the first call.
pub fn portable() -> &'static [(&'static str, String)] {
    static ALL: OnceLock<Vec<(&str, String)>> = OnceLock::new();
    ALL.get_or_init(|| side_by_side(FILES.to_vec(), |file| (file, text_of(file, "sm_80", Level::O3))))
}

/// All files as cubins of a chip, assembled by ptxas from the portable text.
pub fn cubins_for(arch: &str) -> Vec<(&'static str, Vec<u8>)> {
    side_by_side(portable().iter().collect(), |(file, text)| (*file, assemble_for(text, arch, Level::O3)))
}

/// All files at both levels, compiled at the first call.
pub fn compiled() -> &'static [Compiled] {
    static ALL: OnceLock<Vec<Compiled>> = OnceLock::new();
    ALL.get_or_init(|| {
        // The longest first: no worker waits long for the last.
        let mut jobs: Vec<(&str, Level)> = FILES.iter().flat_map(|f| Level::ALL.map(|l| (*f, l))).collect();
        jobs.sort_by_key(|(f, _)| ["half", "float"].contains(f));
        let mut done = side_by_side(jobs, |(file, level)| compile(file, level));
        done.sort_by_key(|c| (FILES.iter().position(|f| *f == c.file), c.level == Level::O3));
        done
    })
}

/// A file's code at a level.
pub fn code(file: &str, level: Level) -> &'static Compiled {
    compiled().iter().find(|c| c.file == file && c.level == level).unwrap_or_else(|| panic!("no file {file}"))
}

//! The command line: parses arguments, reads `Options` from the environment, runs one command, maps errors to exit
//! codes.
//!
//! Exit codes: 0 ok, 1 failed, 2 could not run (no such device, unreadable input), 3 wrong usage. With `--json` each
//! command's last line on standard output is one JSON object; messages and progress go to standard error.

#[cfg(feature = "bench")]
mod bench;
mod curve;
mod devices;
#[cfg(all(target_os = "linux", feature = "amd", feature = "nv", feature = "emu"))]
mod drivertest;
mod dump;
mod dump_jobs;
mod files;
mod launch;
#[cfg(all(feature = "cpu", feature = "amd", feature = "nv"))]
mod object;
mod package;
mod profile;
mod programs;
mod serve;
#[cfg(all(target_os = "linux", feature = "amd", feature = "nv"))]
mod trace;
mod train;
mod viz;

use clap::{CommandFactory, Parser, Subcommand};
use doorbell::engine::{self, EmuMode, Options};
use std::io::Write;
use std::process::ExitCode;

/// Graphs allocate and free many small nodes, for which this allocator is faster than the C library's.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser, Debug)]
#[command(
    name = "doorbell",
    version,
    about = "Tensors on the bare kernel driver: one graph, own machine code, a doorbell store."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Device to run on, as DEV=...: CPU, CPU:1, NULL, NULL:sm_90a, AMD, AMD:1, AMD:bdf=0000:03:00.0, AMD:emu=gfx1100,
    /// NV, NV:uuid=GPU-0123, NV:emu=sm_90, METAL, METAL:emu, METAL:emu=apple9
    #[arg(long, global = true, value_name = "D")]
    device: Option<String>,
    /// Write the traffic with GPU drivers to FILE, for `doorbell trace --show`
    #[cfg(all(target_os = "linux", feature = "amd", feature = "nv"))]
    #[arg(long, global = true, value_name = "FILE")]
    trace: Option<std::path::PathBuf>,
    /// The same with the memory shared by host and GPU, for `doorbell replay`
    #[cfg(all(target_os = "linux", feature = "amd", feature = "nv"))]
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "trace")]
    record: Option<std::path::PathBuf>,
    /// Report what the checks of AMD's software GPUs find, and go on as hardware would
    #[arg(long, global = true)]
    lenient: bool,
    /// Run software GPUs without the checks that no hardware makes, and much faster
    #[arg(long, global = true, conflicts_with_all = ["strict", "lenient", "compare"])]
    plain: bool,
    /// Run each kernel of a software GPU twice, with all checks and without: stop where they leave different bits
    #[arg(long, global = true, conflicts_with_all = ["strict", "lenient"])]
    compare: bool,
    /// Run software GPUs with all checks, whatever EMU_PLAIN says (what they do by default)
    #[arg(long, global = true)]
    strict: bool,
    /// Print one JSON object as the last line of standard output
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Train a small convolutional network on hand-written digits
    Train(train::TrainArgs),
    /// List the devices of this machine and of this build
    Devices(devices::DevicesArgs),
    /// Measure devices, check what they compute, compare runs
    #[cfg(feature = "bench")]
    Bench(bench::BenchArgs),
    /// Write every kernel of a built-in program: object file or PTX, assembly text, launch parameters
    Dump(dump::DumpArgs),
    /// Compile a built-in program ahead of time, for any targets, into a package
    Compile(package::CompileArgs),
    /// Run a package, with inputs and outputs in safetensors files
    Run(package::RunArgs),
    /// Run a kernel of an object file, with buffers and scalars from the command line
    Launch(launch::LaunchArgs),
    /// Assemble AMDGPU source text into a code object, or PTX or a SASS listing into a cubin
    #[cfg(all(feature = "cpu", feature = "amd", feature = "nv"))]
    Asm(object::AsmArgs),
    /// Print the code of an object file as text
    #[cfg(all(feature = "cpu", feature = "amd", feature = "nv"))]
    Disasm(object::DisasmArgs),
    /// Describe an object file: sections, symbols, kernels with their descriptors
    #[cfg(all(feature = "cpu", feature = "amd", feature = "nv"))]
    Elf(object::FileArgs),
    /// Run a command, and write one HTML page that shows it from the Tensor lines to the packets; or show a file
    Viz(viz::VizArgs),
    /// Run a command, and say what took the time; or compare two runs
    Profile(profile::ProfileArgs),
    /// Write the traffic between a command and the GPU drivers to a file, or show such a file
    #[cfg(all(target_os = "linux", feature = "amd", feature = "nv"))]
    Trace(trace::TraceArgs),
    /// Test GPU drivers: list, run and explain cases, each seen to fail under a fault
    #[cfg(all(target_os = "linux", feature = "amd", feature = "nv", feature = "emu"))]
    Drivertest(drivertest::DrivertestArgs),
    /// Test GPU drivers: in a build for Linux with `--features amd,nv,emu`
    #[cfg(not(all(target_os = "linux", feature = "amd", feature = "nv", feature = "emu")))]
    Drivertest {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        words: Vec<std::ffi::OsString>,
    },
    /// Play a recorded run again, against a software GPU or the kernel
    #[cfg(all(target_os = "linux", feature = "amd", feature = "nv"))]
    Replay(trace::ReplayArgs),
}

/// What `drivertest` says where it is not part of the program.
#[cfg(not(all(target_os = "linux", feature = "amd", feature = "nv", feature = "emu")))]
const NO_DRIVER_TESTS: &str = "this build has no driver tests, which need Linux and `--features amd,nv,emu`";

/// Where a command's output goes: with `--json`, only the result goes to standard output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// Whether the result is one line of JSON.
    json: bool,
}

impl Output {
    /// Prints a line for a person.
    pub(crate) fn say(self, line: &str) {
        if self.json { eprintln!("{line}") } else { print(line) }
    }
    /// Prints the single JSON object of `--json`.
    pub(crate) fn result(self, value: &serde_json::Value) {
        if self.json {
            print(&value.to_string());
        }
    }
}

/// Prints a line. Where nobody reads any more (`doorbell disasm X | head`), the program ends as one whose work is done.
pub(crate) fn print(line: &str) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

/// Why a command failed; determines the exit code.
#[derive(Debug)]
pub(crate) enum CliError {
    /// Exit code 1: it ran and failed.
    Failed(String),
    /// Exit code 2: it could not run.
    CouldNotRun(String),
    /// Exit code 3: wrong usage.
    Usage(String),
    /// This exit code; the command has already printed why.
    Reported(u8),
}

impl CliError {
    fn code(&self) -> u8 {
        match self {
            CliError::Failed(_) => 1,
            CliError::CouldNotRun(_) => 2,
            CliError::Usage(_) => 3,
            CliError::Reported(code) => *code,
        }
    }
    fn message(&self) -> &str {
        match self {
            CliError::Failed(m) | CliError::CouldNotRun(m) | CliError::Usage(m) => m,
            CliError::Reported(_) => "",
        }
    }
}

impl From<engine::Error> for CliError {
    fn from(e: engine::Error) -> CliError {
        if e.is_device() { CliError::CouldNotRun(e.to_string()) } else { CliError::Failed(e.to_string()) }
    }
}

/// Runs the command line of this process.
fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            let wanted = !e.use_stderr(); // --help and --version
            let _ = e.print();
            return ExitCode::from(if wanted { 0 } else { 3 });
        }
    };
    match dispatch(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(CliError::Reported(code)) => ExitCode::from(code),
        Err(e) => {
            eprintln!("doorbell: {}", e.message());
            if cli.json {
                print(&serde_json::json!({"error": e.message(), "exit_code": e.code()}).to_string());
            }
            ExitCode::from(e.code())
        }
    }
}

fn dispatch(cli: &Cli) -> Result<(), CliError> {
    let mut options = Options::from_env().map_err(|e| CliError::Usage(e.to_string()))?;
    if let Some(d) = &cli.device {
        options.device.clone_from(d);
    }
    // Several devices, which `bench` opens one by one; the program's own session needs one.
    #[cfg(feature = "bench")]
    let devices = options.device.clone();
    #[cfg(feature = "bench")]
    if let (Command::Bench(_), Some((first, _))) = (&cli.command, devices.split_once(',')) {
        options.device = first.into();
    }
    if let Command::Dump(args) = &cli.command
        && let Some(device) = args.device()
    {
        options.device = device;
    }
    if matches!(cli.command, Command::Compile(_)) && cli.device.is_none() {
        // The package is the same on every machine.
        options.device = "CPU".into();
    }
    options.lenient |= cli.lenient;
    let asked = [(cli.strict, EmuMode::Strict), (cli.plain, EmuMode::Plain), (cli.compare, EmuMode::Both)];
    if let Some((_, mode)) = asked.into_iter().find(|(asked, _)| *asked) {
        options.emu_mode = mode;
    }
    let output = Output { json: cli.json };
    // A page is of the command that runs, not of the one that starts it.
    if starts_another(&cli.command) {
        (options.viz, options.profile) = (None, None);
    }
    let is_recorded = options.viz.is_some();
    #[cfg(all(target_os = "linux", feature = "amd", feature = "nv"))]
    let tracing = match (&cli.trace, &cli.record, &cli.command) {
        // A `--record` in the traced command line is for the child process.
        (_, _, Command::Trace(_)) | (None, None, _) => None,
        (Some(path), _, _) => Some(trace::start(path, false)?),
        (None, Some(path), _) => Some(trace::start(path, true)?),
    };
    #[cfg(all(target_os = "linux", feature = "amd", feature = "nv"))]
    let calls = (is_recorded && tracing.is_none()).then(|| trace::keep(options.device.contains("emu")));
    #[cfg(all(target_os = "linux", feature = "amd", feature = "nv", feature = "emu"))]
    let device = options.device.clone();
    engine::install(options)?.on_message(|text| eprintln!("{text}"));
    if is_recorded {
        serve::write_often()?;
    }
    let done = match &cli.command {
        Command::Train(args) => train::run(args, output),
        Command::Devices(args) => devices::run(args, output),
        #[cfg(feature = "bench")]
        Command::Bench(args) => bench::run(args, &devices, output),
        Command::Dump(args) => dump::run(args, output),
        Command::Compile(args) => package::compile(args, output),
        Command::Run(args) => package::run(args, cli.device.as_deref(), output),
        Command::Launch(args) => launch::run(args, output),
        #[cfg(all(feature = "cpu", feature = "amd", feature = "nv"))]
        Command::Asm(args) => object::asm(args, output),
        #[cfg(all(feature = "cpu", feature = "amd", feature = "nv"))]
        Command::Disasm(args) => object::disasm(args, output),
        #[cfg(all(feature = "cpu", feature = "amd", feature = "nv"))]
        Command::Elf(args) => object::elf(args, output),
        #[cfg(all(target_os = "linux", feature = "amd", feature = "nv"))]
        Command::Trace(args) => trace::run(args, output),
        #[cfg(all(target_os = "linux", feature = "amd", feature = "nv"))]
        Command::Replay(args) => trace::replay(args, output),
        Command::Viz(args) => viz::run(args, output),
        Command::Profile(args) => profile::run(args, output),
        #[cfg(all(target_os = "linux", feature = "amd", feature = "nv", feature = "emu"))]
        Command::Drivertest(args) => drivertest::run_command(args, &device, output),
        #[cfg(not(all(target_os = "linux", feature = "amd", feature = "nv", feature = "emu")))]
        Command::Drivertest { .. } => Err(CliError::CouldNotRun(NO_DRIVER_TESTS.into())),
    };
    if is_recorded {
        engine::session()?.record_limits()?;
    }
    #[cfg(all(target_os = "linux", feature = "amd", feature = "nv"))]
    if let Some(log) = calls {
        engine::session()?.record_calls(trace::calls(&log.events()));
    }
    #[cfg(feature = "emu")]
    engine::software::findings().iter().for_each(|finding| eprintln!("doorbell: {finding}"));
    let ended = engine::finish().map_err(CliError::from);
    engine::close();
    #[cfg(all(target_os = "linux", feature = "amd", feature = "nv"))]
    let ended = ended.and(tracing.map_or(Ok(()), trace::finish));
    match (&done, ended) {
        (Ok(()), ended) => ended,
        // The command's own error counts; an error while closing is also printed.
        (Err(_), Err(also)) => {
            eprintln!("doorbell: and at the end: {}", also.message());
            done
        }
        (Err(_), Ok(())) => done,
    }
}

/// Whether a command runs another one, in a process of its own.
fn starts_another(command: &Command) -> bool {
    #[cfg(all(target_os = "linux", feature = "amd", feature = "nv"))]
    if let Command::Trace(_) = command {
        return true;
    }
    matches!(command, Command::Viz(_) | Command::Profile(_))
}

/// Whether a word is a command of this program.
fn is_command(word: &str) -> bool {
    Cli::command().get_subcommands().any(|c| c.get_name() == word)
}

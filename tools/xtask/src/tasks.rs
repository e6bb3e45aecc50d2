//! The table of sub-commands and the steps of each.

use crate::aarch64;
use crate::run::{Failure, Step, answers, call, program, root, start};
use crate::setup;

/// One sub-command.
pub struct Task {
    pub name: &'static str,
    pub about: &'static str,
    /// The steps, given the arguments after the sub-command.
    pub steps: fn(&[String]) -> Vec<Step>,
    /// Whether arguments after the sub-command are allowed.
    takes: Takes,
}

/// The arguments that a sub-command takes.
#[derive(Clone, Copy)]
pub enum Takes {
    Nothing,
    Anything,
    /// One of these words, or none.
    OneOf(&'static [&'static str]),
}

/// All packages, with one set of features, so that their builds are shared: the program with software GPUs.
pub const WORKSPACE: &str = "--workspace --features doorbell-cli/emu";

pub const TASKS: &[Task] = &[
    Task {
        name: "setup",
        about: "install what the tests need and is missing (apt-get)",
        steps: setup_steps,
        takes: Takes::Nothing,
    },
    Task { name: "fmt", about: "check the formatting", steps: fmt_steps, takes: Takes::Nothing },
    Task { name: "clippy", about: "lint all targets, warnings denied", steps: clippy_steps, takes: Takes::Nothing },
    Task {
        name: "test",
        about: "everything CI runs: setup, fmt, clippy, doc tests, sets of features, the suite on software GPUs, the link for a Mac, MPI, libdoorbell, the mutation score of the cases for drivers, tests",
        steps: chosen_test_steps,
        takes: Takes::OneOf(&["quick"]),
    },
    Task {
        name: "sweep",
        about: "what takes longer than CI may: targets, sanitize, aarch64, corpus sample; run it before a release, and after a change of unsafe code, of the AArch64 back end or of the assemblers",
        steps: sweep_steps,
        takes: Takes::Nothing,
    },
    Task {
        name: "targets",
        about: "lint the library for Linux on x86-64 and AArch64 and for a Mac, with each set of features",
        steps: targets_steps,
        takes: Takes::Nothing,
    },
    Task {
        name: "sanitize",
        about: "the tests of the rooms with unsafe code, under AddressSanitizer and LeakSanitizer",
        steps: sanitize_steps,
        takes: Takes::Nothing,
    },
    Task {
        name: "suite",
        about: "the tensor tests on the software GPUs gfx1100, sm_90 and Metal, and the texts of its kernels by clang",
        steps: suite_steps,
        takes: Takes::Nothing,
    },
    Task {
        name: "msl",
        about: "the kernels that the last suite on Metal compiled, by clang with typed address spaces and by a scan",
        steps: msl_steps,
        takes: Takes::Nothing,
    },
    Task {
        name: "aarch64",
        about: "kernels, Tensors, packages and software GPUs on AArch64, run by qemu; all: with the slow tests too",
        steps: aarch64::steps,
        takes: Takes::OneOf(&["all"]),
    },
    Task {
        name: "metal",
        about: "lint, compile and link the programs for a Mac, against stubs of its libraries",
        steps: crate::metal::steps,
        takes: Takes::Nothing,
    },
    Task {
        name: "mpi",
        about: "the tests of several processes, by mpirun with two and four ranks; installs Open MPI (apt-get)",
        steps: mpi_steps,
        takes: Takes::Nothing,
    },
    Task {
        name: "size",
        about: "build the program as it is shipped, with each set of features, and hold its size to the budget",
        steps: size_steps,
        takes: Takes::Nothing,
    },
    Task {
        name: "dist",
        about: "make target/dist: the program linked statically, stripped, with licence and checksums",
        steps: dist_steps,
        takes: Takes::Nothing,
    },
    Task {
        name: "capi",
        about: "install libdoorbell for C: [--prefix DIR] [--target TRIPLE] [--features LIST] [--profile NAME] [--build-std]",
        steps: capi_steps,
        takes: Takes::Anything,
    },
    Task { name: "bench", about: "cargo bench; arguments are passed on", steps: bench_steps, takes: Takes::Anything },
    Task {
        name: "fuzz",
        about: "coverage-guided fuzzing of every decoder: [--cases N] [TARGET...]",
        steps: crate::fuzz::steps,
        takes: Takes::Anything,
    },
    Task {
        name: "corpus",
        about: "other people's GPU code (wheels of PyPI, about 3 GB): all of it with a table in bench/results, or a sample",
        steps: crate::corpus::steps,
        takes: Takes::OneOf(&["sample"]),
    },
    Task {
        name: "references",
        about: "regenerate tests/data/ops with numpy and, where it is installed, PyTorch (target/venv); --check compares instead",
        steps: reference_steps,
        takes: Takes::Anything,
    },
];

/// Tests that go through all unsafe code of the library: mappings, views of shared memory, the jump into machine code.
const SANITIZED: &[&str] = &["device_cpu", "device_disk", "device_custom", "jit", "jit_edges", "realize"];

/// Tests whose tensors are where `DEV` says: the suite that a device has to pass.
const SUITE: &[&str] = &["ops_device", "device_ops", "jit", "jit_edges", "realize", "tensor", "random_graphs"];

pub enum Request {
    Help,
    Run(&'static Task, Vec<String>),
}

/// Reads the command line after `cargo xtask`.
///
/// # Errors
/// One line that names the valid sub-commands.
pub fn parse(args: &[String]) -> Result<Request, String> {
    let Some((first, rest)) = args.split_first() else {
        return Err(format!("no sub-command; valid: {}", names()));
    };
    if ["help", "--help", "-h"].contains(&first.as_str()) || rest.iter().any(|a| a == "--help" || a == "-h") {
        return Ok(Request::Help);
    }
    let Some(task) = TASKS.iter().find(|t| t.name == first) else {
        return Err(format!("unknown sub-command {first:?}; valid: {}", names()));
    };
    let fits = match task.takes {
        Takes::Anything => true,
        Takes::Nothing => rest.is_empty(),
        Takes::OneOf(words) => rest.is_empty() || rest.len() == 1 && words.contains(&rest[0].as_str()),
    };
    match (fits, task.takes) {
        (true, _) => Ok(Request::Run(task, rest.to_vec())),
        (false, Takes::OneOf(words)) => {
            Err(format!("{first} takes {} or nothing, got {:?}", words.join(", "), rest.join(" ")))
        }
        (false, _) => Err(format!("{first} takes no argument, got {:?}", rest.join(" "))),
    }
}

/// The help text.
pub fn usage() -> String {
    let rows: String = TASKS.iter().map(|t| format!("  {:<11} {}\n", t.name, t.about)).collect();
    format!(
        "Usage: cargo xtask <SUB-COMMAND>\n\n{rows}\nExit codes: 0 ok, 1 a step failed, 2 a step could not start, 3 wrong usage\n"
    )
}

fn names() -> String {
    TASKS.iter().map(|t| t.name).collect::<Vec<_>>().join(", ")
}

fn setup_steps(_: &[String]) -> Vec<Step> {
    vec![call("setup", setup::debian_packages), call("setup", setup::nvidia_tools)]
}

fn fmt_steps(_: &[String]) -> Vec<Step> {
    vec![start("fmt", "cargo fmt --all -- --check")]
}

fn clippy_steps(_: &[String]) -> Vec<Step> {
    vec![start("clippy", &format!("cargo clippy --quiet {WORKSPACE} --all-targets -- -D warnings"))]
}

/// `quick`: what tells most of a change in a few minutes.
fn chosen_test_steps(rest: &[String]) -> Vec<Step> {
    if rest.is_empty() {
        return test_steps(&[]);
    }
    let mut steps = fmt_steps(&[]);
    steps.extend(clippy_steps(&[]));
    let units = format!("{WORKSPACE} --lib --bins --test arrows");
    steps.push(start("unit tests, arrows", &run_tests(&units, &units)));
    steps
}

/// Tests that need no GPU and no software GPU.
const CPU_ALONE: &[&str] = &["device_cpu", "jit", "realize", "tensor"];

/// The choices of features that embedders make: the CPU alone, of which tests run (the library's with `emu`, which its
/// tests always have; without a vendor there is no software GPU) and the program trains (with `mpi`, whose test and
/// example use the same build); GPUs without a CPU device, which builds.
fn feature_steps() -> Vec<Step> {
    let alone = "--package doorbell-cli --no-default-features --features cpu";
    let tests: String = CPU_ALONE.iter().map(|t| format!(" --test {t}")).collect();
    vec![
        start("features", &format!("cargo clippy --quiet {alone} -- -D warnings")),
        start(
            "features",
            "cargo clippy --quiet --package doorbell --no-default-features --features amd,nv,emu -- -D warnings",
        ),
        call("mpi", setup::mpi_packages),
        start("features", &format!("cargo test --quiet {MPI_BUILD}{tests}")),
        start("features", &format!("cargo run --quiet {alone},doorbell/mpi -- train --epochs 1 --out target")),
        start("features", &format!("cargo test --quiet {alone},doorbell/mpi --test without_emu")),
    ]
}

/// The tests come last, so that their summary is the last thing a reader of the log sees.
fn test_steps(_: &[String]) -> Vec<Step> {
    let mut steps = setup_steps(&[]);
    steps.extend(fmt_steps(&[]));
    steps.extend(clippy_steps(&[]));
    steps.push(start("doc tests", &format!("cargo test --quiet --doc {WORKSPACE}")));
    steps.extend(feature_steps());
    steps.extend(suite_steps(&[]));
    steps.extend(crate::metal::steps(&[]));
    steps.extend(mpi_steps(&[]));
    steps.extend(capi_test_steps());
    // The share of faults that the cases for drivers notice, and every other one with its reason: nextest prints what
    // these tests say, cargo does not.
    if !has_nextest() {
        steps.push(start(
            "mutation score",
            &format!("cargo test --quiet {WORKSPACE} --lib is_seen_to_fail -- --nocapture"),
        ));
    }
    steps.push(start("tests", &run_tests(WORKSPACE, &format!("{WORKSPACE} --lib --bins --tests"))));
    steps
}

/// Builds of their own, and code that nobody here wrote: a third of the time of all steps.
fn sweep_steps(_: &[String]) -> Vec<Step> {
    let mut steps = setup_steps(&[]);
    steps.extend(targets_steps(&[]));
    steps.extend(sanitize_steps(&[]));
    steps.extend(aarch64::steps(&[]));
    steps.extend(crate::corpus::steps(&["sample".to_owned()]));
    steps
}

/// What an embedder may choose of `doorbell`; `cargo xtask clippy` has all of them at once, on this machine.
const FEATURE_SETS: &[&str] =
    &["cpu", "cpu,amd", "cpu,nv", "cpu,metal", "cpu,amd,emu", "cpu,nv,emu", "cpu,amd,nv,metal,emu"];

/// Code that only one system or feature calls is dead without it: each choice is linted by itself.
fn targets_steps(_: &[String]) -> Vec<Step> {
    let lint = |target: &str, features: &str| {
        let package = "--package doorbell --no-default-features";
        let target = format!("env CARGO_TARGET_DIR=target/targets cargo clippy --quiet --target {target}");
        start("targets", &format!("{target} {package} --features {features} -- -D warnings"))
    };
    let mut steps = vec![call("targets", setup::aarch64_library), call("targets", setup::macos_library)];
    for target in [setup::X86_64, setup::AARCH64, setup::MACOS] {
        steps.extend(FEATURE_SETS.iter().map(|features| lint(target, features)));
    }
    steps
}

const ON_METAL: &str = "suite on Metal";

/// Software GPUs that have to pass all of the tensor suite; AMD's and NVIDIA's run each kernel with checks and without,
/// and have to leave the same bits.
const SUITE_DEVICES: &[(&str, &str)] = &[
    ("suite on gfx1100", "AMD:emu=gfx1100 EMU_PLAIN=2"),
    ("suite on sm_90", "NV:emu=sm_90 EMU_PLAIN=2"),
    (ON_METAL, "METAL:emu"),
];

/// The tensor suite on software GPUs. Fewer random programs than on the CPU: each takes longer.
fn suite_steps(_: &[String]) -> Vec<Step> {
    // All packages are named, so that their features, and with them the build, are those of the last step.
    let tests: String = SUITE.iter().map(|t| format!(" --test {t}")).collect();
    let tests = format!("{WORKSPACE}{tests}");
    let run = run_tests(&tests, &tests);
    // The texts that a Mac would compile, for `msl`.
    let sources = root().join(crate::msl::FOLDER);
    let on = |(name, device): &(&'static str, &str)| {
        let kept = if *name == ON_METAL { format!("SOURCES={}", sources.display()) } else { String::new() };
        start(name, &format!("env DEV={device} RANDOM_GRAPHS=200 {kept} {run}"))
    };
    let mut steps = vec![call("msl", crate::msl::clear)];
    steps.extend(SUITE_DEVICES.iter().map(on));
    // gfx942 both ways too; and strict mode alone, on all threads.
    let some = |name, device: &str, tests: &str| {
        let tests = format!("{WORKSPACE} {tests}");
        start(name, &format!("env DEV={device} {}", run_tests(&tests, &tests)))
    };
    steps.push(some("tensors on gfx942", "AMD:emu=gfx942 EMU_PLAIN=2", "--test realize --test tensor"));
    steps.push(some("strict on sm_90", "NV:emu=sm_90", "--test device_ops --test jit_edges"));
    steps.push(some("strict on gfx1100", "AMD:emu=gfx1100", "--test device_ops --test jit_edges"));
    steps.extend(msl_steps(&[]));
    steps
}

fn msl_steps(_: &[String]) -> Vec<Step> {
    vec![call("msl", crate::msl::check)]
}

/// What is built with the feature `mpi`.
const MPI_BUILD: &str = "--package doorbell --no-default-features --features cpu,datasets,mpi";

/// The feature `mpi`: its lints, and its test and example as programs of several ranks.
fn mpi_steps(_: &[String]) -> Vec<Step> {
    let with = MPI_BUILD;
    vec![
        call("mpi", setup::mpi_packages),
        start("mpi", &format!("cargo clippy --quiet {with} --test mpi --example parallel_mpi -- -D warnings")),
        start("mpi", &format!("cargo build --quiet {with} --test mpi --example parallel_mpi")),
        call("mpi", || mpirun(2)),
        call("mpi", || mpirun(4)),
    ]
}

/// Has cargo start the test and the example by `mpirun`.
fn mpirun(ranks: usize) -> Result<(), Failure> {
    let runner =
        format!("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER=mpirun --allow-run-as-root --oversubscribe -n {ranks}");
    for what in ["test --quiet --test mpi", "run --quiet --example parallel_mpi"] {
        println!("   {ranks} ranks: cargo {what}");
        let words = ["env", &runner, "cargo"].into_iter().chain(what.split(' ')).chain(MPI_BUILD.split(' '));
        program("mpi", &words.map(str::to_owned).collect::<Vec<_>>())?;
    }
    Ok(())
}

fn has_nextest() -> bool {
    answers(&["cargo", "nextest", "--version"])
}

/// Runs tests with nextest, or with cargo where that is missing.
fn run_tests(nextest: &str, cargo: &str) -> String {
    if has_nextest() {
        format!(
            "cargo nextest run {nextest} --no-fail-fast --hide-progress-bar --status-level slow --final-status-level slow"
        )
    } else {
        format!("cargo test {cargo}")
    }
}

/// The sanitizers come with the toolchain; its switch for them is still an unstable one, which RUSTC_BOOTSTRAP permits.
/// A target of its own keeps build scripts and macros out of it, a folder of its own keeps the ordinary build: many
/// build scripts run anew when RUSTC_BOOTSTRAP changes. Miri cannot run these rooms: they map memory and jump into
/// machine code. Only what these tests reach is built: the rooms of GPUs would be most of it.
fn sanitize_steps(_: &[String]) -> Vec<Step> {
    let env = "env RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=target/sanitize RUSTFLAGS=-Zsanitizer=address LSAN_OPTIONS=suppressions=tools/xtask/leaks.txt:print_suppressions=0";
    let run = |what: &str| start("sanitize", &format!("{env} cargo test --quiet --target {} {what}", setup::X86_64));
    let tests: String = SANITIZED.iter().map(|t| format!(" --test {t}")).collect();
    vec![run("-p doorbell-ioctl"), run(&format!("-p doorbell --no-default-features --features cpu,datasets{tests}"))]
}

fn size_steps(_: &[String]) -> Vec<Step> {
    vec![call("size", crate::size::check)]
}

fn dist_steps(_: &[String]) -> Vec<Step> {
    vec![call("dist", crate::dist::make)]
}

fn capi_steps(rest: &[String]) -> Vec<Step> {
    vec![start("capi", &format!("sh tools/capi/install.sh {}", rest.join(" ")))]
}

/// libdoorbell as a C program sees it, and the guide to it with the program that was built beside it.
fn capi_test_steps() -> Vec<Step> {
    let guide = "env DOORBELL=target/debug/doorbell sh tools/capi/guide.sh";
    vec![call("capi", setup::musl_library), start("capi", "sh tools/capi/test.sh"), start("guide", guide)]
}

fn bench_steps(rest: &[String]) -> Vec<Step> {
    vec![start("bench", &format!("cargo bench {}", rest.join(" ")))]
}

fn reference_steps(rest: &[String]) -> Vec<Step> {
    let command = format!("target/venv/bin/python tools/references/make.py {}", rest.join(" "));
    vec![call("python", setup::python_environment), start("references", &command)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(|w| (*w).to_owned()).collect()
    }

    #[test]
    fn an_unknown_sub_command_names_the_valid_ones() {
        let Err(message) = parse(&words(&["tset"])) else { panic!("accepted") };
        assert_eq!(
            message,
            "unknown sub-command \"tset\"; valid: setup, fmt, clippy, test, sweep, targets, sanitize, suite, msl, aarch64, metal, mpi, size, dist, capi, bench, fuzz, corpus, references"
        );
    }

    #[test]
    fn an_argument_where_none_is_taken_is_refused() {
        let Err(message) = parse(&words(&["test", "--fast"])) else { panic!("accepted") };
        assert_eq!(message, "test takes quick or nothing, got \"--fast\"");
        let Err(message) = parse(&words(&["size", "now"])) else { panic!("accepted") };
        assert_eq!(message, "size takes no argument, got \"now\"");
        assert!(matches!(parse(&words(&["test", "quick"])), Ok(Request::Run(t, _)) if t.name == "test"));
    }

    #[test]
    fn the_tests_are_the_last_step_of_test() {
        assert_eq!(test_steps(&[]).last().map(|s| s.name), Some("tests"));
    }

    #[test]
    fn every_xtask_command_in_the_readme_exists() {
        let text =
            std::fs::read_to_string(crate::run::root().join("README.md")).expect("README.md in the clone's root");
        let used: Vec<&str> = text
            .split("cargo xtask ")
            .skip(1)
            .filter_map(|t| t.split(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit()).next())
            .collect();
        assert!(used.contains(&"test"), "the README says how to run the tests");
        for name in used.into_iter().filter(|n| !n.is_empty()) {
            assert!(TASKS.iter().any(|t| t.name == name), "README.md names `cargo xtask {name}`");
        }
    }
}

//! What the tests need in addition to cargo: Debian packages with the tools that check our object files, NVIDIA's
//! compiler, assembler and disassembler from PyPI, and for the reference generator a Python environment of its own
//! under `target/`.

use crate::run::{Failure, answers, program, root};

/// A tool that tests start, how to detect it, and its Debian package.
struct Tool {
    probe: &'static [&'static str],
    package: &'static str,
}

/// readelf and objdump read what `elf` writes; gcc makes foreign objects for our loader and links the build itself;
/// with the kernel's headers it judges our descriptions of ioctls. Chromium opens the explorer's pages.
const TOOLS: &[Tool] = &[
    Tool { probe: &["readelf", "--version"], package: "binutils" },
    Tool { probe: &["objdump", "--version"], package: "binutils" },
    Tool { probe: &["gcc", "--version"], package: "gcc" },
    Tool { probe: &["g++", "--version"], package: "g++" },
    Tool { probe: &["pkg-config", "--version"], package: "pkg-config" },
    Tool { probe: &["strace", "--version"], package: "strace" },
    Tool { probe: &["musl-gcc", "--version"], package: "musl-tools" },
    Tool { probe: &["clang-19", "--version"], package: "clang-19" },
    Tool { probe: &["ld.lld-19", "--version"], package: "lld-19" },
    Tool { probe: &["llvm-mc-19", "--version"], package: "llvm-19" },
    Tool { probe: &["clang-22", "--version"], package: "clang-22" },
    Tool { probe: &["ld.lld-22", "--version"], package: "lld-22" },
    Tool { probe: &["llvm-mc-22", "--version"], package: "llvm-22" },
    Tool { probe: &["qemu-aarch64-static", "--version"], package: "qemu-user-static" },
    Tool { probe: &["test", "-f", "/usr/include/linux/kfd_ioctl.h"], package: "linux-libc-dev" },
    Tool { probe: &["test", "-f", "/usr/include/libdrm/amdgpu_drm.h"], package: "libdrm-dev" },
    Tool { probe: &["chromium", "--version"], package: "chromium" },
];

/// What the feature `mpi` is built with and run by. The library of clang reads MPI's header.
const MPI: &[Tool] = &[
    Tool { probe: &["mpicc", "--showme:version"], package: "libopenmpi-dev" },
    Tool { probe: &["mpirun", "--version"], package: "openmpi-bin" },
    Tool { probe: &["sh", "-c", "ls /usr/lib/llvm-*/lib/libclang*.so*"], package: "libclang-dev" },
];

/// The reference generator's only package; the version is fixed so that regenerated files can be compared.
const NUMPY_VERSION: &str = "2.4.6";

/// Installs what is missing; starts nothing when all is there.
///
/// # Errors
/// Not started: something is missing and this user may not install it. Failed: apt-get failed.
pub fn debian_packages() -> Result<(), Failure> {
    install_missing("setup", TOOLS, "readelf, objdump, gcc, kernel headers")
}

/// The target of this machine.
pub const X86_64: &str = "x86_64-unknown-linux-gnu";

/// The target of the tests on AArch64: static programs, which an emulator runs without a library of that machine.
pub const AARCH64: &str = "aarch64-unknown-linux-musl";

/// Rust's standard library for AArch64, installed by rustup when it is missing.
///
/// # Errors
/// Not started: there is no rustup. Failed: it failed.
pub fn aarch64_library() -> Result<(), Failure> {
    rust_library("aarch64", AARCH64)
}

/// The target of programs that are linked for a Mac.
pub const MACOS: &str = "aarch64-apple-darwin";

/// The same for a Mac.
///
/// # Errors
/// As [`aarch64_library`].
pub fn macos_library() -> Result<(), Failure> {
    rust_library("metal", MACOS)
}

/// The same for static programs of this machine's kind, which libdoorbell is tested with.
///
/// # Errors
/// As [`aarch64_library`].
pub fn musl_library() -> Result<(), Failure> {
    rust_library("capi", "x86_64-unknown-linux-musl")
}

/// The source of Rust's standard library, from which one is built for size.
///
/// # Errors
/// As [`aarch64_library`].
pub fn rust_source(step: &str) -> Result<(), Failure> {
    if answers(&["sh", "-c", "test -d $(rustc --print sysroot)/lib/rustlib/src/rust/library"]) {
        return Ok(());
    }
    program(step, &["rustup", "component", "add", "rust-src"].map(str::to_owned))
}

fn rust_library(step: &str, target: &str) -> Result<(), Failure> {
    let find = format!("test -d $(rustc --print target-libdir --target {target})");
    if answers(&["sh", "-c", &find]) {
        println!("   {target}: present");
        return Ok(());
    }
    program(step, &["rustup", "target", "add", target].map(str::to_owned))
}

/// As [`debian_packages`], what the tests of several processes need.
///
/// # Errors
/// As `debian_packages`.
pub fn mpi_packages() -> Result<(), Failure> {
    install_missing("mpi", MPI, "mpicc, mpirun, libclang")
}

fn install_missing(step: &str, tools: &[Tool], all: &str) -> Result<(), Failure> {
    let mut missing: Vec<&str> = tools.iter().filter(|t| !answers(t.probe)).map(|t| t.package).collect();
    missing.dedup();
    if missing.is_empty() {
        println!("   {all}: present");
        return Ok(());
    }
    install(step, &missing)
}

fn install(step: &str, packages: &[&str]) -> Result<(), Failure> {
    let lead: &[&str] = if user_is_root() {
        &[]
    } else if answers(&["sudo", "-n", "true"]) {
        &["sudo", "-n"]
    } else {
        let reason = format!("missing Debian packages {}; neither root nor sudo", packages.join(", "));
        return Err(Failure::NotStarted { step: step.to_owned(), reason });
    };
    let words = |tail: &[&str]| lead.iter().chain(tail).map(|w| (*w).to_owned()).collect::<Vec<_>>();
    program(step, &words(&["apt-get", "update", "-q"]))?;
    let mut tail = vec!["apt-get", "install", "-y", "-q", "--no-install-recommends"];
    tail.extend_from_slice(packages);
    program(step, &words(&tail))
}

fn user_is_root() -> bool {
    std::process::Command::new("id").arg("-u").output().is_ok_and(|out| out.stdout.trim_ascii() == b"0")
}

/// NVIDIA's compiler, assembler and disassembler; versions are fixed because the disassembler's text is compared letter
/// for letter. With each package a file of it: `nvcc` is a driver that needs the others' compiler proper, headers and
/// library of mathematics.
const NVIDIA: [(&str, &str, &str); 6] = [
    ("nvidia-cuda-nvcc", NVIDIA_VERSION, "bin/ptxas"),
    ("nvidia-cuda-nvdisasm", NVIDIA_VERSION, "bin/nvdisasm"),
    ("nvidia-nvvm", NVIDIA_VERSION, "nvvm/bin/cicc"),
    ("nvidia-cuda-crt", NVIDIA_VERSION, "include/crt/host_config.h"),
    ("nvidia-cuda-runtime", NVIDIA_VERSION, "include/cuda_runtime.h"),
    // cuda_fp16.h includes <nv/target>, which is all that is used of it.
    ("nvidia-cuda-cccl", "13.3.5.0.6", "include/cccl/nv/target"),
];
const NVIDIA_VERSION: &str = "13.5.37";

/// Puts nvcc, ptxas and nvdisasm into `target/nvidia`, once.
///
/// # Errors
/// Not started: no python3 with venv. Failed: pip failed.
pub fn nvidia_tools() -> Result<(), Failure> {
    let folder = root().join("target/nvidia");
    let there = |(package, version, file): &(&str, &str, &str)| {
        let wheel = folder.join(format!("{}-{version}.dist-info", package.replace('-', "_")));
        wheel.exists() && folder.join("nvidia/cu13").join(file).exists()
    };
    if NVIDIA.iter().all(there) {
        println!("   target/nvidia with nvcc, ptxas and nvdisasm {NVIDIA_VERSION}: present");
        return Ok(());
    }
    let python = virtual_environment("setup")?;
    let mut words = vec![python];
    // All packages in one call: pip puts a new folder `nvidia` in the place of the old one.
    let tail = ["-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--upgrade", "--target"];
    words.extend(tail.map(str::to_owned));
    words.push(folder.to_string_lossy().into_owned());
    words.extend(NVIDIA.iter().map(|(package, version, _)| format!("{package}=={version}")));
    program("setup", &words)
}

/// Makes `target/venv`, once: the path of its python.
///
/// # Errors
/// Not started: no python3 with venv. Failed: it cannot be made.
pub fn virtual_environment(step: &'static str) -> Result<String, Failure> {
    let venv = root().join("target/venv");
    let python = venv.join("bin/python").to_string_lossy().into_owned();
    if answers(&[&python, "-m", "pip", "--version"]) {
        return Ok(python);
    }
    if !answers(&["python3", "-c", "import ensurepip, venv"]) {
        install(step, &["python3-venv"])?;
    }
    let words = ["python3", "-m", "venv", &venv.to_string_lossy()].map(str::to_owned);
    program(step, &words)?;
    Ok(python)
}

/// Makes `target/venv` with numpy, once.
///
/// # Errors
/// Not started: no python3 with venv. Failed: pip failed.
pub fn python_environment() -> Result<(), Failure> {
    let python = root().join("target/venv/bin/python").to_string_lossy().into_owned();
    if answers(&[&python, "-c", &format!("import numpy; assert numpy.__version__ == '{NUMPY_VERSION}'")]) {
        println!("   target/venv with numpy {NUMPY_VERSION}: present");
        return Ok(());
    }
    let python = virtual_environment("references")?;
    let numpy = format!("numpy=={NUMPY_VERSION}");
    let words = [&python, "-m", "pip", "install", "-q", "--disable-pip-version-check", &numpy];
    program("references", &words.map(str::to_owned))
}

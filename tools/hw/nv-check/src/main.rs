//! A real NVIDIA GPU under this runtime, checked in under eight minutes: correctness of copies, launches and copies
//! measured next to CUDA's own, and the tensor tests on the device. Results are one JSON object, with driver, chip and
//! clocks.
//!
//! The tensor tests are ordinary test programs: `--pack DIR` builds and collects them (with the source at hand),
//! `--tests DIR` runs them where the card is. CUDA is measured where its driver library can be loaded (`libcuda.so.1`),
//! in a process of its own, by this tool alone: the runtime never uses it. Place: outside the library, above
//! `device::nv`. Left out: several GPUs, NVLink, matrix throughput (the tensor tests' own benchmarks have it).
//!
//! Exit codes: 0 all right, 1 a test or a copy failed, 2 there is no such device, 3 wrong usage.
#![cfg_attr(not(target_os = "linux"), allow(unused))]

#[cfg(target_os = "linux")]
mod bench;
#[cfg(target_os = "linux")]
mod code;
#[cfg(target_os = "linux")]
mod copies;
#[cfg(target_os = "linux")]
mod cuda;
#[cfg(target_os = "linux")]
mod machine;
#[cfg(target_os = "linux")]
mod report;
#[cfg(target_os = "linux")]
mod suite;
#[cfg(target_os = "linux")]
mod theirs;

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;

/// Test and measure an NVIDIA GPU.
#[derive(Parser, Debug, Clone)]
#[command(name = "nv-check", version)]
pub struct Args {
    /// NV, NV:1, NV:bdf=0000:17:00.0, NV:uuid=GPU-01234567, or a software GPU: NV:emu=sm_90
    #[arg(long, default_value = "NV", value_name = "D")]
    device: String,
    /// Print the results as one JSON object, the last line of standard output
    #[arg(long)]
    json: bool,
    /// Where the results go as JSON too
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Where the test programs are; without it the folder `tests` beside this program, if there is one
    #[arg(long, value_name = "DIR")]
    tests: Option<PathBuf>,
    /// Build the test programs and gather them in DIR, with this program; needs cargo and the source
    #[arg(long, value_name = "DIR")]
    pack: Option<PathBuf>,
    /// All of it ends by then
    #[arg(long, value_name = "MINUTES", default_value_t = 8.0, value_parser = minutes)]
    minutes: f64,
    /// Parts to leave out: copies, bench, cuda, tests
    #[arg(long, value_name = "PART")]
    skip: Vec<String>,
    /// Small sizes and counts (always so on a software GPU)
    #[arg(long)]
    quick: bool,
    /// CUDA's driver library
    #[arg(long, value_name = "FILE", default_value = "libcuda.so.1")]
    cuda: PathBuf,
    /// No warning about a driver release whose structs are not known
    #[arg(long)]
    any_driver: bool,
    /// Doorbells through BAR1 (from Hopper on): BAR0 is held back by a hypervisor
    #[arg(long)]
    bar1_doorbell: bool,
    /// Page tables by RM alone, as on a machine without nvidia-uvm
    #[arg(long)]
    rm_only: bool,
    /// NVIDIA's assembler, in place of ours; a must for sm_75 and sm_100
    #[arg(long, value_name = "PATH")]
    ptxas: Option<PathBuf>,
    /// One part, in a process of its own
    #[arg(long, hide = true)]
    child: Option<String>,
}

/// A number of minutes up to a day.
fn minutes(text: &str) -> Result<f64, String> {
    let n: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    if (0.1..=1440.0).contains(&n) { Ok(n) } else { Err("0.1 to 1440 are possible".into()) }
}

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(e) => {
            let is_wrong = e.use_stderr();
            let _nobody_reads = e.print();
            return ExitCode::from(if is_wrong { 3 } else { 0 });
        }
    };
    match (&args.child, &args.pack) {
        (Some(part), _) => machine::child(part, &args),
        (None, Some(dir)) => suite::pack(dir),
        (None, None) => report::run(&args),
    }
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    eprintln!("nv-check: the driver's interface is Linux's");
    ExitCode::from(2)
}

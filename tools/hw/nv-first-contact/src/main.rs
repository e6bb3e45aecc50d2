//! The first hours with a real NVIDIA GPU, as a program: rung by rung from the device files to kernels, clusters,
//! faults and two processes at once.
//!
//! Each rung adds one thing and names the rungs it needs. A failed rung is reported with the call that was refused
//! (arguments and answer), the methods that were not executed, known causes and probes for them; the run continues with
//! every rung that does not need it. The trace of everything is in a file. `--emu sm_90` runs the same rungs on the
//! software GPU. Place: outside the library, above `device::nv`. Left out: every instruction against the software GPU,
//! MIG, several GPUs, an hour's soak.
//!
//! Exit codes: 0 no rung failed, 1 a rung failed, 2 there is no card, 3 wrong usage.
#![cfg_attr(not(target_os = "linux"), allow(unused))]
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod child;
#[cfg(target_os = "linux")]
mod code;
#[cfg(target_os = "linux")]
mod explain;
#[cfg(target_os = "linux")]
mod grids;
#[cfg(target_os = "linux")]
mod ladder;
#[cfg(target_os = "linux")]
mod machine;
#[cfg(target_os = "linux")]
mod raw;
#[cfg(target_os = "linux")]
mod rungs;

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;

/// Climb from the driver's files to kernels and faults, and tell what is wrong where something is.
#[derive(Parser, Debug, Clone)]
#[command(name = "nv-first-contact", version)]
pub struct Args {
    /// NV, NV:1, NV:bdf=0000:17:00.0, NV:uuid=GPU-01234567, or a software GPU: NV:emu=sm_90
    #[arg(long, default_value = "NV", value_name = "D")]
    device: String,
    /// The software GPU of a chip: the same as --device NV:emu=CHIP
    #[arg(long, value_name = "CHIP", conflicts_with = "device")]
    emu: Option<String>,
    /// Print one JSON object as the last line of standard output
    #[arg(long)]
    json: bool,
    /// Where the trace of all calls goes, for `doorbell trace --show`
    #[arg(long, default_value = "nv-first-contact.trace", value_name = "FILE")]
    trace: PathBuf,
    /// The last rung to climb
    #[arg(long, value_name = "RUNG")]
    until: Option<String>,
    /// Rungs to leave out
    #[arg(long, value_name = "RUNG")]
    skip: Vec<String>,
    /// Small sizes and counts: minutes become seconds (always so on a software GPU)
    #[arg(long)]
    quick: bool,
    /// How long the last rung goes on
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    soak: u64,
    /// How long any step may take; without it 10, and 60 on a software GPU
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    patience: Option<u64>,
    /// No warning about a driver release whose structs are not known
    #[arg(long)]
    any_driver: bool,
    /// Map the doorbells through BAR1 (from Hopper on)
    #[arg(long)]
    bar1_doorbell: bool,
    /// Page tables by RM alone, as on a machine without nvidia-uvm
    #[arg(long)]
    rm_only: bool,
    /// NVIDIA's assembler, in place of ours; a must for sm_75 and sm_100
    #[arg(long, value_name = "PATH")]
    ptxas: Option<PathBuf>,
    /// Make the n-th call fail, to see what a failure looks like: CALL:N:ERRNO, doorbell:N:lose; on a software GPU also
    /// CLASS, COMMAND or UVM_CALL:N:STATUS, grid:N:lose, grid:N:fail; PART/SPEC: in the processes of a part (work,
    /// wild, loop)
    #[arg(long, value_name = "SPEC")]
    fault: Vec<String>,
    /// A software machine with something wrong: no-uvm, no-nodes, confidential, prohibited, mig, bar0, interrupts,
    /// clock
    #[arg(long, value_name = "WHAT")]
    broken: Option<String>,
    /// One part of a rung, in a process of its own
    #[arg(long, hide = true)]
    child: Option<String>,
}

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    let mut args = match Args::try_parse() {
        Ok(args) => args,
        Err(e) => {
            let is_wrong = e.use_stderr();
            let _nobody_reads = e.print();
            return ExitCode::from(if is_wrong { 3 } else { 0 });
        }
    };
    if let Some(chip) = &args.emu {
        args.device = format!("NV:emu={chip}");
    }
    match &args.child {
        Some(part) => child::run(part, &args),
        None => ladder::climb(&args),
    }
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    eprintln!("nv-first-contact: the driver's interface is Linux's");
    ExitCode::from(2)
}

//! The first hours with a real AMD GPU, as a program: rung by rung from `open("/dev/kfd")` to kernels, faults and two
//! processes at once.
//!
//! Each rung needs the ones before it and adds one thing. The run ends at the first failure, which is reported with the
//! call that was refused (arguments and answer), the packets that were not executed, and known causes; the trace of
//! everything is in a file. `--device AMD:emu=gfx1100` runs the same rungs on the software GPU. Place: outside the
//! library, above `device::amd`. Left out: matrix instructions, every instruction against the software GPU, stores to
//! read-only pages, suspend and resume, an hour's soak.
//!
//! Exit codes: 0 all rungs passed, 1 a rung failed, 2 there is no card, 3 wrong usage.
#![cfg_attr(not(target_os = "linux"), allow(unused))]
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod child;
#[cfg(target_os = "linux")]
mod code;
#[cfg(target_os = "linux")]
mod explain;
#[cfg(target_os = "linux")]
mod ladder;
#[cfg(target_os = "linux")]
mod machine;
#[cfg(target_os = "linux")]
mod missing;
#[cfg(target_os = "linux")]
mod raw;
#[cfg(target_os = "linux")]
mod rungs;

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;

/// Climb from the driver's file to kernels and faults, and stop where something is wrong.
#[derive(Parser, Debug, Clone)]
#[command(name = "amd-first-contact", version)]
pub struct Args {
    /// AMD, AMD:1, AMD:bdf=0000:03:00.0, AMD:gfx1100, or a software GPU: AMD:emu=gfx1100
    #[arg(long, default_value = "AMD", value_name = "D")]
    device: String,
    /// Print one JSON object as the last line of standard output
    #[arg(long)]
    json: bool,
    /// Where the trace of all calls goes, for `doorbell trace --show`
    #[arg(long, default_value = "amd-first-contact.trace", value_name = "FILE")]
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
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    soak: u64,
    /// Make the n-th call fail, to see what a failure looks like: CALL:N:ERRNO, doorbell:N:lose
    #[arg(long, value_name = "SPEC")]
    fault: Option<String>,
    /// One part of a rung, in a process of its own
    #[arg(long, hide = true)]
    child: Option<String>,
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
    match &args.child {
        Some(part) => child::run(part, &args),
        None => ladder::climb(&args),
    }
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    eprintln!("amd-first-contact: KFD is Linux's");
    ExitCode::from(2)
}

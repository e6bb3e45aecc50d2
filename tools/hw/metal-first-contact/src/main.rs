//! The first hours with a real Mac, as a program: from the types of messages to kernels, faults, times and Tensors.
//!
//! Fifteen steps, each with one line: `ok` (everything is as the runtime relies on), `DIFFERS` (something is not, with
//! what was found and what was expected), `measured` (nothing to compare with), `absent` (it cannot be seen here), or
//! `FAILED`. A step that differs or fails stops no other, but for the first ones: without a device, or with a message
//! of another type, nothing that follows means anything. `--device METAL:emu` goes the same steps on the software
//! Metal. Place: outside the library, above `device::metal`. Left out: several GPUs, GPUs with memory of their own, a
//! long soak.
//!
//! Exit codes: 0 no step differs or failed, 1 one does, 2 there is no device, 3 wrong usage.

mod child;
mod objc;
mod report;
mod seen;
mod steps;
mod work;

use clap::Parser;
use std::process::ExitCode;

/// Go from the types of messages to kernels, faults, times and Tensors, and tell what is not as expected.
#[derive(Parser, Debug, Clone)]
#[command(name = "metal-first-contact", version)]
pub struct Args {
    /// METAL, METAL:1, or the software Metal: METAL:emu, METAL:emu=apple9
    #[arg(long, default_value = "METAL", value_name = "D")]
    device: String,
    /// Print one JSON object as the last line of standard output
    #[arg(long)]
    json: bool,
    /// The last step to go
    #[arg(long, value_name = "STEP")]
    until: Option<String>,
    /// Steps to leave out
    #[arg(long, value_name = "STEP")]
    skip: Vec<String>,
    /// Small sizes and counts (always so on the software Metal)
    #[arg(long)]
    quick: bool,
    /// How long to wait for what may never happen
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    patience: u64,
    /// In the step tensors, also run the whole tensor suite: this folder is the clone, where cargo can build it
    #[arg(long, value_name = "DIR")]
    suite: Option<std::path::PathBuf>,
    /// Make a step find something else than is there, to see what a difference looks like: abi, device, lanes
    #[arg(long, value_name = "STEP")]
    pretend: Option<String>,
    /// One part of a step, in a process of its own
    #[arg(long, hide = true)]
    child: Option<String>,
}

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
        None => report::go(&args),
    }
}

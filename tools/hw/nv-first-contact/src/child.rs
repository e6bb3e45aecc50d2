//! The child's side of parts that run in a process of their own.

use crate::Args;
use crate::ladder::Climb;
use crate::machine::Machine;
use crate::rungs::{Bench, connect, work};
use doorbell::device::Arg;
use hw_contact::{Failure, Part};
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

/// The parts, by what they do: work, a kernel that stores to nowhere, one that never ends.
const PARTS: [&str; 3] = ["work", "wild", "loop"];

/// # Errors
/// In words: no such part.
pub fn check(part: &str) -> Result<(), String> {
    if PARTS.contains(&part) { Ok(()) } else { Err(format!("no part {part}, there are {}", PARTS.join(", "))) }
}

/// Starts a part on the climb's device.
///
/// # Errors
/// The process cannot start.
pub fn start(climb: &Climb, part: &str) -> Result<Part, Failure> {
    let args = &climb.args;
    let mut options: Vec<OsString> = Vec::new();
    let flags =
        [(args.any_driver, "--any-driver"), (args.bar1_doorbell, "--bar1-doorbell"), (args.rm_only, "--rm-only")];
    options.extend(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| OsString::from(flag)));
    if let Some(ptxas) = &args.ptxas {
        options.extend([OsString::from("--ptxas"), ptxas.clone().into()]);
    }
    if let Some(patience) = args.patience {
        options.extend([OsString::from("--patience"), patience.to_string().into()]);
    }
    let own = args.fault.iter().filter_map(|spec| spec.split_once('/')).filter(|(of, _)| *of == part);
    options.extend(own.flat_map(|(_, spec)| [OsString::from("--fault"), spec.into()]));
    Part::start(part, &args.device, &args.trace, &options)
}

/// Runs a part and reports its outcome.
pub fn run(part: &str, args: &Args) -> ExitCode {
    let said = match act(part, args) {
        Ok(said) => said,
        Err(failure) => failure.what,
    };
    println!("{}", said.replace('\n', " "));
    ExitCode::SUCCESS
}

fn act(part: &str, args: &Args) -> Result<String, Failure> {
    let machine = Machine::new(args, &args.trace).map_err(Failure::from)?;
    let mut climb = Climb::new(args, machine);
    connect(&mut climb)?;
    let mut bench = Bench::open(&climb)?;
    if part == "work" {
        work(&bench, u64::from(std::process::id()), Duration::from_secs(1), 16)?;
        bench.close()?;
        return Ok("worked".into());
    }
    let (name, args) = match part {
        "wild" => ("wild", vec![Arg::Var(0x12_3456_7000)]),
        "loop" => ("endless", vec![]),
        other => return Err(format!("no part {other}").into()),
    };
    let kernel = bench.load(name)?;
    // TIMEOUT: a kernel that has not ended by then never will; a killed one is not waited for.
    bench.patience = Duration::from_secs(3);
    bench.run(&kernel, args, [1; 3], [32, 1, 1])?;
    Ok("nothing happened".into())
}

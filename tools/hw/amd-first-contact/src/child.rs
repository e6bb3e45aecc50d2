//! Parts of rungs in a process of their own: faults that end a device, work at the same time, a process to be killed.
//!
//! A child opens everything anew, does its part, and prints one line: `worked`, or the error that ended it.

use crate::Args;
use crate::code::{self, Needs};
use crate::explain::Failure;
use crate::ladder::Climb;
use crate::machine::Machine;
use crate::rungs::Bench;
use crate::rungs::{RUNGS, work};
use doorbell::device::Arg;
use hw_contact::Part;
use std::process::ExitCode;
use std::time::Duration;

/// Starts a part on the climb's device.
///
/// # Errors
/// The process cannot start.
pub fn start(climb: &Climb, part: &str) -> Result<Part, Failure> {
    Part::start(part, &climb.args.device, &climb.args.trace, &[])
}

/// The child's side.
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
    let mut climb = Climb { args: args.clone(), machine, driver: None, node: None, core: None };
    for rung in &RUNGS[..2] {
        (rung.climb)(&mut climb)?;
    }
    let bench = Bench::open(&climb)?;
    if part == "work" {
        work(&bench, u64::from(std::process::id()), Duration::from_secs(1), 16)?;
        bench.close()?;
        return Ok("worked".into());
    }
    let (text, argument) = match part {
        "load" => (code::LOAD, 0x1234_5678_9000_i64),
        "jump" => (code::JUMP, 0),
        "illegal" => (code::ILLEGAL, 0),
        "loop" => (code::LOOP, 0),
        other => return Err(format!("no part {other}").into()),
    };
    let kernel = bench.load(text, Needs::default())?;
    // TIMEOUT: a kernel that has not ended by then never will; a killed one is not waited for.
    let bench = Bench { patience: Duration::from_secs(3), ..bench };
    bench.run(&kernel, vec![Arg::Var(argument)], [1; 3], [1; 3])?;
    Ok("nothing happened".into())
}

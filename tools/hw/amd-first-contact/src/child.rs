//! Parts of rungs in a process of their own: faults that end a device, work beside work, a process to be killed.
//!
//! A child opens everything anew, does its part, and prints one line: `worked`, or the error that ended it.

use crate::Args;
use crate::code::{self, Needs};
use crate::explain::{Failure, fail};
use crate::ladder::Climb;
use crate::machine::Machine;
use crate::rungs::Bench;
use crate::rungs::{RUNGS, work};
use doorbell::device::Arg;
use std::io::Read;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// A part that runs.
pub struct Part {
    name: String,
    process: Child,
}

/// Starts a part on the climb's device.
///
/// # Errors
/// The process cannot start.
pub fn start(climb: &Climb, part: &str) -> Result<Part, Failure> {
    let own = std::env::current_exe().map_err(fail)?;
    let mut trace = climb.args.trace.clone().into_os_string();
    trace.push(format!(".{part}"));
    let mut command = Command::new(own);
    command.arg("--device").arg(&climb.args.device).arg("--child").arg(part).arg("--trace").arg(trace);
    let process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(fail)?;
    Ok(Part { name: part.into(), process })
}

impl Part {
    /// What it printed at its end.
    ///
    /// # Errors
    /// It did not end in time; it is killed then.
    pub fn end(mut self, patience: Duration) -> Result<String, Failure> {
        let deadline = Instant::now() + patience;
        while self.process.try_wait().map_err(fail)?.is_none() {
            if Instant::now() >= deadline {
                self.process.kill().map_err(fail)?;
                self.process.wait().map_err(fail)?;
                return Err(format!("{}: its process did not end in {} s", self.name, patience.as_secs()).into());
            }
            // TIMEOUT: a look now and then.
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut said = String::new();
        if let Some(out) = &mut self.process.stdout {
            out.read_to_string(&mut said).map_err(fail)?;
        }
        Ok(said.trim().to_string())
    }

    /// SIGKILL.
    ///
    /// # Errors
    /// The process cannot be killed, or had ended.
    pub fn kill(mut self) -> Result<(), Failure> {
        if let Some(status) = self.process.try_wait().map_err(fail)? {
            return Err(format!("{}: it ended by itself ({status}) before it was killed", self.name).into());
        }
        self.process.kill().map_err(fail)?;
        self.process.wait().map_err(fail)?;
        Ok(())
    }
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

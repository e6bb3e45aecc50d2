//! `cargo xtask`: the project's own commands, so that a person, a clean machine and CI run the same steps.
//!
//! Place: outside the library; nothing depends on it. It only starts other programs (cargo, apt-get, python) from the
//! clone's root. Left out: anything that needs a file from outside the clone, and releases.
//!
//! Exit codes: 0 ok, 1 a step failed, 2 a step could not start, 3 wrong usage.

mod aarch64;
mod corpus;
mod dist;
mod fuzz;
mod metal;
mod msl;
mod run;
mod setup;
mod size;
mod tasks;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match tasks::parse(&args) {
        Ok(tasks::Request::Help) => {
            print!("{}", tasks::usage());
            ExitCode::SUCCESS
        }
        Ok(tasks::Request::Run(task, rest)) => match run::in_order(&(task.steps)(&rest)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                eprintln!("xtask: {failure}");
                ExitCode::from(failure.exit_code())
            }
        },
        Err(wrong) => {
            eprintln!("xtask: {wrong}");
            ExitCode::from(3)
        }
    }
}

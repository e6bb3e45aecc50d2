//! Parts of steps in a process of their own: work that the system watches, and faults that end a device.
//!
//! A child opens everything anew, does its part, and prints one line: `worked`, or what it saw.

use crate::Args;
use crate::work::{Bench, EXACT, launch};
use doorbell::device::{Command, Device};
use hw_contact::Failure;
use std::process::ExitCode;

/// Starts a part; one line on standard output tells how it ended.
pub fn run(part: &str, args: &Args) -> ExitCode {
    let said = Bench::new(args).map_err(Failure::from).and_then(|bench| act(part, &bench));
    println!("{}", said.unwrap_or_else(|failure| failure.what).replace('\n', " "));
    ExitCode::SUCCESS
}

const SOURCE: &str = "
kernel void twice(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = x[i] * 2.0f; }
kernel void wild(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[(1ul << 36) + i] = 1.0f; }
kernel void endless(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  while (((volatile device float*)x)[0] < 2.0f) {}
  x[i] = 3.0f;
}";

fn act(part: &str, bench: &Bench) -> Result<String, Failure> {
    let memory = bench.memory(&[1.0; 64])?;
    let kernel = |name| bench.kernel(&format!("{EXACT}{SOURCE}"), name);
    match part {
        "work" => {
            let twice = kernel("twice")?;
            let other = bench.memory(&[0.0; 64])?;
            let one = || launch(&twice, &[&memory], [2, 1, 1], [32, 1, 1]);
            let copy = Command::copy(other.at(0), memory.at(0), 256);
            for _ in 0..20 {
                bench.run(&[one(), copy.clone(), one().stamped(bench.device()?.stamp()?)])?;
            }
            let mut list = bench.device()?.record(&[one(), copy])?;
            let point = list.replay(&[])?;
            bench.device()?.wait(&point, bench.patience())?;
            let last = bench.values(&other)?[63];
            drop((list, memory, other, twice));
            bench.device()?.close()?;
            Ok(if last == 2f32.powi(41) { "worked".into() } else { format!("2^41 came out as {last}") })
        }
        "wild" => fault(bench, &[launch(&kernel("wild")?, &[&memory], [1; 3], [1; 3])]),
        "endless" => fault(bench, &[launch(&kernel("endless")?, &[&memory], [1; 3], [1; 3])]),
        other => Err(format!("no part {other}").into()),
    }
}

/// Submits what must fail: how it failed, and what becomes of the next submission.
fn fault(bench: &Bench, bad: &[Command]) -> Result<String, Failure> {
    let point = bench.submit(bad)?;
    let first = match bench.device()?.wait(&point, bench.patience()) {
        Ok(()) => "it ended well".into(),
        Err(e) => e.to_string(),
    };
    let next = match bench.memory(&[1.0]).and_then(|memory| bench.values(&memory)) {
        Ok(_) => "works".into(),
        Err(failure) => failure.what,
    };
    Ok(format!("{first}; a later allocation and copy: {next}"))
}

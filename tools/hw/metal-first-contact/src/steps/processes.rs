//! The same work in processes that the system watches.

use crate::seen::Seen;
use crate::work::Bench;
use hw_contact::{Ended, Failure, run_until};
use std::process::Command;

/// Lines that a watching system prints for what is wrong.
const COMPLAINTS: &[&str] =
    &["MISSING POOLS", "deallocated instance", "failed assertion", "Validation", "validation error", "leaks for"];

/// What a process ended with, and the complaints in what it printed.
fn judge(seen: &mut Seen, how: &str, ended: &Ended) {
    let lines = || ended.err.lines().chain(ended.out.lines());
    let complaint = lines().find(|line| {
        let is_clean = line.contains(" 0 leaks for") || line.contains("Validation Enabled");
        !is_clean && COMPLAINTS.iter().any(|c| line.contains(c))
    });
    let worked = lines().any(|line| line.trim() == "worked");
    let text = complaint.map_or_else(|| format!("{how}: {}", ended.status), |line| format!("{how}: {line}"));
    seen.holds(worked && complaint.is_none(), &text, "expected it to work without a complaint");
}

pub fn runtime(bench: &Bench, seen: &mut Seen) -> Result<(), Failure> {
    for (name, value) in [("OBJC_DEBUG_MISSING_POOLS", "YES"), ("NSZombieEnabled", "YES")] {
        let mut process = bench.again("work")?;
        process.env(name, value);
        judge(seen, name, &run_until(process, bench.deadline())?);
    }
    if !cfg!(target_os = "macos") {
        seen.note("leaks: no such program here; the software Metal counts objects in its own tests");
        return Ok(());
    }
    let own = bench.again("work")?;
    let mut process = Command::new("leaks");
    process.args(["--quiet", "--atExit", "--"]).arg(own.get_program()).args(own.get_args());
    judge(seen, "leaks", &run_until(process, bench.deadline())?);
    Ok(())
}

pub fn layer(bench: &Bench, seen: &mut Seen) -> Result<(), Failure> {
    let calls = [("MTL_DEBUG_LAYER", "1"), ("MTL_DEBUG_LAYER_ERROR_MODE", "nslog")];
    let kernels = [("MTL_DEBUG_LAYER", "1"), ("MTL_SHADER_VALIDATION", "1")];
    for (how, variables) in [("validation of calls", calls), ("validation of kernels", kernels)] {
        let mut process = bench.again("work")?;
        process.envs(variables);
        judge(seen, how, &run_until(process, bench.deadline())?);
    }
    if bench.is_software() {
        seen.note("the software Metal ignores these variables: it always checks calls and bounds");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seen::Verdict;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    fn verdict(out: &str, err: &str) -> Verdict {
        let mut seen = Seen::default();
        judge(&mut seen, "x", &Ended { status: ExitStatus::from_raw(0), out: out.into(), err: err.into() });
        seen.verdict()
    }

    #[test]
    fn a_complaint_of_the_system_is_a_difference_though_the_work_ended_well() {
        assert_eq!(verdict("worked\n", "Metal API Validation Enabled\n"), Verdict::Ok);
        assert_eq!(verdict("worked\nProcess 1: 0 leaks for 0 total leaked bytes.\n", ""), Verdict::Ok);
        assert_eq!(verdict("worked\nProcess 1: 2 leaks for 96 total leaked bytes.\n", ""), Verdict::Differs);
        assert_eq!(verdict("worked\n", "objc[1]: MISSING POOLS: (0x1) Object 0x2\n"), Verdict::Differs);
        assert_eq!(
            verdict("worked\n", "-[MTLBuffer length]: message sent to deallocated instance\n"),
            Verdict::Differs
        );
        assert_eq!(verdict("", ""), Verdict::Differs);
    }
}

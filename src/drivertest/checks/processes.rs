//! Second processes as the running kernel has them: processes of this test's own program, each with a software machine
//! of its own, so that what ends and kills them is seen without a card.

use crate::bench::{self, Setting};
use crate::run::Said;
use crate::{Target, Verdict, cases};
use std::io::Write;
use std::process::Command;

const CASE: &str = "DRIVERTEST_PART_OF";
const PART: &str = "DRIVERTEST_PART";
const DEVICE: &str = "DRIVERTEST_DEVICE";

fn target(device: &str) -> Target {
    Target::parse(device).unwrap()
}

fn start(setting: &Setting, case: &str, part: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let device = if setting.target.device() == "AMD" { "AMD:emu=gfx1100" } else { "NV:emu=sm_90" };
    command.args(["--exact", "checks::processes::second", "--nocapture"]);
    command.env(CASE, case).env(PART, part).env(DEVICE, device);
    command
}

/// The second process, where the environment names one.
#[test]
fn second() {
    let (Ok(name), Ok(part), Ok(device)) = (std::env::var(CASE), std::env::var(PART), std::env::var(DEVICE)) else {
        return;
    };
    // The line that names this test ends first.
    writeln!(std::io::stdout().lock()).unwrap();
    let target = target(&device);
    let case = cases(target.driver).into_iter().find(|case| case.name == name).unwrap();
    let end = bench::run_part(&case, &Setting::new(target), &part).unwrap();
    let said = Said { verdict: end.verdict, why: end.why, key: end.key.map(str::to_owned) };
    println!("\nend {}", serde_json::to_string(&said).unwrap());
}

fn run(device: &str, name: &str) -> bench::Outcome {
    let target = target(device);
    let case = cases(target.driver).into_iter().find(|case| case.name == name).unwrap();
    bench::run(&case, &Setting { start: Some(start), ..Setting::new(target) }).unwrap()
}

/// Cases that need nothing of one machine for both processes.
#[test]
fn second_processes_work_end_and_are_killed() {
    let of_kfd = ["kill.open", "kill.pending", "kill.wait", "process.two-at-once", "signal.stop-and-continue"];
    let of_nv = ["kill.bound", "kill.pending", "kill.wait", "process.two-at-once", "signal.stop-and-continue"];
    for (device, driver, names) in [("AMD:emu=gfx1100", "kfd", of_kfd), ("NV:emu=sm_90", "nv", of_nv)] {
        for name in names {
            let end = run(device, &format!("{driver}.{name}"));
            assert_eq!((end.verdict, end.why.as_str()), (Verdict::Pass, ""), "{driver}.{name}");
        }
    }
}

#[test]
fn what_a_second_process_fails_with_is_the_cases_failure() {
    // The file that it was given is of the other software machine.
    let end = run("AMD:emu=gfx1100", "kfd.process.dmabuf");
    assert_eq!(end.verdict, Verdict::Fail);
    assert!(end.why.starts_with("the second process: fail: AMDKFD_IOC_IMPORT_DMABUF: EINVAL"), "{}", end.why);
}

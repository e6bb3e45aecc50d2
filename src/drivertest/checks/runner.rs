//! The runner with real cases: this test's own program is the process of each case.

use crate::bench::{self, Setting};
use crate::expect::Expectations;
use crate::run::{Options, Report, Said, run};
use crate::select::Select;
use crate::{Case, Driver, Target, Verdict, cases, report};
use doorbell_ioctl::fault::port_plan;
use doorbell_ioctl::trace::read_trace;
use std::path::Path;
use std::process::Command;

const CASE: &str = "DRIVERTEST_CASE";
const FAULT: &str = "DRIVERTEST_FAULT";
const CALLS: &str = "DRIVERTEST_CALLS";

/// The process of a case, where the environment names one.
#[test]
fn child() {
    let Ok(name) = std::env::var(CASE) else { return };
    let all = cases(Driver::Kfd);
    let case = all.iter().find(|case| case.name == name).unwrap();
    let mut setting = Setting::new(Target::parse("AMD:emu=gfx1100").unwrap());
    if let Ok(fault) = std::env::var(FAULT) {
        setting.faults = port_plan(&fault).unwrap();
    }
    setting.calls = std::env::var_os(CALLS).map(Into::into);
    setting.progress = |what| println!("{what}");
    let end = bench::run(case, &setting).unwrap();
    let said = Said { verdict: end.verdict, why: end.why, key: end.key.map(str::to_owned) };
    println!("\nend {}", serde_json::to_string(&said).unwrap());
}

fn start(name: &str, _seed: u64, calls: Option<&Path>, fault: Option<&str>) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "checks::runner::child", "--nocapture"]).env(CASE, name);
    calls.map(|file| command.env(CALLS, file));
    fault.map(|fault| command.env(FAULT, fault));
    command
}

fn all_of(pattern: &str, fault: Option<&str>, options: &Options) -> Report {
    let all = cases(Driver::Kfd);
    let chosen: Vec<&Case> = Select { patterns: vec![pattern.to_owned()], ..Select::default() }.of(&all);
    assert!(!chosen.is_empty());
    let spawn = |name: &str, seed: u64, calls: Option<&Path>| start(name, seed, calls, fault);
    run(&chosen, &Expectations::default(), options, &spawn, &mut |_| {}).unwrap()
}

#[test]
fn cases_pass_in_processes_of_their_own() {
    let report = all_of("kfd.bind.*", None, &Options::default());
    assert!(report.is_ok(), "{report:?}");
    assert_eq!(report.count(Verdict::Pass), report.records.len());
    let text = report::ktap(&report);
    assert!(text.starts_with("KTAP version 1\n1..1\n    KTAP version 1\n    # Subtest: kfd.bind\n"), "{text}");
    assert!(text.ends_with("ok 1 kfd.bind\n") && text.contains("    ok 1 again\n"), "{text}");
}

#[test]
fn a_case_that_fails_leaves_its_calls() {
    let dir = std::env::temp_dir().join(format!("drivertest-cases-{}", std::process::id()));
    let options = Options { results: Some(dir.clone()), ..Options::default() };
    let report = all_of("kfd.bind.again", Some("ACQUIRE_VM:2:EIO"), &options);
    assert_eq!((report.is_ok(), report.records[0].verdict), (false, Verdict::Fail));
    assert!(report.records[0].why.contains("AMDKFD_IOC_ACQUIRE_VM: EIO"), "{report:?}");
    let calls = std::fs::File::open(dir.join("kfd.bind.again/calls.trace")).unwrap();
    let text: Vec<String> = read_trace(calls).unwrap().iter().map(ToString::to_string).collect();
    assert!(text.iter().any(|line| line.contains("ACQUIRE_VM") && line.contains("EIO")), "{text:?}");
    std::fs::remove_dir_all(dir).unwrap();
}

//! The cases themselves: how many there are, that they pass on the software machines, and that each is seen to fail.

use crate::bench::{self, Setting};
use crate::{Driver, Target, Verdict, cases, score};
use std::sync::Mutex;

/// Runs all cases of a machine on two threads; returns those that did not end so.
fn not(device: &str, allowed: &[Verdict]) -> Vec<String> {
    let target = Target::parse(device).unwrap();
    let all = cases(target.driver);
    let (next, bad) = (Mutex::new(all.iter()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let setting = Setting::new(target.clone());
                loop {
                    let Some(case) = next.lock().unwrap().next() else { return };
                    let end = bench::run(case, &setting).unwrap();
                    if !allowed.contains(&end.verdict) {
                        bad.lock().unwrap().push(format!("{}: {} {}", case.name, end.verdict.word(), end.why));
                    }
                }
            });
        }
    });
    bad.into_inner().unwrap()
}

#[test]
fn there_are_at_least_150_cases_a_driver_with_names_of_their_own() {
    for driver in [Driver::Kfd, Driver::Nv] {
        let all = cases(driver);
        assert!(all.len() >= 150, "{driver:?}: {}", all.len());
        println!("{}: {} cases", driver.name(), all.len());
        assert!(all.windows(2).all(|pair| pair[0].name < pair[1].name));
        assert!(all.iter().all(|case| case.name.starts_with(driver.name()) && case.what.len() > 10));
    }
}

#[test]
fn every_case_of_kfd_passes_on_the_software_gfx1100() {
    assert_eq!(not("AMD:emu=gfx1100", &[Verdict::Pass]), Vec::<String>::new());
}

#[test]
fn every_case_of_kfd_passes_on_the_other_chips_or_says_what_it_needs() {
    for chip in ["gfx942", "gfx1201"] {
        assert_eq!(not(&format!("AMD:emu={chip}"), &[Verdict::Pass, Verdict::Skip]), Vec::<String>::new(), "{chip}");
    }
}

#[test]
fn every_case_of_rm_and_uvm_passes_on_the_software_sm_90() {
    assert_eq!(not("NV:emu=sm_90", &[Verdict::Pass]), Vec::<String>::new());
}

#[test]
fn every_case_of_rm_and_uvm_passes_on_other_chips_or_says_what_it_needs() {
    for chip in ["sm_80", "sm_120"] {
        assert_eq!(not(&format!("NV:emu={chip}"), &[Verdict::Pass, Verdict::Skip]), Vec::<String>::new(), "{chip}");
    }
}

/// Prints the score; each case notices some fault, and the cases together all but a few.
fn proves(device: &str) {
    let target = Target::parse(device).unwrap();
    let setting = Setting::new(target.clone());
    let score = score::score(&cases(target.driver), &setting).unwrap();
    println!("{device}:\n{score}");
    assert!(score.unfit.is_empty() && score.unproven.is_empty(), "{score}");
    let unexplained: Vec<String> =
        score.survivors.iter().filter(|m| score::explained(m).is_none()).map(ToString::to_string).collect();
    assert_eq!(unexplained, Vec::<String>::new());
    assert!(score.percent() >= 90.0, "{score}");
}

#[test]
fn every_case_of_kfd_is_seen_to_fail_and_most_faults_are_noticed() {
    proves("AMD:emu=gfx1100");
}

#[test]
fn every_case_of_rm_and_uvm_is_seen_to_fail_and_most_faults_are_noticed() {
    proves("NV:emu=sm_90");
}

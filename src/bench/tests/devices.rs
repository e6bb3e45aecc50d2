//! Every case on the CPU and on software GPUs of each vendor: small sizes, values checked by the cases themselves, no
//! time asserted. What a device lacks is left out, and how much that is is known.

use doorbell::engine::Options;
use doorbell_bench::compare::{Judgement, Limits, compare};
use doorbell_bench::machine::Machine;
use doorbell_bench::measure::Settings;
use doorbell_bench::record::{Record, Status};
use doorbell_bench::run::{Filter, Watch, run};

/// Ignores progress.
struct Quiet;

impl Watch for Quiet {}

/// Runs the cases of some families on a device, with those left out.
fn cases(device: &str, only: &[&str]) -> Record {
    let machine = Machine::open(device, Options::default(), true).unwrap();
    let filter = Filter { only: only.iter().map(|w| (*w).to_owned()).collect(), without: Vec::new() };
    run(&[machine], &filter, &Settings::quick(), &mut Quiet)
}

/// Fails with the reasons of all bad cases; the numbers of good ones and those left out.
fn counts(record: &Record) -> (usize, usize) {
    let bad: Vec<String> = record
        .results
        .iter()
        .filter(|r| r.status.is_bad())
        .map(|r| format!("{} {}: {}", r.id, r.status.word(), r.reason.as_deref().unwrap_or_default()))
        .collect();
    assert!(bad.is_empty(), "{} bad:\n{}", bad.len(), bad.join("\n"));
    let count = |status: Status| record.results.iter().filter(|r| r.status == status).count();
    (count(Status::Ok), count(Status::LeftOut))
}

/// Ids of the cases that were left out.
fn left_out(record: &Record) -> Vec<&str> {
    record.results.iter().filter(|r| r.status == Status::LeftOut).map(|r| r.id.as_str()).collect()
}

#[test]
fn all_cases_on_the_cpu() {
    let record = cases("CPU", &[]);
    let (good, _) = counts(&record);
    assert!(good >= 45, "{good} good, left out: {:?}", left_out(&record));
}

#[test]
fn hand_written_kernels_on_a_software_hopper() {
    let record = cases("NV:emu=sm_90", &["arithmetic", "matrix", "latency", "launch"]);
    let (good, _) = counts(&record);
    let left = left_out(&record);
    assert_eq!(left, ["arithmetic/clock"], "{good} good");
}

#[test]
fn memory_and_copies_on_a_software_hopper() {
    let record = cases("NV:emu=sm_90", &["memory", "copies"]);
    counts(&record);
    assert_eq!(left_out(&record), ["memory/triad[bytes=65536,by=asm]"]);
}

#[test]
fn products_and_programs_on_a_software_hopper() {
    let record = cases("NV:emu=sm_90", &["product", "program", "compile"]);
    counts(&record);
    assert_eq!(left_out(&record), [""; 0]);
}

/// Both ways of a wake-up, and memory of the program used in place, exist on every device.
#[test]
fn wake_ups_and_memory_of_the_program_on_every_kind_of_device() {
    for device in ["CPU", "NV:emu=sm_90", "AMD:emu=gfx1100", "METAL:emu"] {
        let record = cases(device, &["launch/wakeup", "copies/wrapped"]);
        counts(&record);
        let by_kernel = left_out(&record).iter().all(|id| id.contains("by=kernel"));
        let has_own = device.starts_with("NV") || device.starts_with("AMD");
        assert_eq!((by_kernel, left_out(&record).len()), (true, if has_own { 0 } else { 2 }), "{device}");
    }
}

#[test]
fn devices_run_the_same_cases_at_the_same_time() {
    let open = |name: &str| Machine::open(name, Options::default(), true).unwrap();
    let machines = [open("CPU"), open("CPU:1"), open("METAL:emu")];
    let filter = Filter { only: vec!["memory/scale".into(), "arithmetic/clock".into()], without: Vec::new() };
    let settings = Settings { is_together: true, passes: 2, ..Settings::quick() };
    let record = run(&machines, &filter, &settings, &mut Quiet);
    counts(&record);
    // Ordered by device, as those of a run in turn; what one device lacks holds up none of the others.
    let reported: Vec<(&str, &str, usize)> =
        record.results.iter().map(|r| (r.device.as_str(), r.case.as_str(), r.samples.len())).collect();
    let all = ["CPU", "CPU:1", "METAL:emu"].map(|d| [(d, "arithmetic/clock"), (d, "memory/scale")]).concat();
    assert_eq!(reported.iter().map(|(device, case, _)| (*device, *case)).collect::<Vec<_>>(), all);
    assert!(reported.iter().filter(|t| t.1 == "memory/scale").all(|t| t.2 == 2), "{reported:?}");
    assert_eq!(record.results[0].together, ["CPU:1", "METAL:emu"]);
    assert_eq!(record.settings["together"], true);
    let alone = run(&machines[..1], &filter, &Settings::quick(), &mut Quiet);
    let compared = compare(&[alone], &record, Limits::default());
    assert!(compared.iter().all(|c| c.judgement == Judgement::Missing), "{compared:?}");
}

#[test]
fn all_cases_on_amds_software_gpus() {
    for device in ["AMD:emu=gfx1100", "AMD:emu=gfx942", "AMD:emu=gfx1201"] {
        let record = cases(device, &["arithmetic", "matrix", "memory", "copies", "launch"]);
        let (good, _) = counts(&record);
        assert!(good >= 40, "{device}: {good} good, left out: {:?}", left_out(&record));
    }
}

#[test]
fn products_on_amds_and_apples_software_gpus() {
    for device in ["AMD:emu=gfx1201", "METAL:emu"] {
        let record = cases(device, &["product", "launch", "memory/read", "arithmetic"]);
        let (good, _) = counts(&record);
        assert!(good >= 10, "{device}: {good} good, left out: {:?}", left_out(&record));
    }
}

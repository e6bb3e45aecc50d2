//! The run on software GPUs of every chip, and its report of a fault at each rung.
#![cfg(target_os = "linux")]

use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Runs the program; returns its exit code and its JSON.
fn climb(dir: &Path, args: &[&str]) -> (i32, Value) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nv-first-contact"));
    let out = command.current_dir(dir).args(args).args(["--json", "--soak", "1"]).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    let last = text.lines().last().unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&out.stderr)));
    println!("{}", String::from_utf8_lossy(&out.stderr));
    (out.status.code().unwrap(), serde_json::from_str(last).unwrap())
}

fn state<'a>(reported: &'a Value, rung: &str) -> &'a str {
    let rungs = reported["rungs"].as_array().unwrap();
    rungs.iter().find(|r| r["rung"] == rung).map_or("absent", |r| r["state"].as_str().unwrap())
}

fn note<'a>(reported: &'a Value, rung: &str) -> &'a str {
    let rungs = reported["rungs"].as_array().unwrap();
    rungs.iter().find(|r| r["rung"] == rung).and_then(|r| r["note"].as_str()).unwrap_or_default()
}

#[test]
fn sm_90_is_climbed_to_the_top_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (code, reported) = climb(dir.path(), &["--emu", "sm_90"]);
    assert_eq!(code, 0, "{reported:#}");
    assert_eq!((reported["reached"].as_u64(), reported["top"].as_bool()), (reported["of"].as_u64(), Some(true)));
    assert!(
        note(&reported, "card").contains("sm_90") && note(&reported, "copy").contains("engine type 0x"),
        "{reported:#}"
    );
    assert!(
        note(&reported, "telemetry").contains("42 C") && note(&reported, "shared").contains("227 KiB"),
        "{reported:#}"
    );
    assert_eq!(reported["not_given_back"], serde_json::json!([]));
    assert!(std::fs::metadata(dir.path().join("nv-first-contact.trace")).unwrap().len() > 10_000);
}

#[test]
fn other_chips_whose_machine_code_runs_in_software_are_climbed_to_the_top() {
    for (chip, most) in [("sm_80", "163 KiB"), ("sm_89", "99 KiB"), ("sm_120", "99 KiB")] {
        let dir = tempfile::tempdir().unwrap();
        let (code, reported) = climb(dir.path(), &["--emu", chip, "--skip", "processes"]);
        assert_eq!((code, reported["failed"].as_array().map(Vec::len)), (0, Some(0)), "{chip}: {reported:#}");
        assert!(
            note(&reported, "shared").contains(most) && note(&reported, "card").contains(chip),
            "{chip}: {reported:#}"
        );
        assert_eq!((state(&reported, "chain"), state(&reported, "soak")), ("ok", "ok"), "{chip}: {reported:#}");
    }
}

#[test]
fn chips_without_machine_code_in_software_are_climbed_as_far_as_methods_go() {
    for chip in ["sm_75", "sm_100"] {
        let dir = tempfile::tempdir().unwrap();
        let (code, reported) = climb(dir.path(), &["--emu", chip]);
        assert_eq!(code, 0, "{chip}: {reported:#}");
        assert_eq!((state(&reported, "compute"), state(&reported, "copy")), ("ok", "ok"), "{chip}: {reported:#}");
        assert_eq!(state(&reported, "launch"), "not tried", "{chip}");
        assert!(note(&reported, "launch").contains(chip), "{reported:#}");
    }
}

/// A planned fault: that rung reports the call with its answer and known causes; the rungs named last run nonetheless.
fn tells(args: &[&str], rung: &str, call: &[&str], cause: &str, still: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let args = [&["--emu", "sm_90", "--skip", "processes", "--skip", "soak"], args].concat();
    let (code, reported) = climb(dir.path(), &args);
    let failed = reported["failed"].as_array().unwrap();
    let story =
        failed.iter().find(|f| f["rung"] == rung).unwrap_or_else(|| panic!("{rung} did not fail: {reported:#}"));
    assert_eq!(code, if rung == "control" { 2 } else { 1 }, "{reported:#}");
    for part in call {
        let seen = format!("{} {} {}", story["call"], story["what"], story["seen"]);
        assert!(seen.contains(part), "{part}: {story:#}");
    }
    assert!(story["causes"].to_string().contains(cause), "{cause}: {story:#}");
    assert!(!story["probes"].as_array().unwrap().is_empty(), "{story:#}");
    for rung in still {
        assert_eq!(state(&reported, rung), "ok", "{rung}: {reported:#}");
    }
    let trace = std::fs::File::open(dir.path().join("nv-first-contact.trace")).unwrap();
    assert!(!doorbell_ioctl::trace::read_trace(trace).unwrap().is_empty(), "the trace is written");
}

#[test]
fn faults_of_files_and_of_the_driver_are_told_by_their_rung() {
    // RM alone serves everything except the rung that calls UVM itself.
    let all = ["control", "card", "memory", "copy", "store", "chain", "tensor", "rm-space", "faults"];
    tells(&["--broken", "no-uvm"], "nodes", &["nvidia-uvm"], "no NVIDIA driver is loaded", &all);
    tells(
        &["--broken", "no-nodes"],
        "uvm",
        &["open(/dev/nvidia-uvm", "-ENOENT", "mknod"],
        "its node is missing",
        &["control"],
    );
    let root = "NV01_ROOT_CLIENT:1:NV_ERR_INSUFFICIENT_PERMISSIONS";
    // The refused client is requested once more, by the runtime.
    tells(&["--fault", root], "control", &["h_class=NV01_ROOT_CLIENT"], "may not make clients", &["uvm"]);
    tells(
        &["--fault", "UVM_INITIALIZE:1:0x1f"],
        "uvm",
        &["UVM_INITIALIZE", "NV_ERR_INVALID_ARGUMENT"],
        "flags",
        &["control"],
    );
    let ids = "GPU_GET_ID_INFO_V2:1:NV_ERR_INVALID_ARGUMENT";
    tells(
        &["--fault", ids],
        "card",
        &["GPU_GET_ID_INFO_V2", "gpu_id="],
        "CARD_INFO was read wrong",
        &["control", "uvm"],
    );
}

#[test]
fn page_tables_of_rm_alone_carry_the_climb_and_their_refusals_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let (code, reported) = climb(dir.path(), &["--emu", "sm_90", "--rm-only", "--skip", "processes", "--skip", "soak"]);
    assert_eq!((code, reported["not_given_back"].clone()), (0, serde_json::json!([])), "{reported:#}");
    assert!(
        note(&reported, "space").contains("by RM alone") && note(&reported, "rm-space").contains("a kernel's constant")
    );
    let range = "NV50_MEMORY_VIRTUAL:1:NV_ERR_INVALID_ARGUMENT";
    tells(
        &["--fault", range],
        "rm-space",
        &["NV50_MEMORY_VIRTUAL", "offset="],
        "offset, rangeLo",
        &["tensor", "faults"],
    );
}

#[test]
fn faults_of_the_card_are_told_by_their_rung() {
    tells(&["--broken", "prohibited"], "facts", &["compute mode"], "nvidia-smi -c 0", &["card", "telemetry"]);
    tells(&["--broken", "mig"], "facts", &["MIG"], "compute mode", &["card"]);
    tells(&["--broken", "confidential"], "card", &["confidential"], "not supported by this design", &["control"]);
    tells(
        &["--fault", "HOPPER_USERMODE_A:1:0x22"],
        "doorbell",
        &["HOPPER_USERMODE_A"],
        "another usermode class",
        &["telemetry"],
    );
    tells(
        &["--fault", "FB_GET_INFO_V2:3:0x56"],
        "telemetry",
        &["how much memory is free"],
        "nothing else depends",
        &["card", "chain"],
    );
    let vaspace = "UVM_REGISTER_GPU_VASPACE:1:0x5d";
    tells(
        &["--fault", vaspace],
        "space",
        &["UVM_REGISTER_GPU_VASPACE"],
        "MM_INITIALIZE has not been done",
        &["telemetry"],
    );
    tells(
        &["--fault", "NV01_MEMORY_LOCAL_USER:1:0x51"],
        "memory",
        &["NV01_MEMORY_LOCAL_USER"],
        "FB_GET_INFO_V2",
        &["space"],
    );
}

#[test]
fn faults_of_channels_are_told_by_their_rung() {
    let channel = "HOPPER_CHANNEL_GPFIFO_A:1:0x1f";
    tells(&["--fault", channel], "channel", &["HOPPER_CHANNEL_GPFIFO_A", "gp_fifo_entries="], "368 bytes", &["copy"]);
    tells(&["--fault", "UVM_REGISTER_CHANNEL:1:0x1e"], "channel", &["UVM_REGISTER_CHANNEL"], "window", &["copy"]);
    let lost = ["--fault", "doorbell:1:lose", "--patience", "3", "--until", "copy"];
    tells(&lost, "host", &["GP_GET 0, GP_PUT 1", "HOST SEM_EXECUTE"], "doorbell does not reach the GPU", &["channel"]);
}

#[test]
fn faults_of_clock_compute_and_copy_are_told_by_their_rung_and_the_others_go_on() {
    tells(&["--broken", "clock", "--until", "copy"], "clock", &["not in ns"], "another unit than ns", &["copy"]);
    // Doorbells one and two are the rung host's, three to five the clock's.
    let silent = "doorbell does not reach the GPU";
    let lost = |nth: &'static str| ["--fault", nth, "--patience", "3", "--until", "copy"];
    let seen = ["a semaphore with its time", "HOST SEM_EXECUTE"];
    tells(&lost("doorbell:3:lose"), "clock", &seen, silent, &["host", "compute", "copy"]);
    let seen = ["a semaphore of the compute engine", "COMPUTE "];
    tells(&lost("doorbell:6:lose"), "compute", &seen, silent, &["clock", "copy"]);
    let seen = ["class and semaphore of the copy engine", "COPY "];
    tells(&lost("doorbell:7:lose"), "copy", &seen, silent, &["clock", "compute"]);
    // Refused on an engine of its own, and on the graphics engine.
    let both = ["--fault", "HOPPER_DMA_COPY_A:1:0x22", "--fault", "HOPPER_DMA_COPY_A:2:0x22", "--until", "copy"];
    tells(&both, "copy", &["HOPPER_DMA_COPY_A"], "refused on this channel", &["compute"]);
}

#[test]
fn events_that_are_refused_or_not_heard_are_told_by_their_rung_and_the_others_go_on() {
    let rest = ["copy", "store", "faults"];
    let refused = "NV01_EVENT_OS_EVENT:1:NV_ERR_NOT_SUPPORTED";
    tells(
        &["--fault", refused],
        "events",
        &["NV01_EVENT_OS_EVENT", "notify_index=0x18000023"],
        "does not have it",
        &rest,
    );
    let unheard = ["--broken", "interrupts", "--patience", "2"];
    tells(&unheard, "events", &["woke nobody"], "interrupts do not reach", &rest);
}

/// Rungs of kernels that none below needs.
const ASIDE: [&str; 16] = [
    "--skip", "shared", "--skip", "local", "--skip", "globals", "--skip", "chain", "--skip", "clusters", "--skip",
    "bulk", "--skip", "tensor", "--skip", "map",
];

#[test]
fn faults_of_other_processes_and_of_the_long_run_are_told_by_their_rung() {
    let run = |rest: &[&str]| {
        let dir = tempfile::tempdir().unwrap();
        climb(dir.path(), &[&["--emu", "sm_90"], &ASIDE[..], rest].concat())
    };
    // Parts whose first grid is lost: the fault that was to come does not, numbers are wrong.
    let parts =
        [("faults", "wild/grid:1:lose", "nothing happened"), ("faults", "loop/grid:1:lose", "nothing happened")];
    for (rung, fault, said) in [&parts[..], &[("processes", "work/grid:1:lose", "came back wrong")]].concat() {
        let other = if rung == "faults" { "processes" } else { "faults" };
        let (code, reported) = run(&["--skip", other, "--skip", "soak", "--fault", fault]);
        let story = story(&reported, rung);
        assert!(code == 1 && story.contains(said), "{fault}: {story}");
        assert_eq!(state(&reported, "ids"), "ok", "{reported:#}");
    }
    let quiet = ["--skip", "faults", "--skip", "processes"];
    let (code, reported) = run(&quiet);
    assert_eq!(code, 0, "{reported:#}");
    let rows = reported["rungs"].as_array().unwrap();
    let grids = rows.iter().find(|r| r["rung"] == "soak").and_then(|r| r["grids"].as_u64()).unwrap();
    let lost = format!("grid:{}:lose", grids + 1);
    let (code, reported) = run(&[&quiet[..], &["--fault", &lost]].concat());
    let story = story(&reported, "soak");
    assert!(code == 1 && story.contains("round 0 of seed") && story.contains("missing fence"), "{story}");
}

#[test]
fn faults_of_the_runtime_are_told_by_their_rung_and_the_next_rungs_open_the_card_anew() {
    // The third group is the runtime's: the first two are the ladder's own.
    let group = "KEPLER_CHANNEL_GROUP_A:3:0x40";
    tells(&["--fault", group, "--until", "launch"], "launch", &["KEPLER_CHANNEL_GROUP_A"], "MIG", &["copy"]);
}

/// The message of a failed rung, and the report with it.
fn story(reported: &Value, rung: &str) -> String {
    let failed = reported["failed"].as_array().unwrap();
    failed.iter().find(|f| f["rung"] == rung).unwrap_or_else(|| panic!("{rung} did not fail: {reported:#}")).to_string()
}

#[test]
fn grids_that_are_lost_or_fail_are_told_by_their_rung_and_the_others_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let rungs = ["--emu", "sm_90", "--skip", "processes", "--skip", "soak", "--skip", "faults"];
    let (code, reported) = climb(dir.path(), &rungs);
    assert_eq!(code, 0, "{reported:#}");
    // How many grids the card had run when a rung began.
    let grids = |rung: &str| {
        let all = reported["rungs"].as_array().unwrap();
        all.iter().find(|r| r["rung"] == rung).and_then(|r| r["grids"].as_u64()).unwrap()
    };
    // The first grid of each rung; most rungs end with the first result that is wrong, a chain after ten of its eleven
    // replays, clusters run whole.
    let (first, chain) = (grids("ids") + 1, (grids("clusters") - grids("chain")) / 11 * 10);
    let clusters = first + 4 + chain;
    let planned = [
        ("ids", first, "lose", "numbers of a grid"),
        ("shared", first + 1, "lose", "shared memory across barriers"),
        // The device is dead after it; the next rung opens the card again.
        ("local", first + 2, "fail", "channel error 13"),
        ("globals", first + 3, "lose", "a constant table"),
        ("chain", first + 4, "lose", "a chain, ten times"),
        ("clusters", clusters, "lose", "ptxas's own kernels"),
        ("bulk", clusters + 3, "lose", "4 KiB to shared memory"),
        ("tensor", clusters + 4, "lose", "a box of a tensor"),
        ("map", clusters + 5, "lose", "a box at column 8, row 4"),
    ];
    let faults: Vec<String> = planned.iter().map(|(_, n, trouble, _)| format!("grid:{n}:{trouble}")).collect();
    let faults: Vec<&str> = faults.iter().flat_map(|f| ["--fault", f.as_str()]).collect();
    let (code, reported) = climb(dir.path(), &[&rungs[..], &faults].concat());
    assert_eq!((code, state(&reported, "store")), (1, "ok"), "{reported:#}");
    for (rung, _, _, what) in planned {
        let story = story(&reported, rung);
        assert!(story.contains(what), "{rung}, {what}: {story}");
    }
    let lost = format!("grid:{}:lose", grids("store") + 1);
    let (code, reported) = climb(dir.path(), &[&rungs[..], &["--fault", &lost]].concat());
    assert!(code == 1 && story(&reported, "store").contains("a constant: word 0 is 0x0, not 0x600d"), "{reported:#}");
    assert_eq!((state(&reported, "launch"), state(&reported, "ids")), ("ok", "not tried"), "{reported:#}");
}

#[test]
fn a_machine_without_a_card_is_told_what_it_lacks() {
    if Path::new("/dev/nvidiactl").exists() {
        println!("SKIP: this machine has a driver");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (code, reported) = climb(dir.path(), &[]);
    assert_eq!(code, 2);
    let failed = reported["failed"].as_array().unwrap();
    let control = failed.iter().find(|f| f["rung"] == "control").unwrap();
    assert_eq!(control["answer"].as_str(), Some("ENOENT"));
    let missing = control["missing"].to_string();
    assert!(missing.contains("module nvidia is not loaded") && missing.contains("PCI bus"), "{missing}");
    assert_eq!(state(&reported, "card"), "not tried");
}

#[test]
fn wrong_arguments_are_told_before_anything_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let wrong: [&[&str]; 8] = [
        &["--emu", "sm_90", "--fault", "play/grid:1:lose"],
        &["--until", "moon"],
        &["--device", "CPU"],
        &["--fault", "open"],
        &["--emu", "sm_90", "--fault", "NO_SUCH:1:0x1f"],
        &["--emu", "sm_30"],
        &["--broken", "no-uvm"],
        &["--emu", "sm_90", "--broken", "all"],
    ];
    for args in wrong {
        let out =
            Command::new(env!("CARGO_BIN_EXE_nv-first-contact")).current_dir(dir.path()).args(args).output().unwrap();
        assert_eq!(out.status.code(), Some(3), "{args:?}");
    }
}

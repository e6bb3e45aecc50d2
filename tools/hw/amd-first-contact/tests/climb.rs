//! The run on every software GPU, and its possible ends: a refused call, a lost doorbell, a machine without a card.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::Command;

/// Runs the program; returns its exit code and its JSON.
fn climb(dir: &Path, args: &[&str]) -> (i32, serde_json::Value) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_amd-first-contact"));
    let out = command.current_dir(dir).args(args).args(["--json", "--soak", "1"]).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    let last = text.lines().last().unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&out.stderr)));
    println!("{}", String::from_utf8_lossy(&out.stderr));
    (out.status.code().unwrap(), serde_json::from_str(last).unwrap())
}

fn top_of(chip: &str) {
    let dir = tempfile::tempdir().unwrap();
    let (code, reported) = climb(dir.path(), &["--device", &format!("AMD:emu={chip}")]);
    assert_eq!(code, 0, "{reported:#}");
    assert_eq!((reported["reached"].as_u64(), reported["top"].as_bool()), (reported["of"].as_u64(), Some(true)));
    let names: Vec<&str> = reported["rungs"].as_array().unwrap().iter().map(|r| r["rung"].as_str().unwrap()).collect();
    assert_eq!(names.first().zip(names.last()), Some((&"driver", &"soak")));
    let note = |n: usize| reported["rungs"][n]["note"].as_str().unwrap().to_string();
    assert!(note(1).contains(chip) && note(1).contains("save area as computed"), "{}", note(1));
    assert!(std::fs::metadata(dir.path().join("amd-first-contact.trace")).unwrap().len() > 10_000);
}

#[test]
fn gfx1100_is_climbed_to_the_top() {
    top_of("gfx1100");
}

#[test]
fn gfx942_is_climbed_to_the_top() {
    top_of("gfx942");
}

#[test]
fn gfx1201_is_climbed_to_the_top() {
    top_of("gfx1201");
}

/// A planned fault: the climb ends at that rung, with the call and what is known.
fn stops(fault: &str, rung: &str, call: &[&str], cause: &str) {
    let dir = tempfile::tempdir().unwrap();
    let (code, reported) = climb(dir.path(), &["--device", "AMD:emu=gfx1100", "--fault", fault]);
    let failed = &reported["failed"];
    assert_eq!(failed["rung"], rung, "{reported:#}");
    assert_eq!(code, if matches!(rung, "driver" | "topology") { 2 } else { 1 });
    for part in call {
        assert!(failed["call"].as_str().unwrap_or_default().contains(part), "{part}: {failed:#}");
    }
    let causes: Vec<&str> = failed["causes"].as_array().unwrap().iter().filter_map(|c| c.as_str()).collect();
    assert!(causes.iter().any(|c| c.contains(cause)), "{causes:?}");
    let trace = std::fs::File::open(dir.path().join("amd-first-contact.trace")).unwrap();
    assert!(!doorbell_ioctl::trace::read_trace(trace).unwrap().is_empty(), "the trace is written");
}

#[test]
fn refused_calls_end_the_climb_at_their_rung_with_what_was_sent_and_answered() {
    stops("open:1:EACCES", "driver", &["open(/dev/kfd", "-EACCES"], "not in the group");
    stops("acquire_vm:1:EBUSY", "acquire", &["ACQUIRE_VM(drm_fd=", "gpu_id=", "= -EBUSY"], "another render file");
    stops(
        "alloc_memory_of_gpu:4:ENOMEM",
        "memory",
        &["ALLOC_MEMORY_OF_GPU(va_addr=", "flags=", "= -ENOMEM"],
        "VRAM is full",
    );
    let sent = ["CREATE_QUEUE(ring_base_address=0x", "ctl_stack_size=0xa000", "queue_type=", "= -EINVAL"];
    stops("create_queue:3:EINVAL", "queues", &sent, "exactly the size");
}

#[test]
fn a_call_that_is_refused_unnoticed_ends_the_climb_too() {
    stops("destroy_queue:2:ETIME", "queues", &["DESTROY_QUEUE(queue_id=", "= -ETIME"], "did not preempt");
}

#[test]
fn a_machine_without_a_card_is_told_what_it_lacks() {
    if Path::new("/dev/kfd").exists() {
        println!("SKIP: this machine has a driver");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (code, reported) = climb(dir.path(), &[]);
    assert_eq!(code, 2);
    let failed = &reported["failed"];
    assert_eq!((failed["rung"].as_str(), failed["errno"].as_str()), (Some("driver"), Some("ENOENT")));
    let missing = failed["missing"].to_string();
    assert!(missing.contains("/dev/kfd does not exist") && missing.contains("PCI bus"), "{missing}");
}

#[test]
fn wrong_arguments_are_told_before_anything_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    for args in [&["--until", "moon"][..], &["--device", "CPU"], &["--fault", "open"], &["--device", "AMD:emu=gfx900"]]
    {
        let out =
            Command::new(env!("CARGO_BIN_EXE_amd-first-contact")).current_dir(dir.path()).args(args).output().unwrap();
        assert_eq!(out.status.code(), Some(3), "{args:?}");
    }
}

//! `doorbell trace`: a run's calls of the driver are written, shown and counted.

use crate::{code, doorbell, err, json, run, temp};

#[test]
fn calls_of_a_command_are_written_and_shown() {
    let t = temp();
    std::fs::write(t.path().join("none.co"), b"no object").unwrap();
    let words = ["--device", "AMD:emu=gfx1100", "trace", "--out", "t.trace", "launch", "none.co", "--kernel", "k"];
    let o = doorbell(t.path(), &words).output().unwrap();
    // The command's own failure is the tracer's.
    assert_eq!(code(&o), 1, "{}", err(&o));
    assert!(err(&o).contains("kernel k cannot be loaded"), "{}", err(&o));
    let o = run(t.path(), &["trace", "--show", "t.trace", "--json"]);
    assert_eq!(code(&o), 0, "{}", err(&o));
    for line in
        ["open(/dev/kfd, READ|WRITE|CLOEXEC)", "AMDKFD_IOC_CREATE_QUEUE(ring_base_address=0x", "queue_type=COMPUTE"]
    {
        assert!(err(&o).contains(line), "{line} in {}", err(&o));
    }
    assert!(json(&o, &["open_at_end"])["calls"].as_u64().unwrap() > 20);
}

#[test]
fn file_that_is_no_trace_is_2_and_nothing_to_trace_is_3() {
    let t = temp();
    std::fs::write(t.path().join("x"), b"something else").unwrap();
    let o = run(t.path(), &["trace", "--show", "x"]);
    assert_eq!(code(&o), 2);
    assert!(err(&o).contains("x: not a trace"), "{}", err(&o));
    assert_eq!(code(&run(t.path(), &["trace", "--show", "absent"])), 2);
    assert_eq!(code(&run(t.path(), &["trace"])), 3);
}

#[test]
fn an_earlier_runs_trace_is_not_shown_as_this_ones() {
    let t = temp();
    std::fs::write(t.path().join("doorbell.trace"), b"something older").unwrap();
    let o = run(t.path(), &["--json", "trace", "devices"]);
    assert_eq!(code(&o), 0, "{}", err(&o));
    assert_eq!(json(&o, &["calls"])["open_at_end"].as_array().map(Vec::len), Some(0));
    // A command that leaves no trace reports that, whatever file was there before.
    std::fs::write(t.path().join("doorbell.trace"), b"something older").unwrap();
    let o = run(t.path(), &["trace", "launch", "--jobs", "absent.json", "--wrong"]);
    assert_eq!(code(&o), 1, "{}", err(&o));
    assert!(err(&o).contains("has left no trace"), "{}", err(&o));
}

#[test]
fn a_commands_own_error_counts_more_than_its_traces() {
    let t = temp();
    std::fs::write(t.path().join("k.co"), b"no object").unwrap();
    let words = ["--trace", "/dev/full", "--device", "AMD:emu=gfx1100", "launch", "k.co", "--kernel", "wrong"];
    let o = doorbell(t.path(), &words).output().unwrap();
    assert_eq!(code(&o), 3, "{}", err(&o));
    assert!(
        err(&o).contains("kernel wrong cannot be loaded") && err(&o).contains("the trace ends early"),
        "{}",
        err(&o)
    );
}

const TWICE: &str = "#include <metal_stdlib>
using namespace metal;
kernel void twice(device float* data [[buffer(0)]], uint i [[thread_position_in_grid]]) { data[i] *= 2; }";

#[test]
fn messages_to_metal_are_recorded_shown_and_replayed() {
    let t = temp();
    std::fs::write(t.path().join("k.metal"), TWICE).unwrap();
    std::fs::write(t.path().join("in"), [1.0_f32, 2.0, 3.0, 4.0].map(f32::to_le_bytes).concat()).unwrap();
    let traced = ["--device", "METAL:emu=apple8", "trace", "--memory", "--out", "t.trace"];
    let launch = ["launch", "k.metal", "--kernel", "twice", "--block", "4", "--arg", "inout:in:out"];
    let o = run(t.path(), &[&traced[..], &launch[..]].concat());
    assert_eq!(code(&o), 0, "{}", err(&o));
    let out = std::fs::read(t.path().join("out")).unwrap();
    assert_eq!(out, [2.0_f32, 4.0, 6.0, 8.0].map(f32::to_le_bytes).concat());
    let o = run(t.path(), &["--json", "trace", "--show", "t.trace"]);
    assert_eq!(code(&o), 0, "{}", err(&o));
    for line in ["MTLCreateSystemDefaultDevice() = 0x", "supportsFamily: 1008] = 1", "commit]", " bytes computed"] {
        assert!(err(&o).contains(line), "{line} in {}", err(&o));
    }
    let o = run(t.path(), &["--json", "replay", "t.trace", "--port", "emu"]);
    assert_eq!(code(&o), 0, "{}", err(&o));
    let reported = json(&o, &["calls", "doorbells", "timeouts", "differences"]);
    assert_eq!((&reported["timeouts"], reported["differences"].as_array().map(Vec::len)), (&0.into(), Some(0)));
    // Another chip answers otherwise.
    let o = run(t.path(), &["--json", "replay", "t.trace", "--port", "emu", "--chip", "apple7"]);
    assert_eq!(code(&o), 1, "{}", err(&o));
    assert!(err(&o).contains("supportsFamily:: 1 then, 0 now"), "{}", err(&o));
    let o = run(t.path(), &["replay", "t.trace", "--port", "real"]);
    assert_eq!(code(&o), 2, "{}", err(&o));
    assert!(err(&o).contains("Metal is not on this system"), "{}", err(&o));
}

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

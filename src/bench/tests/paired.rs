//! Two programs in turns, with programs that print made-up records.

use doorbell_bench::compare::{Comparison, Judgement, Limits, fails};
use doorbell_bench::paired::{self, PairedError, Side, Watch};
use std::path::Path;

/// Observes nothing.
struct Quiet;
impl Watch for Quiet {}

/// A record of cases: id, status, nanoseconds of its samples.
fn record(cases: &[(&str, &str, f64)]) -> String {
    let results = cases.iter().map(|(id, status, ns)| {
        let samples = if *status == "ok" { vec![vec![*ns, ns * 1.01, ns * 1.02]] } else { vec![] };
        serde_json::json!({
            "device": "CPU", "id": id, "case": id, "parameters": {}, "status": status,
            "reason": (*status != "ok").then_some("it broke"), "unit": "ns", "value": ns, "work": 1.0, "clock": "host",
            "ns": null, "runs": 1, "samples": samples, "throttled": 0, "clock_mhz": null, "made_ns": 0, "ended": "",
            "telemetry": null,
        })
    });
    let results: Vec<_> = results.collect();
    let record = serde_json::json!({
        "schema": 1, "version": "0", "unix_time": 0, "host": {"name": "", "kernel": "", "cpu": "", "cores": 1},
        "settings": {}, "devices": [], "results": results, "seconds": 0.0,
    });
    record.to_string()
}

/// A program that counts its runs in `log` and prints the record.
fn program(dir: &Path, name: &str, cases: &[(&str, &str, f64)]) -> Side {
    let file = dir.join(name);
    std::fs::write(&file, record(cases)).unwrap();
    let script = format!("echo {name} >> {}; cat {}", dir.join("log").display(), file.display());
    Side { program: "sh".into(), arguments: vec!["-c".into(), script, "sh".into()] }
}

fn find<'a>(all: &'a [Comparison], id: &str) -> &'a Comparison {
    all.iter().find(|c| c.id == id).unwrap_or_else(|| panic!("{id} in {all:?}"))
}

#[test]
fn each_case_is_judged_and_turns_alternate() {
    let dir = tempfile::tempdir().unwrap();
    let before = [
        ("same", "ok", 100.0),
        ("slower", "ok", 100.0),
        ("faster", "ok", 100.0),
        ("breaks", "ok", 100.0),
        ("mended", "wrong", 0.0),
        ("gone", "ok", 1.0),
        ("nowhere", "left_out", 0.0),
    ];
    let now = [
        ("same", "ok", 100.5),
        ("slower", "ok", 103.0),
        ("faster", "ok", 97.0),
        ("breaks", "wrong", 0.0),
        ("mended", "ok", 100.0),
        ("new", "ok", 1.0),
        ("nowhere", "left_out", 0.0),
    ];
    let sides = [program(dir.path(), "before", &before), program(dir.path(), "now", &now)];
    let all = paired::run([&sides[0], &sides[1]], &[], 48, Limits::default(), &mut Quiet).unwrap();
    let judgement = |id: &str| find(&all, id).judgement;
    assert_eq!(judgement("same"), Judgement::Same);
    assert_eq!(judgement("slower"), Judgement::Slower);
    assert_eq!(judgement("faster"), Judgement::Faster);
    assert_eq!(judgement("breaks"), Judgement::Broken);
    for id in ["mended", "gone", "new"] {
        assert_eq!(judgement(id), Judgement::Missing, "{id}");
    }
    assert!(all.iter().all(|c| c.id != "nowhere") && fails(&all));
    assert!((find(&all, "slower").ratio.unwrap() - 1.03).abs() < 1e-9);
    assert_eq!(find(&all, "breaks").reason.as_deref(), Some("it broke"));
    // Twelve pairs were enough, and every other one began with the newer program.
    let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
    let order: Vec<&str> = log.lines().collect();
    assert_eq!((order.len(), &order[..4]), (24, &["before", "now", "now", "before"][..]));
}

#[test]
fn few_pairs_are_unclear_and_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let sides = [program(dir.path(), "a", &[("x", "ok", 1.0)]), program(dir.path(), "b", &[("x", "ok", 2.0)])];
    let all = paired::run([&sides[0], &sides[1]], &[], 3, Limits::default(), &mut Quiet).unwrap();
    assert_eq!((all[0].judgement, all[0].interval), (Judgement::Unclear, None));
    assert_eq!((all[0].ratio, all[0].reason.as_deref()), (Some(2.0), Some("3 pairs are too few")));
}

#[test]
fn a_program_that_is_none_or_says_something_else_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let good = program(dir.path(), "good", &[("x", "ok", 1.0)]);
    let said = |side: &Side| {
        paired::run([side, &good], &[], 12, Limits::default(), &mut Quiet).map(|_| ()).map_err(|e| e.to_string())
    };
    let gone = Side { program: dir.path().join("gone"), arguments: vec![] };
    assert!(said(&gone).unwrap_err().contains("gone: it could not be started"), "{:?}", said(&gone));
    let script = "echo no record; echo the reason >&2; exit 3";
    let other = Side { program: "sh".into(), arguments: vec!["-c".into(), script.into()] };
    let text = said(&other).unwrap_err();
    assert!(text.contains("sh: its last line is no record") && text.ends_with("it said: the reason"), "{text}");
    let empty = program(dir.path(), "empty", &[]);
    let none = paired::run([&empty, &empty], &[], 12, Limits::default(), &mut Quiet);
    assert!(matches!(none, Err(PairedError::NoCase)));
}

//! Reports and comparisons of records whose numbers are known.

use crate::report::{KernelTime, report};
use crate::{Events, Kernel, Label, LabelKind, Limit, Part, Record, VERSION, diff};

/// Two queues and the host: (track, kernel or host, start, length, submission).
fn record(rows: &[(u32, Option<usize>, u64, u64, u32)]) -> Record {
    let kernel = |name: &str| Kernel {
        name: name.into(),
        key: name.into(),
        device: "CPU".into(),
        flops: 2000,
        unique_bytes: 1000,
        ..Kernel::default()
    };
    let mut r = Record { version: VERSION, kernels: vec![kernel("a"), kernel("b")], ..Record::default() };
    let label = |k: usize| Label { text: k.to_string(), kind: LabelKind::Kernel, kernel: Some(k), bytes: 0 };
    let mut e = Events { tracks: ["q", "r", "schedule"].map(str::to_owned).to_vec(), ..Events::default() };
    e.labels = vec![label(0), label(1), Label::default()];
    let mut last = 0;
    for (track, kernel, start, length, batch) in rows {
        e.track.push(*track);
        e.label.push(kernel.unwrap_or(2) as u32);
        e.start.push(start - last);
        e.length.push(*length);
        e.batch.push(*batch);
        last = *start;
    }
    r.parts = vec![Part::of("events", &e)];
    r
}

#[test]
fn a_report_has_times_rates_and_parts_of_the_roofline() {
    let mut r =
        record(&[(2, None, 0, 50, 0), (0, Some(0), 100, 100, 1), (0, Some(0), 200, 300, 1), (0, Some(1), 500, 100, 2)]);
    r.limits = vec![Limit { device: "CPU".into(), gflops: 20.0, gbytes: 5.0, how: String::new() }];
    let got = report(&r).unwrap();
    let a = &got.kernels[0];
    assert_eq!((a.name.as_str(), a.launches, a.ns, a.fastest_ns), ("a", 2, 400, 100));
    assert_eq!((a.share, a.gflops, a.gbytes), (0.8, 10.0, 5.0));
    // 2000 operations take 100 ns at least, 1000 bytes 200 ns.
    assert_eq!(a.roofline, Some(1.0));
    assert_eq!((got.host[0].name.as_str(), got.host[0].count, got.host[0].ns), ("schedule", 1, 50));
    let json = got.to_json();
    assert_eq!((&json["kernels"][1]["name"], &json["kernels"][1]["ns"]), (&"b".into(), &100.into()));
    assert!(got.to_text(1).contains("and 1 more kernels"), "{}", got.to_text(1));
}

#[test]
fn idle_time_is_of_the_host_of_other_queues_or_between_launches() {
    // q: runs, 10 between launches, runs; then waits 100, of which r works 40.
    let r =
        record(&[(0, Some(0), 0, 50, 1), (0, Some(0), 60, 40, 1), (1, Some(1), 120, 40, 2), (0, Some(0), 200, 10, 3)]);
    let queues = report(&r).unwrap().queues;
    let q = queues.iter().find(|q| q.name == "q").unwrap();
    assert_eq!((q.busy_ns, q.launch_ns, q.dependency_ns, q.host_ns), (100, 10, 40, 60));
    assert_eq!(queues.len(), 2, "the host is no queue");
}

#[test]
fn kernels_of_two_runs_are_paired_by_graph_then_by_name() {
    let time = |name: &str, key: &str, ns: u64| KernelTime {
        name: name.into(),
        key: key.into(),
        device: "CPU".into(),
        launches: 1,
        ns,
        ..KernelTime::default()
    };
    let of = |kernels: Vec<KernelTime>| crate::report::Report { kernels, ..Default::default() };
    let before = of(vec![time("x", "1", 100), time("same", "2", 50), time("gone", "3", 5)]);
    let after = of(vec![time("y", "1", 250), time("same", "4", 50), time("new", "5", 7)]);
    let pairs = diff::diff(&before, &after);
    assert_eq!((pairs.len(), pairs[0].ratio(), pairs[0].change_ns()), (4, Some(2.5), 150));
    let text = diff::to_text(&pairs, 9);
    for words in ["x 2.50", "new", "gone", "x 1.00"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn damaged_events_and_parts_are_errors_or_left_out() {
    let mut r = record(&[(0, Some(0), 0, 50, 1)]);
    let e = Events {
        track: vec![9, 0],
        label: vec![0, 77],
        start: vec![u64::MAX, 5],
        length: vec![1, 1],
        ..Events::default()
    };
    r.parts = vec![Part::of("events", &e)];
    assert_eq!(report(&r).unwrap().kernels.len(), 0);
    r.parts = vec![Part { name: "events".into(), bytes: vec![1, 2, 3] }];
    assert!(report(&r).unwrap_err().to_string().starts_with("part events: "));
}

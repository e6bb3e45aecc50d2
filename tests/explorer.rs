//! The record of a session: lines, graphs, reasons, rewrites, code, times and memory of a program that is known.

use doorbell::engine::{Jit, Options, Session};
use doorbell::explorer::{Code, Events, ItemKind, LabelKind, PlanGraph, Record, page, read};
use doorbell::tensor::prelude::*;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Options that record.
fn recording(page: &Path) -> Options {
    Options { viz: Some(page.into()), device: "CPU".into(), ..Options::default() }
}

/// What a session that records knows after `f`.
fn record(f: impl FnOnce()) -> Record {
    let dir = tempfile::tempdir().unwrap();
    let s = Session::open(recording(&dir.path().join("run.html"))).unwrap();
    {
        let _in_it = s.enter();
        f();
    }
    s.finish().unwrap();
    s.record().unwrap()
}

/// A line of a mean, another of a softmax's kind of sum.
fn program() {
    let x = Tensor::rand([64, 32]);
    let y = (&x * 2.0).exp();
    let z = y.sum(1) + 1.0;
    assert!(z.matmul(&Tensor::rand([64, 8])).to_vec::<f32>().unwrap().iter().all(|v| v.is_finite()));
}

#[test]
fn a_record_leads_from_the_line_to_the_instruction_and_back() {
    let r = record(program);
    let line = r.lines.iter().position(|l| l.op == "exp" && l.file.ends_with("tests/explorer.rs")).expect("a line");
    assert!(r.lines[line].text.contains("(&x * 2.0).exp()"), "{:?}", r.lines[line]);
    let has_line = |p: &doorbell::explorer::Plan| p.items.iter().position(|i| i.lines.contains(&line));
    let (plan, item) = r.plans.iter().enumerate().find_map(|(p, plan)| Some((p, has_line(plan)?))).expect("an item");
    let ItemKind::Kernel(kernel) = r.plans[plan].items[item].kind else { panic!("a copy") };
    // The graph's node of that line is computed by that item.
    let graph: PlanGraph = r.part(&format!("plan:{plan}")).unwrap().unwrap();
    let node = graph.line.iter().position(|l| *l == line + 1).expect("a node");
    assert!(graph.items[node].contains(&item), "{:?}", graph.items);
    // The kernel has passes, rules with their place, a program and code.
    let code: Code = r.part(&format!("kernel:{kernel}")).unwrap().unwrap();
    let stages: Vec<&str> = code.stages.iter().map(|s| s.0.as_str()).collect();
    assert_eq!((stages[0], *stages.last().unwrap()), ("kernel graph", "before linearising"));
    assert_eq!(code.steps.rule.len(), r.kernels[kernel].steps);
    assert!(!code.steps.rule.is_empty() && code.list.len() == r.kernels[kernel].uops);
    let rule = &r.rules[code.steps.rule[0]];
    let (file, number) = rule.place.rsplit_once(':').expect("a place");
    let source = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    let defined = source.lines().nth(number.parse::<usize>().unwrap() - 1).unwrap();
    let near: String = source.lines().skip(number.parse::<usize>().unwrap() - 1).take(3).collect();
    assert!(near.contains(&format!("\"{}\"", rule.name)), "{}: {defined}", rule.name);
    assert!(code.listing.contains("ret") && code.program.starts_with("void "), "{}", code.listing);
    // Its launch was timed, and its buffers are known.
    let events: Events = r.part("events").unwrap().unwrap();
    let label = events.labels.iter().position(|l| l.kernel == Some(kernel)).expect("a label");
    assert!(events.label.iter().any(|l| *l as usize == label));
    let buffer = *r.plans[plan].items[item].buffers.first().expect("a buffer");
    assert!(r.buffers[buffer].users.contains(&(plan, item)) && r.buffers[buffer].bytes > 0);
}

#[test]
fn what_is_apart_has_a_reason_and_what_is_fused_has_its_values() {
    let r = record(program);
    let items: Vec<_> = r.plans.iter().flat_map(|p| &p.items).collect();
    let cuts: Vec<&String> = items.iter().flat_map(|i| &i.cuts).map(|c| &c.1).collect();
    assert!(!cuts.is_empty() && cuts.iter().all(|c| c.len() > 20), "{cuts:?}");
    assert!(items.iter().any(|i| i.values[0] > i.values[1] && i.values[1] == 1), "{items:?}");
}

#[test]
fn every_replay_is_timed_and_nothing_runs_one_by_one() {
    const REPLAYS: u64 = 20;
    let r = record(|| {
        let mut f = Jit::new(|x: &[Tensor]| vec![(&x[0] * 2.0).sum(1), x[0].exp().contiguous()]);
        for k in 0..REPLAYS + 2 {
            let x = Tensor::full([64, 32], k as f32 / 100.0).contiguous();
            f.call(&[x]).unwrap()[0].to_vec::<f32>().unwrap();
        }
    });
    let events: Events = r.part("events").unwrap().unwrap();
    let launches: usize = events.label.iter().filter(|l| events.labels[**l as usize].kind == LabelKind::Kernel).count();
    let launched = r.counters["kernels"];
    assert_eq!((launches as u64, r.notes.len()), (launched, 0), "{:?}", r.notes);
    assert!(launched > REPLAYS);
    // Commands of one list belong to one submission.
    let batches: std::collections::HashSet<u32> = events.batch.iter().copied().collect();
    assert!(batches.len() < launches, "{} submissions of {launches} launches", batches.len());
    let replays = events.tracks.iter().position(|t| t == "replay").expect("the host's replays");
    assert_eq!(events.track.iter().filter(|t| **t as usize == replays).count() as u64, REPLAYS);
}

#[test]
fn a_search_leaves_its_candidates() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { beam: 1, cache_dir: None, ..recording(&dir.path().join("run.html")) };
    let s = Session::open(options).unwrap();
    let in_it = s.enter();
    (Tensor::rand([256]) + 1.0).realize().unwrap();
    drop(in_it);
    let r = s.record().unwrap();
    let k = r.kernels.iter().position(|k| k.candidates > 1).expect("a search");
    let code: Code = r.part(&format!("kernel:{k}")).unwrap().unwrap();
    assert!(code.candidates.len() == r.kernels[k].candidates && code.candidates.iter().any(|c| c.ns > 0));
}

/// Products put tiles into workgroup memory, laid out so that few threads of a wave want the same bank.
#[cfg(all(feature = "nv", feature = "emu"))]
#[test]
fn accesses_of_workgroup_memory_have_their_bank_conflicts() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { device: "NV:emu=sm_90".into(), ..recording(&dir.path().join("run.html")) };
    let s = Session::open(options).unwrap();
    let in_it = s.enter();
    Tensor::rand([128, 128]).matmul(&Tensor::rand([128, 128])).realize().unwrap();
    drop(in_it);
    let r = s.record().unwrap();
    let k = r.kernels.iter().position(|k| k.local_bytes > 0).expect("a kernel with tiles");
    let code: Code = r.part(&format!("kernel:{k}")).unwrap().unwrap();
    assert!(code.banks.len() > 1, "{}", code.program);
    assert!(code.banks.iter().all(|(at, ways)| *at < code.list.len() && (1..=4).contains(ways)), "{:?}", code.banks);
}

#[test]
fn without_the_option_there_is_no_record() {
    let s = Session::open(Options { device: "CPU".into(), ..Options::default() }).unwrap();
    let _in_it = s.enter();
    program();
    assert!(s.record().is_none() && s.profile.is_empty());
}

#[test]
fn child_computes_and_sleeps() {
    if std::env::var_os("EXPLORER_CHILD").is_some() {
        program();
        println!("computed");
        std::thread::sleep(Duration::from_secs(60));
    }
}

/// A program that Ctrl-C ends leaves its files, and ends as it would have without them.
#[cfg(target_os = "linux")]
#[test]
fn an_interrupted_program_leaves_its_trace_and_its_page() {
    use std::os::unix::process::ExitStatusExt;
    let dir = tempfile::tempdir().unwrap();
    let [page, trace]: [PathBuf; 2] = ["run.html", "trace.json"].map(|name| dir.path().join(name));
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child_computes_and_sleeps", "--nocapture"]).env("EXPLORER_CHILD", "1");
    command.env("VIZ", &page).env("PROFILE", &trace).env("DEV", "CPU").stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("computed") {
        line.clear();
        assert_ne!(std::io::BufRead::read_line(&mut said, &mut line).unwrap(), 0, "it ended before");
    }
    let began = Instant::now();
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(2), "{status:?}");
    assert!(began.elapsed() < Duration::from_secs(50));
    assert!(std::fs::read_to_string(&trace).unwrap().contains("traceEvents"));
    let record = read::record(&std::fs::read_to_string(&page).unwrap()).unwrap();
    assert!(record.kernels.len() > 1 && record.lines.iter().any(|l| l.op == "exp"));
}

#[test]
fn the_page_is_one_file_that_names_its_scripts() {
    let text = page::html(&record(program), None);
    assert!(text.contains("default-src 'none'; script-src 'sha256-"), "a policy");
    // The one address is the name of SVG's elements.
    for (word, times) in
        [("http://", 1), ("http://www.w3.org/2000/svg", 1), ("https://", 0), ("src=\"", 0), ("<link", 0)]
    {
        assert_eq!(text.matches(word).count(), times, "{word}");
    }
}

//! The page in a browser: a run with hostile names, a large run, and the page's functions.

mod browser;
mod data;

use crate::{
    Buffer, Calls, Candidate, Code, Events, Graph, Item, ItemKind, Kernel, Label, LabelKind, Limit, Line, NodeSource,
    Nodes, Part, Plan, PlanGraph, Realize, Record, RuleLine, Run, Steps, VERSION, page, read,
};
use browser::{Browser, walk};
use std::path::PathBuf;

const HOSTILE: &[&str] = &[
    "<img src=x onerror=\"window.hacked=1\">",
    "</script><script>window.hacked=1</script>",
    "\"><svg onload=window.hacked=1>",
    "javascript:window.hacked=1//${window.hacked=1}`'",
    "<iframe src=https://example.com></iframe>&lt;b&gt;\u{202e}\u{0}\n\t<style>*{display:none}</style>",
];

/// A graph of `n` nodes that are called `name`.
fn nodes(n: usize, name: &str) -> Nodes {
    let mut g: Graph<usize> = Graph::default();
    let text =
        |op: &str| NodeSource { op: op.into(), dtype: "f32".into(), arg: name.into(), shape: format!("({name},)") };
    for k in 0..n {
        let src = if k < 2 { Vec::new() } else { vec![k - 1, k - 2] };
        g.add(k, text(if k < 2 { "Buffer" } else { "Add" }), src);
    }
    g.into_nodes()
}

/// A run of `kernels` kernels, `steps` applied rules each and `events` events, whose names come from `names`.
fn run(names: &[&str], kernels: usize, steps: usize, events: usize) -> Record {
    let name = |k: usize| format!("{}{k}", names[k % names.len()]);
    let mut r = Record {
        version: VERSION,
        run: Run {
            command: name(0),
            device: name(1),
            release: "0".into(),
            began_s: 1_700_000_000,
            length_ns: 9_000_000,
        },
        limits: vec![Limit { device: name(1), gflops: 100.0, gbytes: 20.0, how: name(2) }],
        notes: vec![name(3)],
        ..Record::default()
    };
    r.counters.insert(name(4), 3);
    r.lines = (0..kernels).map(|k| Line { op: name(k), file: name(k + 1), line: 1, text: name(k + 2) }).collect();
    r.rules =
        (0..3).map(|k| RuleLine { name: name(k), list: name(k), about: name(k), place: name(k), count: 1 }).collect();
    let item = |k: usize| Item {
        kind: if k == kernels { ItemKind::Copy(64, name(k)) } else { ItemKind::Kernel(k) },
        device: name(1),
        lines: if k == kernels { Vec::new() } else { vec![k] },
        values: [3, 1],
        buffers: vec![k],
        cuts: if k + 1 < kernels { vec![(k + 1, name(k))] } else { Vec::new() },
    };
    r.plans = vec![Plan { items: (0..=kernels).map(item).collect(), arena_bytes: 0 }];
    r.realizes = vec![Realize::default()];
    let buffer = |k: usize| Buffer {
        device: name(1),
        bytes: 4096 << (k % 4),
        what: name(k),
        born_ns: 1000 * k as u64,
        died_ns: 900_000,
        users: vec![(0, k)],
    };
    r.buffers = (0..=kernels).map(buffer).collect();
    for k in 0..kernels {
        r.kernels.push(Kernel {
            name: name(k),
            device: name(1),
            arch: name(2),
            key: name(k),
            opts: vec![name(k)],
            flops: 1000,
            mem_bytes: 900,
            unique_bytes: 800,
            threads: 1,
            global: [2, 1, 1],
            local: [32, 1, 1],
            local_bytes: 1024,
            uops: 20,
            steps,
            instructions: 3,
            compile_ns: 5,
            candidates: 2,
        });
        let column = |f: &dyn Fn(usize) -> usize| (0..steps).map(f).collect();
        let code = Code {
            nodes: nodes(40, &name(k)),
            stages: vec![(name(k), 39), ("second".into(), 38)],
            steps: Steps {
                rule: column(&|n| n % 3),
                before: column(&|n| 2 + n % 30),
                after: column(&|n| 3 + n % 30),
                left_out: 0,
            },
            list: (0..40).collect(),
            banks: vec![(3, 1), (7, 4)],
            program: name(k),
            source: name(k + 1),
            listing: format!("{}\n  vmovups zmm0, [rax]\nloop: vaddps zmm1, zmm0, zmm2\n  jl loop\n  ret", name(k)),
            arguments: vec![name(k)],
            candidates: vec![Candidate { opts: name(k), ns: 10 }, Candidate { opts: String::new(), ns: 0 }],
        };
        r.parts.push(Part::of(&format!("kernel:{k}"), &code));
    }
    let graph = PlanGraph {
        nodes: nodes(30, names[0]),
        roots: vec![29],
        line: (0..30).map(|n| n % (kernels + 1)).collect(),
        items: (0..30).map(|n| vec![n % kernels]).collect(),
    };
    r.parts.push(Part::of("plan:0", &graph));
    let label = |k: usize| Label { text: name(k), kind: LabelKind::Kernel, kernel: Some(k), bytes: 0 };
    let host = Label { text: name(0), kind: LabelKind::Host, kernel: None, bytes: 0 };
    let mut e = Events { tracks: vec![name(1), name(2)], ..Events::default() };
    e.labels = (0..kernels).map(label).chain([host]).collect();
    for k in 0..events {
        let is_host = k % 5 == 4;
        e.track.push(u32::from(is_host));
        e.label.push(if is_host { kernels as u32 } else { (k % kernels) as u32 });
        e.start.push(1000);
        e.length.push(300 + (k as u64 * 37) % 600);
        e.batch.push(if is_host { 0 } else { 1 + k as u32 / 10 });
    }
    r.parts.push(Part::of("events", &e));
    let calls = Calls {
        at_ns: vec![1, 2],
        length_ns: vec![3, 4],
        text: vec![name(0), name(1)],
        packets: vec![vec![], vec![name(2)]],
    };
    r.parts.push(Part::of("calls", &calls));
    r
}

fn written(folder: &tempfile::TempDir, text: &str) -> PathBuf {
    let path = folder.path().join("run.html");
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn names_full_of_markup_stay_text_in_every_view() {
    let folder = tempfile::tempdir().unwrap();
    let record = run(HOSTILE, 6, 50, 300);
    let mut b = Browser::start(1280, 800);
    b.open(&written(&folder, &page::html(&record, Some(&record))));
    let seen = walk(&mut b);
    assert_eq!(seen.len(), 12);
    for (view, text) in &seen {
        assert!(!text.is_empty(), "{view}");
    }
    assert_eq!(b.complaints(), Vec::<String>::new());
    // A blank picture of this size has less than 10 kB.
    assert!(b.picture().len() > 15_000);
    assert_eq!(b.eval("typeof window.hacked"), "undefined");
    assert_eq!(b.eval("document.querySelectorAll('img, iframe, main style, main script, svg[onload]').length"), 0);
    assert_eq!(b.eval("document.querySelectorAll('script:not([type])').length"), 1);
}

#[test]
fn what_is_selected_in_one_view_is_marked_in_the_others_and_in_the_address() {
    let folder = tempfile::tempdir().unwrap();
    let mut b = Browser::start(1280, 800);
    b.open(&written(&folder, &page::html(&run(&["kernel"], 6, 50, 300), None)));
    b.key("2");
    assert_eq!(b.eval("state.view"), "lines");
    b.key("ArrowDown");
    b.key("ArrowDown");
    let address = b.eval("location.hash");
    let address = address.as_str().unwrap();
    assert!(address.contains("view=lines") && address.contains("line=1") && address.contains("kernel=1"), "{address}");
    assert!(b.eval("document.getElementById('side').innerText").as_str().unwrap().contains("kernel1"));
    b.key("4");
    assert_eq!(b.eval("document.querySelector('.row.on').textContent.includes('kernel1')"), true);
    b.key("Enter");
    assert_eq!(b.eval("state.view"), "code");
    b.wait("document.querySelectorAll('.list .row').length > 3");
    b.key("7");
    assert_eq!(b.eval("document.activeElement.tagName"), "CANVAS");
    b.key("ArrowRight");
    b.key("ArrowRight");
    assert!(b.eval("document.getElementById('status').textContent").as_str().unwrap().contains("kernel"));
    // The address alone brings it back.
    b.eval("location.hash = '#view=memory&buffer=3'");
    b.wait("state.view === 'memory' && state.sel.buffer === 3");
    assert!(b.eval("document.getElementById('side').innerText").as_str().unwrap().contains("Buffer 3"));
    b.key("/");
    assert_eq!(b.eval("document.activeElement.id"), "search");
    for c in ["k", "e", "r", "n", "e", "l", "5"] {
        b.key(c);
    }
    b.wait("document.getElementById('found').textContent === '1 found'");
    b.key("Enter");
    b.wait("state.sel.buffer === 5");
    b.key("Escape");
    assert_eq!(b.eval("document.getElementById('search').value"), "");
    let theme = b.eval("document.documentElement.dataset.theme");
    b.key("t");
    assert_ne!(b.eval("document.documentElement.dataset.theme"), theme);
    b.eval("location.hash = '#view=<img>&kernel=99999999&line=123456&plan=77&item=9&node=x'");
    b.wait("state.view === 'overview'");
    assert_eq!(walk(&mut b).len(), 11);
    assert_eq!(b.complaints(), Vec::<String>::new());
}

#[test]
fn every_view_has_names_for_screen_readers() {
    let folder = tempfile::tempdir().unwrap();
    let mut b = Browser::start(1280, 800);
    b.open(&written(&folder, &page::html(&run(&["kernel"], 6, 50, 300), None)));
    for view in ["lines", "graph", "schedule", "rewrites", "code", "timeline", "memory", "roofline", "calls", "beam"] {
        b.eval(&format!("go('{view}', {{ kernel: 1 }})"));
        b.eval("new Promise((done) => setTimeout(done, 60))");
        let nameless = "[...document.querySelectorAll('select, canvas, svg, [role=listbox], [role=img]')].filter((e) => \
            !e.getAttribute('aria-label')).map((e) => e.outerHTML.slice(0, 80)).join('; ')";
        assert_eq!(b.eval(nameless), "", "{view}");
        let wide = "document.documentElement.scrollWidth <= 1280";
        assert_eq!(b.eval(wide), true, "{view} is wider than the window");
    }
}

#[test]
fn a_hundred_thousand_events_and_rewrites_are_shown_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let text = page::html(&run(&["kernel"], 1, 100_000, 100_000), None);
    let mut b = Browser::start(1280, 800);
    b.open(&written(&folder, &text));
    b.eval("show('timeline')");
    let rate = b.eval("state.views.get('timeline').pan(90)").as_f64().unwrap();
    println!("timeline of 100,000 events: {rate:.0} frames a second");
    // Other work on the machine may take half of the time; the page's own goal is 30.
    assert!(rate > 15.0, "{rate}");
    let began = std::time::Instant::now();
    b.eval("go('rewrites', { kernel: 0 })");
    b.wait("document.querySelectorAll('.list .row').length > 10");
    println!("100,000 rewrites decoded and shown in {} ms", began.elapsed().as_millis());
    assert_eq!(b.eval("current().list.source.count()"), 100_002);
    b.eval("current().list.el.focus()");
    b.key("End");
    b.wait("document.querySelector('main').innerText.includes('99999')");
    assert_eq!(b.complaints(), Vec::<String>::new());
}

#[test]
fn the_page_is_small_and_gives_its_record_back() {
    assert!(page::empty_len() < 400_000, "{} bytes", page::empty_len());
    let record = run(&["kernel"], 3, 10, 20);
    let text = page::html(&record, Some(&run(&["other"], 2, 1, 1)));
    let back = read::record(&text).unwrap();
    assert_eq!(back.kernels.iter().map(|k| k.name.as_str()).collect::<Vec<_>>(), ["kernel0", "kernel1", "kernel2"]);
    assert_eq!(back.parts, record.parts);
    assert!(read::record("<html>").unwrap_err().to_string().contains("no page of `doorbell viz`"));
    let damaged = text.replacen("id=\"head\">e", "id=\"head\">A", 1);
    assert!(read::record(&damaged).unwrap_err().to_string().starts_with("part head: "));
}

/// Functions of the page, by cases of their own.
#[test]
fn the_page_s_functions_do_what_they_say() {
    let folder = tempfile::tempdir().unwrap();
    let mut b = Browser::start(800, 600);
    b.open(&written(&folder, &page::html(&run(&["kernel"], 2, 2, 10), None)));
    assert_eq!(b.eval(include_str!("tests/functions.js")), serde_json::json!([]));
}

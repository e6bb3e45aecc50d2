//! `doorbell viz` and `doorbell profile`: pages of real runs, opened in a browser; reports and comparisons.

use super::{code, err, json, run, temp};
use browser::{Browser, walk};
use std::path::Path;

#[path = "../../../explorer/tests/browser.rs"]
mod browser;

/// Keeps a picture of the view where EXPLORER_PICTURES names a folder: those of docs/images are made so.
fn keep(b: &mut Browser, name: &str) -> usize {
    let picture = b.picture();
    if let Some(folder) = std::env::var_os("EXPLORER_PICTURES") {
        std::fs::write(Path::new(&folder).join(format!("explore-{name}.png")), &picture).unwrap();
    }
    picture.len()
}

#[test]
fn the_page_of_a_training_is_walked_without_complaint() {
    let t = temp();
    let o = run(t.path(), &["viz", "--out", "run.html", "train", "--epochs", "1", "--out", "out"]);
    assert_eq!(code(&o), 0, "{}", err(&o));
    let page = t.path().join("run.html");
    let len = std::fs::metadata(&page).unwrap().len();
    println!("the page of one epoch of `train`: {len} bytes");
    assert!(len < 5_000_000, "{len} bytes");
    let mut b = Browser::start(1280, 800);
    b.open(&page);
    let nowhere = "state.run.head.lines.filter((l) => l.file.includes('train.rs')).length === 0";
    assert_eq!(b.eval(nowhere), false, "the program's own lines");
    b.eval("document.documentElement.dataset.theme === 'dark' && theme(false)");
    // The kernel that took longest is selected: its views show it.
    b.eval("select({ kernel: state.run.time.reduce((m, t, k, all) => t.ns > all[m].ns ? k : m, 0) })");
    for (view, say) in
        [("overview", "Kernels by time"), ("lines", "train.rs"), ("schedule", "stores"), ("code", "registers alive")]
    {
        b.eval(&format!("show('{view}')"));
        b.wait(&format!("document.getElementById('main').innerText.includes('{say}')"));
        // A blank picture of this size has less than 10 kB.
        assert!(keep(&mut b, view) > 15_000, "{view} is blank");
    }
    b.eval("show('graph')");
    b.wait("document.querySelectorAll('svg .node').length > 3");
    assert!(keep(&mut b, "graph") > 15_000);
    b.eval("go('rewrites', { step: 40 })");
    b.wait("document.getElementById('main').innerText.includes('defined at')");
    assert!(keep(&mut b, "rewrites") > 15_000);
    b.eval("show('timeline'); [...document.querySelectorAll('main button')].find((x) => x.textContent === 'last submission').click()");
    assert!(keep(&mut b, "timeline") > 10_000);
    for view in ["memory", "roofline"] {
        b.eval(&format!("show('{view}')"));
        assert!(keep(&mut b, view) > 10_000, "{view} is blank");
    }
    for (view, text) in walk(&mut b) {
        assert!(!text.is_empty(), "{view}");
    }
    assert_eq!(b.complaints(), Vec::<String>::new());
}

#[cfg(all(feature = "amd", feature = "nv", feature = "emu"))]
#[test]
fn the_page_of_a_software_gpu_has_calls_and_packets() {
    let expected = [
        ("AMD:emu=gfx1100", ["AMDKFD_IOC_CREATE_QUEUE(", "DISPATCH_DIRECT"]),
        ("NV:emu=sm_90", ["HOPPER_CHANNEL_GPFIFO_A", "COMPUTE SEND_PCAS_A="]),
    ];
    for (device, [call, packet]) in expected {
        let t = temp();
        let o = run(t.path(), &["viz", "--device", device, "--out", "run.html", "dump", "softmax", "--out", "out"]);
        assert_eq!(code(&o), 0, "{}", err(&o));
        let mut b = Browser::start(1280, 800);
        b.open(&t.path().join("run.html"));
        b.eval("show('calls')");
        b.wait("document.querySelectorAll('.list .row').length > 10");
        let has = |what: &str| {
            format!(
                "[...Array(current().list.source.count()).keys()].some((i) => current().list.source.text(i).includes('{what}'))"
            )
        };
        for what in [call, "doorbell(", packet] {
            assert_eq!(b.eval(&has(what)), true, "{device}: {what}");
        }
        b.eval("current().list.next ? document.getElementById('search').value = 'doorbell(' : 0; seek(); current().list.next()");
        keep(&mut b, &format!("calls-{}", device.split(':').next().unwrap_or_default().to_lowercase()));
        walk(&mut b);
        assert_eq!(b.complaints(), Vec::<String>::new());
    }
}

#[test]
fn a_profile_lists_kernels_and_two_pages_are_compared() {
    let t = temp();
    let o = run(t.path(), &["profile", "--out", "a.html", "dump", "softmax", "--out", "d"]);
    assert_eq!(code(&o), 0, "{}", err(&o));
    let text = String::from_utf8_lossy(&o.stdout).into_owned();
    for word in ["kernel ", "GFLOP/s", "queue CPU: busy ", "host schedule"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let o = run(t.path(), &["profile", "--json", "--out", "b.html", "dump", "matmul", "--out", "d"]);
    let v = json(&o, &["kernels", "copies", "host", "queues"]);
    assert!(v["kernels"][0]["ns"].as_u64().unwrap() > 0 && v["kernels"][0]["launches"].as_u64().unwrap() > 0, "{v}");
    assert!(v["kernels"][0]["roofline"].as_f64().is_some(), "{v}");
    let o = run(t.path(), &["profile", "--diff", "a.html", "b.html", "--json"]);
    let v = json(&o, &["before", "after", "kernels"]);
    let all = v["kernels"].as_array().unwrap();
    assert!(all.iter().any(|k| k["before"].is_null()) && all.iter().any(|k| k["after"].is_null()), "{v}");
    // A page of both, in the browser.
    let o = run(t.path(), &["viz", "--diff", "a.html", "--out", "both.html", "b.html"]);
    assert_eq!(code(&o), 0, "{}", err(&o));
    let mut b = Browser::start(1280, 800);
    b.open(&t.path().join("both.html"));
    b.eval("show('diff'); current().list.choose(0)");
    b.wait("document.querySelectorAll('main pre .minus, main pre .plus').length > 3");
    assert_eq!(b.complaints(), Vec::<String>::new());
}

#[test]
fn what_is_no_page_or_writes_none_is_said() {
    let t = temp();
    std::fs::write(t.path().join("x.html"), "<html></html>").unwrap();
    let o = run(t.path(), &["profile", "--diff", "x.html", "x.html"]);
    assert_eq!(code(&o), 2);
    assert!(err(&o).contains("x.html: this is no page of `doorbell viz`"), "{}", err(&o));
    let o = run(t.path(), &["viz", "--out", "y.html", "true"]);
    assert_eq!(code(&o), 1);
    assert!(err(&o).contains("true has written no page"), "{}", err(&o));
    let o = run(t.path(), &["viz", "--out", "y.html", "no-such-program-here"]);
    assert_eq!(code(&o), 2, "{}", err(&o));
    assert!(!t.path().join("y.html").exists());
}

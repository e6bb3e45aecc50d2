//! `doorbell bench`: its files, exit codes and judgements.

use super::code;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The program, without arguments yet.
fn doorbell() -> Command {
    super::doorbell(Path::new("."), &[])
}

/// Exit code, standard output and standard error.
fn run(command: &mut Command) -> (i32, String, String) {
    let o = command.output().unwrap();
    (code(&o), String::from_utf8_lossy(&o.stdout).into_owned(), super::err(&o))
}

/// The last line of a command's output as JSON.
fn last(out: &str) -> Value {
    serde_json::from_str(out.trim_end().lines().last().unwrap()).unwrap()
}

#[test]
fn list_and_plan_name_cases_and_what_is_left_out() {
    let (code, out, _) = run(doorbell().args(["bench", "list", "--json"]));
    assert_eq!(code, 0);
    let cases = last(&out)["cases"].as_array().unwrap().len();
    assert!(cases >= 25, "{cases}");
    let all = last(&out)["cases"].clone();
    let wakeup = all.as_array().unwrap().iter().find(|c| c["case"] == "launch/wakeup").unwrap();
    assert_eq!(wakeup["values"], serde_json::json!({"by": ["spin", "sleep"]}));
    let (code, out, _) = run(doorbell().args(["bench", "plan", "--device", "CPU", "matrix", "launch/wait", "--json"]));
    assert_eq!(code, 0);
    let plan = last(&out);
    let why = |id: &str| {
        let all = plan["plan"].as_array().unwrap().iter();
        all.filter(|p| p["id"] == id).map(|p| p["left_out"].clone()).next().unwrap()
    };
    assert_eq!(why("launch/wait"), Value::Null);
    assert!(why("matrix/warp[type=f16]").as_str().unwrap().contains("no hand-written kernel"));
}

/// What strace sees the program open, with all devices looked for and the default one measured.
#[cfg(target_os = "linux")]
#[test]
fn no_library_but_the_systems_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    for args in [&["devices"][..], &["bench", "run", "--quick", "launch/wait", "copies/staged"]] {
        let own = doorbell();
        let mut traced = Command::new("strace");
        traced.args(["-f", "-e", "trace=open,openat,openat2,execve", "-o"]).arg(&trace).arg(own.get_program());
        let (code, _, err) = run(traced.args(args));
        assert_eq!(code, 0, "{err}");
        let text = std::fs::read_to_string(&trace).unwrap();
        let paths = text.lines().filter(|l| !l.contains("ENOENT")).filter_map(|l| l.split('"').nth(1));
        let libraries: Vec<&str> = paths.filter(|p| p.contains(".so")).collect();
        let known =
            ["/ld.so.cache", "/ld.so.preload", "libc.so", "libm.so", "libgcc_s.so", "libdl.so", "libpthread.so"];
        let others: Vec<&&str> = libraries.iter().filter(|p| !known.iter().any(|k| p.contains(k))).collect();
        assert!(libraries.len() > 1 && others.is_empty(), "{others:?} of {libraries:?}");
    }
}

fn files(dir: &Path) -> Vec<String> {
    [("--out", "a.json"), ("--csv", "a.csv"), ("--junit", "a.xml"), ("--jsonl", "a.jsonl"), ("--svg", "a.svg")]
        .iter()
        .flat_map(|(option, name)| [(*option).to_owned(), dir.join(name).display().to_string()])
        .collect()
}

#[test]
fn a_run_writes_every_kind_of_file_and_compares_with_itself() {
    let dir = tempfile::tempdir().unwrap();
    let (code, out, err) = run(doorbell()
        .args(["bench", "run", "--device", "CPU", "--quick", "memory/scale", "launch/wait", "matrix/warpgroup"])
        .args(files(dir.path()))
        .arg("--json"));
    assert_eq!(code, 0, "{err}");
    let record = last(&out);
    assert_eq!((record["schema"].as_u64(), record["results"].as_array().unwrap().len()), (Some(1), 3));
    for r in record["results"].as_array().unwrap() {
        let is_measured = r["status"] == "ok";
        assert_eq!(is_measured, r["case"] != "matrix/warpgroup");
        assert_eq!(is_measured, r["value"].as_f64().is_some_and(|v| v > 0.0));
        assert_eq!(r["reason"].is_null(), is_measured);
        for field in ["min", "q1", "median", "q3", "p99", "low", "high"] {
            assert_eq!(r["ns"][field].as_f64().is_some(), is_measured, "{field}");
        }
    }
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    let xml = read("a.xml");
    assert!(xml.contains("tests=\"3\" failures=\"0\" errors=\"0\" skipped=\"1\"") && xml.contains("<skipped message="));
    assert_eq!(read("a.csv").lines().count(), 4);
    let samples = read("a.jsonl");
    assert!(samples.lines().count() >= 4 && samples.lines().all(|l| last(l)["ns"].as_f64().is_some()));
    assert!(read("a.svg").ends_with("</svg>\n"));
    let file = dir.path().join("a.json");
    let (code, out, _) = run(doorbell().args(["bench", "compare", "--json"]).args([&file, &file]));
    assert_eq!(code, 0, "{out}");
    assert_eq!(last(&out)["fails"], Value::Bool(false));
}

/// A record of one case whose samples are this many times a second.
fn record(dir: &Path, name: &str, times: f64, status: &str) -> std::path::PathBuf {
    let samples: Vec<f64> = (0..80).map(|n| (1000.0 + f64::from(n % 7)) * times).collect();
    let case = serde_json::json!({
        "device": "CPU", "id": "memory/scale[bytes=1]", "case": "memory/scale", "parameters": {"bytes": 1},
        "status": status, "reason": if status == "ok" { Value::Null } else { "element 3 is 1, not 2".into() },
        "unit": "GB/s", "value": 1.0, "work": 1000.0, "clock": "device", "ns": null, "runs": 1, "samples": [samples],
        "throttled": 0, "clock_mhz": null, "made_ns": 1, "ended": "budget", "telemetry": null});
    let all = serde_json::json!({
        "schema": 1, "version": "0", "unix_time": 0, "host": {"name": "", "kernel": "", "cpu": "", "cores": 1},
        "settings": {}, "devices": [], "results": [case], "seconds": 1.0});
    let path = dir.join(name);
    std::fs::write(&path, all.to_string()).unwrap();
    path
}

#[test]
fn slower_and_broken_cases_fail_a_comparison_and_faster_ones_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let before = record(dir.path(), "before.json", 1.0, "ok");
    for (times, status, word, code) in [
        (1.0, "ok", "SAME", 0),
        (1.05, "ok", "SLOWER", 1),
        (0.95, "ok", "FASTER", 0),
        (1.0, "wrong", "BROKEN", 1),
        (1.0, "hung", "BROKEN", 1),
    ] {
        let now = record(dir.path(), "now.json", times, status);
        let (have, out, err) = run(doorbell().args(["bench", "compare"]).args([&before, &before, &before, &now]));
        assert_eq!((have, out.starts_with(word)), (code, true), "{out}{err}");
    }
    // One record does not say what runs differ by.
    let now = record(dir.path(), "now.json", 1.05, "ok");
    for (between, word, code) in [("0.1", "UNCLEAR", 0), ("0.01", "SLOWER", 1)] {
        let (have, out, err) = run(doorbell().args(["bench", "compare", "--between", between]).args([&before, &now]));
        assert_eq!((have, out.starts_with(word)), (code, true), "{out}{err}");
    }
    std::fs::write(dir.path().join("other.json"), r#"{"schema": 9}"#).unwrap();
    let (code, _, err) = run(doorbell().args(["bench", "compare"]).args([&before, &dir.path().join("other.json")]));
    assert!(code == 2 && err.contains("schema 9, this program reads 1"), "{err}");
}

#[test]
fn two_programs_run_in_turns() {
    let own = env!("CARGO_BIN_EXE_doorbell");
    let versus = |program: &str, word: &str| {
        run(doorbell().args(["bench", "versus", program, word, "--device", "CPU", "--quick", "--pairs", "2", "--json"]))
    };
    let (code, out, err) = versus(own, "memory/scale");
    assert_eq!(code, 0, "{out}{err}");
    let one = &last(&out)["comparisons"][0];
    assert_eq!((&one["judgement"], &one["reason"]), (&"UNCLEAR".into(), &"2 pairs are too few".into()));
    assert!(one["before"].as_f64() > Some(0.0) && one["now"].as_f64() > Some(0.0), "{one}");
    for (program, word, text) in [
        ("/nowhere/doorbell", "memory/scale", "/nowhere/doorbell: it could not be started"),
        ("/bin/true", "memory/scale", "/bin/true: its last line is no record"),
        (own, "no such case", "no case has these words"),
    ] {
        let (code, _, err) = versus(program, word);
        assert!(code == 2 && err.contains(text), "{err}");
    }
}

#[test]
fn burning_and_verdict_of_the_cpu_check_and_say_so() {
    let (code, out, err) =
        run(doorbell().args(["bench", "burn", "--device", "CPU", "--quick", "--seconds", "0.2", "--json"]));
    assert_eq!(code, 0, "{out}{err}");
    let burn = &last(&out)["burn"][0];
    assert!(burn["elements"].as_u64().unwrap() > 0 && burn["memory_bytes"].as_u64().unwrap() > 0, "{burn}");
    let verdict = ["bench", "verdict", "--device", "CPU", "--quick", "--burn", "0.1", "memory/scale", "--json"];
    let (code, out, err) = run(doorbell().args(verdict));
    assert_eq!((code, &last(&out)["worst"]), (0, &Value::from("PASS")), "{out}{err}");
    let (code, out, _) = run(doorbell().args(["bench", "verdict", "--device", "NV:7", "--json"]));
    assert_eq!((code, &last(&out)["worst"]), (2, &Value::from("UNKNOWN")), "{out}");
    assert_eq!(last(&out)["verdicts"][0]["reasons"][0]["number"], 101);
}

#[test]
fn devices_are_measured_and_burnt_together() {
    let both = ["--device", "CPU,CPU:1", "--together", "--quick", "--json"];
    let (code, out, err) = run(doorbell().args(["bench", "run", "memory/scale"]).args(both));
    assert_eq!(code, 0, "{err}");
    let record = last(&out);
    let reported = |n: usize| (record["results"][n]["device"].clone(), record["results"][n]["together"].clone());
    assert_eq!(reported(0), (Value::from("CPU"), serde_json::json!(["CPU:1"])));
    assert_eq!(reported(1), (Value::from("CPU:1"), serde_json::json!(["CPU"])));
    assert_eq!(record["settings"]["together"], Value::Bool(true));
    let lines: Vec<&str> = err.lines().filter(|l| l.contains("memory/scale")).collect();
    assert!(lines.len() == 2 && lines[0].starts_with("CPU ") && lines[1].starts_with("CPU:1 "), "{err}");
    let (code, out, err) = run(doorbell().args(["bench", "burn", "--seconds", "0.1"]).args(both));
    assert_eq!((code, last(&out)["burn"].as_array().unwrap().len()), (0, 2), "{out}{err}");
    let (code, out, err) = run(doorbell().args(["bench", "verdict", "--burn", "0.1", "memory/scale"]).args(both));
    let verdicts = &last(&out)["verdicts"];
    let judged = |n: usize| (verdicts[n]["device"].clone(), verdicts[n]["level"].clone());
    let pass = |name: &str| (Value::from(name), Value::from("PASS"));
    assert_eq!((code, judged(0), judged(1)), (0, pass("CPU"), pass("CPU:1")), "{out}{err}");
    for (devices, why) in [("CPU", "--together is for several devices"), ("CPU,CPU:0", "CPU stands twice")] {
        let (code, _, err) = run(doorbell().args(["bench", "run", "--together", "--device", devices]));
        assert!(code == 3 && err.contains(why), "{err}");
    }
}

/// Of two devices one cannot be opened: the other is measured and burnt, and the first is reported as bad.
#[test]
fn a_device_that_cannot_be_opened_holds_up_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let now = dir.path().join("now.json");
    let devices = ["--device", "cpu,nv:7", "--quick", "--json"];
    let (code, out, err) = run(doorbell().args(["bench", "run", "memory/scale", "--out"]).arg(&now).args(devices));
    assert_eq!(code, 1, "{err}");
    let results = &last(&out)["results"];
    assert_eq!((&results[0]["device"], &results[0]["status"]), (&Value::from("CPU"), &Value::from("ok")));
    assert_eq!((&results[1]["device"], &results[1]["status"]), (&Value::from("NV:7"), &Value::from("failed")));
    assert!(err.contains("1 cases failed: NV:7 open"), "{err}");
    let (code, out, _) = run(doorbell().args(["bench", "burn", "--seconds", "0.1"]).args(devices));
    let burn = last(&out);
    assert_eq!((code, &burn["burn"][0]["findings"], &burn["ok"]), (1, &serde_json::json!([]), &Value::Bool(false)));
    assert_eq!(burn["burn"][1]["findings"][0]["test"], "device");
    // What it did before is broken now.
    let text = std::fs::read_to_string(record(dir.path(), "before.json", 1.0, "ok")).unwrap();
    let before = dir.path().join("before.json");
    std::fs::write(&before, text.replace("\"CPU\"", "\"NV:7\"")).unwrap();
    let (code, out, err) = run(doorbell().args(["bench", "compare"]).args([&before, &now]));
    assert!(code == 1 && out.lines().any(|l| l.starts_with("BROKEN") && l.contains("NV:7")), "{out}{err}");
    let (code, _, err) = run(doorbell().args(["bench", "run", "--device", "NV:7"]));
    assert!(code == 2 && err.contains("NV:7"), "{err}");
}

#[test]
fn wrong_usage_is_refused() {
    for args in [&["bench"][..], &["bench", "run", "--budget", "0"], &["bench", "compare", "one.json"]] {
        assert_eq!(run(doorbell().args(args)).0, 3, "{args:?}");
    }
    for command in ["plan", "run"] {
        let words = ["launch/wait", "lanch", "--device", "CPU", "--quick"];
        let (code, out, err) = run(doorbell().args(["bench", command]).args(words));
        assert!(code == 2 && err.contains("no case's name contains \"lanch\""), "{err}");
        assert!(out.contains("launch/wait"), "what there is is done: {out}");
    }
    // Before anything is measured.
    let out = ["--out", "/nowhere/now.json", "--device", "CPU"];
    let (code, out, err) = run(doorbell().args(["bench", "run", "launch/wait"]).args(out));
    assert!(code == 2 && err.contains("/nowhere/now.json") && !out.contains("launch/wait"), "{out}{err}");
}

#[test]
fn records_without_a_result_in_common_are_no_comparison() {
    let dir = tempfile::tempdir().unwrap();
    let before = record(dir.path(), "before.json", 1.0, "ok");
    let text = std::fs::read_to_string(&before).unwrap();
    let now = dir.path().join("now.json");
    std::fs::write(&now, text.replace("\"CPU\"", "\"NV\"")).unwrap();
    let (code, out, err) = run(doorbell().args(["bench", "compare"]).args([&before, &now]));
    assert!(code == 2 && err.contains("no result in common") && out.starts_with("MISSING"), "{out}{err}");
}

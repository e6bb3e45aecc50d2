//! The worker's side of the measuring protocol: lines `run WORKLOAD VARIANT SECONDS`, `drop` and `quit` on standard
//! input, one JSON object each on standard output.

use serde_json::{Value, json};
use std::io::{self, BufRead, Write};
use std::time::{Duration, Instant};

/// A workload ready to run: `step` does not return before its result is there.
pub struct Workload {
    pub step: Box<dyn FnMut() -> Result<(), String>>,
    /// A number of the result that must agree between peers.
    pub check: Box<dyn FnMut() -> Result<f64, String>>,
    /// Operations that one step performs.
    pub inner: usize,
}

type Make<'a> = &'a dyn Fn(&str) -> Result<Option<Workload>, String>;

/// Answers requests until `quit` or the end of input.
pub fn serve(make: Make) -> io::Result<()> {
    let (stdin, mut out) = (io::stdin(), io::stdout());
    let mut current: Option<(String, Workload)> = None;
    for line in stdin.lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match words.as_slice() {
            [] | ["quit"] => break,
            ["drop"] => {
                current = None;
                json!({"ok": true})
            }
            ["run", workload, _variant, seconds] => run(&mut current, make, workload, seconds).unwrap_or_else(|err| {
                current = None;
                json!({"ok": false, "err": err})
            }),
            _ => json!({"ok": false, "err": format!("not a request: {line}")}),
        };
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

fn run(current: &mut Option<(String, Workload)>, make: Make, name: &str, seconds: &str) -> Result<Value, String> {
    let budget = seconds.parse::<f64>().map_err(|e| format!("{seconds}: {e}"))?;
    let mut answer = json!({"ok": true});
    if current.as_ref().is_none_or(|c| c.0 != name) {
        *current = None;
        let Some(mut w) = make(name)? else { return Ok(json!({"ok": false, "err": "n/a"})) };
        let t = Instant::now();
        (w.step)()?;
        answer["first"] = json!(t.elapsed().as_secs_f64());
        answer["check"] = json!((w.check)()?);
        let t = Instant::now();
        for _ in 0..3 {
            (w.step)()?;
            if t.elapsed() > Duration::from_secs(2) {
                break;
            }
        }
        *current = Some((name.into(), w));
    }
    let Some((_, w)) = current else { return Err("no workload".into()) };
    let mut times = Vec::new();
    let begin = Instant::now();
    loop {
        let t = Instant::now();
        (w.step)()?;
        times.push(t.elapsed().as_secs_f64() / w.inner as f64);
        if begin.elapsed().as_secs_f64() > budget || times.len() >= 200 {
            break;
        }
    }
    times.sort_by(f64::total_cmp);
    let n = times.len();
    answer["med"] = json!((times[(n - 1) / 2] + times[n / 2]) / 2.0);
    answer["min"] = json!(times[0]);
    answer["max"] = json!(times[n - 1]);
    answer["n"] = json!(n);
    Ok(answer)
}

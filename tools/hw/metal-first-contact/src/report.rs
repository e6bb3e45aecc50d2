//! The run: the steps in their order, each reported in a few lines.

use crate::Args;
use crate::seen::{Seen, Verdict};
use crate::steps::{STEPS, Step};
use crate::work::{Below, Bench};
use hw_contact::Failure;
use serde_json::json;
use std::process::ExitCode;
use std::time::Instant;

/// A step that was gone.
struct Row {
    step: &'static Step,
    ms: f64,
    result: Result<Seen, Failure>,
}

impl Row {
    fn word(&self) -> &'static str {
        self.result.as_ref().map_or("FAILED", |seen| seen.verdict().word())
    }

    fn notes(&self) -> Vec<String> {
        match &self.result {
            Ok(seen) => seen.notes.clone(),
            Err(failure) => vec![failure.what.clone()],
        }
    }

    fn is_good(&self) -> bool {
        self.result.as_ref().is_ok_and(|seen| seen.verdict() != Verdict::Differs)
    }
}

/// Goes all steps; returns the exit code.
pub fn go(args: &Args) -> ExitCode {
    let names: Vec<&str> = STEPS.iter().map(|s| s.name).collect();
    let asked = args.until.iter().chain(&args.skip).chain(&args.pretend);
    if let Some(name) = asked.into_iter().find(|name| !names.contains(&name.as_str())) {
        eprintln!("metal-first-contact: no step {name}, there are {}", names.join(", "));
        return ExitCode::from(3);
    }
    let bench = match Bench::new(args) {
        Ok(bench) => bench,
        Err(what) => {
            eprintln!("metal-first-contact: {what}");
            return ExitCode::from(3);
        }
    };
    let rows = steps(&bench, args);
    let is_absent = Below::open(&bench).is_err();
    let bad: Vec<&str> = rows.iter().filter(|row| !row.is_good()).map(|row| row.step.name).collect();
    let left_out = STEPS.len() - rows.len();
    let reported = if bad.is_empty() { "nothing differs".into() } else { format!("look at {}", bad.join(", ")) };
    say(args, &format!("{} of {} steps gone, {left_out} left out: {reported}", rows.len(), STEPS.len()));
    if args.json {
        let row = |r: &Row| json!({"step": r.step.name, "verdict": r.word(), "ms": r.ms, "notes": r.notes()});
        let all: Vec<_> = rows.iter().map(row).collect();
        println!("{}", json!({"device": args.device, "steps": all, "of": STEPS.len(), "bad": bad}));
    }
    ExitCode::from(match (is_absent, bad.is_empty()) {
        (true, _) => 2,
        (_, true) => 0,
        _ => 1,
    })
}

fn steps(bench: &Bench, args: &Args) -> Vec<Row> {
    let mut rows = Vec::new();
    for (n, step) in STEPS.iter().enumerate() {
        if args.skip.iter().any(|name| name == step.name) {
            say(args, &format!("{:>2} {:<9} left out", n + 1, step.name));
            continue;
        }
        let mut seen = Seen::default();
        let began = Instant::now();
        let result = (step.run)(bench, &mut seen).map(|()| seen);
        let row = Row { step, ms: began.elapsed().as_secs_f64() * 1e3, result };
        say(args, &format!("{:>2} {:<9} {:<8} {:>9.1} ms  {}", n + 1, step.name, row.word(), row.ms, step.about));
        row.notes().iter().for_each(|note| say(args, &format!("     {note}")));
        let stops = step.is_vital && !row.is_good();
        rows.push(row);
        if stops || args.until.as_deref() == Some(step.name) {
            break;
        }
    }
    rows
}

fn say(args: &Args, line: &str) {
    if args.json { eprintln!("{line}") } else { println!("{line}") }
}

//! The climb: rungs in order, each timed; one that fails keeps only those from being tried that need it.

use crate::Args;
use crate::explain::{Story, warnings};
use crate::machine::Machine;
use crate::raw::Raw;
use crate::rungs::{Bench, RUNGS, look_for_card};
use doorbell::device::nv::{Card, Core, Driver, Gpu, NvOptions, PageTables};
use doorbell_ioctl::trace::leftovers;
use hw_contact::Failure;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One thing that must work.
pub struct Rung {
    pub name: &'static str,
    /// What it tries, in one line.
    pub about: &'static str,
    /// Rungs without which it cannot be tried.
    pub needs: &'static [&'static str],
    /// Does it; `Ok` says what was seen.
    pub climb: fn(&mut Climb) -> Result<String, Failure>,
    /// What is known to make it fail, whatever the call says.
    pub causes: &'static [&'static str],
    /// What to try next.
    pub probes: &'static [&'static str],
}

/// What the rungs have reached so far.
pub struct Climb {
    pub args: Args,
    pub machine: Machine,
    pub driver: Option<Arc<Driver>>,
    pub card: Option<Card>,
    /// The chip, by the code it runs.
    pub chip: Option<&'static str>,
    /// While its steps are climbed.
    pub gpu: Option<Gpu>,
    /// Once it is up.
    pub core: Option<Arc<Core>>,
    /// Channels spoken to in methods.
    pub raw: Option<Raw>,
    /// The device as the runtime opens it.
    pub bench: Option<Bench>,
}

impl Climb {
    pub fn new(args: &Args, machine: Machine) -> Self {
        let args = args.clone();
        Self { args, machine, driver: None, card: None, chip: None, gpu: None, core: None, raw: None, bench: None }
    }

    /// Small sizes and counts are wanted.
    pub fn is_quick(&self) -> bool {
        self.args.quick || self.machine.is_software
    }

    /// How long anything may take. A GPU that was idle needs a second for its clocks; a software GPU on a busy machine
    /// needs more.
    pub fn patience(&self) -> Duration {
        // TIMEOUT: a hundred times what the slowest step takes.
        Duration::from_secs(self.args.patience.unwrap_or(if self.machine.is_software { 60 } else { 10 }))
    }

    /// Who fills page tables.
    pub fn tables(&self) -> PageTables {
        if self.args.rm_only { PageTables::Rm } else { PageTables::default() }
    }

    pub fn options(&self) -> NvOptions {
        NvOptions {
            any_release: self.args.any_driver,
            bar1_doorbell: self.args.bar1_doorbell,
            tables: self.tables(),
            submit_timeout: self.patience(),
            ..NvOptions::default()
        }
    }

    /// # Errors
    /// The rung that opens it was left out.
    pub fn driver(&self) -> Result<&Arc<Driver>, Failure> {
        self.driver.as_ref().ok_or_else(|| "the rung card was left out".into())
    }

    /// The GPU, up or on its way.
    ///
    /// # Errors
    /// As [`Climb::driver`].
    pub fn gpu(&self) -> Result<&Gpu, Failure> {
        let up = self.core.as_ref().map(|core| &*core.gpu);
        up.or(self.gpu.as_ref()).ok_or_else(|| "the rung card was left out".into())
    }

    /// # Errors
    /// As [`Climb::driver`].
    pub fn core(&self) -> Result<&Arc<Core>, Failure> {
        self.core.as_ref().ok_or_else(|| "the rung space was left out".into())
    }

    /// Gives back what was made by hand: the runtime opens the card for itself.
    pub fn let_go(&mut self) {
        self.raw = None;
        if let Some(core) = self.core.take() {
            core.free_signals();
        }
        self.gpu = None;
    }
}

/// Climbs as far as it goes, tells each rung, and gives the exit code.
pub fn climb(args: &Args) -> ExitCode {
    let wrong = |what: String| {
        eprintln!("nv-first-contact: {what}");
        ExitCode::from(3)
    };
    let known = |name: &&String| RUNGS.iter().any(|r| r.name == **name);
    if let Some(name) = args.until.iter().chain(&args.skip).find(|name| !known(name)) {
        let names: Vec<&str> = RUNGS.iter().map(|r| r.name).collect();
        return wrong(format!("no rung {name}, there are {}", names.join(", ")));
    }
    let machine = match Machine::new(args, &args.trace) {
        Ok(machine) => machine,
        Err(what) => return wrong(what),
    };
    let mut climb = Climb::new(args, machine);
    let rows = go(&mut climb);
    let left = end(&mut climb);
    tell(args, &rows, &left)
}

/// How a rung ended.
enum Outcome {
    /// What was seen, and calls that were refused all the same.
    Worked(String, Vec<String>),
    Failed(Box<Story>),
    /// Why it was not tried.
    Skipped(String),
}

/// A rung of the list.
struct Row {
    name: &'static str,
    ms: f64,
    /// Grids that a software GPU had run before it.
    grids: Option<u64>,
    outcome: Outcome,
}

impl Row {
    fn is_ok(&self) -> bool {
        matches!(self.outcome, Outcome::Worked(..))
    }
}

fn go(climb: &mut Climb) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (n, rung) in RUNGS.iter().enumerate() {
        let (began, grids) = (Instant::now(), climb.machine.grids());
        let outcome = match why_not(climb, rung, &rows) {
            Some(why) => Outcome::Skipped(why),
            None => attempt(climb, rung),
        };
        let ms = began.elapsed().as_secs_f64() * 1e3;
        let head = format!("{:>2} {:<10}", n + 1, rung.name);
        match &outcome {
            Outcome::Worked(note, warnings) => {
                say(&climb.args, &format!("{head} ok {ms:>9.1} ms  {note}"));
                warnings.iter().for_each(|line| say(&climb.args, &format!("   refused: {line}")));
            }
            Outcome::Failed(story) => {
                say(&climb.args, &format!("{head} FAILED {ms:.1} ms  ({})", rung.about));
                story.lines().iter().for_each(|line| say(&climb.args, line));
            }
            Outcome::Skipped(why) => say(&climb.args, &format!("{head} not tried: {why}")),
        }
        rows.push(Row { name: rung.name, ms, grids, outcome });
        if climb.args.until.as_deref() == Some(rung.name) {
            break;
        }
    }
    rows
}

/// Why a rung is not tried.
fn why_not(climb: &Climb, rung: &Rung, rows: &[Row]) -> Option<String> {
    if climb.args.skip.iter().any(|s| s == rung.name) {
        return Some("left out".into());
    }
    let is_ok = |need: &&&str| rows.iter().any(|row| row.name == **need && row.is_ok());
    let missing: Vec<&str> = rung.needs.iter().filter(|need| !is_ok(need)).copied().collect();
    if !missing.is_empty() {
        return Some(format!("it needs {}", missing.join(", ")));
    }
    let is_code = rung.needs.iter().any(|need| crate::rungs::NEED_CODE.contains(need));
    if is_code || crate::rungs::NEED_CODE.contains(&rung.name) { crate::code::why_none(climb) } else { None }
}

fn attempt(climb: &mut Climb, rung: &Rung) -> Outcome {
    let (seen, before) = (climb.machine.log.events().len(), climb.machine.complaints().len());
    let result = (rung.climb)(climb);
    let events = climb.machine.log.events().split_off(seen);
    match result {
        Ok(note) => Outcome::Worked(note, warnings(&events)),
        Err(failure) => {
            // A device that failed is opened anew by the next rung.
            climb.bench = None;
            let complaints = climb.machine.complaints().split_off(before);
            let missing = if look_for_card(rung.name) { crate::rungs::missing(climb) } else { Vec::new() };
            Outcome::Failed(Box::new(Story::of(rung, &failure, &events, complaints, missing)))
        }
    }
}

/// Gives everything back; what is left over is reported.
fn end(climb: &mut Climb) -> Vec<String> {
    climb.bench = None;
    climb.let_go();
    climb.driver = None;
    climb.machine.trace.flush();
    leftovers(&climb.machine.log.events())
}

fn say(args: &Args, line: &str) {
    if args.json { eprintln!("{line}") } else { println!("{line}") }
}

fn tell(args: &Args, rows: &[Row], left: &[String]) -> ExitCode {
    let reached = rows.iter().filter(|r| r.is_ok()).count();
    let stories: Vec<&Story> = rows
        .iter()
        .filter_map(|r| if let Outcome::Failed(story) = &r.outcome { Some(&**story) } else { None })
        .collect();
    if stories.is_empty() {
        left.iter().for_each(|line| say(args, &format!("not given back: {line}")));
    }
    let is_top = stories.is_empty() && left.is_empty();
    let what = if is_top { "no rung failed" } else { "something is wrong" };
    say(args, &format!("{what}: {reached} of {} rungs; trace: {}", RUNGS.len(), args.trace.display()));
    if args.json {
        let failed: Vec<Value> = stories.iter().map(|s| s.json()).collect();
        let rungs: Vec<Value> = rows.iter().map(row_json).collect();
        println!(
            "{}",
            json!({"device": args.device, "rungs": rungs, "reached": reached, "of": RUNGS.len(), "top": is_top,
                "failed": failed, "not_given_back": left, "trace": args.trace})
        );
    }
    ExitCode::from(match stories.first() {
        None if is_top => 0,
        Some(_) if stories.iter().any(|s| s.is_absent()) => 2,
        _ => 1,
    })
}

fn row_json(row: &Row) -> Value {
    let (state, note, refused) = match &row.outcome {
        Outcome::Worked(note, warnings) => ("ok", Some(note.as_str()), warnings.as_slice()),
        Outcome::Failed(story) => ("failed", Some(story.what()), &[][..]),
        Outcome::Skipped(why) => ("not tried", Some(why.as_str()), &[][..]),
    };
    json!({"rung": row.name, "state": state, "ms": row.ms, "grids": row.grids, "note": note, "refused": refused})
}

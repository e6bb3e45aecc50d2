//! The run: rungs in order, each timed, until one fails.

use crate::Args;
use crate::explain::{Failure, Story};
use crate::machine::Machine;
use crate::missing;
use crate::rungs::RUNGS;
use doorbell::device::DeviceTag;
use doorbell::device::amd::{AmdOptions, Chip, Core, Driver, Node};
use doorbell_ioctl::trace::leftovers;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One thing that must work, after all before it.
pub struct Rung {
    pub name: &'static str,
    /// What it tries, in one line.
    pub about: &'static str,
    /// Runs the rung; `Ok` holds what was observed.
    pub climb: fn(&mut Climb) -> Result<String, Failure>,
    /// Known causes of a failure, independent of the call.
    pub causes: &'static [&'static str],
}

/// What the rungs have reached so far.
pub struct Climb {
    pub args: Args,
    pub machine: Machine,
    pub driver: Option<Arc<Driver>>,
    pub node: Option<(Node, &'static Chip)>,
    pub core: Option<Arc<Core>>,
}

impl Climb {
    /// Use small sizes and counts.
    pub fn is_quick(&self) -> bool {
        self.args.quick || self.machine.is_software
    }

    /// Time limit of each step. A card that sleeps needs a second to wake up; a software GPU on a busy machine needs
    /// more.
    pub fn patience(&self) -> Duration {
        // TIMEOUT: a hundred times what the slowest step takes.
        Duration::from_secs(if self.machine.is_software { 60 } else { 10 })
    }

    pub fn options(&self) -> AmdOptions {
        AmdOptions { ring_bytes: 64 << 10, submit_timeout: self.patience(), ..AmdOptions::default() }
    }

    /// # Errors
    /// The rung that opens it was left out.
    pub fn driver(&self) -> Result<&Arc<Driver>, Failure> {
        self.driver.as_ref().ok_or_else(|| "the rung driver was left out".into())
    }

    /// # Errors
    /// As [`Climb::driver`].
    pub fn node(&self) -> Result<&(Node, &'static Chip), Failure> {
        self.node.as_ref().ok_or_else(|| "the rung topology was left out".into())
    }

    /// # Errors
    /// As [`Climb::driver`].
    pub fn core(&self) -> Result<&Arc<Core>, Failure> {
        self.core.as_ref().ok_or_else(|| "the rung acquire was left out".into())
    }

    /// Ties the process to the device.
    ///
    /// # Errors
    /// The driver's.
    pub fn open_core(&mut self) -> Result<(), Failure> {
        let (node, chip) = self.node()?.clone();
        let core = Core::open(DeviceTag::new("AMD"), Arc::clone(self.driver()?), node, chip, self.options())?;
        self.core = Some(core);
        Ok(())
    }
}

/// Runs the rungs up to the first failure, reports each, and returns the exit code.
pub fn climb(args: &Args) -> ExitCode {
    let wrong = |what: String| {
        eprintln!("amd-first-contact: {what}");
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
    let mut climb = Climb { args: args.clone(), machine, driver: None, node: None, core: None };
    let (rows, story) = go(&mut climb);
    let left = end(&mut climb);
    tell(args, &rows, story.as_ref(), &left)
}

/// A rung that was tried.
struct Row {
    name: &'static str,
    ms: f64,
    /// What was observed; `None` where the run ended.
    note: Option<String>,
}

fn go(climb: &mut Climb) -> (Vec<Row>, Option<Story>) {
    let mut rows = Vec::new();
    for (n, rung) in RUNGS.iter().enumerate() {
        if climb.args.skip.iter().any(|s| s == rung.name) {
            say(&climb.args, &format!("{:>2} {:<10} left out", n + 1, rung.name));
            continue;
        }
        let seen = climb.machine.log.events().len();
        let began = Instant::now();
        let result = (rung.climb)(climb);
        let ms = began.elapsed().as_secs_f64() * 1e3;
        let events = climb.machine.log.events().split_off(seen);
        let story = Story::of(rung, result.as_ref().err(), &events);
        match (result, story) {
            (Ok(note), None) => {
                say(&climb.args, &format!("{:>2} {:<10} ok {ms:>9.1} ms  {note}", n + 1, rung.name));
                rows.push(Row { name: rung.name, ms, note: Some(note) });
            }
            (_, story) => {
                say(&climb.args, &format!("{:>2} {:<10} FAILED {ms:.1} ms  ({})", n + 1, rung.name, rung.about));
                rows.push(Row { name: rung.name, ms, note: None });
                let story = story
                    .map(|s| s.with_missing(missing::look(&climb.machine)).with_packets(climb.machine.complaints()));
                return (rows, story);
            }
        }
        if climb.args.until.as_deref() == Some(rung.name) {
            break;
        }
    }
    (rows, None)
}

/// Frees everything; reports what is left over.
fn end(climb: &mut Climb) -> Vec<String> {
    if let Some(core) = climb.core.take() {
        core.close();
        core.free_signals();
    }
    climb.driver = None;
    climb.machine.trace.flush();
    leftovers(&climb.machine.log.events())
}

fn say(args: &Args, line: &str) {
    if args.json { eprintln!("{line}") } else { println!("{line}") }
}

fn tell(args: &Args, rows: &[Row], story: Option<&Story>, left: &[String]) -> ExitCode {
    let reached = rows.iter().filter(|r| r.note.is_some()).count();
    match story {
        Some(story) => story.lines().iter().for_each(|line| say(args, line)),
        None => left.iter().for_each(|line| say(args, &format!("not given back: {line}"))),
    }
    let is_clean = story.is_none() && left.is_empty();
    let is_top = is_clean && reached == RUNGS.len();
    let what = match (is_clean, is_top) {
        (_, true) => "all rungs climbed",
        (true, false) => "as far as asked",
        (false, _) => "the climb ended",
    };
    say(args, &format!("{what}: {reached} of {}; trace: {}", RUNGS.len(), args.trace.display()));
    if args.json {
        let row = |r: &Row| json!({"rung": r.name, "ok": r.note.is_some(), "ms": r.ms, "note": r.note});
        let rows: Vec<Value> = rows.iter().map(row).collect();
        println!(
            "{}",
            json!({"device": args.device, "rungs": rows, "reached": reached, "of": RUNGS.len(), "top": is_top,
                "failed": story.map(Story::json), "not_given_back": left, "trace": args.trace})
        );
    }
    ExitCode::from(match story {
        None if is_clean => 0,
        Some(story) if story.is_absent() => 2,
        _ => 1,
    })
}

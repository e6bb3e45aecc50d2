//! Cases on devices: which of them, in which order, and their records.

use crate::case::{Case, Point};
use crate::cases;
use crate::error::BenchError;
use crate::machine::Machine;
use crate::measure::{Measured, Settings, Warmth, measure};
use crate::record::{CaseRecord, DeviceRecord, Host, Record, SCHEMA, Status, UNOPENED};
use crate::stats::Summary;
use crate::together::{Meeting, Part};
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::thread::ScopedJoinHandle;
use std::time::{Instant, SystemTime};

/// Which cases to run: those whose id contains one of the words (all, without words).
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub only: Vec<String>,
    pub without: Vec<String>,
}

impl Filter {
    /// Whether a case is wanted.
    #[must_use]
    pub fn wants(&self, id: &str) -> bool {
        let meets = |list: &[String]| list.iter().any(|word| id.contains(word.as_str()));
        (self.only.is_empty() || meets(&self.only)) && !meets(&self.without)
    }
}

impl Filter {
    /// A word that no case of these devices has: most likely a typing mistake.
    #[must_use]
    pub fn unknown(&self, machines: &[Machine]) -> Option<&str> {
        let has = |word: &&String| {
            let alone = Filter { only: vec![(*word).clone()], without: Vec::new() };
            machines.iter().any(|machine| !plan(machine, &alone).is_empty())
        };
        self.only.iter().find(|word| !has(word)).map(String::as_str)
    }
}

/// A case with its parameters.
pub type Planned = (&'static Case, Point);

/// What would run on a device, in order.
#[must_use]
pub fn plan(machine: &Machine, filter: &Filter) -> Vec<Planned> {
    let all = cases::ALL.iter().flat_map(|family| family.iter());
    let points = all.flat_map(|case| case.points(machine).into_iter().map(move |point| (case, point)));
    points.filter(|(case, point)| filter.wants(&case.id(point))).collect()
}

/// Makes a case without running it: why it is left out, if it is.
#[must_use]
pub fn left_out(machine: &Machine, (case, point): &Planned) -> Option<String> {
    let _session = machine.enter();
    (case.make)(machine, point).err().map(|e| e.to_string())
}

/// Observes a run: called when each case begins and when it has ended.
pub trait Watch {
    /// Number `at` of `of` begins.
    fn begins(&mut self, _device: &str, _id: &str, _at: usize, _of: usize) {}
    /// It has ended.
    fn ended(&mut self, _record: &CaseRecord) {}
    /// Whether to end now.
    fn is_stopped(&self) -> bool {
        false
    }
}

/// Runs the cases on each device in turn, or on all at the same time.
pub fn run(machines: &[Machine], filter: &Filter, settings: &Settings, watch: &mut dyn Watch) -> Record {
    let began = Instant::now();
    let mut results: Vec<CaseRecord> = Vec::new();
    let before: Vec<_> = machines.iter().map(Machine::state).collect();
    for pass in 0..settings.passes.max(1) {
        let mut keep = |record| keep(&mut results, record, pass);
        let ended = match settings.is_together {
            true => together(machines, filter, settings, watch, &mut keep),
            false => in_turn(machines, filter, settings, watch, &mut keep),
        };
        if ended == Ended::Stopped {
            break;
        }
    }
    let place = |r: &CaseRecord| machines.iter().position(|m| m.name == r.device);
    results.sort_by_key(place);
    let after = machines.iter().map(Machine::state);
    let devices = machines.iter().zip(before).zip(after).map(|((m, before), after)| device(m, before, after));
    Record {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION").into(),
        unix_time: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs()),
        host: host(),
        settings: recorded(settings),
        devices: devices.collect(),
        results,
        seconds: began.elapsed().as_secs_f64(),
    }
}

/// How a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Whole,
    /// The watch wanted it.
    Stopped,
}

fn in_turn(
    machines: &[Machine],
    filter: &Filter,
    settings: &Settings,
    watch: &mut dyn Watch,
    keep: &mut dyn FnMut(CaseRecord),
) -> Ended {
    for machine in machines {
        let planned = plan(machine, filter);
        let mut warmth = Warmth::default();
        for (at, one) in planned.iter().enumerate() {
            if watch.is_stopped() {
                return Ended::Stopped;
            }
            watch.begins(&machine.name, &one.0.id(&one.1), at, planned.len());
            let record = run_one(machine, one, settings, &mut warmth, None);
            watch.ended(&record);
            let is_dead = record.status.ends_device();
            keep(record);
            if is_dead {
                break;
            }
        }
    }
    Ended::Whole
}

/// What runs at the same time, in order: for each case its first points, then its second ones. `None`: the device has
/// fewer.
#[must_use]
pub fn steps(machines: &[Machine], filter: &Filter) -> Vec<Vec<Option<Planned>>> {
    let of_case = |case: &'static Case| {
        let wanted = |m: &Machine| -> Vec<Planned> {
            let points = case.points(m).into_iter().filter(|point| filter.wants(&case.id(point)));
            points.map(|point| (case, point)).collect()
        };
        let lists: Vec<Vec<Planned>> = machines.iter().map(wanted).collect();
        let most = lists.iter().map(Vec::len).max().unwrap_or(0);
        (0..most).map(move |n| lists.iter().map(|list| list.get(n).cloned()).collect())
    };
    cases::ALL.iter().flat_map(|family| family.iter()).flat_map(of_case).collect()
}

/// One thread for each device and case.
fn together(
    machines: &[Machine],
    filter: &Filter,
    settings: &Settings,
    watch: &mut dyn Watch,
    keep: &mut dyn FnMut(CaseRecord),
) -> Ended {
    let steps = steps(machines, filter);
    let mut devices: Vec<(Warmth, bool)> = machines.iter().map(|_| (Warmth::default(), true)).collect();
    for (at, step) in steps.iter().enumerate() {
        if watch.is_stopped() {
            return Ended::Stopped;
        }
        let all = machines.iter().zip(step).zip(&mut devices);
        let part = all.filter_map(|((machine, one), (warmth, is_alive))| {
            one.as_ref().filter(|_| *is_alive).map(|one| (machine, one, warmth, is_alive))
        });
        let part: Vec<_> = part.collect();
        let names: Vec<&str> = part.iter().map(|(machine, ..)| machine.name.as_str()).collect();
        let Some((_, first, ..)) = part.first() else { continue };
        watch.begins(&names.join(" + "), &first.0.id(&first.1), at, steps.len());
        let meeting = Meeting::new(part.len());
        let records: Vec<CaseRecord> = std::thread::scope(|s| {
            let (meeting, names) = (&meeting, &names);
            let started = part.into_iter().map(|(machine, one, warmth, is_alive)| {
                let mine = meeting.part();
                s.spawn(move || {
                    let mut record = run_one(machine, one, settings, warmth, Some(mine));
                    let others = names.iter().filter(|name| **name != machine.name);
                    record.together = others.map(|name| (*name).to_owned()).collect();
                    *is_alive = !record.status.ends_device();
                    record
                })
            });
            let started: Vec<_> = started.collect();
            let ended = |thread: ScopedJoinHandle<'_, CaseRecord>| thread.join().unwrap_or_else(|e| resume_unwind(e));
            started.into_iter().map(ended).collect()
        });
        for record in records {
            watch.ended(&record);
            keep(record);
        }
    }
    Ended::Whole
}

/// Adds a record; one of a later pass joins that of the first.
fn keep(results: &mut Vec<CaseRecord>, new: CaseRecord, pass: usize) {
    let same = |r: &&mut CaseRecord| r.device == new.device && r.id == new.id;
    let Some(known) = results.iter_mut().find(same).filter(|_| pass > 0) else {
        results.push(new);
        return;
    };
    if new.status.is_bad() {
        (known.status, known.reason) = (new.status, new.reason);
    }
    let before = known.samples.len();
    known.samples.extend(new.samples);
    known.throttled += new.throttled;
    known.throttled_at.extend(new.throttled_at.iter().map(|[_, first, end]| [before, *first, *end]));
    known.ns = Summary::of(&known.all_samples());
    known.value = known.ns.map(|ns| known.unit.value(known.work, ns.median));
}

/// One case at one point, on one device or, with a part in a meeting, with those that are there.
fn run_one(
    machine: &Machine,
    (case, point): &Planned,
    settings: &Settings,
    warmth: &mut Warmth,
    part: Option<Part<'_>>,
) -> CaseRecord {
    let began = Instant::now();
    let _session = machine.enter();
    let made = (case.make)(machine, point);
    let made_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let work = made.as_ref().map_or(0.0, |subject| subject.work);
    let measured = made.and_then(|subject| measure(machine, subject, settings, warmth, part));
    let (status, reason, measured) = match measured {
        Ok(measured) => (Status::Ok, None, measured),
        Err(e) => (e.status(), Some(e.to_string()), Measured::default()),
    };
    let ns = Summary::of(&measured.samples);
    let telemetry = if machine.is_software { serde_json::Value::Null } else { machine.state() };
    CaseRecord {
        device: machine.name.clone(),
        id: case.id(point),
        case: case.name.into(),
        parameters: point.0.iter().map(|(name, value)| ((*name).into(), value.clone())).collect(),
        status,
        reason,
        unit: case.unit,
        value: ns.map(|ns| case.unit.value(work, ns.median)),
        work,
        clock: if measured.is_device_clock { "device" } else { "host" }.into(),
        ns,
        runs: measured.runs,
        samples: if measured.samples.is_empty() { Vec::new() } else { vec![measured.samples] },
        throttled: measured.throttled.iter().map(|[first, end]| end - first).sum(),
        throttled_at: measured.throttled.iter().map(|[first, end]| [0, *first, *end]).collect(),
        clock_mhz: measured.clock_mhz,
        made_ns,
        together: Vec::new(),
        ended: measured.ended.into(),
        telemetry,
    }
}

fn device(machine: &Machine, state: serde_json::Value, state_after: serde_json::Value) -> DeviceRecord {
    let info = machine.device().info();
    DeviceRecord {
        name: machine.name.clone(),
        arch: info.arch.clone(),
        units: info.threads,
        memory_bytes: info.memory_bytes,
        is_software: machine.is_software,
        state,
        state_after,
    }
}

fn recorded(settings: &Settings) -> BTreeMap<String, serde_json::Value> {
    let pairs = [
        ("budget_s", settings.budget.as_secs_f64().into()),
        ("precision", settings.precision.into()),
        ("passes", settings.passes.into()),
        ("cold", settings.is_cold.into()),
        ("together", settings.is_together.into()),
    ];
    pairs.map(|(name, value)| (name.to_owned(), value)).into()
}

/// Names of the host, its kernel and its processor, where the system tells them.
#[must_use]
pub fn host() -> Host {
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = text("/proc/cpuinfo");
    let cpu = cpu.lines().find_map(|l| l.strip_prefix("model name")).and_then(|l| l.split_once(':'));
    let status = text("/proc/self/status");
    let allowed = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).unwrap_or_default();
    Host {
        name: text("/proc/sys/kernel/hostname").trim().into(),
        kernel: text("/proc/sys/kernel/osrelease").trim().into(),
        cpu: cpu.map_or("", |(_, name)| name.trim()).into(),
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        allowed: allowed.trim().into(),
    }
}

/// An error of one device as a record of no case, for devices that could not be opened.
#[must_use]
pub fn unopened(name: &str, error: &BenchError) -> CaseRecord {
    CaseRecord {
        device: name.into(),
        id: UNOPENED.into(),
        case: UNOPENED.into(),
        parameters: BTreeMap::new(),
        status: error.status(),
        reason: Some(error.to_string()),
        unit: crate::case::Unit::Nanoseconds,
        value: None,
        work: 0.0,
        clock: "host".into(),
        ns: None,
        runs: 0,
        samples: Vec::new(),
        throttled: 0,
        throttled_at: Vec::new(),
        clock_mhz: None,
        made_ns: 0,
        together: Vec::new(),
        ended: String::new(),
        telemetry: serde_json::Value::Null,
    }
}

//! `doorbell bench`: measures devices, checks what they compute, compares runs.

mod versus;

use super::{CliError, Output};
use clap::{Args, Subcommand};
use doorbell::device::Registry;
use doorbell::engine::session;
use doorbell_bench::compare::{self, Comparison, Judgement, Limits};
use doorbell_bench::machine::Machine;
use doorbell_bench::measure::Settings;
use doorbell_bench::record::{CaseRecord, Record, Status};
use doorbell_bench::report::{self, table};
use doorbell_bench::run::{self, Filter, Watch};
use doorbell_bench::{BenchError, burn, cases, verdict};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Subcommand, Debug)]
enum BenchCommand {
    /// List the cases with their parameters
    List,
    /// Print what would run on the devices, how long it takes at most, and what is left out and why
    Plan(RunArgs),
    /// Measure the devices of --device (several with commas; the default device without one)
    Run(RunArgs),
    /// Compare records: the last file with those before it. Exit code 1 if a case is slower or broken
    Compare(CompareArgs),
    /// Compare this program with another one, in turns, each time in a new process: finds small changes on machines
    /// that change themselves. Exit code 1 if a case is slower or broken
    Versus(versus::VersusArgs),
    /// Load the devices with work whose every result is checked. Exit code 1 if anything is wrong
    Burn(BurnArgs),
    /// Say PASS, WARNING, CRITICAL or UNKNOWN of each device, with numbered reasons. Exit code 0, 1, 1 or 2
    Verdict(VerdictArgs),
}

#[derive(Args, Debug)]
struct BurnArgs {
    /// How long, in seconds; until Ctrl-C without it
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<f64>,
    /// Share of the free memory to test
    #[arg(long, value_name = "SHARE", default_value_t = 0.9, value_parser = share)]
    memory: f64,
    /// Pause after each product, in milliseconds: load that comes and goes
    #[arg(long, value_name = "MS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=10_000))]
    pause: u64,
    /// Burn all devices of --device at the same time, not one after the other
    #[arg(long)]
    together: bool,
    /// Small sizes (always so on a software GPU)
    #[arg(long)]
    quick: bool,
}

#[derive(Args, Debug)]
struct VerdictArgs {
    /// Records of devices of this kind that are good: what is expected is learnt from them
    #[arg(long = "expect", value_name = "FILE")]
    expect: Vec<PathBuf>,
    /// Seconds of burning
    #[arg(long, value_name = "S", default_value_t = 10.0, value_parser = seconds)]
    burn: f64,
    /// Seconds of samples for a case
    #[arg(long, value_name = "S", default_value_t = 0.2, value_parser = seconds)]
    budget: f64,
    /// Judge by cases whose name contains one of these words alone
    #[arg(value_name = "WORD")]
    only: Vec<String>,
    /// Measure and burn all devices of --device at the same time, not one after the other
    #[arg(long)]
    together: bool,
    /// Small sizes (always so on a software GPU)
    #[arg(long)]
    quick: bool,
}

#[derive(Args, Debug)]
struct RunArgs {
    /// Cases whose name contains one of these words: memory, launch/wait, type=f16 (all without any)
    #[arg(value_name = "WORD")]
    only: Vec<String>,
    /// Leave out cases whose name contains WORD
    #[arg(long, value_name = "WORD")]
    without: Vec<String>,
    /// Seconds of samples for a case
    #[arg(long, value_name = "S", default_value_t = 0.5, value_parser = seconds)]
    budget: f64,
    /// Stop a case when its median is known to this share
    #[arg(long, value_name = "SHARE", default_value_t = 0.005, value_parser = share)]
    precision: f64,
    /// Run the whole list so many times: each case gets other memory and other surroundings
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    passes: u32,
    /// Empty the caches before each run
    #[arg(long)]
    cold: bool,
    /// Run each case on all devices of --device at the same time, not on one device after the other
    #[arg(long)]
    together: bool,
    /// Small sizes and few samples: values are checked, times mean little (always so on a software GPU)
    #[arg(long)]
    quick: bool,
    /// Write the record to FILE as JSON, to compare with later
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write a table to FILE
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write JUnit's XML to FILE
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write every sample to FILE, a line of JSON each
    #[arg(long, value_name = "FILE")]
    jsonl: Option<PathBuf>,
    /// Draw the results to FILE
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct CompareArgs {
    /// Records of `bench run --out`; several before the last one are one baseline
    #[arg(value_name = "FILE", num_args = 2.., required = true)]
    files: Vec<PathBuf>,
    /// A change below this share is of no interest
    #[arg(long, value_name = "SHARE", default_value_t = 0.01, value_parser = share)]
    least: f64,
    /// What two runs may differ by, where fewer than three records come before the last: only a larger change is
    /// reported
    #[arg(long, value_name = "SHARE", default_value_t = 0.1, value_parser = share)]
    between: f64,
}

fn seconds(text: &str) -> Result<f64, String> {
    within(text, 0.001, 86_400.0)
}

fn share(text: &str) -> Result<f64, String> {
    within(text, 0.0001, 1.0)
}

fn within(text: &str, low: f64, high: f64) -> Result<f64, String> {
    let n: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    if (low..=high).contains(&n) { Ok(n) } else { Err(format!("{low} to {high} are possible")) }
}

/// Runs the command. `devices` is what `--device` says: names with commas between them.
pub(crate) fn run(args: &BenchArgs, devices: &str, output: Output) -> Result<(), CliError> {
    match &args.command {
        BenchCommand::List => list(output),
        BenchCommand::Plan(args) => plan(args, devices, output),
        BenchCommand::Run(args) => measure(args, devices, output),
        BenchCommand::Compare(args) => compare_files(args, output),
        BenchCommand::Versus(args) => versus::run(args, devices, output),
        BenchCommand::Burn(args) => burn_devices(args, devices, output),
        BenchCommand::Verdict(args) => verdicts(args, devices, output),
    }
}

fn list(output: Output) -> Result<(), CliError> {
    let mut all = Vec::new();
    for case in cases::ALL.iter().flat_map(|family| family.iter()) {
        let axes: Vec<&str> = case.axes.iter().map(|axis| axis.name).collect();
        let parameters = if axes.is_empty() { String::new() } else { format!("[{}]", axes.join(",")) };
        output.say(&format!("{:<42} {:<6} {}", format!("{}{parameters}", case.name), case.unit.symbol(), case.about));
        let values: Vec<String> = case.axes.iter().map(|axis| format!("{}={}", axis.name, axis.values)).collect();
        if !values.is_empty() {
            output.say(&format!("    {}", values.join("; ")));
        }
        let unit = case.unit.symbol();
        let values: serde_json::Map<_, _> =
            case.axes.iter().map(|axis| (axis.name.into(), axis.values.json())).collect();
        all.push(serde_json::json!({
            "case": case.name, "about": case.about, "unit": unit, "parameters": axes, "values": values}));
    }
    output.result(&serde_json::json!({"cases": all}));
    Ok(())
}

impl RunArgs {
    fn filter(&self) -> Filter {
        Filter { only: self.only.clone(), without: self.without.clone() }
    }

    fn settings(&self, is_small: bool) -> Settings {
        let budget = Duration::from_secs_f64(self.budget);
        let wanted = Settings { budget, precision: self.precision, ..Settings::default() };
        let settings = if is_small { Settings::quick() } else { wanted };
        Settings { passes: self.passes as usize, is_cold: self.cold, is_together: self.together, ..settings }
    }
}

/// Devices of the command line.
struct Opened {
    machines: Vec<Machine>,
    /// Those that cannot be opened, and why.
    others: Vec<(String, BenchError)>,
}

/// Opens the devices. One that cannot be opened holds up none of the others; if there are no others, it is an error of
/// the command. Devices that work at the same time are several, and each stands once.
fn open(devices: &str, is_quick: bool, is_together: bool) -> Result<Opened, CliError> {
    let opened = open_each(devices, is_quick)?;
    if opened.machines.is_empty() {
        let why = opened.others.first().map_or_else(|| "no device is named".into(), |(_, e)| e.to_string());
        return Err(CliError::CouldNotRun(why));
    }
    if is_together {
        check_together(devices, &opened)?;
    }
    Ok(opened)
}

fn open_each(devices: &str, is_quick: bool) -> Result<Opened, CliError> {
    let options = session()?.options.clone();
    let mut opened = Opened { machines: Vec::new(), others: Vec::new() };
    for name in devices.split(',').filter(|name| !name.is_empty()) {
        match Machine::open(name, options.clone(), is_quick) {
            Ok(machine) => opened.machines.push(machine),
            Err(e) => {
                // As a record has it, so that comparisons find it.
                let known = Registry::global().name(name).map_or_else(|_| name.into(), |name| name.to_string());
                opened.others.push((known, e));
            }
        }
    }
    Ok(opened)
}

fn check_together(devices: &str, opened: &Opened) -> Result<(), CliError> {
    let machines = &opened.machines;
    if machines.len() + opened.others.len() < 2 {
        return Err(CliError::Usage(format!(
            "--together is for several devices, as --device NV,NV:1; this is {devices}"
        )));
    }
    let twice = machines.iter().enumerate().find(|(n, m)| machines[..*n].iter().any(|other| other.name == m.name));
    match twice {
        Some((_, m)) => Err(CliError::Usage(format!("--together: {} stands twice in --device {devices}", m.name))),
        None => Ok(()),
    }
}

/// Tells of a word that no case has, which is most likely a slip: what was wanted is then not all done (exit code 2).
fn unknown_word(filter: &Filter, machines: &[Machine]) -> Result<(), CliError> {
    let Some(word) = filter.unknown(machines) else { return Ok(()) };
    eprintln!("doorbell: no case's name contains {word:?}: `doorbell bench list` has the names");
    Err(CliError::Reported(2))
}

fn plan(args: &RunArgs, devices: &str, output: Output) -> Result<(), CliError> {
    let mut all = Vec::new();
    let opened = open(devices, args.quick, args.together)?;
    let words = unknown_word(&args.filter(), &opened.machines);
    for machine in &opened.machines {
        let settings = args.settings(machine.is_small);
        let planned = run::plan(machine, &args.filter());
        let mut runs = 0;
        for one in &planned {
            let id = one.0.id(&one.1);
            let why = run::left_out(machine, one);
            runs += usize::from(why.is_none());
            let reported = why.as_deref().map_or_else(String::new, |why| format!("left out: {why}"));
            output.say(&format!("{:<10} {id:<52} {reported}", machine.name));
            all.push(serde_json::json!({"device": machine.name, "id": id, "left_out": why}));
        }
        let most = settings.budget.as_secs_f64() * (runs * settings.passes) as f64;
        output.say(&format!("{}: {runs} of {} cases, at most {most:.1} s of samples", machine.name, planned.len()));
    }
    for (name, why) in &opened.others {
        output.say(&format!("{name}: {why}"));
        all.push(serde_json::json!({"device": name, "id": "open", "left_out": why.to_string()}));
    }
    if args.together {
        output.say("all devices at the same time, case by case");
    }
    output.result(&serde_json::json!({"plan": all, "together": args.together}));
    words
}

/// Progress and results for a person.
#[derive(Clone)]
struct Live {
    output: Output,
    /// Lines begin with the device's name.
    tells_device: bool,
    is_terminal: bool,
    stop: Arc<AtomicBool>,
}

impl Watch for Live {
    fn begins(&mut self, device: &str, id: &str, at: usize, of: usize) {
        if self.is_terminal {
            eprint!("\r\x1b[K{}/{of} {device} {id}", at + 1);
        }
    }
    fn ended(&mut self, record: &CaseRecord) {
        self.clear_line();
        let device = if self.tells_device { format!("{:<16} ", record.device) } else { String::new() };
        self.output.say(&(device + &table::line(record)));
    }
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl Live {
    /// Takes the line of progress away.
    fn clear_line(&self) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
    }

    fn new(output: Output) -> Live {
        let is_terminal = std::io::stderr().is_terminal();
        Live { output, tells_device: false, is_terminal, stop: until_interrupted() }
    }
}

/// A flag that Ctrl-C sets; a second one ends the program.
fn until_interrupted() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let handler = move || {
        if stopped.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    };
    // A second handler is refused: then Ctrl-C ends the program as ever.
    let _ends_early = ctrlc::set_handler(handler);
    stop
}

impl burn::Watch for Live {
    fn round(&mut self, report: &burn::Report) {
        if self.is_terminal {
            let (rounds, bad) = (report.rounds, report.findings.len());
            eprint!("\r\x1b[K{}: {rounds} rounds, {:.0} s, {bad} findings", report.device, report.seconds);
        }
    }
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

fn burn_devices(args: &BurnArgs, devices: &str, output: Output) -> Result<(), CliError> {
    let options = burn::Options {
        duration: args.seconds.map(Duration::from_secs_f64),
        share: args.memory,
        pause: Duration::from_millis(args.pause),
        ..burn::Options::default()
    };
    let mut live = Live::new(output);
    let opened = open(devices, args.quick, args.together)?;
    let mut reports = Vec::new();
    if args.together {
        reports = burn::together(&opened.machines, &options, vec![live.clone(); opened.machines.len()]);
        live.clear_line();
        reports.iter().for_each(|report| say_burn(report, output));
    } else {
        for machine in &opened.machines {
            let report = burn::burn(machine, &options, &mut live);
            live.clear_line();
            say_burn(&report, output);
            reports.push(report);
        }
    }
    for (name, why) in &opened.others {
        output.say(&format!("{name}: not burnt: {why}"));
        reports.push(burn::unopened(name, why));
    }
    let is_good = reports.iter().all(burn::Report::is_good);
    output.result(&serde_json::json!({"burn": reports, "together": args.together, "ok": is_good}));
    if is_good { Ok(()) } else { Err(CliError::Reported(1)) }
}

fn say_burn(report: &burn::Report, output: Output) {
    let rate = table::short(report.operations / report.seconds.max(1e-9) / 1e9);
    let bytes = report.memory_bytes_a_round;
    let memory = if bytes < 1 << 20 { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) };
    output.say(&format!(
        "{}: {} rounds in {:.1} s, {rate} Gop/s over all, {} elements compared, {memory} of memory a round; ended by {}",
        report.device, report.rounds, report.seconds, report.elements, report.ended
    ));
    for f in &report.findings {
        output.say(&format!("{}: WRONG in round {}, {}: {}", report.device, f.round, f.test, f.text));
    }
    if report.findings.is_empty() && !report.is_good() {
        output.say(&format!("{}: nothing was checked to the end", report.device));
    }
}

fn verdicts(args: &VerdictArgs, devices: &str, output: Output) -> Result<(), CliError> {
    let read = |path: &PathBuf| Record::read(path).map_err(|e| CliError::CouldNotRun(e.to_string()));
    let learnt = args.expect.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let opened = open_each(devices, args.quick)?;
    if args.together {
        check_together(devices, &opened)?;
    }
    // All of a group work at the same time.
    let group_len = if args.together { opened.machines.len().max(1) } else { 1 };
    let mut live = Live::new(Output { json: true });
    let mut all = Vec::new();
    for machines in opened.machines.chunks(group_len) {
        let verdicts = verdicts_on(machines, args, &learnt, &mut live);
        verdicts.iter().for_each(|verdict| say_verdict(verdict, output));
        all.extend(verdicts);
    }
    for (name, why) in &opened.others {
        let verdict = verdict::unopened(name, &why.to_string());
        say_verdict(&verdict, output);
        all.push(verdict);
    }
    let worst = all.iter().map(|v| v.level).max().unwrap_or(verdict::Level::Unknown);
    output.result(&serde_json::json!({"verdicts": all, "together": args.together, "worst": worst}));
    match worst.exit_code() {
        0 => Ok(()),
        2 => Err(CliError::Reported(2)),
        _ => Err(CliError::Reported(1)),
    }
}

/// The verdicts on devices that work at the same time, where there are several.
fn verdicts_on(machines: &[Machine], args: &VerdictArgs, learnt: &[Record], live: &mut Live) -> Vec<verdict::Verdict> {
    let filter = Filter { only: args.only.clone(), without: vec!["compile/".into()] };
    let budget = Duration::from_secs_f64(args.budget);
    let is_small = machines.iter().all(|m| m.is_small);
    let settings = if is_small { Settings::quick() } else { Settings { budget, ..Settings::default() } };
    let settings = Settings { is_together: machines.len() > 1, ..settings };
    let record = run::run(machines, &filter, &settings, live);
    let options = burn::Options { duration: Some(Duration::from_secs_f64(args.burn)), ..burn::Options::default() };
    let burnt = burn::together(machines, &options, vec![live.clone(); machines.len()]);
    let one = |(machine, burnt): (&Machine, &burn::Report)| {
        let device = record.devices.iter().find(|device| device.name == machine.name);
        match device {
            Some(device) => verdict::judge(device, &record, learnt, Some(burnt)),
            None => verdict::unopened(&machine.name, "there is no record of it"),
        }
    };
    machines.iter().zip(&burnt).map(one).collect()
}

fn say_verdict(verdict: &verdict::Verdict, output: Output) {
    let (device, word) = (&verdict.device, verdict.level.word());
    let (measured, expected) = (verdict.measured, verdict.expected);
    output.say(&format!("{device}: {word} ({measured} cases measured, {expected} with an expected range)"));
    for r in &verdict.reasons {
        output.say(&format!("{device}: {} {}: {}: {}; {}", r.number, r.level.word(), r.text, r.seen, r.remedy));
    }
}

/// The profile `release` builds this program, and what makes kernels, without optimisation; what is shipped has another
/// level.
const IS_UNOPTIMISED: bool = matches!(env!("DOORBELL_OPT_LEVEL").as_bytes(), b"0");

fn measure(args: &RunArgs, devices: &str, output: Output) -> Result<(), CliError> {
    if IS_UNOPTIMISED {
        eprintln!(
            "doorbell: this program is built to be ready soon (profile release): it compiles kernels six to eleven \
             times slower than what `cargo xtask dist` makes, and each launch costs it up to a half more"
        );
    }
    let Opened { machines, others } = open(devices, args.quick, args.together)?;
    let words = unknown_word(&args.filter(), &machines);
    check_files(args)?;
    let is_small = machines.iter().all(|m| m.is_small);
    let mut live = Live { tells_device: machines.len() + others.len() > 1, ..Live::new(output) };
    let device = if live.tells_device { format!("{:<16} ", "device") } else { String::new() };
    output.say(&(device + &table::head()));
    if args.together {
        output.say("all devices at the same time, case by case");
    }
    let mut record = run::run(&machines, &args.filter(), &args.settings(is_small), &mut live);
    for (name, why) in &others {
        let unopened = run::unopened(name, why);
        live.ended(&unopened);
        record.results.push(unopened);
    }
    write_files(args, &record)?;
    let bad = record.results.iter().filter(|r| r.status.is_bad()).map(|r| format!("{} {}", r.device, r.id));
    let bad: Vec<String> = bad.collect();
    let left_out = record.results.iter().filter(|r| r.status == Status::LeftOut).count();
    let (results, seconds) = (record.results.len(), record.seconds);
    output.say(&format!("{results} results in {seconds:.1} s, {} bad, {left_out} left out", bad.len()));
    output.result(&serde_json::to_value(&record).unwrap_or_default());
    if bad.is_empty() {
        return words;
    }
    eprintln!("doorbell: {} cases failed: {}", bad.len(), bad.join(", "));
    Err(CliError::Reported(1))
}

/// Whether the files can be written: before the cases run, which may take an hour.
fn check_files(args: &RunArgs) -> Result<(), CliError> {
    for path in [&args.out, &args.csv, &args.junit, &args.jsonl, &args.svg].into_iter().flatten() {
        let opened = std::fs::OpenOptions::new().create(true).append(true).open(path);
        opened.map_err(|e| CliError::CouldNotRun(format!("{}: {e}", path.display())))?;
    }
    Ok(())
}

fn write_files(args: &RunArgs, record: &Record) -> Result<(), CliError> {
    let csv = |record: &Record| report::csv(record).map_err(|e| CliError::Failed(e.to_string()));
    let json = |record: &Record| serde_json::to_string(record).map_err(|e| CliError::Failed(e.to_string()));
    write(args.out.as_deref(), || Ok(json(record)? + "\n"))?;
    write(args.csv.as_deref(), || csv(record))?;
    write(args.junit.as_deref(), || Ok(report::junit(record)))?;
    write(args.jsonl.as_deref(), || Ok(report::samples(record)))?;
    write(args.svg.as_deref(), || Ok(report::plot::svg(record)))
}

fn write(path: Option<&Path>, text: impl FnOnce() -> Result<String, CliError>) -> Result<(), CliError> {
    let Some(path) = path else { return Ok(()) };
    std::fs::write(path, text()?).map_err(|e| CliError::CouldNotRun(format!("{}: {e}", path.display())))
}

fn compare_files(args: &CompareArgs, output: Output) -> Result<(), CliError> {
    let read = |path: &PathBuf| Record::read(path).map_err(|e| CliError::CouldNotRun(e.to_string()));
    let mut all = args.files.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let Some(now) = all.pop() else { return Err(CliError::Usage("two files are needed".into())) };
    let limits = Limits { least: args.least, between: args.between, ..Limits::default() };
    let compared = compare::compare(&all, &now, limits);
    compared.iter().for_each(|c| say_comparison(c, output));
    judged(&compared, output)
}

fn say_comparison(c: &Comparison, output: Output) {
    let ratio = c.ratio.map_or_else(String::new, |r| format!("{r:.4}x the time"));
    let between = c.interval.map_or_else(String::new, |(low, high)| format!("[{low:.4}, {high:.4}]"));
    let why = c.reason.as_deref().unwrap_or_default();
    output.say(&format!("{:<8} {:<10} {:<52} {ratio} {between} {why}", c.judgement.word(), c.device, c.id));
}

/// The result of comparisons, and the exit code.
fn judged(compared: &[Comparison], output: Output) -> Result<(), CliError> {
    let fails = compare::fails(compared);
    output.result(&serde_json::json!({"comparisons": compared, "fails": fails}));
    match () {
        () if fails => Err(CliError::Reported(1)),
        () if compared.iter().all(|c| c.judgement == Judgement::Missing) => {
            eprintln!("doorbell: the records have no result in common");
            Err(CliError::Reported(2))
        }
        () => Ok(()),
    }
}

impl From<BenchError> for CliError {
    fn from(e: BenchError) -> CliError {
        CliError::Failed(e.to_string())
    }
}

//! `doorbell drivertest`: cases for GPU drivers, each in a process of its own.

use crate::{CliError, Output};
use clap::{Args, Subcommand};
use doorbell_drivertest::expect::{Expectations, Machine as Known};
use doorbell_drivertest::run::{Options, Said, run};
use doorbell_drivertest::select::Select;
use doorbell_drivertest::target::Target;
use doorbell_drivertest::{Case, bench, bisect, case::Change, cases, fuzz, mutant, report, score, syzlang};
use doorbell_ioctl::fault::{Plan, port_plan};
use doorbell_ioctl::port::Port;
use doorbell_ioctl::replay::ReplayOptions;
use doorbell_ioctl::trace::{FileSink, Sink};
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

#[derive(Args, Debug)]
pub(crate) struct DrivertestArgs {
    #[command(subcommand)]
    command: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// List the cases
    List(Choice),
    /// Run cases, each in a process of its own
    Run(Box<RunArgs>),
    /// Say what a case checks, and under which faults it fails
    Explain {
        /// Its name
        case: String,
    },
    /// Run the cases under every fault of the driver in software, and print which are noticed
    Score(Choice),
    /// Shrink a recorded run to the calls that show its first difference
    BisectTrace {
        /// A run recorded with `--record`
        file: PathBuf,
        /// Where to write the shorter recording
        #[arg(long, value_name = "FILE", default_value = "bisected.trace")]
        out: PathBuf,
    },
    /// Run random programs of calls that build on each other, on the driver in software
    Fuzz {
        /// How many programs
        #[arg(long, value_name = "N", default_value_t = 10_000)]
        programs: u64,
        /// The first seed
        #[arg(long, value_name = "N", default_value_t = 1)]
        seed: u64,
        /// Where to write the calls of a failing program
        #[arg(long, value_name = "FILE", default_value = "crash.trace")]
        out: PathBuf,
    },
    /// Print the driver's calls in syzkaller's language
    Syzlang,
    /// Run one case in this process
    #[command(hide = true)]
    Case(CaseArgs),
}

#[derive(Args, Debug)]
struct Choice {
    /// Names, with * for any text; all cases if there is none
    patterns: Vec<String>,
    /// Only cases with this tag: kfd, nv, a family, provokes
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Leave out cases of such names
    #[arg(long = "skip", value_name = "PATTERN")]
    without: Vec<String>,
    /// Only part K of N, as K/N from 1
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,
}

#[derive(Args, Debug)]
struct RunArgs {
    #[command(flatten)]
    choice: Choice,
    /// Fail when this case was filtered out, is absent or was skipped
    #[arg(long, value_name = "CASE")]
    require: Vec<String>,
    /// What is known to fail: a file of JSON
    #[arg(long, value_name = "FILE")]
    expect: Option<PathBuf>,
    /// The longest a case may take, in seconds
    #[arg(long, value_name = "S", default_value_t = 60.0)]
    case_timeout: f64,
    /// The longest a case may say nothing, in seconds
    #[arg(long, value_name = "S", default_value_t = 30.0)]
    silence: f64,
    /// The longest the whole run may take, in seconds
    #[arg(long, value_name = "S", default_value_t = 3600.0)]
    run_timeout: f64,
    /// Run each case so often, until it fails
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeat: u32,
    /// Seed of what cases draw
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Folder for the journal, and for a bundle of each case that did not pass
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
    /// Go on where the journal in --results ends
    #[arg(long, requires = "results")]
    resume: bool,
    /// Fail calls on purpose: CREATE_QUEUE:2:EINVAL, mmap:1:ENOMEM, doorbell:1:lose
    #[arg(long, value_name = "CALL:N:ERRNO")]
    fault: Vec<String>,
    /// Put the machine, or its cards, to sleep in the cases that need it; all their users stop meanwhile
    #[arg(long)]
    sleep: bool,
    /// Print KTAP version 1 in place of a line a case
    #[arg(long)]
    ktap: bool,
    /// Write JUnit's XML to a file
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct CaseArgs {
    name: String,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long)]
    calls: Option<PathBuf>,
    #[arg(long)]
    fault: Vec<String>,
    #[arg(long)]
    sleep: bool,
    /// Of its second process
    #[arg(long)]
    part: Option<String>,
}

pub(crate) fn run_command(args: &DrivertestArgs, device: &str, output: Output) -> Result<(), CliError> {
    match &args.command {
        What::List(choice) => list(choice, device, output),
        What::Run(args) => run_cases(args, &target(device)?, device, output),
        What::Explain { case } => explain(case, device, output),
        What::Score(choice) => print_score(choice, &target(device)?, output),
        What::BisectTrace { file, out } => bisect_trace(file, out, &target(device)?, output),
        What::Fuzz { programs, seed, out } => fuzz_driver(&target(device)?, *programs, *seed, out, output),
        What::Syzlang => {
            output.say(syzlang::emit(target(device)?.driver).trim_end());
            Ok(())
        }
        What::Case(args) => one(args, &target(device)?),
    }
}

fn target(device: &str) -> Result<Target, CliError> {
    Target::parse(device).map_err(CliError::Usage)
}

/// The cases of the device's driver; of both drivers for a device that is none of theirs.
fn known(device: &str) -> Vec<Case> {
    use doorbell_drivertest::Driver;
    match Target::parse(device) {
        Ok(target) => cases(target.driver),
        Err(_) => [Driver::Kfd, Driver::Nv].into_iter().flat_map(cases).collect(),
    }
}

fn select(choice: &Choice) -> Result<Select, CliError> {
    let shard = choice.shard.as_deref().map(|text| {
        let parts = text.split_once('/').and_then(|(k, n)| Some((k.parse::<usize>().ok()?, n.parse::<usize>().ok()?)));
        let part = parts.filter(|(k, n)| (1..=*n).contains(k)).map(|(k, n)| (k - 1, n));
        part.ok_or_else(|| CliError::Usage(format!("--shard {text}: K/N with K from 1 to N")))
    });
    let (patterns, tags, without) = (choice.patterns.clone(), choice.tags.clone(), choice.without.clone());
    Ok(Select { patterns, tags, without, shard: shard.transpose()? })
}

fn list(choice: &Choice, device: &str, output: Output) -> Result<(), CliError> {
    let all = known(device);
    let chosen = select(choice)?.of(&all);
    for case in &chosen {
        output.say(&format!("{}  {}", case.name, case.what));
    }
    output.say(&format!("{} cases", chosen.len()));
    let names: Vec<_> = chosen
        .iter()
        .map(|case| serde_json::json!({"name": case.name, "what": case.what, "tags": doorbell_drivertest::select::tags(case)}))
        .collect();
    output.result(&serde_json::json!({ "cases": names }));
    Ok(())
}

fn find(name: &str, device: &str) -> Result<Case, CliError> {
    let found = known(device).into_iter().find(|case| case.name == name);
    found.ok_or_else(|| CliError::Usage(format!("no case is called {name}: `doorbell drivertest list` has the names")))
}

fn plan(faults: &[String]) -> Result<Plan, CliError> {
    let mut all = Plan::default();
    for text in faults {
        all.0.extend(port_plan(text).map_err(CliError::Usage)?.0);
    }
    Ok(all)
}

fn seconds(name: &str, value: f64) -> Result<Duration, CliError> {
    Duration::try_from_secs_f64(value).map_err(|_| CliError::Usage(format!("{name} {value}: seconds, 0 or more")))
}

fn run_cases(args: &RunArgs, target: &Target, device: &str, output: Output) -> Result<(), CliError> {
    let all = cases(target.driver);
    let names: Vec<&str> = all.iter().map(|case| case.name.as_str()).collect();
    let chosen = select(&args.choice)?.of(&all);
    if chosen.is_empty() && args.require.is_empty() {
        return Err(CliError::CouldNotRun("no case was chosen".to_owned()));
    }
    plan(&args.fault)?;
    let expectations = match &args.expect {
        None => Expectations::default(),
        Some(path) => read_expectations(path, &names, target)?,
    };
    let options = Options {
        case_timeout: seconds("--case-timeout", args.case_timeout)?,
        silence: seconds("--silence", args.silence)?,
        run_timeout: seconds("--run-timeout", args.run_timeout)?,
        repeat: args.repeat,
        seed: args.seed,
        results: args.results.clone(),
        resume: args.resume,
        require: args.require.clone(),
    };
    let own = std::env::current_exe().map_err(|e| CliError::CouldNotRun(format!("this program's own file: {e}")))?;
    let spawn = |name: &str, seed: u64, calls: Option<&Path>| {
        let mut command = Command::new(&own);
        command.args(["--device", device, "drivertest", "case", name, "--seed", &seed.to_string()]);
        if let Some(file) = calls {
            command.arg("--calls").arg(file);
        }
        if args.sleep {
            command.arg("--sleep");
        }
        for fault in &args.fault {
            command.args(["--fault", fault]);
        }
        command
    };
    let reported = &mut |record: &doorbell_drivertest::run::Record| {
        if !args.ktap {
            output.say(&report::line(record));
        }
    };
    let done = run(&chosen, &expectations, &options, &spawn, reported);
    let done = done.map_err(|e| CliError::CouldNotRun(format!("the run: {e}")))?;
    if args.ktap {
        output.say(report::ktap(&done).trim_end());
    } else {
        output.say(&report::summary(&done));
    }
    done.unmet.iter().for_each(|line| eprintln!("doorbell: {line}"));
    if let Some(path) = &args.junit {
        std::fs::write(path, report::junit(&done))
            .map_err(|e| CliError::CouldNotRun(format!("--junit {}: {e}", path.display())))?;
    }
    output.result(&report::json(&done));
    if done.is_ok() { Ok(()) } else { Err(CliError::Reported(1)) }
}

fn read_expectations(path: &Path, names: &[&str], target: &Target) -> Result<Expectations, CliError> {
    let wrong = |what: String| CliError::Usage(format!("--expect {}: {what}", path.display()));
    let text = crate::files::read_text(path).map_err(|e| wrong(e.to_string()))?;
    let release = target.release();
    let machine = Known { chip: target.chip.clone().unwrap_or_default(), release };
    Expectations::read(&text, names, &machine).map_err(wrong)
}

/// A second process of a case on the running kernel.
fn start(setting: &bench::Setting, case: &str, part: &str) -> Command {
    let own = std::env::current_exe().unwrap_or_else(|_| "doorbell".into());
    let mut command = Command::new(own);
    command.args(["--device", setting.target.device(), "drivertest", "case", case, "--part", part]);
    command.args(["--seed", &setting.seed.to_string()]);
    command
}

/// A child's end: steps as they come, the verdict last.
fn one(args: &CaseArgs, target: &Target) -> Result<(), CliError> {
    let all = cases(target.driver);
    let case = all.iter().find(|case| case.name == args.name);
    let case = case.ok_or_else(|| CliError::Usage(format!("no case is called {}", args.name)))?;
    let setting = bench::Setting {
        seed: args.seed,
        faults: plan(&args.fault)?,
        progress: crate::print,
        calls: args.calls.clone(),
        sleep: args.sleep,
        start: target.chip.is_none().then_some(start),
        ..bench::Setting::new(target.clone())
    };
    let end = match &args.part {
        None => bench::run(case, &setting),
        Some(part) => bench::run_part(case, &setting, part),
    };
    let end = end.map_err(|e| CliError::CouldNotRun(format!("the machine: {e}")))?;
    let said = Said { verdict: end.verdict, why: end.why, key: end.key.map(str::to_owned) };
    let json = serde_json::to_string(&said).map_err(|e| CliError::Failed(e.to_string()))?;
    crate::print(&format!("end {json}"));
    Ok(())
}

/// The software machine that faults are tried on.
fn software(device: &str, case: &Case) -> Target {
    let own = Target::parse(device).ok().filter(|target| target.chip.is_some());
    let default = if case.name.starts_with("kfd.") { "AMD:emu=gfx1100" } else { "NV:emu=sm_90" };
    // PANIC: both are chips of the software machines.
    own.unwrap_or_else(|| Target::parse(default).expect("a software machine"))
}

fn explain(name: &str, device: &str, output: Output) -> Result<(), CliError> {
    const SHOWN: usize = 5;
    let case = find(name, device)?;
    let target = software(device, &case);
    let setting = bench::Setting::new(target.clone());
    let failed = |e| CliError::CouldNotRun(format!("the software machine: {e}"));
    let end = bench::run(&case, &setting).map_err(failed)?;
    let mut killers = Vec::new();
    for mutant in mutant::all(target.driver, &end.calls).iter().filter(|mutant| mutant.concerns(&end.calls)) {
        if killers.len() == SHOWN {
            break;
        }
        if score::notices(&case, &setting, mutant).map_err(failed)? {
            killers.push(mutant.to_string());
        }
    }
    output.say(&format!("{}: {}", case.name, case.what));
    let log = if case.log.is_empty() { "nothing".to_owned() } else { case.log.join(", ") };
    output.say(&format!("may provoke in the kernel's log: {log}"));
    output.say(&format!("on the software machine: {} {}", end.verdict.word(), end.why));
    output.say("fails, for one, when the driver is wrong in this:");
    killers.iter().for_each(|killer| output.say(&format!("  {killer}")));
    output.result(&serde_json::json!({
        "case": case.name, "what": case.what, "log": case.log, "verdict": end.verdict, "fails_under": killers,
    }));
    Ok(())
}

fn print_score(choice: &Choice, target: &Target, output: Output) -> Result<(), CliError> {
    if target.chip.is_none() {
        return Err(CliError::Usage(
            "faults are for software machines: --device AMD:emu=CHIP or NV:emu=CHIP".to_owned(),
        ));
    }
    let select = select(choice)?;
    let chosen: Vec<Case> =
        cases(target.driver).into_iter().filter(|case| !select.of(std::slice::from_ref(case)).is_empty()).collect();
    let setting = bench::Setting::new(target.clone());
    let score =
        score::score(&chosen, &setting).map_err(|e| CliError::CouldNotRun(format!("the software machine: {e}")))?;
    output.say(&score.to_string());
    output.result(&score.json());
    if score.unfit.is_empty() && score.unproven.is_empty() { Ok(()) } else { Err(CliError::Reported(1)) }
}

/// gspwn's published figure (August 2026): commands of RM with a handler in the kernel that it reaches.
const GSPWN_CONTROLS: usize = 531;

fn fuzz_driver(target: &Target, programs: u64, seed: u64, out: &Path, output: Output) -> Result<(), CliError> {
    if target.chip.is_none() {
        return Err(CliError::Usage(
            "programs run on software machines: --device AMD:emu=CHIP or NV:emu=CHIP".to_owned(),
        ));
    }
    let began = std::time::Instant::now();
    let done =
        fuzz::campaign(target, seed, programs).map_err(|e| CliError::CouldNotRun(format!("the machine: {e}")))?;
    let control = doorbell_ioctl::abi::nvrm::CONTROL.desc.request;
    let controls = done.reached.iter().filter(|(request, _)| *request == control).count();
    let rate = done.programs as f64 / began.elapsed().as_secs_f64();
    output.say(&format!(
        "{} programs, {} calls, {rate:.0} programs/s; {} kept, {} pairs of calls and outcomes; {} calls succeeded",
        done.programs,
        done.calls,
        done.corpus,
        done.pairs,
        done.reached.len()
    ));
    if target.driver == doorbell_drivertest::Driver::Nv {
        output.say(&format!(
            "{controls} commands of RM succeeded; gspwn reaches {GSPWN_CONTROLS} handlers of the real one"
        ));
    }
    if let Some(crash) = &done.crash {
        write_trace(out, &crash.events)?;
        output.say(&format!("{}: program {:?}, its calls are in {}", crash.what, crash.program.0, out.display()));
    }
    output.result(&serde_json::json!({
        "programs": done.programs, "calls": done.calls, "corpus": done.corpus, "pairs": done.pairs,
        "reached": done.reached.len(), "controls": controls, "crash": done.crash.as_ref().map(|c| &c.what),
    }));
    if done.crash.is_none() { Ok(()) } else { Err(CliError::Reported(1)) }
}

fn write_trace(out: &Path, events: &[doorbell_ioctl::trace::Event]) -> Result<(), CliError> {
    let failed = |e: std::io::Error| CliError::CouldNotRun(format!("--out {}: {e}", out.display()));
    let mut sink = FileSink::new(BufWriter::new(File::create(out).map_err(failed)?)).map_err(failed)?;
    events.iter().for_each(|event| sink.event(event));
    sink.flush();
    Ok(())
}

fn bisect_trace(file: &Path, out: &Path, target: &Target, output: Output) -> Result<(), CliError> {
    let events = crate::trace::read(file)?;
    if events.is_empty() {
        return Err(CliError::CouldNotRun(format!("{} holds no calls", file.display())));
    }
    let open = || -> Option<Arc<dyn Port>> { Some(target.open(Change::None, None).ok()?.port()) };
    let found = bisect::bisect(&events, &ReplayOptions::default(), open);
    let Some(found) = found else {
        output.say("the replay shows no difference");
        output.result(&serde_json::json!({ "difference": null }));
        return Ok(());
    };
    write_trace(out, &found.events)?;
    let (all, left) = (events.len(), found.events.len());
    output.say(&found.difference.to_string());
    output.say(&format!("{left} of {all} events show it, after {} replays: {}", found.replays, out.display()));
    output.result(&serde_json::json!({
        "difference": found.difference.to_string(), "events": all, "left": left, "replays": found.replays, "out": out,
    }));
    Err(CliError::Reported(1))
}

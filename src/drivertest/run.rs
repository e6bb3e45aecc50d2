//! The runner: a process a case, three deadlines, a journal that outlives the machine, expectations, the verdict.

use crate::case::{Case, Verdict};
use crate::expect::{Expectations, Expected};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How a run is done.
#[derive(Clone, Debug)]
pub struct Options {
    /// The longest that a case may take.
    pub case_timeout: Duration,
    /// The longest that it may say nothing.
    pub silence: Duration,
    /// The longest for all of them.
    pub run_timeout: Duration,
    /// Each case so often, until it fails.
    pub repeat: u32,
    /// First seed; repetitions count on.
    pub seed: u64,
    /// The folder of journal and bundles.
    pub results: Option<PathBuf>,
    /// Goes on where the journal ends.
    pub resume: bool,
    /// Cases that have to be run and to pass.
    pub require: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            case_timeout: Duration::from_secs(60),
            silence: Duration::from_secs(30),
            run_timeout: Duration::from_secs(3600),
            repeat: 1,
            seed: 1,
            results: None,
            resume: false,
            require: Vec::new(),
        }
    }
}

/// What a child says at its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// How it ended.
    pub verdict: Verdict,
    /// Why.
    pub why: String,
    /// Of a skip.
    pub key: Option<String>,
}

/// Whether an end was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shown {
    /// It counts as it is.
    Plain,
    /// A failure that was expected.
    ExpectedFail,
    /// One that was expected now and then.
    Flake,
    /// A pass where a failure was expected.
    UnexpectedPass,
    /// Not run, as expected.
    ExpectedSkip,
}

/// A case's result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Its name.
    pub case: String,
    /// How it ended.
    pub verdict: Verdict,
    /// Why.
    pub why: String,
    /// Of a skip: the precondition.
    pub key: Option<String>,
    /// How that compares with the expectations.
    pub shown: Shown,
    /// How long it took.
    pub seconds: f64,
    /// The seed of its last run.
    pub seed: u64,
    /// Runs.
    pub runs: u32,
}

impl Record {
    /// Whether it counts against the driver.
    #[must_use]
    pub fn is_bad(&self) -> bool {
        match self.shown {
            Shown::Plain => self.verdict.is_bad(),
            Shown::UnexpectedPass => true,
            Shown::ExpectedFail | Shown::Flake | Shown::ExpectedSkip => false,
        }
    }
}

/// A run's result.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// In the order of the run.
    pub records: Vec<Record>,
    /// Required cases that were not run or did not pass, with the reason.
    pub unmet: Vec<String>,
}

impl Report {
    /// 0 or 1.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.unmet.is_empty() && !self.records.iter().any(Record::is_bad)
    }

    /// How many records have a verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.records.iter().filter(|r| r.verdict == verdict).count()
    }
}

/// A line of the journal.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    Start(String),
    End(Record),
}

/// The journal: each line is on the disk before the next step.
struct Journal(Option<File>);

impl Journal {
    /// Opens it; with `resume` returns what it holds: the records, and a case that was begun and not ended.
    fn open(options: &Options) -> io::Result<(Self, Vec<Record>, Option<String>)> {
        let Some(dir) = &options.results else { return Ok((Self(None), Vec::new(), None)) };
        std::fs::create_dir_all(dir)?;
        let path = dir.join("journal.jsonl");
        let (mut records, mut begun) = (Vec::new(), None);
        if options.resume && path.exists() {
            for line in BufReader::new(File::open(&path)?).lines() {
                match serde_json::from_str(&line?) {
                    Ok(Line::Start(case)) => begun = Some(case),
                    Ok(Line::End(record)) => {
                        begun = None;
                        records.push(record);
                    }
                    // The line that the machine went down with.
                    Err(_) => {}
                }
            }
        }
        let file =
            OpenOptions::new().create(true).append(options.resume).write(true).truncate(!options.resume).open(path)?;
        Ok((Self(Some(file)), records, begun))
    }

    fn write(&mut self, line: &Line) -> io::Result<()> {
        let Some(file) = &mut self.0 else { return Ok(()) };
        let mut text = serde_json::to_string(line).map_err(io::Error::other)?;
        text.push('\n');
        file.write_all(text.as_bytes())?;
        file.sync_data()
    }
}

/// How a process of a case is started: for its name, its seed, and the file for its trace.
pub type Spawn<'a> = dyn Fn(&str, u64, Option<&Path>) -> Command + 'a;

/// Runs cases, each in a process of its own.
///
/// # Errors
/// A journal that cannot be written, a process that cannot be started.
pub fn run(
    cases: &[&Case],
    expectations: &Expectations,
    options: &Options,
    spawn: &Spawn<'_>,
    reported: &mut dyn FnMut(&Record),
) -> io::Result<Report> {
    // TIMEOUT: the options'.
    let end = Instant::now() + options.run_timeout;
    let (mut journal, mut records, begun) = Journal::open(options)?;
    if let Some(case) = begun {
        let why = "the machine or the runner went down while it ran".to_owned();
        let record =
            judge(expectations, case, Said { verdict: Verdict::Incomplete, why, key: None }, 0.0, (options.seed, 1));
        journal.write(&Line::End(record.clone()))?;
        reported(&record);
        records.push(record);
    }
    for case in cases {
        if records.iter().any(|record| record.case == case.name) {
            continue;
        }
        journal.write(&Line::Start(case.name.clone()))?;
        let record = one(case, expectations, options, spawn, end)?;
        journal.write(&Line::End(record.clone()))?;
        reported(&record);
        records.push(record);
    }
    let unmet = options.require.iter().filter_map(|name| unmet(name, &records)).collect();
    Ok(Report { records, unmet })
}

fn unmet(name: &str, records: &[Record]) -> Option<String> {
    match records.iter().find(|record| record.case == name) {
        None => Some(format!("{name} is required and was not run: absent or filtered out")),
        Some(record) if record.verdict == Verdict::Skip => {
            let key = record.key.as_deref().unwrap_or("expected");
            Some(format!("{name} is required and was skipped: {key}: {}", record.why))
        }
        Some(record) if record.verdict != Verdict::Pass => {
            Some(format!("{name} is required: {}: {}", record.verdict.word(), record.why))
        }
        Some(_) => None,
    }
}

fn one(
    case: &Case,
    expectations: &Expectations,
    options: &Options,
    spawn: &Spawn<'_>,
    end: Instant,
) -> io::Result<Record> {
    if let Some(entry) = expectations.of(&case.name).filter(|entry| entry.expect == Expected::Skip) {
        let said = Said { verdict: Verdict::Skip, why: entry.reason.clone(), key: Some("expected".to_owned()) };
        return Ok(judge(expectations, case.name.clone(), said, 0.0, (options.seed, 0)));
    }
    let began = Instant::now();
    let mut runs = 0;
    loop {
        let seed = options.seed + u64::from(runs);
        runs += 1;
        let bundle = options.results.as_ref().map(|dir| dir.join(&case.name));
        let said = process(case, options, spawn, end, seed, bundle.as_deref())?;
        if said.verdict != Verdict::Pass || runs >= options.repeat.max(1) {
            let seconds = began.elapsed().as_secs_f64();
            return Ok(judge(expectations, case.name.clone(), said, seconds, (seed, runs)));
        }
    }
}

fn judge(expectations: &Expectations, case: String, said: Said, seconds: f64, (seed, runs): (u64, u32)) -> Record {
    let expected = expectations.of(&case).map(|entry| entry.expect);
    let shown = match (expected, said.verdict) {
        (Some(Expected::Fail), Verdict::Pass) => Shown::UnexpectedPass,
        (Some(Expected::Fail), verdict) if verdict.is_bad() => Shown::ExpectedFail,
        (Some(Expected::Flake), verdict) if verdict.is_bad() => Shown::Flake,
        (Some(Expected::Skip), _) => Shown::ExpectedSkip,
        _ => Shown::Plain,
    };
    Record { case, verdict: said.verdict, why: said.why, key: said.key, shown, seconds, seed, runs }
}

/// A line that a child says, or the end of what it says.
enum Heard {
    Line(String),
    End,
}

/// Starts a child and listens until it ends or a deadline passes.
fn process(
    case: &Case,
    options: &Options,
    spawn: &Spawn<'_>,
    end: Instant,
    seed: u64,
    bundle: Option<&Path>,
) -> io::Result<Said> {
    if Instant::now() >= end {
        return Ok(timed_out(Verdict::RunTimeout, options.run_timeout, "the whole run"));
    }
    if let Some(dir) = bundle {
        std::fs::create_dir_all(dir)?;
    }
    let trace = bundle.map(|dir| dir.join("calls.trace"));
    let mut child = spawn(&case.name, seed, trace.as_deref())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let (heard, errors) = (listen(child.stdout.take()), collect(child.stderr.take()));
    let mut steps = Vec::new();
    let said = attend(&mut child, &heard, options, end, &mut steps)?;
    let errors = errors.join().unwrap_or_default();
    let said = said.unwrap_or_else(|status| crashed(&status, &errors, steps.last().map(String::as_str)));
    if let Some(dir) = bundle {
        keep(dir, case, &said, &steps, &errors)?;
    }
    Ok(said)
}

/// What remains of a case: nothing of one that passed or was skipped.
fn keep(dir: &Path, case: &Case, said: &Said, steps: &[String], errors: &str) -> io::Result<()> {
    if !said.verdict.is_bad() {
        return std::fs::remove_dir_all(dir);
    }
    let verdict = serde_json::json!({ "case": case.name, "what": case.what, "verdict": said.verdict, "why": said.why });
    std::fs::write(dir.join("verdict.json"), format!("{verdict:#}\n"))?;
    std::fs::write(dir.join("steps.txt"), steps.join("\n"))?;
    std::fs::write(dir.join("stderr.txt"), errors)
}

fn timed_out(verdict: Verdict, after: Duration, what: &str) -> Said {
    Said { verdict, why: format!("{what} was over its time of {} s", after.as_secs_f64()), key: None }
}

fn crashed(status: &str, errors: &str, step: Option<&str>) -> Said {
    let last = errors.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    let at = step.map(|step| format!(" after `{step}`")).unwrap_or_default();
    Said { verdict: Verdict::Crash, why: format!("its process ended with {status}{at}: {last}"), key: None }
}

/// `Err` holds how a process ended that did not say how its case did.
fn attend(
    child: &mut Child,
    heard: &Receiver<Heard>,
    options: &Options,
    end: Instant,
    steps: &mut Vec<String>,
) -> io::Result<Result<Said, String>> {
    let began = Instant::now();
    let case_end = began + options.case_timeout;
    let mut said = None;
    loop {
        let silent = Instant::now() + options.silence;
        let next = silent.min(case_end).min(end);
        match heard.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(Heard::Line(line)) => match line.strip_prefix("end ").and_then(|json| serde_json::from_str(json).ok()) {
                Some(end) => said = Some(end),
                None => steps.push(line),
            },
            Ok(Heard::End) | Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                child.kill()?;
                child.wait()?;
                let now = Instant::now();
                return Ok(Ok(match () {
                    () if now >= end => timed_out(Verdict::RunTimeout, options.run_timeout, "the whole run"),
                    () if now >= case_end => timed_out(Verdict::CaseTimeout, options.case_timeout, "the case"),
                    () => timed_out(Verdict::Silent, options.silence, "its silence"),
                }));
            }
        }
    }
    let status = child.wait()?;
    Ok(said.ok_or_else(|| status.to_string()))
}

/// Lines of a pipe, one by one.
fn listen(pipe: Option<impl Read + Send + 'static>) -> Receiver<Heard> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        if let Some(pipe) = pipe {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                if sender.send(Heard::Line(line)).is_err() {
                    return;
                }
            }
        }
        let _nobody_listens_any_more = sender.send(Heard::End);
    });
    receiver
}

/// The most of a child's errors that is kept.
const ERRORS_KEPT: u64 = 1 << 20;

fn collect(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            let _as_far_as_it_goes = pipe.take(ERRORS_KEPT).read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options { case_timeout: Duration::from_secs(5), silence: Duration::from_secs(5), ..Options::default() }
    }

    fn shell(script: &'static str) -> impl Fn(&str, u64, Option<&Path>) -> Command {
        move |case, seed, _| {
            let mut command = Command::new("sh");
            command.args(["-c", script, "sh", case, &seed.to_string()]);
            command
        }
    }

    fn cases(names: &[&str]) -> Vec<Case> {
        names.iter().map(|name| Case::new(*name, "a test's", |_| Ok(()))).collect()
    }

    fn all(names: &[&str], options: &Options, script: &'static str) -> Report {
        let cases = cases(names);
        let cases: Vec<&Case> = cases.iter().collect();
        run(&cases, &Expectations::default(), options, &shell(script), &mut |_| {}).unwrap()
    }

    const PASS: &str = r#"echo begun; echo 'end {"verdict":"pass","why":"","key":null}'"#;

    #[test]
    fn a_case_ends_with_what_it_says() {
        let report = all(&["kfd.a.b"], &options(), PASS);
        assert!(report.is_ok() && report.count(Verdict::Pass) == 1);
        let report = all(&["kfd.a.b"], &options(), r#"echo 'end {"verdict":"skip","why":"x","key":"k"}'"#);
        assert_eq!((report.is_ok(), report.records[0].key.as_deref()), (true, Some("k")));
    }

    #[test]
    fn a_process_that_dies_is_a_crash_with_its_last_words() {
        let report = all(&["kfd.a.b"], &options(), "echo one; echo alas >&2; kill -SEGV $$");
        assert_eq!(report.records[0].verdict, Verdict::Crash);
        assert!(
            report.records[0].why.contains("signal: 11") && report.records[0].why.ends_with("after `one`: alas"),
            "{report:?}"
        );
    }

    #[test]
    fn each_of_the_three_deadlines_has_its_verdict() {
        let short = Duration::from_millis(300);
        let with = |change: &dyn Fn(&mut Options), script| {
            let mut own = options();
            change(&mut own);
            all(&["kfd.a.b"], &own, script).records[0].verdict
        };
        assert_eq!(with(&|o| o.silence = short, "exec sleep 20"), Verdict::Silent);
        let chatter = "for i in 1 2 3 4 5 6 7 8 9; do echo $i; sleep 0.1; done";
        assert_eq!(with(&|o| o.case_timeout = short, chatter), Verdict::CaseTimeout);
        assert_eq!(with(&|o| o.run_timeout = short, "exec sleep 20"), Verdict::RunTimeout);
    }

    #[test]
    fn a_case_is_repeated_until_it_fails() {
        let script = r#"[ $2 -lt 3 ] && v=pass || v=fail; echo "end {\"verdict\":\"$v\",\"why\":\"\",\"key\":null}""#;
        let report = all(&["kfd.a.b"], &Options { repeat: 9, ..options() }, script);
        assert_eq!((report.records[0].runs, report.records[0].seed, report.is_ok()), (3, 3, false));
    }

    #[test]
    fn a_required_case_that_is_absent_or_skipped_fails_the_run() {
        let own = Options { require: vec!["kfd.a.b".into(), "kfd.a.c".into()], ..options() };
        assert_eq!(all(&["kfd.a.b"], &own, PASS).unmet.len(), 1);
        let skipped =
            all(&["kfd.a.b", "kfd.a.c"], &own, r#"echo 'end {"verdict":"skip","why":"x","key":"two-cards"}'"#);
        assert!(!skipped.is_ok() && skipped.unmet[0].contains("skipped: two-cards"), "{skipped:?}");
    }

    #[test]
    fn a_run_goes_on_after_a_reboot_and_names_the_case_it_went_down_in() {
        let dir = std::env::temp_dir().join(format!("drivertest-{}", std::process::id()));
        let own = Options { results: Some(dir.clone()), ..options() };
        all(&["kfd.a.a"], &own, PASS);
        let mut journal = OpenOptions::new().append(true).open(dir.join("journal.jsonl")).unwrap();
        journal.write_all(b"{\"start\":\"kfd.a.b\"}\n{\"end\":{\"ca").unwrap();
        let resumed = all(&["kfd.a.a", "kfd.a.b", "kfd.a.c"], &Options { resume: true, ..own }, PASS);
        let verdicts: Vec<_> = resumed.records.iter().map(|r| (r.case.as_str(), r.verdict)).collect();
        let want = [("kfd.a.a", Verdict::Pass), ("kfd.a.b", Verdict::Incomplete), ("kfd.a.c", Verdict::Pass)];
        assert_eq!(verdicts, want);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_failure_leaves_a_bundle_and_a_pass_none() {
        let dir = std::env::temp_dir().join(format!("drivertest-b-{}", std::process::id()));
        let own = Options { results: Some(dir.clone()), ..options() };
        let script = r#"echo one; [ $1 = kfd.a.a ] && v=pass || v=fail; echo "end {\"verdict\":\"$v\",\"why\":\"w\",\"key\":null}""#;
        all(&["kfd.a.a", "kfd.a.b"], &own, script);
        assert!(!dir.join("kfd.a.a").exists());
        assert_eq!(std::fs::read_to_string(dir.join("kfd.a.b/steps.txt")).unwrap(), "one");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn expected_failures_are_no_failures_and_unexpected_passes_are() {
        let text = r#"[{"case":"kfd.a.*","expect":"fail","reason":"x","link":"https://e.org","until":"2999-01-01"}]"#;
        let expectations = Expectations::read(text, &["kfd.a.b"], &crate::expect::Machine::default()).unwrap();
        let own = cases(&["kfd.a.b"]);
        let cases: Vec<&Case> = own.iter().collect();
        let with = |script| run(&cases, &expectations, &options(), &shell(script), &mut |_| {}).unwrap();
        let failed = with(r#"echo 'end {"verdict":"fail","why":"","key":null}'"#);
        assert_eq!((failed.is_ok(), failed.records[0].shown), (true, Shown::ExpectedFail));
        let passed = with(PASS);
        assert_eq!((passed.is_ok(), passed.records[0].shown), (false, Shown::UnexpectedPass));
    }
}

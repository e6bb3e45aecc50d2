//! A case on a machine: its port under a trace, its patience, and what is checked after its body.

use crate::case::{Case, Problem, Step, Verdict};
use crate::kernel_log::Cursor;
use crate::mutant::{Mutant, Mutated};
use crate::target::{Machine, Target};
use doorbell_ioctl::fault::{Faults, Plan};
use doorbell_ioctl::port::{DeviceView, Errno, Port};
use doorbell_ioctl::trace::{Event, FileSink, Log, Sink, Trace, leftovers};
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What a case has at hand.
pub struct Bench {
    /// Every call goes through it.
    pub port: Arc<dyn Port>,
    /// How long an answer of the device may take.
    pub patience: Duration,
    /// Of what a case draws.
    pub seed: u64,
    machine: Machine,
    log: Log,
    cursor: Cursor,
    event_pages: AtomicUsize,
    progress: fn(&str),
}

/// The list in memory and the file at once: a card that takes the machine down leaves its last calls in the file.
struct Both(Log, FileSink<BufWriter<File>>);

impl Sink for Both {
    fn event(&mut self, event: &Event) {
        self.0.event(event);
        self.1.event(event);
        self.1.flush();
    }
}

fn calls_file(path: &std::path::Path) -> Result<FileSink<BufWriter<File>>, Errno> {
    File::create(path).and_then(|file| FileSink::new(BufWriter::new(file))).map_err(|error| Errno::of(&error))
}

/// How a case is run.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Where.
    pub target: Target,
    /// See [`Bench::patience`].
    pub patience: Duration,
    /// See [`Bench::seed`].
    pub seed: u64,
    /// Calls that fail.
    pub faults: Plan,
    /// What is wrong with driver or card.
    pub mutant: Option<Mutant>,
    /// Told each step, so that silence means something.
    pub progress: fn(&str),
    /// A file for all calls, for `doorbell trace --show`.
    pub calls: Option<PathBuf>,
}

impl Setting {
    /// Ten seconds of patience, no fault.
    #[must_use]
    pub fn new(target: Target) -> Self {
        let (patience, faults) = (Duration::from_secs(10), Plan::default());
        Self { target, patience, seed: 1, faults, mutant: None, progress: |_| {}, calls: None }
    }
}

/// A case's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How.
    pub verdict: Verdict,
    /// Why, in words; empty for a pass.
    pub why: String,
    /// Of a skip.
    pub key: Option<&'static str>,
    /// Names of the calls that it made, each once.
    pub calls: Vec<(u32, Option<u32>)>,
}

impl Bench {
    /// Opens the machine.
    ///
    /// # Errors
    /// The machine's.
    pub fn open(setting: &Setting, case: &Case) -> Result<Self, Errno> {
        let defect = setting.mutant.as_ref().and_then(Mutant::defect);
        let machine = setting.target.open(case.machine, defect)?;
        let mut port = machine.port();
        let cursor = Cursor::at_end(&*port);
        if let Some(mutant) = setting.mutant.as_ref().filter(|mutant| mutant.defect().is_none()) {
            port = Mutated::over(port, mutant.clone());
        }
        if !setting.faults.0.is_empty() {
            port = Faults::new(port, setting.faults.clone());
        }
        let log = Log::default();
        let sink: Box<dyn Sink> = match &setting.calls {
            None => Box::new(log.clone()),
            Some(path) => Box::new(Both(log.clone(), calls_file(path)?)),
        };
        let port = Trace::new(port, sink);
        let (patience, seed, progress) = (setting.patience, setting.seed, setting.progress);
        Ok(Self { port, patience, seed, machine, log, cursor, event_pages: AtomicUsize::new(0), progress })
    }

    /// Whether the driver is the running kernel.
    #[must_use]
    pub fn is_kernel(&self) -> bool {
        self.machine.is_kernel()
    }

    /// A buffer was given to the kernel for its events, for the process's life.
    pub fn keep_event_page(&self) {
        self.event_pages.fetch_add(1, Ordering::Relaxed);
    }

    /// Tells where the case is.
    pub fn step(&self, what: &str) {
        (self.progress)(what);
    }

    /// Fails where the case cannot run.
    ///
    /// # Errors
    /// A skip with this key.
    pub fn require(&self, it: bool, key: &'static str, why: &str) -> Step {
        if it { Ok(()) } else { Err(Problem::Skipped { key, why: why.to_owned() }) }
    }

    /// Waits until something holds.
    ///
    /// # Errors
    /// A failure when patience is at its end.
    pub fn until(&self, what: &str, mut it: impl FnMut() -> Step<bool>) -> Step {
        // TIMEOUT: the setting's.
        let end = Instant::now() + self.patience;
        while !it()? {
            if Instant::now() >= end {
                return Err(Problem::Failed(format!("within {:?}: {what} did not come", self.patience)));
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        Ok(())
    }

    /// Waits until a word has a value.
    ///
    /// # Errors
    /// As [`Bench::until`].
    pub fn word(&self, view: &DeviceView, offset: u64, value: u32) -> Step {
        self.until(&format!("{value:#x} at offset {offset:#x}"), || Ok(view.read_u32(offset)? == value))?;
        // What was stored before it is there too.
        view.load_acquire_u64(offset & !7)?;
        Ok(())
    }

    /// Gives the device time in which something must not happen.
    pub fn pause(&self) {
        // TIMEOUT: far more than a packet takes; a device that is slower passes a test that it should fail, never the
        // other way round.
        std::thread::sleep(Duration::from_millis(3));
    }

    /// Waits until a queue has come to a packet that stops it. Linux tells nobody: there it gets a tenth of a second.
    ///
    /// # Errors
    /// As [`Bench::until`], on a software machine.
    pub fn hung(&self) -> Step {
        if self.is_kernel() {
            std::thread::sleep(Duration::from_millis(100));
            return Ok(());
        }
        let says = || self.cursor.warnings(&*self.port).iter().any(|line| line.contains("QueueHung"));
        self.until("a queue that hangs", || Ok(says()))
    }

    fn check(&self, case: &Case) -> (Verdict, String) {
        let known = |line: &String| !case.log.iter().any(|text| line.contains(text));
        let warnings: Vec<String> = self.cursor.warnings(&*self.port).into_iter().filter(known).collect();
        if let Some(line) = warnings.first() {
            return (Verdict::KernelWarn, format!("the kernel says: {line}"));
        }
        let mut left = leftovers(&self.log.events());
        left.extend(self.machine.left_over(self.event_pages.load(Ordering::Relaxed)));
        if let Some(first) = left.first() {
            return (Verdict::Leak, format!("{first}, {} in all", left.len()));
        }
        match self.machine.findings().into_iter().find(known) {
            Some(finding) => (Verdict::Fail, format!("the software machine finds: {finding}")),
            None => (Verdict::Pass, String::new()),
        }
    }

    /// The calls so far, each once, with the class or command of RM's.
    fn calls(&self) -> Vec<(u32, Option<u32>)> {
        let mut calls: Vec<(u32, Option<u32>)> = self.log.events().iter().filter_map(crate::mutant::call_of).collect();
        calls.sort_unstable();
        calls.dedup();
        calls
    }
}

/// Runs a case in this process, to its end and with the checks after it.
///
/// # Errors
/// A machine that cannot be opened.
pub fn run(case: &Case, setting: &Setting) -> Result<Outcome, Errno> {
    let bench = Bench::open(setting, case)?;
    let done = case.body(&bench);
    let (verdict, why, key) = match done {
        Ok(()) => {
            let (verdict, why) = bench.check(case);
            (verdict, why, None)
        }
        Err(Problem::Failed(why)) => (Verdict::Fail, why, None),
        Err(Problem::Skipped { key, why }) => (Verdict::Skip, why, Some(key)),
    };
    if verdict.is_bad() && bench.is_kernel() {
        bench.cursor.lines(&*bench.port).iter().for_each(|line| bench.step(&format!("kernel: {line}")));
    }
    Ok(Outcome { verdict, why, key, calls: bench.calls() })
}

/// Takes one entry off a list of what is to be given back. Only one: another thread may have got the same number from
/// the driver already.
pub fn forget_one<T>(list: &mut Vec<T>, is_it: impl FnMut(&T) -> bool) {
    if let Some(at) = list.iter().position(is_it) {
        list.remove(at);
    }
}

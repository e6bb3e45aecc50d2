//! A case on a machine: its port under a trace, its patience, and what is checked after its body.

use crate::case::{Case, Problem, Step, Verdict};
use crate::child::{Child, Cue, Role, Start};
use crate::kernel_log::Cursor;
use crate::mutant::{Calls, Mutant, Mutated};
use crate::target::{Machine, Target};
use doorbell_ioctl::fault::{Faults, Plan};
use doorbell_ioctl::port::{CpuPtr, DeviceView, Errno, Fd, Forked, Port};
use doorbell_ioctl::trace::{Event, FileSink, Log, Sink, Trace, leftovers};
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
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
    setting: Setting,
    case: String,
    role: Option<Role>,
    /// Calls of second processes.
    others: Mutex<Vec<Log>>,
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
    /// Called with each step, so that silence means something.
    pub progress: fn(&str),
    /// A file for all calls, for `doorbell trace --show`.
    pub calls: Option<PathBuf>,
    /// The machine may be put to sleep.
    pub sleep: bool,
    /// How a second process of the case is started; `None` on a software machine, which has processes of its own.
    pub start: Option<Start>,
}

impl Setting {
    /// Ten seconds of patience, no fault.
    #[must_use]
    pub fn new(target: Target) -> Self {
        let (patience, faults) = (Duration::from_secs(10), Plan::default());
        Self {
            target,
            patience,
            seed: 1,
            faults,
            mutant: None,
            progress: |_| {},
            calls: None,
            sleep: false,
            start: None,
        }
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
    /// The calls that it made.
    pub calls: Calls,
}

impl Bench {
    /// Opens the machine.
    ///
    /// # Errors
    /// The machine's.
    pub fn open(setting: &Setting, case: &Case) -> Result<Self, Errno> {
        let defect = setting.mutant.as_ref().and_then(Mutant::defect);
        let machine = setting.target.open(case.machine, defect)?;
        Self::on(machine, setting, &case.name, case.role.clone())
    }

    fn on(machine: Machine, setting: &Setting, case: &str, role: Option<Role>) -> Result<Self, Errno> {
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
        let (patience, seed, setting, case) = (setting.patience, setting.seed, setting.clone(), case.to_owned());
        let (event_pages, others) = (AtomicUsize::new(0), Mutex::default());
        Ok(Self { port, patience, seed, machine, log, cursor, event_pages, setting, case, role, others })
    }

    /// The machine, as this process has it.
    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Starts the case's second process for a part.
    ///
    /// # Errors
    /// A skip where none can be started; the kernel's.
    pub fn child(&self, part: &str) -> Step<Child<'_>> {
        let role = self.role.clone().ok_or_else(|| Problem::failed("the case has no second process"))?;
        if let Some(start) = self.setting.start {
            return Child::process(self, start(&self.setting, &self.case, part));
        }
        let machine = self.machine.another_process()?;
        let machine = machine.ok_or_else(|| Problem::Skipped {
            key: "second-process",
            why: "this program cannot start itself a second time".to_owned(),
        })?;
        // A fault of a call is the one of its first process.
        let setting = Setting { calls: None, faults: Plan::default(), start: None, ..self.setting.clone() };
        let beside = Self::on(machine, &setting, &self.case, None)?;
        self.others.lock().unwrap_or_else(PoisonError::into_inner).push(beside.log.clone());
        Ok(Child::thread(self, beside, role, part))
    }

    /// What a second process that ended well has left behind.
    ///
    /// # Errors
    /// A failure that names it.
    pub(crate) fn left_by_a_child(&self) -> Step {
        let mut left = leftovers(&self.log.events());
        left.extend(self.machine.left_over(self.event_pages.load(Ordering::Relaxed)));
        let words = left.first().map(|first| format!("the second process left {first}, {} in all", left.len()));
        words.map_or(Ok(()), |words| Err(Problem::Failed(words)))
    }

    /// Puts the machine, or its card, to sleep, and wakes it up.
    ///
    /// # Errors
    /// A skip where that was not allowed, or where there is no way to do it.
    pub fn sleep(&self) -> Step {
        let allowed = self.setting.sleep || !self.is_kernel();
        self.require(allowed, "sleep-not-allowed", "the machine is put to sleep with --sleep only")?;
        match self.machine.sleep(self.setting.target.driver) {
            Ok(()) => Ok(()),
            Err(why) => self.require(false, "suspend-hook", &why),
        }
    }

    /// What a child of fork sees: one call on an inherited file, and whether an address is mapped.
    ///
    /// # Errors
    /// The kernel's.
    pub fn forked(&self, fd: Fd, request: u32, arg: &mut [u8], at: CpuPtr) -> Step<Forked> {
        Ok(self.machine.forked(fd, request, arg, at)?)
    }

    /// Whether the driver is the running kernel.
    #[must_use]
    pub(crate) fn is_kernel(&self) -> bool {
        self.machine.is_kernel()
    }

    /// A buffer was given to the kernel for its events, for the process's life.
    pub(crate) fn keep_event_page(&self) {
        self.event_pages.fetch_add(1, Ordering::Relaxed);
    }

    /// Tells where the case is.
    pub fn step(&self, what: &str) {
        (self.setting.progress)(what);
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
        left.extend(self.machine.left_by_the_dead());
        if let Some(first) = left.first() {
            return (Verdict::Leak, format!("{first}, {} in all", left.len()));
        }
        match self.machine.findings().into_iter().find(known) {
            Some(finding) => (Verdict::Fail, format!("the software machine finds: {finding}")),
            None => (Verdict::Pass, String::new()),
        }
    }

    /// The calls so far, those of second processes included.
    fn calls(&self) -> Calls {
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let mut calls = Calls::default();
        let logs = std::iter::once(&self.log).chain(others.iter());
        logs.for_each(|log| log.events().iter().for_each(|event| calls.add(event)));
        calls
    }
}

/// Runs a part of a case's second process in this one.
///
/// # Errors
/// A machine that cannot be opened; `EINVAL` for a case without a second process.
pub fn run_part(case: &Case, setting: &Setting, part: &str) -> Result<Outcome, Errno> {
    let bench = Bench::open(setting, case)?;
    let role = case.role.as_ref().ok_or(Errno::EINVAL)?;
    let done = role(&bench, &Cue::of_process(part)).and_then(|()| bench.left_by_a_child());
    let (verdict, why, key) = verdict_of(done);
    Ok(Outcome { verdict, why, key, calls: bench.calls() })
}

fn verdict_of(done: Step) -> (Verdict, String, Option<&'static str>) {
    match done {
        Ok(()) => (Verdict::Pass, String::new(), None),
        Err(Problem::Failed(why)) => (Verdict::Fail, why, None),
        Err(Problem::Skipped { key, why }) => (Verdict::Skip, why, Some(key)),
    }
}

/// Runs a case in this process, to its end and with the checks after it.
///
/// # Errors
/// A machine that cannot be opened.
pub fn run(case: &Case, setting: &Setting) -> Result<Outcome, Errno> {
    let bench = Bench::open(setting, case)?;
    let done = case.body(&bench);
    let (mut verdict, mut why, key) = verdict_of(done);
    if verdict == Verdict::Pass {
        (verdict, why) = bench.check(case);
    }
    if verdict.is_bad() && bench.is_kernel() {
        bench.cursor.lines(&*bench.port).iter().for_each(|line| bench.step(&format!("kernel: {line}")));
    }
    Ok(Outcome { verdict, why, key, calls: bench.calls() })
}

/// Takes one entry off a list of what is to be given back. Only one: another thread may have got the same number from
/// the driver already.
pub(crate) fn forget_one<T>(list: &mut Vec<T>, is_it: impl FnMut(&T) -> bool) {
    if let Some(at) = list.iter().position(is_it) {
        list.remove(at);
    }
}

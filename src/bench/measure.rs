//! One case: made, checked, warmed up, sampled.
//!
//! Warm-up lasts until the clock that a kernel counts is steady (an idle card takes up to half a second), or for a
//! limited time; nothing measured in it is kept, and nothing measured after it is thrown away. A sample is the mean of
//! as many runs as fill `SAMPLE`. Sampling stops when the median is known well enough (after half of the budget), or at
//! the budget. Between blocks
//! of samples, never within one, the clock is counted again: samples of a block at whose end it is below `LOW` of the
//! highest are marked.

use crate::case::{Check, How, Subject};
use crate::error::BenchError;
use crate::machine::{Kind, Machine};
use crate::stats;
use crate::together::Part;
use doorbell::device::{Command, QueueKind, Stamp};
use std::time::{Duration, Instant};

/// How to measure.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Time for the samples of a case.
    pub budget: Duration,
    /// Half of the median's 95 % interval, as a share of it, at which sampling stops.
    pub precision: f64,
    pub least_samples: usize,
    pub most_samples: usize,
    /// Times that the whole list is run.
    pub passes: usize,
    /// Caches are emptied before each run, which is then a sample of its own.
    pub is_cold: bool,
    /// All devices run the same case at the same time, instead of one device after the other.
    pub is_together: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let budget = Duration::from_millis(500);
        Self {
            budget,
            precision: 0.005,
            least_samples: 20,
            most_samples: 2000,
            passes: 1,
            is_cold: false,
            is_together: false,
        }
    }
}

impl Settings {
    /// A few samples of everything: where values are checked and time means nothing.
    #[must_use]
    pub fn quick() -> Self {
        let budget = Duration::from_millis(20);
        Self { budget, precision: 0.5, least_samples: 2, most_samples: 3, ..Self::default() }
    }
}

/// Length of a sample on a GPU: far above the resolution of the device's clock.
const SAMPLE: Duration = Duration::from_micros(500);
/// On a CPU: short, so that some samples pass without an interruption.
const CPU_SAMPLE: Duration = Duration::from_micros(100);
/// Warm-up ends here even if the clock is not steady.
const WARM_UP: Duration = Duration::from_millis(1500);
/// Of a case that has run before on a warm device.
const WARM_UP_STEP: Duration = Duration::from_millis(30);
/// Two counts of the clock that differ by less are equal.
const STEADY: f64 = 0.01;
/// Below this share of the highest clock seen on the device a sample counts as throttled.
const LOW: f64 = 0.93;
/// Samples between two looks at the clock.
const BLOCK: Duration = Duration::from_millis(100);

/// What was measured.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Nanoseconds of one run, in order.
    pub samples: Vec<f64>,
    pub runs: u64,
    /// First and end of the samples that were taken while the clock was low.
    pub throttled: Vec<[usize; 2]>,
    pub clock_mhz: Option<[f64; 2]>,
    pub ended: &'static str,
    pub is_device_clock: bool,
}

/// What is known of a device between cases.
#[derive(Clone, Debug, Default)]
pub struct Warmth {
    /// The highest clock seen.
    pub best_mhz: f64,
    is_warm: bool,
}

/// Runs, checks and measures a subject; with a part in a meeting, at the same time as the others there.
///
/// # Errors
/// The device's; a check that fails; times of zero.
pub fn measure(
    machine: &Machine,
    subject: Subject,
    settings: &Settings,
    warmth: &mut Warmth,
    mut part: Option<Part<'_>>,
) -> Result<Measured, BenchError> {
    let Subject { how, most_runs, mut check, .. } = subject;
    let mut timer = Timer::new(machine, (how, most_runs), settings.is_cold)?;
    let first = timer.run(machine, 1)?;
    check(machine)?;
    let once = warm_up(machine, &mut timer, first, warmth)?;
    if let Some(part) = &mut part {
        part.ready();
    }
    let mut measured = sample(machine, &mut timer, once, settings, warmth)?;
    measured.is_device_clock = timer.is_device();
    if let Some(part) = &mut part {
        part.done();
        while !part.is_over() {
            timer.run(machine, measured.runs)?;
        }
    }
    last_check(machine, &mut check)?;
    Ok(measured)
}

/// The values after the last sample: what broke under load must not pass.
fn last_check(machine: &Machine, check: &mut Check) -> Result<(), BenchError> {
    check(machine).map_err(|e| match e {
        BenchError::Wrong(what) => BenchError::Wrong(format!("after the last sample: {what}")),
        other => other,
    })
}

fn sample(
    machine: &Machine,
    timer: &mut Timer,
    once: f64,
    settings: &Settings,
    warmth: &mut Warmth,
) -> Result<Measured, BenchError> {
    let target = if machine.kind == Kind::Cpu { CPU_SAMPLE } else { SAMPLE };
    let fit = target.as_nanos() as f64 / once.max(1.0);
    let runs = if settings.is_cold || machine.is_small { 1 } else { (fit as u64).clamp(1, timer.most_runs()) };
    let mut all = Measured { runs, ended: "budget", ..Measured::default() };
    let began = Instant::now();
    let mut block = Block::new();
    while all.samples.len() < settings.most_samples {
        let enough = all.samples.len() >= settings.least_samples;
        if enough && began.elapsed() >= settings.budget {
            block.end(machine, &mut all, warmth)?;
            return Ok(all);
        }
        all.samples.push(timer.run(machine, runs)? / runs as f64);
        let count = all.samples.len();
        if block.is_over() {
            block.end(machine, &mut all, warmth)?;
        }
        let looks = count.is_power_of_two() || count.is_multiple_of(100);
        // Neighbours disturb for milliseconds: samples of a short time are alike and say little.
        let enough = enough && began.elapsed() >= settings.budget / 2;
        if enough && looks && stats::precision(&stats::sorted(&all.samples), 0.95) <= settings.precision {
            all.ended = "precision";
            break;
        }
    }
    if all.samples.len() >= settings.most_samples {
        all.ended = "samples";
    }
    block.end(machine, &mut all, warmth)?;
    Ok(all)
}

/// Runs until the clock is steady; the time of one run at the end.
fn warm_up(machine: &Machine, timer: &mut Timer, first: f64, warmth: &mut Warmth) -> Result<f64, BenchError> {
    if machine.is_small {
        return Ok(first);
    }
    let (began, mut once) = (Instant::now(), first);
    let mut last: Option<f64> = None;
    let limit = if warmth.is_warm { WARM_UP_STEP } else { WARM_UP };
    loop {
        let step = Instant::now();
        let mut runs = 0;
        while runs < 1 || step.elapsed() < WARM_UP_STEP {
            once = timer.run(machine, 1)?;
            runs += 1;
        }
        let mhz = machine.clock_mhz()?;
        let is_steady = match (last, mhz) {
            (Some(last), Some(now)) => (now / last - 1.0).abs() < STEADY,
            (None, None) => true,
            _ => false,
        };
        last = mhz;
        warmth.best_mhz = warmth.best_mhz.max(mhz.unwrap_or(0.0));
        if is_steady && began.elapsed() >= limit.min(WARM_UP) / 2 || began.elapsed() >= limit {
            warmth.is_warm = true;
            return Ok(once);
        }
    }
}

/// Samples between two looks at the clock.
struct Block {
    began: Instant,
    first: usize,
}

impl Block {
    fn new() -> Self {
        Self { began: Instant::now(), first: 0 }
    }

    fn is_over(&self) -> bool {
        self.began.elapsed() >= BLOCK
    }

    fn end(&mut self, machine: &Machine, all: &mut Measured, warmth: &mut Warmth) -> Result<(), BenchError> {
        if machine.is_software || self.first == all.samples.len() {
            return Ok(());
        }
        if let Some(mhz) = machine.clock_mhz()? {
            warmth.best_mhz = warmth.best_mhz.max(mhz);
            let [low, high] = all.clock_mhz.unwrap_or([mhz; 2]);
            all.clock_mhz = Some([low.min(mhz), high.max(mhz)]);
            if mhz < LOW * warmth.best_mhz {
                all.throttled.push([self.first, all.samples.len()]);
            }
        }
        (self.began, self.first) = (Instant::now(), all.samples.len());
        Ok(())
    }
}

/// What runs and times the subject.
struct Timer {
    how: How,
    /// The subject's own limit of runs.
    most_runs: Option<u64>,
    stamps: Option<[Stamp; 2]>,
    /// The list of so many runs, with its stamps.
    list: Vec<Command>,
    list_runs: u64,
    /// What empties the caches before a run.
    flush: Vec<Command>,
}

/// Most commands of one submission.
const MOST_COMMANDS: u64 = 512;

impl Timer {
    fn new(machine: &Machine, (how, most_runs): (How, Option<u64>), is_cold: bool) -> Result<Self, BenchError> {
        let stamps = match &how {
            How::Commands { commands, .. } if commands.is_empty() => {
                return Err(BenchError::Empty("there is no command to run".into()));
            }
            How::Commands { .. } => Some([machine.device().stamp()?, machine.device().stamp()?]),
            How::Host(_) => None,
        };
        let flush = if is_cold { crate::cases::memory::flush(machine)? } else { Vec::new() };
        Ok(Self { how, most_runs, stamps, list: Vec::new(), list_runs: 0, flush })
    }

    const fn is_device(&self) -> bool {
        self.stamps.is_some()
    }

    fn most_runs(&self) -> u64 {
        let fit = match &self.how {
            How::Commands { commands, .. } => (MOST_COMMANDS / commands.len() as u64).max(1),
            How::Host(_) => 1 << 20,
        };
        fit.min(self.most_runs.unwrap_or(fit)).max(1)
    }

    /// So many runs; their nanoseconds.
    fn run(&mut self, machine: &Machine, runs: u64) -> Result<f64, BenchError> {
        if !self.flush.is_empty() {
            machine.run(QueueKind::Compute, &self.flush)?;
        }
        let ns = match (&mut self.how, &self.stamps) {
            (How::Commands { commands, queue }, Some(stamps)) => {
                if self.list_runs != runs {
                    self.list = stamped(commands, runs, stamps);
                    self.list_runs = runs;
                }
                machine.run(*queue, &self.list)?;
                between(stamps, commands.len() as u64 * runs == 1)
            }
            (How::Host(timer), _) => timer(machine, runs)?,
            _ => 0.0,
        };
        if ns > 0.0 { Ok(ns) } else { Err(BenchError::Empty(format!("a run took {ns} ns"))) }
    }
}

/// `runs` times the commands, the first and the last with stamps.
fn stamped(commands: &[Command], runs: u64, [first, last]: &[Stamp; 2]) -> Vec<Command> {
    let all = (0..runs).flat_map(|_| commands.iter().cloned());
    let mut all: Vec<Command> = all.collect();
    let count = all.len();
    if let Some(command) = all.first_mut() {
        *command = command.clone().stamped(first.clone());
    }
    if count > 1
        && let Some(command) = all.last_mut()
    {
        *command = command.clone().stamped(last.clone());
    }
    all
}

/// Nanoseconds from the first start to the last stop.
fn between([first, last]: &[Stamp; 2], is_one: bool) -> f64 {
    let stop = if is_one { first.times_ns().1 } else { last.times_ns().1 };
    stop.saturating_sub(first.times_ns().0) as f64
}

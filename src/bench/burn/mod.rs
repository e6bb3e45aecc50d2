//! Load that checks what it computes: products of matrices compared with the exact result on the device, element by
//! element and bit by bit, patterns over memory, copies, and pulses of power.
//!
//! What a round computes follows from its number, and the places of results are overwritten before each: a device that
//! does nothing, or repeats what it did before, is found like one that computes something wrong.

mod memory;
mod product;

use crate::error::BenchError;
use crate::machine::{Kind, Machine};
use memory::MemoryTest;
use product::ProductTest;
use serde::Serialize;
use std::time::{Duration, Instant};

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long; `None`: until it is stopped.
    pub duration: Option<Duration>,
    /// Share of the free memory that the patterns cover.
    pub share: f64,
    /// Length of a pause after each pulse of products; zero for none.
    pub pause: Duration,
    /// Findings after which it ends.
    pub most_findings: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { duration: None, share: 0.9, pause: Duration::ZERO, most_findings: 16 }
    }
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// `product`, `memory`, `copy`, or `device` for an error of the device itself.
    pub test: &'static str,
    pub round: u64,
    /// The element (of a product: row and column), the address, and the values in hexadecimal.
    pub text: String,
    /// The first wrong element.
    pub element: Option<u64>,
    /// Its address, of memory.
    pub address: Option<u64>,
    /// How many elements of that round are wrong.
    pub count: u64,
}

/// What a burn did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    pub device: String,
    pub seconds: f64,
    pub rounds: u64,
    /// Multiplications and additions of all products.
    pub operations: f64,
    /// Elements of products that were compared.
    pub elements: u64,
    /// Bytes of memory that patterns were written to and compared in, over all rounds; and in one round.
    pub memory_bytes: u64,
    pub memory_bytes_a_round: u64,
    pub findings: Vec<Finding>,
    /// MHz of a core, lowest and highest.
    pub clock_mhz: Option<[f64; 2]>,
    /// How it ended: `time`, `stopped`, `findings`, `device`.
    pub ended: &'static str,
    pub state: serde_json::Value,
}

impl Report {
    /// Whether everything was computed and was right.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.findings.is_empty() && self.rounds > 0 && self.elements > 0 && self.memory_bytes > 0
    }
}

/// Observes the progress, and says when to end.
pub trait Watch {
    /// After each round.
    fn round(&mut self, _report: &Report) {}
    /// Whether to end now; asked at least each second.
    fn is_stopped(&self) -> bool {
        false
    }
}

/// Burns devices at the same time, each with a watch of its own. CPUs share the host's memory.
pub fn together<W: Watch + Send>(machines: &[Machine], options: &Options, watches: Vec<W>) -> Vec<Report> {
    let cpus = machines.iter().filter(|m| m.kind == Kind::Cpu).count().max(1);
    let of_cpu = Options { share: options.share / cpus as f64, ..options.clone() };
    std::thread::scope(|s| {
        let mut started = Vec::new();
        for (machine, mut watch) in machines.iter().zip(watches) {
            let options = if machine.kind == Kind::Cpu { &of_cpu } else { options };
            started.push(s.spawn(move || burn(machine, options, &mut watch)));
        }
        started.into_iter().map(|thread| thread.join().unwrap_or_else(|e| std::panic::resume_unwind(e))).collect()
    })
}

/// The result for a device that could not be opened.
#[must_use]
pub fn unopened(name: &str, why: &BenchError) -> Report {
    let finding = Finding { test: "device", round: 0, text: why.to_string(), element: None, address: None, count: 1 };
    Report { device: name.into(), findings: vec![finding], ended: "device", ..Report::default() }
}

/// Burns a device.
pub fn burn(machine: &Machine, options: &Options, watch: &mut dyn Watch) -> Report {
    let _session = machine.enter();
    let began = Instant::now();
    let mut report = Report { device: machine.name.clone(), ended: "time", ..Report::default() };
    if let Err(e) = rounds(machine, options, (&mut report, began), watch) {
        let finding = Finding {
            test: "device",
            round: report.rounds,
            text: e.to_string(),
            element: None,
            address: None,
            count: 1,
        };
        report.findings.push(finding);
        report.ended = "device";
    }
    report.seconds = began.elapsed().as_secs_f64();
    report.state = machine.state();
    report
}

fn rounds(
    machine: &Machine,
    options: &Options,
    (report, began): (&mut Report, Instant),
    watch: &mut dyn Watch,
) -> Result<(), BenchError> {
    let mut products = ProductTest::all(machine)?;
    let mut memory = MemoryTest::new(machine, options.share)?;
    report.memory_bytes_a_round = memory.bytes();
    loop {
        for test in &mut products {
            let finding = test.round(machine, report.rounds)?;
            report.operations += test.operations();
            report.elements += test.elements();
            report.findings.extend(finding);
            if !options.pause.is_zero() {
                std::thread::sleep(options.pause);
            }
        }
        // Memory is tested in parts, so that a request to end is heard between them.
        for part in 0..memory.parts() {
            if watch.is_stopped() {
                break;
            }
            let findings = memory.round(machine, report.rounds, part)?;
            report.memory_bytes += memory.part_bytes(part);
            report.findings.extend(findings);
        }
        if let Some(mhz) = machine.clock_mhz()?.filter(|_| !machine.is_software) {
            let [low, high] = report.clock_mhz.unwrap_or([mhz; 2]);
            report.clock_mhz = Some([low.min(mhz), high.max(mhz)]);
        }
        report.rounds += 1;
        report.seconds = began.elapsed().as_secs_f64();
        watch.round(report);
        let is_over = options.duration.is_some_and(|d| began.elapsed() >= d);
        report.ended = match () {
            () if report.findings.len() >= options.most_findings => "findings",
            () if watch.is_stopped() => "stopped",
            () if is_over => "time",
            () => continue,
        };
        return Ok(());
    }
}

/// Reads the two words of a check: the number of wrong elements and the first one. They were overwritten before it.
fn answers(machine: &Machine, out: &doorbell::device::Memory) -> Result<(u64, u64), BenchError> {
    let bytes = machine.bytes(out, 8)?;
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|n| bytes[at + n]));
    Ok((word(0).into(), word(4).into()))
}

/// What stands where an answer will be: no check gives it.
const NO_ANSWER: [u8; 8] = [0xff; 8];

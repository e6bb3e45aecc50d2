//! Burning finds what is injected into a software GPU: a flipped bit in memory, a flipped bit in a register, a GPU that
//! computes nothing, one that dies, one that hangs; and nothing on a good one.

use doorbell::device::Device;
use doorbell::device::nv::{Driver, NvDevice, NvOptions, Selector};
use doorbell::emu::nvrm::compute::{Compute, ComputeFault, Launch, Machine as Card};
use doorbell::emu::nvrm::{Chip, Config, Sms, SoftNv};
use doorbell::emu::sass;
use doorbell::engine::{self, Options};
use doorbell::isa::ptx;
use doorbell_bench::burn::{self, Finding, Report, Watch, burn};
use doorbell_bench::machine::Machine;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A machine on a software GPU, under a name of its own.
fn machine(name: &str, port: Arc<SoftNv>, patience: Duration) -> Machine {
    let driver = Driver::open(name, port as _, false).unwrap();
    let options = NvOptions { submit_timeout: patience, ..NvOptions::default() };
    let device: Arc<dyn Device> = Arc::new(NvDevice::open(name, &driver, &Selector::Index(0), &options).unwrap());
    let chip = ptx::Chip::parse("sm_90").unwrap().of_card();
    engine::add_device(name, device, Arc::new(engine::nvidia(chip, None, None))).unwrap();
    let mut machine = Machine::open(name, Options::default(), true).unwrap();
    machine.is_software = true;
    machine
}

/// Burns for so many rounds.
fn rounds(machine: &Machine, count: u64) -> Report {
    struct Count(u64, u64);
    impl Watch for Count {
        fn round(&mut self, report: &Report) {
            self.0 = report.rounds;
        }
        fn is_stopped(&self) -> bool {
            self.0 >= self.1
        }
    }
    burn(machine, &burn::Options { most_findings: 4, ..burn::Options::default() }, &mut Count(0, count))
}

/// What happens to launches.
#[derive(Clone, Copy, Debug)]
enum Defect {
    /// From this launch on nothing is executed.
    Idle(u64),
    /// This launch ends with a fault.
    Dies(u64),
    /// This launch does not end.
    Hangs(u64),
}

/// Multiprocessors with a defect.
#[derive(Debug)]
struct Bad {
    inner: Sms,
    defect: Defect,
    count: AtomicU64,
}

impl Compute for Bad {
    fn run(&self, launch: &Launch, card: &Card<'_>) -> Result<(), ComputeFault> {
        let nth = self.count.fetch_add(1, Ordering::Relaxed);
        match self.defect {
            Defect::Idle(from) if nth >= from => Ok(()),
            Defect::Dies(at) if nth == at => Err(ComputeFault::Refused("fell off the bus".into())),
            Defect::Hangs(at) if nth == at => {
                while !card.stop.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(ComputeFault::Stopped)
            }
            _ => self.inner.run(launch, card),
        }
    }
}

fn with_defect(name: &str, defect: Defect) -> Report {
    let config = Config::new(Chip::Sm90);
    let bad = Bad { inner: Sms::new(config.sms), defect, count: AtomicU64::new(0) };
    let port = SoftNv::with_compute(config, Arc::new(bad)).unwrap();
    rounds(&machine(name, port, Duration::from_secs(3)), 20)
}

#[test]
fn releases_of_the_driver_that_are_known_and_unknown_are_burnt_alike() {
    use doorbell_ioctl::abi::nvrm::Release;
    for (major, minor, patch) in [(595, 45, 4), (610, 57, 4), (615, 71, 9), (620, 30, 0), (630, 10, 2), (534, 1, 1)] {
        let config = Config { release: Release { major, minor, patch }, ..Config::new(Chip::Sm90) };
        let machine = machine(&format!("R{major}"), SoftNv::new(config).unwrap(), Duration::from_secs(60));
        let report = rounds(&machine, 1);
        assert!(report.is_good(), "{major}: {report:?}");
        assert!(report.state["ecc_errors"].is_array() && report.state["name"] != "", "{major}: {}", report.state);
    }
}

#[test]
fn a_good_gpu_has_no_findings() {
    let machine = machine("GOOD", SoftNv::new(Config::new(Chip::Sm90)).unwrap(), Duration::from_secs(60));
    let report = rounds(&machine, 6);
    assert_eq!(report.findings, Vec::<Finding>::new());
    assert!(report.is_good() && report.rounds == 6 && report.ended == "stopped", "{report:?}");
}

/// Multiprocessors after one of whose launches a bit of what it has written flips in memory.
#[derive(Debug)]
struct Flips {
    inner: Sms,
    count: AtomicU64,
    /// The launch after which it happens.
    at: AtomicU64,
    /// Where it happened last.
    place: AtomicU64,
}

/// Where the launch's parameters begin in constant bank 0.
const PARAMETERS: u64 = 0x210;

impl Compute for Flips {
    fn run(&self, launch: &Launch, card: &Card<'_>) -> Result<(), ComputeFault> {
        self.inner.run(launch, card)?;
        if self.count.fetch_add(1, Ordering::Relaxed) == self.at.load(Ordering::Relaxed) {
            let (bank, _) = launch.banks[0].unwrap();
            let written = card.vm.read_u64(bank + PARAMETERS).unwrap();
            card.vm.update_u32(written, |word| word ^ 1 << 5).unwrap();
            self.place.store(written, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// From the third round on flips another launch's result in each round.
struct EachInTurn {
    flips: Arc<Flips>,
    /// Launches until the end of the first round, and of a round.
    first: u64,
    launches: u64,
}

impl Watch for EachInTurn {
    fn round(&mut self, report: &Report) {
        let launches = self.flips.count.load(Ordering::Relaxed);
        match report.rounds {
            1 => self.first = launches,
            2 => self.launches = launches - self.first,
            _ => {}
        }
        if report.rounds >= 2 {
            self.flips.at.store(launches + (report.rounds - 2) % self.launches, Ordering::Relaxed);
        }
    }
    fn is_stopped(&self) -> bool {
        let rounds = 3 + self.launches;
        self.launches > 0 && self.flips.count.load(Ordering::Relaxed) >= self.first + self.launches * rounds
    }
}

#[test]
fn a_flipped_bit_in_memory_is_told_with_its_address_whichever_launch_had_written_it() {
    let config = Config::new(Chip::Sm90);
    let (inner, never) = (Sms::new(config.sms), AtomicU64::new(u64::MAX));
    let flips = Arc::new(Flips { inner, count: AtomicU64::default(), at: never, place: AtomicU64::default() });
    let port = SoftNv::with_compute(config, Arc::clone(&flips) as _).unwrap();
    let machine = machine("FLIPPED", port, Duration::from_secs(60));
    let mut turns = EachInTurn { flips, first: 0, launches: 0 };
    let options = burn::Options { most_findings: 1000, ..burn::Options::default() };
    let report = burn(&machine, &options, &mut turns);
    let launches = turns.launches;
    assert!(report.rounds > launches && launches >= 8, "{launches} launches a round, {} rounds", report.rounds);
    // Every result of a round is compared but the cycles that its last launch counts: each flip is found in its round,
    // and none in another.
    let rounds: std::collections::BTreeSet<u64> = report.findings.iter().map(|f| f.round).collect();
    let want: Vec<u64> = (2..report.rounds).filter(|round| (round - 2) % launches != launches - 1).collect();
    assert_eq!(rounds.into_iter().collect::<Vec<_>>(), want, "{report:?}");
    let words = report.findings.iter().filter(|f| f.test == "memory" && f.element.is_some());
    let exact = words.filter(|f| f.element == Some(0) && f.text.contains("(bits 0x00000020)") && f.count == 1);
    assert!(exact.count() >= 2 && !report.is_good(), "{report:?}");
}

#[test]
fn a_flipped_bit_in_a_register_is_told_with_its_element() {
    let mut found = 0;
    for (n, register) in [2, 4, 6, 8, 10, 12, 20, 28].into_iter().enumerate() {
        let flip = sass::Flip { after: 40, register, lane: 3, bit: 22 };
        let mut config = Config::new(Chip::Sm90);
        config.sms.flip = Some(flip);
        let name = format!("REGISTER{n}");
        let report = rounds(&machine(&name, SoftNv::new(config).unwrap(), Duration::from_secs(60)), 2);
        // Most registers hold addresses or values of the product; a dead one changes nothing.
        found += usize::from(!report.is_good());
        assert_eq!(report.is_good(), report.findings.is_empty(), "{report:?}");
    }
    assert!(found >= 1, "{found} of 8 registers");
}

#[test]
fn a_gpu_that_computes_nothing_never_passes() {
    for (n, from) in [0, 12, 40].into_iter().enumerate() {
        let report = with_defect(&format!("IDLE{n}"), Defect::Idle(from));
        assert!(!report.is_good() && !report.findings.is_empty(), "from launch {from}: {report:?}");
    }
}

#[test]
fn a_gpu_that_dies_or_hangs_never_passes() {
    for (name, defect) in [("DIES", Defect::Dies(20)), ("HANGS", Defect::Hangs(20))] {
        let report = with_defect(name, defect);
        assert!(!report.is_good() && report.ended == "device", "{name}: {report:?}");
        assert_eq!(report.findings.last().map(|f| f.test), Some("device"), "{name}");
    }
}

//! Which machine is climbed on: the running kernel or a software GPU, with the trace and the planned fault around it.

use crate::Args;
use doorbell::device::amd::Selector;
use doorbell::device::registry::DeviceName;
use doorbell::emu::amdgpu::Strict;
use doorbell::emu::kfd::{Chip, Config, SoftKfd};
use doorbell_ioctl::abi;
use doorbell_ioctl::fault::{Call, Faults, Plan, Trouble};
use doorbell_ioctl::port::{Errno, LinuxPort, Port};
use doorbell_ioctl::trace::{Event, FileSink, Log, Sink, Trace};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

/// The way to the driver.
pub struct Machine {
    pub selector: Selector,
    pub port: Arc<dyn Port>,
    pub trace: Arc<Trace>,
    /// Every call so far.
    pub log: Log,
    pub is_software: bool,
    soft: Option<Arc<SoftKfd>>,
}

/// The list in memory and the file at once.
struct Both(Log, FileSink<BufWriter<File>>);

impl Sink for Both {
    fn event(&mut self, event: &Event) {
        self.0.event(event);
        self.1.event(event);
        // A card that takes the machine down with it leaves what was asked of it last.
        self.1.flush();
    }

    fn flush(&mut self) {
        self.1.flush();
    }
}

impl Machine {
    /// The machine that the arguments mean; its trace goes to `file`.
    ///
    /// # Errors
    /// In words: a name or a fault that cannot be read, a file that cannot be written.
    pub fn new(args: &Args, file: &Path) -> Result<Self, String> {
        let name: DeviceName = args.device.parse().map_err(|e| format!("--device: {e}"))?;
        let DeviceName::Amd(selector) = name else {
            return Err(format!("--device {}: only AMD devices are climbed here", args.device));
        };
        let soft = if let Selector::Emulated(chip) = &selector { Some(software(chip)?) } else { None };
        let is_software = soft.is_some();
        let base: Arc<dyn Port> = match &soft {
            Some(soft) => Arc::clone(soft) as _,
            None => LinuxPort::new(),
        };
        let written = File::create(file).and_then(|f| FileSink::new(BufWriter::new(f)));
        let sink = written.map_err(|e| format!("--trace {}: {e}", file.display()))?;
        // The trace is outermost: it shows what the planned fault answered.
        let faulty: Arc<dyn Port> = match &args.fault {
            Some(spec) => Faults::new(base, plan(spec)?),
            None => base,
        };
        let log = Log::default();
        let trace = Trace::new(faulty, Box::new(Both(log.clone(), sink)));
        Ok(Self { selector, port: Arc::clone(&trace) as _, trace, log, is_software, soft })
    }

    /// What a software GPU has complained about: more than any card would say.
    pub fn complaints(&self) -> Vec<String> {
        let reports = self.soft.iter().flat_map(|soft| soft.reports());
        reports.map(|r| format!("software GPU: {}", r.to_string().replace('\n', " "))).collect()
    }
}

fn software(chip: &str) -> Result<Arc<SoftKfd>, String> {
    let names = || Chip::ALL.map(|c| c.facts().name).join(", ");
    let chip = Chip::named(chip).ok_or_else(|| format!("no software GPU of chip {chip}, there are {}", names()))?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let config = Config { waves: Strict { threads, ..Strict::on() }, ..Config::new(chip) };
    SoftKfd::new(config).map_err(|errno| format!("software GPU: {errno}"))
}

/// `CREATE_QUEUE:2:EINVAL`, `open:1:EACCES`, `mmap:3:ENOMEM`, `doorbell:1:lose`.
fn plan(spec: &str) -> Result<Plan, String> {
    let wrong = |what: &str| format!("--fault {spec}: {what}");
    let parts: Vec<&str> = spec.split(':').collect();
    let [call, nth, trouble] = parts[..] else { return Err(wrong("CALL:N:ERRNO is wanted")) };
    let named = |name: &str| {
        let same = |d: &&abi::Desc| d.name.rsplit("IOC_").next().is_some_and(|n| n.eq_ignore_ascii_case(name));
        abi::all().find(|d| same(d) || d.name.eq_ignore_ascii_case(name)).map(|d| Call::Ioctl(d.request))
    };
    let call = match call {
        "open" => Call::Open,
        "mmap" => Call::Mmap,
        "munmap" => Call::Munmap,
        "ioctl" => Call::AnyIoctl,
        "doorbell" => Call::Doorbell,
        name => named(name).ok_or_else(|| wrong("no such call"))?,
    };
    let nth = nth.parse().ok().filter(|n| *n > 0).ok_or_else(|| wrong("which call is a number from 1"))?;
    let trouble = match trouble {
        "lose" => Trouble::Lose,
        errno => Trouble::Fail(Errno::named(errno).ok_or_else(|| wrong("no such errno"))?),
    };
    Ok(Plan::one(call, nth, trouble))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_by_the_calls_short_name() {
        assert_eq!(plan("create_queue:2:EINVAL").unwrap().to_string(), "AMDKFD_IOC_CREATE_QUEUE 2: EINVAL");
        assert_eq!(plan("doorbell:1:lose").unwrap().to_string(), "doorbell 1: lost");
        for wrong in ["", "open", "open:0:EIO", "open:1:EWHAT", "nothing:1:EIO"] {
            assert!(plan(wrong).unwrap_err().starts_with("--fault "), "{wrong}");
        }
    }
}

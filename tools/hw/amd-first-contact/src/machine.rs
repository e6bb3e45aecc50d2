//! The machine under test: the running kernel or a software GPU, wrapped by the trace and the planned fault.

use crate::Args;
use doorbell::device::amd::Selector;
use doorbell::device::registry::DeviceName;
use doorbell::emu::amdgpu::Strict;
use doorbell::emu::kfd::{Chip, Config, SoftKfd};
use doorbell_ioctl::fault::Faults;
use doorbell_ioctl::port::{LinuxPort, Port};
use doorbell_ioctl::trace::{Log, Trace};
use hw_contact::{Watched, port_plan};
use std::path::Path;
use std::sync::Arc;

/// The port to the driver.
pub struct Machine {
    pub selector: Selector,
    pub port: Arc<dyn Port>,
    pub trace: Arc<Trace>,
    /// Every call so far.
    pub log: Log,
    pub is_software: bool,
    soft: Option<Arc<SoftKfd>>,
}

impl Machine {
    /// The machine selected by the arguments; its trace goes to `file`.
    ///
    /// # Errors
    /// In words: a name or a fault that cannot be read, a file that cannot be written.
    pub fn new(args: &Args, file: &Path) -> Result<Self, String> {
        let name: DeviceName = args.device.parse().map_err(|e| format!("--device: {e}"))?;
        let DeviceName::Amd(selector) = name else {
            return Err(format!("--device {}: only AMD devices are climbed here", args.device));
        };
        let soft = if let Selector::Emulated { chip, .. } = &selector { Some(software(chip)?) } else { None };
        let is_software = soft.is_some();
        let base: Arc<dyn Port> = match &soft {
            Some(soft) => Arc::clone(soft) as _,
            None => LinuxPort::new(),
        };
        // The trace is outermost: it shows what the planned fault answered.
        let faulty: Arc<dyn Port> = match &args.fault {
            Some(spec) => Faults::new(base, port_plan(spec)?),
            None => base,
        };
        let Watched { port, trace, log } = Watched::new(faulty, file)?;
        Ok(Self { selector, port, trace, log, is_software, soft })
    }

    /// The findings of a software GPU, which a card does not report.
    pub fn complaints(&self) -> Vec<String> {
        let reports = self.soft.iter().flat_map(|soft| soft.reports());
        reports.map(|r| format!("software GPU: {}", r.to_string().replace('\n', " "))).collect()
    }
}

fn software(chip: &str) -> Result<Arc<SoftKfd>, String> {
    let names = || Chip::ALL.map(Chip::name).join(", ");
    let chip = Chip::named(chip).ok_or_else(|| format!("no software GPU of chip {chip}, there are {}", names()))?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let config = Config { waves: Strict { threads, ..Strict::on() }, ..Config::new(chip) };
    SoftKfd::new(config).map_err(|errno| format!("software GPU: {errno}"))
}

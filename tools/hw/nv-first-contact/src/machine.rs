//! The machine under test: the running kernel or a software GPU, wrapped by the trace and the planned faults.

use crate::Args;
use crate::grids::{Planned, Troubled};
use doorbell::device::nv::Selector;
use doorbell::device::registry::DeviceName;
use doorbell::emu::nvrm::{Call, Chip, Config, Refusal, Sms, SoftNv};
use doorbell_ioctl::abi::nvrm::{CLASSES, CONTROLS, STATUSES};
use doorbell_ioctl::abi::uvm;
use doorbell_ioctl::fault::{Faults, Plan};
use doorbell_ioctl::port::{LinuxPort, Port};
use doorbell_ioctl::trace::{Log, Trace};
use hw_contact::{Spec, Watched, port_plan};
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
    soft: Option<(Arc<SoftNv>, Arc<Troubled>)>,
}

impl Machine {
    /// The machine selected by the arguments; its trace goes to `file`.
    ///
    /// # Errors
    /// In words: a name or a fault that cannot be read, a file that cannot be written.
    pub fn new(args: &Args, file: &Path) -> Result<Self, String> {
        let name: DeviceName = args.device.parse().map_err(|e| format!("--device: {e}"))?;
        let DeviceName::Nv(selector) = name else {
            return Err(format!("--device {}: only NVIDIA devices are climbed here", args.device));
        };
        let (mut plan, mut refusals, mut grids) = (Plan::default(), Vec::new(), Vec::new());
        for spec in &args.fault {
            // Those of parts are handed on to their processes.
            if let Some((part, _)) = spec.split_once('/') {
                crate::child::check(part).map_err(|what| format!("--fault {spec}: {what}"))?;
                continue;
            }
            if let Some(planned) = Planned::parse(spec)? {
                grids.push(planned);
                continue;
            }
            match refusal(spec)? {
                Some(refusal) => refusals.push(refusal),
                None => plan.0.extend(port_plan(spec)?.0),
            }
        }
        let soft = match &selector {
            Selector::Emulated { chip, .. } => Some(software(chip, args.broken.as_deref(), refusals, grids)?),
            _ if !refusals.is_empty() || !grids.is_empty() || args.broken.is_some() => {
                return Err("--broken, and --fault with a status or of a grid, are for software GPUs".into());
            }
            _ => None,
        };
        let is_software = soft.is_some();
        let base: Arc<dyn Port> = match &soft {
            Some((soft, _)) => Arc::clone(soft) as _,
            None => LinuxPort::new(),
        };
        // The trace is outermost: it shows what the planned fault answered.
        let faulty: Arc<dyn Port> = if plan.0.is_empty() { base } else { Faults::new(base, plan) };
        let Watched { port, trace, log } = Watched::new(faulty, file)?;
        Ok(Self { selector, port, trace, log, is_software, soft })
    }

    /// Grids that a software GPU has run.
    pub fn grids(&self) -> Option<u64> {
        self.soft.as_ref().map(|(_, sms)| sms.grids())
    }

    /// The findings of a software GPU, which a card does not report.
    pub fn complaints(&self) -> Vec<String> {
        let reports = self.soft.iter().flat_map(|(soft, _)| soft.reports());
        reports.map(|r| format!("software GPU: {}", r.to_string().replace('\n', " "))).collect()
    }
}

fn software(
    chip: &str,
    broken: Option<&str>,
    refusals: Vec<Refusal>,
    grids: Vec<Planned>,
) -> Result<(Arc<SoftNv>, Arc<Troubled>), String> {
    let names = || Chip::ALL.map(|c| c.facts().name).join(", ");
    let known = Chip::ALL.into_iter().find(|c| c.facts().name == chip);
    let known = known.ok_or_else(|| format!("no software GPU of chip {chip}, there are {}", names()))?;
    let mut config = Config { refusals, ..Config::new(known) };
    match broken {
        None => {}
        Some("no-uvm") => config.no_uvm = true,
        Some("no-nodes") => config.no_nodes = true,
        Some("confidential") => config.confidential = true,
        Some("prohibited") => config.compute_prohibited = true,
        Some("mig") => config.mig = true,
        Some("bar0") => config.bar0_doorbell_lost = true,
        Some("interrupts") => config.interrupts_lost = true,
        Some("clock") => config.coarse_clock = true,
        Some(other) => return Err(format!("--broken {other}: no such thing")),
    }
    let sms = Arc::new(Troubled::new(Sms::new(config.sms), grids));
    let soft = SoftNv::with_compute(config, Arc::clone(&sms) as _);
    soft.map(|soft| (soft, sms)).map_err(|errno| format!("software GPU: {errno}"))
}

/// `HOPPER_CHANNEL_GPFIFO_A:1:NV_ERR_NO_MEMORY`, `GPU_GET_CLASSLIST_V2:1:0x56`, `UVM_REGISTER_CHANNEL:1:0x1e`; `None`
/// for a fault of the port.
fn refusal(text: &str) -> Result<Option<Refusal>, String> {
    let spec = Spec::parse(text)?;
    let by_name = STATUSES.iter().find(|(_, name)| *name == spec.trouble).map(|(value, _)| *value as u32);
    let by_number = spec.trouble.strip_prefix("0x").and_then(|hex| u32::from_str_radix(hex, 16).ok());
    let Some(status) = by_name.or(by_number) else { return Ok(None) };
    let short = |name: &'static str| name.split_once("_CTRL_CMD_").map_or(name, |(_, short)| short);
    let class = CLASSES.iter().find(|c| c.name == spec.call).map(|c| Call::Class(c.value));
    let control = CONTROLS.iter().find(|c| short(c.name) == spec.call || c.name == spec.call);
    let call = class.or_else(|| control.map(|c| Call::Control(c.value)));
    let call = call.or_else(|| uvm::TABLE.iter().find(|d| d.name == spec.call).map(|d| Call::Uvm(d.request)));
    let call = call.ok_or_else(|| spec.wrong("no such class, command or call of UVM"))?;
    Ok(Some(Refusal { call, nth: u32::try_from(spec.nth).unwrap_or(u32::MAX), status }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorbell_ioctl::abi::nvrm;

    #[test]
    fn refusals_are_read_by_class_command_and_call_and_errnos_are_the_ports() {
        let seen = refusal("HOPPER_CHANNEL_GPFIFO_A:2:NV_ERR_NO_MEMORY").unwrap();
        let class = Call::Class(nvrm::HOPPER_CHANNEL_GPFIFO_A);
        assert_eq!(seen, Some(Refusal { call: class, nth: 2, status: 0x51 }));
        let seen = refusal("GPU_GET_CLASSLIST_V2:1:0x56").unwrap();
        let control = Call::Control(nvrm::GPU_GET_CLASSLIST_V2.cmd);
        assert_eq!(seen, Some(Refusal { call: control, nth: 1, status: 0x56 }));
        let seen = refusal("UVM_REGISTER_CHANNEL:1:0x1e").unwrap().map(|r| r.call);
        assert_eq!(seen, Some(Call::Uvm(uvm::REGISTER_CHANNEL.desc.request)));
        assert_eq!(refusal("open:1:EACCES"), Ok(None));
        assert!(refusal("NO_SUCH_CLASS:1:0x56").unwrap_err().contains("no such class"));
        assert_eq!(Planned::parse("open:1:EACCES"), Ok(None));
        assert!(Planned::parse("grid:2:lose").unwrap().is_some() && Planned::parse("grid:2:melt").is_err());
    }
}

//! `doorbell replay FILE --port emu|real`: replays a recorded run and reports differences.

use super::packets::{nvidia_chip, target_version};
use super::read;
use crate::{CliError, Output};
use clap::{Args, ValueEnum};
use doorbell::device::amd::version_name;
use doorbell::device::registry::{Registry, SOFTWARE_CARDS};
use doorbell::engine::session;
use doorbell_ioctl::port::{LinuxPort, Port};
use doorbell_ioctl::replay::{ReplayOptions, replay, submissions};
use doorbell_ioctl::trace::{Event, Log, Trace, What};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PortKind {
    /// A software GPU of the recorded chip
    Emu,
    /// The running kernel
    Real,
}

#[derive(Args, Debug)]
pub(crate) struct ReplayArgs {
    /// A run recorded with `doorbell trace --memory` or `--record FILE
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// What to replay it against
    #[arg(long, value_enum, value_name = "PORT")]
    port: PortKind,
    /// Chip of the software GPU; by default the recorded one
    #[arg(long, value_name = "CHIP")]
    chip: Option<String>,
    /// Seconds to wait for a queue to catch up
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
}

pub(crate) fn run(args: &ReplayArgs, output: Output) -> Result<(), CliError> {
    let events = read(&args.file)?;
    if !events.iter().any(|e| matches!(e.what, What::Memory { .. })) {
        let how = "it was traced without memory; record it with `doorbell trace --memory`";
        return Err(CliError::CouldNotRun(format!("{} cannot be replayed: {how}", args.file.display())));
    }
    #[cfg(feature = "metal")]
    if events.iter().any(|e| matches!(e.what, What::Message(_))) {
        return messages(args, &events, output);
    }
    let log = Log::default();
    let port: Arc<dyn Port> = Trace::recording(port_of(args, &events)?, Box::new(log.clone()));
    let report = replay(&events, &port, &ReplayOptions { queue_timeout: Duration::from_secs(args.timeout) });
    let (mut then, now) = (submissions(&events), submissions(&log.events()));
    // Addresses in NVIDIA's packets are not translated: a mapping at another address is reported as a difference.
    if nvidia_chip(&events).is_none() {
        then.iter_mut().for_each(|s| report.translate(&mut s.bytes));
    }
    let alike = then.iter().zip(&now).take_while(|(a, b)| a == b).count();
    let identical = then == now;
    for difference in &report.differences {
        output.say(&difference.to_string());
    }
    let packets = if identical { "identical".to_owned() } else { format!("different from number {alike} on") };
    let (calls, doorbells) = (report.calls, report.doorbells);
    output.say(&format!(
        "{calls} calls and {doorbells} doorbells replayed, {} differences; packets of {} submissions {packets}",
        report.differences.len(),
        then.len()
    ));
    let differences: Vec<String> = report.differences.iter().map(ToString::to_string).collect();
    output.result(&serde_json::json!({
        "trace": args.file, "calls": calls, "doorbells": doorbells, "submissions": then.len(), "packets_identical": identical,
        "moved": report.moved.len(), "timeouts": report.timeouts, "differences": differences,
    }));
    if differences.is_empty() && identical { Ok(()) } else { Err(CliError::Reported(1)) }
}

/// Replays the messages of a Metal device.
#[cfg(feature = "metal")]
fn messages(args: &ReplayArgs, events: &[Event], output: Output) -> Result<(), CliError> {
    use doorbell::device::metal;
    let objc = match args.port {
        PortKind::Real => {
            metal::objc::Objc::system().ok_or_else(|| CliError::CouldNotRun("Metal is not on this system".into()))?
        }
        PortKind::Emu => {
            let named = args.chip.as_deref().map(|chip| chip.strip_prefix("apple").and_then(|n| n.parse().ok()));
            let family = named.unwrap_or_else(|| metal::family_of(events));
            let how = "name the software GPU as --chip apple7; the recording tells no family of Apple's";
            let family = family.ok_or_else(|| CliError::Usage(how.into()))?;
            software_metal(family)?
        }
    };
    let options = ReplayOptions { queue_timeout: Duration::from_secs(args.timeout) };
    let report = metal::replay(events, objc, &options);
    let differences: Vec<String> = report.differences.iter().map(ToString::to_string).collect();
    differences.iter().for_each(|difference| output.say(difference));
    let (calls, commits) = (report.calls, report.doorbells);
    output.say(&format!(
        "{calls} messages and {commits} command buffers replayed, {} differences, {} timeouts",
        differences.len(),
        report.timeouts
    ));
    output.result(&serde_json::json!({
        "trace": args.file, "calls": calls, "doorbells": commits, "timeouts": report.timeouts, "differences": differences,
    }));
    if differences.is_empty() && report.timeouts == 0 { Ok(()) } else { Err(CliError::Reported(1)) }
}

fn port_of(args: &ReplayArgs, events: &[Event]) -> Result<Arc<dyn Port>, CliError> {
    match args.port {
        PortKind::Real => Ok(LinuxPort::new()),
        PortKind::Emu => {
            let recorded = target_version(events).map(version_name);
            let recorded = recorded.or_else(|| nvidia_chip(events).map(|chip| chip.name.into()));
            let chip = args
                .chip
                .clone()
                .or(recorded)
                .ok_or_else(|| CliError::Usage("the recording names no chip; name one with --chip".into()))?;
            software(&chip)
        }
    }
}

/// A machine of software GPUs of a chip.
fn software(chip: &str) -> Result<Arc<dyn Port>, CliError> {
    let emulation = session()?.device_options().emulation;
    Registry::global().software_port(chip, SOFTWARE_CARDS, emulation).map_err(|why| no_software(chip, why))
}

/// The framework of Metal in software.
#[cfg(feature = "metal")]
fn software_metal(family: u32) -> Result<doorbell::device::metal::objc::Objc, CliError> {
    session()?;
    Registry::global().software_metal(family).map_err(|why| no_software(&format!("apple{family}"), why))
}

/// A chip that does not exist is wrong usage; a build without software GPUs cannot run.
fn no_software(chip: &str, why: String) -> CliError {
    if cfg!(feature = "emu") { CliError::Usage(why) } else { CliError::CouldNotRun(format!("{chip}: {why}")) }
}

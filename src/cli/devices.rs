//! `doorbell devices`: lists the devices of this machine and this build.

use super::{CliError, Output};
use clap::Args;
use doorbell::device::registry::DeviceName;
use doorbell::device::{DeviceListing, Registry};
use doorbell::engine::session;

#[derive(Args, Debug)]
pub(crate) struct DevicesArgs {
    /// Print a seccomp profile instead, in the format of OCI: what a process needs to run packages on the chosen device
    #[arg(long)]
    syscalls: bool,
}

/// The profile for a supervisor: `podman run --security-opt seccomp=FILE`.
fn profile(device: &str) -> Result<serde_json::Value, CliError> {
    let names = doorbell::runtime::syscalls(device)
        .ok_or_else(|| CliError::Usage(format!("device {device} makes no system calls of its own")))?;
    Ok(serde_json::json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"],
        "syscalls": [{"names": names, "action": "SCMP_ACT_ALLOW"}],
    }))
}

pub(crate) fn run(args: &DevicesArgs, output: Output) -> Result<(), CliError> {
    // The name as in the list: `cuda:emu=sm_90` is `NV:emu=sm_90`.
    let session = session()?;
    let asked = &session.options.device;
    let chosen = asked.parse().map_or_else(|_| asked.clone(), |name: DeviceName| name.to_string());
    if args.syscalls {
        println!("{:#}", profile(&chosen)?);
        return Ok(());
    }
    let options = session.device_options();
    let mut all = Registry::global().list(&options);
    for d in &mut all {
        let mark = if d.name == chosen { "*" } else { " " };
        // A software GPU is opened only if it is the chosen device.
        if d.name == chosen && d.unavailable.is_none() && d.state.is_none() {
            d.state = Registry::global().open(&chosen, &options).ok().and_then(|device| device.state());
        }
        output.say(&line(d, mark));
        if let Some(state) = &d.state {
            output.say(&format!("         {}", state.line));
        }
    }
    output.result(&serde_json::json!({"default": chosen, "devices": all}));
    Ok(())
}

/// A device in one line, without properties that are unknown before it is opened.
fn line(d: &DeviceListing, mark: &str) -> String {
    if let Some(why) = &d.unavailable {
        return format!("{mark} {:<14} not available: {why}", d.name);
    }
    let mut line = format!("{mark} {:<14} {:<13}", d.name, d.arch);
    if d.cores > 0 {
        line += &format!(" {:4} cores", d.cores);
    }
    if d.memory_bytes > 0 {
        line += &format!(" {:7.1} GiB", d.memory_bytes as f64 / (1u64 << 30) as f64);
    }
    line.truncate(line.trim_end().len());
    line
}

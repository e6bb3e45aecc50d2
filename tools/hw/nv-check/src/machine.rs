//! The device under test, and parts that run in a process of their own.

use crate::Args;
use crate::{code, theirs};
use doorbell::device::nv::{Driver, NvDevice, NvOptions, PageTables, Selector};
use doorbell::device::registry::{DeviceName, EmuOptions};
use doorbell::device::{Arg, Code, Command, Device, Geometry, Kernel, KernelImage, QueueKind};
use doorbell::engine::software::emulate;
use doorbell_ioctl::port::{LinuxPort, Port};
use hw_contact::{Failure, fail, run_until};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The selector that the arguments name.
///
/// # Errors
/// In words.
pub fn selector(args: &Args) -> Result<Selector, String> {
    match args.device.parse() {
        Ok(DeviceName::Nv(selector)) => Ok(selector),
        Ok(_) => Err(format!("--device {}: only NVIDIA devices are checked here", args.device)),
        Err(e) => Err(format!("--device: {e}")),
    }
}

/// An open device with its kernels.
pub struct Machine {
    pub device: NvDevice,
    pub patience: Duration,
    pub is_software: bool,
    pub cubin: Vec<u8>,
}

impl Machine {
    /// # Errors
    /// The device's.
    pub fn open(args: &Args) -> Result<Self, Failure> {
        let selector = selector(args).map_err(Failure::from)?;
        let is_software = matches!(selector, Selector::Emulated { .. });
        let port: Arc<dyn Port> = match &selector {
            Selector::Emulated { chip, .. } => emulate(chip, 1, EmuOptions::default()).map_err(Failure::from)?,
            _ => LinuxPort::new(),
        };
        let tables = if args.rm_only { PageTables::Rm } else { PageTables::default() };
        let driver = Driver::open_with("NV", port, args.any_driver, tables)?;
        // TIMEOUT: far above the slowest copy; a software GPU on a busy machine needs more.
        let patience = Duration::from_secs(if is_software { 120 } else { 10 });
        let (any_release, bar1_doorbell) = (args.any_driver, args.bar1_doorbell);
        let options =
            NvOptions { any_release, bar1_doorbell, tables, submit_timeout: patience, ..NvOptions::default() };
        let device = NvDevice::open("NV", &driver, &selector, &options)?;
        let cubin = code::cubin(args, &device.info().arch)?;
        Ok(Self { device, patience, is_software, cubin })
    }

    /// # Errors
    /// The device's.
    pub fn load(&self, name: &str) -> Result<Kernel, Failure> {
        let code = Code::Elf { bytes: &self.cubin, entry: name };
        let mut kernels = self.device.load(&[KernelImage { name, code }])?;
        kernels.pop().ok_or_else(|| "the device loaded nothing".into())
    }

    /// A launch of one block.
    pub fn launch(kernel: &Kernel, args: Vec<Arg>) -> Command {
        let geometry = Geometry::of([1; 3], [code::BLOCK, 1, 1]);
        Command::exec(kernel, args, 1).over(geometry)
    }

    /// Runs commands to their end.
    ///
    /// # Errors
    /// The device's.
    pub fn run(&self, commands: &[Command]) -> Result<(), Failure> {
        let point = self.device.submit(QueueKind::Compute, commands)?;
        Ok(self.device.wait(&point, self.patience)?)
    }
}

/// A child's part: one line of JSON.
pub fn child(part: &str, args: &Args) -> ExitCode {
    let reported = match part {
        "first" => first(args),
        "cuda" => theirs::measure(args),
        other => Err(format!("no part {other}").into()),
    };
    match reported {
        Ok(value) => {
            println!("{value}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("{}", json!({"error": failure.what}));
            ExitCode::FAILURE
        }
    }
}

/// From process start to the end of the first kernel, and the cost of closing, in a fresh process.
fn first(args: &Args) -> Result<Value, Failure> {
    let began = Instant::now();
    let machine = Machine::open(args)?;
    let opened = began.elapsed();
    let nothing = machine.load("nothing")?;
    machine.run(&[Machine::launch(&nothing, vec![])])?;
    let first = began.elapsed();
    drop(nothing);
    machine.device.close().map_err(fail)?;
    let ms = |took: Duration| took.as_secs_f64() * 1e3;
    Ok(json!({"open_ms": ms(opened), "open_to_first_kernel_ms": ms(first), "close_ms": ms(began.elapsed() - first)}))
}

/// Runs a part in a process of its own and reads its line.
///
/// # Errors
/// It printed none, or an error.
pub fn apart(part: &str, args: &Args, deadline: Instant) -> Result<Value, Failure> {
    let own = std::env::current_exe().map_err(fail)?;
    let mut command = std::process::Command::new(own);
    command.args(["--child", part, "--device", &args.device]).arg("--cuda").arg(&args.cuda);
    if args.any_driver {
        command.arg("--any-driver");
    }
    if args.quick {
        command.arg("--quick");
    }
    if args.bar1_doorbell {
        command.arg("--bar1-doorbell");
    }
    if args.rm_only {
        command.arg("--rm-only");
    }
    if let Some(ptxas) = &args.ptxas {
        command.arg("--ptxas").arg(ptxas);
    }
    let ended = run_until(command, deadline)?;
    let line = ended.out.lines().last().unwrap_or_default();
    let value: Value = serde_json::from_str(line).map_err(|e| {
        let said = ended.err.lines().last().unwrap_or_default();
        Failure::from(format!("{part} ended with {}: {e}: {said}", ended.status))
    })?;
    match value["error"].as_str() {
        Some(error) => Err(error.into()),
        None => Ok(value),
    }
}

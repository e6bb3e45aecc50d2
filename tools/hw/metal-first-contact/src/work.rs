//! The device of a run: the runtime's own, opened once, and the functions beneath it for what it does not send.

use crate::Args;
use crate::objc::Raw;
use doorbell::device::metal::objc::Objc;
use doorbell::device::metal::{MetalDevice, Selector};
use doorbell::device::{Arg, Code, Command, Device, Geometry, Kernel, KernelImage, Memory, QueueKind};
use doorbell::hcq::signal::Point;
use doorbell_ioctl::port::objc::Id;
use hw_contact::{Failure, fail};
use std::process::Command as Process;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// What kernels of this program begin with: arithmetic as the runtime asks for it.
pub const EXACT: &str = "#pragma METAL fp math_mode(safe)\n#pragma METAL fp contract(off)\n\
                         #include <metal_stdlib>\nusing namespace metal;\n";

/// The device and what the steps know about it.
pub struct Bench {
    pub args: Args,
    pub selector: Selector,
    objc: Option<Objc>,
    device: OnceLock<Result<MetalDevice, String>>,
}

impl Bench {
    /// # Errors
    /// In words: no device of Metal's name.
    pub fn new(args: &Args) -> Result<Self, String> {
        let wrong = || format!("{} is no device of Metal: METAL, METAL:1, METAL:emu, METAL:emu=apple9", args.device);
        let rest = args.device.strip_prefix("METAL").ok_or_else(wrong)?;
        let rest = rest.strip_prefix(':').or(if rest.is_empty() { None } else { Some("?") });
        let selector = Selector::parse(rest).ok_or_else(wrong)?;
        let objc = match selector {
            Selector::Emulated { family, .. } => {
                doorbell::emu::metal::Table::of_family(family).map(|table| table.objc())
            }
            Selector::Index(_) => Objc::system(),
        };
        Ok(Self { args: args.clone(), selector, objc, device: OnceLock::new() })
    }

    pub fn is_software(&self) -> bool {
        matches!(self.selector, Selector::Emulated { .. })
    }

    /// Use small sizes and counts.
    pub fn is_quick(&self) -> bool {
        self.args.quick || self.is_software()
    }

    /// Whether a step shall find something else than is there.
    pub fn pretends(&self, step: &str) -> bool {
        self.args.pretend.as_deref() == Some(step)
    }

    // TIMEOUT: how long something may take that has to end.
    pub fn patience(&self) -> Duration {
        Duration::from_secs(self.args.patience)
    }

    /// # Errors
    /// There is no Metal in this process.
    pub fn objc(&self) -> Result<Objc, Failure> {
        self.objc.ok_or_else(|| "this system has no Metal".into())
    }

    /// The functions beneath the device.
    ///
    /// # Errors
    /// As [`Bench::objc`].
    pub fn raw(&self) -> Result<Raw, Failure> {
        Ok(Raw::new(self.objc()?))
    }

    /// The device, opened at the first call.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub fn device(&self) -> Result<&MetalDevice, Failure> {
        let open = || {
            let objc = self.objc().map_err(|f| f.what)?;
            let index = match self.selector {
                Selector::Emulated { index, .. } => Selector::Index(index),
                ref other => other.clone(),
            };
            MetalDevice::open("METAL", objc, &index, Some(self.patience())).map_err(|e| e.to_string())
        };
        self.device.get_or_init(open).as_ref().map_err(|why| why.as_str().into())
    }

    /// A kernel of a source.
    ///
    /// # Errors
    /// The compiler's.
    pub fn kernel(&self, source: &str, name: &str) -> Result<Kernel, Failure> {
        let code = Code::Elf { bytes: source.as_bytes(), entry: name };
        let mut all = self.device()?.load(&[KernelImage { name, code }])?;
        all.pop().ok_or_else(|| "no kernel".into())
    }

    /// Memory with these numbers.
    ///
    /// # Errors
    /// The device's.
    pub fn memory(&self, values: &[f32]) -> Result<Memory, Failure> {
        let memory = self.device()?.alloc(values.len() as u64 * 4)?;
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.device()?.copy_in(&memory, 0, &bytes)?;
        Ok(memory)
    }

    /// The numbers in memory, when all work on it is done.
    ///
    /// # Errors
    /// The device's.
    pub fn values(&self, memory: &Memory) -> Result<Vec<f32>, Failure> {
        let mut bytes = vec![0; usize::try_from(memory.len_bytes()).map_err(fail)?];
        self.device()?.copy_out(memory, 0, &mut bytes)?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|c| f32::from_le_bytes(*c)).collect())
    }

    /// Submits commands.
    ///
    /// # Errors
    /// The device's.
    pub fn submit(&self, commands: &[Command]) -> Result<Point, Failure> {
        Ok(self.device()?.submit(QueueKind::Compute, commands)?)
    }

    /// Submits commands and waits for them.
    ///
    /// # Errors
    /// The device's.
    pub fn run(&self, commands: &[Command]) -> Result<(), Failure> {
        let point = self.submit(commands)?;
        Ok(self.device()?.wait(&point, self.patience())?)
    }

    /// Runs a kernel of `EXACT` over one threadgroup: numbers in, as many numbers out as `len`.
    ///
    /// # Errors
    /// The compiler's or the device's.
    pub fn compute(
        &self,
        body: &str,
        name: &str,
        input: &[f32],
        len: usize,
        threads: u32,
    ) -> Result<Vec<f32>, Failure> {
        let kernel = self.kernel(&format!("{EXACT}{body}"), name)?;
        let (out, from) = (self.memory(&vec![0.0; len])?, self.memory(input)?);
        self.run(&[launch(&kernel, &[&out, &from], [1, 1, 1], [threads, 1, 1])])?;
        self.values(&out)
    }

    /// This program again, for a part in a process of its own.
    ///
    /// # Errors
    /// The program cannot be found.
    pub fn again(&self, part: &str) -> Result<Process, Failure> {
        let mut process = Process::new(std::env::current_exe().map_err(fail)?);
        process.args(["--device", &self.args.device, "--child", part]);
        Ok(process)
    }

    /// When a process of its own has to have ended.
    pub fn deadline(&self) -> Instant {
        Instant::now() + self.patience() * 3
    }
}

/// A launch with buffers.
pub fn launch(kernel: &Kernel, buffers: &[&Memory], groups: [u32; 3], local: [u32; 3]) -> Command {
    let args: Vec<Arg> = buffers.iter().map(|memory| Arg::Buffer(memory.at(0))).collect();
    Command::exec(kernel, args, 1).over(Geometry::of(groups, local))
}

/// Waits until a condition holds, or some time.
pub fn wait_until(most: Duration, condition: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + most;
    while !condition() {
        if Instant::now() >= deadline {
            return false;
        }
        // TIMEOUT: a poll now and then.
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// The device beneath, with a queue, by messages.
pub struct Below {
    pub raw: Raw,
    pub device: Id,
}

impl Below {
    /// # Errors
    /// There is no device.
    pub fn open(bench: &Bench) -> Result<Self, Failure> {
        let raw = bench.raw()?;
        let device = raw.create_device();
        if device.is_nil() { Err("Metal has no device for this process".into()) } else { Ok(Self { raw, device }) }
    }
}

impl Drop for Below {
    fn drop(&mut self) {
        self.raw.release(&[self.device]);
    }
}

//! A device of one's own in under 150 lines: it runs kernels on the thread that submits them and counts them.
//! `docs/custom-device.md` explains each method. Run with `cargo run --example custom_device`.

use doorbell::device::{
    Command, Device, DeviceError, DeviceInfo, DeviceTag, Kernel, KernelImage, Memory, MemoryParts, QueueKind, Recorded,
    Stamp, Uses, record_by_resubmission,
};
use doorbell::hcq::memory::View;
use doorbell::hcq::signal::{Point, SignalPool, Timeline};
use std::sync::Arc;
use std::time::Duration;

/// A "kernel" of this device: a Rust function over its buffers, found by the image's name.
type Function = fn(&[&View], i64);

fn fill(buffers: &[&View], value: i64) {
    for view in buffers {
        let bytes = vec![value.to_le_bytes()[0]; view.len_bytes() as usize];
        view.write(0, &bytes).expect("in range");
    }
}

#[derive(Debug)]
struct ToyDevice {
    tag: DeviceTag,
    info: DeviceInfo,
    timeline: Arc<Timeline>,
    signals: Arc<SignalPool>,
}

impl ToyDevice {
    fn open() -> Result<Self, DeviceError> {
        let signals = SignalPool::new();
        let timeline = Timeline::new("TOY/compute".into(), signals.signal()?);
        let info = DeviceInfo { arch: "toy".into(), threads: 1, memory_bytes: 1 << 20 };
        Ok(Self { tag: DeviceTag::new("TOY"), info, timeline, signals })
    }
}

/// Runs the commands and signals the timeline.
fn run(timeline: &Arc<Timeline>, commands: &[Command]) -> Result<Point, DeviceError> {
    use doorbell::device::Arg;
    for command in commands {
        match command {
            Command::Exec { kernel, args, .. } => {
                let buffers: Vec<&View> = command.locations().filter_map(|p| p.memory.host()).collect();
                let value = args.iter().find_map(|a| if let Arg::Var(v) = a { Some(*v) } else { None });
                if let Some(function) = kernel.program().downcast_ref::<Function>() {
                    function(&buffers, value.unwrap_or(0));
                }
            }
            Command::Copy { dst, src, len_bytes, .. } => {
                if let (Some(to), Some(from)) = (dst.memory.host(), src.memory.host()) {
                    to.write_from(dst.offset, from, src.offset, *len_bytes)?;
                }
            }
            Command::Wait(point) => point.wait(Duration::from_secs(30))?,
            _ => return Err(DeviceError::Unsupported { device: "TOY".into(), what: "run this command".into() }),
        }
    }
    let value = timeline.next();
    timeline.signal().set(value);
    Ok(timeline.point(value))
}

impl Device for ToyDevice {
    fn tag(&self) -> &DeviceTag {
        &self.tag
    }
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
    fn alloc(&self, len_bytes: u64) -> Result<Memory, DeviceError> {
        let view = View::anonymous(len_bytes, 64)?;
        let (va, uses) = (view.base().0, Uses::new(Some(Arc::clone(&self.timeline))));
        Ok(Memory::new(MemoryParts { device: self.tag.clone(), va, len_bytes, host: Some(view), uses, release: None }))
    }
    fn copy_in(&self, dst: &Memory, offset: u64, src: &[u8]) -> Result<(), DeviceError> {
        dst.check("copy in", offset, src.len() as u64)?;
        Ok(dst.host().map_or(Ok(()), |view| view.write(offset, src))?)
    }
    fn copy_out(&self, src: &Memory, offset: u64, dst: &mut [u8]) -> Result<(), DeviceError> {
        src.check("copy out", offset, dst.len() as u64)?;
        Ok(src.host().map_or(Ok(()), |view| view.read(offset, dst))?)
    }
    fn load(&self, images: &[KernelImage<'_>]) -> Result<Vec<Kernel>, DeviceError> {
        let load = |image: &KernelImage<'_>| match image.name {
            "fill" => Ok(Kernel::new(self.tag.clone(), "fill", 0, Arc::new(fill as Function))),
            name => {
                Err(DeviceError::Load { device: "TOY".into(), kernel: name.into(), why: "no such function".into() })
            }
        };
        images.iter().map(load).collect()
    }
    fn submit(&self, _queue: QueueKind, commands: &[Command]) -> Result<Point, DeviceError> {
        run(&self.timeline, commands)
    }
    fn record(&self, commands: &[Command]) -> Result<Box<dyn Recorded>, DeviceError> {
        let timeline = Arc::clone(&self.timeline);
        record_by_resubmission("TOY", commands, move |list| run(&timeline, list))
    }
    fn stamp(&self) -> Result<Stamp, DeviceError> {
        Ok(Stamp { start: self.signals.signal()?, stop: self.signals.signal()? })
    }
    fn synchronize(&self, timeout: Duration) -> Result<(), DeviceError> {
        Ok(self.timeline.wait(self.timeline.submitted(), timeout)?)
    }
    fn memory_used(&self) -> u64 {
        0
    }
    fn close(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

pub fn main() -> Result<(), DeviceError> {
    use doorbell::device::{Arg, Code, Patch};
    let device: Arc<dyn Device> = Arc::new(ToyDevice::open()?);
    let kernel = device.load(&[KernelImage { name: "fill", code: Code::Raw(&[]) }])?.remove(0);
    let memory = device.alloc(4)?;
    let command = Command::exec(&kernel, [Arg::Buffer(memory.at(0)), Arg::Var(7)], 1);
    let mut recorded = device.record(&[command])?;
    recorded.replay(&[])?;
    let patch = Patch::Arg { command: 0, arg: 1, value: Arg::Var(9) };
    device.wait(&recorded.replay(&[patch])?, Duration::from_secs(1))?;
    let mut bytes = [0; 4];
    device.copy_out(&memory, 0, &mut bytes)?;
    assert_eq!(bytes, [9; 4]);
    println!("{} ran 2 kernels: {bytes:?}", device.tag());
    device.close()
}

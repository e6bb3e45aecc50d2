//! A device of one's own without the plumbing: memory is host memory, and kernels are whatever an [`Executor`] runs, on
//! the thread that submits them. For simulators of new machines and for tests; `examples/accelerator.rs` is one.
//!
//! Place in the arrows: beside the other devices; the crate itself opens none,
//! [`Registry::insert`](super::Registry::insert) and the engine's `add_device` give one a name.

use super::{Arg, Code, Command, Device, DeviceError, DeviceInfo, DeviceTag, Kernel, KernelImage, Memory, MemoryParts};
use super::{QueueKind, Recorded, Release, Stamp, Uses, record_by_resubmission};
use doorbell_hcq::memory::View;
use doorbell_hcq::signal::{Point, SignalPool, Timeline};
use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What runs kernels.
pub trait Executor: Send + Sync + fmt::Debug + 'static {
    /// A kernel's code, as the back end made it.
    type Program: Send + Sync + 'static;

    /// Reads the code of a kernel.
    ///
    /// # Errors
    /// What is wrong with it, in a line.
    fn load(&self, name: &str, code: &[u8]) -> Result<Self::Program, String>;

    /// Runs a kernel. Buffers are arguments: `place.memory.host()` has the bytes.
    ///
    /// # Errors
    /// What went wrong, in a line; the submission fails with it.
    fn run(&self, program: &Self::Program, args: &[Arg]) -> Result<(), String>;
}

/// The device.
#[derive(Debug)]
pub struct HostDevice<E> {
    tag: DeviceTag,
    info: DeviceInfo,
    core: Arc<Core<E>>,
    signals: Arc<SignalPool>,
    used_bytes: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Core<E> {
    executor: E,
    device: String,
    timeline: Arc<Timeline>,
    /// One submission at a time.
    one_at_a_time: Mutex<()>,
}

/// Counts a memory's bytes off when it is freed.
struct Free(Arc<AtomicU64>, u64);

impl Release for Free {
    fn release(&self, _va: u64, _host: Option<View>, _uses: Uses) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl<E: Executor> HostDevice<E> {
    /// A device called `name` for code of `arch` (the name of the back end's target).
    ///
    /// # Errors
    /// `Memory` when there is no memory for its signal.
    pub fn open(name: &str, arch: &str, executor: E) -> Result<Self, DeviceError> {
        let signals = SignalPool::new();
        let timeline = Timeline::new(format!("{name}/compute"), signals.signal()?);
        let info = DeviceInfo { arch: arch.into(), threads: 1, memory_bytes: 0 };
        let core = Arc::new(Core { executor, device: name.into(), timeline, one_at_a_time: Mutex::default() });
        Ok(Self { tag: DeviceTag::new(name), info, core, signals, used_bytes: Arc::default() })
    }
}

impl<E: Executor> Core<E> {
    /// Runs the commands, and signals the timeline.
    fn submit(&self, commands: &[Command]) -> Result<Point, DeviceError> {
        let _one_at_a_time = self.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        for command in commands {
            let began = Instant::now();
            self.command(command)?;
            if let Command::Exec { stamp: Some(stamp), .. } | Command::Copy { stamp: Some(stamp), .. } = command {
                let ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
                stamp.start.set_timestamp_ns(0);
                stamp.stop.set_timestamp_ns(ns);
            }
        }
        let value = self.timeline.next();
        self.timeline.signal().set(value);
        Ok(self.timeline.point(value))
    }

    fn command(&self, command: &Command) -> Result<(), DeviceError> {
        let device = || self.device.clone();
        match command {
            Command::Exec { kernel, args, .. } => {
                let lost = || DeviceError::Unsupported { device: device(), what: "run another device's kernel".into() };
                let program = kernel.program().downcast_ref::<E::Program>().ok_or_else(lost)?;
                let failed = |why| DeviceError::Unsupported {
                    device: device(),
                    what: format!("run kernel {}: {why}", kernel.name()),
                };
                self.executor.run(program, args).map_err(failed)
            }
            Command::Copy { dst, src, len_bytes, .. } => match (dst.memory.host(), src.memory.host()) {
                (Some(to), Some(from)) => Ok(to.write_from(dst.offset, from, src.offset, *len_bytes)?),
                _ => Err(DeviceError::Unsupported { device: device(), what: "copy what the host cannot see".into() }),
            },
            Command::Wait(point) => Ok(point.wait(Duration::from_secs(30))?), // TIMEOUT: the field's usual patience.
        }
    }
}

impl<E: Executor> Device for HostDevice<E> {
    fn tag(&self) -> &DeviceTag {
        &self.tag
    }

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn alloc(&self, len_bytes: u64) -> Result<Memory, DeviceError> {
        let view = View::anonymous(len_bytes.max(1), 64)?;
        self.used_bytes.fetch_add(len_bytes, Ordering::Relaxed);
        let release: Arc<dyn Release> = Arc::new(Free(Arc::clone(&self.used_bytes), len_bytes));
        let (va, uses) = (view.base().0, Uses::new(Some(Arc::clone(&self.core.timeline))));
        let device = self.tag.clone();
        Ok(Memory::new(MemoryParts { device, va, len_bytes, host: Some(view), uses, release: Some(release) }))
    }

    fn wrap_host(&self, host: &View) -> Result<Memory, DeviceError> {
        let (va, len_bytes, uses) = (host.base().0, host.len_bytes(), Uses::new(Some(Arc::clone(&self.core.timeline))));
        let device = self.tag.clone();
        // Submissions end before they return, so nothing uses the memory when its last handle is dropped.
        Ok(Memory::new(MemoryParts { device, va, len_bytes, host: Some(host.clone()), uses, release: None }))
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
        let one = |image: &KernelImage<'_>| {
            let refused = |why| DeviceError::Load { device: self.tag.name().into(), kernel: image.name.into(), why };
            let code = match image.code {
                Code::Elf { bytes, .. } | Code::Cubin { bytes, .. } | Code::Raw(bytes) => bytes,
                Code::Object { .. } => return Err(refused("it is an object, not bytes".into())),
            };
            let program = self.core.executor.load(image.name, code).map_err(refused)?;
            let program: Arc<dyn Any + Send + Sync> = Arc::new(program);
            Ok(Kernel::new(self.tag.clone(), image.name, 0, program))
        };
        images.iter().map(one).collect()
    }

    fn submit(&self, queue: QueueKind, commands: &[Command]) -> Result<Point, DeviceError> {
        queue.check_no_engine(self.tag())?;
        self.core.submit(commands)
    }

    fn record(&self, commands: &[Command]) -> Result<Box<dyn Recorded>, DeviceError> {
        let core = Arc::clone(&self.core);
        record_by_resubmission(self.tag.name(), commands, move |list| core.submit(list))
    }

    fn stamp(&self) -> Result<Stamp, DeviceError> {
        Ok(Stamp { start: self.signals.signal()?, stop: self.signals.signal()? })
    }

    fn synchronize(&self, timeout: Duration) -> Result<(), DeviceError> {
        Ok(self.core.timeline.wait(self.core.timeline.submitted(), timeout)?)
    }

    fn memory_used(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    fn close(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Code is one byte, which a kernel adds to the first byte of each buffer.
    #[derive(Debug)]
    struct Adder;

    impl Executor for Adder {
        type Program = u8;
        fn load(&self, _name: &str, code: &[u8]) -> Result<u8, String> {
            code.first().copied().ok_or_else(|| "no code".into())
        }
        fn run(&self, program: &u8, args: &[Arg]) -> Result<(), String> {
            for arg in args {
                let Arg::Buffer(place) = arg else { return Err("only buffers".into()) };
                let view = place.memory.host().ok_or("no host memory")?;
                let mut byte = [0];
                view.read(place.offset, &mut byte).map_err(|e| e.to_string())?;
                view.write(place.offset, &[byte[0] + program]).map_err(|e| e.to_string())?;
            }
            Ok(())
        }
    }

    #[test]
    fn kernels_run_when_they_are_submitted_and_memory_is_counted() {
        let d = HostDevice::open("ADDER", "adder", Adder).unwrap();
        let memory = d.alloc(2).unwrap();
        d.copy_in(&memory, 0, &[1, 2]).unwrap();
        let kernel = d.load(&[KernelImage { name: "k", code: Code::Raw(&[5]) }]).unwrap().remove(0);
        let stamp = d.stamp().unwrap();
        let command = Command::exec(&kernel, [Arg::Buffer(memory.at(1))], 1);
        d.submit(QueueKind::Compute, &[command.clone().stamped(stamp.clone())]).unwrap();
        d.record(&[command]).unwrap().replay(&[]).unwrap();
        d.synchronize(Duration::from_secs(1)).unwrap();
        assert!(stamp.elapsed_ns() < 1_000_000_000);
        let mut bytes = [0; 2];
        d.copy_out(&memory, 0, &mut bytes).unwrap();
        assert_eq!((bytes, d.memory_used()), ([1, 12], 2));
        drop(memory);
        assert_eq!(d.memory_used(), 0);
    }

    #[test]
    fn what_an_executor_refuses_names_device_and_kernel() {
        let d = HostDevice::open("ADDER", "adder", Adder).unwrap();
        let error = d.load(&[KernelImage { name: "k", code: Code::Raw(&[]) }]).unwrap_err().to_string();
        assert_eq!(error, "kernel k cannot be loaded on device ADDER: no code");
        let kernel = d.load(&[KernelImage { name: "k", code: Code::Raw(&[5]) }]).unwrap().remove(0);
        let error = d.submit(QueueKind::Compute, &[Command::exec(&kernel, [Arg::Var(1)], 1)]).unwrap_err().to_string();
        assert_eq!(error, "device ADDER cannot run kernel k: only buffers");
    }
}

//! The null device: code can be compiled for it, but nothing runs. Its memory has a size but no contents.
//!
//! Layer: the smallest complete device; `docs/custom-device.md` walks through it.
//! Use it to measure the compiler, or to dump kernels for a machine that is not present. Reading memory back is an
//! error.

use super::{Command, Device, DeviceError, DeviceInfo, DeviceTag, Kernel, KernelImage, Memory, MemoryParts, QueueKind};
use super::{Recorded, Release, Stamp, Uses, record_by_resubmission};
use doorbell_hcq::memory::View;
use doorbell_hcq::signal::{Point, SignalPool, Timeline};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The null device.
#[derive(Debug)]
pub struct NullDevice {
    tag: DeviceTag,
    info: DeviceInfo,
    timeline: Arc<Timeline>,
    memory: Arc<Counter>,
    signals: Arc<SignalPool>,
}

/// Bookkeeping of addresses and sizes; there is no memory.
#[derive(Debug, Default)]
struct Counter {
    next_va: AtomicU64,
    used_bytes: AtomicU64,
}

/// Subtracts `len_bytes` from the counter on release.
struct Free {
    counter: Arc<Counter>,
    len_bytes: u64,
}

impl Release for Free {
    fn release(&self, _va: u64, _host: Option<View>, _uses: Uses) {
        self.counter.used_bytes.fetch_sub(self.len_bytes, Ordering::Relaxed);
    }
}

impl NullDevice {
    /// A null device that claims `arch` and `threads`.
    ///
    /// # Errors
    /// `Memory` if there is no memory for its signal.
    pub fn open(name: &str, arch: &str, threads: u32) -> Result<Self, DeviceError> {
        let signals = SignalPool::new();
        let timeline = Timeline::new(format!("{name}/compute"), signals.signal()?);
        let info = DeviceInfo { arch: arch.into(), threads, memory_bytes: 0 };
        Ok(Self { tag: DeviceTag::new(name), info, timeline, memory: Arc::default(), signals })
    }
}

/// Completes a submission at once, without running anything.
fn submit(timeline: &Arc<Timeline>) -> Point {
    let value = timeline.next();
    timeline.signal().set(value);
    timeline.point(value)
}

impl Device for NullDevice {
    fn tag(&self) -> &DeviceTag {
        &self.tag
    }

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn executes(&self) -> bool {
        false
    }

    fn alloc(&self, len_bytes: u64) -> Result<Memory, DeviceError> {
        let va = self.memory.next_va.fetch_add(len_bytes.max(1).next_multiple_of(64), Ordering::Relaxed);
        self.memory.used_bytes.fetch_add(len_bytes, Ordering::Relaxed);
        let release: Arc<dyn Release> = Arc::new(Free { counter: Arc::clone(&self.memory), len_bytes });
        let uses = Uses::new(Some(Arc::clone(&self.timeline)));
        let parts = MemoryParts { device: self.tag.clone(), va, len_bytes, host: None, uses, release: Some(release) };
        Ok(Memory::new(parts))
    }

    fn copy_in(&self, dst: &Memory, offset: u64, src: &[u8]) -> Result<(), DeviceError> {
        dst.check("copy in", offset, src.len() as u64)
    }

    fn copy_out(&self, _src: &Memory, _offset: u64, _dst: &mut [u8]) -> Result<(), DeviceError> {
        Err(DeviceError::Unsupported { device: self.tag.name().into(), what: "copy out: it computes nothing".into() })
    }

    fn load(&self, images: &[KernelImage<'_>]) -> Result<Vec<Kernel>, DeviceError> {
        Ok(images.iter().map(|i| Kernel::new(self.tag.clone(), i.name, 0, Arc::new(()))).collect())
    }

    fn submit(&self, queue: QueueKind, _commands: &[Command]) -> Result<Point, DeviceError> {
        queue.check_no_engine(&self.tag)?;
        Ok(submit(&self.timeline))
    }

    fn record(&self, commands: &[Command]) -> Result<Box<dyn Recorded>, DeviceError> {
        let timeline = Arc::clone(&self.timeline);
        record_by_resubmission(self.tag.name(), commands, move |_| Ok(submit(&timeline)))
    }

    fn stamp(&self) -> Result<Stamp, DeviceError> {
        Ok(Stamp { start: self.signals.signal()?, stop: self.signals.signal()? })
    }

    fn synchronize(&self, timeout: Duration) -> Result<(), DeviceError> {
        Ok(self.timeline.wait(self.timeline.submitted(), timeout)?)
    }

    fn memory_used(&self) -> u64 {
        self.memory.used_bytes.load(Ordering::Relaxed)
    }

    fn close(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_a_size_and_no_bytes() {
        let d = NullDevice::open("NULL", "x86_64-avx2", 2).unwrap();
        let m = d.alloc(1 << 50).unwrap();
        assert_eq!((m.len_bytes(), d.memory_used()), (1 << 50, 1 << 50));
        assert!(d.copy_in(&m, 0, &[1]).is_ok());
        assert!(matches!(d.copy_out(&m, 0, &mut [0]), Err(DeviceError::Unsupported { .. })));
        drop(m);
        assert_eq!(d.memory_used(), 0);
    }
}

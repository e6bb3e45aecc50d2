//! The null-cost port: calls are answered while a device is set up; after that a submission makes none, and its
//! doorbell costs nothing.

use doorbell::device::Device;
use doorbell_ioctl::port::{CpuPtr, Errno, Fd, MapRequest, OpenFlags, PollFd, Port};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_secs(20);

/// Doorbells are held back while it is set; the last of each queue is rung when it is cleared.
#[derive(Debug)]
pub struct NullCost {
    inner: Arc<dyn Port>,
    holds: AtomicBool,
    /// Calls are allowed while it is set: one-time allocations happen then.
    sets_up: AtomicBool,
    /// The last doorbell while it is set: one queue is measured at a time.
    at: AtomicU64,
    value: AtomicU64,
}

impl NullCost {
    /// A software driver's port; everything passes until it holds doorbells back.
    pub fn new(inner: Arc<dyn Port>) -> Arc<Self> {
        let (holds, sets_up) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { inner, holds, sets_up, at: AtomicU64::new(0), value: AtomicU64::new(0) })
    }

    /// Allows calls while set, or no more.
    fn set_up(&self, allowed: bool) {
        self.sets_up.store(allowed, Ordering::Relaxed);
    }

    /// Holds doorbells back from here on.
    fn hold(&self) {
        self.holds.store(true, Ordering::Relaxed);
    }

    /// Lets the device run what was submitted.
    fn let_go(&self) {
        self.holds.store(false, Ordering::Relaxed);
        let at = self.at.load(Ordering::Relaxed);
        if at != 0 {
            self.inner.doorbell(CpuPtr(at), self.value.load(Ordering::Relaxed));
        }
    }

    /// The host's part of `step`: batches with the doorbell held, and the device's work between them, which is not
    /// counted.
    pub fn host_time(&self, device: &dyn Device, iterations: u64, batch: u64, mut step: impl FnMut()) -> Duration {
        let (mut total, mut left) = (Duration::ZERO, iterations);
        while left > 0 {
            let batch = left.min(batch);
            self.hold();
            let start = Instant::now();
            (0..batch).for_each(|_| step());
            total += start.elapsed();
            self.let_go();
            device.synchronize(WAIT).expect("synchronize");
            left -= batch;
        }
        total
    }

    /// One batch of steps that may call the driver: one-time allocations happen here, and dropped objects are freed.
    pub fn prepare(&self, device: &dyn Device, batch: u64, step: impl FnMut()) {
        self.set_up(true);
        self.host_time(device, batch, batch, step);
        self.set_up(false);
    }
}

impl Port for NullCost {
    fn open(&self, path: &str, flags: OpenFlags) -> Result<Fd, Errno> {
        self.inner.open(path, flags)
    }
    fn close(&self, fd: Fd) -> Result<(), Errno> {
        self.inner.close(fd)
    }
    fn ioctl(&self, fd: Fd, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
        let may_call = !self.holds.load(Ordering::Relaxed) || self.sets_up.load(Ordering::Relaxed);
        assert!(may_call, "a submission makes no calls");
        self.inner.ioctl(fd, request, arg)
    }
    fn mmap(&self, map: &MapRequest) -> Result<CpuPtr, Errno> {
        self.inner.mmap(map)
    }
    fn munmap(&self, addr: CpuPtr, len_bytes: u64) -> Result<(), Errno> {
        self.inner.munmap(addr, len_bytes)
    }
    fn poll(&self, fds: &mut [PollFd], timeout_ms: i32) -> Result<usize, Errno> {
        self.inner.poll(fds, timeout_ms)
    }
    fn read_file(&self, path: &str) -> Result<Vec<u8>, Errno> {
        self.inner.read_file(path)
    }
    fn read_dir(&self, path: &str) -> Result<Vec<String>, Errno> {
        self.inner.read_dir(path)
    }
    fn doorbell(&self, at: CpuPtr, value: u64) {
        if self.holds.load(Ordering::Relaxed) {
            self.at.store(at.0, Ordering::Relaxed);
            self.value.store(value, Ordering::Relaxed);
        } else {
            self.inner.doorbell(at, value);
        }
    }
}

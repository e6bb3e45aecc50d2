//! The port that traces: it passes every call on and reports it to a sink.

use super::memory::Shadow;
use super::{Clock, Event, IoctlEvent, Log, Sink, What};
use crate::abi::{Blob, Dir, find};
use crate::port::{CpuPtr, Errno, Fd, MapRequest, OpenFlags, PollFd, Port, monotonic_ns, read_process};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Longest piece of memory at an embedded pointer that is recorded.
const MAX_BLOB_BYTES: u64 = 1 << 20;

/// A port that traces another. Off, it costs one atomic load a call.
pub struct Trace {
    inner: Arc<dyn Port>,
    on: AtomicBool,
    state: Mutex<State>,
    count: AtomicU32,
}

struct State {
    sink: Box<dyn Sink>,
    clock: Clock,
    /// A trace that records also keeps the process's memory that the device can access.
    shadow: Option<Shadow>,
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trace({} events of {:?})", self.count.load(Ordering::Relaxed), self.inner)
    }
}

impl Trace {
    /// Traces `inner` into `sink`, on.
    #[must_use]
    pub fn new(inner: Arc<dyn Port>, sink: Box<dyn Sink>) -> Arc<Self> {
        Self::with(inner, sink, None)
    }

    /// Records `inner` into `sink`: a trace that also holds, before each doorbell, the changes of the memory mapped
    /// through the port, so that the run can be [replayed](crate::replay). Each doorbell then reads all of that memory.
    #[must_use]
    pub fn recording(inner: Arc<dyn Port>, sink: Box<dyn Sink>) -> Arc<Self> {
        Self::with(inner, sink, Some(Shadow::default()))
    }

    fn with(inner: Arc<dyn Port>, sink: Box<dyn Sink>, shadow: Option<Shadow>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            on: AtomicBool::new(true),
            state: Mutex::new(State { sink, clock: Clock::default(), shadow }),
            count: AtomicU32::new(0),
        })
    }

    /// Traces `inner` into a list.
    #[must_use]
    pub fn log(inner: Arc<dyn Port>) -> (Arc<Self>, Log) {
        let log = Log::default();
        (Self::new(inner, Box::new(log.clone())), log)
    }

    /// Switches tracing on or off.
    pub fn set_on(&self, on: bool) {
        self.on.store(on, Ordering::Relaxed);
    }

    /// Writes out the sink's buffered events.
    pub fn flush(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).sink.flush();
    }

    /// Passes a call on; when enabled, reports `what` of its answer to the sink.
    fn traced<R>(&self, call: impl FnOnce(&dyn Port) -> R, what: impl FnOnce(&R) -> What) -> R {
        if !self.on.load(Ordering::Relaxed) {
            return call(&*self.inner);
        }
        let start = monotonic_ns();
        let result = call(&*self.inner);
        self.report(start, what(&result));
        result
    }

    fn report(&self, start: u64, what: What) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let moment = state.clock.moment(start);
        if let Some(shadow) = &mut state.shadow {
            shadow.follow(&what);
        }
        state.sink.event(&Event { moment, what });
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Reports the changes of memory since the last doorbell.
    fn look(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = state.shadow.as_mut().map(Shadow::changes).unwrap_or_default();
        drop(state);
        let now = monotonic_ns();
        for (at, bytes) in changed {
            self.report(now, What::Memory { at, bytes });
        }
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.flush();
    }
}

/// The memory that the struct's pointers point at, for one direction: the first MiB of each piece, as far as it can be
/// read.
#[must_use]
pub fn pointed_memory(request: u32, bytes: &[u8], wanted: Dir) -> Vec<Blob> {
    let Some(desc) = find(request) else { return Vec::new() };
    let mut found = Vec::new();
    for (index, e) in desc.embedded.iter().enumerate().filter(|(_, e)| e.dir == wanted || e.dir == Dir::InOut) {
        let Some((at, len_bytes)) = e.range(desc.layout, bytes) else { continue };
        let mut blob = vec![0; usize::try_from(len_bytes.min(MAX_BLOB_BYTES)).unwrap_or(0)];
        // A bad pointer is for the driver to refuse; the trace just has nothing to show.
        if read_process(CpuPtr(at), &mut blob).is_ok() {
            found.push(Blob { index: u32::try_from(index).unwrap_or(u32::MAX), bytes: blob });
        }
    }
    found
}

impl Port for Trace {
    fn open(&self, path: &str, flags: OpenFlags) -> Result<Fd, Errno> {
        self.traced(|p| p.open(path, flags), |r| What::Open { path: path.into(), flags, result: *r })
    }

    fn close(&self, fd: Fd) -> Result<(), Errno> {
        self.traced(|p| p.close(fd), |r| What::Close { fd, result: *r })
    }

    fn ioctl(&self, fd: Fd, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
        if !self.on.load(Ordering::Relaxed) {
            return self.inner.ioctl(fd, request, arg);
        }
        let (before, blobs_before) = (arg.to_vec(), pointed_memory(request, arg, Dir::In));
        let start = monotonic_ns();
        let result = self.inner.ioctl(fd, request, arg);
        let blobs_after = if result.is_ok() { pointed_memory(request, arg, Dir::Out) } else { Vec::new() };
        let after = arg.to_vec();
        let call = IoctlEvent { fd, request, before, blobs_before, after, blobs_after, result };
        self.report(start, What::Ioctl(Box::new(call)));
        result
    }

    fn mmap(&self, map: &MapRequest) -> Result<CpuPtr, Errno> {
        self.traced(|p| p.mmap(map), |r| What::Mmap { map: *map, result: *r })
    }

    fn munmap(&self, addr: CpuPtr, len_bytes: u64) -> Result<(), Errno> {
        self.traced(|p| p.munmap(addr, len_bytes), |r| What::Munmap { addr, len_bytes, result: *r })
    }

    fn poll(&self, fds: &mut [PollFd], timeout_ms: i32) -> Result<usize, Errno> {
        if !self.on.load(Ordering::Relaxed) {
            return self.inner.poll(fds, timeout_ms);
        }
        let start = monotonic_ns();
        let result = self.inner.poll(fds, timeout_ms);
        let fds = fds.iter().map(|p| (p.fd, p.wanted, p.seen)).collect();
        self.report(start, What::Poll { fds, timeout_ms, result: result.map(|n| n as u64) });
        result
    }

    fn read_file(&self, path: &str) -> Result<Vec<u8>, Errno> {
        self.traced(|p| p.read_file(path), |r| What::ReadFile { path: path.into(), result: r.clone() })
    }

    fn read_dir(&self, path: &str) -> Result<Vec<String>, Errno> {
        self.traced(|p| p.read_dir(path), |r| What::ReadDir { path: path.into(), result: r.clone() })
    }

    fn page_bytes(&self) -> u64 {
        self.inner.page_bytes()
    }

    fn doorbell(&self, at: CpuPtr, value: u64) {
        if self.on.load(Ordering::Relaxed) {
            self.look();
        }
        self.traced(|p| p.doorbell(at, value), |()| What::Doorbell { at, value });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::kfd;
    use crate::port::{LinuxPort, Mapped};
    use crate::trace::{leftovers, read_trace};

    #[test]
    fn calls_and_their_answers_are_kept_in_order() {
        let (trace, log) = Trace::log(LinuxPort::new());
        let port: Arc<dyn Port> = Arc::clone(&trace) as _;
        let fd = port.open("/dev/null", OpenFlags::DEVICE).unwrap();
        let ids = [7u32, 9];
        let mut args = kfd::MapMemoryToGpu { handle: 1, n_devices: 2, ..Default::default() };
        args.device_ids_array_ptr = ids.as_ptr().expose_provenance() as u64;
        let bytes = bytemuck::bytes_of_mut(&mut args);
        assert_eq!(port.ioctl(fd, kfd::MAP_MEMORY_TO_GPU.desc.request, bytes), Err(Errno::ENOTTY));
        drop(Mapped::new(&port, &MapRequest::anonymous_shared(4096)).unwrap());
        port.close(fd).unwrap();
        let lines: Vec<String> = log.events().iter().map(|e| e.what.to_string()).collect();
        assert_eq!(lines.len(), 5);
        assert_eq!(lines[0], format!("open(/dev/null, READ|WRITE|CLOEXEC) = {fd:?}"));
        assert!(lines[1].contains("*device_ids_array_ptr=[0x7, 0x9]) = -ENOTTY"), "{}", lines[1]);
        assert!(lines[2].starts_with("mmap(anywhere, 0x1000, READ|WRITE, SHARED|ANONYMOUS, nothing) = 0x"));
        assert!(lines[3].starts_with("munmap(") && lines[4].starts_with("close("));
        assert!(leftovers(&log.events()).is_empty());
    }

    #[test]
    fn bad_embedded_pointer_is_left_to_the_driver() {
        let (trace, log) = Trace::log(LinuxPort::new());
        let fd = trace.open("/dev/null", OpenFlags::DEVICE).unwrap();
        let mut args = kfd::WaitEvents { events_ptr: 8, num_events: u32::MAX, ..Default::default() };
        let bytes = bytemuck::bytes_of_mut(&mut args);
        assert_eq!(trace.ioctl(fd, kfd::WAIT_EVENTS.desc.request, bytes), Err(Errno::ENOTTY));
        assert_eq!(log.events().len(), 2);
    }

    #[test]
    fn nothing_is_kept_while_off() {
        let (trace, log) = Trace::log(LinuxPort::new());
        trace.set_on(false);
        let fd = trace.open("/dev/null", OpenFlags::DEVICE).unwrap();
        trace.doorbell(CpuPtr(8), 1);
        trace.set_on(true);
        trace.close(fd).unwrap();
        assert_eq!(log.events().len(), 1);
    }

    #[test]
    fn file_of_a_run_reads_back_as_the_run() {
        let path = std::env::temp_dir().join(format!("doorbell-trace-{}", std::process::id()));
        let file = std::io::BufWriter::new(std::fs::File::create(&path).unwrap());
        let sink = crate::trace::FileSink::new(file).unwrap();
        let (logged, log) = Trace::log(LinuxPort::new());
        let trace = Trace::new(logged, Box::new(sink));
        trace.read_dir("/proc/self/task").unwrap();
        assert_eq!(trace.read_file("/proc/no such file"), Err(Errno::ENOENT));
        drop(trace);
        let events = read_trace(std::fs::File::open(&path).unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        let whats = |events: &[Event]| events.iter().map(|e| e.what.clone()).collect::<Vec<_>>();
        assert_eq!(whats(&events), whats(&log.events()));
    }
}

//! The software NVIDIA driver: a `Port` that serves RM, UVM and their files of a chosen chip and release, and executes
//! what is submitted to its channels.
//!
//! Place in the arrows: implements `ioctl`'s `Port`; parses with `hcq::packet::nv`; passes grids to `emu::sass` through
//! [`compute`]. Source: docs/nv.md; NVIDIA's open kernel modules (580.142, 595.45) for checks, their order and status
//! codes. Left out: what the module heads list; GPU stores to doorbells do not wake channels. The machine's own port is
//! one process; [`Process`] is another.
//!
//! Client → [`SoftNv`] (escapes, UVM commands, mappings) → objects (spaces, memory, channels) → `engine` (ring,
//! methods; one thread a channel) → SMs.

mod alloc;
mod channel;
pub mod chip;
mod clock;
mod compared;
pub mod compute;
mod config;
mod control;
mod defect;
mod dma;
mod engine;
mod event;
mod gpu;
mod map;
mod memory;
mod object;
mod process;
mod report;
mod rm;
mod space;
mod state;
pub mod status;
mod sysfs;
mod units;
mod usermode;
mod uvm;
mod uvm_test;

pub use super::vm;

pub use chip::Chip;
pub use clock::Ptimer;
pub use config::{Call, Config, Refusal};
pub use defect::Defect;
pub use process::Process;
pub use report::{Report, ReportKind};
pub use units::Sms;

use compute::Compute;
use doorbell_ioctl::abi::nvrm::Status;
use doorbell_ioctl::port::{
    AddressSpace, Backing, CpuPtr, Errno, Fd, KERNEL_LOG, MapRequest, OpenFlags, PollEvents, PollFd, Port,
};
use event::Events;
use gpu::{Gpu, Shared};
use map::forget_doorbells;
use report::Reports;
use rm::Caller;
use state::{DoorbellMap, FileKind, Open, State};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use sysfs::Sysfs;
use usermode::{DOORBELL, Usermode};

/// A machine with NVIDIA cards and their driver, in software.
#[derive(Debug)]
pub struct SoftNv {
    config: Config,
    space: AddressSpace,
    sysfs: Sysfs,
    gpus: Vec<Arc<Gpu>>,
    usermodes: Vec<Usermode>,
    events: Arc<Events>,
    clock: Arc<Ptimer>,
    reports: Arc<Reports>,
    state: Mutex<State>,
}

impl SoftNv {
    /// A machine whose cards execute machine code.
    ///
    /// # Errors
    /// `ENOMEM`, `EMFILE`.
    pub fn new(config: Config) -> Result<Arc<Self>, Errno> {
        let sms = Sms::translated(config.sms, config.translation.clone()).twice(config.compare);
        Self::with_compute(config, Arc::new(sms))
    }

    /// A machine whose cards run grids on `compute`.
    ///
    /// # Errors
    /// `ENOMEM`, `EMFILE`.
    pub fn with_compute(config: Config, compute: Arc<dyn Compute>) -> Result<Arc<Self>, Errno> {
        let clock = if config.coarse_clock { Ptimer::of_steps() } else { Ptimer::default() };
        let shared = Shared { clock: Arc::new(clock), events: Arc::default(), reports: Arc::default(), compute };
        let card = |gpu| Arc::new(Gpu::new(gpu, &shared, &config));
        let usermode = |_| Usermode::new(&shared.clock);
        Ok(Arc::new(Self {
            space: AddressSpace::of_driver(config.page_bytes),
            sysfs: Sysfs::new(&config),
            gpus: (0..config.gpus).map(card).collect(),
            usermodes: (0..config.gpus).map(usermode).collect::<Result<_, Errno>>()?,
            state: Mutex::new(State { refused: vec![0; config.refusals.len()], ..State::default() }),
            config,
            events: shared.events,
            clock: shared.clock,
            reports: shared.reports,
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the machine has found so far: channels' errors, unmodelled and unknown calls, strict mode's findings.
    #[must_use]
    pub fn reports(&self) -> Vec<Report> {
        self.reports.all()
    }

    /// The card falls off the bus: its channels stop, calls about it fail.
    pub fn lose_gpu(&self, gpu: usize) {
        if let Some(gpu) = self.gpus.get(gpu) {
            gpu.lose();
        }
    }

    /// Files that the process has open.
    #[must_use]
    pub fn open_files(&self) -> usize {
        self.state().files.len()
    }

    /// What the process has not freed: RM's objects (clients' roots not counted), channels, ranges of UVM, mappings of
    /// the CPU.
    #[must_use]
    pub fn left_over(&self) -> [usize; 4] {
        let state = self.state();
        let objects = state.clients.iter().map(|client| client.objects().count() - 1).sum();
        let channels = self.gpus.iter().map(|gpu| gpu.channels().len()).sum();
        let ranges = state.spaces.values().map(uvm::UvmSpace::range_count).sum();
        [objects, channels, ranges, state.mappings.len()]
    }

    /// The status that the configuration sets for a call, if this is the one.
    fn refusal(&self, state: &mut State, call: Call) -> Option<Status> {
        let mut found = None;
        for (refusal, asked) in self.config.refusals.iter().zip(&mut state.refused) {
            if refusal.call == call {
                *asked += 1;
                if *asked == refusal.nth {
                    found = Some(Status(refusal.status));
                }
            }
        }
        found
    }

    fn unmodelled(&self, what: String) {
        let text = format!("{what} exists and is not modelled");
        self.reports.add(Report { kind: ReportKind::Unmodelled, gpu: 0, channel: None, text });
    }

    fn unknown(&self, what: String) {
        self.reports.add(Report {
            kind: ReportKind::Unknown,
            gpu: 0,
            channel: None,
            text: format!("{what} is not known"),
        });
    }

    /// The open file of a process.
    fn file(&self, pid: u32, fd: Fd) -> Result<Open, Errno> {
        let open = self.state().file(fd.0).cloned().ok_or(Errno::EBADF)?;
        if open.pid == pid { Ok(open) } else { Err(Errno::EBADF) }
    }

    /// The device file of a path.
    fn node(&self, path: &str) -> Result<FileKind, Errno> {
        if !self.sysfs.has(path) {
            return Err(Errno::ENOENT);
        }
        match path {
            "/dev/nvidiactl" => Ok(FileKind::Control),
            "/dev/nvidia-uvm" => Ok(FileKind::Uvm),
            _ => {
                let minor = path.strip_prefix("/dev/nvidia").and_then(|minor| minor.parse::<usize>().ok());
                let gpu = minor.filter(|gpu| *gpu < self.gpus.len()).ok_or(Errno::EACCES)?;
                if self.gpus[gpu].lost.load(std::sync::atomic::Ordering::Relaxed) {
                    return Err(Errno::EIO);
                }
                Ok(FileKind::Card { gpu, control: None })
            }
        }
    }
}

impl SoftNv {
    fn open_as(&self, pid: u32, path: &str) -> Result<Fd, Errno> {
        let kind = self.node(path)?;
        Ok(Fd(self.state().open(kind, pid)))
    }

    /// The last thing of a control file are its clients, of a UVM file its address space.
    fn close_as(&self, pid: u32, fd: Fd) -> Result<(), Errno> {
        self.file(pid, fd)?;
        let mut state = self.state();
        let open = state.files.remove(&fd.0).ok_or(Errno::EBADF)?;
        for client in state.clients.of_file(open.file) {
            self.end_client(&mut state, client);
        }
        if let Some(mut space) = state.spaces.remove(&open.file) {
            space.close();
        }
        self.events.close(open.file);
        Ok(())
    }

    fn ioctl_as(&self, pid: u32, fd: Fd, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
        let Open { file, kind, .. } = self.file(pid, fd)?;
        match kind {
            FileKind::Control | FileKind::Card { .. } => self.rm_ioctl(Caller { file, kind }, request, arg),
            FileKind::Uvm | FileKind::UvmSpace | FileKind::UvmMm | FileKind::UvmTest => {
                self.uvm_ioctl(file, kind, request, arg)
            }
        }
    }

    fn mmap_as(&self, pid: u32, map: &MapRequest) -> Result<CpuPtr, Errno> {
        let Some(fd) = map.fd else { return self.space.map(map, Backing::Anonymous) };
        let open = self.file(pid, fd)?;
        match open.kind {
            FileKind::Control | FileKind::Card { .. } => self.mmap_armed(&mut self.state(), open.file, map),
            // Managed memory.
            _ => {
                self.unmodelled("mmap of /dev/nvidia-uvm".to_owned());
                Err(Errno::EINVAL)
            }
        }
    }

    /// Files are ready when one of their events has happened.
    fn poll_as(&self, pid: u32, fds: &mut [PollFd], timeout: Option<Duration>) -> Result<usize, Errno> {
        let files = fds.iter().map(|p| self.file(pid, p.fd).map(|open| open.file));
        let files = files.collect::<Result<Vec<u64>, Errno>>()?;
        let seen = self.events.wait(&files, timeout);
        for (p, seen) in fds.iter_mut().zip(&seen) {
            p.seen = if *seen { PollEvents::IN & p.wanted } else { PollEvents::empty() };
        }
        Ok(fds.iter().filter(|p| !p.seen.is_empty()).count())
    }
}

impl Port for SoftNv {
    fn open(&self, path: &str, _flags: OpenFlags) -> Result<Fd, Errno> {
        self.open_as(std::process::id(), path)
    }

    fn close(&self, fd: Fd) -> Result<(), Errno> {
        self.close_as(std::process::id(), fd)
    }

    fn ioctl(&self, fd: Fd, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
        self.ioctl_as(std::process::id(), fd, request, arg)
    }

    fn mmap(&self, map: &MapRequest) -> Result<CpuPtr, Errno> {
        self.mmap_as(std::process::id(), map)
    }

    fn munmap(&self, addr: CpuPtr, len_bytes: u64) -> Result<(), Errno> {
        // Another thread may map the range again as soon as it is free.
        let mut state = self.state();
        self.space.unmap(addr, len_bytes)?;
        forget_doorbells(&mut state, addr, len_bytes);
        Ok(())
    }

    fn poll(&self, fds: &mut [PollFd], timeout_ms: i32) -> Result<usize, Errno> {
        let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        self.poll_as(std::process::id(), fds, timeout)
    }

    fn read_file(&self, path: &str) -> Result<Vec<u8>, Errno> {
        if path == KERNEL_LOG { Ok(self.reports.kernel_log().into_bytes()) } else { self.sysfs.read(path) }
    }

    fn read_dir(&self, path: &str) -> Result<Vec<String>, Errno> {
        self.sysfs.list(path)
    }

    fn page_bytes(&self) -> u64 {
        self.config.page_bytes
    }

    fn doorbell(&self, at: CpuPtr, value: u64) {
        let map = self.state().doorbells.iter().find(|m| at.0.wrapping_sub(m.at.0) < m.len_bytes).copied();
        if let Some(DoorbellMap { at: base, gpu, bar1, .. }) = map
            && at.0 - base.0 == DOORBELL
            && (bar1 || !self.config.bar0_doorbell_lost)
        {
            self.gpus[gpu].ring(value as u32);
        }
    }
}

impl Drop for SoftNv {
    fn drop(&mut self) {
        for gpu in &self.gpus {
            let channels = std::mem::take(&mut *gpu.channels());
            channels.values().for_each(|channel| {
                channel.destroy();
            });
        }
    }
}

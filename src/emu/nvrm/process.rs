//! Another process of the machine: files of its own, and their end with it. And what a child of fork and a signal do.
//!
//! Source: `nv.c`, `nv-mmap.c`, `uvm.c`, `escape.c` of the open kernel modules 595.45: what a file may do belongs to
//! the file, whichever process holds it; a file ends with its last holder.

use super::channel::Dead;
use super::defect::Defect;
use super::engine::code;
use super::memory::Location;
use super::object::Body;
use super::state::{FileKind, Open};
use super::{Caller, SoftNv};
use crate::forked::is_mapped;
use doorbell_ioctl::port::{CpuPtr, Errno, Fd, Forked, MapRequest, OpenFlags, PollFd, Port};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Above the numbers that a kernel gives its processes.
static NEXT_PID: AtomicU32 = AtomicU32::new(1 << 22);
/// How often a wait looks whether its process is still there.
const LOOK: Duration = Duration::from_millis(1);

/// A process beside the first one.
#[derive(Debug)]
pub struct Process {
    machine: Arc<SoftNv>,
    pid: u32,
    ended: AtomicBool,
    interrupts: AtomicU32,
}

impl SoftNv {
    /// Another process of the same machine, without open files.
    #[must_use]
    pub fn another_process(self: &Arc<Self>) -> Arc<Process> {
        let pid = NEXT_PID.fetch_add(1, Ordering::Relaxed);
        let (ended, interrupts) = (AtomicBool::new(false), AtomicU32::new(0));
        Arc::new(Process { machine: Arc::clone(self), pid, ended, interrupts })
    }

    /// Files of all processes, the ones that a defect keeps included.
    fn files_of(&self, pid: u32) -> Vec<(i32, Open)> {
        self.state().files.iter().filter(|(_, open)| open.pid == pid).map(|(fd, open)| (*fd, open.clone())).collect()
    }

    /// The machine goes to sleep: no channel of any process runs until it wakes up.
    pub fn suspend(&self) {
        self.set_asleep(true);
        if self.config.defect == Some(Defect::SuspendLosesVram) {
            let state = self.state();
            let objects = state.clients.iter().flat_map(|client| client.objects()).map(|(_, object)| &object.body);
            for body in objects {
                if let Body::Memory(memory) = body
                    && memory.location == Location::Vram
                {
                    let _in_range = memory.view.fill(0, memory.len_bytes, 0);
                }
            }
        }
    }

    /// The machine wakes up: channels go on where they were.
    pub fn resume(&self) {
        if self.config.defect != Some(Defect::ResumeForgets) {
            self.set_asleep(false);
        }
    }

    fn set_asleep(&self, asleep: bool) {
        let channels = self.gpus.iter().flat_map(|gpu| gpu.channels().values().map(Arc::clone).collect::<Vec<_>>());
        channels.for_each(|channel| channel.set_asleep(asleep));
    }

    /// What a child of fork(2) sees of the first process: one call on an inherited file, and whether an address is
    /// mapped. Then it ends.
    ///
    /// # Errors
    /// `EBADF` for a file that is not open.
    pub fn forked(&self, fd: Fd, request: u32, arg: &mut [u8], at: CpuPtr) -> Result<Forked, Errno> {
        let Open { file, kind, .. } = self.file(std::process::id(), fd)?;
        let answer = match kind {
            _ if self.config.defect == Some(Defect::ForkRefused) => Err(Errno::EPERM),
            FileKind::Control | FileKind::Card { .. } => self.rm_ioctl(Caller { file, kind }, request, arg),
            FileKind::Uvm | FileKind::UvmSpace | FileKind::UvmMm | FileKind::UvmTest => {
                self.uvm_ioctl(file, kind, request, arg)
            }
        };
        if self.config.defect == Some(Defect::ForkEnds) {
            self.close_as(std::process::id(), fd)?;
        }
        Ok(Forked { answer, mapped: is_mapped(&self.space, at) })
    }
}

impl Process {
    /// Its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Files that it has open.
    #[must_use]
    pub fn open_files(&self) -> usize {
        self.machine.files_of(self.pid).len()
    }

    /// The process ends, by itself or killed: what sleeps in a call wakes up, and its files are closed.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        let defect = self.machine.config.defect;
        if defect == Some(Defect::DeathSpreads) {
            let dead = || Dead { code: code::PREEMPTIVE_REMOVAL };
            self.machine.gpus.iter().for_each(|gpu| gpu.channels().values().for_each(|channel| channel.kill(dead())));
        }
        if defect == Some(Defect::DeathKeeps) {
            return;
        }
        for (fd, _) in self.machine.files_of(self.pid) {
            // It is its own and open.
            let _closed = self.machine.close_as(self.pid, Fd(fd));
        }
    }

    /// The next wait of the process ends with `EINTR`, as when a signal with a handler arrives.
    pub fn interrupt_next_wait(&self) {
        self.interrupts.fetch_add(1, Ordering::Relaxed);
    }

    /// A signal stops the process and another one lets it go on: a wait is begun again.
    pub fn stop_and_continue(&self) {
        if self.machine.config.defect == Some(Defect::SignalForgets) {
            self.machine.files_of(self.pid).iter().for_each(|(_, open)| self.machine.events.forget(open.file));
        }
    }

    fn take_interrupt(&self) -> bool {
        let less = |count: u32| count.checked_sub(1);
        self.interrupts.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

impl Port for Process {
    fn open(&self, path: &str, _flags: OpenFlags) -> Result<Fd, Errno> {
        if self.ended.load(Ordering::Relaxed) {
            return Err(Errno::EINTR);
        }
        self.machine.open_as(self.pid, path)
    }

    fn close(&self, fd: Fd) -> Result<(), Errno> {
        self.machine.close_as(self.pid, fd)
    }

    fn ioctl(&self, fd: Fd, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
        if self.ended.load(Ordering::Relaxed) {
            return Err(Errno::EINTR);
        }
        self.machine.ioctl_as(self.pid, fd, request, arg)
    }

    fn mmap(&self, map: &MapRequest) -> Result<CpuPtr, Errno> {
        self.machine.mmap_as(self.pid, map)
    }

    fn munmap(&self, addr: CpuPtr, len_bytes: u64) -> Result<(), Errno> {
        self.machine.munmap(addr, len_bytes)
    }

    fn poll(&self, fds: &mut [PollFd], timeout_ms: i32) -> Result<usize, Errno> {
        // TIMEOUT: the caller's own.
        let end = u64::try_from(timeout_ms).ok().map(|ms| Instant::now() + Duration::from_millis(ms));
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let ready = self.machine.poll_as(self.pid, fds, Some(left.unwrap_or(LOOK).min(LOOK)))?;
            if ready > 0 || left == Some(Duration::ZERO) {
                return Ok(ready);
            }
            if self.ended.load(Ordering::Relaxed) || self.take_interrupt() {
                return Err(Errno::EINTR);
            }
        }
    }

    fn read_file(&self, path: &str) -> Result<Vec<u8>, Errno> {
        self.machine.read_file(path)
    }

    fn read_dir(&self, path: &str) -> Result<Vec<String>, Errno> {
        self.machine.read_dir(path)
    }

    fn page_bytes(&self) -> u64 {
        self.machine.page_bytes()
    }

    fn doorbell(&self, at: CpuPtr, value: u64) {
        self.machine.doorbell(at, value);
    }
}

//! The driver interface: everything that passes between this process and a device's driver, as one object-safe trait.
//! One driver takes the place of another behind it.
//!
//! Layer: `device` talks to drivers through it only; the running kernel, the software GPUs, the tracer,
//! the recorder and the fault injector implement it and wrap each other. Source: open(2), ioctl(2), mmap(2), poll(2).
//! Left out: reading and writing files at offsets, signals, fork: no device here needs them (a harness for drivers:
//! `other`).

use super::{CpuPtr, Errno};
use std::fmt;

/// The kernel's log, which [`Port::read_file`] returns as it is, without waiting for more: lines of
/// `level,number,microseconds,flag;text`.
pub const KERNEL_LOG: &str = "/dev/kmsg";

/// An open file of one port: this port's own number, without meaning to another port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fd(pub i32);

impl fmt::Debug for Fd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fd {}", self.0)
    }
}

bitflags::bitflags! {
    /// How a file is opened.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct OpenFlags: u32 {
        const READ = 1;
        const WRITE = 2;
        /// Closed on exec(2).
        const CLOEXEC = 4;
        /// Reads and waits do not block.
        const NONBLOCK = 8;
    }

    /// The access rights of a mapping; nothing for a reservation.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Prot: u32 {
        const READ = 1;
        const WRITE = 2;
        const EXEC = 4;
    }

    /// What a mapping is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct MapFlags: u32 {
        /// Stores reach the file (or the other mappings of the same memory).
        const SHARED = 1;
        const PRIVATE = 2;
        /// Without a file; zeroed.
        const ANONYMOUS = 4;
        /// No swap space is set aside.
        const NORESERVE = 8;
        /// Exactly at `addr`, over what is mapped there. Allowed only over mappings made through the same port.
        const FIXED = 16;
    }

    /// The conditions that poll waits for, and those it has seen. The last three are always waited for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct PollEvents: u32 {
        const IN = 1;
        const OUT = 2;
        const ERR = 4;
        const HUP = 8;
        const INVALID = 16;
    }
}

impl OpenFlags {
    /// Reading and writing, closed on exec: how drivers are opened.
    pub const DEVICE: Self = Self::READ.union(Self::WRITE).union(Self::CLOEXEC);
}

impl Prot {
    /// Reading and writing.
    pub const RW: Self = Self::READ.union(Self::WRITE);
}

/// One mmap(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapRequest {
    /// Where: with `FIXED` exactly there, without it there if it is free. `None`: anywhere.
    pub addr: Option<CpuPtr>,
    pub len_bytes: u64,
    pub prot: Prot,
    pub flags: MapFlags,
    /// The file, unless `ANONYMOUS`.
    pub fd: Option<Fd>,
    /// Offset in the file; its meaning is the driver's.
    pub offset: u64,
}

impl MapRequest {
    /// Addresses that no other mapping will use, without memory.
    #[must_use]
    pub fn reserve(len_bytes: u64) -> Self {
        let flags = MapFlags::PRIVATE | MapFlags::ANONYMOUS | MapFlags::NORESERVE;
        Self { addr: None, len_bytes, prot: Prot::empty(), flags, fd: None, offset: 0 }
    }

    /// Zeroed memory that may be shared with a device.
    #[must_use]
    pub fn anonymous_shared(len_bytes: u64) -> Self {
        let flags = MapFlags::SHARED | MapFlags::ANONYMOUS;
        Self { addr: None, len_bytes, prot: Prot::RW, flags, fd: None, offset: 0 }
    }

    /// A part of a file, shared, readable and writable.
    #[must_use]
    pub fn file(fd: Fd, offset: u64, len_bytes: u64) -> Self {
        Self { addr: None, len_bytes, prot: Prot::RW, flags: MapFlags::SHARED, fd: Some(fd), offset }
    }

    /// The same at a fixed address.
    #[must_use]
    pub fn at(mut self, addr: CpuPtr) -> Self {
        self.addr = Some(addr);
        self.flags |= MapFlags::FIXED;
        self
    }
}

/// One file to poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollFd {
    pub fd: Fd,
    pub wanted: PollEvents,
    /// Set by `poll`.
    pub seen: PollEvents,
}

/// The interface to drivers. All calls may come from any thread.
///
/// Implementations guarantee: an address that `mmap` returns is a real mapping of this process of the requested length
/// and rights (made by another port or by [`AddressSpace`](super::AddressSpace)), which stays until `munmap`. Callers
/// guarantee: [`Mapped`](super::Mapped) is the only one that maps and unmaps; a range is unmapped when no view uses it
/// any more.
pub trait Port: Send + Sync + fmt::Debug {
    /// open(2) of a device file.
    ///
    /// # Errors
    /// The kernel's: `ENOENT` without the driver, `EACCES` without permission.
    fn open(&self, path: &str, flags: OpenFlags) -> Result<Fd, Errno>;

    /// close(2).
    ///
    /// # Errors
    /// `EBADF` for a number that is not open.
    fn close(&self, fd: Fd) -> Result<(), Errno>;

    /// ioctl(2). `arg` holds the struct's bytes, read and written; pointers inside are addresses of this process.
    /// Returns what the call returns.
    ///
    /// # Errors
    /// The driver's.
    fn ioctl(&self, fd: Fd, request: u32, arg: &mut [u8]) -> Result<i32, Errno>;

    /// mmap(2).
    ///
    /// # Errors
    /// The kernel's; `EINVAL` for a fixed address that was not mapped through this port.
    fn mmap(&self, map: &MapRequest) -> Result<CpuPtr, Errno>;

    /// munmap(2) of a range mapped through this port.
    ///
    /// # Errors
    /// `EINVAL` for any other range.
    fn munmap(&self, addr: CpuPtr, len_bytes: u64) -> Result<(), Errno>;

    /// poll(2). Returns how many files are ready; a negative timeout waits without limit.
    ///
    /// # Errors
    /// `EINTR`, `EBADF`.
    fn poll(&self, fds: &mut [PollFd], timeout_ms: i32) -> Result<usize, Errno>;

    /// A whole file of sysfs or proc.
    ///
    /// # Errors
    /// The kernel's: `ENOENT`, `EPERM`.
    fn read_file(&self, path: &str) -> Result<Vec<u8>, Errno>;

    /// The names in a folder of sysfs or proc, sorted.
    ///
    /// # Errors
    /// As `read_file`.
    fn read_dir(&self, path: &str) -> Result<Vec<String>, Errno>;

    /// Bytes of a page of the kernel behind it: what addresses, lengths and offsets of mappings are multiples of.
    fn page_bytes(&self) -> u64 {
        super::page_bytes()
    }

    /// Called right after the store of `value` (64 bits, or 32 where the device's doorbells are that wide) to a
    /// doorbell at `at`. The kernel needs nothing more; a software GPU wakes up here.
    fn doorbell(&self, at: CpuPtr, value: u64);
}

//! The program's calls → events. Everything here runs inside [`own::work`](crate::own::work).

use crate::config::{config, name_of};
use crate::fds;
use crate::outputs::Outputs;
use crate::own::{self, Lock};
use crate::ranges::Ranges;
use doorbell_ioctl::abi::{Blob, Dir, arg_len_bytes};
use doorbell_ioctl::port::{CpuPtr, Errno, Fd, MapFlags, MapRequest, OpenFlags, Prot, monotonic_ns, read_process};
use doorbell_ioctl::trace::{Event, IoctlEvent, Moment, What, pointed_memory};
use libc::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The files and the mapped ranges.
pub struct Recorder {
    outputs: Option<Outputs>,
    ranges: Ranges,
}

pub static RECORDER: Lock<Recorder> = Lock::new(Recorder { outputs: None, ranges: Ranges::new() });

/// How many ranges there are: a program that maps no traced file pays one load a munmap.
static RANGES: AtomicUsize = AtomicUsize::new(0);

/// Whether any traced file is mapped.
pub fn is_mapped() -> bool {
    RANGES.load(Ordering::Relaxed) > 0
}

/// The result of a call that returns -1 for an error. Called before anything else changes errno.
pub fn outcome(returned: c_int) -> Result<c_int, Errno> {
    if returned < 0 { Err(Errno(own::errno())) } else { Ok(returned) }
}

fn tell(start_ns: u64, what: What) {
    let end = monotonic_ns();
    let moment = Moment {
        start_ns: start_ns.saturating_sub(config().began_ns),
        length_ns: end.saturating_sub(start_ns),
        thread: own::thread(),
    };
    RECORDER.with(|recorder| {
        let is_child = own::take_forked();
        if is_child {
            // The parent's files go on in the parent.
            recorder.outputs = None;
        }
        let outputs = recorder.outputs.get_or_insert_with(|| Outputs::new(config(), is_child));
        outputs.event(&Event { moment, what });
    });
}

/// An open that has returned; `path` is the requested one.
pub fn open(start_ns: u64, path: &[u8], flags: c_int, result: Result<c_int, Errno>) {
    let mut named = path.to_vec();
    if !path.starts_with(b"/") {
        // Relative to some folder: the kernel knows the whole name.
        let name = result.ok().filter(|_| config().may_be_traced(path)).and_then(name_of);
        named = name.unwrap_or_default();
    }
    let is_traced = config().is_traced(&named);
    if let Ok(fd) = result {
        fds::set_traced(fd, is_traced);
    }
    if is_traced {
        let path = String::from_utf8_lossy(&named).into_owned();
        tell(start_ns, What::Open { path, flags: open_flags(flags), result: result.map(Fd) });
    }
}

fn open_flags(bits: c_int) -> OpenFlags {
    let mut flags = match bits & libc::O_ACCMODE {
        libc::O_WRONLY => OpenFlags::WRITE,
        libc::O_RDWR => OpenFlags::READ | OpenFlags::WRITE,
        _ => OpenFlags::READ,
    };
    flags.set(OpenFlags::CLOEXEC, bits & libc::O_CLOEXEC != 0);
    flags.set(OpenFlags::NONBLOCK, bits & libc::O_NONBLOCK != 0);
    flags
}

pub fn close(start_ns: u64, fd: c_int, result: Result<c_int, Errno>) {
    tell(start_ns, What::Close { fd: Fd(fd), result: result.map(|_| ()) });
}

/// An ioctl's struct, and the memory that it points at, before the call.
pub struct Before {
    bytes: Vec<u8>,
    blobs: Vec<Blob>,
}

/// Reads the struct at `arg`; nothing where the request has none, or the address is bad.
fn argument(request: u32, arg: u64) -> Vec<u8> {
    let mut bytes = vec![0; arg_len_bytes(request)];
    if read_process(CpuPtr(arg), &mut bytes).is_err() {
        bytes.clear();
    }
    bytes
}

pub fn before_ioctl(request: u32, arg: u64) -> Before {
    let bytes = argument(request, arg);
    let blobs = pointed_memory(request, &bytes, Dir::In);
    Before { bytes, blobs }
}

/// An ioctl that has returned.
pub fn ioctl(start_ns: u64, (fd, request, arg): (c_int, u32, u64), before: Before, result: Result<c_int, Errno>) {
    let after = argument(request, arg);
    let blobs_after = if result.is_ok() { pointed_memory(request, &after, Dir::Out) } else { Vec::new() };
    let (before, blobs_before) = (before.bytes, before.blobs);
    let call = IoctlEvent { fd: Fd(fd), request, before, blobs_before, after, blobs_after, result };
    tell(start_ns, What::Ioctl(Box::new(call)));
}

/// An mmap as it was requested.
#[derive(Clone, Copy)]
pub struct Asked {
    pub addr: u64,
    pub len_bytes: u64,
    pub prot: c_int,
    pub flags: c_int,
    pub fd: c_int,
    pub offset: u64,
}

/// An mmap of a traced file that has returned.
pub fn mmap(start_ns: u64, asked: Asked, result: Result<u64, Errno>) {
    if let Ok(at) = result {
        change(|ranges| ranges.insert(at, asked.len_bytes));
    }
    let addr = (asked.addr != 0).then_some(CpuPtr(asked.addr));
    let (len_bytes, offset, fd) = (asked.len_bytes, asked.offset, Some(Fd(asked.fd)));
    let map = MapRequest { addr, len_bytes, prot: prot(asked.prot), flags: map_flags(asked.flags), fd, offset };
    tell(start_ns, What::Mmap { map, result: result.map(CpuPtr) });
}

fn prot(bits: c_int) -> Prot {
    let mut prot = Prot::empty();
    prot.set(Prot::READ, bits & libc::PROT_READ != 0);
    prot.set(Prot::WRITE, bits & libc::PROT_WRITE != 0);
    prot.set(Prot::EXEC, bits & libc::PROT_EXEC != 0);
    prot
}

fn map_flags(bits: c_int) -> MapFlags {
    let mut flags = MapFlags::empty();
    // MAP_SHARED_VALIDATE is both bits of the type.
    flags.set(MapFlags::SHARED, bits & libc::MAP_SHARED != 0);
    flags.set(MapFlags::PRIVATE, bits & libc::MAP_TYPE == libc::MAP_PRIVATE);
    flags.set(MapFlags::ANONYMOUS, bits & libc::MAP_ANONYMOUS != 0);
    flags.set(MapFlags::NORESERVE, bits & libc::MAP_NORESERVE != 0);
    flags.set(MapFlags::FIXED, bits & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0);
    flags
}

fn change<R>(what: impl FnOnce(&mut Ranges) -> R) -> R {
    RECORDER.with(|recorder| {
        let done = what(&mut recorder.ranges);
        RANGES.store(recorder.ranges.len(), Ordering::Relaxed);
        done
    })
}

/// Removes the traced files' parts of a range. Before a munmap: after it, the range may already be another thread's.
pub fn forget(start: u64, len_bytes: u64) -> Vec<(u64, u64)> {
    change(|ranges| ranges.remove(start, len_bytes))
}

/// A munmap that has returned, of a range that held `taken` of traced files.
pub fn munmap(start_ns: u64, (addr, len_bytes): (u64, u64), taken: Vec<(u64, u64)>, result: Result<c_int, Errno>) {
    if result.is_err() {
        change(|ranges| taken.iter().for_each(|(start, len)| ranges.insert(*start, *len)));
    }
    tell(start_ns, What::Munmap { addr: CpuPtr(addr), len_bytes, result: result.map(|_| ()) });
}

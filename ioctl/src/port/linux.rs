//! The running kernel as a port.
//!
//! Layer: the innermost port of every real run. Source: open(2), ioctl(2), mmap(2), poll(2) of Linux.

use super::{AddressSpace, Backing, CpuPtr, Errno, Fd, KERNEL_LOG, MapRequest, OpenFlags, PollEvents, PollFd, Port};
use crate::abi;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// The kernel. Files that were not closed are closed with it.
#[derive(Debug, Default)]
pub struct LinuxPort {
    space: AddressSpace,
    files: Mutex<BTreeMap<i32, OwnedFd>>,
}

impl LinuxPort {
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The kernel's number, after the check that the file was opened here.
    pub(super) fn number(&self, fd: Fd) -> Result<i32, Errno> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.get(&fd.0).map(AsRawFd::as_raw_fd).ok_or(Errno::EBADF)
    }
}

impl Port for LinuxPort {
    fn open(&self, path: &str, flags: OpenFlags) -> Result<Fd, Errno> {
        let name = std::ffi::CString::new(path).map_err(|_| Errno::ENOENT)?;
        let mut bits = match (flags.contains(OpenFlags::READ), flags.contains(OpenFlags::WRITE)) {
            (_, false) => libc::O_RDONLY,
            (false, true) => libc::O_WRONLY,
            (true, true) => libc::O_RDWR,
        };
        bits |= if flags.contains(OpenFlags::CLOEXEC) { libc::O_CLOEXEC } else { 0 };
        bits |= if flags.contains(OpenFlags::NONBLOCK) { libc::O_NONBLOCK } else { 0 };
        // SAFETY: `name` is a C string that lives through the call.
        let fd = unsafe { libc::open(name.as_ptr(), bits) };
        if fd < 0 {
            return Err(Errno::last());
        }
        // SAFETY: a descriptor that the kernel has just given us.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        self.files.lock().unwrap_or_else(PoisonError::into_inner).insert(fd, file);
        Ok(Fd(fd))
    }

    fn close(&self, fd: Fd) -> Result<(), Errno> {
        let file = self.files.lock().unwrap_or_else(PoisonError::into_inner).remove(&fd.0);
        file.map(drop).ok_or(Errno::EBADF)
    }

    fn ioctl(&self, fd: Fd, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
        let number = self.number(fd)?;
        if abi::request_type(request) == 0 {
            return ioctl_by_number(number, request, arg);
        }
        // The request word says how many bytes the kernel copies: the struct must hold them.
        if abi::request_len_bytes(request) > arg.len() {
            return Err(Errno::EINVAL);
        }
        let at = arg.as_mut_ptr().cast::<libc::c_void>();
        // SAFETY: `arg` is valid for the size in the request word, which is all that KFD, DRM and RM copy. What the
        // driver does with pointers inside is checked by it; they name memory that the caller shares with the device.
        let rc = unsafe { libc::ioctl(number, libc::c_ulong::from(request) as _, at) };
        if rc < 0 { Err(Errno::last()) } else { Ok(rc) }
    }

    fn mmap(&self, map: &MapRequest) -> Result<CpuPtr, Errno> {
        let backing = match map.fd {
            None => Backing::Anonymous,
            Some(fd) => Backing::File(self.number(fd)?, map.offset),
        };
        self.space.map(map, backing)
    }

    fn munmap(&self, addr: CpuPtr, len_bytes: u64) -> Result<(), Errno> {
        self.space.unmap(addr, len_bytes)
    }

    fn poll(&self, fds: &mut [PollFd], timeout_ms: i32) -> Result<usize, Errno> {
        let table = [
            (PollEvents::IN, libc::POLLIN),
            (PollEvents::OUT, libc::POLLOUT),
            (PollEvents::ERR, libc::POLLERR),
            (PollEvents::HUP, libc::POLLHUP),
            (PollEvents::INVALID, libc::POLLNVAL),
        ];
        let mut raw = Vec::with_capacity(fds.len());
        for p in &*fds {
            let events = table.iter().filter(|(ours, _)| p.wanted.contains(*ours)).fold(0, |bits, (_, t)| bits | t);
            raw.push(libc::pollfd { fd: self.number(p.fd)?, events, revents: 0 });
        }
        // SAFETY: the array is valid for its length through the call.
        let n = unsafe { libc::poll(raw.as_mut_ptr(), raw.len() as libc::nfds_t, timeout_ms) };
        let n = usize::try_from(n).map_err(|_| Errno::last())?;
        for (p, r) in fds.iter_mut().zip(&raw) {
            p.seen = table.iter().filter(|(_, t)| r.revents & t != 0).map(|(ours, _)| *ours).collect();
        }
        Ok(n)
    }

    fn read_file(&self, path: &str) -> Result<Vec<u8>, Errno> {
        if path == KERNEL_LOG { read_kernel_log() } else { std::fs::read(path) }.map_err(|e| Errno::of(&e))
    }

    fn read_dir(&self, path: &str) -> Result<Vec<String>, Errno> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path).map_err(|e| Errno::of(&e))? {
            names.push(entry.map_err(|e| Errno::of(&e))?.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn doorbell(&self, _at: CpuPtr, _value: u64) {}
}

/// Most of the kernel's log that is read.
const MAX_LOG_BYTES: usize = 4 << 20;

/// The kernel's log so far: a read at its end would wait for the next line.
fn read_kernel_log() -> std::io::Result<Vec<u8>> {
    use std::io::{ErrorKind, Read};
    use std::os::unix::fs::OpenOptionsExt;
    let mut log = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(KERNEL_LOG)?;
    let (mut all, mut record) = (Vec::new(), [0; 8192]);
    while all.len() < MAX_LOG_BYTES {
        match log.read(&mut record) {
            Ok(0) => break,
            Ok(len) => all.extend_from_slice(&record[..len]),
            Err(e) if e.kind() == ErrorKind::WouldBlock => break,
            // Lines that were overwritten meanwhile.
            Err(e) if matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::Interrupted) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(all)
}

/// Longest struct of a driver that numbers its calls without sizes; UVM's longest has 9,264 bytes, that of
/// its tests 20,856.
pub(super) const NUMBERED_BYTES: usize = 1 << 15;

/// A call whose request word does not hold the size that the kernel copies: it gets a block that holds any release's
/// struct.
fn ioctl_by_number(number: i32, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
    if abi::arg_len_bytes(request) == 0 || arg.len() > NUMBERED_BYTES {
        return Err(Errno::EINVAL);
    }
    let mut block = vec![0u64; NUMBERED_BYTES / 8];
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut block);
    bytes[..arg.len()].copy_from_slice(arg);
    // SAFETY: the block is longer than the struct of any described call in any release, and aligned for it.
    let rc = unsafe { libc::ioctl(number, libc::c_ulong::from(request) as _, bytes.as_mut_ptr()) };
    arg.copy_from_slice(&bytes[..arg.len()]);
    if rc < 0 { Err(Errno::last()) } else { Ok(rc) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::{Mapped, Prot};

    fn port() -> Arc<dyn Port> {
        LinuxPort::new()
    }

    #[test]
    fn files_that_are_not_there_or_not_ours_are_errors() {
        let port = port();
        assert_eq!(port.open("/dev/no such device", OpenFlags::DEVICE), Err(Errno::ENOENT));
        // Descriptor 1 is open in the process, but not through this port.
        assert_eq!(port.close(Fd(1)), Err(Errno::EBADF));
        assert_eq!(port.ioctl(Fd(1), 0, &mut []), Err(Errno::EBADF));
    }

    #[test]
    fn ioctl_that_a_file_does_not_know_is_enotty() {
        let port = port();
        let fd = port.open("/dev/null", OpenFlags::DEVICE).unwrap();
        assert_eq!(port.ioctl(fd, 0x8008_4b01, &mut [0; 8]), Err(Errno::ENOTTY));
        port.close(fd).unwrap();
        assert_eq!(port.close(fd), Err(Errno::EBADF));
    }

    #[test]
    fn ioctl_with_a_struct_shorter_than_the_request_says_never_reaches_the_kernel() {
        let port = port();
        let fd = port.open("/dev/null", OpenFlags::DEVICE).unwrap();
        assert_eq!(port.ioctl(fd, 0x8008_4b01, &mut [0; 7]), Err(Errno::EINVAL));
    }

    #[test]
    fn reservation_is_aligned_and_gets_a_file_behind_it() {
        let path = std::env::temp_dir().join(format!("doorbell-port-{}", std::process::id()));
        std::fs::write(&path, vec![5; 1 << 16]).unwrap();
        let port = port();
        let fd = port.open(&path.to_string_lossy(), OpenFlags::DEVICE).unwrap();
        std::fs::remove_file(&path).unwrap();
        let reserved = Mapped::reserve(&port, 1 << 16, 2 << 20).unwrap();
        assert_eq!(reserved.base().0 % (2 << 20), 0);
        let base = reserved.base();
        let mapped = Arc::new(reserved.back(fd, 0).unwrap());
        let view = mapped.view().unwrap();
        assert_eq!((view.base(), view.read_u16(6)), (base, Ok(0x0505)));
        view.write_u8(0, 6).unwrap();
        drop(mapped);
        assert_eq!(view.read_u8(0), Ok(6), "the view keeps the mapping");
    }

    #[test]
    fn reservation_gives_no_view_and_is_unmapped_on_drop() {
        let linux = LinuxPort::new();
        let port: Arc<dyn Port> = Arc::clone(&linux) as _;
        let reserved = Arc::new(Mapped::reserve(&port, 3 << 12, 1 << 16).unwrap());
        assert_eq!(linux.space.mapped_bytes(), 3 << 12, "the slack of the alignment was given back");
        assert!(matches!(reserved.view(), Err(Errno::EACCES)));
        drop(reserved);
        assert_eq!(linux.space.mapped_bytes(), 0);
    }

    #[test]
    fn mapping_of_a_read_only_file_for_writing_is_refused() {
        let port = port();
        let fd = port.open("/proc/self/exe", OpenFlags::READ).unwrap();
        assert_eq!(Mapped::new(&port, &MapRequest::file(fd, 0, 4096)).unwrap_err(), Errno::EACCES);
        let readable = MapRequest { prot: Prot::READ, ..MapRequest::file(fd, 0, 4096) };
        Mapped::new(&port, &readable).unwrap().unmap().unwrap();
    }

    #[test]
    fn poll_says_what_is_ready() {
        let port = port();
        let fd = port.open("/dev/null", OpenFlags::DEVICE).unwrap();
        let mut fds = [PollFd { fd, wanted: PollEvents::OUT, seen: PollEvents::empty() }];
        assert_eq!(port.poll(&mut fds, 0), Ok(1));
        assert_eq!(fds[0].seen, PollEvents::OUT);
    }

    #[test]
    fn folders_are_listed_in_order() {
        let names = port().read_dir("/proc/self").unwrap();
        assert!(names.is_sorted() && names.iter().any(|n| n == "maps"));
        assert_eq!(port().read_dir("/proc/nothing"), Err(Errno::ENOENT));
    }
}

//! Memory of this process named by a number, as a driver sees the pointers in an ioctl's struct: a bad address is
//! `EFAULT`, not a crash.
//!
//! Layer: software drivers and wrappers follow embedded pointers with it. Source: process_vm_readv(2) on
//! this process; a pipe where that call is missing (emulators of a user's processor) or refused (sandboxes). Writing is
//! as powerful as any driver's copy-out: it writes wherever the caller of the ioctl has pointed.

use super::{CpuPtr, Errno};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Copies memory at `at` into `bytes`.
///
/// # Errors
/// `EFAULT` when a byte of the range is not mapped readable; `bytes` is then unspecified.
pub fn read_process(at: CpuPtr, bytes: &mut [u8]) -> Result<(), Errno> {
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: at.as_ptr(), iov_len: bytes.len() };
    if bytes.is_empty() {
        return Ok(());
    }
    // SAFETY: the local vector is `bytes`, writable for the call; the kernel checks every address of the remote one.
    let n = unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    outcome(n, bytes.len(), || copy_by_pipe(at.as_ptr::<u8>(), bytes.as_mut_ptr(), bytes.len()))
}

/// Copies `bytes` to the memory at `at`.
///
/// # Errors
/// `EFAULT` when a byte of the range is not mapped writable; the bytes before it may have been stored.
pub fn write_process(at: CpuPtr, bytes: &[u8]) -> Result<(), Errno> {
    let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: at.as_ptr(), iov_len: bytes.len() };
    if bytes.is_empty() {
        return Ok(());
    }
    // SAFETY: the kernel only reads the local vector, which is `bytes`, and checks every address of the remote one.
    let n = unsafe { libc::process_vm_writev(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    outcome(n, bytes.len(), || copy_by_pipe(bytes.as_ptr(), at.as_ptr::<u8>(), bytes.len()))
}

/// What a call that moved so many bytes means; `or_else` does its work where the system does not offer it.
fn outcome(moved: isize, wanted: usize, or_else: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
    match usize::try_from(moved).map_err(|_| Errno::last()) {
        Ok(n) if n == wanted => Ok(()),
        Ok(_) => Err(Errno::EFAULT),
        Err(Errno::ENOSYS | Errno::EPERM) => or_else(),
        Err(errno) => Err(errno),
    }
}

/// Copies bytes of this process through a pipe, for which the kernel checks both addresses.
fn copy_by_pipe(from: *const u8, to: *mut u8, len: usize) -> Result<(), Errno> {
    // What every pipe takes at once: PIPE_BUF of POSIX's limits on Linux.
    const PIECE: usize = 4096;
    let mut ends = [0; 2];
    // SAFETY: the array has room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(Errno::last());
    }
    // SAFETY: descriptors that the kernel has just returned, owned by no other value.
    let [out, into] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    for done in (0..len).step_by(PIECE) {
        let piece = PIECE.min(len - done);
        // SAFETY: the kernel only reads there, and checks every address.
        let moved = unsafe { libc::write(into.as_raw_fd(), from.wrapping_add(done).cast(), piece) };
        outcome(moved, piece, || Err(Errno::EFAULT))?;
        // SAFETY: the kernel checks every address; what it writes there the caller has asked for.
        let moved = unsafe { libc::read(out.as_raw_fd(), to.wrapping_add(done).cast(), piece) };
        outcome(moved, piece, || Err(Errno::EFAULT))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::{AddressSpace, Backing, MapRequest, page_bytes};

    #[test]
    fn bytes_go_there_and_back() {
        let space = AddressSpace::new();
        let at = space.map(&MapRequest::anonymous_shared(4096), Backing::Anonymous).unwrap();
        write_process(at.offset(100), b"doorbell").unwrap();
        let mut back = [0; 8];
        read_process(at.offset(100), &mut back).unwrap();
        assert_eq!(&back, b"doorbell");
    }

    #[test]
    fn a_pipe_copies_as_the_system_call_does() {
        let (space, page) = (AddressSpace::new(), page_bytes());
        let at = space.map(&MapRequest::reserve(3 * page), Backing::Anonymous).unwrap();
        space.map(&MapRequest::anonymous_shared(2 * page).at(at), Backing::Anonymous).unwrap();
        let sent: Vec<u8> = (0..page + 100).map(|n| (n % 251) as u8).collect();
        let mut got = vec![0; sent.len()];
        copy_by_pipe(sent.as_ptr(), at.offset(50).as_ptr(), sent.len()).unwrap();
        copy_by_pipe(at.offset(50).as_ptr(), got.as_mut_ptr(), got.len()).unwrap();
        assert_eq!(got, sent);
        let over_the_end = at.offset(2 * page - 50);
        assert_eq!(copy_by_pipe(over_the_end.as_ptr(), got.as_mut_ptr(), 100), Err(Errno::EFAULT));
        assert_eq!(copy_by_pipe(sent.as_ptr(), over_the_end.as_ptr(), 100), Err(Errno::EFAULT));
        assert_eq!(copy_by_pipe(std::ptr::null(), got.as_mut_ptr(), 1), Err(Errno::EFAULT));
    }

    #[test]
    fn bad_addresses_are_efault() {
        let (space, page) = (AddressSpace::new(), page_bytes());
        let at = space.map(&MapRequest::reserve(page), Backing::Anonymous).unwrap();
        assert_eq!(read_process(at, &mut [0; 4]), Err(Errno::EFAULT));
        assert_eq!(write_process(at, &[0; 4]), Err(Errno::EFAULT));
        assert_eq!(read_process(CpuPtr(0), &mut [0; 4]), Err(Errno::EFAULT));
    }

    #[test]
    fn range_that_runs_out_of_its_mapping_is_efault() {
        let (space, page) = (AddressSpace::new(), page_bytes());
        let at = space.map(&MapRequest::reserve(2 * page), Backing::Anonymous).unwrap();
        let head = MapRequest::anonymous_shared(page).at(at);
        space.map(&head, Backing::Anonymous).unwrap();
        assert_eq!(read_process(at.offset(page - 4), &mut [0; 8]), Err(Errno::EFAULT));
    }
}

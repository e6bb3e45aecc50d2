//! Memory of this process named by a number, as a driver sees the pointers in an ioctl's struct: a bad address is
//! `EFAULT`, not a crash.
//!
//! Layer: software drivers and wrappers follow embedded pointers with it. Source: process_vm_readv(2) on
//! this process. Writing is as powerful as any driver's copy-out: it writes wherever the caller of the ioctl has
//! pointed.

use super::{CpuPtr, Errno};

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
    outcome(n, bytes.len())
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
    outcome(n, bytes.len())
}

fn outcome(moved: isize, wanted: usize) -> Result<(), Errno> {
    match usize::try_from(moved) {
        Ok(n) if n == wanted => Ok(()),
        Ok(_) => Err(Errno::EFAULT),
        Err(_) => Err(Errno::last()),
    }
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

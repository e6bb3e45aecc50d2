//! Other processes: what a forked child may do with this one's files and mappings, and signals.
//!
//! Layer: for harnesses that test drivers; no device uses it. Source: fork(2), mincore(2), kill(2), sigaction(2) of
//! Linux.

use super::linux::NUMBERED_BYTES;
use super::{CpuPtr, Errno, Fd, LinuxPort, page_bytes};
use crate::abi;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::mpsc::channel;
use std::time::Duration;

/// What a child of fork(2) sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forked {
    /// What the driver answered it.
    pub answer: Result<i32, Errno>,
    /// Whether the address is mapped in it.
    pub mapped: bool,
}

/// A signal of one process to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// It stops.
    Stop,
    /// It goes on.
    Continue,
    /// A wait is interrupted where [`let_signals_interrupt`] was called; elsewhere the process ends.
    Interrupt,
}

/// Sends a signal.
///
/// # Errors
/// `ESRCH`, `EPERM`; `EINVAL` for a number that is no single process.
pub fn send_signal(pid: u32, signal: Signal) -> Result<(), Errno> {
    let number = match signal {
        Signal::Stop => libc::SIGSTOP,
        Signal::Continue => libc::SIGCONT,
        Signal::Interrupt => libc::SIGUSR1,
    };
    let pid = i32::try_from(pid).ok().filter(|pid| *pid > 0).ok_or(Errno::EINVAL)?;
    // SAFETY: the call reads no memory; a positive number is one process.
    if unsafe { libc::kill(pid, number) } == 0 { Ok(()) } else { Err(Errno::last()) }
}

extern "C" fn nothing(_signal: libc::c_int) {}

/// From now on [`Signal::Interrupt`] ends a system call of this process that waits with `EINTR`, and does nothing else.
///
/// # Errors
/// None that Linux documents for this signal.
pub fn let_signals_interrupt() -> Result<(), Errno> {
    // SAFETY: a sigaction of zeros is one without flags and with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // Without SA_RESTART.
    action.sa_sigaction = nothing as *const () as usize;
    // SAFETY: the handler does nothing, so that it may run at any point; the struct is whole.
    let rc = unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) };
    if rc == 0 { Ok(()) } else { Err(Errno::last()) }
}

/// What the child writes before the call's struct.
const HEAD: usize = 12;
/// The longest a child may take.
// TIMEOUT: the child makes one call that answers at once, or a driver is stuck in it.
const LONGEST: Duration = Duration::from_secs(10);

impl LinuxPort {
    /// fork(2): the child makes one call on an inherited file, whose struct comes back, looks whether `at` is mapped,
    /// and ends.
    ///
    /// # Errors
    /// `EBADF`, `EINVAL` as an ioctl of the port; the kernel's for fork(2); `ETIMEDOUT` for a child that does not end.
    pub fn forked(&self, fd: Fd, request: u32, arg: &mut [u8], at: CpuPtr) -> Result<Forked, Errno> {
        let number = self.number(fd)?;
        let fits = abi::request_type(request) == 0 || abi::request_len_bytes(request) <= arg.len();
        if !fits || arg.len() > libc::PIPE_BUF - HEAD {
            return Err(Errno::EINVAL);
        }
        // All memory is taken before: the child of a process with threads may not allocate.
        let mut block = vec![0_u64; NUMBERED_BYTES / 8];
        bytemuck::cast_slice_mut(&mut block)[..arg.len()].copy_from_slice(arg);
        let mut reported = vec![0_u8; HEAD + arg.len()];
        let mut ends = [0; 2];
        // SAFETY: the array has room for two descriptors.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return Err(Errno::last());
        }
        // SAFETY: descriptors that the kernel has just returned, owned by no other value.
        let [out, into] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
        // SAFETY: the child calls what is safe in a signal handler, and ends without running anything else.
        match unsafe { libc::fork() } {
            -1 => Err(Errno::last()),
            0 => in_child(number, request, &mut block, &mut reported, at, into.as_raw_fd()),
            child => {
                drop(into);
                reported = hear(out, child)?;
                let word =
                    |n: usize| i32::from_ne_bytes([reported[n], reported[n + 1], reported[n + 2], reported[n + 3]]);
                arg.copy_from_slice(&reported[HEAD..]);
                let answer = if word(4) == 0 { Ok(word(0)) } else { Err(Errno(word(4))) };
                Ok(Forked { answer, mapped: word(8) != 0 })
            }
        }
    }
}

/// The child: one call, one look, one write.
fn in_child(number: i32, request: u32, block: &mut [u64], reported: &mut [u8], at: CpuPtr, into: i32) -> ! {
    // SAFETY: the block is longer than the struct of any described call, and aligned for it.
    let rc = unsafe { libc::ioctl(number, libc::c_ulong::from(request) as _, block.as_mut_ptr()) };
    let errno = if rc < 0 { Errno::last().0 } else { 0 };
    let (page, mut resident) = (page_bytes(), 0_u8);
    let start = CpuPtr(at.0 / page * page);
    // SAFETY: the kernel looks at the address without following it, and writes one byte for one page.
    let seen = unsafe { libc::mincore(start.as_ptr(), 1, &raw mut resident) };
    reported[..4].copy_from_slice(&rc.to_ne_bytes());
    reported[4..8].copy_from_slice(&errno.to_ne_bytes());
    reported[8..HEAD].copy_from_slice(&i32::from(seen == 0).to_ne_bytes());
    let len = reported.len() - HEAD;
    reported[HEAD..].copy_from_slice(&bytemuck::cast_slice(block)[..len]);
    // SAFETY: the kernel only reads there; so few bytes are written at once or not at all.
    let _written = unsafe { libc::write(into, reported.as_ptr().cast(), reported.len()) };
    // SAFETY: ends the child at once: nothing of the parent's is torn down.
    unsafe { libc::_exit(0) }
}

/// What the child wrote, once it has ended.
fn hear(out: OwnedFd, child: i32) -> Result<Vec<u8>, Errno> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut all = Vec::new();
        let _unheard = std::fs::File::from(out).read_to_end(&mut all).map(|_| sender.send(all));
    });
    let reported = receiver.recv_timeout(LONGEST);
    if reported.is_err() {
        // SAFETY: the child of this function, which has not been waited for, so that the number is still its own.
        unsafe { libc::kill(child, libc::SIGKILL) };
    }
    // SAFETY: no status is asked for.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    let reported = reported.map_err(|_| Errno::ETIMEDOUT)?;
    if reported.len() < HEAD { Err(Errno::EIO) } else { Ok(reported) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::{Mapped, OpenFlags, Port};
    use std::sync::Arc;

    #[test]
    fn a_forked_child_has_the_files_and_the_mappings() {
        let linux = LinuxPort::new();
        let port: Arc<dyn Port> = Arc::clone(&linux) as _;
        let fd = port.open("/dev/null", OpenFlags::DEVICE).unwrap();
        let here = Mapped::reserve(&port, 4096, 4096).unwrap();
        let seen = linux.forked(fd, 0x8008_4b01, &mut [0; 8], here.base()).unwrap();
        assert_eq!(seen, Forked { answer: Err(Errno::ENOTTY), mapped: true });
        let nowhere = linux.forked(fd, 0x8008_4b01, &mut [0; 8], CpuPtr(4096)).unwrap();
        assert!(!nowhere.mapped);
        assert_eq!(linux.forked(Fd(1), 0x8008_4b01, &mut [0; 8], here.base()), Err(Errno::EBADF));
        assert_eq!(linux.forked(fd, 0x8008_4b01, &mut [0; 7], here.base()), Err(Errno::EINVAL));
    }

    #[test]
    fn signals_stop_and_end_a_program_that_has_no_handler() {
        let_signals_interrupt().unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        send_signal(child.id(), Signal::Stop).unwrap();
        send_signal(child.id(), Signal::Continue).unwrap();
        assert_eq!(child.try_wait().unwrap(), None);
        send_signal(child.id(), Signal::Interrupt).unwrap();
        assert!(!child.wait().unwrap().success(), "exec took the handler away");
        assert_eq!(send_signal(0, Signal::Stop), Err(Errno::EINVAL));
    }
}

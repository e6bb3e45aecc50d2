//! Typed calls: an ioctl with its struct, and the error that names it.

use super::{Errno, Fd, Port};
use crate::abi::{Desc, Ioctl};
use bytemuck::Pod;

/// A driver's refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {errno}")]
pub struct CallError {
    /// The ioctl's name.
    pub name: &'static str,
    pub errno: Errno,
}

/// Calls repeated after a signal; more of them in a row is a fault outside this process's control.
const MAX_RESTARTS: u32 = 100;

/// Calls with a struct, again when a signal came between.
///
/// # Errors
/// The driver's.
pub fn call<T: Pod>(port: &dyn Port, fd: Fd, ioctl: &Ioctl<T>, args: &mut T) -> Result<i32, CallError> {
    call_bytes(port, fd, &ioctl.desc, bytemuck::bytes_of_mut(args))
}

/// The same for every type of argument, so that it is compiled once.
fn call_bytes(port: &dyn Port, fd: Fd, ioctl: &Desc, args: &mut [u8]) -> Result<i32, CallError> {
    let mut restarts = 0;
    loop {
        match port.ioctl(fd, ioctl.request, args) {
            Err(Errno::EINTR) if restarts < MAX_RESTARTS => restarts += 1,
            result => return result.map_err(|errno| CallError { name: ioctl.name, errno }),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::abi::kfd;
    use crate::port::{LinuxPort, OpenFlags};

    #[test]
    fn refusal_names_the_call_and_the_errno() {
        let port = LinuxPort::new();
        let fd = port.open("/dev/null", OpenFlags::DEVICE).unwrap();
        let error = call(&*port, fd, &kfd::GET_VERSION, &mut kfd::GetVersion::default()).unwrap_err();
        assert_eq!(error.to_string(), "AMDKFD_IOC_GET_VERSION: ENOTTY");
    }
}

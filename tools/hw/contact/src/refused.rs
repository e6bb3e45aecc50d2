//! Which call of a trace was refused, and how.

use doorbell_ioctl::abi::find_form;
use doorbell_ioctl::abi::nvrm::Status;
use doorbell_ioctl::port::Errno;
use doorbell_ioctl::trace::{Event, What};

/// How a call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// By the system call.
    Errno(Errno),
    /// By NVIDIA's driver, in the call's struct.
    Status(Status),
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Errno(errno) => write!(f, "{errno}"),
            Self::Status(status) => write!(f, "{status}"),
        }
    }
}

impl Refused {
    /// The error that a call ended with, if it indicates a fault.
    #[must_use]
    pub fn of(event: &Event) -> Option<Self> {
        let errno = match &event.what {
            What::Open { result, .. } => result.err(),
            What::Ioctl(call) => call.result.err(),
            What::Mmap { result, .. } => result.err(),
            What::Munmap { result, .. } => result.err(),
            _ => None,
        };
        match (errno, &event.what) {
            (Some(Errno::EINTR), _) => None,
            (Some(errno), _) => Some(Self::Errno(errno)),
            (None, What::Ioctl(call)) => {
                let layout = find_form(call.request, call.after.len())?.layout;
                let nested = |name: &str| {
                    let f = layout.fields.iter().find_map(|f| match f.kind {
                        doorbell_ioctl::abi::Kind::Nested(inner) if f.offset == 0 => inner.field(name),
                        _ => None,
                    });
                    f.and_then(|f| f.read(&call.after))
                };
                let own = |name: &str| layout.field(name).and_then(|f| f.read(&call.after));
                let value = own("status").or_else(|| own("rm_status")).or_else(|| nested("status"))?;
                let status = Status(u32::try_from(value).ok()?);
                (!status.is_ok()).then_some(Self::Status(status))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorbell_ioctl::abi::nvrm;
    use doorbell_ioctl::port::Fd;
    use doorbell_ioctl::trace::{IoctlEvent, Moment};

    fn call(request: u32, after: Vec<u8>, result: Result<i32, Errno>) -> Event {
        let (before, fd) = (after.clone(), Fd(3));
        let (blobs_before, blobs_after) = (Vec::new(), Vec::new());
        let call = IoctlEvent { fd, request, before, blobs_before, after, blobs_after, result };
        Event { moment: Moment::default(), what: What::Ioctl(Box::new(call)) }
    }

    #[test]
    fn statuses_inside_structs_are_refusals_and_warnings_are_none() {
        let alloc = |status| {
            let args = nvrm::RmAlloc { status, ..Default::default() };
            call(nvrm::ALLOC.desc.request, bytemuck_bytes(&args), Ok(0))
        };
        assert_eq!(Refused::of(&alloc(0x1f)), Some(Refused::Status(Status(0x1f))));
        assert_eq!((Refused::of(&alloc(0)), Refused::of(&alloc(0x1_0006))), (None, None));
        let params = nvrm::MapMemoryParams { status: 0x51, ..Default::default() };
        let map = nvrm::RmMapMemory { params, ..Default::default() };
        let nested = Refused::of(&call(nvrm::MAP_MEMORY.desc.request, bytemuck_bytes(&map), Ok(0)));
        assert_eq!(nested.map(|r| r.to_string()), Some("NV_ERR_NO_MEMORY (0x51)".into()));
        let failed = call(nvrm::ALLOC.desc.request, vec![0; 48], Err(Errno::EINVAL));
        assert_eq!(Refused::of(&failed), Some(Refused::Errno(Errno::EINVAL)));
        assert_eq!(Refused::of(&call(nvrm::ALLOC.desc.request, vec![0; 48], Err(Errno::EINTR))), None);
    }

    fn bytemuck_bytes<T: bytemuck::Pod>(value: &T) -> Vec<u8> {
        bytemuck::bytes_of(value).to_vec()
    }
}

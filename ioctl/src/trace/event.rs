//! The record of one call through a port.

use crate::abi::{Blob, Message, Value};
use crate::port::{CpuPtr, Errno, Fd, MapRequest, OpenFlags, PollEvents};

/// Time and thread of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Moment {
    /// Start, in nanoseconds since the trace began.
    pub start_ns: u64,
    /// How long the call took.
    pub length_ns: u64,
    /// Threads are numbered from 0 in the order of their first call.
    pub thread: u32,
}

/// The call, with its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    Open {
        path: String,
        flags: OpenFlags,
        result: Result<Fd, Errno>,
    },
    Close {
        fd: Fd,
        result: Result<(), Errno>,
    },
    Ioctl(Box<IoctlEvent>),
    Mmap {
        map: MapRequest,
        result: Result<CpuPtr, Errno>,
    },
    Munmap {
        addr: CpuPtr,
        len_bytes: u64,
        result: Result<(), Errno>,
    },
    Poll {
        fds: Vec<(Fd, PollEvents, PollEvents)>,
        timeout_ms: i32,
        result: Result<u64, Errno>,
    },
    ReadFile {
        path: String,
        result: Result<Vec<u8>, Errno>,
    },
    ReadDir {
        path: String,
        result: Result<Vec<String>, Errno>,
    },
    Doorbell {
        at: CpuPtr,
        value: u64,
    },
    /// Memory as it is from here on, read before a doorbell (or a command buffer's commit) by a trace that records.
    Memory {
        at: CpuPtr,
        bytes: Vec<u8>,
    },
    /// A message to an object, or a function beside them.
    Message(Box<MessageEvent>),
    /// Memory that the device has written, read when its work was seen to be done.
    Computed {
        at: CpuPtr,
        bytes: Vec<u8>,
    },
}

/// A message and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageEvent {
    /// Places for errors as they are afterwards.
    pub message: Message,
    pub result: Value,
}

/// An ioctl: the struct and the memory it points at, before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoctlEvent {
    pub fd: Fd,
    pub request: u32,
    pub before: Vec<u8>,
    pub blobs_before: Vec<Blob>,
    pub after: Vec<u8>,
    pub blobs_after: Vec<Blob>,
    pub result: Result<i32, Errno>,
}

/// One line of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub moment: Moment,
    pub what: What,
}

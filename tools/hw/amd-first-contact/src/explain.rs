//! Why a rung failed: the call to the driver, its answer, the packets in the ring, and known causes.
//!
//! Source of the causes: docs/amd.md 1.5, 7 and 8 (the driver's checks; reports by others).

use crate::ladder::Rung;
use doorbell_ioctl::port::Errno;
use doorbell_ioctl::trace::Event;
use hw_contact::Refused;
use serde_json::{Value, json};

pub use hw_contact::{Failure, fail};

/// A failure with all that is known about it.
#[derive(Debug)]
pub struct Story {
    rung: &'static str,
    what: String,
    /// The refused call: sent and answered, by name.
    call: Option<String>,
    errno: Option<Errno>,
    packets: Vec<String>,
    causes: Vec<String>,
    missing: Vec<String>,
}

/// The error that a call ended with, if it indicates a fault.
fn refusal(event: &Event) -> Option<Errno> {
    match Refused::of(event) {
        Some(Refused::Errno(errno)) => Some(errno),
        _ => None,
    }
}

impl Story {
    /// The report of a rung that failed, or that passed although a call was refused; `None` if there is no fault.
    pub fn of(rung: &Rung, failure: Option<&Failure>, events: &[Event]) -> Option<Self> {
        let refused = events.iter().rev().find_map(|e| Some((e, refusal(e)?)));
        // Visible VRAM is refused on a small BAR, which the rung reports.
        let refused = refused.filter(|(e, errno)| failure.is_some() || !is_small_bar(e, *errno));
        if failure.is_none() && refused.is_none() {
            return None;
        }
        let call = refused.map(|(event, _)| event.what.to_string());
        let errno = refused.map(|(_, errno)| errno);
        let mut causes: Vec<String> =
            call.iter().zip(errno).flat_map(|(call, errno)| known(call, errno)).map(Into::into).collect();
        if causes.is_empty() || failure.is_some_and(|f| !f.packets.is_empty()) {
            causes.extend(rung.causes.iter().map(|c| (*c).to_string()));
        }
        Some(Self {
            rung: rung.name,
            what: failure.map_or_else(|| "a call was refused and nobody asked".into(), |f| f.what.clone()),
            call,
            errno,
            packets: failure.map(|f| f.packets.clone()).unwrap_or_default(),
            causes,
            missing: Vec::new(),
        })
    }

    /// With what the machine lacks altogether.
    pub fn with_missing(mut self, missing: Vec<String>) -> Self {
        if self.is_absent() {
            self.missing = missing;
        }
        self
    }

    /// With the state of the queues added.
    pub fn with_packets(mut self, more: Vec<String>) -> Self {
        self.packets.extend(more);
        self
    }

    /// Nothing to test: no driver, no card, or no permission.
    pub fn is_absent(&self) -> bool {
        matches!(self.rung, "driver" | "topology")
    }

    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("   {}", self.what)];
        lines.extend(self.call.iter().map(|call| format!("   call:    {call}")));
        lines.extend(self.packets.iter().map(|p| format!("   packet:  {p}")));
        lines.extend(self.missing.iter().map(|m| format!("   missing: {m}")));
        lines.extend(self.causes.iter().map(|c| format!("   known:   {c}")));
        lines
    }

    pub fn json(&self) -> Value {
        json!({"rung": self.rung, "what": self.what, "call": self.call, "errno": self.errno.map(|e| e.to_string()),
            "packets": self.packets, "missing": self.missing, "causes": self.causes})
    }
}

fn is_small_bar(event: &Event, errno: Errno) -> bool {
    let text = event.what.to_string();
    errno == Errno::EINVAL && text.contains("ALLOC_MEMORY_OF_GPU") && text.contains("VRAM") && text.contains("PUBLIC")
}

/// (part of the call's text, errno, cause)
const KNOWN: &[(&str, Errno, &str)] = &[
    ("open(/dev/kfd", Errno::ENOENT, "no amdgpu driver with KFD is loaded"),
    ("open(/dev/kfd", Errno::EACCES, "the user is not in the group that owns /dev/kfd (render, on some systems video)"),
    ("open(/dev/kfd", Errno::EPERM, "a container's device cgroup does not allow it"),
    ("open(/dev/dri", Errno::ENOENT, "the container has /dev/kfd and not /dev/dri"),
    ("open(/dev/dri", Errno::EACCES, "the user is not in the groups render and video"),
    ("ACQUIRE_VM", Errno::EBUSY, "the process has tied the device to another render file"),
    ("ACQUIRE_VM", Errno::EINVAL, "the render node is another card's"),
    (
        "ALLOC_MEMORY_OF_GPU",
        Errno::EINVAL,
        "size or address is not a multiple of pages, or outside the node's gpuvm aperture",
    ),
    ("ALLOC_MEMORY_OF_GPU", Errno::EINVAL, "VRAM with PUBLIC on a small BAR"),
    (
        "ALLOC_MEMORY_OF_GPU",
        Errno::ENOMEM,
        "VRAM is full, or KFD's limit on system memory (TTM: half of RAM) is reached",
    ),
    ("ALLOC_MEMORY_OF_GPU", Errno::EADDRINUSE, "the address belongs to an SVM range or another mapping"),
    (
        "CREATE_QUEUE",
        Errno::EINVAL,
        "a buffer's mapping has not exactly the size that the kernel wants: ring, pointer page, EOP, context save area",
    ),
    (
        "CREATE_QUEUE",
        Errno::EINVAL,
        "ctl_stack_size is not the node's, or ctx_save_restore_size is below its cwsr_size",
    ),
    ("CREATE_QUEUE", Errno::ENOMEM, "all SDMA queues of the engines are in use"),
    ("CREATE_QUEUE", Errno::EPERM, "too many queues of this process"),
    ("CREATE_QUEUE", Errno::ENODEV, "the device is gone or being reset"),
    (
        "CREATE_EVENT",
        Errno::EINVAL,
        "the first event's page is not a GTT buffer of 0x8000 bytes, or the process has a page already",
    ),
    ("DESTROY_QUEUE", Errno::ETIME, "the queue did not preempt: a wave hangs, the kernel resets the engine"),
    ("RUNTIME_ENABLE", Errno::EEXIST, "a queue existed before"),
    ("mmap(", Errno::EINVAL, "not the whole doorbell slice, or an offset that no buffer has"),
    ("mmap(", Errno::ENOMEM, "address space or memory is used up; `ulimit -v`"),
    ("", Errno::EBADF, "the file was opened before a fork"),
    ("", Errno::EIO, "the device is being reset: look at dmesg"),
    ("", Errno::ENODEV, "the device is gone or being reset: look at dmesg"),
    ("", Errno::ENOTTY, "the kernel's KFD lacks this call"),
];

fn known(call: &str, errno: Errno) -> Vec<&'static str> {
    KNOWN.iter().filter(|(part, e, _)| *e == errno && call.contains(part)).map(|k| k.2).collect()
}

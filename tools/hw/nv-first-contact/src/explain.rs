//! Why a rung failed: the call to the driver, its answer, the methods that were not executed, known causes, and probes
//! for them.
//!
//! Source of causes and probes: docs/nv.md 6, 8, 8.1.

use crate::ladder::Rung;
use doorbell_ioctl::abi::nvrm::Status;
use doorbell_ioctl::port::Errno;
use doorbell_ioctl::trace::Event;
use hw_contact::{Failure, Refused};
use serde_json::{Value, json};

/// A failure with all that is known about it.
#[derive(Debug)]
pub struct Story {
    rung: &'static str,
    what: String,
    /// The refused call: sent and answered, by name.
    call: Option<String>,
    refused: Option<Refused>,
    packets: Vec<String>,
    causes: Vec<String>,
    probes: Vec<String>,
    missing: Vec<String>,
}

/// Longest text of a call: lists of hundreds of words say no more.
const MAX_CALL: usize = 1200;

/// A call as text, cut where it goes on for pages.
fn text_of(event: &Event) -> String {
    let text = event.what.to_string();
    match text.char_indices().nth(MAX_CALL) {
        Some((at, _)) => {
            let end: String = text.chars().rev().take(200).collect::<Vec<_>>().into_iter().rev().collect();
            format!("{} ... {end}", &text[..at])
        }
        None => text,
    }
}

/// Calls that were refused although the rung went on.
pub fn warnings(events: &[Event]) -> Vec<String> {
    events.iter().filter(|e| Refused::of(e).is_some()).map(text_of).collect()
}

impl Story {
    /// The story of a rung that failed.
    pub fn of(rung: &Rung, failure: &Failure, events: &[Event], complaints: Vec<String>, missing: Vec<String>) -> Self {
        // The last one: what a rung does after a refusal is giving back.
        let refused = events.iter().rev().find_map(|e| Some((e, Refused::of(e)?)));
        // A rung that goes on after a refusal fails of something else.
        let refused = refused.filter(|(_, how)| failure.what.contains(&how.to_string()));
        let call = refused.map(|(event, _)| text_of(event));
        let refused = refused.map(|(_, how)| how);
        let text = format!("{} {}", failure.what, complaints.join(" "));
        let mut causes: Vec<String> = match (&call, refused) {
            (Some(call), Some(how)) => known(call, how).map(Into::into).collect(),
            _ => seen(&text).map(Into::into).collect(),
        };
        if causes.is_empty() {
            causes.extend(rung.causes.iter().map(|c| (*c).to_string()));
        }
        let packets = failure.packets.iter().cloned().chain(complaints).collect();
        let probes = rung.probes.iter().map(|p| (*p).to_string()).collect();
        Self { rung: rung.name, what: failure.what.clone(), call, refused, packets, causes, probes, missing }
    }

    /// There is nothing to climb on: no driver, no card, or no right to it.
    pub fn is_absent(&self) -> bool {
        self.rung == "control"
    }

    pub fn what(&self) -> &str {
        &self.what
    }

    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("   {}", self.what)];
        lines.extend(self.call.iter().map(|call| format!("   call:    {call}")));
        lines.extend(self.packets.iter().map(|p| format!("   seen:    {p}")));
        lines.extend(self.missing.iter().map(|m| format!("   missing: {m}")));
        lines.extend(self.causes.iter().map(|c| format!("   known:   {c}")));
        lines.extend(self.probes.iter().map(|p| format!("   probe:   {p}")));
        lines
    }

    pub fn json(&self) -> Value {
        json!({"rung": self.rung, "what": self.what, "call": self.call, "answer": self.refused.map(|r| r.to_string()),
            "seen": self.packets, "missing": self.missing, "causes": self.causes, "probes": self.probes})
    }
}

/// (part of the call's text, errno, cause)
const KNOWN_ERRNO: &[(&str, Errno, &str)] = &[
    ("open(/dev/nvidiactl", Errno::ENOENT, "no NVIDIA driver is loaded, or the container has no device files"),
    (
        "open(/dev/nvidia-uvm",
        Errno::ENOENT,
        "the module nvidia-uvm is not loaded (modprobe nvidia-uvm), or its node is missing: its major is dynamic, in /proc/devices",
    ),
    (
        "open(/dev/nvidia",
        Errno::ENOENT,
        "the node is missing: mknod with the major of /proc/devices, minor as CARD_INFO says",
    ),
    ("open(", Errno::EACCES, "the device files' mode, or a container's device cgroup, does not allow it"),
    ("open(", Errno::EPERM, "a container's device cgroup does not allow it"),
    (
        "open(/dev/nvidia",
        Errno::EIO,
        "the GPU does not come up: it fell off the bus, or its firmware (GSP) failed; look for Xid 79, 119, 120 in dmesg",
    ),
    ("CARD_INFO", Errno::EINVAL, "another number of cards is expected in the struct"),
    ("MAP_MEMORY", Errno::EINVAL, "the struct's size is another release's"),
    ("", Errno::EINVAL, "the struct's size is another release's: the size is in the request word"),
    ("mmap(", Errno::EINVAL, "the file was not armed by MAP_MEMORY, or the length is another one"),
    ("mmap(", Errno::ENOMEM, "address space or memory is used up; `ulimit -v`"),
    ("", Errno::EBADF, "the file was opened before a fork"),
    ("", Errno::ENOTTY, "the kernel module lacks this call"),
];

/// (part of the call's text, status, cause)
#[rustfmt::skip]
const KNOWN_STATUS: &[(&str, u32, &str)] = &[
    ("GPFIFO", 0x1f, "NV_CHANNEL_ALLOC_PARAMS has another layout or size in this release (368 bytes in 580)"),
    ("GPFIFO", 0x3a, "NV_CHANNEL_ALLOC_PARAMS has another layout or size in this release (368 bytes in 580)"),
    ("GPFIFO", 0x40, "MIG is on: channels need a partition"),
    ("GPFIFO", 0x56, "ring and USERD lie in different kinds of memory: both in VRAM or both in system memory"),
    ("GPFIFO", 0x17, "another process runs the GPU exclusively"),
    ("GPFIFO", 0x63, "the compute mode is exclusive or prohibited"),
    ("GPFIFO", 0x36, "the channel's parent is no channel group of this engine"),
    ("KEPLER_CHANNEL_GROUP_A", 0x40, "MIG is on: groups need a partition"),
    ("FERMI_CONTEXT_SHARE_A", 0x1f, "hVASpace is not an address space of this device"),
    ("UVM_REGISTER_CHANNEL", 0x1e, "the window for the channel's context is too small or overlaps another range"),
    ("UVM_REGISTER_CHANNEL", 0x40, "the channel has no engine object yet, or its group is scheduled already"),
    ("UVM_REGISTER_CHANNEL", 0x56, "UVM does not support this channel"),
    ("UVM_REGISTER_GPU_VASPACE", 0x29, "the address space is not EXTERNALLY_OWNED: flags 0x48"),
    ("UVM_REGISTER_GPU_VASPACE", 0x5d, "UVM_MM_INITIALIZE has not been done on a second file"),
    ("UVM_REGISTER_GPU", 0x12, "UVM does not know the UUID"),
    ("UVM_INITIALIZE", 0x1f, "flags that this UVM does not know"),
    ("UVM_MAP_EXTERNAL_ALLOCATION", 0x1e, "the range was not created, or the mapping leaves it"),
    ("UVM_CREATE_EXTERNAL_RANGE", 0x68, "the addresses belong to another range"),
    ("NV01_MEMORY_LOCAL_USER", 0x51, "VRAM is used up or fragmented: FB_GET_INFO_V2's HEAP_FREE says how much there is"),
    ("NV01_MEMORY_LOCAL_USER", 0x56, "confidential computing is on"),
    ("MAP_MEMORY", 0x51, "BAR1 is used up, or missing in this virtual machine"),
    ("ALLOC_MEMORY", 0x51, "memory cannot be pinned: RLIMIT_MEMLOCK"),
    ("HOPPER_DMA_COPY_A", 0x22, "the copy class is refused on this channel: a group of its own (docs/nv.md 2.3)"),
    ("DMA_COPY", 0x1f, "the engine type is not the channel's"),
    ("USERMODE_A", 0x22, "the chip has another usermode class"),
    ("GPFIFO_SCHEDULE", 0x40, "a channel of the group is not registered with UVM"),
    ("GPU_GET_CLASSLIST_V2", 0x56, "the release has the list by pointer only"),
    ("NV01_ROOT_CLIENT", 0x1b, "the process may not make clients"),
    ("GPU_GET_ID_INFO_V2", 0x1f, "no GPU of that id: CARD_INFO was read wrong"),
    ("", 0x0f, "the GPU fell off the bus: Xid 79 in dmesg"),
    ("", 0x62, "the GPU wants a reset"),
    ("", 0x65, "the GPU's system processor does not answer: Xid 119 in dmesg"),
    ("", 0x3a, "the struct's length is another release's"),
    ("", 0x56, "this GPU or this release does not have it"),
    ("", 0x22, "this GPU does not have the class"),
    ("", 0x51, "memory is used up"),
];

/// (what a report says, cause)
const SEEN: &[(&str, &str)] = &[
    ("channel error 31", "an address that is not mapped for the GPU: above 2^40 in a push buffer or QMD, or freed"),
    (
        "channel error 13",
        "wrong QMD (compare with docs/nv.md 4.2 bit by bit; other PCAS actions: 9, 3, 2, 0xa), windows that overlap a mapping, or bad code",
    ),
    ("channel error 32", "a malformed method or GPFIFO entry: entry's LEVEL bit, length, or an address above 2^40"),
    ("channel error 69", "a method with bad data for this class"),
    ("channel error 43", "the channel was reset"),
    ("channel error 45", "another channel of its group failed"),
    ("confidential computing is on", "the machine encrypts: not supported by this design"),
    ("compute mode", "nvidia-smi -c 0 makes it shared again"),
    (
        "the notifier is clean",
        "the doorbell does not reach the GPU: BAR0 is held back by a hypervisor (--bar1-doorbell), the token is stale, or USERD and ring are not where RM was told",
    ),
    (
        "does not advance",
        "BAR0 is not passed through: --bar1-doorbell maps the doorbell through BAR1, where the clock reads as zero",
    ),
];

fn known(call: &str, how: Refused) -> impl Iterator<Item = &'static str> {
    let errnos = KNOWN_ERRNO.iter().filter(move |(_, errno, _)| how == Refused::Errno(*errno));
    let statuses = KNOWN_STATUS.iter().filter(move |(_, status, _)| how == Refused::Status(Status(*status)));
    let all = errnos.map(|k| (k.0, k.2)).chain(statuses.map(|k| (k.0, k.2)));
    let hit: Vec<(&str, &'static str)> = all.filter(|(part, _)| call.contains(part)).collect();
    // What is known of any call is said where nothing is known of this one.
    let is_own = hit.iter().any(|(part, _)| !part.is_empty());
    hit.into_iter().filter(move |(part, _)| !is_own || !part.is_empty()).map(|(_, cause)| cause)
}

fn seen(text: &str) -> impl Iterator<Item = &'static str> {
    SEEN.iter().filter(move |(part, _)| text.contains(part)).map(|(_, cause)| *cause)
}

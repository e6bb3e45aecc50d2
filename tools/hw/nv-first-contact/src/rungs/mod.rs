//! The rungs, in the order of docs/nv.md 8.1.

mod boxes;
mod card;
mod channels;
mod files;
mod kernels;
mod plain;
mod trouble;

pub use card::connect;
pub use files::missing;
pub use kernels::Bench;
pub use trouble::work;

use crate::ladder::Rung;

/// Rungs that need machine code, and with them all that need these.
pub const NEED_CODE: &[&str] = &["launch", "store", "faults", "processes"];

/// Whether a failure of this rung may mean that there is no card.
pub fn look_for_card(rung: &str) -> bool {
    matches!(rung, "nodes" | "control" | "uvm" | "card")
}

const VERSION: &str =
    "print the release (CHECK_VERSION_STR with command '2') and compare the struct's size with nv_layout.tsv";
const DMESG: &str = "dmesg | grep -e NVRM -e Xid";
const QMD: &str = "doorbell trace --show FILE, and compare the QMD with docs/nv.md 4.2 bit by bit";

#[rustfmt::skip]
pub const RUNGS: &[Rung] = &[
    Rung { name: "nodes", about: "device files, majors, the module's release", needs: &[], climb: files::nodes,
        causes: &["no NVIDIA driver is loaded"],
        probes: &["ls -l /dev/nvidia*; cat /proc/devices; lsmod | grep nvidia", "root can mknod what is missing"] },
    Rung { name: "control", about: "nvidiactl: release, client, cards and their BAR1", needs: &[], climb: files::control,
        causes: &["no driver, or no right to it", "another release's structs"], probes: &[VERSION, DMESG] },
    Rung { name: "uvm", about: "nvidia-uvm: address space of the process", needs: &[], climb: files::uvm,
        causes: &["the module nvidia-uvm is not loaded, or its node is missing or has another major"],
        probes: &["grep nvidia-uvm /proc/devices; modprobe nvidia-uvm", "without it RM fills the page tables alone: the other rungs go on"] },
    Rung { name: "card", about: "open the card; device, subdevice, classes", needs: &["control"], climb: card::card,
        causes: &["no such card, or one of an unknown chip", "another process runs it exclusively"],
        probes: &["nvidia-smi -q | grep -i 'compute mode'", DMESG] },
    Rung { name: "facts", about: "SMs, memory, name; compute mode, confidential computing, MIG", needs: &["card"], climb: card::facts,
        causes: &["compute mode prohibited", "a question that this release answers otherwise"], probes: &[VERSION] },
    Rung { name: "doorbell", about: "usermode page; its clock advances", needs: &["facts"], climb: card::doorbell,
        causes: &["BAR0 is not passed through"], probes: &["--bar1-doorbell", "the doorbell is at 0x90, the clock at 0x80 and 0x84"] },
    Rung { name: "telemetry", about: "clocks, temperature, memory, ECC, PCIe link", needs: &["card"], climb: card::telemetry,
        causes: &["a question that this release answers otherwise: nothing else depends on it"], probes: &[VERSION] },
    Rung { name: "space", about: "address space, UUID, registered with UVM", needs: &["doorbell"], climb: card::space,
        causes: &["MM_INITIALIZE was left out", "flags of the address space are not 0x48"],
        probes: &["the second nvidia-uvm file must stay open", VERSION] },
    Rung { name: "memory", about: "pinned, system, VRAM, VRAM through BAR1: mapped for the GPU, written and read by the host", needs: &["space"], climb: card::memory,
        causes: &["BAR1 is small or missing", "memory is used up"],
        probes: &["CARD_INFO's fb_size is BAR1; FB_GET_INFO_V2 index 0x1d what is free", "rings can lie in system memory, with USERD beside them"] },
    Rung { name: "channel", about: "group, context share, channel, compute object, token, UVM, schedule", needs: &["memory", "doorbell"], climb: channels::channel,
        causes: &["NV_CHANNEL_ALLOC_PARAMS has another layout", "MIG is on", "ring and USERD in different kinds of memory"],
        probes: &[VERSION, "grow the context's window from 64 MiB to 1 GiB", "the compute object must exist, the group not be scheduled, when the channel is registered"] },
    Rung { name: "host", about: "a semaphore of the host engine; a wait that the host ends", needs: &["channel"], climb: channels::host,
        causes: &["the doorbell does not reach the GPU", "ring, USERD or push buffer are not mapped for the GPU", "a store that was not fenced"],
        probes: &["--bar1-doorbell", "ask for the token again; is GP_PUT written?", DMESG] },
    Rung { name: "clock", about: "timestamps, and wait for idle", needs: &["host"], climb: channels::clock,
        causes: &["another unit than ns"], probes: &["SEM_EXECUTE 0x03000001, then WFI 0x03100001"] },
    Rung { name: "compute", about: "class, windows, a semaphore of the compute engine", needs: &["host"], climb: channels::compute,
        causes: &["SET_OBJECT names another class than the channel's object", "a window that is not aligned to 4 GiB"],
        probes: &["report semaphore 0x20052056", DMESG] },
    Rung { name: "copy", about: "copy engine of its own: copies of all lengths, fills, semaphore", needs: &["memory", "doorbell"], climb: channels::copy,
        causes: &["the copy class is refused on this group", "an engine that this partition lacks"],
        probes: &["CE_GET_CAPS_V2 of each engine; COPY0 and COPY1 share the graphics engine's runlist", DMESG] },
    Rung { name: "events", about: "a channel's interrupt wakes a host that sleeps", needs: &["host"], climb: channels::events,
        causes: &["interrupts do not reach this machine", "this driver tells FIFO_EVENT_MTHD of no interrupt: the engine's own notifier is GR0 (12)"],
        probes: &["grep nvidia /proc/interrupts, before and after", "NV_EVENTS=0 has the runtime nap: the other rungs go on", DMESG] },
    Rung { name: "launch", about: "the runtime opens the card; a kernel that ends", needs: &["compute", "copy"], climb: kernels::launch,
        causes: &["wrong QMD: program address, register count, version bits", "instruction cache: invalidate before the first launch", "SLM or windows"],
        probes: &[QMD, "other PCAS actions: 9, 3, 2, 0xa; QMD_TYPE 0 and 2", DMESG] },
    Rung { name: "store", about: "a constant, arguments, an address used again", needs: &["launch"], climb: kernels::store,
        causes: &["bank 0: parameters begin at 0x210 on sm_90", "bank 0's stack (0x28) or descriptor (0x208)", "a stale constant or instruction cache"],
        probes: &[QMD, "fill bank 0 by docs/nv.md 5.4, place by place"] },
    Rung { name: "ids", about: "block and thread numbers in one to three dimensions; vector add", needs: &["store"], climb: kernels::ids,
        causes: &["bank 0: block at 0x00, grid at 0x0c: the QMD does not write them"], probes: &[QMD] },
    Rung { name: "shared", about: "shared memory with barriers by 1024 threads; dynamic up to the chip's limit", needs: &["store"], climb: kernels::shared,
        causes: &["the split of L1 and shared memory in the QMD", "the kibibyte that the system keeps", "barriers in the QMD"], probes: &[QMD] },
    Rung { name: "local", about: "stacks, grown while the device runs", needs: &["store"], climb: kernels::local,
        causes: &["SLM per TPC too small: sized by the chip's largest TPC count", "the window is not 16 MiB", "SLM HIGH without the 0x240 bytes above the stack"],
        probes: &["NON_THROTTLED C 0xff, or the TPC count"] },
    Rung { name: "globals", about: "initialised variables, a constant table, atomics", needs: &["store"], climb: kernels::globals,
        causes: &["banks 3 and 4 are not bound, or not rounded to 16", "relocations"], probes: &["print the cubin: doorbell object FILE"] },
    Rung { name: "chain", about: "a recorded list: QMDs that start one another, replayed and patched", needs: &["store"], climb: kernels::chain,
        causes: &["DEPENDENT_QMD0's action or prefetch", "a QMD that was patched in flight"], probes: &[QMD] },
    Rung { name: "clusters", about: "ptxas's own cubin: a stack, clusters of two CTAs", needs: &["store"], climb: kernels::clusters,
        causes: &["bank 0: cluster at 0x144, clusters of the grid at 0x15c", "CGA fields of the QMD"], probes: &[QMD] },
    Rung { name: "bulk", about: "bulk copies of the tensor memory accelerator, to shared memory and back", needs: &["store"], climb: kernels::bulk,
        causes: &["the accelerator's windows: shared addresses of a CTA that is no cluster", "a fence of the async proxy"], probes: &[QMD] },
    Rung { name: "tensor", about: "a box of a tensor by a map that the kernel makes (tensormap.replace)", needs: &["store"], climb: kernels::tensor,
        causes: &["the map has bits that tensormap.replace does not set: begin with one that cuTensorMapEncodeTiled made", "the map is not aligned to 128 bytes"],
        probes: &["print the 128 bytes of the map beside those of cuTensorMapEncodeTiled"] },
    Rung { name: "map", about: "boxes by maps that the runtime writes, among a kernel's parameters: plain, swizzled, beyond the edge", needs: &["store"], climb: boxes::map,
        causes: &["bits of the map that nobody has published (L2 promotion among them) may not be zero", "the map is not at a multiple of 64 in bank 0", "shared memory of a swizzled box is not at a multiple of 1024"],
        probes: &["does the rung tensor work, and are its bytes ours? then it is the parameter", "print the 128 bytes beside those of cuTensorMapEncodeTiled"] },
    Rung { name: "rm-space", about: "a device without nvidia-uvm: page tables by RM alone, memory of all kinds, copies, a kernel", needs: &["card"], climb: plain::rm_space,
        causes: &["a fixed address stands in NV_MEMORY_ALLOCATION_PARAMS' offset, rangeLo and rangeHi stay 0", "owner is 0", "RM's own buffers lie at that address"],
        probes: &["a range without FIXED_ADDRESS_ALLOCATE (0x10), mapped at its beginning", DMESG] },
    Rung { name: "faults", about: "a store to nowhere and an endless loop, each in a process of its own; then a new device works", needs: &["store"], climb: trouble::faults,
        causes: &["the notifier is not the channel's: hObjectError", "the debugger was refused"], probes: &["GET_MMU_FAULT_INFO 0x906f0106", DMESG] },
    Rung { name: "processes", about: "two at once, one killed in the middle, then another", needs: &["store"], climb: trouble::processes,
        causes: &["exclusive compute mode", "a channel of a dead process that is still being reset"], probes: &[DMESG] },
    Rung { name: "soak", about: "random additions and copies against the host, then speeds", needs: &["ids"], climb: trouble::soak,
        causes: &["a missing fence shows once in 10^6"], probes: &["write-combined ring: fence before and after GP_PUT, and read BAR1 back"] },
];

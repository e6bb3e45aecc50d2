//! The rungs, in the order of docs/amd.md 8.2.

mod bring_up;
mod engines;
mod kernels;
mod memory;
mod trouble;

pub use kernels::Bench;
pub use trouble::work;

use crate::ladder::Rung;

#[rustfmt::skip]
pub const RUNGS: &[Rung] = &[
    Rung { name: "driver", about: "open /dev/kfd, ask its version", climb: bring_up::driver, causes: &["no driver, or no right to it"] },
    Rung { name: "topology", about: "find the card, its sizes and versions", climb: bring_up::topology, causes: &["no GPU in the topology, or one of an unknown chip"] },
    Rung { name: "acquire", about: "tie the process to the card, read its clocks", climb: bring_up::acquire, causes: &["another process runs the card exclusively", "the card is asleep and does not wake up: dmesg"] },
    Rung { name: "memory", about: "GTT, VRAM, visible VRAM and pinned memory, small to large", climb: memory::memory, causes: &["limits of system memory (TTM, RLIMIT_MEMLOCK)", "a small BAR"] },
    Rung { name: "queues", about: "create and destroy every kind of queue, many times", climb: engines::queues, causes: &["the sizes of docs/amd.md 1.5"] },
    Rung { name: "sdma", about: "copy engine: fence, timestamp, copies of all lengths, ring wrap", climb: engines::sdma, causes: &["doorbell or write pointer in other units than bytes", "a packet that crosses the ring's end", "the fence's memory type", "an engine that is missing in this partition"] },
    Rung { name: "pm4", about: "compute queue: release, write, clock, wait, indirect buffer, interrupt", climb: engines::pm4, causes: &["doorbell or write pointer in other units than dwords", "no EOP buffer: RELEASE_MEM never ends", "firmware (MES, MEC) too old for a packet: dmesg"] },
    Rung { name: "aql", about: "AQL queue: barrier that waits, vendor packet with an indirect buffer", climb: engines::aql, causes: &["amd_queue_t is not what the firmware wants", "the doorbell is put - 1", "PCIe atomics are missing"] },
    Rung { name: "kernels", about: "end, store, arguments, ids of three dimensions, vector add, reused address", climb: kernels::kernels, causes: &["entry not at a multiple of 256", "RSRC1's priv bit on gfx11", "a stale instruction or scalar cache: acquire before the dispatch", "user SGPRs in another order than the descriptor says"] },
    Rung { name: "waves", about: "LDS with a barrier, atomics, scratch, 256 registers, permute", climb: kernels::waves, causes: &["LDS or VGPR granule one too few", "scratch wave size or base per XCC", "a wait counter that the software GPU does not check"] },
    Rung { name: "faults", about: "bad load, jump to nowhere, illegal instruction, endless loop; each in a process of its own", climb: trouble::faults, causes: &["no MEMORY event was created", "the kernel's reset takes longer than the deadline"] },
    Rung { name: "processes", about: "two at once, one killed in the middle, then another", climb: trouble::processes, causes: &["context save sizes: only preemption uses them", "a queue of a dead process that is still being reset"] },
    Rung { name: "soak", about: "random additions and copies against the host, then speeds", climb: trouble::soak, causes: &["a missing fence shows once in 10^6"] },
];

//! Caches between the packets: what the instruction cache and the scalar cache may still hold, namely code and kernel
//! arguments that were changed since they were last read, while no packet invalidated the cache. Hardware would run or
//! read the old bytes now and then; here it is an error each time.
//!
//! Source: docs/amd.md 2.3 (which bits invalidate what), 2.8, 4.5, 8.1. Both caches are modelled as one for the card,
//! and as never evicting a line. What vector caches and L2 may hold is in `amdgpu::ShadowMemory`; here are the packets
//! that act on them, and which of the card's engines read through L2: packet processors do up to gfx11 (on gfx12 they
//! and SDMA work at system scope, according to Mesa), SDMA does on gfx11 (the kernel driver gives it an L2 policy) and
//! has no L2 on its path on gfx942. Left out: code beyond [`CODE_BYTES`] of its entry, arguments beyond
//! [`ARGUMENT_BYTES`], signals and other words that packets write by themselves.

use super::super::chip::Chip;
use super::super::gpu::Gpu;
use super::super::queue::Queue;
use super::super::vm::Vm;
use super::Cause;
use crate::amdgpu::Flush;
use doorbell_hcq::packet::aql::Scope;
use doorbell_hcq::packet::pm4::{Acquire, CoherCntl, GcrCntl, Release, ReleaseGcr, ReleaseTc};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a kernel that are remembered.
const CODE_BYTES: usize = 256;
/// Bytes of its arguments: a line of the scalar cache.
const ARGUMENT_BYTES: usize = 64;
/// More lines than any cache holds; then it starts empty again.
const MOST: usize = 1 << 14;

/// ACQUIRE_MEM and its likes: what they invalidate, and what they write back.
pub(super) fn acquire(gpu: &Gpu, cache: Acquire) {
    gpu.caches.acquire(cache);
    gpu.shadow.flush(match cache {
        Acquire::Gcr(gcr) => Flush {
            vector: gcr.contains(GcrCntl::GLV_INV),
            array: gcr.contains(GcrCntl::GL1_INV),
            scalar: gcr.contains(GcrCntl::GLK_INV),
            l2: gcr.contains(GcrCntl::GL2_INV),
            write_back: gcr.contains(GcrCntl::GL2_WB),
        },
        Acquire::Coher(coher) => Flush {
            vector: coher.contains(CoherCntl::TCL1),
            array: false,
            scalar: coher.contains(CoherCntl::SH_KCACHE),
            l2: coher.contains(CoherCntl::TC),
            write_back: coher.contains(CoherCntl::TC_WB),
        },
    });
}

/// RELEASE_MEM: the same at the end of the pipe.
pub(super) fn release(gpu: &Gpu, cache: Release) {
    gpu.shadow.flush(match cache {
        Release::Gcr(gcr) => Flush {
            vector: gcr.contains(ReleaseGcr::GLV_INV),
            array: gcr.contains(ReleaseGcr::GL1_INV),
            scalar: false,
            l2: gcr.contains(ReleaseGcr::GL2_INV),
            write_back: gcr.contains(ReleaseGcr::GL2_WB),
        },
        Release::Tc(tc) => Flush {
            vector: tc.contains(ReleaseTc::TCL1),
            array: false,
            scalar: false,
            l2: tc.contains(ReleaseTc::TC),
            write_back: tc.contains(ReleaseTc::TC_WB),
        },
    });
}

/// An AQL packet's acquire scope before it.
pub(super) fn acquire_scope(gpu: &Gpu, scope: Scope) {
    if scope == Scope::None {
        return;
    }
    gpu.caches.acquire_scope();
    // L2 is one for the agent, or coherent in it: what others wrote is the system's affair.
    gpu.shadow.flush(Flush { l2: scope == Scope::System, write_back: false, ..Flush::ALL });
}

/// An AQL packet's release scope after it: an agent of several XCCs writes back its L2s as for the system.
pub(super) fn release_scope(gpu: &Gpu, scope: Scope) {
    let write_back = scope == Scope::System || scope == Scope::Agent && gpu.facts().num_xcc > 1;
    gpu.shadow.flush(Flush { write_back, ..Flush::default() });
}

/// The engines of the card that read and write memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    /// The packet processor of a compute queue.
    Cp,
    Sdma,
}

impl Client {
    fn reads_through_l2(self, chip: Chip) -> bool {
        match chip {
            Chip::Gfx1100 => true,
            Chip::Gfx942 => self == Self::Cp,
            Chip::Gfx1201 => false,
        }
    }
}

/// Refuses a read that bypasses L2 of data that a dispatch has stored and that was not written back.
pub(super) fn past_l2(gpu: &Gpu, packet: &'static str, va: u64, len_bytes: u64) -> Result<(), Cause> {
    match gpu.shadow.first_dirty(va, len_bytes).filter(|_| gpu.strict) {
        Some((va, dispatches)) => gpu.found(None, Cause::NotWrittenBack { packet, va, dispatches }),
        None => Ok(()),
    }
}

/// As [`past_l2`], for an engine that may read through L2.
pub(super) fn reads(gpu: &Gpu, by: Client, packet: &'static str, va: u64, len_bytes: u64) -> Result<(), Cause> {
    if by.reads_through_l2(gpu.chip) { Ok(()) } else { past_l2(gpu, packet, va, len_bytes) }
}

/// An engine has changed memory.
pub(super) fn wrote(gpu: &Gpu, by: Client, va: u64, len_bytes: u64) {
    gpu.shadow.stored(va, len_bytes, by.reads_through_l2(gpu.chip));
}

/// Refuses to interrupt the host while L2 holds stores of the queue's dispatches to the host's own memory.
pub(super) fn interrupts(gpu: &Gpu, queue: &Queue, packet: &'static str) -> Result<(), Cause> {
    match gpu.shadow.missed_by_host(queue.setup.id).filter(|_| gpu.strict) {
        Some(va) => gpu.found(Some(queue.setup.id), Cause::HostMisses { packet, va }),
        None => Ok(()),
    }
}

/// The caches of a card.
#[derive(Debug, Default)]
pub(crate) struct Caches {
    lines: Mutex<Lines>,
}

#[derive(Debug, Default)]
struct Lines {
    code: BTreeMap<u64, Vec<u8>>,
    arguments: BTreeMap<u64, Vec<u8>>,
}

/// As many bytes from `va` on as are mapped, up to `most`.
fn snapshot(vm: &Vm, va: u64, most: usize) -> Option<Vec<u8>> {
    let (start, len) = vm.extent(va)?;
    let left = usize::try_from(start + len - va).unwrap_or(most);
    let mut bytes = vec![0; most.min(left)];
    vm.read_bytes(va, &mut bytes).ok()?;
    Some(bytes)
}

/// Records what is read; true when the cache holds something else.
fn is_stale(lines: &mut BTreeMap<u64, Vec<u8>>, va: u64, now: Vec<u8>) -> bool {
    if lines.len() >= MOST {
        lines.clear();
    }
    match lines.get(&va) {
        Some(then) => *then != now,
        None => {
            lines.insert(va, now);
            false
        }
    }
}

impl Caches {
    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// ACQUIRE_MEM.
    pub(crate) fn acquire(&self, cache: Acquire) {
        let (code, arguments) = match cache {
            Acquire::Gcr(gcr) => (gcr.contains(GcrCntl::GLI_INV), gcr.contains(GcrCntl::GLK_INV)),
            Acquire::Coher(coher) => (coher.contains(CoherCntl::SH_ICACHE), coher.contains(CoherCntl::SH_KCACHE)),
        };
        let mut lines = self.lines();
        if code {
            lines.code.clear();
        }
        if arguments {
            lines.arguments.clear();
        }
    }

    /// An AQL packet with an acquire scope.
    pub(crate) fn acquire_scope(&self) {
        self.lines().arguments.clear();
    }

    /// A dispatch reads its code and arguments.
    pub(super) fn dispatch(&self, vm: &Vm, entry: u64, kernarg: Option<u64>) -> Result<(), Cause> {
        let mut lines = self.lines();
        if let Some(now) = snapshot(vm, entry, CODE_BYTES)
            && is_stale(&mut lines.code, entry, now)
        {
            return Err(Cause::Stale { what: "code", va: entry, missing: "instruction cache" });
        }
        if let Some(kernarg) = kernarg
            && let Some(now) = snapshot(vm, kernarg, ARGUMENT_BYTES)
            && is_stale(&mut lines.arguments, kernarg, now)
        {
            return Err(Cause::Stale { what: "arguments", va: kernarg, missing: "scalar cache" });
        }
        Ok(())
    }
}

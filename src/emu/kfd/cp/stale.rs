//! Caches between the packets. What the instruction cache and the scalar cache may still hold: code and kernel arguments that were changed since they were last read, while
//! no packet invalidated the cache. Hardware would run or read the old bytes now and then; here it is an error each time.
//!
//! Source: amd.md 2.3 (which bits invalidate what), 4.5, 8.1. Both caches are taken as one for the card, and as never giving a line up.
//! What vector caches and L2 may hold is
//! in `amdgpu::Books`; here are the packets that act on them. Left out: code beyond [`CODE_BYTES`] of its entry, arguments beyond [`ARGUMENT_BYTES`].

use super::super::chip::Chip;
use super::super::gpu::Gpu;
use super::super::vm::Vm;
use super::Cause;
use crate::hcq::packet::aql::Scope;
use crate::hcq::packet::pm4::{Acquire, CoherCntl, GcrCntl, Release, ReleaseGcr, ReleaseTc};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a kernel that are remembered.
const CODE_BYTES: usize = 256;
/// Bytes of its arguments: a line of the scalar cache.
const ARGUMENT_BYTES: usize = 64;
/// More lines than any cache holds; then it starts anew.
const MOST: usize = 1 << 14;

/// ACQUIRE_MEM and its likes: what they invalidate, and what they write back.
pub(super) fn acquire(gpu: &Gpu, cache: Acquire) {
    gpu.caches.acquire(cache);
    let (vectors, l2) = match cache {
        Acquire::Gcr(gcr) => {
            // gfx12 has one level of vector caches; the other's bit means nothing there.
            let both = gcr.contains(GcrCntl::GL1_INV) || gpu.chip == Chip::Gfx1201;
            (gcr.contains(GcrCntl::GLV_INV) && both, gcr.contains(GcrCntl::GL2_WB))
        }
        Acquire::Coher(coher) => (coher.contains(CoherCntl::TCL1), coher.contains(CoherCntl::TC_WB)),
    };
    let scalars = match cache {
        Acquire::Gcr(gcr) => gcr.contains(GcrCntl::GLK_INV),
        Acquire::Coher(coher) => coher.contains(CoherCntl::SH_KCACHE),
    };
    if scalars {
        gpu.books.invalidate_scalars();
    }
    note(gpu, vectors, l2);
}

/// RELEASE_MEM: the same at the end of the pipe.
pub(super) fn release(gpu: &Gpu, cache: Release) {
    let (vectors, l2) = match cache {
        Release::Gcr(gcr) => {
            let both = gcr.contains(ReleaseGcr::GL1_INV) || gpu.chip == Chip::Gfx1201;
            (gcr.contains(ReleaseGcr::GLV_INV) && both, gcr.contains(ReleaseGcr::GL2_WB))
        }
        Release::Tc(tc) => (tc.contains(ReleaseTc::TCL1), tc.contains(ReleaseTc::TC_WB)),
    };
    note(gpu, vectors, l2);
}

fn note(gpu: &Gpu, invalidated: bool, written_back: bool) {
    if invalidated {
        gpu.books.invalidate();
    }
    if written_back {
        gpu.books.write_back();
    }
}

/// An AQL packet's acquire scope before it, or its release scope after it.
pub(super) fn scopes(gpu: &Gpu, acquire: Scope, release: Scope) {
    if acquire != Scope::None {
        gpu.caches.acquire_scope();
        gpu.books.invalidate_scalars();
    }
    note(gpu, acquire != Scope::None, release != Scope::None);
}

/// Refuses to read, past L2, what a dispatch has stored and nothing has written back.
pub(super) fn written_back(gpu: &Gpu, packet: &'static str, va: u64, len_bytes: u64) -> Result<(), Cause> {
    match gpu.books.first_dirty(va, len_bytes).filter(|_| gpu.strict) {
        Some((va, dispatches)) => Err(Cause::NotWrittenBack { packet, va, dispatches }),
        None => Ok(()),
    }
}

/// The caches of a card.
#[derive(Debug, Default)]
pub struct Caches {
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

/// Remembers what is read; true when the cache holds something else.
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
    pub fn acquire(&self, cache: Acquire) {
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
    pub fn acquire_scope(&self) {
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

//! How L2 treats a buffer: the memory type that the kernel driver writes into its page table entries.
//!
//! Source: `gmc_v9_0.c` (coherence flags of GC 9.4.3), `gmc_v11_0.c`, `gmc_v12_0.c` of Linux 6.12. From gfx10 on a
//! coherent or uncached buffer is UC, all others NC; on gfx942 the card's own memory is RW, a peer's NC, and a discrete
//! card reads the host's memory as UC. Left out: APUs, SVM ranges, `mtype_local` of the module's parameters; an
//! imported dma-buf of VRAM counts as a peer's.

use super::chip::Chip;
use crate::amdgpu::{L2, Policy};
use doorbell_ioctl::abi::kfd::{ALLOC_MEM_FLAGS_COHERENT, ALLOC_MEM_FLAGS_EXT_COHERENT, ALLOC_MEM_FLAGS_UNCACHED};
use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

/// Where a buffer's pages are, seen from a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    Card,
    Peer,
    Host,
}

/// The driver's memory type for a buffer's flags.
#[must_use]
pub(crate) fn policy(chip: Chip, home: Home, flags: u32) -> Policy {
    let uncached = flags & (ALLOC_MEM_FLAGS_UNCACHED | ALLOC_MEM_FLAGS_EXT_COHERENT) != 0;
    let coherent = flags & ALLOC_MEM_FLAGS_COHERENT != 0;
    let l2 = match (chip, home) {
        (Chip::Gfx942, Home::Host) => L2::Bypassed,
        (Chip::Gfx942, _) if uncached => L2::Bypassed,
        (Chip::Gfx942, Home::Card) => L2::Probed,
        (Chip::Gfx942, Home::Peer) => L2::Cached,
        _ if uncached || coherent => L2::Bypassed,
        _ => L2::Cached,
    };
    Policy { l2, host: home == Home::Host }
}

/// The policies of a card's mapped buffers, by handle.
#[derive(Debug, Default)]
pub struct Policies(RwLock<HashMap<u64, Policy>>);

impl Policies {
    pub(super) fn set(&self, handle: u64, policy: Policy) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(handle, policy);
    }

    pub(super) fn forget(&self, handle: u64) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&handle);
    }

    /// Of the buffer with this handle.
    #[must_use]
    pub fn of(&self, handle: u64) -> Policy {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&handle).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_types_are_those_of_the_kernel_driver() {
        let l2 = |chip, home, flags| policy(chip, home, flags).l2;
        let (coherent, uncached) = (ALLOC_MEM_FLAGS_COHERENT, ALLOC_MEM_FLAGS_UNCACHED);
        for chip in [Chip::Gfx1100, Chip::Gfx1201] {
            assert_eq!(l2(chip, Home::Card, 0), L2::Cached);
            assert_eq!(l2(chip, Home::Host, 0), L2::Cached);
            assert_eq!(l2(chip, Home::Host, coherent), L2::Bypassed);
            assert_eq!(l2(chip, Home::Card, uncached), L2::Bypassed);
        }
        assert_eq!(l2(Chip::Gfx942, Home::Card, 0), L2::Probed);
        assert_eq!(l2(Chip::Gfx942, Home::Card, coherent), L2::Probed);
        assert_eq!(l2(Chip::Gfx942, Home::Peer, 0), L2::Cached);
        assert_eq!(l2(Chip::Gfx942, Home::Host, 0), L2::Bypassed);
        assert_eq!(l2(Chip::Gfx942, Home::Card, uncached), L2::Bypassed);
    }
}

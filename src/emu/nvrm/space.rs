//! A GPU's address space as RM and UVM share it.

use crate::vm::Vm;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

/// Class FERMI_VASPACE_A.
#[derive(Debug)]
pub(crate) struct VaSpace {
    pub gpu: usize,
    pub vm: Vm,
    /// UVM fills it.
    pub externally_owned: bool,
    /// A UVM file has it.
    pub registered: AtomicBool,
    /// First address that may be mapped, and the last.
    pub base: u64,
    pub limit: u64,
    /// Ranges that RM has given out, with their lengths; none where UVM fills it.
    taken: Mutex<BTreeMap<u64, u64>>,
}

impl VaSpace {
    /// An empty space.
    #[must_use]
    pub(crate) fn new(gpu: usize, externally_owned: bool, base: u64, limit: u64) -> Self {
        let (vm, registered, taken) = (Vm::default(), AtomicBool::new(false), Mutex::default());
        Self { gpu, vm, externally_owned, registered, base, limit, taken }
    }

    /// The lowest free addresses between `first` and `last`, a multiple of `align`; they are taken then.
    pub(crate) fn take(&self, len_bytes: u64, align: u64, first: u64, last: u64) -> Option<u64> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let mut at = first.checked_next_multiple_of(align)?;
        for (start, len) in taken.iter() {
            if start + len <= at {
                continue;
            }
            if at.checked_add(len_bytes)? <= *start {
                break;
            }
            at = (start + len).checked_next_multiple_of(align)?;
        }
        if at.checked_add(len_bytes - 1)? > last {
            return None;
        }
        taken.insert(at, len_bytes);
        Some(at)
    }

    /// Addresses that [`VaSpace::take`] gave are free again.
    pub(crate) fn give_back(&self, va: u64) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).remove(&va);
    }
}

//! What a child of fork has of its parent's addresses.

use doorbell_ioctl::port::{AddressSpace, CpuPtr, read_process};

/// Whether an address of the process is mapped: by a software driver, or as the program's own memory.
pub(crate) fn is_mapped(space: &AddressSpace, at: CpuPtr) -> bool {
    space.contains(at, 1) || read_process(at, &mut [0]).is_ok()
}

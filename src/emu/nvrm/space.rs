//! A GPU's address space as RM and UVM share it.

use crate::emu::vm::Vm;
use std::sync::atomic::AtomicBool;

/// Class FERMI_VASPACE_A.
#[derive(Debug)]
pub struct VaSpace {
    pub gpu: usize,
    pub vm: Vm,
    /// UVM fills it.
    pub externally_owned: bool,
    /// A UVM file has it.
    pub registered: AtomicBool,
    /// First address that may be mapped, and the last.
    pub base: u64,
    pub limit: u64,
}

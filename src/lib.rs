//! Doorbell: lazy Tensors, one UOp graph, our own machine code, hand-built packets, a doorbell store.
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

pub use doorbell_codegen as codegen;
pub use doorbell_device as device;
pub use doorbell_elf as elf;
#[cfg(feature = "emu")]
pub use doorbell_emu as emu;
pub use doorbell_hcq as hcq;
use doorbell_sort as sort;
pub use doorbell_uop as uop;

pub mod engine;
pub mod isa {
    //! The back ends, one for each instruction set.
    #[cfg(feature = "amd")]
    pub use doorbell_amdgpu as amdgpu;
    pub use doorbell_isa::*;
    #[cfg(feature = "nv")]
    pub use doorbell_ptx as nvidia;
    #[cfg(feature = "nv")]
    pub use doorbell_ptx::{ptx, sass};
    #[cfg(feature = "cpu")]
    pub use doorbell_x86_64 as x86_64;
}
pub mod nn;
pub mod schedule;
pub mod tensor;

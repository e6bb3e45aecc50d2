//! Doorbell: lazy Tensors, one UOp graph, our own machine code, hand-built packets, a doorbell store.
#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

pub mod codegen;
pub mod device;
pub mod elf;
pub mod emu;
pub mod engine;
pub mod hcq;
pub mod isa;
#[path = "../kernels-asm/mod.rs"]
pub mod kernels_asm;
pub mod nn;
pub mod schedule;
mod sort;
pub mod tensor;
pub mod uop;

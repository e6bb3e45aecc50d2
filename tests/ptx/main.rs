//! PTX: rendered programs in a reference interpreter against the interpreter of linear programs, and ptxas as a judge
//! of all that is rendered.

#[allow(dead_code)] // other tests use the rest
#[path = "../amdgpu_code/machine.rs"]
mod amd_machine;
#[allow(dead_code)]
#[path = "../codegen_agree/mod.rs"]
mod codegen_agree;
#[allow(dead_code)]
#[path = "../codegen_kernels/mod.rs"]
mod codegen_kernels;
mod kernels;
mod machine;
#[path = "../amdgpu_code/ops.rs"]
mod ops;
mod pipe;
mod ptxas;
mod text;
mod warpgroup;

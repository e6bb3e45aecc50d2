//! The software multiprocessor: code that NVIDIA's compilers make, against scalar references; single PTX instructions
//! against plain Rust; matrix multiplies of warpgroups, tensor copies and clusters; and what strict mode catches, in
//! code assembled by hand.

mod bank;
mod copies;
mod cuda;
mod harness;
#[path = "../cuda/kit/mod.rs"]
mod kit;
#[allow(dead_code)] // its own part
#[path = "../sass/nvidia.rs"]
mod nvidia;
mod ops;
mod strict;
mod tensor;
mod tma;
mod translated;
mod wgmma;

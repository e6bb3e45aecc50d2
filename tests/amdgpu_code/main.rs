//! Generated code for AMD chips: run on the emulated compute units and compared with the interpreter.

#[allow(dead_code)] // other tests use the rest
#[path = "../codegen_agree/mod.rs"]
mod codegen_agree;
#[allow(dead_code)]
#[path = "../codegen_kernels/mod.rs"]
mod codegen_kernels;
mod early;
mod foreign;
mod half;
mod kernels;
mod limits;
mod llvm;
mod machine;
mod mutants;
mod ops;
mod wave;
mod wmma;

//! The SASS codec against NVIDIA's own tools: the recorded text of compiled kernels, kernels that ptxas compiles here,
//! and random instructions that nvdisasm reads. The assembler against nvdisasm, and its code on the software
//! multiprocessor.

mod all_samples;
mod assemble;
mod assemble_chips;
#[path = "../emu_sass/bank.rs"]
mod bank;
mod check;
mod chips;
#[allow(dead_code)] // other tests use the rest
#[path = "../codegen_agree/mod.rs"]
mod codegen_agree;
#[allow(dead_code)]
#[path = "../codegen_kernels/mod.rs"]
mod codegen_kernels;
mod compiled;
mod constants;
mod corpus;
mod division;
mod doors;
mod ends;
mod figures;
mod file;
mod harmless;
mod hopper;
mod joined;
mod kernel_set;
mod loops;
mod machine;
mod mbarriers;
mod multimem;
mod nvidia;
mod order;
mod pipelined;
mod programs;
mod quality;
mod random;
mod reference;
mod samples;
mod shapes;
mod source;
mod steal;
#[path = "../emu_sass/tensor.rs"]
mod tensor;
mod tiles;
mod timing;
mod total;
mod uniform;
mod versus;

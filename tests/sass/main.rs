//! The SASS codec against NVIDIA's own tools: the recorded text of compiled kernels, kernels that ptxas compiles here,
//! and random instructions that nvdisasm reads.

mod check;
mod compiled;
mod corpus;
mod file;
mod nvidia;
mod source;
mod timing;
mod total;

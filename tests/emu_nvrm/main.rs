//! The software NVIDIA driver against a client that drives it call by call: objects and their refusals, memory and
//! mappings, channels, engines, grids.
#![cfg(target_os = "linux")]

mod bringup;
mod client;
mod dma;
mod engines;
mod events;
mod faults;
mod fuzz;
mod grids;
mod kernels;
mod objects;
mod uvm;

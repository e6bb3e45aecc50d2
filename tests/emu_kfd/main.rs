//! The software KFD against a client that speaks the interface as raw bytes: the independent witness of driver, queues
//! and packets.
#![cfg(target_os = "linux")]

mod aql;
mod caches;
mod client;
mod driver;
mod faults;
mod fuzz;
mod kernels;
mod pm4;
mod sdma;

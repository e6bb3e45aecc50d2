//! Code shared by the GPU devices of all vendors.
//!
//! Layer: `device::amd` and `device::nv` build on it; it contains nothing about drivers or packets. A vendor implements
//! the traits of [`encode`] to get a [`queue`], and [`recorded::EncodeList`] to get recorded lists. The rest are parts
//! that a device combines: memory ([`pool`], [`host_buffers`], [`staging`], [`signal_pages`]), and parts of reports
//! ([`last_kernels`], [`last_calls`], [`buffer_map`]).

pub mod buffer_map;
pub mod clock;
pub mod encode;
pub mod host_buffers;
pub mod last_calls;
pub mod last_kernels;
pub mod launch_args;
pub mod pool;
pub mod queue;
pub mod recorded;
pub mod signal_pages;
pub mod staging;

#[cfg(test)]
mod tests;

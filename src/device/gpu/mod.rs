//! Code shared by the GPU devices of all vendors.
//!
//! Layer: `device::amd` and `device::nv` build on it; it contains nothing about drivers or packets. A vendor implements
//! the traits of [`encode`] to get a [`queue`], and [`recorded::EncodeList`] to get recorded lists. The rest are parts
//! that a device combines: memory ([`pool`], [`host_buffers`], [`staging`], [`signal_pages`]), and parts of reports
//! ([`last_kernels`], [`last_calls`], [`buffer_map`]).

pub(crate) mod buffer_map;
pub(crate) mod clock;
pub(crate) mod encode;
pub(crate) mod host_buffers;
pub(crate) mod last_calls;
pub(crate) mod last_kernels;
pub(crate) mod launch_args;
pub(crate) mod pool;
pub(crate) mod queue;
pub(crate) mod recorded;
pub(crate) mod signal_pages;
pub(crate) mod staging;

#[cfg(test)]
mod tests;

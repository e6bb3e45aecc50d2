//! What all GPU devices have in common, whatever their vendor.
//!
//! Place in the arrows: `device::amd` and `device::nv` build on it; it knows no driver and no packet. A vendor
//! implements the traits of [`encode`] and has a [`queue`]; [`recorded::EncodeList`] gives it recorded lists. The rest
//! are parts that a device puts together: memory ([`pool`], [`host_buffers`], [`staging`], [`signal_pages`]), and what
//! reports say ([`last_kernels`], [`last_calls`], [`buffer_map`], [`health`]).

pub mod buffer_map;
pub mod clock;
pub mod encode;
pub mod health;
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

//! What all GPU devices have in common, whatever their vendor.
//!
//! Place in the arrows: `device::amd` and `device::nv` build on it; it knows no driver and no packet.

pub mod buffer_map;
pub mod clock;
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

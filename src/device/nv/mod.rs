//! NVIDIA's GPUs: what differs between chips, and what a launch of a cubin's kernel needs on each.
//!
//! So far the part that asks no driver: chips by their classes, constant bank 0, and the QMD of a launch with every limit checked. The device itself
//! (opening, memory, channels) is not here yet.
//! Place in the arrows: as the other devices; uses `elf::cubin`, `hcq::packet::nv` and the class numbers of `ioctl`. Source: nv.md 2 to 5.

mod bank0;
mod chip;
mod launch;

pub use bank0::{Bank0, Facts};
pub use chip::{CHIPS, Chip};
pub use launch::{DEFAULT_STACK_BYTES, LaunchError, Plan, Request};

//! The parts of hardware command queues, for any driver: packets, rings, signals, timelines, kernargs.
//!
//! Layer: below `device`, above `ioctl` (memory mappings). It makes no system calls and contains no vendor's driver.
//! Structure: the modules of [`packet`], one per packet set, convert structs to dwords; a [`ring::Ring`] carries them
//! to a consumer; [`signal::Signal`]s in host-visible memory order queues; a [`signal::Timeline`] counts a queue's
//! submissions; [`kernargs::Kernargs`] holds the arguments of launches in flight.
//! Source: the HCQ design of tinygrad (queue, signal, timeline, kernargs, bound queues), AMD PM4 and NVIDIA GPFIFO for
//! ring and pointers.
//! Left out: doorbells and MMIO of real GPUs, which come with their devices; the queues themselves (`device::gpu`,
//! `device::cpu`).
//!
//! | here | AMD | NVIDIA |
//! |---|---|---|
//! | workgroup, wave, lane | workgroup, wavefront, work-item | CTA, warp, thread |
//! | copy queue | SDMA | CE |
//! | ring, wptr, rptr | ring, wptr, rptr | GPFIFO, GP_PUT, GP_GET |
//! | bound words | IB | push buffer |
#![warn(unreachable_pub)]
#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]

pub mod bits;
pub mod error;
pub mod kernargs;
pub mod memory;
pub mod packet;
pub mod ring;
pub mod signal;
pub mod sync;

#[cfg(doctest)]
#[doc = include_str!("README.md")]
struct Readme;

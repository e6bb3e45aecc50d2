//! Hardware command queues: what they are made of, whoever drives them: packets, rings, signals, timelines, kernargs.
//!
//! Place in the arrows: `device` sits on it; it sits on `ioctl` (memory mappings). It makes no syscalls and knows no
//! vendor's driver.
//! Shape: a module of [`packet`] turns structs into dwords, one a packet set; a [`ring::Ring`] carries them to a
//! consumer; [`signal::Signal`]s in host-visible memory order queues; a [`signal::Timeline`] counts a queue's
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

pub mod bits;
pub mod kernargs;
pub mod memory;
pub mod packet;
pub mod queue;
pub mod ring;
pub mod signal;
pub mod sync;

#[cfg(doctest)]
#[doc = include_str!("README.md")]
struct Readme;

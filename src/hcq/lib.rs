//! Hardware command queues: image and arguments → packets: queue, signal, timeline, kernargs, copy, graph.
//!
//! Place in the arrows: `device` sits on it; it sits on `ioctl` (memory mappings). It makes no syscalls and knows no vendor's driver.
//! Shape: a [`queue::Queue`] gathers packets of one packet set ([`queue::Packets`]); a [`ring::Ring`] carries them to a consumer;
//! [`signal::Signal`]s in host-visible memory order queues; a [`signal::Timeline`] counts a queue's submissions;
//! [`kernargs::Kernargs`] holds the arguments of launches in flight.
//! Source: the HCQ design of tinygrad (queue, signal, timeline, kernargs, bound queues), AMD PM4 and NVIDIA GPFIFO for ring and pointers.
//! Left out: doorbells and MMIO of real GPUs, which come with their devices.
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

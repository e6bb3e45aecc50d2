//! Faults on purpose: a port that fails, delays or spoils chosen calls of another, from a list or from a seed.
//!
//! Place in the arrows: wraps any [`Port`](crate::port::Port); tests of drivers put it between the device and a software GPU or the kernel.
//! `plan` (what goes wrong and when, as values) → `wrap` (the port that makes it so).
//! Left out: mappings shorter than asked: a port vouches for the length of what it maps (safe code looks at it), so a mapping that cannot be
//! had whole is `ENOMEM`, as mmap(2) has it; faults inside the device, which are the software GPU's to make.
#![forbid(unsafe_code)]

mod plan;
mod wrap;

pub use plan::{Call, Fault, Plan, Trouble};
pub use wrap::{Faults, Injected};

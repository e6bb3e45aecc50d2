//! Software GPUs: they execute the machine code and the packets that a real chip would get, so that everything above the
//! kernel seam runs and is tested without one.
//!
//! Place in the arrows: `emu` uses `ioctl` and `hcq::packet`; the rest of the house does not know it is there.
#![forbid(unsafe_code)]

pub mod amdgpu;

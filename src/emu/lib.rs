//! Software GPUs: drivers behind the kernel seam, and compute units that execute the machine code and the packets that a real chip would
//! get, so that everything above the seam runs and is tested without one.
//!
//! Place in the arrows: `emu` uses `ioctl`, of `hcq` packets and bit fields, and of `isa` the table of SASS; the rest of the house does not know it is there.
#![forbid(unsafe_code)]

#[cfg(feature = "amd")]
pub mod amdgpu;
#[cfg(all(target_os = "linux", feature = "amd"))]
pub mod kfd;
#[cfg(all(target_os = "linux", feature = "nv"))]
pub mod nvrm;
#[cfg(target_os = "linux")]
mod pauses;
#[cfg(feature = "nv")]
pub mod sass;
#[cfg(target_os = "linux")]
pub mod vm;

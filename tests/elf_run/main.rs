//! Linked images that are executed: compilers' objects and the hand-written kernels.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod device;
mod gcc;
mod kernels_asm;
mod memory;
mod rustc;

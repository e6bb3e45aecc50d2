//! AMDGPU code objects, version 5: what a loader of AMD's kernels reads, and what this project writes.
//!
//! ```text
//! KernelCode --write--> ET_DYN file --CodeObject::parse--> CodeObject --image(base)--> bytes for the GPU's memory
//!                       clang's and lld's files enter here
//! ```
//!
//! A kernel is two symbols: `name` (its code) and `name.kd` (its 64-byte descriptor). The loader needs the descriptors,
//! and the argument list of the note with MessagePack metadata. Relocatable files (`clang -c`, `llvm-mc`) are linked
//! here as well.
//!
//! Sources: LLVM's AMDGPUUsage (code object V5, kernel descriptor, relocation records), AMDHSAKernelDescriptor.h.
//! Left out: versions 2 and 3, debugging sections, names that another object defines.

mod arguments;
mod chip;
mod descriptor;
mod file;
mod load;
mod metadata;
mod write;

pub use chip::{Chip, LDS_BYTES, machine_name};
pub use descriptor::{BitField, DESCRIPTOR_BYTES, KernelDescriptor, KernelSpec, properties, rsrc1, rsrc2, rsrc3};
pub use load::{CodeObject, Kernel, LoadSegment, is_amdgpu};
pub use metadata::{Arg, ArgKind};
pub(crate) use write::write_object;
pub use write::{KernelCode, write};

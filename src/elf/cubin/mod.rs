//! Cubins: NVIDIA's linked ELF files of machine code, as ptxas writes them (both of its container versions, 7 and 8).
//!
//! ```text
//! file --Cubin::parse--> Cubin --image(base)--> bytes for the GPU's memory, and what each launch needs
//! ```
//!
//! All addresses in a cubin are 0: code, constants and initialised data are placed one after another in one block of memory, and the few relocations
//! are applied when its address is known. What a launch needs to know beside the code (registers, barriers, stack, parameters) is in attribute
//! sections (`.nv.info`). Constant bank 0 holds the launch's own words and the parameters: the file has its size only.
//!
//! Sources: nv.md section 5 (cubins of ptxas 12.8, 12.9 and 13.5 for sm_75 to sm_121 taken apart). Not documented by NVIDIA.
//! Left out: relocatable files (`-c`), textures and surfaces, device-side launches, debugging sections, routines that the runtime would have to provide
//! (`vprintf`, `malloc`).

mod info;
mod load;

pub use info::{Attribute, Value};
pub use load::{Bank, Cubin, Kernel, Param, is_cubin};

//! Cubins: NVIDIA's linked ELF files of machine code, read as ptxas writes them (both of its container versions, 7 and
//! 8), and written (version 8).
//!
//! ```text
//! file --Cubin::parse--> Cubin --image(base)--> bytes for the GPU's memory, and what each launch needs
//! NewModule (kernels, variables, addresses) --write_module--> file
//! ```
//!
//! All addresses in a cubin are 0: code, constants and initialised data are placed one after another in one block of
//! memory, and the few relocations are applied when its address is known. What a launch needs in addition to the code
//! (registers, barriers, stack, parameters) is in attribute sections (`.nv.info`). Constant bank 0 holds the launch's
//! own words and the parameters: the file has its size only.
//!
//! Sources: docs/nv.md section 5 (cubins of ptxas 12.8, 12.9 and 13.5 for sm_75 to sm_121 taken apart). Not documented
//! by NVIDIA. Left out: relocatable files (`-c`), textures and surfaces, device-side launches, debugging sections.
//! Names that the runtime has to provide (`vprintf`, `malloc`) are listed; `Cubin::supply` gives the file code for
//! them, or their addresses come with the image's.

mod chip;
mod emit;
mod functions;
mod info;
mod load;
mod new;
mod write;

pub use chip::{ChipFacts, is_arch};
pub use functions::Functions;
pub use info::{Attribute, Value};
pub use load::{Bank, Cubin, Kernel, Param, is_cubin};
pub use new::{Arch, NewKernel, NewModule, Relocation, RelocationKind, Space, Variable};
pub use write::{write, write_module};

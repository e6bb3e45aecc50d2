//! Allocate: virtual registers → registers.
//!
//! In: [`Selected`](super::select::Selected) code, and how many registers there are. Out: [`place::AllocatedCode`],
//! lines of code with their registers; values that find none are spilled to the frame.
//!
//! Order: [`scalar`] moves what the warp shares to uniform registers, [`live`] removes dead code and says where values
//! live, [`place`] gives each value one register; where that fails, [`parts`] hands the code to the shared allocator,
//! which sees it through [`touch`]. [`pool`] is what `setmaxnreg` asks for.

pub mod live;
pub mod parts;
pub mod place;
pub mod pool;
pub mod scalar;
pub mod touch;

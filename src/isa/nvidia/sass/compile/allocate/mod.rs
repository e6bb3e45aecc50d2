//! Allocate: virtual registers → registers.
//!
//! In: [`Selected`](super::select::Selected) code, and the number of registers. Out: [`place::AllocatedCode`], lines of
//! code with physical registers; values that do not fit are spilled to the frame.
//!
//! Order: [`scalar`] moves warp-uniform values to uniform registers, [`live`] removes dead code and computes live
//! ranges, [`place`] gives each value one register. If that fails, [`parts`] passes the code to the shared allocator,
//! which sees it through [`touch`]. [`beside`] appends code that several places call. [`pool`] handles `setmaxnreg`.

pub(crate) mod beside;
pub(crate) mod live;
pub(crate) mod parts;
pub(crate) mod place;
pub(super) mod pool;
pub(crate) mod scalar;
pub(super) mod touch;

//! Realize, program cache, JIT, counters, profile; and the reference interpreter.
//!
//! The only module that uses both Tensors and devices: it schedules a Tensor's graph, compiles missing kernels,
//! allocates memory for buffers, submits, and reads back. It depends on every module below it.
//!
//! The path of a computation: `realize` (Tensors) → [`schedule`](mod@crate::schedule) (kernels and copies) → `run` (its
//! steps on devices), which asks `kernels` for compiled code, `launch` for the arguments of each command, `memory` for
//! what buffers lie in, and `batches` for the commands of one submission. Beside it:
//!
//! - *What a computation happens in*: `session`, `options`, `backends`, `cache`, `software` and `translate` (software
//!   GPUs), `calls` and `ptxas` (NVIDIA's runtime functions and assembler);
//! - *Recordings*: `jit` with `jit_capture`, `jit_inputs`, `jit_outputs` and `tree`; `captured`; `package` (in files);
//! - *Reading*: `select` (shapes that depend on data), `show` (`Display`);
//! - *Choosing and checking*: `search` (BEAM), `interp` (the reference), `validate`;
//! - *Reports*: `error`, `blame`, `debug`, `counters`, `profile`, `record` (for the explorer).

mod backends;
mod batches;
mod blame;
mod cache;
#[cfg(feature = "nv")]
pub mod calls;
mod captured;
pub mod counters;
mod debug;
mod error;
pub mod interp;
mod jit;
mod jit_capture;
mod jit_inputs;
mod jit_outputs;
mod kernels;
mod launch;
mod memory;
pub mod options;
mod package;
pub mod profile;
#[cfg(feature = "nv")]
mod ptxas;
mod realize;
mod record;
mod run;
mod search;
mod select;
mod session;
mod show;
#[cfg(feature = "emu")]
pub mod software;
#[cfg(all(target_os = "linux", feature = "emu", feature = "cpu", any(feature = "amd", feature = "nv")))]
mod translate;
mod tree;
mod validate;

pub use crate::device::registry::EmuMode;
#[cfg(feature = "nv")]
pub use backends::nvidia;
pub use backends::{add_device, known_archs};
pub use captured::{Captured, captured};
pub use counters::{Counters, Totals};
pub use error::{Error, JitError};
pub use jit::Jit;
pub use kernels::Compiled;
pub use memory::{attached, dense_view, size_of};
pub use options::{OptionError, Options};
pub use package::{PackageBytes, PackageOptions, Packaged};
pub use realize::synchronize;
pub use select::Unique;
pub use session::{Entered, Messages, OpenDevice, Session, close, finish, install, session};
pub use show::FromNested;
#[doc(hidden)]
pub use tree::part;
pub use tree::{Fixed, Leaf, Outcome, Tree};

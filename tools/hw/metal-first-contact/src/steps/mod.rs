//! The steps, in their order.

mod abi;
mod compile;
mod faults;
mod lists;
mod machine;
mod math;
mod order;
mod processes;
mod tensors;
mod times;

use crate::seen::Seen;
use crate::work::Bench;
use hw_contact::Failure;

/// One step.
pub struct Step {
    pub name: &'static str,
    /// What it looks at, in one line.
    pub about: &'static str,
    /// Looks; notes go to the second argument.
    pub run: fn(&Bench, &mut Seen) -> Result<(), Failure>,
    /// Whether nothing after it means anything when it fails or differs.
    pub is_vital: bool,
}

#[rustfmt::skip]
pub const STEPS: &[Step] = &[
    Step { name: "system", about: "system, chip, compiler", run: machine::system, is_vital: false },
    Step { name: "abi", about: "types of every message against the system's own", run: abi::types, is_vital: true },
    Step { name: "device", about: "name, families, limits", run: machine::device, is_vital: true },
    Step { name: "runtime", about: "pools, dead objects, leaks: the runtime watches a process", run: processes::runtime, is_vital: false },
    Step { name: "layer", about: "Metal's own validation of calls and kernels", run: processes::layer, is_vital: false },
    Step { name: "compile", about: "a kernel cold and warm, a wrong source, a warning", run: compile::compile, is_vital: false },
    Step { name: "version", about: "language version when none is asked for; bfloat", run: compile::version, is_vital: false },
    Step { name: "math", about: "fused products, denormals, infinities, sin, exp2, log2", run: math::math, is_vital: false },
    Step { name: "lanes", about: "simdgroup matrices against the map of lanes", run: math::lanes, is_vital: false },
    Step { name: "order", about: "events, host signals, two queues, overlap, a wait for nothing", run: order::order, is_vital: false },
    Step { name: "faults", about: "a wild store, an endless loop, a threadgroup too large", run: faults::faults, is_vital: false },
    Step { name: "lists", about: "a recorded list of two kernels, replayed", run: lists::lists, is_vital: false },
    Step { name: "times", about: "launches, wake-ups, clocks, copies, a product of matrices", run: times::times, is_vital: false },
    Step { name: "tensors", about: "Tensor programs against the interpreter", run: tensors::tensors, is_vital: false },
    Step { name: "virtual", about: "whether the GPU is one of a virtual machine", run: machine::is_virtual, is_vital: false },
];

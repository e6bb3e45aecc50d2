//! Opts: how a kernel's loops are split, unrolled, vectorised or spread over threads.
//!
//! An opt names an axis by its number at the time it is applied, so a list of opts has the same meaning whenever it is
//! applied in order to the same kernel. As text: `UPCAST(0,4)`.

mod ahead;
mod analysis;
mod apply;
mod blocks;
mod bound;
mod gpu;
mod heuristic;
mod panel;
mod pipe;
mod stage;
mod swizzle;
mod tc;
mod tma;

pub(super) use apply::{OptKernel, gate_index, kind_of};
pub(super) use heuristic::choose;

use std::fmt;
use std::str::FromStr;

/// One change to the loops of a kernel.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Opt {
    /// Output axis: this many adjacent copies of the code.
    Upcast {
        /// Number of the axis, an output loop.
        axis: usize,
        /// Copies, 2 to 32.
        amount: usize,
    },
    /// Reduction axis: this many copies of the code.
    Unroll {
        /// Number of the axis, a loop of a reduction.
        axis: usize,
        /// Copies, 2 to 64.
        amount: usize,
    },
    /// Output or reduction axis: this many vector lanes.
    Vectorize {
        /// Number of the axis.
        axis: usize,
        /// Lanes, a power of two from 2 to 64.
        amount: usize,
    },
    /// Output axis: this many chunks, each run by one CPU thread.
    Thread {
        /// Number of the axis, an output loop.
        axis: usize,
        /// Chunks, at least 2.
        amount: usize,
    },
    /// Output axis: this many threads of a workgroup (GPU targets).
    Local {
        /// Number of the axis, an output loop.
        axis: usize,
        /// Threads, at least 2; a divisor of the axis's size.
        amount: usize,
    },
    /// Reduction axis: shared by this many threads of a workgroup (GPU targets).
    Group {
        /// Number of the axis, a loop of a reduction.
        axis: usize,
        /// Threads, at least 2; a divisor of the axis's size.
        amount: usize,
    },
    /// Pads the axis to a multiple of this; the steps beyond the end are masked.
    PadTo {
        /// Number of the axis, whose size is known.
        axis: usize,
        /// The new size is the next multiple of this; at most four times the old size.
        amount: usize,
    },
    /// Exchanges two axes in the loop nest.
    Swap {
        /// Number of one axis.
        axis: usize,
        /// Number of the other, of the same kind.
        with: usize,
    },
    /// Splits a loop in two; the inner one has this many steps and becomes the innermost loop.
    Tile {
        /// Number of the axis, a loop of the output or of a reduction.
        axis: usize,
        /// Steps of the inner loop, at least 2.
        amount: usize,
    },
    /// Copies what the loops inside this axis read of a buffer to scratch memory first, in the order in which they read
    /// it.
    Stage {
        /// Slot of the buffer.
        param: usize,
        /// Number of the axis: an output loop on a CPU, a loop of a reduction on a GPU.
        axis: usize,
    },
    /// Reduction axis: conditions on it that are known outside the reduction become its loop bounds.
    Bound {
        /// Number of the axis (CPU targets).
        axis: usize,
    },
    /// Reduction loop on a GPU: what an iteration reads goes through workgroup memory, in this many buffers; while one
    /// is multiplied, the next ones are copied. After TC these are the tiles of both operands of the matrix unit.
    Pipe {
        /// Number of the axis, whose size is known.
        axis: usize,
        /// Buffers, 2 to 8; at least 3 for a unit that reads workgroup memory itself.
        depth: usize,
    },
    /// Uses a matrix unit, in the choice-th of the ways in which one of the target's units fits a sum of products. Axes
    /// are padded to its tile.
    Tc {
        /// Which way, counted from 0.
        choice: usize,
    },
}

impl Opt {
    fn parts(self) -> (&'static str, usize, Option<usize>) {
        match self {
            Opt::Upcast { axis, amount } => ("UPCAST", axis, Some(amount)),
            Opt::Unroll { axis, amount } => ("UNROLL", axis, Some(amount)),
            Opt::Vectorize { axis, amount } => ("VECTORIZE", axis, Some(amount)),
            Opt::Thread { axis, amount } => ("THREAD", axis, Some(amount)),
            Opt::Local { axis, amount } => ("LOCAL", axis, Some(amount)),
            Opt::Group { axis, amount } => ("GROUP", axis, Some(amount)),
            Opt::PadTo { axis, amount } => ("PADTO", axis, Some(amount)),
            Opt::Swap { axis, with } => ("SWAP", axis, Some(with)),
            Opt::Tile { axis, amount } => ("TILE", axis, Some(amount)),
            Opt::Stage { param, axis } => ("STAGE", param, Some(axis)),
            Opt::Bound { axis } => ("BOUND", axis, None),
            Opt::Pipe { axis, depth } => ("PIPE", axis, Some(depth)),
            Opt::Tc { choice } => ("TC", choice, None),
        }
    }
}

impl fmt::Display for Opt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            (name, a, Some(b)) => write!(f, "{name}({a},{b})"),
            (name, a, None) => write!(f, "{name}({a})"),
        }
    }
}

/// Text that is not an opt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no opt: expected NAME(number,number) with one of UPCAST UNROLL VECTORIZE THREAD LOCAL GROUP PADTO SWAP TILE STAGE PIPE, or one of BOUND TC (number)"
)]
pub struct ParseOptError(String);

impl FromStr for Opt {
    type Err = ParseOptError;
    fn from_str(text: &str) -> Result<Opt, ParseOptError> {
        let bad = || ParseOptError(text.to_string());
        let (name, rest) = text.trim().split_once('(').ok_or_else(bad)?;
        let rest = rest.strip_suffix(')').ok_or_else(bad)?;
        let numbers: Vec<usize> =
            rest.split(',').map(|n| n.trim().parse()).collect::<Result<_, _>>().map_err(|_| bad())?;
        Ok(match (name, numbers.as_slice()) {
            ("UPCAST", &[axis, amount]) => Opt::Upcast { axis, amount },
            ("UNROLL", &[axis, amount]) => Opt::Unroll { axis, amount },
            ("VECTORIZE", &[axis, amount]) => Opt::Vectorize { axis, amount },
            ("THREAD", &[axis, amount]) => Opt::Thread { axis, amount },
            ("LOCAL", &[axis, amount]) => Opt::Local { axis, amount },
            ("GROUP", &[axis, amount]) => Opt::Group { axis, amount },
            ("PADTO", &[axis, amount]) => Opt::PadTo { axis, amount },
            ("SWAP", &[axis, with]) => Opt::Swap { axis, with },
            ("TILE", &[axis, amount]) => Opt::Tile { axis, amount },
            ("STAGE", &[param, axis]) => Opt::Stage { param, axis },
            ("PIPE", &[axis, depth]) => Opt::Pipe { axis, depth },
            ("BOUND", &[axis]) => Opt::Bound { axis },
            ("TC", &[choice]) => Opt::Tc { choice },
            _ => return Err(bad()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opts_print_and_parse_back_and_other_text_is_refused() {
        let all = [
            Opt::Upcast { axis: 0, amount: 4 },
            Opt::Unroll { axis: 2, amount: 3 },
            Opt::Vectorize { axis: 1, amount: 16 },
            Opt::Thread { axis: 0, amount: 8 },
            Opt::Local { axis: 0, amount: 32 },
            Opt::Group { axis: 1, amount: 64 },
            Opt::PadTo { axis: 0, amount: 32 },
            Opt::Swap { axis: 0, with: 1 },
            Opt::Tile { axis: 1, amount: 128 },
            Opt::Stage { param: 2, axis: 1 },
            Opt::Bound { axis: 3 },
            Opt::Pipe { axis: 4, depth: 3 },
            Opt::Tc { choice: 0 },
        ];
        for o in all {
            assert_eq!(o.to_string().parse(), Ok(o));
        }
        assert_eq!(all[0].to_string(), "UPCAST(0,4)");
        for bad in ["", "UPCAST", "UPCAST(0)", "UPCAST(0,4", "UPCAST(a,4)", "NOPE(0,1)", "TC(0,1)"] {
            assert!(bad.parse::<Opt>().is_err(), "{bad}");
        }
    }
}

//! Register allocation for all targets.
//!
//! The virtual registers of a linear function (labels, jumps, loops; not SSA) get physical registers, singly or as
//! aligned tuples; values that do not fit are spilled to the frame for a part of their live range. This module knows no
//! target and no UOp: a target describes its registers ([`RegInfo`]) and its instructions ([`Func`]), and applies the
//! [`Allocation`].
//!
//! Method: first `scan`, a linear scan without splitting: values in order of their start take a register that is free
//! over their whole live range. Live ranges come from `live_ranges`, which records them during a backward walk over
//! blocks: our own ([`Analysis`]) or a target's ([`LiveRangeRecorder`], then [`allocate_unsplit`]). If a value finds no
//! register, or if instructions name registers themselves, four steps follow, each in its own file:
//! 1. `live`: blocks, loops, liveness, and for each value its live segments with holes;
//! 2. `spill`: wherever more values are live than there are registers, the value whose gap between two uses is longest
//!    and cheapest (by loop depth) is spilled for that gap. A value that a loop does not use is spilled around the
//!    whole loop; constants are rematerialised instead of stored;
//! 3. `color`: pieces, in order of their start, take a register that is free over their segments; a piece that finds
//!    none is split where the best register stops being free;
//! 4. `resolve`: moves between the pieces of a value, inside blocks and on edges, as ordered edits.
//!
//! `checker` proves the result by abstract interpretation and shares no code with these steps. Sources: linear scan
//! with holes (Wimmer, Mössenböck 2005), spilling separate from colouring (Braun, Hack 2009), the checker's idea from
//! regalloc2. Left out: sub-register operands (a partial write is a `Mod` of the whole), shuffling of call arguments.

mod checker;
mod color;
mod func;
mod live;
mod live_ranges;
mod resolve;
mod scan;
mod spill;
#[cfg(test)]
mod tests;

use scan::Scanned;
use std::cell::OnceCell;

pub use checker::{CheckError, check};
pub use func::{
    Allocation, Class, Constraint, Edit, Flow, Frame, Func, Inst, Kind, Label, Loc, Operand, PReg, RegClass, RegFile,
    RegInfo, Role, Slot, VReg,
};
pub use live_ranges::{LiveRangeRecorder, LiveRanges};
pub use scan::{Unsplit, Values, allocate_unsplit};

/// Why register allocation failed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegAllocError {
    /// A value is read on some path before it is written.
    #[error("register allocation: v{vreg} is read before it is written")]
    Undefined {
        /// The virtual register.
        vreg: u32,
    },
    /// A jump to a label that is not placed anywhere.
    #[error("register allocation: label {label} of instruction {inst} is nowhere placed")]
    NoLabel {
        /// The label.
        label: u32,
        /// The jump.
        inst: u32,
    },
    /// An instruction needs more registers at once than the file has.
    #[error("register allocation: no {class} register for v{vreg} at instruction {inst}")]
    NoRegister {
        /// The class.
        class: &'static str,
        /// The virtual register.
        vreg: u32,
        /// The instruction.
        inst: u32,
    },
    /// The checker rejected the result: a bug in the allocator.
    #[error("register allocation is wrong: {0}")]
    Check(#[from] CheckError),
}

/// The part of the analysis that does not depend on the available registers: blocks, loops, live ranges. The widths of
/// the classes must be the same in all queries.
pub struct Analysis<'a> {
    func: &'a Func,
    live: live::Live<'a>,
    hints: color::Hints,
    taken: Vec<spill::ReservedRegs>,
    /// The values in order of their start; computed at the first attempt.
    order: OnceCell<Vec<u32>>,
}

impl<'a> Analysis<'a> {
    /// Analyses a function.
    ///
    /// # Errors
    /// A value is read before it is written, or a label is not placed.
    pub fn new(func: &'a Func) -> Result<Analysis<'a>, RegAllocError> {
        let (live, hints, taken) = (live::Live::new(func)?, color::Hints::of(func), spill::taken(func));
        Ok(Analysis { func, live, hints, taken, order: OnceCell::new() })
    }

    /// The maximum register pressure of each file.
    #[must_use]
    pub fn pressure(&self, regs: &RegInfo) -> Vec<u16> {
        spill::max_pressure(self.func, regs, &self.live)
    }

    /// Allocates registers without spilling; `None`: something would have to be spilled. `need` is the
    /// [`Analysis::pressure`].
    ///
    /// # Errors
    /// See [`RegAllocError`].
    pub fn allocate_without_frame(&self, regs: &RegInfo, need: &[u16]) -> Result<Option<Allocation>, RegAllocError> {
        if need.iter().zip(&regs.files).any(|(n, f)| usize::from(*n) > f.order.len()) {
            return Ok(None);
        }
        match self.scanned(regs) {
            Scanned::Unsplit(w) => return self.proved(regs, w.allocation(self.func, regs)).map(Some),
            Scanned::Full => return Ok(None),
            Scanned::NeedsSplit => {}
        }
        let mut pieces = spill::Pieces::new(self.func, regs, &self.live, &self.taken);
        if !color::color(&mut pieces, &self.hints, false)? {
            return Ok(None);
        }
        self.resolved(regs, &pieces).map(Some)
    }

    /// Allocates registers. In debug builds the result is verified by [`check`].
    ///
    /// # Errors
    /// See [`RegAllocError`].
    pub fn allocate(&self, regs: &RegInfo) -> Result<Allocation, RegAllocError> {
        if let Scanned::Unsplit(w) = self.scanned(regs) {
            return self.proved(regs, w.allocation(self.func, regs));
        }
        self.in_pieces(regs)
    }

    /// Allocates registers with splitting and spilling.
    fn in_pieces(&self, regs: &RegInfo) -> Result<Allocation, RegAllocError> {
        let mut pieces = spill::Pieces::new(self.func, regs, &self.live, &self.taken);
        pieces.find_rematerialisable();
        spill::reduce_pressure(&mut pieces);
        color::color(&mut pieces, &self.hints, true)?;
        self.resolved(regs, &pieces)
    }

    /// Allocation without splitting, if possible.
    fn scanned(&self, regs: &RegInfo) -> Scanned {
        if !self.taken.is_empty() {
            return Scanned::NeedsSplit;
        }
        let (func, ranges) = (self.func, &self.live.ranges);
        let values = Values { classes: &func.vregs, ranges, points: 2 * func.insts.len() + 2 };
        let order = self.order.get_or_init(|| scan::order(values, regs));
        scan::scan(values, regs, color::Choice::new(&func.vregs, regs, &self.hints), order)
    }

    fn resolved(&self, regs: &RegInfo, pieces: &spill::Pieces) -> Result<Allocation, RegAllocError> {
        self.proved(regs, resolve::resolve(pieces))
    }

    fn proved(&self, regs: &RegInfo, out: Allocation) -> Result<Allocation, RegAllocError> {
        if cfg!(debug_assertions) {
            check(self.func, regs, &out)?;
        }
        Ok(out)
    }
}

/// Allocates registers once; see [`Analysis::allocate`].
///
/// # Errors
/// See [`RegAllocError`].
pub fn allocate(func: &Func, regs: &RegInfo) -> Result<Allocation, RegAllocError> {
    Analysis::new(func)?.allocate(regs)
}

/// The maximum register pressure of each file.
///
/// # Errors
/// A value is read before it is written, or a label is not placed.
pub fn pressure(func: &Func, regs: &RegInfo) -> Result<Vec<u16>, RegAllocError> {
    Ok(Analysis::new(func)?.pressure(regs))
}

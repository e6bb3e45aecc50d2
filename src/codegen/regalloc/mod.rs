//! Register allocation for all targets.
//!
//! Models: virtual registers of a linear function (labels, jumps, loops; not SSA) are given physical registers, singly or as
//! aligned tuples; what does not fit goes to the frame for a while. Arrows: knows no target and no UOp; a target describes its
//! registers ([`RegInfo`]) and its instructions ([`Func`]) and applies the [`Allocation`].
//!
//! Method: values in order of their start take a register that is free all their life (`scan`), one pass over the lives and no more. `lives` notes
//! those from a walk over blocks from their ends, ours ([`Analysis`]) or a target's own ([`Sight`], then [`whole`]). Where
//! one finds none, or instructions name registers themselves, four steps, each a file:
//! 1. `live`: blocks, loops, liveness, and per value its live segments with holes;
//! 2. `spill`: wherever more is live than there are registers, the value whose gap between two uses is longest and cheapest (by
//!    loop depth) leaves its register for that gap. A value that a loop does not use leaves around the whole loop; constants are
//!    repeated instead of stored;
//! 3. `color`: pieces in order of their start take a register that is free over their segments; a piece that finds none is split
//!    where the best register ends;
//! 4. `resolve`: moves between the pieces of a value, inside blocks and on edges, as ordered edits.
//!
//! `checker` proves the result by abstract interpretation and shares no code with the four. Sources: linear scan with holes
//! (Wimmer, Mössenböck 2005), spilling apart from colouring (Braun, Hack 2009), the checker's idea from regalloc2.
//! Left out: sub-register operands (a partial write is a `Mod` of the whole), calls' argument shuffles.

pub mod checker;
mod color;
mod func;
mod live;
mod lives;
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
pub use lives::{Lives, Sight};
pub use scan::{Values, Whole, whole};

/// Why a function has no allocation.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegAllocError {
    /// A value is read on some path before anything wrote it.
    #[error("register allocation: v{vreg} is read before it is written")]
    Undefined {
        /// The virtual register.
        vreg: u32,
    },
    /// A jump to a label that no instruction places.
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
    /// The checker refused the result: a fault in the allocator.
    #[error("register allocation is wrong: {0}")]
    Check(#[from] CheckError),
}

/// What is known of a function whatever registers there are: blocks, loops, lives of values. Classes are as wide in all that is asked.
pub struct Analysis<'a> {
    func: &'a Func,
    live: live::Live<'a>,
    hints: color::Hints,
    taken: Vec<spill::Taken>,
    /// The values in order of their start: made for the first try.
    order: OnceCell<Vec<u32>>,
}

impl<'a> Analysis<'a> {
    /// Looks at a function.
    ///
    /// # Errors
    /// A value that is read before it is written, a label that is nowhere.
    pub fn new(func: &'a Func) -> Result<Analysis<'a>, RegAllocError> {
        let (live, hints, taken) = (live::Live::new(func)?, color::Hints::of(func), spill::taken(func));
        Ok(Analysis { func, live, hints, taken, order: OnceCell::new() })
    }

    /// The most registers of each file that are wanted at once.
    #[must_use]
    pub fn pressure(&self, regs: &RegInfo) -> Vec<u16> {
        spill::most_wanted(self.func, regs, &self.live)
    }

    /// Allocates registers as long as no value has to go to the frame; `None`: one has to. `need` is the [`Analysis::pressure`].
    ///
    /// # Errors
    /// See [`RegAllocError`].
    pub fn allocate_without_frame(&self, regs: &RegInfo, need: &[u16]) -> Result<Option<Allocation>, RegAllocError> {
        if need.iter().zip(&regs.files).any(|(n, f)| usize::from(*n) > f.order.len()) {
            return Ok(None);
        }
        match self.scanned(regs) {
            Scanned::Whole(w) => return self.proved(regs, w.allocation(self.func, regs)).map(Some),
            Scanned::Full => return Ok(None),
            Scanned::Parted => {}
        }
        let mut pieces = spill::Pieces::new(self.func, regs, &self.live, &self.taken);
        if !color::color(&mut pieces, &self.hints, false)? {
            return Ok(None);
        }
        self.resolved(regs, &pieces).map(Some)
    }

    /// Allocates registers. In debug builds the result is proved by [`check`].
    ///
    /// # Errors
    /// See [`RegAllocError`].
    pub fn allocate(&self, regs: &RegInfo) -> Result<Allocation, RegAllocError> {
        if let Scanned::Whole(w) = self.scanned(regs) {
            return self.proved(regs, w.allocation(self.func, regs));
        }
        self.in_pieces(regs)
    }

    /// Registers for lives that may be parted and go to the frame.
    fn in_pieces(&self, regs: &RegInfo) -> Result<Allocation, RegAllocError> {
        let mut pieces = spill::Pieces::new(self.func, regs, &self.live, &self.taken);
        pieces.find_constants();
        spill::relieve(&mut pieces);
        color::color(&mut pieces, &self.hints, true)?;
        self.resolved(regs, &pieces)
    }

    /// One register for each value all its life, where there is one.
    fn scanned(&self, regs: &RegInfo) -> Scanned {
        if !self.taken.is_empty() {
            return Scanned::Parted;
        }
        let (func, lives) = (self.func, &self.live.lives);
        let values = Values { classes: &func.vregs, lives, points: 2 * func.insts.len() + 2 };
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

/// Allocates registers: [`Analysis::allocate`] for who allocates once.
///
/// # Errors
/// See [`RegAllocError`].
pub fn allocate(func: &Func, regs: &RegInfo) -> Result<Allocation, RegAllocError> {
    Analysis::new(func)?.allocate(regs)
}

/// The most registers of each file that are wanted at once.
///
/// # Errors
/// A value that is read before it is written, a label that is nowhere.
pub fn pressure(func: &Func, regs: &RegInfo) -> Result<Vec<u16>, RegAllocError> {
    Ok(Analysis::new(func)?.pressure(regs))
}

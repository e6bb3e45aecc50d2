//! Context that the passes share.

use super::Phase;
use super::optimise::facts::RegisterFacts;
use super::optimise::unroll::Rolled;
use super::read::call::Signatures;
use super::read::flat::Body;
use super::read::source::Store;
use crate::ptx::Pos;
use crate::sass::SmArch;

/// Context of one assembly: the same for all kernels and functions of a module.
pub(super) struct Context<'a> {
    /// What the chip's code is for.
    pub chip: SmArch,
    /// The chip lacks something that the text needs, and its position is to be found.
    pub blame: bool,
    /// Owns the lists that instructions refer to.
    pub store: &'a Store<'a>,
    /// The module's functions.
    pub functions: Signatures,
    /// Called at the end of each phase.
    pub done: &'a dyn Fn(Phase),
}

/// One kernel or function: its body before selection. Selection only reads it, so that it can be selected again.
pub(crate) struct Unit<'c, 'a> {
    pub ctx: &'c Context<'a>,
    /// Number of the module's function; `None`: a kernel.
    pub number: Option<u32>,
    /// Where the text declares it.
    pub pos: Pos,
    /// Maximum number of general registers of a thread, without the two that the hardware reserves.
    pub registers: u16,
    /// Warps of a block.
    pub block_warps: u64,
    /// Instructions of the text in it.
    pub source_instructions: u32,
    pub body: Body<'a>,
    pub facts: RegisterFacts,
    /// The body before its loops were unrolled, if any was.
    pub rolled: Option<Rolled<'a>>,
}

impl Unit<'_, '_> {
    /// General registers that the allocator may use: with `setmaxnreg`, the largest count of any warp.
    pub(crate) fn limit(&self) -> u16 {
        self.body.pool.map_or(self.registers, |p| self.registers.max(p.most.saturating_sub(2)).min(253))
    }
}

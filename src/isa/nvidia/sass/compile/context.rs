//! What the passes share, so that no pass takes a list of it.

use super::Phase;
use super::optimise::facts::RegisterFacts;
use super::optimise::unroll::Rolled;
use super::read::call::Signatures;
use super::read::flat::Body;
use super::read::source::Store;
use crate::ptx::Pos;
use crate::sass::SmArch;

/// Of one assembly: what is the same for all kernels and functions of a module.
pub struct Context<'a> {
    /// What the chip's code is for.
    pub chip: SmArch,
    /// The chip lacks something that the text wants: its place is to be found.
    pub blame: bool,
    /// Owns what lists of instructions point to.
    pub store: &'a Store<'a>,
    /// The module's functions.
    pub functions: Signatures,
    /// Is called at the end of each phase.
    pub done: &'a dyn Fn(Phase),
}

/// Of one kernel or function: its body as the passes before selection left it. Selection only reads it, so that it can
/// be selected again.
pub struct Unit<'c, 'a> {
    pub ctx: &'c Context<'a>,
    /// Which of the module's functions it is; `None`: a kernel.
    pub number: Option<u32>,
    /// Where the text declares it.
    pub pos: Pos,
    /// General registers that a thread may have, without the two of the hardware.
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
    /// General registers that the allocator may give out: where warps hand registers to each other, those of the warps
    /// that take most.
    pub fn limit(&self) -> u16 {
        self.body.pool.map_or(self.registers, |p| self.registers.max(p.most.saturating_sub(2)).min(253))
    }
}

//! Finds instructions that come too early: a checker of finished machine code.
//!
//! It reads the bytes that a chip would get, whatever tool made them, so it checks generated code (in debug builds each
//! kernel goes through it), hand-written code and that of other compilers by the same rules: [`waits`] no register of a
//! load that may still be in flight is touched, and LDS is settled before a barrier; [`states`] and [`scalars`] pairs
//! of instructions that the chip does not interlock (docs/amd-isa.md 5.6, 5.7).
//!
//! Place in the arrows: takes the output of `decode`; it shares no code with the passes in `finish` that insert waits
//! and nops. Method: from each instruction that leaves something open a walk along all paths, until an instruction
//! settles it or conflicts with it.
//!
//! Left out: hazards of instructions that compute kernels do not use (GWS, LDS-direct, exports), wave64 of gfx11 and
//! gfx12, order of memory accesses between waves, code reached by computed jumps (refused, except for a constant added
//! to the program counter).

mod flow;
mod scalars;
mod states;
mod waits;

use super::{Chip, DecodeError, Target};
use flow::Code;

/// Why code must not run.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckError {
    #[error("byte {offset:#x}: {error}")]
    Decode { offset: u32, error: DecodeError },
    #[error("byte {offset:#x}: {text}: it is not known where this goes")]
    Jump { offset: u32, text: String },
    #[error("byte {offset:#x}: {text}: {what} of byte {first:#x} ({first_text}) may not have come")]
    Unwaited { offset: u32, text: String, what: String, first: u32, first_text: String },
    #[error("byte {offset:#x}: {text}: {rule} (byte {first:#x}: {first_text}): {have} of {want} between")]
    TooEarly { offset: u32, text: String, rule: &'static str, first: u32, first_text: String, have: u32, want: u32 },
}

/// Checks the code that starts at the first byte of `text` and what can be reached from there.
///
/// # Errors
/// The first thing found, see [`CheckError`].
pub fn check(target: Target, text: &[u8]) -> Result<(), CheckError> {
    let code = Code::read(target, text)?;
    waits::check(&code, target.chip)?;
    match target.chip {
        Chip::Gfx942 => states::check(&code, states::CDNA3),
        Chip::Gfx1100 => states::check(&code, states::RDNA).and_then(|()| states::transcendental(&code)),
        Chip::Gfx1201 => states::check(&code, states::RDNA).and_then(|()| scalars::check(&code)),
    }
}

//! Hazards: combinations that the chip does not interlock and that a compiler must keep apart, checked as a wave runs.
//!
//! Source: amd.md 5.7.

use super::Chip;
use super::fault::R;
use super::inst::Inst;
use super::wave::Wave;

/// Books of one wave.
pub(super) struct Hazards {
    clock: u32,
}

impl Hazards {
    pub fn new(_chip: Chip, _registers: usize) -> Self {
        Self { clock: 0 }
    }
}

/// Finds a rule that the next instruction breaks.
pub(super) fn check(_w: &Wave, _i: &Inst) -> R<()> {
    Ok(())
}

/// Remembers what the instruction did.
pub(super) fn note(w: &mut Wave, _i: &Inst) {
    w.hazards.clock += 1;
}

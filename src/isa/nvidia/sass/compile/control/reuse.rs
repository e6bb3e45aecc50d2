//! The operand reuse cache: an operand that the next instruction reads in the same slot need not be read from the
//! register file again.
//!
//! A flag keeps the value that this instruction read for the next one. So this instruction must not write the register,
//! nothing may come between (a label, a jump, a wait for a result), and the scheduler must stay with the warp. Source:
//! where ptxas 13.5.37 sets the flags.

use super::sync::ScheduledInst;
use crate::sass::compile::schedule::list::Node;
use crate::sass::{Access, Instruction, Pipe, RegFile};

/// Sets the flags; `places` are the positions of labels.
pub(crate) fn reuse(code: &mut [ScheduledInst], nodes: &[Node], places: &[usize]) {
    let mut entered = vec![false; code.len() + 1];
    places.iter().for_each(|p| entered[*p] = true);
    for (i, entered) in entered.iter().enumerate().take(code.len()).skip(1) {
        let (before, after) = code.split_at_mut(i);
        let ([.., this], [next, ..]) = (before, after) else { continue };
        let apart = *entered || next.inst.control.wait != 0 || this.inst.control.yields;
        let (Some(a), Some(b)) = (this.node, next.node) else { continue };
        if apart || !arithmetic(&this.inst) || !arithmetic(&next.inst) {
            continue;
        }
        let (effects, later) = (&nodes[a as usize].effects, &nodes[b as usize].effects);
        for read in effects.reads.iter().filter(|r| r.file == RegFile::General) {
            let again =
                |a: &Access| a.slot == read.slot && a.file == read.file && (a.first, a.count) == (read.first, 1);
            let written = effects.writes.iter().any(|w| w.file == read.file && overlaps(w, read.first));
            if !written && later.reads.iter().any(again) {
                this.inst.reuse(read.slot);
            }
        }
    }
}

fn overlaps(w: &Access, register: u8) -> bool {
    (w.first..w.first.saturating_add(w.count)).contains(&register)
}

/// Instructions that always execute and read their operands at issue.
fn arithmetic(inst: &Instruction) -> bool {
    let pipe = matches!(inst.form().pipe, Pipe::Alu | Pipe::Fma | Pipe::Imad | Pipe::Half);
    pipe && inst.guard.index == 7 && !inst.guard.not
}

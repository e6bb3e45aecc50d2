//! Finds the instruction of the text that needs something the chip lacks. Used only after an assembly has failed,
//! because lowering does not track the text.

use super::context::Unit;
use super::lines::Line;
use super::mir::{Code, Mach};
use super::read::flat::Item;
use super::{AsmError, passes};
use crate::sass::Instruction;

/// Reports the first instruction of the text that becomes an instruction the chip does not have.
///
/// # Errors
/// That instruction, with its position.
pub(super) fn known_on_chip(unit: &Unit, code: &Code) -> Result<(), AsmError> {
    let all = code.order.iter().flat_map(|b| &code.blocks[*b].ops);
    let refused =
        |m: &Mach| Some((m.pos, passes::lower(vec![Line::Inst(with_registers(m), None)], unit.ctx.chip).err()?));
    let Some((pos, what)) = all.filter_map(refused).min_by_key(|(pos, _)| (pos.line, pos.column)) else {
        return Ok(());
    };
    let name = unit.body.items.iter().find_map(|i| match i {
        Item::Inst(i) if (i.pos.line, i.pos.column) == (pos.line, pos.column) => Some(i.name()),
        _ => None,
    });
    Err(AsmError::new(pos, format!("{}: {what}", name.unwrap_or_default())))
}

/// The instruction with register 0 in every place of a register: what it becomes may depend on there being one.
fn with_registers(m: &Mach) -> Instruction {
    let mut inst = m.inst;
    // A place that register 0 does not fit is reported by the encoder.
    m.regs.iter().for_each(|r| drop(Mach::placed(&mut inst, r, 0)));
    inst
}

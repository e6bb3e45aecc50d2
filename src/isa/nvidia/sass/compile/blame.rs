//! Which instruction of the text wants what the chip lacks: asked for when an assembly was refused, since lowering no
//! longer knows the text.

use super::context::Unit;
use super::lines::Line;
use super::mir::{Code, Mach};
use super::read::flat::Item;
use super::{AsmError, passes};

/// The first instruction of the text that becomes one that the chip has not is an error.
///
/// # Errors
/// That instruction, with its place.
pub fn known_on_chip(unit: &Unit, code: &Code) -> Result<(), AsmError> {
    let all = code.order.iter().flat_map(|b| &code.blocks[*b].ops);
    let refused = |m: &Mach| Some((m.pos, passes::lower(vec![Line::Inst(m.inst, None)], unit.ctx.chip).err()?));
    let Some((pos, what)) = all.filter_map(refused).min_by_key(|(pos, _)| (pos.line, pos.column)) else {
        return Ok(());
    };
    let name = unit.body.items.iter().find_map(|i| match i {
        Item::Inst(i) if (i.pos.line, i.pos.column) == (pos.line, pos.column) => Some(i.name()),
        _ => None,
    });
    Err(AsmError::new(pos, format!("{}: {what}", name.unwrap_or_default())))
}

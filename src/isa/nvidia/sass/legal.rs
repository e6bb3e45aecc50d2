//! Which values of an instruction's fields go together.
//!
//! Fields by themselves say which values they have; rules say which values contradict each other: a 64-bit load into an
//! odd register, a scope without an order, a matrix shape of another type. Source: nvdisasm 13.5.37, which refuses such
//! words; learnt form by form from random ones (`tools/sass_rows.py` writes what was found into the table). What ptxas
//! never makes and nvdisasm reads all the same is legal here.

use super::inst::{Instruction, field_name, named};
use super::row::{Field, Kind, Role, Rule};
use std::fmt::Write;

/// The class of a field's value, as rules count: of a list its value, of registers how they are aligned, of others
/// whether they are there.
pub(super) fn class(field: &Field, value: u64) -> u32 {
    let register = matches!(field.kind, Kind::R | Kind::UR);
    match field.kind {
        Kind::List(_) => u32::try_from(value).unwrap_or(u32::MAX),
        _ if register || matches!(field.role, Role::Register | Role::Uniform) => match value {
            none if none == field.none() => 3,
            odd if odd % 2 == 1 => 2,
            value => u32::from(value % 4 == 2),
        },
        Kind::P | Kind::UP | Kind::PInverted | Kind::UPInverted => u32::from(value == field.none()),
        _ => u32::from(value != 0),
    }
}

/// Whether the instruction has a value of every class that the rule names.
fn breaks(inst: &Instruction, rule: &Rule) -> bool {
    rule.chips.has(inst.chip())
        && rule.tests.iter().all(|(i, classes)| {
            let i = usize::from(*i);
            let class = class(&inst.form().fields[i], inst.at(i)); // PANIC: rules name fields of their form
            class < 64 && classes >> class & 1 == 1
        })
}

/// The values that contradict each other, as text; `None`: it is an instruction of its chip.
pub(super) fn contradiction(inst: &Instruction) -> Option<String> {
    let rule = inst.form().rules.iter().find(|r| breaks(inst, r))?;
    let mut text = String::new();
    for (i, _) in rule.tests {
        let i = usize::from(*i);
        let (field, value) = (&inst.form().fields[i], inst.at(i)); // PANIC: as above
        let joint = if text.is_empty() { "" } else { ", " };
        let _ = match named(field, value) {
            Some(name) => write!(text, "{joint}{} {name:?}", field_name(field)),
            None => write!(text, "{joint}{} {value:#x}", field_name(field)),
        };
    }
    Some(text)
}

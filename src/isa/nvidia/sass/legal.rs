//! Which values of an instruction's fields may be combined.
//!
//! Fields define their own values; rules say which combinations are illegal: a 64-bit load into an odd register, a
//! scope without an order, a matrix shape of another type. Source: nvdisasm 13.5.37, which rejects such words; inferred
//! form by form from random ones (`tools/sass_rows.py` writes the results into the table). Words that ptxas never
//! generates but nvdisasm accepts are legal here.

use super::inst::{Instruction, field_name, named};
use super::row::{Field, Kind, Role, Rule};
use std::fmt::Write;

/// The class of a field's value in a rule: for lists the value, for registers the alignment, for others whether it is
/// set.
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

/// Whether the instruction has values of all classes in the rule.
fn breaks(inst: &Instruction, rule: &Rule) -> bool {
    rule.chips.has(inst.chip())
        && rule.tests.iter().all(|(i, classes)| {
            let i = usize::from(*i);
            let class = class(&inst.form().fields[i], inst.at(i)); // PANIC: rules name fields of their form
            class < 64 && classes >> class & 1 == 1
        })
}

/// The conflicting values, as text; `None`: the instruction is legal on its chip.
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

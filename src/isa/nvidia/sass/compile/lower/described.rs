//! The memory descriptor, which accesses to global memory have as an operand besides the address.
//!
//! It is a word of the launch (0 by default), and is kept in a uniform pair from the kernel's start. From Hopper on
//! ptxas uses it in nearly every access, and so do we; before, only copies to shared memory require it.

use super::chips::copied;
use super::constants::load;
use crate::sass::compile::lines::Line;
use crate::sass::row::{Form, Pipe, Role};
use crate::sass::{Instruction, SmArch, op};

/// The uniform pair that holds it.
pub(crate) const DESCRIPTOR: u64 = 60;
/// Where it is in bank 0.
const PLACE: u64 = 0x208;

/// Forms without it, and those with it. Compare-and-swap has none.
static FORMS: [(&Form, &Form); 10] = [
    (op::LDG_R, op::LDG_D),
    (op::STG_R, op::STG_D),
    (op::LD_R, op::LD_D),
    (op::ST_R, op::ST_D),
    (op::ATOMG_R, op::ATOMG_D),
    (op::ATOMG_FR, op::ATOMG_FD),
    (op::ATOM_R, op::ATOM_D),
    (op::ATOM_FR, op::ATOM_FD),
    (op::REDG_R, op::REDG_D),
    (op::REDG_FR, op::REDG_FD),
];

/// Adds the descriptor to accesses, and loads it if one needs it.
///
/// # Errors
/// The load cannot be encoded, which is an error in the table.
pub(crate) fn describe(lines: &mut Vec<Line>, chip: SmArch) -> Result<(), String> {
    let mut wanted = false;
    for line in lines.iter_mut() {
        let Line::Inst(inst, _) = line else { continue };
        match inst.form().pipe {
            Pipe::Global if !chip.is_before_hopper() => {
                let form = FORMS.iter().find(|f| std::ptr::eq(f.0, inst.form())).map(|f| f.1);
                if let Some(described) = form.and_then(|form| with_descriptor(inst, form)) {
                    *inst = described;
                    wanted = true;
                }
            }
            _ => {}
        }
        wanted |= std::ptr::eq(inst.form(), op::LDGSTS_D);
    }
    if wanted {
        lines.insert(0, Line::Inst(load(op::ULDC_C, DESCRIPTOR, 0, PLACE, true)?, None));
    }
    Ok(())
}

/// The access in the form with a descriptor; `None`: its offset does not fit there.
fn with_descriptor(inst: &Instruction, form: &'static Form) -> Option<Instruction> {
    let mut to = match form.mnemonic {
        // Without a descriptor generic accesses have longer offsets.
        "LD" | "ST" => copied(inst, form, inst.chip(), "").ok()?,
        _ => inst.in_form(form),
    };
    to.set("u", Role::Value, DESCRIPTOR).ok()?;
    to.set("m", Role::RegisterSuffix, 1).ok()?;
    Some(to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sass::row::Kind;

    #[test]
    fn forms_with_a_descriptor_have_all_fields_of_those_without_in_the_same_places() {
        for (from, to) in FORMS.iter().filter(|f| !matches!(f.0.mnemonic, "LD" | "ST")) {
            for f in from.fields.iter().filter(|f| !matches!(f.kind, Kind::Must(_))) {
                let other = to.position(f.slot, f.role).map(|i| &to.fields[i]);
                assert!(other.is_some_and(|o| o.bits == f.bits), "{} {}: {f:?}, {other:?}", from.mnemonic, from.name);
            }
        }
    }
}

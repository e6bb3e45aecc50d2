//! Instructions with control words → 128-bit words.
//!
//! In: scheduled instructions in their final order, and each label's position. Out: the kernel's words; branch
//! distances are filled in, a branch to itself ends the code, NOPs pad it. A distance that does not fit into its field
//! is an error.

use super::AsmError;
use super::control::sync::ScheduledInst;
use crate::ptx::Pos;
use crate::sass::{Form, Instruction, Pipe, Role, SmArch, bits, encode, op};

/// Code is padded to a multiple of this many instructions.
pub(super) const PADDING: usize = 8;

/// The words of a kernel; appends the byte offsets of its EXITs to `exits`.
///
/// # Errors
/// A distance or an address does not fit into its field.
pub(crate) fn words(
    mut code: Vec<ScheduledInst>,
    places: &[usize],
    exits: &mut Vec<u32>,
    chip: SmArch,
) -> Result<Vec<u128>, AsmError> {
    let failed = |e: String| AsmError::new(Pos::default(), e);
    let own_form = |form: &'static Form| match form.chips.has(chip) {
        true => form,
        false => Form::find(form.mnemonic, form.name, chip).unwrap_or(op::BRA_I),
    };
    let mut stop = Instruction::on(own_form(op::BRA_I), chip);
    let set = |inst: &mut Instruction, at: usize, to: usize| {
        let distance = (to as i128 - at as i128 - 1) * 4;
        let width = inst.form().position("t", Role::Value).map_or(56, |i| inst.form().fields[i].width());
        let bits = bits::wrapped(distance, width).unwrap_or(u64::MAX);
        inst.set("t", Role::Value, bits).map(|_| ()).map_err(|e| e.to_string())
    };
    let own = code.len();
    set(&mut stop, own, own).map_err(failed)?;
    stop.control.stall = 0;
    stop.control.yields = true;
    code.push(ScheduledInst { inst: stop, target: None, node: None });
    let mut pad = Instruction::on(own_form(op::NOP_N), chip);
    (pad.control.stall, pad.control.yields) = (0, true);
    while !code.len().is_multiple_of(PADDING) {
        code.push(ScheduledInst { inst: pad, target: None, node: None });
    }
    let mut out = Vec::with_capacity(code.len());
    for (at, n) in code.iter_mut().enumerate() {
        let branch = n.inst.form().pipe == Pipe::Branch;
        match n.target {
            // A code position as a number.
            Some(to) if n.inst.form().mnemonic == "MOV" => {
                n.inst.set("b", Role::Value, 16 * places[to] as u64).map_err(|e| failed(e.to_string()))?;
            }
            Some(to) => set(&mut n.inst, at, places[to]).map_err(failed)?,
            // These numbers count from the start of the code.
            None if branch && n.inst.form().mnemonic == "RET" => set(&mut n.inst, at, 0).map_err(failed)?,
            None => {}
        }
        if branch && n.inst.form().mnemonic == "EXIT" {
            exits.push(16 * at as u32);
        }
        out.push(encode(&n.inst).map_err(|e| failed(e.to_string()))?);
    }
    Ok(out)
}

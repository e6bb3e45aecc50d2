//! Instruction → word.

use super::bits;
use super::control::ControlError;
use super::decode::{GUARD, GUARD_NOT};
use super::inst::{Instruction, field_name, form_name};
use super::legal::contradiction;
use thiserror::Error;

/// An instruction that has no word.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    #[error("{form}: {field} has no value {value:#x}")]
    NoSuchValue { form: String, field: String, value: u64 },
    #[error("{form}: {values} do not go together")]
    Illegal { form: String, values: String },
    #[error("{form}: guard {index}: predicates are 0 to 7")]
    Guard { form: String, index: u8 },
    #[error("{form}: {error}")]
    Control { form: String, error: ControlError },
}

/// The word of an instruction.
///
/// # Errors
/// A value that has no meaning in its field; values that do not go together; a control word that does not exist.
pub fn encode(inst: &Instruction) -> Result<u128, EncodeError> {
    let form = inst.form();
    let name = || form_name(form);
    let mut partial = form.partial;
    while partial != 0 {
        let i = partial.trailing_zeros() as usize;
        partial &= partial - 1;
        let (field, value) = (&form.fields[i], inst.at(i)); // PANIC: a field's number
        if !field.has(value) {
            return Err(EncodeError::NoSuchValue { form: name(), field: field_name(field), value });
        }
    }
    if let Some(values) = contradiction(inst) {
        return Err(EncodeError::Illegal { form: name(), values });
    }
    if inst.guard.index > 7 {
        return Err(EncodeError::Guard { form: name(), index: inst.guard.index });
    }
    let word = form.base | inst.word();
    let word = bits::put(word, GUARD, u64::from(inst.guard.index));
    let word = bits::put(word, GUARD_NOT, u64::from(inst.guard.not));
    inst.control.emit(word).map_err(|error| EncodeError::Control { form: name(), error })
}

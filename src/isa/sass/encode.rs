//! Instruction → word.

use super::bits;
use super::control::ControlError;
use super::decode::{GUARD, GUARD_NOT, OPCODE};
use super::inst::{Instruction, field_name, form_name, named};
use super::row::{Field, Kind};
use thiserror::Error;

/// An instruction that has no word.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    #[error("{form}: {field} = {value:#x}: the field has {width} bits")]
    TooWide { form: String, field: String, value: u64, width: u32 },
    #[error("{form}: {field} has no value {value:#x}")]
    NoSuchValue { form: String, field: String, value: u64 },
    #[error("{form}: {field} = {value:#x} contradicts a field that shares its bits")]
    Contradiction { form: String, field: String, value: u64 },
    #[error("{form}: guard {index}: predicates are 0 to 7")]
    Guard { form: String, index: u8 },
    #[error("{form}: {error}")]
    Control { form: String, error: ControlError },
}

/// The word of an instruction.
///
/// # Errors
/// A value that its field cannot hold; a control word that does not exist.
pub fn encode(inst: &Instruction) -> Result<u128, EncodeError> {
    let form = inst.form();
    let name = || form_name(form);
    let mut word = bits::put(0, OPCODE, u64::from(form.opcode));
    for (field, value) in inst.fields() {
        check(inst, field, value)?;
        word = bits::put(word, field.bits, value);
    }
    for (field, value) in inst.fields() {
        if bits::get(word, field.bits) != value {
            return Err(EncodeError::Contradiction { form: name(), field: field_name(field), value });
        }
    }
    if inst.guard.index > 7 {
        return Err(EncodeError::Guard { form: name(), index: inst.guard.index });
    }
    word = bits::put(word, GUARD, u64::from(inst.guard.index));
    word = bits::put(word, GUARD_NOT, u64::from(inst.guard.not));
    inst.control.emit(word).map_err(|error| EncodeError::Control { form: name(), error })
}

fn check(inst: &Instruction, field: &Field, value: u64) -> Result<(), EncodeError> {
    let form = || form_name(inst.form());
    if !bits::fits(value, field.width()) {
        return Err(EncodeError::TooWide { form: form(), field: field_name(field), value, width: field.width() });
    }
    let exists = match field.kind {
        Kind::Must(must) => value == u64::from(must),
        Kind::List(_) => named(field, value).is_some(),
        _ => true,
    };
    if exists { Ok(()) } else { Err(EncodeError::NoSuchValue { form: form(), field: field_name(field), value }) }
}

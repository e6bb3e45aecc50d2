//! Word → instruction. Every word is either an instruction that encodes to the same word, or a named error.

use super::bits::{self, Ranges};
use super::chip::SmArch;
use super::control::{self, Control, ControlError};
use super::inst::{Guard, Instruction, field_name, form_name};
use super::legal::contradiction;
use super::row::{Form, Kind};
use thiserror::Error;

pub(super) const OPCODE: Ranges = &[(0, 11), (91, 91)];
pub(super) const GUARD: Ranges = &[(12, 14)];
pub(super) const GUARD_NOT: Ranges = &[(15, 15)];

/// A word that is not an instruction of the table.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("word {word:#034x}: {reason}")]
pub struct DecodeError {
    pub word: u128,
    pub reason: DecodeReason,
}

/// The reason.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeReason {
    #[error("opcode {opcode:#x} has no form")]
    UnknownOpcode { opcode: u16 },
    #[error("{form}: {field} is {value:#x}, it must be {must:#x}")]
    Must { form: String, field: String, value: u64, must: u64 },
    #[error("{form}: {field} has no value {value:#x}")]
    NoSuchValue { form: String, field: String, value: u64 },
    #[error("{form}: bits {bits:#034x} belong to no field and are set")]
    Reserved { form: String, bits: u128 },
    #[error("{form}: {values} do not go together")]
    Illegal { form: String, values: String },
    #[error(transparent)]
    Control(#[from] ControlError),
}

impl DecodeReason {
    /// The form that matched furthest explains the error best.
    const fn rank(&self) -> u8 {
        match self {
            DecodeReason::UnknownOpcode { .. } => 0,
            DecodeReason::Must { .. } => 1,
            DecodeReason::NoSuchValue { .. } => 2,
            DecodeReason::Reserved { .. } => 3,
            DecodeReason::Illegal { .. } => 4,
            DecodeReason::Control(_) => 5,
        }
    }
}

/// The instruction of a word of sm_90.
///
/// # Errors
/// As [`decode_for`].
pub fn decode(word: u128) -> Result<Instruction, DecodeError> {
    decode_for(word, SmArch::Sm90)
}

/// The instruction of a word of a chip.
///
/// # Errors
/// The opcode has no form there, a field has a value without meaning, values contradict each other, or bits are set
/// that no field has.
#[allow(clippy::cast_possible_truncation)] // an opcode has 13 bits
pub fn decode_for(word: u128, chip: SmArch) -> Result<Instruction, DecodeError> {
    let opcode = bits::get(word, OPCODE) as u16;
    let mut worst = DecodeReason::UnknownOpcode { opcode };
    for form in Form::of_opcode(opcode).filter(|f| f.chips.has(chip)) {
        match decode_as(form, word, chip) {
            Ok(inst) => return Ok(inst),
            Err(reason) if reason.rank() > worst.rank() => worst = reason,
            Err(_) => {}
        }
    }
    Err(DecodeError { word, reason: worst })
}

#[allow(clippy::cast_possible_truncation)] // a guard has three bits
fn decode_as(form: &'static Form, word: u128, chip: SmArch) -> Result<Instruction, DecodeReason> {
    let known = bits::mask(OPCODE) | bits::mask(GUARD) | bits::mask(GUARD_NOT) | bits::mask(control::BITS);
    let mut unknown = None;
    for field in form.fields {
        let value = field.get(word);
        match field.kind {
            Kind::Must(must) if value != u64::from(must) => {
                let (form, field, must) = (form_name(form), field_name(field), u64::from(must));
                return Err(DecodeReason::Must { form, field, value, must });
            }
            Kind::List(_) | Kind::Scoreboard | Kind::URNext if !field.has(value) => {
                unknown = unknown.or(Some((field, value)))
            }
            _ => {}
        }
    }
    if let Some((field, value)) = unknown {
        return Err(DecodeReason::NoSuchValue { form: form_name(form), field: field_name(field), value });
    }
    let rest = word & !(known | form.mask);
    if rest != 0 {
        return Err(DecodeReason::Reserved { form: form_name(form), bits: rest });
    }
    let control = Control::parse_word(word)?;
    let guard = Guard { index: bits::get(word, GUARD) as u8, not: bits::get(word, GUARD_NOT) == 1 };
    let inst = Instruction::from_word(form, chip, guard, control, word & form.mask);
    match contradiction(&inst) {
        None => Ok(inst),
        Some(values) => Err(DecodeReason::Illegal { form: form_name(form), values }),
    }
}

//! Instruction ↔ word, and instruction → text: all by the table's rows.

use super::rows::{Row, all};
use doorbell_isa::IsaError;
use std::sync::OnceLock;

/// The word of an instruction, its operands in the order of the row's fields.
///
/// # Errors
/// An operand that its field cannot hold, as text.
pub fn encode(row: &Row, values: &[i64]) -> Result<u32, String> {
    let mut values = values.iter();
    let mut word = row.base;
    for field in row.fields.iter().filter(|f| f.place().1 > 0) {
        let v = values.next().ok_or_else(|| format!("{}: an operand is missing", row.name))?;
        word |= field.pack(*v).ok_or_else(|| format!("{}: {v} does not fit {field:?}", row.name))?;
    }
    Ok(word)
}

/// The row of a word and its operands; `None`: no instruction of the table.
#[must_use]
pub fn decode(word: u32) -> Option<(&'static Row, Vec<i64>)> {
    static ROWS: OnceLock<Vec<(u32, &Row)>> = OnceLock::new();
    let rows = ROWS.get_or_init(|| all().into_iter().map(|r| (r.fields.iter().map(|f| f.mask()).sum(), r)).collect());
    let (_, row) = rows.iter().find(|(operands, row)| word & !operands == row.base)?;
    let fields = row.fields.iter().filter(|f| f.place().1 > 0);
    Some((row, fields.map(|f| f.unpack(word)).collect()))
}

/// An instruction as an assembler reads it.
#[must_use]
pub fn print(row: &Row, values: &[i64]) -> String {
    let mut out = String::from(row.name);
    let mut values = values.iter();
    let mut between = " ";
    for field in row.fields {
        let v = if field.place().1 > 0 { values.next().copied().unwrap_or(0) } else { 0 };
        if !field.continues(v) {
            out.push_str(between);
            between = ", ";
        }
        out.push_str(&field.text(v));
    }
    out
}

/// Code as text, a line an instruction with its offset; from `code_bytes` on, the words of constants.
///
/// # Errors
/// A word that is no instruction of the table.
pub fn disassemble(text: &[u8], code_bytes: usize) -> Result<String, IsaError> {
    let mut out = String::new();
    for (k, word) in text.chunks(4).enumerate() {
        let mut bytes = [0; 4];
        bytes[..word.len()].copy_from_slice(word);
        let (offset, word) = (4 * k, u32::from_le_bytes(bytes));
        let line = match decode(word) {
            _ if offset >= code_bytes => format!(".word 0x{word:08x}"),
            Some((row, values)) => print(row, &values),
            None => return Err(IsaError::NotCode { offset }),
        };
        out.push_str(&format!("{offset:6x}:  {line}\n"));
    }
    Ok(out)
}

//! A listing: instructions with control words and labels, one a line; text ↔ words.
//!
//! ```text
//! loop:
//!     [B------:R-:W0:-:S02] LDG.E R4, [R2] ;
//!     [B0-----:R-:W-:-:S05] @P0 BRA .loop ;   // a label is named after a dot
//! ```
//! Fields whose value no text shows follow the text: `{c=0x40}`; before them, the form where another has the same text:
//! `{form=U}`. A word that is no instruction of the table is written
//! `.word 0x...`. Control words are not guessed: a line without one is an error.

use super::chip::SmArch;
use super::control::Control;
use super::encode::{EncodeError, encode};
use super::inst::{FieldError, Instruction, field_name};
use super::parse::{ParseError, parse_among, parse_for};
use super::print::print_at;
use super::row::Form;
use thiserror::Error;

/// A line that is not an instruction.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("line {line}: {reason}")]
pub struct SourceError {
    /// From 1.
    pub line: usize,
    pub reason: SourceReason,
}

/// The reason.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceReason {
    #[error("no control word of the form [B------:R-:W-:-:S01] before the instruction")]
    Control,
    #[error(transparent)]
    Parse(#[from] ParseError),
    #[error(transparent)]
    Encode(#[from] EncodeError),
    #[error(transparent)]
    Field(#[from] FieldError),
    #[error("{{{text}}}: hidden fields are written name=0x1")]
    Hidden { text: String },
    #[error("label {label} stands here and in line {first}")]
    Rebound { label: String, first: usize },
    #[error("label {label} stands nowhere")]
    Unbound { label: String },
    #[error(".kernel: {text}")]
    Directive { text: String },
    #[error(".word {text}: a number of 128 bits is written 0x...")]
    Word { text: String },
}

/// The words of a listing for sm_90.
///
/// # Errors
/// As [`assemble_for`].
pub fn assemble(text: &str) -> Result<Vec<u128>, SourceError> {
    assemble_for(text, SmArch::Sm90)
}

/// The words of a listing for a chip.
///
/// # Errors
/// The first line that is no instruction, or a label without an address.
pub fn assemble_for(text: &str, chip: SmArch) -> Result<Vec<u128>, SourceError> {
    let mut labels: Vec<(&str, u64, usize)> = Vec::new();
    let mut lines = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default().trim();
        let name = code.strip_suffix(':').filter(|n| is_name(n));
        match name {
            Some(name) => {
                if let Some(first) = labels.iter().find(|l| l.0 == name) {
                    let reason = SourceReason::Rebound { label: name.to_owned(), first: first.2 };
                    return Err(SourceError { line: i + 1, reason });
                }
                labels.push((name, 16 * lines.len() as u64, i + 1));
            }
            None if code.is_empty() => {}
            None => lines.push((i + 1, code)),
        }
    }
    let word = |(at, (line, code)): (usize, &(usize, &str))| {
        one(code, 16 * at as u64, &labels, chip).map_err(|reason| SourceError { line: *line, reason })
    };
    lines.iter().enumerate().map(word).collect()
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'$')
}

fn one(code: &str, address: u64, labels: &[(&str, u64, usize)], chip: SmArch) -> Result<u128, SourceReason> {
    if let Some(number) = code.strip_prefix(".word") {
        let hex = number.trim().strip_prefix("0x").and_then(|hex| u128::from_str_radix(hex, 16).ok());
        return hex.ok_or_else(|| SourceReason::Word { text: number.trim().to_owned() });
    }
    let end = code.find(']').map(|e| e + 1).filter(|_| code.starts_with('[')).ok_or(SourceReason::Control)?;
    let control = Control::parse(&code[..end]).ok_or(SourceReason::Control)?;
    let (text, hidden) = match code[end..].trim_end().strip_suffix('}').and_then(|t| t.rsplit_once("; {")) {
        Some((text, hidden)) => (text, hidden),
        None => (&code[end..], ""),
    };
    let mut pairs = hidden.split(',').map(str::trim).filter(|p| !p.is_empty()).peekable();
    let form = pairs.peek().and_then(|pair| pair.strip_prefix("form="));
    pairs.next_if(|_| form.is_some());
    let takes = |f: &Form| form.is_none_or(|form| f.name == form);
    let mut inst = parse_among(&with_addresses(text, labels)?, address, chip, &takes)?;
    for pair in pairs {
        hide(&mut inst, pair)?;
    }
    inst.control = control;
    Ok(encode(&inst)?)
}

/// Replaces labels, which are words that begin with a dot, by their addresses.
fn with_addresses(text: &str, labels: &[(&str, u64, usize)]) -> Result<String, SourceReason> {
    let mut out = String::with_capacity(text.len());
    for (i, word) in text.split(' ').enumerate() {
        out.push_str(if i == 0 { "" } else { " " });
        let name = word.trim_end_matches(';').strip_prefix('.').filter(|n| is_name(n));
        match name {
            None => out.push_str(word),
            Some(name) => {
                let place = labels.iter().find(|l| l.0 == name);
                let (_, address, _) = place.ok_or_else(|| SourceReason::Unbound { label: name.to_owned() })?;
                out.push_str(&format!("{address:#x}"));
            }
        }
    }
    Ok(out)
}

/// Sets a field by the name that messages use for it.
fn hide(inst: &mut Instruction, pair: &str) -> Result<(), SourceReason> {
    let bad = || SourceReason::Hidden { text: pair.to_owned() };
    let (name, value) = pair.split_once('=').ok_or_else(bad)?;
    let value = u64::from_str_radix(value.strip_prefix("0x").ok_or_else(bad)?, 16).map_err(|_| bad())?;
    let field = inst.form().fields.iter().find(|f| field_name(f) == name).ok_or_else(bad)?;
    inst.set(field.slot, field.role, value)?;
    Ok(())
}

/// A line of a listing: control word, text, and the fields that the text does not show.
#[must_use]
pub fn listing_line(inst: &Instruction, address: u64) -> String {
    let text = print_at(inst, address);
    let mut line = format!("{} {text} ;", inst.control);
    let form = inst.form();
    let read_back = parse_for(&text, address, inst.chip()).ok().filter(|parsed| parsed.form() == form);
    let mut untold: Vec<String> = if read_back.is_some() { vec![] } else { vec![format!("form={}", form.name)] };
    let Some(parsed) = read_back.or_else(|| parse_among(&text, address, inst.chip(), &|f| f == form).ok()) else {
        return line;
    };
    let fields = inst.fields().zip(parsed.fields()).filter(|(real, parsed)| real.1 != parsed.1);
    untold.extend(fields.map(|(real, _)| format!("{}={:#x}", field_name(real.0), real.1)));
    if !untold.is_empty() {
        line.push_str(&format!(" {{{}}}", untold.join(", ")));
    }
    line
}

//! Text → instruction: the template of each form of the mnemonic is matched against the text, with backtracking where a
//! modifier or an operand may be missing.

use super::bits;
use super::chip::SmArch;
use super::control::Control;
use super::encode::{EncodeError, encode};
use super::inst::{Guard, Instruction};
use super::print::{after, holds, print_at};
use super::row::{Field, File, Form, Kind, Named, Role};
use super::token;
use doorbell_sort as sort;
use smallvec::SmallVec;
use thiserror::Error;

/// A text that is not an instruction. Columns count bytes from 1.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseError {
    #[error("column {column}: no instruction {mnemonic:?}")]
    UnknownMnemonic { column: usize, mnemonic: String },
    #[error("column {column}: the guard is not of the form @P0, @!P0, @UP0")]
    Guard { column: usize },
    /// The chip does not have this instruction.
    #[error("column {column}: {source}")]
    Illegal { column: usize, source: EncodeError },
    #[error("column {column}: no form of {mnemonic} reads on at {rest:?}")]
    Operands { column: usize, mnemonic: String, rest: String },
}

/// The instruction of a text of sm_90, as though it stood at address 0; the control word is the default one.
///
/// # Errors
/// No form of the mnemonic has such modifiers and operands.
pub fn parse(text: &str) -> Result<Instruction, ParseError> {
    parse_at(text, 0)
}

/// The instruction of a text of sm_90 at that byte address: branch targets are absolute.
///
/// # Errors
/// As [`parse_for`].
pub fn parse_at(text: &str, address: u64) -> Result<Instruction, ParseError> {
    parse_for(text, address, SmArch::Sm90)
}

/// The instruction of a chip's text at that byte address: branch targets are absolute.
///
/// A form whose own text is the given one is preferred; fields that no text shows get the values that ptxas gives them.
///
/// # Errors
/// No form of the mnemonic has such modifiers and operands.
pub fn parse_for(text: &str, address: u64, chip: SmArch) -> Result<Instruction, ParseError> {
    parse_among(text, address, chip, &|_| true)
}

/// As [`parse_for`], but only the forms that `takes` wants.
pub(super) fn parse_among(
    text: &str,
    address: u64,
    chip: SmArch,
    takes: &dyn Fn(&Form) -> bool,
) -> Result<Instruction, ParseError> {
    let trimmed = text.trim_end().trim_end_matches(';').trim_end();
    let begin = trimmed.len() - trimmed.trim_start().len();
    let (guard, file, start) = guard(trimmed, begin)?;
    let body = &trimmed[start..];
    let end = body.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
    let mnemonic = &body[..end];
    let mut deepest = 0;
    let mut fallback = None;
    let mut illegal = None;
    let mut known = false;
    for form in Form::of(mnemonic).filter(|f| f.chips.has(chip) && takes(f)) {
        known = true;
        if file.is_some_and(|f| f != form.guard) {
            continue;
        }
        let mut matcher = Matcher::new(form, chip, guard, body, address, &trimmed[begin..]);
        let found = matcher.step(form.text, end);
        deepest = deepest.max(matcher.deepest);
        if found && let Some(inst) = matcher.found {
            return Ok(inst);
        }
        fallback = fallback.or(matcher.found);
        illegal = illegal.or(matcher.illegal);
    }
    if !known {
        return Err(ParseError::UnknownMnemonic { column: start + 1, mnemonic: mnemonic.to_owned() });
    }
    if let (None, Some(source)) = (&fallback, illegal) {
        return Err(ParseError::Illegal { column: start + 1, source });
    }
    let rest = body.get(deepest..).unwrap_or_default().to_owned();
    fallback.ok_or(ParseError::Operands { column: start + deepest + 1, mnemonic: mnemonic.to_owned(), rest })
}

/// Guard, its file if one is written, and where the mnemonic begins.
fn guard(text: &str, begin: usize) -> Result<(Guard, Option<File>, usize), ParseError> {
    let Some(rest) = text[begin..].strip_prefix('@') else {
        return Ok((Guard::ALWAYS, None, begin));
    };
    let not = rest.starts_with('!');
    let name = rest.trim_start_matches('!');
    let read = token::predicate(name).filter(|_| usize::from(not) + name.len() == rest.len());
    let Some((uniform, index, used)) = read else {
        return Err(ParseError::Guard { column: begin + 1 });
    };
    let tail = &name[used..];
    let blanks = tail.len() - tail.trim_start().len();
    if blanks == 0 {
        return Err(ParseError::Guard { column: begin + 1 });
    }
    let file = if uniform { File::UniformPredicate } else { File::Predicate };
    let index = u8::try_from(index).unwrap_or(7);
    Ok((Guard { index, not }, Some(file), text.len() - tail.len() + blanks))
}

type Values = SmallVec<[Option<u64>; 24]>;

/// Conditions on fields that have not been parsed yet, and whether their part was present.
type Pending = SmallVec<[(&'static str, bool); 4]>;

struct Matcher<'a> {
    form: &'static Form,
    chip: SmArch,
    guard: Guard,
    /// From the mnemonic on.
    text: &'a str,
    /// The complete text, which the best match must print as.
    whole: &'a str,
    address: u64,
    values: Values,
    pending: Pending,
    deepest: usize,
    found: Option<Instruction>,
    /// Why the text is not a legal instruction.
    illegal: Option<EncodeError>,
}

impl<'a> Matcher<'a> {
    fn new(
        form: &'static Form,
        chip: SmArch,
        guard: Guard,
        text: &'a str,
        address: u64,
        whole: &'a str,
    ) -> Matcher<'a> {
        let values = SmallVec::from_elem(None, form.fields.len());
        Matcher {
            form,
            chip,
            guard,
            text,
            whole,
            address,
            values,
            pending: SmallVec::new(),
            deepest: 0,
            found: None,
            illegal: None,
        }
    }

    /// Matches the template from here on; true: an instruction was found that prints as the text.
    fn step(&mut self, mut template: &'static str, mut at: usize) -> bool {
        loop {
            self.deepest = self.deepest.max(at);
            let Some(c) = template.bytes().next() else {
                return self.text[at..].trim().is_empty() && self.finish();
            };
            let tail = &template[1..];
            match c {
                b'{' => return self.modifier(tail, at),
                b'<' => return self.place(tail, at),
                b'(' => return self.part(tail, at),
                b')' => template = tail,
                b' ' => {
                    at += self.text[at..].len() - self.text[at..].trim_start().len();
                    template = tail;
                }
                _ => {
                    if self.text.as_bytes().get(at) != Some(&c) {
                        return false;
                    }
                    at += 1;
                    template = tail;
                }
            }
        }
    }

    /// Tries one alternative, and undoes it if it does not match.
    fn try_on(&mut self, set: &[(usize, u64)], template: &'static str, at: usize) -> bool {
        let (values, pending) = (self.values.clone(), self.pending.clone());
        for (i, value) in set {
            self.values[*i] = Some(*value);
        }
        if self.step(template, at) {
            return true;
        }
        (self.values, self.pending) = (values, pending);
        false
    }

    fn modifier(&mut self, tail: &'static str, at: usize) -> bool {
        let (name, after) = tail.split_once('}').unwrap_or((tail, ""));
        if name == "!imad" {
            let names = [".MOV", ".IADD", ".SHL", ""];
            return names.iter().any(|n| self.text[at..].starts_with(n) && self.try_on(&[], after, at + n.len()));
        }
        let Some(i) = self.form.position(name, Role::Value) else { return false };
        let Kind::List(list) = self.form.fields[i].kind else { return false };
        let mut fitting: SmallVec<[&Named; 8]> = list.iter().filter(|n| self.text[at..].starts_with(n.text)).collect();
        sort::by_key(&mut fitting, |n| std::cmp::Reverse(n.text.len()));
        fitting.iter().any(|n| self.try_on(&[(i, u64::from(n.value))], after, at + n.text.len()))
    }

    /// An optional part of the template.
    fn part(&mut self, tail: &'static str, at: usize) -> bool {
        let (condition, inside) = tail.split_once(':').unwrap_or((tail, ""));
        let name = condition.trim_start_matches('!').split("==").next().unwrap_or_default();
        let Some(i) = self.form.position(name, Role::Value) else { return false };
        if let Some(value) = self.values[i] {
            return self.step(if holds(condition, |_| value) { inside } else { after(inside) }, at);
        }
        let pending = self.pending.clone();
        self.pending.push((condition, true));
        if self.try_on(&[], inside, at) {
            return true;
        }
        self.pending = pending;
        self.pending.push((condition, false));
        self.try_on(&[], after(inside), at)
    }

    /// An operand, which may be optional.
    fn place(&mut self, tail: &'static str, at: usize) -> bool {
        let (name, after) = tail.split_once('>').unwrap_or((tail, ""));
        let slot = name.trim_matches(['?', '~']);
        let Some(i) = self.form.position(slot, Role::Value) else { return false };
        let comma = |text: &str| text.starts_with(',').then(|| 1 + text[1..].len() - text[1..].trim_start().len());
        let begin = if name.starts_with('?') { comma(&self.text[at..]).map(|n| at + n) } else { Some(at) };
        let saved = self.values.clone();
        if let Some(end) = begin.and_then(|b| self.operand(slot, i, b)) {
            let end = if name.ends_with('?') { comma(&self.text[end..]).map(|n| end + n) } else { Some(end) };
            if end.is_some_and(|end| self.try_on(&[], after, end)) {
                return true;
            }
        }
        self.values = saved;
        if slot.len() == name.len() {
            return false;
        }
        let none = self.form.fields[i].none();
        match self.form.position(slot, Role::Not) {
            Some(not) => self.try_on(&[(i, none), (not, 0)], after, at),
            None => self.try_on(&[(i, none)], after, at),
        }
    }

    /// Takes a sign if the operand has a field for it.
    fn sign(&mut self, slot: &str, role: Role, signs: &[u8], at: usize) -> usize {
        let Some(i) = self.form.position(slot, role) else { return at };
        let there = self.text.as_bytes().get(at).is_some_and(|b| signs.contains(b));
        self.values[i] = Some(u64::from(there));
        at + usize::from(there)
    }

    /// Reads an operand with its signs; where it ends.
    fn operand(&mut self, slot: &'static str, i: usize, at: usize) -> Option<usize> {
        let mut at = self.sign(slot, Role::Not, b"!", at);
        at = self.sign(slot, Role::Inv, b"~", at);
        at = self.sign(slot, Role::Neg, b"-", at);
        at = self.sign(slot, Role::NegOrInv, b"-~", at);
        let bare = at;
        at = self.sign(slot, Role::Abs, b"|", at);
        let bars = at > bare;
        at = self.core(slot, i, at)?;
        at = self.suffix(slot, Role::Inner, at)?;
        if bars {
            at += usize::from(self.text.as_bytes().get(at) == Some(&b'|'));
        }
        if let Some(reuse) = self.form.position(slot, Role::Reuse) {
            let there = self.text[at..].starts_with(".reuse");
            self.values[reuse] = Some(u64::from(there));
            at += if there { ".reuse".len() } else { 0 };
        }
        let end = self.suffix(slot, Role::Suffix, at)?;
        self.deepest = self.deepest.max(end);
        Some(end)
    }

    /// The longest text of a list at this position.
    fn suffix(&mut self, slot: &str, role: Role, at: usize) -> Option<usize> {
        let Some(i) = self.form.position(slot, role) else { return Some(at) };
        let (value, used) = token::named(&self.form.fields[i], &self.text[at..])?;
        self.values[i] = Some(value);
        Some(at + used)
    }

    fn core(&mut self, slot: &'static str, i: usize, at: usize) -> Option<usize> {
        let field: &'static Field = &self.form.fields[i];
        let text = &self.text[at..];
        let bf16 = self.form.position("bf", Role::Value).and_then(|b| self.values[b]).is_some_and(|v| v != 0);
        let used = match field.kind {
            Kind::Constant(_) | Kind::Bindless | Kind::Address(_) => {
                let (parts, used) = token::compound(field.kind, text)?;
                self.values[i] = Some(0);
                for (role, value) in parts {
                    self.set_part(slot, role, value)?;
                }
                used
            }
            _ => {
                let (value, used) = token::simple(field, text, self.address, bf16)?;
                self.values[i] = Some(value);
                used
            }
        };
        Some(at + used)
    }

    /// A part of an address or constant; a part that the form lacks must be absent.
    fn set_part(&mut self, slot: &str, role: Role, value: token::Part) -> Option<()> {
        let Some(i) = self.form.position(slot, role) else {
            return value.is_nothing().then_some(());
        };
        let field = &self.form.fields[i];
        self.values[i] = Some(match value {
            token::Part::Nothing if matches!(role, Role::Register | Role::Uniform) => field.none(),
            token::Part::Nothing if role == Role::RegisterSuffix => token::named(field, "").map_or(0, |v| v.0),
            token::Part::Zero => field.none(),
            token::Part::Nothing => 0,
            token::Part::Number(n) if role == Role::Uniform && n >= i128::from(field.none()) => return None,
            token::Part::Number(n) => bits::wrapped(n, field.width())?,
            token::Part::Text(text) => token::named(field, text).filter(|v| v.1 == text.len())?.0,
        });
        Some(())
    }

    /// The text is complete: sets the fields that it does not show to their usual values, and prints the instruction
    /// for comparison.
    fn finish(&mut self) -> bool {
        let mut values = self.values.clone();
        for (condition, there) in self.pending.clone() {
            let name = condition.trim_start_matches('!').split("==").next().unwrap_or_default();
            let Some(i) = self.form.position(name, Role::Value) else { return false };
            let usual = self.form.fields[i].unsaid();
            let fitting = |v: &u64| holds(condition, |_| *v) == there;
            let value = values[i].or([usual, 0, 1].into_iter().find(|v| fitting(v)));
            match value.filter(fitting) {
                Some(value) => values[i] = Some(value),
                None => return false,
            }
        }
        let filled: SmallVec<[u64; 24]> =
            self.form.fields.iter().zip(values).map(|(f, v)| v.unwrap_or_else(|| f.unsaid())).collect();
        let made = Instruction::from_values(self.form, self.chip, self.guard, Control::default(), &filled);
        let Some(inst) = made else { return false };
        if let Err(e) = encode(&inst) {
            self.illegal.get_or_insert(e);
            return false;
        }
        let best = same(&print_at(&inst, self.address), self.whole);
        if best || self.found.is_none() {
            self.found = Some(inst);
        }
        best
    }
}

/// Whether two texts differ only in spaces.
fn same(a: &str, b: &str) -> bool {
    a.chars().filter(|c| *c != ' ').eq(b.chars().filter(|c| *c != ' '))
}

//! The words of an instruction's text: registers, numbers, constants, addresses.

use super::bits;
use super::float::{self, Format};
use super::row::{Field, Kind, Role, Style};
use smallvec::SmallVec;

/// A part of a compound operand, as parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    /// Not written.
    Nothing,
    /// The register "none": URZ.
    Zero,
    Number(i128),
    Text(&'a str),
}

impl Part<'_> {
    pub(super) fn is_nothing(self) -> bool {
        matches!(self, Part::Nothing | Part::Text(""))
    }
}

/// The value that was read, and its length in bytes.
type Read = Option<(u64, usize)>;
type Parts<'a> = SmallVec<[(Role, Part<'a>); 5]>;

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// `PREFIX` and a number up to `last`, or `none` by its name.
fn numbered(text: &str, prefix: &str, zero: &str, last: u64, none: u64) -> Read {
    let rest = text.strip_prefix(prefix)?;
    if let Some(after) = rest.strip_prefix(zero) {
        return (!after.starts_with(|c: char| c.is_ascii_alphanumeric())).then_some((none, prefix.len() + zero.len()));
    }
    let n = digits(rest);
    let value = rest[..n].parse().ok().filter(|v| *v <= last)?;
    Some((value, prefix.len() + n))
}

fn register(text: &str) -> Read {
    numbered(text, "R", "Z", 254, 255)
}

/// A uniform register; `None`: URZ.
fn uniform(text: &str) -> Option<(Option<u64>, usize)> {
    let (value, used) = numbered(text, "UR", "Z", 254, 255)?;
    Some((Some(value).filter(|v| *v != 255), used))
}

/// A uniform register as a part of an address or a constant.
fn uniform_part(text: &str) -> Option<(Part<'static>, usize)> {
    uniform(text).map(|(value, used)| (value.map_or(Part::Zero, |v| Part::Number(i128::from(v))), used))
}

/// A predicate: whether it is a uniform one, its number, bytes.
pub(super) fn predicate(text: &str) -> Option<(bool, u64, usize)> {
    let is_uniform = text.starts_with('U');
    let (index, used) = numbered(text, if is_uniform { "UP" } else { "P" }, "T", 6, 7)?;
    Some((is_uniform, index, used))
}

/// A number, hexadecimal or decimal, perhaps negative.
fn number(text: &str) -> Option<(i128, usize)> {
    let sign = usize::from(text.starts_with('-'));
    let rest = &text[sign..];
    let (value, used) = match rest.strip_prefix("0x") {
        Some(hex) => {
            let n = hex.bytes().take_while(u8::is_ascii_hexdigit).count();
            (i128::from(u64::from_str_radix(&hex[..n], 16).ok()?), 2 + n)
        }
        None => {
            let n = digits(rest);
            (i128::from(rest[..n].parse::<u64>().ok()?), n)
        }
    };
    Some((if sign == 1 { -value } else { value }, sign + used))
}

/// The longest text of the field's list that the text begins with.
pub(super) fn named(field: &Field, text: &str) -> Read {
    let Kind::List(list) = field.kind else { return None };
    let best = list.iter().filter(|n| text.starts_with(n.text)).max_by_key(|n| n.text.len())?;
    Some((u64::from(best.value), best.text.len()))
}

/// An operand of one field.
pub(super) fn simple(field: &Field, text: &str, address: u64, bf16: bool) -> Read {
    let of_file = |wanted: bool| predicate(text).filter(|p| p.0 == wanted).map(|p| (p.1, p.2));
    let found = match field.kind {
        Kind::R => register(text),
        Kind::UR => {
            let (value, used) = uniform(text).filter(|u| u.0.is_none_or(|v| v < field.none()))?;
            Some((value.unwrap_or(field.none()), used))
        }
        Kind::URNext => uniform(text).and_then(|(value, used)| Some((value?.checked_sub(1)?, used))),
        Kind::P => of_file(false),
        Kind::UP => of_file(true),
        Kind::PInverted => of_file(false).map(|(v, n)| (7 - v, n)),
        Kind::UPInverted => of_file(true).map(|(v, n)| (7 - v, n)),
        Kind::EitherP => predicate(text).map(|(u, v, n)| (v << 1 | u64::from(u), n)),
        Kind::Signed | Kind::Unsigned | Kind::Decimal => {
            number(text).and_then(|(v, n)| Some((bits::wrapped(v, field.width())?, n)))
        }
        Kind::F32 => float::parse(Format::F32, text),
        Kind::F64High => float::parse(Format::F64High, text),
        Kind::Half => float::parse(if bf16 { Format::Bf16 } else { Format::F16 }, text),
        Kind::Relative => distance(field, text, 16 + i128::from(address)),
        Kind::RegisterRelative => distance(field, text, 0),
        Kind::Barrier => numbered(text, "B", "-", 15, 0),
        Kind::Scoreboard => numbered(text, "SB", "-", 7, 0),
        Kind::Set => set(text),
        Kind::List(_) => named(field, text),
        Kind::Constant(_) | Kind::Bindless | Kind::Address(_) | Kind::Must(_) | Kind::Bits => None,
    };
    found.filter(|f| bits::fits(f.0, field.width()))
}

/// A distance in units of 4 bytes from an origin.
fn distance(field: &Field, text: &str, origin: i128) -> Read {
    let (target, used) = number(text)?;
    let bytes = target - origin;
    let half = 1i128 << (field.width() - 1);
    let there = bytes % 4 == 0 && (-half..half).contains(&(bytes / 4));
    Some((bits::wrapped(bytes / 4, field.width()).filter(|_| there)?, used))
}

/// `{3,1}`
fn set(text: &str) -> Read {
    let inside = text.strip_prefix('{')?.split_once('}')?.0;
    let mut all = 0;
    for n in inside.split(',').filter(|n| !n.is_empty()) {
        all |= 1 << n.trim().parse::<u32>().ok().filter(|n| *n < 64)?;
    }
    Some((all, inside.len() + 2))
}

/// Text between square brackets at the text's beginning, and bytes with them.
fn bracketed(text: &str) -> Option<(&str, usize)> {
    let inside = text.strip_prefix('[')?.split_once(']')?.0;
    Some((inside, inside.len() + 2))
}

/// A constant or an address, in parts.
pub(super) fn compound(kind: Kind, text: &str) -> Option<(Parts<'_>, usize)> {
    match kind {
        Kind::Constant(_) => {
            let (bank, first) = bracketed(text.strip_prefix('c')?)?;
            let rest = &text[1 + first..];
            let blanks = rest.len() - rest.trim_start().len();
            let (inside, second) = bracketed(&rest[blanks..])?;
            let (mut parts, _) = constant_index(inside)?;
            parts.push((Role::Bank, Part::Number(whole_number(bank)?)));
            Some((parts, 1 + first + blanks + second))
        }
        Kind::Bindless => {
            let (handle, first) = bracketed(text.strip_prefix("cx")?)?;
            let rest = &text[2 + first..];
            let blanks = rest.len() - rest.trim_start().len();
            let (inside, second) = bracketed(&rest[blanks..])?;
            let (handle, _) = uniform_part(handle).filter(|u| u.1 == handle.len())?;
            let parts = [(Role::Uniform, handle), (Role::Offset, Part::Number(whole_number(inside)?))];
            Some((parts.into_iter().collect(), 2 + first + blanks + second))
        }
        Kind::Address(style) => {
            let end = text.find(']').unwrap_or(text.len());
            address(style, &text[..end]).map(|parts| (parts, end))
        }
        _ => None,
    }
}

fn whole_number(text: &str) -> Option<i128> {
    number(text.trim()).filter(|n| n.1 == text.trim().len()).map(|n| n.0)
}

/// The offset after a register: `+0x10`, or nothing.
fn offset(text: &str) -> Option<Part<'static>> {
    match text.strip_prefix('+') {
        None if text.is_empty() => Some(Part::Nothing),
        None => None,
        Some(n) => whole_number(n).map(Part::Number),
    }
}

fn constant_index(text: &str) -> Option<(Parts<'_>, usize)> {
    let mut parts = Parts::new();
    let base = register(text).map(|(v, n)| (Part::Number(i128::from(v)), n)).or_else(|| uniform_part(text));
    let used = base.map_or(0, |b| b.1);
    parts.push((Role::Register, base.map_or(Part::Nothing, |b| b.0)));
    let rest = match base {
        Some(_) => offset(&text[used..])?,
        None => Part::Number(whole_number(text)?),
    };
    parts.push((Role::Offset, rest));
    Some((parts, text.len()))
}

fn address(style: Style, text: &str) -> Option<Parts<'_>> {
    let mut parts = Parts::new();
    if let (Style::Base | Style::SignedBase, Some(n)) = (style, whole_number(text)) {
        parts.push((Role::Register, Part::Nothing));
        parts.push((Role::Offset, Part::Number(n)));
        parts.push((Role::RegisterSuffix, Part::Nothing));
        return Some(parts);
    }
    let mut rest = text;
    if let Some((base, used)) = register(rest) {
        rest = &rest[used..];
        let end = rest.find('+').unwrap_or(rest.len());
        parts.push((Role::Register, Part::Number(i128::from(base))));
        parts.push((Role::RegisterSuffix, Part::Text(&rest[..end])));
        rest = &rest[end..];
        if let Some((beside, used)) = rest.strip_prefix('+').and_then(uniform_part) {
            parts.push((Role::Uniform, beside));
            rest = &rest[1 + used..];
        } else if style == Style::BaseAndUniform {
            return None;
        }
    } else if matches!(style, Style::BaseAndUniform | Style::UniformBase) {
        let (beside, used) = uniform_part(rest)?;
        parts.push((Role::Uniform, beside));
        parts.push((Role::Register, Part::Nothing));
        parts.push((Role::RegisterSuffix, Part::Nothing));
        rest = &rest[used..];
    } else {
        return None;
    }
    parts.push((Role::Offset, offset(rest)?));
    Some(parts)
}

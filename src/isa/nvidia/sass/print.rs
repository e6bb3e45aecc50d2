//! Instruction → text, as nvdisasm writes it.

use super::bits;
use super::chip::SmArch;
use super::float::{self, Format};
use super::inst::{Instruction, named};
use super::row::{Field, File, Index, Kind, Role, Style};

/// The instruction's text, as at address 0.
#[must_use]
pub fn print(inst: &Instruction) -> String {
    print_at(inst, 0)
}

/// The instruction's text at that byte address: branch targets are absolute.
#[must_use]
pub fn print_at(inst: &Instruction, address: u64) -> String {
    let mut text = String::with_capacity(64);
    let guard = inst.guard;
    if guard.index != 7 || guard.not {
        let name = predicate(inst.form().guard == File::UniformPredicate, u64::from(guard.index));
        text.push('@');
        text.push_str(if guard.not { "!" } else { "" });
        text.push_str(&name);
        text.push(' ');
    }
    text.push_str(inst.form().mnemonic);
    Printer { inst, address }.template(inst.form().text, &mut text);
    text.truncate(text.trim_end().len());
    text
}

pub(super) fn register(value: u64) -> String {
    if value == 255 { "RZ".to_owned() } else { format!("R{value}") }
}

pub(super) fn uniform(value: u64, none: u64) -> String {
    if value == none { "URZ".to_owned() } else { format!("UR{value}") }
}

pub(super) fn predicate(uniform: bool, value: u64) -> String {
    let file = if uniform { "UP" } else { "P" };
    if value == 7 { format!("{file}T") } else { format!("{file}{value}") }
}

pub(super) fn hex(value: i64) -> String {
    if value < 0 { format!("-{:#x}", value.unsigned_abs()) } else { format!("{value:#x}") }
}

/// Whether a condition of a template holds: `f`, `!f` or `f==1,2`.
pub(super) fn holds(condition: &str, value: impl Fn(&str) -> u64) -> bool {
    if let Some((field, list)) = condition.split_once("==") {
        let value = value(field).to_string();
        return list.split(',').any(|v| v == value);
    }
    match condition.strip_prefix('!') {
        Some(field) => value(field) == 0,
        None => value(condition) != 0,
    }
}

/// The rest of a template after the bracket that closes its first part.
pub(super) fn after(template: &str) -> &str {
    let mut depth = 1;
    for (i, c) in template.bytes().enumerate() {
        match c {
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &template[i + 1..];
        }
    }
    ""
}

struct Printer<'a> {
    inst: &'a Instruction,
    address: u64,
}

impl Printer<'_> {
    fn template(&self, template: &str, out: &mut String) {
        let mut rest = template;
        while let Some(c) = rest.chars().next() {
            let tail = &rest[1..];
            rest = match c {
                '{' => {
                    let (name, after) = tail.split_once('}').unwrap_or((tail, ""));
                    out.push_str(if name == "!imad" { imad_alias(self.inst) } else { self.inst.modifier(name) });
                    after
                }
                '<' => {
                    let (name, after) = tail.split_once('>').unwrap_or((tail, ""));
                    self.place(name, out);
                    after
                }
                '(' => {
                    let (condition, inside) = tail.split_once(':').unwrap_or((tail, ""));
                    let value = |f: &str| self.inst.get(f, Role::Value).unwrap_or(0);
                    if holds(condition, value) { inside } else { after(inside) }
                }
                ')' => tail,
                _ => {
                    out.push(c);
                    tail
                }
            };
        }
    }

    /// An operand, with its comma if it is optional.
    fn place(&self, name: &str, out: &mut String) {
        let slot = name.trim_matches(['?', '~']);
        let Some(i) = self.inst.form().position(slot, Role::Value) else { return };
        let field = &self.inst.form().fields[i];
        let value = self.inst.get(slot, Role::Value).unwrap_or(0);
        let optional = slot.len() < name.len();
        if optional && value == field.none() && !self.inst.flag(slot, Role::Not) {
            return;
        }
        if name.starts_with('?') {
            out.push_str(", ");
        }
        self.operand(field, value, out);
        if name.ends_with('?') {
            out.push_str(", ");
        }
    }

    fn operand(&self, field: &Field, value: u64, out: &mut String) {
        let (slot, inst) = (field.slot, self.inst);
        if inst.flag(slot, Role::Not) {
            out.push('!');
        }
        if inst.flag(slot, Role::Inv) {
            out.push('~');
        }
        if inst.flag(slot, Role::Neg) {
            out.push('-');
        }
        if inst.flag(slot, Role::NegOrInv) {
            out.push(if inst.flag("x", Role::Value) { '~' } else { '-' });
        }
        let bars = inst.flag(slot, Role::Abs);
        if bars {
            out.push('|');
        }
        out.push_str(&self.core(field, value));
        out.push_str(self.part(slot, Role::Inner));
        if bars {
            out.push('|');
        }
        if inst.flag(slot, Role::Reuse) {
            out.push_str(".reuse");
        }
        out.push_str(self.part(slot, Role::Suffix));
    }

    fn part(&self, slot: &str, role: Role) -> &'static str {
        let form = self.inst.form();
        form.position(slot, role)
            .and_then(|i| named(&form.fields[i], self.inst.get(slot, role).unwrap_or(0)))
            .unwrap_or_default()
    }

    fn core(&self, field: &Field, value: u64) -> String {
        let width = field.width();
        match field.kind {
            Kind::R => register(value),
            Kind::UR => uniform(value, field.none()),
            Kind::URNext => uniform(value + 1, field.none()),
            Kind::P => predicate(false, value),
            Kind::UP => predicate(true, value),
            Kind::PInverted => predicate(false, 7 - value),
            Kind::UPInverted => predicate(true, 7 - value),
            Kind::EitherP => predicate(value & 1 == 1, value >> 1),
            Kind::Signed => hex(bits::signed(value, width)),
            Kind::Unsigned => format!("{value:#x}"),
            Kind::Decimal | Kind::Must(_) | Kind::Bits => value.to_string(),
            Kind::F32 => float::text(Format::F32, value),
            Kind::F64High => float::text(Format::F64High, value),
            Kind::Half if self.inst.flag("bf", Role::Value) => float::text(Format::Bf16, value),
            Kind::Half => float::text(Format::F16, value),
            Kind::Relative => hex(4 * bits::signed(value, width) + 16 + self.address.cast_signed()),
            Kind::RegisterRelative => hex(4 * bits::signed(value, width)),
            Kind::Barrier => format!("B{value}"),
            Kind::Scoreboard => format!("SB{value}"),
            Kind::Set => {
                let set: Vec<String> =
                    (0..width).rev().filter(|i| value >> i & 1 == 1).map(|i| i.to_string()).collect();
                format!("{{{}}}", set.join(","))
            }
            Kind::List(_) => named(field, value).unwrap_or_default().to_owned(),
            Kind::Constant(index) => self.constant(field.slot, index),
            Kind::Bindless => {
                format!("cx[{}][{:#x}]", self.uniform(field.slot, Role::Uniform), self.raw(field.slot, Role::Offset))
            }
            Kind::Address(style) => self.memory(field.slot, style),
        }
    }

    fn raw(&self, slot: &str, role: Role) -> u64 {
        self.inst.get(slot, role).unwrap_or(0)
    }

    fn uniform(&self, slot: &str, role: Role) -> String {
        let form = self.inst.form();
        let none = form.position(slot, role).map_or(63, |i| form.fields[i].none());
        uniform(self.raw(slot, role), none)
    }

    fn offset(&self, slot: &str) -> i64 {
        let form = self.inst.form();
        let width = form.position(slot, Role::Offset).map_or(64, |i| form.fields[i].width());
        bits::signed(self.raw(slot, Role::Offset), width)
    }

    fn constant(&self, slot: &str, index: Index) -> String {
        let (bank, offset) = (self.raw(slot, Role::Bank), self.offset(slot));
        let base = self.raw(slot, Role::Register);
        let plus = if offset == 0 { String::new() } else { format!("+{}", hex(offset)) };
        let inside = match index {
            Index::None | Index::Spaced => hex(offset),
            Index::Register if base == 255 && offset != 0 => hex(offset),
            Index::Register => register(base) + &plus,
            // The text of sm_120 omits a register that is "none", that of sm_90 does not.
            Index::Uniform
                if self.inst.chip() == SmArch::Sm120 && self.uniform(slot, Role::Register) == "URZ" && offset != 0 =>
            {
                hex(offset)
            }
            Index::Uniform => self.uniform(slot, Role::Register) + &plus,
        };
        format!("c[{bank:#x}]{}[{inside}]", if index == Index::Spaced || is_narrow(self.inst) { " " } else { "" })
    }

    fn memory(&self, slot: &str, style: Style) -> String {
        let offset = self.offset(slot);
        let plus = if offset == 0 { String::new() } else { format!("+{}", hex(offset)) };
        let (base, suffix) = (self.raw(slot, Role::Register), self.part(slot, Role::RegisterSuffix));
        let beside = || self.uniform(slot, Role::Uniform);
        match style {
            Style::SignedBase if base == 255 && offset != 0 => hex(offset),
            Style::Base if base == 255 && offset != 0 => format!("{:#x}", self.raw(slot, Role::Offset)),
            Style::SignedBase | Style::Base if base == 255 => "RZ".to_owned(),
            Style::SignedBase | Style::Base | Style::Described => register(base) + suffix + &plus,
            Style::BaseAndUniform if base == 255 && suffix.is_empty() => beside() + &plus,
            Style::BaseAndUniform => format!("{}{suffix}+{}{plus}", register(base), beside()),
            Style::UniformBase => beside() + &plus,
        }
    }
}

/// Whether a conversion or a function reads fewer than 32 bits: nvdisasm then writes a blank between a constant's
/// brackets.
fn is_narrow(inst: &Instruction) -> bool {
    match inst.form().mnemonic {
        "F2F" | "F2I" | "FRND" => inst.modifier("st").ends_with("16"),
        "I2F" => inst.modifier("st").ends_with("16") || inst.modifier("st").ends_with('8'),
        "MUFU" => inst.modifier("fmt").ends_with("16"),
        "F2FP" => inst.modifier("st").starts_with(".E"),
        _ => false,
    }
}

/// The name that nvdisasm gives an IMAD by its operands; it is not in the word.
fn imad_alias(inst: &Instruction) -> &'static str {
    if inst.flag("x", Role::Value) {
        return "";
    }
    let kind = |slot| inst.form().position(slot, Role::Value).map(|i| inst.form().fields[i].kind);
    let value = |slot| inst.get(slot, Role::Value).unwrap_or(0);
    let (no_factor, no_addend) = (value("a") == 255, kind("c") == Some(Kind::R) && value("c") == 255);
    match (kind("b"), kind("c")) {
        (Some(Kind::Signed), _) => match value("b") {
            _ if no_factor => ".MOV",
            0 => ".MOV",
            1 if no_addend => ".MOV",
            1 => ".IADD",
            0x1_0000 | 0x8000_0000 => "",
            b if no_addend && b.is_power_of_two() => ".SHL",
            _ => "",
        },
        (Some(Kind::R), Some(Kind::R | Kind::Signed | Kind::Constant(_))) if no_factor || value("b") == 255 => ".MOV",
        (Some(Kind::Constant(_)), _) if no_factor => ".MOV",
        _ => "",
    }
}

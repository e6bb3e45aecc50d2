//! Assembler text → instructions: one line, LLVM's notation.

use super::cache;
use super::chip::{Chip, Target};
use super::encode::dual_row;
use super::format::Format;
use super::inst::{Dpp, DppCtrl, Enc, Inst, Modifiers, Sdwa};
use super::reg::{File, Operand, Reg, SPECIAL};
use super::row::{Imm, Kind, Op, Row};
use super::sdwa;
use super::special;
use super::true16;
use thiserror::Error;

/// Why a line is no instruction; `column` counts bytes from 1.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("column {column}: {what}")]
pub struct ParseError {
    pub column: usize,
    pub what: String,
}

type Parsed<T> = Result<T, ParseError>;

/// A number as assemblers write it.
pub(super) fn number(text: &str) -> Option<i64> {
    let text = text.trim();
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |d| (true, d));
    let magnitude = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None if digits.starts_with(|c: char| c.is_ascii_digit()) => digits.parse().ok()?,
        None => return None,
    };
    Some(if negative { magnitude.cast_signed().wrapping_neg() } else { magnitude.cast_signed() })
}

/// Parses one instruction; names that are no register are handed to `label`.
///
/// # Errors
/// Unknown mnemonic, operand or modifier, with the column.
pub fn parse(target: Target, line: &str, label: &mut dyn FnMut(&str) -> Option<Operand>) -> Result<Inst, ParseError> {
    if let Some((x, y)) = line.split_once("::") {
        let first = parse_half(target, line, x.trim(), Format::VopdX, label)?;
        let second = parse_half(target, line, y.trim(), Format::VopdY, label)?;
        return Ok(Inst::dual(first, second));
    }
    let (mnemonic, rest) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
    let (op, enc) =
        operation(mnemonic).ok_or_else(|| fail(line, mnemonic, format!("unknown instruction {mnemonic}")))?;
    let mut inst = Inst::new(op, []);
    inst.enc = enc;
    inst.mods.sdwa = mnemonic.ends_with("_sdwa").then(Sdwa::default);
    let mut parser = Parser { target, line, rest: rest.trim(), label };
    parser.operands(&mut inst)?;
    parser.modifiers(&mut inst)?;
    Ok(inst)
}

fn parse_half(
    target: Target,
    line: &str,
    text: &str,
    format: Format,
    label: &mut dyn FnMut(&str) -> Option<Operand>,
) -> Parsed<Inst> {
    let (mnemonic, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let op = Op::parse(mnemonic).filter(|&op| dual_row(target.chip, op, format).is_some());
    let op = op.ok_or_else(|| fail(line, mnemonic, format!("{mnemonic} is no half of a dual instruction")))?;
    let mut inst = Inst::new(op, []);
    let mut parser = Parser { target, line, rest: rest.trim(), label };
    parser.operands(&mut inst)?;
    match parser.rest {
        "" => Ok(inst),
        rest => Err(parser.error(rest, "a dual instruction has no modifiers".to_owned())),
    }
}

/// Operation and encoding of a mnemonic.
fn operation(mnemonic: &str) -> Option<(Op, Enc)> {
    if let Some(op) = Op::parse(mnemonic) {
        return Some((op, Enc::Auto));
    }
    let endings =
        [("_sdwa", Enc::E32), ("_e64_dpp", Enc::E64), ("_e32", Enc::E32), ("_e64", Enc::E64), ("_dpp", Enc::E32)];
    endings.into_iter().find_map(|(end, enc)| Some((Op::parse(mnemonic.strip_suffix(end)?)?, enc)))
}

/// An error at `part`, which is a part of `line`.
fn fail(line: &str, part: &str, what: String) -> ParseError {
    let at = (part.as_ptr() as usize).wrapping_sub(line.as_ptr() as usize);
    ParseError { column: if at <= line.len() { at + 1 } else { 1 }, what }
}

struct Parser<'a, 'l> {
    target: Target,
    line: &'a str,
    rest: &'a str,
    label: &'l mut dyn FnMut(&str) -> Option<Operand>,
}

/// Length of the text up to a separator outside of brackets.
fn extent(text: &str, ends: impl Fn(char) -> bool) -> usize {
    let mut depth = 0i32;
    let mut bars = false;
    for (at, c) in text.char_indices() {
        match c {
            '[' | '(' => depth += 1,
            ']' | ')' => depth -= 1,
            '|' => bars = !bars,
            _ => {}
        }
        if depth == 0 && !bars && ends(c) {
            return at;
        }
    }
    text.len()
}

/// The immediate notation of the operand at `index`, if any row of the operation has one there.
fn notation(op: Op, chip: Chip, index: usize) -> Option<Imm> {
    op.rows(chip).find_map(|row: &Row| match row.slots.get(index)?.kind {
        Kind::Imm(imm) => Some(imm),
        _ => None,
    })
}

impl<'a> Parser<'a, '_> {
    fn error(&self, part: &str, what: String) -> ParseError {
        fail(self.line, part, what)
    }

    fn operands(&mut self, inst: &mut Inst) -> Parsed<()> {
        let wants = inst.op.rows(self.target.chip).map(|r| r.slots.len()).max().unwrap_or(0);
        let least = inst.op.rows(self.target.chip).map(|r| r.slots.len()).min().unwrap_or(0);
        while !self.rest.is_empty() && inst.operands.len() < wants {
            let index = inst.operands.len();
            let imm = notation(inst.op, self.target.chip, index);
            let listed = matches!(imm, Some(Imm::Waitcnt | Imm::DelayAlu | Imm::Depctr));
            let end = if listed { self.rest.len() } else { extent(self.rest, |c| c == ',' || c.is_whitespace()) };
            let text = &self.rest[..end];
            if index == 0 && least == 0 && is_modifier(text) {
                break;
            }
            let operand = match imm {
                Some(imm) if text.contains('(') => Operand::Int(i64::from(self.notation(imm, text)?)),
                _ => self.operand(text, inst, index)?,
            };
            inst.operands.push(operand);
            self.rest = self.rest[end..].trim_start();
            match self.rest.strip_prefix(',') {
                Some(rest) => self.rest = rest.trim_start(),
                None => break,
            }
        }
        Ok(())
    }

    /// An immediate in its own notation.
    fn notation(&self, imm: Imm, text: &str) -> Parsed<u16> {
        let calls = || calls(text).ok_or_else(|| self.error(text, format!("cannot read {text}")));
        let numbers = || -> Parsed<Vec<(String, u16)>> {
            let read = |(name, arg): (String, String)| Some((name, u16::try_from(number(&arg)?).ok()?));
            let all: Option<Vec<_>> = calls()?.into_iter().map(read).collect();
            all.ok_or_else(|| self.error(text, format!("cannot read {text}")))
        };
        let chip = self.target.chip;
        let value = match imm {
            Imm::Waitcnt => special::parse_waitcnt(chip, &numbers()?),
            Imm::Depctr => special::parse_depctr(&numbers()?),
            Imm::DelayAlu => special::parse_delay(&calls()?),
            Imm::HwReg => calls()?.first().and_then(|(_, args)| parse_hwreg(chip, args)),
            Imm::GprIdx => calls()?.first().and_then(|(_, args)| special::parse_gpr_idx(&list(args))),
            Imm::Message => calls()?.first().and_then(|(_, args)| special::parse_message(chip, &list(args))),
            _ => None,
        };
        value.ok_or_else(|| self.error(text, format!("no such immediate: {text}")))
    }

    /// An operand with its signs; signs go to the modifiers of the source it is.
    fn operand(&mut self, text: &'a str, inst: &mut Inst, index: usize) -> Parsed<Operand> {
        let (mut inner, mut neg, mut abs) = (text, false, false);
        if let Some(x) = inner.strip_prefix("neg(").and_then(|x| x.strip_suffix(')')) {
            (inner, neg) = (x, true);
        } else if let Some(x) =
            inner.strip_prefix('-').filter(|x| !x.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
        {
            (inner, neg) = (x, true);
        }
        let bars = inner.strip_prefix('|').and_then(|x| x.strip_suffix('|'));
        if let Some(x) = bars.or_else(|| inner.strip_prefix("abs(").and_then(|x| x.strip_suffix(')'))) {
            (inner, abs) = (x.trim(), true);
        }
        let source = self.source_index(inst.op, index);
        if let (Some(x), Some(sdwa)) =
            (inner.strip_prefix("sext(").and_then(|x| x.strip_suffix(')')), inst.mods.sdwa.as_mut())
        {
            inner = x.trim();
            sdwa.sext |= 1 << source.unwrap_or(0);
        }
        if neg || abs {
            let source = source.ok_or_else(|| self.error(text, "no sign is allowed here".to_owned()))?;
            let high = inst.op.name().contains("_mix");
            inst.mods.neg |= u8::from(neg) << source;
            if high {
                inst.mods.neg_hi |= u8::from(abs) << source;
            } else {
                inst.mods.abs |= u8::from(abs) << source;
            }
        }
        let inner = inner.trim();
        let (register_text, high) = match (inner.strip_suffix(".h"), inner.strip_suffix(".l")) {
            (Some(x), _) => (x, true),
            (None, Some(x)) => (x, false),
            (None, None) => return self.plain(inner),
        };
        let Some(reg) = register(register_text).filter(|r| r.file == File::Vgpr && r.words == 1) else {
            return self.plain(inner);
        };
        let bit = true16::operand_bit(inst.op, self.target.chip, index);
        let bit = bit.ok_or_else(|| self.error(inner, "this operand is no half of a register".to_owned()))?;
        inst.mods.op_sel |= if high { bit } else { 0 };
        Ok(Operand::Reg(reg))
    }

    /// Which source the operand at `index` is.
    fn source_index(&self, op: Op, index: usize) -> Option<u8> {
        use super::format::Field;
        op.rows(self.target.chip).find_map(|row| match row.slots.get(index)?.field {
            Field::Src0 => Some(0),
            Field::Src1 | Field::Vsrc1 => Some(1),
            Field::Src2 => Some(2),
            _ => None,
        })
    }

    fn plain(&mut self, text: &'a str) -> Parsed<Operand> {
        if let Some(reg) = register(text) {
            return Ok(Operand::Reg(reg));
        }
        if text == "off" {
            return Ok(Operand::Off);
        }
        if let Some(value) = number(text) {
            return Ok(Operand::Int(value));
        }
        if text.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '.')
            && let Ok(value) = text.parse()
        {
            return Ok(Operand::Float(value));
        }
        let name = text.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '.');
        let found = if name { (self.label)(text) } else { None };
        found.ok_or_else(|| self.error(text, format!("cannot read operand {text:?}")))
    }

    fn modifiers(&mut self, inst: &mut Inst) -> Parsed<()> {
        while !self.rest.is_empty() {
            let end = extent(self.rest, char::is_whitespace);
            let text = self.rest[..end].trim_end_matches(',');
            if !modifier(&mut inst.mods, inst.op, text) {
                return Err(self.error(text, format!("unknown modifier {text}")));
            }
            self.rest = self.rest[end..].trim_start();
        }
        Ok(())
    }
}

/// `a(x) b(y) & c(z) | d(w)` as pairs of name and argument.
fn calls(text: &str) -> Option<Vec<(String, String)>> {
    let mut found = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (name, after) = rest.split_once('(')?;
        let (arg, after) = after.split_once(')')?;
        found.push((name.trim().to_owned(), arg.trim().to_owned()));
        rest = after.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '&' | '|' | ','));
    }
    Some(found)
}

fn list(args: &str) -> Vec<String> {
    args.split(',').map(|a| a.trim().to_owned()).collect()
}

fn parse_hwreg(chip: Chip, args: &str) -> Option<u16> {
    let parts = list(args);
    let small = |text: &String| number(text).and_then(|n| u16::try_from(n).ok());
    let id = special::hwreg_id(chip, &parts[0]).or_else(|| small(&parts[0]).filter(|&n| n < 64))?;
    let (first, bits) = match &parts[1..] {
        [] => (0, 32),
        [first, bits] => (small(first)?, small(bits)?),
        _ => return None,
    };
    (first < 32 && (1..=32).contains(&bits)).then(|| special::hwreg(id, first, bits))
}

/// A register by its text.
fn register(text: &str) -> Option<Reg> {
    for (file, whole, low, high) in SPECIAL {
        if text == *whole {
            return Some(Reg::new(*file, 0, if low.is_empty() { 1 } else { 2 }));
        }
        if !low.is_empty() && (text == *low || text == *high) {
            return Some(Reg::new(*file, u16::from(text == *high), 1));
        }
    }
    let files = [("ttmp", File::Ttmp), ("v", File::Vgpr), ("s", File::Sgpr), ("a", File::Agpr)];
    let (file, rest) = files.into_iter().find_map(|(p, f)| Some((f, text.strip_prefix(p)?)))?;
    if let Some(range) = rest.strip_prefix('[').and_then(|r| r.strip_suffix(']')) {
        let (first, last) = range.split_once(':').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        let words = last.checked_sub(first)?.checked_add(1).filter(|w| *w <= 32)?;
        return Some(Reg::new(file, first, u8::try_from(words).ok()?));
    }
    let digits = !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit());
    let first: u16 = if digits { rest.parse().ok()? } else { return None };
    Some(Reg::new(file, first, 1))
}

fn is_modifier(text: &str) -> bool {
    text.contains(':') || matches!(text, "glc" | "dlc" | "slc" | "sc0" | "sc1" | "nt" | "gds" | "lds" | "clamp" | "tfe")
}

/// Applies one modifier; false: there is none such.
fn modifier(m: &mut Modifiers, op: Op, text: &str) -> bool {
    let (name, value) = text.split_once(':').map_or((text, ""), |(n, v)| (n, v.trim()));
    let flag = match text {
        "clamp" => &mut m.clamp,
        "glc" => &mut m.glc,
        "dlc" => &mut m.dlc,
        "slc" => &mut m.slc,
        "sc0" => &mut m.sc0,
        "sc1" => &mut m.sc1,
        "nt" => &mut m.nt,
        "tfe" => &mut m.tfe,
        "lds" => &mut m.lds,
        "gds" => &mut m.gds,
        "offen" => &mut m.offen,
        "idxen" => &mut m.idxen,
        "nv" => &mut m.nv,
        _ => {
            let dpp = valued(m, op, name, value).is_some() || dpp(m, name, value).is_some();
            return dpp || sdwa::modifier(m, name, value).is_some();
        }
    };
    *flag = true;
    true
}

/// Bits of `[1,0,1]`, the first the lowest.
fn bit_mask(value: &str) -> Option<(u8, u32)> {
    let inner = value.strip_prefix('[')?.strip_suffix(']')?;
    let mut mask = 0u8;
    let mut count = 0;
    for part in inner.split(',') {
        mask |= match part.trim() {
            "0" => 0,
            "1" => 1u8.checked_shl(count)?,
            _ => return None,
        };
        count += 1;
    }
    (count <= 4).then_some((mask, count))
}

fn valued(m: &mut Modifiers, op: Op, name: &str, value: &str) -> Option<()> {
    let byte = || number(value).and_then(|n| u8::try_from(n).ok());
    match name {
        "offset" => {
            m.offset = match value.strip_prefix("swizzle(").and_then(|v| v.strip_suffix(')')) {
                Some(args) => i32::from(special::parse_swizzle(&list(args))?),
                None => i32::try_from(number(value)?).ok()?,
            }
        }
        "offset0" => m.offset = i32::from(byte()?),
        "offset1" => m.offset1 = byte()?,
        "mul" | "div" => {
            m.omod = match (name, value) {
                ("mul", "1") | ("div", "1") => 0,
                ("mul", "2") => 1,
                ("mul", "4") => 2,
                ("div", "2") => 3,
                _ => return None,
            }
        }
        "op_sel" => {
            let (mask, count) = bit_mask(value)?;
            if let Some(op_sel) = true16::from_list(op, mask, count) {
                m.op_sel |= op_sel;
                return Some(());
            }
            // The last of them is the destination where the operation has one more than sources.
            let wide = op.rows_any().any(|r| {
                r.format != Format::Vop3p && r.op_sel_count() == count && count < 4 && r.selects_destination()
            });
            let sources = count.saturating_sub(1);
            m.op_sel = if wide { mask & ((1 << sources) - 1) | (mask >> sources & 1) << 3 } else { mask };
        }
        "op_sel_hi" => m.op_sel_hi = Some(bit_mask(value)?.0),
        "neg_lo" => m.neg = bit_mask(value)?.0,
        "neg_hi" => m.neg_hi = bit_mask(value)?.0,
        "th" => m.th = cache::parse_hint(value).or_else(byte)?,
        "scope" => m.scope = cache::parse_scope(value).or_else(byte)?,
        "cbsz" => m.cbsz = byte()?,
        "abid" => m.abid = byte()?,
        "blgp" => m.blgp = byte()?,
        _ => return None,
    }
    Some(())
}

fn dpp(m: &mut Modifiers, name: &str, value: &str) -> Option<()> {
    let byte = || number(value).and_then(|n| u8::try_from(n).ok());
    let lanes = || -> Option<Vec<u8>> {
        let inner = value.strip_prefix('[')?.strip_suffix(']')?;
        inner.split(',').map(|l| l.trim().parse().ok()).collect()
    };
    if name == "dpp8" {
        m.dpp = Some(Dpp::Dpp8 { lanes: lanes()?.try_into().ok()?, fetch_inactive: false });
        return Some(());
    }
    let control = match name {
        "quad_perm" => Some(DppCtrl::QuadPerm(lanes()?.try_into().ok()?)),
        "row_shl" => Some(DppCtrl::RowShl(byte()?)),
        "row_shr" => Some(DppCtrl::RowShr(byte()?)),
        "row_ror" => Some(DppCtrl::RowRor(byte()?)),
        "row_mirror" => Some(DppCtrl::RowMirror),
        "row_half_mirror" => Some(DppCtrl::RowHalfMirror),
        "row_share" => Some(DppCtrl::RowShare(byte()?)),
        "row_xmask" => Some(DppCtrl::RowXmask(byte()?)),
        "row_newbcast" => Some(DppCtrl::RowNewbcast(byte()?)),
        "wave_shl" => Some(DppCtrl::WaveShl),
        "wave_rol" => Some(DppCtrl::WaveRol),
        "wave_shr" => Some(DppCtrl::WaveShr),
        "wave_ror" => Some(DppCtrl::WaveRor),
        "row_bcast" if value == "15" => Some(DppCtrl::RowBcast15),
        "row_bcast" if value == "31" => Some(DppCtrl::RowBcast31),
        _ => None,
    };
    if let Some(ctrl) = control {
        m.dpp = Some(Dpp::Dpp16 { ctrl, row_mask: 15, bank_mask: 15, bound_ctrl: false, fetch_inactive: false });
        return Some(());
    }
    match (m.dpp.as_mut()?, name) {
        (Dpp::Dpp16 { row_mask, .. }, "row_mask") => *row_mask = byte()?,
        (Dpp::Dpp16 { bank_mask, .. }, "bank_mask") => *bank_mask = byte()?,
        (Dpp::Dpp16 { bound_ctrl, .. }, "bound_ctrl") => *bound_ctrl = byte().is_some(),
        (Dpp::Dpp16 { fetch_inactive, .. } | Dpp::Dpp8 { fetch_inactive, .. }, "fi") => *fetch_inactive = byte()? == 1,
        _ => return None,
    }
    Some(())
}

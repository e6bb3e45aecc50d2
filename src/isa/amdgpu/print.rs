//! Instruction → text, as LLVM's disassembler writes it.

use super::chip::{Chip, Target};
use super::constant::{self, Constant, FLOAT_TEXT, INV_2PI_64};
use super::encode::{EncodeError, dual_row, encode, row_of};
use super::format::Format;
use super::inst::{Dpp, DppCtrl, Inst, Modifiers};
use super::reg::{File, Operand, Reg, SPECIAL};
use super::row::{Allows, Class, Imm, Kind, Row, Slot};
use super::sdwa;
use super::special;
use super::true16;
use std::fmt::Write;

/// A register as text.
#[must_use]
pub(crate) fn reg_text(reg: Reg) -> String {
    let letter = match reg.file {
        File::Vgpr => "v",
        File::Agpr => "a",
        File::Sgpr => "s",
        File::Ttmp => "ttmp",
        file => {
            let whole = |n: &&(File, _, &str, _)| n.0 == file && (n.2.is_empty() || reg.words == 2);
            let name = SPECIAL.iter().find(whole).map(|n| n.1);
            let half = || SPECIAL.iter().find(|n| n.0 == file).map(|n| if reg.first == 0 { n.2 } else { n.3 });
            return name.or_else(half).unwrap_or("?").to_owned();
        }
    };
    match reg.words {
        1 => format!("{letter}{}", reg.first),
        n => format!("{letter}[{}:{}]", reg.first, reg.first + u16::from(n) - 1),
    }
}

/// An operand as text, without what depends on its place.
#[must_use]
pub fn operand_text(operand: &Operand) -> String {
    match operand {
        Operand::Reg(reg) => reg_text(*reg),
        Operand::Int(value) => value.to_string(),
        Operand::Float(value) => format!("{value:?}"),
        Operand::Lit(bits) => format!("{bits:#x}"),
        Operand::Off => "off".to_owned(),
        Operand::Label(n) => format!("L{n}"),
    }
}

/// The instruction as text: that of LLVM 19, and with halves of registers (`v1.h`) only where a high one needs them.
///
/// # Errors
/// It cannot be encoded for the target: its text would not be an instruction.
pub fn print(target: Target, inst: &Inst) -> Result<String, EncodeError> {
    print_as(target, inst, false)
}

/// The instruction as text with every half of a register named (`v1.l`), as LLVM 20 and later write gfx11's.
///
/// # Errors
/// As [`print`].
pub fn print_true16(target: Target, inst: &Inst) -> Result<String, EncodeError> {
    print_as(target, inst, true)
}

fn print_as(target: Target, inst: &Inst, all_halves: bool) -> Result<String, EncodeError> {
    if let Some(second) = inst.dual {
        encode(target, inst)?;
        return Ok(dual_text(target, inst, second));
    }
    let row = row_of(target, inst)?;
    let mut text = format!("{}{}", inst.op.name(), suffix(row, &inst.mods));
    let beyond = true16::beyond_op_sel(row, target.chip, inst.mods.op_sel) != 0;
    let halves = if all_halves || beyond { row.halves(target.chip) } else { 0 };
    let operands = operand_list(target, row, &inst.operands, &inst.mods, halves);
    if !operands.is_empty() {
        let _ = write!(text, " {operands}");
    }
    modifiers(&mut text, target.chip, row, inst);
    Ok(text)
}

fn dual_text(target: Target, inst: &Inst, second: super::row::Op) -> String {
    let half = |op: super::row::Op, format, operands: &[Operand]| {
        let list =
            dual_row(target.chip, op, format).map(|r| operand_list(target, r, operands, &Modifiers::default(), 0));
        format!("{} {}", op.name(), list.unwrap_or_default())
    };
    let split = dual_row(target.chip, inst.op, Format::VopdX).map_or(0, |r| r.slots.len());
    let (x, y) = inst.operands.split_at(split.min(inst.operands.len()));
    format!("{} :: {}", half(inst.op, Format::VopdX, x), half(second, Format::VopdY, y))
}

fn suffix(row: &Row, mods: &Modifiers) -> &'static str {
    let short = matches!(row.format, Format::Vop1 | Format::Vop2 | Format::Vopc);
    if mods.sdwa.is_some() {
        return "_sdwa";
    }
    match (mods.dpp.is_some(), short, row.allows.contains(Allows::SUFFIX)) {
        (true, true, _) if row.format == Format::Vopc => "",
        (true, true, _) => "_dpp",
        (true, false, _) => "_e64_dpp",
        (false, true, true) => "_e32",
        (false, false, true) => "_e64",
        _ => "",
    }
}

fn operand_list(target: Target, row: &Row, operands: &[Operand], mods: &Modifiers, halves: u8) -> String {
    let mut texts = Vec::new();
    for (index, slot) in row.slots.iter().enumerate() {
        let operand = operands.get(index).copied().unwrap_or(Operand::Int(0));
        if matches!(slot.kind, Kind::Imm(Imm::Optional)) && operand == Operand::Int(0) {
            continue;
        }
        let text = slot_text(target, row, slot, operand) + true16::ending(halves, slot, operand, mods.op_sel);
        texts.push(signed(row, slot, &text, mods, operand));
    }
    texts.join(", ")
}

/// Puts signs on a source.
fn signed(row: &Row, slot: &Slot, text: &str, mods: &Modifiers, operand: Operand) -> String {
    use super::format::Field;
    let (Kind::Source { .. } | Kind::Vgpr | Kind::VgprLow) = slot.kind else { return text.to_owned() };
    let index = match slot.field {
        Field::Src0 => 0,
        Field::Src1 | Field::Vsrc1 => 1,
        Field::Src2 => 2,
        _ => return text.to_owned(),
    };
    let mixes = row.op.name().contains("_mix");
    let (neg, abs) = match row.format {
        Format::Vop3p if mixes => (mods.neg, mods.neg_hi),
        Format::Vop3p => (0, 0),
        _ => (mods.neg, mods.abs),
    };
    let has = |mask: u8| mask >> index & 1 == 1;
    if mods.sdwa.is_some_and(|s| has(s.sext)) {
        return format!("sext({text})");
    }
    match (has(neg), has(abs), matches!(operand, Operand::Reg(_))) {
        (false, false, _) => text.to_owned(),
        (true, false, true) => format!("-{text}"),
        (true, false, false) => format!("neg({text})"),
        (false, true, _) => format!("|{text}|"),
        (true, true, _) => format!("-|{text}|"),
    }
}

fn slot_text(target: Target, row: &Row, slot: &Slot, operand: Operand) -> String {
    match (slot.kind, operand) {
        (Kind::Source { class, .. }, Operand::Int(_) | Operand::Float(_) | Operand::Lit(_)) => {
            constant_text(class, operand)
        }
        (Kind::Literal, _) => literal_text(operand, false),
        (Kind::Literal16, _) => literal_text(operand, true),
        (Kind::Imm(imm), Operand::Int(value)) => imm_text(target.chip, imm, value),
        (Kind::ScalarOffset, Operand::Int(value)) => scalar_offset_text(target.chip, row, value),
        _ => operand_text(&operand),
    }
}

/// A constant of a source: an inline one by value, a literal in hexadecimal.
fn constant_text(class: Class, operand: Operand) -> String {
    let constant = match operand {
        Operand::Int(value) => constant::of_int(class, value),
        Operand::Float(value) => constant::of_float(class, value),
        Operand::Lit(bits) => Some(constant::of_bits(class, bits)),
        _ => None,
    };
    match constant {
        Some(Constant::Inline(248)) if class == Class::B64 => INV_2PI_64.to_owned(),
        Some(Constant::Inline(code @ 240..)) => {
            FLOAT_TEXT.get(usize::from(code - 240)).copied().unwrap_or_default().to_owned()
        }
        Some(Constant::Inline(code)) => constant::int_of(code).unwrap_or_default().to_string(),
        Some(Constant::Literal(bits)) => match class {
            Class::F16 | Class::I16 | Class::Bf16 => format!("{:#x}", bits & 0xffff),
            _ => format!("{bits:#x}"),
        },
        None => operand_text(&operand),
    }
}

fn literal_text(operand: Operand, half: bool) -> String {
    let class = if half { Class::F16 } else { Class::B32 };
    match operand {
        Operand::Int(value) => format!("{:#x}", constant::word(value).unwrap_or_default()),
        Operand::Lit(bits) => format!("{bits:#x}"),
        _ => constant_text(class, operand),
    }
}

fn imm_text(chip: Chip, imm: Imm, value: i64) -> String {
    let bits = u16::try_from(value & 0xffff).unwrap_or_default();
    match imm {
        Imm::Small if bits <= 64 => bits.to_string(),
        Imm::Hex | Imm::Small => format!("{bits:#x}"),
        Imm::Decimal | Imm::Optional | Imm::Label => bits.to_string(),
        Imm::GprIdx => special::gpr_idx_text(bits),
        Imm::Waitcnt => special::waitcnt_text(chip, bits),
        Imm::DelayAlu => special::delay_text(bits),
        Imm::Depctr => special::depctr_text(bits),
        Imm::Message => special::message_text(chip, bits),
        Imm::HwReg => special::hwreg_text(chip, bits),
    }
}

fn scalar_offset_text(chip: Chip, _row: &Row, value: i64) -> String {
    match value {
        0 if chip == Chip::Gfx1100 => "null".to_owned(),
        0.. => format!("{value:#x}"),
        _ => format!("-{:#x}", -value),
    }
}

fn bit_list(name: &str, mask: u8, count: usize) -> String {
    let bits: Vec<_> = (0..count).map(|i| (mask >> i & 1).to_string()).collect();
    format!(" {name}:[{}]", bits.join(","))
}

fn modifiers(text: &mut String, chip: Chip, row: &Row, inst: &Inst) {
    let m = &inst.mods;
    match row.format {
        Format::Vop3 | Format::Vop3Sd => vector_modifiers(text, chip, row, m),
        Format::Vop3p => packed_modifiers(text, row, m),
        Format::Mai => matrix_modifiers(text, m),
        Format::Smem => scalar_modifiers(text, chip, row, inst),
        Format::Ds | Format::Flat | Format::Global | Format::Scratch | Format::Buffer => {
            memory_modifiers(text, chip, row, m)
        }
        _ => {}
    }
    if let Some(dpp) = m.dpp {
        text.push_str(&dpp_text(dpp));
    }
    if let Some(sdwa) = m.sdwa {
        text.push_str(&sdwa::text(row, m, sdwa));
    }
}

fn sources(row: &Row) -> usize {
    row.slots.iter().filter(|s| matches!(s.kind, Kind::Source { .. })).count()
}

fn vector_modifiers(text: &mut String, chip: Chip, row: &Row, m: &Modifiers) {
    if let Some((bits, count)) = true16::to_list(row, chip, m) {
        if bits != 0 && count != 0 {
            text.push_str(&bit_list("op_sel", bits, count));
        }
    } else if m.op_sel != 0 {
        let destination = usize::from(row.allows.contains(Allows::OP_SEL3));
        // An accumulator is a source too, though it is written once.
        let tied = row.op.name().contains("fmac");
        let selects = [Allows::OP_SEL2, Allows::OP_SEL1, Allows::OP_SEL0];
        let last = selects.iter().position(|&b| row.allows.contains(b)).map_or(0, |i| 3 - i);
        let count = last + usize::from(tied && destination == 1);
        let shown = m.op_sel & ((1 << count) - 1) | (m.op_sel >> 3 & 1) << count;
        text.push_str(&bit_list("op_sel", shown, count + destination));
    }
    if m.clamp {
        text.push_str(" clamp");
    }
    text.push_str(["", " mul:2", " mul:4", " div:2"][usize::from(m.omod & 3)]);
}

fn packed_modifiers(text: &mut String, row: &Row, m: &Modifiers) {
    let count = sources(row);
    let mixes = row.op.name().contains("_mix");
    let hi = m.op_sel_hi.unwrap_or(row.usual_op_sel_hi());
    let selects = row.allows.contains(Allows::OP_SEL0);
    if selects && m.op_sel != 0 {
        text.push_str(&bit_list("op_sel", m.op_sel, count));
    }
    if selects && hi != row.usual_op_sel_hi() {
        text.push_str(&bit_list("op_sel_hi", hi, count));
    }
    if !mixes && m.neg != 0 {
        text.push_str(&bit_list("neg_lo", m.neg, count));
    }
    if !mixes && m.neg_hi != 0 {
        text.push_str(&bit_list("neg_hi", m.neg_hi, count));
    }
    if m.clamp {
        text.push_str(" clamp");
    }
}

fn matrix_modifiers(text: &mut String, m: &Modifiers) {
    for (name, value) in [("cbsz", m.cbsz), ("abid", m.abid), ("blgp", m.blgp)] {
        if value != 0 {
            let _ = write!(text, " {name}:{value}");
        }
    }
}

fn cache_modifiers(text: &mut String, chip: Chip, row: &Row, m: &Modifiers) {
    if chip == Chip::Gfx1201 {
        text.push_str(&super::cache::hint_text(row, m.th, m.scope));
        return;
    }
    for (name, on) in [("glc", m.glc), ("sc0", m.sc0), ("slc", m.slc), ("nt", m.nt), ("dlc", m.dlc), ("sc1", m.sc1)] {
        if on {
            let _ = write!(text, " {name}");
        }
    }
}

fn scalar_modifiers(text: &mut String, chip: Chip, row: &Row, inst: &Inst) {
    let register = inst.operands.last().is_some_and(|o| matches!(o, Operand::Reg(_)));
    let offset = inst.mods.offset;
    let shown = offset != 0 || chip == Chip::Gfx1201;
    if register && shown && row.slots.last().is_some_and(|s| s.kind == Kind::ScalarOffset) {
        let sign = if offset < 0 { "-" } else { "" };
        let _ = write!(text, " offset:{sign}{:#x}", offset.unsigned_abs());
    }
    cache_modifiers(text, chip, row, &inst.mods);
}

fn memory_modifiers(text: &mut String, chip: Chip, row: &Row, m: &Modifiers) {
    for (name, on) in [(" idxen", m.idxen), (" offen", m.offen)] {
        if on {
            text.push_str(name);
        }
    }
    if row.allows.contains(Allows::OFFSETS) {
        for (name, value) in [("offset0", m.offset), ("offset1", i32::from(m.offset1))] {
            if value != 0 {
                let _ = write!(text, " {name}:{value}");
            }
        }
    } else if m.offset != 0 {
        let swizzle = row.op.name() == "ds_swizzle_b32";
        let value = if swizzle {
            special::swizzle_text(u16::try_from(m.offset).unwrap_or_default())
        } else {
            m.offset.to_string()
        };
        let _ = write!(text, " offset:{value}");
    }
    if row.format != Format::Ds {
        cache_modifiers(text, chip, row, m);
    }
    for (name, on) in [(" gds", m.gds), (" lds", m.lds), (" tfe", m.tfe), (" nv", m.nv)] {
        if on {
            text.push_str(name);
        }
    }
}

fn dpp_text(dpp: Dpp) -> String {
    let list = |lanes: &[u8]| lanes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    match dpp {
        Dpp::Dpp8 { lanes, fetch_inactive } => {
            format!(" dpp8:[{}]{}", list(&lanes), if fetch_inactive { " fi:1" } else { "" })
        }
        Dpp::Dpp16 { ctrl, row_mask, bank_mask, bound_ctrl, fetch_inactive } => {
            let control = match ctrl {
                DppCtrl::QuadPerm(lanes) => format!("quad_perm:[{}]", list(&lanes)),
                DppCtrl::RowShl(n) => format!("row_shl:{n}"),
                DppCtrl::RowShr(n) => format!("row_shr:{n}"),
                DppCtrl::RowRor(n) => format!("row_ror:{n}"),
                DppCtrl::RowMirror => "row_mirror".to_owned(),
                DppCtrl::RowHalfMirror => "row_half_mirror".to_owned(),
                DppCtrl::RowShare(n) => format!("row_share:{n}"),
                DppCtrl::RowXmask(n) => format!("row_xmask:{n}"),
                DppCtrl::RowNewbcast(n) => format!("row_newbcast:{n}"),
                DppCtrl::WaveShl => "wave_shl:1".to_owned(),
                DppCtrl::WaveRol => "wave_rol:1".to_owned(),
                DppCtrl::WaveShr => "wave_shr:1".to_owned(),
                DppCtrl::WaveRor => "wave_ror:1".to_owned(),
                DppCtrl::RowBcast15 => "row_bcast:15".to_owned(),
                DppCtrl::RowBcast31 => "row_bcast:31".to_owned(),
            };
            let bound = if bound_ctrl { " bound_ctrl:1" } else { "" };
            let fetch = if fetch_inactive { " fi:1" } else { "" };
            format!(" {control} row_mask:{row_mask:#x} bank_mask:{bank_mask:#x}{bound}{fetch}")
        }
    }
}

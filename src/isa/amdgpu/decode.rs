//! Bytes → instruction.
//!
//! The format is recognised by its fixed bits, the row by format and opcode. The result is encoded again: bytes that
//! the encoder would not write (reserved bits, misaligned tuples, forbidden combinations) are refused, not interpreted.

use super::chip::{Chip, Target, column};
use super::constant;
use super::encode::{dual_row, encode};
use super::format::{Bits, Field, Format, Layout, layout};
use super::inst::{Dpp, DppCtrl, Enc, Inst};
use super::reg::{File, Operand, Reg, scalar_reg};
use super::row::{Accepts, Allows, Kind, Row, Slot};
use super::sdwa;
use super::table::rows;
use super::true16;
use super::vopd;
use thiserror::Error;

/// Why bytes are no instruction.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    #[error("dword {word:#010x} begins no instruction of {chip}")]
    Unknown { word: u32, chip: &'static str },
    #[error("the instruction that {word:#010x} begins is cut off")]
    Truncated { word: u32 },
}

/// Formats in the order in which their fixed bits must be compared: longer ones first.
const FORMATS: [Format; 19] = [
    Format::Sop1,
    Format::Sopc,
    Format::Sopp,
    Format::Vop3p,
    Format::Mai,
    Format::Vop1,
    Format::Vopc,
    Format::Flat,
    Format::Global,
    Format::Scratch,
    Format::Vop3Sd,
    Format::Vop3,
    Format::VopdX,
    Format::Smem,
    Format::Ds,
    Format::Buffer,
    Format::Sopk,
    Format::Sop2,
    Format::Vop2,
];

/// The instruction at the start of `words` and how many dwords it takes.
///
/// # Errors
/// No instruction of the chip begins there, or `words` ends inside it.
pub fn decode(target: Target, words: &[u32]) -> Result<(Inst, usize), DecodeError> {
    let Some(&word) = words.first() else { return Err(DecodeError::Truncated { word: 0 }) };
    let mut truncated = false;
    for format in FORMATS {
        let Some(layout) = layout(target.chip, format) else { continue };
        if word & layout.mask != layout.fixed {
            continue;
        }
        match decode_format(target, format, layout, words) {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            Err(Cut) => truncated = true,
        }
    }
    Err(match truncated {
        true => DecodeError::Truncated { word },
        false => DecodeError::Unknown { word, chip: target.chip.name() },
    })
}

/// The words end too early.
struct Cut;

type Found = Result<Option<(Inst, usize)>, Cut>;

fn field(bits: u128, at: Bits) -> u16 {
    u16::try_from(bits >> at.0 & ((1 << at.1) - 1)).unwrap_or(u16::MAX)
}

fn decode_format(target: Target, format: Format, layout: &'static Layout, words: &[u32]) -> Found {
    let first = u128::from(words[0]);
    let code = field(first, layout.op);
    let rows = with_code(target.chip, format, code);
    if rows.len() == 0 && format != Format::VopdX {
        return Ok(None);
    }
    let size = usize::from(layout.dwords);
    if words.len() < size {
        return Err(Cut);
    }
    let bits = words[..size].iter().rev().fold(0u128, |bits, &w| bits << 32 | u128::from(w));
    let mut cut = false;
    for row in rows {
        let reader = Reader { target, layout, bits, row, next: words.get(size).copied() };
        let found = if format == Format::VopdX { reader.dual() } else { reader.single() };
        match found {
            Ok(Some((inst, extra))) => {
                let end = size + extra;
                let literal = extra == 1 && inst.mods.dpp.is_none() && inst.mods.sdwa.is_none();
                match encode(target, &inst) {
                    // A literal that the encoder would shorten is still the same instruction.
                    Ok(again) if again[..] == words[..end] || literal && again.len() < end => {
                        return Ok(Some((inst, end)));
                    }
                    _ => {}
                }
            }
            Ok(None) => {}
            Err(Cut) => cut = true,
        }
    }
    if cut { Err(Cut) } else { Ok(None) }
}

/// Rows of a chip with that number in that format.
fn with_code(chip: Chip, format: Format, code: u16) -> impl ExactSizeIterator<Item = &'static Row> {
    let index = rows::BY_CODE[column(chip)];
    let key = |&i: &u16| {
        let row = &rows::ROWS[usize::from(i)];
        (row.format, row.code(chip).unwrap_or(u16::MAX))
    };
    let start = index.partition_point(|i| key(i) < (format, code));
    let count = index[start..].iter().take_while(|i| key(i) == (format, code)).count();
    index[start..start + count].iter().map(|&i| &rows::ROWS[usize::from(i)])
}

/// One row being tried on bytes.
struct Reader {
    target: Target,
    layout: &'static Layout,
    bits: u128,
    row: &'static Row,
    /// The dword after the instruction.
    next: Option<u32>,
}

const FLOATS: [f64; 9] = [0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0, 0.159_154_943_091_895_32];

impl Reader {
    fn get(&self, f: Field) -> u32 {
        self.layout.bits(f).map_or(0, |b| u32::try_from(self.bits >> b.0 & ((1 << b.1) - 1)).unwrap_or_default())
    }

    fn flag(&self, f: Field) -> bool {
        self.get(f) != 0
    }

    fn code(&self, f: Field) -> u16 {
        u16::try_from(self.get(f)).unwrap_or(u16::MAX)
    }

    /// One instruction, and the dwords after its format's own.
    fn single(&self) -> Found {
        let mut inst = Inst::new(self.row.op, []);
        inst.enc = match self.row.format {
            Format::Vop1 | Format::Vop2 | Format::Vopc => Enc::E32,
            Format::Vop3 | Format::Vop3Sd | Format::Vop3p | Format::Mai => Enc::E64,
            _ => Enc::Auto,
        };
        self.modifiers(&mut inst);
        let mut extra = 0;
        let src0 = self.layout.bits(Field::Src0).map(|at| field(self.bits, at));
        let dpp = matches!(src0, Some(250 | 233 | 234)) && self.row.slots.iter().any(|s| s.field == Field::Src0);
        if dpp {
            let Some(word) = self.next else { return Err(Cut) };
            if !self.dpp(&mut inst, src0.unwrap_or_default(), word) {
                return Ok(None);
            }
            extra = 1;
        }
        let sdwa = src0 == Some(sdwa::CODE) && self.row.allows.contains(Allows::SDWA);
        let part = match (sdwa, self.next) {
            (true, Some(word)) => Some(sdwa::read(word, self.row, &mut inst.mods)),
            (true, None) => return Err(Cut),
            (false, _) => None,
        };
        for slot in self.row.slots {
            let operand = match (dpp, slot.field) {
                (_, Field::Src0) if sdwa => match (slot.kind, part) {
                    (Kind::Source { accepts, .. }, Some(code)) if code != 255 => {
                        self.source(slot, code, accepts, &mut extra)?
                    }
                    _ => None,
                },
                (true, Field::Src0) if true16::is_half(slot) => {
                    self.high_half(slot, self.dpp_source(), &mut inst);
                    Some(Operand::Reg(Reg::new(File::Vgpr, self.dpp_source() & 127, slot.words)))
                }
                (true, Field::Src0) => Some(Operand::Reg(Reg::new(File::Vgpr, self.dpp_source(), slot.words))),
                _ => self.operand(slot, &mut inst, &mut extra)?,
            };
            match operand {
                Some(operand) => inst.operands.push(operand),
                None => return Ok(None),
            }
        }
        extra += usize::from(sdwa);
        Ok(Some((inst, extra)))
    }

    /// Notes that bit 7 of a register's number names its high half.
    fn high_half(&self, slot: &Slot, code: u16, inst: &mut Inst) {
        if code & 128 != 0 {
            inst.mods.op_sel |= true16::bit(slot.field);
        }
    }

    fn dpp_source(&self) -> u16 {
        u16::try_from(self.next.unwrap_or_default() & 0xff).unwrap_or_default()
    }

    /// Reads the DPP dword; false: a control that the chip lacks.
    fn dpp(&self, inst: &mut Inst, code: u16, word: u32) -> bool {
        let part = |lo: u32, width: u32| u16::try_from(word >> lo & ((1 << width) - 1)).unwrap_or_default();
        let byte = |lo, width| u8::try_from(part(lo, width)).unwrap_or_default();
        if code != 250 {
            let lanes = std::array::from_fn(|i| byte(8 + 3 * u32::try_from(i).unwrap_or_default(), 3));
            inst.mods.dpp = Some(Dpp::Dpp8 { lanes, fetch_inactive: code == 234 });
            return true;
        }
        let Some(ctrl) = DppCtrl::from_code(part(8, 9), self.target.chip) else { return false };
        inst.mods.dpp = Some(Dpp::Dpp16 {
            ctrl,
            row_mask: byte(28, 4),
            bank_mask: byte(24, 4),
            bound_ctrl: part(19, 1) == 1,
            fetch_inactive: part(18, 1) == 1,
        });
        if self.layout.bits(Field::Neg).is_none() {
            inst.mods.neg = byte(20, 1) | byte(22, 1) << 1;
            inst.mods.abs = byte(21, 1) | byte(23, 1) << 1;
        }
        true
    }

    fn dual(&self) -> Found {
        let Some(y) = dual_rows(self.target.chip, field(self.bits, vopd::OP_Y)) else { return Ok(None) };
        let mut inst = Inst::new(self.row.op, []);
        inst.dual = Some(y.op);
        let mut extra = 0;
        for slot in self.row.slots {
            let Some(operand) = self.operand(slot, &mut inst, &mut extra)? else { return Ok(None) };
            inst.operands.push(operand);
        }
        let vdst_x = self.code(Field::Vdst);
        let take = |at: Bits| u128::from(field(self.bits, at));
        let odd = u128::from(vdst_x & 1 == 0);
        let bits = take(vopd::SRC0_Y) | take(vopd::VSRC1_Y) << 9 | (take(vopd::VDST_Y) << 1 | odd) << 56;
        let half = Reader { bits, row: y, target: self.target, layout: self.layout, next: self.next };
        for slot in y.slots {
            let Some(operand) = half.operand(slot, &mut inst, &mut extra)? else { return Ok(None) };
            inst.operands.push(operand);
        }
        Ok(Some((inst, extra)))
    }

    fn operand(&self, slot: &Slot, inst: &mut Inst, extra: &mut usize) -> Result<Option<Operand>, Cut> {
        let code = self.code(slot.field);
        let chip = self.target.chip;
        let mask = self.target.mask_words();
        Ok(match slot.kind {
            Kind::VgprLow => {
                self.high_half(slot, code, inst);
                Some(Operand::Reg(Reg::new(File::Vgpr, code & 127, slot.words)))
            }
            Kind::Vgpr => Some(Operand::Reg(Reg::new(File::Vgpr, code, slot.words))),
            Kind::Agpr => Some(Operand::Reg(Reg::new(File::Agpr, code, slot.words))),
            Kind::VgprOrAgpr => {
                let bit = if self.row.format == Format::Mai { Field::AccCd } else { Field::Acc };
                let file = if self.flag(bit) { File::Agpr } else { File::Vgpr };
                Some(Operand::Reg(Reg::new(file, code, slot.words)))
            }
            Kind::Sgpr => {
                let shift = match (slot.field, chip) {
                    (Field::Sbase, _) => 1,
                    (Field::Srsrc, Chip::Gfx1100 | Chip::Gfx942) => 2,
                    _ => 0,
                };
                scalar_reg(chip, code << shift, slot.words).map(Operand::Reg)
            }
            Kind::Null => (code == 124).then_some(super::reg::NULL),
            Kind::Mask { .. } => scalar_reg(chip, code, mask).map(Operand::Reg),
            Kind::Vcc => Some(self.target.vcc()),
            Kind::Exec => Some(self.target.exec()),
            Kind::Source { accepts, .. } if accepts.contains(Accepts::LOW) && code >= 256 => {
                self.high_half(slot, code, inst);
                Some(Operand::Reg(Reg::new(File::Vgpr, code & 127, slot.words)))
            }
            Kind::Source { accepts, .. } => return self.source(slot, code, accepts, extra),
            Kind::Literal | Kind::Literal16 => {
                *extra = 1;
                Some(Operand::Lit(self.next.ok_or(Cut)?))
            }
            Kind::Imm(_) => Some(Operand::Int(i64::from(code))),
            _ => self.address(slot, code, inst),
        })
    }

    fn source(&self, slot: &Slot, code: u16, accepts: Accepts, extra: &mut usize) -> Result<Option<Operand>, Cut> {
        Ok(match code {
            256.. => {
                let acc = match slot.field {
                    _ if accepts == Accepts::AGPR => true,
                    Field::Src0 => self.flag(Field::AccA),
                    Field::Src1 => self.flag(Field::AccB),
                    _ => self.flag(Field::AccCd),
                };
                let file = if acc && accepts.contains(Accepts::AGPR) { File::Agpr } else { File::Vgpr };
                Some(Operand::Reg(Reg::new(file, code - 256, slot.words)))
            }
            128..=208 => constant::int_of(code).map(Operand::Int),
            240..=248 => Some(Operand::Float(FLOATS[usize::from(code - 240)])),
            255 => {
                *extra = 1;
                Some(Operand::Lit(self.next.ok_or(Cut)?))
            }
            _ => scalar_reg(self.target.chip, code, slot.words).map(Operand::Reg),
        })
    }

    fn address(&self, slot: &Slot, code: u16, inst: &mut Inst) -> Option<Operand> {
        let chip = self.target.chip;
        let absent = if chip.is_gfx9() { 0x7f } else { 0x7c };
        let vector = |words| Some(Operand::Reg(Reg::new(File::Vgpr, code, words)));
        match slot.kind {
            Kind::GlobalAddr => vector(if self.code(Field::Saddr) == absent { 2 } else { 1 }),
            Kind::GlobalBase | Kind::ScratchBase if code == absent => Some(Operand::Off),
            Kind::GlobalBase => scalar_reg(chip, code, 2).map(Operand::Reg),
            Kind::ScratchBase => scalar_reg(chip, code, 1).map(Operand::Reg),
            Kind::ScratchAddr if self.flag(Field::Sve) => vector(1),
            Kind::ScratchAddr => Some(Operand::Off),
            Kind::BufferAddr => match u8::from(inst.mods.offen) + u8::from(inst.mods.idxen) {
                0 => Some(Operand::Off),
                words => vector(words),
            },
            Kind::ScalarOffset => self.scalar_offset(inst),
            _ => None,
        }
    }

    fn scalar_offset(&self, inst: &mut Inst) -> Option<Operand> {
        let chip = self.target.chip;
        let offset = self.signed(Field::Offset);
        let alone = chip == Chip::Gfx942 && !self.flag(Field::SoffsetEn) && !self.flag(Field::ImmEn);
        if alone {
            return scalar_reg(chip, self.code(Field::Offset), 1).map(Operand::Reg);
        }
        let code = self.code(Field::Soffset);
        let immediate = match chip {
            Chip::Gfx942 => !self.flag(Field::SoffsetEn),
            Chip::Gfx1100 => code == 0x7c && offset != 0,
            Chip::Gfx1201 => code == 0x7c,
        };
        if immediate {
            return Some(Operand::Int(i64::from(offset)));
        }
        inst.mods.offset = offset;
        scalar_reg(chip, code, 1).map(Operand::Reg)
    }

    /// A field as a signed number.
    fn signed(&self, f: Field) -> i32 {
        let Some(Bits(_, width)) = self.layout.bits(f) else { return 0 };
        let spare = 32 - u32::from(width);
        (self.get(f) << spare).cast_signed() >> spare
    }

    fn modifiers(&self, inst: &mut Inst) {
        let byte = |f| u8::try_from(self.get(f)).unwrap_or_default();
        let allows = self.row.allows;
        let signed_offset = match self.row.format {
            Format::Global | Format::Scratch => true,
            Format::Flat => self.target.chip == Chip::Gfx1201,
            Format::Buffer => self.target.chip == Chip::Gfx1201,
            _ => false,
        };
        let m = &mut inst.mods;
        m.neg = byte(Field::Neg);
        m.abs = byte(Field::Abs);
        m.neg_hi = byte(Field::NegHi);
        m.op_sel = byte(Field::OpSel);
        if self.row.format == Format::Vop3p {
            let hi = byte(Field::OpSelHi) | byte(Field::OpSelHi2) << 2;
            m.op_sel_hi = (hi != self.row.usual_op_sel_hi()).then_some(hi);
        }
        m.clamp = self.flag(Field::Clamp);
        m.omod = byte(Field::Omod);
        if allows.contains(Allows::OFFSETS) {
            m.offset = i32::from(byte(Field::Offset0));
            m.offset1 = byte(Field::Offset1);
        } else if allows.contains(Allows::OFFSET) {
            m.offset = if signed_offset { self.signed(Field::Offset) } else { self.get(Field::Offset).cast_signed() };
        }
        m.glc = self.flag(Field::Glc);
        m.dlc = self.flag(Field::Dlc);
        m.slc = self.flag(Field::Slc);
        m.sc0 = self.flag(Field::Sc0);
        m.sc1 = self.flag(Field::Sc1);
        m.nt = self.flag(Field::Nt);
        m.tfe = self.flag(Field::Tfe);
        m.lds = self.flag(Field::Lds);
        m.gds = self.flag(Field::Gds);
        m.offen = self.flag(Field::Offen);
        m.idxen = self.flag(Field::Idxen);
        m.scope = byte(Field::Scope);
        m.th = byte(Field::Th);
        m.nv = self.flag(Field::Nv);
        m.cbsz = byte(Field::Cbsz);
        m.abid = byte(Field::Abid);
        m.blgp = byte(Field::Blgp);
    }
}

/// The row of a second half by its number.
fn dual_rows(chip: Chip, code: u16) -> Option<&'static Row> {
    let row = with_code(chip, Format::VopdY, code).next()?;
    dual_row(chip, row.op, Format::VopdY)
}

//! Instruction → bytes.
//!
//! The rows of the operation are tried from the shortest on; the first that can hold the operands and modifiers wins,
//! as in LLVM's assembler. Limits that do not concern one field (constant bus, one literal, dual issue) are checked
//! here too.

use super::chip::{Chip, Target, Wave};
use super::constant::{self, Constant};
use super::dpp;
use super::format::{Bits, Field, Format, Layout, layout};
use super::inst::{Dpp, Enc, Inst, Modifiers};
use super::reg::{File, Operand, Reg, scalar_code};
use super::row::{Accepts, Allows, Class, Implicit, Kind, Op, Row, Slot, Unit};
use super::sdwa;
use super::true16;
use super::vopd;
use smallvec::SmallVec;
use thiserror::Error;

/// The dwords of one instruction.
pub type Words = SmallVec<[u32; 5]>;

/// Why an instruction cannot be encoded.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    #[error("{op} is no instruction of {chip}")]
    NotOnChip { op: &'static str, chip: &'static str },
    #[error("{op} has no such encoding on {chip}")]
    NoSuchEncoding { op: &'static str, chip: &'static str },
    #[error("{op} takes {wants} operands, {given} given")]
    Count { op: &'static str, wants: usize, given: usize },
    #[error("{op}: operand {index} ({operand}): {why}")]
    Operand { op: &'static str, index: usize, operand: String, why: &'static str },
    #[error("{op}: {what} = {value} does not fit from {min} to {max}")]
    Range { op: &'static str, what: &'static str, value: i64, min: i64, max: i64 },
    #[error("{op}: no {what} in this encoding")]
    Modifier { op: &'static str, what: &'static str },
    #[error("{op}: {why}")]
    Rule { op: &'static str, why: &'static str },
}

/// The instruction's dwords for the target.
///
/// # Errors
/// The chip lacks the operation, or no encoding fits the operands and modifiers: then the reason of the last one tried.
pub fn encode(target: Target, inst: &Inst) -> Result<Words, EncodeError> {
    if let Some(second) = inst.dual {
        return vopd::encode(target, inst, second);
    }
    encode_with_row(target, inst).map(|(_, words)| words)
}

/// The row that encodes the instruction: which operands are written, which unit runs it.
///
/// # Errors
/// As [`encode`].
pub fn row_of(target: Target, inst: &Inst) -> Result<&'static Row, EncodeError> {
    encode_with_row(target, inst).map(|(row, _)| row)
}

fn encode_with_row(target: Target, inst: &Inst) -> Result<(&'static Row, Words), EncodeError> {
    let (name, chip) = (inst.op.name(), target.chip.name());
    let mut failure = None;
    let mut on_chip = false;
    for row in inst.op.rows(target.chip) {
        on_chip = true;
        if !wanted(row, inst.enc) || matches!(row.format, Format::VopdX | Format::VopdY) {
            continue;
        }
        match try_row(target, inst, row) {
            Ok(words) => return Ok((row, words)),
            Err(e) => failure = prefer(failure, e),
        }
    }
    Err(match (failure, on_chip) {
        (Some(e), _) => e,
        (None, true) => EncodeError::NoSuchEncoding { op: name, chip },
        (None, false) => EncodeError::NotOnChip { op: name, chip },
    })
}

/// Keeps the more informative failure: a wrong count is the least informative.
fn prefer(old: Option<EncodeError>, new: EncodeError) -> Option<EncodeError> {
    match (&old, &new) {
        (Some(kept), EncodeError::Count { .. }) if !matches!(kept, EncodeError::Count { .. }) => old,
        _ => Some(new),
    }
}

/// Whether a row is the requested encoding.
fn wanted(row: &Row, enc: Enc) -> bool {
    let short = matches!(row.format, Format::Vop1 | Format::Vop2 | Format::Vopc);
    let long = matches!(row.format, Format::Vop3 | Format::Vop3Sd | Format::Vop3p | Format::Mai);
    match enc {
        Enc::Auto => true,
        Enc::E32 => short,
        Enc::E64 => long,
    }
}

/// An instruction being put together.
pub(super) struct Builder<'a> {
    pub target: Target,
    pub name: &'static str,
    pub layout: &'static Layout,
    pub bits: u128,
    pub literal: Option<u32>,
    pub inst: &'a Inst,
    pub row: &'static Row,
    /// Distinct scalar registers read, for the constant bus.
    pub scalars: SmallVec<[u16; 4]>,
}

fn mask(width: u8) -> u128 {
    (1u128 << width) - 1
}

impl Builder<'_> {
    pub(crate) fn set(&mut self, field: Field, value: u32) -> Result<(), EncodeError> {
        let Some(Bits(lo, width)) = self.layout.bits(field) else {
            return Err(EncodeError::Rule { op: self.name, why: "the format lacks a field of the row" });
        };
        self.bits = self.bits & !(mask(width) << lo) | (u128::from(value) & mask(width)) << lo;
        Ok(())
    }

    /// Sets a field that may be absent when the value is 0.
    fn set_if(&mut self, allowed: Allows, what: &'static str, field: Field, value: u32) -> Result<(), EncodeError> {
        if value == 0 {
            return Ok(());
        }
        if !self.row.allows.intersects(allowed) {
            return Err(EncodeError::Modifier { op: self.name, what });
        }
        self.set(field, value)
    }

    fn wrong(&self, index: usize, why: &'static str) -> EncodeError {
        let operand = self.inst.operands.get(index).map_or_else(String::new, super::print::operand_text);
        EncodeError::Operand { op: self.name, index, operand, why }
    }

    pub(crate) fn put_literal(&mut self, index: usize, value: u32) -> Result<(), EncodeError> {
        match self.literal {
            Some(old) if old != value => Err(self.wrong(index, "a second literal")),
            _ => {
                self.literal = Some(value);
                Ok(())
            }
        }
    }

    fn read_scalar(&mut self, code: u16, reg: Reg) {
        // A pair and its half are two values on the bus.
        let code = code | u16::from(reg.words - 1) << 9;
        if reg.file != File::Null && !self.scalars.contains(&code) {
            self.scalars.push(code);
        }
    }
}

fn try_row(target: Target, inst: &Inst, row: &'static Row) -> Result<Words, EncodeError> {
    let name = inst.op.name();
    if row.unit == Unit::Matrix && !target.chip.is_gfx9() && target.wave == Wave::W64 {
        return Err(EncodeError::Rule { op: name, why: "WMMA is known for wave32 only" });
    }
    let optional = usize::from(row.slots.last().is_some_and(|s| s.kind == Kind::Imm(super::row::Imm::Optional)));
    let given = inst.operands.len();
    if given != row.slots.len() && given + optional != row.slots.len() {
        return Err(EncodeError::Count { op: name, wants: row.slots.len(), given });
    }
    let (Some(layout), Some(code)) = (layout(target.chip, row.format), row.code(target.chip)) else {
        return Err(EncodeError::NotOnChip { op: name, chip: target.chip.name() });
    };
    let bits = u128::from(layout.fixed) | u128::from(code) << layout.op.0;
    let scalars = SmallVec::new();
    let mut b = Builder { target, name, layout, bits, literal: None, inst, row, scalars };
    b.defaults()?;
    for (index, slot) in row.slots.iter().enumerate() {
        let operand = inst.operands.get(index).copied().unwrap_or(Operand::Int(0));
        b.operand(index, slot, operand)?;
    }
    b.modifiers(&inst.mods)?;
    b.constant_bus()?;
    b.matrix_overlap()?;
    b.finish()
}

impl Builder<'_> {
    /// Values of fields that no operand sets.
    fn defaults(&mut self) -> Result<(), EncodeError> {
        let chip = self.target.chip;
        let absent = if chip.is_gfx9() { 0x7f } else { 0x7c };
        let has = |field| self.row.slots.iter().any(|s| s.field == field);
        match self.row.format {
            Format::Flat if !chip.is_gfx9() => self.set(Field::Saddr, 0x7c)?,
            Format::Global | Format::Scratch if !has(Field::Saddr) => self.set(Field::Saddr, absent)?,
            // v_cmpx in the long form writes EXEC, and names it in vdst.
            Format::Vop3 if !chip.is_gfx9() && self.name.starts_with("v_cmpx") => self.set(Field::Vdst, 126)?,
            Format::Buffer if chip == Chip::Gfx1201 && has(Field::Srsrc) => self.set(Field::BufferFormat, 1)?,
            Format::Smem if !chip.is_gfx9() && !has(Field::Soffset) && !self.row.slots.is_empty() => {
                self.set(Field::Soffset, 0x7c)?;
            }
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn operand(&mut self, index: usize, slot: &Slot, operand: Operand) -> Result<(), EncodeError> {
        match slot.kind {
            Kind::Vgpr | Kind::VgprLow | Kind::Agpr | Kind::VgprOrAgpr => self.vector(index, slot, operand),
            Kind::Sgpr => self.scalar(index, slot, operand),
            Kind::Null if operand == super::reg::NULL => self.set(slot.field, 124),
            Kind::Null => Err(self.wrong(index, "only NULL")),
            Kind::Mask { exec } => self.lane_mask(index, slot, operand, exec),
            Kind::Vcc | Kind::Exec => self.named(index, slot, operand),
            Kind::Source { class, accepts } => {
                let code = self.source(index, slot, operand, class, accepts)?;
                self.set(slot.field, u32::from(code))
            }
            Kind::GlobalAddr | Kind::GlobalBase | Kind::ScratchAddr | Kind::ScratchBase | Kind::BufferAddr => {
                self.address(index, slot, operand)
            }
            Kind::ScalarOffset => self.scalar_offset(index, operand),
            Kind::Literal | Kind::Literal16 => self.mandatory_literal(index, slot.kind, operand),
            Kind::Imm(_) => self.immediate(index, slot, operand),
        }
    }

    /// Checks a tuple of vector registers and returns its first one.
    fn vector_reg(&self, index: usize, operand: Operand, words: u8) -> Result<Reg, EncodeError> {
        let Operand::Reg(reg) = operand else { return Err(self.wrong(index, "not a vector register")) };
        if !matches!(reg.file, File::Vgpr | File::Agpr) {
            return Err(self.wrong(index, "not a vector register"));
        }
        if reg.words != words {
            return Err(self.wrong(index, "wrong number of registers"));
        }
        if reg.first + u16::from(words) > 256 {
            return Err(self.wrong(index, "beyond the last vector register"));
        }
        if self.target.chip.is_gfx9() && words > 1 && reg.first % 2 != 0 {
            return Err(self.wrong(index, "a tuple of vector registers must start even"));
        }
        Ok(reg)
    }

    fn vector(&mut self, index: usize, slot: &Slot, operand: Operand) -> Result<(), EncodeError> {
        let reg = self.vector_reg(index, operand, slot.words)?;
        if slot.kind == Kind::VgprLow && reg.first > 127 {
            return Err(self.wrong(index, "the short form reaches v127 only for 16 bits"));
        }
        match (slot.kind, reg.file) {
            (Kind::Agpr, File::Agpr) | (Kind::Vgpr | Kind::VgprLow | Kind::VgprOrAgpr, File::Vgpr) => {}
            (Kind::VgprOrAgpr, File::Agpr) => {
                let bit = if self.row.format == Format::Mai { Field::AccCd } else { Field::Acc };
                self.set(bit, 1)?;
            }
            _ => return Err(self.wrong(index, "wrong register file")),
        }
        self.set(slot.field, u32::from(reg.first | self.high_half(slot)))
    }

    /// Bit 7 of a register's number in a short encoding: the high half.
    fn high_half(&self, slot: &Slot) -> u16 {
        let high = true16::is_half(slot) && self.inst.mods.op_sel & true16::bit(slot.field) != 0;
        u16::from(high) << 7
    }

    /// Whether the high halves asked for are of vector registers that a short encoding names by halves.
    fn short_halves(&self) -> Result<(), EncodeError> {
        let vector = |o: Option<&Operand>| matches!(o, Some(Operand::Reg(r)) if r.file == File::Vgpr);
        let slots = self.row.slots.iter().enumerate();
        let halves = slots.filter(|(i, s)| true16::is_half(s) && vector(self.inst.operands.get(*i)));
        let known = halves.fold(0, |bits, (_, s)| bits | true16::bit(s.field));
        if self.inst.mods.op_sel & !known == 0 {
            return Ok(());
        }
        Err(EncodeError::Modifier { op: self.name, what: "high half of such an operand" })
    }

    /// Operand code of a scalar tuple, alignment checked. NULL fits every width.
    fn scalar_of(&self, index: usize, reg: Reg, words: u8) -> Result<u16, EncodeError> {
        let anywide = matches!(
            reg.file,
            File::Null
                | File::Scc
                | File::VccZ
                | File::ExecZ
                | File::PopsExitingWaveId
                | File::SharedBase
                | File::SharedLimit
                | File::PrivateBase
                | File::PrivateLimit
        );
        if reg.words != words && !(anywide && reg.words == 1) {
            return Err(self.wrong(index, "wrong number of registers"));
        }
        let align = match words {
            1 => 1,
            2 => 2,
            _ => 4,
        };
        if matches!(reg.file, File::Sgpr | File::Ttmp) && !reg.first.is_multiple_of(align) {
            return Err(self.wrong(index, "a scalar tuple must be aligned"));
        }
        scalar_code(self.target.chip, reg).ok_or_else(|| self.wrong(index, "no such register"))
    }

    fn scalar(&mut self, index: usize, slot: &Slot, operand: Operand) -> Result<(), EncodeError> {
        let Operand::Reg(reg) = operand else { return Err(self.wrong(index, "not a scalar register")) };
        let code = self.scalar_of(index, reg, slot.words)?;
        if code > 127 {
            return Err(self.wrong(index, "not a register that can be written"));
        }
        let narrow = slot.field == Field::Sdata && matches!(reg.file, File::M0 | File::Exec)
            || reg.file == File::Ttmp && slot.words == 3
            || reg.file == File::Exec && self.name.starts_with("v_s_");
        if narrow {
            return Err(self.wrong(index, "this result cannot go to such a register"));
        }
        let shift = match (slot.field, self.target.chip) {
            (Field::Sbase, _) => 1,
            (Field::Srsrc, Chip::Gfx1100 | Chip::Gfx942) => 2,
            _ => 0,
        };
        self.set(slot.field, u32::from(code >> shift))
    }

    fn lane_mask(&mut self, index: usize, slot: &Slot, operand: Operand, exec: bool) -> Result<(), EncodeError> {
        let Operand::Reg(reg) = operand else { return Err(self.wrong(index, "not a mask register")) };
        let code = self.scalar_of(index, reg, self.target.mask_words())?;
        if !exec && reg.file == File::Exec {
            return Err(self.wrong(index, "EXEC cannot be the mask"));
        }
        if slot.field == Field::Src2 {
            self.read_scalar(code, reg);
        } else if code > 127 {
            return Err(self.wrong(index, "not a register that can be written"));
        }
        self.set(slot.field, u32::from(code))
    }

    fn named(&mut self, index: usize, slot: &Slot, operand: Operand) -> Result<(), EncodeError> {
        let file = if slot.kind == Kind::Vcc { File::Vcc } else { File::Exec };
        let want = Reg::new(file, 0, self.target.mask_words());
        if operand != Operand::Reg(want) {
            return Err(self.wrong(index, "only VCC (or EXEC) as wide as the wave"));
        }
        if slot.access == super::row::Access::Read {
            self.read_scalar(106, want);
        }
        Ok(())
    }

    pub(crate) fn source(
        &mut self,
        index: usize,
        slot: &Slot,
        operand: Operand,
        class: Class,
        accepts: Accepts,
    ) -> Result<u16, EncodeError> {
        let constant = match operand {
            Operand::Reg(reg) if matches!(reg.file, File::Vgpr | File::Agpr) => {
                return self.vector_source(index, slot, operand, accepts);
            }
            Operand::Reg(reg) => {
                if !accepts.contains(Accepts::SGPR) || reg.file == File::Exec && !accepts.contains(Accepts::EXEC) {
                    return Err(self.wrong(index, "no scalar register here"));
                }
                let code = self.scalar_of(index, reg, slot.words)?;
                if code > 127 && !accepts.contains(Accepts::INLINE) {
                    return Err(self.wrong(index, "a plain scalar register is needed"));
                }
                self.read_scalar(code, reg);
                return Ok(code);
            }
            Operand::Int(value) => constant::of_int(class, value),
            Operand::Float(value) => constant::of_float(class, value),
            Operand::Lit(bits) => Some(constant::of_bits(class, bits)),
            Operand::Off | Operand::Label(_) => return Err(self.wrong(index, "not a source")),
        };
        match constant {
            Some(Constant::Inline(code)) if accepts.contains(Accepts::INLINE) => Ok(code),
            Some(Constant::Literal(bits)) if accepts.contains(Accepts::LITERAL) => {
                self.put_literal(index, bits)?;
                Ok(255)
            }
            Some(_) => Err(self.wrong(index, "no such constant in this encoding")),
            None => Err(self.wrong(index, "the constant does not fit the operand")),
        }
    }

    fn vector_source(
        &mut self,
        index: usize,
        slot: &Slot,
        operand: Operand,
        accepts: Accepts,
    ) -> Result<u16, EncodeError> {
        let reg = self.vector_reg(index, operand, slot.words)?;
        if accepts.contains(Accepts::LOW) && reg.first > 127 {
            return Err(self.wrong(index, "the short form reaches v127 only for 16 bits"));
        }
        match reg.file {
            // Where nothing else is allowed the field is constant.
            File::Agpr if accepts == Accepts::AGPR => {}
            File::Agpr if accepts.contains(Accepts::AGPR) => match slot.field {
                Field::Src0 => self.set(Field::AccA, 1)?,
                Field::Src1 => self.set(Field::AccB, 1)?,
                _ => {}
            },
            File::Vgpr if accepts.contains(Accepts::VGPR) => {}
            _ => return Err(self.wrong(index, "no vector register of this file here")),
        }
        Ok(256 + (reg.first | self.high_half(slot)))
    }

    fn address(&mut self, index: usize, slot: &Slot, operand: Operand) -> Result<(), EncodeError> {
        let absent = if self.target.chip.is_gfx9() { 0x7f } else { 0x7c };
        let off = operand == Operand::Off;
        match slot.kind {
            Kind::GlobalAddr => {
                let base = self.row.slots.iter().position(|s| s.kind == Kind::GlobalBase);
                let no_base = base.is_some_and(|i| self.inst.operands.get(i) == Some(&Operand::Off));
                let reg = self.vector_reg(index, operand, if no_base { 2 } else { 1 })?;
                self.set(slot.field, u32::from(reg.first))
            }
            Kind::GlobalBase | Kind::ScratchBase if off => self.set(slot.field, absent),
            Kind::GlobalBase | Kind::ScratchBase if matches!(operand, Operand::Reg(r) if r.file == File::Null) => {
                Err(self.wrong(index, "NULL means no base: write off"))
            }
            Kind::GlobalBase => self.scalar(index, &Slot { words: 2, ..*slot }, operand),
            Kind::ScratchBase => self.scalar(index, &Slot { words: 1, ..*slot }, operand),
            Kind::ScratchAddr if off => Ok(()),
            Kind::ScratchAddr => {
                let reg = self.vector_reg(index, operand, 1)?;
                self.set(Field::Sve, 1)?;
                self.set(slot.field, u32::from(reg.first))
            }
            _ => {
                let words = u8::from(self.inst.mods.offen) + u8::from(self.inst.mods.idxen);
                match (words, off) {
                    (0, true) => Ok(()),
                    (0, false) => Err(self.wrong(index, "an address needs offen or idxen")),
                    _ => {
                        let reg = self.vector_reg(index, operand, words)?;
                        self.set(slot.field, u32::from(reg.first))
                    }
                }
            }
        }
    }

    fn scalar_offset(&mut self, index: usize, operand: Operand) -> Result<(), EncodeError> {
        let gfx9 = self.target.chip.is_gfx9();
        match operand {
            Operand::Int(value) => {
                self.offset(value)?;
                if gfx9 { self.set(Field::ImmEn, 1) } else { self.set(Field::Soffset, 0x7c) }
            }
            Operand::Reg(reg) => {
                let code = self.scalar_of(index, reg, 1)?;
                let absent =
                    reg.file == File::Null && (self.target.chip == Chip::Gfx1201 || self.inst.mods.offset != 0);
                if code > 127 || absent {
                    return Err(self.wrong(index, "not a scalar register"));
                }
                self.offset(i64::from(self.inst.mods.offset))?;
                if gfx9 && self.inst.mods.offset == 0 {
                    // A register alone is in the offset field.
                    return self.set(Field::Offset, u32::from(code));
                }
                if gfx9 {
                    self.set(Field::SoffsetEn, 1)?;
                    self.set(Field::ImmEn, 1)?;
                }
                self.set(Field::Soffset, u32::from(code))
            }
            _ => Err(self.wrong(index, "not an offset")),
        }
    }

    fn mandatory_literal(&mut self, index: usize, kind: Kind, operand: Operand) -> Result<(), EncodeError> {
        let half = kind == Kind::Literal16;
        let bits = match operand {
            Operand::Int(value) if half => {
                (-0x8000..=0xffff).contains(&value).then(|| constant::word(value & 0xffff)).flatten()
            }
            Operand::Int(value) => constant::word(value),
            Operand::Lit(bits) => Some(bits),
            #[allow(clippy::cast_possible_truncation)] // rounding to f32 is what the operand needs
            Operand::Float(x) if !half => Some((x as f32).to_bits()),
            Operand::Float(x) => match constant::of_float(Class::I16, x) {
                Some(Constant::Literal(bits)) => Some(bits),
                _ => Some(u32::from(half::f16::from_f64(x).to_bits())),
            },
            _ => None,
        };
        match bits {
            Some(bits) => self.put_literal(index, bits),
            None => Err(self.wrong(index, "not a literal")),
        }
    }

    fn immediate(&mut self, index: usize, slot: &Slot, operand: Operand) -> Result<(), EncodeError> {
        let value = match operand {
            Operand::Int(value) => value,
            Operand::Label(_) if slot.kind == Kind::Imm(super::row::Imm::Label) => 0,
            _ => return Err(self.wrong(index, "not an immediate")),
        };
        let Some(Bits(_, width)) = self.layout.bits(slot.field) else {
            return Err(EncodeError::Rule { op: self.name, why: "the format lacks a field of the row" });
        };
        let (min, max) = (-(1i64 << (width - 1)), (1i64 << width) - 1);
        if !(min..=max).contains(&value) {
            return Err(EncodeError::Range { op: self.name, what: "immediate", value, min, max });
        }
        self.set(slot.field, constant::word(value).unwrap_or(0))
    }

    /// Range and bit position of the byte offset of a memory access.
    fn offset(&mut self, value: i64) -> Result<(), EncodeError> {
        if value == 0 {
            return Ok(());
        }
        let Some(Bits(_, width)) = self.layout.bits(Field::Offset) else {
            return Err(EncodeError::Modifier { op: self.name, what: "offset" });
        };
        let by_register =
            self.target.chip == Chip::Gfx1201 && matches!(self.inst.operands.last(), Some(Operand::Reg(_)));
        let (min, max) = match self.row.format {
            Format::Smem if by_register => (-(1i64 << (width - 1)), (1i64 << (width - 1)) - 1),
            _ => offset_range(self.target.chip, self.row, width),
        };
        if !(min..=max).contains(&value) {
            return Err(EncodeError::Range { op: self.name, what: "offset", value, min, max });
        }
        self.set(Field::Offset, constant::word(value).unwrap_or(0))
    }
}

/// Smallest and largest byte offset of an access.
pub(super) fn offset_range(chip: Chip, row: &Row, width: u8) -> (i64, i64) {
    let unsigned = (0, (1i64 << width) - 1);
    let signed = (-(1i64 << (width - 1)), (1i64 << (width - 1)) - 1);
    match row.format {
        Format::Ds => unsigned,
        Format::Buffer if chip == Chip::Gfx1201 => (0, (1 << 23) - 1),
        Format::Buffer => unsigned,
        Format::Flat if chip != Chip::Gfx1201 => (0, 4095),
        Format::Smem if row.op.name().starts_with("s_buffer") => (0, (1i64 << (width - 1)) - 1),
        _ => signed,
    }
}

impl Builder<'_> {
    fn modifiers(&mut self, m: &Modifiers) -> Result<(), EncodeError> {
        if let Some(sdwa) = m.sdwa {
            // Signs, clamp and omod are in its dword.
            return sdwa::check(self, sdwa);
        }
        let dpp_e32 = m.dpp.is_some() && self.layout.bits(Field::Neg).is_none();
        if dpp_e32 {
            let allowed = self.row.allows;
            let of = |a, b| u8::from(allowed.contains(a)) | u8::from(allowed.contains(b)) << 1;
            let signs = of(Allows::DPP_MODS0, Allows::DPP_MODS1);
            if (m.neg | m.abs) & !signs != 0 || matches!(m.dpp, Some(Dpp::Dpp8 { .. })) && m.neg | m.abs != 0 {
                return Err(EncodeError::Modifier { op: self.name, what: "neg or abs" });
            }
        } else {
            self.bitmask("neg", Field::Neg, m.neg, Allows::NEG0)?;
            self.bitmask("abs", Field::Abs, m.abs, Allows::ABS0)?;
        }
        self.bitmask("neg_hi", Field::NegHi, m.neg_hi, Allows::NEG_HI0)?;
        match self.row.format {
            Format::Vop1 | Format::Vop2 | Format::Vopc => self.short_halves()?,
            _ => self.bitmask("op_sel", Field::OpSel, m.op_sel, Allows::OP_SEL0)?,
        }
        self.op_sel_hi(m)?;
        self.set_if(Allows::CLAMP, "clamp", Field::Clamp, u32::from(m.clamp))?;
        self.set_if(Allows::OMOD, "omod", Field::Omod, u32::from(m.omod))?;
        self.memory_modifiers(m)?;
        if let Some(dpp) = m.dpp {
            dpp::check(self, dpp)?;
        }
        Ok(())
    }

    fn bitmask(&mut self, what: &'static str, field: Field, value: u8, first: Allows) -> Result<(), EncodeError> {
        if value == 0 {
            return Ok(());
        }
        let halves = if field == Field::OpSel { self.row.halves(self.target.chip) } else { 0 };
        if (u64::from(value & !halves) * first.bits()) & !self.row.allows.bits() != 0 || value > 15 {
            return Err(EncodeError::Modifier { op: self.name, what });
        }
        self.set(field, u32::from(value))
    }

    fn op_sel_hi(&mut self, m: &Modifiers) -> Result<(), EncodeError> {
        if self.row.format != Format::Vop3p {
            return if m.op_sel_hi.is_some() {
                Err(EncodeError::Modifier { op: self.name, what: "op_sel_hi" })
            } else {
                Ok(())
            };
        }
        let usual = self.row.usual_op_sel_hi();
        let sources = self.row.slots.iter().filter(|s| matches!(s.kind, Kind::Source { .. })).count();
        let spoken = (1u8 << sources) - 1; // bits of sources that there are
        let hi = m.op_sel_hi.unwrap_or(usual) & spoken | usual & !spoken;
        if (u64::from(hi ^ usual) * Allows::OP_SEL_HI0.bits()) & !self.row.allows.bits() != 0 {
            return Err(EncodeError::Modifier { op: self.name, what: "op_sel_hi" });
        }
        self.set(Field::OpSelHi, u32::from(hi & 3))?;
        self.set(Field::OpSelHi2, u32::from(hi >> 2 & 1))
    }

    fn memory_modifiers(&mut self, m: &Modifiers) -> Result<(), EncodeError> {
        let allows = self.row.allows;
        if allows.contains(Allows::OFFSETS) {
            let first = u8::try_from(m.offset).map_err(|_| EncodeError::Range {
                op: self.name,
                what: "offset0",
                value: i64::from(m.offset),
                min: 0,
                max: 255,
            })?;
            self.set(Field::Offset0, u32::from(first))?;
            self.set(Field::Offset1, u32::from(m.offset1))?;
        } else if allows.contains(Allows::OFFSET) {
            self.offset(i64::from(m.offset))?;
        } else if m.offset != 0 && self.row.format != Format::Smem {
            return Err(EncodeError::Modifier { op: self.name, what: "offset" });
        }
        self.cache_bits(m)?;
        self.set_if(Allows::TFE, "tfe", Field::Tfe, u32::from(m.tfe))?;
        if self.row.allows.contains(Allows::LDS) && !m.lds {
            return Err(EncodeError::Rule { op: self.name, why: "without a register for the data it needs lds" });
        }
        self.set_if(Allows::LDS, "lds", Field::Lds, u32::from(m.lds))?;
        self.set_if(Allows::GDS, "gds", Field::Gds, u32::from(m.gds))?;
        self.set_if(Allows::OFFEN, "offen", Field::Offen, u32::from(m.offen))?;
        self.set_if(Allows::OFFEN, "idxen", Field::Idxen, u32::from(m.idxen))?;
        self.set_if(Allows::CBSZ, "cbsz", Field::Cbsz, u32::from(m.cbsz))?;
        self.set_if(Allows::ABID, "abid", Field::Abid, u32::from(m.abid))?;
        self.set_if(Allows::BLGP, "blgp", Field::Blgp, u32::from(m.blgp))
    }

    fn cache_bits(&mut self, m: &Modifiers) -> Result<(), EncodeError> {
        if self.row.allows.contains(Allows::RETURNS) {
            let (bit, asked) = match self.target.chip {
                Chip::Gfx1100 => (Field::Glc, m.glc),
                Chip::Gfx942 => (Field::Sc0, m.sc0),
                Chip::Gfx1201 => (Field::Th, m.th & 1 == 1),
            };
            if !asked {
                return Err(EncodeError::Rule {
                    op: self.name,
                    why: "an atomic that returns a value needs the cache bit that says so",
                });
            }
            self.set(bit, u32::from(m.th).max(1))?;
        } else {
            if m.th & 1 == 1
                && self.name.contains("atomic")
                && self.row.allows.contains(Allows::TH)
                && self.row.format != Format::Buffer
            {
                return Err(EncodeError::Rule {
                    op: self.name,
                    why: "th asks for the old value, but there is no destination",
                });
            }
            self.set_if(Allows::GLC, "glc", Field::Glc, u32::from(m.glc))?;
            self.set_if(Allows::SC0, "sc0", Field::Sc0, u32::from(m.sc0))?;
            self.set_if(Allows::TH, "th", Field::Th, u32::from(m.th))?;
        }
        self.set_if(Allows::DLC, "dlc", Field::Dlc, u32::from(m.dlc))?;
        self.set_if(Allows::SLC, "slc", Field::Slc, u32::from(m.slc))?;
        self.set_if(Allows::SC1, "sc1", Field::Sc1, u32::from(m.sc1))?;
        self.set_if(Allows::NT, "nt", Field::Nt, u32::from(m.nt))?;
        self.set_if(Allows::SCOPE, "scope", Field::Scope, u32::from(m.scope))?;
        self.set_if(Allows::NV, "nv", Field::Nv, u32::from(m.nv))
    }

    /// A vector instruction reads few different scalar values: one on gfx9, two on gfx11 and gfx12.
    fn constant_bus(&self) -> Result<(), EncodeError> {
        let vector = matches!(
            self.row.format,
            Format::Vop1 | Format::Vop2 | Format::Vopc | Format::Vop3 | Format::Vop3Sd | Format::Vop3p
        );
        let shift64 = matches!(self.name, "v_lshlrev_b64" | "v_lshrrev_b64" | "v_ashrrev_i64");
        let limit = if self.target.chip.is_gfx9() || shift64 { 1 } else { 2 };
        let named = self.row.slots.iter().any(|s| matches!(s.kind, Kind::Vcc | Kind::Mask { .. }));
        let vcc = self.row.reads.contains(Implicit::VCC) && !named;
        let used = self.scalars.len() + usize::from(vcc) + usize::from(self.literal.is_some());
        if vector && used > limit {
            return Err(EncodeError::Rule { op: self.name, why: "more scalar values than the constant bus carries" });
        }
        Ok(())
    }

    /// A long matrix instruction writes parts of D while it still reads C: the same registers, or others.
    fn matrix_overlap(&self) -> Result<(), EncodeError> {
        let (d, c) = match (self.row.format, self.inst.operands.first(), self.inst.operands.get(3)) {
            (Format::Mai, Some(Operand::Reg(d)), Some(Operand::Reg(c))) => (d, c),
            _ => return Ok(()),
        };
        let apart = c.first + u16::from(c.words) <= d.first || d.first + u16::from(d.words) <= c.first;
        if d.words <= 4 || d.file != c.file || d == c || apart {
            return Ok(());
        }
        Err(EncodeError::Rule { op: self.name, why: "the addend overlaps a part of the result" })
    }

    fn finish(self) -> Result<Words, EncodeError> {
        let mut words: Words = (0..self.layout.dwords).map(|i| word_at(self.bits, i)).collect();
        if let Some(dpp) = self.inst.mods.dpp {
            if self.literal.is_some() {
                return Err(EncodeError::Rule { op: self.name, why: "a literal beside DPP" });
            }
            words.push(dpp::word(self.bits, self.layout, &self.inst.mods, dpp));
            words[0] = self.src0_replaced(0, dpp::code(dpp));
            if self.layout.dwords == 2 {
                words[1] = self.src0_replaced(1, dpp::code(dpp));
            }
        } else if let Some(sdwa) = self.inst.mods.sdwa {
            if self.literal.is_some() {
                return Err(EncodeError::Rule { op: self.name, why: "a literal beside SDWA" });
            }
            words.push(sdwa::word(self.bits, self.layout, self.row, &self.inst.mods, sdwa));
            words[0] = self.src0_replaced(0, sdwa::CODE);
        } else if let Some(literal) = self.literal {
            words.push(literal);
        }
        Ok(words)
    }

    /// A dword with the code of the DPP or SDWA form in the place of the first source.
    fn src0_replaced(&self, index: u8, code: u16) -> u32 {
        let Some(Bits(lo, width)) = self.layout.bits(Field::Src0) else { return word_at(self.bits, index) };
        let bits = self.bits & !(mask(width) << lo) | u128::from(code) << lo;
        word_at(bits, index)
    }
}

/// Dword `index` of the bits.
fn word_at(bits: u128, index: u8) -> u32 {
    // PANIC: 32 masked bits fit.
    u32::try_from(bits >> (32 * u32::from(index)) & 0xffff_ffff).unwrap_or_default()
}

impl Row {
    /// Which sources of a packed operation use their high half for the high result by default.
    #[must_use]
    pub fn usual_op_sel_hi(&self) -> u8 {
        let bit = |flag, value: u8| if self.allows.contains(flag) { value } else { 0 };
        bit(Allows::HI0, 1) | bit(Allows::HI1, 2) | bit(Allows::HI2, 4)
    }
}

/// The row of one half of a dual instruction.
pub(super) fn dual_row(chip: Chip, op: Op, format: Format) -> Option<&'static Row> {
    op.rows(chip).find(|r| r.format == format)
}

//! Words to instructions: formats are distinguished by their leading bits, fields are those of docs/amd-isa.md 5.1 to
//! 5.5. Vector formats are read here, memory formats in `decode_mem`.
//!
//! The tables are the emulator's own; nothing here comes from the encoder of `isa`.

use super::Chip;
use super::fault::{FaultKind, R, fail};
use super::inst::{Dpp, DppKind, Inst, M0, Operand, Sdwa, VCC};
use super::lanes::Ty;
use super::rows::{Entry, Format, Table};
use super::sem::{Form, Sem};

/// Flat addresses of LDS and of scratch, as the kernel driver sets the apertures.
pub(crate) const SHARED_APERTURE: u64 = 1 << 48;
pub(crate) const PRIVATE_APERTURE: u64 = 2 << 48;

/// Bits of a word, both ends included.
pub(super) fn bits(word: u32, lo: u32, hi: u32) -> u32 {
    word >> lo & (u32::MAX >> (31 - (hi - lo)))
}

/// What decoding needs to know: the chip's table and the wave size.
#[derive(Clone, Copy)]
pub(super) struct Decoder {
    pub table: &'static Table,
    pub wave32: bool,
    pub reserved: bool,
}

/// Source fields that have extra words.
const LITERAL: u32 = 255;
const DPP16: u32 = 250;
const SDWA: u32 = 249;
const DPP8: u32 = 233;
const DPP8_FI: u32 = 234;

impl Decoder {
    pub(crate) fn chip(&self) -> Chip {
        self.table.chip
    }

    fn gfx9(&self) -> bool {
        self.chip() == Chip::Gfx942
    }

    /// Decodes the instruction at the start of `words`.
    pub(crate) fn decode(&self, words: [u32; 4]) -> R<Inst> {
        let w = words[0];
        let mut inst = match w >> 30 {
            0b10 => self.scalar(words)?,
            0b11 => self.long(words)?,
            _ => self.short_vector(words)?,
        };
        inst.complete();
        if self.reserved {
            super::reserved::check(self.chip(), &inst)?;
        }
        Ok(inst)
    }

    pub(crate) fn entry(&self, format: Format, opcode: u32, word: u32) -> R<&'static Entry> {
        match self.table.get(format, opcode) {
            Some(entry) => Ok(entry),
            None => fail(FaultKind::IllegalInstruction { word }),
        }
    }

    fn scalar(&self, words: [u32; 4]) -> R<Inst> {
        let w = words[0];
        let wide = |bits_of: u8| if bits_of == 2 { Ty::B64 } else { Ty::B32 };
        let (format, opcode) = match w >> 23 {
            0x17d => (Format::Sop1, bits(w, 8, 15)),
            0x17e => (Format::Sopc, bits(w, 16, 22)),
            0x17f => (Format::Sopp, bits(w, 16, 22)),
            _ if w >> 28 == 0b1011 => (Format::Sopk, bits(w, 23, 27)),
            _ => (Format::Sop2, bits(w, 23, 29)),
        };
        let entry = self.entry(format, opcode, w)?;
        let mut i = Inst::new(entry, format, words, 1);
        let ty = |slot: usize| match entry.widths[slot] {
            2 if entry.name.ends_with("i64") => Ty::I64,
            _ if entry.name.ends_with("f16") && slot > 0 => Ty::F16,
            n => wide(n),
        };
        if matches!(format, Format::Sop1 | Format::Sop2 | Format::Sopk) && entry.widths[0] != 0 {
            i.dst = self.scalar_register(bits(w, 16, 22))?;
        }
        i.imm = i32::from(w as u16 as i16);
        let used = match format {
            Format::Sop1 => 1,
            Format::Sop2 | Format::Sopc => 2,
            _ => 0,
        };
        for slot in 0..used {
            if entry.widths[slot + 1] == 0 {
                continue;
            }
            i.ty[slot] = ty(slot + 1);
            i.src[slot] = self.operand(&mut i, bits(w, 8 * slot as u32, 8 * slot as u32 + 7), slot)?;
        }
        if entry.name == "s_setreg_imm32_b32" || entry.name.starts_with("s_fmaak") || entry.name.starts_with("s_fmamk")
        {
            i.len_dwords = 2;
            i.src[2] = Operand::K(words[1].into());
        }
        if format == Format::Sopk && i.dst == Operand::None {
            i.dst = self.scalar_register(bits(w, 16, 22))?;
        }
        Ok(i)
    }

    pub(crate) fn scalar_register(&self, n: u32) -> R<Operand> {
        let null_or_m0 = if self.gfx9() { Operand::S(M0) } else { Operand::Null };
        match n {
            124 => Ok(null_or_m0),
            125 if self.gfx9() => fail(FaultKind::BadOperand { what: "scalar register 125".into() }),
            0..=127 => Ok(Operand::S(n as u8)),
            _ => fail(FaultKind::BadOperand { what: format!("scalar destination {n}") }),
        }
    }

    /// A source by its number; a literal makes the instruction longer.
    pub(crate) fn operand(&self, i: &mut Inst, n: u32, slot: usize) -> R<Operand> {
        let ty = i.ty[slot];
        Ok(match n {
            0..=127 => self.scalar_register(n)?,
            128..=192 => Operand::K(integer(i64::from(n) - 128, ty)),
            193..=208 => Operand::K(integer(192 - i64::from(n), ty)),
            235 => Operand::Aperture(SHARED_APERTURE),
            236 => Operand::Aperture(SHARED_APERTURE | 0xffff_ffff),
            237 => Operand::Aperture(PRIVATE_APERTURE),
            238 => Operand::Aperture(PRIVATE_APERTURE | 0xffff_ffff),
            240..=248 => Operand::K(float_constant(n - 240, ty)),
            251 if self.gfx9() => Operand::Vccz,
            252 if self.gfx9() => Operand::Execz,
            253 => Operand::Scc,
            LITERAL => {
                let base = base_dwords(i.format);
                i.len_dwords = base + 1;
                Operand::K(literal(i.words[base as usize], ty))
            }
            256..=511 => Operand::V((n - 256) as u16),
            _ => return fail(FaultKind::BadOperand { what: format!("source {n}") }),
        })
    }

    fn short_vector(&self, words: [u32; 4]) -> R<Inst> {
        let w = words[0];
        let (format, opcode) = match w >> 25 {
            0x3e => (Format::Vopc, bits(w, 17, 24)),
            0x3f => (Format::Vop1, bits(w, 9, 16)),
            _ => (Format::Vop2, bits(w, 25, 30)),
        };
        if self.gfx9() && w == 0 {
            return fail(FaultKind::IllegalInstruction { word: 0 });
        }
        let entry = self.entry(format, opcode, w)?;
        let mut i = Inst::new(entry, format, words, 1);
        self.types(&mut i);
        self.destination(&mut i, bits(w, 17, 24));
        if entry.widths[1] != 0 || format != Format::Vop1 {
            self.first_source(&mut i, bits(w, 0, 8))?;
        }
        if format != Format::Vop1 && i.sdwa.is_none() {
            i.src[1] = Operand::V(bits(w, 9, 16) as u16);
        }
        if let Sem::Packed(_) = entry.sem {
            i.opsel_hi = 7;
        } else {
            self.high_halves(&mut i);
        }
        self.implied(&mut i)?;
        Ok(i)
    }

    /// Types of the sources, from the semantics; a source without a type is 32 or 64 bits wide, as in the row.
    pub(crate) fn types(&self, i: &mut Inst) {
        i.ty = match i.entry.sem {
            Sem::Vector(sem, _) => sem.src,
            Sem::Compare(c) => match c.what {
                super::sem_compare::What::Class => [c.ty, c.class_bits(), Ty::None],
                super::sem_compare::What::Relation(_) => [c.ty, c.ty, Ty::None],
            },
            Sem::Packed(p) => p.types(i.entry.widths),
            Sem::Cross(c) => c.types(),
            _ => [1, 2, 3].map(|n| if i.entry.widths[n] == 2 { Ty::B64 } else { Ty::B32 }),
        };
    }

    fn destination(&self, i: &mut Inst, field: u32) {
        match i.entry.sem {
            Sem::Compare(c) if i.format == Format::Vopc => {
                i.sdst = if c.exec && !self.gfx9() { Operand::None } else { Operand::S(VCC) };
            }
            Sem::Cross(c) if c.writes_scalar() => i.sdst = self.scalar_register(field & 127).unwrap_or(Operand::None),
            _ if i.entry.widths[0] == 0 => {}
            _ => i.dst = Operand::V(field as u16),
        }
    }

    /// The first source of a short form, with the extra word of DPP and SDWA.
    fn first_source(&self, i: &mut Inst, n: u32) -> R<()> {
        let base = base_dwords(i.format);
        let extra = i.words[usize::from(base)];
        i.src[0] = match n {
            DPP16 => {
                i.len_dwords = base + 1;
                i.dpp = Some(dpp16(extra));
                i.abs |= bits(extra, 21, 21) as u8 | (bits(extra, 23, 23) << 1) as u8;
                i.neg |= bits(extra, 20, 20) as u8 | (bits(extra, 22, 22) << 1) as u8;
                Operand::V(bits(extra, 0, 7) as u16)
            }
            DPP8 | DPP8_FI if !self.gfx9() => {
                i.len_dwords = base + 1;
                i.dpp = Some(dpp8(extra, n == DPP8_FI));
                Operand::V(bits(extra, 0, 7) as u16)
            }
            SDWA if self.gfx9() => return self.sdwa(i, extra),
            n => self.operand(i, n, 0)?,
        };
        Ok(())
    }

    fn sdwa(&self, i: &mut Inst, extra: u32) -> R<()> {
        i.len_dwords = 2;
        let register = |n: u32, scalar: bool| if scalar { self.scalar_register(n) } else { Ok(Operand::V(n as u16)) };
        i.src[0] = register(bits(extra, 0, 7), bits(extra, 23, 23) == 1)?;
        if i.format != Format::Vop1 {
            i.src[1] = register(bits(i.words[0], 9, 16), bits(extra, 31, 31) == 1)?;
        }
        let mut s = Sdwa {
            src: [
                (bits(extra, 16, 18) as u8, bits(extra, 19, 19) == 1),
                (bits(extra, 24, 26) as u8, bits(extra, 27, 27) == 1),
            ],
            dst: bits(extra, 8, 10) as u8,
            rest: bits(extra, 11, 12) as u8,
        };
        i.neg = (bits(extra, 20, 20) | bits(extra, 28, 28) << 1) as u8;
        i.abs = (bits(extra, 21, 21) | bits(extra, 29, 29) << 1) as u8;
        if i.format == Format::Vopc {
            s.dst = 6;
            if bits(extra, 15, 15) == 1 {
                i.sdst = self.scalar_register(bits(extra, 8, 14))?;
            }
        } else {
            i.clamp = bits(extra, 13, 13) == 1;
            i.omod = bits(extra, 14, 15) as u8;
        }
        i.sdwa = Some(s);
        Ok(())
    }

    /// Operands that the encoding implies: accumulators, mandatory literals, VCC.
    fn implied(&self, i: &mut Inst) -> R<()> {
        let form = match i.entry.sem {
            Sem::Vector(_, form) => form,
            Sem::Packed(p) => p.form(),
            Sem::Cross(c) => return c.implied(i),
            _ => return Ok(()),
        };
        let k = |i: &mut Inst, slot: usize| {
            i.len_dwords = 2;
            Operand::K(literal(i.words[1], i.ty[slot]))
        };
        match form {
            Form::Plain => {}
            Form::Acc => {
                i.src[2] = i.dst;
                // The addend is the half that is written.
                i.opsel |= i.opsel >> 1 & 4;
            }
            Form::Mk => {
                i.src[2] = i.src[1];
                i.src[1] = k(i, 1);
            }
            Form::Ak => i.src[2] = k(i, 2),
        }
        Ok(())
    }

    /// On gfx11 and gfx12, 16-bit operands of short forms name v0..v127 and a half by the number's bit 7.
    fn high_halves(&self, i: &mut Inst) {
        if self.gfx9() {
            return;
        }
        for slot in 0..3 {
            if let Operand::V(n @ 128..=255) = i.src[slot]
                && i.ty[slot].is_16()
            {
                i.src[slot] = Operand::V(n - 128);
                i.opsel |= 1 << slot;
            }
        }
        if let (Operand::V(n @ 128..=255), Sem::Vector(sem, _)) = (i.dst, i.entry.sem)
            && sem.dst.is_16()
        {
            i.dst = Operand::V(n - 128);
            i.opsel |= 8;
        }
    }

    fn long(&self, words: [u32; 4]) -> R<Inst> {
        let w = words[0];
        let vop3 = if self.gfx9() { 0x34 } else { 0x35 };
        if w >> 24 == 0xcc && !self.gfx9() || w >> 23 == 0x1a7 && self.gfx9() {
            return self.vop3p(words);
        }
        match w >> 26 {
            n if n == vop3 => self.vop3(words),
            0x32 if !self.gfx9() => self.vopd(words),
            _ => self.memory(words),
        }
    }

    fn vop3(&self, words: [u32; 4]) -> R<Inst> {
        let (w, v) = (words[0], words[1]);
        let Some(entry) = self.table.vop3(bits(w, 16, 25)) else {
            return fail(FaultKind::IllegalInstruction { word: w });
        };
        let mut i = Inst::new(entry, Format::Vop3, words, 2);
        self.types(&mut i);
        i.clamp = bits(w, 15, 15) == 1;
        i.omod = bits(v, 27, 28) as u8;
        i.neg = bits(v, 29, 31) as u8;
        let with_sdst = match entry.sem {
            Sem::Cross(c) => c.has_sdst(),
            _ => false,
        };
        if with_sdst {
            i.sdst = self.scalar_register(bits(w, 8, 14))?;
        } else {
            i.abs = bits(w, 8, 10) as u8;
            i.opsel = bits(w, 11, 14) as u8;
        }
        match entry.sem {
            Sem::Compare(c) if c.exec && !self.gfx9() => {}
            Sem::Compare(_) => i.sdst = self.scalar_register(bits(w, 0, 7))?,
            _ => self.destination(&mut i, bits(w, 0, 7)),
        }
        for slot in 0..3 {
            let field = bits(v, 9 * slot as u32, 9 * slot as u32 + 8);
            if slot < 2 && self.sources(entry) > slot || self.sources(entry) > slot {
                if slot == 0 {
                    self.first_source(&mut i, field)?
                } else {
                    i.src[slot] = self.operand(&mut i, field, slot)?
                }
            } else if field != 0 && self.reserved {
                return fail(FaultKind::ReservedBits {
                    name: entry.name.into(),
                    bits: u64::from(field) << (32 + 9 * slot),
                });
            }
        }
        if let Sem::Vector(_, Form::Acc) = entry.sem {
            i.src[2] = i.dst;
            i.opsel |= i.opsel >> 1 & 4;
        }
        Ok(i)
    }

    /// How many source fields an instruction has in the 64-bit form.
    fn sources(&self, entry: &Entry) -> usize {
        if let Sem::Cross(c) = entry.sem {
            return c.sources(entry);
        }
        entry.widths[1..].iter().take_while(|w| **w != 0).count()
    }

    fn vop3p(&self, words: [u32; 4]) -> R<Inst> {
        let (w, v) = (words[0], words[1]);
        let opcode = bits(w, 16, 22);
        let mai = self.table.get(Format::Mai, opcode).filter(|_| self.gfx9());
        let (entry, format) = match mai {
            Some(entry) => (entry, Format::Mai),
            None => (self.entry(Format::Vop3p, opcode, w)?, Format::Vop3p),
        };
        let mut i = Inst::new(entry, format, words, 2);
        i.clamp = bits(w, 15, 15) == 1;
        i.neg = bits(v, 29, 31) as u8;
        i.neg_hi = bits(w, 8, 10) as u8;
        i.opsel = bits(w, 11, 13) as u8;
        i.opsel_hi = (bits(v, 27, 28) | bits(w, 14, 14) << 2) as u8;
        self.types(&mut i);
        if format == Format::Mai {
            return self.mai(i);
        }
        i.dst = Operand::V(bits(w, 0, 7) as u16);
        for slot in 0..self.sources(entry) {
            let field = bits(v, 9 * slot as u32, 9 * slot as u32 + 8);
            if slot == 0 {
                self.first_source(&mut i, field)?
            } else {
                i.src[slot] = self.operand(&mut i, field, slot)?
            }
        }
        Ok(i)
    }

    /// Matrix instructions of gfx942: each register operand may live in the accumulation file.
    fn mai(&self, mut i: Inst) -> R<Inst> {
        let (w, v) = (i.words[0], i.words[1]);
        let acc = |o: Operand, on: bool| match o {
            Operand::V(n) if on => Operand::V(n + 256),
            other => other,
        };
        let (acc_cd, acc_a, acc_b) = (i.clamp, bits(v, 27, 27) == 1, bits(v, 28, 28) == 1);
        i.clamp = false;
        let name = i.entry.name;
        i.dst = Operand::V(bits(w, 0, 7) as u16);
        i.ty = if name.contains("f64") {
            [Ty::F64; 3]
        } else if name.contains("i32") {
            [Ty::I32; 3]
        } else {
            [Ty::F32; 3]
        };
        for slot in 0..if name.starts_with("v_accvgpr") { 1 } else { 3 } {
            let field = bits(v, 9 * slot as u32, 9 * slot as u32 + 8);
            i.src[slot] = self.operand(&mut i, field, slot)?;
        }
        match name {
            "v_accvgpr_read_b32" => i.src[0] = acc(i.src[0], true),
            "v_accvgpr_write_b32" => i.dst = acc(i.dst, true),
            _ => {
                i.dst = acc(i.dst, acc_cd);
                i.src = [acc(i.src[0], acc_a), acc(i.src[1], acc_b), acc(i.src[2], acc_cd)];
                i.imm = (bits(w, 8, 10) | bits(w, 11, 14) << 3 | bits(v, 29, 31) << 7) as i32;
            }
        }
        if matches!(name, "v_accvgpr_read_b32" | "v_accvgpr_write_b32") {
            (i.neg, i.neg_hi, i.opsel, i.opsel_hi) = (0, 0, 0, 0);
        }
        Ok(i)
    }

    fn vopd(&self, words: [u32; 4]) -> R<Inst> {
        let (w, v) = (words[0], words[1]);
        if !self.wave32 {
            return fail(FaultKind::BadOperand { what: "a dual instruction in wave64".into() });
        }
        let (op_x, op_y) = (bits(w, 22, 25), bits(w, 17, 21));
        let dst_x = bits(v, 24, 31) as u16;
        let dst_y = (bits(v, 17, 23) as u16) << 1 | (dst_x & 1 ^ 1);
        let entry_x = self.entry(Format::VopdX, op_x, w)?;
        let entry_y = self.table.get(Format::VopdY, op_y).or_else(|| self.table.get(Format::VopdX, op_y));
        let Some(entry_y) = entry_y else { return fail(FaultKind::IllegalInstruction { word: w }) };
        let mut len = 2;
        let mut half = |entry: &'static Entry, dst: u16, src0: u32, src1: u32| -> R<Inst> {
            let mut i = Inst::new(entry, Format::VopdX, words, 2);
            self.types(&mut i);
            i.dst = Operand::V(dst);
            i.src[0] = self.operand(&mut i, src0, 0)?;
            i.src[1] = Operand::V(src1 as u16);
            if entry.name == "v_dual_mov_b32" {
                i.src[1] = Operand::None;
            }
            let k = Operand::K(words[2].into());
            match entry.sem {
                Sem::Vector(_, Form::Acc) => i.src[2] = i.dst,
                Sem::Vector(_, Form::Mk) => (i.src[2], i.src[1], i.len_dwords) = (i.src[1], k, 3),
                Sem::Vector(_, Form::Ak) => (i.src[2], i.len_dwords) = (k, 3),
                Sem::Packed(_) => (i.src[2], i.opsel_hi) = (i.dst, 7),
                Sem::Cross(_) => i.src[2] = Operand::S(VCC),
                _ => {}
            }
            len = len.max(i.len_dwords);
            Ok(i)
        };
        let mut x = half(entry_x, dst_x, bits(w, 0, 8), bits(w, 9, 16))?;
        let y = half(entry_y, dst_y, bits(v, 0, 8), bits(v, 9, 16))?;
        x.len_dwords = len;
        x.second = Some(Box::new(y));
        Ok(x)
    }
}

/// Text and length in dwords of the instruction that starts `words`, as the emulator reads it.
///
/// # Errors
/// What a wave would be stopped with for meeting these words.
pub fn disassemble(chip: Chip, wave32: bool, words: [u32; 4]) -> Result<(String, u32), FaultKind> {
    let decoder = Decoder { table: Table::of(chip), wave32, reserved: true };
    decoder.decode(words).map(|i| (i.to_string(), i.len_dwords.into())).map_err(|fault| *fault)
}

/// Dwords of a format without literal or DPP.
pub(super) fn base_dwords(format: Format) -> u8 {
    match format {
        Format::Vop3 | Format::Vop3p | Format::Mai | Format::VopdX | Format::VopdY => 2,
        _ => 1,
    }
}

fn integer(v: i64, ty: Ty) -> u64 {
    if ty.is_64() { v as u64 } else { u64::from(v as u32) }
}

/// 0.5, -0.5, 1, -1, 2, -2, 4, -4, 1/(2 pi) in the operand's own width.
fn float_constant(n: u32, ty: Ty) -> u64 {
    const VALUES: [f64; 8] = [0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0];
    let value = VALUES.get(n as usize).copied();
    match ty {
        Ty::F16 | Ty::B16 | Ty::I16 | Ty::U16 => {
            value.map_or(0x3118, |v| super::float::to_half(v, super::lanes::Round::Nearest).into())
        }
        _ if ty.is_64() => value.map_or(0x3fc4_5f30_6dc9_c882, f64::to_bits),
        _ => value.map_or(0x3e22_f983, |v| (v as f32).to_bits().into()),
    }
}

pub(super) fn literal(word: u32, ty: Ty) -> u64 {
    match ty {
        Ty::F64 => u64::from(word) << 32,
        Ty::I64 => i64::from(word as i32) as u64,
        _ => word.into(),
    }
}

fn dpp16(word: u32) -> Dpp {
    Dpp {
        kind: DppKind::Ctrl(bits(word, 8, 16) as u16),
        fetch_inactive: bits(word, 18, 18) == 1,
        bound_ctrl: bits(word, 19, 19) == 1,
        bank_mask: bits(word, 24, 27) as u8,
        row_mask: bits(word, 28, 31) as u8,
    }
}

fn dpp8(word: u32, fetch_inactive: bool) -> Dpp {
    let lanes = std::array::from_fn(|n| bits(word, 8 + 3 * n as u32, 10 + 3 * n as u32) as u8);
    Dpp { kind: DppKind::Eight(lanes), fetch_inactive, bound_ctrl: true, bank_mask: 15, row_mask: 15 }
}

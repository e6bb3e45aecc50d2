//! Memory formats: SMEM, DS, FLAT, MUBUF and gfx12's 96-bit forms. Fields as in docs/amd-isa.md 5.1 to 5.3.

use super::Chip;
use super::decode::{Decoder, bits};
use super::fault::{FaultKind, R, fail};
use super::inst::{Inst, MemFields, Operand, Scope};
use super::lanes::Ty;
use super::memory::{Kind, MemOp, Width};
use super::rows::Format;
use super::sem::Sem;

/// Sign extension of the low bits of a word.
fn signed(v: u32, width: u32) -> i32 {
    ((v << (32 - width)) as i32) >> (32 - width)
}

/// Whether a buffer load may go to LDS: one of at most a dword, without halves of registers.
fn loads_a_dword(sem: Sem) -> bool {
    let Sem::Memory(MemOp { kind: Kind::Load(Width { bytes, half, .. }), .. }) = sem else { return false };
    bytes <= 4 && half.is_none()
}

fn vector(n: u32, acc: bool) -> Operand {
    Operand::V(n as u16 + if acc { 256 } else { 0 })
}

impl Decoder {
    pub(crate) fn memory(&self, words: [u32; 4]) -> R<Inst> {
        let w = words[0];
        match (self.chip(), w >> 26) {
            (Chip::Gfx942, 0x30) | (Chip::Gfx1100 | Chip::Gfx1201, 0x3d) => self.smem(words),
            (_, 0x36) => self.ds(words),
            (Chip::Gfx1100 | Chip::Gfx942, 0x37) => self.flat(words),
            (Chip::Gfx1100 | Chip::Gfx942, 0x38) => self.mubuf(words),
            (Chip::Gfx1201, 0x3b) => self.flat12(words),
            (Chip::Gfx1201, 0x31) => self.buffer12(words),
            _ => fail(FaultKind::IllegalInstruction { word: w }),
        }
    }

    fn smem(&self, words: [u32; 4]) -> R<Inst> {
        let (w, v) = (words[0], words[1]);
        let gfx12 = self.chip() == Chip::Gfx1201;
        let opcode = if gfx12 { bits(w, 13, 18) } else { bits(w, 18, 25) };
        let entry = self.entry(Format::Smem, opcode, w)?;
        let mut i = Inst::new(entry, Format::Smem, words, 2);
        if entry.widths[0] != 0 {
            i.dst = self.scalar_register(bits(w, 6, 12))?;
        }
        if let Sem::Memory(op) = entry.sem
            && matches!(op.kind, Kind::Load(_) | Kind::Store(_))
        {
            i.mem.base = Operand::S((bits(w, 0, 5) << 1) as u8);
            if op.data > 0 {
                i.mem.data = self.scalar_register(bits(w, 6, 12))?;
            }
        }
        match self.chip() {
            Chip::Gfx942 => {
                let (imm, soffset_en) = (bits(w, 17, 17) == 1, bits(w, 14, 14) == 1);
                i.mem.offset = if imm { signed(bits(v, 0, 20), 21) } else { 0 };
                if soffset_en {
                    i.mem.soffset = self.scalar_register(bits(v, 25, 31))?;
                } else if !imm {
                    i.mem.soffset = self.scalar_register(bits(v, 0, 6))?;
                }
            }
            chip => {
                let width = if chip == Chip::Gfx1201 { 24 } else { 21 };
                i.mem.offset = signed(bits(v, 0, width - 1), width);
                i.mem.soffset = self.scalar_register(bits(v, 25, 31))?;
            }
        }
        Ok(i)
    }

    fn ds(&self, words: [u32; 4]) -> R<Inst> {
        let (w, v) = (words[0], words[1]);
        let gfx9 = self.chip() == Chip::Gfx942;
        let opcode = if gfx9 { bits(w, 17, 24) } else { bits(w, 18, 25) };
        let entry = self.entry(Format::Ds, opcode, w)?;
        let mut i = Inst::new(entry, Format::Ds, words, 2);
        let gds = if gfx9 { bits(w, 16, 16) } else { bits(w, 17, 17) };
        if gds == 1 {
            return fail(FaultKind::NotModelled { name: format!("{} gds", entry.name) });
        }
        let acc = gfx9 && bits(w, 25, 25) == 1;
        let Sem::Memory(op) = entry.sem else { return Ok(i) };
        let two = matches!(op.kind, Kind::Load2 { .. } | Kind::Store2 { .. } | Kind::Exchange2 { .. });
        let no_address = matches!(op.kind, Kind::Append { .. } | Kind::Cache(_))
            || matches!(op.kind, Kind::Load(x) | Kind::Store(x) if x.by_lane);
        i.mem = MemFields {
            addr: if no_address { Operand::None } else { vector(bits(v, 0, 7), false) },
            data: if op.data > 0 { vector(bits(v, 8, 15), acc) } else { Operand::None },
            data1: vector(bits(v, 16, 23), acc),
            offset: if two { bits(w, 0, 7) as i32 } else { bits(w, 0, 15) as i32 },
            offset1: bits(w, 8, 15),
            returns: op.returns,
            ..MemFields::default()
        };
        let second = match op.kind {
            Kind::Store2 { .. } | Kind::Exchange2 { .. } => true,
            Kind::Atomic { op, .. } => op.compares(),
            _ => false,
        };
        if !second {
            i.mem.data1 = Operand::None;
        }
        if op.ret > 0 {
            i.dst = vector(bits(v, 24, 31), acc);
        }
        Ok(i)
    }

    /// FLAT, GLOBAL and SCRATCH of gfx11 and gfx942.
    fn flat(&self, words: [u32; 4]) -> R<Inst> {
        let (w, v) = (words[0], words[1]);
        let gfx9 = self.chip() == Chip::Gfx942;
        let segment = if gfx9 { bits(w, 14, 15) } else { bits(w, 16, 17) };
        let format = [Format::Flat, Format::Scratch, Format::Global, Format::Mubuf][segment as usize];
        if segment == 3 {
            return fail(FaultKind::IllegalInstruction { word: w });
        }
        let entry = self.entry(format, bits(w, 18, 24), w)?;
        let mut i = Inst::new(entry, format, words, 2);
        let acc = gfx9 && bits(v, 23, 23) == 1;
        let with_vaddr = if gfx9 { bits(w, 13, 13) == 1 } else { bits(v, 23, 23) == 1 };
        let glc = if gfx9 { bits(w, 16, 16) } else { bits(w, 14, 14) };
        let offset = match (gfx9, format) {
            (true, Format::Flat) => bits(w, 0, 11) as i32,
            _ => signed(bits(w, 0, 12), 13),
        };
        let saddr = bits(v, 16, 22);
        let none = if gfx9 { 0x7f } else { 0x7c };
        let base = if format == Format::Flat || saddr == none { Operand::None } else { self.scalar_register(saddr)? };
        self.flat_fields(&mut i, format, [bits(v, 0, 7), bits(v, 8, 15), bits(v, 24, 31)], acc, with_vaddr)?;
        (i.mem.offset, i.mem.base) = (offset, base);
        self.returning(&mut i, glc == 1, bits(v, 24, 31), acc);
        i.mem.scope = if gfx9 { Scope::of(glc | bits(w, 25, 25) << 1) } else { Scope::of_glc(glc == 1) };
        Ok(i)
    }

    /// Registers of a flat access: address, data, destination.
    fn flat_fields(&self, i: &mut Inst, format: Format, reg: [u32; 3], acc: bool, with_vaddr: bool) -> R<()> {
        let Sem::Memory(op) = i.entry.sem else { return Ok(()) };
        let [addr, data, dst] = reg;
        if !matches!(op.kind, Kind::Cache(_)) && (format != Format::Scratch || with_vaddr) {
            i.mem.addr = vector(addr, false);
        }
        if op.data > 0 {
            i.mem.data = vector(data, acc);
        }
        if op.ret > 0 && !matches!(op.kind, Kind::Atomic { .. }) {
            i.dst = vector(dst, acc);
        }
        Ok(())
    }

    fn returning(&self, i: &mut Inst, returns: bool, dst: u32, acc: bool) {
        if let Sem::Memory(op) = i.entry.sem
            && matches!(op.kind, Kind::Atomic { .. })
            && returns
        {
            i.mem.returns = true;
            i.dst = vector(dst, acc);
        }
    }

    fn mubuf(&self, words: [u32; 4]) -> R<Inst> {
        let (w, v) = (words[0], words[1]);
        let gfx9 = self.chip() == Chip::Gfx942;
        let opcode = if gfx9 { bits(w, 18, 24) } else { bits(w, 18, 25) };
        let entry = self.entry(Format::Mubuf, opcode, w)?;
        let mut i = Inst::new(entry, Format::Mubuf, words, 2);
        let acc = gfx9 && bits(v, 23, 23) == 1;
        let (offen, idxen) = match gfx9 {
            true => (bits(w, 12, 12) == 1, bits(w, 13, 13) == 1),
            false => (bits(v, 22, 22) == 1, bits(v, 23, 23) == 1),
        };
        i.mem.to_lds = gfx9 && bits(w, 16, 16) == 1;
        if i.mem.to_lds && !loads_a_dword(entry.sem) || !gfx9 && bits(v, 21, 21) == 1 {
            return fail(FaultKind::NotModelled { name: format!("{} lds or tfe", entry.name) });
        }
        i.mem.offset = bits(w, 0, 11) as i32;
        let glc = bits(w, 14, 14);
        i.mem.scope = if gfx9 { Scope::of(glc | bits(w, 15, 15) << 1) } else { Scope::of_glc(glc == 1) };
        let soffset = bits(v, 24, 31);
        self.buffer_fields(
            &mut i,
            [bits(v, 0, 7), bits(v, 8, 15), bits(v, 16, 20) << 2, soffset],
            (offen, idxen),
            acc,
        )?;
        self.returning(&mut i, glc == 1, bits(v, 8, 15), acc);
        Ok(i)
    }

    fn buffer_fields(&self, i: &mut Inst, reg: [u32; 4], (offen, idxen): (bool, bool), acc: bool) -> R<()> {
        let Sem::Memory(op) = i.entry.sem else { return Ok(()) };
        if matches!(op.kind, Kind::Cache(_)) {
            return Ok(());
        }
        let [addr, data, resource, soffset] = reg;
        i.mem.base = Operand::S(resource as u8);
        i.ty[0] = Ty::B32;
        i.mem.soffset = self.operand(i, soffset, 0)?;
        (i.mem.offen, i.mem.idxen) = (offen, idxen);
        if offen || idxen {
            i.mem.addr = vector(addr, false);
        }
        if op.data > 0 {
            i.mem.data = vector(data, acc);
        }
        if op.ret > 0 && !i.mem.to_lds && !matches!(op.kind, Kind::Atomic { .. }) {
            i.dst = vector(data, acc);
        }
        Ok(())
    }

    /// VFLAT, VSCRATCH, VGLOBAL.
    fn flat12(&self, words: [u32; 4]) -> R<Inst> {
        let (w, v, x) = (words[0], words[1], words[2]);
        let format = match w >> 24 {
            0xec => Format::Flat,
            0xed => Format::Scratch,
            0xee => Format::Global,
            _ => return fail(FaultKind::IllegalInstruction { word: w }),
        };
        let entry = self.entry(format, bits(w, 14, 21), w)?;
        let mut i = Inst::new(entry, format, words, 3);
        let saddr = bits(w, 0, 6);
        self.flat_fields(&mut i, format, [bits(x, 0, 7), bits(v, 23, 30), bits(v, 0, 7)], false, bits(v, 17, 17) == 1)?;
        i.mem.offset = signed(bits(x, 8, 31), 24);
        i.mem.base = if saddr == 0x7c { Operand::None } else { self.scalar_register(saddr)? };
        self.returning(&mut i, bits(v, 20, 20) == 1, bits(v, 0, 7), false);
        i.mem.scope = Scope::of(bits(v, 18, 19));
        Ok(i)
    }

    fn buffer12(&self, words: [u32; 4]) -> R<Inst> {
        let (w, v, x) = (words[0], words[1], words[2]);
        let entry = self.entry(Format::Mubuf, bits(w, 14, 21), w)?;
        let mut i = Inst::new(entry, Format::Mubuf, words, 3);
        let enables = (bits(v, 30, 30) == 1, bits(v, 31, 31) == 1);
        i.mem.offset = signed(bits(x, 8, 31), 24);
        i.mem.scope = Scope::of(bits(v, 18, 19));
        self.buffer_fields(&mut i, [bits(x, 0, 7), bits(v, 0, 7), bits(v, 9, 17), bits(w, 0, 6)], enables, false)?;
        self.returning(&mut i, bits(v, 20, 20) == 1, bits(v, 0, 7), false);
        Ok(i)
    }
}

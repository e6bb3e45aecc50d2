//! Random instructions: every row, every kind of operand, every modifier the row allows.

use crate::amdgpu::{
    Accepts, Allows, Chip, Dpp, DppCtrl, Enc, File, Imm, Inst, Kind, NULL, Operand, Reg, Row, Slot, Target, encode,
    format::Format, op, waitcnt,
};

/// SplitMix64.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn small(&mut self, n: u64) -> u8 {
        self.below(n) as u8
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

fn vector(rng: &mut Rng, target: Target, file: File, words: u8, end: u16) -> Operand {
    let mut first = rng.below(u64::from(end) - u64::from(words) + 1) as u16;
    if target.chip.is_gfx9() && words > 1 {
        first &= !1;
    }
    Operand::Reg(Reg::new(file, first, words))
}

fn scalar(rng: &mut Rng, target: Target, words: u8, writable: bool) -> Operand {
    let gfx9 = target.chip.is_gfx9();
    let last = if gfx9 { 102 } else { 106 };
    let align = if words == 1 { 1 } else { words.min(4) };
    let tuple = |rng: &mut Rng, file, end: u16| {
        let first = rng.below(u64::from(end - u16::from(words)) + 1) as u16 / u16::from(align) * u16::from(align);
        Operand::Reg(Reg::new(file, first, words))
    };
    let special = |file, first| Operand::Reg(Reg::new(file, first, words));
    match rng.below(12) {
        0 if words <= 2 => special(File::Vcc, 0),
        1 if words == 1 => special(File::Vcc, 1),
        2 if words <= 2 => special(File::Exec, 0),
        3 if words == 1 => special(File::M0, 0),
        4 if !gfx9 && words <= 2 => Operand::Reg(Reg::new(File::Null, 0, 1)),
        5 if words <= 4 => tuple(rng, File::Ttmp, 16),
        6 if !writable => Operand::Reg(Reg::new(File::Scc, 0, 1)),
        7 if !writable => Operand::Reg(Reg::new(rng.pick(&[File::SharedBase, File::PrivateLimit]), 0, 1)),
        8 if gfx9 && words <= 2 => special(rng.pick(&[File::FlatScratch, File::XnackMask]), 0),
        _ => tuple(rng, File::Sgpr, last),
    }
}

fn source(rng: &mut Rng, target: Target, words: u8, accepts: Accepts) -> Operand {
    loop {
        match rng.below(8) {
            0..=2 if accepts.contains(Accepts::VGPR) => {
                let end = if accepts.contains(Accepts::LOW) { 128 } else { 256 };
                return vector(rng, target, File::Vgpr, words, end);
            }
            0 if accepts.contains(Accepts::AGPR) => return vector(rng, target, File::Agpr, words, 256),
            3 | 4 if accepts.contains(Accepts::SGPR) => return scalar(rng, target, words, false),
            5 if accepts.contains(Accepts::INLINE) => return Operand::Int(rng.below(81) as i64 - 16),
            6 if accepts.contains(Accepts::INLINE) => {
                return Operand::Float(rng.pick(&[
                    0.5,
                    -0.5,
                    1.0,
                    -1.0,
                    2.0,
                    -2.0,
                    4.0,
                    -4.0,
                    0.159_154_943_091_895_32,
                ]));
            }
            7 if accepts.contains(Accepts::LITERAL) => {
                let bits = rng.next() as u32;
                return Operand::Lit(if rng.one_in(3) { bits & 0xffff } else { bits });
            }
            _ => {}
        }
    }
}

fn immediate(rng: &mut Rng, chip: Chip, row: &Row, imm: Imm) -> Operand {
    let any = rng.below(0x1_0000) as i64;
    Operand::Int(match imm {
        // Lower numbers separate the cases that LLVM gets.
        _ if row.op == op::S_NOP => 0xf000 | any & 0xeff,
        Imm::DelayAlu => (rng.below(12) | rng.below(6) << 4 | rng.below(12) << 7) as i64,
        Imm::Waitcnt => i64::from(waitcnt(chip, rng.below(64) as u16, rng.below(8) as u16, rng.below(64) as u16)),
        Imm::Message => {
            if chip.is_gfx9() {
                rng.pick(&[1, 4, 9, 10, 0x22])
            } else {
                rng.pick(&[1, 3, 9, 128, 131])
            }
        }
        Imm::HwReg => any,
        Imm::GprIdx => (rng.below(15) + 1) as i64,
        Imm::Optional if rng.one_in(2) => 0,
        _ => any,
    })
}

/// An operand for the slot; addresses agree with each other through `inst`.
fn operand(rng: &mut Rng, target: Target, row: &Row, slot: &Slot, inst: &mut Inst, off: bool) -> Operand {
    match slot.kind {
        Kind::Vgpr => vector(rng, target, File::Vgpr, slot.words, 256),
        Kind::VgprLow => vector(rng, target, File::Vgpr, 1, 128),
        Kind::Agpr => vector(rng, target, File::Agpr, slot.words, 256),
        Kind::VgprOrAgpr => {
            let file = if inst.mods.cbsz & 128 != 0 { File::Agpr } else { File::Vgpr };
            vector(rng, target, file, slot.words, 256)
        }
        Kind::Sgpr => scalar(rng, target, slot.words, true),
        Kind::Mask { .. } => scalar(rng, target, target.mask_words(), true),
        Kind::Vcc => target.vcc(),
        Kind::Exec => target.exec(),
        Kind::Source { accepts, .. } => source(rng, target, slot.words, accepts),
        Kind::GlobalAddr => vector(rng, target, File::Vgpr, if off { 2 } else { 1 }, 256),
        Kind::GlobalBase | Kind::ScratchBase if off => Operand::Off,
        Kind::GlobalBase => scalar(rng, target, 2, true),
        Kind::ScratchBase => scalar(rng, target, 1, true),
        Kind::ScratchAddr if rng.one_in(2) => Operand::Off,
        Kind::ScratchAddr => vector(rng, target, File::Vgpr, 1, 256),
        Kind::BufferAddr => match u8::from(inst.mods.offen) + u8::from(inst.mods.idxen) {
            0 => Operand::Off,
            words => vector(rng, target, File::Vgpr, words, 256),
        },
        Kind::ScalarOffset if rng.one_in(2) => Operand::Int(rng.below(1 << 20) as i64),
        Kind::ScalarOffset => {
            if rng.one_in(2) && !row.op.name().starts_with("s_dcache") {
                inst.mods.offset = rng.below(1 << 19) as i32;
            }
            scalar(rng, target, 1, true)
        }
        Kind::Null => NULL,
        Kind::Literal => Operand::Lit(rng.next() as u32),
        Kind::Literal16 => Operand::Lit(rng.below(0x1_0000) as u32),
        Kind::Imm(imm) => immediate(rng, target.chip, row, imm),
    }
}

fn dpp(rng: &mut Rng, chip: Chip, allows: Allows) -> Dpp {
    let fetch_inactive = !chip.is_gfx9() && rng.one_in(4);
    if allows.contains(Allows::DPP8) && rng.one_in(3) {
        return Dpp::Dpp8 { lanes: std::array::from_fn(|_| rng.small(8)), fetch_inactive };
    }
    let n = 1 + rng.small(15);
    let ctrl = match (rng.below(8), chip.is_gfx9()) {
        (0 | 1, _) => DppCtrl::QuadPerm(std::array::from_fn(|_| rng.small(4))),
        (2, _) => DppCtrl::RowShl(n),
        (3, _) => DppCtrl::RowShr(n),
        (4, _) => DppCtrl::RowRor(n),
        (5, _) => rng.pick(&[DppCtrl::RowMirror, DppCtrl::RowHalfMirror]),
        (_, false) => rng.pick(&[DppCtrl::RowShare(n), DppCtrl::RowXmask(n)]),
        (_, true) => rng.pick(&[DppCtrl::RowNewbcast(n), DppCtrl::WaveShl, DppCtrl::RowBcast15, DppCtrl::RowBcast31]),
    };
    Dpp::Dpp16 { ctrl, row_mask: rng.small(16), bank_mask: rng.small(16), bound_ctrl: rng.one_in(2), fetch_inactive }
}

fn modifiers(rng: &mut Rng, target: Target, row: &Row, inst: &mut Inst) {
    let allows = row.allows;
    let m = &mut inst.mods;
    let some = |rng: &mut Rng, first: Allows, count: u32| {
        let mask = (allows.bits() / first.bits()) as u8 & ((1u16 << count) - 1) as u8;
        if rng.one_in(2) { rng.next() as u8 & mask } else { 0 }
    };
    m.neg = some(rng, Allows::NEG0, 3);
    m.abs = some(rng, Allows::ABS0, 3);
    m.neg_hi = some(rng, Allows::NEG_HI0, 3);
    m.op_sel = some(rng, Allows::OP_SEL0, 4);
    let hi = some(rng, Allows::OP_SEL_HI0, 3);
    m.op_sel_hi = (hi != 0).then_some(row.usual_op_sel_hi() ^ hi);
    let flag = |rng: &mut Rng, bit: Allows| allows.contains(bit) && rng.one_in(3);
    m.clamp = flag(rng, Allows::CLAMP);
    m.glc = flag(rng, Allows::GLC);
    m.dlc = flag(rng, Allows::DLC);
    m.slc = flag(rng, Allows::SLC);
    m.sc0 = flag(rng, Allows::SC0);
    m.sc1 = flag(rng, Allows::SC1);
    m.nt = flag(rng, Allows::NT);
    m.gds = flag(rng, Allows::GDS);
    // Rows of loads to the LDS take no register for what they load.
    m.lds = allows.contains(Allows::LDS);
    m.offen = flag(rng, Allows::OFFEN);
    m.idxen = flag(rng, Allows::OFFEN);
    if flag(rng, Allows::OMOD) {
        m.omod = rng.small(4);
    }
    if flag(rng, Allows::SCOPE) {
        m.scope = rng.small(4);
    }
    if flag(rng, Allows::CBSZ) {
        m.cbsz = rng.small(4);
    }
    if flag(rng, Allows::ABID) {
        m.abid = rng.small(4);
    }
    if flag(rng, Allows::BLGP) {
        m.blgp = rng.small(4);
    }
    if allows.contains(Allows::RETURNS) {
        match target.chip {
            Chip::Gfx1100 => m.glc = true,
            Chip::Gfx942 => m.sc0 = true,
            Chip::Gfx1201 => m.th = 1,
        }
    }
    if allows.contains(Allows::OFFSETS) {
        m.offset = i32::from(rng.small(256));
        m.offset1 = rng.small(256);
    } else if allows.contains(Allows::OFFSET) && rng.one_in(2) {
        m.offset = match row.format {
            // A swizzle's text drops bits of other offsets.
            Format::Ds if row.op == op::DS_SWIZZLE_B32 => (0x8000 | rng.below(256)) as i32,
            Format::Ds => rng.below(0x1_0000) as i32,
            Format::Buffer => rng.below(4096) as i32,
            Format::Flat if target.chip.is_gfx9() => rng.below(4096) as i32,
            _ => rng.below(8192) as i32 - 4096,
        };
    }
    if allows.intersects(Allows::DPP16 | Allows::DPP8) && rng.one_in(3) {
        m.dpp = Some(dpp(rng, target.chip, allows));
        if matches!(row.format, Format::Vop1 | Format::Vop2 | Format::Vopc) && matches!(m.dpp, Some(Dpp::Dpp16 { .. }))
        {
            let signs =
                u8::from(allows.contains(Allows::DPP_MODS0)) | u8::from(allows.contains(Allows::DPP_MODS1)) << 1;
            m.neg = rng.next() as u8 & signs;
            m.abs = rng.next() as u8 & signs;
            if row.op == op::V_CNDMASK_B32 {
                m.abs &= 1; // LLVM 19 writes |v1, vcc_lo| here
            }
        }
    }
}

/// A sign on a literal of a 64-bit operand: the encoding has it, LLVM's assembler does not read it back.
fn signed_wide_literal(row: &Row, inst: &Inst) -> bool {
    let signs = inst.mods.neg | inst.mods.abs;
    let wide = |(slot, operand): (&Slot, &Operand)| slot.words > 1 && matches!(operand, Operand::Lit(_));
    signs != 0 && row.slots.iter().zip(&inst.operands).any(wide)
}

/// One random instruction of the row that the encoder takes, in that row's encoding; `None`: none was found.
pub fn instruction(rng: &mut Rng, target: Target, row: &Row) -> Option<Inst> {
    for _ in 0..200 {
        let mut inst = Inst::new(row.op, []);
        inst.enc = match row.format {
            Format::Vop1 | Format::Vop2 | Format::Vopc => Enc::E32,
            Format::Vop3 | Format::Vop3Sd | Format::Vop3p | Format::Mai => Enc::E64,
            _ => Enc::Auto,
        };
        modifiers(rng, target, row, &mut inst);
        let off = rng.one_in(2);
        for slot in row.slots {
            let operand = operand(rng, target, row, slot, &mut inst, off);
            inst.operands.push(operand);
        }
        // LLVM 19 writes 1/(2 pi) of a bfloat accumulator in a way that it does not read.
        let odd = row.op.name().starts_with("v_wmma_bf16")
            && inst.operands.iter().any(|o| matches!(o, Operand::Float(f) if (0.1..0.2).contains(f)));
        if encode(target, &inst).is_ok() && !signed_wide_literal(row, &inst) && !odd {
            return Some(inst);
        }
    }
    None
}

/// A random dual instruction of two of these rows.
pub fn dual(rng: &mut Rng, target: Target, x: &[&Row], y: &[&Row]) -> Inst {
    loop {
        let mut half = |rows: &[&Row]| {
            let row = rng.pick(rows);
            let mut inst = Inst::new(row.op, []);
            for slot in row.slots {
                let operand = operand(rng, target, row, slot, &mut inst, false);
                inst.operands.push(operand);
            }
            inst
        };
        let (first, second) = (half(x), half(y));
        let inst = Inst::dual(first, second);
        if encode(target, &inst).is_ok() {
            return inst;
        }
    }
}

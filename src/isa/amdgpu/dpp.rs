//! Data-parallel primitives: the dword that replaces the first source.

use super::chip::Chip;
use super::encode::{Builder, EncodeError};
use super::format::{Bits, Field, Format, Layout};
use super::inst::{Dpp, DppCtrl, Modifiers};
use super::row::Allows;

/// Operand code of the first source which means that the dword follows.
pub(super) const fn code(dpp: Dpp) -> u16 {
    match dpp {
        Dpp::Dpp16 { .. } => 250,
        Dpp::Dpp8 { fetch_inactive: false, .. } => 233,
        Dpp::Dpp8 { fetch_inactive: true, .. } => 234,
    }
}

impl DppCtrl {
    /// The 9-bit control; `None`: a number out of range, or the chip has none such.
    #[must_use]
    pub fn code(self, chip: Chip) -> Option<u16> {
        let shift = |base: u16, n: u8| (1..=15).contains(&n).then(|| base + u16::from(n));
        let lane = |base: u16, n: u8| (n < 16).then(|| base + u16::from(n));
        let gfx9 = chip.is_gfx9();
        match self {
            DppCtrl::QuadPerm(q) => q.iter().all(|&n| n < 4).then(|| {
                let of = |i: usize| u16::from(q[i]) << (2 * i);
                of(0) | of(1) | of(2) | of(3)
            }),
            DppCtrl::RowShl(n) => shift(0x100, n),
            DppCtrl::RowShr(n) => shift(0x110, n),
            DppCtrl::RowRor(n) => shift(0x120, n),
            DppCtrl::RowMirror => Some(0x140),
            DppCtrl::RowHalfMirror => Some(0x141),
            DppCtrl::RowShare(n) if !gfx9 => lane(0x150, n),
            DppCtrl::RowXmask(n) if !gfx9 => lane(0x160, n),
            DppCtrl::RowNewbcast(n) if gfx9 => lane(0x150, n),
            DppCtrl::WaveShl if gfx9 => Some(0x130),
            DppCtrl::WaveRol if gfx9 => Some(0x134),
            DppCtrl::WaveShr if gfx9 => Some(0x138),
            DppCtrl::WaveRor if gfx9 => Some(0x13c),
            DppCtrl::RowBcast15 if gfx9 => Some(0x142),
            DppCtrl::RowBcast31 if gfx9 => Some(0x143),
            _ => None,
        }
    }

    /// What a 9-bit control means on the chip.
    #[must_use]
    pub fn from_code(code: u16, chip: Chip) -> Option<DppCtrl> {
        let gfx9 = chip.is_gfx9();
        let n = u8::try_from(code & 15).ok()?;
        let two = |shift: u16| u8::try_from(code >> shift & 3).unwrap_or_default();
        let ctrl = match code {
            0..=0xff => DppCtrl::QuadPerm([two(0), two(2), two(4), two(6)]),
            0x101..=0x10f => DppCtrl::RowShl(n),
            0x111..=0x11f => DppCtrl::RowShr(n),
            0x121..=0x12f => DppCtrl::RowRor(n),
            0x130 => DppCtrl::WaveShl,
            0x134 => DppCtrl::WaveRol,
            0x138 => DppCtrl::WaveShr,
            0x13c => DppCtrl::WaveRor,
            0x140 => DppCtrl::RowMirror,
            0x141 => DppCtrl::RowHalfMirror,
            0x142 => DppCtrl::RowBcast15,
            0x143 => DppCtrl::RowBcast31,
            0x150..=0x15f if gfx9 => DppCtrl::RowNewbcast(n),
            0x150..=0x15f => DppCtrl::RowShare(n),
            0x160..=0x16f => DppCtrl::RowXmask(n),
            _ => return None,
        };
        (ctrl.code(chip) == Some(code)).then_some(ctrl)
    }
}

/// Checks that the row has this DPP form and that the sources fit it.
pub(super) fn check(b: &Builder, dpp: Dpp) -> Result<(), EncodeError> {
    let rule = |why| Err(EncodeError::Rule { op: b.name, why });
    let needed = match dpp {
        Dpp::Dpp16 { .. } => Allows::DPP16,
        Dpp::Dpp8 { .. } => Allows::DPP8,
    };
    if !b.row.allows.contains(needed) {
        return Err(EncodeError::Modifier { op: b.name, what: "DPP" });
    }
    if source(b, Field::Src0).is_some_and(|code| code < 256) {
        return rule("the first source of a DPP form must be a vector register");
    }
    let long = matches!(b.row.format, Format::Vop3 | Format::Vop3Sd | Format::Vop3p);
    let plain = b.target.chip == Chip::Gfx1100 || b.row.format == Format::Vop3p;
    if long && plain && source(b, Field::Src1).is_some_and(|code| code < 256) {
        return rule("the second source of a DPP form must be a vector register");
    }
    if b.name.starts_with("v_dot4_f32") && source(b, Field::Src2).is_some_and(|code| code < 256) {
        return rule("the third source of this DPP form must be a vector register");
    }
    match dpp {
        Dpp::Dpp16 { ctrl, row_mask, bank_mask, .. } => {
            let control = ctrl.code(b.target.chip);
            if control.is_none() || row_mask > 15 || bank_mask > 15 {
                return rule("a DPP control out of range, or one that the chip lacks");
            }
            let wide = b.row.slots.iter().any(|s| s.words > 1 && s.field != Field::Sdst);
            if b.target.chip.is_gfx9() && wide && !matches!(ctrl, DppCtrl::RowNewbcast(_)) {
                return rule("64-bit DPP has row_newbcast only");
            }
        }
        Dpp::Dpp8 { lanes, .. } if lanes.iter().any(|&l| l > 7) => return rule("a DPP8 lane above 7"),
        Dpp::Dpp8 { .. } => {}
    }
    Ok(())
}

/// The code in a source field, if the row has such an operand.
fn source(b: &Builder, field: Field) -> Option<u32> {
    b.row.slots.iter().find(|s| s.field == field)?;
    let Bits(lo, width) = b.layout.bits(field)?;
    u32::try_from(b.bits >> lo & ((1 << width) - 1)).ok()
}

/// The dword after the instruction.
pub(super) fn word(bits: u128, layout: &Layout, mods: &Modifiers, dpp: Dpp) -> u32 {
    let src0 = layout.bits(Field::Src0).map_or(0, |Bits(lo, _)| bits >> lo & 0xff);
    let src0 = u32::try_from(src0).unwrap_or_default();
    match dpp {
        Dpp::Dpp16 { ctrl, row_mask, bank_mask, bound_ctrl, fetch_inactive } => {
            let short = layout.bits(Field::Neg).is_none();
            let sign = |mask: u8, i: u8| u32::from(short && mask >> i & 1 == 1);
            let any = ctrl.code(Chip::Gfx1100).or_else(|| ctrl.code(Chip::Gfx942)).unwrap_or_default();
            src0 | u32::from(any) << 8
                | u32::from(fetch_inactive) << 18
                | u32::from(bound_ctrl) << 19
                | sign(mods.neg, 0) << 20
                | sign(mods.abs, 0) << 21
                | sign(mods.neg, 1) << 22
                | sign(mods.abs, 1) << 23
                | u32::from(bank_mask & 15) << 24
                | u32::from(row_mask & 15) << 28
        }
        Dpp::Dpp8 { lanes, .. } => {
            lanes.iter().enumerate().fold(src0, |word, (i, &lane)| word | u32::from(lane & 7) << (8 + 3 * i))
        }
    }
}

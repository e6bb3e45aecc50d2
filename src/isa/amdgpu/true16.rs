//! True16: 16-bit operands of gfx11 and gfx12 are one half of a vector register, `v1.l` or `v1.h`.
//!
//! An [`Inst`](super::Inst) names the register, and bit i of `op_sel` says that source i is the high half (bit 3: the
//! destination). Short encodings keep that bit in bit 7 of the register's number, long ones in their OP_SEL field.

use super::chip::Chip;
use super::format::{Field, Format};
use super::inst::Modifiers;
use super::reg::{File, Operand};
use super::row::{Accepts, Allows, Kind, Op, Row, Slot};

/// Long forms without a short one: source bits, and 8 for the destination.
const LONG: &[(u8, &[&str])] = &[
    (
        0b1011,
        &[
            "v_add_nc_i16",
            "v_add_nc_u16",
            "v_and_b16",
            "v_ashrrev_i16",
            "v_cndmask_b16",
            "v_lshlrev_b16",
            "v_lshrrev_b16",
            "v_max_i16",
            "v_max_u16",
            "v_maximum_f16",
            "v_min_i16",
            "v_min_u16",
            "v_minimum_f16",
            "v_mul_lo_u16",
            "v_or_b16",
            "v_sub_nc_i16",
            "v_sub_nc_u16",
            "v_xor_b16",
        ],
    ),
    (
        0b1111,
        &[
            "v_div_fixup_f16",
            "v_fma_f16",
            "v_mad_i16",
            "v_mad_u16",
            "v_max3_f16",
            "v_max3_i16",
            "v_max3_num_f16",
            "v_max3_u16",
            "v_maximum3_f16",
            "v_maximumminimum_f16",
            "v_maxmin_f16",
            "v_maxmin_num_f16",
            "v_med3_f16",
            "v_med3_i16",
            "v_med3_num_f16",
            "v_med3_u16",
            "v_min3_f16",
            "v_min3_i16",
            "v_min3_num_f16",
            "v_min3_u16",
            "v_minimum3_f16",
            "v_minimummaximum_f16",
            "v_minmax_f16",
            "v_minmax_num_f16",
        ],
    ),
    (0b0011, &["v_cvt_pk_norm_i16_f16", "v_cvt_pk_norm_u16_f16", "v_mad_i32_i16", "v_mad_u32_u16", "v_pack_b32_f16"]),
    (0b1100, &["v_dot2_bf16_bf16", "v_dot2_f16_f16"]),
    (0b0100, &["v_alignbit_b32", "v_alignbyte_b32"]),
    (0b1000, &["v_cvt_pk_bf8_f32", "v_cvt_pk_fp8_f32"]),
];

/// The bit of an operand by its field.
pub(super) const fn bit(field: Field) -> u8 {
    match field {
        Field::Src0 => 1,
        Field::Src1 | Field::Vsrc1 => 2,
        Field::Src2 => 4,
        Field::Vdst => 8,
        _ => 0,
    }
}

/// Whether a slot of a short encoding is half a register.
pub(super) const fn is_half(slot: &Slot) -> bool {
    match slot.kind {
        Kind::VgprLow => true,
        Kind::Source { accepts, .. } => accepts.contains(Accepts::LOW),
        _ => false,
    }
}

fn of_short(row: &Row) -> u8 {
    row.slots.iter().filter(|s| is_half(s)).fold(0, |bits, s| bits | bit(s.field))
}

impl Row {
    /// Which operands are halves of vector registers on that chip: bits 0 to 2 the sources, bit 3 the destination.
    #[must_use]
    pub fn halves(&self, chip: Chip) -> u8 {
        match self.format {
            _ if chip.is_gfx9() => 0,
            Format::Vop1 | Format::Vop2 | Format::Vopc => of_short(self),
            Format::Vop3 => {
                let short = |f| matches!(f, Format::Vop1 | Format::Vop2 | Format::Vopc);
                let known = self.op.rows(chip).filter(|r| short(r.format)).map(of_short).find(|bits| *bits != 0);
                let listed = || LONG.iter().find(|(_, names)| names.contains(&self.op.name())).map(|(bits, _)| *bits);
                known.or_else(listed).unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Whether the text of the row has an op_sel list without true16.
    fn has_op_sel(&self) -> bool {
        self.allows.intersects(Allows::OP_SEL0 | Allows::OP_SEL1 | Allows::OP_SEL2 | Allows::OP_SEL3)
    }

    /// The op_sel list that only true16's text has: entries for sources, and for the destination.
    fn half_list(&self, chip: Chip) -> Option<(u8, u8)> {
        let name = self.op.name();
        if self.format != Format::Vop3 || self.has_op_sel() || self.halves(chip) == 0 {
            return None;
        }
        if name == "v_cndmask_b16" {
            return Some((0, 0));
        }
        let sources = self.slots.iter().filter(|s| matches!(s.kind, Kind::Source { .. })).count();
        let sources = u8::try_from(sources).ok()? + u8::from(name.contains("fmac"));
        Some((sources, u8::from(!name.starts_with("v_cmpx"))))
    }
}

/// `op_sel` as the bits of true16's list and their count; `None`: the row's list is that of every text, or it has none.
pub(super) fn to_list(row: &Row, chip: Chip, m: &Modifiers) -> Option<(u8, usize)> {
    let (op_sel, (sources, destination)) = (m.op_sel, row.half_list(chip)?);
    // A compare's list has an entry for its mask, but not beside DPP.
    let compare = row.slots.first().is_some_and(|s| matches!(s.kind, Kind::Mask { .. }));
    let destination = if compare && m.dpp.is_some() { 0 } else { destination };
    let bits = op_sel & ((1 << sources) - 1) | (op_sel >> 3 & destination) << sources;
    Some((bits, usize::from(sources + destination)))
}

/// The other way round: `op_sel` from a list of true16's text.
pub(super) fn from_list(op: Op, bits: u8, count: u32) -> Option<u8> {
    let rows = op.rows_any().flat_map(|r| [Chip::Gfx1100, Chip::Gfx1201].map(|chip| (r, chip)));
    let mut lists = rows.filter_map(|(r, chip)| Some((r.half_list(chip)?, r.halves(chip))));
    let ((sources, destination), halves) = lists.find(|((s, d), _)| u32::from(s + d) == count)?;
    // An accumulator is listed as a source too.
    Some((bits & ((1 << sources) - 1) | (bits >> sources & destination) << 3) & halves)
}

/// The bits of `op_sel` that only true16 has a text for.
pub(super) fn beyond_op_sel(row: &Row, chip: Chip, op_sel: u8) -> u8 {
    let own = u8::try_from((row.allows.bits() / Allows::OP_SEL0.bits()) & 15).unwrap_or(0);
    let own = if row.format == Format::Vop3 { own } else { 0 };
    op_sel & row.halves(chip) & !own
}

/// `.l` or `.h` after a vector register that is read or written by halves.
pub(super) fn ending(halves: u8, slot: &Slot, operand: Operand, op_sel: u8) -> &'static str {
    let vector = matches!(operand, Operand::Reg(r) if r.file == File::Vgpr);
    match bit(slot.field) & halves {
        bit if bit == 0 || !vector => "",
        bit if op_sel & bit == 0 => ".l",
        _ => ".h",
    }
}

/// The bit of the operand at `index` in some row of the operation, when it is half a register there.
pub(super) fn operand_bit(op: Op, chip: Chip, index: usize) -> Option<u8> {
    op.rows(chip).find_map(|row| Some(bit(row.slots.get(index)?.field) & row.halves(chip)).filter(|b| *b != 0))
}

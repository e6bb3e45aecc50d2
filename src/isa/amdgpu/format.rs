//! Positions of the fields of each instruction format, once a format and chip family.
//!
//! Sources: RDNA3 ISA manual (chapter 15), CDNA3 ISA manual (chapter 13), RDNA4 ISA manual (chapter 15); every field
//! was found at its position by assembling with LLVM 19. Not described: MIMG, export, interpolation, MTBUF.

use super::chip::Chip;

/// An instruction format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    Sop1,
    Sop2,
    Sopc,
    Sopk,
    Sopp,
    Smem,
    Vop1,
    Vop2,
    Vopc,
    Vop3,
    /// VOP3 with a scalar destination.
    Vop3Sd,
    Vop3p,
    /// MFMA and AccVGPR moves.
    Mai,
    /// First half of a dual instruction.
    VopdX,
    /// Second half.
    VopdY,
    Ds,
    Flat,
    Global,
    Scratch,
    Buffer,
}

/// A field of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// Not encoded.
    None,
    Vdst,
    Sdst,
    Src0,
    Src1,
    Src2,
    Vsrc1,
    Ssrc0,
    Ssrc1,
    Simm16,
    Sdata,
    Sbase,
    Soffset,
    Addr,
    Data,
    Data0,
    Data1,
    Saddr,
    Vaddr,
    Vdata,
    Srsrc,
    /// The dword after the instruction.
    Literal,
    Offset,
    Offset0,
    Offset1,
    Abs,
    OpSel,
    OpSelHi,
    OpSelHi2,
    Neg,
    NegHi,
    Clamp,
    Omod,
    Glc,
    Dlc,
    Slc,
    Sc0,
    Sc1,
    Nt,
    Tfe,
    Lds,
    Gds,
    Offen,
    Idxen,
    Scope,
    Th,
    Nv,
    Cbsz,
    Abid,
    Blgp,
    AccCd,
    /// Vector data is in AccVGPRs.
    Acc,
    AccA,
    AccB,
    /// A scratch access has a vector address.
    Sve,
    /// The scalar load has an immediate offset (gfx942).
    ImmEn,
    /// The scalar load has a register offset (gfx942).
    SoffsetEn,
    BufferFormat,
}

/// Bits of a field: lowest, count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits(pub u8, pub u8);

/// Fixed bits and fields of a format.
#[derive(Debug)]
pub struct Layout {
    /// Without a literal or DPP dword.
    pub dwords: u8,
    /// Mask and value of the bits that identify the format.
    pub mask: u32,
    pub fixed: u32,
    pub op: Bits,
    pub fields: &'static [(Field, Bits)],
}

impl Layout {
    /// Position of the field.
    #[must_use]
    pub fn bits(&self, field: Field) -> Option<Bits> {
        self.fields.iter().find(|(f, _)| *f == field).map(|(_, b)| *b)
    }
}

macro_rules! layout {
    ($dwords:literal, $mask:literal, $fixed:literal, op $lo:literal $w:literal, $($field:ident $at:literal $n:literal),* $(,)?) => {
        &Layout { dwords: $dwords, mask: $mask, fixed: $fixed, op: Bits($lo, $w), fields: &[$((Field::$field, Bits($at, $n))),*] }
    };
}

const SOP1: &Layout = layout!(1, 0xff80_0000, 0xbe80_0000, op 8 8, Sdst 16 7, Ssrc0 0 8);
const SOP2: &Layout = layout!(1, 0xc000_0000, 0x8000_0000, op 23 7, Sdst 16 7, Ssrc0 0 8, Ssrc1 8 8);
const SOPC: &Layout = layout!(1, 0xff80_0000, 0xbf00_0000, op 16 7, Ssrc0 0 8, Ssrc1 8 8);
const SOPK: &Layout = layout!(1, 0xf000_0000, 0xb000_0000, op 23 5, Sdst 16 7, Simm16 0 16);
const SOPP: &Layout = layout!(1, 0xff80_0000, 0xbf80_0000, op 16 7, Simm16 0 16);
const VOP1: &Layout = layout!(1, 0xfe00_0000, 0x7e00_0000, op 9 8, Vdst 17 8, Sdst 17 8, Src0 0 9);
const VOP2: &Layout = layout!(1, 0x8000_0000, 0, op 25 6, Vdst 17 8, Src0 0 9, Vsrc1 9 8);
const VOPC: &Layout = layout!(1, 0xfe00_0000, 0x7c00_0000, op 17 8, Src0 0 9, Vsrc1 9 8);
const VOPD: &Layout = layout!(2, 0xfc00_0000, 0xc800_0000, op 22 4, Src0 0 9, Vsrc1 9 8, Vdst 56 8);

macro_rules! vop3 {
    ($mask:literal, $fixed:literal) => {
        layout!(2, $mask, $fixed, op 16 10, Vdst 0 8, Abs 8 3, OpSel 11 4, Clamp 15 1, Src0 32 9, Src1 41 9, Src2 50 9, Omod 59 2, Neg 61 3)
    };
}
macro_rules! vop3sd {
    ($mask:literal, $fixed:literal) => {
        layout!(2, $mask, $fixed, op 16 10, Vdst 0 8, Sdst 8 7, Clamp 15 1, Src0 32 9, Src1 41 9, Src2 50 9, Omod 59 2, Neg 61 3)
    };
}
macro_rules! vop3p {
    ($mask:literal, $fixed:literal) => {
        layout!(2, $mask, $fixed, op 16 7, Vdst 0 8, NegHi 8 3, OpSel 11 3, OpSelHi2 14 1, Clamp 15 1, Src0 32 9, Src1 41 9, Src2 50 9,
            OpSelHi 59 2, Neg 61 3)
    };
}

mod gfx11 {
    use super::*;
    pub(crate) const VOP3: &Layout = vop3!(0xfc00_0000, 0xd400_0000);
    pub(crate) const VOP3SD: &Layout = vop3sd!(0xfc00_0000, 0xd400_0000);
    pub(crate) const VOP3P: &Layout = vop3p!(0xff80_0000, 0xcc00_0000);
    pub(crate) const SMEM: &Layout = layout!(2, 0xfc00_0000, 0xf400_0000, op 18 8, Sbase 0 6, Sdata 6 7, Dlc 13 1, Glc 14 1, Offset 32 21, Soffset 57 7);
    pub(crate) const DS: &Layout = layout!(2, 0xfc00_0000, 0xd800_0000, op 18 8, Offset 0 16, Offset0 0 8, Offset1 8 8, Gds 17 1,
        Addr 32 8, Data0 40 8, Data1 48 8, Vdst 56 8);
    pub(crate) const FLAT: &Layout = layout!(2, 0xfc03_0000, 0xdc00_0000, op 18 7, Offset 0 13, Dlc 13 1, Glc 14 1, Slc 15 1,
        Addr 32 8, Data 40 8, Saddr 48 7, Sve 55 1, Vdst 56 8);
    pub(crate) const SCRATCH: &Layout = layout!(2, 0xfc03_0000, 0xdc01_0000, op 18 7, Offset 0 13, Dlc 13 1, Glc 14 1, Slc 15 1,
        Addr 32 8, Data 40 8, Saddr 48 7, Sve 55 1, Vdst 56 8);
    pub(crate) const GLOBAL: &Layout = layout!(2, 0xfc03_0000, 0xdc02_0000, op 18 7, Offset 0 13, Dlc 13 1, Glc 14 1, Slc 15 1,
        Addr 32 8, Data 40 8, Saddr 48 7, Sve 55 1, Vdst 56 8);
    pub(crate) const BUFFER: &Layout = layout!(2, 0xfc00_0000, 0xe000_0000, op 18 8, Offset 0 12, Slc 12 1, Dlc 13 1, Glc 14 1,
        Vaddr 32 8, Vdata 40 8, Srsrc 48 5, Tfe 53 1, Offen 54 1, Idxen 55 1, Soffset 56 8);
}

mod gfx12 {
    use super::*;
    pub(crate) const SMEM: &Layout = layout!(2, 0xfc00_0000, 0xf400_0000, op 13 6, Sbase 0 6, Sdata 6 7, Scope 21 2, Th 23 2, Offset 32 24, Soffset 57 7);
    pub(crate) const FLAT: &Layout = layout!(3, 0xff00_0000, 0xec00_0000, op 14 8, Saddr 0 7, Nv 7 1, Vdst 32 8, Sve 49 1, Scope 50 2,
        Th 52 3, Data 55 8, Addr 64 8, Offset 72 24);
    pub(crate) const SCRATCH: &Layout = layout!(3, 0xff00_0000, 0xed00_0000, op 14 8, Saddr 0 7, Nv 7 1, Vdst 32 8, Sve 49 1, Scope 50 2,
        Th 52 3, Data 55 8, Addr 64 8, Offset 72 24);
    pub(crate) const GLOBAL: &Layout = layout!(3, 0xff00_0000, 0xee00_0000, op 14 8, Saddr 0 7, Nv 7 1, Vdst 32 8, Sve 49 1, Scope 50 2,
        Th 52 3, Data 55 8, Addr 64 8, Offset 72 24);
    pub(crate) const BUFFER: &Layout = layout!(3, 0xfc00_0000, 0xc400_0000, op 14 8, Soffset 0 7, Tfe 22 1, Vdata 32 8, Srsrc 41 9,
        Scope 50 2, Th 52 3, BufferFormat 55 7, Offen 62 1, Idxen 63 1, Vaddr 64 8, Offset 72 24);
}

mod gfx9 {
    use super::*;
    pub(crate) const VOP3: &Layout = vop3!(0xfc00_0000, 0xd000_0000);
    pub(crate) const VOP3SD: &Layout = vop3sd!(0xfc00_0000, 0xd000_0000);
    pub(crate) const VOP3P: &Layout = vop3p!(0xff80_0000, 0xd380_0000);
    pub(crate) const MAI: &Layout = layout!(2, 0xff80_0000, 0xd380_0000, op 16 7, Vdst 0 8, Cbsz 8 3, Abid 11 4, AccCd 15 1,
        Src0 32 9, Src1 41 9, Src2 50 9, AccA 59 1, AccB 60 1, Blgp 61 3);
    pub(crate) const SMEM: &Layout = layout!(2, 0xfc00_0000, 0xc000_0000, op 18 8, Sbase 0 6, Sdata 6 7, SoffsetEn 14 1, Glc 16 1,
        ImmEn 17 1, Offset 32 21, Soffset 57 7);
    pub(crate) const DS: &Layout = layout!(2, 0xfc00_0000, 0xd800_0000, op 17 8, Offset 0 16, Offset0 0 8, Offset1 8 8, Gds 16 1, Acc 25 1,
        Addr 32 8, Data0 40 8, Data1 48 8, Vdst 56 8);
    pub(crate) const FLAT: &Layout = layout!(2, 0xfc00_c000, 0xdc00_0000, op 18 7, Offset 0 12, Sve 13 1, Sc0 16 1, Nt 17 1, Sc1 25 1,
        Addr 32 8, Data 40 8, Saddr 48 7, Acc 55 1, Vdst 56 8);
    pub(crate) const SCRATCH: &Layout = layout!(2, 0xfc00_c000, 0xdc00_4000, op 18 7, Offset 0 13, Sve 13 1, Sc0 16 1, Nt 17 1, Sc1 25 1,
        Addr 32 8, Data 40 8, Saddr 48 7, Acc 55 1, Vdst 56 8);
    pub(crate) const GLOBAL: &Layout = layout!(2, 0xfc00_c000, 0xdc00_8000, op 18 7, Offset 0 13, Sve 13 1, Sc0 16 1, Nt 17 1, Sc1 25 1,
        Addr 32 8, Data 40 8, Saddr 48 7, Acc 55 1, Vdst 56 8);
    pub(crate) const BUFFER: &Layout = layout!(2, 0xfc00_0000, 0xe000_0000, op 18 7, Offset 0 12, Offen 12 1, Idxen 13 1, Sc0 14 1, Sc1 15 1,
        Lds 16 1, Nt 17 1, Vaddr 32 8, Vdata 40 8, Srsrc 48 5, Acc 55 1, Soffset 56 8);
}

/// The layout of a format on a chip; `None`: the chip has no such format.
#[must_use]
pub fn layout(chip: Chip, format: Format) -> Option<&'static Layout> {
    let by = |gfx11, gfx9, gfx12| match chip {
        Chip::Gfx1100 => gfx11,
        Chip::Gfx942 => gfx9,
        Chip::Gfx1201 => gfx12,
    };
    Some(match format {
        Format::Sop1 => SOP1,
        Format::Sop2 => SOP2,
        Format::Sopc => SOPC,
        Format::Sopk => SOPK,
        Format::Sopp => SOPP,
        Format::Vop1 => VOP1,
        Format::Vop2 => VOP2,
        Format::Vopc => VOPC,
        Format::Smem => by(gfx11::SMEM, gfx9::SMEM, gfx12::SMEM),
        Format::Vop3 => by(gfx11::VOP3, gfx9::VOP3, gfx11::VOP3),
        Format::Vop3Sd => by(gfx11::VOP3SD, gfx9::VOP3SD, gfx11::VOP3SD),
        Format::Vop3p => by(gfx11::VOP3P, gfx9::VOP3P, gfx11::VOP3P),
        Format::Ds => by(gfx11::DS, gfx9::DS, gfx11::DS),
        Format::Flat => by(gfx11::FLAT, gfx9::FLAT, gfx12::FLAT),
        Format::Scratch => by(gfx11::SCRATCH, gfx9::SCRATCH, gfx12::SCRATCH),
        Format::Global => by(gfx11::GLOBAL, gfx9::GLOBAL, gfx12::GLOBAL),
        Format::Buffer => by(gfx11::BUFFER, gfx9::BUFFER, gfx12::BUFFER),
        Format::Mai => return chip.is_gfx9().then_some(gfx9::MAI),
        Format::VopdX | Format::VopdY => return (!chip.is_gfx9()).then_some(VOPD),
    })
}

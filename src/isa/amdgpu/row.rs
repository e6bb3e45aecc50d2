//! A row of the instruction table: one operation in one encoding.
//!
//! Encoder, decoder, printer and parser read the same rows; a register allocator reads which operands are written and
//! read.

use super::chip::{Chip, column};
use super::format::{Field, Format};
use super::table::{op, rows};
use bitflags::bitflags;

/// An operation by name, whatever chip and encoding: `op::V_ADD_F32` is both its 32-bit and its 64-bit form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Op(pub(super) u16);

impl Op {
    /// The mnemonic without `_e32` and `_e64`.
    #[must_use]
    pub fn name(self) -> &'static str {
        op::NAMES[usize::from(self.0)]
    }

    /// The operation of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Op> {
        op::NAMES.binary_search(&name).ok().and_then(|i| u16::try_from(i).ok()).map(Op)
    }

    /// The rows of this operation that the chip has, shortest encoding first.
    pub fn rows(self, chip: Chip) -> impl Iterator<Item = &'static Row> {
        let first = rows::ROWS.partition_point(|r| r.op < self);
        rows::ROWS[first..].iter().take_while(move |r| r.op == self).filter(move |r| r.code(chip).is_some())
    }
}

impl Op {
    /// The rows of this operation on all chips.
    pub(super) fn rows_any(self) -> impl Iterator<Item = &'static Row> {
        let first = rows::ROWS.partition_point(|r| r.op < self);
        rows::ROWS[first..].iter().take_while(move |r| r.op == self)
    }
}

/// All rows that the chip has.
pub fn all_rows(chip: Chip) -> impl Iterator<Item = &'static Row> {
    rows::ROWS.iter().filter(move |r| r.code(chip).is_some())
}

/// What an instruction does with a register operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    /// The old value takes part in the new one.
    ReadWrite,
}

/// How a source's constants are written: the bits of an inline float and the width of a literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// 32 bits, integer or float.
    B32,
    /// 64 bits: a literal has 32 of them.
    B64,
    /// A half float.
    F16,
    /// A bfloat.
    Bf16,
    /// 16 bits without inline floats.
    I16,
    /// Two halves; inline floats are half floats.
    P16,
    /// Two bfloats.
    Pbf16,
}

bitflags! {
    /// What a source operand may be.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Accepts: u8 {
        const VGPR = 1;
        const SGPR = 2;
        const INLINE = 4;
        const LITERAL = 8;
        /// EXEC among the scalar registers.
        const EXEC = 16;
        const AGPR = 32;
        /// Of the vector registers only v0 to v127: 16-bit operands of short encodings.
        const LOW = 64;
    }
}

/// How a 16-bit immediate is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Imm {
    Hex,
    /// Decimal up to 64, else hexadecimal.
    Small,
    Decimal,
    /// Not written when 0.
    Optional,
    Label,
    Waitcnt,
    DelayAlu,
    Depctr,
    Message,
    HwReg,
    GprIdx,
}

/// The kind of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A tuple of vector registers.
    Vgpr,
    /// One of v0 to v127.
    VgprLow,
    /// Vector or accumulation registers (gfx942); the encoding has a bit for it.
    VgprOrAgpr,
    /// Accumulation registers.
    Agpr,
    /// A tuple of scalar registers.
    Sgpr,
    /// NULL, the only register that makes sense here.
    Null,
    /// A lane mask: as wide as the wave.
    Mask {
        exec: bool,
    },
    /// VCC by name, not encoded.
    Vcc,
    /// EXEC by name, not encoded.
    Exec,
    /// A register or constant.
    Source {
        class: Class,
        accepts: Accepts,
    },
    /// Address of a global access: 64 bits in a pair, or a 32-bit offset when there is a scalar base.
    GlobalAddr,
    /// Scalar base of a global access, or off.
    GlobalBase,
    /// Address of a scratch access, or off.
    ScratchAddr,
    /// Scalar address of a scratch access, or off.
    ScratchBase,
    /// Address of a buffer access: offset, index, both as a pair, or off.
    BufferAddr,
    /// Offset of a scalar load: an immediate, or a register (with the offset modifier).
    ScalarOffset,
    /// 32 bits after the instruction.
    Literal,
    /// 16 of the 32 bits after the instruction.
    Literal16,
    Imm(Imm),
}

/// One operand of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub field: Field,
    pub kind: Kind,
    /// Registers of the tuple.
    pub words: u8,
    pub access: Access,
}

bitflags! {
    /// Modifiers that a row allows, and how it is written.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Allows: u64 {
        const NEG0 = 1;
        const NEG1 = 1 << 1;
        const NEG2 = 1 << 2;
        const ABS0 = 1 << 3;
        const ABS1 = 1 << 4;
        const ABS2 = 1 << 5;
        const OP_SEL0 = 1 << 6;
        const OP_SEL1 = 1 << 7;
        const OP_SEL2 = 1 << 8;
        /// The destination's half.
        const OP_SEL3 = 1 << 9;
        const OP_SEL_HI0 = 1 << 10;
        const OP_SEL_HI1 = 1 << 11;
        const OP_SEL_HI2 = 1 << 12;
        const NEG_HI0 = 1 << 13;
        const NEG_HI1 = 1 << 14;
        const NEG_HI2 = 1 << 15;
        const CLAMP = 1 << 16;
        const OMOD = 1 << 17;
        const DPP16 = 1 << 18;
        const DPP8 = 1 << 19;
        /// `neg` and `abs` of the first source in the short DPP form.
        const DPP_MODS0 = 1 << 20;
        const DPP_MODS1 = 1 << 21;
        const GLC = 1 << 22;
        const DLC = 1 << 23;
        const SLC = 1 << 24;
        const SC0 = 1 << 25;
        const SC1 = 1 << 26;
        const NT = 1 << 27;
        const TFE = 1 << 28;
        const LDS = 1 << 29;
        const GDS = 1 << 30;
        const OFFEN = 1 << 31;
        const IDXEN = 1 << 32;
        const OFFSET = 1 << 33;
        /// Two 8-bit offsets.
        const OFFSETS = 1 << 34;
        const SCOPE = 1 << 35;
        const TH = 1 << 36;
        const NV = 1 << 37;
        const CBSZ = 1 << 38;
        const ABID = 1 << 39;
        const BLGP = 1 << 40;
        const ACC_CD = 1 << 41;
        const ACC = 1 << 42;
        const SDWA = 1 << 43;
        const FORMAT = 1 << 44;
        /// Written with `_e32` or `_e64`.
        const SUFFIX = 1 << 48;
        /// The cache bit that makes an atomic return the old value is always set.
        const RETURNS = 1 << 49;
        /// Packed: the high halves are selected by default; one bit a source.
        const HI0 = 1 << 50;
        const HI1 = 1 << 51;
        const HI2 = 1 << 52;
        const ACC_A = 1 << 53;
        const ACC_B = 1 << 54;
    }
}

bitflags! {
    /// Registers that an instruction reads or writes without naming them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Implicit: u8 {
        const VCC = 1;
        const EXEC = 2;
        const SCC = 4;
        const M0 = 8;
    }
}

/// Which unit runs an instruction: what waits and hazards go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    Salu,
    Branch,
    /// Waits, priorities, clauses, the end.
    Control,
    Message,
    /// Scalar loads.
    Smem,
    Valu,
    /// Transcendental functions.
    Trans,
    /// WMMA and MFMA.
    Matrix,
    Global,
    Flat,
    Scratch,
    Buffer,
    Lds,
    /// Cache write-back and invalidation.
    Cache,
}

/// One operation in one encoding.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub op: Op,
    pub format: Format,
    /// The operation's number in the format, a column a chip.
    pub(super) codes: [u16; 3],
    /// Operands in the order of the text.
    pub slots: &'static [Slot],
    pub allows: Allows,
    pub unit: Unit,
    pub reads: Implicit,
    pub writes: Implicit,
}

/// Column of a chip that lacks the row.
pub(super) const NONE: u16 = u16::MAX;

impl Row {
    /// The operation's number on that chip.
    #[must_use]
    pub fn code(&self, chip: Chip) -> Option<u16> {
        Some(self.codes[column(chip)]).filter(|&c| c != NONE)
    }

    /// Whether the destination's half can be selected.
    pub(super) const fn selects_destination(&self) -> bool {
        self.allows.contains(Allows::OP_SEL3)
    }

    /// How many bits the op_sel list of the row's text has.
    pub(super) fn op_sel_count(&self) -> u32 {
        let last = [Allows::OP_SEL2, Allows::OP_SEL1, Allows::OP_SEL0].iter().position(|&b| self.allows.contains(b));
        u32::try_from(last.map_or(0, |i| 3 - i)).unwrap_or(0) + u32::from(self.selects_destination())
    }
}

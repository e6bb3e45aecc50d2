//! An instruction: operation, operands in the order of the assembler's text, modifiers.
//!
//! ```ignore
//! Inst::new(op::V_ADD_F32, [v(0), s(3), v(2)])
//! Inst::new(op::GLOBAL_LOAD_B128, [vs(4, 4), v(0), ss(2, 2)]).offset(64)
//! Inst::new(op::V_ADD_F32, [v(0), v(1), v(1)]).dpp(DppCtrl::RowShr(1))
//! ```

use super::reg::Operand;
use super::row::Op;
use smallvec::SmallVec;

/// Which encoding is requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Enc {
    /// The shortest that can hold the operands and modifiers.
    #[default]
    Auto,
    /// The 32-bit form of a vector instruction.
    E32,
    /// The 64-bit form.
    E64,
}

/// How lanes are permuted within a row of 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DppCtrl {
    /// Lane i of four reads the i-th of these.
    QuadPerm([u8; 4]),
    RowShl(u8),
    RowShr(u8),
    RowRor(u8),
    RowMirror,
    RowHalfMirror,
    /// Every lane of a row reads lane n (gfx10 and later).
    RowShare(u8),
    /// Lane i reads lane i xor n (gfx10 and later).
    RowXmask(u8),
    /// Every lane of a row reads lane n (gfx90a and gfx942).
    RowNewbcast(u8),
    WaveShl,
    WaveRol,
    WaveShr,
    WaveRor,
    RowBcast15,
    RowBcast31,
}

/// Data-parallel primitives: where the first source's lanes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dpp {
    Dpp16 {
        ctrl: DppCtrl,
        row_mask: u8,
        bank_mask: u8,
        bound_ctrl: bool,
        fetch_inactive: bool,
    },
    /// Lane i of eight reads the i-th of these.
    Dpp8 {
        lanes: [u8; 8],
        fetch_inactive: bool,
    },
}

/// Sub-dword addressing: which part of each dword is used, by number (bytes 0 to 3, words 4 and 5, 6: all of it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sdwa {
    pub dst_sel: u8,
    /// The rest of the destination: 0 zeros, 1 the part's sign, 2 stays.
    pub dst_unused: u8,
    pub src_sel: [u8; 2],
    /// Which sources' parts are extended by their sign.
    pub sext: u8,
}

/// The modifiers after the operands, and signs of sources. Bit i of a mask is source i.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modifiers {
    pub neg: u8,
    pub abs: u8,
    /// Packed: negation of the high halves (`neg` is then that of the low ones).
    pub neg_hi: u8,
    /// Which sources read their high half; bit 3: the destination (in VOP3).
    pub op_sel: u8,
    /// Packed: which sources use their high half for the high result; `None`: the operation's default.
    pub op_sel_hi: Option<u8>,
    pub clamp: bool,
    /// 0, 1: times 2, 2: times 4, 3: divided by 2.
    pub omod: u8,
    pub dpp: Option<Dpp>,
    pub sdwa: Option<Sdwa>,
    /// Bytes; of a scalar load with register offset: the immediate besides.
    pub offset: i32,
    pub offset1: u8,
    pub glc: bool,
    pub dlc: bool,
    pub slc: bool,
    pub sc0: bool,
    pub sc1: bool,
    pub nt: bool,
    pub tfe: bool,
    pub lds: bool,
    pub gds: bool,
    pub offen: bool,
    pub idxen: bool,
    /// Cache scope (gfx12): 0 CU, 1 SE, 2 device, 3 system.
    pub scope: u8,
    /// Temporal hint (gfx12).
    pub th: u8,
    pub nv: bool,
    pub cbsz: u8,
    pub abid: u8,
    pub blgp: u8,
}

/// One instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Inst {
    pub op: Op,
    pub operands: SmallVec<[Operand; 5]>,
    pub mods: Modifiers,
    pub enc: Enc,
    /// The second half of a dual instruction; its operands follow those of the first.
    pub dual: Option<Op>,
}

impl Inst {
    /// An instruction with operands in the order of the assembler's text.
    #[must_use]
    pub fn new<const N: usize>(op: Op, operands: [Operand; N]) -> Inst {
        let operands = operands.into_iter().collect();
        Inst { op, operands, mods: Modifiers::default(), enc: Enc::Auto, dual: None }
    }

    /// Two instructions as one (wave32 of gfx11 and gfx12).
    #[must_use]
    pub fn dual(x: Inst, y: Inst) -> Inst {
        let mut both = x;
        both.operands.extend(y.operands);
        both.dual = Some(y.op);
        both
    }

    /// Requests the 32-bit form.
    #[must_use]
    pub fn e32(mut self) -> Inst {
        self.enc = Enc::E32;
        self
    }

    /// Requests the 64-bit form.
    #[must_use]
    pub fn e64(mut self) -> Inst {
        self.enc = Enc::E64;
        self
    }

    /// Negates source `index` (of a packed operation: its low half).
    #[must_use]
    pub fn neg(mut self, index: u8) -> Inst {
        self.mods.neg |= 1 << index;
        self
    }

    /// Takes the absolute value of source `index`, before negation.
    #[must_use]
    pub fn abs(mut self, index: u8) -> Inst {
        self.mods.abs |= 1 << index;
        self
    }

    /// Saturates the result.
    #[must_use]
    pub fn clamp(mut self) -> Inst {
        self.mods.clamp = true;
        self
    }

    /// Selects high halves: bit i is source i, bit 3 the destination.
    #[must_use]
    pub fn op_sel(mut self, mask: u8) -> Inst {
        self.mods.op_sel = mask;
        self
    }

    /// Packed: which sources' high halves make the high result.
    #[must_use]
    pub fn op_sel_hi(mut self, mask: u8) -> Inst {
        self.mods.op_sel_hi = Some(mask);
        self
    }

    /// Byte offset of a memory access.
    #[must_use]
    pub fn offset(mut self, bytes: i32) -> Inst {
        self.mods.offset = bytes;
        self
    }

    /// The two offsets of a two-address LDS access, in units of its element.
    #[must_use]
    pub fn offsets(mut self, first: u8, second: u8) -> Inst {
        self.mods.offset = i32::from(first);
        self.mods.offset1 = second;
        self
    }

    /// Permutes lanes within rows; all rows and banks, lanes from outside read 0 and inactive ones are not fetched.
    #[must_use]
    pub fn dpp(mut self, ctrl: DppCtrl) -> Inst {
        self.mods.dpp = Some(Dpp::Dpp16 { ctrl, row_mask: 15, bank_mask: 15, bound_ctrl: true, fetch_inactive: false });
        self
    }

    /// Permutes lanes within groups of eight.
    #[must_use]
    pub fn dpp8(mut self, lanes: [u8; 8]) -> Inst {
        self.mods.dpp = Some(Dpp::Dpp8 { lanes, fetch_inactive: false });
        self
    }

    /// Changes modifiers that have no method of their own.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Modifiers)) -> Inst {
        change(&mut self.mods);
        self
    }
}

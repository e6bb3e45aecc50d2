//! Registers and other operands.
//!
//! A register operand names a file, the first register and the number of consecutive ones, so a 64-bit address in
//! `s[4:5]` is one operand. Special registers are files of their own: their numbers differ from chip to chip.

use super::chip::{Chip, Target};

/// A register file, or a register with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum File {
    /// Vector registers, v0 to v255.
    Vgpr,
    /// Accumulation registers of gfx942, a0 to a255.
    Agpr,
    /// Scalar registers, s0 to s105 (gfx942: s101).
    Sgpr,
    /// Trap temporaries.
    Ttmp,
    /// The carry and compare mask; first 0 or 1 for one half.
    Vcc,
    /// The mask of live lanes.
    Exec,
    /// Base of relative and LDS accesses.
    M0,
    /// Reads 0, discards results (gfx11, gfx12).
    Null,
    /// The scalar condition as a source.
    Scc,
    /// VCC is zero, as a source (gfx942).
    VccZ,
    /// EXEC is zero, as a source (gfx942).
    ExecZ,
    /// LDS in the flat address space: base.
    SharedBase,
    /// LDS in the flat address space: limit.
    SharedLimit,
    /// Scratch in the flat address space: base.
    PrivateBase,
    /// Scratch in the flat address space: limit.
    PrivateLimit,
    /// Flat scratch base (gfx942).
    FlatScratch,
    /// Replay mask (gfx942).
    XnackMask,
    /// A source that pops the ordering counter of pixel waves.
    PopsExitingWaveId,
    /// A value that the LDS parameter port delivers (gfx942).
    LdsDirect,
}

/// `words` registers from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reg {
    pub file: File,
    pub first: u16,
    pub words: u8,
}

impl Reg {
    #[must_use]
    pub const fn new(file: File, first: u16, words: u8) -> Reg {
        Reg { file, first, words }
    }
}

/// One vector register.
#[must_use]
pub const fn v(n: u16) -> Operand {
    vs(n, 1)
}

/// A tuple of vector registers: `vs(4, 2)` is `v[4:5]`.
#[must_use]
pub const fn vs(first: u16, words: u8) -> Operand {
    Operand::Reg(Reg::new(File::Vgpr, first, words))
}

/// One scalar register.
#[must_use]
pub const fn s(n: u16) -> Operand {
    ss(n, 1)
}

/// A tuple of scalar registers: `ss(4, 2)` is `s[4:5]`. Two must start even, more at a multiple of four.
#[must_use]
pub const fn ss(first: u16, words: u8) -> Operand {
    Operand::Reg(Reg::new(File::Sgpr, first, words))
}

/// One accumulation register.
#[must_use]
pub const fn a(n: u16) -> Operand {
    acc(n, 1)
}

/// A tuple of accumulation registers.
#[must_use]
pub const fn acc(first: u16, words: u8) -> Operand {
    Operand::Reg(Reg::new(File::Agpr, first, words))
}

/// The low half of VCC: all of it in wave32.
pub const VCC_LO: Operand = Operand::Reg(Reg::new(File::Vcc, 0, 1));
/// The high half of VCC.
pub const VCC_HI: Operand = Operand::Reg(Reg::new(File::Vcc, 1, 1));
/// VCC as a pair.
pub const VCC: Operand = Operand::Reg(Reg::new(File::Vcc, 0, 2));
/// The low half of EXEC: all of it in wave32.
pub const EXEC_LO: Operand = Operand::Reg(Reg::new(File::Exec, 0, 1));
/// The high half of EXEC.
pub const EXEC_HI: Operand = Operand::Reg(Reg::new(File::Exec, 1, 1));
/// EXEC as a pair.
pub const EXEC: Operand = Operand::Reg(Reg::new(File::Exec, 0, 2));
/// M0.
pub const M0: Operand = Operand::Reg(Reg::new(File::M0, 0, 1));
/// The null register (gfx11, gfx12); it fits every width.
pub const NULL: Operand = Operand::Reg(Reg::new(File::Null, 0, 1));
/// The scalar condition, as a source.
pub const SCC: Operand = Operand::Reg(Reg::new(File::Scc, 0, 1));

impl Target {
    /// VCC as wide as a mask is.
    #[must_use]
    pub const fn vcc(self) -> Operand {
        Operand::Reg(Reg::new(File::Vcc, 0, self.mask_words()))
    }

    /// EXEC as wide as a mask is.
    #[must_use]
    pub const fn exec(self) -> Operand {
        Operand::Reg(Reg::new(File::Exec, 0, self.mask_words()))
    }

    /// A mask in scalar registers.
    #[must_use]
    pub const fn mask(self, first: u16) -> Operand {
        ss(first, self.mask_words())
    }
}

/// One operand, in the order of the assembler's text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operand {
    Reg(Reg),
    /// An integer. In a source: an inline constant from -16 to 64, else a literal; elsewhere the immediate field.
    Int(i64),
    /// A float in the operand's own format: an inline constant where there is one, else a literal.
    Float(f64),
    /// 32 bits as they are. The assembler shortens them to an inline constant that means the same bits.
    Lit(u32),
    /// No register: an address or base that is absent.
    Off,
    /// Branch target: a label of the [`Assembler`](super::Assembler).
    Label(u32),
}

impl From<i32> for Operand {
    fn from(value: i32) -> Self {
        Operand::Int(i64::from(value))
    }
}

impl From<f32> for Operand {
    fn from(value: f32) -> Self {
        Operand::Float(f64::from(value))
    }
}

/// Last plain scalar register.
pub(super) const fn last_sgpr(chip: Chip) -> u16 {
    match chip {
        Chip::Gfx942 => 101,
        _ => 105,
    }
}

/// Names of the files that are single registers or pairs: file, name of the one or the pair, names of the halves.
pub(super) const SPECIAL: &[(File, &str, &str, &str)] = &[
    (File::Vcc, "vcc", "vcc_lo", "vcc_hi"),
    (File::Exec, "exec", "exec_lo", "exec_hi"),
    (File::FlatScratch, "flat_scratch", "flat_scratch_lo", "flat_scratch_hi"),
    (File::XnackMask, "xnack_mask", "xnack_mask_lo", "xnack_mask_hi"),
    (File::M0, "m0", "", ""),
    (File::Null, "null", "", ""),
    (File::Scc, "src_scc", "", ""),
    (File::VccZ, "src_vccz", "", ""),
    (File::ExecZ, "src_execz", "", ""),
    (File::SharedBase, "src_shared_base", "", ""),
    (File::SharedLimit, "src_shared_limit", "", ""),
    (File::PrivateBase, "src_private_base", "", ""),
    (File::PrivateLimit, "src_private_limit", "", ""),
    (File::PopsExitingWaveId, "src_pops_exiting_wave_id", "", ""),
    (File::LdsDirect, "src_lds_direct", "", ""),
];

/// Operand code of a scalar register or special source; `None`: the chip has no such register.
pub(super) fn scalar_code(chip: Chip, reg: Reg) -> Option<u16> {
    let gfx9 = chip.is_gfx9();
    let half = |base: u16| (reg.first < 2 && reg.first + u16::from(reg.words) <= 2).then_some(base + reg.first);
    let only = |code: u16| (reg.first == 0).then_some(code);
    match reg.file {
        File::Sgpr => (reg.first + u16::from(reg.words) <= last_sgpr(chip) + 1).then_some(reg.first),
        File::Ttmp => (reg.first + u16::from(reg.words) <= 16).then_some(108 + reg.first),
        File::Vcc => half(106),
        File::Exec => half(126),
        File::FlatScratch if gfx9 => half(102),
        File::XnackMask if gfx9 => half(104),
        File::M0 => only(if gfx9 { 124 } else { 125 }),
        File::Null if !gfx9 => only(124),
        File::Scc => only(253),
        File::VccZ if gfx9 => only(251),
        File::ExecZ if gfx9 => only(252),
        File::SharedBase => only(235),
        File::SharedLimit => only(236),
        File::PrivateBase => only(237),
        File::PrivateLimit => only(238),
        File::PopsExitingWaveId => only(239),
        File::LdsDirect if gfx9 => only(254),
        _ => None,
    }
}

/// The register of an operand code below 128 or a special source, `words` wide; `None`: the code is something else, or
/// the tuple is not aligned or runs out of the file.
pub(super) fn scalar_reg(chip: Chip, code: u16, words: u8) -> Option<Reg> {
    let gfx9 = chip.is_gfx9();
    let wide = u16::from(words);
    let pair = |file, base: u16| match (code - base, words) {
        (0, 1 | 2) | (1, 1) => Some(Reg::new(file, code - base, words)),
        _ => None,
    };
    let aligned = |first: u16| words == 1 || first.is_multiple_of(if words == 2 { 2 } else { 4 });
    let one = |file| Some(Reg::new(file, 0, 1));
    match code {
        0..=105 if code <= last_sgpr(chip) => {
            (aligned(code) && code + wide <= last_sgpr(chip) + 1).then_some(Reg::new(File::Sgpr, code, words))
        }
        102..=103 if gfx9 => pair(File::FlatScratch, 102),
        104..=105 if gfx9 => pair(File::XnackMask, 104),
        106..=107 => pair(File::Vcc, 106),
        108..=123 => {
            (aligned(code - 108) && code - 108 + wide <= 16).then_some(Reg::new(File::Ttmp, code - 108, words))
        }
        124 if gfx9 => (words == 1).then_some(Reg::new(File::M0, 0, 1)),
        124 => one(File::Null),
        125 if !gfx9 => (words == 1).then_some(Reg::new(File::M0, 0, 1)),
        126..=127 => pair(File::Exec, 126),
        235 => one(File::SharedBase),
        236 => one(File::SharedLimit),
        237 => one(File::PrivateBase),
        238 => one(File::PrivateLimit),
        239 if gfx9 => one(File::PopsExitingWaveId),
        251 if gfx9 => one(File::VccZ),
        252 if gfx9 => one(File::ExecZ),
        253 => one(File::Scc),
        254 if gfx9 => one(File::LdsDirect),
        _ => None,
    }
}

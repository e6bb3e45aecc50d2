//! Rows of general-register instructions: 32-bit form, 64-bit form.

use super::form::Form;
use iced_x86::Code::{self, *};

/// A two-operand operation `a op= b`: register or memory source, and immediate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alu {
    rm: [Code; 2],
    imm8: [Code; 2],
    imm32: [Code; 2],
}

const fn alu(rm: [Code; 2], imm8: [Code; 2], imm32: [Code; 2]) -> Alu {
    Alu { rm, imm8, imm32 }
}

#[rustfmt::skip]
mod rows {
    use super::*;
    pub(crate) const ADD: Alu = alu([Add_r32_rm32, Add_r64_rm64], [Add_rm32_imm8, Add_rm64_imm8], [Add_rm32_imm32, Add_rm64_imm32]);
    pub(crate) const SUB: Alu = alu([Sub_r32_rm32, Sub_r64_rm64], [Sub_rm32_imm8, Sub_rm64_imm8], [Sub_rm32_imm32, Sub_rm64_imm32]);
    pub(crate) const AND: Alu = alu([And_r32_rm32, And_r64_rm64], [And_rm32_imm8, And_rm64_imm8], [And_rm32_imm32, And_rm64_imm32]);
    pub(crate) const OR:  Alu = alu([Or_r32_rm32,  Or_r64_rm64],  [Or_rm32_imm8,  Or_rm64_imm8],  [Or_rm32_imm32,  Or_rm64_imm32]);
    pub(crate) const XOR: Alu = alu([Xor_r32_rm32, Xor_r64_rm64], [Xor_rm32_imm8, Xor_rm64_imm8], [Xor_rm32_imm32, Xor_rm64_imm32]);
    pub(crate) const CMP: Alu = alu([Cmp_r32_rm32, Cmp_r64_rm64], [Cmp_rm32_imm8, Cmp_rm64_imm8], [Cmp_rm32_imm32, Cmp_rm64_imm32]);
}
pub(crate) use rows::*;

impl Alu {
    /// With a register or memory source.
    pub(crate) fn rm(self, wide: bool) -> Form {
        Form::gpr(self.rm[wide as usize], if wide { b"qq" } else { b"dd" }, 1)
    }

    /// With an immediate that fits 32 bits, sign-extended.
    pub(crate) fn imm(self, wide: bool, value: i64) -> Form {
        let codes = if i8::try_from(value).is_ok() { self.imm8 } else { self.imm32 };
        Form::gpr(codes[wide as usize], if wide { b"q" } else { b"d" }, 9)
    }
}

/// A form with a 32-bit and a 64-bit code.
pub(crate) const fn pair(codes: [Code; 2], wide: bool, kinds: [&'static [u8]; 2], mem: u8) -> Form {
    Form::gpr(codes[wide as usize], kinds[wide as usize], mem)
}

/// Forms of two registers `a, b` or of one register, by width.
pub(crate) const fn two(codes: [Code; 2], wide: bool) -> Form {
    pair(codes, wide, [b"dd", b"qq"], 1)
}

/// Forms of one register.
pub(crate) const fn one(codes: [Code; 2], wide: bool) -> Form {
    pair(codes, wide, [b"d", b"q"], 9)
}

pub(crate) const MOV: [Code; 2] = [Mov_r32_rm32, Mov_r64_rm64];
pub(crate) const IMUL: [Code; 2] = [Imul_r32_rm32, Imul_r64_rm64];
pub(crate) const IMUL_IMM: [Code; 2] = [Imul_r32_rm32_imm32, Imul_r64_rm64_imm32];
pub(crate) const SHL_IMM: [Code; 2] = [Shl_rm32_imm8, Shl_rm64_imm8];
pub(crate) const SHR_IMM: [Code; 2] = [Shr_rm32_imm8, Shr_rm64_imm8];
pub(crate) const SAR_IMM: [Code; 2] = [Sar_rm32_imm8, Sar_rm64_imm8];
pub(crate) const NEG: [Code; 2] = [Neg_rm32, Neg_rm64];
pub(crate) const TEST: [Code; 2] = [Test_rm32_r32, Test_rm64_r64];
pub(crate) const LEA: [Code; 2] = [Lea_r32_m, Lea_r64_m];
/// Condition codes, with the instructions that use each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cond {
    /// Equal.
    E,
    /// Not equal.
    Ne,
    /// Signed less.
    L,
    /// Signed greater or equal.
    Ge,
    /// Signed less or equal.
    Le,
    /// Signed greater.
    G,
    /// Unsigned below.
    B,
    /// Unsigned above or equal.
    Ae,
}

impl Cond {
    /// Jump, set byte, conditional move.
    #[rustfmt::skip]
    fn row(self) -> (Code, Code, [Code; 2]) {
        match self {
            Cond::E  => (Je_rel32_64,  Sete_rm8,  [Cmove_r32_rm32,  Cmove_r64_rm64]),
            Cond::Ne => (Jne_rel32_64, Setne_rm8, [Cmovne_r32_rm32, Cmovne_r64_rm64]),
            Cond::L  => (Jl_rel32_64,  Setl_rm8,  [Cmovl_r32_rm32,  Cmovl_r64_rm64]),
            Cond::Ge => (Jge_rel32_64, Setge_rm8, [Cmovge_r32_rm32, Cmovge_r64_rm64]),
            Cond::Le => (Jle_rel32_64, Setle_rm8, [Cmovle_r32_rm32, Cmovle_r64_rm64]),
            Cond::G  => (Jg_rel32_64,  Setg_rm8,  [Cmovg_r32_rm32,  Cmovg_r64_rm64]),
            Cond::B  => (Jb_rel32_64,  Setb_rm8,  [Cmovb_r32_rm32,  Cmovb_r64_rm64]),
            Cond::Ae => (Jae_rel32_64, Setae_rm8, [Cmovae_r32_rm32, Cmovae_r64_rm64]),
        }
    }

    /// The jump if it is true.
    pub(crate) fn jump(self) -> Code {
        self.row().0
    }

    /// The byte set to whether it is true.
    pub(crate) fn set(self) -> Code {
        self.row().1
    }

    /// The move if it is true.
    pub(crate) fn cmov(self) -> [Code; 2] {
        self.row().2
    }

    /// True where this is false.
    pub(crate) fn opposite(self) -> Cond {
        match self {
            Cond::E => Cond::Ne,
            Cond::Ne => Cond::E,
            Cond::L => Cond::Ge,
            Cond::Ge => Cond::L,
            Cond::Le => Cond::G,
            Cond::G => Cond::Le,
            Cond::B => Cond::Ae,
            Cond::Ae => Cond::B,
        }
    }
}

impl Alu {
    /// Whether the operands may be swapped.
    pub(crate) fn is_commutative(self) -> bool {
        !matches!(self.rm[0], Code::Sub_r32_rm32 | Code::Cmp_r32_rm32)
    }
}

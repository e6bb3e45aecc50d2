//! Rows of general-register instructions: 32-bit form, 64-bit form.

use super::form::Form;
use iced_x86::Code::{self, *};

/// A two-operand operation `a op= b`: register or memory source, and immediate.
#[derive(Clone, Copy, Debug)]
pub struct Alu {
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
    pub const ADD: Alu = alu([Add_r32_rm32, Add_r64_rm64], [Add_rm32_imm8, Add_rm64_imm8], [Add_rm32_imm32, Add_rm64_imm32]);
    pub const SUB: Alu = alu([Sub_r32_rm32, Sub_r64_rm64], [Sub_rm32_imm8, Sub_rm64_imm8], [Sub_rm32_imm32, Sub_rm64_imm32]);
    pub const AND: Alu = alu([And_r32_rm32, And_r64_rm64], [And_rm32_imm8, And_rm64_imm8], [And_rm32_imm32, And_rm64_imm32]);
    pub const OR:  Alu = alu([Or_r32_rm32,  Or_r64_rm64],  [Or_rm32_imm8,  Or_rm64_imm8],  [Or_rm32_imm32,  Or_rm64_imm32]);
    pub const XOR: Alu = alu([Xor_r32_rm32, Xor_r64_rm64], [Xor_rm32_imm8, Xor_rm64_imm8], [Xor_rm32_imm32, Xor_rm64_imm32]);
    pub const CMP: Alu = alu([Cmp_r32_rm32, Cmp_r64_rm64], [Cmp_rm32_imm8, Cmp_rm64_imm8], [Cmp_rm32_imm32, Cmp_rm64_imm32]);
}
pub use rows::*;

impl Alu {
    /// With a register or memory source.
    pub fn rm(self, wide: bool) -> Form {
        Form::gpr(self.rm[wide as usize], if wide { b"qq" } else { b"dd" }, 1)
    }

    /// With an immediate that fits 32 bits, sign-extended.
    pub fn imm(self, wide: bool, value: i64) -> Form {
        let codes = if i8::try_from(value).is_ok() { self.imm8 } else { self.imm32 };
        Form::gpr(codes[wide as usize], if wide { b"q" } else { b"d" }, 9)
    }
}

/// A form with a 32-bit and a 64-bit code.
pub const fn pair(codes: [Code; 2], wide: bool, kinds: [&'static [u8]; 2], mem: u8) -> Form {
    Form::gpr(codes[wide as usize], kinds[wide as usize], mem)
}

/// Forms of two registers `a, b` or of one register, by width.
pub const fn two(codes: [Code; 2], wide: bool) -> Form {
    pair(codes, wide, [b"dd", b"qq"], 1)
}

/// Forms of one register.
pub const fn one(codes: [Code; 2], wide: bool) -> Form {
    pair(codes, wide, [b"d", b"q"], 9)
}

pub const MOV: [Code; 2] = [Mov_r32_rm32, Mov_r64_rm64];
pub const IMUL: [Code; 2] = [Imul_r32_rm32, Imul_r64_rm64];
pub const IMUL_IMM: [Code; 2] = [Imul_r32_rm32_imm32, Imul_r64_rm64_imm32];
pub const SHL_IMM: [Code; 2] = [Shl_rm32_imm8, Shl_rm64_imm8];
pub const SHR_IMM: [Code; 2] = [Shr_rm32_imm8, Shr_rm64_imm8];
pub const SAR_IMM: [Code; 2] = [Sar_rm32_imm8, Sar_rm64_imm8];
pub const NEG: [Code; 2] = [Neg_rm32, Neg_rm64];
pub const TEST: [Code; 2] = [Test_rm32_r32, Test_rm64_r64];
pub const LEA: [Code; 2] = [Lea_r32_m, Lea_r64_m];
pub const CMOVL: [Code; 2] = [Cmovl_r32_rm32, Cmovl_r64_rm64];
pub const CMOVB: [Code; 2] = [Cmovb_r32_rm32, Cmovb_r64_rm64];
pub const CMOVNE: [Code; 2] = [Cmovne_r32_rm32, Cmovne_r64_rm64];
pub const CMOVAE: [Code; 2] = [Cmovae_r32_rm32, Cmovae_r64_rm64];

/// Condition codes, with the jump, the set and the opposite of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cond {
    /// Equal.
    E,
    /// Not equal.
    Ne,
    /// Signed less.
    L,
    /// Signed less or equal.
    Le,
    /// Unsigned below.
    B,
}

impl Cond {
    /// The jump if it holds.
    pub fn jump(self) -> Code {
        match self {
            Cond::E => Je_rel32_64,
            Cond::Ne => Jne_rel32_64,
            Cond::L => Jl_rel32_64,
            Cond::Le => Jle_rel32_64,
            Cond::B => Jb_rel32_64,
        }
    }

    /// The byte set to whether it holds.
    pub fn set(self) -> Code {
        match self {
            Cond::E => Sete_rm8,
            Cond::Ne => Setne_rm8,
            Cond::L => Setl_rm8,
            Cond::Le => Setle_rm8,
            Cond::B => Setb_rm8,
        }
    }
}

impl Alu {
    /// Whether the operands may be swapped.
    pub fn is_commutative(self) -> bool {
        !matches!(self.rm[0], Code::Sub_r32_rm32 | Code::Cmp_r32_rm32)
    }
}

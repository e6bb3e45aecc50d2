//! The table of instructions: name, fixed bits, operands. Encoder, decoder and printer read the same rows.
//!
//! Rows with lanes are arrays by the logarithm of an element's bytes (floats: f32, f64); rows of general registers are
//! arrays of the 32-bit and the 64-bit form. Source: Arm Architecture Reference Manual (DDI 0487), C6.2 and C7.2.

use super::field::Arrangement::{B8, B16, D2, H4, H8, S2, S4};
use super::field::Field::{self, *};

/// An instruction: everything but the values of its operands.
#[derive(Debug)]
pub struct Row {
    /// Mnemonic.
    pub name: &'static str,
    /// The bits that are no operand.
    pub base: u32,
    /// Operands in the order of the text.
    pub fields: &'static [Field],
}

const fn row(name: &'static str, base: u32, fields: &'static [Field]) -> Row {
    Row { name, base, fields }
}

/// 32-bit and 64-bit form of an instruction, which differ by bit 31.
const fn pair(name: &'static str, base: u32, w: &'static [Field], x: &'static [Field]) -> [Row; 2] {
    [row(name, base, w), row(name, base | 1 << 31, x)]
}

/// Three general registers.
const fn g3(name: &'static str, base: u32) -> [Row; 2] {
    pair(name, base, &[W(0), W(5), W(16)], &[X(0), X(5), X(16)])
}

const V2: [&[Field]; 4] =
    [&[V(0, B16), V(5, B16)], &[V(0, H8), V(5, H8)], &[V(0, S4), V(5, S4)], &[V(0, D2), V(5, D2)]];
const V3: [&[Field]; 4] = [
    &[V(0, B16), V(5, B16), V(16, B16)],
    &[V(0, H8), V(5, H8), V(16, H8)],
    &[V(0, S4), V(5, S4), V(16, S4)],
    &[V(0, D2), V(5, D2), V(16, D2)],
];

/// Three vectors of integers, all sizes.
const fn v3(name: &'static str, base: u32) -> [Row; 4] {
    [
        row(name, base, V3[0]),
        row(name, base | 1 << 22, V3[1]),
        row(name, base | 2 << 22, V3[2]),
        row(name, base | 3 << 22, V3[3]),
    ]
}

/// Three vectors of integers, without doublewords.
const fn v3_small(name: &'static str, base: u32) -> [Row; 3] {
    [row(name, base, V3[0]), row(name, base | 1 << 22, V3[1]), row(name, base | 2 << 22, V3[2])]
}

/// Two vectors of integers, all sizes.
const fn v2(name: &'static str, base: u32) -> [Row; 4] {
    [
        row(name, base, V2[0]),
        row(name, base | 1 << 22, V2[1]),
        row(name, base | 2 << 22, V2[2]),
        row(name, base | 3 << 22, V2[3]),
    ]
}

/// Three vectors of f32 and f64.
const fn f3(name: &'static str, base: u32) -> [Row; 2] {
    [row(name, base, V3[2]), row(name, base | 1 << 22, V3[3])]
}

/// Two vectors of f32 and f64.
const fn f2(name: &'static str, base: u32) -> [Row; 2] {
    [row(name, base, V2[2]), row(name, base | 1 << 22, V2[3])]
}

/// Comparison of integers with zero, all sizes.
const fn with_zero(name: &'static str, base: u32) -> [Row; 4] {
    [
        row(name, base, &[V(0, B16), V(5, B16), Text("#0")]),
        row(name, base | 1 << 22, &[V(0, H8), V(5, H8), Text("#0")]),
        row(name, base | 2 << 22, &[V(0, S4), V(5, S4), Text("#0")]),
        row(name, base | 3 << 22, &[V(0, D2), V(5, D2), Text("#0")]),
    ]
}

/// Shift of lanes to the left by a constant.
const fn shift_left(name: &'static str, base: u32) -> [Row; 4] {
    [
        row(name, base | 1 << 19, &[V(0, B16), V(5, B16), ShiftLeft(0)]),
        row(name, base | 1 << 20, &[V(0, H8), V(5, H8), ShiftLeft(1)]),
        row(name, base | 1 << 21, &[V(0, S4), V(5, S4), ShiftLeft(2)]),
        row(name, base | 1 << 22, &[V(0, D2), V(5, D2), ShiftLeft(3)]),
    ]
}

/// Shift of lanes to the right by a constant.
const fn shift_right(name: &'static str, base: u32) -> [Row; 4] {
    [
        row(name, base | 1 << 19, &[V(0, B16), V(5, B16), ShiftRight(0)]),
        row(name, base | 1 << 20, &[V(0, H8), V(5, H8), ShiftRight(1)]),
        row(name, base | 1 << 21, &[V(0, S4), V(5, S4), ShiftRight(2)]),
        row(name, base | 1 << 22, &[V(0, D2), V(5, D2), ShiftRight(3)]),
    ]
}

/// Lanes of the low half made twice as wide, from bytes, halfwords, words.
const fn widen(name: &'static str, base: u32) -> [Row; 3] {
    [
        row(name, base | 1 << 19, &[V(0, H8), V(5, B8), ShiftLeft(0)]),
        row(name, base | 1 << 20, &[V(0, S4), V(5, H4), ShiftLeft(1)]),
        row(name, base | 1 << 21, &[V(0, D2), V(5, S2), ShiftLeft(2)]),
    ]
}

/// Load or store of one size: with an unsigned offset in units of it, and with a signed one in bytes.
const fn access(names: [&'static str; 2], base: u32, fields: [&'static [Field]; 2]) -> [Row; 2] {
    [row(names[0], base, fields[0]), row(names[1], base - (1 << 24), fields[1])]
}

const fn reg_access(names: [&'static str; 2], base: u32, log: u8) -> [Row; 2] {
    match log {
        0 => access(names, base, [&[W(0), Base(5), Offset(0)], &[W(0), Base(5), Offset9]]),
        1 => access(names, base, [&[W(0), Base(5), Offset(1)], &[W(0), Base(5), Offset9]]),
        2 => access(names, base, [&[W(0), Base(5), Offset(2)], &[W(0), Base(5), Offset9]]),
        _ => access(names, base, [&[X(0), Base(5), Offset(3)], &[X(0), Base(5), Offset9]]),
    }
}

const fn vec_access(names: [&'static str; 2], base: u32, log: u8) -> [Row; 2] {
    match log {
        0 => access(names, base, [&[F(0, 0), Base(5), Offset(0)], &[F(0, 0), Base(5), Offset9]]),
        1 => access(names, base, [&[F(0, 1), Base(5), Offset(1)], &[F(0, 1), Base(5), Offset9]]),
        2 => access(names, base, [&[F(0, 2), Base(5), Offset(2)], &[F(0, 2), Base(5), Offset9]]),
        3 => access(names, base, [&[F(0, 3), Base(5), Offset(3)], &[F(0, 3), Base(5), Offset9]]),
        _ => access(names, base, [&[F(0, 4), Base(5), Offset(4)], &[F(0, 4), Base(5), Offset9]]),
    }
}

macro_rules! rows {
    (@type) => { Row };
    (@type $n:literal) => { [Row; $n] };
    (@all $v:ident $name:ident) => { $v.push(&$name) };
    (@all $v:ident $name:ident $n:literal) => { $v.extend(&$name) };
    ($($name:ident $(: $n:literal)? = $value:expr;)*) => {
        $(pub static $name: rows!(@type $($n)?) = $value;)*

        /// All rows.
        #[must_use]
        pub fn all() -> Vec<&'static Row> {
            let mut v: Vec<&'static Row> = Vec::new();
            $(rows!(@all v $name $($n)?);)*
            v
        }
    };
}

#[rustfmt::skip]
mod table {
    use super::*;
    rows! {
        // General registers (C6.2).
        ADD: 2 = pair("add", 0x0b00_0000, &[W(0), W(5), W(16), Lsl(10, 5)], &[X(0), X(5), X(16), Lsl(10, 6)]);
        SUB: 2 = g3("sub", 0x4b00_0000);
        AND: 2 = g3("and", 0x0a00_0000);
        ORR: 2 = g3("orr", 0x2a00_0000);
        EOR: 2 = g3("eor", 0x4a00_0000);
        MADD: 2 = pair("madd", 0x1b00_0000, &[W(0), W(5), W(16), W(10)], &[X(0), X(5), X(16), X(10)]);
        MSUB: 2 = pair("msub", 0x1b00_8000, &[W(0), W(5), W(16), W(10)], &[X(0), X(5), X(16), X(10)]);
        UDIV: 2 = g3("udiv", 0x1ac0_0800);
        SDIV: 2 = g3("sdiv", 0x1ac0_0c00);
        LSLV: 2 = g3("lsl", 0x1ac0_2000);
        LSRV: 2 = g3("lsr", 0x1ac0_2400);
        ASRV: 2 = g3("asr", 0x1ac0_2800);
        CMP: 2 = pair("subs", 0x6b00_001f, &[Text("wzr"), W(5), W(16)], &[Text("xzr"), X(5), X(16)]);
        CMP_IMM: 2 = pair("subs", 0x7100_001f, &[Text("wzr"), Wsp(5), Imm(10, 12)], &[Text("xzr"), Xsp(5), Imm(10, 12)]);
        CSEL: 2 = pair("csel", 0x1a80_0000, &[W(0), W(5), W(16), Condition(12)], &[X(0), X(5), X(16), Condition(12)]);
        CSET: 1 = [row("csinc", 0x1a9f_07e0, &[W(0), Text("wzr"), Text("wzr"), Condition(12)])];
        ADD_IMM: 2 = pair("add", 0x1100_0000, &[Wsp(0), Wsp(5), Imm(10, 12), Lsl12], &[Xsp(0), Xsp(5), Imm(10, 12), Lsl12]);
        SUB_IMM: 1 = [row("sub", 0xd100_0000, &[Xsp(0), Xsp(5), Imm(10, 12), Lsl12])];
        ADD_SP: 1 = [row("add", 0x8b20_6000, &[Xsp(0), Xsp(5), X(16), Text("uxtx")])];
        SBFM: 2 = [row("sbfm", 0x1300_0000, &[W(0), W(5), Imm(16, 5), Imm(10, 5)]), row("sbfm", 0x9340_0000, &[X(0), X(5), Imm(16, 6), Imm(10, 6)])];
        UBFM: 2 = [row("ubfm", 0x5300_0000, &[W(0), W(5), Imm(16, 5), Imm(10, 5)]), row("ubfm", 0xd340_0000, &[X(0), X(5), Imm(16, 6), Imm(10, 6)])];
        MOVZ: 1 = [row("movz", 0xd280_0000, &[X(0), Imm(5, 16), Lsl16])];
        MOVN: 1 = [row("movn", 0x9280_0000, &[X(0), Imm(5, 16), Lsl16])];
        MOVK: 1 = [row("movk", 0xf280_0000, &[X(0), Imm(5, 16), Lsl16])];
        B = row("b", 0x1400_0000, &[Relative(0, 26)]);
        B_COND = row("b.", 0x5400_0000, &[BranchCondition, Relative(5, 19)]);
        RET = row("ret", 0xd65f_03c0, &[]);

        // Memory.
        LDRB: 2 = reg_access(["ldrb", "ldurb"], 0x3940_0000, 0);
        LDRH: 2 = reg_access(["ldrh", "ldurh"], 0x7940_0000, 1);
        LDRSB: 2 = reg_access(["ldrsb", "ldursb"], 0x39c0_0000, 0);
        LDRSH: 2 = reg_access(["ldrsh", "ldursh"], 0x79c0_0000, 1);
        LDR_W: 2 = reg_access(["ldr", "ldur"], 0xb940_0000, 2);
        LDR_X: 2 = reg_access(["ldr", "ldur"], 0xf940_0000, 3);
        STRB: 2 = reg_access(["strb", "sturb"], 0x3900_0000, 0);
        STRH: 2 = reg_access(["strh", "sturh"], 0x7900_0000, 1);
        STR_W: 2 = reg_access(["str", "stur"], 0xb900_0000, 2);
        STR_X: 2 = reg_access(["str", "stur"], 0xf900_0000, 3);
        LDR_B: 2 = vec_access(["ldr", "ldur"], 0x3d40_0000, 0);
        LDR_H: 2 = vec_access(["ldr", "ldur"], 0x7d40_0000, 1);
        LDR_S: 2 = vec_access(["ldr", "ldur"], 0xbd40_0000, 2);
        LDR_D: 2 = vec_access(["ldr", "ldur"], 0xfd40_0000, 3);
        LDR_Q: 2 = vec_access(["ldr", "ldur"], 0x3dc0_0000, 4);
        STR_B: 2 = vec_access(["str", "stur"], 0x3d00_0000, 0);
        STR_H: 2 = vec_access(["str", "stur"], 0x7d00_0000, 1);
        STR_S: 2 = vec_access(["str", "stur"], 0xbd00_0000, 2);
        STR_D: 2 = vec_access(["str", "stur"], 0xfd00_0000, 3);
        STR_Q: 2 = vec_access(["str", "stur"], 0x3d80_0000, 4);
        LDR_LITERAL = row("ldr", 0x9c00_0000, &[F(0, 4), Relative(5, 19)]);

        // Between general and vector registers.
        FMOV_WS = row("fmov", 0x1e26_0000, &[W(0), F(5, 2)]);
        FMOV_SW = row("fmov", 0x1e27_0000, &[F(0, 2), W(5)]);
        FMOV_XD = row("fmov", 0x9e66_0000, &[X(0), F(5, 3)]);
        FMOV_DX = row("fmov", 0x9e67_0000, &[F(0, 3), X(5)]);
        SCVTF_X: 2 = [row("scvtf", 0x9e22_0000, &[F(0, 2), X(5)]), row("scvtf", 0x9e62_0000, &[F(0, 3), X(5)])];
        UCVTF_X: 2 = [row("ucvtf", 0x9e23_0000, &[F(0, 2), X(5)]), row("ucvtf", 0x9e63_0000, &[F(0, 3), X(5)])];
        FCVTZS_X: 2 = [row("fcvtzs", 0x9e38_0000, &[X(0), F(5, 2)]), row("fcvtzs", 0x9e78_0000, &[X(0), F(5, 3)])];
        FCVTZU_X: 2 = [row("fcvtzu", 0x9e39_0000, &[X(0), F(5, 2)]), row("fcvtzu", 0x9e79_0000, &[X(0), F(5, 3)])];
        UMOV: 4 = [row("umov", 0x0e01_3c00, &[W(0), Elem(5, 0), Index5(0)]), row("umov", 0x0e02_3c00, &[W(0), Elem(5, 1), Index5(1)]),
                   row("umov", 0x0e04_3c00, &[W(0), Elem(5, 2), Index5(2)]), row("umov", 0x4e08_3c00, &[X(0), Elem(5, 3), Index5(3)])];
        INS_G: 4 = [row("ins", 0x4e01_1c00, &[Elem(0, 0), Index5(0), W(5)]), row("ins", 0x4e02_1c00, &[Elem(0, 1), Index5(1), W(5)]),
                    row("ins", 0x4e04_1c00, &[Elem(0, 2), Index5(2), W(5)]), row("ins", 0x4e08_1c00, &[Elem(0, 3), Index5(3), X(5)])];
        INS_V: 4 = [row("ins", 0x6e01_0400, &[Elem(0, 0), Index5(0), Elem(5, 0), Index4(0)]), row("ins", 0x6e02_0400, &[Elem(0, 1), Index5(1), Elem(5, 1), Index4(1)]),
                    row("ins", 0x6e04_0400, &[Elem(0, 2), Index5(2), Elem(5, 2), Index4(2)]), row("ins", 0x6e08_0400, &[Elem(0, 3), Index5(3), Elem(5, 3), Index4(3)])];
        DUP_G: 4 = [row("dup", 0x4e01_0c00, &[V(0, B16), W(5)]), row("dup", 0x4e02_0c00, &[V(0, H8), W(5)]),
                    row("dup", 0x4e04_0c00, &[V(0, S4), W(5)]), row("dup", 0x4e08_0c00, &[V(0, D2), X(5)])];
        DUP_V: 4 = [row("dup", 0x4e01_0400, &[V(0, B16), Elem(5, 0), Index5(0)]), row("dup", 0x4e02_0400, &[V(0, H8), Elem(5, 1), Index5(1)]),
                    row("dup", 0x4e04_0400, &[V(0, S4), Elem(5, 2), Index5(2)]), row("dup", 0x4e08_0400, &[V(0, D2), Elem(5, 3), Index5(3)])];

        // Lanes moved.
        EXT = row("ext", 0x6e00_0000, &[V(0, B16), V(5, B16), V(16, B16), Imm(11, 4)]);
        TBL = row("tbl", 0x4e00_0000, &[V(0, B16), List(5), V(16, B16)]);
        ZIP1: 4 = v3("zip1", 0x4e00_3800);
        MOVI_0 = row("movi", 0x6f00_e400, &[V(0, D2), Text("#0000000000000000")]);
        SSHLL: 3 = widen("sshll", 0x0f00_a400);
        USHLL: 3 = widen("ushll", 0x2f00_a400);
        XTN: 3 = [row("xtn", 0x0e21_2800, &[V(0, B8), V(5, H8)]), row("xtn", 0x0e61_2800, &[V(0, H4), V(5, S4)]), row("xtn", 0x0ea1_2800, &[V(0, S2), V(5, D2)])];

        // Integers in lanes (C7.2).
        ADD_V: 4 = v3("add", 0x4e20_8400);
        SUB_V: 4 = v3("sub", 0x6e20_8400);
        MUL_V: 3 = v3_small("mul", 0x4e20_9c00);
        NEG_V: 4 = v2("neg", 0x6e20_b800);
        SMAX: 3 = v3_small("smax", 0x4e20_6400);
        UMAX: 3 = v3_small("umax", 0x6e20_6400);
        UMIN: 3 = v3_small("umin", 0x6e20_6c00);
        CMEQ: 4 = v3("cmeq", 0x6e20_8c00);
        CMGT: 4 = v3("cmgt", 0x4e20_3400);
        CMHI: 4 = v3("cmhi", 0x6e20_3400);
        CMEQ_0: 4 = with_zero("cmeq", 0x4e20_9800);
        CMLT_0: 4 = with_zero("cmlt", 0x4e20_a800);
        SSHL: 4 = v3("sshl", 0x4e20_4400);
        USHL: 4 = v3("ushl", 0x6e20_4400);
        SHL: 4 = shift_left("shl", 0x4f00_5400);
        SSHR: 4 = shift_right("sshr", 0x4f00_0400);
        USHR: 4 = shift_right("ushr", 0x6f00_0400);
        AND_V = row("and", 0x4e20_1c00, V3[0]);
        BIC_V = row("bic", 0x4e60_1c00, V3[0]);
        ORR_V = row("orr", 0x4ea0_1c00, V3[0]);
        EOR_V = row("eor", 0x6e20_1c00, V3[0]);
        BSL = row("bsl", 0x6e60_1c00, V3[0]);
        NOT = row("not", 0x6e20_5800, V2[0]);

        // Floats in lanes.
        FADD: 2 = f3("fadd", 0x4e20_d400);
        FSUB: 2 = f3("fsub", 0x4ea0_d400);
        FMUL: 2 = f3("fmul", 0x6e20_dc00);
        FDIV: 2 = f3("fdiv", 0x6e20_fc00);
        FMLA: 2 = f3("fmla", 0x4e20_cc00);
        FCMEQ: 2 = f3("fcmeq", 0x4e20_e400);
        FCMGT: 2 = f3("fcmgt", 0x6ea0_e400);
        FNEG: 2 = f2("fneg", 0x6ea0_f800);
        FSQRT: 2 = f2("fsqrt", 0x6ea1_f800);
        FRINTZ: 2 = f2("frintz", 0x4ea1_9800);
        FCVTZS: 2 = f2("fcvtzs", 0x4ea1_b800);
        FCVTZU: 2 = f2("fcvtzu", 0x6ea1_b800);
        SCVTF: 2 = f2("scvtf", 0x4e21_d800);
        UCVTF: 2 = f2("ucvtf", 0x6e21_d800);
        FCVTL: 2 = [row("fcvtl", 0x0e21_7800, &[V(0, S4), V(5, H4)]), row("fcvtl", 0x0e61_7800, &[V(0, D2), V(5, S2)])];
        FCVTN: 2 = [row("fcvtn", 0x0e21_6800, &[V(0, H4), V(5, S4)]), row("fcvtn", 0x0e61_6800, &[V(0, S2), V(5, D2)])];
        FCVTXN = row("fcvtxn", 0x2e61_6800, &[V(0, S2), V(5, D2)]);
    }
}
pub use table::*;

//! Dual instructions (gfx11 and gfx12, wave32): two vector operations in 64 bits.
//!
//! Both halves read before either writes. Limits: one destination even, the other odd; first sources in different banks
//! (register number modulo 4), second sources too; one literal, shared.

use super::chip::{Chip, Target, Wave};
use super::encode::{Builder, EncodeError, Words, dual_row};
use super::format::{Bits, Field, Format, layout};
use super::inst::Inst;
use super::reg::{File, Operand};
use super::row::{Op, Row};
use super::table::op;
use smallvec::SmallVec;

/// Where the second half's fields lie.
pub(super) const OP_Y: Bits = Bits(17, 5);
pub(super) const SRC0_Y: Bits = Bits(32, 9);
pub(super) const VSRC1_Y: Bits = Bits(41, 8);
pub(super) const VDST_Y: Bits = Bits(49, 7);

/// VCC as the mask of v_dual_cndmask_b32: counted apart from VCC as a source, as LLVM does.
const IMPLICIT_VCC: u16 = 0x1000 | 106;

/// One half, encoded as if it were the first.
struct Half {
    bits: u128,
    literal: Option<u32>,
    scalars: SmallVec<[u16; 4]>,
}

fn half(target: Target, row: &'static Row, op: Op, operands: &[Operand]) -> Result<Half, EncodeError> {
    let name = op.name();
    if operands.len() != row.slots.len() {
        return Err(EncodeError::Count { op: name, wants: row.slots.len(), given: operands.len() });
    }
    let Some(layout) = layout(target.chip, row.format) else {
        return Err(EncodeError::NotOnChip { op: name, chip: target.chip.name() });
    };
    let inst = Inst { operands: operands.iter().copied().collect(), ..Inst::new(op, []) };
    let scalars = SmallVec::new();
    let mut b = Builder { target, name, layout, bits: 0, literal: None, inst: &inst, row, scalars };
    for (index, slot) in row.slots.iter().enumerate() {
        b.operand(index, slot, operands[index])?;
    }
    if name == "v_dual_cndmask_b32" {
        b.scalars.push(IMPLICIT_VCC);
    }
    Ok(Half { bits: b.bits, literal: b.literal, scalars: b.scalars })
}

/// Number of the vector register that an operand is.
fn vector(operand: Option<&Operand>) -> Option<u16> {
    match operand {
        Some(Operand::Reg(r)) if r.file == File::Vgpr => Some(r.first),
        _ => None,
    }
}

/// The vector register in a field of a half's operands.
fn register(row: &Row, operands: &[Operand], field: Field) -> Option<u16> {
    let at = row.slots.iter().position(|s| s.field == field)?;
    vector(operands.get(at))
}

/// The vector registers of a half that the bank rules concern: destination, first, second and third source.
fn banks(row: &Row, operands: &[Operand]) -> [Option<u16>; 4] {
    let of = |field| register(row, operands, field);
    let (dst, src0, vsrc1) = (of(Field::Vdst), of(Field::Src0), of(Field::Vsrc1));
    let name = row.op.name();
    match () {
        () if name.starts_with("v_dual_fmamk") => [dst, src0, None, vsrc1],
        () if name.starts_with("v_dual_fmac") || name.starts_with("v_dual_dot2acc") => [dst, src0, vsrc1, dst],
        () => [dst, src0, vsrc1, None],
    }
}

fn check(chip: Chip, x: (&Row, &[Operand]), y: (&Row, &[Operand])) -> Result<(), &'static str> {
    // gfx12 takes the sources of two moves from one bank.
    let moves = chip == Chip::Gfx1201 && [x.0, y.0].iter().all(|r| r.op == op::V_DUAL_MOV_B32);
    let (x, y) = (banks(x.0, x.1), banks(y.0, y.1));
    let clash = |i: usize, count: u16| matches!((x[i], y[i]), (Some(a), Some(b)) if a % count == b % count);
    if clash(0, 2) {
        return Err("one destination must be even and the other odd");
    }
    if !moves && clash(1, 4) || clash(2, 4) || clash(3, 2) {
        return Err("sources of the halves lie in one bank");
    }
    Ok(())
}

pub(super) fn encode(target: Target, inst: &Inst, second: Op) -> Result<Words, EncodeError> {
    let name = inst.op.name();
    let rule = |why| EncodeError::Rule { op: name, why };
    if target.wave != Wave::W32 {
        return Err(rule("dual instructions are for wave32"));
    }
    let rows = dual_row(target.chip, inst.op, Format::VopdX).zip(dual_row(target.chip, second, Format::VopdY));
    let Some((x, y)) = rows else {
        return Err(EncodeError::NoSuchEncoding { op: name, chip: target.chip.name() });
    };
    let split = x.slots.len().min(inst.operands.len());
    let (first, rest) = inst.operands.split_at(split);
    check(target.chip, (x, first), (y, rest)).map_err(rule)?;
    let (hx, hy) = (half(target, x, inst.op, first)?, half(target, y, second, rest)?);
    let literal = match (hx.literal, hy.literal) {
        (Some(a), Some(b)) if a != b => return Err(rule("a second literal")),
        (a, b) => a.or(b),
    };
    let mut scalars = hx.scalars.clone();
    scalars.extend(hy.scalars.iter().copied().filter(|c| !hx.scalars.contains(c)));
    scalars.dedup();
    if scalars.len() + usize::from(literal.is_some()) > 2 {
        return Err(rule("more scalar values than the constant bus carries"));
    }
    let code = |row: &Row| u128::from(row.code(target.chip).unwrap_or_default());
    let moved = |from: Bits, shift: u8, to: Bits| (hy.bits >> from.0 & ((1 << from.1) - 1)) >> shift << to.0;
    let bits = 0xc800_0000
        | hx.bits
        | code(x) << 22
        | code(y) << OP_Y.0
        | moved(Bits(0, 9), 0, SRC0_Y)
        | moved(Bits(9, 8), 0, VSRC1_Y)
        | moved(Bits(56, 8), 1, VDST_Y);
    let mut words = Words::new();
    words.push(u32::try_from(bits & 0xffff_ffff).unwrap_or_default());
    words.push(u32::try_from(bits >> 32).unwrap_or_default());
    words.extend(literal);
    Ok(words)
}

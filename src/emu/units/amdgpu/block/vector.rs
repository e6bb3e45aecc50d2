//! Vector integers, moves, carries and compares as nodes, each as the row of the same name in `sem_int` and as `cross`
//! and `sem_compare` compute it.

use super::super::cross::Cross;
use super::super::inst::{Inst, Operand};
use super::super::lanes::{Ty, VSem};
use super::super::sem::Sem;
use super::super::sem_compare::{Compare, EQ, GT, LT, UN, What};
use super::float;
use super::state::{State, complement, joined, parted, signed, unsigned};
use crate::translate::{LANES, splat};
use doorbell_uop::{Op, Scalar, UOp};

/// Adds an instruction without lane shuffles, parts of dwords and output modifiers; `None` where it has no nodes.
pub(super) fn add(s: &mut State, i: &Inst) -> Option<()> {
    if i.dpp.is_some() || i.sdwa.is_some() || i.omod != 0 || i.clamp {
        return None;
    }
    if let Some(second) = &i.second {
        return dual(s, i, second);
    }
    s.operations += 1;
    match i.entry.sem {
        Sem::Vector(sem, _) => {
            for half in 0..s.shape.halves {
                let value = arithmetic(s, i, sem, half)?;
                s.write(i.dst, 0, half, value)?;
            }
            Some(())
        }
        Sem::Compare(c) => compare(s, i, c),
        Sem::Cross(Cross::Select) => {
            for half in 0..s.shape.halves {
                let value = select(s, i, half)?;
                s.write(i.dst, 0, half, value)?;
            }
            Some(())
        }
        Sem::Cross(Cross::AccMove) => {
            for half in 0..s.shape.halves {
                let value = s.lanes(i.src[0], half)?;
                s.write(i.dst, 0, half, value)?;
            }
            Some(())
        }
        Sem::Cross(Cross::Carry { subtract, reverse, carry_in }) => carry(s, i, (subtract, reverse, carry_in)),
        Sem::Cross(Cross::MadWide { signed }) => mad_wide(s, i, signed),
        Sem::Packed(super::super::packed::Packed::Singles(single)) => {
            s.operations += 1;
            float::singles(s, i, single)
        }
        _ => None,
    }
}

/// Both halves of a dual instruction read before either writes.
fn dual(s: &mut State, x: &Inst, y: &Inst) -> Option<()> {
    s.operations += 2;
    let mut values = Vec::new();
    for i in [x, y] {
        values.push(match i.entry.sem {
            Sem::Vector(sem, _) => arithmetic(s, i, sem, 0)?,
            Sem::Cross(_) => select(s, i, 0)?,
            _ => return None,
        });
    }
    for (i, value) in [x, y].into_iter().zip(values) {
        s.write(i.dst, 0, 0, value)?;
    }
    Some(())
}

fn select(s: &State, i: &Inst, half: usize) -> Option<UOp> {
    let (a, b) = (s.source(i, 0, half)?, s.source(i, 1, half)?);
    Some(s.mask(i.src[2], half)?.select(&b, &a))
}

fn arithmetic(s: &mut State, i: &Inst, sem: &VSem, half: usize) -> Option<UOp> {
    let all = [sem.dst, sem.src[0], sem.src[1], sem.src[2]];
    if all.iter().any(|ty| ty.is_16() || ty.is_64()) {
        return None;
    }
    let v = [s.source(i, 0, half)?, s.source(i, 1, half)?, s.source(i, 2, half)?];
    if all.iter().any(|ty| ty.is_float()) || sem.directed.is_some() {
        s.floats = true;
        return float::arithmetic(sem.name, &v);
    }
    integer(sem.name, &v, i)
}

fn shifted(v: &UOp, op: Op, by: &UOp) -> UOp {
    v.binary(op, &by.and(&splat(31)))
}

fn smaller(a: &UOp, b: &UOp, sign: bool) -> UOp {
    if sign { signed(a).lt(&signed(b)) } else { a.lt(b) }
}

fn least(a: &UOp, b: &UOp, sign: bool) -> UOp {
    smaller(a, b, sign).select(a, b)
}

fn most(a: &UOp, b: &UOp, sign: bool) -> UOp {
    smaller(a, b, sign).select(b, a)
}

/// The low 24 bits.
fn low24(v: &UOp, sign: bool) -> UOp {
    match sign {
        false => v.and(&splat(0xff_ffff)),
        true => shifted_down(&v.binary(Op::Shl, &splat(8)), 8),
    }
}

/// An arithmetic shift by a known distance.
fn shifted_down(v: &UOp, by: u32) -> UOp {
    unsigned(&signed(v).binary(Op::Shr, &signed(&splat(by))))
}

/// The product's upper half.
fn high_product(a: &UOp, b: &UOp, sign: bool) -> UOp {
    let [_, high] = parted(&widened(a, sign).binary(Op::Mul, &widened(b, sign)));
    high
}

/// In 64 bits, extended with its sign or with zeros.
fn widened(v: &UOp, sign: bool) -> UOp {
    let wide = |scalar| v.dtype().with_scalar(scalar);
    match sign {
        true => signed(v).cast(wide(Scalar::I64)).bitcast(wide(Scalar::U64)),
        false => v.cast(wide(Scalar::U64)),
    }
}

fn low_mask(width: &UOp) -> UOp {
    let one = shifted(&splat(1), Op::Shl, width);
    one.binary(Op::Sub, &splat(1))
}

fn integer(name: &str, [a, b, c]: &[UOp; 3], i: &Inst) -> Option<UOp> {
    let plus = |a: &UOp, b: &UOp| a.binary(Op::Add, b);
    let times = |a: &UOp, b: &UOp| a.binary(Op::Mul, b);
    let xor = |a: &UOp, b: &UOp| a.binary(Op::Xor, b);
    Some(match name {
        "v_mov_b32" => a.clone(),
        "v_not_b32" => complement(a),
        "v_and_b32" => a.and(b),
        "v_or_b32" => a.or(b),
        "v_xor_b32" => xor(a, b),
        "v_xnor_b32" => complement(&xor(a, b)),
        "v_lshlrev_b32" => shifted(b, Op::Shl, a),
        "v_lshrrev_b32" => shifted(b, Op::Shr, a),
        "v_ashrrev_i32" => unsigned(&signed(b).binary(Op::Shr, &signed(&a.and(&splat(31))))),
        "v_add_nc_u32" | "v_add_nc_i32" => plus(a, b),
        "v_sub_nc_u32" | "v_sub_nc_i32" => a.binary(Op::Sub, b),
        "v_subrev_nc_u32" => b.binary(Op::Sub, a),
        "v_min_i32" => least(a, b, true),
        "v_max_i32" => most(a, b, true),
        "v_min_u32" => least(a, b, false),
        "v_max_u32" => most(a, b, false),
        "v_min3_i32" => least(&least(a, b, true), c, true),
        "v_max3_i32" => most(&most(a, b, true), c, true),
        "v_min3_u32" => least(&least(a, b, false), c, false),
        "v_max3_u32" => most(&most(a, b, false), c, false),
        "v_mul_lo_u32" => times(a, b),
        "v_mul_hi_u32" => high_product(a, b, false),
        "v_mul_hi_i32" => high_product(a, b, true),
        "v_mul_i32_i24" => times(&low24(a, true), &low24(b, true)),
        "v_mul_u32_u24" => times(&low24(a, false), &low24(b, false)),
        "v_mad_i32_i24" => plus(&times(&low24(a, true), &low24(b, true)), c),
        "v_mad_u32_u24" => plus(&times(&low24(a, false), &low24(b, false)), c),
        "v_bfe_u32" => shifted(a, Op::Shr, b).and(&low_mask(c)),
        "v_bfe_i32" => {
            let (Operand::K(by), Operand::K(width)) = (i.src[1], i.src[2]) else { return None };
            let (by, width) = (by as u32 & 31, width as u32 & 31);
            let field = shifted_down(a, by).and(&splat((1 << width) - 1));
            match width {
                0 => splat(0),
                _ => shifted_down(&field.binary(Op::Shl, &splat(32 - width)), 32 - width),
            }
        }
        "v_bfi_b32" => a.and(b).or(&complement(a).and(c)),
        "v_alignbit_b32" => match i.src[2] {
            Operand::K(by) if by as u32 & 31 == 0 => b.clone(),
            Operand::K(by) => {
                let by = by as u32 & 31;
                b.binary(Op::Shr, &splat(by)).or(&a.binary(Op::Shl, &splat(32 - by)))
            }
            _ => return None,
        },
        "v_lshl_add_u32" => plus(&shifted(a, Op::Shl, b), c),
        "v_add_lshl_u32" => shifted(&plus(a, b), Op::Shl, c),
        "v_lshl_or_b32" => shifted(a, Op::Shl, b).or(c),
        "v_add3_u32" => plus(&plus(a, b), c),
        "v_and_or_b32" => a.and(b).or(c),
        "v_or3_b32" => a.or(b).or(c),
        "v_xor3_b32" => xor(&xor(a, b), c),
        "v_xad_u32" => plus(&xor(a, b), c),
        _ => return None,
    })
}

fn compare(s: &mut State, i: &Inst, c: Compare) -> Option<()> {
    let What::Relation(accepts) = c.what else { return None };
    if c.ty.is_16() || c.ty.is_64() {
        return None;
    }
    s.floats |= c.ty.is_float();
    let mut masks = Vec::new();
    for half in 0..s.shape.halves {
        let (a, b) = (s.source(i, 0, half)?, s.source(i, 1, half)?);
        let (x, y) = match c.ty {
            Ty::F32 => (float::float(&a), float::float(&b)),
            Ty::I32 => (signed(&a), signed(&b)),
            _ => (a, b),
        };
        masks.push(accepted(accepts, c.ty.is_float(), &x, &y)?);
    }
    let exec = Operand::S(super::super::inst::EXEC);
    // EXEC last: the mask that a scalar gets has the lanes of the old one.
    for to in [i.sdst, if c.exec { exec } else { Operand::None }] {
        for (half, mask) in masks.iter().enumerate() {
            s.set_mask(to, half, mask.clone())?;
        }
    }
    Some(())
}

/// Where one of the accepted outcomes is there.
fn accepted(accepts: u8, float: bool, x: &UOp, y: &UOp) -> Option<UOp> {
    let all = LT | EQ | GT;
    if float && accepts & UN != 0 {
        let rest = !accepts & all;
        return if rest == 0 { None } else { Some(accepted(rest, float, x, y)?.not()) };
    }
    match accepts & all {
        0 => None,
        m if m == all && !float => None,
        m => {
            let each = [(LT, x.lt(y)), (EQ, x.equal(y)), (GT, y.lt(x))];
            each.into_iter().filter(|(bit, _)| m & bit != 0).map(|(_, u)| u).reduce(|a, b| a.or(&b))
        }
    }
}

fn one_where(mask: &UOp) -> UOp {
    mask.select(&splat(1), &splat(0))
}

fn carry(s: &mut State, i: &Inst, (subtract, reverse, carry_in): (bool, bool, bool)) -> Option<()> {
    let mut results = Vec::new();
    for half in 0..s.shape.halves {
        let (a, b) = (s.source(i, 0, half)?, s.source(i, 1, half)?);
        let (a, b) = if reverse { (b, a) } else { (a, b) };
        let first = a.binary(if subtract { Op::Sub } else { Op::Add }, &b);
        let out = if subtract { a.lt(&b) } else { first.lt(&a) };
        results.push(match carry_in {
            false => (first, out),
            true => {
                let one = one_where(&s.mask(i.src[2], half)?);
                let second = first.binary(if subtract { Op::Sub } else { Op::Add }, &one);
                let more = if subtract { first.lt(&one) } else { second.lt(&first) };
                (second, out.or(&more))
            }
        });
    }
    for (half, (value, _)) in results.iter().enumerate() {
        s.write(i.dst, 0, half, value.clone())?;
    }
    for (half, (_, out)) in results.into_iter().enumerate() {
        s.set_mask(i.sdst, half, out)?;
    }
    Some(())
}

/// A word of a 64-bit operand in each lane.
fn word_of(s: &State, o: Operand, after: u8, half: usize) -> Option<UOp> {
    match o {
        Operand::V(_) => s.register(o, after.into(), half),
        _ => Some(s.scalar_source(o, after)?.splat(LANES)),
    }
}

fn mad_wide(s: &mut State, i: &Inst, sign: bool) -> Option<()> {
    if i.abs | i.neg != 0 {
        return None;
    }
    let mut results = Vec::new();
    for half in 0..s.shape.halves {
        let (a, b) = (s.lanes(i.src[0], half)?, s.lanes(i.src[1], half)?);
        let c = [word_of(s, i.src[2], 0, half)?, word_of(s, i.src[2], 1, half)?];
        let (product, c) = (widened(&a, sign).binary(Op::Mul, &widened(&b, sign)), joined(&c));
        let v = product.binary(Op::Add, &c);
        let over = match sign {
            false => v.lt(&c),
            true => {
                let [_, over] = parted(&product.binary(Op::Xor, &v).and(&c.binary(Op::Xor, &v)));
                signed(&over).lt(&signed(&splat(0)))
            }
        };
        results.push((parted(&v), over));
    }
    for (half, ([low, high], _)) in results.iter().enumerate() {
        s.write(i.dst, 0, half, low.clone())?;
        s.write(i.dst, 1, half, high.clone())?;
    }
    for (half, (_, over)) in results.into_iter().enumerate() {
        s.set_mask(i.sdst, half, over)?;
    }
    Some(())
}

//! Scalar arithmetic as nodes, each as the row of the same name in `sem_scalar` computes it.

use super::super::inst::{EXEC, Inst, Operand};
use super::super::rows::Format;
use super::super::sem::canonical;
use super::state::{State, complement, joined, parted, signed, unsigned, word};
use doorbell_uop::{DType, Op, UOp};

/// Adds an instruction; `None` where it has no nodes.
pub(super) fn add(s: &mut State, i: &Inst) -> Option<()> {
    let name = canonical(i.entry.name);
    if let Some(base) = name.strip_suffix("_b64") {
        return bits64(s, i, base);
    }
    let sopk = i.format == Format::Sopk;
    let immediate = || word(i.imm as u32);
    if let Some(relation) = name.strip_prefix("s_cmpk_") {
        let d = s.scalar_source(i.dst, 0)?;
        let imm = if relation.ends_with("u32") { word(i.imm as u32 & 0xffff) } else { immediate() };
        return compare(s, relation, &d, &imm);
    }
    let a = if sopk { s.scalar_source(i.dst, 0)? } else { s.scalar_source(i.src[0], 0)? };
    let b = if sopk { immediate() } else { s.scalar_source(i.src[1], 0)? };
    if let Some(relation) = name.strip_prefix("s_cmp_") {
        return compare(s, relation, &a, &b);
    }
    let (value, scc) = match name.as_str() {
        "s_mov_b32" => (a, None),
        "s_movk_i32" => (b, None),
        _ => match bits32(&name, &a, &b) {
            Some(v) => {
                let scc = v.ne(&word(0));
                (v, Some(scc))
            }
            None => arithmetic(s, &name, &a, &b)?,
        },
    };
    set(s, i.dst, value)?;
    if let Some(scc) = scc {
        s.set_scc(&scc);
    }
    Some(())
}

fn set(s: &mut State, to: Operand, value: UOp) -> Option<()> {
    match to {
        Operand::S(n) => s.set_scalar(n, value),
        Operand::Null | Operand::None => Some(()),
        _ => None,
    }
}

/// Instructions whose SCC says whether the result is not zero.
fn bits32(name: &str, a: &UOp, b: &UOp) -> Option<UOp> {
    let by = || b.and(&word(31));
    Some(match name {
        "s_and_b32" => a.and(b),
        "s_or_b32" => a.or(b),
        "s_xor_b32" => a.binary(Op::Xor, b),
        "s_and_not1_b32" => a.and(&complement(b)),
        "s_or_not1_b32" => a.or(&complement(b)),
        "s_nand_b32" => complement(&a.and(b)),
        "s_nor_b32" => complement(&a.or(b)),
        "s_xnor_b32" => complement(&a.binary(Op::Xor, b)),
        "s_not_b32" => complement(a),
        "s_lshl_b32" => a.binary(Op::Shl, &by()),
        "s_lshr_b32" => a.binary(Op::Shr, &by()),
        "s_ashr_i32" => unsigned(&signed(a).binary(Op::Shr, &signed(&by()))),
        "s_bfe_u32" => {
            let field = u32::try_from(b.as_int()?).ok()?;
            let width = field >> 16 & 0x7f;
            let shifted = a.binary(Op::Shr, &word(field & 31));
            if width >= 32 { shifted } else { shifted.and(&word((1 << width) - 1)) }
        }
        _ => return None,
    })
}

fn less_signed(a: &UOp, b: &UOp) -> UOp {
    signed(a).lt(&signed(b))
}

fn one_where(b: &UOp) -> UOp {
    b.select(&word(1), &word(0))
}

/// Value and SCC, if it is written.
fn arithmetic(s: &State, name: &str, a: &UOp, b: &UOp) -> Option<(UOp, Option<UOp>)> {
    let is_negative = |v: UOp| less_signed(&v, &word(0));
    let xor = |a: &UOp, b: &UOp| a.binary(Op::Xor, b);
    Some(match name {
        "s_add_u32" => {
            let v = a.binary(Op::Add, b);
            let carry = v.lt(a);
            (v, Some(carry))
        }
        "s_addc_u32" => {
            let one = one_where(&s.scc());
            let v = a.binary(Op::Add, b);
            let sum = v.binary(Op::Add, &one);
            let carry = v.lt(a).or(&sum.lt(&v));
            (sum, Some(carry))
        }
        "s_sub_u32" => (a.binary(Op::Sub, b), Some(a.lt(b))),
        "s_subb_u32" => {
            let one = one_where(&s.scc());
            let v = a.binary(Op::Sub, b);
            let borrow = a.lt(b).or(&v.lt(&one));
            (v.binary(Op::Sub, &one), Some(borrow))
        }
        "s_add_i32" | "s_addk_i32" => {
            let v = a.binary(Op::Add, b);
            let over = is_negative(xor(a, &v).and(&xor(b, &v)));
            (v, Some(over))
        }
        "s_sub_i32" => {
            let v = a.binary(Op::Sub, b);
            let over = is_negative(xor(a, b).and(&xor(a, &v)));
            (v, Some(over))
        }
        "s_mul_i32" | "s_mulk_i32" => (a.binary(Op::Mul, b), None),
        "s_mul_hi_u32" => {
            let wide = |v: &UOp| v.cast(DType::U64);
            let [_, high] = parted(&wide(a).binary(Op::Mul, &wide(b)));
            (high, None)
        }
        "s_min_i32" => (less_signed(a, b).select(a, b), Some(less_signed(a, b))),
        "s_max_i32" => (less_signed(b, a).select(a, b), Some(less_signed(b, a))),
        "s_min_u32" => (a.lt(b).select(a, b), Some(a.lt(b))),
        "s_max_u32" => (b.lt(a).select(a, b), Some(b.lt(a))),
        "s_cselect_b32" => (s.scc().select(a, b), None),
        "s_sext_i32_i16" => (extended(a, 16), None),
        "s_sext_i32_i8" => (extended(a, 24), None),
        "s_pack_ll_b32_b16" => (a.and(&word(0xffff)).or(&b.binary(Op::Shl, &word(16))), None),
        "s_lshl1_add_u32" | "s_lshl2_add_u32" | "s_lshl3_add_u32" | "s_lshl4_add_u32" => {
            let by = i64::from(name.as_bytes()[6] - b'0');
            let wide = a.cast(DType::U64).binary(Op::Shl, &UOp::constant(DType::U64, by));
            let [low, high] = parted(&wide.binary(Op::Add, &b.cast(DType::U64)));
            (low, Some(high.ne(&word(0))))
        }
        _ => return None,
    })
}

/// The low bits with their sign, of which so many are above them.
fn extended(v: &UOp, above: u32) -> UOp {
    let up = signed(&v.binary(Op::Shl, &word(above)));
    unsigned(&up.binary(Op::Shr, &signed(&word(above))))
}

fn compare(s: &mut State, relation: &str, a: &UOp, b: &UOp) -> Option<()> {
    let (op, ty) = relation.split_once('_')?;
    let (x, y) = match ty {
        "i32" => (signed(a), signed(b)),
        "u32" => (a.clone(), b.clone()),
        _ => return None,
    };
    let held = match op {
        "eq" => a.equal(b),
        "lg" => a.ne(b),
        "lt" => x.lt(&y),
        "gt" => y.lt(&x),
        "le" => y.lt(&x).not(),
        "ge" => x.lt(&y).not(),
        _ => return None,
    };
    s.set_scc(&held);
    Some(())
}

/// Instructions on pairs.
fn bits64(s: &mut State, i: &Inst, base: &str) -> Option<()> {
    let pair = |s: &State, slot: usize| Some([s.scalar_source(i.src[slot], 0)?, s.scalar_source(i.src[slot], 1)?]);
    let each = |a: &[UOp; 2], b: &[UOp; 2], f: fn(&UOp, &UOp) -> UOp| [f(&a[0], &b[0]), f(&a[1], &b[1])];
    let a = pair(s, 0)?;
    let (value, flags) = match base {
        "s_mov" => (a, false),
        "s_not" => (a.map(|v| complement(&v)), true),
        "s_cselect" => {
            let (b, scc) = (pair(s, 1)?, s.scc());
            ([scc.select(&a[0], &b[0]), scc.select(&a[1], &b[1])], false)
        }
        "s_and" => (each(&a, &pair(s, 1)?, |x, y| x.and(y)), true),
        "s_or" => (each(&a, &pair(s, 1)?, |x, y| x.or(y)), true),
        "s_xor" => (each(&a, &pair(s, 1)?, |x, y| x.binary(Op::Xor, y)), true),
        "s_and_not1" => (each(&a, &pair(s, 1)?, |x, y| x.and(&complement(y))), true),
        "s_or_not1" => (each(&a, &pair(s, 1)?, |x, y| x.or(&complement(y))), true),
        "s_lshl" | "s_lshr" => {
            let by = s.scalar_source(i.src[1], 0)?.and(&word(63)).cast(DType::U64);
            let op = if base == "s_lshl" { Op::Shl } else { Op::Shr };
            (parted(&joined(&a).binary(op, &by)), true)
        }
        _ => return None,
    };
    let [low, high] = value;
    if flags {
        s.set_scc(&low.or(&high).ne(&word(0)));
    }
    let Operand::S(n) = i.dst else { return None };
    s.set_scalar(n, low)?;
    s.set_scalar(n + 1, high)
}

/// `s_<op>_saveexec` and `s_<op>_wrexec`: as `control` does them.
pub(super) fn on_exec(s: &mut State, i: &Inst, write_back: bool) -> Option<()> {
    let name = canonical(i.entry.name);
    let words = s.shape.halves as u8;
    if i.entry.widths[0] != words {
        return None;
    }
    let op = name.strip_prefix("s_")?.split_once(if write_back { "_wrexec" } else { "_saveexec" })?.0.to_owned();
    let (mut masks, mut olds) = (Vec::new(), Vec::new());
    for at in 0..words {
        let (x, e) = (s.scalar_source(i.src[0], at)?, s.scalar(EXEC + at)?);
        masks.push(match op.as_str() {
            "and" => x.and(&e),
            "or" => x.or(&e),
            "xor" => x.binary(Op::Xor, &e),
            "and_not1" => x.and(&complement(&e)),
            "and_not0" => complement(&x).and(&e),
            _ => return None,
        });
        olds.push(e);
    }
    let some = masks.iter().cloned().reduce(|a, b| a.or(&b))?;
    for (at, mask) in (0..).zip(&masks) {
        s.set_scalar(EXEC + at, mask.clone())?;
    }
    for (at, value) in (0..).zip(if write_back { masks } else { olds }) {
        match i.dst {
            Operand::S(n) => s.set_scalar(n + at, value)?,
            _ => return None,
        }
    }
    s.set_scc(&some.ne(&word(0)));
    Some(())
}

//! Constants, identities that hold for every type, casts, and the float identities that are exact.
//!
//! Float rules here keep NaN, infinities and the sign of zero: x*1, x/1, x-0, x+(-0), x*-1 = -x, -(-x), x + -y = x-y,
//! division by a power of two whose reciprocal is normal. x+0 is not one of them (-0+0 is +0), nor x*0 (NaN, infinity,
//! -0), x/x, x-x.

use crate::{Arg, ConstVal, DType, Op, Scalar, UOp, eval_alu, from_bits, to_bits};
use smallvec::SmallVec;

/// Elementwise ops on constants.
pub(crate) fn constants(u: &UOp) -> Option<UOp> {
    let mut v: SmallVec<[ConstVal; 3]> = SmallVec::new();
    for s in u.src() {
        v.push(s.as_const()?);
    }
    let t = match u.op() {
        op if op.is_comparison() => u.src()[0].dtype().scalar,
        _ => u.dtype().scalar,
    };
    match u.op() {
        Op::Cast => Some(UOp::constant(u.dtype(), v[0])),
        Op::Bitcast => {
            let from = u.src()[0].dtype().scalar;
            (from.size_bytes() == t.size_bytes() && t.size_bytes() > 0)
                .then(|| UOp::constant(u.dtype(), from_bits(to_bits(v[0], from), t)))
        }
        op => Some(UOp::constant(u.dtype(), eval_alu(op, t, &v)?)),
    }
}

/// Puts a constant second. Not in a maximum of floats, where the first of two zeros is the result.
pub(crate) fn constant_last(u: &UOp) -> Option<UOp> {
    let [a, b] = u.src() else { return None };
    (!(u.op() == Op::Max && u.dtype().is_float()) && a.op() == Op::Const && b.op() != Op::Const)
        .then(|| u.with_src([b.clone(), a.clone()]))
}

/// Operands of commutative index arithmetic in structural order.
pub(crate) fn operand_order(u: &UOp) -> Option<UOp> {
    let [a, b] = u.src() else { return None };
    (super::sum::is_index(a) && super::order::cmp(a, b) == std::cmp::Ordering::Greater)
        .then(|| u.with_src([b.clone(), a.clone()]))
}

/// An integer or bool whose bounds leave one value.
pub(crate) fn single_value(u: &UOp) -> Option<UOp> {
    let t = u.dtype();
    ((t.is_int() || t.is_bool()) && u.vmin() == u.vmax() && !reads_memory(u))
        .then(|| if t.is_bool() { UOp::constant(t, u.vmin() == 1) } else { UOp::constant(t, ConstVal::Int(u.vmin())) })
}
fn reads_memory(u: &UOp) -> bool {
    !(u.op().is_elementwise() || matches!(u.op(), Op::Var | Op::Bind | Op::Range | Op::Special))
}

/// Max: equal operands, disjoint bounds, two constants.
pub(crate) fn maximum(u: &UOp) -> Option<UOp> {
    let [a, b] = u.src() else { return None };
    if a == b {
        return Some(a.clone());
    }
    if u.dtype().is_float() {
        return None;
    }
    if a.vmin() >= b.vmax() {
        return Some(a.clone());
    }
    if b.vmin() >= a.vmax() {
        return Some(b.clone());
    }
    if a.op() == Op::Max && a.src()[1].op() == Op::Const && b.op() == Op::Const {
        let c = eval_alu(Op::Max, u.dtype().scalar, &[a.src()[1].as_const()?, b.as_const()?])?;
        return Some(a.src()[0].max(&UOp::constant(u.dtype(), c)));
    }
    (a.op() == Op::Max && a.src().contains(b)).then(|| a.clone())
}

/// And, Or, Xor, shifts of integers.
pub(crate) fn bits(u: &UOp) -> Option<UOp> {
    let [a, b] = u.src() else { return None };
    let t = u.dtype();
    if !t.is_int() {
        return None;
    }
    let c = b.as_const().and_then(ConstVal::as_int);
    let ones = if t.scalar.is_unsigned() { t.scalar.int_range().1 } else { -1 };
    let constant = |v: i128| UOp::constant(t, ConstVal::Int(v));
    match (u.op(), c) {
        (Op::And | Op::Or, _) if a == b => Some(a.clone()),
        (Op::Xor, _) if a == b => Some(constant(0)),
        (Op::Or | Op::Xor | Op::Shl | Op::Shr, Some(0)) => Some(a.clone()),
        (Op::And, Some(0)) => Some(constant(0)),
        (Op::And, Some(m)) if m == ones => Some(a.clone()),
        (Op::Or, Some(m)) if m == ones => Some(constant(ones)),
        // x & (2^k - 1) of a value that fits.
        (Op::And, Some(m)) if m > 0 && m & (m + 1) == 0 && a.vmin() >= 0 && a.vmax() <= m => Some(a.clone()),
        // (x op c1) op c2
        (Op::And | Op::Or | Op::Xor, Some(c2)) if a.op() == u.op() => {
            let c1 = a.src()[1].as_const()?.as_int()?;
            let all = match u.op() {
                Op::And => c1 & c2,
                Op::Or => c1 | c2,
                _ => c1 ^ c2,
            };
            Some(a.src()[0].binary(u.op(), &constant(all)))
        }
        (Op::Xor, _) if a.op() == Op::Xor && a.src()[1] == *b => Some(a.src()[0].clone()),
        // (x & mask) >> k where the mask clears only bits that the shift drops.
        (Op::Shr, Some(k)) if a.op() == Op::And && (0..63).contains(&k) => {
            let m = a.src()[1].as_const()?.as_int()?;
            (m | ((1 << k) - 1) == ones).then(|| a.src()[0].binary(Op::Shr, b))
        }
        _ => None,
    }
}

/// Whether every value of `a` is a value of `b`, unchanged.
pub const fn lossless(a: Scalar, b: Scalar) -> bool {
    use Scalar::*;
    if a as u8 == b as u8 {
        return true;
    }
    match (a, b) {
        (Bool, WeakInt | WeakFloat) => true,
        (Bool, _) => !matches!(b, Void),
        (I8, I16 | I32 | I64 | WeakInt | F16 | BF16 | F32 | F64) => true,
        (U8, I16 | I32 | I64 | WeakInt | U16 | U32 | U64 | F16 | BF16 | F32 | F64) => true,
        (I16, I32 | I64 | WeakInt | F32 | F64) => true,
        (U16, I32 | I64 | WeakInt | U32 | U64 | F32 | F64) => true,
        (I32, I64 | WeakInt | F64) => true,
        (U32, I64 | WeakInt | U64 | F64) => true,
        (I64, WeakInt) | (WeakInt, I64) => true,
        (F8E4M3 | F8E5M2 | F8E4M3Fnuz | F8E5M2Fnuz, F16 | BF16 | F32 | F64) => true,
        (F16 | BF16, F32 | F64) => true,
        (F32, F64 | WeakFloat) => true,
        (F64, WeakFloat) | (WeakFloat, F64) => true,
        _ => false,
    }
}

/// Casts and bitcasts of casts and bitcasts.
pub(crate) fn casts(u: &UOp) -> Option<UOp> {
    let x = &u.src()[0];
    let to = u.dtype();
    if x.dtype() == to {
        return Some(x.clone());
    }
    if u.op() == Op::Bitcast {
        return (x.op() == Op::Bitcast && x.src()[0].dtype().lanes == to.lanes).then(|| x.src()[0].bitcast(to));
    }
    if to.scalar == Scalar::Bool {
        return Some(x.ne(&x.const_like(0i64)));
    }
    if x.op() != Op::Cast {
        return None;
    }
    let (y, mid) = (&x.src()[0], x.dtype().scalar);
    // The middle type keeps every value that y can have: by its type, or by its bounds.
    let bounded = y.dtype().is_int() && mid.is_int() && {
        let (lo, hi) = mid.int_range();
        y.vmin() >= lo && y.vmax() <= hi
    };
    // Truncating twice is truncating once, as long as the middle is no narrower than the end.
    let both_wrap = y.dtype().is_int() && mid.is_int() && to.is_int() && width(mid) >= width(to.scalar);
    (lossless(y.dtype().scalar, mid) || bounded || both_wrap).then(|| y.cast(to))
}
const fn width(s: Scalar) -> usize {
    if matches!(s, Scalar::WeakInt) { 8 } else { s.size_bytes() }
}

/// i64 arithmetic whose operands and result fit i32 is done in i32, if the operands were widened from it.
pub(crate) fn narrow_math(u: &UOp) -> Option<UOp> {
    let [a, b] = u.src() else { return None };
    if a.dtype().scalar != Scalar::I64 {
        return None;
    }
    let (lo, hi) = Scalar::I32.int_range();
    let fits = |x: &UOp| x.vmin() >= lo && x.vmax() <= hi;
    let widened = |x: &UOp| x.op() == Op::Cast && x.src()[0].dtype().scalar == Scalar::I32;
    let small = |x: &UOp| widened(x) || x.op() == Op::Const;
    if !(fits(u) && fits(a) && fits(b) && small(a) && small(b) && (widened(a) || widened(b))) {
        return None;
    }
    let t = a.dtype().with_scalar(Scalar::I32);
    let half = |x: &UOp| match x.as_const() {
        Some(c) => UOp::constant(t, c),
        None => x.src()[0].clone(),
    };
    Some(half(a).binary(u.op(), &half(b)).cast(u.dtype()))
}

/// Identities of floats that hold for NaN, infinities and both zeros.
pub(crate) fn float_exact(u: &UOp) -> Option<UOp> {
    if !u.dtype().is_float() {
        return None;
    }
    let a = u.src().first()?;
    let b = u.src().get(1);
    let c = b.and_then(|b| match b.as_const() {
        Some(ConstVal::Float(f)) => Some(f),
        _ => None,
    });
    let negative_zero = |f: f64| f == 0.0 && f.is_sign_negative();
    match (u.op(), c) {
        (Op::Neg, _) if a.op() == Op::Neg => Some(a.src()[0].clone()),
        (Op::Mul | Op::FDiv, Some(1.0)) => Some(a.clone()),
        (Op::Mul | Op::FDiv, Some(-1.0)) => Some(-a),
        (Op::Add, Some(f)) if negative_zero(f) => Some(a.clone()),
        (Op::Sub, Some(f)) if f == 0.0 && !negative_zero(f) => Some(a.clone()),
        (Op::Add, _) if b?.op() == Op::Neg => Some(a - &b?.src()[0]),
        (Op::Sub, _) if b?.op() == Op::Neg => Some(a + &b?.src()[0]),
        (Op::Add, _) if a.op() == Op::Neg => Some(b? - &a.src()[0]),
        (Op::FDiv, Some(f)) => reciprocal_is_exact(f, u.dtype()).then(|| a.binary(Op::Mul, &a.const_like(1.0 / f))),
        (Op::FDiv, None) if a.as_const() == Some(ConstVal::Float(1.0)) => Some(UOp::alu(Op::Recip, [b?.clone()])),
        (Op::Pow, Some(0.0)) => Some(UOp::constant(u.dtype(), 1.0)),
        (Op::Pow, Some(1.0)) => Some(a.clone()),
        (Op::Pow, Some(2.0)) => Some(a * a),
        (Op::Pow, Some(-1.0)) => Some(UOp::alu(Op::Recip, [a.clone()])),
        (Op::Trunc, _) if a.op() == Op::Trunc => Some(a.clone()),
        _ => None,
    }
}

/// A power of two whose reciprocal is a normal number of the type.
fn reciprocal_is_exact(f: f64, t: DType) -> bool {
    let smallest = match t.scalar {
        Scalar::F32 | Scalar::BF16 => f32::MIN_POSITIVE as f64,
        Scalar::F64 => f64::MIN_POSITIVE,
        Scalar::F16 => 6.103515625e-5,
        _ => return false,
    };
    f.is_normal() && f.to_bits() & ((1 << 52) - 1) == 0 && (1.0 / f).abs() >= smallest && f.abs() >= smallest
}

/// `Trunc` of an integer.
pub(crate) fn trunc_of_int(u: &UOp) -> Option<UOp> {
    (u.dtype().is_int() || u.dtype().is_bool()).then(|| u.src()[0].clone())
}
/// -(-x) of machine integers, -(x - y).
pub(crate) fn machine_neg(u: &UOp) -> Option<UOp> {
    let x = &u.src()[0];
    if !u.dtype().is_int() {
        return None;
    }
    match x.op() {
        Op::Neg => Some(x.src()[0].clone()),
        Op::Sub => Some(&x.src()[1] - &x.src()[0]),
        _ => None,
    }
}

/// The 64-bit value made of two 32-bit halves, taken apart again.
pub(crate) fn unpack_halves(u: &UOp) -> Option<UOp> {
    let x = &u.src()[0];
    let widened =
        |v: &UOp| (v.op() == Op::Cast && v.src()[0].dtype().scalar == Scalar::U32).then(|| v.src()[0].clone());
    let high = |v: &UOp| {
        let by32 = v.op() == Op::Shl && v.src()[1].as_const() == Some(ConstVal::Int(32));
        if by32 { widened(&v.src()[0]) } else { None }
    };
    if x.op() != Op::Or || x.dtype().scalar != Scalar::U64 {
        return None;
    }
    let [p, q] = x.src() else { return None };
    let (hi, lo) = match (high(p), widened(q)) {
        (Some(h), Some(l)) => (h, l),
        _ => (high(q)?, widened(p)?),
    };
    match u.op() {
        Op::Cast if u.dtype().scalar == Scalar::U32 => Some(lo),
        Op::Shr if u.src()[1].as_const() == Some(ConstVal::Int(32)) => Some(hi.cast(u.dtype())),
        _ => None,
    }
}

/// A lane of something whose lanes are known.
pub(crate) fn lanes(u: &UOp) -> Option<UOp> {
    let x = &u.src()[0];
    let Arg::Axes(pick) = u.arg() else { return None };
    let identity = pick.len() == x.dtype().lanes as usize && pick.iter().enumerate().all(|(k, l)| k == *l as usize);
    match x.op() {
        _ if identity => Some(x.clone()),
        Op::Const => x.as_const().map(|c| UOp::constant(u.dtype(), c)),
        Op::Splat => Some(x.src()[0].splat(u.dtype().lanes)),
        Op::Stack if pick.len() == 1 => x.src().get(pick[0] as usize).cloned(),
        _ => None,
    }
}

//! The primitives on nodes: promotion, broadcasting, elementwise ops, casts, movement and reductions, each checked.
//!
//! A number written in the program takes the type of the other operand if that can hold its value; otherwise it is an
//! error, except in comparisons (the rules of numpy 2). A node that would change nothing is not made: a reshape to the
//! same shape, an empty pad, a cast to the same dtype. A scalar constant stays a scalar in an elementwise op; every
//! other source is reshaped and expanded to the common shape.

use super::error::Problem;
use crate::sort;
use crate::uop::{ConstVal, DType, Dim, Op, Scalar, UOp, numel};

/// Two sizes certainly equal.
pub(crate) fn same(a: &Dim, b: &Dim) -> bool {
    a == b
}

pub(crate) fn broadcast_shapes(a: &[Dim], b: &[Dim]) -> Result<Vec<Dim>, Problem> {
    let rank = a.len().max(b.len());
    let one = Dim::Int(1);
    let mut out = Vec::with_capacity(rank);
    for k in (0..rank).rev() {
        let of = |s: &[Dim]| s.len().checked_sub(k + 1).map_or_else(|| one.clone(), |i| s[i].clone());
        let (x, y) = (of(a), of(b));
        out.push(match (&x, &y) {
            (x, y) if same(x, y) => x.clone(),
            (x, y) if x.is(1) => y.clone(),
            (x, y) if y.is(1) => x.clone(),
            _ => return Err(Problem::Broadcast { a: a.to_vec(), b: b.to_vec(), axis: k }),
        });
    }
    Ok(out)
}

/// Whether a node is a plain number that may have any shape.
pub(crate) fn is_number(u: &UOp) -> bool {
    u.op() == Op::Const
}

pub(crate) fn cast(u: &UOp, to: Scalar) -> UOp {
    match u.as_const() {
        Some(c) if u.dtype().scalar != to => UOp::constant(DType::of(to), c),
        _ => u.cast(DType::of(to)),
    }
}

/// The value of a number written in the program that integer type `to` lacks.
fn beyond(u: &UOp, to: Scalar) -> Option<i128> {
    let (low, high) = to.int_range();
    let v = u.as_const().filter(|_| u.dtype().scalar == Scalar::WeakInt && to.is_int())?.as_int()?;
    (v < low || v > high).then_some(v)
}

/// A node that takes part in an op of type `to`: a number written in the program is converted by its value, or an
/// error.
pub(crate) fn taken(u: &UOp, to: Scalar) -> Result<UOp, Problem> {
    match beyond(u, to) {
        Some(v) => Err(not_in(v, to)),
        None => Ok(cast(u, to)),
    }
}

fn not_in(v: i128, to: Scalar) -> Problem {
    let (low, high) = to.int_range();
    Problem::dtype(format!("{v} is no {to}: those are {low} to {high}"))
}

/// A constant of type `to`, as [`taken`].
pub(crate) fn constant(value: ConstVal, to: Scalar) -> Result<UOp, Problem> {
    let (low, high) = to.int_range();
    match value {
        ConstVal::Int(v) if to.is_int() && (v < low || v > high) => Err(not_in(v, to)),
        _ => Ok(UOp::constant(DType::of(to), value)),
    }
}

/// What a comparison in type `to` is, whatever the other side's elements, when one side is a number beyond that type.
fn decided(op: Op, src: &[UOp], to: Scalar) -> Option<bool> {
    let [a, b] = src else { return None };
    let (left, right) = (beyond(a, to), beyond(b, to));
    match (op, left, right) {
        (Op::CmpLt, Some(v), None) => Some(v < 0),
        (Op::CmpLt, None, Some(v)) => Some(v > 0),
        (Op::CmpEq, Some(_), None) | (Op::CmpEq, None, Some(_)) => Some(false),
        (Op::CmpNe, Some(_), None) | (Op::CmpNe, None, Some(_)) => Some(true),
        _ => None,
    }
}

/// The type an op on these sources works in. Numbers written in the program are weak and take the other's type.
pub(crate) fn promoted(src: &[&UOp]) -> Scalar {
    let all = src.iter().map(|u| u.dtype().scalar).reduce(Scalar::promote).unwrap_or(Scalar::Void);
    // Two types without a common storable one (i64 and u64, an int and a weak float) are promoted to the default float.
    if src.iter().all(|u| u.dtype().scalar.is_weak() || u.dtype().scalar == Scalar::Bool) {
        all
    } else {
        super::convert::strong(all)
    }
}

/// Reshape without a check. Consecutive reshapes are not merged: a gradient may be requested of the one between.
pub(crate) fn reshape(u: &UOp, shape: &[Dim]) -> UOp {
    if u.shape() == shape { u.clone() } else { u.movement(Op::Reshape, shape.iter().map(Dim::uop)) }
}

/// Broadcast to `shape`: size-1 axes are added in front, then expanded.
pub(crate) fn expand(u: &UOp, shape: &[Dim]) -> Result<UOp, Problem> {
    let own = u.shape().to_vec();
    if own == shape {
        return Ok(u.clone());
    }
    if own.len() > shape.len() || broadcast_shapes(&own, shape)? != shape {
        return Err(Problem::shape(format!(
            "shape {} does not expand to {}",
            super::error::Shown(&own),
            super::error::Shown(shape)
        )));
    }
    let mut padded = vec![Dim::Int(1); shape.len() - own.len()];
    padded.extend(own);
    let x = reshape(u, &padded);
    Ok(if padded == shape { x } else { x.movement(Op::Expand, shape.iter().map(Dim::uop)) })
}

/// The number `value` in every element of `shape`.
pub(crate) fn full(shape: &[Dim], value: &UOp) -> UOp {
    if shape.is_empty() {
        return value.clone();
    }
    let ones = vec![Dim::Int(1); shape.len()];
    let x = reshape(value, &ones);
    if ones == shape { x } else { x.movement(Op::Expand, shape.iter().map(Dim::uop)) }
}

/// All of them in their common shape; numbers stay as they are.
pub(crate) fn broadcast(src: &[UOp]) -> Result<Vec<UOp>, Problem> {
    let mut shape: Vec<Dim> = Vec::new();
    for u in src {
        shape = broadcast_shapes(&shape, u.shape())?;
    }
    src.iter().map(|u| if is_number(u) { Ok(u.clone()) } else { expand(u, &shape) }).collect()
}

/// Elementwise op on sources of any types and broadcastable shapes.
pub(crate) fn alu(op: Op, src: &[UOp]) -> Result<UOp, Problem> {
    // Where's condition does not take part in promotion.
    let first = usize::from(op == Op::Where);
    let to = promoted(&src[first..].iter().collect::<Vec<_>>());
    if let Some(answer) = decided(op, src, to) {
        return Ok(full(&broadcast_shapes(src[0].shape(), src[1].shape())?, &UOp::bool(answer)));
    }
    let mut cast_src: Vec<UOp> = src.to_vec();
    for u in &mut cast_src[first..] {
        *u = taken(u, to)?;
    }
    check_type(op, to)?;
    if op == Op::Where && !src[0].dtype().is_bool() {
        return Err(Problem::dtype(format!("the condition is {}, not bool", src[0].dtype())));
    }
    Ok(UOp::alu(op, broadcast(&cast_src)?))
}

fn check_type(op: Op, t: Scalar) -> Result<(), Problem> {
    let fine = match op {
        Op::Recip | Op::Sqrt | Op::Exp2 | Op::Log2 | Op::Sin | Op::FDiv => t.is_float(),
        Op::CDiv | Op::CMod | Op::FloorDiv | Op::FloorMod => t.is_int(),
        Op::Shl | Op::Shr => t.is_int(),
        Op::And | Op::Or | Op::Xor => t.is_int() || t == Scalar::Bool,
        Op::Threefry => t == Scalar::U64,
        Op::Neg | Op::Sub => t != Scalar::Bool,
        _ => t != Scalar::Void,
    };
    if fine { Ok(()) } else { Err(Problem::dtype(format!("{op:?} has no meaning for {t}"))) }
}

/// Those of the axes that the node has with another size than 1.
fn longer_than_one(u: &UOp, axes: &[usize]) -> Vec<usize> {
    axes.iter().copied().filter(|a| u.shape().get(*a).is_some_and(|d| !d.is(1))).collect()
}

/// Tensor-level reduction keeping the axes with size 1.
pub(crate) fn reduce(u: &UOp, op: Op, axes: &[usize]) -> UOp {
    // An axis of size 1 has nothing to reduce.
    let real = longer_than_one(u, axes);
    if real.is_empty() { u.clone() } else { u.reduce_axes(op, &real) }
}

pub(crate) fn permute(u: &UOp, order: &[usize]) -> UOp {
    if order.iter().enumerate().all(|(k, a)| k == *a) { u.clone() } else { u.permute(order) }
}

pub(crate) fn flip(u: &UOp, axes: &[usize]) -> UOp {
    let real = longer_than_one(u, axes);
    if real.is_empty() { u.clone() } else { u.flip(&real) }
}

/// Pads with zeros: counts before and after of each axis, none negative.
pub(crate) fn pad(u: &UOp, counts: &[(Dim, Dim)]) -> UOp {
    if counts.iter().all(|(a, b)| a.is(0) && b.is(0)) {
        return u.clone();
    }
    let befores = counts.iter().map(|c| c.0.uop());
    u.movement(Op::Pad, befores.chain(counts.iter().map(|c| c.1.uop())))
}

/// Keeps `begin..end` of each axis; the caller has checked the bounds.
pub(crate) fn shrink(u: &UOp, keep: &[(Dim, Dim)]) -> UOp {
    if keep.iter().zip(u.shape()).all(|((a, b), size)| a.is(0) && b == size) {
        return u.clone();
    }
    let begins = keep.iter().map(|c| c.0.uop());
    u.movement(Op::Shrink, begins.chain(keep.iter().map(|c| c.1.uop())))
}

/// A size as factors: the integer one, and the symbolic ones in a fixed order.
fn factors(shape: &[Dim]) -> (i64, Vec<UOp>) {
    let (mut int, mut syms) = (1i64, Vec::new());
    let mut todo: Vec<UOp> = shape.iter().map(|d| d.uop().simplify()).collect();
    while let Some(u) = todo.pop() {
        match u.as_int() {
            Some(i) => int = int.saturating_mul(i),
            None if u.op() == Op::Mul => todo.extend(u.src().iter().cloned()),
            None => syms.push(u),
        }
    }
    sort::by_key(&mut syms, UOp::id);
    (int, syms)
}

/// Whether two shapes certainly have the same number of elements.
pub(crate) fn same_numel(a: &[Dim], b: &[Dim]) -> bool {
    factors(a) == factors(b)
}

/// `numel(whole) / numel(part)` if it is exact.
pub(crate) fn quotient(whole: &[Dim], part: &[Dim]) -> Option<Dim> {
    let ((wi, mut ws), (pi, ps)) = (factors(whole), factors(part));
    if pi == 0 || wi % pi != 0 {
        return None;
    }
    for p in ps {
        let k = ws.iter().position(|w| *w == p)?;
        ws.remove(k);
    }
    let dims: Vec<Dim> = std::iter::once(Dim::Int(wi / pi)).chain(ws.into_iter().map(Dim::Sym)).collect();
    Some(numel(&dims))
}

/// `a op b` on sizes, an integer where both are.
pub(crate) fn dim_op(op: Op, a: &Dim, b: &Dim) -> Dim {
    match (a, b, op) {
        (Dim::Int(x), Dim::Int(y), Op::Add) => Dim::Int(x.saturating_add(*y)),
        (Dim::Int(x), Dim::Int(y), Op::Sub) => Dim::Int(x.saturating_sub(*y)),
        (Dim::Int(x), Dim::Int(y), Op::Mul) => Dim::Int(x.saturating_mul(*y)),
        (x, Dim::Int(0), Op::Add | Op::Sub) => x.clone(),
        (Dim::Int(0), y, Op::Add) => y.clone(),
        (x, Dim::Int(1), Op::Mul | Op::FloorDiv) => x.clone(),
        (Dim::Int(x), Dim::Int(y), Op::FloorDiv) if *y != 0 => Dim::Int(x.div_euclid(*y)),
        _ => Dim::from(a.uop().binary(op, &b.uop()).simplify()),
    }
}

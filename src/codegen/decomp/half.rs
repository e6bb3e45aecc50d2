//! f16 and bf16 are storage types for most targets: arithmetic on them is done in f32 between casts, each result
//! rounded back as the type demands. Conversions between them and anything but f32 go through f32; what f32 cannot hold
//! is rounded to odd there, so that the second rounding has the result of a single one (Boldo and Melquiond, 2008).

use super::super::Target;
use doorbell_uop::{DType, Op, Scalar, Srcs, UOp};

fn is_half(t: DType) -> bool {
    t.space.is_none() && matches!(t.scalar, Scalar::F16 | Scalar::BF16)
}

pub(crate) fn through_f32(u: &UOp, target: &Target) -> Option<UOp> {
    let from = u.src().first()?.dtype();
    let f32_of = |x: &UOp| if is_half(x.dtype()) { x.cast(x.dtype().with_scalar(Scalar::F32)) } else { x.clone() };
    match u.op() {
        Op::Bitcast | Op::Where => None,
        Op::Cast => {
            let direct = |a: DType, b: DType| is_half(a) && b.scalar != Scalar::F32;
            if u.dtype().scalar == Scalar::F16 && from.is_int() && !target.f64 {
                // The target's own conversion, which rounds once.
                return None;
            }
            if is_half(u.dtype()) && rounds_twice(from.scalar) && target.f64 {
                return Some(odd_f32(&u.src()[0]).cast(u.dtype()));
            }
            if direct(from, u.dtype()) || direct(u.dtype(), from) {
                return Some(u.src()[0].cast(u.dtype().with_scalar(Scalar::F32)).cast(u.dtype()));
            }
            None
        }
        op if op.is_comparison() => {
            (is_half(from) && !target.supports(op, from.scalar)).then(|| u.with_src(srcs(u, f32_of)))
        }
        op => {
            let t = u.dtype();
            if !is_half(t) || target.supports(op, t.scalar) {
                return None;
            }
            let wide = UOp::new(op, t.with_scalar(Scalar::F32), srcs(u, f32_of), u.arg().clone());
            Some(wide.cast(t))
        }
    }
}

/// Types with more digits than f32. (An integer that f32 rounds is infinite in f16; i64 is rounded to f64 first, which
/// is one rounding too many only within 2^-53 of the middle between two values.)
fn rounds_twice(from: Scalar) -> bool {
    matches!(from, Scalar::F64 | Scalar::I32 | Scalar::U32 | Scalar::I64 | Scalar::U64)
}

/// The value in f32, rounded to odd: the neighbour towards zero, its last bit set if anything was cut off.
pub(super) fn odd_f32(x: &UOp) -> UOp {
    let exact = x.cast(x.dtype().with_scalar(Scalar::F64));
    let near = x.dtype().with_scalar(Scalar::F32);
    let rounded = exact.cast(near);
    let back = rounded.cast(exact.dtype());
    let bits = rounded.bitcast(x.dtype().with_scalar(Scalar::U32));
    let one = |c: &UOp| c.cast(bits.dtype());
    let size = |v: &UOp| v.binary(Op::Max, &UOp::alu(Op::Neg, [v.clone()]));
    let beyond = size(&exact).binary(Op::CmpLt, &size(&back));
    let inexact = exact.binary(Op::CmpNe, &back);
    (&bits - &one(&beyond)).binary(Op::Or, &one(&inexact)).bitcast(near)
}

fn srcs(u: &UOp, f: impl Fn(&UOp) -> UOp) -> Srcs {
    u.src().iter().map(f).collect()
}

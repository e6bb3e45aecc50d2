//! f16 and bf16 are storage types for most targets: arithmetic on them is done in f32 between casts, each result rounded
//! back as the type demands. Conversions between them and anything but f32 go through f32.

use super::super::Target;
use crate::uop::{DType, Op, Scalar, Srcs, UOp};

fn is_half(t: DType) -> bool {
    t.space.is_none() && matches!(t.scalar, Scalar::F16 | Scalar::BF16)
}

pub fn through_f32(u: &UOp, target: &Target) -> Option<UOp> {
    let from = u.src().first()?.dtype();
    let f32_of = |x: &UOp| if is_half(x.dtype()) { x.cast(x.dtype().with_scalar(Scalar::F32)) } else { x.clone() };
    match u.op() {
        Op::Bitcast | Op::Where => None,
        Op::Cast => {
            let direct = |a: DType, b: DType| is_half(a) && b.scalar != Scalar::F32;
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

fn srcs(u: &UOp, f: impl Fn(&UOp) -> UOp) -> Srcs {
    u.src().iter().map(f).collect()
}

//! Gives index arithmetic machine types, and addresses a form that instructions can fold.
//!
//! An address is `((outermost terms) + … + innermost terms) + constant`. Each partial sum is computed in the outermost
//! loop possible, neighbouring accesses of a tile differ only in the constant, and the constant becomes the
//! displacement of the instruction. WeakInt becomes I64 (I32 where bounds allow on targets without `index64`). Vectors
//! of indices are I32 where bounds allow, so that they have as many lanes as the data.

use super::CodegenError;
use super::affine::AffineMemo;
use super::scope::Scopes;
use super::target::Target;
use doorbell_sort as sort;
use doorbell_uop::{Arg, DType, Op, Scalar, Srcs, UOp};

/// Rewrites every address into the form above (still WeakInt).
pub(super) fn split_addresses(sink: &UOp) -> Result<UOp, CodegenError> {
    let s = Scopes::of(sink)?;
    let depth = |t: &UOp| s.order.number(t).map_or(0, |k| s.depth(s.scope[k]));
    let mut memo = AffineMemo::default();
    Ok(s.order.rebuild(|r, u| match u.op() {
        Op::Index if u.src()[1].dtype() == DType::INDEX => {
            let mut sum = memo.of(&u.src()[1]).clone();
            sort::by_key(&mut sum.terms, |(t, _)| depth(t));
            for (t, _) in &mut sum.terms {
                if let Some(new) = r.of(t) {
                    *t = new.clone();
                }
            }
            let mut src = r.srcs();
            src[1] = sum.build();
            u.with_src(src)
        }
        Op::Load => {
            // An index with a gate and the alternative value of its load are rewritten together.
            let mut src = r.srcs();
            match (src[0].src().len(), src.len()) {
                (2, 2) => src.truncate(1),
                (3, 1) => src.push(u.const_like(0)),
                _ => {}
            }
            u.with_src(src)
        }
        _ => r.same(),
    }))
}

fn fits_i32(u: &UOp) -> bool {
    u.vmin() >= i32::MIN as i128 && u.vmax() <= i32::MAX as i128
}

/// The machine type of a WeakInt node, from its own bounds.
fn machine_type(u: &UOp, target: &Target) -> Scalar {
    let wide = if u.dtype().lanes > 1 { !fits_i32(u) } else { target.index64 || !fits_i32(u) };
    if wide { Scalar::I64 } else { Scalar::I32 }
}

/// Replaces weak types by machine types.
pub(super) fn strengthen(sink: &UOp, target: &Target) -> UOp {
    sink.rebuild(|r, u| {
        let weak = |t: DType| t.scalar.is_weak();
        let weak_src = u.src().iter().any(|s| weak(s.dtype()) && s.dtype().space.is_none());
        if !weak(u.dtype()) && !weak_src { r.same() } else { strong_node(u, r.srcs(), target) }
    })
}

fn convert(u: &UOp, t: Scalar) -> UOp {
    let d = u.dtype().with_scalar(t);
    match u.arg() {
        Arg::Const(c) if u.op() == Op::Const => UOp::constant(d, *c),
        _ => u.cast(d),
    }
}

fn strong_node(u: &UOp, mut src: Srcs, target: &Target) -> UOp {
    let d = u.dtype();
    if d.scalar == Scalar::WeakFloat {
        if u.op() == Op::Const {
            return convert(u, Scalar::F32);
        }
        return UOp::tagged(u.op(), d.with_scalar(Scalar::F32), src, u.arg().clone(), u.tag());
    }
    let own = machine_type(u, target);
    match u.op() {
        Op::Const => convert(u, own),
        Op::Var | Op::Special | Op::Range => {
            for s in &mut src {
                *s = convert(s, own);
            }
            UOp::tagged(u.op(), d.with_scalar(own), src, u.arg().clone(), u.tag())
        }
        Op::Cast if d.scalar.is_weak() => src[0].cast(d.with_scalar(own)),
        _ if u.op().is_alu() || matches!(u.op(), Op::Splat | Op::Stack | Op::Gep | Op::Cat) => {
            let t = common_type(u, &src, own);
            let first = usize::from(u.op() == Op::Where);
            for s in src.iter_mut().skip(first) {
                *s = convert(s, t);
            }
            let to = if u.op().is_comparison() { d } else { d.with_scalar(t) };
            UOp::tagged(u.op(), to, src, u.arg().clone(), u.tag())
        }
        // Users of indices that do not compute with them (Index, Cast to a value type, Load …) take them in any integer
        // type.
        _ => UOp::tagged(
            u.op(),
            if d.scalar == Scalar::WeakInt { d.with_scalar(own) } else { d },
            src,
            u.arg().clone(),
            u.tag(),
        ),
    }
}

/// The type in which an op on indices is computed: wide enough for its result and every source.
fn common_type(u: &UOp, src: &[UOp], own: Scalar) -> Scalar {
    let first = usize::from(u.op() == Op::Where);
    let values = || u.src().iter().zip(src).skip(first);
    // A weak constant takes the type of the strong operand.
    if let Some((_, strong)) = values().find(|(old, _)| !old.dtype().scalar.is_weak()) {
        return strong.dtype().scalar;
    }
    if matches!(u.op(), Op::Splat | Op::Stack) {
        return own;
    }
    let needs_wide = |(old, new): (&UOp, &UOp)| {
        if old.op() == Op::Const { !fits_i32(old) } else { new.dtype().scalar == Scalar::I64 }
    };
    let wide = values().any(needs_wide);
    let own = if u.op().is_comparison() { Scalar::I32 } else { own };
    if wide { Scalar::I64 } else { own }
}

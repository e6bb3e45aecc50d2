//! Single precision as nodes, rounded to nearest with denormals: each as the row of the same name in `sem_float`
//! computes it, "not a number" bit for bit.

use super::super::inst::{Inst, Operand};
use super::super::packed::Single;
use super::state::{State, signed, unsigned};
use crate::translate::splat;
use doorbell_uop::{Op, Scalar, UOp};

/// The same bits as a single.
pub(super) fn float(v: &UOp) -> UOp {
    v.bitcast(v.dtype().with_scalar(Scalar::F32))
}

fn bits(v: &UOp) -> UOp {
    unsigned(v)
}

/// The value of an instruction.
pub(super) fn arithmetic(name: &str, v: &[UOp; 3]) -> Option<UOp> {
    let [a, b, c] = v;
    let (x, y) = (float(a), float(b));
    Some(match name {
        "v_add_f32" => sum(a, b),
        "v_sub_f32" => bits(&x.binary(Op::Sub, &y)),
        "v_subrev_f32" => bits(&y.binary(Op::Sub, &x)),
        "v_mul_f32" => product(a, b),
        "v_fma_f32" => fused(a, b, c),
        "v_min_f32" => least(a, b),
        "v_max_f32" => most(a, b),
        "v_min3_f32" => least(&least(a, b), c),
        "v_max3_f32" => most(&most(a, b), c),
        "v_minmax_f32" => most(&least(a, b), c),
        "v_maxmin_f32" => least(&most(a, b), c),
        "v_mul_dx9_zero_f32" => is_zero(a).or(&is_zero(b)).select(&splat(0), &product(a, b)),
        "v_fma_dx9_zero_f32" => is_zero(a).or(&is_zero(b)).select(c, &fused(a, b, c)),
        "v_trunc_f32" => bits(&trunc(&x)),
        "v_floor_f32" => bits(&floor(&x)),
        "v_ceil_f32" => {
            let t = trunc(&x);
            bits(&t.lt(&x).select(&t.binary(Op::Add, &t.const_like(1.0)), &t))
        }
        "v_sqrt_f32" => bits(&UOp::alu(Op::Sqrt, [float(&flushed(a))])),
        "v_rcp_f32" | "v_rcp_iflag_f32" => flushed(&bits(&narrow(&reciprocal(&double(&float(&flushed(a))))))),
        "v_rsq_f32" => bits(&narrow(&reciprocal(&UOp::alu(Op::Sqrt, [double(&float(&flushed(a)))])))),
        "v_cvt_f32_i32" => bits(&signed(a).cast(x.dtype())),
        // By a double, which holds it exactly.
        "v_cvt_f32_u32" => {
            let wide = a.cast(a.dtype().with_scalar(Scalar::I64));
            bits(&wide.cast(a.dtype().with_scalar(Scalar::F64)).cast(x.dtype()))
        }
        "v_cvt_i32_f32" => {
            let whole = unsigned(&x.cast(a.dtype().with_scalar(Scalar::I32)));
            let most = x.const_like(2_147_483_648.0);
            let kept = x.lt(&most).select(&whole, &splat(0x7fff_ffff));
            x.ne(&x).select(&splat(0), &kept)
        }
        "v_cvt_f32_ubyte0" => byte(a, 0),
        "v_cvt_f32_ubyte1" => byte(a, 8),
        "v_cvt_f32_ubyte2" => byte(a, 16),
        "v_cvt_f32_ubyte3" => byte(a, 24),
        _ => return None,
    })
}

fn byte(v: &UOp, shift: u32) -> UOp {
    let part = v.binary(Op::Shr, &splat(shift)).and(&splat(255));
    bits(&signed(&part).cast(v.dtype().with_scalar(Scalar::F32)))
}

fn trunc(v: &UOp) -> UOp {
    UOp::alu(Op::Trunc, [v.clone()])
}

fn sum(a: &UOp, b: &UOp) -> UOp {
    bits(&float(a).binary(Op::Add, &float(b)))
}

fn product(a: &UOp, b: &UOp) -> UOp {
    bits(&float(a).binary(Op::Mul, &float(b)))
}

fn is_zero(v: &UOp) -> UOp {
    v.and(&splat(0x7fff_ffff)).equal(&splat(0))
}

/// `a * b + c`, rounded once. Which "not a number" is the result, product and sum one after the other decide.
fn fused(a: &UOp, b: &UOp, c: &UOp) -> UOp {
    let r = UOp::alu(Op::MulAcc, [float(a), float(b), float(c)]);
    r.ne(&r).select(&sum(&product(a, b), c), &bits(&r))
}

/// The one that is a number; of equal zeros the negative one.
fn least(a: &UOp, b: &UOp) -> UOp {
    let (x, y) = (float(a), float(b));
    let negative = signed(a).lt(&signed(&splat(0)));
    let first = x.lt(&y).or(&x.equal(&y).and(&negative));
    number(a, b, &first)
}

/// The one that is a number; of equal zeros the positive one.
fn most(a: &UOp, b: &UOp) -> UOp {
    let (x, y) = (float(a), float(b));
    let negative = signed(b).lt(&signed(&splat(0)));
    let first = y.lt(&x).or(&x.equal(&y).and(&negative));
    number(a, b, &first)
}

fn number(a: &UOp, b: &UOp, first: &UOp) -> UOp {
    let (x, y) = (float(a), float(b));
    x.ne(&x).select(b, &y.ne(&y).select(a, &first.select(a, b)))
}

/// A zero of its sign for what is denormal.
fn flushed(v: &UOp) -> UOp {
    let small = v.and(&splat(0x7f80_0000)).equal(&splat(0));
    small.select(&v.and(&splat(1 << 31)), v)
}

fn floor(x: &UOp) -> UOp {
    let t = trunc(x);
    x.lt(&t).select(&t.binary(Op::Sub, &t.const_like(1.0)), &t)
}

fn double(v: &UOp) -> UOp {
    v.cast(v.dtype().with_scalar(Scalar::F64))
}

fn narrow(v: &UOp) -> UOp {
    v.cast(v.dtype().with_scalar(Scalar::F32))
}

fn reciprocal(v: &UOp) -> UOp {
    v.const_like(1.0).binary(Op::FDiv, v)
}

/// gfx942's instructions on pairs of singles.
pub(super) fn singles(s: &mut State, i: &Inst, single: Single) -> Option<()> {
    if single == Single::Mov {
        return None;
    }
    s.floats = true;
    for half in 0..s.shape.halves {
        let mut results = Vec::new();
        for high in [false, true] {
            let v = [0, 1, 2].map(|slot| part(s, i, (slot, high), half));
            let [Some(a), Some(b), c] = v else { return None };
            results.push(match single {
                Single::Fma => fused(&a, &b, &c?),
                Single::Mul => product(&a, &b),
                _ => sum(&a, &b),
            });
        }
        for (after, value) in (0..).zip(results) {
            s.write(i.dst, after, half, value)?;
        }
    }
    Some(())
}

/// What a source has for the low or the high result.
fn part(s: &State, i: &Inst, (slot, high): (usize, bool), half: usize) -> Option<UOp> {
    let (select, negate) = if high { (i.opsel_hi, i.neg_hi) } else { (i.opsel, i.neg) };
    let at = select >> slot & 1;
    let v = match i.src[slot] {
        Operand::V(_) => s.register(i.src[slot], at.into(), half)?,
        Operand::S(_) => s.scalar_source(i.src[slot], at)?.splat(crate::translate::LANES),
        other => s.lanes(other, half)?,
    };
    Some(if negate >> slot & 1 == 1 { v.binary(Op::Xor, &splat(1 << 31)) } else { v })
}

//! The 8-bit floats by integer code: in the linear program they are U8 bits, and every computation is done in f32. An
//! f64 is rounded to odd on its way there, so that it is rounded once in effect. Formats: as in `uop::fp8`,
//! which the tests compare with.

use super::float::ilit;
use super::half::odd_f32;
use doorbell_uop::{Arg, ConstVal, Op, Scalar, Srcs, UMap, UOp, to_bits as bits_of};

/// The graph with every fp8 value replaced by its bits (U8); returned unchanged if there is none.
pub(crate) fn to_bits(sink: &UOp) -> UOp {
    let order = sink.toposort();
    if !order.iter().any(|u| u.dtype().scalar.is_fp8()) {
        return sink.clone();
    }
    let mut done: UMap<UOp> = UMap::default();
    for u in order {
        // PANIC: toposort lists sources first.
        let src: Srcs = u.src().iter().map(|s| done[s].clone()).collect();
        let n = convert(&u, src);
        done.insert(u, n);
    }
    done.remove(sink).unwrap_or_else(|| sink.clone())
}

fn convert(u: &UOp, src: Srcs) -> UOp {
    let t = u.dtype();
    let own = t.scalar.is_fp8();
    let below = u.src().iter().any(|s| s.dtype().scalar.is_fp8());
    if !own && !below {
        return u.with_src(src);
    }
    let bits = if own { t.with_scalar(Scalar::U8) } else { t };
    if let (true, Arg::Const(c)) = (own, u.arg()) {
        return UOp::constant(bits, ConstVal::Int(bits_of(*c, t.scalar).into()));
    }
    let value = |k: usize| match u.src()[k].dtype() {
        s if s.scalar.is_fp8() => decode(&src[k], s.scalar),
        _ => src[k].clone(),
    };
    match u.op() {
        Op::Cast => {
            let v = value(0);
            match (own, v.dtype().scalar) {
                (true, Scalar::F64) => encode(&odd_f32(&v), t.scalar),
                (true, _) => encode(&v.cast(t.with_scalar(Scalar::F32)), t.scalar),
                _ => v.cast(t),
            }
        }
        Op::Bitcast => src[0].bitcast(bits),
        Op::Where => UOp::new(Op::Where, bits, src, Arg::None),
        op if op.is_elementwise() || matches!(op, Op::Reduce | Op::VReduce | Op::WaveReduce) => {
            let values: Srcs = (0..src.len()).map(value).collect();
            let wide = if own { t.with_scalar(Scalar::F32) } else { t };
            let r = UOp::tagged(op, wide, values, u.arg().clone(), u.tag());
            if own { encode(&r, t.scalar) } else { r }
        }
        // Loads, stores, addresses, vectors, registers: the same op on the bits.
        op => UOp::tagged(op, bits, src, u.arg().clone(), u.tag()),
    }
}

/// Bits (U8) → f32, exact.
pub(crate) fn decode(b: &UOp, format: Scalar) -> UOp {
    let f32_type = b.dtype().with_scalar(Scalar::F32);
    if format == Scalar::F8E5M2 {
        // The upper half of an f16.
        let wide =
            b.cast(b.dtype().with_scalar(Scalar::U16)).binary(Op::Shl, &ilit(b.dtype().with_scalar(Scalar::U16), 8));
        return wide.bitcast(b.dtype().with_scalar(Scalar::F16)).cast(f32_type);
    }
    let t = b.dtype().with_scalar(Scalar::U32);
    let k = |v| ilit(t, v);
    let w = b.cast(t);
    let size = &w & &k(0x7f);
    // Exponent and mantissa in place, then the bias by a multiplication, which also makes denormals right.
    let (shift, scale) = match format {
        Scalar::F8E5M2Fnuz => (21, 111),
        Scalar::F8E4M3Fnuz => (20, 119),
        _ => (20, 120),
    };
    let v = &size.binary(Op::Shl, &k(shift)).bitcast(f32_type) * &UOp::constant(f32_type, 2f64.powi(scale));
    if format != Scalar::F8E4M3 {
        let sign = (&w & &k(0x80)).binary(Op::Shl, &k(24));
        let v = (&v.bitcast(t) | &sign).bitcast(f32_type);
        return w.equal(&k(0x80)).select(&UOp::constant(f32_type, f64::NAN), &v);
    }
    let v = size.equal(&k(0x7f)).select(&UOp::constant(f32_type, f64::NAN), &v);
    let sign = (&w & &k(0x80)).binary(Op::Shl, &k(24));
    (&v.bitcast(t) | &sign).bitcast(f32_type)
}

/// f32 → bits (U8), to nearest even.
pub(crate) fn encode(x: &UOp, format: Scalar) -> UOp {
    let t = x.dtype().with_scalar(Scalar::U32);
    let k = |v: i128| ilit(t, v);
    // (stored mantissa bits, bias, smallest normal, largest code, code of infinity, of NaN)
    let (m, bias, smallest, largest, inf, nan) = match format {
        Scalar::F8E5M2 => (2, 15, 2f64.powi(-14), 0x7b, 0x7c, 0x7e),
        Scalar::F8E4M3Fnuz => (3, 8, 2f64.powi(-7), 0x7f, 0x80, 0x80),
        Scalar::F8E5M2Fnuz => (2, 16, 2f64.powi(-15), 0x7f, 0x80, 0x80),
        _ => (3, 7, 2f64.powi(-6), 0x7e, 0x7f, 0x7f),
    };
    let bits = x.bitcast(t);
    let size = &bits & &k(0x7fff_ffff);
    let a = size.bitcast(x.dtype());
    let drop = 23 - m;
    // Normal numbers: round off the low bits, ties by the lowest bit that stays; rebias the exponent.
    let odd = &size.binary(Op::Shr, &k(drop)) & &k(1);
    let rounded = (&(&size + &odd) + &k((1 << (drop - 1)) - 1)).binary(Op::Shr, &k(drop));
    let normal = &rounded - &k((127 - bias) << m);
    // Denormal: adding a number whose last place is the smallest denormal leaves the code in its low bits.
    let unit = 2f64.powi(1 - bias as i32 - m as i32 + 23);
    let magic = x.const_like(unit);
    let denormal = &(&a + &magic).bitcast(t) - &k(i128::from((unit as f32).to_bits()));
    let code = a.lt(&x.const_like(smallest)).select(&denormal, &normal);
    let code = k(largest).lt(&code).select(&k(inf), &code);
    let code = k(0x7f80_0000).lt(&size).select(&k(nan), &code);
    let sign = (&bits & &k(0x8000_0000)).binary(Op::Shr, &k(24));
    // No zero and no NaN has a sign.
    let sign = match format {
        Scalar::F8E4M3Fnuz | Scalar::F8E5M2Fnuz => (&code & &k(0x7f)).equal(&k(0)).select(&k(0), &sign),
        _ => sign,
    };
    (&code | &sign).cast(x.dtype().with_scalar(Scalar::U8))
}

//! Semantics of each elementwise op on one lane: the definition that the interpreter, constant folding and every test
//! use.
//!
//! Integers wrap to their width. Integer division and remainder by zero give 0. Shift counts at or beyond the width
//! give the result of repeated one-bit shifts. Floats are computed in f64 and rounded once to their type, which is
//! exact for + - * / sqrt up to f32. Conversion from float to integer truncates, saturates to i64 (u64 above), then
//! wraps; NaN gives 0. The result of a machine for floats outside the integer type's range is unspecified.

use super::{ConstVal, Op, Scalar, floor_div, floor_mod};
use ConstVal::{Bool, Float, Int};

/// `v` converted to `to`.
pub fn cast_const(v: ConstVal, to: Scalar) -> ConstVal {
    match to {
        Scalar::Bool => Bool(match v {
            Float(f) => f != 0.0,
            Int(i) => i != 0,
            Bool(b) => b,
        }),
        Scalar::Void => v,
        t if t.is_int() => Int(wrap(
            match v {
                Bool(b) => b as i128,
                Int(i) => i,
                Float(f) if t == Scalar::U64 && f > 0.0 => f as u64 as i128,
                Float(f) => f as i64 as i128,
            },
            t,
        )),
        t => Float(match v {
            Bool(b) => b as u8 as f64,
            Int(i) => int_to_float(i, t),
            Float(f) => round_to(f, t),
        }),
    }
}

/// An integer to a float type with one rounding.
fn int_to_float(i: i128, t: Scalar) -> f64 {
    match t {
        Scalar::F32 => i as f32 as f64,
        _ => round_to(i as f64, t),
    }
}

/// `i` modulo 2^bits, in the range of `t`.
pub fn wrap(i: i128, t: Scalar) -> i128 {
    match t {
        Scalar::I8 => i as i8 as i128,
        Scalar::U8 => i as u8 as i128,
        Scalar::I16 => i as i16 as i128,
        Scalar::U16 => i as u16 as i128,
        Scalar::I32 => i as i32 as i128,
        Scalar::U32 => i as u32 as i128,
        Scalar::I64 | Scalar::WeakInt => i as i64 as i128,
        Scalar::U64 => i as u64 as i128,
        _ => i,
    }
}

/// `f` rounded to the nearest value of float type `t` (ties to even).
pub(crate) fn round_to(f: f64, t: Scalar) -> f64 {
    match t {
        Scalar::F32 => f as f32 as f64,
        Scalar::F16 => half::f16::from_f32(to_odd(f)).to_f64(),
        Scalar::BF16 => half::bf16::from_f32(to_odd(f)).to_f64(),
        t if t.is_fp8() => super::fp8::decode(super::fp8::encode(f, t), t),
        _ => f,
    }
}

/// `f` in f32, rounded to odd, so that rounding it again to a half type gives the result of a single rounding.
/// (`half`'s own conversion of an f64 uses only its upper 32 bits.)
fn to_odd(f: f64) -> f32 {
    let near = f as f32;
    let beyond = u32::from(f64::from(near).abs() > f.abs());
    let inexact = u32::from(f64::from(near) != f);
    f32::from_bits((near.to_bits() - beyond) | inexact)
}

/// The bits of `v` as a value of type `t`, in the low end of a u64.
pub fn to_bits(v: ConstVal, t: Scalar) -> u64 {
    match (cast_const(v, t), t) {
        (Bool(b), _) => b as u64,
        (Int(i), _) => {
            let bits = t.size_bytes() * 8;
            if bits == 64 || bits == 0 { i as u64 } else { i as u64 & ((1 << bits) - 1) }
        }
        (Float(f), Scalar::F32) => (f as f32).to_bits() as u64,
        (Float(f), Scalar::F16) => half::f16::from_f32(to_odd(f)).to_bits() as u64,
        (Float(f), Scalar::BF16) => half::bf16::from_f32(to_odd(f)).to_bits() as u64,
        (Float(f), t) if t.is_fp8() => super::fp8::encode(f, t) as u64,
        (Float(f), _) => f.to_bits(),
    }
}

/// The value of type `t` with these bits.
pub fn from_bits(bits: u64, t: Scalar) -> ConstVal {
    match t {
        Scalar::Bool => Bool(bits & 0xff != 0),
        Scalar::F32 => Float(f32::from_bits(bits as u32) as f64),
        Scalar::F16 => Float(half::f16::from_bits(bits as u16).to_f64()),
        Scalar::BF16 => Float(half::bf16::from_bits(bits as u16).to_f64()),
        t if t.is_fp8() => Float(super::fp8::decode(bits as u8, t)),
        Scalar::F64 | Scalar::WeakFloat => Float(f64::from_bits(bits)),
        _ => Int(wrap(bits as i128, t)),
    }
}

/// Result of op on constants of type `t` (comparisons: the type of the operands; Where: of the arms).
/// `None`: not an elementwise arithmetic op, or operands of the wrong kind.
pub fn eval_alu(op: Op, t: Scalar, v: &[ConstVal]) -> Option<ConstVal> {
    if Some(v.len()) != op.arity() {
        return None;
    }
    match op {
        Op::Where => return Some(cast_const(if v[0].is_zero() { v[2] } else { v[1] }, t)),
        Op::CmpLt | Op::CmpNe | Op::CmpEq => return compare(op, v[0], v[1]).map(Bool),
        _ => {}
    }
    let r = if t.is_float() {
        Float(float_op(op, v)?)
    } else if t == Scalar::Bool {
        Bool(bool_op(op, v)?)
    } else {
        Int(int_op(op, t, v)?)
    };
    Some(cast_const(r, t))
}

fn compare(op: Op, a: ConstVal, b: ConstVal) -> Option<bool> {
    let ord = match (a, b) {
        (Float(_), _) | (_, Float(_)) => a.as_f64().partial_cmp(&b.as_f64()),
        _ => Some(a.as_int()?.cmp(&b.as_int()?)),
    };
    Some(match op {
        Op::CmpLt => ord == Some(std::cmp::Ordering::Less),
        Op::CmpEq => ord == Some(std::cmp::Ordering::Equal),
        _ => ord != Some(std::cmp::Ordering::Equal),
    })
}

fn float_op(op: Op, v: &[ConstVal]) -> Option<f64> {
    let a = v[0].as_f64();
    let b = v.get(1).map_or(0.0, |x| x.as_f64());
    Some(match op {
        Op::Neg => -a,
        Op::Recip => 1.0 / a,
        Op::Sqrt => a.sqrt(),
        Op::Exp2 => a.exp2(),
        Op::Log2 => a.log2(),
        Op::Sin => a.sin(),
        Op::Trunc => a.trunc(),
        Op::Add => a + b,
        Op::Sub => a - b,
        Op::Mul => a * b,
        Op::FDiv => a / b,
        // NaN wins, as in numpy and torch.
        Op::Max => {
            if a.is_nan() || b.is_nan() {
                f64::NAN
            } else if a < b {
                b
            } else {
                a
            }
        }
        Op::Pow => a.powf(b),
        Op::Ldexp => ldexp(a, b),
        Op::MulAcc => a.mul_add(b, v[2].as_f64()),
        _ => return None,
    })
}

/// a · 2^n, rounded once: the first of the two products is exact, as a is near 1 where n is far from 0.
fn ldexp(a: f64, n: f64) -> f64 {
    let half = (n / 2.0).trunc();
    a * half.exp2() * (n - half).exp2()
}

fn bool_op(op: Op, v: &[ConstVal]) -> Option<bool> {
    let a = !v[0].is_zero();
    let b = v.get(1).is_some_and(|x| !x.is_zero());
    Some(match op {
        Op::Add | Op::Or | Op::Max => a | b,
        Op::Mul | Op::And => a & b,
        Op::Xor | Op::Sub => a ^ b,
        Op::MulAcc => a & b | !v[2].is_zero(),
        Op::Neg => a,
        _ => return None,
    })
}

fn int_op(op: Op, t: Scalar, v: &[ConstVal]) -> Option<i128> {
    let a = v[0].as_int()?;
    let b = match v.get(1) {
        Some(x) => x.as_int()?,
        None => 0,
    };
    let bits = (t.size_bytes().max(if t == Scalar::WeakInt { 8 } else { 1 }) * 8) as i128;
    Some(match op {
        Op::Neg => -a,
        Op::Trunc => a,
        Op::Add => a + b,
        Op::Sub => a - b,
        Op::Mul => a.wrapping_mul(b),
        Op::Max => a.max(b),
        Op::CDiv => a.checked_div(b).unwrap_or(0),
        Op::CMod => a.checked_rem(b).unwrap_or(0),
        Op::FloorDiv if b != 0 => floor_div(a, b),
        Op::FloorMod if b != 0 => floor_mod(a, b),
        Op::FloorDiv | Op::FloorMod => 0,
        Op::Pow => int_pow(a, b, t),
        Op::Shl => {
            if (0..bits).contains(&b) {
                a << b
            } else {
                0
            }
        }
        // A value is stored sign- or zero-extended, so a shift beyond the width leaves its sign (0 for unsigned).
        Op::Shr => a >> b.clamp(0, 127),
        Op::And => a & b,
        Op::Or => a | b,
        Op::Xor => a ^ b,
        Op::MulAcc => a.wrapping_mul(b).wrapping_add(v[2].as_int()?),
        Op::Threefry => threefry2x32(a as u64, b as u64) as i128,
        _ => return None,
    })
}

fn int_pow(base: i128, exp: i128, t: Scalar) -> i128 {
    if exp < 0 {
        return match base {
            1 => 1,
            -1 => 1 - 2 * (exp & 1),
            _ => 0,
        };
    }
    let (mut r, mut b, mut e) = (1i128, base, exp);
    while e > 0 {
        if e & 1 == 1 {
            r = wrap(r * b, t);
        }
        b = wrap(b * b, t);
        e >>= 1;
    }
    r
}

/// Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11).
/// Counter and key are two 32-bit words each, low word first.
pub fn threefry2x32(counter: u64, key: u64) -> u64 {
    let ks = [key as u32, (key >> 32) as u32, key as u32 ^ (key >> 32) as u32 ^ 0x1BD1_1BDA];
    let (mut x0, mut x1) = ((counter as u32).wrapping_add(ks[0]), ((counter >> 32) as u32).wrapping_add(ks[1]));
    for group in 0..5u32 {
        let rot: [u32; 4] = if group % 2 == 0 { [13, 15, 26, 6] } else { [17, 29, 16, 24] };
        for r in rot {
            x0 = x0.wrapping_add(x1);
            x1 = x1.rotate_left(r) ^ x0;
        }
        let g = group as usize;
        x0 = x0.wrapping_add(ks[(g + 1) % 3]);
        x1 = x1.wrapping_add(ks[(g + 2) % 3]).wrapping_add(group + 1);
    }
    (x1 as u64) << 32 | x0 as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threefry_matches_the_known_answer_vectors_of_random123() {
        // Random123 kat_vectors, threefry2x32 20 rounds.
        assert_eq!(threefry2x32(0, 0), 0x99ba4efe_6b200159);
        assert_eq!(threefry2x32(u64::MAX, u64::MAX), 0xbb002be7_1cb996fc);
        assert_eq!(threefry2x32(0x85a308d3_243f6a88, 0x03707344_13198a2e), 0x483df7a0_c4923a9c);
    }

    #[test]
    fn integers_wrap_and_division_by_zero_is_zero() {
        assert_eq!(eval_alu(Op::Add, Scalar::U8, &[Int(200), Int(100)]), Some(Int(44)));
        assert_eq!(eval_alu(Op::CDiv, Scalar::I32, &[Int(7), Int(0)]), Some(Int(0)));
        assert_eq!(eval_alu(Op::FloorMod, Scalar::I32, &[Int(-7), Int(3)]), Some(Int(2)));
        assert_eq!(eval_alu(Op::CMod, Scalar::I32, &[Int(-7), Int(3)]), Some(Int(-1)));
        assert_eq!(eval_alu(Op::Shr, Scalar::I8, &[Int(-128), Int(9)]), Some(Int(-1)));
        assert_eq!(eval_alu(Op::Shr, Scalar::U8, &[Int(128), Int(9)]), Some(Int(0)));
    }

    #[test]
    fn bits_round_trip_for_every_pattern_of_small_types() {
        let fp8 = [Scalar::F8E4M3, Scalar::F8E5M2, Scalar::F8E4M3Fnuz, Scalar::F8E5M2Fnuz];
        for t in [Scalar::F16, Scalar::BF16, Scalar::I16].into_iter().chain(fp8) {
            let top = if t.size_bytes() == 1 { 256 } else { 65536 };
            for b in 0..top {
                let v = from_bits(b, t);
                if !v.as_f64().is_nan() {
                    assert_eq!(to_bits(v, t), b, "{t} {b:#x}");
                }
            }
        }
    }
}

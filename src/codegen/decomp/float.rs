//! Building blocks of the float decompositions: the layout of a float type, constants, polynomials, bit operations.

use super::super::Target;
use doorbell_uop::{ConstVal, DType, Op, Scalar, UOp};

/// Layout of f32 or f64 and the integer types of the same size.
#[derive(Copy, Clone)]
pub(crate) struct Layout {
    pub float: DType,
    pub int: DType,
    pub uint: DType,
    /// Stored bits of the mantissa.
    pub mantissa: u32,
    pub bias: i64,
    /// 1.5 * 2^mantissa: adding it rounds to an integer, which then stands in the low bits.
    pub magic: f64,
}

impl Layout {
    /// `None` for types that compute in f32.
    pub(crate) fn of(t: DType) -> Option<Layout> {
        let (int, uint, mantissa, bias) = match t.scalar {
            Scalar::F32 => (Scalar::I32, Scalar::U32, 23, 127),
            Scalar::F64 => (Scalar::I64, Scalar::U64, 52, 1023),
            _ => return None,
        };
        let magic = 1.5 * (1u64 << mantissa) as f64;
        Some(Layout { float: t, int: t.with_scalar(int), uint: t.with_scalar(uint), mantissa, bias, magic })
    }
    pub(crate) fn double(self) -> bool {
        self.mantissa == 52
    }
}

pub(crate) fn lit(like: &UOp, v: f64) -> UOp {
    like.const_like(v)
}
pub(crate) fn ilit(t: DType, v: i128) -> UOp {
    UOp::constant(t, ConstVal::Int(v))
}
pub(crate) fn fma(a: &UOp, b: &UOp, c: &UOp) -> UOp {
    UOp::alu(Op::MulAcc, [a.clone(), b.clone(), c.clone()])
}
/// `coefs[0] + coefs[1]*x + …`
pub(crate) fn polynomial(x: &UOp, coefs: &[f64]) -> UOp {
    let (last, rest) = coefs.split_last().unwrap_or((&0.0, &[]));
    rest.iter().rev().fold(lit(x, *last), |p, c| fma(&p, x, &lit(x, *c)))
}
/// (nearest integer as a float, the sum whose low bits hold it). `|x| < 2^(mantissa-2)`.
pub(crate) fn round(x: &UOp, l: Layout) -> (UOp, UOp) {
    let t = x + &lit(x, l.magic);
    (&t - &lit(x, l.magic), t)
}
/// 2^n of what [`round`] left in the low bits; n within the normal exponents.
pub(crate) fn power_of_two(rounded: &UOp, l: Layout) -> UOp {
    let bits = rounded.bitcast(l.int);
    let shifted = bits.binary(Op::Shl, &ilit(l.int, l.mantissa as i128));
    (&shifted + &ilit(l.int, (l.bias as i128) << l.mantissa)).bitcast(l.float)
}
/// `|x|`
pub(crate) fn abs(x: &UOp, l: Layout) -> UOp {
    let mask = l.int.scalar.int_range().1;
    (&x.bitcast(l.int) & &ilit(l.int, mask)).bitcast(l.float)
}

/// Trunc without an instruction for it: through the integer type, for values that can have a fraction.
pub(crate) fn trunc(u: &UOp, target: &Target) -> Option<UOp> {
    let l = Layout::of(u.dtype())?;
    if target.supports(Op::Trunc, u.dtype().scalar) {
        return None;
    }
    let x = &u.src()[0];
    let a = abs(x, l);
    let whole = x.cast(l.int).cast(l.float);
    // Keeps the sign of zero through its sign bit.
    let sign = &x.bitcast(l.int) & &ilit(l.int, l.int.scalar.int_range().0);
    let signed = (&whole.bitcast(l.int) | &sign).bitcast(l.float);
    Some(a.lt(&lit(x, (1u64 << l.mantissa) as f64)).select(&signed, x))
}

/// `a + b*-1` is a subtraction.
pub(crate) fn minus(u: &UOp) -> Option<UOp> {
    let (a, b) = (&u.src()[0], &u.src()[1]);
    let negated = |x: &UOp| {
        let minus_one = x.op() == Op::Mul && x.src()[1].as_const().is_some_and(ConstVal::is_minus_one);
        minus_one.then(|| x.src()[0].clone())
    };
    if !u.dtype().is_int() {
        return None;
    }
    match (negated(a), negated(b)) {
        (_, Some(y)) => Some(a - &y),
        (Some(x), None) if b.op() != Op::Const => Some(b - &x),
        _ => None,
    }
}
